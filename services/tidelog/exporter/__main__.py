"""`python -m tidelog.exporter --zookeeper host:port[,host:port...] --listen 0.0.0.0:9141`."""

import argparse
import asyncio
import logging
import sys
from functools import partial

from prometheus_client import CollectorRegistry

from tidelog.config import Settings, load
from tidelog.exporter.mntr import MntrCollector
from tidelog.ids import Address
from tidelog.runtime import logs, process
from tidelog.runtime.metrics import ProcessMetrics
from tidelog.runtime.metrics_server import serve_metrics
from tidelog.runtime.tasks import Supervisor

log = logging.getLogger(__name__)


def servers(text: str) -> list[Address]:
    try:
        return [Address.parse(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def serve(options: argparse.Namespace, supervisor: Supervisor) -> None:
    settings = load(Settings)
    logs.configure("zookeeper-exporter", settings.log_format, settings.log_level)
    registry = CollectorRegistry()
    metrics = ProcessMetrics(registry)
    registry.register(MntrCollector(options.zookeeper, options.timeout))
    server = serve_metrics(options.listen, registry)
    log.info("metrics of %s at %s/metrics", ", ".join(map(str, options.zookeeper)), server.address)
    supervisor.start("loop watch", metrics.loop_watch().run())
    try:
        await asyncio.Event().wait()
    finally:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tidelog.exporter", description="ZooKeeper's mntr as Prometheus metrics.")
    parser.add_argument("--zookeeper", type=servers, required=True, metavar="HOST:PORT[,HOST:PORT...]")
    parser.add_argument("--listen", type=address, default=Address("0.0.0.0", 9141), metavar="HOST:PORT")
    parser.add_argument("--timeout", type=float, default=2.0, metavar="SECONDS", help="for one server's answer")
    sys.exit(process.run(partial(serve, parser.parse_args())))


if __name__ == "__main__":
    main()
