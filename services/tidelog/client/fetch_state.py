"""What a consumer has fetched and still has to fetch, for each assigned partition. Pure; the consumer is its shell."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Final, NamedTuple

from tidelog.client.errors import BadBatchError, LogTruncationError, PositionOutOfRangeError
from tidelog.client.records import ConsumerRecord, decode_batch, split_batches
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_EPOCH, NO_OFFSET, BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire.batch import BatchHeader

RESETS = ("earliest", "latest", "error")
QUEUED_MAX_BYTES: Final = 64 * 1024 * 1024
"""The sum of what is fetched ahead of all partitions; librdkafka's queued.max.messages.kbytes."""
_EPOCHS_MAX = 100
"""Of the reader's own history; what is forgotten makes it go back further than it must, never less far."""


class _EpochStart(NamedTuple):
    leader_epoch: int
    start_offset: int


class Ask(NamedTuple):
    """One partition of a Fetch. An answer is void after a seek, and of no concern to a later assignment of `tp`."""

    tp: TopicPartition
    offset: int
    last_fetched_epoch: int
    seeks: int
    tenure: int
    topic_id: bytes
    max_bytes: int


class Wanted(NamedTuple):
    """Asks by leader, and whether some partition has no known leader."""

    asks: dict[BrokerId, list[Ask]]
    leaderless: bool


class _Partition:
    __slots__ = (
        "alone",
        "buffer",
        "buffered_bytes",
        "decoded",
        "decoded_end",
        "epochs",
        "failures",
        "fetch_offset",
        "high_watermark",
        "in_flight",
        "last_epoch",
        "log_start",
        "not_before",
        "paused",
        "position",
        "proven",
        "seeks",
        "tenure",
        "topic_id",
        "topic_is_given",
    )

    def __init__(self, tenure: int, topic_id: bytes = b"") -> None:
        self.tenure = tenure
        self.paused = False
        self.seeks = 0
        self.high_watermark = NO_OFFSET
        self.log_start = NO_OFFSET
        self.topic_id = topic_id
        """Of the topic that the position is one of; empty until a leader has answered for it. Metadata alone may be old."""
        self.topic_is_given = bool(topic_id)
        """The topic came with the assignment: the partition is never read of another one of its name."""
        self.place(NO_OFFSET)

    def place(self, offset: int, epochs: Iterable[_EpochStart] = ()) -> None:
        """Everything begins anew at `offset`; NO_OFFSET: the reset policy has to find one."""
        self.seeks += 1
        self.in_flight = False
        """A fetch from here is not answered."""
        self.proven = False
        """A leader has answered a fetch from here."""
        self.position = offset
        self.fetch_offset = offset
        self.epochs = deque(epochs, _EPOCHS_MAX)
        """Where each leader epoch began in what was read: the reader's own history (KIP-320)."""
        self.last_epoch = self.epochs[-1].leader_epoch if self.epochs else NO_EPOCH
        self.buffer: deque[tuple[BatchHeader, memoryview, int] | TidelogError] = deque()
        """Batches, each with the bytes that its end frees: those of a whole answer, with its last batch."""
        self.buffered_bytes = 0
        self.decoded: deque[ConsumerRecord] = deque()
        self.decoded_end = offset
        """Of the batch that they are from; compaction may have removed its last records."""
        self.not_before = 0.0
        self.failures = 0
        self.alone = False
        """The next fetch asks for one batch and for no other partition."""

    def last_epoch_in(self, topic_id: bytes) -> int:
        """Another topic of the name counts its epochs from zero again."""
        return self.last_epoch if self.topic_id in (b"", topic_id) else NO_EPOCH

    @property
    def stalled(self) -> bool:
        """An error waits for the caller, who must seek before anything more is fetched."""
        return bool(self.buffer) and isinstance(self.buffer[-1], TidelogError)


