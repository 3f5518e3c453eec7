"""`python -m tidelog.traffic`: a paced producer, set by TIDELOG_* variables and a TOML file."""

import asyncio
import random
import sys

from prometheus_client import CollectorRegistry

from tidelog.client.connections import ClientPorts
from tidelog.config import TrafficSettings, load
from tidelog.runtime import logs, process
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.metrics_server import serve_metrics
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.runtime.rpc_options import Limits
from tidelog.runtime.tasks import Supervisor
from tidelog.runtime.traffic_metrics import TrafficMetrics
from tidelog.traffic.app import Traffic

STOP_S = 5.0
"""For what is on its way."""


async def serve(supervisor: Supervisor) -> None:
    settings = load(TrafficSettings)
    logs.configure(settings.client_id, settings.log_format, settings.log_level)
    registry = CollectorRegistry()
    metrics = TrafficMetrics(registry)
    ports = ClientPorts(SystemClock(), GrpcNet(Limits(), settings.link_map), random.SystemRandom())
    traffic = Traffic(settings, ports, metrics)
    if settings.metrics_address is not None:
        serve_metrics(settings.metrics_address, registry, traffic.unwell)
    supervisor.start("loop watch", metrics.process.loop_watch().run())
    metrics.watch_ack_gaps(traffic.longest_ack_gaps, asyncio.get_running_loop())
    supervisor.start("reader", traffic.read_back())
    supervisor.start("acknowledgements", traffic.watch_acks())
    try:
        await traffic.run()
    finally:
        try:
            async with asyncio.timeout(STOP_S):
                await traffic.stop()
        except TimeoutError:
            pass  # the cluster is gone: what was not acknowledged is lost, and counted nowhere


def main() -> None:
    sys.exit(process.run(serve))


if __name__ == "__main__":
    main()
