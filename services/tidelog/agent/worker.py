"""The heart of an agent: poll, handle in small chunks, make safe, commit; in this order, whatever happens in between.

It never handles a record of a partition that may be another's: the lease is asked before every chunk and every attempt, by
this process's own clock, so that one that stood still for longer than its session does nothing when it goes on (COORD-1).
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Protocol

from tidelog.agent.handler import Handler
from tidelog.client.records import ConsumerRecord
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.runtime.tasks import HandlerBug, contained

log = logging.getLogger(__name__)

STOP: Final = "stop"
SKIP: Final = "skip"
RETRY: Final = "retry"

POLL_S: Final = 0.5
PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 30.0


class Reader(Protocol):
    """A consumer of a group, as far as a worker needs it."""

    async def poll(self, max_records: int, timeout_s: float) -> Sequence[ConsumerRecord]: ...

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Next offsets to process; returns when they are stored."""
        ...

    def owns(self, tp: TopicPartition) -> bool:
        """Whether it is assigned and the lease holds, at this instant."""
        ...

    @property
    def placed(self) -> Mapping[TopicPartition, int]:
        """Positions at which the reset policy `latest` began, until an offset is committed there."""
        ...

    @property
    def fetched_at(self) -> float | None:
        """When a leader last answered; None: none has yet."""
        ...


class Observer(Protocol):
    """What is counted."""

    def handled(self, topic: str, records: int, seconds: float) -> None: ...

    def failed(self, action: str) -> None:
        """`action`: stop, skip or retry."""
        ...

    def dropped(self, records: int) -> None:
        """Polled, and not handled: the partition was no longer this agent's."""
        ...


