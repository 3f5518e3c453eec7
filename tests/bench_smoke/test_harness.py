"""What the harness makes of measurements: pair ratios, refusals, the printed line."""

import argparse
import asyncio
from pathlib import Path

import pytest

from bench.__main__ import FIGURES, chosen
from bench.harness import (
    SMOKE,
    Bench,
    Figure,
    Measure,
    NoFigure,
    against_limit,
    compared,
    percentile,
    take_turns,
)


def test_the_ratio_is_the_median_of_the_rounds_not_of_the_values() -> None:
    # the machine slows down by half in the middle; each round compares what it saw itself
    figure = compared("B2", [50, 52, 20], [100, 100, 60], unit="MB/s", target="at least 0.4")
    assert isinstance(figure, Figure)
    assert (figure.ratio, figure.low, figure.high, figure.n) == (0.5, 20 / 60, 0.52, 3)


def test_the_line_names_both_sides_with_units() -> None:
    figure = compared(
        "B2", [60e6] * 3, [300e6] * 3, unit="MB/s", times=1e-6, divided_by=3, what=" / 3 copies", target="at least 0.4"
    )
    assert figure.line() == (
        "B2 ratio=0.6 (ours 60 MB/s, reference 300 MB/s / 3 copies, n=3) min=0.6 max=0.6, target at least 0.4"
    )


def test_there_is_no_figure_where_the_reference_varied_twofold() -> None:
    figure = compared("B2", [1, 1], [1, 2.01], unit="MB/s", target="")
    assert isinstance(figure, NoFigure)
    assert figure.line().startswith("B2 no ratio: the reference alone varied 2.0 times (1 to 2.01 MB/s)")
    assert isinstance(compared("B2", [1, 9], [1, 2], unit="", target=""), Figure), "ours may vary as it likes"


def test_a_limit_is_a_reference_that_does_not_vary() -> None:
    figure = against_limit("KILL", [0.2, 0.4, 0.9], limit=2.0, unit="s", target="at most 1")
    assert figure.line() == "KILL ratio=0.2 (ours 0.4 s, reference limit 2 s, n=3) min=0.1 max=0.45, target at most 1"


def turns(tmp_path: Path, reference: list[float]) -> tuple[dict[str, list[float]], list[str]]:
    asked: list[str] = []
    values = iter(reference)

    def measure(name: str) -> Measure:
        async def run(seconds: float) -> float:
            asked.append(f"{name} warm" if seconds == SMOKE.warm_up_s else name)
            return 1.0 if name == "ours" or seconds == SMOKE.warm_up_s else next(values)

        return run

    bench = Bench(SMOKE, tmp_path, frozenset({"X"}))
    return asyncio.run(take_turns(bench, {"ours": measure("ours"), "ref": measure("ref")}, ("ref",))), asked


def test_measures_take_turns_after_a_warm_up_that_is_dropped(tmp_path: Path) -> None:
    taken, asked = turns(tmp_path, [3.0, 4.0])
    assert asked == ["ours warm", "ref warm", "ours", "ref", "ours", "ref"]
    assert taken == {"ours": [1.0, 1.0], "ref": [3.0, 4.0]}


def test_a_reference_that_varied_is_measured_once_more(tmp_path: Path) -> None:
    assert turns(tmp_path, [1.0, 5.0, 3.0, 4.0])[0]["ref"] == [3.0, 4.0]
    assert turns(tmp_path, [1.0, 5.0, 1.0, 5.0])[0]["ref"] == [1.0, 5.0]


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([5, 1, 3], 0.5) == 3
    assert percentile(range(100), 0.99) == 99
    assert percentile([7], 0.99) == 7


def test_only_takes_names_and_refuses_others() -> None:
    assert chosen("b2, KILL") == {"B2", "KILL"}
    assert chosen("") == set(FIGURES)
    with pytest.raises(argparse.ArgumentTypeError, match="B99: there are B2, B1J"):
        chosen("B2,B99")
