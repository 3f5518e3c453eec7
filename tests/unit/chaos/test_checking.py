"""From the files of a run to its verdict."""

import json
from pathlib import Path

import pytest

from helpers.histories import Story, found, rows
from tidelog.chaos.checker.promise import Availability, Promise
from tidelog.chaos.checker.replicas import PartitionReplicas, ReplicaLog, Stretch
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.checking import REPLICAS, CannotCheck, check_run, read_replicas, save_verdict
from tidelog.chaos.history import HistoryDamaged, HistoryWriter
from tidelog.errors import TidelogError


def checked(directory: Path) -> Verdict:
    return check_run(directory, read_replicas(directory / REPLICAS))


def saved(directory: Path, story: Story) -> Path:
    with HistoryWriter(directory / "history.jsonl") as writer:
        for record in story.records:
            writer.append(record)
    return directory


def whole() -> Story:
    return Story().log("a", "b").end(rows("a", "b"))


def test_the_verdict_over_files_is_that_over_the_records(tmp_path: Path) -> None:
    story = Story().log("a", "b").sent("c", 0).end(rows("a", "b"))
    verdict = checked(saved(tmp_path, story))
    assert verdict == story.check(replicas=None) and found(verdict)["inconsistent-offsets"] == 1
    save_verdict(tmp_path, verdict)
    assert Verdict.from_json(json.loads((tmp_path / "verdict.json").read_text())) == verdict


def test_the_promise_is_the_runs(tmp_path: Path) -> None:
    saved(tmp_path, whole())
    assert len(checked(tmp_path).promises) == 1
    promise = Promise(idempotent=True, available=(Availability(3.0),))
    (tmp_path / "run.json").write_text(json.dumps({"name": "x", "promise": promise.to_json()}))
    assert [kept.limit for kept in checked(tmp_path).promises] == ["0", "0", "at most 3 s"]
    (tmp_path / "run.json").write_text(json.dumps({"name": "x", "promise": None}))
    assert len(checked(tmp_path).promises) == 1


def test_replicas_are_compared_if_they_were_read(tmp_path: Path) -> None:
    saved(tmp_path, whole())
    replicas = PartitionReplicas("chaos", 0, 2, tuple(ReplicaLog(n, 0, 2, (Stretch(0, 2, f"{n}"),)) for n in (1, 2)))
    (tmp_path / "replicas.json").write_text(json.dumps([replicas.to_json()]))
    assert found(checked(tmp_path)) == {"replicas-differ": 1}


def test_a_history_cut_off_in_the_middle_is_checked_up_to_there_and_says_so(tmp_path: Path) -> None:
    path = saved(tmp_path, Story().sent("a", 0).sent("b", 0).sent("c", 1)) / "history.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    verdict = checked(tmp_path)
    assert found(verdict) == {"inconsistent-offsets": 1} and not verdict.complete and verdict.exit_code == 1
    assert verdict.notes[0] == "history.jsonl was cut off after line 5, at 0.050 s"
    assert "to 0.050 s: it is checked up to there" in verdict.notes[1]


def test_a_line_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryDamaged, match=r"history.jsonl, line 3: the value 'a' is sent a second time"):
        checked(saved(tmp_path, Story().sent("a", 0).sent("a", 1).log("b")))


@pytest.mark.parametrize(
    "name, text, why",
    [
        ("run.json", "{", "run.json: not JSON"),
        ("run.json", "[]", "its promise makes no sense"),
        ("run.json", '{"promise": {"lost": "some"}}', "lost is 'some', not one of none, one-copy, allowed"),
        ("run.json", '{"promise": {"losst": "none"}}', "losst"),
        ("run.json", '{"promise": {"available": [{}]}}', "at_most_s"),
        ("replicas.json", "{}[", "replicas.json: not JSON"),
        ("replicas.json", '[{"topic": "t"}]', "no list of what replicas hold: 'replicas'"),
        ("replicas.json", "7", "no list of what replicas hold"),
    ],
)
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, name: str, text: str, why: str) -> None:
    saved(tmp_path, whole())
    (tmp_path / name).write_text(text)
    with pytest.raises(CannotCheck) as caught:
        checked(tmp_path)
    assert str(tmp_path / name) in str(caught.value) and why in str(caught.value)
    assert isinstance(caught.value, TidelogError) and "\n" not in str(caught.value)


def test_a_directory_without_a_history_is_none_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(CannotCheck, match=r"has no history.jsonl: is it the directory of a run\?"):
        checked(tmp_path)
