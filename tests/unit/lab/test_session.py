"""A reader's session: time passes, stands and goes back exactly, and what the reader does is a part of the story."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from tidelog.chaos.checker.promise import Loss
from tidelog.lab import session as sessions
from tidelog.lab.cluster import LabCluster
from tidelog.lab.digest import encoded
from tidelog.lab.lesson import Lesson
from tidelog.lab.play import play
from tidelog.lab.session import Session
from tidelog.lab.story import Story, TopicPlan, free
from tidelog.lab.story_file import find, load
from tidelog.lab.verdict import Verdict
from tidelog.page.source import Refused
from tidelog.testing.invariants import Violation


class Told:
    """The messages for the page, and a session whose wall clock moves a little at each look, so that runs are cut into parts."""

    def __init__(self, story: Story, tick_s: float = 0.001) -> None:
        self.messages: list[tuple[str, Any]] = []
        self._wall = 0.0
        self._tick_s = tick_s
        self.session = Session(story, lambda kind, content: self.messages.append((kind, content)), self._clock)
        self.session.open()

    def _clock(self) -> float:
        self._wall += self._tick_s
        return self._wall

    def all(self, kind: str) -> list[Any]:
        return [content for each, content in self.messages if each == kind]

    def last(self, kind: str) -> Any:
        return self.all(kind)[-1]

    @property
    def picture(self) -> dict[str, Any]:
        """The last picture without the verdict, which may be of an earlier moment while time passes."""
        return {name: value for name, value in self.last("picture").items() if name != "verdict"}

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for events in self.all("events") for event in events]

    def play(self, until_s: float) -> None:
        self.session.play(on=True)
        while self.session.playing and self.session.time < until_s:
            self.session.frame(min(0.1, until_s - self.session.time))
        self.session.play(on=False)

    def steps(self) -> list[str]:
        return [encoded(step) for step in self.session._player.steps]


def cluster(**changes: Any) -> Story:
    topic = TopicPlan("events", 2, 3, settings={"min.insync.replicas": "2"})
    return free(**{"seed": 3, "brokers": 3, "controllers": 2, "topics": (topic,), **changes})


@pytest.fixture(autouse=True)
def few_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts are rare: by the wall clock of `Told` one is as cheap as a step, and would come with nearly every frame."""
    monkeypatch.setattr(sessions, "JUDGED_SHARE", 1e-5)


@pytest.fixture
def told() -> Iterator[Told]:
    found = Told(cluster())
    yield found
    found.session.close()


def test_a_session_in_small_parts_is_the_story_played_at_once() -> None:
    told = Told(load(find("1")), tick_s=0.01)
    try:
        told.play(10.0)
        assert told.session.playing is False and told.last("lesson")["asks"], "time stands at the question"
        told.play(10.0)
        whole = [encoded(step) for step in play(load(find("1"))).steps]
        assert told.steps() == whole[: len(told.steps())] and told.session.time == 3.0
    finally:
        told.session.close()


def test_each_event_back_shows_what_was_shown_on_the_way_there(told: Told) -> None:
    session = told.session
    session.act({"do": "produce", "topic": "events", "records": 4})
    session.act({"do": "kill", "process": "broker-0"})
    forth: dict[int, Any] = {}
    for _ in range(30):
        session.to({"event": told.last("time")["n"]})
        forth[told.last("time")["n"]] = told.picture
    assert max(forth) == min(forth) + 29 and told.picture["t"] > 0.2
    for n in sorted(forth, reverse=True):
        session.to({"event": n - 1})
        assert told.last("time")["n"] == n and told.picture == forth[n]


