"""Reads: Fetch with a long poll up to the high watermark, ListOffsets, OffsetForLeaderEpoch. Knows no gRPC."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.broker.pace import Pace
from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.readers import Places, Wakeup
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH, NO_LEADER, NO_OFFSET
from tidelog.ports.clock import Clock
from tidelog.ports.net import CallContext
from tidelog.runtime.bell import in_turns
from tidelog.runtime.metrics import Phase, RequestMetrics
from tidelog.sizes import ITEM_BYTES, SLACK_BYTES
from tidelog.storage.epoch_cache import EpochEnd
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.time_lookup import TimestampOffset
from tidelog.wire import messages as m
from tidelog.wire.batch import NO_TIMESTAMP

API: Final = "Fetch"
_RESULT_BYTES: Final = 2 * ITEM_BYTES
"""Bytes of one partition's result beside its records: its numbers, and an error message, which may name the topic once more."""
MAX_TIMESTAMP: Final = -3
EARLIEST: Final = -2
LATEST: Final = -1
MAX_WAIT_MS: Final = 300_000
TURN_BYTES: Final = 1 << 20
"""When so much has been read, all else on the event loop has its turn. It takes about a millisecond, with the sending."""
EPOCHS_TOLD: Final = 10
"""Leader epochs that an answer about a replica names at most."""


class _Read(NamedTuple):
    results: list[m.FetchResult]
    size_bytes: int
    final: bool
    """There is something that waiting would not change."""
    room: int
    """Bytes of records that the response might have had."""
    took_s: float


class _Bounds(NamedTuple):
    """Bytes of one response."""

    beside: int
    """All but the records, at most."""
    most: int
    least: int
    """It waits for so many bytes of records, and never for more than it can have."""


