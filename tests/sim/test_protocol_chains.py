"""Chains of causes from a fault to its end are in the lab what they are on real processes: the kept files are the same."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import pytest

from helpers.chains import (
    KEPT,
    MEMBER_SESSION_MS,
    SESSION_MS,
    SETTLES_S,
    CoordinatorStory,
    acknowledges_second,
    follows_controller,
    hears_of_start,
    leads,
    newest,
    story,
)
from tidelog.lab import Lab
from tidelog.lab.cluster import TIMING
from tidelog.testing.sim_node import SHARDS
from tidelog.watch.order import Told
from tidelog.watch.service import Wanted
from tidelog.wire import messages as m

pytestmark = pytest.mark.sim

SEEDS: Final = pytest.mark.parametrize("seed", [1, 2, 3])
TOPIC: Final = "chain"
GROUP: Final = "flock"
READ: Final = "journal"
GIVEN_BACK_S: Final = 15.0
"""Until then a shard that another broker took at the start is with its first one."""


class Seen:
    """Selects the events that a watch of a topic or a group shows from now on."""

    def __init__(
        self, lab: Lab, *, topics: tuple[str, ...] = (), groups: tuple[str, ...] = (), families: tuple[str, ...] = ()
    ) -> None:
        lab.run(SETTLES_S)
        self._lab = lab
        self._since = lab.time
        self._wanted = Wanted(
            m.WatchRequest(
                topics=topics, groups=groups, families=families, partition=-1, life=0, number=0, last=0, age_ms=0
            )
        )

    def told(self) -> list[Told]:
        steps = self._lab.events(since=self._since)
        return [Told(step.process, step.life, step.event) for step in steps if self._wanted.has(step.event)]

    def find(self, holds: Callable[[Told], bool]) -> Told:
        self._lab.until(lambda _: newest(self.told(), holds) is not None)
        found = newest(self.told(), holds)
        assert found is not None
        return found


def made(seed: int) -> Lab:
    return Lab(seed, partitions=0, timing=replace(TIMING, session_ms=SESSION_MS))


def check(name: str, told: list[Told], end: Told, names: Mapping[str, str]) -> None:
    assert story(told, end, names) == (KEPT / f"{name}.txt").read_text().splitlines()


@SEEDS
def test_a_leader_is_killed_in_the_lab(seed: int) -> None:
    with made(seed) as lab:
        lab.create_topic(TOPIC, replicas=[[0, 1, 2]])
        seen = Seen(lab, topics=(TOPIC,))
        lab.produce(TOPIC)
        lab.kill("broker-0")
        lab.produce(TOPIC)
        acknowledged, leader = seen.find(acknowledges_second), seen.find(leads)
        lab.run(SETTLES_S)
        told = seen.told()
        assert told.index(leader) < told.index(acknowledged)
        check("leader", told, leader, {TOPIC: "TOPIC"})


@SEEDS
def test_a_controller_is_killed_in_the_lab(seed: int) -> None:
    with made(seed) as lab:
        lab.create_topic(TOPIC, replicas=[[0, 1, 2]])
        seen = Seen(lab, topics=(TOPIC,))
        lab.kill(lab.cluster.controller)
        applied = seen.find(follows_controller)
        lab.run(SETTLES_S)
        check("controller", seen.told(), applied, {TOPIC: "TOPIC"})


@SEEDS
def test_a_coordinator_is_killed_in_the_lab(seed: int) -> None:
    with made(seed) as lab:
        lab.run(GIVEN_BACK_S)
        coordinator = lab.cluster.coordinator(GROUP)
        others = [number for number in range(3) if f"broker-{number}" != coordinator]
        lab.create_topic(READ, replicas=[others])  # so that the fault concerns the group alone
        (member,) = lab.join(GROUP, READ, session=MEMBER_SESSION_MS / 1000)
        lab.produce(READ)
        lab.until(lambda cluster: bool(cluster.groups() and cluster.group(GROUP).committed))
        seen = Seen(lab, groups=(GROUP,), families=CoordinatorStory.FAMILIES)
        lab.kill(coordinator)
        seen.find(hears_of_start)
        lab.produce(READ)
        of = CoordinatorStory(READ, GROUP, (member,), SHARDS)
        stored = seen.find(of.stores_offset)
        lab.run(SETTLES_S)
        check("coordinator", list(filter(of.has, seen.told())), stored, of.names)
