"""`python -m tidelog.model`: the table, the stories, the exit code."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tidelog.model import __main__ as command
from tidelog.model import report, runner
from tidelog.model.catalogue import Check, all_checks, chosen
from tidelog.model.search import Outcome

Main = Callable[..., None]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Main:
    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["tidelog.model", *words])
        command.main()

    return run


def outcome_of(check: Check, *, found: bool) -> Outcome:
    return Outcome(5, 3, not found, "LOST: it" if found else None, ("one", "two", "three") if found else ())


def test_a_mutant_is_found_in_its_own_process_and_told(main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    main("--only", "MUT-7,MUT-10", "--jobs", "2")
    out = capsys.readouterr().out
    assert "MUT-7 (3.5): a shrink is applied before it is confirmed" in out
    assert "   1. A appends a record: it holds 1." in out and "   => LOST: " in out
    assert "found in 4 steps, documented 4" in out
    assert "2 checks, " in out


def test_the_right_rules_have_no_story(main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    main("--only", "right-controllers", "--jobs", "1")
    out = capsys.readouterr().out
    assert "holds, exhaustive" in out and "=>" not in out


@pytest.mark.parametrize(("mutant", "found"), [(True, False), (False, True)])
def test_a_mutant_not_found_and_a_broken_rule_fail_the_command(
    main: Main, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mutant: bool, found: bool
) -> None:
    def run(checks: list[Check], *_: object) -> Iterator[report.Finished]:
        for check in checks:
            wrong = check.mutant == mutant and check is first
            yield report.Finished(check, outcome_of(check, found=found if wrong else check.mutant), 0.1)

    first = next(check for check in all_checks() if check.mutant == mutant)
    monkeypatch.setattr(runner, "run", run)
    with pytest.raises(SystemExit, match=f"FAILED: {first.key} (NOT FOUND|VIOLATED in 3 steps)"):
        main()
    assert len(capsys.readouterr().out.split("\n\n")) > len(all_checks())


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--only", "MUT-99"], "no check 'mut-99'; there are"), (["--jobs", "0"], "--jobs must be at least 1")],
)
def test_a_bad_command_line_says_what_is_wrong(
    main: Main, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as error:
        main(*words)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_every_mutant_from_1_to_14_and_17_to_20_has_a_check() -> None:
    keys = {check.key for check in all_checks() if check.mutant}
    assert {f"MUT-{number}" for number in (*range(1, 15), *range(17, 21))} <= keys


def test_checks_are_chosen_by_key_section_or_kind() -> None:
    assert {check.section for check in chosen("3.6")} == {"3.6"}
    assert {check.key for check in chosen("mut-4, MUT-10")} == {"MUT-4", "MUT-10"}
    assert not any(check.mutant for check in chosen("right")) and all(check.mutant for check in chosen("mutants"))
    assert chosen("") == list(all_checks())


def test_the_bounds_are_those_that_the_documents_ask_for() -> None:
    right = [(check.bounds, check.depth_max) for check in chosen("right") if check.section == "3.3"]
    for slots, records, epochs, depth in ((2, 2, 4, None), (3, 3, 3, None), (3, 3, 4, 17)):
        assert right.count((f"{slots} slots, {records} records, {epochs} epochs", depth)) == 2


def test_the_table_is_aligned() -> None:
    finished = [report.Finished(check, outcome_of(check, found=check.mutant), 12.3) for check in all_checks()]
    lines = report.table(finished).split("\n")
    assert len({len(line) for line in lines}) == 1
    longer = report.Finished(replace(finished[0].check, depth_max=3), replace(finished[0].outcome, exhausted=False), 1)
    assert longer.result == "holds to depth 3"
