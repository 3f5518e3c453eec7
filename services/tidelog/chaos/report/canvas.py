"""The plots of a run share one axis of time with one zoom, margins, shaded faults, bars, lines and hatches.

Legends are HTML beside the plots (`Key`), since those of a canvas do not wrap in a narrow window.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from bokeh.document import Document
from bokeh.embed import components
from bokeh.events import DoubleTap
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    CrosshairTool,
    CustomJS,
    DataRange1d,
    FactorRange,
    HBar,
    HoverTool,
    NumeralTickFormatter,
    PrintfTickFormatter,
    Range1d,
    Scatter,
    Step,
    Text,
    VStrip,
    WheelZoomTool,
    glyphs,
)
from bokeh.models.annotations import Label
from bokeh.models.annotations import Span as Rule
from bokeh.plotting import figure
from bokeh.settings import settings

from tidelog.chaos.report import units
from tidelog.chaos.report.cluster_view import Line
from tidelog.chaos.report.timeline import FaultSpan

settings.perform_document_validation = False  # its own look for mistakes takes half of the time of a page; tests look
Figure = Any
"""Bokeh makes the methods of a figure at run time."""

LEFT_PX: Final = 92
RIGHT_PX: Final = 12
"""The same around every plot, so that the same time stands in the same place."""
ROW_PX: Final = 21
AXIS_PX: Final = 34
FONT: Final = "11px"
INK: Final = "ink"
"""Tag of texts that the page paints in its own colour."""
AXIS, MARK = "time", "mark"
"""Names by which the page finds the axis of time, and the line that marks a moment on it."""
FIT: Final = """
    const {left, right, state} = bars.data, px = plot.inner_width / (axis.end - axis.start);
    const inside = state.map((word, n) => (right[n] - left[n]) * px > word.length * 6.5 + 8);
    bars.data.word = state.map((word, n) => inside[n] ? word : "");
    bars.data.aside = state.map((word, n) => inside[n] ? "" : word);
    bars.change.emit();
"""
"""A word is written into its bar where it fits at this width and zoom, else beside it."""
GREY, BAD = "#8b949e", "#e5484d"
DARK_TEXT, LIGHT_TEXT = "#1f2328", "#ffffff"
FAULT_COLOURS: Final = ("#e5484d", "#d9822b", "#b44bd6", "#c2a000", "#3f83c9", "#a65a3a")

Tips = Sequence[tuple[str, str]]
LINE_TIPS: Final[Tips] = (("", "@what"), ("", "@said"), ("at", "@at"))


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a legend."""

    name: str
    colour: str
    shape: str = "box"
    """A class of the page's style: box, line, dash, dots, frame, hatch."""
    text: str = ""
    """The meaning, if the name does not say it."""
    renderers: Sequence[Any] = ()
    """A click on it hides these."""

    @property
    def models(self) -> str:
        return " ".join(each.id for each in self.renderers)


NO_SAMPLE: Final = Key("no sample", GREY, "hatch", "no answer was recorded")


@dataclass(frozen=True, slots=True)
class Bar:
    row: str
    began: float
    ended: float
    colour: str
    word: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Style:
    """Of a line."""

    width: float = 1.8
    """0: points alone."""
    step: bool = False
    dash: Any = "solid"
    point_px: float = 0.0
    label: str = ""
    """Before the line's name."""


