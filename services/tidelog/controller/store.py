"""The controller's side of the metadata store: fenced multis, and reading everything back."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from tidelog.controller.effects import Examinable, Outcome, WriteGroup
from tidelog.controller.events import Snapshot, StoredTopic
from tidelog.controller.model import Broker, PartitionState
from tidelog.controller.operations import examined_path, operations
from tidelog.controller.record import store_written
from tidelog.errors import TidelogError
from tidelog.names import validate_topic_name
from tidelog.ports.clock import Clock
from tidelog.ports.meta import (
    BadVersion,
    Check,
    Meta,
    MetaError,
    NodeExists,
    NoNode,
    Op,
    OutcomeUnknown,
    SessionExpired,
    Stat,
    TooLarge,
    size_bytes,
)
from tidelog.ports.recorder import CAUSE, SILENT, Cause, Origin, Recorder, led_on
from tidelog.release import RELEASE, obstacle
from tidelog.wire import znodes

log = logging.getLogger(__name__)

T = TypeVar("T")

IN_FLIGHT_MAX: Final = 8
"""Multis under way at once (performance 4.5)."""

READ_AGAIN_S: Final = 0.1

Results = Sequence[tuple[WriteGroup, Outcome]]
Found = Sequence[tuple[WriteGroup, tuple[bytes, int] | None]]
Directories = Mapping[str, tuple[tuple[int, str], ...]]
"""First broker epoch and id of each data directory, by the name of the registration."""
Spawn = Callable[[str, Coroutine[Any, Any, None]], object]


class FencedStore:
    """Writes groups in multis that check the controller epoch first (HOLE-11, KAFKA-6082).

    A multi is all or nothing: a group that conflicts is taken out and the others are sent again.
    """

    def __init__(
        self,
        meta: Meta,
        clock: Clock,
        epoch_version: int,
        spawn: Spawn,
        report: Callable[[Results], None],
        *,
        multi_max_operations: int,
        multi_max_bytes: int,
        recorder: Recorder = SILENT,
    ) -> None:
        """`epoch_version` is that of /controller_epoch since this controller's election."""
        self._meta = meta
        self._clock = clock
        self._fence = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._spawn = spawn
        self._report = report
        self._multi_max_operations = multi_max_operations
        self._multi_max_bytes = multi_max_bytes
        self._pending: deque[WriteGroup] = deque()
        self._news = asyncio.Event()
        self._free = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._recorder = recorder
        self._cause: Origin | None = None
        """The event that led to what was submitted last."""

    def submit(self, groups: Iterable[WriteGroup]) -> None:
        self._pending.extend(groups)
        self._cause = CAUSE.get()
        self._news.set()

    async def run(self) -> None:
        """Sends what is submitted, several multis at a time, in order."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._pending:
                await self._free.acquire()
                self._spawn("controller write", self._commit(self._take()))

    def _take(self) -> list[tuple[WriteGroup, list[Op]]]:
        """As many groups as fit one multi; at least one."""
        batch: list[tuple[WriteGroup, list[Op]]] = []
        count, size = 1, size_bytes([self._fence])
        while self._pending:
            ops = operations(self._pending[0])
            count += len(ops)
            size += size_bytes(ops)
            if batch and (count > self._multi_max_operations or size > self._multi_max_bytes):
                break
            batch.append((self._pending.popleft(), ops))
        return batch

    async def _commit(self, batch: list[tuple[WriteGroup, list[Op]]]) -> None:
        CAUSE.set(self._cause)
        try:
            while batch:
                batch = await self._try(batch)
        finally:
            self._free.release()

    async def _try(self, batch: list[tuple[WriteGroup, list[Op]]]) -> list[tuple[WriteGroup, list[Op]]]:
        """Reports what is decided; returns what is to be tried again."""
        try:
            await self._meta.multi([self._fence, *(op for _, ops in batch for op in ops)])
        except OutcomeUnknown:
            self._decided(batch, Outcome.UNKNOWN)
        except SessionExpired:
            # /controller was this session's, so the term is over.
            self._decided(batch, Outcome.FENCED)
        except TooLarge as error:
            if len(batch) == 1:
                log.error("%s: %s", batch[0][0], error)
                self._decided(batch, Outcome.REFUSED)
            else:
                self._pending.extendleft(group for group, _ in reversed(batch[len(batch) // 2 :]))
                self._news.set()
                return batch[: len(batch) // 2]
        except MetaError as error:
            if not error.index:
                self._decided(batch, Outcome.FENCED)
                return []
            culprit = _owner(batch, error.index)
            log.info("%s conflicts: %r", batch[culprit][0], error)
            outcome = Outcome.CONFLICT if isinstance(error, BadVersion | NoNode | NodeExists) else Outcome.REFUSED
            self._decided([batch[culprit]], outcome)
            return [each for position, each in enumerate(batch) if position != culprit]
        else:
            self._decided(batch, Outcome.WRITTEN)
        return []

    def _decided(self, batch: list[tuple[WriteGroup, list[Op]]], outcome: Outcome) -> None:
        with led_on(self._record(batch, outcome)):
            self._report([(group, outcome) for group, _ in batch])

    def _record(self, batch: list[tuple[WriteGroup, list[Op]]], outcome: Outcome) -> Cause | None:
        if self._recorder is SILENT:
            return None  # a multi has hundreds of operations
        return self._recorder.record(None, partial(store_written, [group for group, _ in batch], outcome))

    async def examine(self, groups: Sequence[Examinable]) -> Found:
        """What is stored now where these groups were to write."""
        while True:
            try:
                await self._meta.sync(znodes.TOPICS)
                found = await self._meta.get_many([examined_path(group) for group in groups])
            except MetaError as error:
                log.info("cannot read back %d znodes: %r; again", len(groups), error)
                await self._clock.sleep(READ_AGAIN_S)
                continue
            return [
                (group, None if node is None else (node[0], node[1].version))
                for group, node in zip(groups, found, strict=True)
            ]


def _owner(batch: Sequence[tuple[WriteGroup, list[Op]]], index: int) -> int:
    """Which group the multi's operation `index` belongs to; operation 0 is the fence."""
    end = 1
    for position, (_, ops) in enumerate(batch):
        end += len(ops)
        if index < end:
            return position
    raise AssertionError(f"operation {index} of {end}")


