"""Records waiting to be sent: one queue of batches for each partition. Pure; the producer is its shell.

A batch that must be tried again goes back to the head of its queue, and nothing passes it. Without idempotence one batch
of a partition is in flight at a time, or retries would reorder records; with it several may be, since the leader refuses what
comes too early (HOLE-28, `numbering`). Batches for one leader leave together: the cost of the log is per message, not per
byte (performance 0.1).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tidelog.client.numbering import SEQUENCE_MASK, Identity, Numbering
from tidelog.client.records import Header, Record, decode_batch, encode_batch, new_builder
from tidelog.ids import NO_EPOCH, BrokerId, TopicPartition
from tidelog.wire.batch import NO_PRODUCER_ID, Codec, numbered, read_header

W = TypeVar("W")
"""Whoever waits for a record: the shell's future, carried and never touched."""

RECORD_COST: Final = 200
"""Bytes that a record holds beside those in its batch: the future, the timestamp and their places in lists."""
_BATCH_COST: Final = 1600
"""Bytes of a batch beside its records."""

LeaderOf = Callable[[TopicPartition], BrokerId | None]

EndOf = Callable[[int, int], int]
"""Where a batch ends, exclusively: from the sequence of its first record and how many records it may have at most."""


class Batch(Generic[W]):
    """Records of one partition on their way. `waiters[i]` waits for the record with relative offset `i`; the one of a batch
    that the caller has encoded waits for all of it."""

    __slots__ = (
        "alone",
        "builder",
        "created_at",
        "encoded",
        "end_of",
        "failures",
        "leader_epoch",
        "maybe_appended",
        "order",
        "partition",
        "sequence",
        "size_bytes",
        "timestamps_ms",
        "waiters",
    )

    def __init__(self, partition: TopicPartition, created_at: float, builder: Any) -> None:
        self.partition = partition
        self.created_at = created_at
        self.builder = builder
        self.encoded: bytes | None = None
        self.end_of: EndOf | None = None
        """Of a batch that the caller has encoded and that may be split: where its first half may end."""
        self.size_bytes = 0
        self.waiters: list[W] = []
        self.timestamps_ms: list[int] = []
        self.failures = 0
        self.maybe_appended = False
        """Some attempt ended without a certain "no": the records may be in the log."""
        self.leader_epoch = NO_EPOCH
        """In which its leader was asked last; only the leader of that epoch answers with success."""
        self.sequence = -1
        """Of its first record; -1 until it is sent for the first time, and without idempotence."""
        self.order: tuple[int, ...] = ()
        """Of its place in the queue, for when it comes back; parts of a batch add a number of their own."""
        self.alone = False
        """No batch before it was without an answer when it was sent: a gap that the leader sees is not ours to fill."""

    @property
    def splittable(self) -> bool:
        return len(self.waiters) > 1 or (self.end_of is not None and self.record_count > 1)

    @property
    def record_count(self) -> int:
        if self.builder is None and self.encoded is not None:
            return read_header(self.encoded).record_count
        return len(self.waiters)

    @property
    def held_bytes(self) -> int:
        """Memory that it takes."""
        return self.size_bytes + _BATCH_COST + RECORD_COST * len(self.waiters)

    def records(self) -> bytes:
        """The batch as bytes; compressed and sealed at the first call."""
        if self.encoded is None:
            self.encoded = bytes(self.builder.build())
            self.builder = None
        return self.encoded


class _Queue(Generic[W]):
    __slots__ = ("batches", "in_flight", "not_before")

    def __init__(self) -> None:
        self.batches: deque[Batch[W]] = deque()
        self.in_flight: list[Batch[W]] = []
        self.not_before = 0.0


@dataclass(frozen=True, slots=True)
class Drained(Generic[W]):
    """What may leave now, by leader, and the partitions that have something to send and no known leader."""

    requests: dict[BrokerId, list[Batch[W]]]
    leaderless: list[TopicPartition]


