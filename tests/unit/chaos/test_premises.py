"""What a run must have been like for its verdict to say anything: each premise on a run that has it, and on one that lacks it."""

from pathlib import Path

import pytest

from helpers.histories import Story, rows
from tidelog.chaos.checker.verdict import Kept
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.facts import Facts
from tidelog.chaos.premises import idle_parts, premises
from tidelog.chaos.scenario import ConsumerPlan, ProducerPlan, Workload
from tidelog.client.producer import RecordMetadata
from tidelog.client.records import ConsumerRecord
from tidelog.ids import TopicPartition
from tidelog.runtime.clock import SystemClock

BOTH = Workload(
    producers=(
        ProducerPlan("all", delivery_timeout_s=4.0),
        ProducerPlan("1", delivery_timeout_s=4.0),
        ProducerPlan("0"),
    ),
    consumers=ConsumerPlan(assigned=1, group=2),
)
BEGAN, ENDED, READERS = range(3)


def story(without: str = "", late: bool = False) -> Story:
    """Everybody is at work at 1 s, or at 6 s; a fault begins at 5 s."""
    made = Story().phase("load").at(1.0)
    fault = Story().at(5.0).fault("begin").records
    if late:
        made.at(6.0)
    if without != "all":
        made.sent("a", 0)
    if without != "1":
        made.sent("b", 1, acks="1")
    if without != "consumer":
        made.poll((0, "a"))
    if without != "group":
        made.processed(0, 0)
    made.at(20.0).end(rows("a", "b"))
    made.records = sorted([*made.records, *fault], key=lambda record: record.t)
    return made


def judged(of: Story, plan: Workload = BOTH) -> list[Kept]:
    return premises(plan, Facts.of(of.records), of.check())


def test_a_run_that_had_a_load_says_something() -> None:
    assert [each.kept for each in judged(story())] == [True, True, True]


@pytest.mark.parametrize(
    "without, missing",
    [
        ("all", "an acks=all record was acknowledged"),
        ("1", "an acks=1 record was acknowledged"),
        ("consumer", "a consumer had read"),
        ("group", "the group had processed"),
    ],
)
def test_a_part_of_the_load_that_was_never_at_work_is_named(without: str, missing: str) -> None:
    began = judged(story(without))[BEGAN]
    assert (began.kept, began.measured, began.limit) == (False, f"before {missing}", "before 5.0 s")


def test_a_load_that_began_after_the_fault_was_not_hit_by_it() -> None:
    assert not judged(story(late=True))[BEGAN].kept


def test_what_a_workload_does_not_plan_is_not_missed() -> None:
    plan = Workload(producers=(ProducerPlan("all"),), consumers=ConsumerPlan(assigned=0, group=0))
    assert judged(Story().sent("a", 0).end(rows("a")), plan)[BEGAN].kept


def test_a_send_that_takes_longer_than_its_delivery_timeout_and_an_attempt_is_a_request_without_a_deadline() -> None:
    def after(seconds: float) -> Kept:
        made = Story().at(1.0)
        number = made.attempt("x")
        return judged(made.at(1.0 + seconds).answer(number, None, "info"))[ENDED]

    assert after(6.4).kept and after(6.4).measured == "6.4 s (acks=all)"
    assert not after(6.6).kept and "6.5 s (acks=all)" in after(6.6).limit


def test_a_send_that_never_ends_is_one_too_unless_its_client_was_thrown_away() -> None:
    made = story()
    made.attempt("x", process="q")
    assert judged(made)[ENDED].measured == "1 never ended"
    assert judged(made.crash("q"))[ENDED].kept


@pytest.mark.parametrize("readers", [1, 2])
def test_two_readers_come_to_the_end(readers: int) -> None:
    assert judged(Story().sent("a", 0).end(rows("a"), readers=readers))[READERS].kept is (readers == 2)


def test_a_load_is_idle_until_every_part_of_it_has_begun(tmp_path: Path) -> None:
    done: dict[TopicPartition, int] = {}
    with Chronicle(tmp_path / "history.jsonl", SystemClock()) as chronicle:
        assert idle_parts(BOTH, chronicle, done) == [
            *("no acks=1 record is acknowledged", "no acks=all record is acknowledged"),
            *("no consumer has read a record", "the group has processed no record"),
        ]
        for acks in ("all", "1"):
            metadata = RecordMetadata("t", 0, 0, 0)
            chronicle.ended(chronicle.tried("p", "t", 0, f"v{acks}", acks), acks, metadata, None)
        record = ConsumerRecord("t", 0, 0, 0, 0, None, b"v", (), 0)
        chronicle.polled("member", chronicle.now(), [record], "g")
        assert idle_parts(BOTH, chronicle, done) == [
            "no consumer has read a record",
            "the group has processed no record",
        ]
        chronicle.polled("consumer", chronicle.now(), [record], None)
        done[TopicPartition("t", 0)] = 1
        assert idle_parts(BOTH, chronicle, done) == []
