"""The HTTP server of a process: `/metrics` for Prometheus, `/health` for a container's health check."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication

from prometheus_client import CollectorRegistry, start_http_server

from tidelog.ids import Address
from tidelog.runtime.scrape import SCRAPE_WAIT_S, ask_on


class MetricsServer:
    """`/metrics` of one registry and `/health`, served by threads of their own so that formatting never delays the event loop."""

    def __init__(self, listen: Address, registry: CollectorRegistry, unwell: Callable[[], str] = lambda: "") -> None:
        """`unwell` says why this process does not do its work, "" if it does. OSError, which names the address, if nothing can
        listen there."""
        try:
            self._server, self._thread = start_http_server(listen.port, listen.host, registry)
        except OSError as error:
            raise OSError(error.errno, f"cannot serve metrics at {listen}: {error.strerror}") from error
        metrics = self._server.get_app()
        assert metrics is not None
        self._server.set_app(_with_health(metrics, unwell))
        self.address = Address(listen.host, int(self._server.server_port))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(
    address: Address, registry: CollectorRegistry, unwell: Callable[[], str] | None = None
) -> MetricsServer:
    """`unwell` is asked on the running event loop, as long as that turns."""
    if unwell is None:
        return MetricsServer(address, registry)
    return MetricsServer(address, registry, ask_on(asyncio.get_running_loop(), unwell))


def _with_health(metrics: WSGIApplication, unwell: Callable[[], str]) -> WSGIApplication:
    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/health":
            return metrics(environ, start_response)
        try:
            why = unwell()
        except TimeoutError:
            why = f"the event loop has not turned for {SCRAPE_WAIT_S:g} s"
        start_response("503 Service Unavailable" if why else "200 OK", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{why or 'ok'}\n".encode()]

    return answer
