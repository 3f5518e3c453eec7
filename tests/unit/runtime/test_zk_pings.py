"""Pings of the session with ZooKeeper: they wait for an event loop that does not turn."""

import pytest

from tidelog.runtime import zk
from tidelog.runtime.zk import ZkMeta

SESSION_S = 6.0


class Stalls:
    """A session whose watch of the loop says these, one look after the other."""

    def __init__(self, *seconds: float) -> None:
        self.left = list(seconds)
        self.meta = ZkMeta("127.0.0.1:1", session_timeout_s=SESSION_S, spawn=lambda *_: None, stalled_s=self._next)
        self.connection = self.meta._connection
        self.connection.negotiated_s = SESSION_S
        self.meta._client._stopped.clear()  # as if it had been started

    def _next(self) -> float:
        return self.left.pop(0)

    def looks_until_a_ping(self, monkeypatch: pytest.MonkeyPatch) -> int:
        sent: list[int] = []
        before = len(self.left)
        monkeypatch.setattr(zk, "PERIOD_S", 0.0)
        monkeypatch.setattr(self.connection, "_submit", lambda *_: sent.append(before - len(self.left)))
        self.connection._send_ping(1.0)
        assert len(sent) == 1
        return sent[0]


def test_a_ping_waits_until_the_loop_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Stalls(3.1, 4.0, 9.9, 0.05).looks_until_a_ping(monkeypatch) == 4


def test_half_the_session_is_not_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Stalls(3.0, 9.0).looks_until_a_ping(monkeypatch) == 1


def test_a_client_that_is_closed_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    stalls = Stalls(9.0, 9.0)
    stalls.meta._client._stopped.set()
    assert stalls.looks_until_a_ping(monkeypatch) == 1