class Canvas:
    """Makes the figures of one run."""

    def __init__(self, until: float, faults: Sequence[FaultSpan]) -> None:
        self.until = max(until, 0.1)
        self._axis = Range1d(name=AXIS, start=0.0, end=self.until, bounds=(0.0, self.until))
        self._mark = Rule(name=MARK, dimension="height", line_color=BAD, line_width=1.5, visible=False, location=0.0)
        self._rule = Rule(dimension="height", line_color=GREY, line_width=1, line_alpha=0.8)
        self._colours = {fault.id: FAULT_COLOURS[n % len(FAULT_COLOURS)] for n, fault in enumerate(faults)}
        spans = [(self._colours[f.id], span) for f in faults if (span := f.in_force(self.until)) is not None]
        self._shades = ColumnDataSource(
            {
                "begin": [begin for _, (begin, _) in spans],
                "end": [end for _, (_, end) in spans],
                "colour": [colour for colour, _ in spans],
            }
        )

    def colour_of(self, fault: FaultSpan) -> str:
        return self._colours[fault.id]

    def plain(self, unit: str, height: int, **options: Any) -> Figure:
        """For numbers in `unit`, from 0 where the axis is linear."""
        plot = self._figure(height, y_axis_label=unit, **options)
        plot.yaxis.axis_label_text_font_size = FONT
        plot.yaxis.axis_label_text_font_style = "normal"
        if "y_axis_type" not in options:
            plot.y_range.start = 0
            plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[0]")
        return plot

    def strip(self, rows: Sequence[str]) -> Figure:
        """For bars in rows, the first at the top."""
        height = AXIS_PX + ROW_PX * max(1, len(rows))
        plot = self._figure(height, y_range=FactorRange(factors=list(reversed(rows))))
        plot.ygrid.grid_line_color = None
        return plot

    def bars(self, plot: Figure, bars: Sequence[Bar], alpha: float = 0.88, *, aside: bool = False) -> None:
        """`aside`: a word that does not fit its bar stands beside it."""
        late = [bar.began + bar.ended > self.until for bar in bars]
        source = ColumnDataSource(
            {
                "row": [bar.row for bar in bars],
                "left": np.array([bar.began for bar in bars]),
                "right": np.array([bar.ended for bar in bars]),
                "colour": [bar.colour for bar in bars],
                "ink": [legible_on(bar.colour) for bar in bars],
                "word": [""] * len(bars),
                "aside": [""] * len(bars),
                "edge": np.array([bar.began if of else bar.ended for bar, of in zip(bars, late, strict=True)]),
                "align": ["right" if of else "left" for of in late],
                "offset": [-6 if of else 6 for of in late],
                "state": [bar.word for bar in bars],
                "detail": [bar.detail for bar in bars],
                "when": [
                    f"{units.at(b.began)} to {units.at(b.ended)}, {units.seconds(b.ended - b.began)}" for b in bars
                ],
            }
        )
        look: dict[str, Any] = {"height": 0.82, "fill_color": "colour", "fill_alpha": alpha}
        look |= {"line_color": "colour", "line_alpha": alpha}  # an instant has no width, and is to be seen
        drawn = plot.add_glyph(source, HBar(y="row", left="left", right="right", **look))
        font: dict[str, Any] = {"text_font_size": FONT, "text_baseline": "middle"}
        plot.add_glyph(source, Text(x="left", y="row", text="word", x_offset=5, text_color="ink", **font))
        if aside:
            beside = Text(x="edge", y="row", text="aside", text_align="align", x_offset="offset", tags=[INK], **font)
            plot.add_glyph(source, beside)
        tips = [("", "@row @state"), ("", "@detail"), ("", "@when")]
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=tips, point_policy="follow_mouse"))
        fit = CustomJS(args={"bars": source, "plot": plot, "axis": self._axis}, code=FIT)
        plot.js_on_change("inner_width", fit)
        self._axis.js_on_change("end", fit)

    def hatch(self, plot: Figure, holes: Iterable[tuple[float, float]], rows: Sequence[str] | None = None) -> list[Key]:
        """Marks times without a sample: in one row each, or from top to bottom. The key to it, if there is any."""
        found = [*holes]
        if not found:
            return []
        source = ColumnDataSource({"left": [began for began, _ in found], "right": [ended for _, ended in found]})
        look: dict[str, Any] = {"fill_alpha": 0.0, "line_color": None}
        look |= {"hatch_pattern": "right_diagonal_line", "hatch_color": GREY, "hatch_alpha": 0.55, "hatch_scale": 8}
        if rows is None:
            plot.add_glyph(source, VStrip(x0="left", x1="right", **look), level="underlay")
        else:
            source.data["row"] = rows
            plot.add_glyph(source, HBar(y="row", left="left", right="right", height=0.82, **look))
        return [NO_SAMPLE]

    def line(self, plot: Figure, line: Line, colour: str, say: Callable[[float], str], style: Style) -> Key:
        name = f"{style.label} {line.name}".strip()
        source = ColumnDataSource(
            {
                "x": np.array(line.times),
                "y": np.array(line.values),
                "what": [name] * len(line.times),
                "said": [say(value) for value in line.values],
                "at": [units.at(t) for t in line.times],
            }
        )
        look: dict[str, Any] = {"line_color": colour, "line_width": style.width, "line_dash": style.dash}
        drawn = []
        if style.step:
            drawn.append(plot.add_glyph(source, Step(mode="after", **look)))
        elif style.width:
            drawn.append(plot.add_glyph(source, glyphs.Line(**look)))
        if style.point_px:
            point: dict[str, Any] = {"size": style.point_px, "fill_color": colour, "line_color": colour}
            drawn.append(plot.add_glyph(source, Scatter(**point)))
        shape = "dots" if not style.width else "line" if style.dash == "solid" else "dash"
        return Key(name, colour, shape, renderers=drawn)

    def finish(self, plot: Figure, keys: Sequence[Key], tips: Tips = LINE_TIPS) -> None:
        drawn: list[Any] = [renderer for key in keys for renderer in key.renderers]
        plot.add_tools(HoverTool(renderers=drawn, tooltips=list(tips), mode="mouse", point_policy="snap_to_data"))
        if isinstance(plot.y_range, DataRange1d):
            plot.y_range.renderers = drawn  # what is shaded reaches from end to end

    def label(self, plot: Figure, x: float, from_top: float, words: str, colour: str | None = None) -> None:
        """To the right of `x` in the first half, to its left in the second; `from_top` is a part of the axis."""
        label = Label(x=x, y=plot.y_range.end * (1 - from_top), text=words, text_font_size=FONT)
        label.text_align, label.x_offset = ("right", -6) if x > self.until / 2 else ("left", 6)
        if colour is None:
            label.tags = [INK]
        else:
            label.text_color = colour
        plot.add_layout(label)

    def _figure(self, height: int, **options: Any) -> Figure:
        zoom: list[Any] = [BoxZoomTool(dimensions="width"), WheelZoomTool(dimensions="width", modifiers={"ctrl": True})]
        plot = figure(
            height=height,
            sizing_mode="stretch_width",
            x_range=self._axis,
            tools=[*zoom, CrosshairTool(overlay=self._rule)],
            toolbar_location=None,
            min_border_left=LEFT_PX,
            min_border_right=RIGHT_PX,
            background_fill_color=None,
            border_fill_color=None,
            outline_line_color=None,
            **options,
        )
        plot.toolbar.active_drag = zoom[0]
        plot.xaxis.formatter = PrintfTickFormatter(format="%g s")
        for axis in (*plot.xaxis, *plot.yaxis):
            axis.minor_tick_line_color = None
            axis.axis_line_alpha = 0.5
            axis.major_tick_line_alpha = 0.5
            axis.major_label_text_font_size = FONT
        plot.grid.grid_line_alpha = 0.35
        whole = CustomJS(args={"axis": self._axis, "end": self.until}, code="axis.setv({start: 0, end: end})")
        plot.js_on_event(DoubleTap, whole)
        shade: dict[str, Any] = {"fill_alpha": 0.10, "line_alpha": 0.45, "fill_color": "colour", "line_color": "colour"}
        plot.add_glyph(self._shades, VStrip(x0="begin", x1="end", **shade), level="underlay")
        plot.add_layout(self._mark)
        return plot


def embedded(figures: Sequence[Figure]) -> tuple[str, Sequence[str]]:
    """The script that draws them, and the place of each, as HTML."""
    if not figures:
        return "", ()
    document = Document()
    with document.models.freeze():  # else what a figure refers to is searched through anew with each one
        for each in figures:
            document.add_root(each)
    script, places = components(figures)
    return script, places


def legible_on(colour: str) -> str:
    """Dark or light, by the luminance of what is below."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return DARK_TEXT if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else LIGHT_TEXT
