"""What the driver asks the cluster before tasks start: which partitions there are, and where their logs begin and end."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from tidelog.client.admin import Admin
from tidelog.client.connections import ClientPorts, real_ports
from tidelog.client.offsets import EARLIEST, LATEST
from tidelog.errors import ErrorCode, TidelogError, TransportError, is_transient
from tidelog.ids import TopicPartition
from tidelog.pipeline.offsets import end_at_times, place, start_at_times, times_of
from tidelog.pipeline.source_options import Assign, SourceOptions, Subscribe, SubscribePattern, Timestamps
from tidelog.wire import messages as m

T = TypeVar("T")
ByPartition = Mapping[TopicPartition, int]


class LookUps:
    """Used as `async with LookUps(options) as cluster`; make it on the loop, and in the process, that uses it.

    Every method asks anew. What fails for want of a leader or a broker is asked again, with a new client, as often as
    `fetchOffset.numRetries` says; the last error is raised. What can never succeed is raised at once.
    """

    def __init__(self, options: SourceOptions, ports: ClientPorts | None = None) -> None:
        self._options = options
        self._ports = ports or real_ports()
        self._admin: Admin | None = None

    async def __aenter__(self) -> "LookUps":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.stop()

    async def partitions(self, *, missing_is_none: bool = False) -> dict[TopicPartition, bytes]:
        """The id of its topic for each partition of the selection, in order; a pattern may match nothing.

        UNKNOWN_TOPIC_OR_PARTITION names what does not exist, unless `missing_is_none`: then it is left out.
        """
        match self._options.selection:
            case Assign(partitions):
                return _chosen(await self._topics({tp.topic for tp in partitions}), partitions, missing_is_none)
            case Subscribe(topics):
                found = await self._topics(topics)
            case SubscribePattern() as pattern:
                everything = {topic.name: topic for topic in await self._ask(lambda admin: admin.describe_topics())}
                found = {name: everything[name] for name in pattern.choose(everything)}
        described = {name: topic for name, topic in found.items() if not _refused("subscribe", topic, missing_is_none)}
        return {tp: described[tp.topic].topic_id for tp in sorted(tp for t in described.values() for tp in _all(t))}

    async def beginnings(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._offsets(dict.fromkeys(tps, EARLIEST))

    async def ends(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks: exclusive ends of what can be read."""
        return await self._offsets(dict.fromkeys(tps, LATEST))

    async def first_at(self, times_ms: ByPartition) -> dict[TopicPartition, int]:
        """The first record at or after each Unix time, -1 where there is none."""
        return await self._offsets(times_ms)

    async def starts(self, beginnings: ByPartition, ends: ByPartition) -> dict[TopicPartition, int]:
        """Where the query starts in each partition. ValueError where the options do not fit the partitions."""
        match self._options.starting:
            case Timestamps() as timestamps:
                times = times_of("startingOffsetsByTimestamp", timestamps, beginnings)
                starting = start_at_times(self._options, times, await self.first_at(times))
                return place("startingOffsetsByTimestamp", starting, beginnings, ends)
            case offsets:
                return place("startingOffsets", offsets, beginnings, ends)

    async def stops(self, beginnings: ByPartition, ends: ByPartition) -> dict[TopicPartition, int]:
        """Where a batch ends in each partition. ValueError where the options do not fit the partitions."""
        match self._options.ending:
            case Timestamps() as timestamps:
                times = times_of("endingOffsetsByTimestamp", timestamps, beginnings)
                return place("endingOffsetsByTimestamp", end_at_times(await self.first_at(times)), beginnings, ends)
            case offsets:
                return place("endingOffsets", offsets, beginnings, ends)

    async def _topics(self, names: Collection[str]) -> dict[str, m.TopicDescription]:
        described = await self._ask(lambda admin: admin.describe_topics(sorted(names)))
        return {topic.name: topic for topic in described}

    async def _offsets(self, wanted: ByPartition) -> dict[TopicPartition, int]:
        found = await self._ask(lambda admin: admin.list_offsets(wanted)) if wanted else {}
        return {tp: found[tp].offset for tp in wanted}

    async def _ask(self, call: Callable[[Admin], Awaitable[T]]) -> T:
        for attempt in range(1, self._options.num_retries + 1):
            try:
                return await call(await self._opened())
            except (TidelogError, TransportError) as error:
                await self.close()
                if attempt == self._options.num_retries or not is_transient(error):
                    raise
                logging.getLogger(__name__).warning("look-up %d: %s; asking again", attempt, error)
                await self._ports.clock.sleep(self._options.retry_interval_ms / 1000)
        raise AssertionError("numRetries is at least 1")

    async def _opened(self) -> Admin:
        if self._admin is None:
            timeout_ms = self._options.request_timeout_ms
            admin = Admin(self._options.bootstrap, request_timeout_ms=timeout_ms, ports=self._ports)
            self._admin = await admin.__aenter__()
        return self._admin


def _all(topic: m.TopicDescription) -> list[TopicPartition]:
    return [TopicPartition(topic.name, p.partition) for p in topic.partitions]


def _refused(option: str, topic: m.TopicDescription, missing_is_none: bool) -> bool:
    code = topic.error_code
    if code is ErrorCode.NONE:
        return False
    if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise TidelogError(f"{option}: topic {topic.name!r}: {code.name}", code)
    if not missing_is_none:
        raise TidelogError(f"{option}: topic {topic.name!r} does not exist", code)
    return True


def _chosen(
    topics: Mapping[str, m.TopicDescription], wanted: Collection[TopicPartition], missing_is_none: bool
) -> dict[TopicPartition, bytes]:
    ids = {tp: t.topic_id for t in topics.values() if not _refused("assign", t, missing_is_none) for tp in _all(t)}
    for tp in wanted:
        if tp not in ids and not missing_is_none:
            last = len(topics[tp.topic].partitions) - 1
            raise TidelogError(
                f"assign: topic {tp.topic!r} has partitions 0 to {last}, partition {tp.partition} does not exist",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
    return {tp: ids[tp] for tp in sorted(wanted) if tp in ids}
