"""The web server of the page. It runs until the process is asked to stop."""

import socket
from collections.abc import Callable
from secrets import token_urlsafe
from typing import Final

import uvicorn

from tidelog.ids import Address
from tidelog.page.app import application
from tidelog.page.hub import Hub
from tidelog.page.source import Commanded, Source

NAMES_HERE: Final = ("127.0.0.1", "localhost")
_TRIES: Final = 20
_GRACE_S: Final = 1
BACKLOG: Final = 128


class Busy(OSError):
    """No port could be had; the text is one line."""


def listening(listen: Address, *, exactly: bool) -> socket.socket:
    """Returns a socket that listens on this port, or with `exactly` False on one of the next. Busy."""
    ports = range(listen.port, listen.port + (1 if exactly else _TRIES))
    for port in ports:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((listen.host, port))
            found.listen(BACKLOG)  # the address is printed next, and may be opened at once
        except OSError as error:
            found.close()
            if not exactly and port < ports[-1]:
                continue
            tried = f"port {port}" if exactly else f"ports {ports[0]} to {ports[-1]}"
            raise Busy(f"{tried} of {listen.host}: {error.strerror}; choose another one with --listen") from None
        return found
    raise AssertionError


class _Server(uvicorn.Server):
    """Ends its streams as soon as it is asked to stop; uvicorn would wait for them."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.close()
        await super().shutdown(sockets)


async def serve(
    hub: Hub, source: Source, commanded: Commanded | None, at: socket.socket, ready: Callable[[str], None]
) -> None:
    """Serves pages on a listening socket until SIGINT or SIGTERM, which it raises anew when it has ended.

    ready: called with the address to open; the token for commands is in it.
    """
    host, port = at.getsockname()[:2]
    names = dict.fromkeys((host, *NAMES_HERE) if host not in NAMES_HERE else NAMES_HERE)
    token = token_urlsafe(24)
    app = application(hub, [f"{name}:{port}" for name in names], source, commanded, token)
    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=_GRACE_S)
    ready(f"http://{next(iter(names))}:{port}/" + (f"#token={token}" if commanded is not None else ""))
    await _Server(config, hub).serve(sockets=[at])
