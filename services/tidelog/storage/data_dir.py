"""Whose data directory this is, who uses it now, and what it may have lost since it was last used.

The clean-shutdown marker is written last, when everything is flushed, and removed before anything is loaded; what it said
is remembered in memory (KAFKA-10471, MUT-22). The boot id tells a killed process, which loses nothing, from a loss of power.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.disk import Disk, DiskLock, EntryKind
from tidelog.ports.rand import Rand
from tidelog.storage.checkpoint import number, read_lines, write_lines

LOCK_FILE: Final = ".lock"
IDENTITY_FILE: Final = "identity"
LIFE_FILE: Final = "incarnation"
CLEAN_FILE: Final = ".clean-shutdown"
OWN_FILES: Final = frozenset({LOCK_FILE, IDENTITY_FILE, LIFE_FILE, CLEAN_FILE})
_NONE: Final = "-"
_MARKED: Final = "marked yes"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a data directory belongs to. `directory_id` is new when the directory is: a wiped disk has another."""

    cluster_id: str
    broker_id: int
    directory_id: bytes


def intact_since_after_start(previous: int | None, *, was_clean: bool, same_boot: bool, damaged: bool) -> int | None:
    """The first broker epoch since which the directory has lost nothing, or None: since the coming registration.

    Kept over a clean stop and over the death of a process whose kernel lives on. Reset by a loss of power, by a new
    directory (it has no previous one) and by damage. The last member of an in-sync set may lead by itself only if this
    is not newer than its epoch there, so that a power loss does not launder a cut log (design section 3).
    """
    return previous if (was_clean or same_boot) and not damaged else None


