"""The Disk port in memory: keeps apart what was written and what would survive a loss of power.

One SimDisk belongs to one host and outlives its processes. Each file has its synced bytes and the writes since; each
directory its synced names and the changes since. A crash keeps any prefix of a file's writes, the last one torn or an
earlier one missing, and any of a directory's changes: what a file system may do (Pillai et al., OSDI 2014). It also fails on
demand: no space,
input/output errors, flipped bits, a device that takes its time.
"""

import asyncio
import errno
import itertools
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from tidelog.ports.disk import Buffer, DiskFile, DiskLock, Entry, EntryKind
from tidelog.ports.rand import Rand
from tidelog.testing.clock import SimClock

T = TypeVar("T")


SECTOR_BYTES: Final = 512


class PowerCut(BaseException):
    """The disk stops in the middle of a run; not an Exception, so that no handler under test sees it."""


class Crash(Enum):
    PROCESS = "the process dies, the kernel lives on: nothing is lost"
    DROP_UNSYNCED = "power is lost and takes everything that was not synced"
    KEEP_SOME = "power is lost and a random part of what was not synced is there"


class _Write(NamedTuple):
    position: int
    data: bytes


class _Truncate(NamedTuple):
    size: int


class _Change(NamedTuple):
    """One step of a directory's names: each name gets its node, or none."""

    names: tuple[tuple[str, "_Node | None"], ...]


@dataclass(slots=True, eq=False)
class _File:
    number: int
    data: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[_Write | _Truncate] = field(default_factory=list)
    modified_ms: int = 0
    flipped: dict[int, int] = field(default_factory=dict)
    """Position -> the bits that have rotted."""
    unreadable: set[int] = field(default_factory=set)
    """Numbers of sectors."""

    def read(self, path: str, start: int, end: int, *, whole: bool = False) -> bytes:
        """Returns these bytes; with `whole` as they were written. OSError."""
        data = bytes(memoryview(self.data)[start:end])
        if whole or not (self.flipped or self.unreadable):
            return data
        if any(each * SECTOR_BYTES < end and start < (each + 1) * SECTOR_BYTES for each in self.unreadable):
            raise OSError(errno.EIO, "a sector is unreadable", path)
        seen = bytearray(data)
        for position, mask in self.flipped.items():
            if start <= position < start + len(seen):
                seen[position - start] ^= mask
        return bytes(seen)

    def rot_below(self, size_bytes: int) -> tuple[dict[int, int], set[int]]:
        """Returns the rot that stays when the file is cut."""
        if not (self.flipped or self.unreadable):
            return {}, set()
        flipped = {position: mask for position, mask in self.flipped.items() if position < size_bytes}
        return flipped, {each for each in self.unreadable if each * SECTOR_BYTES < size_bytes}

    def after(self, loss: "Loss") -> bytes:
        return self.survivor(*loss.files.get(self.number, (0, 0)))

    def survivor(self, kept: int, torn: int, hole: int = -1) -> bytes:
        image = bytearray(self.synced)
        for index, op in enumerate(self.unsynced[:kept]):
            if index == hole and isinstance(op, _Write):
                op = _Write(op.position, bytes(len(op.data)))
            _apply(image, op)
        if torn:
            op = self.unsynced[kept]
            assert isinstance(op, _Write), op
            _apply(image, _Write(op.position, op.data[:torn]))
        return bytes(image)


@dataclass(slots=True, eq=False)
class _Directory:
    number: int
    names: "dict[str, _Node]" = field(default_factory=dict)
    synced: "dict[str, _Node]" = field(default_factory=dict)
    unsynced: list[_Change] = field(default_factory=list)

    def change(self, *names: "tuple[str, _Node | None]") -> None:
        _rename(self.names, _Change(names))
        self.unsynced.append(_Change(names))

    def after(self, loss: "Loss") -> "dict[str, _Node]":
        return self.survivor(loss.directories.get(self.number, frozenset()))

    def survivor(self, kept: Iterable[int]) -> "dict[str, _Node]":
        names = dict(self.synced)
        for index in sorted(kept):
            _rename(names, self.unsynced[index])
        return names


_Node = _File | _Directory


