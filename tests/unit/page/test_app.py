"""The web application answers its own page only, and takes commands with its token only."""

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from tidelog.ids import Address
from tidelog.page.app import BODY_MAX, application
from tidelog.page.hub import PAGES_MAX, Hub
from tidelog.page.server import Busy, listening
from tidelog.page.source import File, Refused

TOKEN = "t0ken"


class Puppet:
    def __init__(self) -> None:
        self.commands: list[Mapping[str, Any]] = []

    async def run(self) -> None: ...

    def do(self, command: Mapping[str, Any]) -> Future[None]:
        self.commands.append(command)
        future: Future[None] = Future()
        if "play" in command:
            future.set_result(None)
        else:
            future.set_exception(Refused("this cannot be done"))
        return future

    def save(self, kind: str) -> Future[File]:
        future: Future[File] = Future()
        future.set_result(File("kept.html", "text/html; charset=utf-8", f"<p>{kind}"))
        return future


@contextmanager
def serving(source: Puppet | None) -> Iterator[tuple[int, Hub]]:
    hub = Hub()
    at = listening(Address("127.0.0.1", 0), exactly=True)
    port: int = at.getsockname()[1]
    app = application(hub, [f"127.0.0.1:{port}", f"localhost:{port}"], source or Puppet(), source, TOKEN)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [at]})
    thread.start()
    try:
        yield port, hub
    finally:
        hub.close()
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def page() -> Iterator[tuple[int, Hub, Puppet]]:
    source = Puppet()
    with serving(source) as (port, hub):
        yield port, hub, source


def ask(
    port: int, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def post(port: int, command: Any, path: str = "/do", **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    sent = {"X_Tidelog_Token": TOKEN, "Content_Type": "application/json", **headers}
    return ask(port, "POST", path, json.dumps(command).encode(), **sent)


def test_a_command_with_the_token_is_done(page: tuple[int, Hub, Puppet]) -> None:
    port, _, source = page
    assert post(port, {"play": True})[:2] == (200, "{}") and source.commands[-1] == {"play": True}
    status, text, headers = post(port, {"as": "page"}, "/save", Origin=f"http://localhost:{port}")
    assert (status, text) == (200, "<p>page") and headers["Content-Disposition"] == 'attachment; filename="kept.html"'
    assert json.loads(post(port, {"act": {}})[1]) == {"error": "this cannot be done"}


@pytest.mark.parametrize("path", ["/", "/stream", "/static/main.js", "/do", "/save"])
def test_another_host_or_origin_is_refused_everywhere(page: tuple[int, Hub, Puppet], path: str) -> None:
    port, _, source = page
    before = len(source.commands)
    method = "POST" if path in ("/do", "/save") else "GET"
    for headers, word in (
        ({"Host": "evil.example"}, "Host 'evil.example'"),
        ({"Host": f"evil.example:{port}"}, "Host"),
        ({"Host": "127.0.0.1"}, "Host"),
        ({"Origin": "http://evil.example"}, "Origin 'http://evil.example'"),
        ({"Origin": "null"}, "Origin 'null'"),
        ({"Origin": f"https://127.0.0.1:{port}"}, "Origin"),
    ):
        status, text, _ = ask(
            port, method, path, b'{"play": true}', X_Tidelog_Token=TOKEN, Content_Type="application/json", **headers
        )
        assert status == 403 and text.startswith(word) and text.count("\n") == 1 and f"127.0.0.1:{port}" in text
    assert len(source.commands) == before


@pytest.mark.parametrize("path", ["/do", "/save"])
def test_commands_that_are_none_are_told_why(page: tuple[int, Hub, Puppet], path: str) -> None:
    port, _, source = page
    before = len(source.commands)
    good = {"X_Tidelog_Token": TOKEN, "Content_Type": "application/json"}
    for body, headers, status, word in (
        (b"{}", {"Content_Type": "application/json"}, 403, "the token is missing or wrong"),
        (b"{}", {**good, "X_Tidelog_Token": "t0keN"}, 403, "the token is missing or wrong"),
        (b"{}", {**good, "X_Tidelog_Token": "\xe9"}, 403, "the token is missing or wrong"),
        (b"{}", {**good, "Content_Type": "text/plain"}, 415, "Content-Type must be application/json"),
        (b"[" * 60_000, good, 400, "the command is not JSON"),
        (b"{", good, 400, "the command is not JSON"),
        (b"\xff", good, 400, "the command is not JSON"),
        (b"[1]", good, 400, "a command is an object"),
        (b" " * (BODY_MAX + 1), good, 413, f"a command has at most {BODY_MAX} bytes"),
    ):
        found, text, _ = ask(port, "POST", path, body, **headers)
        assert found == status and json.loads(text)["error"].startswith(word)
    assert len(source.commands) == before


def test_without_a_source_there_is_nothing_to_command() -> None:
    with serving(None) as (port, _):
        assert ask(port, "GET", "/")[0] == 200
        assert {post(port, {"play": True}, path)[0] for path in ("/do", "/save")} == {404}


def test_the_page_can_be_neither_framed_nor_kept(page: tuple[int, Hub, Puppet]) -> None:
    port, _, _ = page
    status, text, headers = ask(port, "GET", "/")
    assert status == 200 and "importmap" in text and headers["Cache-Control"] == "no-store"
    assert (
        "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        and headers["X-Content-Type-Options"] == "nosniff"
    )
    assert ask(port, "GET", "/static/main.js")[2]["Content-Type"] == "text/javascript; charset=utf-8"
    for name in ("nothing.js", "..%2f..%2frelease.py", "README.md", "%2e%2e/app.py"):
        assert ask(port, "GET", f"/static/{name}")[0] == 404


def test_the_twenty_first_page_is_told_why(page: tuple[int, Hub, Puppet]) -> None:
    port, hub, _ = page
    hub.tell("hello", {"title": "x"})
    open_: list[http.client.HTTPConnection] = []
    for _ in range(PAGES_MAX):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/stream")
        assert connection.getresponse().readline() == b'data: {"v":1,"hello":{"title":"x"}}\n'
        open_.append(connection)
    status, text, _ = ask(port, "GET", "/stream")
    assert status == 503 and text.startswith("20 pages are open, which is the limit") and text.count("\n") == 1
    for connection in open_:
        connection.close()


def test_a_port_that_is_taken_is_told_or_passed_over() -> None:
    taken = listening(Address("127.0.0.1", 0), exactly=True)
    port: int = taken.getsockname()[1]
    try:
        with pytest.raises(Busy, match=rf"port {port} of 127\.0\.0\.1: .*; choose another one with --listen"):
            listening(Address("127.0.0.1", port), exactly=True)
        other = listening(Address("127.0.0.1", port), exactly=False)
        assert port < other.getsockname()[1] < port + 20
        other.close()
    finally:
        taken.close()