def test_going_back_further_than_pictures_are_kept_plays_again(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PICTURES", 5)
    session = told.session
    session.act({"do": "load", "topic": "events", "rate": 50})
    told.play(1.0)
    before = told.last("time")["n"]
    early = before - 20
    session.to({"event": early})
    assert told.last("time")["n"] == early + 1 and told.last("time")["end"]["n"] == before
    assert told.last("picture")["n"] >= early + 1 and told.last("picture")["t"] == told.events[early]["t"]
    told.play(1.0)
    assert told.last("time")["n"] == before, "the future is the same as long as nothing else is done"


def test_what_is_done_in_the_past_replaces_what_came_after(told: Told) -> None:
    session = told.session
    told.play(0.5)
    session.act({"do": "kill", "process": "broker-1"})
    told.play(1.5)
    known = told.last("time")["end"]["n"]
    session.to({"t": 0.4})
    then = told.last("time")["n"]
    session.act({"do": "pause", "process": "broker-2"})
    assert told.last("cut") == {"n": then} and then < known
    assert [beat.written["do"] for beat in session.story.beats] == ["pause"]
    assert told.events[-1]["text"] == "broker-2 is paused (SIGSTOP)" and told.events[-1]["n"] == then
    told.play(1.5)
    states = {each["name"]: each["state"] for each in told.picture["processes"]}
    assert (states["broker-1"], states["broker-2"]) == ("up", "paused")


def test_what_cannot_be_done_leaves_no_trace(told: Told) -> None:
    other = Told(cluster())
    try:
        for each in (told, other):
            each.play(0.5)
        for body, text in (
            ({"do": "kill", "process": "broker-9"}, "process: there is no process 'broker-9'; did you mean"),
            ({"do": "start", "process": "broker-1"}, "broker-1 is up"),
            ({"do": "explode"}, "do: 'explode' is none of kill"),
            ({"process": "broker-1"}, "either do or say is needed"),
            ({"do": "produce", "topic": "events", "records": 0}, "records: '0' is not a whole number from 1"),
            (
                {"do": "join", "group": "<b>", "topic": "events"},
                "group: group_id '<b>' holds something else than ASCII",
            ),
            ({"do": "kill", "process": {"a": 1}}, "process: a mapping is not text"),
        ):
            with pytest.raises(Refused) as refused:
                told.session.act(body)
            assert text in str(refused.value) and "\n" not in str(refused.value)
        for each in (told, other):
            each.session.act({"do": "kill", "process": "leader of events-0"})
            each.play(3.0)
        assert told.steps() == other.steps()
    finally:
        other.session.close()


def test_a_planned_action_that_cannot_be_done_is_left_out() -> None:
    told = Told(load(find("4")))
    try:
        told.play(10.0)
        told.session.play(on=True)
        told.session.play(on=False)
        told.session.act({"do": "kill", "process": "broker-0"})
        told.play(3.0)
        assert "broker-0 is down; this action is left out" in told.last("error")["text"]
        told.play(8.0)
        assert told.steps() == [encoded(step) for step in play(told.session.kept_story()).steps]
    finally:
        told.session.close()


def test_a_lesson_asks_before_the_first_fault() -> None:
    assert 5.99 < Lesson(load(find("12"))).stop_after(0.0) < 6.0, "a load and a group are no faults"
    told = Told(load(find("4")))
    try:
        lesson = told.last("lesson")
        assert not lesson["asks"] and {each["held"] for each in lesson["expectations"]} == {None}
        told.play(60.0)
        assert told.last("lesson")["asks"] and 2.39 < told.session.time < 2.4
        assert not [each for each in told.events if each["mark"] == "fault"]
        told.play(60.0)
        lesson = told.last("lesson")
        assert lesson["ended"] and not lesson["asks"] and {each["held"] for each in lesson["expectations"]} == {True}
        end = told.session.time
        told.play(end + 1.0)
        assert told.session.time == pytest.approx(end + 1.0), "the lesson is over, and time may go on"
        told.session.to({"t": 3.0})
        held = [each["held"] for each in told.last("lesson")["expectations"]]
        assert True in held and None in held, "what is not due yet is open again"
    finally:
        told.session.close()


def test_a_mistake_at_the_question_does_not_begin_the_fault() -> None:
    told = Told(load(find("12")))
    try:
        told.play(60.0)
        moment, count = told.session.time, told.last("time")["n"]
        with pytest.raises(Refused, match="broker-0 is not a consumer"):
            told.session.act({"do": "take time", "process": "broker-0", "seconds": "1s"})
        assert (told.session.time, told.last("time")["n"]) == (moment, count) and told.last("lesson")["asks"]
        assert told.picture["t"] == pytest.approx(moment)
    finally:
        told.session.close()


def test_the_last_checks_know_the_verdict_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "QUICK_S", -1.0)
    monkeypatch.setattr(sessions, "JUDGED_SHARE", 1e-12)
    told = Told(load(find("4")))
    try:
        told.play(60.0)
        told.play(60.0)
        assert {each["held"] for each in told.last("lesson")["expectations"]} == {True}
    finally:
        told.session.close()