def _apply(image: bytearray, op: _Write | _Truncate) -> None:
    end = op.size if isinstance(op, _Truncate) else op.position
    if len(image) < end:
        image.extend(bytes(end - len(image)))  # a hole reads as zeros
    if isinstance(op, _Truncate):
        del image[op.size :]
    else:
        image[op.position : op.position + len(op.data)] = op.data


def _rename(names: "dict[str, _Node]", change: _Change) -> None:
    for name, node in change.names:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _distinct_survivors(directory: _Directory) -> list[frozenset[int]]:
    """Which changes may be there: one set for every different outcome, the empty one first, all of them last."""
    every = range(len(directory.unsynced))
    outcomes: dict[frozenset[tuple[str, int]], frozenset[int]] = {}
    for count in range(len(every) + 1):
        for kept in itertools.combinations(every, count):
            names = directory.survivor(kept)
            outcomes.setdefault(frozenset((name, node.number) for name, node in names.items()), frozenset(kept))
    choices = list(outcomes.values())
    return [c for c in choices if len(c) < len(every)] + [frozenset(every)]


def _named(root: _Directory, loss: "Loss") -> set[int]:
    """Numbers of the nodes that a name leads to after it."""
    found: set[int] = set()
    todo: list[_Node] = [root]
    while todo:
        node = todo.pop()
        if node.number not in found:
            found.add(node.number)
            if isinstance(node, _Directory):
                todo += node.after(loss).values()
    return found


