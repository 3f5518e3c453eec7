"""How much of a move is copied: by the sizes that the brokers themselves tell, and never less because one is silent."""

from tidelog.client.move_progress import Copied, CopyMeter, copied, total
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def move(
    partition: int = 0, *, original: tuple[int, ...] = (1, 2), target: tuple[int, ...] = (3, 4)
) -> m.OngoingReassignment:
    return m.OngoingReassignment(
        topic="t",
        partition=partition,
        replicas=(*target, *(each for each in original if each not in target)),
        target=target,
        original=original,
        leader=original[0],
        adding_replicas=tuple(each for each in target if each not in original),
    )


def test_every_new_replica_needs_the_whole_log() -> None:
    assert copied(move(), {1: {T0: 100}, 2: {T0: 90}, 3: {T0: 40}}) == Copied(40, 200)
    assert copied(move(target=(2, 3)), {1: {T0: 100}, 3: {T0: 40}}) == Copied(40, 100)


def test_a_copy_of_what_the_others_have_deleted_is_no_more_than_all() -> None:
    assert copied(move(target=(1, 3)), {1: {T0: 100}, 3: {T0: 130}}) == Copied(100, 100)


def test_nobody_knows_without_a_whole_log() -> None:
    assert copied(move(), {3: {T0: 40}}) is None
    assert total([None, Copied(1, 2), Copied(3, 4)]) == Copied(4, 6)


def test_a_move_that_only_takes_away_copies_nothing() -> None:
    assert copied(move(target=(2,)), {1: {T0: 100}}) == Copied(0, 0)


def test_the_sum_keeps_what_has_ended_and_what_the_silent_have_said() -> None:
    meter = CopyMeter()
    both = [move(0, target=(1, 3)), move(1, target=(1, 3))]
    assert meter.look(both, {1: {T0: 100, T1: 50}, 3: {T0: 10}}) == Copied(10, 150)
    assert meter.look(both, {1: {T0: 100, T1: 60}}) == Copied(10, 160), "3 is silent"
    assert meter.look(both[1:], {3: {T0: 100, T1: 20}}) == Copied(120, 160), "the first has moved"
    assert meter.look([], {}) == Copied(160, 160)