async def read_snapshot(meta: Meta) -> Snapshot:
    """Everything a new controller must know, after a sync. BadZnode: it must not act, for brokers would delete what it
    cannot read. Settings that cannot be read are left out, and said to be (`Snapshot.unread`)."""
    await meta.sync(znodes.TOPICS)
    names = _valid(await meta.children(znodes.TOPICS))
    deletions = await meta.children(znodes.DELETE_TOPICS)
    brokers = await meta.children(znodes.BROKER_IDS)
    topics = await meta.get_many([znodes.topic_path(name) for name in names])
    configs = await meta.get_many([znodes.topic_config_path(name) for name in names])
    registrations = await meta.get_many([f"{znodes.BROKER_IDS}/{name}" for name in brokers])
    assignments = {
        name: znodes.decode_topic(name, node[0]) for name, node in zip(names, topics, strict=True) if node is not None
    }
    partitions = [
        (name, index) for name, assignment in assignments.items() for index in range(len(assignment.partitions))
    ]
    found = await meta.get_many([znodes.state_path(*each) for each in partitions])
    await _check_missing(meta, [each for each, state in zip(partitions, found, strict=True) if state is None])
    states = iter(found)
    stored = []
    unread: dict[str, str] = {}
    for name, topic, node in zip(names, topics, configs, strict=True):
        assignment = assignments.get(name)
        if topic is None or assignment is None:
            continue
        path = znodes.topic_config_path(name)
        settings = _settings(path, node, partial(znodes.decode_topic_config, name), unread)
        stored.append(
            StoredTopic(
                name=name,
                topic_id=assignment.topic_id,
                replicas=assignment.partitions,
                states=tuple(_state(name, index, next(states)) for index in range(len(assignment.partitions))),
                configs=settings or {},
                has_config_node=node is not None,
                version=topic[1].version,
                moves=assignment.moves,
                config_version=0 if node is None else node[1].version,
                unread=node[1].mzxid if node is not None and path in unread else None,
            )
        )
    alive = {name: node for name, node in zip(brokers, registrations, strict=True) if node is not None}
    paths = [f"{znodes.BROKER_DIRECTORIES}/{name}" for name in alive]
    block, placement, *directories = await meta.get_many([znodes.PRODUCER_IDS, znodes.PLACEMENT, *paths])
    ids = _settings(znodes.PRODUCER_IDS, block, znodes.decode_producer_ids, unread)
    placed = _settings(znodes.PLACEMENT, placement, znodes.decode_placement, unread)
    return Snapshot(
        brokers=brokers_of(alive, _directories(zip(alive, directories, strict=True))),
        topics=tuple(stored),
        deletions=tuple(deletions),
        producer_ids=None if block is None or ids is None else (ids, block[1].version),
        placement=None if placement is None or placed is None else (placed, placement[1].version),
        unread=unread,
    )


