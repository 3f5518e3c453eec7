"""N11 over histories drawn at random: consumers that stand still, lose their streams, answer late, come, leave and return.

Each judges by its own lease alone whether it may fetch, as `client/lease.py` does: until it sent the newest message that is
known to have arrived + its session timeout.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.coordinator.scene import LIMITS, Consumer, Scene, tps

SESSION_S = 10.0
EVERYTHING = tps("t", *range(7))
ANSWERS = frozenset({"ping", "stop", "start"})


@dataclass
class Member:
    """A consumer, the times at which it sent what, and what it could not do while it stood still."""

    scene: Scene
    consumer: Consumer

    def __post_init__(self) -> None:
        self.until = float("-inf")
        self.connected = True
        self._sent: dict[int, float] = {}
        send, hear = self.consumer.send, self.consumer.hear

        def sending(**body: Any) -> None:
            self._sent[self.consumer.number + 1] = self.scene.now
            send(**body)

        def hearing(message: m.CoordinatorMessage) -> None:
            self.judge()
            if message.last_number in self._sent:
                self.until = max(self.until, self._sent[message.last_number] + SESSION_S)
            hear(message)

        self.consumer.send, self.consumer.hear = sending, hearing  # type: ignore[method-assign]

    def judge(self) -> None:
        if self.scene.now >= self.until:
            self.consumer.owned.clear()
            self.consumer.generation = 0

    def stand_still(self) -> None:
        self.consumer.answers.clear()

    def go_on(self) -> None:
        """With the answers to what it was asked last."""
        consumer = self.consumer
        self.judge()
        late = [each for each in consumer.heard[-1:] if self.connected and not consumer.closed and not consumer.answers]
        consumer.answers |= ANSWERS
        for each in late:
            if isinstance(each, m.StopFetcherRequest):
                consumer.answer_stop(each)
            elif isinstance(each, m.StartFetcherRequest) and self.scene.now < self.until:
                consumer.answer_start(each)

    def lose_stream(self) -> None:
        if self.connected:
            self.connected = False
            self.consumer.lose_connection()

    def come_back(self) -> None:
        if self.consumer.answers and (not self.connected or self.consumer.closed):
            self.judge()
            self.connected = True
            self.consumer.reconnect()


@requirement("A paused consumer never works beside the next owner")
@requirement("After a failover no partition moves before its owner is back or dead")
@requirement("A partition moves only after the lease of its owner has ended")
@requirement("At most one consumer of a group delivers a partition")
@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_whatever_happens_no_two_may_fetch_a_partition_and_in_the_end_each_has_one_owner(
    seed: int, incremental: bool
) -> None:
    rand = random.Random(seed)
    limits = replace(LIMITS, incremental=incremental, members_max=100, failed_pings_max=rand.choice([0, 1]))
    scene = Scene(topics={"t": 7}, limits=limits)
    members: list[Member] = []
    owned_at_all = 0

    def check() -> bool:
        nonlocal owned_at_all
        fetching = Counter(tp for each in members if scene.now < each.until for tp in each.consumer.owned)
        owned_at_all += len(fetching)
        assert not fetching or max(fetching.values()) == 1, (scene.now, fetching)
        return False

    for number in range(120):
        if len(members) < 5 and rand.random() < 0.3:
            members.append(Member(scene, scene.consumer(f"c{number}")))
            members[-1].consumer.register()
        for each in members:
            act = rand.choice([None, None, None, each.stand_still, each.go_on, each.lose_stream, each.come_back])
            if act is not None:
                act()
                check()
        if members and rand.random() < 0.1:
            gone = members[rand.randrange(len(members))]
            if gone.connected and gone.consumer.answers and not gone.consumer.closed:
                gone.consumer.owned.clear()
                gone.consumer.leave()
                members.remove(gone)
        scene.run(rand.choice([0.1, 1.0, 4.0]), check)
    assert owned_at_all > 100
    for each in members:
        each.go_on()
        each.come_back()
    for _ in range(3):  # who has been dead comes back as somebody new
        scene.run(2 * SESSION_S, check)
        for each in members:
            each.come_back()
    assert Counter(tp for each in members for tp in each.consumer.owned) == Counter(EVERYTHING)


@requirement("At most one consumer of a group delivers a partition")
@pytest.mark.parametrize("anew", [False, True])
def test_who_returns_while_new_owners_are_being_stored_is_not_given_what_it_loses(anew: bool) -> None:
    scene = Scene()
    _, b = scene.join("a", "b", static_member=True)
    assert b.owned == tps("t", 2, 3)
    scene.holds_writes = True
    c = scene.consumer("c").register()
    scene.run(1.0)
    assert b.owned == tps("t", 2) and not c.owned, "the owners are on their way to the store"
    b.lose_connection()
    if anew:
        b = scene.consumer("b", static_member=True).register()
        scene.run(0.1)
    else:
        b.reconnect()
    assert TopicPartition("t", 3) not in b.owned
    scene.holds_writes = False
    scene.carry_out()
    scene.run(30.0)
    assert (b.owned, c.owned) == (tps("t", 2), tps("t", 3))
