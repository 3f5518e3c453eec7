"""From a run's directory to its verdict: the scenario's own assertions, and what every run has to have been like."""

import json
from pathlib import Path

import pytest

from helpers.histories import Story, rows
from tidelog.chaos.checker.replicas import PartitionReplicas, ReplicaLog, Stretch
from tidelog.chaos.checking import REPLICAS, CannotCheck
from tidelog.chaos.history import HistoryWriter
from tidelog.chaos.launch import broken_so_far
from tidelog.chaos.run import Unkept
from tidelog.chaos.run_files import SCENARIO_FILE, RunFile, judge
from tidelog.chaos.scenario import Column

SCENARIO = """\
name: mine
title: nothing happens
about: a load without a fault
runs_in: [local]
workload: {producers: [{acks: all}], consumers: {assigned: 1, group: 0}}
duration: 10s
"""


def replicas(partitions: int = 3, each: int = 3) -> list[PartitionReplicas]:
    logs = tuple(ReplicaLog(broker, 0, 0, ()) for broker in range(each))
    return [PartitionReplicas("chaos", partition, 0, logs) for partition in range(partitions)]


HELD = replicas()


def run(
    directory: Path,
    story: Story,
    held: list[PartitionReplicas] | None = HELD,
    **about: object,
) -> Path:
    if held is not None:
        (directory / REPLICAS).write_text(json.dumps([each.to_json() for each in held]))
    (directory / SCENARIO_FILE).write_text(SCENARIO)
    file = RunFile("mine", None, "nothing happens", 1, "local", 10.0, ["chaos"], 1)
    for name, value in about.items():
        setattr(file, name, value)
    file.write(directory)
    with HistoryWriter(directory / "history.jsonl") as writer:
        for record in story.records:
            writer.append(record)
    return directory


def whole() -> Story:
    return Story().phase("load").log("a").poll((0, "a")).watermark(1).at(4.0).phase("heal").end(rows("a"))


def test_a_run_is_judged_by_its_premises_too(tmp_path: Path) -> None:
    verdict = judge(run(tmp_path, whole()))
    assert verdict.exit_code == 0 and len(verdict.promises) == 7


def test_a_run_of_the_column_all_1_is_judged_by_what_its_file_says_of_it(tmp_path: Path) -> None:
    directory = run(tmp_path, whole(), column=Column.ALL_1)
    with (directory / SCENARIO_FILE).open("a") as file:
        file.write("all/1: {expect: [coordinator changes]}\n")
    assert len(judge(directory).promises) == 8
    made = RunFile.read(directory)
    made.column = Column.ALL_2
    made.write(directory)
    assert len(judge(directory).promises) == 7


def test_a_column_that_is_none_is_no_run(tmp_path: Path) -> None:
    directory = run(tmp_path, whole(), column="some")
    with pytest.raises(CannotCheck, match="'some' is not a valid Column"):
        judge(directory)


def test_a_run_whose_consumer_has_read_nothing_is_not_sound(tmp_path: Path) -> None:
    story = Story().phase("load").log("a").watermark(1).at(4.0).phase("heal").end(rows("a"))
    verdict = judge(run(tmp_path, story))
    assert verdict.sound and not verdict.kept and verdict.exit_code == 1
    (missed,) = [each for each in verdict.promises if not each.kept]
    assert missed.measured == "before a consumer had read"


def test_faults_that_were_drawn_and_missed_are_noted(tmp_path: Path) -> None:
    verdict = judge(run(tmp_path, whole(), left_out=["kill broker-1: it is stopped, not running"]))
    assert "1 of 1 drawn faults took no effect: kill broker-1: it is stopped, not running" in verdict.notes


def test_faults_that_were_missed_for_one_reason_are_counted(tmp_path: Path) -> None:
    verdict = judge(
        run(tmp_path, whole(), left_out=["reset broker-2: gone", *["kill broker-1: another has hit it"] * 3])
    )
    (told,) = [note for note in verdict.notes if "drawn faults" in note]
    assert told == (
        "4 of 4 drawn faults took no effect: kill broker-1: another has hit it (3 times); reset broker-2: gone"
    )


