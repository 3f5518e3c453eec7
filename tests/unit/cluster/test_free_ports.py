"""Ports are given to one program at a time, whether anything listens on them or not."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cluster import free_ports as module
from tidelog.cluster.api import ClusterError
from tidelog.cluster.free_ports import free_ports

RANGE = 1_100
"""As many ports as there are to give, so that two programs would surely meet."""


@pytest.fixture(autouse=True)
def few_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low = tmp_path / "range"
    low.write_text(f"{module.LOWEST + RANGE} 60999")
    monkeypatch.setattr(module, "EPHEMERAL_RANGE", low)
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))


def in_another_program(tmp_path: Path, count: int, then: str = "") -> subprocess.Popen[str]:
    script = f"""
import tempfile
from pathlib import Path
tempfile.tempdir = {str(tmp_path)!r}
from tidelog.cluster import free_ports as module
module.EPHEMERAL_RANGE = Path({str(tmp_path / "range")!r})
print(*module.free_ports({count}), flush=True)
{then}
"""
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def test_what_a_living_program_was_given_is_given_to_nobody_else(tmp_path: Path) -> None:
    with in_another_program(tmp_path, 500, "input()") as other:
        assert other.stdout is not None
        theirs = set(map(int, other.stdout.readline().split()))
        ours = set(free_ports(500))
        assert len(theirs) == len(ours) == 500 and not ours & theirs
        with pytest.raises(ClusterError, match="found only"):
            free_ports(500)
        other.communicate("\n")
    assert set(free_ports(500)) & theirs, "it is gone, and so are its claims"


def test_a_file_of_claims_that_was_cut_off_claims_nothing(tmp_path: Path) -> None:
    free_ports(1)
    (claims,) = tmp_path.glob("tidelog-claims-*")
    claims.write_text(claims.read_text()[:-5])
    assert len(free_ports(3)) == 3


def test_ports_of_clients_are_given_when_all_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = free_ports(3)
    monkeypatch.setattr(module, "CLIENT_PORTS", (first, second, third))
    assert module.client_ports(3) == [], "a program that lives has been given them"
    (Path(module.tempfile.gettempdir()) / f"tidelog-claims-{os.getuid()}.json").unlink()
    assert module.client_ports(2) == [first, second]
    (Path(module.tempfile.gettempdir()) / f"tidelog-claims-{os.getuid()}.json").unlink()
    with socket.create_server(("127.0.0.1", second)):
        assert module.client_ports(2) == module.client_ports(3) == []
        assert module.client_ports(1) == [first]


def test_ports_of_clients_are_given_to_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENT_PORTS", tuple(range(module.LOWEST, module.LOWEST + RANGE, 2)))
    assert all(port % 2 for port in free_ports(RANGE // 3))
