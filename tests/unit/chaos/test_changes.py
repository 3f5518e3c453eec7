"""The steps of a cluster in words, from what two looks say."""

from tidelog.chaos.changes import Changes
from tidelog.chaos.samples import Partitions, PartitionState, Silent


def look(*states: tuple[int, list[int]]) -> Partitions:
    """Leader and ISR of partitions 0, 1 and so on of topic t, whose replicas are 0, 1 and 2."""
    return Partitions(
        partitions=[
            PartitionState(
                topic="t", partition=p, leader=leader, leader_epoch=4, partition_epoch=1, replicas=[0, 1, 2], isr=isr
            )
            for p, (leader, isr) in enumerate(states)
        ]
    )


FULL = [0, 1, 2]


def said(*looks: Partitions | Silent) -> list[str]:
    changes = Changes()
    return [line for each in looks for line in changes.looked(each)]


def test_a_killed_leader_is_a_story() -> None:
    before, gone = look((0, FULL), (1, FULL)), look((-1, [1, 2]), (1, [1, 2]))
    led, whole = look((2, [1, 2]), (1, [1, 2])), look((2, FULL), (1, FULL))
    assert said(before, gone, led, whole) == [
        "no leader: t-0",
        "ISR without broker-0: t-0, t-1",
        "new leader: t-0 broker-2 in epoch 4",
        "ISR full again: t-0, t-1",
    ]


def test_what_stays_is_not_told() -> None:
    assert said(look((0, [0, 1])), Silent(source="cluster", why="away"), look((0, [0, 1]))) == []


def test_many_partitions_are_counted() -> None:
    assert said(look(*[(0, FULL)] * 12), look(*[(1, FULL)] * 12)) == [
        "new leader: t-0 broker-1 in epoch 4, t-1 broker-1 in epoch 4, t-2 broker-1 in epoch 4 and 9 more"
    ]
