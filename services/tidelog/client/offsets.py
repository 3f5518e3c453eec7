"""ListOffsets over many partitions: asked of each leader, again after a change of leaders."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.errors import BadBatchError
from tidelog.client.metadata import ClusterMetadata, no_partition
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_EPOCH, BrokerId, TopicPartition
from tidelog.runtime.retry import FETCH
from tidelog.wire import messages as m
from tidelog.wire.limits import parts_by
from tidelog.wire.services import REPLICA_SERVICE_FETCH, REPLICA_SERVICE_LIST_OFFSETS

EARLIEST: Final = -2
LATEST: Final = -1
"""The high watermark: the end of what is committed."""
MAX_TIMESTAMP: Final = -3
"""The first record with the largest timestamp."""
_LOOK_BYTES: Final = 64 * 1024
"""How much is read to find the record inside its batch; one larger batch comes whole."""
_LOOK_TIMEOUT_S: Final = 5.0
_LOOKS_MAX: Final = 100
"""Limit of the batches that a search looks into, one after the other, when their headers speak of records that are not there."""


class FoundOffset(NamedTuple):
    """`timestamp_ms` is that of the record found by time, and offset -1 if no record is so late. `leader_epoch` is the
    record's."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class _Look(NamedTuple):
    """A record that was found in a fetch answer, and the end of the answer."""

    record: FoundOffset | None
    end: int


def _look(tp: TopicPartition, records: bytes, position: int, wanted_ms: int) -> _Look:
    """Finds the first record from `position` on that is at or after the time; with MAX_TIMESTAMP the newest one."""
    from tidelog.client.records import decode_batch, split_batches  # the codec costs as much to import as gRPC

    newest, end = None, position
    for header, batch in split_batches(tp, records, position):
        end = header.end_offset
        if header.max_timestamp < wanted_ms or (newest is not None and header.max_timestamp <= newest.timestamp_ms):
            continue
        for record in decode_batch(tp, batch, header, position):
            if record.timestamp_ms >= wanted_ms and (newest is None or record.timestamp_ms > newest.timestamp_ms):
                newest = FoundOffset(record.offset, record.timestamp_ms, record.leader_epoch)
                if wanted_ms != MAX_TIMESTAMP:
                    return _Look(newest, end)
    return _Look(newest, end)


