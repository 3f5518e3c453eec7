"""Blocking clients for scripts and Spark workers: the asynchronous ones on an event loop in a thread.

All of them share one thread. Neither it nor gRPC survives a fork: in a child of a process that has had a client, each call
and each new client raises RuntimeError. Start such processes by `multiprocessing.get_context("spawn")` or "forkserver".
"""

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClientClosed
from tidelog.client.group_admin import GroupAdmin
from tidelog.client.groups import ConsumerStats, GroupMetadata
from tidelog.client.log_admin import LogAdmin
from tidelog.client.producer import Ack, Producer, RecordMetadata, flushes_after
from tidelog.client.producer_stats import ProducerStats
from tidelog.client.reassignments import ReassignmentAdmin
from tidelog.client.records import Header
from tidelog.ids import TopicPartition
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.tasks import Supervisor

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_EXIT_S: Final = 5.0
"""The end of a program waits so long for records that were not flushed."""
_UNSEEN_EVERY_S: Final = 10.0
_RECORD_COST: Final = 2000
"""Bytes that a record holds beside its own until it is acknowledged; most are the future's."""


def _say_what_matters(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """All event loops of a process share gRPC's wake-up socket: one that finds it read already has lost nothing."""
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)


class _LoopThread:
    """An event loop in a daemon thread; `call` runs a coroutine there and waits."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tidelog-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(_say_what_matters)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            self.check_caller()
        except RuntimeError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        finally:
            future.cancel()  # of a caller that was interrupted: what came later would be taken and handed to none

    def check_caller(self) -> None:
        """RuntimeError where a call could only wait for ever."""
        self.check_process()
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a callback of a future waits for no call of a client: the call would wait for the callback"
            )

    @property
    def is_foreign(self) -> bool:
        """It is of a process that this one was forked from."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        if self.is_foreign:
            raise RuntimeError(
                "this client is of the process that this one was forked from, and gRPC does not survive a fork: "
                'start processes by multiprocessing.get_context("spawn") or "forkserver"'
            )

    def close(self) -> None:
        self.end_tasks()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def end_tasks(self) -> None:
        """Ends in order what still runs, of which asyncio would complain otherwise."""
        self.call(_end_tasks())


_shared: _LoopThread | None = None
_sharing = threading.Lock()


def _loop_thread() -> _LoopThread:
    """The one of all clients: loops in several threads take each other's wake-ups from gRPC (grpc/grpc#25364)."""
    global _shared
    if _shared is not None:
        _shared.check_process()
    with _sharing:
        if _shared is None:
            _shared = _LoopThread()
            atexit.register(_end_all, _shared)
        return _shared


_open: "dict[SyncProducer, None]" = {}
"""Producers that are not closed, in the order in which they were made."""


def _end_all(thread: _LoopThread) -> None:
    """The program ends: what producers were not told to flush is flushed, or its loss is said."""
    if thread.is_foreign:
        return
    flushes = [(producer, producer._last_flush or producer._flush_later()) for producer in list(_open)]
    concurrent.futures.wait([flush for _, flush in flushes], timeout=_EXIT_S)
    for producer, _ in flushes:
        if lost := producer.unacknowledged:
            _log.error("%d records were not acknowledged when the program ended without close()", lost)
            producer._unseen.mute()
    thread.end_tasks()  # the loop stays open: gRPC still wakes it, through the loops of other threads, too


async def _end_tasks() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=_EXIT_S)


async def _make(kind: type[T], args: tuple[Any, ...], options: dict[str, Any]) -> T:
    return kind(*args, **options)


