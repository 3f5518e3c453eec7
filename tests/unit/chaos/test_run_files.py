"""From a run's directory to its verdict: the scenario's own assertions, and what every run has to have been like."""

from pathlib import Path

import pytest

from helpers.histories import Story, rows
from tidelog.chaos.checking import CannotCheck
from tidelog.chaos.history import HistoryWriter
from tidelog.chaos.launch import broken_so_far
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


def run(directory: Path, story: Story, **about: object) -> Path:
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
    return Story().phase("load").log("a").poll((0, "a")).at(10.0).phase("heal").end(rows("a"))


def test_a_run_is_judged_by_its_premises_too(tmp_path: Path) -> None:
    verdict = judge(run(tmp_path, whole()))
    assert verdict.exit_code == 0 and len(verdict.promises) == 4


def test_a_run_of_the_column_all_1_is_judged_by_what_its_file_says_of_it(tmp_path: Path) -> None:
    directory = run(tmp_path, whole(), column=Column.ALL_1)
    with (directory / SCENARIO_FILE).open("a") as file:
        file.write("all/1: {expect: [coordinator changes]}\n")
    assert len(judge(directory).promises) == 5
    made = RunFile.read(directory)
    made.column = Column.ALL_2
    made.write(directory)
    assert len(judge(directory).promises) == 4


def test_a_column_that_is_none_is_no_run(tmp_path: Path) -> None:
    directory = run(tmp_path, whole(), column="some")
    with pytest.raises(CannotCheck, match="'some' is not a valid Column"):
        judge(directory)


def test_a_run_whose_consumer_has_read_nothing_is_not_sound(tmp_path: Path) -> None:
    story = Story().phase("load").log("a").at(10.0).phase("heal").end(rows("a"))
    verdict = judge(run(tmp_path, story))
    assert verdict.sound and not verdict.kept and verdict.exit_code == 1
    (missed,) = [each for each in verdict.promises if not each.kept]
    assert missed.measured == "before a consumer had read"


def test_faults_that_were_drawn_and_missed_are_noted(tmp_path: Path) -> None:
    verdict = judge(run(tmp_path, whole(), left_out=["kill broker-1: it is stopped, not running"]))
    assert "1 of 1 drawn faults took no effect: kill broker-1: it is stopped, not running" in verdict.notes


def test_a_run_that_came_to_no_end_is_broken_all_the_same_if_what_there_is_of_it_shows_that(tmp_path: Path) -> None:
    verdict = broken_so_far(run(tmp_path, Story().phase("load").log("a").poll((0, "a")).sent("b", 0).phase("heal")))
    assert verdict is not None and (verdict.complete, verdict.exit_code) == (False, 1)


def test_a_cluster_that_is_never_whole_again_broke_its_promise(tmp_path: Path) -> None:
    verdict = judge(run(tmp_path, Story().phase("load").log("a").poll((0, "a")).phase("heal"), whole=False))
    assert (verdict.sound, verdict.complete, verdict.exit_code) == (True, False, 1)
    (missed,) = [each for each in verdict.promises if not each.kept]
    assert missed.text == "after the faults every partition has a leader and a full ISR"


def test_a_run_that_came_to_no_end_and_shows_nothing_has_no_verdict(tmp_path: Path) -> None:
    assert broken_so_far(tmp_path) is None
    assert broken_so_far(run(tmp_path, Story().phase("load").log("a").phase("heal"))) is None
