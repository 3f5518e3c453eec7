"""The lab behind the page: the lesson that a command names, and what a saved page holds of it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.lab.page_source import LabSource, acts
from tidelog.lab.story import free
from tidelog.page.hub import Hub
from tidelog.testing.clock import ManualClock


@pytest.fixture(scope="module")
def source() -> Iterator[LabSource]:
    """At the question of lesson 2."""
    found = LabSource(Hub(), free(0, 3, 2, ()), "2", ManualClock())
    found.start()
    found.do({"speed": 100}).result()
    found.do({"play": True}).result()
    for _ in range(100):
        found._thread.submit(found._frame, 0.1).result()
    yield found
    found.close()


@pytest.fixture(scope="module")
def saved(source: LabSource) -> dict[str, Any]:
    """Messages of a saved page, the last of each kind."""
    page = source.save("page").result().content
    (kept,) = re.findall(r'<script type="application/json" id="saved">(.*?)</script>', page, re.DOTALL)
    return {kind: content for message in json.loads(kept) for kind, content in message.items()}


def test_a_lesson_goes_by_its_name_however_it_was_asked_for(saved: dict[str, Any]) -> None:
    assert saved["hello"]["story"] == "slow-follower"


def test_a_saved_page_has_the_lesson(saved: dict[str, Any]) -> None:
    lesson = saved["lesson"]
    assert (lesson["number"], lesson["asks"]) == (2, True) and lesson["question"] and lesson["answer"]
    assert saved["time"]["t"] == saved["picture"]["t"]


def test_fields_have_units_and_the_processes_that_they_are_for() -> None:
    fields = {act["do"]: {each["name"]: each for each in act["fields"]} for act in acts()}
    assert fields["take time"]["process"]["choices"] == ["agent"] and fields["kill"]["process"]["choices"] == []
    labels = [
        fields[act][name]["label"] for act, name in (("load", "rate"), ("slow link", "delay"), ("kill", "process"))
    ]
    assert labels == ["rate (records/s)", "delay (s)", "process"]
    assert all(
        act["about"] for act in acts() if act["do"] in ("take time", "jump clock", "release veto", "kill in write")
    )