def _waits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """`method` of the client inside, with the same arguments; the caller waits for its end."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        thread: _LoopThread = self._thread
        return thread.call(method(self._inner, *args, **kwargs))

    return call


def _on_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The same for a plain function, which is called on the loop because it changes what tasks there read."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        thread: _LoopThread = self._thread
        return thread.call(_called(method, self._inner, *args, **kwargs))

    return call


def _takes(kind: Callable[P, object]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """The decorated `__init__` has the parameters of a class, for type checkers, editors and `help`."""

    def decorated(init: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        as_there = wraps(kind.__init__)(init)
        as_there.__doc__ = kind.__doc__
        return as_there

    return decorated


class _SyncClient:
    """Start and stop of the client inside, which is made on its loop: gRPC ties a channel to the loop it is made on."""

    _inner: Any

    def __init__(self, kind: type[Any], args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._thread = _loop_thread()
        self._inner = self._thread.call(_make(kind, args, options))
        self._thread.call(self._inner.__aenter__())

    def close(self) -> None:
        """Calls that wait in other threads, and those that come later, raise ClientClosed. A second `close` does nothing."""
        self._thread.call(self._inner.stop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Part:
    """The blocking twin of an object that an Admin has."""

    def __init__(self, thread: _LoopThread, inner: object) -> None:
        self._thread = thread
        self._inner = inner


class SyncGroupAdmin(_Part):
    """The blocking `GroupAdmin`."""

    listing = _waits(GroupAdmin.listing)
    describe = _waits(GroupAdmin.describe)
    describe_one = _waits(GroupAdmin.describe_one)
    coordinator = _waits(GroupAdmin.coordinator)
    members = _waits(GroupAdmin.members)
    committed = _waits(GroupAdmin.committed)
    alter_offsets = _waits(GroupAdmin.alter_offsets)
    delete = _waits(GroupAdmin.delete)


class SyncLogAdmin(_Part):
    """The blocking `LogAdmin`."""

    delete_records = _waits(LogAdmin.delete_records)
    describe_log_dirs = _waits(LogAdmin.describe_log_dirs)
    discard_damage = _waits(LogAdmin.discard_damage)
    sizes = _waits(LogAdmin.sizes)
    describe_broker_configs = _waits(LogAdmin.describe_broker_configs)


class SyncReassignmentAdmin(_Part):
    """The blocking `ReassignmentAdmin`."""

    alter = _waits(ReassignmentAdmin.alter)
    throttle = _waits(ReassignmentAdmin.throttle)
    throttles = _waits(ReassignmentAdmin.throttles)
    cancel = _waits(ReassignmentAdmin.cancel)
    list = _waits(ReassignmentAdmin.list)
    add_brokers = _waits(ReassignmentAdmin.add_brokers)
    drain = _waits(ReassignmentAdmin.drain)
    undrain = _waits(ReassignmentAdmin.undrain)


class SyncAdmin(_SyncClient):
    """The blocking `Admin`."""

    _inner: Admin

    @_takes(Admin)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(Admin, args, options)
        self.groups = SyncGroupAdmin(self._thread, self._inner.groups)
        self.logs = SyncLogAdmin(self._thread, self._inner.logs)
        self.reassignments = SyncReassignmentAdmin(self._thread, self._inner.reassignments)

    create_topic = _waits(Admin.create_topic)
    create_topics = _waits(Admin.create_topics)
    delete_topic = _waits(Admin.delete_topic)
    delete_topics = _waits(Admin.delete_topics)
    create_partitions = _waits(Admin.create_partitions)
    alter_configs = _waits(Admin.alter_configs)
    describe_configs = _waits(Admin.describe_configs)
    partitions_of = _waits(Admin.partitions_of)
    list_topics = _waits(Admin.list_topics)
    describe_topics = _waits(Admin.describe_topics)
    describe_topic = _waits(Admin.describe_topic)
    describe_cluster = _waits(Admin.describe_cluster)
    elect_leaders = _waits(Admin.elect_leaders)
    release_veto = _waits(Admin.release_veto)
    list_offsets = _waits(Admin.list_offsets)
    wait_until_led = _waits(Admin.wait_until_led)


class SyncConsumer(_SyncClient):
    """`Consumer`, blocking. As a member of a group it answers pings on its own thread while the caller works.

    Rebalance callbacks are plain functions; they run on a third thread and may call this consumer, which hands nothing out
    meanwhile. Iterated, it hands out one record after the other, for ever; a loop that is left loses none, see `Consumer`.
    """

    _inner: Consumer

    @_takes(Consumer)
    def __init__(self, *args: Any, **options: Any) -> None:
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if (listener := options.get(name)) is not None:
                options[name] = partial(asyncio.to_thread, listener)
        super().__init__(Consumer, args, options)

    assign = _waits(Consumer.assign)
    assign_topics = _waits(Consumer.assign_topics)
    partitions_of = _waits(Consumer.partitions_of)
    owns = _on_loop(Consumer.owns)
    seek = _on_loop(Consumer.seek)
    seek_to_beginning = _waits(Consumer.seek_to_beginning)
    seek_to_end = _waits(Consumer.seek_to_end)
    position = _waits(Consumer.position)
    high_watermark = _on_loop(Consumer.high_watermark)
    beginning_offsets = _waits(Consumer.beginning_offsets)
    end_offsets = _waits(Consumer.end_offsets)
    offsets_for_times = _waits(Consumer.offsets_for_times)
    pause = _on_loop(Consumer.pause)
    resume = _on_loop(Consumer.resume)
    commit = _waits(Consumer.commit)
    committed = _waits(Consumer.committed)
    poll = _waits(Consumer.poll)
    __next__ = _waits(Consumer.__anext__)

    def __iter__(self) -> Self:
        return self

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it reads, paused ones too."""
        return self._thread.call(_called(lambda: self._inner.assignment))

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that `pause` holds back."""
        return self._thread.call(_called(lambda: self._inner.paused))

    @property
    def group_metadata(self) -> GroupMetadata:
        """Names the member and its generation, for an application that fences its own effects. ValueError without a group."""
        return self._thread.call(_called(lambda: self._inner.group_metadata))

    @property
    def stats(self) -> ConsumerStats:
        """Counters of a member, as of now. ValueError without a group."""
        return self._thread.call(_called(lambda: self._inner.stats))

    def fetch_batches(self, topic: str, partition: int, start: int, end: int, topic_id: bytes = b"") -> Iterator[bytes]:
        """See `Consumer.fetch_batches`; the next chunk is fetched while the caller works on this one."""
        chunks = self._inner.fetch_batches(topic, partition, start, end, topic_id)
        try:
            while (chunk := self._thread.call(_next(chunks))) is not None:
                yield chunk
        finally:
            self._thread.call(_close(chunks))


class Acked(concurrent.futures.Future[RecordMetadata]):
    """Ends when its record is acknowledged or has failed. A failure that is not looked at is logged."""

    def __init__(self, held_bytes: int, on_unseen: Callable[[BaseException], None]) -> None:
        super().__init__()
        self.held_bytes = held_bytes
        self._on_unseen = on_unseen
        self._seen = False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        self._seen = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._seen = True
        return super().exception(timeout)

    def __del__(self) -> None:
        if not self._seen and self.done() and not self.cancelled() and (error := super().exception()) is not None:
            self._on_unseen(error)


class _Unseen:
    """Failures of records that are looked at nowhere: one line an interval says how many there were."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._next_at = float("-inf")
        self._count = 0
        self._last: BaseException | None = None

    def add(self, error: BaseException) -> None:
        self._count += 1
        self._last = error
        now = self._now()
        if now >= self._next_at:
            self._next_at = now + _UNSEEN_EVERY_S
            self.tell()

    def tell(self) -> None:
        """The producer ends: what the interval would have hidden."""
        if self._count:
            _log.warning("%d records failed whose futures were not looked at; the last: %s", self._count, self._last)
            self._count = 0

    def mute(self) -> None:
        """The loss of the rest is said already."""
        self._next_at = float("inf")


