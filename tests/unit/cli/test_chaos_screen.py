"""The end of a run on the terminal: one line a row in a pipe, and no torn phrase on a terminal of 80 columns."""

from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from tidelog.chaos.checker.verdict import Anomaly, Kept, Verdict
from tidelog.chaos.launch import Outcome
from tidelog.chaos.run_files import RunFile
from tidelog.cli import chaos_screen as screen

LOST = "no record is lost that more than one replica had when it was acknowledged"
VERDICT = Verdict(
    {"duplicate": Anomaly(3, True), "unseen": Anomaly(1_234, False), "G1a": Anomaly(0, False)},
    promises=(
        Kept(LOST, False, "1 of 5400, 0 that one alone had", "0"),
        Kept(
            "longest wait for an acknowledgement in any partition", True, "0.78 s (chaos-1, at 6.82 s)", "at most 8 s"
        ),
    ),
)


def printed(capsys: pytest.CaptureFixture[str], columns: int | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    if columns is not None:
        terminal = partial(Console, force_terminal=True, width=columns, color_system=None)
        monkeypatch.setattr(screen, "Console", terminal)
    screen.print_promises(VERDICT)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("columns", [None, 160])
def test_a_promise_is_one_line(
    columns: int | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # of a terminal that the output does not go to
    head, *rows = printed(capsys, columns, monkeypatch)
    assert head.split() == ["kept", "promise", "measured", "limit"]
    assert [row.split()[0] for row in rows] == ["NO", "yes", "tolerated", "NO"]
    assert f"{LOST}  1 of 5400, 0 that one alone had" in rows[0]
    assert [row.split()[-1] for row in rows] == ["0", "s", "any", "0"]


def test_at_80_columns_what_was_measured_stands_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(capsys, 80, monkeypatch)
    assert max(map(len, lines)) <= 80
    at = lines.index("yes        longest wait for an acknowledgement in any partition")
    assert lines[at + 1].strip() == "measured 0.78 s (chaos-1, at 6.82 s); limit at most 8 s"
    assert "NO         anomaly unseen" in lines


def test_the_end_says_where_the_run_is_and_what_took_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = RunFile("row-01", 1, "t", 5, "local", 14.0, ["chaos"], 3, seconds=18.7, overhead_s=15.3, ended="played")
    screen.print_outcome(Outcome(tmp_path, file, Verdict({})))
    said = capsys.readouterr().out
    assert (
        "The run took 29.3 s: 14.0 s of load and faults, 15.3 s to set up, heal, read everything back and judge."
        in said
    )
    assert f"Kept in {tmp_path}. `rm -r` of that directory deletes this run, `make clean` every run." in said
    assert "report.html" not in said
    (tmp_path / "report.html").touch()
    screen.print_kept(tmp_path)
    assert f"The whole run on one page: {tmp_path}/report.html\n" in capsys.readouterr().out
