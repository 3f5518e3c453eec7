"""What a run must have been like for its verdict to say anything: each premise on a run that has it, and on one that lacks it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.histories import Story, rows
from tidelog.chaos.checker.verdict import Kept
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.facts import Facts
from tidelog.chaos.faults.processes import Kill
from tidelog.chaos.history import FaultStep
from tidelog.chaos.premises import idle_parts, premises
from tidelog.chaos.scenario import ConsumerPlan, PlannedFault, ProducerPlan, RandomPlan, Scenario, Workload
from tidelog.chaos.targets import parse
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
BEGAN, LASTS, GOES_ON, TOOK_EFFECT, MARKS, ENDED, READERS = (
    "every part of the load runs before the first fault",
    "records are sent until everything is healed",
    "every part of the load goes on after the last fault",
    "the faults of the scenario took effect",
    "leaders told their high watermarks",
    "every send is answered or given up in time",
    "readers that read the whole log at the end",
)
FAULT = PlannedFault(5.0, Kill(), parse("leader of 0"))


def scenario(plan: Workload = BOTH, **about: Any) -> Scenario:
    return Scenario("s", "", "", None, (), "", workload=plan, **about)


def at_work(made: Story, n: int, without: str = "") -> Story:
    """Every part of the load, but one."""
    if without != "all":
        made.sent(f"a{n}", 2 * n)
    if without != "1":
        made.sent(f"b{n}", 2 * n + 1, acks="1")
    if without != "consumer":
        made.poll((2 * n, f"a{n}"))
    if without != "group":
        made.processed(2 * n, 2 * n)
    return made


def story(
    without: str = "", late: bool = False, *, seconds: range = range(1, 20), after: str = "", effect: bool = True
) -> Story:
    """Everybody is at work from 1 s on, or from 6 s, once a second; a fault is in force from 5 s to 9 s. `without` and `after`:
    what is never at work, or not after it."""
    made = Story().phase("load")
    fault = Story().at(5.0).fault("begin")
    if effect:
        fault.fault("effect")
    fault.at(9.0).fault("heal").fault("healed").watermark(1)
    for n, second in enumerate(seconds):
        if not (late and second < 6):
            at_work(made.at(float(second)), n, after if second >= 9 and after else without)
    made.at(20.0).phase("heal").at(21.0).end(())
    made.records = sorted([*made.records, *fault.records], key=lambda record: record.t)
    return made


def judged(of: Story, plan: Workload = BOTH, **about: Any) -> dict[str, Kept]:
    found = premises(scenario(plan, **about), Facts.of(of.records), of.check())
    return {each.text: each for each in found}


def test_a_run_that_had_a_load_says_something() -> None:
    found = judged(story(), faults=(FAULT,))
    assert {text: each.kept for text, each in found.items()} == dict.fromkeys(
        (BEGAN, LASTS, GOES_ON, TOOK_EFFECT, MARKS, ENDED), True
    ) | {READERS: False}


def test_a_load_that_ends_before_the_fault_is_not_hit_by_it() -> None:
    found = judged(story(seconds=range(1, 5)))
    assert not found[LASTS].kept and found[LASTS].measured == "16.0 s without one (acks=all)"
    assert found[LASTS].limit == "at most 5 s without one" and found[BEGAN].kept
    assert not found[GOES_ON].kept


def test_a_load_that_pauses_in_the_fault_is_not_hit_by_it() -> None:
    def pausing(until: int) -> Kept:
        made = story(seconds=range(1, 5))
        rest = [record for record in story().records if until <= record.t < 20.0 and not isinstance(record, FaultStep)]
        made.records = sorted([*made.records, *rest], key=lambda record: record.t)
        return premises_of(made)[LASTS]

    def premises_of(made: Story) -> dict[str, Kept]:
        return {each.text: each for each in premises(scenario(), Facts.of(made.records), story().check())}

    assert not pausing(12).kept and pausing(8).kept


@pytest.mark.parametrize(
    "after, missing",
    [
        ("all", "an acks=all record was acknowledged"),
        ("1", "an acks=1 record was acknowledged"),
        ("consumer", "a consumer read"),
        ("group", "the group processed"),
    ],
)
def test_a_part_of_the_load_that_ends_with_the_fault_is_named(after: str, missing: str) -> None:
    goes_on = judged(story(after=after))[GOES_ON]
    assert (goes_on.kept, goes_on.measured, goes_on.limit) == (False, f"not behind it: {missing}", "behind 9.0 s")


def test_a_load_that_ends_by_itself_may_be_over_first() -> None:
    found = judged(story(seconds=range(1, 8)), replace(BOTH, orders=7))
    assert LASTS not in found and GOES_ON not in found


def test_a_fault_of_the_scenario_that_no_history_shows_was_none() -> None:
    assert judged(story(effect=False), faults=(FAULT,))[TOOK_EFFECT].measured == "not kill"
    assert not judged(story(), faults=(FAULT, FAULT))[TOOK_EFFECT].kept
    assert TOOK_EFFECT not in judged(story())
    drawn = RandomPlan(1.0, 0.5, (FAULT,))
    assert judged(story(), random=drawn)[TOOK_EFFECT].kept
    assert not judged(story(effect=False), random=drawn)[TOOK_EFFECT].kept


def test_leaders_that_told_nothing_are_missed() -> None:
    assert not judged(Story().sent("a", 0).end(rows("a")))[MARKS].kept


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