class Accumulator(Generic[W]):
    def __init__(
        self,
        *,
        batch_bytes: int,
        linger_s: float,
        buffer_bytes: int,
        request_bytes: int,
        codec: Codec = Codec.NONE,
        idempotent: bool = False,
        in_flight_max: int = 1,
    ) -> None:
        """`in_flight_max` batches of one partition with idempotence; without it always one."""
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._buffer_bytes = buffer_bytes
        self._request_bytes = request_bytes
        self._codec = codec
        self._queues: dict[TopicPartition, _Queue[W]] = {}
        self._waiting: dict[TopicPartition, _Queue[W]] = {}
        """Those with something to send, in the order in which they became so."""
        self._idempotent = idempotent
        self._in_flight_max = in_flight_max
        self._numberings: dict[TopicPartition, Numbering] = {}
        self._made = 0
        self._flushing = 0
        self.buffered_bytes = 0
        """Memory that is held, also by what is in flight."""

    @property
    def full(self) -> bool:
        return self.buffered_bytes >= self._buffer_bytes

    @property
    def empty(self) -> bool:
        return not self._queues

    def takes(self, tp: TopicPartition, size_bytes: int) -> bool:
        """True if a record of that size still goes into the batch that is open there; the sticky partitioner stays then."""
        queue = self._queues.get(tp)
        if queue is None or not queue.batches:
            return False
        batch = queue.batches[-1]
        return batch.builder is not None and batch.size_bytes + size_bytes <= self._batch_bytes

    def seal(self, tp: TopicPartition) -> None:
        """Nothing more goes into the open batch of `tp`, so it need not linger."""
        queue = self._queues.get(tp)
        if queue is not None and queue.batches:
            queue.batches[-1].records()

    def append(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        waiter: W,
        now: float,
    ) -> bool:
        """True if this record opened a new batch. The caller has checked `full` and the record's size."""
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = _Queue()
        batches = queue.batches
        if batches:
            batch = batches[-1]
            builder = batch.builder
            if builder is not None:
                added = builder.append(len(batch.waiters), timestamp_ms, key, value, headers)
                if added is not None:
                    batch.waiters.append(waiter)
                    batch.timestamps_ms.append(timestamp_ms)
                    batch.size_bytes += added.size
                    self.buffered_bytes += added.size + RECORD_COST
                    return False
        builder = new_builder(self._codec, self._batch_bytes)
        batch = Batch(tp, now, builder)
        # The first record is taken whatever its size: a batch of one may be larger than `batch_bytes`.
        builder.append(0, timestamp_ms, key, value, headers)
        batch.waiters.append(waiter)
        batch.timestamps_ms.append(timestamp_ms)
        self._add(tp, queue, batch, builder.size())
        return True

    def append_encoded(
        self, tp: TopicPartition, records: bytes, waiter: W, now: float, end_of: EndOf | None = None
    ) -> None:
        """A batch that the caller has made; `waiter` waits for its first record."""
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = _Queue()
        batch: Batch[W] = Batch(tp, now, None)
        batch.encoded = records
        batch.end_of = end_of
        batch.waiters.append(waiter)
        batch.timestamps_ms.append(read_header(records).base_timestamp)
        self._add(tp, queue, batch, len(records))

    def _add(self, tp: TopicPartition, queue: _Queue[W], batch: Batch[W], size_bytes: int) -> None:
        self._made += 1
        batch.order = (self._made,)
        batch.size_bytes = size_bytes
        self.buffered_bytes += batch.held_bytes
        queue.batches.append(batch)
        self._waiting.setdefault(tp, queue)

    def drain(
        self,
        now: float,
        leader_of: LeaderOf,
        has_room: Callable[[BrokerId], bool],
        identity: Identity | None = None,
    ) -> Drained[W]:
        """Takes the head batch of every partition that is due, for leaders with room; each is in flight from now on.

        With idempotence nothing leaves before there is an `identity`.
        """
        requests: dict[BrokerId, list[Batch[W]]] = {}
        sizes: dict[BrokerId, int] = {}
        leaderless: list[TopicPartition] = []
        for tp, queue in list(self._waiting.items()):
            if not (self._may_send(tp, queue, identity, now) and self._due(queue, now)):
                continue
            leader = leader_of(tp)
            if leader is None:
                leaderless.append(tp)
                continue
            batch = queue.batches[0]
            size = sizes.get(leader, 0)
            if not has_room(leader) or (size and size + batch.size_bytes > self._request_bytes):
                continue
            sizes[leader] = size + batch.size_bytes
            self._take(tp, queue)
            requests.setdefault(leader, []).append(batch)
        return Drained(requests, leaderless)

    def _may_send(self, tp: TopicPartition, queue: _Queue[W], identity: Identity | None, now: float) -> bool:
        if not self._idempotent:
            return not queue.in_flight
        if identity is None:
            return False
        numbering = self._numberings.get(tp)
        if numbering is None:
            numbering = self._numberings[tp] = Numbering(identity)
        if not queue.in_flight:
            return self._renewed(numbering, queue, identity)
        # Not before the first acknowledgement: from then on every leader to come knows this producer, and refuses a batch
        # whose predecessor it lacks. And nothing new while a retry is under way: it would only be refused as well.
        return (
            numbering.is_settled(now)
            and not numbering.broken
            and len(queue.in_flight) < self._in_flight_max
            and queue.batches[0].sequence < 0
            and not any(batch.failures for batch in queue.in_flight)
        )

    @staticmethod
    def _renewed(numbering: Numbering, queue: _Queue[W], identity: Identity) -> bool:
        """With nothing in flight a broken numbering begins anew, as soon as there is another identity for it, and all that was
        sent before what is missing has ended."""
        if numbering.broken and not (queue.batches[0].sequence >= 0 and queue.batches[0].order < numbering.gap):
            if identity == numbering.identity:
                return False
            numbering.restart(identity)
            for batch in queue.batches:
                batch.sequence = -1
        return True

    def _take(self, tp: TopicPartition, queue: _Queue[W]) -> None:
        """The head batch is in flight from now on."""
        batch = queue.batches.popleft()
        batch.alone = not queue.in_flight
        queue.in_flight.append(batch)
        if not queue.batches:
            del self._waiting[tp]
        if self._idempotent and batch.sequence < 0:
            numbering = self._numberings[tp]
            batch.sequence = numbering.next(batch.record_count)
            batch.encoded = numbered(batch.records(), *numbering.identity, batch.sequence)

    def _due(self, queue: _Queue[W], now: float) -> bool:
        if now < queue.not_before:
            return False
        batch = queue.batches[0]
        closed = len(queue.batches) > 1 or batch.builder is None
        if queue.in_flight:
            return closed  # one that is open may still grow, and costs as much to send as a full one
        return closed or self._flushing > 0 or self.full or now >= batch.created_at + self._linger_s

    def next_at(self, now: float, lifetime_s: float) -> float | None:
        """When to look again because time passes (linger, a retry's pause, `expire`); None: only an event can help.

        What is due already and did not leave waits for room or for a leader, which are events, or expires.
        """
        soonest: float | None = None
        for queue in self._waiting.values():
            created_at = queue.batches[0].created_at
            at = max(queue.not_before, created_at + self._linger_s)
            if at <= now:
                at = created_at + lifetime_s
            if soonest is None or at < soonest:
                soonest = at
        return soonest

    def limit_requests(self, request_bytes: int) -> None:
        """No request with several batches is larger from now on."""
        self._request_bytes = min(self._request_bytes, request_bytes)

    def done(self, batch: Batch[W]) -> None:
        """A batch in flight is acknowledged, or given up (then see `given_up` as well)."""
        queue = self._landed(batch)
        queue.not_before = 0.0
        self.buffered_bytes -= batch.held_bytes
        self._rejoin(batch.partition, queue)

    def _landed(self, batch: Batch[W]) -> _Queue[W]:
        queue = self._queues[batch.partition]
        queue.in_flight.remove(batch)
        return queue

    def settled(self, tp: TopicPartition, now: float) -> None:
        """A batch of `tp` is committed, and with it, wherever the leader will be, the knowledge of this producer."""
        if self._idempotent:
            self._numberings[tp].settled_at = now

    def given_up(self, batch: Batch[W]) -> None:
        """The batch has failed. If it is certainly not in the log its sequences are missing there, and nothing that follows
        them would be taken."""
        if batch.sequence >= 0 and not batch.maybe_appended:
            self._numberings[batch.partition].break_at(batch.order)

    def break_off(self, tp: TopicPartition) -> None:
        """The leader misses what came before: nothing of `tp` leaves until it can begin anew under another identity."""
        self._numberings[tp].break_at(())

    def stranded(self) -> Iterator[Batch[W]]:
        """Removes and yields what cannot be numbered anew: an earlier try of it may still be on its way, and would be stored
        if what is missing before it came first, while no leader could know the two for one."""
        for tp, numbering in self._numberings.items():
            queue = self._waiting.get(tp) if numbering.broken else None
            if queue is None or queue.in_flight:
                continue
            after = [each for each in queue.batches if each.order > numbering.gap]
            for batch in [each for each in after if each.sequence >= 0 and each.maybe_appended]:
                queue.batches.remove(batch)
                self.buffered_bytes -= batch.held_bytes
                yield batch
            self._rejoin(tp, queue)

    def is_broken(self, identity: Identity) -> bool:
        """Whether some partition needs another identity than this."""
        return any(each.broken and each.identity == identity for each in self._numberings.values())

    def try_again(self, batch: Batch[W], not_before: float) -> None:
        """A batch in flight goes back to its queue, before all that were sent after it."""
        queue = self._landed(batch)
        self._put_back(queue, batch)
        queue.not_before = max(queue.not_before, not_before)
        self._rejoin(batch.partition, queue)

    def replace(self, batch: Batch[W], parts: Iterable[Batch[W]]) -> None:
        """A batch in flight was too large for the log: its parts take its place, in order."""
        self.given_up(batch)
        queue = self._landed(batch)
        self.buffered_bytes -= batch.held_bytes
        for part in parts:
            self._put_back(queue, part)
            self.buffered_bytes += part.held_bytes
        self._rejoin(batch.partition, queue)

    @staticmethod
    def _put_back(queue: _Queue[W], batch: Batch[W]) -> None:
        """Behind what was sent before it, which may have come back earlier, and in front of all else."""
        at = 0
        while at < len(queue.batches) and queue.batches[at].order < batch.order:
            at += 1
        queue.batches.insert(at, batch)

    def waiting(self) -> list[TopicPartition]:
        return list(self._waiting)

    def pausing(self, now: float) -> bool:
        """True while a failed batch waits for its next try."""
        return any(queue.not_before > now for queue in self._waiting.values())

    def hurry(self, tp: TopicPartition) -> None:
        """A new leader is known: a retry need not wait out its pause."""
        queue = self._queues.get(tp)
        if queue is not None:
            queue.not_before = 0.0

    def expire(self, now: float, lifetime_s: float) -> Iterator[Batch[W]]:
        """Removes and yields every batch, not in flight, whose time is up.

        The sum is compared as in `next_at`: a difference may round the other way, and whoever waits until then would find
        nothing to do, for ever where time stands still.
        """
        for tp, queue in list(self._waiting.items()):
            while queue.batches and queue.batches[0].created_at + lifetime_s <= now:
                batch = queue.batches.popleft()
                self.buffered_bytes -= batch.held_bytes
                self.given_up(batch)
                yield batch
            self._rejoin(tp, queue)

    def _rejoin(self, tp: TopicPartition, queue: _Queue[W]) -> None:
        if queue.batches:
            self._waiting.setdefault(tp, queue)
        else:
            self._waiting.pop(tp, None)
            if not queue.in_flight:
                del self._queues[tp]

    def batches(self) -> Iterator[Batch[W]]:
        """Every batch that is here or in flight, those of one partition in order."""
        for queue in self._queues.values():
            yield from queue.in_flight
            yield from queue.batches

    def in_flight(self) -> Iterator[Batch[W]]:
        """Every batch that was handed to a request whose answer is not here yet."""
        for queue in self._queues.values():
            yield from queue.in_flight

    def begin_flush(self) -> None:
        """Until `end_flush`, nothing lingers."""
        self._flushing += 1

    def end_flush(self) -> None:
        self._flushing -= 1