@pytest.mark.parametrize(("rotten", "exit_code"), [([(2, 0)], 0), ([], 1), ([(1, 0)], 1)])
def test_a_copy_that_is_known_to_be_rotten_is_named(
    rotten: list[tuple[int, int]], exit_code: int, tmp_path: Path
) -> None:
    good, bad = (Stretch(0, 1, digest) for digest in ("good", "bad"))
    logs = tuple(ReplicaLog(broker, 0, 1, (bad if broker == 2 else good,)) for broker in range(3))
    held = [PartitionReplicas("chaos", 0, 1, logs), *HELD[1:]]
    verdict = judge(run(tmp_path, whole(), held, rotten=rotten))
    assert verdict.exit_code == exit_code
    named = [note for note in verdict.notes if "is rotten" in note]
    assert [note.partition(" is rotten")[0] for note in named] == [
        f"the copy of chaos-{partition} on broker {broker}" for broker, partition in rotten
    ]


def test_a_run_that_came_to_no_end_is_broken_all_the_same_if_what_there_is_of_it_shows_that(tmp_path: Path) -> None:
    verdict = broken_so_far(run(tmp_path, Story().phase("load").log("a").poll((0, "a")).sent("b", 0).phase("heal")))
    assert verdict is not None and (verdict.complete, verdict.exit_code) == (False, 1)


def test_a_cluster_that_does_not_recover_broke_its_promise(tmp_path: Path) -> None:
    unkept = Unkept("every partition can be read to its end", "no reader has", "within 60 s").kept
    verdict = judge(run(tmp_path, Story().phase("load").log("a").poll((0, "a")).phase("heal"), unkept=[unkept]))
    assert (verdict.sound, verdict.complete, verdict.exit_code) == (True, False, 1)
    assert [each for each in verdict.promises if not each.kept] == [unkept]


@pytest.mark.parametrize("held", [replicas(partitions=2), replicas(each=2), []])
def test_a_replica_that_is_not_there_is_missed(tmp_path: Path, held: list[PartitionReplicas]) -> None:
    verdict = judge(run(tmp_path, whole(), held))
    (missed,) = [each for each in verdict.promises if not each.kept]
    assert missed.text == "partitions with all their replicas" and missed.limit == "3 with 3"


def test_a_whole_run_without_its_replicas_has_no_verdict(tmp_path: Path) -> None:
    verdict = judge(run(tmp_path, whole(), None))
    assert verdict.sound and verdict.exit_code == 3 and verdict.notes
    assert judge(run(tmp_path, Story().phase("load").log("a").phase("heal").end(()), None)).exit_code == 1


@pytest.mark.parametrize(
    "file, text, why",
    [
        (SCENARIO_FILE, None, "the scenario of the run cannot be read: .*No such file"),
        (SCENARIO_FILE, "?", "the scenario of the run cannot be read: .*scenario.yaml:1: "),
        ("samples.jsonl", "?\n?\n", "samples.jsonl: "),
        ("replicas.json", "?", "replicas.json: not JSON"),
        ("history.jsonl", None, "has no history.jsonl"),
        ("run.json", None, "holds no run: there is no run.json"),
    ],
)
def test_a_file_of_a_run_that_cannot_be_read_is_named(tmp_path: Path, file: str, text: str | None, why: str) -> None:
    run(tmp_path, whole())
    (tmp_path / file).unlink(missing_ok=True) if text is None else (tmp_path / file).write_text(text)
    with pytest.raises(CannotCheck, match=why):
        judge(tmp_path)


def test_a_run_that_came_to_no_end_and_shows_nothing_has_no_verdict(tmp_path: Path) -> None:
    assert broken_so_far(tmp_path) is None
    assert broken_so_far(run(tmp_path, Story().phase("load").log("a").phase("heal"))) is None
