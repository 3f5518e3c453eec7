"""`python -m tidelog.broker`: one broker process, set by TIDELOG_* variables and a TOML file."""

import logging
import sys

from prometheus_client import CollectorRegistry

from tidelog.broker.app import Broker
from tidelog.config import BrokerSettings, load
from tidelog.runtime import descriptors, logs, process
from tidelog.runtime.loop import settle_memory
from tidelog.runtime.metrics import BrokerMetrics
from tidelog.runtime.metrics_server import serve_metrics
from tidelog.runtime.real_ports import real_ports
from tidelog.runtime.tasks import Supervisor

log = logging.getLogger(__name__)


async def serve(supervisor: Supervisor) -> None:
    settings = load(BrokerSettings)
    name = f"broker-{settings.broker_id}"
    logs.configure(name, settings.log_format, settings.log_level)
    registry = CollectorRegistry()
    metrics = BrokerMetrics(registry)
    limit = descriptors.raise_limit()
    files = descriptors.files_max(limit, settings.max_open_segments)
    if files < settings.max_open_segments:
        log.warning(
            "max_open_segments is %d, this process may have %d file descriptors: %d segments are kept open",
            settings.max_open_segments,
            limit,
            files,
        )
    watch = metrics.process.loop_watch()
    ports = real_ports(
        *(name, settings, supervisor, metrics.process, metrics.zk, settings.fetch_max_bytes, metrics.log.flushed),
        connections=descriptors.connections_max(limit, files, len(settings.listener_addresses)),
        stalled_s=lambda: watch.stalled_s,
        coordinates=True,
        works=True,
    )
    broker = Broker(settings, ports, supervisor, metrics, open_files_max=files)
    if settings.metrics_address is not None:
        serve_metrics(settings.metrics_address, registry, broker.unwell)
    try:
        await broker.start()
        supervisor.start("loop watch", watch.run())
        settle_memory()
        await supervisor.wait()
    finally:
        await broker.stop()


def main() -> None:
    sys.exit(process.run(serve))


if __name__ == "__main__":
    main()
