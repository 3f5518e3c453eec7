"""The coordinator's side of the metadata store: fenced multis, and reading everything back."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.coordinator.effects import DeleteGroup, Write
from tidelog.coordinator.events import Outcome, WriteId
from tidelog.coordinator.model import GroupHead, Phase, StoredGroup
from tidelog.coordinator.operations import Change, changes, head_of, offset_of, operations, owner_of, removals
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.names import GROUP_RESERVED, validate_group_id
from tidelog.ports.clock import Clock
from tidelog.ports.meta import (
    MULTI_LIMIT_BYTES,
    Check,
    Create,
    Delete,
    Meta,
    MetaError,
    Op,
    OutcomeUnknown,
    SessionClosed,
    SessionExpired,
    SetData,
    Stat,
    size_bytes,
)
from tidelog.ports.recorder import CAUSE, SILENT, Origin, Recorder
from tidelog.runtime import zk_patterns
from tidelog.wire import messages as m
from tidelog.wire import znodes

log = logging.getLogger(__name__)

T = TypeVar("T")

IN_FLIGHT_MAX: Final = 8
"""Multis under way at once (performance 4.5)."""

MULTI_MAX_OPERATIONS: Final = 500
READ_AGAIN_S: Final = 0.1

CHANGES_MAX: Final = 10
"""Znodes that an event lists: a group may store thousands of offsets again and again."""

Spawn = Callable[[str, Coroutine[Any, Any, None]], object]
Report = Callable[[WriteId, Outcome], None]


@dataclass(eq=False, slots=True)
class _Job:
    """One effect, and how much of it is stored."""

    effect: Write | DeleteGroup
    changes: list[Change] | None
    """None: all that is there is to go, whatever that is when its turn comes."""
    cause: Origin | None
    """The newest event that led to it, or to what is left of it."""
    done: int = 0


@dataclass(eq=False, slots=True)
class _Line:
    """The writes of one group, of which one multi at a time is under way: that is their order."""

    known: set[str] = field(default_factory=set)
    """Znodes of the group that exist."""
    jobs: deque[_Job] = field(default_factory=deque)
    """What is under way stays until it is stored."""

    def note(self, ops: Sequence[Op]) -> None:
        """What exists when they are done."""
        for op in ops:
            if isinstance(op, Create):
                self.known.add(op.path)
            elif isinstance(op, Delete):
                self.known.discard(op.path)


class _Part(NamedTuple):
    """Of a multi: how many changes of which job."""

    line: _Line
    job: _Job
    changes: int
    ops: Sequence[Op]
    """The operations that make these changes."""


class FencedGroupStore:
    """Writes in multis that check the coordinator epoch first (HOLE-44, COORD-10).

    One whose outcome is unknown is repeated, after a look at what is there: nobody else writes under this epoch, and each
    change says what a znode is to hold. It is repeated as a whole, for it may hold an offset and the one that came after it:
    the first alone would take back the second where both have been stored already (N12).
    """

    def __init__(
        self,
        meta: Meta,
        clock: Clock,
        fence: Check,
        known: Mapping[str, set[str]],
        spawn: Spawn,
        report: Report,
        recorder: Recorder = SILENT,
    ) -> None:
        """`fence`: the epoch's znode with its version since the election; `known`: of each group, what was read."""
        self._meta = meta
        self._clock = clock
        self._fence = fence
        self._spawn = spawn
        self._report = report
        self._recorder = recorder
        self._lines = {group_id: _Line(set(paths)) for group_id, paths in known.items()}
        self._ready: deque[str] = deque()
        """Groups with jobs, none of which is under way."""
        self._fenced = False
        self._news = asyncio.Event()
        self._free = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._unreported = 0
        self._drained = asyncio.Event()
        self._drained.set()

    def submit(self, effect: Write | DeleteGroup) -> None:
        """Its outcome is reported, sooner or later; never from here."""
        line = self._lines.setdefault(effect.group_id, _Line())
        line.jobs.append(_Job(effect, changes(effect) if isinstance(effect, Write) else None, CAUSE.get()))
        self._unreported += 1
        self._drained.clear()
        if len(line.jobs) == 1:
            self._ready.append(effect.group_id)
        self._news.set()

    async def drained(self) -> None:
        """Until everything that was submitted is reported."""
        await self._drained.wait()

    async def run(self) -> None:
        """Sends what is submitted, several multis at a time."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._fenced:
                self._give_up()
            while self._ready:
                await self._free.acquire()
                ops, parts = self._take()
                if parts:
                    self._spawn("group write", self._commit(ops, parts))
                else:
                    self._free.release()

    def _opening(self) -> list[Op]:
        """Of each multi."""
        return [self._fence]

    def _take(self) -> tuple[list[Op], list[_Part]]:
        """As much as fits one multi, from as many groups as are ready."""
        ops = self._opening()
        parts: list[_Part] = []
        size = size_bytes(ops)
        while self._ready:
            line = self._lines[self._ready[0]]
            for job in list(line.jobs):
                if job.changes is None:
                    job.changes, job.done = removals(line.known), 0
                first = len(ops)
                size, count = self._fill(ops, size, line, job)
                if count or job.done == len(job.changes):
                    parts.append(_Part(line, job, count, ops[first:]))
                if job.done + count < len(job.changes):
                    if not count and len(ops) == 1:  # even alone it does not fit
                        self._refuse(line, job)
                        continue
                    if parts and parts[-1].line is line:
                        self._ready.popleft()
                    return ops, parts
            self._ready.popleft()
        return ops, parts

    def _fill(self, ops: list[Op], size: int, line: _Line, job: _Job) -> tuple[int, int]:
        """Adds what still fits of `job`; the multi's size, and how many changes were added."""
        assert job.changes is not None
        count = 0
        for change in job.changes[job.done : job.done + MULTI_MAX_OPERATIONS]:
            more = operations(change, line.known)
            grown = size + size_bytes(more)
            if len(ops) + len(more) > MULTI_MAX_OPERATIONS or grown > MULTI_LIMIT_BYTES:
                break
            line.note(more)
            ops += more
            size = grown
            count += 1
        return size, count

    async def _commit(self, ops: list[Op], parts: list[_Part]) -> None:
        """Until it is stored, or may not be."""
        try:
            while (error := await self._attempt(ops, parts)) is not None:
                log.info("a write of %d changes: %r; looking at what is there", len(ops) - 1, error)
                await self._look_again(parts, error)
                if self._fenced:
                    return
                ops, parts = self._again(parts)
        finally:
            self._free.release()
            self._news.set()

    async def _attempt(self, ops: list[Op], parts: list[_Part]) -> MetaError | None:
        """Returns the reason for which it is to be done again."""
        try:
            stats = await self._meta.multi(ops)
        except MetaError as error:
            if error.index != 0 and not isinstance(error, SessionExpired | SessionClosed):
                return error
            for part in parts:
                self._record(part, "fenced")
            self._fence_off(error)
        else:
            if not self._fenced:
                self._advance(parts, stats)
        return None

    def _again(self, parts: Sequence[_Part]) -> tuple[list[Op], list[_Part]]:
        """The same changes, whatever operations they take by now. Of what is to be deleted, as much as is there."""
        ops = self._opening()
        again: list[_Part] = []
        for line, job, count, _ in parts:
            if isinstance(job.effect, DeleteGroup):
                job.changes, job.done, count = removals(line.known), 0, MULTI_MAX_OPERATIONS
            assert job.changes is not None
            chosen, first = job.changes[job.done : job.done + count], len(ops)
            for change in chosen:
                more = operations(change, line.known)
                line.note(more)
                ops += more
            again.append(_Part(line, job, len(chosen), ops[first:]))
        return ops, again

    def _advance(self, parts: list[_Part], stats: Sequence[Stat | None]) -> None:
        end = 1  # behind the fence
        for part in parts:
            begin, end = end, end + len(part.ops)
            self._record(part, "written", stats[begin:end])
            part.job.done += part.changes
            assert part.job.changes is not None
            if part.job.done == len(part.job.changes):
                part.line.jobs.popleft()
                self._finish(part.job, Outcome.WRITTEN)
        self._go_on(parts)

    def _go_on(self, parts: list[_Part]) -> None:
        for group_id in dict.fromkeys(part.job.effect.group_id for part in parts):
            line = self._lines[group_id]
            if line.jobs:
                self._ready.append(group_id)
            elif not line.known:
                del self._lines[group_id]

    async def _look_again(self, parts: list[_Part], error: MetaError) -> None:
        """Reads which znodes are there, so that the same changes become the right operations."""
        groups = {part.job.effect.group_id: part.line for part in parts}
        while True:
            if not isinstance(error, OutcomeUnknown):
                await self._clock.sleep(READ_AGAIN_S)  # somebody else has changed something: not in a tight loop
            try:
                for group_id, line in groups.items():
                    line.known = await _read_tree(self._meta, group_id)
                break
            except (SessionExpired, SessionClosed) as over:
                self._fence_off(over)
                return
            except MetaError as again:
                error = again
        for line in groups.values():
            for job in line.jobs:
                if isinstance(job.effect, DeleteGroup):
                    job.changes = None

    def _refuse(self, line: _Line, job: _Job) -> None:
        log.error("group %s: a change is too large for the metadata store", job.effect.group_id)
        line.jobs.remove(job)
        self._finish(job, Outcome.REFUSED)

    def _fence_off(self, error: MetaError) -> None:
        if not self._fenced:
            log.warning("fenced: %r", error)
        self._fenced = True
        self._give_up()

    def _give_up(self) -> None:
        for line in self._lines.values():
            for job in line.jobs:
                self._finish(job, Outcome.FENCED)
            line.jobs.clear()
        self._ready.clear()

    def _finish(self, job: _Job, outcome: Outcome) -> None:
        self._unreported -= 1
        if not self._unreported:
            self._drained.set()
        CAUSE.set(job.cause)
        self._report(job.effect.write_id, outcome)

    def _record(self, part: _Part, result: str, stats: Sequence[Stat | None] = ()) -> None:
        """Records one event for each group of a multi; it leads to what follows from the job."""
        if self._recorder is SILENT or not part.ops:
            return
        job, listed = part.job, tuple(map(_change, part.ops[:CHANGES_MAX], stats))
        written = m.StoreWritten(
            changes=listed, more=len(part.ops) - len(listed), result=result, purpose=_purpose(job.effect)
        )
        job.cause = self._recorder.record(job.effect.group_id, written, job.cause)


