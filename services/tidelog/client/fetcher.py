"""The background of a consumer: long polls to the leaders of its partitions, positions by the reset policy, metadata."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.errors import PositionOutOfRangeError
from tidelog.client.fetch_state import Ask, FetchState
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.offsets import EARLIEST, LATEST, FoundOffset, OffsetFinder
from tidelog.errors import ErrorCode, TidelogError, TransportError, is_transient
from tidelog.ids import NO_OFFSET, BrokerId, TopicPartition
from tidelog.runtime.retry import FETCH, METADATA
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire.limits import PARTITIONS, parts
from tidelog.wire.services import REPLICA_SERVICE_FETCH

_log = logging.getLogger(__name__)

_ANSWER_SLACK_S: Final = 3.0
"""A leader parks a fetch for `max_wait_ms`; one that is paused must not hold the reader much longer than that."""
_FETCHES_PER_LEADER: Final = 2
"""One may be parked for partitions without news while another serves those with; more would only split them up."""
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    client_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_bytes: int
    queued_max_bytes: int
    limit_s: float
    reset: str


class Fetcher:
    """Feeds `state`; `arrived` is set whenever there may be something to take."""

    def __init__(
        self,
        ports: ClientPorts,
        connections: Connections,
        metadata: ClusterMetadata,
        state: FetchState,
        options: FetchOptions,
        supervisor: Supervisor,
        arrived: asyncio.Event,
    ) -> None:
        self._ports = ports
        self._connections = connections
        self._metadata = metadata
        self._offsets = OffsetFinder(ports, connections, metadata, options.limit_s)
        self._state = state
        self._options = options
        self._supervisor = supervisor
        self._arrived = arrived
        self._in_flight: Counter[BrokerId] = Counter()
        self._fetches_per_leader = _FETCHES_PER_LEADER
        """And one more for each further request that is needed to name all partitions."""
        self._fetches: dict[asyncio.Task[None], tuple[Ask, ...]] = {}
        self._wake = asyncio.Event()
        self._refresh = asyncio.Event()
        self._unknown_since: dict[str, float] = {}
        self.may_fetch: Callable[[], bool] = lambda: True
        """Asked before each round of fetches."""
        self.on_left_log: Callable[[TopicPartition], bool] = lambda _: False
        """True: somebody else finds out where a partition whose position has left the log goes on."""
        self.on_placed: Callable[[TopicPartition, int], None] = lambda *_: None
        """The reset policy has found where a partition begins."""
        self.fetched_at: float | None = None
        """When a leader last answered for a partition without an error."""
        self.patient = False
        """Whoever waits for positions waits out an outage, however long."""
        self.on_refreshed: Callable[[], None] = lambda: None
        """After each refresh of the metadata."""

    def start(self) -> None:
        self._supervisor.start("consumer-fetcher", self._fetch_all())
        self._supervisor.start("consumer-metadata", self._refresh_metadata())

    def wake(self) -> None:
        """Something is to be fetched that was not before."""
        self._wake.set()

    def refresh(self) -> None:
        """Metadata is missing for something."""
        self._refresh.set()

    async def find(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        return await self._offsets.find(times_ms, self._options.limit_s)

    async def _fetch_all(self) -> None:
        placing: asyncio.Task[None] | None = None
        while True:
            self._wake.clear()
            now = self._ports.clock.now()
            if not self.may_fetch():
                await self._wake.wait()
                continue
            self._end_void_fetches()
            self._fetches_per_leader = _FETCHES_PER_LEADER + len(self._state.assigned) // PARTITIONS
            wanted = self._state.wanted(now, self._leader_of, self._has_room, self._topic_id_of)
            unplaced = self._state.unplaced()
            if unplaced and (placing is None or placing.done()):
                placing = self._supervisor.start("consumer-offsets", self._place_or_fail(unplaced))
            for leader, wanted_of in wanted.asks.items():
                for asked in parts(m.FetchRequest, wanted_of):
                    self._in_flight[leader] += 1
                    self._fetches[self._supervisor.start(f"fetch-{leader}", self._fetch(leader, asked))] = asked
            if wanted.leaderless:
                self._refresh.set()
            await self._until(self._state.next_at(now), now)

    def _end_void_fetches(self) -> None:
        """A long poll that a seek has made void would take the place of another at the leader for up to `max_wait_ms`."""
        self._fetches = {task: asks for task, asks in self._fetches.items() if not task.done()}
        for task, asks in self._fetches.items():
            if all(map(self._state.is_void, asks)):
                task.cancel()

    async def _until(self, at: float | None, now: float) -> None:
        try:
            async with asyncio.timeout(None if at is None else max(at - now, 0)):
                await self._wake.wait()
        except TimeoutError:
            pass  # time has passed, which is what was waited for

    def _leader_of(self, tp: TopicPartition) -> BrokerId | None:
        """None as well while only a leader is known that others have followed: it knows less than the position, and would call
        it out of range (KIP-320: metadata is no older than the epoch of the offset)."""
        led = self._metadata.leadership(tp)
        newest = self._state.last_epoch(tp, self._topic_id_of(tp.topic))
        return None if led is None or led.leader_epoch < newest else led.leader

    def _topic_id_of(self, topic: str) -> bytes:
        info = self._metadata.snapshot.topics.get(topic)
        return info.topic_id if info else b""

    def _has_room(self, leader: BrokerId) -> bool:
        return self._in_flight[leader] < self._fetches_per_leader

    async def _place_or_fail(self, tps: list[TopicPartition]) -> None:
        try:
            await self.place(tps)
        except (TidelogError, TransportError) as error:
            if not (self.patient and is_transient(error)):
                for tp in self._without_position(tps):
                    self._state.fail(tp, _as_protocol_error(tp, error))
                self._arrived.set()
        self._wake.set()

    async def place(self, tps: list[TopicPartition]) -> None:
        """Positions by the reset policy; without one, a partition that was never sought has none."""
        if self._options.reset == "error":
            raise TidelogError(
                f"{tps[0]}: no position: seek first, or set auto_offset_reset to earliest or latest",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        at = EARLIEST if self._options.reset == "earliest" else LATEST
        topic_ids = {tp: self._state.given_topic_id(tp) for tp in tps}
        await self._offsets.find(dict.fromkeys(tps, at), self._options.limit_s, self._found, topic_ids)

    def _found(self, offsets: Mapping[TopicPartition, FoundOffset]) -> None:
        for tp in self._without_position(offsets):
            self._state.found(tp, offsets[tp].offset, offsets[tp].leader_epoch)
            self.on_placed(tp, offsets[tp].offset)
        self._wake.set()

    def _without_position(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Of these, as it is now: while a leader was asked the caller may have sought, or have been assigned others."""
        assigned = frozenset(self._state.assigned)
        return [tp for tp in tps if tp in assigned and self._state.position(tp) == NO_OFFSET]

    async def _fetch(self, leader: BrokerId, asks: tuple[Ask, ...]) -> None:
        try:
            request = m.FetchRequest(
                client_id=self._options.client_id,
                max_wait_ms=self._options.max_wait_ms,
                min_bytes=self._options.min_bytes,
                max_bytes=self._options.max_bytes,
                partitions=tuple(self._fetch_partition(ask) for ask in asks),
            )
            # A connection of its own: chunks of the log must not delay metadata.
            channel = self._connections.to(self._metadata.address(leader), "fetch")
            answer = await channel.call(
                REPLICA_SERVICE_FETCH, request, self._options.max_wait_ms / 1000 + _ANSWER_SLACK_S
            )
        except TransportError as error:
            if error.by_size:
                self._state.too_large(asks, error)
            else:
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
            max_bytes=ask.max_bytes,
        )

    def _answered(self, ask: Ask, result: m.FetchResult | None) -> None:
        if result is None:
            self._failed(ask, TransportError("INTERNAL", f"{ask.tp} is not in the answer"))
            return
        match result.error_code:
            case ErrorCode.NONE:
                self.fetched_at = self._ports.clock.now()
                self._state.fetched(ask, result)
            case ErrorCode.OFFSET_OUT_OF_RANGE if self._state.left_log(ask) and self.on_left_log(ask.tp):
                pass
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                if self._state.out_of_range(ask, result) and self._options.reset != "error":
                    error = PositionOutOfRangeError(ask.tp, ask.offset, result.log_start_offset, result.high_watermark)
                    _log.warning("%s: reading goes on at the %s (auto_offset_reset)", error, self._options.reset)
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
            self.on_refreshed()
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
            info = self._metadata.snapshot.topics.get(tp.topic)
            if info is not None and tp.partition < len(info.partitions):
                self._state.found_again(tp, info.topic_id)
            elif now - self._unknown_since.get(tp.topic, now) >= self._options.limit_s:
                gone = TidelogError(f"{tp}: topic {tp.topic!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self._state.fail(tp, gone)
                self._arrived.set()
                self._refresh.set()  # a broker that has just started may be the only one to say so


def _as_protocol_error(tp: TopicPartition, error: TidelogError | TransportError) -> TidelogError:
    return error if isinstance(error, TidelogError) else TidelogError(f"{tp}: {error}", ErrorCode.UNKNOWN_SERVER_ERROR)