class DataDir:
    """The locked directory of one broker, from `open` to `release`."""

    def __init__(self, disk: Disk, root: str, lock: DiskLock) -> None:
        self._disk = disk
        self._root = root
        self._lock = lock
        self._boot = disk.boot_id()
        self.identity = Identity("", -1, b"")
        self.fresh = False
        """Nothing was here: made now."""
        self.was_clean = False
        self.same_boot = False
        self.power_lost = False
        """Unsynced bytes may be missing; stays so until a recovery has run to its end."""
        self.marked = False
        """Each batch here that was changed before it was stored says so. This release and later ones see to it."""
        self.marks = False
        """It will be so, but for batches that the snapshots of producers tell of: after a clean stop of another release."""
        self.previous_intact_since: int | None = None
        self.clean_broker_epoch: int | None = None
        """The broker epoch that the clean-shutdown marker names."""
        self.problems: list[str] = []

    @classmethod
    def open(cls, disk: Disk, root: str, *, cluster_id: str, broker_id: int, rand: Rand) -> "DataDir":
        """Locks and identifies; makes what is missing.

        INVALID_CONFIG for a directory of another cluster or broker or in use, KAFKA_STORAGE_ERROR for a damaged one.
        """
        if " " in cluster_id or "\n" in cluster_id or not cluster_id:
            raise ValueError(f"cluster id {cluster_id!r} must be one word")
        root = root.rstrip("/")
        _make_dirs(disk, root)
        try:
            lock = disk.lock(f"{root}/{LOCK_FILE}")
        except BlockingIOError as error:
            raise TidelogError(
                f"data directory {root} is in use by another process; stop it, or give this broker its own directory",
                ErrorCode.INVALID_CONFIG,
            ) from error
        found = cls(disk, root, lock)
        try:
            found._identify(cluster_id, broker_id, rand)
            found._read_last_life()
        except (OSError, TidelogError):
            lock.release()
            raise
        return found

    def _identify(self, cluster_id: str, broker_id: int, rand: Rand) -> None:
        path = f"{self._root}/{IDENTITY_FILE}"
        read = read_lines(self._disk, path)
        known = dict(line.partition(" ")[::2] for line in read.lines)
        if read.problem or (read.lines and set(known) != {"cluster", "broker", "directory"}):
            raise TidelogError(
                f"{path} is damaged; if {self._root} is broker {broker_id}'s, move it away and start again: the broker "
                "fetches its partitions from the other replicas",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        if not read.lines:
            self._found(path, Identity(cluster_id, broker_id, rand.randbytes(16)))
            return
        if (known["cluster"], known["broker"]) != (cluster_id, str(broker_id)):
            raise TidelogError(
                f"data directory {self._root} belongs to broker {known['broker']} of cluster {known['cluster']!r}, this is "
                f"broker {broker_id} of cluster {cluster_id!r}; set the right directory, or move this one away",
                ErrorCode.INVALID_CONFIG,
            )
        self.identity = Identity(cluster_id, broker_id, bytes.fromhex(known["directory"]))

    def _found(self, path: str, identity: Identity) -> None:
        folders = [e.name for e in self._disk.list_dir(self._root) if e.kind is EntryKind.DIRECTORY and "-" in e.name]
        if folders:
            raise TidelogError(
                f"{self._root} has no {IDENTITY_FILE} file but holds {folders[0]!r} and more; it is not a data directory "
                "of this broker, or it is damaged: move it away and start again",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        lines = [
            f"cluster {identity.cluster_id}",
            f"broker {identity.broker_id}",
            f"directory {identity.directory_id.hex()}",
        ]
        write_lines(self._disk, path, lines)
        self.identity = identity
        self.fresh = True

    def _read_last_life(self) -> None:
        read = read_lines(self._disk, f"{self._root}/{LIFE_FILE}")
        life = dict(line.partition(" ")[::2] for line in read.lines)
        clean = read_lines(self._disk, f"{self._root}/{CLEAN_FILE}")
        self.problems += [problem for problem in (read.problem, clean.problem) if problem]
        marker = dict(line.partition(" ")[::2] for line in clean.lines)
        self.was_clean = "broker_epoch" in marker or self.fresh
        self.clean_broker_epoch = _optional(marker.get("broker_epoch", _NONE))
        self.marked = self.fresh or life.get("marked") == "yes"
        self.marks = self.marked or self.was_clean
        self.same_boot = life.get("boot") == self._boot
        self.power_lost = not self.was_clean and (not self.same_boot or life.get("recovered") != "yes")
        self.previous_intact_since = _optional(life.get("intact_since", _NONE))

    def begin_life(self) -> None:
        """Before anything is loaded. `forget_clean_stop` must follow, also where this cannot be written: then the next start may
        take a kill of this process for a loss of power."""
        intact = intact_since_after_start(
            self.previous_intact_since, was_clean=self.was_clean, same_boot=not self.power_lost, damaged=False
        )
        self._write_life(intact, recovered=not self.power_lost)

    def forget_clean_stop(self) -> None:
        """Voids what was remembered, except in memory. Needs no space."""
        path = f"{self._root}/{CLEAN_FILE}"
        if self._disk.kind(path) is not None:
            self._disk.remove(path)
            self._disk.sync_dir(self._root)

    def record_intact_since(self, broker_epoch: int | None, *, recovered: bool = True) -> None:
        """Durable when it returns; None when something was lost and no registration has followed yet. `recovered`: what recovery
        has found is durable."""
        self._write_life(broker_epoch, recovered=recovered or not self.power_lost)

    def record_unmarked(self) -> None:
        """Durable when it returns."""
        read = read_lines(self._disk, f"{self._root}/{LIFE_FILE}")
        write_lines(self._disk, f"{self._root}/{LIFE_FILE}", [line for line in read.lines if line != _MARKED])
        self.marked = self.marks = False

    def _write_life(self, intact_since: int | None, *, recovered: bool) -> None:
        since = _NONE if intact_since is None else str(intact_since)
        lines = [f"boot {self._boot}", f"intact_since {since}", f"recovered {'yes' if recovered else 'no'}"]
        lines += [_MARKED] if self.marks else []
        path = f"{self._root}/{LIFE_FILE}"
        if read_lines(self._disk, path).lines != lines:
            write_lines(self._disk, path, lines)

    def mark_clean(self, broker_epoch: int) -> None:
        """The last thing of a clean stop: everything else is durable (KAFKA-13773)."""
        write_lines(self._disk, f"{self._root}/{CLEAN_FILE}", [f"broker_epoch {broker_epoch}"])

    def release(self) -> None:
        self._lock.release()


def _optional(text: str) -> int | None:
    try:
        return None if text == _NONE else number(text)
    except ValueError:
        return None


def _make_dirs(disk: Disk, path: str) -> None:
    kind = disk.kind(path)
    if kind is EntryKind.DIRECTORY or not path:
        return
    if kind is not None:
        raise TidelogError(
            f"data directory {path} is not a directory; set another one, or move the file away",
            ErrorCode.INVALID_CONFIG,
        )
    above = path.rpartition("/")[0]
    _make_dirs(disk, above)
    disk.make_dir(path)
    disk.sync_dir(above or "/")
