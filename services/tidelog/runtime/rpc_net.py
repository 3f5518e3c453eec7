"""Calls and streams over gRPC: `ports.net.Net` for real processes."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.ids import Address
from tidelog.ports.net import Probe, Route
from tidelog.runtime.rpc_channel import GrpcChannel
from tidelog.runtime.rpc_options import Limits

if TYPE_CHECKING:
    from tidelog.runtime.responses import ResponseBudget
    from tidelog.runtime.rpc_server import GrpcServer

_RESET_WAIT_S: Final = 0.05
"""A proxy accepts before it knows; when its target refuses, its reset follows within this time."""

_REFUSED: Final = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE})
_GONE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})


_used_by: int | None = None
"""The process that was the first to use gRPC, this one or one that it was forked from."""


def refuse_after_fork() -> None:
    """RuntimeError in a process that was forked from one that has used gRPC: its locks and threads are of that process, and
    the first call would kill this one or never end."""
    if _used_by not in (None, os.getpid()):
        raise RuntimeError(
            f"this process was forked from process {_used_by}, which has used gRPC, and gRPC does not survive a fork: "
            'start it by multiprocessing.get_context("spawn") or "forkserver", or fork before the first client is made'
        )


def _use_grpc() -> None:
    global _used_by
    refuse_after_fork()
    _used_by = os.getpid()


class GrpcNet:
    """`link_map` rewrites addresses that this process dials, so that its links can run through a proxy."""

    def __init__(
        self,
        limits: Limits | None = None,
        link_map: Mapping[Address, Address] | None = None,
        on_bug: Callable[[str], None] = lambda path: None,
    ) -> None:
        """`on_bug` is called with the method's path when a handler raised what is no part of its protocol."""
        refuse_after_fork()
        self._limits = limits or Limits()
        self._link_map = dict(link_map or {})
        self._on_bug = on_bug
        self.responses: ResponseBudget | None = None
        """One for all listeners of this process; None in a client."""

    async def serve(self, listen: Address, routes: Sequence[Route], advertised: Address | None = None) -> "GrpcServer":
        # Health and reflection cost a client half its start.
        from tidelog.runtime.peer_sockets import cut
        from tidelog.runtime.responses import ResponseBudget
        from tidelog.runtime.rpc_server import serve

        _use_grpc()
        if self.responses is None:
            limits = self._limits
            self.responses = ResponseBudget(
                time.monotonic, cut, limits.responses_bytes, limits.connection_responses_bytes
            )
        return await serve(listen, routes, self._limits, self._on_bug, self.responses, advertised)

    def channel(self, address: Address, *, purpose: str, to_anyone: bool = False) -> GrpcChannel:
        _use_grpc()
        meant_for = None if to_anyone else address
        return GrpcChannel(self._link_map.get(address, address), purpose, self._limits, meant_for)

    async def probe(self, address: Address, timeout_s: float) -> Probe:
        host, port = self._link_map.get(address, address)
        try:
            async with asyncio.timeout(timeout_s):
                return await _connect(host, port)
        except TimeoutError:
            return Probe.SILENT
        except socket.gaierror as error:
            # EAI_AGAIN is the name server's own trouble and says nothing about the host.
            return Probe.GONE if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA) else Probe.UNRESOLVED
        except OSError as error:
            if error.errno in _REFUSED:
                return Probe.REFUSED
            return Probe.GONE if error.errno in _GONE else Probe.SILENT


async def _connect(host: str, port: int) -> Probe:
    """To the name's addresses in order, as each may be another family; the last one's error counts."""
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as connection:
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, address)
                async with asyncio.timeout(_RESET_WAIT_S):
                    await loop.sock_recv(connection, 1)
            except TimeoutError as error:
                if error.errno is not None:  # ETIMEDOUT of the connect
                    failure = error
                    continue
            except OSError as error:
                failure = error
                continue
            return Probe.OPEN
    assert failure is not None
    raise failure