def _valid(names: Sequence[str]) -> list[str]:
    """The names that a topic can have: no broker holds anything of another one, and each would refuse to be told of it."""
    found = []
    for name in names:
        try:
            found.append(validate_topic_name(name))
        except TidelogError as error:
            log.error("%s is left out: %s", znodes.topic_path(name), error)
    return found


def _settings(
    path: str, node: tuple[bytes, Stat] | None, decode: Callable[[bytes], T], unread: dict[str, str]
) -> T | None:
    """None if there is no such znode, or it cannot be read, which is then in `unread`."""
    try:
        return None if node is None else decode(node[0])
    except znodes.BadZnode as error:
        unread[path] = str(error)
        return None


async def is_any_readable(meta: Meta, unread: Iterable[str]) -> bool:
    """Returns whether one of these znodes, which could not be read, can be read now, or is gone."""
    paths = list(unread)
    still: dict[str, str] = {}
    for path, node in zip(paths, await meta.get_many(paths), strict=True):
        decode = _DECODE.get(path) or partial(znodes.decode_topic_config, path.rpartition("/")[2])
        _settings(path, node, decode, still)
    return len(still) < len(paths)


_DECODE: Final[Mapping[str, Callable[[bytes], object]]] = {
    znodes.PRODUCER_IDS: znodes.decode_producer_ids,
    znodes.PLACEMENT: znodes.decode_placement,
}


async def _check_missing(meta: Meta, partitions: list[tuple[str, int]]) -> None:
    """A partition and its state come and go together: who has deleted the state alone has not made the partition new."""
    found = await meta.get_many([znodes.partition_path(*each) for each in partitions])
    for each, node in zip(partitions, found, strict=True):
        if node is not None:
            raise znodes.BadZnode(znodes.state_path(*each), "it is missing, and the partition above it is there")


def _state(topic: str, index: int, node: tuple[bytes, Stat] | None) -> PartitionState | None:
    if node is None:
        return None
    data, stat = node
    return PartitionState.of(znodes.decode_state(topic, index, data), stat.version)


async def read_directories(meta: Meta, names: Sequence[str]) -> Directories:
    """Returns the data directories of these brokers, by the names of their registrations. Read after the registrations, it
    knows of each of them."""
    found = await meta.get_many([f"{znodes.BROKER_DIRECTORIES}/{name}" for name in names])
    return _directories(zip(names, found, strict=True))


def _directories(nodes: Iterable[tuple[str, tuple[bytes, Stat] | None]]) -> Directories:
    known = {}
    for name, node in nodes:
        broker_id = znodes.broker_id_of(name)
        if broker_id is None or node is None:
            continue
        try:
            stored = znodes.decode_directories(broker_id, node[0])
        except znodes.BadZnode as error:
            log.error("which data directories broker %d had is not known: %s", broker_id, error)
        else:
            known[name] = (*stored.former, (node[1].mzxid, stored.present))
    return known


def brokers_of(nodes: dict[str, tuple[bytes, Stat]], directories: Directories) -> tuple[Broker, ...]:
    """The registrations below /brokers/ids, by broker id. One that cannot be read is no live broker, nor is one of a release
    beside which this one does not work."""
    brokers = []
    for name, (data, stat) in sorted(nodes.items()):
        broker_id = znodes.broker_id_of(name)
        if broker_id is None:
            log.error("%s/%s is no registration of a broker", znodes.BROKER_IDS, name)
            continue
        try:
            registration = znodes.decode_broker(broker_id, data)
        except znodes.BadZnode as error:
            log.error("registration %s is not understood: %s", name, error)
            continue
        if problem := obstacle(RELEASE, [(f"broker {broker_id}", registration.release)]):
            log.error("broker %d is not admitted: %s", broker_id, problem)
            continue
        intact_since = registration.intact_since
        brokers.append(
            Broker(
                broker_id=broker_id,
                epoch=stat.czxid,
                intact_since=stat.czxid if intact_since == znodes.INTACT_SINCE_NOW else intact_since,
                listeners=registration.listeners,
                rack=registration.rack,
                release=registration.release,
                carried=registration.carried,
                directories=_up_to(directories.get(name, ()), stat.czxid, registration.directory_id),
            )
        )
    return tuple(sorted(brokers, key=lambda broker: broker.broker_id))


def _up_to(known: tuple[tuple[int, str], ...], broker_epoch: int, present: str) -> tuple[tuple[int, str], ...]:
    """All that are known up to a life. A broker of a release that does not store them may have another one than is stored."""
    known = tuple(each for each in known if each[0] <= broker_epoch)
    return known if not present or (known and known[-1][1] == present) else (*known, (broker_epoch, present))
