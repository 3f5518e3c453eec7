"""Small files that are replaced as a whole: a reader finds the old one or the new one, never a mix.

Text: a version line, a count line, the lines, and a last line with the CRC-32C of all above. Written to a temporary file,
synced, renamed, and the directory synced (reliability 8.1, MUT-21).
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.disk import Disk

VERSION: Final = 1
OFFSET_MAX: Final = 2**63 - 1
_NUMBER_DIGITS_MAX: Final = 19


class LogKey(NamedTuple):
    """Names one partition's log. The topic id tells it from a log of a deleted topic of the same name (HOLE-10)."""

    topic: str
    partition: int
    topic_id: bytes

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Lines(NamedTuple):
    """What a checkpoint held. `problem` says why it was read as empty; a missing file is no problem."""

    lines: list[str]
    problem: str | None = None
    missing: bool = False


def encode_lines(lines: Sequence[str]) -> bytes:
    body = "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode()
    return body + f"{crc32c(body):08x}\n".encode()


def write_lines(disk: Disk, path: str, lines: Sequence[str]) -> None:
    """Durable when it returns; OSError leaves the old file in force."""
    replace_file(disk, path, encode_lines(lines))


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Puts a new content in place, atomically and durably."""
    write_beside(disk, f"{path}.tmp", data)
    disk.rename(f"{path}.tmp", path)
    disk.sync_dir(path.rpartition("/")[0])


def write_beside(disk: Disk, temporary: str, data: bytes) -> None:
    """A new file whose bytes are durable before it gets its real name: never the other way round (MUT-21)."""
    if disk.kind(temporary) is not None:
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append([data])
        file.sync()
    except OSError:
        with suppress(OSError):  # what is half written takes space
            disk.remove(temporary)
        raise
    finally:
        file.close()


def read_lines(disk: Disk, path: str) -> Lines:
    """Missing, bad or unreadable reads as empty. A version from the future is refused: guessing would lose what it protects."""
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return Lines([], missing=True)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return Lines([], f"{path}: it cannot be read: {error}; read as empty")
    body, _, crc = data.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    if crc != f"{crc32c(body):08x}".encode():
        return Lines([], f"{path}: the checksum does not fit; read as empty")
    version, count, *lines = body.decode(errors="replace").splitlines()
    if version != str(VERSION):
        raise TidelogError(
            f"{path}: version {version} is not known here (only {VERSION}); start the release that wrote it",
            ErrorCode.KAFKA_STORAGE_ERROR,
        )
    if count != str(len(lines)):
        return Lines([], f"{path}: {len(lines)} lines where {count} are announced; read as empty")
    return Lines(lines)


class OffsetCheckpoint:
    """One offset for each log of a broker, in one file: high watermarks, or recovery points.

    The whole file is read first and entries that an update does not name are carried over (HOLE-08).
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        read = read_lines(disk, path)
        self._offsets, self.problem = _parse_offsets(read, path)
        self.found = not read.missing
        self.complete = self.found and not self.problem
        """The file was there and good: a log that it does not name had no offset."""
        self._written: dict[LogKey, int] | None = dict(self._offsets) if self.complete else None
        """The content of the file; None while it is unknown or bad. A file without entries is also written once."""
        self._next: dict[LogKey, int] | None = None
        """Content that may take its place at any time; None: none."""
        self._changed = False
        """Offsets may differ from what was written or asked for last; if not, nothing needs to be compared."""
        self._replaced: dict[LogKey, int] = {}
        """Content that a loss of power may bring back."""

    def get(self, key: LogKey) -> int:
        """0 for a log that is not named (HOLE-35)."""
        return self._offsets.get(key, 0)

    def stored(self) -> Mapping[LogKey, int]:
        """What the file in place says; nothing while that is not known."""
        return dict(self._written or {})

    def durable(self, key: LogKey) -> int:
        """The offset of a log in the file in place; 0 if the file names none, or its content is not known."""
        return 0 if self._written is None else self._written.get(key, 0)

    def exceeds(self, key: LogKey, offset: int) -> bool:
        """Answers whether more is known of a log, or may be in the file after a crash."""
        if self._written is None:
            return True
        maybe = (self._offsets, self._written, self._next or {}, self._replaced)
        return any(each.get(key, 0) > offset for each in maybe)

    def names_synced(self) -> None:
        """The name of what is in place is durable."""
        self._replaced = {}

    def tells(self, key: LogKey, offset: int) -> bool:
        """True if the file says so after every crash."""
        if self._written is None:
            return False
        maybe = [self._written] + [each for each in (self._next, self._replaced) if each]
        return all(each.get(key, 0) == offset for each in maybe)

    def update(self, offsets: Mapping[LogKey, int]) -> None:
        self._changed = True
        self._offsets.update(offsets)

    def forget(self, key: LogKey) -> None:
        self._changed = True
        self._offsets.pop(key, None)

    def logs(self) -> list[LogKey]:
        return list(self._offsets)

    def write(self) -> None:
        """Durable when it returns. Writes nothing when nothing changed, and the file is durable."""
        if self._offsets != self._written or self._replaced:
            replace_file(self._disk, self.path, _encoded(self._offsets))
            self._written, self._next, self._replaced = dict(self._offsets), None, {}
            self._changed = False

    def next_file(self) -> Callable[[], bytes] | None:
        """Content for a caller that puts it in place, when the names of the folder are durable, and then reports it by
        `installed`; None when nothing changed. It is made in any thread, as ten thousand lines take their time."""
        if self._next is not None:  # it was given up, and may be in place or not
            for key, offset in [*(self._written or {}).items(), *self._next.items()]:
                self._replaced[key] = max(offset, self._replaced.get(key, 0))
            self._written = None
        if self._written is not None and (not self._changed or self._offsets == self._written):
            return None
        self._next, self._changed = dict(self._offsets), False
        return partial(_encoded, self._next)

    def installed(self) -> None:
        """The last `next_file` is in place, and nothing was written since it was asked for."""
        if self._written is not None:
            self._replaced = self._written
        self._written, self._next = self._next, None


def _encoded(offsets: Mapping[LogKey, int]) -> bytes:
    return encode_lines([f"{k.topic} {k.partition} {k.topic_id.hex()} {o}" for k, o in offsets.items()])


def _parse_offsets(read: Lines, path: str) -> tuple[dict[LogKey, int], str | None]:
    offsets: dict[LogKey, int] = {}
    for line in read.lines:
        entry = parse_entry(line)
        if entry is None or entry[0] in offsets:
            return {}, f"{path}: {line!r} is not a new `topic partition topic-id offset`; read as empty"
        offsets[entry[0]] = entry[1]
    return offsets, read.problem


def parse_entry(line: str) -> tuple[LogKey, int] | None:
    """`topic partition topic-id offset`; None when it is not."""
    fields = line.split(" ")
    if len(fields) != 4:
        return None
    topic, partition, topic_id, offset = fields
    try:
        key = LogKey(topic, number(partition), bytes.fromhex(topic_id))
        return key, number(offset)
    except ValueError:
        return None


def number(text: str) -> int:
    """A count from 0 to 2^63 - 1 in plain digits; ValueError otherwise."""
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX and int(text) <= OFFSET_MAX):
        raise ValueError(f"{text!r} is not a number from 0 to {OFFSET_MAX}")
    return int(text)
