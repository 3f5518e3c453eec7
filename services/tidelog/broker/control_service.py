"""BrokerControl: fences what the controller sends, then hands it to the replica manager and the metadata cache."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Generic, TypeVar

from tidelog.broker.control_plane.port import Decision, Replicas
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.broker.order_checks import check_news, check_roles, check_stop
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import TopicPartition
from tidelog.ports.meta import Meta, MetaError
from tidelog.ports.net import CallContext, Stream
from tidelog.ports.recorder import CAUSE, SILENT, Recorder
from tidelog.runtime.zk_patterns import find
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.limits import SEQUENCE_JUMP_MAX
from tidelog.wire.znodes import CONTROLLER_EPOCH, BadZnode, decode_controller_epoch

_log = logging.getLogger(__name__)

ControlRequest = m.LeaderAndIsrRequest | m.StopReplicaRequest | m.UpdateMetadataRequest
ParseConfig = Callable[[tuple[m.ConfigEntry, ...]], TopicConfig]
Strays = Callable[[frozenset[tuple[TopicPartition, bytes]]], None]
EpochInStore = Callable[[], Awaitable[int]]
T = TypeVar("T")
Answer = TypeVar("Answer", m.LeaderAndIsrResponse, m.StopReplicaResponse, m.UpdateMetadataResponse)


async def controller_epoch_in(meta: Meta) -> int:
    """Reads the epoch of the newest controller that ZooKeeper knows; -1 if there never was one. MetaError, BadZnode."""
    await meta.sync(CONTROLLER_EPOCH)
    node = await find(meta, CONTROLLER_EPOCH)
    return -1 if node is None else decode_controller_epoch(node[0])


def _failures(results: Iterable[m.PartitionResult]) -> int:
    return sum(each.error_code is not ErrorCode.NONE for each in results)


class _FullList(Generic[T]):
    """What the controller lists in full, in one request or in several (`continued`, `more`)."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[T, ...]] | None = None
        """By sequence; None while no list is open."""
        self._closed_by = -1

    def forget(self) -> None:
        self._parts, self._closed_by = None, -1

    def accepts(self, request: m.LeaderAndIsrRequest | m.UpdateMetadataRequest) -> bool:
        return not request.continued or self._parts is not None or request.sequence == self._closed_by

    def add(
        self, request: m.LeaderAndIsrRequest | m.UpdateMetadataRequest, items: tuple[T, ...]
    ) -> tuple[T, ...] | None:
        """The whole list with its last part; None before that, and when the last part comes once more."""
        if not request.continued:
            self._parts = {}
        if self._parts is None:
            return None
        self._parts[request.sequence] = items
        if request.more:
            return None
        whole = tuple(chain.from_iterable(self._parts.values()))
        self._parts, self._closed_by = None, request.sequence
        return whole