COMMIT_WAIT_S: Final = 0.5
"""Work goes on while there is no coordinator to commit with (OPEN-07)."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    on_error: str = STOP
    chunk_records: int = 100
    """Polled at once; so few that a partition that is wanted elsewhere is soon given back."""
    commit_interval_s: float = 5.0


class Worker:
    def __init__(
        self, reader: Reader, handler: Handler, clock: Clock, observer: Observer, options: WorkerOptions
    ) -> None:
        self._reader = reader
        self._handler = handler
        self._clock = clock
        self._observer = observer
        self._options = options
        self._done: dict[TopicPartition, int] = {}
        """The next offset to handle, where it is not committed yet."""
        self.positions: dict[TopicPartition, int] = {}
        """The next offset to handle, of what it owns and has handled something of."""
        self._void: set[TopicPartition] = set()
        """Gone since the records at hand were polled; those of them that are left are not ours to handle."""
        self._turn = asyncio.Lock()
        """Held while the handler works, so that a partition is let go of between two chunks."""
        self._stopping = asyncio.Event()
        self.worked_at: float | None = None
        """When a poll that leaders have answered, or a commit, last succeeded."""

    def stop(self) -> None:
        """`run` ends after the chunk at hand."""
        self._stopping.set()

    async def run(self) -> None:
        """Until `stop`; TidelogError when a record cannot be handled and `on_error` is stop."""
        commit_at = self._clock.now() + self._options.commit_interval_s
        while not self._stopping.is_set():
            records = await self._reader.poll(self._options.chunk_records, POLL_S)
            if self._reader.fetched_at is not None:
                self.worked_at = max(self.worked_at or 0.0, self._reader.fetched_at)
            self._void.clear()  # a partition that went before is not in these records
            for chunk in by_partition(records):
                if self._stopping.is_set():
                    break
                await self._handle(chunk)
                await self._make_room()
            if self._note_placed():
                commit_at = self._clock.now()
            if self._clock.now() >= commit_at:
                await self._commit(COMMIT_WAIT_S)
                commit_at = self._clock.now() + self._options.commit_interval_s
        await self._commit()

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Returns when they can be another's: nothing of them is handled any more, what was is safe and committed."""
        self._void.update(partitions)
        async with self._turn:
            self._note_placed()
            try:
                await self._flush_and_commit(partitions)
            except TidelogError as error:
                log.warning(
                    "not safe when they were revoked; the next owner handles them again", extra={"error": error.message}
                )
            self._forget(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """They may be another's already."""
        self._void.update(partitions)
        self._forget(partitions)

    def _note_placed(self) -> bool:
        """Has the positions committed at which `latest` began: the next owner would begin at others. True: there are new ones."""
        new = self._reader.placed.keys() - self._done.keys()
        self._done.update((tp, self._reader.placed[tp]) for tp in new)
        return bool(new)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._done.pop(tp, None)
            self.positions.pop(tp, None)
        self._handler.lose(partitions)

    async def _handle(self, chunk: Sequence[ConsumerRecord]) -> None:
        first, last = chunk[0], chunk[-1]
        tp = TopicPartition(first.topic, first.partition)
        failures = 0
        while True:
            async with self._turn:
                if tp in self._void or not self._reader.owns(tp):
                    self._void.add(tp)
                    self._observer.dropped(len(chunk))
                    return
                began_at = self._clock.now()
                try:
                    await contained("handle", self._handler.handle(chunk), lambda _: None)
                except (TidelogError, TransportError, HandlerBug) as error:
                    self._observer.failed(self._options.on_error)
                    where = f"{tp}, offsets {first.offset} to {last.offset}"
                    cause = error.__cause__ or error
                    log.warning(
                        "records cannot be handled",
                        extra={"where": where, "error": str(cause), "then": self._options.on_error},
                    )
                    if self._options.on_error == STOP:
                        text = f"the handler failed at {where}: {type(cause).__name__}: {cause}"
                        raise TidelogError(text, ErrorCode.UNKNOWN_SERVER_ERROR) from error
                    handled = self._options.on_error == SKIP
                else:
                    self._observer.handled(tp.topic, len(chunk), self._clock.now() - began_at)
                    handled = True
                if handled:
                    if tp not in self._void:
                        self._done[tp] = self.positions[tp] = last.offset + 1
                    return
            await self._pause(failures)
            failures += 1
            if self._stopping.is_set():
                return

    async def _pause(self, failures: int) -> None:
        """Doubled with each failure; cut short by `stop`."""
        pause = min(PAUSE_FIRST_S * 2 ** min(failures, 20), PAUSE_MAX_S)
        waited = 0.0
        while waited < pause and not self._stopping.is_set():
            step = min(POLL_S, pause - waited)
            await self._clock.sleep(step)
            waited += step

    async def _make_room(self) -> None:
        """Nothing more is handled while the handler cannot get rid of what it holds."""
        failures = 0
        while self._handler.full and not self._stopping.is_set():
            await self._commit(COMMIT_WAIT_S)
            if self._handler.full:
                await self._pause(failures)
                failures += 1

    async def _commit(self, wait_s: float | None = None) -> None:
        async with self._turn:
            await self._flush_and_commit(list(self._done), wait_s)

    async def _flush_and_commit(self, partitions: Collection[TopicPartition], wait_s: float | None = None) -> None:
        """A commit that fails is tried again with the next one, as is one that takes longer than `wait_s`; a flush that fails
        is an error of the handler."""
        if not any(tp in self._done for tp in partitions):
            return
        try:
            await contained("flush", self._handler.flush(), lambda _: None)
        except (TidelogError, TransportError, HandlerBug) as error:
            self._observer.failed(self._options.on_error)
            cause = error.__cause__ or error
            text = f"the handler cannot make safe what it has handled: {type(cause).__name__}: {cause}"
            if self._options.on_error == STOP:
                raise TidelogError(text, ErrorCode.UNKNOWN_SERVER_ERROR) from error
            log.warning("nothing is committed", extra={"error": text})
            return
        # Only now: what was lost during the flush is not in it any more.
        offsets = {tp: self._done[tp] for tp in partitions if tp in self._done}
        if not offsets:
            return
        try:
            async with asyncio.timeout(wait_s):
                await self._reader.commit(offsets)
        except TimeoutError:
            log.warning("offsets are not committed yet; again with the next ones")
            return
        except (TidelogError, TransportError) as error:
            log.warning("offsets are not committed; again with the next ones", extra={"error": str(error)})
            return
        self.worked_at = self._clock.now()
        for tp, offset in offsets.items():
            if self._done.get(tp) == offset:
                del self._done[tp]


def by_partition(records: Sequence[ConsumerRecord]) -> Iterator[list[ConsumerRecord]]:
    """Runs of records of one partition, in order."""
    for _, run in groupby(records, key=lambda record: (record.topic, record.partition)):
        yield list(run)
