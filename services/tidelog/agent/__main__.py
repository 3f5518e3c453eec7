"""`python -m tidelog.agent`: one agent process, set by TIDELOG_* variables and a TOML file."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry

from tidelog.agent.app import STATES, Agent, agent_id_of, handler_of
from tidelog.client.connections import ClientPorts
from tidelog.config import AgentSettings, load
from tidelog.ids import Address
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
from tidelog.watch.logged import LoggedRing
from tidelog.watch.service import WatchService

STOP_GRACE_S: Final = 1.0
"""For watchers to hear of the last events."""


@asynccontextmanager
async def _shown(address: Address | None, net: GrpcNet, service: WatchService) -> AsyncIterator[int]:
    """Shows protocol events at `address` until the end of the context, whose value is the port; 0 without an address."""
    if address is None:
        yield 0
        return
    server = await net.serve(address, [service.route()])
    server.set_serving(True)
    try:
        yield server.address.port
    finally:
        service.end()
        await server.stop(STOP_GRACE_S)


async def serve(settings: AgentSettings, supervisor: Supervisor) -> None:
    clock, rand = SystemClock(), random.SystemRandom()
    net = GrpcNet(Limits(answer_bytes=max(FETCH_MAX_BYTES, settings.fetch_max_bytes)), settings.link_map)
    agent_id = agent_id_of(settings, rand)
    logs.configure(agent_id, settings.log_format, settings.log_level)
    registry = CollectorRegistry()
    metrics = AgentMetrics(registry)
    ring = LoggedRing(agent_id, clock.wall_ms(), clock)
    async with _shown(settings.watch_address, net, WatchService(ring, clock)) as watch_port:
        ports = ClientPorts(clock, net, rand, recorder=ring, watch_port=watch_port)
        agent = Agent(settings, agent_id, handler_of(settings, agent_id, ports, OsDisk()), ports, metrics)
        metrics.watch(agent.snapshot, STATES, asyncio.get_running_loop())
        if settings.metrics_address is not None:
            serve_metrics(settings.metrics_address, registry, agent.unwell)
        supervisor.start("loop watch", metrics.process.loop_watch().run())
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
