"""The sources of a run: seeded events with skew, and lines of any bytes with bounded memory."""

import io
import json
from collections import Counter
from random import Random

import pytest

from tidelog.demo.records import lines, order_events


def test_events_repeat_with_their_seed_and_are_json():
    once = list(order_events(500, Random(7), 0))
    assert once == list(order_events(500, Random(7), 0))
    assert once != list(order_events(500, Random(8), 0))
    assert [record.done for record in once] == list(range(1, 501))
    for record in once:
        assert record.key == json.loads(record.value)["customer"].encode()


def test_keys_are_skewed():
    keys = Counter(record.key for record in order_events(20_000, Random(1), 0))
    hottest = sum(count for _, count in keys.most_common(50))
    assert 0.15 < hottest / 20_000 < 0.35


@pytest.mark.parametrize(
    "data, values",
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\x00\xff\r\n\x80", [b"\x00\xff\r", b"\x80"]),
        (b"12345678\n", [b"12345678"]),
        (b"12345678", [b"12345678"]),
    ],
)
def test_lines_are_bytes_without_their_newline(data, values):
    found = list(lines(io.BytesIO(data), 8))
    assert [record.value for record in found] == values
    assert not any(record.too_long_bytes for record in found)
    assert not data or found[-1].done == len(data)


@pytest.mark.parametrize("length", [9, 10, 16, 17, 24, 100])
@pytest.mark.parametrize("end", [b"", b"\n", b"\nnext"])
def test_a_line_over_the_limit_is_counted_and_skipped(length, end):
    data = b"first\n" + b"x" * length + end
    found = list(lines(io.BytesIO(data), 8))
    assert [r.too_long_bytes for r in found] == [0, length] + ([0] if end == b"\nnext" else [])
    assert [r.value for r in found if not r.too_long_bytes] == [b"first"] + ([b"next"] if end == b"\nnext" else [])
    assert found[-1].done == len(data)
