"""A leader whose partition moves: who counts, who may join, and what min.insync.replicas means meanwhile (F-11)."""

import pytest

from helpers.replica import ReplicaHarness, life, members
from helpers.requirements import requirement
from tidelog.errors import ErrorCode, TidelogError
from tidelog.replica import effects as fx
from tidelog.replica import events as ev


def told(
    harness: ReplicaHarness, replicas: tuple[int, ...], adding: tuple[int, ...], **changed: int
) -> list[fx.Effect]:
    """Broker 1 leads in epoch 5 with the ISR {1}; partition epoch 50 unless given."""
    event = ev.LeaderAndIsr(
        leader=1,
        leader_epoch=5,
        partition_epoch=changed.get("partition_epoch", 50),
        isr=members(1),
        replicas=replicas,
        min_isr=2,
        live={each: life(each) for each in (1, 2, 3)},
        at=0.0,
        adding=adding,
    )
    return list(harness.step(event))


@pytest.fixture
def alone() -> ReplicaHarness:
    """The only replica of its partition leads."""
    harness = ReplicaHarness(1, 10, 10)
    told(harness, (1,), ())
    return harness


@requirement("A reassignment adds new replicas before it removes old ones")
def test_a_move_that_begins_is_heard_in_the_state_as_it_is(alone: ReplicaHarness) -> None:
    refused = alone.fetched(2, 10)
    assert refused == [fx.RefusePosition(2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    told(alone, (2, 1), (2,))
    assert alone.fetched(2, 10) == [fx.ProposeIsr(5, 50, members(1, 2), True)]


def test_an_older_order_does_not_take_the_targets_away(alone: ReplicaHarness) -> None:
    told(alone, (2, 1), (2,))
    told(alone, (1,), (), partition_epoch=49)
    assert alone.fetched(2, 10) == [fx.ProposeIsr(5, 50, members(1, 2), True)]


@requirement("Writes with acks=all are refused below min.insync.replicas")
def test_a_target_raises_no_minimum_before_the_end(alone: ReplicaHarness) -> None:
    """The copy would have to be complete before anybody could produce again."""
    told(alone, (2, 1), (2,))
    alone.replica.check_produce(5, -1)
    assert alone.appended(12) == [fx.AdvanceHighWatermark(12)]
    told(alone, (2, 1), (), partition_epoch=51)
    with pytest.raises(TidelogError, match=r"min\.insync\.replicas is 2"):
        alone.replica.check_produce(5, -1)