def _change(op: Op, stat: Stat | None) -> m.ZnodeChange:
    """Returns the versions of a znode; `stat` is the one that the store has answered."""
    version = znodes.NO_VERSION if stat is None else stat.version
    before = version - 1 if isinstance(op, SetData) else znodes.NO_VERSION
    return m.ZnodeChange(path=op.path, version_before=before, version=version)


def _purpose(effect: Write | DeleteGroup) -> str:
    if isinstance(effect, DeleteGroup):
        return "group deleted"
    named = [name for name, found in (("ownership", effect.owners), ("offsets", effect.offsets)) if found]
    return " and ".join(named) or "group"


async def _read_tree(meta: Meta, group_id: str) -> set[str]:
    """Everything of a group that exists, whoever has made it."""
    root = znodes.group_path(group_id)
    await meta.sync(root)
    if await meta.exists(root) is None:
        return set()
    found, level = {root}, [root]
    while level:
        below = await zk_patterns.children_of_each(meta, level)
        level = [f"{path}/{name}" for path, names in zip(level, below, strict=True) for name in names]
        found.update(level)
    return found


@dataclass(slots=True)
class Stored:
    """What a new coordinator finds."""

    groups: list[StoredGroup] = field(default_factory=list)
    known: dict[str, set[str]] = field(default_factory=dict)
    """Of each group: its znodes."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Groups that cannot be read, and why: nobody may coordinate them until they are repaired, for their offsets would
    be lost."""


