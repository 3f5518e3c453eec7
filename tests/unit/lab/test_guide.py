"""The examples of docs/guide/lab.md work as they stand, and the page for teachers names every lesson."""

import re
from contextlib import redirect_stdout
from io import StringIO
from typing import Final

from helpers.scripts import ROOT
from tidelog.chaos.yaml_nodes import parse
from tidelog.lab import story_file
from tidelog.lab.actions import ACTIONS
from tidelog.lab.expectation_file import _READERS
from tidelog.lab.play import play

GUIDE: Final = (ROOT / "docs/guide/lab.md").read_text()
TEACHING: Final = (ROOT / "docs/guide/teaching.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return str(found)


def test_the_example_in_python_runs() -> None:
    said = StringIO()
    with redirect_stdout(said):
        exec(block("python"), {})
    assert "elects broker-" in said.getvalue()
    assert said.getvalue().endswith("200 acknowledged, 0 lost, 0 duplicated, 0 reordered\n")


def test_the_example_of_a_story_holds() -> None:
    played = play(story_file.story(parse(block("yaml"), "lab.md")))
    assert played.held, [outcome for outcome in played.outcomes if not outcome.held]


def test_every_action_and_expectation_is_explained() -> None:
    words = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", GUIDE, flags=re.DOTALL))
    assert set(ACTIONS) <= set(words)
    explained = " ".join(word for word in words if word.startswith("{"))
    assert all(re.search(rf"\b{kind}\b", explained) for kind in _READERS)


def test_the_page_for_teachers_has_every_lesson_once() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) `([\w-]+)` \|", TEACHING, re.MULTILINE)
    stems = sorted(f"{int(number):02}-{name}" for _, number, name in rows)
    assert stems == [path.stem for path in story_file.lessons()]
    assert [int(place) for place, _, _ in rows] == list(range(1, len(rows) + 1))
