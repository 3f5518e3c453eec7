"""Closes the connection of one peer: gRPC has no call for that, and a response that is never read ends with its connection."""

import os
import socket
from urllib.parse import unquote

_FDS = "/proc/self/fd"


def cut(peer: str) -> bool:
    """Shuts down the connection with `peer`, as gRPC names it: ipv4:127.0.0.1:4711 or ipv6:%5B::1%5D:4711. False if there is
    none."""
    _, _, text = unquote(peer).partition(":")
    host, _, port = text.rpartition(":")
    wanted = host.strip("[]"), port
    for name in os.listdir(_FDS):
        found = _connected(name)
        if found is None:
            continue
        with found:
            try:
                address = found.getpeername()
                if isinstance(address, tuple) and (address[0].removeprefix("::ffff:"), str(address[1])) == wanted:
                    found.shutdown(socket.SHUT_RDWR)
                    return True
            except OSError:
                continue  # it listens, or is closed meanwhile
    return False


def _connected(name: str) -> socket.socket | None:
    """A copy of a descriptor of this process, if that is a socket."""
    try:
        if not os.readlink(f"{_FDS}/{name}").startswith("socket:"):
            return None
        return socket.socket(fileno=os.dup(int(name)))
    except OSError:
        return None
