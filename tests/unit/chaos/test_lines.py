"""Files of a run on a disk without room."""

from pathlib import Path

import pytest

from tidelog.chaos.lines import Lines

FULL = Path("/dev/full")
"""A device of Linux on which each write fails for want of room."""


@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_fails_at_the_flush_and_not_at_a_write(buffered: bool) -> None:
    lines = Lines(FULL, buffered=buffered)
    for _ in range(3):
        lines.write("x" * Lines.BUFFER_BYTES)
    for end in (lines.flush, lines.flush, lines.close):
        with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
            end()


def test_what_is_left_in_the_buffer_is_missed_at_the_end() -> None:
    lines = Lines(FULL)
    lines.write("x")
    with pytest.raises(OSError, match="No space left"):
        lines.close()


def test_lines_that_are_not_buffered_are_there_at_once(tmp_path: Path) -> None:
    for buffered, text in ((True, ""), (False, "a\n")):
        lines = Lines(tmp_path / "lines", buffered=buffered)
        lines.write("a")
        assert (tmp_path / "lines").read_text() == text
        lines.close()
        assert (tmp_path / "lines").read_text() == "a\n"
