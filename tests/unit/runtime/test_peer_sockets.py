"""Closing the connection of a peer by the name that gRPC has for it."""

import socket
from contextlib import ExitStack

import pytest

from tidelog.runtime.peer_sockets import cut


@pytest.mark.parametrize(
    ("family", "host", "written"),
    [(socket.AF_INET, "127.0.0.1", "ipv4:127.0.0.1"), (socket.AF_INET6, "::1", "ipv6:%5B::1%5D")],
    ids=["v4", "v6"],
)
def test_one_connection_is_closed_and_no_other(family: socket.AddressFamily, host: str, written: str) -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((host, 0), family=family))
        port = listener.getsockname()[1]
        clients = [stack.enter_context(socket.create_connection((host, port), timeout=5.0)) for _ in range(3)]
        served = [stack.enter_context(listener.accept()[0]) for _ in clients]
        assert cut(f"{written}:{clients[1].getsockname()[1]}")
        assert clients[1].recv(1) == b""
        served[0].sendall(b"0")
        served[2].sendall(b"2")
        assert (clients[0].recv(1), clients[2].recv(1)) == (b"0", b"2")


def test_an_unknown_peer_is_none() -> None:
    with socket.socket() as unconnected:
        assert not cut("ipv4:127.0.0.1:1") and unconnected.fileno() >= 0
    assert not cut("unix:/tmp/x")
