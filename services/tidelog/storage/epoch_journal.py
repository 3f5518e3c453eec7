"""The epoch histories of all logs of a broker in one journal file: a group of changes costs one append and one sync.

Every line carries its CRC-32C. A line that is lost with the power is no loss: an epoch with records is found again in
their batch headers (recovery reads them from the recovery point on, and that never passes an unsynced line), and one
without records has committed nothing.
"""

import errno
from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from tidelog.ports.disk import Disk, DiskFile
from tidelog.storage.checkpoint import LogKey, number, replace_file
from tidelog.storage.epoch_cache import EpochCache

FILE_NAME: Final = "leader-epoch-journal"
_COMPACT_LINES_MIN: Final = 1000


class EpochJournal:
    """The one writer of every log's `EpochCache`. Opening replays the file; `settle` ends the start."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE_NAME}"
        self._caches: dict[LogKey, EpochCache] = {}
        self._unwritten: list[bytes] = []
        self.problem: str | None = None
        """Set when a line in the middle was bad: histories may have gaps, so every log is read from its start."""
        self._lines = 0
        self._failed = False
        self._unsynced = False
        self._file = self._replay()

    def _replay(self) -> DiskFile:
        try:
            data = self._disk.read(self._path)
        except FileNotFoundError:
            replace_file(self._disk, self._path, b"")
            return self._disk.open(self._path)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.problem = f"{self._path}: it cannot be read: {error}; every log is read from its start"
            return self._disk.open(self._path)
        good_bytes = 0
        lines = data.split(b"\n")
        for at, line in enumerate(lines[:-1]):
            if not self._apply(line):
                if any(_payload(later) is not None for later in lines[at + 1 :]):
                    self.problem = f"{self._path}: line {at + 1} is damaged; every log is read from its start"
                break
            good_bytes += len(line) + 1
            self._lines += 1
        file = self._disk.open(self._path)
        if good_bytes < len(data) and not self.problem:
            file.truncate(good_bytes)  # a torn tail: appending behind it would hide what follows
        return file

    def settle(self) -> None:
        """When every log has been opened: the histories are durable, a damaged or long file is replaced.

        Not earlier, or a crash during recovery would leave a file that looks whole and has gaps.
        """
        if self.problem or self._lines > _COMPACT_LINES_MIN + 4 * self._entry_count():
            self.rewrite()
        else:
            self.commit()

    def rewrite(self) -> None:
        """A new file from what is in memory, which is the whole truth; it also takes the place of one that has failed."""
        lines = [_line("a", key, *entry) for key, cache in self._caches.items() for entry in cache.entries]
        replace_file(self._disk, self._path, b"".join(lines))
        self._file.close()
        self._file = self._disk.open(self._path)
        self._unwritten.clear()
        self._lines = len(lines)
        self._failed = False

    def _entry_count(self) -> int:
        return sum(len(cache.entries) for cache in self._caches.values())

    def _apply(self, line: bytes) -> bool:
        payload = _payload(line)
        if payload is None:
            return False
        try:
            verb, topic, partition, topic_id, *numbers = payload.split(" ")
            key = LogKey(topic, number(partition), bytes.fromhex(topic_id))
            match verb, [number(n) for n in numbers]:
                case "a", [epoch, start]:
                    self.history(key).assign(epoch, start)
                case "t", [end]:
                    self.history(key).truncate_from(end)
                case "d", []:
                    self._caches.pop(key, None)
                case _:
                    return False
        except ValueError:
            return False
        return True

    # --- changes ------------------------------------------------------------------------------------------------

    def history(self, key: LogKey) -> EpochCache:
        """The log's own history; changed only through this journal."""
        return self._caches.setdefault(key, EpochCache())

    def logs(self) -> list[LogKey]:
        return list(self._caches)

    def assign(self, key: LogKey, epoch: int, start: int) -> None:
        if self.history(key).assign(epoch, start):
            self._unwritten.append(_line("a", key, epoch, start))

    def truncate_from(self, key: LogKey, end: int) -> None:
        if self.history(key).truncate_from(end):
            self._unwritten.append(_line("t", key, end))

    def replace(self, key: LogKey, history: EpochCache) -> None:
        """What recovery found, where it differs."""
        if self.history(key).entries != history.entries:
            self.truncate_from(key, 0)
            for epoch, start in history.entries:
                self.assign(key, epoch, start)

    def forget(self, key: LogKey) -> None:
        if self._caches.pop(key, None) is not None:
            self._unwritten.append(_line("d", key))

    # --- durability ---------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Hands the collected lines to the kernel. OSError ends the journal: a later line would follow a torn one."""
        self._check()
        if self._unwritten:
            data = b"".join(self._unwritten)
            self._unwritten.clear()
            self._failing(lambda: self._file.append([data]))
            self._unsynced = True

    def sync(self) -> None:
        """Makes written lines durable; may run beside the owner. Never tried again after an OSError."""
        self._check()
        if self._unsynced:
            self._unsynced = False  # what is written meanwhile sets it again
            self._failing(self._file.sync)

    @property
    def failed(self) -> bool:
        return self._failed

    def _check(self) -> None:
        if self._failed:
            raise OSError(errno.EIO, "an earlier write or sync failed", self._path)

    def _failing(self, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError:
            self._failed = True
            raise

    def commit(self) -> None:
        """Every change so far is durable: one append and one sync, whatever their number."""
        self.write()
        self.sync()

    def close(self) -> None:
        self._file.close()


def _line(verb: str, key: LogKey, *numbers: int) -> bytes:
    payload = " ".join([verb, key.topic, str(key.partition), key.topic_id.hex(), *map(str, numbers)]).encode()
    return f"{crc32c(payload):08x} ".encode() + payload + b"\n"


def _payload(line: bytes) -> str | None:
    crc, _, payload = line.partition(b" ")
    if not payload or crc != f"{crc32c(payload):08x}".encode():
        return None
    return payload.decode(errors="replace")
