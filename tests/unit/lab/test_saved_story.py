"""A session that is saved as a story is repeated event by event; where a run differs, the story says from which step on."""

from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.chaos.yaml_nodes import parse
from tidelog.lab.digest import Chain, chain
from tidelog.lab.play import Played, play
from tidelog.lab.session import Session
from tidelog.lab.steps import Act
from tidelog.lab.story import StoryError, TopicPlan, free
from tidelog.lab.story_file import story
from tidelog.lab.story_text import written


@pytest.fixture(scope="module")
def text() -> Iterator[str]:
    topic = TopicPlan("events", 2, 3, settings={"min.insync.replicas": "2", "retention.ms": "60000"})
    session = Session(free(5, 3, 2, (topic,)), lambda kind, content: None, iter_clock())
    session.open()
    for act in (
        {"do": "produce", "topic": "events", "records": 5, "acks": "1"},
        {"do": "join", "group": "readers", "topic": "events", "members": 2},
        {"do": "alter topic", "topic": "events", "settings": {"retention.ms": "90000"}},
        {"do": "kill", "process": "leader of events-0"},
        {"do": "slow link", "from": "broker-1", "to": "producer", "delay": "20ms"},
    ):
        session.act(act)
        session.to({"t": session.time})
        session.play(on=True)
        for _ in range(7):
            session.frame(0.1)
    yield written(session.kept_story())
    session.close()


def iter_clock() -> Any:
    return lambda: 0.0


@pytest.fixture(scope="module")
def played(text: str) -> Played:
    return play(story(parse(text, "kept.yaml")))


def test_a_saved_story_holds_event_by_event(text: str, played: Played) -> None:
    assert [(each.text, each.found) for each in played.outcomes if not each.held] == []
    assert played.story.promise == "one-copy" and len(played.story.beats) == 5
    assert f"the {played.story.chain.steps:,} steps are those" in played.outcomes[-1].text  # type: ignore[union-attr]
    assert written(played.story).splitlines()[-1] == text.splitlines()[-1], "saved again it is the same"


def test_a_story_that_differs_says_from_which_step_on(text: str, played: Played) -> None:
    other = text.replace("delay: 20ms", "delay: 30ms")
    outcome = play(story(parse(other, "kept.yaml"))).outcomes[-1]
    number = next(n for n, step in enumerate(played.steps, 1) if isinstance(step, Act) and "take 0.02 s" in step.text)
    assert not outcome.held and outcome.found.startswith(f"they differ from step {number:,} on:")
    assert "messages broker-1 -> producer take 0.03 s" in outcome.found


def test_a_run_that_ends_sooner_differs_where_it_ends() -> None:
    steps = [Act(float(n), f"act {n}") for n in range(10)]
    kept = chain(steps)
    assert kept.differs_from(steps) is None and kept.differs_from(steps[:7]) == 7
    assert kept.differs_from([*steps, Act(10.0, "more")]) == 10
    assert chain(steps, 4).differs_from([*steps[:5], Act(5.0, "other"), *steps[6:]]) == 4


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("{steps: 3, every: 1, links: AAAA}", "digest.links: 3 bytes are not 2 for each of 3 links"),
        ("{steps: 3, every: 1, links: '?'}", "digest.links: "),
        ("{steps: 3, every: 1}", "digest: links is missing"),
        ("{steps: 0, every: 1, links: AAAA}", "digest.steps: '0' is not a whole number from 1"),
    ],
)
def test_a_damaged_digest_is_told_with_its_line(text: str, written: str, complaint: str) -> None:
    lines = [*text.splitlines()[:-1], f"digest: {written}"]
    with pytest.raises(StoryError) as error:
        story(parse("\n".join(lines), "kept.yaml"))
    assert str(error.value).startswith(f"kept.yaml:{len(lines)}: {complaint}")


def test_a_link_is_of_all_steps_up_to_there() -> None:
    assert Chain.parse(2, 1, chain([Act(0.0, "a"), Act(0.0, "b")]).text()) == chain([Act(0.0, "a"), Act(0.0, "b")])
    assert chain([Act(0.0, "a"), Act(0.0, "b")]).links[2:] != chain([Act(0.0, "c"), Act(0.0, "b")]).links[2:]