class OffsetFinder:
    def __init__(
        self, ports: ClientPorts, connections: Connections, metadata: ClusterMetadata, request_timeout_s: float
    ) -> None:
        self._ports = ports
        self._connections = connections
        self._metadata = metadata
        self._request_timeout_s = request_timeout_s

    async def find(
        self,
        wanted: Mapping[TopicPartition, int],
        limit_s: float,
        on_found: Callable[[dict[TopicPartition, FoundOffset]], None] = lambda found: None,
        topic_ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> dict[TopicPartition, FoundOffset]:
        """`wanted` maps to EARLIEST, LATEST, MAX_TIMESTAMP or Unix milliseconds (the first record at or after it).

        Raises the last error when some partition has no answer within `limit_s`. `on_found` gets what is known before the
        rest is: a partition without a leader holds up no other. `topic_ids`: which topics are meant, where that is known; of
        others, those that have the names now.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        for topic in {tp.topic for tp in wanted}:
            await self._metadata.topic(topic, limit_s)
        async for attempt in FETCH.retrying(self._ports.clock, self._ports.rand, limit_s):
            with attempt:
                if attempt.number > 1:
                    await self._metadata.refresh(self._metadata.version, limit_s)
                try:
                    await self._find_missing(wanted, found, topic_ids)
                finally:
                    on_found(found)
        return found

    async def _find_missing(
        self,
        wanted: Mapping[TopicPartition, int],
        found: dict[TopicPartition, FoundOffset],
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> None:
        wanted_of: list[tuple[BrokerId, m.ListOffsetsPartition]] = []
        problem: TidelogError | TransportError | None = None
        for tp, timestamp in wanted.items():
            if tp in found:
                continue
            led = self._metadata.leadership(tp)
            if led is None:
                problem = self._no_leader(tp)
                continue
            ask = m.ListOffsetsPartition(
                topic=tp.topic,
                topic_id=topic_ids.get(tp) or self._metadata.snapshot.topics[tp.topic].topic_id,
                partition=tp.partition,
                leader_epoch=led.leader_epoch,
                timestamp=timestamp,
            )
            wanted_of.append((led.leader, ask))
        for leader, asks in parts_by(m.ListOffsetsRequest, wanted_of):
            try:
                results = await self._list(leader, asks)
            except TransportError as error:
                problem = error
                continue
            for r, ask in zip(results, asks, strict=False):
                try:
                    found[TopicPartition(r.topic, r.partition)] = await self._record(leader, ask, r)
                except (TidelogError, TransportError) as error:
                    problem = error
        if problem is not None:
            raise problem
        if missing := [tp for tp in wanted if tp not in found]:
            raise TransportError("INTERNAL", f"{missing[0]} is not in the answer")

    async def _record(self, leader: BrokerId, ask: m.ListOffsetsPartition, r: m.ListOffsetsResult) -> FoundOffset:
        """A leader knows of a time what the headers say: the batch. Which of its records it is, is found here.

        It may be none: the one that the header speaks of may be deleted. Then the search goes on behind the batch.
        """
        tp = TopicPartition(r.topic, r.partition)
        newest: FoundOffset | None = None
        begin = 0
        first = FoundOffset(r.offset, r.timestamp, r.leader_epoch)
        for _ in range(_LOOKS_MAX):
            if r.error_code is not ErrorCode.NONE:
                raise TidelogError(f"{tp}: {r.error_message or r.error_code.name}", r.error_code)
            if ask.timestamp in (EARLIEST, LATEST) or r.offset < 0:
                return newest or FoundOffset(r.offset, r.timestamp, r.leader_epoch)
            if newest is not None and r.timestamp <= newest.timestamp_ms:
                return newest
            if r.offset < begin:
                break  # release 0.2.0 answers as before
            try:
                look = _look(tp, await self._fetched(leader, ask, r.offset), r.offset, ask.timestamp)
            except BadBatchError:
                # Whoever reads from the batch on is told what is wrong with it.
                return FoundOffset(r.offset, r.timestamp, r.leader_epoch)
            if look.end == r.offset:
                break  # nothing came
            if look.record is not None:
                if ask.timestamp != MAX_TIMESTAMP or look.record.timestamp_ms >= r.timestamp:
                    return look.record
                if newest is None or look.record.timestamp_ms > newest.timestamp_ms:
                    newest = look.record
            begin = look.end
            ask = m.ListOffsetsPartition(
                topic=ask.topic,
                partition=ask.partition,
                leader_epoch=ask.leader_epoch,
                timestamp=ask.timestamp,
                topic_id=ask.topic_id,
                search_start=m.SearchStart(offset=begin),
            )
            if len(results := await self._list(leader, [ask])) != 1:
                raise TransportError("INTERNAL", f"{tp} is not in the answer")
            (r,) = results
        return newest or first

    async def _list(self, leader: BrokerId, asks: Sequence[m.ListOffsetsPartition]) -> tuple[m.ListOffsetsResult, ...]:
        request = m.ListOffsetsRequest(partitions=tuple(asks))
        channel = self._connections.to(self._metadata.address(leader), "metadata")
        answer = await channel.call(REPLICA_SERVICE_LIST_OFFSETS, request, self._request_timeout_s)
        return answer.results

    async def _fetched(self, leader: BrokerId, ask: m.ListOffsetsPartition, offset: int) -> bytes:
        """Whole batches from the one with `offset` on."""
        tp = TopicPartition(ask.topic, ask.partition)
        part = m.FetchPartition(
            topic=tp.topic,
            topic_id=ask.topic_id,
            partition=tp.partition,
            leader_epoch=ask.leader_epoch,
            offset=offset,
            last_fetched_epoch=NO_EPOCH,
            max_bytes=_LOOK_BYTES,
        )
        request = m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=_LOOK_BYTES, partitions=(part,))
        channel = self._connections.to(self._metadata.address(leader), "fetch")
        answer = await channel.call(REPLICA_SERVICE_FETCH, request, _LOOK_TIMEOUT_S)
        if len(answer.results) != 1:
            raise TransportError("INTERNAL", f"{tp} is not in the answer")
        (fetched,) = answer.results
        if fetched.error_code is not ErrorCode.NONE:
            raise TidelogError(f"{tp}: {fetched.error_message or fetched.error_code.name}", fetched.error_code)
        return fetched.records

    def _no_leader(self, tp: TopicPartition) -> TidelogError:
        topic = self._metadata.snapshot.topics.get(tp.topic)
        if topic is not None and not 0 <= tp.partition < len(topic.partitions):
            return no_partition(tp, topic)
        return TidelogError(f"{tp} has no leader now", ErrorCode.LEADER_NOT_AVAILABLE)
