"""Messages to the page, as docs/internals/page.md has them, and what every source of them shares."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from tidelog.release import VERSION as RELEASE

VERSION: Final = 1
"""The version of the format."""
PARTITIONS_MAX: Final = 40
"""Partitions of a picture."""


def hello(
    source: str, title: str, about: str, time: Literal["driven", "followed", "recorded"], **more: Any
) -> dict[str, Any]:
    """more: what differs from a page on which nothing can be done."""
    nothing: dict[str, Any] = {"wall_ms": None, "acts": [], "saves": [], "lessons": [], "story": ""}
    return {"source": source, "title": title, "about": about, "release": RELEASE, "time": time, **nothing, **more}


def shown(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the part of a picture about partitions. Where there are too many, the healthiest are left out."""

    def badness(place: int) -> tuple[bool, bool, int]:
        row = rows[place]
        return row["leader"] < 0, row["stands"] is not None, len(row["replicas"]) - len(row["isr"])

    worst = sorted(range(len(rows)), key=badness, reverse=True)[:PARTITIONS_MAX]
    return {"partitions": [rows[place] for place in sorted(worst)], "hidden": max(0, len(rows) - PARTITIONS_MAX)}
