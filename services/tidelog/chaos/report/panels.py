"""The plots of a run: what each shows, in which colours."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from bokeh.models import ColumnDataSource, CustomJSTickFormatter, Quad, Range1d
from bokeh.models.annotations import BoxAnnotation, LegendItem
from bokeh.models.annotations import Span as Rule

from tidelog.chaos import history as h
from tidelog.chaos.checker.verdict import Gap
from tidelog.chaos.report import units
from tidelog.chaos.report.canvas import GREY, Bar, Canvas, Figure, Style
from tidelog.chaos.report.cluster_view import Line, Offsets, Span, name_of
from tidelog.chaos.report.timeline import FaultSpan, Sends, Timeline

COLOURS: Final = (
    *("#4e79d6", "#e8923a", "#1f9a8f", "#c65bb0", "#b8a11f"),
    *("#4bb3d1", "#d9626d", "#8a6fd1", "#7a8b3d", "#a9745b"),
)
"""Told apart by most colour-blind people, and legible on white as on black."""
GOOD, BAD, HALF, MAIN = "#3fa672", "#e5484d", "#f2b134", "#4e79d6"
OUTCOMES: Final = ((h.FAIL, "refused", BAD), (h.INFO, "unknown", HALF))
STATE_COLOURS: Final = {
    **dict.fromkeys(("running", "standby", "follower", "standalone", "Stable"), GOOD),
    **dict.fromkeys(("active", "leader"), MAIN),
    **dict.fromkeys(("stopped", "no quorum", "none", "Dead"), BAD),
    "paused": "#c65bb0",
    "silent": HALF,
    "Empty": GREY,
}
ISR_COLOURS: Final = {"0": BAD, "1": "#e8823a", "2": "#e0c93a"}
MISSED_PART: Final = 0.02
"""Of the time line: how long a fault is drawn that was not seen to take effect."""
PHASE_ROW: Final = "phase"

LINE: Final = Style(2.0, step=True)
LOG_END: Final = Style(1.8, step=True, label="LEO")
COMMITTED: Final = Style(2.6, step=True, dash=[5, 3])
LATENCIES: Final = (
    # Points too: a bucket between two empty ones has no line, and is the one to see.
    ("p50", "median", Style(1.8, point_px=2.5)),
    ("p99", "p99", Style(1.0, dash=[4, 3], point_px=2.5)),
    ("longest", "longest", Style(0.0, point_px=3.5)),
)
LATENCY_MIN_S: Final = 1e-5
"""A logarithmic axis has no 0."""
LATENCY_TICKS: Final = """
    if (tick >= 1) return tick + " s";
    return tick >= 1e-3 ? +(tick * 1e3).toPrecision(3) + " ms" : +(tick * 1e6).toPrecision(3) + " µs";
