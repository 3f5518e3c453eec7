"""ListOffsets over many partitions: asked of each leader, again after a change of leaders."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.metadata import ClusterMetadata
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import BrokerId, TopicPartition
from tidelog.runtime.retry import FETCH
from tidelog.wire import messages as m
from tidelog.wire.services import REPLICA_SERVICE_LIST_OFFSETS

EARLIEST: Final = -2
LATEST: Final = -1
"""The high watermark: the end of what is committed."""


class FoundOffset(NamedTuple):
    """`timestamp_ms` is that of the record found by time; offset -1 if no record is so late."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class OffsetFinder:
    def __init__(
        self, ports: ClientPorts, connections: Connections, metadata: ClusterMetadata, request_timeout_s: float
    ) -> None:
        self._ports = ports
        self._connections = connections
        self._metadata = metadata
        self._request_timeout_s = request_timeout_s

    async def find(self, wanted: Mapping[TopicPartition, int], limit_s: float) -> dict[TopicPartition, FoundOffset]:
        """`wanted` maps to EARLIEST, LATEST or Unix milliseconds (the first record at or after it).

        Raises the last error when some partition has no answer within `limit_s`.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        for topic in {tp.topic for tp in wanted}:
            await self._metadata.topic(topic, limit_s)
        async for attempt in FETCH.retrying(self._ports.clock, self._ports.rand, limit_s):
            with attempt:
                if attempt.retry_state.attempt_number > 1:
                    await self._metadata.refresh(self._metadata.version, limit_s)
                await self._find_missing(wanted, found)
        return found

    async def _find_missing(
        self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, FoundOffset]
    ) -> None:
        by_leader: dict[BrokerId, list[m.ListOffsetsPartition]] = {}
        problem: TidelogError | TransportError | None = None
        for tp, timestamp in wanted.items():
            if tp in found:
                continue
            led = self._metadata.leadership(tp)
            if led is None:
                problem = self._no_leader(tp)
                continue
            ask = m.ListOffsetsPartition(
                topic=tp.topic, partition=tp.partition, leader_epoch=led.leader_epoch, timestamp=timestamp
            )
            by_leader.setdefault(led.leader, []).append(ask)
        for leader, asks in by_leader.items():
            channel = self._connections.to(self._metadata.address(leader), "metadata")
            request = m.ListOffsetsRequest(partitions=tuple(asks))
            try:
                answer = await channel.call(REPLICA_SERVICE_LIST_OFFSETS, request, self._request_timeout_s)
            except TransportError as error:
                problem = error
                continue
            for r in answer.results:
                if r.error_code is ErrorCode.NONE:
                    found[TopicPartition(r.topic, r.partition)] = FoundOffset(r.offset, r.timestamp, r.leader_epoch)
                else:
                    problem = TidelogError(
                        f"{r.topic}-{r.partition}: {r.error_message or r.error_code.name}", r.error_code
                    )
        if problem is not None:
            raise problem
        if missing := [tp for tp in wanted if tp not in found]:
            raise TransportError("INTERNAL", f"{missing[0]} is not in the answer")

    def _no_leader(self, tp: TopicPartition) -> TidelogError:
        topic = self._metadata.snapshot.topics.get(tp.topic)
        if topic is not None and not 0 <= tp.partition < len(topic.partitions):
            return TidelogError(
                f"topic {tp.topic!r} has partitions 0 to {len(topic.partitions) - 1}, "
                f"partition {tp.partition} does not exist",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return TidelogError(f"{tp} has no leader now", ErrorCode.LEADER_NOT_AVAILABLE)
