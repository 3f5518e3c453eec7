"""The plots of a run: what each shows, in which colours."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from bokeh.models import ColumnDataSource, CustomJSTickFormatter, Quad, Range1d
from bokeh.models.annotations import BoxAnnotation
from bokeh.models.annotations import Span as Rule

from tidelog.chaos import history as h
from tidelog.chaos.checker.verdict import Gap
from tidelog.chaos.report import units
from tidelog.chaos.report.canvas import BAD, GREY, Bar, Canvas, Figure, Key, Style
from tidelog.chaos.report.cluster_view import Line, Offsets, Span, holes, name_of
from tidelog.chaos.report.timeline import FaultSpan, Sends, Timeline

COLOURS: Final = (
    *("#4e79d6", "#e8923a", "#1f9a8f", "#c65bb0", "#b8a11f"),
    *("#4bb3d1", "#d9626d", "#8a6fd1", "#7a8b3d", "#a9745b"),
)
"""Told apart by most colour-blind people, and legible on white as on black."""
GOOD, HALF, MAIN = "#3fa672", "#f2b134", "#4e79d6"
OUTCOMES: Final = (
    (h.FAIL, "refused", BAD, "answered with an error: certainly not stored"),
    (h.INFO, "unknown", HALF, "given up without an answer: stored or not"),
)
STATE_TEXTS: Final = {
    "none": "no broker leads the partition",
    "active": "the controller that decides",
    "standby": "a controller that waits for its turn",
    "silent": "it runs and gives no answer",
    "paused": "it stands still",
    "PreparingRebalance": "members are waited for",
    "CompletingRebalance": "partitions are dealt out",
}
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
PHASE_ROW, ANOMALY_ROW = "phase", "anomaly"
STRIP_HOLE_S: Final = 1.0
"""A row without a state for longer is hatched."""

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
    keys: Sequence[Key] = ()


def faults(canvas: Canvas, timeline: Timeline, limit: int, anomalies: Sequence[tuple[float, str]]) -> Panel:
    """A row for the phases, one for each of the first `limit` faults, and one for the anomalies, whose times and names these
    are. A fault is paler until it was seen to have taken effect."""
    shown = timeline.faults[:limit]
    rows = [f"fault {number}" for number, _ in enumerate(shown, 1)]
    phases, found = [PHASE_ROW] * bool(timeline.phases), [ANOMALY_ROW] * bool(anomalies)
    plot = canvas.strip([*phases, *rows, *found])
    coming, in_force = [], []
    for row, fault in zip(rows, shown, strict=True):
        colour, told = canvas.colour_of(fault), told_of(fault, canvas.until)
        if (span := fault.in_force(canvas.until)) is not None:
            coming.append(Bar(row, fault.began, span[0], colour, "", f"{told}; taking effect"))
            in_force.append(Bar(row, *span, colour, _word(fault), told))
        else:
            ended = fault.began + canvas.until * MISSED_PART
            coming.append(Bar(row, fault.began, ended, colour, f"{_word(fault)}: no effect seen", told))
    canvas.bars(plot, [Bar(PHASE_ROW, p.began, p.ended, GREY, p.phase) for p in timeline.phases])
    canvas.bars(plot, coming, alpha=0.45, aside=True)
    canvas.bars(plot, in_force, aside=True)
    canvas.bars(plot, [Bar(ANOMALY_ROW, t, t, BAD, "", name) for t, name in anomalies])
    keys = [Key(told_of(fault, canvas.until), canvas.colour_of(fault)) for fault in shown]
    if anomalies:
        keys.append(Key("anomaly", BAD, "mark", "where one shows; see Anomalies below"))
    text = "A bar lasts from the effect of its fault to the healing, and is shaded in every plot; paler: the effect is awaited."
    return Panel("Faults", text, plot, keys)


def told_of(fault: FaultSpan, until: float) -> str:
    """One line: what was hit, from when to when."""
    targets = [target for target in fault.targets if target not in fault.name]
    words = f"{fault.name} ({', '.join(targets)})" if targets else fault.name
    if (span := fault.in_force(until)) is None:
        return f"{words}, begun at {units.at(fault.began)} and not seen to take effect"
    began, ended = span
    if began == ended:
        return f"{words} at {units.at(began)}"
    if ended == until and fault.healed is None:
        return f"{words} from {units.at(began)} on, not healed when the record ends"
    return f"{words} from {units.at(began)} to {units.at(ended)}"


def _word(fault: FaultSpan) -> str:
    """On its bar."""
    more = f" and {len(fault.targets) - 1} more" if len(fault.targets) > 1 else ""
    return f"{fault.fault} {fault.targets[0]}{more}" if fault.targets else fault.fault


def sends(canvas: Canvas, found: Sends, worst: Gap | None) -> Panel:
    """`worst` is marked."""
    plot = canvas.plain("records/s", 190)
    keys, below = [], np.zeros(max((len(counts) for *_, counts in _stack(found)), default=0))
    for name, colour, text, counts in _stack(found):
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
        keys.append(Key(name, colour, "box", text, [bars]))
        below = below + rates
    plot.y_range = Range1d(start=0.0, end=float(max(below, default=0.0) or 1.0) * (1.3 if worst else 1.05))
    canvas.finish(plot, keys)
    if worst is not None:
        frame: dict[str, Any] = {"line_color": GREY, "line_dash": [4, 3], "line_width": 1.5, "fill_alpha": 0.0}
        plot.add_layout(BoxAnnotation(left=worst.began, right=worst.ended, **frame))
        canvas.label(plot, worst.began, 0.14, units.seconds(worst.seconds))
        where = f"of acks={worst.acks} in {worst.topic}-{worst.partition}, from {units.at(worst.began)}"
        keys.append(Key("longest wait for an acknowledgement", GREY, "frame", where))
    text = f"Completed sends by ack level and outcome, in steps of {units.seconds(found.width_s)}."
    return Panel("Acknowledgements per second", text, plot, keys)


def _stack(found: Sends) -> Iterable[tuple[str, str, str, Sequence[int]]]:
    """Acknowledged ones at the bottom, the strictest level first; then refused, then unknown."""
    for number, acks in enumerate(sorted(found.counts, reverse=True)):
        if h.OK in found.counts[acks]:
            yield f"acks={acks} acknowledged", COLOURS[number], "", found.counts[acks][h.OK]
    for outcome, said, colour, text in OUTCOMES:
        of_level = [counts[outcome] for counts in found.counts.values() if outcome in counts]
        if of_level:
            yield said, colour, text, [sum(column) for column in zip(*of_level, strict=True)]


def latency(canvas: Canvas, found: Sends) -> Panel:
    plot = canvas.plain("latency", 200, y_axis_type="log")
    plot.yaxis.formatter = CustomJSTickFormatter(code=LATENCY_TICKS)
    keys = []
    for number, (acks, buckets) in enumerate(sorted(found.latency.items(), reverse=True)):
        at = tuple((n + 0.5) * found.width_s for n in range(len(buckets)))
        for field, name, style in LATENCIES:
            values = tuple(np.nan if each is None else max(getattr(each, field), LATENCY_MIN_S) for each in buckets)
            line = Line(f"acks={acks} {name}", at, values)
            keys.append(canvas.line(plot, line, COLOURS[number], units.seconds, style))
    canvas.finish(plot, keys)
    return Panel(
        "Produce latency", "From the send to the acknowledgement: median, 99th percentile and longest.", plot, keys
    )


def offsets(canvas: Canvas, found: Offsets, brokers: Sequence[str]) -> Panel:
    plot = canvas.plain("offset", 160)
    ends = [
        canvas.line(plot, line, COLOURS[brokers.index(line.name) % len(COLOURS)], units.count, LOG_END)
        for line in found.log_ends
    ]
    keys = [*ends, canvas.line(plot, found.high_watermark, GREY, units.count, COMMITTED)]
    canvas.finish(plot, keys)
    unseen = _unseen(canvas, plot, found.log_ends)
    text = (
        "LEO (log end offset): the next offset of a replica's log. "
        "HW (high watermark): records below it are committed and may be read."
    )
    return Panel(f"HW and LEO of {name_of(found.where)}", text, plot, [*keys, *unseen])


def _unseen(canvas: Canvas, plot: Figure, lines: Iterable[Line]) -> list[Key]:
    points = ((t, t) for line in lines for t, value in zip(line.times, line.values, strict=True) if not np.isnan(value))
    return canvas.hatch(plot, holes(points, canvas.until))


def leaders(canvas: Canvas, spans: Sequence[Span]) -> Panel:
    def colour(span: Span) -> str:
        return BAD if span.state == "none" else COLOURS[int(span.state.rpartition(" ")[2]) % len(COLOURS)]

    return Panel("Leader of each partition", "As a client is told.", *_states(canvas, spans, colour))


def isr(canvas: Canvas, spans: Sequence[Span]) -> Panel:
    text = "ISR: the replicas that have all that is committed; one of them may become the leader. How many they are."
    return Panel(
        "In-sync replicas of each partition",
        text,
        *_states(canvas, spans, lambda span: ISR_COLOURS.get(span.state, GOOD), "{} in sync"),
    )


def processes(canvas: Canvas, spans: Sequence[Span]) -> Panel:
    text = "As the operating system sees them, and the part that each says it has."
    return Panel("Processes", text, *_states(canvas, spans, lambda span: STATE_COLOURS.get(span.state, GREY)))


def groups(canvas: Canvas, spans: Sequence[Span]) -> Panel:
    """A state without a colour of its own is one of a rebalance."""
    strip = _states(canvas, spans, lambda span: STATE_COLOURS.get(span.state, HALF))
    return Panel("Consumer groups", "As their coordinators tell it.", *strip)


def _states(
    canvas: Canvas, spans: Sequence[Span], colour: Callable[[Span], str], name: str = "{}"
) -> tuple[Figure, Sequence[Key]]:
    """`name`: of a state in the legend."""
    rows = list(dict.fromkeys(span.row for span in spans))
    plot = canvas.strip(rows)
    canvas.bars(plot, [Bar(s.row, s.began, s.ended, colour(s), s.state, s.detail) for s in spans])
    unseen = [
        (row, hole)
        for row in rows
        for hole in holes(((s.began, s.ended) for s in spans if s.row == row), canvas.until, STRIP_HOLE_S)
    ]
    keys = {
        span.state: Key(name.format(span.state), colour(span), text=STATE_TEXTS.get(span.state, "")) for span in spans
    }
    hatched = canvas.hatch(plot, [hole for _, hole in unseen], [row for row, _ in unseen])
    return plot, [*(keys[state] for state in sorted(keys)), *hatched]


def lag(canvas: Canvas, lines: Sequence[Line]) -> Panel:
    plot = canvas.plain("records", 160)
    keys = [canvas.line(plot, line, COLOURS[n % len(COLOURS)], units.count, LINE) for n, line in enumerate(lines)]
    canvas.finish(plot, keys)
    text = "Records that are committed to the log and not yet read (consumers), or not yet committed as processed (groups)."
    return Panel("Lag", text, plot, [*keys, *_unseen(canvas, plot, lines)])


def elections(canvas: Canvas, line: Line, looked: Iterable[float], controllers: Sequence[Span]) -> Panel:
    """`looked`: when the partitions were looked at. Marks where another controller took over."""
    plot = canvas.plain("elections", 130)
    plot.y_range = Range1d(start=0.0, end=max(line.values) * 1.15 or 1.0)
    plot.yaxis.ticker.min_interval = 1
    keys = [canvas.line(plot, line, COLOURS[0], units.count, LINE)]
    canvas.finish(plot, keys)
    for before, span in pairwise(controllers):
        if (span.state, span.detail) == (before.state, before.detail):
            continue  # the same one, after it was not heard of for a while
        rule = Rule(location=span.began, dimension="height", line_color=COLOURS[1], line_dash="dashed")
        plot.add_layout(rule)
        canvas.label(plot, span.began, 0.2, span.state, COLOURS[1])
        keys.append(Key(f"{span.state} takes over", COLOURS[1], "dash", f"as the active controller, {span.detail}"))
    keys += canvas.hatch(plot, holes(((t, t) for t in looked), canvas.until))
    return Panel("Elections", "Leaders elected since the first look, over all partitions.", plot, keys)
