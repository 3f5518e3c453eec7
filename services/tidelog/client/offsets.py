"""ListOffsets over many partitions: asked of each leader, again after a change of leaders."""

from collections.abc import Callable, Mapping
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


class FoundOffset(NamedTuple):
    """`timestamp_ms` is that of the record found by time, and offset -1 if no record is so late. `leader_epoch` is the
    record's."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def _first_at(tp: TopicPartition, records: bytes, wanted_ms: int) -> FoundOffset | None:
    from tidelog.client.records import decode_batch, split_batches  # the codec costs as much to import as gRPC

    try:
        for header, batch in split_batches(tp, records, 0):
            if header.max_timestamp >= wanted_ms:
                for record in decode_batch(tp, batch, header):
                    if record.timestamp_ms >= wanted_ms:
                        return FoundOffset(record.offset, record.timestamp_ms, record.leader_epoch)
    except BadBatchError:
        pass  # whoever reads from the batch on is told what is wrong with it
    return None


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
    ) -> dict[TopicPartition, FoundOffset]:
        """`wanted` maps to EARLIEST, LATEST, MAX_TIMESTAMP or Unix milliseconds (the first record at or after it).

        Raises the last error when some partition has no answer within `limit_s`. `on_found` gets what is known before the
        rest is: a partition without a leader holds up no other.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        for topic in {tp.topic for tp in wanted}:
            await self._metadata.topic(topic, limit_s)
        async for attempt in FETCH.retrying(self._ports.clock, self._ports.rand, limit_s):
            with attempt:
                if attempt.number > 1:
                    await self._metadata.refresh(self._metadata.version, limit_s)
                try:
                    await self._find_missing(wanted, found)
                finally:
                    on_found(found)
        return found

    async def _find_missing(
        self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, FoundOffset]
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
                topic_id=self._metadata.snapshot.topics[tp.topic].topic_id,
                partition=tp.partition,
                leader_epoch=led.leader_epoch,
                timestamp=timestamp,
            )
            wanted_of.append((led.leader, ask))
        for leader, asks in parts_by(m.ListOffsetsRequest, wanted_of):
            request = m.ListOffsetsRequest(partitions=asks)
            try:
                channel = self._connections.to(self._metadata.address(leader), "metadata")
                answer = await channel.call(REPLICA_SERVICE_LIST_OFFSETS, request, self._request_timeout_s)
            except TransportError as error:
                problem = error
                continue
            for r, ask in zip(answer.results, asks, strict=False):
                try:
                    found[TopicPartition(r.topic, r.partition)] = await self._record(leader, ask, r)
                except (TidelogError, TransportError) as error:
                    problem = error
        if problem is not None:
            raise problem
        if missing := [tp for tp in wanted if tp not in found]:
            raise TransportError("INTERNAL", f"{missing[0]} is not in the answer")

    async def _record(self, leader: BrokerId, ask: m.ListOffsetsPartition, r: m.ListOffsetsResult) -> FoundOffset:
        """A leader knows of a time what the headers say: the batch. Which of its records it is, is found here."""
        tp = TopicPartition(r.topic, r.partition)
        if r.error_code is not ErrorCode.NONE:
            raise TidelogError(f"{tp}: {r.error_message or r.error_code.name}", r.error_code)
        found = FoundOffset(r.offset, r.timestamp, r.leader_epoch)
        if ask.timestamp in (EARLIEST, LATEST) or r.offset < 0:
            return found
        part = m.FetchPartition(
            topic=tp.topic,
            topic_id=ask.topic_id,
            partition=tp.partition,
            leader_epoch=ask.leader_epoch,
            offset=r.offset,
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
        wanted_ms = r.timestamp if ask.timestamp == MAX_TIMESTAMP else ask.timestamp
        return _first_at(tp, fetched.records, wanted_ms) or found

    def _no_leader(self, tp: TopicPartition) -> TidelogError:
        topic = self._metadata.snapshot.topics.get(tp.topic)
        if topic is not None and not 0 <= tp.partition < len(topic.partitions):
            return no_partition(tp, topic)
        return TidelogError(f"{tp} has no leader now", ErrorCode.LEADER_NOT_AVAILABLE)