def test_verdicts_take_a_share_of_the_time_that_passes(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "JUDGED_SHARE", 0.1)
    asked: list[float] = []
    so_far = LabCluster.verdict_so_far

    def slow(cluster: LabCluster, lost: Loss) -> Verdict:
        told._wall += 0.05
        asked.append(told._wall)
        return so_far(cluster, lost)

    monkeypatch.setattr(LabCluster, "verdict_so_far", slow)
    told.session.play(on=True)
    for _ in range(60):
        told.session.frame(0.1)
    assert len(asked) > 4 and all(0.5 < then - before < 0.7 for before, then in pairwise(asked))


def test_a_violation_stops_time_until_the_reader_goes_back(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = LabCluster.after_step
    told.session.close()

    def after_step(cluster: LabCluster) -> None:
        checked(cluster)
        if cluster.now() >= 0.7:
            raise Violation("planted")

    monkeypatch.setattr(LabCluster, "after_step", after_step)
    told = Told(cluster())
    told.play(2.0)
    verdict = told.last("picture")["verdict"]
    assert not verdict["sound"] and verdict["violation"]["text"] == "planted"
    assert told.session.time < 0.8 and verdict["violation"]["n"] == told.last("time")["n"] - 1
    for again in (lambda: told.session.play(on=True), lambda: told.session.act({"do": "heal"})):
        with pytest.raises(Refused, match="time stands, since an invariant does not hold"):
            again()
    told.session.to({"t": 0.5})
    assert told.last("picture")["verdict"]["sound"]
    told.session.act({"do": "heal"})
    told.session.close()


@pytest.fixture(scope="module")
def standing() -> Iterator[Told]:
    """Refuses moments, and stays where it was."""
    found = Told(cluster())
    yield found
    found.session.close()


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "to: either event"),
        ({"event": True}, "to: either event"),
        ({"event": -1}, "to: either event"),
        ({"event": 10**9}, "event: 1000000000 is not known yet"),
        ({"t": float("nan")}, "to: either event"),
        ({"t": "1"}, "to: either event"),
    ],
)
def test_a_wrong_moment_is_refused(standing: Told, where: Mapping[str, Any], text: str) -> None:
    before = standing.last("picture"), standing.last("time")
    with pytest.raises(Refused, match=text):
        standing.session.to(where)
    with pytest.raises(Refused, match=r"speed: 1000 is not from 0\.1 to 100"):
        standing.session.set_speed(1000)
    assert (standing.last("picture"), standing.last("time")) == before


def test_moments_before_the_cluster_is_up_are_its_start(told: Told) -> None:
    began = told.picture
    told.play(1.0)
    for where in ({"event": 0}, {"t": 0}):
        told.session.to(where)
        assert told.picture == began


def test_the_verdict_counts_what_clients_were_told(told: Told) -> None:
    session = told.session
    session.act({"do": "produce", "topic": "events", "records": 6})
    told.play(0.5)
    verdict = told.last("picture")["verdict"]
    assert (verdict["acknowledged"], verdict["waiting"], verdict["lost"], verdict["sound"]) == (6, 0, 0, True)
    session.act({"do": "kill", "process": "zookeeper"})
    session.act({"do": "kill", "process": "leader of events-0"})
    session.act({"do": "produce", "topic": "events", "partition": 0, "records": 2})
    told.play(2.0)
    verdict = told.last("picture")["verdict"]
    assert (verdict["acknowledged"], verdict["waiting"]) == (6, 2) and verdict["longest_wait"] > 1.4


