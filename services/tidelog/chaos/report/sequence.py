"""Failovers of a run as tables and sequence diagrams: processes as lanes, messages as arrows, time downwards."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.chaos.steps import Event, Failover
from tidelog.watch.formats import lanes_and_arrows

STEPS_MAX: Final = 60
"""Steps of one failover that are shown, with the acknowledgement."""
WIDTH_PX: Final = 720
"""Fits a window of 768 pixels; more lanes than fit make a wider drawing, which the page scales down."""
LEFT_PX: Final = 64
"""For the times."""
LANE_PX: Final = 100
HEAD_PX: Final = 26
ROW_PX: Final = 32
LETTER_PX: Final = 6.3
"""The width of most letters of 11 pixels is less."""


@dataclass(frozen=True, slots=True)
class Row:
    """An arrow between two lanes, or a dot on one, below its sentence."""

    y: int
    after: str
    begin: int
    end: int
    text: str
    middle: float
    """The middle of the sentence."""

    @property
    def tip(self) -> int:
        """The length of the arrow's head; below 0 if it points to the right."""
        return -7 if self.end > self.begin else 7


@dataclass(frozen=True, slots=True)
class Drawing:
    width: int
    height: int
    lanes: Sequence[tuple[str, int]]
    """Name and place."""
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Shown:
    """A failover on the page."""

    title: str
    began: float
    steps: Sequence[tuple[str, str, str]]
    """Time since the fault, process and sentence."""
    left_out: int
    command: str
    """Prints all steps."""
    drawing: Drawing


def draw(failover: Failover, directory: str) -> Shown:
    """Shows the first steps, and the acknowledgement."""
    *before, acknowledged = failover.steps
    steps = [*before[: STEPS_MAX - 1], acknowledged]
    return Shown(
        f"{failover.fault}: {failover.tp} acknowledges again after {failover.after(acknowledged)}",
        failover.began,
        [(failover.after(step), step.name.process, step.text) for step in steps],
        len(failover.steps) - len(steps),
        shlex.join(["tidelog", "chaos", "steps", directory, "--partition", str(failover.tp)]),
        _drawing(failover, steps),
    )


def _drawing(failover: Failover, steps: Sequence[Event]) -> Drawing:
    names, arrows = lanes_and_arrows(steps)
    lane_px = max(LANE_PX, (WIDTH_PX - LEFT_PX) // len(names))
    lanes = {name: LEFT_PX + lane_px * number + lane_px // 2 for number, name in enumerate(names)}
    width = LEFT_PX + lane_px * len(names)
    rows = []
    for number, (step, (begin, end)) in enumerate(zip(steps, arrows, strict=True), 1):
        text = _cut(step.text, width - LEFT_PX)
        half = len(text) * LETTER_PX / 2
        middle = min(max((lanes[begin] + lanes[end]) / 2, LEFT_PX + half), width - half)
        y = HEAD_PX + ROW_PX * number
        rows.append(Row(y, failover.after(step), lanes[begin], lanes[end], text, middle))
    height = HEAD_PX + ROW_PX * (len(rows) + 1) - ROW_PX // 2
    return Drawing(width, height, [(_cut(name, lane_px), x) for name, x in lanes.items()], rows)


def _cut(text: str, width: int) -> str:
    letters = int(width / LETTER_PX)
    return text if len(text) <= letters else text[: letters - 1] + "…"
