"""A played story as text for readers, and as JSON for programs."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tidelog.lab.digest import as_json
from tidelog.lab.play import Played
from tidelog.lab.steps import Act, Step
from tidelog.ports.recorder import Subject
from tidelog.watch.text import sentence
from tidelog.wire import messages as m

WIDTH: Final = 100


def lines(played: Played) -> Iterator[str]:
    """Yields the heading, the question, every step from the first action on, the answer, expectations and the verdict."""
    story = played.story
    yield story.heading
    yield from _paragraph(story.text)
    yield from _paragraph(story.question, "Question: ")
    yield ""
    first_s = story.beats[0].at_s if story.beats else played.began_s
    width = max((len(each.process) for each in played.steps if isinstance(each, Step)), default=0)
    up = f"; after {played.began_s:.3f} s it is up" if played.began_s else ""
    yield f"{0:9.3f}  The cluster starts{up}."
    for step in folded([step for step in played.steps if step.t >= first_s]):
        yield from _told(step, width)
    yield from _paragraph(story.answer, "Answer: ")
    yield ""
    for each, otherwise in (
        *((each, "FAILED") for each in played.outcomes),
        *((each, "note  ") for each in played.notes),
    ):
        yield f"{'ok    ' if each.held else otherwise}  {each.text}" + (f": {each.found}" if each.found else "")
    yield f"{'ok    ' if played.verdict.sound else 'FAILED'}  verdict: {played.verdict}"


def folded(steps: Iterable[Step | Act]) -> Iterator[Step | Act]:
    """Makes one step of the advances of a high watermark between which nothing else happened."""
    run: dict[tuple[str, Subject], list[Step]] = {}
    for step in steps:
        if isinstance(step, Step) and isinstance(step.fields, m.HighWatermarkAdvanced):
            run.setdefault((step.process, step.subject), []).append(step)
            continue
        yield from sorted(map(_folded, run.values()), key=lambda each: each.t)
        run.clear()
        yield step
    yield from sorted(map(_folded, run.values()), key=lambda each: each.t)


def _folded(run: Sequence[Step]) -> Step:
    first, last = run[0].fields, run[-1].fields
    assert isinstance(first, m.HighWatermarkAdvanced) and isinstance(last, m.HighWatermarkAdvanced)
    fields = m.HighWatermarkAdvanced(from_offset=first.from_offset, to_offset=last.to_offset, count=len(run))
    return run[-1]._replace(event=run[-1].event._replace(fields=fields))


def _paragraph(text: str, before: str = "") -> Iterator[str]:
    if text:
        yield ""
        yield from textwrap.wrap(before + text, WIDTH)


def _told(step: Step | Act, width: int) -> Iterator[str]:
    if isinstance(step, Step):
        yield f"{step.t:9.3f}  {step.process:<{width}}  {sentence(step.event)}"
    elif step.narrated:
        yield from _paragraph(step.text)
        yield ""
    else:
        yield f"{step.t:9.3f}  {'>':<{width}}  {step.text}"


def to_json(played: Played) -> dict[str, Any]:
    story = played.story
    return {
        "title": story.title,
        "lesson": story.lesson,
        "seed": story.seed,
        "held": played.held,
        "digest": played.digest,
        "steps": [
            {**as_json(step), "text": sentence(step.event)} if isinstance(step, Step) else as_json(step)
            for step in played.steps
        ],
        "expectations": [
            {"text": each.text, "held": each.held, "found": each.found, "line": each.line} for each in played.outcomes
        ],
        "notes": [{"text": each.text, "held": each.held, "found": each.found} for each in played.notes],
        "verdict": played.verdict.to_json(),
    }