class _Flush(concurrent.futures.Future[None]):
    """Stands in the queue behind the records that a flush waits for."""


_Sent = tuple[tuple[Any, ...], Acked]


class SyncProducer(_SyncClient):
    """`Producer`, blocking. `send` hands records over in bulk: crossing to the loop's thread costs more than a record."""

    _inner: Producer

    @_takes(Producer)
    def __init__(self, *args: Any, **options: Any) -> None:
        self._unsent: deque[_Sent | _Flush] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        """Threads that wait for room."""
        self.held_bytes = 0
        """Memory of records that are not acknowledged."""
        self.unacknowledged = 0
        self._feeding = False
        self._unseen = _Unseen(SystemClock().now)
        self._last_flush: _Flush | None = None
        """The one of `close`, behind which nothing is handed over."""
        super().__init__(Producer, args, options)
        self._supervisor = self._thread.call(_make(Supervisor, ("sync-producer",), {}))
        _open[self] = None

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Acked:
        """Hands a record over and returns the future of its acknowledgement; see `Producer.send`.

        Waits at most `max_block_ms` for room in the buffer. Raises TypeError and ValueError for a record that is none,
        MessageTooLargeError over `record_bytes_max`, and RequestTimedOutError when the buffer stays full. The future raises
        DeliveryError, or UnknownTopicOrPartitionError.

        A record whose future is cancelled before it is handed over is not sent; afterwards it cannot be cancelled.
        """
        self._thread.check_process()
        headers = list(headers)
        size = self._inner.checked_size(topic, value, key, headers, partition, timestamp_ms)
        acked = Acked(size + _RECORD_COST, self._unseen.add)
        with self._lock:
            if not self._has_room():
                self._thread.check_caller()
                self._wait_for_room()
            self._hand_over(((topic, value, key, headers, partition, timestamp_ms), acked))
            self.held_bytes += acked.held_bytes
            self.unacknowledged += 1
        acked.add_done_callback(self._ended)
        return acked

    partitions_of = _waits(Producer.partitions_of)

    @property
    def stats(self) -> ProducerStats:
        """Requests, batches, records and bytes since it was started."""
        return self._thread.call(_called(lambda: self._inner.stats))

    def flush(self) -> None:
        """Returns when every record sent before is acknowledged or has failed, also while other threads go on sending."""
        self._thread.check_caller()
        self._flush_later().result()

    def _flush_later(self) -> "_Flush":
        flushed = _Flush()
        with self._lock:
            self._hand_over(flushed)
        return flushed

    def close(self) -> None:
        """Refuses new records, and flushes; a second one returns when the first has ended."""
        self._thread.check_caller()
        with self._lock:
            if self._last_flush is None:
                flushed = _Flush()
                self._hand_over(flushed)
                self._last_flush = flushed
                self._changed.notify_all()
        try:
            self._last_flush.result()
        finally:
            self._end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flushes as the block of a `Producer` does."""
        if flushes_after(kind):
            self.close()
        else:
            self._end()

    def _end(self) -> None:
        _open.pop(self, None)
        with self._lock:
            if self._last_flush is None:
                self._last_flush = _Flush()
                self._last_flush.set_result(None)
                self._changed.notify_all()
        self._thread.call(self._inner.stop(flush=False))
        self._unseen.tell()
        self._thread.call(self._supervisor.wait())  # what had not been handed over is refused now

    def _wait_for_room(self) -> None:
        self._waiting += 1
        try:
            if not self._changed.wait_for(self._has_room, self._inner.max_block_s):
                raise self._inner.stayed_full()
        finally:
            self._waiting -= 1

    def _has_room(self) -> bool:
        return self._last_flush is not None or self.held_bytes < self._inner.buffer_bytes

    def _ended(self, acked: concurrent.futures.Future[RecordMetadata]) -> None:
        assert isinstance(acked, Acked)
        with self._lock:
            self.held_bytes -= acked.held_bytes
            self.unacknowledged -= 1
            if self._waiting:
                self._changed.notify_all()

    def _hand_over(self, what: _Sent | _Flush) -> None:
        if self._last_flush is not None:
            raise ClientClosed("producer")
        self._unsent.append(what)
        if not self._feeding:
            self._feeding = True
            self._thread.loop.call_soon_threadsafe(self._start_feeding)

    def _start_feeding(self) -> None:
        self._supervisor.start("feed", self._feed())

    async def _flush_inner(self, flushed: _Flush) -> None:
        with _Told(flushed):
            await self._inner.flush()
            flushed.set_result(None)

    async def _feed(self) -> None:
        """The only feeder at a time, so that records keep their order while one waits for room."""
        while True:
            with self._lock:
                if not self._unsent:
                    self._feeding = False
                    return
                head = self._unsent.popleft()
            if isinstance(head, _Flush):
                self._supervisor.start(
                    "flush", self._flush_inner(head)
                )  # what was sent before is with the producer now
                continue
            args, acked = head
            if not acked.set_running_or_notify_cancel():
                continue
            with _Told(acked):
                ack = await self._inner.send(*args)
                ack.add_done_callback(partial(_pass_on, acked))


class _Told:
    """Whatever error ends the block is the future's, and goes no further: it is of one record, and others wait behind it."""

    __slots__ = ("_acked",)

    def __init__(self, acked: concurrent.futures.Future[Any]) -> None:
        self._acked = acked

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._acked.set_exception(error)
        return True


def _pass_on(acked: Acked, done: Ack) -> None:
    error = done.exception()
    if error is not None:
        acked.set_exception(error)
    else:
        acked.set_result(done.result())


async def _called(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _close(chunks: Any) -> None:
    await chunks.aclose()
