"""A history that is cut, swapped, doubled or of a later version: a verdict on what there is, or one line that says why not."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.histories import Story, rows
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.checking import CannotCheck
from tidelog.chaos.history import HistoryDamaged, encode
from tidelog.chaos.run_files import judge
from unit.chaos.test_run_files import run


def whole() -> Story:
    """Records of every kind."""
    story = Story().phase("load").owns(0, process="m", group="g", term=(1, 1)).log("a", "b", "c")
    story.poll((0, "a"), (1, "b"), process="m", group="g").processed(0, 1, "m").committed(2, "m")
    story.fault("begin").fault("effect").sent("d", 3, process="q").crash("q").fault("heal").fault("healed").watermark(4)
    story.poll((0, "a"), (1, "b"), (2, "c"), (3, "d")).at(4.0).sent("e", 4).phase("heal")
    story.poll((2, "c"), (3, "d"), (4, "e"), process="m", group="g").processed(2, 4, "m").committed(5, "m").stored(5)
    return story.end(rows("a", "b", "c", "d", "e"))


LINES = tuple(f"{encode(record)}\n" for record in whole().records)
Judged = Verdict | CannotCheck | HistoryDamaged


def judged(directory: Path, lines: Sequence[str]) -> Judged:
    directory.mkdir()
    run(directory, whole())
    (directory / "history.jsonl").write_text("".join(lines))
    try:
        return judge(directory)
    except (CannotCheck, HistoryDamaged) as error:
        assert "\n" not in str(error) and str(directory / "history.jsonl") in str(error)
        return error


def test_the_history_has_every_kind_of_record() -> None:
    kinds = {line.partition('"kind":"')[2].partition('"')[0] for line in LINES}
    assert len(kinds) == 11, kinds


@pytest.mark.parametrize("in_a_line", [False, True])
def test_a_history_that_is_cut_is_judged_as_far_as_it_goes(in_a_line: bool, tmp_path: Path) -> None:
    for number in range(len(LINES)):
        rest = LINES[number][: len(LINES[number]) // 2] if in_a_line else ""
        found = judged(tmp_path / str(number), [*LINES[:number], rest])
        assert isinstance(found, Verdict) and not found.complete and found.exit_code == 3, (number, found)
        assert any(f"cut off after line {number}" in note for note in found.notes), number


def test_lines_that_are_swapped_are_damage_or_say_the_same(tmp_path: Path) -> None:
    before = judged(tmp_path / "whole", LINES)
    assert isinstance(before, Verdict)
    refused = 0
    for number in range(len(LINES) - 1):
        lines = [*LINES[:number], LINES[number + 1], LINES[number], *LINES[number + 2 :]]
        found = judged(tmp_path / str(number), lines)
        refused += isinstance(found, HistoryDamaged)
        assert isinstance(found, HistoryDamaged | Verdict)
    assert refused > len(LINES) / 2


def test_a_line_that_is_there_twice_hides_nothing(tmp_path: Path) -> None:
    """A send that comes twice is damage, and a poll of a consumer alone an anomaly; members of a group may read again."""
    for number, line in enumerate(LINES):
        found = judged(tmp_path / str(number), [*LINES[: number + 1], line, *LINES[number + 1 :]])
        if '"kind":"send"' in line or '"kind":"sent"' in line:
            assert isinstance(found, HistoryDamaged) and f"line {number + 2}" in str(found), line
        elif '"kind":"polled"' in line and '"group"' not in line:
            assert isinstance(found, Verdict) and not found.sound, line
        else:
            assert isinstance(found, Verdict), line


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"t":2.0,"kind":"transaction","process":"p"}\n', "unknown kind 'transaction'"),
        ('{"t":2.0,"kind":"crash","process":"p","why":"oom"}\n', "why"),
        ('{"t":2.0,"kind":"phase","phase":"rest"}\n', "phase is 'rest'"),
        ('{"t":2.0,"kind":"crash"}\n', "process"),
    ],
)
def test_a_history_of_a_later_version_is_refused_by_its_line(line: str, told: str, tmp_path: Path) -> None:
    found = judged(tmp_path / "later", [LINES[0], line, *LINES[1:]])
    assert isinstance(found, HistoryDamaged) and "line 2:" in str(found) and told in str(found), found
