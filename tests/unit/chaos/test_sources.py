"""The sources of a load: seeded events with skew, lines of any bytes with bounded memory, and the names of their records."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tidelog.chaos.sources import SEQUENCE, SEQUENCE_HEADER, Checked, Lines, Numbers, Orders, checked, name_of


def test_numbered_values_share_keys_in_turn() -> None:
    first, second, third = islice(Numbers("p-", keys=2), 3)
    assert [each.name for each in (first, second, third)] == ["p-0", "p-1", "p-2"]
    assert [each.key for each in (first, second, third)] == [b"0", b"1", b"0"]
    assert first.value == b"p-0"


@pytest.mark.parametrize("size, length", [(0, 22), (22, 22), (100, 100)])
def test_a_checked_value_names_itself(size: int, length: int) -> None:
    (_, _, third) = islice(Checked("p-1-", 2, size, lambda: 1_600_000_000_123), 3)
    assert (third.name, third.key, third.timestamp_ms, len(third.value)) == ("p-1-2", b"0", 1_600_000_000_123, length)
    for timestamp_ms in (1_600_000_000_123, None):  # a broker may set its own
        assert name_of(third.key, third.value, third.headers, timestamp_ms) == "p-1-2"


VALUE = checked("p-1-2", 40, b"k", (), 5)


@pytest.mark.parametrize(
    "key, value, headers, timestamp_ms",
    [
        *((b"k", VALUE[:cut], (), 5) for cut in range(40)),
        *((b"k", VALUE[:at] + bytes([VALUE[at] ^ 1]) + VALUE[at + 1 :], (), 5) for at in range(40)),
        (b"k", VALUE + b".", (), 5),
        (b"k", None, (), 5),
        (None, VALUE, (), 5),
        (b"", VALUE, (), 5),
        (b"K", VALUE, (), 5),
        (b"k", VALUE, (("h", b""),), 5),
        (b"k", VALUE, (("h", None),), 5),
        (b"k", VALUE, (), 6),
    ],
)
def test_an_altered_record_is_no_value_that_was_sent(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...], timestamp_ms: int
) -> None:
    assert name_of(b"k", VALUE, (), 5) == "p-1-2"
    assert name_of(key, value, headers, timestamp_ms).startswith("?")


def test_events_repeat_with_their_seed_and_are_json() -> None:
    source = Orders(500, Random(7), 0)
    once = list(source)
    assert once == list(Orders(500, Random(7), 0)) != list(Orders(500, Random(8), 0))
    assert source.part == 1.0
    for record in once:
        assert record.key == json.loads(record.value)["customer"].encode()


def test_keys_are_skewed() -> None:
    keys = Counter(record.key for record in Orders(20_000, Random(1), 0))
    hottest = sum(count for _, count in keys.most_common(50))
    assert 0.15 < hottest / 20_000 < 0.35


def lines(folder: Path, data: bytes) -> Lines:
    path = folder / "input"
    path.write_bytes(data)
    return Lines(path, 8)


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
def test_lines_are_bytes_without_their_newline(data: bytes, values: list[bytes], tmp_path: Path) -> None:
    source = lines(tmp_path, data)
    found = list(source)
    assert [record.value for record in found] == values
    assert not any(record.refused for record in found) and source.part == 1.0


@pytest.mark.parametrize("length", [9, 10, 16, 17, 24, 100])
@pytest.mark.parametrize("end", [b"", b"\n", b"\nnext"])
def test_a_line_over_the_limit_is_named_and_skipped(length: int, end: bytes, tmp_path: Path) -> None:
    source = lines(tmp_path, b"first\n" + b"x" * length + end)
    found = list(source)
    assert [record.refused for record in found] == [False, True] + [False] * (end == b"\nnext")
    assert [record.value for record in found if not record.refused] == [b"first"] + [b"next"] * (end == b"\nnext")
    assert source.part == 1.0


def test_a_source_says_how_much_of_it_was_taken(tmp_path: Path) -> None:
    for source in (Orders(4, Random(1), 0), lines(tmp_path, b"a\nb\nc\nd\n")):
        records = iter(source)
        next(records)
        next(records)
        assert source.part == 0.5


SEVEN = (SEQUENCE_HEADER, SEQUENCE.pack(7))


@pytest.mark.parametrize(
    "key, value, more",
    [
        *((key, b"v", ()) for key in (b"other", None, b"")),
        *((b"k", value, ()) for value in (b"other", None, b"")),
        (b"kv", b"", ()),
        (b"k", b"v", (("h", None),)),
    ],
)
def test_a_record_that_was_altered_has_another_name(
    key: bytes | None, value: bytes | None, more: tuple[tuple[str, bytes | None], ...]
) -> None:
    sent = name_of(b"k", b"v", [SEVEN], 0)
    assert sent.startswith("7:") and name_of(key, value, [SEVEN, *more], 0) != sent
    assert name_of(b"k", b"v", [SEVEN], 1) == sent, "a line has the time at which it was sent"


@pytest.mark.parametrize(
    "headers", [[], [("other", SEQUENCE.pack(7))], [SEVEN, SEVEN], [(SEQUENCE_HEADER, b"7")], [(SEQUENCE_HEADER, None)]]
)
def test_a_number_is_read_only_from_the_one_header(headers: list[tuple[str, bytes | None]]) -> None:
    assert name_of(b"k", b"7:0", headers, 0).startswith("?7:0:")
    assert name_of(b"k", b"v" * 300, headers, 0).startswith(f"?{'v' * 200}:")
