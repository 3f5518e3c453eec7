"""The page of the lab in a real browser, by keyboard: a leader dies, time goes back, and what is saved opens again."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.browser import why_not
from helpers.web_page import TIDELOG, Opened, browsing, served

pytestmark = [
    pytest.mark.integration,
    pytest.mark.smoke,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]


@pytest.fixture
def opened() -> Iterator[Opened]:
    with browsing() as found:
        yield found


@pytest.fixture
def lab() -> Iterator[str]:
    """The address of a lab with two partitions."""
    with served("lab", "--partitions", "2", "--seed", "7") as address:
        yield address


def test_a_leader_is_killed_by_keyboard_and_time_goes_back(lab: str, opened: Opened, tmp_path: Path) -> None:
    page = opened.page
    page.goto(lab)
    opened.shows("#stage", "events-0")
    opened.form("d")
    opened.press("Enter", "Escape", "Space")
    opened.shows("#verdict", "10 acknowledged")
    opened.press("Space")
    leader = opened.leader("tr[data-partition=events-0]")
    opened.form("k")
    page.keyboard.type(leader)
    opened.press("Enter", "Escape", "Space")
    opened.shows("tr[data-partition=events-0]", "epoch 1")
    opened.press("Space")
    opened.shows(f"[data-process={leader}]", "down")
    assert "sound" in opened.text("#verdict")

    page.select_option("select[data-filter=family]", "controller")
    chosen = page.locator("#story li", has_text="for events-0: epoch 1")
    chosen.click()
    opened.shows("#diagram", "suspects")
    opened.shows("#diagram", f"{leader} is killed")
    now = opened.text("#time")
    picture = opened.text("#stage table")
    opened.press("Escape", "ArrowLeft")
    page.wait_for_function(
        "before => !document.querySelector('#time').innerText.includes(before)", arg=now.split(" s")[0]
    )
    opened.press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('#stage table').innerText.split(/\\s+/).join(' ') === before", arg=picture
    )

    page.set_viewport_size({"width": 768, "height": 900})
    assert not opened.overflows()
    kept = {}
    for name in ("page", "story"):
        with page.expect_download() as download:
            page.click(f"[data-save={name}]")
        kept[name] = tmp_path / download.value.suggested_filename
        download.value.save_as(kept[name])
    assert opened.complaints == []

    page.goto(kept["page"].as_uri())
    opened.shows("#stage", "events-0")
    assert opened.text("#stage table") != "" and opened.complaints == []
    page.set_content(kept["page"].read_text()[: len(kept["page"].read_text()) // 2])
    assert "A part of this file is missing" in page.inner_text("body")

    played = subprocess.run(
        [str(TIDELOG), "lab", "run", str(kept["story"]), "--format", "json"], capture_output=True, text=True
    )
    assert played.returncode == 0, played.stdout[-2_000:] + played.stderr
    assert json.loads(played.stdout)["expectations"][-1]["held"]


def test_html_in_names_stays_text(lab: str, opened: Opened) -> None:
    page = opened.page
    page.goto(lab)
    opened.shows("#stage", "events-0")
    nasty = "<img src=x onerror=document.title='broken'>"
    for act, word in (
        ({"say": nasty}, "{}"),
        ({"do": "create topic", "name": nasty, "replicas": [0, 1, 2]}, "{}"),
        ({"do": "join", "group": nasty, "topic": "events"}, "group_id"),
    ):
        answer = page.evaluate(
            """act => fetch("./do", {method: "POST", body: JSON.stringify({act}), headers: {"Content-Type": "application/json",
            "X-Tidelog-Token": location.hash.slice("#token=".length)}}).then(answer => answer.text())""",
            act,
        )
        assert word in answer
    opened.press("Space")
    opened.shows("#story", nasty)
    opened.shows("#story", "refused: ")
    page.wait_for_timeout(300)
    assert page.title() != "broken" and page.locator("img").count() == 0
    assert [each for each in opened.complaints if "400 (Bad Request)" not in each] == [], "but for the group"
