"""The plots of a run: words for a fault, and hatches where nothing was sampled."""

import pytest
from bokeh.models import ColumnDataSource

from tidelog.chaos.report import panels
from tidelog.chaos.report.canvas import NO_SAMPLE, Canvas
from tidelog.chaos.report.cluster_view import Line, Offsets, Span
from tidelog.chaos.report.timeline import FaultSpan, Timeline


def fault(name="kill", *steps, targets=("broker-1",), words="kill leader of 0"):
    return FaultSpan(1, words, name, targets, 2.0, *steps)


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (fault("kill", 2.5, 6.0, 6.5), "kill leader of 0 (broker-1) from 2.50 s to 6.50 s"),
        (fault("kill", 2.5, 6.0, 6.5, words="kill broker-1"), "kill broker-1 from 2.50 s to 6.50 s"),
        (fault("kill", 2.5), "kill leader of 0 (broker-1) from 2.50 s on, not healed when the record ends"),
        (fault("kill"), "kill leader of 0 (broker-1), begun at 2.00 s and not seen to take effect"),
        (fault("restart", 4.0, 9.0, 9.0), "kill leader of 0 (broker-1) from 2.00 s to 4.00 s"),
        (fault("crash", 2.0, 2.0, 2.0, targets=("m-1",), words="crash m-1"), "crash m-1 at 2.00 s"),
    ],
)
def test_a_fault_in_words(span, said):
    assert panels.told_of(span, 10.0) == said


def bars(panel):
    return [source.data for source in panel.figure.select({"type": ColumnDataSource}) if "state" in source.data]


def test_the_bar_of_a_fault_ends_with_it_and_names_the_target():
    spans = (fault("kill", 2.5, 6.0, 6.5), fault("restart", 4.0, 9.0, 9.0, targets=("broker-0", "broker-1")))
    panel = panels.faults(Canvas(10.0, spans), Timeline(10.0, spans), 9, [(3.0, "unseen")])
    found = {
        word: (left, right)
        for data in bars(panel)
        for word, left, right in zip(data["state"], data["left"], data["right"], strict=True)
    }
    assert found["kill broker-1"] == (2.5, 6.5) and found["restart broker-0 and 1 more"] == (2.0, 4.0)
    assert any(data["row"] == ["anomaly"] and list(data["left"]) == [3.0] for data in bars(panel))


def hatched(panel):
    glyphs = [each for each in panel.figure.renderers if getattr(each.glyph, "hatch_pattern", None)]
    return [(each.data_source.data["left"], each.data_source.data["right"]) for each in glyphs]


def test_a_row_without_samples_is_hatched_and_the_legend_says_so():
    spans = [Span("g", "Stable", 0.2, 4.0), Span("g", "Stable", 7.0, 9.5)]
    panel = panels.groups(Canvas(10.0, ()), spans)
    assert hatched(panel) == [([4.0], [7.0])] and panel.keys[-1] == NO_SAMPLE
    whole = panels.groups(Canvas(10.0, ()), [Span("g", "Stable", 0.2, 9.5)])
    assert hatched(whole) == [] and NO_SAMPLE not in whole.keys


def test_offsets_are_hatched_where_no_broker_answered():
    line = Line("broker-1", (0.0, 2.0, 8.0), (1.0, 2.0, 3.0))
    panel = panels.offsets(Canvas(10.0, ()), Offsets(("t", 0), Line("HW", (), ()), (line,)), ["broker-1"])
    assert hatched(panel) == [([2.0], [8.0])] and panel.keys[-1] == NO_SAMPLE