class FetchState:
    """`reset` says where to go without a position, or with one that left the log: earliest, latest or error."""

    def __init__(self, *, partition_bytes: int, reset: str, queued_max_bytes: int = QUEUED_MAX_BYTES) -> None:
        if reset not in RESETS:
            raise ValueError(f"auto_offset_reset {reset!r} is not one of {', '.join(RESETS)}")
        self._partition_bytes = partition_bytes
        self._queued_max_bytes = queued_max_bytes
        self._reset = reset
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._tenures = count()

    @property
    def assigned(self) -> list[TopicPartition]:
        return list(self._partitions)

    def __contains__(self, tp: TopicPartition) -> bool:
        """Says whether the partition is assigned."""
        return tp in self._partitions

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Replaces the assignment; partitions that stay keep their position."""
        self._partitions = {tp: self._partitions.get(tp) or _Partition(next(self._tenures)) for tp in tps}

    def add(self, tp: TopicPartition, topic_id: bytes = b"") -> None:
        """Without a position, whatever it had. `topic_id`: read nothing but this topic; empty: whichever has the name."""
        self._partitions[tp] = _Partition(next(self._tenures), topic_id)

    def given_topic_id(self, tp: TopicPartition) -> bytes:
        """The topic that the partition was added with; empty: whichever has the name."""
        p = self._partitions.get(tp)
        return p.topic_id if p is not None and p.topic_is_given else b""

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """With what was fetched of them."""
        for tp in tps:
            self._partitions.pop(tp, None)

    def pause(self, tps: Iterable[TopicPartition], paused: bool) -> None:
        """Paused ones are neither fetched nor handed out; what was fetched ahead is kept."""
        for tp in tps:
            self._partitions[tp].paused = paused

    @property
    def paused(self) -> list[TopicPartition]:
        return [tp for tp, p in self._partitions.items() if p.paused]

    def is_void(self, ask: Ask) -> bool:
        """A seek or a new assignment has come since."""
        p = self._partitions.get(ask.tp)
        return p is None or (p.tenure, p.seeks) != (ask.tenure, ask.seeks)

    def left_log(self, ask: Ask) -> bool:
        """Of an ask that was out of range: the position was in the log once, and the log has moved away from it."""
        p = self._partitions.get(ask.tp)
        return p is not None and not self.is_void(ask) and p.proven and p.topic_id == ask.topic_id

    def seek(self, tp: TopicPartition, offset: int, last_epoch: int = NO_EPOCH) -> None:
        """`last_epoch` is that of the record before `offset`, if the caller knows it."""
        known = [_EpochStart(last_epoch, offset - 1)] if last_epoch >= 0 and offset > 0 else []
        self._partitions[tp].place(offset, known)

    def found(self, tp: TopicPartition, offset: int, leader_epoch: int) -> None:
        """A leader has answered where to begin: the records from `offset` on are of this epoch or a later one."""
        self._partitions[tp].place(offset, [_EpochStart(leader_epoch, offset)] if leader_epoch >= 0 else [])

    @property
    def queued_bytes(self) -> int:
        """Memory of answers that are not read to their end."""
        return sum(p.buffered_bytes for p in self._partitions.values())

    def position(self, tp: TopicPartition) -> int:
        """Of the next record to hand out; NO_OFFSET while it is being looked up."""
        return self._partitions[tp].position

    def last_epoch(self, tp: TopicPartition, topic_id: bytes) -> int:
        """Of the record before the one to fetch next; NO_EPOCH: not known, or not one of this topic."""
        return self._partitions[tp].last_epoch_in(topic_id)

    def high_watermark(self, tp: TopicPartition) -> int:
        """As of the last answer; NO_OFFSET before the first."""
        return self._partitions[tp].high_watermark

    def unplaced(self) -> list[TopicPartition]:
        """Those that need an offset by the reset policy."""
        return [tp for tp, p in self._partitions.items() if p.position == NO_OFFSET and not p.stalled]

    def wanted(
        self,
        now: float,
        leader_of: Callable[[TopicPartition], BrokerId | None],
        has_room: Callable[[BrokerId], bool],
        topic_id_of: Callable[[str], bytes],
    ) -> Wanted:
        """What to ask each leader for now, in flight from here on."""
        asks: dict[BrokerId, list[Ask]] = {}
        leaderless = False
        # Two answers a partition, one to read from and one ahead. A batch may be larger than what was asked for.
        share = max(1, min(self._partition_bytes, self._queued_max_bytes // (2 * max(len(self._partitions), 1))))
        queued = self.queued_bytes
        closed: set[BrokerId] = set()
        for tp, p in self._partitions.items():
            if p.in_flight or p.paused or p.position == NO_OFFSET or p.stalled or now < p.not_before:
                continue
            if p.buffered_bytes >= share or (p.buffer and queued >= self._queued_max_bytes):
                continue
            leader = leader_of(tp)
            if leader is None:
                leaderless = True
            elif has_room(leader) and leader not in closed and not (p.alone and leader in asks):
                p.in_flight = True
                if p.alone:
                    closed.add(leader)
                topic_id = p.topic_id if p.topic_is_given else topic_id_of(tp.topic)
                size = 1 if p.alone else share
                ask = Ask(tp, p.fetch_offset, p.last_epoch_in(topic_id), p.seeks, p.tenure, topic_id, size)
                asks.setdefault(leader, []).append(ask)
        return Wanted(asks, leaderless)

    def _recreated(self, p: _Partition, ask: Ask) -> bool:
        """A leader has answered for the topic of `ask`. True: the position was one of a topic that is gone, and means nothing
        in the one that has its name now (HOLE-10)."""
        before, p.topic_id = p.topic_id, ask.topic_id
        if before in (b"", ask.topic_id):
            return False
        if self._reset == "error":
            p.place(p.position)
            topic = ask.tp.topic
            message = (
                f"{ask.tp}: topic {topic!r} was deleted and created again; seek to where the new one is to be read"
            )
            p.buffer.append(TidelogError(message, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            p.place(NO_OFFSET)
        return True

    def next_at(self, now: float) -> float | None:
        """When a pause ends; None if only an event can help."""
        return min((p.not_before for p in self._partitions.values() if p.not_before > now), default=None)

    def _current(self, ask: Ask) -> _Partition | None:
        """The partition that `ask` was for, no longer in flight; None if it is void."""
        if self.is_void(ask):
            return None
        p = self._partitions[ask.tp]
        p.in_flight = False
        return p

    def fetched(self, ask: Ask, result: m.FetchResult) -> None:
        """A Fetch answered without an error code."""
        p = self._current(ask)
        if p is None:
            return
        p.high_watermark = result.high_watermark
        p.log_start = result.log_start_offset
        if self._recreated(p, ask):
            return
        p.failures = 0
        p.alone = False
        p.proven = True
        # An answer without records and with an epoch end says that the history before `offset` is not this log's.
        if result.diverging_end_offset >= 0 and result.diverging_epoch >= 0:
            self._truncated(p, ask.tp, result.diverging_epoch, result.diverging_end_offset)
            return
        self._buffer(p, ask, result.records)

    def _buffer(self, p: _Partition, ask: Ask, records: bytes) -> None:
        batches: list[tuple[BatchHeader, memoryview]] = []
        problem: BadBatchError | None = None
        try:
            for header, batch in split_batches(ask.tp, records, ask.offset):
                batches.append((header, batch))
                p.fetch_offset = header.end_offset
                if header.leader_epoch > p.last_epoch:
                    p.epochs.append(_EpochStart(header.leader_epoch, header.base_offset))
                p.last_epoch = header.leader_epoch
        except BadBatchError as error:
            problem = error
        p.buffer.extend((*each, 0) for each in batches[:-1])
        if batches:
            p.buffer.append((*batches[-1], len(records)))
            p.buffered_bytes += len(records)
        if problem is not None:
            p.buffer.append(problem)

    def _truncated(self, p: _Partition, tp: TopicPartition, epoch: int, end_offset: int) -> None:
        """The leader's history goes along with the reader's up to `epoch`, which ends there at `end_offset`.

        What the reader has of later epochs is not in this log, also below `end_offset` (HOLE-03, seen from a reader).
        """
        agreed = min([end_offset, *(e.start_offset for e in p.epochs if e.leader_epoch > epoch)])
        position = p.position
        if position <= agreed:
            p.place(
                position, [e for e in p.epochs if e.start_offset < position]
            )  # only what was fetched ahead is gone; nobody has seen it
        elif self._reset == "error":
            p.place(position)
            p.buffer.append(LogTruncationError(tp, position, agreed))
        else:
            p.place(agreed, [e for e in p.epochs if e.leader_epoch <= epoch and e.start_offset < agreed])

    def out_of_range(self, ask: Ask, result: m.FetchResult) -> bool:
        """False: the position has changed meanwhile."""
        p = self._current(ask)
        if p is None or self._recreated(p, ask):
            return False
        if self._reset == "error":
            p.buffer.append(PositionOutOfRangeError(ask.tp, ask.offset, result.log_start_offset, result.high_watermark))
        else:
            p.place(NO_OFFSET)
        return True

    def broken(self, ask: Ask, error: TidelogError) -> None:
        """An error that no retry mends: the caller gets it from `take`, after the records before it."""
        if (p := self._current(ask)) is not None:
            p.buffer.append(error)

    def fail(self, tp: TopicPartition, error: TidelogError) -> None:
        """No position could be found for `tp`, or it is gone."""
        p = self._partitions.get(tp)
        if p is not None and not p.stalled:
            p.buffer.append(error)

    def found_again(self, tp: TopicPartition, topic_id: bytes) -> None:
        """The topic was taken for deleted, and it is known: reading goes on. One with another id is not the one that was read."""
        p = self._partitions.get(tp)
        if p is None or not p.stalled or p.topic_id not in (b"", topic_id):
            return
        error = p.buffer[-1]
        if isinstance(error, TidelogError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            p.buffer.pop()

    def too_large(self, asks: Sequence[Ask], error: TransportError) -> None:
        """The answer was larger than the client or the leader allows: the partitions are asked for one batch each, so that one
        with a batch that is too large holds up no other."""
        for ask in asks:
            p = self._current(ask)
            if p is None:
                continue
            if p.alone:
                message = f"{ask.tp}: the batch at offset {ask.offset} is too large to be fetched: {error.detail}"
                p.buffer.append(TidelogError(message, ErrorCode.MESSAGE_TOO_LARGE))
            p.alone = True

    def later(self, ask: Ask, pause_s: Callable[[int], float], now: float) -> None:
        """Try again after the pause that belongs to so many failures in a row."""
        if (p := self._current(ask)) is not None:
            p.failures += 1
            p.not_before = now + pause_s(p.failures)

    def hurry(self) -> None:
        """New metadata: no pause needs to be waited out."""
        for p in self._partitions.values():
            p.not_before = 0.0

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Up to `records_max` records, in offset order within each partition, and moves the positions behind them.

        Raises what is wrong with a partition only when there is nothing to hand out before it; the position stays put.
        """
        out: list[ConsumerRecord] = []
        for tp, p in self._partitions.items():
            while len(out) < records_max and not p.paused and (p.decoded or p.buffer):
                if not p.decoded and not self._decode(tp, p, raising=not out):
                    break
                while p.decoded and len(out) < records_max:
                    out.append(p.decoded.popleft())
                    p.position = out[-1].offset + 1 if p.decoded else p.decoded_end
            if len(out) >= records_max:
                break
        else:
            return out
        self._place_in_turn(tp)
        return out

    def _decode(self, tp: TopicPartition, p: _Partition, *, raising: bool) -> bool:
        """Moves the head of the buffer into `decoded`; False if it is an error that has to wait."""
        head = p.buffer[0]
        if isinstance(head, TidelogError):
            if raising:
                raise head
            return False
        header, batch, freed = head
        try:
            records = list(decode_batch(tp, batch, header, p.position))
        except BadBatchError as error:
            p.buffer.clear()
            p.buffered_bytes = 0
            p.buffer.append(error)
            return self._decode(tp, p, raising=raising)
        p.buffer.popleft()
        p.buffered_bytes -= freed
        p.decoded.extend(records)
        p.decoded_end = header.end_offset
        if not records:
            p.position = header.end_offset  # a control batch, or compacted away
        return True

    def _place_in_turn(self, tp: TopicPartition) -> None:
        """The partition that filled a `take` comes first while its batch lasts, which is decoded and costs many times its bytes,
        and last afterwards, so that none starves the others."""
        if not self._partitions[tp].decoded:
            self._partitions[tp] = self._partitions.pop(tp)
        elif next(iter(self._partitions)) != tp:
            self._partitions = {tp: self._partitions.pop(tp), **self._partitions}
