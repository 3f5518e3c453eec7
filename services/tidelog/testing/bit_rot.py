"""Files of one broker that rot: a bit flips, or a sector cannot be read, while the broker runs or between two of its lives.

Some runs have this fault, with brokers that scrub all the time. One disk of a run rots, and a batch rots only while a loss of
power would leave it whole on another replica. So each acknowledged record can still be read in the end, and the rotten copy
is found, thrown away and fetched again without an operator.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from tidelog.errors import TidelogError
from tidelog.storage import epoch_journal
from tidelog.storage.data_dir import CLEAN_FILE, LIFE_FILE
from tidelog.storage.log_marks import MARK_FILES
from tidelog.storage.log_store import parse_folder_name
from tidelog.storage.producer_snapshot import SNAPSHOT_SUFFIX
from tidelog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX
from tidelog.testing import goals
from tidelog.testing.disk import SECTOR_BYTES
from tidelog.testing.rand import seeded
from tidelog.testing.sim_breaking import Breaking
from tidelog.testing.sim_cluster import SimCluster
from tidelog.wire.batch import whole_batch

SETTINGS: Final[Mapping[str, Any]] = {
    "log_scrub_interval_ms": 1_000,
    "log_flush_interval_ms": 500,
    "log_cleaner_enable": False,
}
"""Settings of the brokers in a run with this fault. What is not flushed is not scrubbed either."""
LIFE: Final = frozenset({CLEAN_FILE, LIFE_FILE})
WEIGHTS: Final = {"segment": 6, "cache": 2, "marks": 1, "journal": 1, "life": 1}
"""Weights of the kinds of files. Without the identity of the data directory no broker starts, so that one stays whole."""

EPOCH: Final = range(12, 16)
"""Bytes of a batch that hold its leader epoch. No checksum covers them, so a flipped bit there is not found reliably."""


class Batch(NamedTuple):
    position: int
    data: bytes


class BitRot(Breaking):
    """Draws from a stream of its own: runs without this fault are what they were before there was one."""

    def __init__(self, cluster: SimCluster, share: float) -> None:
        """`share` is that of the runs with this fault."""
        super().__init__(cluster, seeded(cluster.seed, "bit rot"))
        self.drawn = self._rand.random() < share
        self._node = self._one_of(cluster.brokers)
        self._struck: dict[str, int] = {}
        """Segments that have rotted: path -> times."""
        if self.drawn:
            cluster.world.rotting = self._node
            for node in cluster.brokers:
                node.settings = {**SETTINGS, **node.settings}

    def strike(self) -> bool:
        found: dict[str, list[str]] = {}
        for path, data in sorted(self._node.disk.image().items()):
            kind = self._kind_of(path)
            if data and kind is not None:
                found.setdefault(kind, []).append(path)
        if not found:
            return False
        kind = self._one_of([kind for kind in sorted(found) for _ in range(WEIGHTS[kind])])
        path = self._one_of(found[kind])
        size_bytes = len(self._node.disk.image()[path] or b"")
        position = self._rand.randrange(size_bytes)
        bit, sector = self._rand.randrange(8), position // SECTOR_BYTES
        flips = self._maybe()
        begin, end = (position, position + 1) if flips else (sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)
        if kind == "segment" and not flips and end > size_bytes:
            return False  # what is appended to the sector later has no other copy yet
        if kind == "segment" and not self._is_elsewhere(path, begin, end):
            return False
        if flips:
            self._say(f"bit {bit} of byte {position} of {path} flips on the disk of {self._node.name}", self._node.name)
            self._node.disk.flip_bit(path, position, bit)
        else:
            self._say(f"sector {sector} of {path} is unreadable on the disk of {self._node.name}", self._node.name)
            self._node.disk.lose_sector(path, sector)
        if kind == "segment":
            self._struck[path] = self._struck.get(path, 0) + 1
        return True

    def unhealed(self) -> list[str]:
        """Segments in use that are still rotten."""
        return [path for path in self._node.disk.rotten() if self._kind_of(path) == "segment"] if self.drawn else []

    def end(self) -> None:
        """All is healed that heals by itself: counts it, and replaces the disk for a whole one with the same files."""
        self._cluster.observer.reached[goals.ROTTEN] += len(self._struck)
        self._node.disk.restore()

    def _kind_of(self, path: str) -> str | None:
        rest = path.removeprefix("/data/").split("/")
        if len(rest) == 1:
            name = rest[0]
            if name in MARK_FILES:
                return "marks"
            return "journal" if name == epoch_journal.FILE_NAME else "life" if name in LIFE else None
        if len(rest) != 2 or (tp := parse_folder_name(rest[0])) is None:
            return None
        if rest[1].endswith((INDEX_SUFFIX, SNAPSHOT_SUFFIX)):
            return "cache"
        return "segment" if rest[1].endswith(LOG_SUFFIX) and tp.topic != self._cluster.world.compacted else None

    def _is_elsewhere(self, path: str, begin: int, end: int) -> bool:
        """A loss of power leaves each batch between these positions on another host."""
        data = self._node.disk.image()[path]
        assert data is not None
        folder = path.rpartition("/")[0]
        copies = [
            each
            for node in self._cluster.brokers
            if node is not self._node
            for other, each in node.disk.durable().items()
            if other.rpartition("/")[0] == folder and other.endswith(LOG_SUFFIX)
        ]
        touched = [each for each in _batches(data) if each.position < end and begin < each.position + len(each.data)]
        if end == begin + 1 and any(begin - each.position in EPOCH for each in touched):
            return False
        covered = sum(len(each.data) for each in touched)
        return covered >= end - begin and all(any(each.data in copy for copy in copies) for each in touched)


def _batches(data: bytes) -> Iterator[Batch]:
    """Whole batches from the start on."""
    at = 0
    while at < len(data):
        try:
            size_bytes = whole_batch(data, at).size_bytes
        except TidelogError:
            return
        yield Batch(at, data[at : at + size_bytes])
        at += size_bytes