"""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    text: str
    """What it shows."""
    figure: Figure


def faults(canvas: Canvas, timeline: Timeline, limit: int) -> Panel:
    """A row for the phases, and one for each of the first `limit` faults: paler until it was seen to have taken effect."""
    shown = timeline.faults[:limit]
    rows = [f"{fault.id} {fault.fault}" for fault in shown]
    plot = canvas.strip([PHASE_ROW, *rows] if timeline.phases else rows)
    coming, in_force = [], []
    for row, fault in zip(rows, shown, strict=True):
        colour = canvas.colour_of(fault)
        if (span := fault.in_force(canvas.until)) is not None:
            coming.append(Bar(row, fault.began, span[0], colour, "", f"{fault.name}: taking effect"))
            in_force.append(Bar(row, *span, colour, fault.name, _told(fault)))
        else:
            coming.append(Bar(row, fault.began, fault.began + canvas.until * MISSED_PART, colour, "", _told(fault)))
    canvas.bars(plot, [Bar(PHASE_ROW, p.began, p.ended, GREY, p.phase) for p in timeline.phases])
    canvas.bars(plot, coming, alpha=0.45)
    canvas.bars(plot, in_force)
    text = "Each from the moment it was seen to have taken effect until it was healed; shaded in every plot."
    return Panel("Faults", text, plot)


def _told(fault: FaultSpan) -> str:
    targets = ", ".join(fault.targets) or "nobody"
    if fault.effect is None:
        return f"{fault.name}: {targets}; not seen to take effect"
    return f"{targets}; took effect after {units.seconds(fault.effect - fault.began)}"


def sends(canvas: Canvas, found: Sends, worst: Gap | None) -> Panel:
    """`worst` is marked."""
    plot = canvas.plain("records/s", 210)
    legend, below = [], np.zeros(max((len(counts) for _, _, counts in _stack(found)), default=0))
    for name, colour, counts in _stack(found):
        rates = np.array(counts) / found.width_s
        shown = np.nonzero(rates)[0]
        source = ColumnDataSource(
            {
                "left": shown * found.width_s,
                "right": (shown + 1) * found.width_s,
                "bottom": below[shown],
                "top": (below + rates)[shown],
                "what": [name] * len(shown),
                "said": [f"{rate:,.0f} records/s" for rate in rates[shown]],
                "at": [units.at(n * found.width_s) for n in shown],
            }
        )
        box: dict[str, Any] = {"fill_color": colour, "fill_alpha": 0.9, "line_color": None}
        bars = plot.add_glyph(source, Quad(left="left", right="right", bottom="bottom", top="top", **box))
        legend.append(LegendItem(label=name, renderers=[bars]))
        below = below + rates
    plot.y_range = Range1d(start=0.0, end=float(max(below, default=0.0) or 1.0) * (1.3 if worst else 1.05))
    canvas.finish(plot, legend)
    if worst is not None:
        frame: dict[str, Any] = {"line_color": GREY, "line_dash": [4, 3], "line_width": 1.5, "fill_alpha": 0.0}
        plot.add_layout(BoxAnnotation(left=worst.began, right=worst.ended, **frame))
        words = f"longest gap {units.seconds(worst.seconds)}: {worst.topic}-{worst.partition}, acks={worst.acks}"
        canvas.label(plot, worst.began, 0.14, words)
    text = f"Completed sends by ack level and outcome, in steps of {units.seconds(found.width_s)}."
    return Panel("Acknowledgements per second", text, plot)


def _stack(found: Sends) -> Iterable[tuple[str, str, Sequence[int]]]:
    """Acknowledged ones at the bottom, the strictest level first; then refused, then unknown."""
    for number, acks in enumerate(sorted(found.counts, reverse=True)):
        if h.OK in found.counts[acks]:
            yield f"acks={acks} ok", COLOURS[number], found.counts[acks][h.OK]
    for outcome, said, colour in OUTCOMES:
        of_level = [counts[outcome] for counts in found.counts.values() if outcome in counts]
        if of_level:
            yield said, colour, [sum(column) for column in zip(*of_level, strict=True)]


def latency(canvas: Canvas, found: Sends) -> Panel:
    plot = canvas.plain("latency", 230, y_axis_type="log")
    plot.yaxis.formatter = CustomJSTickFormatter(code=LATENCY_TICKS)
    legend = []
    for number, (acks, buckets) in enumerate(sorted(found.latency.items(), reverse=True)):
        at = tuple((n + 0.5) * found.width_s for n in range(len(buckets)))
        for field, name, style in LATENCIES:
            values = tuple(np.nan if each is None else max(getattr(each, field), LATENCY_MIN_S) for each in buckets)
            line = Line(f"acks={acks} {name}", at, values)
            legend.append(canvas.line(plot, line, COLOURS[number], units.seconds, style))
    canvas.finish(plot, legend)
    return Panel("Produce latency", "From the send to the acknowledgement: median, 99th percentile and longest.", plot)


def offsets(canvas: Canvas, found: Offsets, brokers: Sequence[str]) -> Panel:
    plot = canvas.plain("offset", 170)
    legend = [
        canvas.line(plot, line, COLOURS[brokers.index(line.name) % len(COLOURS)], units.count, LOG_END)
        for line in found.log_ends
    ]
    canvas.finish(plot, [*legend, canvas.line(plot, found.high_watermark, GREY, units.count, COMMITTED)])
    text = "The end of each replica's log, and how far its leader says that it is committed."
    return Panel(f"HW and LEO of {name_of(found.where)}", text, plot)


def leaders(canvas: Canvas, spans: Sequence[Span]) -> Panel:
    def colour(span: Span) -> str:
        return BAD if span.state == "none" else COLOURS[int(span.state.rpartition(" ")[2]) % len(COLOURS)]

    return Panel("Leader of each partition", "As a client is told.", _states(canvas, spans, colour))


def isr(canvas: Canvas, spans: Sequence[Span]) -> Panel:
    plot = _states(canvas, spans, lambda span: ISR_COLOURS.get(span.state, GOOD))
    return Panel("In-sync replicas of each partition", "How many there are.", plot)


def processes(canvas: Canvas, spans: Sequence[Span]) -> Panel:
    text = "As the operating system sees them, and what part each says it has."
    return Panel("Processes", text, _states(canvas, spans, lambda span: STATE_COLOURS.get(span.state, GREY)))


def groups(canvas: Canvas, spans: Sequence[Span]) -> Panel:
    """A state without a colour of its own is one of a rebalance."""
    plot = _states(canvas, spans, lambda span: STATE_COLOURS.get(span.state, HALF))
    return Panel("Consumer groups", "As their coordinators tell it.", plot)


def _states(canvas: Canvas, spans: Sequence[Span], colour: Callable[[Span], str]) -> Figure:
    plot = canvas.strip(list(dict.fromkeys(span.row for span in spans)))
    canvas.bars(plot, [Bar(s.row, s.began, s.ended, colour(s), s.state, s.detail) for s in spans])
    return plot


def lag(canvas: Canvas, lines: Sequence[Line]) -> Panel:
    plot = canvas.plain("records", 170)
    legend = [canvas.line(plot, line, COLOURS[n % len(COLOURS)], units.count, LINE) for n, line in enumerate(lines)]
    canvas.finish(plot, legend)
    text = "Records that are committed to the log and not yet read (consumers), or not yet committed as processed (groups)."
    return Panel("Lag", text, plot)


def elections(canvas: Canvas, line: Line, controllers: Sequence[Span]) -> Panel:
    """Marks where another controller took over."""
    plot = canvas.plain("elections", 130)
    plot.y_range = Range1d(start=0.0, end=max(line.values) * 1.15 or 1.0)
    plot.yaxis.ticker.min_interval = 1
    canvas.finish(plot, [canvas.line(plot, line, COLOURS[0], units.count, LINE)])
    for before, span in pairwise(controllers):
        if (span.state, span.detail) == (before.state, before.detail):
            continue  # the same one, after it was not heard of for a while
        plot.add_layout(Rule(location=span.began, dimension="height", line_color=COLOURS[1], line_dash="dashed"))
        canvas.label(plot, span.began, 0.2, f"{span.state} takes over", COLOURS[1])
    return Panel("Elections", "Leaders elected since the first look, over all partitions.", plot)
