"""Numbers as people say them."""

import math

import pytest

from tidelog.chaos.report import units


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0 µs"),
        (0.00085, "850 µs"),
        (0.000999, "999 µs"),
        (0.0009999, "1 ms"),
        (0.00214, "2.14 ms"),
        (0.0999, "100 ms"),
        (0.5, "500 ms"),
        (0.9996, "1 s"),
        (2.144, "2.14 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min 00 s"),
        (185.2, "3 min 05 s"),
        (math.nan, "unknown"),
    ],
)
def test_seconds(value, said):
    assert units.seconds(value) == said


@pytest.mark.parametrize(("value", "said"), [(0, "0"), (1234567.0, "1,234,567"), (math.nan, "unknown")])
def test_counts(value, said):
    assert units.count(value) == said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "no faults"), (1, "1 fault"), (2, "2 faults"), (1200, "1,200 faults")]
)
def test_plurals(number, said):
    assert units.plural(number, "fault") == said
