"""X2: replicas are compared byte by byte, as far as they must be equal."""

import pytest

from helpers.histories import Story, found
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.replicas import PartitionReplicas, ReplicaLog, Stretch
from tidelog.chaos.checker.verdict import Verdict

A, B, C = Stretch(0, 5, "aa"), Stretch(5, 9, "bb"), Stretch(9, 12, "cc")


def compared(
    *logs: tuple[Stretch, ...],
    high_watermark: int = 9,
    starts: tuple[int, ...] = (0, 0, 0),
    promise: Promise | None = None,
) -> Verdict:
    replicas = tuple(
        ReplicaLog(broker, start, log[-1].end if log else 0, log)
        for broker, (log, start) in enumerate(zip(logs, starts, strict=False), 1)
    )
    story = Story().log("a").end([(0, "a")])
    return story.check(promise, [PartitionReplicas("chaos", 0, high_watermark, replicas)])


def test_x2_equal_replicas_are_equal() -> None:
    verdict = compared((A, B), (A, B), (A, B))
    assert found(verdict) == {} and verdict.sound


def test_x2_a_replica_with_other_bytes() -> None:
    verdict = compared((A, B), (A, B), (A, Stretch(5, 9, "xx")))
    assert found(verdict) == {"replicas-differ": 1} and not verdict.sound
    assert verdict.anomalies["replicas-differ"].examples[0].text == (
        "chaos-0: from offset 5 on replicas differ: broker 1 has bb from 5 up to 9 and broker 3 has xx from 5 up to 9; "
        "the high watermark is 9"
    )


def test_x2_a_replica_that_lacks_something() -> None:
    verdict = compared((A, B), (A,))
    assert found(verdict) == {"replicas-differ": 1, "replica-torn": 1}
    assert "broker 2 has nothing there" in verdict.anomalies["replicas-differ"].examples[0].text


def test_x2_above_the_high_watermark_they_may_differ() -> None:
    assert found(compared((A, B, C), (A, B), (A, B, Stretch(9, 11, "xx")))) == {}
    assert found(compared((A, B, C), (A, B), high_watermark=12)) == {"replicas-differ": 1, "replica-torn": 1}


def test_x2_below_the_highest_log_start_they_may_differ_where_records_expire() -> None:
    expire = Promise(records_expire=True)
    assert found(compared((A, B), (B,), starts=(0, 5), promise=expire)) == {}
    lacks = {"replicas-differ": 1, "replica-torn": 1}
    assert found(compared((A, B), (B,), starts=(0, 0), promise=expire)) == lacks


def test_x2_where_nothing_expires_a_replica_that_begins_later_lacks_something() -> None:
    assert found(compared((A, B), (B,), starts=(0, 5))) == {"replicas-differ": 1}


@pytest.mark.parametrize("log", [(A, A, B), (B, A), (A, B, B)], ids=["twice", "out of order", "the last twice"])
def test_a_batch_that_one_replica_has_twice_or_elsewhere(log: tuple[Stretch, ...]) -> None:
    verdict = compared((A, B), log)
    assert found(verdict)["replicas-differ"] == 1 and not verdict.sound


@pytest.mark.parametrize(
    "log, text",
    [
        ((A, C), "broker 1 does not have offset 5 in its place, but cc from 9 up to 12"),
        ((A,), "broker 1 does not have offset 5 in its place, and nothing after it"),
        ((A, A, B, C), "broker 1 does not have offset 5 in its place, but aa from 0 up to 5"),
        ((B, A, C), "broker 1 does not have offset 0 in its place, but bb from 5 up to 9"),
        ((), "broker 1 does not have offset 0 in its place, and nothing after it"),
    ],
)
def test_every_offset_is_there_once_in_each_replica(log: tuple[Stretch, ...], text: str) -> None:
    verdict = compared(log, log, high_watermark=12)
    assert found(verdict) == {"replica-torn": 2} and not verdict.sound
    assert text in verdict.anomalies["replica-torn"].examples[0].text


def test_a_batch_over_the_high_watermark_ends_the_log() -> None:
    assert found(compared((A, B), (A, B), high_watermark=7)) == {}


def test_x2_that_was_not_looked_at_is_said() -> None:
    verdict = Story().log("a").watermark(1).end([(0, "a")]).check(replicas=None)
    assert "replicas-differ" not in verdict.anomalies and verdict.notes == ("replicas were not compared (X2)",)
