"""`tidelog chaos` without a cluster: what there is to play, and one line for what cannot be played."""

import json
from pathlib import Path

import pytest

from helpers.chaos_runs import write_run
from tidelog.cli.main import run


def said(capsys: pytest.CaptureFixture[str], *args: str, exit_code: int = 0) -> str:
    assert run(["chaos", *args]) == exit_code
    captured = capsys.readouterr()
    if exit_code:
        assert captured.err.startswith("tidelog: ") and captured.err.count("\n") == 1 and not captured.out
        return captured.err.removeprefix("tidelog: ").strip()
    return captured.out


def test_every_row_of_the_matrix_has_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "list", "--format", "json"))
    assert {each["row"] for each in found} >= set(range(1, 38))
    for each in found:
        assert bool(each["runsIn"]) != bool(each["simulator"])
    table = said(capsys, "list").splitlines()
    assert table[0].split() == ["NAME", "ROW", "ON", "SHOWS"]
    assert len(table) == len(found) + 1
    assert table[1].startswith("row-01-kill-leader ")


def test_a_scenario_is_shown_as_its_file_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "show", "row-13").startswith("name: row-13-cut-leader-from-followers\n")


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("run", "row-01-kil-leader"), "no scenario row-01-kil-leader; did you mean 'row-01-kill-leader'?"),
        (("run", "row-27"), "row-27 may be row-27-packet-loss, row-27-slow-links"),
        (("run", "row-01", "--on", "mars"), "--on 'mars' is none of local, compose"),
        (("run", "row-01", "--duration", "0s"), "--duration '0s': a run takes some time"),
        (("run", "row-01", "--duration", "20"), "--duration '20' is not a time like 500ms, 10s or 2m"),
        (("run", "row-27-packet-loss"), "row-27-packet-loss runs on compose"),
        (("run", "row-05"), "row-05-power-loss-of-a-leader runs in the simulator only: What a killed process"),
        (("run", "row-01", "row-02", "--keep"), "--dir and --keep are for one scenario at a time"),
        (("run", "no-such-file.yaml"), "no file no-such-file.yaml"),
        (("campaign", "row-99"), "no scenario row-99"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_played_is_told_before_anything_starts(
    args: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, *args, exit_code=2).startswith(what)


def test_a_wrong_file_is_told_by_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\ntitle: t\nabout: a\nruns_in: [local]\nduration: 5s\nfaults:\n  - {at: 1s, fault: kil}\n"
    )
    assert said(capsys, "run", str(path), exit_code=2) == f"{path}:7: faults[0]: target is missing"


def test_what_is_no_run_has_no_verdict_and_no_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "holds no run: there is no run.json" in said(capsys, "check", str(tmp_path), exit_code=3)
    assert "holds no run: there is no run.json" in said(capsys, "report", str(tmp_path), exit_code=3)


def test_check_writes_verdict_and_page_anew(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_run(tmp_path, partitions=1, rate=20.0)
    assert run(["chaos", "check", str(tmp_path)]) == 1
    assert "NO   " in capsys.readouterr().out
    assert not json.loads((tmp_path / "verdict.json").read_text())["kept"]
    assert "Broken" in (tmp_path / "report.html").read_text()
