"""What a run waits for between its healing and its final phase."""

from pathlib import Path
from typing import Any, cast

import pytest

from helpers.aio import run
from helpers.fake_cluster import FakeCluster
from tidelog.chaos import run as runs
from tidelog.chaos.faults.disks import FullDisk
from tidelog.chaos.final_read import CannotRead
from tidelog.chaos.run import NoVerdict, Run, Unkept, ensemble_serves
from tidelog.chaos.run_files import RunFile
from tidelog.chaos.scenario import PlannedFault, Scenario
from tidelog.chaos.targets import parse
from tidelog.cluster.api import State
from tidelog.errors import CoordinatorNotAvailableError, TransportError
from tidelog.runtime.clock import SystemClock

SLOW = "zookeeper-3"


class SlowToServe(FakeCluster):
    looks_left = 3

    def zookeeper_mode(self, name: str) -> str:
        self.looks_left -= name == SLOW
        return "" if name == SLOW and self.looks_left > 0 else super().zookeeper_mode(name)


def test_every_zookeeper_server_serves_again_before_the_final_phase() -> None:
    cluster, said = SlowToServe(), list[str]()
    run(ensemble_serves(cluster, SystemClock(), said.append))
    assert cluster.looks_left == 0 and not said


def test_a_zookeeper_server_that_never_serves_is_told_and_keeps_no_run_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "SERVES_WITHIN_S", 0.05)
    cluster, said = FakeCluster(), list[str]()
    cluster.states[SLOW] = State.STOPPED
    run(ensemble_serves(cluster, SystemClock(), said.append))
    assert said == ["zookeeper-3: serves nobody 0.05 s after everything was healed"]


def test_what_a_cluster_cannot_have_ends_a_run_before_its_load(tmp_path: Path) -> None:
    planned = PlannedFault(at_s=0.0, fault=FullDisk(), target=parse("leader of 0"))
    scenario = Scenario("full", "full", "", row=None, runs_in=(), simulator="", faults=[planned])
    nothing = cast(Any, None)
    refused = Run(scenario, nothing, FakeCluster(shared_disks=True), tmp_path, *[nothing] * 5)
    with pytest.raises(NoVerdict, match="others use the disk as well"):
        run(refused.play())
    assert not list(tmp_path.iterdir()), "nothing was begun"


class Healed:
    """A load, a player of faults and a history whose part is over."""

    chronicle = None

    def start(self) -> None: ...

    async def play(self, *_: Any, **__: Any) -> None: ...

    async def heal_all(self) -> None: ...


@pytest.mark.parametrize(
    "error, promise",
    [
        (CannotRead("stuck"), "every partition can be read to its end"),
        (CoordinatorNotAvailableError("none"), "the cluster answers after the faults"),
        (TransportError("no answer"), "the cluster answers after the faults"),
    ],
)
def test_what_fails_after_the_healing_is_a_broken_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, promise: str
) -> None:
    async def nothing(self: Run, *_: Any) -> None: ...

    async def fails(self: Run, *_: Any) -> None:
        raise error

    for name, instead in (("_at_work", nothing), ("_after_the_faults", fails)):
        monkeypatch.setattr(Run, name, instead)
    monkeypatch.setattr(Run, "_enter", lambda self, *_: None)
    monkeypatch.setattr(runs, "time_line", lambda *_: [])
    scenario = Scenario("s", "s", "", row=None, runs_in=(), simulator="")
    file = RunFile("s", None, "s", 1, "local", 1.0, ["t"], 1)
    none, healed = cast(Any, None), cast(Any, Healed())
    with pytest.raises(Unkept) as broken:
        run(Run(scenario, file, FakeCluster(), tmp_path, *[none] * 5)._phases("", healed, healed))
    assert broken.value.kept.text == promise and not broken.value.kept.kept
