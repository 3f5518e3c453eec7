"""What a run waits for between its healing and its final phase."""

import pytest

from helpers.aio import run
from helpers.fake_cluster import FakeCluster
from helpers.requirements import requirement
from tidelog.chaos import run as runs
from tidelog.chaos.run import ensemble_serves
from tidelog.cluster.api import State
from tidelog.runtime.clock import SystemClock

SLOW = "zookeeper-3"


class SlowToServe(FakeCluster):
    looks_left = 3

    def zookeeper_mode(self, name: str) -> str:
        self.looks_left -= name == SLOW
        return "" if name == SLOW and self.looks_left > 0 else super().zookeeper_mode(name)


@requirement("A full disk moves leadership and heals when space returns")
def test_every_zookeeper_server_serves_again_before_the_final_phase() -> None:
    cluster, said = SlowToServe(), list[str]()
    run(ensemble_serves(cluster, SystemClock(), said.append))
    assert cluster.looks_left == 0 and not said


@requirement("A full disk moves leadership and heals when space returns")
def test_a_zookeeper_server_that_never_serves_is_told_and_keeps_no_run_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "SERVES_WITHIN_S", 0.05)
    cluster, said = FakeCluster(), list[str]()
    cluster.states[SLOW] = State.STOPPED
    run(ensemble_serves(cluster, SystemClock(), said.append))
    assert said == ["zookeeper-3: serves nobody 0.05 s after everything was healed"]