class ControlService:
    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        replicas: Replicas,
        metadata: MetadataCache,
        parse_config: ParseConfig,
        set_strays_aside: Strays,
        live_changed: Callable[[dict[int, int]], None],
        on_ready: Callable[[bool], None],
        epoch_in_store: EpochInStore,
        recorder: Recorder = SILENT,
    ) -> None:
        """`epoch_in_store` is `controller_epoch_in`, of this broker's session."""
        self._recorder = recorder
        self._epoch_in_store = epoch_in_store
        self._confirmed = -1
        """The newest controller epoch that ZooKeeper has confirmed."""
        self._confirming = asyncio.Lock()
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._replicas = replicas
        self._metadata = metadata
        self._parse_config = parse_config
        self._set_strays_aside = set_strays_aside
        self._live_changed = live_changed
        self._on_ready = on_ready
        self._configs: dict[str, TopicConfig] = {}
        self._told_live: dict[int, int] = {}
        self._disk_news: list[asyncio.Event] = []
        """One of each liveness stream."""
        self.controller_epoch = -1
        self._sequence = 0
        """The highest of that controller epoch and of this life."""
        self._roles: _FullList[tuple[TopicPartition, bytes]] = _FullList()
        self._news: _FullList[m.PartitionState] = _FullList()
        self.on_controller: Callable[[int], None] = lambda epoch: None
        """Called with the epoch of a controller that is new here."""
        self._has_metadata = False
        self.ready = False
        """True once a full LeaderAndIsr of an active controller has been applied in this life."""

    def registered_again(self) -> None:
        """A new broker epoch: the controller must state everything anew."""
        self.ready = self._has_metadata = False
        self._sequence = 0
        self._roles.forget()
        self._news.forget()
        self._on_ready(False)

    async def _fence(self, request: ControlRequest) -> ErrorCode:
        """F14.2: an older controller, or a command meant for another life of this broker (HOLE-07, HOLE-11).

        Also for a newer one: the controller may see our registration before we hear of it. The full request that begins a
        life would be forgotten when we do; refused, it comes again.
        """
        if request.broker_epoch == self._broker_epoch() and not await self._is_confirmed(request.controller_epoch):
            return ErrorCode.NOT_CONTROLLER
        if self._broker_epoch() < 0 or request.broker_epoch != self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if request.controller_epoch > self.controller_epoch:
            self.controller_epoch, self._sequence = request.controller_epoch, 0
            self.on_controller(request.controller_epoch)
            self._roles.forget()
            self._news.forget()
        if request.sequence < self._sequence:
            # Delayed or sent twice, and read after what came later: an old full list would remove a newer partition.
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if request.sequence > self._sequence + SEQUENCE_JUMP_MAX:
            return ErrorCode.INVALID_REQUEST
        self._sequence = request.sequence
        return ErrorCode.NONE

    async def _is_confirmed(self, epoch: int) -> bool:
        """Answers whether ZooKeeper knows a controller of this epoch. A forged one that counted would depose each controller
        that is elected before its epoch is reached."""
        if epoch <= self._confirmed:
            return True
        async with self._confirming:  # one question at a time
            if epoch > self._confirmed:
                try:
                    self._confirmed = max(self._confirmed, await self._epoch_in_store())
                except (MetaError, BadZnode) as error:
                    _log.info("an order of controller epoch %d has to wait: %s", epoch, error)
                    return False
        if epoch > self._confirmed:
            _log.warning("an order names controller epoch %d, ZooKeeper knows none above %d", epoch, self._confirmed)
        return epoch <= self._confirmed

    async def leader_and_isr(self, request: m.LeaderAndIsrRequest, _: CallContext) -> m.LeaderAndIsrResponse:
        check_roles(request)
        self._received("LeaderAndIsr", request, len(request.partition_states), request.full)
        answer = await self._leader_and_isr(request)
        return self._answered("LeaderAndIsr", answer, _failures(answer.partitions))

    def _received(self, order: str, request: ControlRequest, partitions: int, full: bool) -> None:
        received = m.OrderReceived(
            order=order,
            controller_id=request.controller_id,
            controller_epoch=request.controller_epoch,
            partitions=partitions,
            full=full,
        )
        CAUSE.set(self._recorder.record(self._broker_id, received))

    def _answered(self, order: str, answer: Answer, failed: int = 0) -> Answer:
        """Records what became of it, and makes that the cause of what the answer leads to."""
        code = answer.error_code
        done = m.OrderRefused(order=order, code=code) if code else m.OrderApplied(order=order, failed=failed)
        CAUSE.set(self._recorder.record(self._broker_id, done))
        return answer

    async def _leader_and_isr(self, request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse:
        code = await self._fence(request)
        if code is not ErrorCode.NONE:
            return m.LeaderAndIsrResponse(error_code=code)
        if not request.full and not self.ready:
            # The first one after registration must be full: a partial picture would look complete (HOLE-08).
            return m.LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        if not self._roles.accepts(request):
            return m.LeaderAndIsrResponse(error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._metadata.set_live(request.live_brokers)
        self._metadata.set_throttles(request.leader_throttle, request.follower_throttle)
        for topic in request.topic_states:
            self._configs[topic.topic] = self._parse_config(topic.configs)
        default = self._parse_config(())
        decisions = [Decision(s, self._configs.get(s.topic, default)) for s in request.partition_states]
        results = self._replicas.become(decisions, self._metadata.live)
        if request.full:
            here = tuple((TopicPartition(s.topic, s.partition), s.topic_id) for s in request.partition_states)
            listed = self._roles.add(request, here)
            if listed is not None:
                self._set_strays_aside(frozenset(listed))
                self.ready = True
                self._on_ready(self._has_metadata)
        return m.LeaderAndIsrResponse(partitions=tuple(results))

    async def stop_replica(self, request: m.StopReplicaRequest, _: CallContext) -> m.StopReplicaResponse:
        check_stop(request)
        self._received("StopReplica", request, len(request.partitions), full=False)
        answer = await self._stop_replica(request)
        return self._answered("StopReplica", answer, _failures(answer.partitions))

    async def _stop_replica(self, request: m.StopReplicaRequest) -> m.StopReplicaResponse:
        code = await self._fence(request)
        if code is not ErrorCode.NONE:
            return m.StopReplicaResponse(error_code=code)
        return m.StopReplicaResponse(
            partitions=tuple(
                m.PartitionResult(
                    topic=p.topic,
                    topic_id=p.topic_id,
                    partition=p.partition,
                    error_code=self._replicas.stop(
                        TopicPartition(p.topic, p.partition), p.topic_id, p.leader_epoch, p.delete_partition
                    ),
                )
                for p in request.partitions
            )
        )

    async def update_metadata(self, request: m.UpdateMetadataRequest, _: CallContext) -> m.UpdateMetadataResponse:
        check_news(request)
        self._received("UpdateMetadata", request, len(request.partition_states), request.full)
        return self._answered("UpdateMetadata", await self._update_metadata(request))

    async def _update_metadata(self, request: m.UpdateMetadataRequest) -> m.UpdateMetadataResponse:
        code = await self._fence(request)
        if code is ErrorCode.NONE and not self._news.accepts(request):
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if code is not ErrorCode.NONE:
            return m.UpdateMetadataResponse(error_code=code)
        if request.full:
            states = self._news.add(request, request.partition_states)
            if states is None:
                return m.UpdateMetadataResponse()
            request = replace(request, partition_states=states)
        self._metadata.update(request)
        if request.full:
            # Only now can a client be told where its partitions are: healthy means that it can be served.
            self._has_metadata = True
            self._on_ready(self.ready)
        if self._metadata.live != self._told_live:
            self._told_live = self._metadata.live
            self._live_changed(self._told_live)
        return m.UpdateMetadataResponse()

    async def replica_ends(self, request: m.ReplicaEndsRequest, _: CallContext) -> m.ReplicaEndsResponse:
        """Not in the order of the other requests: it changes nothing."""
        check_stop(request)
        if self._broker_epoch() < 0 or request.broker_epoch != self._broker_epoch():
            return m.ReplicaEndsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        if request.controller_epoch < self.controller_epoch:
            return m.ReplicaEndsResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        return m.ReplicaEndsResponse(partitions=tuple(self._replicas.end_of(each) for each in request.partitions))

    async def liveness(self, stream: Stream[m.LivenessPing, m.LivenessPong], _: CallContext) -> None:
        """Answers each ping, and tells unasked of a disk that fails. That the stream breaks is the controller's fastest
        news of our death."""
        news, writing = asyncio.Event(), asyncio.Lock()
        self._disk_news.append(news)
        try:
            async with asyncio.TaskGroup() as group:
                teller = group.create_task(self._tell_failures(stream, news, writing))
                try:
                    while await stream.read() is not None:
                        await self._pong(stream, writing)
                except TransportError:
                    pass  # the controller is gone, or opens another
                finally:
                    teller.cancel()
        finally:
            self._disk_news.remove(news)

    def disk_failed(self) -> None:
        """A partition went offline: nobody but the controller can give it another leader (row 31)."""
        for news in self._disk_news:
            news.set()

    async def _tell_failures(
        self, stream: Stream[m.LivenessPing, m.LivenessPong], news: asyncio.Event, writing: asyncio.Lock
    ) -> None:
        try:
            while True:
                await news.wait()
                news.clear()
                await self._pong(stream, writing)
        except TransportError:
            pass  # the reading side sees it too

    async def _pong(self, stream: Stream[m.LivenessPing, m.LivenessPong], writing: asyncio.Lock) -> None:
        async with writing:
            await stream.write(
                m.LivenessPong(
                    broker_id=self._broker_id, broker_epoch=self._broker_epoch(), failed=self._replicas.failed()
                )
            )
