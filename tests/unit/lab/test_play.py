"""Stories are played: actions at their times, looks between them, a verdict, and the exit code of the command."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tidelog.chaos.yaml_nodes import ScenarioError, parse
from tidelog.cli import main
from tidelog.lab import story_file, tell
from tidelog.lab.expectations import Outcome
from tidelog.lab.play import Played, play
from tidelog.lab.steps import Act

STORY: Final = """\
version: 1
title: a story
question: What is seen?
topics: [{name: events, replicas: [[0, 1, 2]]}]
duration: 4s
actions:
  - {at: 1s, do: produce, topic: events, records: 3, as: first}
  - {at: 2s, say: "Now the leader dies."}
  - {at: 2s, do: kill, process: leader of events-0, as: old leader}
expect:
"""


def played(expectations: str, story: str = STORY) -> Played:
    return play(story_file.story(parse(story + expectations, "f")))


EXPECTATIONS: Final = (
    ("{sends: first, acked: 3, waiting: 0}", True, ""),
    ("{sends: first, at: 1s, acked: 3}", False, "0 of 0 acknowledged"),
    ("{sends: first, failed: {NOT_ENOUGH_REPLICAS: 3}}", False, "3 of 3 acknowledged"),
    ("{at: 2s, partition: events-0, leader: 0, epoch: 0, isr: [2, 1, 0]}", True, ""),
    ("{at: 3s, partition: events-0, leader: 1, epoch: 1, isr: [1, 2], log_ends: {1: 3}}", True, ""),
    ("{at: 3s, partition: events-0, leader: 0}", False, "leader 1"),
    ("{at: 3s, partition: events-0, log_ends: {0: 3}}", False, "log ends 3 at 1, 3 at 2"),
    ("{from: 1900ms, to: 4s, partition: events-0, stands: high_watermark}", True, ""),
    ("{from: 1900ms, to: 4s, partition: events-0, stands: leader}", False, "0, then 1"),
    ("{at: 3s, process: old leader, is: down}", True, ""),
    ("{at: 3s, process: broker-1, is: down}", False, "it is up"),
    (
        "{events: [{kind: LeaderChosen, leader: 1}, {kind: BecameLeader, process: broker-1, caused: true}]}",
        True,
        "",
    ),
    (
        "{events: [{kind: BecameLeader, process: broker-1}, {kind: LeaderChosen, leader: 1}]}",
        False,
        "LeaderChosen (lea",
    ),
    ("{events: [{kind: BecameLeader, process: old leader, subject: events-0}]}", True, ""),
    ("{events: [{kind: BrokerSeen}, {kind: BrokerSuspected, caused: true}]}", False, "BrokerSuspected is missing"),
    ("{to: 2s, no event: {kind: LeaderChosen, leader_epoch: 1}}", True, ""),
    ("{no event: {kind: LeaderChosen, leader_epoch: 1}}", False, "elects broker-1 for events-0"),
    ("{verdict: {acknowledged: 3, lost: 0}}", True, ""),
    ("{verdict: {acknowledged: 4}}", False, "3 acknowledged, 0 lost"),
)


@pytest.fixture(scope="module")
def judged() -> Sequence[Outcome]:
    """The outcomes of all of EXPECTATIONS in one story; each of them knows its line."""
    return played("".join(f"  - {line}\n" for line, _, _ in EXPECTATIONS)).outcomes


@pytest.mark.parametrize("number", range(len(EXPECTATIONS)), ids=lambda number: EXPECTATIONS[number][0])
def test_an_expectation_says_what_was_seen_instead(judged: Sequence[Outcome], number: int) -> None:
    _, held, found = EXPECTATIONS[number]
    outcome = judged[number]
    assert outcome.held == held and found in outcome.found and outcome.line == 11 + number, outcome


@pytest.fixture(scope="module")
def holds() -> Played:
    return played("  - {sends: first, acked: 3}\n")


def test_text_has_question_actions_steps_and_results_in_order(holds: Played) -> None:
    told = list(tell.lines(holds))
    wanted = [
        "a story",
        "Question: What is seen?",
        "    1.000  >             3 records are produced to events with acks=all",
        "Now the leader dies.",
        "    2.000  >             broker-0 is killed",
        "ok      at 4 s of the records 'first' there are 3 acknowledged",
        "ok      verdict: 3 acknowledged, 0 lost, 0 duplicated, 0 reordered",
    ]
    places = [told.index(line) for line in wanted]
    assert places == sorted(places)
    assert any("elects broker-1 for events-0" in line for line in told[places[4] :])


def test_no_event_holds_a_record(holds: Played) -> None:
    found = tell.to_json(holds)
    assert "producer-1" not in json.dumps([step for step in found["steps"] if "kind" in step])
    assert found["held"] and found["verdict"]["acknowledged"] == 3


def test_an_action_that_cannot_be_done_is_told_with_its_line() -> None:
    again = STORY.replace("expect:", "  - {at: 3s, do: kill, process: old leader}\nexpect:")
    with pytest.raises(ScenarioError, match=r"^f:10: broker-0 is down$"):
        played("  - {sends: first, acked: 3}\n", again)
    with pytest.raises(ScenarioError, match=r"^f:7: the cluster is up after 0.\d\d s; the first action is too early"):
        played("  - {sends: first, acked: 3}\n", STORY.replace("at: 1s", "at: 1ms"))


def test_a_refused_act_is_told_and_has_a_result() -> None:
    refused = "  - {at: 3s, do: alter topic, topic: events, settings: {retention.ms: soon}, as: change}\nexpect:"
    story = played("  - {result: change, error: INVALID_CONFIG}\n", STORY.replace("expect:", refused))
    assert story.outcomes[0].held
    assert any(isinstance(step, Act) and step.text.startswith("refused: ") for step in story.steps)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main.run(["lab", *args])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def test_the_exit_code_says_whether_the_story_holds(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine.write_text(STORY + "  - {sends: first, acked: 3}\n")
    code, out, err = run(capsys, "run", str(mine))
    assert (code, err) == (0, "") and "ok      at 4 s of the records 'first'" in out
    mine.write_text(STORY + "  - {sends: first, acked: 4}\n")
    code, out, err = run(capsys, "run", str(mine), "--format", "json")
    found: dict[str, Any] = json.loads(out)
    assert (code, err, found["held"]) == (1, "", False)
    assert found["expectations"][0]["found"] == "3 of 3 acknowledged"


def test_bad_input_is_one_line(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine.write_text(STORY.replace("version: 1", "version: 9"))
    for args in (["run", str(mine)], ["run", "nonsense"], ["run", str(mine.parent / "none.yaml")]):
        code, out, err = run(capsys, *args)
        assert (code, out, err.count("\n")) == (2, "", 1), err


def test_lessons_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "lessons")
    assert code == 0 and out.splitlines()[1].split() == ["1", "acks-all", "What", "acks=all", "waits", "for"]
    code, out, _ = run(capsys, "lessons", "--format", "json")
    assert code == 0 and json.loads(out)[0]["name"] == "acks-all"
