"""Consumer: reads assigned partitions from their leaders, up to the high watermark, with long polls."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

from tidelog.client.connections import ClientPorts, Connections, parse_bootstrap, real_ports
from tidelog.client.fetch_state import Ask, FetchState
from tidelog.client.metadata import MAX_AGE_MS, ClusterMetadata
from tidelog.client.offsets import EARLIEST, LATEST, FoundOffset, OffsetFinder
from tidelog.client.range_reader import RangeReader
from tidelog.client.records import ConsumerRecord
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_EPOCH, NO_OFFSET, Address, BrokerId, TopicPartition
from tidelog.runtime.retry import FETCH, METADATA
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire.services import REPLICA_SERVICE_FETCH

_ANSWER_SLACK_S: Final = 3.0
"""A leader parks a fetch for `max_wait_ms`; one that is paused must not hold the reader much longer than that."""
_FETCHES_PER_LEADER: Final = 2
"""One may be parked for partitions without news while another serves those with; more would only split them up."""
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Consumer:
    """Used as `async with Consumer("host:port") as consumer`, or with `start` and `stop`, in one event loop.

    `poll` hands out records in offset order within each partition. A damaged batch, an offset outside the log without a
    reset policy, and a truncation below the position are raised by `poll`, again and again until the caller seeks.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[Address],
        *,
        auto_offset_reset: str = "earliest",
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 16 * 1024 * 1024,
        partition_bytes: int = 1024 * 1024,
        request_timeout_ms: int = 15_000,
        client_id: str = "tidelog-consumer",
        metadata_max_age_ms: int = MAX_AGE_MS,
        ports: ClientPorts | None = None,
    ) -> None:
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._limit_s = request_timeout_ms / 1000
        self._client_id = client_id
        self._reset = auto_offset_reset
        self._ports = ports or real_ports()
        self._connections = Connections(self._ports.net)
        self._metadata = ClusterMetadata(
            self._ports, self._connections, parse_bootstrap(bootstrap), self._limit_s, metadata_max_age_ms
        )
        self._offsets = OffsetFinder(self._ports, self._connections, self._metadata, self._limit_s)
        self._state = FetchState(partition_bytes=partition_bytes, reset=auto_offset_reset)
        self._supervisor = Supervisor("consumer", on_failure=lambda _: self._arrived.set())
        self._in_flight: Counter[BrokerId] = Counter()
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._refresh = asyncio.Event()
        self._unknown_since: dict[str, float] = {}
        self._whole_topics: set[str] = set()
        self._running = False

    async def start(self) -> None:
        """Returns when a broker has answered; ClusterUnreachable when none does."""
        await self._metadata.refresh(self._metadata.version)
        self._running = True
        self._supervisor.start("consumer-fetcher", self._fetch_all())
        self._supervisor.start("consumer-metadata", self._refresh_metadata())

    async def __aenter__(self) -> "Consumer":
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._connections.close)
            await self.start()
            undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        self._running = False
        await self._supervisor.stop()
        self._arrived.set()
        await self._connections.close()

    # -- what to read -------------------------------------------------------------------------------------------------

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these from now on; those assigned before keep their position. Unknown ones are refused, none is taken."""
        tps = [TopicPartition(*tp) for tp in partitions]
        for tp in tps:
            await self._metadata.topic_with(tp)
        self._whole_topics.clear()
        self._state.assign(tps)
        self._wake.set()

    async def assign_topics(self, *topics: str) -> None:
        """Reads every partition of these, also those that will be added: they are read from their first record."""
        await self.assign([tp for topic in topics for tp in await self.partitions_of(topic)])
        self._whole_topics.update(topics)

    def _assign_added(self) -> None:
        assigned = dict.fromkeys(self.assignment)
        known = {topic: self._metadata.snapshot.topics.get(topic) for topic in self._whole_topics}
        added = [
            tp
            for topic, info in known.items()
            for tp in (TopicPartition(topic, p) for p in range(len(info.partitions) if info else 0))
            if tp not in assigned
        ]
        if added:
            self._state.assign([*assigned, *added])
            for tp in added:
                self._state.seek(tp, 0)

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        info = await self._metadata.topic(topic)
        return [TopicPartition(topic, p) for p in range(len(info.partitions))]

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._state.assigned

    def seek(self, tp: TopicPartition, offset: int, last_epoch: int = NO_EPOCH) -> None:
        """The next record of `tp` is the first at or after `offset`; KeyError if it is not assigned.

        `last_epoch` is the leader epoch of the record before, if one was kept with the offset: a log that was cut below it
        meanwhile is then found out (KIP-320).
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; see seek_to_beginning and seek_to_end")
        self._state.seek(TopicPartition(*tp), offset, last_epoch)
        self._wake.set()

    async def seek_to_beginning(self, *tps: TopicPartition) -> None:
        for tp, offset in (await self.beginning_offsets(tps or self.assignment)).items():
            self.seek(tp, offset)

    async def seek_to_end(self, *tps: TopicPartition) -> None:
        for tp, offset in (await self.end_offsets(tps or self.assignment)).items():
            self.seek(tp, offset)

    async def position(self, tp: TopicPartition) -> int:
        """Offset of the next record that `poll` will hand out."""
        tp = TopicPartition(*tp)
        if self._state.position(tp) == NO_OFFSET:
            await self._place([tp])
        return self._state.position(tp)

    def high_watermark(self, tp: TopicPartition) -> int:
        """As the last fetch saw it; -1 before the first."""
        return self._state.high_watermark(tp)

    async def beginning_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: f.offset for tp, f in (await self.offsets_for_times(dict.fromkeys(tps, EARLIEST))).items()}

    async def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks: exclusive ends of what can be read."""
        return {tp: f.offset for tp, f in (await self.offsets_for_times(dict.fromkeys(tps, LATEST))).items()}

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """The first record at or after each Unix time in ms; its offset is -1 where there is none.

        -3 instead of a time asks for the first record with the largest timestamp. A batch whose records are all older than
        its header says answers with its own first offset.
        """
        return await self._offsets.find({TopicPartition(*tp): at for tp, at in times_ms.items()}, self._limit_s)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[ConsumerRecord]:
        """Up to `max_records` records, as soon as there is one; [] when `timeout_s` passes without."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._arrived.clear()
                    if records := self._take(max_records):
                        return records
                    await self._arrived.wait()
        except TimeoutError:
            return []

    def _take(self, max_records: int) -> list[ConsumerRecord]:
        if not self._running or self._supervisor.failures:
            raise RuntimeError("the consumer is not running: call start() first, and poll no more after stop()")
        records = self._state.take(max_records)
        if records:
            self._wake.set()  # there is room to fetch ahead
        return records

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            for record in await self.poll(timeout_s=3600):
                yield record

    def fetch_batches(self, topic: str, partition: int, start: int, end: int) -> AsyncIterator[bytes]:
        """The record batches that hold offsets `start` to `end` (exclusive), as bytes, undecoded, CRC checked.

        Each item is one or more whole batches; the first may begin before `start` and the last end after `end`. Needs no
        assignment. OffsetOutOfRangeError if the log no longer holds all of the range: it is complete or it fails.
        """
        reader = RangeReader(
            self._ports,
            self._connections,
            self._metadata,
            client_id=self._client_id,
            partition_bytes=self._partition_bytes,
            stall_s=self._limit_s,
        )
        return reader.read(TopicPartition(topic, partition), start, end)

    # -- background ---------------------------------------------------------------------------------------------------

    async def _fetch_all(self) -> None:
        placing: asyncio.Task[None] | None = None
        while True:
            self._wake.clear()
            now = self._ports.clock.now()
            wanted = self._state.wanted(now, self._leader_of, self._has_room, self._topic_id_of)
            if wanted.recreated:
                self._arrived.set()
            unplaced = self._state.unplaced()
            if unplaced and (placing is None or placing.done()):
                placing = self._supervisor.start("consumer-offsets", self._place_or_fail(unplaced))
            for leader, asked in wanted.asks.items():
                self._in_flight[leader] += 1
                self._supervisor.start(f"fetch-{leader}", self._fetch(leader, asked))
            if wanted.leaderless:
                self._refresh.set()
            await self._until(self._state.next_at(now), now)

    async def _until(self, at: float | None, now: float) -> None:
        try:
            async with asyncio.timeout(None if at is None else max(at - now, 0)):
                await self._wake.wait()
        except TimeoutError:
            pass  # time has passed, which is what was waited for

    def _leader_of(self, tp: TopicPartition) -> BrokerId | None:
        led = self._metadata.leadership(tp)
        return None if led is None else led.leader

    def _topic_id_of(self, topic: str) -> bytes:
        info = self._metadata.snapshot.topics.get(topic)
        return info.topic_id if info else b""

    def _has_room(self, leader: BrokerId) -> bool:
        return self._in_flight[leader] < _FETCHES_PER_LEADER

    async def _place_or_fail(self, tps: list[TopicPartition]) -> None:
        try:
            await self._place(tps)
        except (TidelogError, TransportError) as error:
            for tp in tps:
                self._state.fail(tp, _as_protocol_error(tp, error))
            self._arrived.set()
        self._wake.set()

    async def _place(self, tps: list[TopicPartition]) -> None:
        """Positions by the reset policy; without one, a partition that was never sought has none."""
        if self._reset == "error":
            raise TidelogError(
                f"{tps[0]}: no position: seek first, or set auto_offset_reset to earliest or latest",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        at = EARLIEST if self._reset == "earliest" else LATEST
        for tp, found in (await self.offsets_for_times(dict.fromkeys(tps, at))).items():
            if tp in self._state.assigned and self._state.position(tp) == NO_OFFSET:
                self._state.found(tp, found.offset, found.leader_epoch)

    async def _fetch(self, leader: BrokerId, asks: list[Ask]) -> None:
        try:
            request = m.FetchRequest(
                client_id=self._client_id,
                max_wait_ms=self._max_wait_ms,
                min_bytes=self._min_bytes,
                max_bytes=self._max_bytes,
                partitions=tuple(self._fetch_partition(ask) for ask in asks),
            )
            # A connection of its own: chunks of the log must not delay metadata.
            channel = self._connections.to(self._metadata.address(leader), "fetch")
            answer = await channel.call(REPLICA_SERVICE_FETCH, request, self._max_wait_ms / 1000 + _ANSWER_SLACK_S)
        except TransportError as error:
            for ask in asks:
                self._failed(ask, error)
        else:
            results = {(r.topic, r.partition): r for r in answer.results}
            for ask in asks:
                self._answered(ask, results.get(ask.tp))
        finally:
            self._in_flight[leader] -= 1
            self._arrived.set()
            self._wake.set()

    def _fetch_partition(self, ask: Ask) -> m.FetchPartition:
        led = self._metadata.leadership(ask.tp)
        return m.FetchPartition(
            topic=ask.tp.topic,
            topic_id=ask.topic_id,
            partition=ask.tp.partition,
            leader_epoch=led.leader_epoch if led else -1,
            offset=ask.offset,
            last_fetched_epoch=ask.last_fetched_epoch,
            max_bytes=self._partition_bytes,
        )

    def _answered(self, ask: Ask, result: m.FetchResult | None) -> None:
        if result is None:
            self._failed(ask, TransportError("INTERNAL", f"{ask.tp} is not in the answer"))
            return
        match result.error_code:
            case ErrorCode.NONE:
                self._state.fetched(ask, result)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                self._state.out_of_range(ask, result)
            case code:
                self._metadata.hint(ask.tp, result.leader_id, result.leader_epoch)
                self._failed(ask, TidelogError(f"{ask.tp}: {result.error_message or code.name}", code))

    def _failed(self, ask: Ask, error: TidelogError | TransportError) -> None:
        # A reader repeats CORRUPT_MESSAGE in vain: the bytes on the leader's disk stay what they are.
        damaged = isinstance(error, TidelogError) and error.code is ErrorCode.CORRUPT_MESSAGE
        if damaged or not FETCH.applies(error):
            self._state.broken(ask, _as_protocol_error(ask.tp, error))
            return
        self._state.later(ask, lambda failures: FETCH.pause_s(self._ports.rand, failures), self._ports.clock.now())
        if isinstance(error, TransportError) or error.refresh_metadata:
            self._refresh.set()

    async def _refresh_metadata(self) -> None:
        fruitless = 0
        while True:
            await self._metadata.due(self._refresh)
            before = self._metadata.snapshot
            try:
                await self._metadata.refresh(self._metadata.version)
            except TidelogError:
                pass  # nobody answers: the fetches go on trying, as a reader waits for a cluster to come back
            after = self._metadata.snapshot
            self._give_up_on_deleted()
            self._assign_added()
            news = any(before.leadership(tp) != after.leadership(tp) for tp in self._state.assigned)
            if news:
                self._state.hurry()
            self._wake.set()
            fruitless = 0 if news else fruitless + 1
            if fruitless:
                await self._ports.clock.sleep(METADATA.pause_s(self._ports.rand, fruitless))

    def _give_up_on_deleted(self) -> None:
        """A topic that stays unknown is gone; for a while it may only be unknown to the broker that was asked."""
        now = self._ports.clock.now()
        unknown = {t for t, code in self._metadata.snapshot.errors.items() if code in _GONE}
        self._unknown_since = {t: self._unknown_since.get(t, now) for t in unknown}
        for tp in self._state.assigned:
            if now - self._unknown_since.get(tp.topic, now) >= self._limit_s:
                self._state.fail(
                    tp, TidelogError(f"{tp}: topic {tp.topic!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                )
                self._arrived.set()


def _as_protocol_error(tp: TopicPartition, error: TidelogError | TransportError) -> TidelogError:
    return error if isinstance(error, TidelogError) else TidelogError(f"{tp}: {error}", ErrorCode.UNKNOWN_SERVER_ERROR)
