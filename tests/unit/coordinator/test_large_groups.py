"""The work of one step in a group with many members and partitions: it grows with their sum, and not with their product."""

from dataclasses import replace
from typing import Any

import pytest

from tidelog.coordinator import effects as fx
from tidelog.coordinator import rebalance
from tidelog.coordinator.model import Committed
from tidelog.ids import TopicPartition
from unit.coordinator.scene import LIMITS, Consumer, Scene

MEMBERS = 40
PARTITIONS = 800
LARGE = replace(LIMITS, members_max=MEMBERS, partitions_max=PARTITIONS, incremental=False)


class Counted(dict[TopicPartition, Committed]):
    """Offsets, and how many were looked at."""

    looks = 0

    def __getitem__(self, tp: TopicPartition) -> Committed:
        self.looks += 1
        return super().__getitem__(tp)

    def get(self, tp: TopicPartition, default: Any = None) -> Any:
        self.looks += 1
        return super().get(tp, default)

    def __iter__(self) -> Any:  # without it, a copy of a dict asks for no key
        return super().__iter__()


def large_group() -> tuple[Scene, list[Consumer], Counted]:
    scene = Scene(limits=LARGE, topics={"t": PARTITIONS})
    members = scene.join(*(f"m{i:02d}" for i in range(MEMBERS)))
    group = scene.machine.groups["g"]
    group.offsets = offsets = Counted({tp: Committed(1 + tp.partition) for tp in group.owners})
    return scene, members, offsets


@pytest.mark.parametrize("what", ["a rebalance", "members that return"])
def test_each_offset_is_looked_at_for_its_owner_alone(what: str) -> None:
    scene, members, offsets = large_group()
    if what == "a rebalance":
        members.pop().leave()
        scene.run(5.0, lambda: scene.state() == "Stable")
    else:
        for each in members:
            each.lose_connection()
        for each in members:
            each.owned.clear()
            each.reconnect()
    positions = {tp.partition: each.positions[tp] for each in members for tp in each.owned}
    assert positions == {p: 1 + p for p in range(PARTITIONS)}, "each member was told its offsets"
    assert PARTITIONS <= offsets.looks <= 3 * PARTITIONS


@pytest.mark.parametrize("fault", ["", "a stream breaks", "a member leaves"])
def test_a_large_group_is_started_in_several_steps(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Between them its coordinator does its other work."""
    monkeypatch.setattr(rebalance, "STARTS_MAX", 100)
    scene, members, _ = large_group()
    started: list[int] = []
    step = scene.machine.step

    def counted(*event: Any) -> list[fx.Effect]:
        effects = step(*event)
        starts = [e.message.start for e in effects if isinstance(e, fx.Send) and e.message.start is not None]
        started.append(sum(len(owner.assigned_parts) for start in starts for owner in start.ownership_info))
        if sum(started) > 300 and faults:
            faults.pop()()
        return effects

    last = members[-1]
    faults = {"": [], "a stream breaks": [last.lose_connection], "a member leaves": [last.leave]}[fault]
    monkeypatch.setattr(scene.machine, "step", counted)
    members.pop(0).leave()
    scene.run(30.0, lambda: not faults and scene.state() == "Stable")
    assert sum(started) >= PARTITIONS and max(started) <= 100 + 2 * PARTITIONS / MEMBERS
    live = [each for each in members if each is not last or not fault]
    scene.run(30.0, lambda: sum(len(each.owned) for each in live) == PARTITIONS and scene.state() == "Stable")
    assert {tp for each in live for tp in each.owned} == scene.machine.groups["g"].owners.keys()
