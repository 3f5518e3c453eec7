"""The comparison must see each way in which a log can break its promise."""

from pathlib import Path

import pytest

from tidelog.chaos.ledger import Findings, Ledger, Outcome, PartitionCheck, digest

RECORDS = [(None, f"value {n}".encode()) for n in range(10)]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Ten records; even numbers acked in partition 0 at offsets 0 to 4, odd ones in partition 1."""
    made = Ledger(tmp_path / "ledger", writable=True)
    for number, (key, value) in enumerate(RECORDS):
        assert made.sent(digest(key, value)) == number
        made.acked(number, number % 2, number // 2)
    made.close()
    return Ledger.open(tmp_path / "ledger")


def found(
    ledger: Ledger, rows: list[tuple[int, int]], partition: int = 0, feeds: int = 1, **changed: bytes
) -> Findings:
    """`rows` are (offset, number) as read; `changed` replaces values by number (n3=...)."""
    check = PartitionCheck(ledger.entries, partition)
    size = max(1, -(-len(rows) // feeds))
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        values = [changed.get(f"n{n}", RECORDS[n][1] if 0 <= n < 10 else b"?") for _, n in part]
        check.feed([o for o, _ in part], [n for _, n in part], [digest(None, v) for v in values])
    return check.finish()


WHOLE = [(0, 0), (1, 2), (2, 4), (3, 6), (4, 8)]


@pytest.mark.parametrize("feeds", [1, 2, 5])
def test_a_whole_partition_is_sound(ledger, feeds):
    assert found(ledger, WHOLE, feeds=feeds) == Findings(read=5)
    assert found(ledger, WHOLE, feeds=feeds).sound


@pytest.mark.parametrize("feeds", [1, 2, 5])
@pytest.mark.parametrize(
    "rows, expected",
    [
        (WHOLE[:-1], Findings(read=4, lost=1)),
        (WHOLE[1:], Findings(read=4, lost=1)),
        ([], Findings(lost=5)),
        ([(0, 0), (1, 4), (2, 2), (3, 6), (4, 8)], Findings(read=5, out_of_order=1, misplaced=2)),
        ([*WHOLE, (5, 1)], Findings(read=6, foreign=1, out_of_order=1)),
        ([*WHOLE, (5, 99)], Findings(read=6, foreign=1)),
        ([*WHOLE, (5, -1)], Findings(read=6, foreign=1)),
        ([(o + 1, n) for o, n in WHOLE], Findings(read=5, misplaced=5)),
    ],
)
def test_what_breaks_the_promise_is_seen(ledger, rows, expected, feeds):
    assert found(ledger, rows, feeds=feeds) == expected
    assert not expected.sound


@pytest.mark.parametrize("feeds", [1, 3, 7])
def test_a_batch_that_was_sent_twice_is_duplicated_and_not_out_of_order(tmp_path, feeds):
    # The answer to 1 and 2 was lost: they were appended at 1 and 2, and again, acked there, at 3 and 4.
    ledger = Ledger(tmp_path / "ledger", writable=True)
    for number, offset in enumerate((0, 3, 4, 5)):
        ledger.sent(digest(*RECORDS[number]))
        ledger.acked(number, 0, offset)
    ledger.close()
    got = found(ledger, [(0, 0), (1, 1), (2, 2), (3, 1), (4, 2), (5, 3)], feeds=feeds)
    assert got == Findings(read=6, duplicated=2)
    assert not got.sound, "producers are idempotent (HOLE-28)"


def test_a_changed_value_is_seen(ledger):
    assert found(ledger, WHOLE, n4=b"value 5") == Findings(read=5, altered=1)


def test_a_refused_record_must_not_be_there_and_an_unanswered_one_may(tmp_path):
    ledger = Ledger(tmp_path / "ledger", writable=True)
    for key, value in RECORDS[:3]:
        ledger.sent(digest(key, value))
    ledger.acked(0, 0, 0)
    ledger.refused(1)
    ledger.close()
    assert found(ledger, [(0, 0)]).sound
    assert found(ledger, [(0, 0), (1, 2)]) == Findings(read=2)
    assert found(ledger, [(0, 0), (1, 1)]) == Findings(read=2, foreign=1)


def test_the_ledger_grows_and_its_file_holds_what_was_sent(tmp_path):
    ledger = Ledger(tmp_path / "ledger", writable=True)
    for number in range(70_000):
        ledger.sent(number)
    ledger.acked(69_999, 3, 77)
    ledger.close()
    again = Ledger.open(tmp_path / "ledger")
    assert len(again) == 70_000
    assert again.entries[69_999].tolist() == (69_999, 77, 3, 1)
    assert again.entries[65_535]["digest"] == 65_535


def test_an_empty_ledger_can_be_closed_and_compared(tmp_path):
    ledger = Ledger(tmp_path / "ledger", writable=True)
    ledger.close()
    assert found(Ledger.open(tmp_path / "ledger"), []) == Findings()


def test_a_digest_tells_null_from_empty_and_where_a_key_ends():
    shapes = [(None, None), (None, b""), (b"", None), (b"", b""), (b"ab", b"c"), (b"a", b"bc"), (None, b"abc")]
    assert len({digest(*shape) for shape in shapes}) == len(shapes)


def test_a_closed_ledger_keeps_no_file_open_whoever_looks_at_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", writable=True)
    ledger.acked(ledger.sent(digest(b"k", b"v")), 0, 5)
    ledger.close()
    held = ledger.entries
    assert ledger.count(Outcome.ACKED) == len(held) == 1
    assert (tmp_path / "ledger") not in [link.resolve() for link in Path("/proc/self/fd").iterdir()]
