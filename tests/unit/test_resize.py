"""`make grow` and `make shrink`, with a docker that writes down its orders: when Prometheus watches an added broker."""

import os
import subprocess
from pathlib import Path

import pytest

from helpers.scripts import ROOT

DOCKER = """#!/bin/sh
echo "$*" >>"$ORDERS"
"""
TARGETS = "compose exec -T prometheus target"


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ORDERS", str(tmp_path / "orders"))
    return tmp_path / "orders"


def resized(orders: Path, *words: str) -> list[str]:
    subprocess.run([ROOT / "scripts" / "resize.sh", *words], check=True)
    return [line for line in orders.read_text().splitlines() if " drain " in f"{line} " or "compose" in line]


def test_a_broker_is_no_target_before_it_stops(orders: Path) -> None:
    said = resized(orders, "shrink", "4", "5")
    removed = [said.index(f"{TARGETS} remove broker broker-{number}:9101") for number in (4, 5)]
    (drained,) = (n for n, line in enumerate(said) if line.endswith("brokers drain 4 5 --wait"))
    stopped = said.index("compose rm --stop --force broker-4 broker-5")
    assert drained < min(removed) < max(removed) < stopped


def test_a_broker_is_a_target_from_its_start(orders: Path) -> None:
    said = resized(orders, "grow", "4")
    assert said.index("compose up -d --wait broker-4") < said.index(f"{TARGETS} add broker broker-4:9101")
