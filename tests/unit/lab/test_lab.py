"""The class `Lab`: a simulated cluster that ordinary code drives."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tidelog.errors import InvalidConfigError
from tidelog.lab import Lab, LabError
from tidelog.lab.steps import FAMILIES, KINDS, Act, kinds_of
from tidelog.replica.leader import LeaderState
from tidelog.testing.invariants import Violation
from tidelog.watch import text


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(seed=7, partitions=1) as made:
        yield made


@pytest.fixture(scope="module")
def untouched() -> Iterator[Lab]:
    """For mistakes, which change nothing."""
    with Lab(seed=7, partitions=1) as made:
        yield made


def test_a_killed_leader_is_replaced_and_nothing_is_lost(lab: Lab) -> None:
    assert lab.produce("events", 20).acked == 20
    leader = lab.partition("events", 0).leader
    lab.kill(f"broker-{leader}")
    sends = lab.produce("events", 20)
    after = lab.partition("events", 0)
    assert sends.acked == 20 and sends.offsets[0] == list(range(20, 40))
    assert after.leader not in (leader, -1) and leader not in after.isr and after.high_watermark == after.log_end == 40
    lab.start(f"broker-{leader}")
    lab.until(lambda c: c.partition("events", 0).in_sync)
    verdict = lab.verdict()
    assert (verdict.acknowledged, verdict.lost, verdict.duplicated, verdict.reordered) == (40, 0, 0, 0)
    assert verdict.sound and str(verdict) == "40 acknowledged, 0 lost, 0 duplicated, 0 reordered"
    assert [record.offset for record in lab.consume("events", 0)] == list(range(40))


def test_events_are_found_by_family_class_partition_and_process(lab: Lab) -> None:
    lab.kill(f"broker-{lab.partition('events', 0).leader}")
    lab.until(lambda c: c.partition("events", 0).epoch == 1)
    first, second = lab.events(kind="election", topic="events", partition=0)
    assert first.kind == "LeaderChosen" and second.t > first.t and second.process == lab.cluster.controller
    assert lab.events("LeaderChosen", since=second.t) == [second]
    assert {step.process for step in lab.events(process="broker-1")} == {"broker-1"}
    assert lab.events(topic="other") == []
    acts = [each.text for each in lab.story() if isinstance(each, Act)]
    assert acts[0] == "topic events is created" and acts[-1].endswith("is killed")
    with pytest.raises(LabError, match=r"'nonsense' is no kind of event; kinds are .*BecameFollower"):
        lab.events("nonsense")


def test_time_passes_only_in_calls_that_say_so(lab: Lab) -> None:
    before = lab.time
    lab.pause("broker-0")
    sends = lab.produce("events", 3, wait=False)
    assert lab.time == before and sends.waiting == 3
    lab.run(2.5)
    assert lab.time == pytest.approx(before + 2.5)
    with pytest.raises(LabError, match=r"until: it is not so within 1 s"):
        lab.until(lambda c: False, limit=1)
    with pytest.raises(LabError, match="run: -1 seconds"):
        lab.run(-1)


@pytest.mark.parametrize(
    "ask, told",
    [
        (lambda lab: lab.kill("broker-7"), "there is no process 'broker-7'; there are broker-0, broker-1"),
        (lambda lab: lab.resume("broker-0"), "broker-0 is not paused"),
        (lambda lab: lab.start("broker-0"), "broker-0 is up"),
        (lambda lab: lab.start("zookeeper"), "zookeeper is up"),
        (lambda lab: lab.cut("broker-0", "nowhere"), "there is no process or client 'nowhere'"),
        (lambda lab: lab.produce("nothing"), "there is no topic 'nothing'; there are events"),
        (lambda lab: lab.produce("events", partition=1), "topic 'events' has 1 partitions, and no partition 1"),
        (lambda lab: lab.produce("events", acks=2), "acks 2 is not all, 1 or 0"),
        (lambda lab: lab.stop_load("events"), "there is no load of events"),
    ],
)
def test_a_mistake_is_told_in_one_line(ask: object, told: str, untouched: Lab) -> None:
    assert callable(ask)
    before = untouched.time, list(map(str, untouched.story()))
    with pytest.raises(LabError) as caught:
        ask(untouched)
    assert (untouched.time, list(map(str, untouched.story()))) == before
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_the_cluster_says_itself_what_it_refuses(lab: Lab) -> None:
    with pytest.raises(InvalidConfigError):
        lab.create_topic("other", settings={"retention.ms": "soon"})
    with pytest.raises(LabError, match="brokers: 0 is not a whole number from 1 to 9"):
        Lab(brokers=0)


def test_a_closed_lab_says_so(lab: Lab) -> None:
    lab.close()
    lab.close()
    for ask in (lambda: lab.run(1), lambda: lab.kill("broker-0"), lambda: lab.partition("events", 0), lab.events):
        with pytest.raises(LabError, match="this lab is closed"):
            ask()


def test_a_lab_belongs_to_its_thread(lab: Lab) -> None:
    told: list[str] = []

    def ask() -> None:
        for each in (lambda: lab.run(1), lambda: lab.cluster, lab.close):
            try:
                each()
            except LabError as error:
                told.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert told == ["this lab belongs to another thread; a lab is used in the thread that made it"] * 3


def test_a_predicate_looks_and_does_nothing(lab: Lab) -> None:
    with pytest.raises(LabError, match="in the middle of a call"):
        lab.until(lambda c: lab.kill("broker-0") is None)
    lab.run(0.1)


@pytest.mark.real_loop
async def test_a_lab_works_inside_a_running_event_loop() -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    with Lab(partitions=1) as lab:
        assert lab.produce("events", 5).acked == 5
        assert asyncio.get_running_loop() is loop and asyncio.current_task() is task
        await asyncio.sleep(0)
        lab.run(1)
    await asyncio.sleep(0)


def test_two_labs_do_not_disturb_each_other() -> None:
    with Lab(seed=1, partitions=1) as one, Lab(seed=1, partitions=1) as other:
        for lab in (one, other):
            lab.produce("events", 5)
        assert list(map(str, one.story())) == list(map(str, other.story()))


def test_a_broken_invariant_stops_time(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderState, "committed_end", lambda leading, log_end, own_end, high_watermark, at: own_end)
    with pytest.raises(Violation, match="events-0 leader"):
        lab.produce("events", 5)
    assert "events-0 leader" in lab.violation and not lab.verdict().sound
    with pytest.raises(Violation, match="events-0 leader"):
        lab.run(1)


def test_the_picture_escapes_what_it_shows(lab: Lab) -> None:
    lab.create_topic("a.b", 1, replicas=[[2, 0]])
    lab.kill("broker-1")
    shown = lab._repr_html_()
    assert "<td>a.b-0</td><td>0</td><td>0,2</td><td>0 (0)</td><td></td><td>*0 (0)</td>" in shown
    assert "<th>broker-1 (down)</th>" in shown


def test_the_picture_shows_40_partitions_and_counts_the_rest() -> None:
    with Lab(partitions=45) as lab:
        assert lab._repr_html_().count("<tr><td>events-") == 40 and "and 5 more partitions" in lab._repr_html_()


def test_every_kind_of_event_has_a_family() -> None:
    assert set(KINDS) == {kind.__name__ for kind in text._SENTENCES}
    for family in FAMILIES:
        assert set(kinds_of(family)) <= set(KINDS)