class Op(NamedTuple):
    """One call that changed something, or made it durable."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Loss:
    """What survives of the unsynced state, by node number; what is not named is lost."""

    files: Mapping[int, tuple[int, ...]]
    """Writes kept whole, and bytes kept of the next one; then perhaps the one of those kept that reads as zeros."""
    directories: Mapping[int, frozenset[int]]
    """Which changes of names are there."""


@dataclass(slots=True)
class _Fault:
    op: str
    path: str
    error: int
    times: int
    kept_bytes: int


class _Slowness(NamedTuple):
    op: str
    path: str
    seconds: float
    until: float


class _SimFile:
    def __init__(self, disk: "SimDisk", path: str, node: _File, read_only: bool) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._read_only = read_only
        self._life: int | None = disk.life

    def _check(self) -> None:
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, "closed, or opened by a process that is dead", self._path)

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        if self._read_only:
            raise OSError(errno.EBADF, "opened read-only", self._path)
        data = b"".join(buffers)
        try:
            self._disk.step("append", self._path)
        except OSError:
            self._disk.spoiled(self._node)
            self._write(data[: self._disk.kept_of_failed_write])
            raise
        self._disk.written(self._node, self._path)
        room = self._disk.room_bytes()
        self._write(data[:room])
        if room < len(data):
            raise OSError(errno.ENOSPC, "no space left on device", self._path)

    def _write(self, data: bytes) -> None:
        if data:
            self._node.unsynced.append(_Write(len(self._node.data), data))
            self._node.data += data
            self._node.modified_ms = _wall_ms()

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._check()
        self._disk.step("pread", self._path, changes=False)
        self._disk.on_read(self._path)
        return self._node.read(self._path, position, position + size_bytes, whole=self._disk.observed)

    def truncate(self, size_bytes: int) -> None:
        self._check()
        self._disk.step("truncate", self._path)
        _apply(self._node.data, _Truncate(size_bytes))
        self._node.flipped, self._node.unreadable = self._node.rot_below(size_bytes)
        self._node.unsynced.append(_Truncate(size_bytes))

    def sync(self) -> None:
        self._check()
        try:
            self._disk.step("sync", self._path)
        except OSError:
            # The kernel has dropped the dirty pages and marks them clean: a second sync would succeed and save nothing.
            self._node.unsynced.clear()
            self._disk.spoiled(self._node)
            raise
        for op in self._node.unsynced:
            _apply(self._node.synced, op)
        self._node.unsynced.clear()

    def size(self) -> int:
        self._check()
        return len(self._node.data)

    def close(self) -> None:
        self._life = None


class _SimLock:
    def __init__(self, locks: set[int], number: int) -> None:
        self._locks = locks
        self._number = number

    def release(self) -> None:
        self._locks.discard(self._number)


class SimDisk:
    """See `tidelog.ports.disk.Disk`.

    traced: `trace` holds every call that changed something since the host was made, which takes memory.
    """

    def __init__(self, boot: int = 1, *, traced: bool = True) -> None:
        self._numbers = itertools.count(1)
        self._root = _Directory(0)
        self._faults: list[_Fault] = []
        self._slow: list[_Slowness] = []
        self._owed_s = 0.0
        """What the calls of the background work that runs now would have waited."""
        self._in_background = False
        self.stalled_s = 0.0
        """How long slow calls outside the background would have held up the event loop."""
        self._stalled_until = 0.0
        self.on_stall: Callable[[float], None] = lambda until: None
        """Called with the time of the loop at which a slow call outside the background ends: production's loop is held up."""
        self._locks: set[int] = set()
        self._boot = boot
        self.life = 0
        """Counts crashes: a handle of an earlier life is dead."""
        self._traced = traced
        self.trace: list[Op] = []
        self.changes = 0
        """Calls that changed something."""
        self.stop_after: int | None = None
        """Number of changing calls that succeed; the next one and all later raise PowerCut."""
        self.on_read: Callable[[str], None] = lambda path: None
        self.on_power_cut: Callable[[], None] | None = None
        """Called at the first call that raises it."""
        self.observed = False
        """While set, somebody looks who is no part of the host: nothing fails, nothing is counted."""
        self._spoiled: dict[_File, None] = {}
        self.blind_appends: list[str] = []
        """Paths of appends behind one, or behind a sync, that had failed: nobody knows what lies there (KAFKA-10778)."""
        self.capacity_bytes: int | None = None
        self.kept_of_failed_write = 0

    # --- faults -------------------------------------------------------------------------------------------------

    def fail(self, op: str, error: int, *, path: str = "", times: int = 1, kept_bytes: int = 0) -> None:
        """The next `times` calls of `op` on a path that contains `path` raise OSError(error).

        A failing append leaves `kept_bytes` of its bytes behind.
        """
        self._faults.append(_Fault(op, path, error, times, kept_bytes))

    def slow(self, op: str, seconds: float, *, path: str = "") -> None:
        """Every call of `op` on a path that contains `path` waits this long, until `mend`."""
        self._slow.append(_Slowness(op, path, seconds, math.inf))

    def slow_down(self, ops: Sequence[str], seconds: float, lasts_s: float) -> None:
        """Every call of `ops` that begins within `lasts_s` waits this long, until `quicken`."""
        until = _loop_s() + lasts_s
        self._slow += [_Slowness(op, "", seconds, until) for op in ops]

    def mend(self) -> None:
        """Ends every fault that was asked for, a full disk too; what is rotten stays rotten."""
        self._faults.clear()
        self._slow.clear()
        self.capacity_bytes = None

    def slowed(self, op: str) -> float:
        """Seconds that `slow` adds to an operation on any path."""
        return sum(each.seconds for each in self._slow if each.op == op and not each.path)

    @property
    def is_slow(self) -> bool:
        return bool(self._slow)

    def quicken(self) -> None:
        """Ends slowness alone."""
        self._slow.clear()
        self._stalled_until = 0.0

    def fill(self, left_bytes: int) -> None:
        """Only so much may still be written."""
        self.capacity_bytes = _bytes_below(self._root) + left_bytes

    @property
    def failing(self) -> bool:
        """Whether there is a fault that has yet to strike, or too little room."""
        return bool(self._faults) or self.capacity_bytes is not None

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Rots one bit of a file, until it is cut or replaced."""
        node = self._file(path)
        assert position < len(node.data), f"{path} has no byte {position}"
        node.flipped[position] = node.flipped.get(position, 0) ^ 1 << bit

    def lose_sector(self, path: str, sector: int) -> None:
        """No read of this sector of a file succeeds, until it is cut or replaced."""
        self._file(path).unreadable.add(sector)

    def rotten(self) -> list[str]:
        """Files that are not all that was written."""
        return sorted(path for path, node in self._files() if node.flipped or node.unreadable)

    def restore(self) -> None:
        """Ends all rot."""
        for _, node in self._files():
            node.flipped, node.unreadable = {}, set()

    def durable(self) -> dict[str, bytes]:
        """Every file that a loss of power leaves for sure, with its content."""
        return {path: bytes(node.data) for path, node in _files_below(self._surviving_root(Loss({}, {})))}

    def overwrite(self, path: str, data: bytes) -> None:
        """Replaces a file's content durably from outside, as an operator or a broken program would."""
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if not isinstance(node, _File):
            node = _File(next(self._numbers))
            directory.change((name, node))
        node.data, node.synced = bytearray(data), bytearray(data)
        node.unsynced.clear()
        node.flipped, node.unreadable = {}, set()
        self._settle(directory)

    def step(self, op: str, path: str, *, changes: bool = True) -> None:
        """Called at the start of every operation: counts it, delays it, or fails it."""
        if self.observed:
            return
        for slowness in self._slow:
            if slowness.op == op and slowness.path in path:
                self._wait(slowness)
        for fault in self._faults:
            if fault.op == op and fault.path in path:
                fault.times -= 1
                self.kept_of_failed_write = fault.kept_bytes
                if fault.times == 0:
                    self._faults.remove(fault)
                raise OSError(fault.error, "injected", path)
        if changes:
            if self.stop_after is not None and self.changes >= self.stop_after:
                if self.on_power_cut is not None:
                    self.on_power_cut()
                raise PowerCut(f"{op} {path}")
            self.changes += 1
            if self._traced:
                self.trace.append(Op(op, path))

    def _wait(self, slowness: _Slowness) -> None:
        """A call begins when the earlier ones of the same work have ended."""
        now = _loop_s()
        begins = now + self._owed_s if self._in_background else max(now, self._stalled_until)
        if begins >= slowness.until:
            return
        if self._in_background:
            self._owed_s += slowness.seconds
        else:
            self.stalled_s += slowness.seconds
            self._stalled_until = begins + slowness.seconds
            self.on_stall(self._stalled_until)

    def spoiled(self, node: _File) -> None:
        """An append or a sync of it has failed; only who opens it again knows what is there."""
        self._spoiled[node] = None

    def written(self, node: _File, path: str) -> None:
        if node in self._spoiled:
            self.blind_appends.append(path)

    # --- crashes ------------------------------------------------------------------------------------------------

    def crash(self, how: Crash, rand: Rand | None = None) -> None:
        """Ends every process of the host; a loss of power also changes the boot id."""
        self.life += 1
        self._stalled_until = 0.0
        self._locks.clear()
        self._spoiled.clear()
        self.stop_after = None
        if how is Crash.PROCESS:
            return
        loss = Loss({}, {})
        if how is Crash.KEEP_SOME:
            assert rand is not None, "KEEP_SOME needs randomness"
            loss = self._random_loss(rand)
        self._root = self._surviving_root(loss)
        self._boot += 1

    def losses(
        self, tears: Callable[[int], Iterable[int]], *, holes: bool = False, distinct: bool = False
    ) -> Iterator[Loss]:
        """Every legal outcome of losing power now; `tears(n)` gives the torn lengths to try for a write of n bytes.

        With `holes` also those where an earlier write is missing: a file system writes back in any order. With `distinct` each
        content of a file once, and one where no name leads to it: hardly any two losses leave the same files then.
        """
        files, directories = self._dirty()
        file_choices: list[list[tuple[int, ...]]] = []
        for file in files:
            choices: list[tuple[int, ...]] = [(kept, 0) for kept in range(len(file.unsynced) + 1)]
            if holes:
                choices += [(kept, 0, hole) for kept in range(len(file.unsynced) + 1) for hole in range(kept - 1)]
            for kept, op in enumerate(file.unsynced):
                if isinstance(op, _Write):
                    choices += [(kept, torn) for torn in tears(len(op.data)) if 0 < torn < len(op.data)]
            if distinct:
                choices = [*{file.survivor(*choice): choice for choice in reversed(choices)}.values()]
            file_choices.append(choices)
        directory_choices = [_distinct_survivors(directory) for directory in directories]
        for kept_names in itertools.product(*directory_choices):
            names = dict(zip((d.number for d in directories), kept_names, strict=True))
            named = _named(self._root, Loss({}, names)) if distinct else {file.number for file in files}
            chosen = [c if f.number in named else c[:1] for f, c in zip(files, file_choices, strict=True)]
            for kept_writes in itertools.product(*chosen):
                yield Loss(dict(zip((f.number for f in files), kept_writes, strict=True)), names)

    def after(self, loss: Loss) -> "SimDisk":
        """A host that lost power here and came back with this loss; the original is untouched."""
        other = SimDisk(self._boot + 1)
        other._numbers = itertools.count(1_000_000)
        other._root = self._surviving_root(loss)
        return other

    def copied(self) -> "SimDisk":
        """The disk of another host with a copy of every file, as `cp` makes it."""
        other = SimDisk()
        for path, data in sorted(self.image().items()):
            if data is None:
                if other.kind(path) is None:
                    other.make_dir(path)
            else:
                file = other.open(path, create=True)
                file.append([data])
                file.close()
        return other

    def image(self, loss: Loss | None = None) -> dict[str, bytes | None]:
        """Every path with its content; None for a directory. With a `loss` as it would be after that."""
        image: dict[str, bytes | None] = {}
        todo: list[tuple[str, _Node]] = [("", self._root)]
        while todo:
            path, node = todo.pop()
            if isinstance(node, _File):
                image[path] = bytes(node.data) if loss is None else node.after(loss)
            else:
                image[path] = None
                names = node.names if loss is None else node.after(loss)
                todo += [(f"{path}/{name}", child) for name, child in names.items()]
        return image

    def _files(self) -> "list[tuple[str, _File]]":
        return _files_below(self._root)

    def _dirty(self) -> tuple[list[_File], list[_Directory]]:
        """Nodes with unsynced changes that a name, synced or not, leads to; in a fixed order."""
        seen: dict[int, _Node] = {}
        todo: list[_Node] = [self._root]
        while todo:
            node = todo.pop()
            if node.number in seen:
                continue
            seen[node.number] = node
            if isinstance(node, _Directory):
                todo += node.synced.values()
                todo += [n for change in node.unsynced for _, n in change.names if n is not None]
        found = [seen[number] for number in sorted(seen) if seen[number].unsynced]
        return [n for n in found if isinstance(n, _File)], [n for n in found if isinstance(n, _Directory)]

    def _random_loss(self, rand: Rand) -> Loss:
        files, directories = self._dirty()
        kept_writes = {}
        for file in files:
            kept, torn = rand.randrange(len(file.unsynced) + 1), 0
            if kept < len(file.unsynced) and isinstance(op := file.unsynced[kept], _Write) and rand.randrange(2):
                torn = rand.randrange(len(op.data))
            kept_writes[file.number] = (kept, torn)
        kept_names = {d.number: frozenset(i for i in range(len(d.unsynced)) if rand.randrange(2)) for d in directories}
        return Loss(kept_writes, kept_names)

    def _surviving_root(self, loss: Loss) -> _Directory:
        done: dict[int, _Node] = {}

        def survivor(node: _Node) -> _Node:
            if node.number in done:
                return done[node.number]
            if isinstance(node, _File):
                data = node.after(loss)
                file = _File(node.number, bytearray(data), bytearray(data))
                file.flipped, file.unreadable = node.rot_below(len(data))
                done[node.number] = file
                return file
            directory = _Directory(node.number)
            done[node.number] = directory
            directory.names = {name: survivor(child) for name, child in node.after(loss).items()}
            directory.synced = dict(directory.names)
            return directory

        root = survivor(self._root)
        assert isinstance(root, _Directory)
        return root

    # --- the port -----------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        directory, name = self._parent(path)
        if create:
            if name in directory.names:
                raise FileExistsError(errno.EEXIST, "file exists", path)
            self.step("create", path)
            node = _File(next(self._numbers))
            directory.change((name, node))
        else:
            self.step("open", path, changes=False)
            node = self._file(path)
            self._spoiled.pop(node, None)
        return _SimFile(self, path, node, read_only)

    def read(self, path: str) -> bytes:
        self.step("read", path, changes=False)
        node = self._file(path)
        return node.read(path, 0, len(node.data), whole=self.observed)

    def rename(self, old: str, new: str) -> None:
        directory, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node = self._lookup(old)
        if isinstance(node, _Directory) and new_name in directory.names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", new)
        self.step("rename", old)
        if directory is target:
            directory.change((old_name, None), (new_name, node))
        else:  # two changes: a loss of power may keep one without the other
            directory.change((old_name, None))
            target.change((new_name, node))

    def remove(self, path: str) -> None:
        self._file(path)
        self.step("remove", path)
        directory, name = self._parent(path)
        directory.change((name, None))

    def make_dir(self, path: str) -> None:
        directory, name = self._parent(path)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        self.step("make_dir", path)
        directory.change((name, _Directory(next(self._numbers))))

    def remove_dir(self, path: str) -> None:
        if self._directory(path).names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self.step("remove_dir", path)
        directory, name = self._parent(path)
        directory.change((name, None))

    def list_dir(self, path: str) -> list[Entry]:
        self.step("list_dir", path, changes=False)
        return [Entry(name, _kind(node)) for name, node in sorted(self._directory(path).names.items())]

    def kind(self, path: str) -> EntryKind | None:
        try:
            return _kind(self._lookup(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified_ms(self, path: str) -> float:
        return self._file(path).modified_ms

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self.step("sync_dir", path)
        self._settle(directory)

    def lock(self, path: str) -> DiskLock:
        directory, name = self._parent(path)
        if name not in directory.names:
            self.step("create", path)
            directory.change((name, _File(next(self._numbers))))
        number = directory.names[name].number
        if number in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        self._locks.add(number)
        return _SimLock(self._locks, number)

    def free_bytes(self, path: str) -> int:
        self._lookup(path)
        self.step("free_bytes", path, changes=False)
        return self.room_bytes()

    def total_bytes(self, path: str) -> int:
        self._lookup(path)
        return self.used_bytes + self.room_bytes()

    def boot_id(self) -> str:
        return f"sim-boot-{self._boot}"

    async def _run_in_background(self, work: Callable[[], T]) -> T:
        """What the work does has happened at once, its answer comes when the device would have answered.

        So nothing that is written meanwhile is covered by a sync that is under way: nobody may rely on it.
        """
        self._in_background, self._owed_s = True, 0.0
        try:
            result = work()
        except OSError:
            self._in_background = False
            await asyncio.sleep(self._owed_s)
            raise
        finally:
            self._in_background = False
        await asyncio.sleep(self._owed_s)
        return result

    def in_background(self, work: Callable[[], T]) -> Awaitable[T]:
        return self._run_in_background(work)

    def room_bytes(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 62
        return max(0, self.capacity_bytes - self.used_bytes)

    @property
    def used_bytes(self) -> int:
        return _bytes_below(self._root)

    # --- names --------------------------------------------------------------------------------------------------

    def _lookup(self, path: str) -> _Node:
        node: _Node = self._root
        for name in _parts(path):
            if not isinstance(node, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            if name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            node = node.names[name]
        return node

    def _file(self, path: str) -> _File:
        node = self._lookup(path)
        if not isinstance(node, _File):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._lookup(path)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *above, name = _parts(path)
        if len(name.encode()) > 255:
            raise OSError(errno.ENAMETOOLONG, "file name too long", path)
        return self._directory("/".join(above)), name

    @staticmethod
    def _settle(directory: _Directory) -> None:
        directory.synced = dict(directory.names)
        directory.unsynced.clear()


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _kind(node: _Node) -> EntryKind:
    return EntryKind.FILE if isinstance(node, _File) else EntryKind.DIRECTORY


def _files_below(root: _Directory) -> list[tuple[str, _File]]:
    found: list[tuple[str, _File]] = []
    todo: list[tuple[str, _Node]] = [("", root)]
    while todo:
        path, node = todo.pop()
        if isinstance(node, _File):
            found.append((path, node))
        else:
            todo += [(f"{path}/{name}", child) for name, child in node.names.items()]
    return found


def _bytes_below(node: _Node) -> int:
    if isinstance(node, _File):
        return len(node.data)
    return sum(_bytes_below(child) for child in node.names.values())


def _loop_s() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0  # a test without a loop has no time


def _wall_ms() -> int:
    try:
        return SimClock().wall_ms()
    except RuntimeError:
        return 0  # a test without a loop has no time
