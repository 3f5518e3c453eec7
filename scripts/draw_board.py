#!/usr/bin/env python3
"""Draws the first screen of a board as a picture of 1920 x 1080, from what Prometheus has alone.

  scripts/draw_board.py --range 15m --out board.png
  scripts/draw_board.py --board tidelog-health --end 2026-01-31T14:05:00

Ends with 0, with 1 when Prometheus does not answer, or 2 for bad usage.
"""

import argparse
import json
import math
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dashboards import picture
from dashboards.boards import BOARDS
from dashboards.marks import MARKS
from dashboards.panels import Kind, Panel
from dashboards.picture import Region, Shown, Window
from dashboards.proof import Series
from dashboards.zoom import GAP_S, Zoom

BY_UID: Final = {board.uid: board for board in BOARDS}
UNITS: Final = {"s": 1, "m": 60, "h": 3600}
LONGEST_S: Final = 86_400
"""Prometheus keeps a day."""
ANSWERS_WITHIN_S: Final = 30.0


def main() -> int:
    options = arguments(sys.argv[1:])
    board, zoom = BY_UID[options.board], Zoom(options.range)
    window = Window(options.end - options.range, options.end)
    try:
        first = picture.first_screen(board)
        shown = [asked(options.prometheus, panel, zoom, window) for panel in board.panels if panel.title in first]
        marks = list(marked(options.prometheus, zoom, window))
    except OSError as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        print(f"draw_board: Prometheus does not answer at {options.prometheus}: {why}", file=sys.stderr)
        return 1
    picture.draw(board, shown, marks, window, options.out)
    print(options.out)
    return 0


def asked(url: str, panel: Panel, zoom: Zoom, window: Window) -> Shown:
    found = [
        (picture.legend(template, series.labels), series)
        for query, template in panel.queries.items()
        for series in answer(url, zoom.filled(query, panel.kind), panel.kind, zoom, window)
    ]
    return Shown(panel, found)


def marked(url: str, zoom: Zoom, window: Window) -> Iterator[Region]:
    for mark in MARKS:
        for series in answer(url, mark.query, Kind.TIMELINE, zoom, window):
            for begin, end in picture.regions(series, GAP_S[Kind.TIMELINE]):
                yield Region(begin, end, mark.color)


def answer(url: str, query: str, kind: Kind, zoom: Zoom, window: Window) -> list[Series]:
    """Values of now for a stat, else at points in all the time that is shown."""
    if kind is Kind.STAT:
        found = get(url, "query", query=query, time=window.end)
        return [Series(each["metric"], numbers([each["value"]])) for each in found]
    step = zoom.step_s(kind)
    begin = window.begin - window.begin % step
    found = get(url, "query_range", query=query, start=begin, end=window.end, step=step)
    return [Series(each["metric"], numbers(each["values"])) for each in found]


def numbers(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    return [(float(at), float(value)) for at, value in values if math.isfinite(float(value))]


def get(url: str, path: str, **parameters: str | float) -> list[dict[str, Any]]:
    """OSError when nothing answers, or not as Prometheus does."""
    asked = f"{url.rstrip('/')}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(asked, timeout=ANSWERS_WITHIN_S) as page:
        try:
            found: list[dict[str, Any]] = json.loads(page.read())["data"]["result"]
        except (ValueError, KeyError, TypeError):
            raise OSError("what answers is no Prometheus") from None
    return found


def seconds(text: str) -> float:
    try:
        found = float(text[:-1]) * UNITS[text[-1:]]
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time like 15m or 24h") from None
    if not 0 < found <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1s to 24h")
    return found


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", default="http://localhost:9090", help="default: %(default)s")
    parser.add_argument("--board", choices=sorted(BY_UID), default="tidelog-replication", help="default: %(default)s")
    parser.add_argument("--range", type=seconds, default="15m", help="how much time it shows, default: %(default)s")
    parser.add_argument(
        "--end", type=lambda text: datetime.fromisoformat(text).timestamp(), default=time.time(), help="default: now"
    )
    parser.add_argument("--out", type=Path, default=Path("board.png"), help="default: %(default)s")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
