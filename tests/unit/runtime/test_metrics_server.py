"""The HTTP server of a process: what a health check gets."""

import asyncio
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from tidelog.ids import Address
from tidelog.runtime import metrics_server, scrape
from tidelog.runtime.metrics_server import MetricsServer, serve_metrics


def asked(server: MetricsServer, path: str = "/health") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{server.address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


@pytest.mark.real_loop
async def test_health_says_why_a_process_does_no_work() -> None:
    said = ""
    server = serve_metrics(Address("127.0.0.1", 0), CollectorRegistry(), lambda: said)
    try:
        assert await asyncio.to_thread(asked, server) == (200, "ok\n")
        assert (await asyncio.to_thread(asked, server, "/metrics"))[0] == 200
        said = "no broker has answered yet"
        assert await asyncio.to_thread(asked, server) == (503, "no broker has answered yet\n")
    finally:
        server.close()


@pytest.mark.real_loop
async def test_a_loop_that_does_not_turn_is_unwell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "SCRAPE_WAIT_S", 0.1)
    monkeypatch.setattr(metrics_server, "SCRAPE_WAIT_S", 0.1)
    server = serve_metrics(Address("127.0.0.1", 0), CollectorRegistry(), lambda: "")
    try:
        answer = asyncio.get_running_loop().run_in_executor(None, asked, server)
        await asyncio.sleep(0)
        time.sleep(1.0)  # noqa: ASYNC251 - nothing else runs on the loop meanwhile
        assert await answer == (503, "the event loop has not turned for 0.1 s\n")
    finally:
        server.close()
