"""The page of a run in a browser: it draws every plot, asks for nothing from elsewhere, and has nothing to complain about."""

import re
from pathlib import Path

import pytest

from helpers import browser
from helpers.chaos_runs import BROKEN, SOUND, write_run
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.report.page import write_report

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(240),
    pytest.mark.skipif(browser.why_not() is not None, reason=str(browser.why_not())),
]

BLANK = 0.01
"""Of a canvas; its axes alone cover more."""


def opened(directory: Path, *options: str, **more: int) -> tuple[int, browser.Opened]:
    """How many plots the page has, and what became of them."""
    page = write_report(directory)
    work = directory / "browser"
    work.mkdir()
    return len(re.findall("data-root-id=", page.read_text())), browser.open_page(page, work, *options, **more)


def assert_drawn(count: int, page: browser.Opened) -> None:
    assert page.complaints == []
    plots = page.found["plots"]
    assert len(plots) == count
    assert all(canvases and max(canvases) > BLANK for canvases in plots), plots
    assert len(set(page.found["left"])) == 1
    assert not page.found["overflows"]


@pytest.mark.parametrize(("verdict", "said"), [(SOUND, "Sound"), (BROKEN, "Broken"), (None, "No verdict")])
def test_a_run_is_drawn_whole(tmp_path: Path, verdict: Verdict | None, said: str) -> None:
    count, page = opened(write_run(tmp_path, verdict))
    assert count == 12
    assert_drawn(count, page)
    assert page.found["verdict"].startswith(said)


def test_many_partitions_and_a_narrow_dark_window(tmp_path: Path) -> None:
    count, page = opened(write_run(tmp_path, partitions=50, rate=50), browser.DARK, width=768)
    assert_drawn(count, page)
    assert set(page.found["ink"]) == {"#e6edf3"}


def test_a_phone_scrolls_in_one_direction_only(tmp_path: Path) -> None:
    count, page = opened(write_run(tmp_path, BROKEN), width=390)
    assert_drawn(count, page)


def test_a_run_that_was_cut_off_is_drawn_up_to_there(tmp_path: Path) -> None:
    count, page = opened(write_run(tmp_path, None, until=9.0))
    assert count > 8
    assert_drawn(count, page)