def test_records_that_the_new_leader_lacks_are_lost_but_allowed(told: Told) -> None:
    session = told.session
    session.act({"do": "produce", "topic": "events", "partition": 0, "records": 3})
    told.play(0.5)
    row = next(each for each in told.picture["partitions"] if each["number"] == 0)
    for each in row["replicas"][1:]:
        session.act({"do": "cut", "from": f"broker-{row['leader']}", "to": f"broker-{each['broker']}"})
    session.act({"do": "produce", "topic": "events", "partition": 0, "records": 4, "acks": "1"})
    told.play(0.7)
    assert told.last("picture")["verdict"]["acknowledged"] == 7 and told.last("picture")["verdict"]["lost"] == 0
    session.act({"do": "kill", "process": f"broker-{row['leader']}"})
    told.play(2.0)
    verdict = told.last("picture")["verdict"]
    assert (verdict["lost"], verdict["duplicated"], verdict["sound"]) == (4, 0, True)
    assert verdict["allows"] == "records that one replica alone had may be lost"


def test_a_broker_that_starts_has_what_it_had(told: Told) -> None:
    def replicas() -> list[tuple[str, int]]:
        rows = [each for row in told.picture["partitions"] for each in row["replicas"]]
        return [(each["state"], each["end"]) for each in rows if each["broker"] == 1]

    told.session.act({"do": "produce", "topic": "events", "records": 6})
    told.play(0.6)
    told.session.act({"do": "kill", "process": "broker-1"})
    assert replicas() == [("down", 3), ("down", 3)]
    told.session.act({"do": "start", "process": "broker-1"})
    assert replicas() == [("unknown", 3), ("unknown", 3)]
    told.play(2.0)
    assert replicas() == [("up", 3), ("up", 3)]


def test_a_high_watermark_that_stands_says_why(told: Told) -> None:
    told.session.act({"do": "produce", "topic": "events", "records": 2})
    told.play(0.5)
    follower = next(each["replicas"][1]["broker"] for each in told.picture["partitions"] if each["number"] == 0)
    told.session.act({"do": "pause", "process": f"broker-{follower}"})
    told.session.act({"do": "produce", "topic": "events", "partition": 0, "records": 1})
    told.play(1.2)
    row = next(each for each in told.picture["partitions"] if each["number"] == 0)
    assert row["stands"]["why"] == f"broker-{follower} is in the ISR and behind"
    assert 0.6 < row["stands"]["seconds"] < 0.7


def test_an_event_without_a_cause_shows_the_fault_behind_it(told: Told) -> None:
    told.session.act({"do": "kill", "process": "broker-0"})
    told.play(2.0)
    (fault,) = [each for each in told.events if each["mark"] == "fault"]
    suspected = next(each for each in told.events if each["kind"] == "BrokerSuspected")
    assert suspected["fault"] == fault["n"] and fault["text"] == "broker-0 is killed"
    told.session.act({"do": "start", "process": "broker-0"})
    told.play(4.0)
    (start,) = [each for each in told.events if each["mark"] == "mend"]
    registered = [each for each in told.events if "/brokers/ids/0: created" in each["text"]][-1]
    assert registered["fault"] == start["n"] and start["text"] == "broker-0 starts"


def test_a_long_run_leaves_out_the_advances_first(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "TOLD_MAX", 10)
    told.session.act({"do": "load", "topic": "events", "rate": 100})
    told.session.set_speed(100)
    told.play(0.5)
    told.session.act({"do": "kill", "process": "broker-0"})
    told.play(2.0)
    after = [each for each in told.events if each["t"] > 0.5]
    assert {"BrokerSuspected", "LeaderChosen"} <= {each["kind"] for each in after}
    assert after[-1]["n"] - after[0]["n"] >= len(after), "some were left out"
    known, said, short = 0, list[dict[str, Any]](), 0
    for kind, content in told.messages:
        if kind == "events":
            said = content
        elif kind == "time":
            if said and len(said) < content["n"] - known:
                assert "HighWatermarkAdvanced" not in {each["kind"] for each in said}
                short += 1
            known, said = content["n"], []
    assert short
