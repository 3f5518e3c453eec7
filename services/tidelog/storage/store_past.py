"""The highest transaction id and controller epoch that a broker has seen, by which it knows a ZooKeeper from an older copy.

Such a store tells another past: it may lack topics that are still wanted. A file says so until an operator removes it.
"""

from collections.abc import Callable
from typing import Final

from tidelog.ports.disk import Disk
from tidelog.storage.checkpoint import Lines, encode_lines, number, read_lines, replace_file
from tidelog.storage.reserve import Reserve

SEEN_FILE: Final = "zookeeper-checkpoint"
ANOTHER_PAST_FILE: Final = "another-past"
PAST_FILES: Final = frozenset({SEEN_FILE, ANOTHER_PAST_FILE})


class StorePast:
    """Holds the highest values seen, in memory and in a file; a data directory of release 0.2.0 has none."""

    def __init__(self, disk: Disk, root: str, reserve: Reserve) -> None:
        self._disk = disk
        self._reserve = reserve
        self.path = f"{root}/{SEEN_FILE}"
        self.note_path = f"{root}/{ANOTHER_PAST_FILE}"
        self.zxid = 0
        """The transaction of the last write of this broker's witness that it knows of; 0: none."""
        self.controller_epoch = 0
        """Highest one of a controller that has given orders; 0: none."""
        self.problem: str | None = None
        """Says why it is not known how far the store had come."""
        self._written: tuple[int, int] | None = self._seen
        self._next = self._seen
        self._unwritten = ""
        """Says what could not be noted on disk."""
        self._read()

    def _read(self) -> None:
        try:
            read = read_lines(self._disk, self.path)
        except OSError as error:
            read = Lines([], f"{self.path}: cannot be read: {error}")
        if read.missing:
            return
        known = dict(line.partition(" ")[::2] for line in read.lines)
        try:
            self.zxid, self.controller_epoch = number(known["zxid"]), number(known["controller_epoch"])
            self._written = self._seen
        except (KeyError, ValueError):
            self.problem = read.problem or f"{self.path}: {read.lines} do not tell a zxid and a controller_epoch"
            self._written = None

    @property
    def _seen(self) -> tuple[int, int]:
        return self.zxid, self.controller_epoch

    # --- the file ---------------------------------------------------------------------------------------------------

    def next_file(self) -> Callable[[], bytes] | None:
        """Content for a caller that puts it in place, and then reports it by `installed`; None when nothing changed."""
        if self._seen == self._written:
            return None
        self._written, self._next = None, self._seen
        data = self._encoded()
        return lambda: data

    def save(self) -> None:
        """Puts it in place now, beside the checkpoints; OSError leaves it to the next one. Waits for the device."""
        self._reserve.lend(lambda: replace_file(self._disk, self.path, self._encoded()))

    def _encoded(self) -> bytes:
        return encode_lines([f"zxid {self.zxid}", f"controller_epoch {self.controller_epoch}"])

    def installed(self) -> None:
        """The last `next_file` is in place."""
        self._written = self._next

    # --- another past -----------------------------------------------------------------------------------------------

    @property
    def another(self) -> str:
        """Says, line by line, why nothing that is set aside may be deleted; "" when it may. May be asked in any thread."""
        if self._unwritten or self._disk.kind(self.note_path) is None:
            return self._unwritten
        try:
            return self._disk.read(self.note_path).decode(errors="replace").strip() or self.note_path
        except OSError as error:
            return f"{self.note_path}: {error}"

    def note(self, line: str) -> None:
        """Notes it on disk, and begins anew with what this store says: it is told once.

        OSError keeps the highest values seen, so that it is told again; until then it is noted in memory.
        """
        lines = f"{self.another}\n{line}\n".lstrip()
        self._unwritten = lines.strip()
        self._reserve.lend(lambda: replace_file(self._disk, self.note_path, lines.encode()))
        self._unwritten, self.problem = "", None
        self.zxid = self.controller_epoch = 0
