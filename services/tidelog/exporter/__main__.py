"""`python -m tidelog.exporter --zookeeper host:port[,host:port...] --listen 0.0.0.0:9141`."""

import argparse
import logging
import signal
import sys
import threading

from prometheus_client import CollectorRegistry

from tidelog.exporter.mntr import MntrCollector
from tidelog.ids import Address
from tidelog.runtime.metrics_server import serve_metrics

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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="tidelog.exporter", description="ZooKeeper's mntr as Prometheus metrics.")
    parser.add_argument("--zookeeper", type=servers, required=True, metavar="HOST:PORT[,HOST:PORT...]")
    parser.add_argument("--listen", type=address, default=Address("0.0.0.0", 9141), metavar="HOST:PORT")
    parser.add_argument("--timeout", type=float, default=2.0, metavar="SECONDS", help="for one server's answer")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MntrCollector(options.zookeeper, options.timeout))
    try:
        server = serve_metrics(options.listen, registry)
    except OSError as error:
        sys.exit(f"tidelog.exporter: {error.strerror}")
    log.info("metrics of %s on %s/metrics", ", ".join(map(str, options.zookeeper)), server.address)
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    end.wait()
    server.close()


if __name__ == "__main__":
    main()
