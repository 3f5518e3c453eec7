"""A screen of a board as a picture, drawn from its own panels: for a machine without Grafana, and to look at what was built."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dashboards.draw import built, counts
from dashboards.panels import Board, Kind, Panel
from dashboards.proof import Series
from dashboards.zoom import GAP_S

WIDTH, HEIGHT, DPI = 1920, 1080, 100
COLUMNS: Final = 24
UNIT, GAP = 30, 8
"""Pixels of a unit of Grafana's grid, and between two of them."""
UNITS: Final = HEIGHT // (UNIT + GAP)
PAGE, CARD, TEXT, FAINT = "#111217", "#1e2026", "#d0d1d6", "#7b7d85"
COLORS: Final = {
    "green": "#73bf69",
    "orange": "#ff9830",
    "red": "#f2495c",
    "yellow": "#fade2a",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "gray": "#8e8e8e",
    "transparent": CARD,
}
LINES: Final = ("green", "yellow", "blue", "orange", "red", "purple", "gray")
ROWS: Final = 12
LEGEND_MAX: Final = 8
NARROW: Final = 0.03
"""Share of a time line below which a state has no room for its name."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The answers of Prometheus to a panel, each series with its legend."""

    panel: Panel
    series: Sequence[tuple[str, Series]]


@dataclass(frozen=True, slots=True)
class Region:
    """A mark, from its begin to its end in Unix seconds."""

    begin: float
    end: float
    color: str


@dataclass(frozen=True, slots=True)
class Window:
    begin: float
    end: float


def legend(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template).strip()


def regions(series: Series, gap_s: float) -> Iterator[tuple[float, float]]:
    """From the first to the last of its samples that follow on each other."""
    times = [at for at, _ in series.points]
    begin = times[0] if times else 0.0
    for at, following in [*pairwise(times), *((at, at + 2 * gap_s) for at in times[-1:])]:
        if following - at > gap_s:
            yield begin, at
            begin = following


def merged(marks: Sequence[Region]) -> Iterator[Region]:
    """Regions of a colour that touch, as one: of ten processes that are down each would darken the others."""
    for color in dict.fromkeys(mark.color for mark in marks):
        begin = end = -1.0
        for mark in sorted((mark for mark in marks if mark.color == color), key=lambda mark: mark.begin):
            if mark.begin > end:
                if end >= 0:
                    yield Region(begin, end, color)
                begin = mark.begin
            end = max(end, mark.end)
        yield Region(begin, end, color)


def first_screen(board: Board) -> dict[str, Any]:
    """Places in the grid by title, of the panels that a screen shows at first."""
    places = {each.title: each.grid_pos for each in built(board).panels if each.type_val != "row"}
    return {title: place for title, place in places.items() if place.y + place.h <= UNITS}


def draw(board: Board, shown: Sequence[Shown], marks: Sequence[Region], window: Window, path: Path) -> None:
    mpl.rcParams.update({"font.size": 8, "text.color": TEXT, "axes.labelcolor": TEXT, "font.family": "DejaVu Sans"})
    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor=PAGE)
    places = first_screen(board)
    for each in shown:
        axes = _card(figure, places[each.panel.title], each.panel)
        if not any(series.points for _, series in each.series):
            axes.text(0.5, 0.5, "No data", ha="center", va="center", color=FAINT, fontsize=14, transform=axes.transAxes)
            axes.set_axis_off()
        elif each.panel.kind is Kind.STAT:
            _stat(axes, each)
        else:
            (_timeline if each.panel.kind is Kind.TIMELINE else _graph)(axes, each, window)
            _times(axes, window)
            for mark in merged(marks):
                axes.axvspan(
                    _day(mark.begin), _day(mark.end), color=COLORS[mark.color], alpha=0.12, linewidth=0, zorder=3
                )
    figure.savefig(path, facecolor=PAGE)


def _card(figure: Figure, place: Any, panel: Panel) -> Axes:
    """The axes inside the frame of a panel, below its title; pixels count from above in Grafana and from below here."""
    column = (WIDTH - GAP) / COLUMNS
    left, top = GAP + place.x * column, GAP + place.y * (UNIT + GAP)
    width, height = place.w * column - GAP, place.h * (UNIT + GAP) - GAP
    box = (left / WIDTH, 1 - (top + height) / HEIGHT, width / WIDTH, height / HEIGHT)
    frame = figure.add_axes(box, facecolor=CARD)
    frame.set_xticks([])
    frame.set_yticks([])
    for spine in frame.spines.values():
        spine.set_color("#2c2f36")
    frame.text(
        8 / width, 1 - 12 / height, panel.title, va="center", fontsize=9, weight="bold", transform=frame.transAxes
    )
    inner = (130, 24, 14, 28) if panel.kind is Kind.TIMELINE else (56, 24, 14, 28)
    if panel.kind is Kind.STAT:
        inner = (8, 6, 8, 24)
    west, south, east, north = inner
    return figure.add_axes(
        (
            box[0] + west / WIDTH,
            box[1] + south / HEIGHT,
            (width - west - east) / WIDTH,
            (height - south - north) / HEIGHT,
        ),
        facecolor=CARD,
    )