async def read_groups(meta: Meta, is_mine: Callable[[str], bool], wall_ms: int) -> Stored:
    """Everything that is stored of the groups for which `is_mine`, after a sync. `wall_ms` is the calendar's time."""
    await meta.sync(znodes.CONSUMERS)
    names = [name for name in await meta.children(znodes.CONSUMERS) if _is_group(name) and is_mine(name)]
    heads = await meta.get_many([znodes.group_path(name) for name in names])
    stored = Stored()
    owners = await _read_leaves(meta, stored, names, znodes.owners_path)
    offsets = await _read_leaves(meta, stored, names, znodes.offsets_path)
    for name, node in zip(names, heads, strict=True):
        if node is None:
            continue  # deleted meanwhile
        stored.known.setdefault(name, set()).add(znodes.group_path(name))
        try:
            stored.groups.append(
                StoredGroup(
                    group_id=name,
                    head=_headless(wall_ms) if _is_unwritten(*node) else head_of(name, node[0]),
                    owners=_decoded(owners.get(name, {}), owner_of),
                    offsets=_decoded(offsets.get(name, {}), offset_of),
                )
            )
        except znodes.BadZnode as error:
            log.error("group %s is not coordinated: %s; repair or delete this znode", name, error)
            stored.damaged[name] = str(error)
    return stored


