"""What an Admin asks of the brokers that hold the logs: deletion of records, and what lies in data directories."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.offsets import LATEST, OffsetFinder
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import BrokerId, TopicPartition
from tidelog.ports.net import Unary
from tidelog.runtime.retry import FETCH
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.limits import parts_by, parts_or_all

Req = TypeVar("Req")
Res = TypeVar("Res")

HIGH_WATERMARK: Final = -1
"""Delete everything that is committed."""
_ANSWER_SLACK_S: Final = 1.0
_ASKED_AGAIN: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.OPERATION_NOT_ATTEMPTED}
)
"""Another broker leads by now, or did of a partition in the same request. To ask twice is harmless: a start only grows."""


class LogAdmin:
    """An Admin's `logs`. Errors of one partition or broker are TidelogErrors that name it."""

    def __init__(
        self,
        ports: ClientPorts,
        connections: Connections,
        metadata: ClusterMetadata,
        offsets: OffsetFinder,
        limit_s: float,
    ) -> None:
        self._ports = ports
        self._connections = connections
        self._metadata = metadata
        self._offsets = offsets
        self._limit_s = limit_s

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, m.DeleteRecordsResult]:
        """Deletes what lies before an offset of each partition, HIGH_WATERMARK for all that is committed.

        Raises UnknownTopicOrPartitionError, and OffsetOutOfRangeError when an offset is not between 0 and the high watermark;
        then nothing is deleted. Else each partition has a result with its own error code: several leaders cannot do it all
        or nothing.
        """
        ends = await self._offsets.find(dict.fromkeys(before, LATEST), self._limit_s)
        for tp, offset in before.items():
            if not HIGH_WATERMARK <= offset <= ends[tp].offset:
                raise TidelogError(
                    f"{tp}: offset {offset}; its records can be deleted up to the high watermark {ends[tp].offset}, "
                    "which -1 stands for; nothing was deleted",
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                )
        found: dict[TopicPartition, m.DeleteRecordsResult] = {}
        try:
            async for attempt in FETCH.retrying(self._ports.clock, self._ports.rand, self._limit_s):
                with attempt:
                    if attempt.number > 1:
                        await self._metadata.refresh(self._metadata.version, self._limit_s)
                    await self._delete_missing(before, found)
        except (TidelogError, TransportError) as error:
            code = error.code if isinstance(error, TidelogError) else ErrorCode.REQUEST_TIMED_OUT
            for tp in before.keys() - found.keys():
                found[tp] = m.DeleteRecordsResult(
                    topic=tp.topic,
                    partition=tp.partition,
                    low_watermark=-1,
                    error_code=code,
                    error_message=f"it may have been done: {error}",
                )
        return {tp: found[tp] for tp in before}

    async def _delete_missing(
        self, before: Mapping[TopicPartition, int], found: dict[TopicPartition, m.DeleteRecordsResult]
    ) -> None:
        wanted: list[tuple[BrokerId, m.DeleteRecordsPartition]] = []
        problem: TidelogError | TransportError | None = None
        for tp in before.keys() - found.keys():
            led = self._metadata.leadership(tp)
            if led is None:
                problem = TidelogError(f"{tp} has no leader now", ErrorCode.LEADER_NOT_AVAILABLE)
                continue
            ask = m.DeleteRecordsPartition(
                topic=tp.topic,
                partition=tp.partition,
                offset=before[tp],
                topic_id=self._metadata.snapshot.topics[tp.topic].topic_id,
            )
            wanted.append((led.leader, ask))
        for leader, asks in parts_by(m.DeleteRecordsRequest, wanted):
            request = m.DeleteRecordsRequest(partitions=asks, timeout_ms=int(self._limit_s * 1000))
            try:
                answer = await self._call(leader, s.ADMIN_SERVICE_DELETE_RECORDS, request)
            except TransportError as error:
                problem = error
                continue
            for result in answer.partitions:
                if result.error_code in _ASKED_AGAIN:
                    problem = TidelogError(result.error_message, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                else:
                    found[TopicPartition(result.topic, result.partition)] = result
        if problem is not None:
            raise problem

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, topics: Sequence[str] = ()
    ) -> dict[int, m.LogDir]:
        """By broker, all that are alive or those named; of `topics`, or of all.

        Raises InvalidRequestError for a broker that is not alive, and StorageError, which names a broken directory.
        """
        wanted = await self._alive(brokers)
        return {broker_id: await self._log_dir(broker_id, topics) for broker_id in wanted}

    async def _log_dir(self, broker_id: int, topics: Sequence[str]) -> m.LogDir:
        partitions: list[m.LogDirPartition] = []
        for names in parts_or_all(m.DescribeLogDirsRequest, topics):
            request = m.DescribeLogDirsRequest(broker_id=broker_id, topics=names)
            answer = await self._call(BrokerId(broker_id), s.ADMIN_SERVICE_DESCRIBE_LOG_DIRS, request)
            if answer.error_code is not ErrorCode.NONE:
                raise TidelogError(f"broker {broker_id}: {answer.error_message}", answer.error_code)
            (directory,) = answer.log_dirs
            partitions += directory.partitions
        return replace(directory, partitions=tuple(partitions))

    async def discard_damage(
        self, broker_id: int, topics: Mapping[str, Sequence[int]] | None = None, *, execute: bool = False
    ) -> list[m.DamagedLog]:
        """Damaged logs of a broker, or of some of its partitions, and what goes when each is cut where its damage begins.

        With `execute` they are cut: records go for good where no other replica has them. Each log has its own error code.
        Raises InvalidRequestError for a broker that is not alive, UnsupportedVersionError for one whose release cannot.
        """
        await self._alive([broker_id])
        asked = [m.TopicPartitions(topic=name, partitions=tuple(which)) for name, which in (topics or {}).items()]
        logs: list[m.DamagedLog] = []
        for part in parts_or_all(m.DiscardDamageRequest, asked):
            request = m.DiscardDamageRequest(broker_id=broker_id, topics=part, execute=execute)
            try:
                answer = await self._call(BrokerId(broker_id), s.ADMIN_SERVICE_DISCARD_DAMAGE, request)
            except TransportError as error:
                if error.status != "UNIMPLEMENTED":
                    raise
                message = f"broker {broker_id} is of a release that discards no damage; upgrade it"
                raise TidelogError(message, ErrorCode.UNSUPPORTED_VERSION) from None
            if answer.error_code is not ErrorCode.NONE:
                raise TidelogError(f"broker {broker_id}: {answer.error_message}", answer.error_code)
            logs += answer.logs
        return logs

    async def sizes(
        self, topics: Mapping[int, Collection[str]], patience_s: float
    ) -> dict[int, dict[TopicPartition, int]]:
        """Bytes of the logs of these topics, by broker. A broker that does not answer within `patience_s` is left out."""

        async def ask(broker_id: int) -> m.LogDir | None:
            try:
                async with asyncio.timeout(patience_s):
                    return (await self.describe_log_dirs([broker_id], sorted(topics[broker_id])))[broker_id]
            except (TidelogError, TransportError, TimeoutError):
                return None

        answers = zip(topics, await asyncio.gather(*map(ask, topics)), strict=True)
        return {
            broker_id: {
                TopicPartition(p.topic, p.partition): p.size_bytes for p in found.partitions if p.size_bytes >= 0
            }
            for broker_id, found in answers
            if found is not None
        }

    async def describe_broker_configs(self, broker_id: int) -> list[m.DescribedConfig]:
        """What a live broker was started with. Raises InvalidRequestError for one that is not alive."""
        await self._alive([broker_id])
        request = m.DescribeBrokerConfigsRequest(broker_id=broker_id)
        answer = await self._call(BrokerId(broker_id), s.ADMIN_SERVICE_DESCRIBE_BROKER_CONFIGS, request)
        if answer.error_code is not ErrorCode.NONE:
            raise TidelogError(f"broker {broker_id}: {answer.error_message}", answer.error_code)
        return list(answer.configs)

    async def _alive(self, brokers: Iterable[int] | None) -> list[int]:
        """The brokers named, or all that are alive. Raises InvalidRequestError for one that is not alive."""
        await self._metadata.refresh(self._metadata.version)
        alive = sorted(self._metadata.snapshot.brokers)
        wanted: list[int] = list(alive) if brokers is None else list(brokers)
        if missing := [each for each in wanted if each not in alive]:
            raise TidelogError(
                f"broker {missing[0]} is not alive; alive are {', '.join(map(str, alive))}", ErrorCode.INVALID_REQUEST
            )
        return wanted

    async def _call(self, broker: BrokerId, method: Unary[Req, Res], request: Req) -> Res:
        channel = self._connections.to(self._metadata.address(broker), "metadata")
        return await channel.call(method, request, self._limit_s + _ANSWER_SLACK_S)
