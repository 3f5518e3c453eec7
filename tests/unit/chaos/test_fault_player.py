"""Faults on their time line: whatever was asked for takes effect, or the run says nothing."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.aio import run
from helpers.chaos_bed import FakeAdmin, fake_bed
from helpers.fake_cluster import FakeCluster
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.fault_player import FaultPlayer
from tidelog.chaos.faults.base import FaultMissed
from tidelog.chaos.faults.processes import Kill
from tidelog.chaos.history import FaultStep, HistoryReader
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.scenario import PlannedFault
from tidelog.chaos.targets import parse
from tidelog.chaos.time_line import Moment
from tidelog.cluster.api import State
from tidelog.ports.clock import Clock


class SlowAdmin(FakeAdmin):
    """It says `at_once` times at once who leads, and then takes its time."""

    def __init__(self, takes_s: float, at_once: int = 1) -> None:
        super().__init__()
        self.takes_s = takes_s
        self.at_once = at_once
        self.asked = 0

    async def describe_topic(self, name: str) -> object:
        self.asked += 1
        if self.asked > self.at_once:
            await asyncio.sleep(self.takes_s)
        return await super().describe_topic(name)


def kill(target: str, at_s: float, for_s: float | None = None, *, drawn: bool = False) -> Moment:
    return Moment(PlannedFault(at_s, Kill(), parse(target), for_s), drawn)


def played(
    path: Path, moments: Sequence[Moment], cluster: FakeCluster, admin: FakeAdmin | None = None, duration_s: float = 0.3
) -> tuple[FaultPlayer, list[str]]:
    """The player, and the steps that are in the history."""
    bed = fake_bed(cluster, admin)
    with Chronicle(path / "history.jsonl", bed.clock) as chronicle:
        player = FaultPlayer(bed, chronicle, ChaosMetrics(CollectorRegistry()), patience_s=2.0)

        async def story() -> None:
            await player.play(moments, duration_s)
            await player.heal_all()

        run(story())
    records = list(HistoryReader(path / "history.jsonl"))
    return player, [record.what for record in records if isinstance(record, FaultStep)]


def test_a_fault_comes_goes_and_is_told_step_by_step(tmp_path: Path) -> None:
    cluster = FakeCluster()
    player, steps = played(tmp_path, [kill("broker-1", 0.05, 0.05)], cluster)
    assert steps == ["begin", "effect", "heal", "healed"] and cluster.states["broker-1"] is State.RUNNING
    assert [fault.name for fault in player.played] == ["kill broker-1"] and player.affected == {0}


def test_a_fault_that_was_asked_for_and_found_no_target_in_time_is_no_pass(tmp_path: Path) -> None:
    moments = [kill("broker-2", 0.0, 0.1), kill("leader of 0", 0.05)]
    with pytest.raises(FaultMissed, match="kill leader of 0: no effect was seen before the run's time was over"):
        played(tmp_path, moments, FakeCluster(), SlowAdmin(takes_s=60.0))


def test_a_fault_whose_time_came_is_played_although_its_target_was_named_after_the_time_of_the_run(
    tmp_path: Path,
) -> None:
    moments = [kill("broker-2", 0.0, 0.1), kill("leader of 0", 0.05)]
    player, steps = played(tmp_path, moments, FakeCluster(), SlowAdmin(takes_s=0.5))
    assert [fault.name for fault in player.played] == ["kill broker-2", "kill leader of 0"]
    assert steps.count("effect") == steps.count("healed") == 2


class EndingLoad:
    """Half of it is sent at 0.05 s and all of it at 0.1 s; what agent-1 owned has moved at 0.2 s."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.now()

    async def reached(self, part: float) -> None:
        await self._clock.sleep(self._began + part * 0.1 - self._clock.now())

    def moved(self, targets: Sequence[str]) -> bool:
        return list(targets) == ["broker-2"] and self._clock.now() > self._began + 0.2


def at_half(target: str, **until: Any) -> Moment:
    return Moment(PlannedFault(0.0, Kill(), parse(target), at_part=0.5, **until), drawn=False)


def ending(path: Path, moments: Sequence[Moment], cluster: FakeCluster, duration_s: float = 30.0) -> list[FaultStep]:
    bed = fake_bed(cluster)
    load = EndingLoad(bed.clock)
    with Chronicle(path / "history.jsonl", bed.clock) as chronicle:
        metrics = ChaosMetrics(CollectorRegistry())
        player = FaultPlayer(bed, chronicle, metrics, reached=load.reached, moved=load.moved)
        run(player.play(moments, duration_s, ends_with_load=True))
        chronicle.phase("heal")
    return [each for each in HistoryReader(path / "history.jsonl") if isinstance(each, FaultStep)]


def test_a_load_that_ends_takes_its_faults_with_it(tmp_path: Path) -> None:
    cluster = FakeCluster()
    steps = ending(tmp_path, [at_half("broker-1", until_part=1.0), at_half("broker-2", until_moved=True)], cluster)
    healed = [each for each in steps if each.what == "healed"]
    assert [each.target for each in healed] == [("broker-1",), ("broker-2",)]
    assert min(each.t for each in steps) >= 0.05 and healed[1].t >= 0.2
    assert cluster.states["broker-1"] is cluster.states["broker-2"] is State.RUNNING


def test_a_load_that_does_not_end_in_its_time_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(FaultMissed, match=r"the load and its faults have not ended after 0\.12 s"):
        ending(tmp_path, [at_half("broker-2", until_moved=True)], FakeCluster(), duration_s=0.12)


def test_a_drawn_fault_that_misses_is_left_out_and_named(tmp_path: Path) -> None:
    moments = [kill("broker-2", 0.0, 0.1, drawn=True), kill("leader of 2", 0.05, 0.1, drawn=True)]
    player, _ = played(tmp_path, moments, FakeCluster())
    assert [fault.name for fault in player.played] == ["kill broker-2"]
    assert player.left_out == ["kill leader of 2: t-2 has no leader now"]


def test_of_two_drawn_faults_of_one_time_one_hits_the_target(tmp_path: Path) -> None:
    moments = [kill("broker-1", 0.0, 0.1, drawn=True), kill("broker-1", 0.0, 0.1, drawn=True)]
    player, steps = played(tmp_path, moments, FakeCluster(), SlowAdmin(takes_s=0.05, at_once=0))
    assert steps == ["begin", "effect", "heal", "healed"]
    assert player.left_out == ["kill broker-1: another fault has hit it"]


def test_a_run_in_which_every_drawn_fault_missed_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(FaultMissed, match="no fault took effect in the time of the run"):
        played(tmp_path, [kill("leader of 2", 0.05, 0.1, drawn=True)], FakeCluster())
