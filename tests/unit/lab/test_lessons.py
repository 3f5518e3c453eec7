"""The lessons hold, and their events are the same on every machine and Python."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from helpers.scripts import ROOT
from mutants.__main__ import TABLES
from tidelog.lab import story_file
from tidelog.lab.play import play

LESSONS: Final = story_file.lessons()
DIGESTS: Final = json.loads((story_file.library() / story_file.DIGESTS).read_text())
MUTANTS: Final = {mutant.name for table in TABLES for mutant in table}


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_holds_and_its_events_are_those_that_are_kept(path: Path) -> None:
    """After a change that is meant to change events, `make lessons` writes the digests anew."""
    played = play(story_file.load(path))
    assert [(each.text, each.found) for each in played.outcomes if not each.held] == []
    assert played.held and played.verdict.violation == ""
    assert played.digest == DIGESTS[path.stem]


def test_lessons_have_numbers_questions_answers_and_mutants() -> None:
    stories = [story_file.load(path) for path in LESSONS]
    assert [story.lesson for story in stories] == [int(path.stem.partition("-")[0]) for path in LESSONS]
    assert len({story.lesson for story in stories}) == len(stories) == len(DIGESTS)
    for story in stories:
        assert story.text and story.question and story.answer, story.file
        assert story.mutant in MUTANTS, f"{story.file}: there is no mutant {story.mutant!r}"


SCRIPT: Final = """
import sys
from tidelog.lab import story_file
from tidelog.lab.play import play
played = play(story_file.load(story_file.find("4")))
loaded = {name.partition(".")[0] for name in sys.modules}
print(played.digest, *sorted(loaded & {"grpc", "kazoo", "pyspark", "pandas", "uvloop"}))
"""


def test_hashes_change_nothing_and_no_server_library_is_imported() -> None:
    """The hashes of each test run are others, too, unless PYTHONHASHSEED says what they are."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == ([DIGESTS["04-leader-dies"]], "")


def test_the_package_has_the_lessons() -> None:
    listed = (ROOT / "pyproject.toml").read_text()
    assert '"lab/lessons/*"' in listed and story_file.library().parent.name == "lab"