def _is_group(name: str) -> bool:
    if name in GROUP_RESERVED:
        return False
    try:
        validate_group_id(name)
    except TidelogError as error:
        log.error("%s is no group: %s", znodes.group_path(name), error)
        return False
    return True


def _is_unwritten(data: bytes, stat: Stat) -> bool:
    """A group's znode may have been made only to have others below it; one that is emptied later has lost its head."""
    return not data and stat.version == 0


def _headless(wall_ms: int) -> GroupHead:
    """Of a group whose first offsets were stored without members; or its coordinator has died before the head."""
    return GroupHead(generation=0, phase=Phase.STABLE, members={}, assignor="", empty_since_ms=wall_ms)


Leaves = dict[str, dict[str, tuple[bytes, Stat]]]
"""group -> path -> what is there."""


async def _read_leaves(meta: Meta, stored: Stored, names: Sequence[str], root: Callable[[str], str]) -> Leaves:
    """All of `root`/topic/partition of each group."""
    of_root = await zk_patterns.children_of_each(meta, [root(name) for name in names])
    topics = [(name, f"{root(name)}/{topic}") for name, found in zip(names, of_root, strict=True) for topic in found]
    of_topic = await zk_patterns.children_of_each(meta, [path for _, path in topics])
    paths = [
        (name, f"{topic}/{partition}")
        for (name, topic), found in zip(topics, of_topic, strict=True)
        for partition in found
    ]
    nodes = await meta.get_many([path for _, path in paths])
    leaves: Leaves = {}
    for (name, path), node in zip(paths, nodes, strict=True):
        if node is not None:
            leaves.setdefault(name, {})[path] = node
            stored.known.setdefault(name, set()).add(path)
    for name, path in topics:
        stored.known.setdefault(name, set()).update((path, root(name)))
    return leaves


def _decoded(nodes: Mapping[str, tuple[bytes, Stat]], decode: Callable[[str, bytes], T]) -> dict[TopicPartition, T]:
    found: dict[TopicPartition, T] = {}
    for path, (data, _) in nodes.items():
        _, topic, partition = path.rsplit("/", 2)
        if not (partition.isascii() and partition.isdecimal()):
            raise znodes.BadZnode(path, "its name is no partition")
        found[TopicPartition(topic, int(partition))] = decode(path, data)
    return found
