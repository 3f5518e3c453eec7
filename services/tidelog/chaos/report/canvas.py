"""What every plot of a run has in common: one axis of time with one zoom, margins, shaded faults, bars, lines, legends."""

from collections.abc import Callable, Sequence
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
from bokeh.models.annotations import Label, Legend, LegendItem
from bokeh.models.annotations import Span as Rule
from bokeh.plotting import figure

from tidelog.chaos.report import units
from tidelog.chaos.report.cluster_view import Line
from tidelog.chaos.report.timeline import FaultSpan

Figure = Any
"""Bokeh makes the methods of a figure at run time."""

LEFT_PX: Final = 118
RIGHT_PX: Final = 18
"""The same around every plot, so that the same time stands in the same place."""
ROW_PX: Final = 21
AXIS_PX: Final = 34
TEXT_PX: Final = 7.0
FRAME_PX: Final = 760.0
"""A word is written into a bar that holds it when the page is as narrow as this."""
LEGEND_ITEMS: Final = 5
"""In a row."""
FONT: Final = "11px"
INK: Final = "ink"
"""Tag of what the page paints in its own colour of text."""
GREY: Final = "#8b949e"
DARK_TEXT, LIGHT_TEXT = "#1f2328", "#ffffff"
FAULT_COLOURS: Final = ("#e5484d", "#d9822b", "#b44bd6", "#c2a000", "#3f83c9", "#a65a3a")

Tips = Sequence[tuple[str, str]]
LINE_TIPS: Final[Tips] = (("", "@what"), ("", "@said"), ("at", "@at"))


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
        self._axis = Range1d(start=0.0, end=self.until, bounds=(0.0, self.until))
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

    def bars(self, plot: Figure, bars: Sequence[Bar], alpha: float = 0.88) -> None:
        source = ColumnDataSource(
            {
                "row": [bar.row for bar in bars],
                "left": np.array([bar.began for bar in bars]),
                "right": np.array([bar.ended for bar in bars]),
                "colour": [bar.colour for bar in bars],
                "ink": [legible_on(bar.colour) for bar in bars],
                "word": [bar.word if self._fits(bar) else "" for bar in bars],
                "state": [bar.word for bar in bars],
                "detail": [bar.detail for bar in bars],
                "when": [
                    f"{units.at(b.began)} to {units.at(b.ended)}, {units.seconds(b.ended - b.began)}" for b in bars
                ],
            }
        )
        look: dict[str, Any] = {"height": 0.82, "fill_color": "colour", "fill_alpha": alpha, "line_color": None}
        drawn = plot.add_glyph(source, HBar(y="row", left="left", right="right", **look))
        font: dict[str, Any] = {"text_color": "ink", "text_font_size": FONT, "text_baseline": "middle"}
        plot.add_glyph(source, Text(x="left", y="row", text="word", x_offset=5, **font))
        tips = [("", "@row @state"), ("", "@detail"), ("", "@when")]
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=tips, point_policy="follow_mouse"))

    def line(self, plot: Figure, line: Line, colour: str, say: Callable[[float], str], style: Style) -> LegendItem:
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
        return LegendItem(label=name, renderers=drawn)

    def finish(self, plot: Figure, items: Sequence[LegendItem], tips: Tips = LINE_TIPS) -> None:
        legend = Legend(
            items=list(items),
            orientation="horizontal",
            click_policy="hide",
            background_fill_alpha=0.0,
            border_line_color=None,
            label_text_font_size=FONT,
            glyph_width=16,
            glyph_height=12,
            margin=0,
            spacing=14,
            nrows=-(-len(items) // LEGEND_ITEMS) or 1,
        )
        plot.add_layout(legend, "above")
        drawn: list[Any] = [renderer for item in items for renderer in item.renderers]
        plot.add_tools(HoverTool(renderers=drawn, tooltips=list(tips), mode="mouse", point_policy="snap_to_data"))
        if isinstance(plot.y_range, DataRange1d):
            plot.y_range.renderers = drawn  # what is shaded reaches from end to end

    def label(self, plot: Figure, x: float, from_top: float, words: str, colour: str | None = None) -> None:
        """To the right of `x`, or to its left where it would not fit; `from_top` is a part of the axis."""
        text_s = len(words) * TEXT_PX / FRAME_PX * self.until
        left = x + text_s > self.until
        label = Label(x=x, y=plot.y_range.end * (1 - from_top), text=words, text_font_size=FONT)
        label.text_align, label.x_offset = ("right", -6) if left else ("left", 6)
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
        return plot

    def _fits(self, bar: Bar) -> bool:
        return (bar.ended - bar.began) / self.until * FRAME_PX > len(bar.word) * TEXT_PX + 8


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
