"""The web application behind the page: its files, the stream of messages, and commands, if the source takes any.

A page may kill processes, so requests are checked: `Host` against a name that leads elsewhere (DNS rebinding), `Origin` against
pages of others, and a token that only the address of the page has.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from secrets import compare_digest
from typing import Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelog.page import files
from tidelog.page.hub import Full, Hub, Page
from tidelog.page.source import Commanded, Refused, Source
from tidelog.runtime.tasks import Supervisor

T = TypeVar("T")

TOKEN_HEADER: Final = "x-tidelog-token"
GONE: Final = "The page has stopped because of an error, which the terminal shows: start the command again"
BODY_MAX: Final = 64 << 10
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


def application(hub: Hub, hosts: Sequence[str], source: Source, commanded: Commanded | None, token: str) -> Starlette:
    """Returns the application.

    hosts: what `Host` may be, each with its port.
    source: runs while the application does.
    commanded: takes commands; without it the application has no route for any.
    token: what commands must carry.
    """
    routes = [Route("/", _page), Route("/stream", _stream), Route("/static/{name}", _static)]
    if commanded is not None:
        routes += [Route("/do", _do, methods=["POST"]), Route("/save", _save, methods=["POST"])]
    app = Starlette(routes=routes, middleware=[Middleware(_OnlyHere, hosts=tuple(hosts))], lifespan=_running)
    app.state.hub, app.state.source, app.state.commanded, app.state.token = hub, source, commanded, token
    return app


@asynccontextmanager
async def _running(app: Starlette) -> AsyncIterator[None]:
    """Runs the source. If it fails, pages are told, and what they show stays."""
    tasks = Supervisor("page", lambda _: app.state.hub.tell("gone", {"text": GONE}))
    tasks.start("source", app.state.source.run())
    yield
    await tasks.stop()


class _OnlyHere:
    """Refuses requests that a page of somewhere else may have led to."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._refusal(Request(scope))):
            await PlainTextResponse(error + "\n", 403, HEADERS)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, request: Request) -> str:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if host not in self._hosts:
            return f"Host {host!r} is not the address of this page: open http://{self._hosts[0]}/"
        if origin is not None and origin not in {f"http://{each}" for each in self._hosts}:
            return f"Origin {origin!r} is another page: only the page at http://{self._hosts[0]}/ may ask"
        return ""


async def _page(request: Request) -> Response:
    page, policy = files.served()
    return Response(page, 200, {**HEADERS, "Content-Security-Policy": policy}, "text/html; charset=utf-8")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in files.names():
        return PlainTextResponse(f"there is no file {name}\n", 404, HEADERS)
    kind = next(kind for ending, kind in files.TYPES.items() if name.endswith(ending))
    return Response(files.read(name), 200, HEADERS, f"{kind}; charset=utf-8")


async def _stream(request: Request) -> Response:
    hub: Hub = request.app.state.hub
    try:
        page = hub.join()
    except Full as error:
        return PlainTextResponse(f"{error}\n", 503, HEADERS)
    return StreamingResponse(_messages(hub, page), 200, HEADERS, "text/event-stream")


async def _messages(hub: Hub, page: Page) -> AsyncIterator[str]:
    try:
        async for message in page.messages():
            yield message
    finally:
        hub.leave(page)


async def _do(request: Request) -> Response:
    body = await _body(request)
    if isinstance(body, Response):
        return body
    found = await _outcome(request.app.state.commanded.do(body))
    return found if isinstance(found, Response) else JSONResponse({}, 200, HEADERS)


async def _save(request: Request) -> Response:
    body = await _body(request)
    if isinstance(body, Response):
        return body
    found = await _outcome(request.app.state.commanded.save(str(body.get("as"))))
    if isinstance(found, Response):
        return found
    disposition = {"Content-Disposition": f'attachment; filename="{found.name}"'}
    return Response(found.content, 200, {**HEADERS, **disposition}, found.media_type)


async def _body(request: Request) -> dict[str, Any] | Response:
    """Returns a command, or the refusal of it."""
    token = request.headers.get(TOKEN_HEADER, "")
    if not compare_digest(token.encode(), request.app.state.token.encode()):
        return _error("the token is missing or wrong: open the page by the address that its command printed", 403)
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return _error("Content-Type must be application/json", 415)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_MAX:
            return _error(f"a command has at most {BODY_MAX} bytes", 413)
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return _error("the command is not JSON", 400)
    return body if isinstance(body, dict) else _error('a command is an object like {"play": true}', 400)


async def _outcome(future: Future[T]) -> T | Response:
    try:
        return await asyncio.wrap_future(future)
    except Refused as error:
        return _error(str(error), 400)


def _error(text: str, status: int) -> Response:
    return JSONResponse({"error": text}, status, HEADERS)
