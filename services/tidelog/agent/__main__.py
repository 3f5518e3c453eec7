"""`python -m tidelog.agent`: one agent process, set by TIDELOG_* variables and a TOML file."""

import asyncio
import random
import sys

from prometheus_client import CollectorRegistry

from tidelog.agent.app import STATES, Agent, agent_id_of, handler_of
from tidelog.client.connections import ClientPorts
from tidelog.config import AgentSettings, load
from tidelog.runtime import logs, process
from tidelog.runtime.agent_metrics import AgentMetrics
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.loop import settle_memory
from tidelog.runtime.metrics_server import serve_metrics
from tidelog.runtime.os_disk import OsDisk
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.runtime.rpc_options import Limits
from tidelog.runtime.tasks import Supervisor
from tidelog.sizes import FETCH_MAX_BYTES


async def serve(settings: AgentSettings, supervisor: Supervisor) -> None:
    net = GrpcNet(Limits(answer_bytes=max(FETCH_MAX_BYTES, settings.fetch_max_bytes)), settings.link_map)
    ports = ClientPorts(SystemClock(), net, random.SystemRandom())
    agent_id = agent_id_of(settings, ports)
    logs.configure(agent_id, settings.log_format, settings.log_level)
    registry = CollectorRegistry()
    metrics = AgentMetrics(registry)
    agent = Agent(settings, agent_id, handler_of(settings, agent_id, ports, OsDisk()), ports, metrics)
    metrics.watch(agent.snapshot, STATES, asyncio.get_running_loop())
    if settings.metrics_address is not None:
        serve_metrics(settings.metrics_address, registry, agent.unwell)
    supervisor.start("loop lag", metrics.process.watch_loop(ports.clock))
    settle_memory()
    try:
        await agent.run(supervisor)
    finally:
        await agent.stop()


def main() -> None:
    async def serve_as_set(supervisor: Supervisor) -> None:
        await serve(load(AgentSettings), supervisor)

    sys.exit(process.run(serve_as_set))


if __name__ == "__main__":
    main()
