"""Runs with an anomaly planted in each, and sound ones: a variant of each case. `python -m planted` plays the whole table."""

from pathlib import Path

import pytest

from planted.anomalies import CATALOGUE
from planted.made import judged_here, make, missed
from planted.rows import by_row
from planted.table import DOUBLES, SOUND_RUNS, VARIANTS, Wanted, every_anomaly, wanted


def judge(each: Wanted, directory: Path) -> str | None:
    made = make([every_anomaly()[name] for name in each.anomalies], each.seed, directory)
    return missed(made.anomalies, judged_here(made.directory))


ROWS = by_row()


@pytest.mark.parametrize("row", ROWS)
def test_an_anomaly_is_caught_and_named(row: str, tmp_path: Path) -> None:
    for number, case in enumerate(ROWS[row][:2]):
        each = Wanted(row, [f"{row}: {case.name}"], number, on_spark=False)
        assert judge(each, tmp_path / str(number)) is None, case.name


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", ROWS)
def test_each_case_is_caught_and_named(row: str, tmp_path: Path) -> None:
    for number, case in enumerate(ROWS[row]):
        each = Wanted(row, [f"{row}: {case.name}"], 10 + number, on_spark=False)
        assert judge(each, tmp_path / str(number)) is None, case.name


@pytest.mark.parametrize("seed", [*range(7), 28])
def test_a_sound_run_is_sound(seed: int, tmp_path: Path) -> None:
    """In the last one a leader that was alone in the ISR takes records of acks=all with it."""
    assert judge(Wanted("", [], seed, on_spark=False), tmp_path) is None


@pytest.mark.parametrize("number", range(4))
def test_two_anomalies_at_once_are_both_named(number: int, tmp_path: Path) -> None:
    assert judge(list(wanted(0, 0, number + 1))[-1], tmp_path) is None


def test_the_table_has_all_that_is_asked_for() -> None:
    runs = list(wanted())
    assert len(runs) == VARIANTS * len(ROWS) + SOUND_RUNS + DOUBLES
    assert {name for each in runs for name in each.anomalies} >= {f"{each.row}: {each.name}" for each in CATALOGUE}
    assert len({each.seed for each in runs}) == len(runs)


def test_a_judge_that_sees_nothing_is_caught(tmp_path: Path) -> None:
    """A run that is sound passes for none of the anomalies."""
    found = judged_here(make([], 1, tmp_path).directory)
    for case in CATALOGUE:
        assert (missed([case], found) is None) == (case.exit_code == 0), case.name
