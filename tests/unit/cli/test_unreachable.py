"""A command whose brokers cannot be reached ends within two seconds, with 1 and one line that gives the cause.

Commands run on the simulator's loop, so their time is virtual and a limit holds on any machine.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import pytest

from helpers.fake_broker import FakeCluster
from tidelog.runtime import loop
from tidelog.testing import loop as sim
from unit.cli.conftest import Tidelog

SOON_S: Final = 2.0
HINT: Final = ": is the cluster up? `tidelog local up` starts one"
DOWN: Final = f"nothing answers at b1:9092, b2:9092, b3:9092 (connection refused){HINT}"
NO_HOST: Final = f"nothing answers at nohost:9092 (no such host, or no route to it){HINT}"


NOTHING_ANSWERS: Final = [
    ("topics", "list"),
    ("topics", "describe", "events"),
    ("topics", "create", "new"),
    ("produce", "events"),
    ("consume", "events", "--from-beginning"),
    ("consume", "events", "--group", "g"),
    ("groups", "list"),
    ("brokers", "list"),
    ("get-offsets", "--topic", "events"),
    ("configs", "describe", "--topic", "events"),
    ("top", "--once"),
]


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Virtual seconds of each event loop that the command runs."""
    seconds: list[float] = []

    async def timed(main: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await main
        finally:
            seconds.append(asyncio.get_running_loop().time())

    monkeypatch.setattr(loop, "run", lambda main: sim.run(timed(main)))
    return seconds


@pytest.mark.parametrize("args", NOTHING_ANSWERS, ids=" ".join)
def test_nothing_answers(tidelog: Tidelog, events: FakeCluster, spent: list[float], args: tuple[str, ...]) -> None:
    events.down.update(events.addresses)
    found = tidelog(*args, stdin=b"x\n")
    assert (found.exit_code, found.error, found.out) == (1, f"tidelog: {DOWN}", b"")
    assert sum(spent) <= SOON_S
    found = tidelog(*args, "--bootstrap-server", "nohost:9092", stdin=b"x\n")
    assert (found.exit_code, found.error) == (1, f"tidelog: {NO_HOST}")
    assert sum(spent) <= 2 * SOON_S
