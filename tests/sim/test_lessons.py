"""Each lesson fails when the rule that it teaches is switched off: its mutant makes an expectation fail."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from mutants.__main__ import TABLES
from mutants.patching import Code
from tidelog.lab import story_file
from tidelog.lab.play import play

pytestmark = pytest.mark.sim

DIGESTS: Final = json.loads((story_file.library() / story_file.DIGESTS).read_text())
MUTANTS: Final = {mutant.name: mutant for table in TABLES for mutant in table}


@contextmanager
def planted(name: str) -> Iterator[None]:
    code = Code()
    MUTANTS[name].plant(code)
    try:
        yield
    finally:
        code.restore()


@pytest.mark.parametrize("path", story_file.lessons(), ids=lambda path: path.stem)
def test_a_lesson_notices_that_its_rule_is_broken(path: Path) -> None:
    """The invariants are not checked, so that the lesson itself must notice it. The unit tests see that it holds otherwise."""
    story = story_file.load(path)
    with planted(story.mutant):
        failed = [outcome for outcome in play(story, invariants=False).outcomes if not outcome.held]
    assert failed and all(outcome.found for outcome in failed)


def test_a_mistake_that_changes_nothing_is_not_noticed() -> None:
    """A lesson does not fail for whatever reason."""
    with planted("Replicas of a partition are spread over the racks"):
        played = play(story_file.load(story_file.find("4")), invariants=False)
    assert played.held and played.digest == DIGESTS["04-leader-dies"]


def test_a_lesson_is_the_same_without_invariants() -> None:
    """They only look, so that a lesson that holds with them holds without them. This one has a group, too."""
    played = play(story_file.load(story_file.find("12")), invariants=False)
    assert played.held and played.digest == DIGESTS["12-consumer-dies"]
