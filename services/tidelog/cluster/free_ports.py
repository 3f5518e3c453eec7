"""Ports for processes that will be killed and started again on them."""

import secrets
import socket
from pathlib import Path
from typing import Final

from tidelog.cluster.api import ClusterError

LOWEST: Final = 10_000
EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL_LOW: Final = 32_768


def free_ports(count: int) -> list[int]:
    """`count` distinct ports of 127.0.0.1 on which nothing listens.

    They lie below the ephemeral range: a port from inside it may be the local end of somebody's connection by the
    time a killed process wants it back.
    """
    below = _ephemeral_low()
    found: set[int] = set()
    for _ in range(200 * count):
        if len(found) == count:
            break
        port = LOWEST + secrets.randbelow(below - LOWEST)
        if port not in found and _is_free(port):
            found.add(port)
    if len(found) < count:
        raise ClusterError(f"found only {len(found)} of {count} free ports between {LOWEST} and {below}")
    return sorted(found)


def _ephemeral_low() -> int:
    try:
        low = int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return DEFAULT_EPHEMERAL_LOW
    return low if low > LOWEST + 1000 else DEFAULT_EPHEMERAL_LOW


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do: TIME_WAIT is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
