"""What is in a segment file, for `tidelog log dump`: read-only, and it goes on as far as the bytes make sense."""

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.errors import TidelogError
from tidelog.ports.disk import Disk
from tidelog.storage.recovery import BatchWindow
from tidelog.storage.segment import parse_segment_name
from tidelog.wire.batch import HEADER_BYTES, BatchHeader, read_header, whole_batch


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One batch, or the place where the file stops making sense."""

    position: int
    header: BatchHeader | None
    """None when there are too few bytes for one."""
    problem: str | None = None
    """Why the batch is not valid; the dump ends here."""


def dump_segment(disk: Disk, path: str) -> Iterator[BatchLine]:
    """Every batch of the file at `path`; the last line has a `problem` when the file does not end with a whole batch.

    OSError when the file cannot be read.
    """
    file = disk.open(path, read_only=True)
    try:
        size = file.size()
        expected = parse_segment_name(path.rpartition("/")[2])
        window = BatchWindow(file, size)
        position = 0
        while position < size:
            data, at = window.batch_at(position)
            try:
                header = whole_batch(data, at)
            except TidelogError as error:
                yield BatchLine(
                    position, read_header(data, at) if len(data) - at >= HEADER_BYTES else None, error.message
                )
                return
            if expected is not None and header.base_offset != expected:
                yield BatchLine(position, header, f"base_offset: {header.base_offset} where {expected} is next")
                return
            yield BatchLine(position, header)
            position += header.size_bytes
            expected = header.end_offset
    finally:
        file.close()