def _stat(axes: Axes, shown: Shown) -> None:
    value = shown.series[0][1].values[-1]
    axes.set_facecolor(COLORS[_shade(shown.panel, value)])
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, f"{value:g}", ha="center", va="center", fontsize=26, color=PAGE, transform=axes.transAxes)


def _timeline(axes: Axes, shown: Shown, window: Window) -> None:
    rows = sorted((name, series) for name, series in shown.series if series.points)[:ROWS]
    span = _day(window.end) - _day(window.begin)
    for number, (_, series) in enumerate(rows):
        for begin, end, value in _states(series, GAP_S[Kind.TIMELINE]):
            left, wide = _day(begin), _day(end) - _day(begin)
            axes.broken_barh([(left, wide)], (number - 0.42, 0.84), color=COLORS[_shade(shown.panel, value)])
            if wide > NARROW * span:
                text = (shown.panel.names or {}).get(int(value), f"{value:g}")
                axes.text(left + wide / 2, number, text, ha="center", va="center", color=PAGE, fontsize=7, clip_on=True)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _states(series: Series, gap_s: float) -> Iterator[tuple[float, float, float]]:
    """(begin, end, value): a state lasts until the next sample, or to its last one before a gap."""
    begin, now = series.points[0]
    for (at, _), (following, value) in pairwise(series.points):
        if following - at > gap_s:
            yield begin, at, now
            begin, now = following, value
        elif value != now:
            yield begin, following, now
            begin, now = following, value
    yield begin, series.points[-1][0], now


def _graph(axes: Axes, shown: Shown, window: Window) -> None:
    panel = shown.panel
    series = [(name, each) for name, each in shown.series if each.points]
    step = min((b[0] - a[0] for _, each in series for a, b in pairwise(each.points)), default=2.0)
    for number, (name, each) in enumerate(series):
        color = COLORS[LINES[number % len(LINES)]]
        if panel.bars:
            times, values = [_day(at) for at, _ in each.points], each.values
            axes.bar(times, values, width=_day(step), color=color, label=name)
        else:
            times, values = _broken(each, GAP_S[Kind.GRAPH])
            axes.plot(times, values, color=color, linewidth=1.2, label=name)
            if panel.legend:
                axes.fill_between(times, values, alpha=0.08, color=color, linewidth=0)
    axes.set_ylim(0, max(1, axes.get_ylim()[1]) if counts(panel) else None)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=panel.unit == "short"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _with_unit(value, panel.unit)))
    axes.grid(color="#2c2f36", linewidth=0.6)
    if panel.legend:
        axes.legend(
            *(each[:LEGEND_MAX] for each in axes.get_legend_handles_labels()),
            loc="upper left",
            facecolor=CARD,
            edgecolor="none",
            framealpha=0.7,
            labelcolor=TEXT,
        )


def _broken(series: Series, gap_s: float) -> tuple[list[float], list[float]]:
    """Times and values of a line, with no value in each gap."""
    times, values = [], []
    for number, (at, value) in enumerate(series.points):
        if number and at - series.points[number - 1][0] > gap_s:
            times.append(_day(at))
            values.append(float("nan"))
        times.append(_day(at))
        values.append(value)
    return times, values


def _times(axes: Axes, window: Window) -> None:
    axes.set_xlim(_day(window.begin), _day(window.end))
    zone = datetime.fromtimestamp(window.end, UTC).astimezone().tzinfo  # of its reader, as in Grafana
    axes.xaxis.set_major_locator(dates.AutoDateLocator(tz=zone, maxticks=8))  # type: ignore[no-untyped-call]
    form = "%H:%M:%S" if window.end - window.begin < 1800 else "%H:%M"
    axes.xaxis.set_major_formatter(dates.DateFormatter(form, tz=zone))  # type: ignore[no-untyped-call]
    axes.tick_params(colors=FAINT, labelsize=7.5, length=2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _day(at: float) -> float:
    """Matplotlib's unit of time."""
    return at / 86_400


def _shade(panel: Panel, value: float) -> str:
    if panel.shades and int(value) in panel.shades:
        return panel.shades[int(value)]
    found = "green"
    for limit, color in panel.colors:
        if limit is None or value >= limit:
            found = color
    return found


def _with_unit(value: float, unit: str) -> str:
    match unit:
        case "s":
            return f"{value:g} s"
        case "bytes" | "Bps":
            return f"{value:,.0f} B" + ("/s" if unit == "Bps" else "")
        case "percentunit":
            return f"{100 * value:g} %"
        case "reqps":
            return f"{value:g} /s"
        case "ms":
            return f"{value:g} ms"
    return f"{value:,.10g}"
