"""Reads one range of one partition as undecoded batches, one fetch ahead of its caller; for bulk readers such as Spark."""

from collections.abc import AsyncIterator

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.errors import LogTruncationError, PositionOutOfRangeError
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.records import Clip, clip_batches
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_EPOCH, TopicPartition
from tidelog.runtime.retry import FETCH
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire.services import REPLICA_SERVICE_FETCH

_MAX_WAIT_MS = 500
_ANSWER_SLACK_S = 3.0
_GONE_S = 5.0
"""A topic that was there, and of which brokers say for so long that it is not, or that another has its name, was deleted."""


class RangeReader:
    """`stall_s`: how long it goes on without a byte, through elections and restarts, before it raises the last error.

    `topic_id`: of the topic that is meant, b"" for whichever has the name. INCONSISTENT_TOPIC_ID when it has gone.
    """

    def __init__(
        self,
        ports: ClientPorts,
        connections: Connections,
        metadata: ClusterMetadata,
        *,
        client_id: str,
        partition_bytes: int,
        stall_s: float,
        topic_id: bytes = b"",
    ) -> None:
        self._ports = ports
        self._connections = connections
        self._metadata = metadata
        self._client_id = client_id
        self._partition_bytes = partition_bytes
        self._stall_s = stall_s
        self._topic_id = topic_id
        self._missing_since: float | None = None

    async def read(self, tp: TopicPartition, start: int, end: int) -> AsyncIterator[bytes]:
        """See `Consumer.fetch_batches`."""
        if not 0 <= start <= end:
            raise ValueError(f"{tp}: range {start} to {end} is not one of offsets in order")
        await self._metadata.topic(tp.topic, _GONE_S if self._topic_id else None)
        supervisor = Supervisor(f"read-{tp}")
        position, epoch = start, NO_EPOCH
        try:
            ahead = supervisor.start("read-ahead", self._clip(tp, position, epoch, end)) if position < end else None
            while ahead is not None:
                clip = await ahead
                if not isinstance(clip, Clip):
                    raise clip or RuntimeError("a bug ended the reader; the log has the trace")
                position, epoch, ahead = clip.next_offset, clip.leader_epoch, None
                if position < end:
                    ahead = supervisor.start("read-ahead", self._clip(tp, position, epoch, end))
                yield clip.records
        finally:
            await supervisor.stop()

    async def _clip(
        self, tp: TopicPartition, position: int, epoch: int, end: int
    ) -> Clip | TidelogError | TransportError:
        try:
            return clip_batches(tp, await self._fetch(tp, position, epoch), position, end)
        except (TidelogError, TransportError) as error:
            return error

    async def _fetch(self, tp: TopicPartition, position: int, epoch: int) -> bytes:
        """At least one batch from `position` on, whoever leads."""
        async for attempt in FETCH.retrying(self._ports.clock, self._ports.rand, self._stall_s):
            with attempt:
                if attempt.number > 1:
                    await self._metadata.refresh(self._metadata.version)
                result = await self._fetch_once(tp, position, epoch)
                if result.records:
                    return result.records
                raise TidelogError(
                    f"{tp}: nothing to read at offset {position}, the high watermark is {result.high_watermark}",
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                )
        raise AssertionError("a loop of attempts ends with an answer or an error")

    async def _fetch_once(self, tp: TopicPartition, position: int, epoch: int) -> m.FetchResult:
        topic_id = self._known_topic_id(tp)
        led = self._metadata.leadership(tp)
        if led is None:
            raise TidelogError(f"{tp} has no leader now", ErrorCode.LEADER_NOT_AVAILABLE)
        ask = m.FetchPartition(
            topic=tp.topic,
            topic_id=topic_id,
            partition=tp.partition,
            leader_epoch=led.leader_epoch,
            offset=position,
            last_fetched_epoch=epoch,
            max_bytes=self._partition_bytes,
        )
        request = m.FetchRequest(
            client_id=self._client_id,
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._partition_bytes,
            partitions=(ask,),
        )
        channel = self._connections.to(self._metadata.address(led.leader), "fetch")
        answer = await channel.call(REPLICA_SERVICE_FETCH, request, _MAX_WAIT_MS / 1000 + _ANSWER_SLACK_S)
        if len(answer.results) != 1:
            raise TransportError("INTERNAL", f"{tp} is not in the answer")
        result = answer.results[0]
        match result.error_code:
            case ErrorCode.NONE if result.diverging_epoch >= 0:
                raise LogTruncationError(tp, position, result.diverging_end_offset)
            case ErrorCode.NONE:
                return result
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                raise PositionOutOfRangeError(tp, position, result.log_start_offset, result.high_watermark)
            case code:
                raise TidelogError(f"{tp}: {result.error_message or code.name}", code)

    def _known_topic_id(self, tp: TopicPartition) -> bytes:
        """Of the topic that is meant, if it is still there."""
        topic = self._metadata.snapshot.topics.get(tp.topic)
        if topic is not None and self._topic_id in (b"", topic.topic_id):
            self._missing_since = None
            return topic.topic_id
        now = self._ports.clock.now()
        self._missing_since = now if self._missing_since is None else self._missing_since
        again = "" if topic is None else " and created anew"
        if self._topic_id and now - self._missing_since >= _GONE_S:
            raise TidelogError(f"{tp}: the topic was deleted{again}", ErrorCode.INCONSISTENT_TOPIC_ID)
        # A broker may not have heard yet of the topic that is meant.
        raise TidelogError(f"{tp}: the topic was deleted{again}, it seems", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