def halves(batch: Batch[W]) -> list[Batch[W]]:
    """The records of a batch that the log finds too large, in two batches; only for one that is `splittable`.

    Records that the caller has numbered keep their numbers.
    """
    header = read_header(batch.records())
    first, count = header.base_sequence, header.record_count
    middle = count // 2
    assert middle, "a single record cannot be split"
    encoded = batch.end_of is not None
    if batch.end_of is not None:
        middle = batch.end_of(first, middle) - first
    parts: list[Batch[W]] = []
    records = list(decode_batch(batch.partition, batch.records(), header))
    for number, (begin, end) in enumerate(((0, middle), (middle, count))):
        half: Batch[W] = Batch(batch.partition, batch.created_at, None)
        half.encoded = encode_batch(
            (Record(r.key, r.value, r.headers, r.timestamp_ms) for r in records[begin:end]), Codec(header.codec)
        )
        if batch.sequence < 0 and header.producer_id != NO_PRODUCER_ID:
            sequence = (first + begin) & SEQUENCE_MASK
            half.encoded = numbered(half.encoded, header.producer_id, header.producer_epoch, sequence)
        half.end_of = batch.end_of
        half.waiters = list(batch.waiters) if encoded else batch.waiters[begin:end]
        half.timestamps_ms = [records[begin].timestamp_ms] if encoded else batch.timestamps_ms[begin:end]
        half.size_bytes = len(half.encoded)
        half.maybe_appended = batch.maybe_appended
        half.order = (*batch.order, number)
        parts.append(half)
    return parts
