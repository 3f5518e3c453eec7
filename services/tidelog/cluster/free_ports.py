"""Ports for processes that will be killed and started again on them."""

import fcntl
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from tidelog.cluster.api import ClusterError
from tidelog.cluster.process_life import life_of
from tidelog.ids import CLIENT_PORTS

LOWEST: Final = 10_000
EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL_LOW: Final = 32_768


def free_ports(count: int) -> list[int]:
    """`count` distinct ports of 127.0.0.1 on which nothing listens, and which no other living program has been given.

    They lie below the ephemeral range: a port from inside it may be the local end of somebody's connection by the
    time a killed process wants it back. That nothing listens is not enough: a process of another cluster may be dead for
    the moment, or about to be started.
    """
    below = _ephemeral_low()
    found: set[int] = set()
    kept = set(CLIENT_PORTS)
    with _claims() as claims:
        taken = {port for ports in claims.values() for port in ports}
        for _ in range(200 * count):
            if len(found) == count:
                break
            port = LOWEST + secrets.randbelow(below - LOWEST)
            if port not in found and port not in taken and port not in kept and _is_free(port):
                found.add(port)
        if len(found) < count:
            raise ClusterError(f"found only {len(found)} of {count} free ports between {LOWEST} and {below}")
        claims.setdefault(_life(os.getpid()), []).extend(found)
    return sorted(found)


def client_ports(brokers: int) -> list[int]:
    """The first of CLIENT_PORTS, one for each of at most three brokers; none where one of them is taken."""
    wanted = CLIENT_PORTS[:brokers]
    with _claims() as claims:
        taken = {port for ports in claims.values() for port in ports}
        if not all(port not in taken and _is_free(port) for port in wanted):
            return []
        claims.setdefault(_life(os.getpid()), []).extend(wanted)
    return list(wanted)


@contextmanager
def _claims() -> Iterator[dict[str, list[int]]]:
    """The ports that living programs of this user have been given, by program; what is changed in it is kept."""
    path = Path(tempfile.gettempdir()) / f"tidelog-claims-{os.getuid()}.json"
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            claims: dict[str, list[int]] = json.loads(file.read() or "{}")
        except ValueError:  # whoever wrote it was killed in the middle
            claims = {}
        living = {life: ports for life, ports in claims.items() if life == _life(int(life.partition(" ")[0]))}
        yield living
        file.seek(0)
        file.truncate()
        json.dump(living, file)


def _life(pid: int) -> str:
    try:
        return life_of(pid)
    except psutil.NoSuchProcess:
        return ""


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