class FetchHandler:
    def __init__(
        self,
        manager: ReplicaManager,
        clock: Clock,
        max_bytes: int,
        on_read: Callable[[str, int], None],
        requests: RequestMetrics,
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._max_bytes = max_bytes
        self._on_read = on_read
        self._requests = requests
        self._places = Places()
        self._pace = Pace(TURN_BYTES)
        self.waiting = 0

    async def fetch(self, request: m.FetchRequest, caller: CallContext) -> m.FetchResponse:
        fault = self._fault(request)
        if fault is not None:
            return m.FetchResponse(results=tuple(_failed_fetch(p, fault, None) for p in request.partitions))
        deadline = self._clock.now() + request.max_wait_ms / 1000
        topic_ids = [part.topic_id for part in request.partitions]
        bounds = self._bounds(request)
        sizes: list[int] = []
        read = await self._read_in_turn(request, topic_ids, bounds, caller)
        if read is not None:
            if read.final or read.size_bytes >= min(bounds.least, read.room) or not request.max_wait_ms:
                return self._answer(read)
            sizes = [len(each.records) for each in read.results]
        del read  # what waits holds no records
        self.waiting += 1
        try:
            with self._places.taken(caller.peer, len(request.partitions)):
                return self._answer(await self._wait(request, topic_ids, bounds, deadline, caller, sizes))
        finally:
            self.waiting -= 1

    async def _wait(
        self,
        request: m.FetchRequest,
        topic_ids: list[bytes],
        bounds: "_Bounds",
        deadline: float,
        caller: CallContext,
        sizes: list[int],
    ) -> "_Read":
        """Reads when enough is committed, and when a partition has changed in another way.

        `sizes`: bytes that there are, of each partition; empty if there was no room for a response to look.
        """
        while True:
            wakeup = Wakeup(bounds.least - sum(sizes))
            if sizes:
                await self._until_woken(request, sizes, wakeup, deadline)
            while (read := await self._read_in_turn(request, topic_ids, bounds, caller)) is None:
                await caller.more_room()
            late = self._clock.now() >= deadline
            if wakeup.enough or read.final or read.size_bytes >= min(bounds.least, read.room) or late:
                return read
            sizes = [len(each.records) for each in read.results]
            del read

    async def _until_woken(self, request: m.FetchRequest, sizes: list[int], wakeup: Wakeup, deadline: float) -> None:
        watched: list[PartitionHost] = []
        try:
            for part, size in zip(request.partitions, sizes, strict=True):
                host = self._manager.find_named(part.topic, part.partition)
                if host is not None:
                    left = max(0, part.max_bytes - size)
                    host.readers.add(wakeup, left, host.replica.high_watermark, host.log.log_end_offset)
                    watched.append(host)
            await wakeup.wait(deadline - self._clock.now())
        finally:
            for host in watched:
                host.readers.remove(wakeup)

    def _answer(self, read: "_Read") -> m.FetchResponse:
        # The last reading alone: the ones before found nothing, and the wait between them is the caller's.
        self._requests.spent(API, Phase.LOCAL, read.took_s)
        for result in read.results:
            if result.records:
                self._on_read(result.topic, len(result.records))
        return m.FetchResponse(results=tuple(read.results))

    def _bounds(self, request: m.FetchRequest) -> "_Bounds":
        beside = sum(_RESULT_BYTES + 2 * len(part.topic) for part in request.partitions)
        most = max(1, min(request.max_bytes, self._max_bytes) - max(0, beside - SLACK_BYTES))
        return _Bounds(beside, most, min(request.min_bytes, most, sum(part.max_bytes for part in request.partitions)))

    @staticmethod
    def _fault(request: m.FetchRequest) -> TidelogError | None:
        code = ErrorCode.INVALID_REQUEST
        if not 0 <= request.max_wait_ms <= MAX_WAIT_MS:
            return TidelogError(f"max_wait_ms is {request.max_wait_ms}, allowed are 0 to {MAX_WAIT_MS}", code)
        if request.min_bytes < 0:
            return TidelogError(f"min_bytes is {request.min_bytes}, it must not be negative", code)
        if request.max_bytes <= 0:
            return TidelogError(f"max_bytes is {request.max_bytes}, it must be at least 1", code)
        if len({(p.topic, p.partition) for p in request.partitions}) != len(request.partitions):
            return TidelogError("partitions names one partition twice", code)
        return None

    async def _read_in_turn(
        self, request: m.FetchRequest, topic_ids: list[bytes], bounds: "_Bounds", caller: CallContext
    ) -> "_Read | None":
        """None: there is no room for a response.

        Many responses of megabytes may be due at once, as when a connection is lost and others get its room. They would keep the
        event loop for 100 ms and more if nothing ran between them.
        """
        await self._pace.turn()
        room = _room(bounds, caller)
        if not room:
            return None
        read = self._read_all(request, topic_ids, room)
        self._pace.spend(read.size_bytes)
        return read

    def _read_all(self, request: m.FetchRequest, topic_ids: list[bytes], room: int) -> "_Read":
        """Fills in `topic_ids` where the request names none: what is deleted and created again during a wait is another
        topic, whose records have nothing to do with the offset that was asked for (HOLE-10).
        """
        began_at = self._clock.now()
        results, size, final = [], 0, not request.partitions
        for at, part in enumerate(request.partitions):
            host = None
            try:
                host = self._manager.host(part.topic, part.partition, topic_ids[at])
                topic_ids[at] = host.topic_id
                result = self._read(host, part, room - size, min_one=size == 0)
            except TidelogError as error:
                result = _failed_fetch(part, error, host)
            final = final or result.error_code is not ErrorCode.NONE or result.diverging_epoch >= 0
            size += len(result.records)
            results.append(result)
        return _Read(results, size, final, room, self._clock.now() - began_at)

    def _read(self, host: PartitionHost, part: m.FetchPartition, room: int, min_one: bool) -> m.FetchResult:
        replica = host.replica
        host.check_epoch("Fetch", part.leader_epoch)
        if part.max_bytes <= 0:
            raise TidelogError(f"max_bytes is {part.max_bytes}, it must be at least 1", ErrorCode.INVALID_REQUEST)
        if part.last_fetched_epoch < NO_EPOCH:
            raise TidelogError(
                f"last_fetched_epoch is {part.last_fetched_epoch}, allowed are -1 (none) and epochs from 0",
                ErrorCode.INVALID_REQUEST,
            )
        start, end = host.log.log_start_offset, host.log.log_end_offset
        if (parted := diverging(host.log, part)) is not None:
            return _fetched(host, b"", *parted)
        if not start <= part.offset <= end:
            raise TidelogError(
                f"offset {part.offset} is outside {start}..{end} of {host.tp}", ErrorCode.OFFSET_OUT_OF_RANGE
            )
        # Between the high watermark and the log's end nothing may be shown yet (F03.11).
        records = b""
        if room > 0 and part.offset < replica.high_watermark:
            records = host.read(part.offset, min(room, part.max_bytes), replica.high_watermark, min_one)
            if len(records) > self._max_bytes:
                # The first batch comes whatever its size (KIP-74), but a message that is too large would take the others with it.
                raise TidelogError(
                    f"the batch at offset {part.offset} of {host.tp} takes {len(records)} bytes, fetch_max_bytes of this broker "
                    f"is {self._max_bytes}",
                    ErrorCode.MESSAGE_TOO_LARGE,
                )
        return _fetched(host, records, NO_EPOCH, NO_OFFSET)

    async def list_offsets(self, request: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
        return m.ListOffsetsResponse(results=await in_turns(self._list_offset, request.partitions))

    def _list_offset(self, part: m.ListOffsetsPartition) -> m.ListOffsetsResult:
        try:
            host = self._manager.host(part.topic, part.partition, part.topic_id)
            if part.own:
                found = _own_offset(host, part.timestamp)
            else:
                host.check_epoch("ListOffsets", part.leader_epoch)
                found = _find_offset(host, part.timestamp, part.search_start.offset if part.search_start else 0)
        except TidelogError as error:
            return m.ListOffsetsResult(
                topic=part.topic,
                partition=part.partition,
                error_code=error.code,
                error_message=error.message,
                timestamp=-1,
                offset=NO_OFFSET,
                leader_epoch=NO_EPOCH,
            )
        return m.ListOffsetsResult(
            topic=part.topic,
            partition=part.partition,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
            own_log=_own_log(host) if part.own and part.timestamp == LATEST else None,
        )

    async def offset_for_leader_epoch(self, request: m.OffsetForLeaderEpochRequest) -> m.OffsetForLeaderEpochResponse:
        return m.OffsetForLeaderEpochResponse(results=await in_turns(self._epoch_end, request.partitions))

    def _epoch_end(self, part: m.EpochPartition) -> m.EpochEndOffset:
        try:
            host = self._manager.host(part.topic, part.partition, part.topic_id)
            host.check_epoch("OffsetForLeaderEpoch", part.current_leader_epoch)
        except TidelogError as error:
            return m.EpochEndOffset(
                topic=part.topic,
                partition=part.partition,
                error_code=error.code,
                error_message=error.message,
                leader_epoch=NO_EPOCH,
                end_offset=NO_OFFSET,
            )
        epoch, end = host.log.end_offset_for(part.leader_epoch)
        return m.EpochEndOffset(topic=part.topic, partition=part.partition, leader_epoch=epoch, end_offset=end)


def _room(bounds: _Bounds, caller: CallContext) -> int:
    """Returns how many bytes of records the response may hold now; 0 if it has to wait for room."""
    room = caller.room(bounds.most + bounds.beside)
    return max(1, room - bounds.beside) if room else 0


def diverging(log: PartitionLog, part: m.FetchPartition) -> EpochEnd | None:
    """The last epoch that a reader may share with `log`, and its end there; None if the reader is not known to differ."""
    if part.last_fetched_epoch < 0:
        return None
    found = log.end_offset_for(part.last_fetched_epoch)
    if found.leader_epoch < 0:
        # No epoch of this history says how far the reader's goes along with it: it has to begin anew.
        raise TidelogError(
            f"last_fetched_epoch {part.last_fetched_epoch} is not in the history of {log.key.topic}-{log.key.partition}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
    return found if found.leader_epoch != part.last_fetched_epoch or found.end_offset < part.offset else None


def _own_offset(host: PartitionHost, timestamp: int) -> TimestampOffset:
    """Of this replica, whoever leads. It may be above the high watermark: it is for who looks on, not for readers."""
    if host.offline is not None:
        raise host.offline
    ends = {EARLIEST: host.log.log_start_offset, LATEST: host.log.log_end_offset}
    if timestamp not in ends:
        raise TidelogError(
            f"timestamp is {timestamp}, of a replica's own log -1 (latest) and -2 (earliest) are known",
            ErrorCode.INVALID_REQUEST,
        )
    return TimestampOffset(ends[timestamp], NO_TIMESTAMP, host.replica.leader_epoch)


def _own_log(host: PartitionHost) -> m.OwnLog:
    epochs, leading = host.log.epochs.entries[-EPOCHS_TOLD:], host.replica.leading
    return m.OwnLog(
        log_start=host.log.log_start_offset,
        high_watermark=host.replica.high_watermark,
        epochs=tuple(m.OwnEpoch(leader_epoch=epoch, start=start) for epoch, start in epochs),
        isr_size=0 if leading is None else len(leading.isr.committed.isr),
    )


def _find_offset(host: PartitionHost, timestamp: int, start: int) -> TimestampOffset:
    """What is committed answers; a header's word counts for its batch, whose records the asker looks through."""
    log, replica = host.log, host.replica
    if timestamp < MAX_TIMESTAMP:
        raise TidelogError(
            f"timestamp is {timestamp}, allowed are -3 (largest), -2 (earliest), -1 (latest) and milliseconds",
            ErrorCode.INVALID_REQUEST,
        )
    if timestamp == EARLIEST:
        return TimestampOffset(log.log_start_offset, NO_TIMESTAMP, log.epochs.epoch_at(log.log_start_offset))
    end = replica.high_watermark
    found = None if timestamp == LATEST else host.find_time(None if timestamp == MAX_TIMESTAMP else timestamp, start)
    if found is None and replica.leading is not None and end < replica.leading.epoch_start:
        # Offsets up to the epoch's start may have been committed and read already: to answer less would be to go back (KIP-207).
        raise TidelogError(
            f"the high watermark {end} of {host.tp} has not reached the start {replica.leading.epoch_start} of leader "
            f"epoch {replica.leader_epoch}",
            ErrorCode.OFFSET_NOT_AVAILABLE,
        )
    if timestamp == LATEST:
        return TimestampOffset(end, NO_TIMESTAMP, replica.leader_epoch)
    return found or TimestampOffset(NO_OFFSET, NO_TIMESTAMP, NO_EPOCH)


def _fetched(host: PartitionHost, records: bytes, diverging_epoch: int, diverging_end: int) -> m.FetchResult:
    return m.FetchResult(
        topic=host.tp.topic,
        partition=host.tp.partition,
        high_watermark=host.replica.high_watermark,
        log_start_offset=host.log.log_start_offset,
        diverging_epoch=diverging_epoch,
        diverging_end_offset=diverging_end,
        leader_id=host.replica.leader,
        leader_epoch=host.replica.leader_epoch,
        records=records,
    )


def _failed_fetch(part: m.FetchPartition, error: TidelogError, host: PartitionHost | None) -> m.FetchResult:
    return m.FetchResult(
        topic=part.topic,
        partition=part.partition,
        error_code=error.code,
        error_message=error.message,
        high_watermark=NO_OFFSET if host is None else host.replica.high_watermark,
        log_start_offset=NO_OFFSET if host is None else host.log.log_start_offset,
        diverging_epoch=NO_EPOCH,
        diverging_end_offset=NO_OFFSET,
        leader_id=NO_LEADER if host is None else host.replica.leader,
        leader_epoch=NO_EPOCH if host is None else host.replica.leader_epoch,
    )
