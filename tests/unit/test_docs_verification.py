"""docs/verification/README.md lists the benchmarks that there are, and the faults that the campaign plays."""

import re
from typing import Final

from bench.__main__ import FIGURES
from helpers.scripts import ROOT
from tidelog.chaos import campaign

PAGE: Final = (ROOT / "docs/verification/README.md").read_text()


def first_cells(heading: str) -> list[str]:
    """The first cell of each row of the table below `heading`, without its head."""
    section = re.split(r"^##+ ", PAGE.split(f"## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)[1:]


def test_every_benchmark_has_a_row() -> None:
    named = {cell.split()[0] for cell in first_cells("Benchmarks")}
    assert named == set(FIGURES)


def test_results_are_those_of_the_rows_of_a_campaign() -> None:
    assert [int(cell) for cell in first_cells("Results of the fault matrix")] == list(campaign.FIRST_ROWS)
