"""`python -m tidelog.controller`: one controller process, set by TIDELOG_* variables and a TOML file."""

import sys
from collections.abc import Collection

from prometheus_client import CollectorRegistry, Gauge

from tidelog.config import ControllerSettings, load
from tidelog.controller.app import Controller
from tidelog.runtime import descriptors, logs, process
from tidelog.runtime.loop import settle_memory
from tidelog.runtime.metrics import ControllerMetrics
from tidelog.runtime.metrics_server import serve_metrics
from tidelog.runtime.real_ports import real_ports
from tidelog.runtime.tasks import Supervisor

ANSWER_BYTES = 50 << 20
"""The limit that brokers have by default. A description of 100,000 partitions has about 5 MB."""


class UnreadZnodes:
    """Shows which znodes the active controller cannot read and does without."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "1 for each znode of settings that the active controller cannot read, by its path."
        self._gauge = Gauge("tidelog_controller_unreadable_znode", text, ["path"], registry=registry)

    def show(self, paths: Collection[str]) -> None:
        """Shows these, and no others."""
        self._gauge.clear()
        for path in paths:
            self._gauge.labels(path).set(1)


async def serve(supervisor: Supervisor) -> None:
    settings = load(ControllerSettings)
    name = f"controller-{settings.controller_id}"
    logs.configure(name, settings.log_format, settings.log_level)
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    connections = descriptors.connections_max(descriptors.raise_limit(), files=0, listeners=1)
    watch = metrics.process.loop_watch()
    ports = real_ports(
        *(name, settings, supervisor, metrics.process, metrics.zk, ANSWER_BYTES),
        connections=connections,
        stalled_s=lambda: watch.stalled_s,
    )
    controller = Controller(settings, ports, supervisor, metrics, UnreadZnodes(registry).show)
    if settings.metrics_address is not None:
        serve_metrics(settings.metrics_address, registry, controller.unwell)
    try:
        await controller.start()
        supervisor.start("loop watch", watch.run())
        settle_memory()
        await supervisor.wait()
    finally:
        await controller.stop()


def main() -> None:
    sys.exit(process.run(serve))


if __name__ == "__main__":
    main()
