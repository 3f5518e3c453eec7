"""The follower's side of the ReplicaFetch streams: one link to each leader, for all partitions that it leads."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from tidelog.broker.partition_host import OnBytes, PartitionHost
from tidelog.broker.throttle import Quota
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.names import TOPIC_NAME_MAX
from tidelog.ports.clock import Clock
from tidelog.ports.net import Net, Stream
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.runtime.bell import Bell
from tidelog.sizes import ITEM_BYTES, PART_BYTES
from tidelog.wire import messages as m
from tidelog.wire.services import REPLICA_SERVICE_REPLICA_FETCH

_log = logging.getLogger(__name__)

RETRY_S = 0.05
"""Pause before a refused position is stated again and before a broken stream is opened again."""

HELD_POLL_S = 0.2
"""Longest pause between two looks at positions that a throttle holds up."""

_FIT: Final = PART_BYTES // (ITEM_BYTES + TOPIC_NAME_MAX)
"""So many positions always fit into one request."""

Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]
Cutting = Callable[[Mapping[PartitionHost, int]], AbstractAsyncContextManager[None]]
ReplicaStream = Stream[m.ReplicaFetchResponse, m.ReplicaFetchRequest]


def _cut(positions: list[m.ReplicaPosition]) -> tuple[list[m.ReplicaPosition], list[m.ReplicaPosition]]:
    """Positions that fit into one request, and the rest."""
    if len(positions) <= _FIT:
        return positions, []
    sizes = itertools.accumulate(ITEM_BYTES + len(each.topic) for each in positions)
    fitting = sum(size <= PART_BYTES for size in sizes)
    return positions[:fitting], positions[fitting:]


class LeaderLink:
    """One stream to one leader, for the life of this process: it sleeps while nothing is followed there."""

    def __init__(self, leader: int, fetchers: "LeaderFetchers") -> None:
        self.leader = leader
        self.hosts: dict[TopicPartition, PartitionHost] = {}
        self._fetchers = fetchers
        self._stream: ReplicaStream | None = None
        self._writing = asyncio.Lock()
        self._outgoing: list[m.ReplicaPosition] = []
        self._news = Bell()

    def add(self, host: PartitionHost) -> None:
        self.hosts[host.tp] = host
        if host.may_state():
            self._state(self._position(host))

    def remove(self, host: PartitionHost, newer_epoch: int) -> None:
        del self.hosts[host.tp]
        self._state(self._position(host, leaving_for=newer_epoch))

    def restart(self) -> None:
        """This broker has a new epoch: the leader must see it, so the stream is opened again."""
        if self._stream is not None:
            self._stream.cancel()

    def _state(self, position: m.ReplicaPosition) -> None:
        if self._stream is not None:  # the first message of the next one lists everything
            self._outgoing.append(position)
        self._news.ring()

    @staticmethod
    def _position(
        host: PartitionHost, leaving_for: int | None = None, code: ErrorCode = ErrorCode.NONE
    ) -> m.ReplicaPosition:
        return m.ReplicaPosition(
            topic=host.tp.topic,
            topic_id=host.topic_id,
            partition=host.tp.partition,
            leader_epoch=host.replica.leader_epoch if leaving_for is None else leaving_for,
            offset=host.log.log_end_offset,
            last_fetched_epoch=host.log.latest_epoch,
            error_code=code,
            leaving=leaving_for is not None,
            log_start_offset=host.log.log_start_offset,
        )

    async def run(self) -> None:
        """Opens the stream again and again until cancelled, while there is something to follow."""
        while True:
            while not self.hosts:
                await self._news.wait()
            address = self._fetchers.address_of(self.leader)
            if address is not None:
                try:
                    await self._run_stream(address)
                except TransportError as error:
                    _log.info("replication from broker %d broke: %s", self.leader, error)
            await self._fetchers.clock.sleep(RETRY_S)

    async def _run_stream(self, address: Address) -> None:
        channel = self._fetchers.net.channel(address, purpose="replica")
        stream: ReplicaStream = channel.open(REPLICA_SERVICE_REPLICA_FETCH)
        # What was said on an earlier stream is void: the first message lists everything (design section 3).
        self._outgoing = [self._position(host) for host in self.hosts.values() if host.may_state()]
        self._news.ring()
        self._stream = stream
        broken: TransportError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write_positions(stream))
                try:
                    while (chunk := await stream.read()) is not None:
                        await self._on_chunk(stream, chunk)
                except TransportError as error:
                    broken = error
                finally:
                    writer.cancel()
        finally:
            self._stream = None
            stream.cancel()
            await channel.close()
        if broken is not None:
            raise broken

    async def _write_positions(self, stream: ReplicaStream) -> None:
        try:
            while True:
                await self._news.wait()
                positions, self._outgoing = self._outgoing, []
                if positions:
                    await self._write(stream, positions, acked_chunk=0)
        except TransportError:
            stream.cancel()  # the reading side ends with it

    async def _write(self, stream: ReplicaStream, positions: list[m.ReplicaPosition], acked_chunk: int) -> None:
        async with self._writing:
            # In parts: a leader receives no more than its request_max_bytes.
            while True:
                part, positions = _cut(positions)
                request = m.ReplicaFetchRequest(
                    replica_id=self._fetchers.broker_id,
                    broker_epoch=self._fetchers.broker_epoch,
                    acked_chunk=0 if positions else acked_chunk,
                    partitions=tuple(part),
                )
                await stream.write(request)
                if not positions:
                    break

    async def _on_chunk(self, stream: ReplicaStream, chunk: m.ReplicaFetchResponse) -> None:
        cuts = self._cuts(chunk)
        if cuts:
            async with self._fetchers.cutting(cuts):
                positions = self._apply_all(chunk)
        else:
            positions = self._apply_all(chunk)
        await self._write(stream, positions, acked_chunk=chunk.chunk)

    def _cuts(self, chunk: m.ReplicaFetchResponse) -> dict[PartitionHost, int]:
        """Ends of the logs that this chunk will cut, as far as that can be told; it may become more."""
        cuts: dict[PartitionHost, int] = {}
        for part in chunk.partitions:
            if part.diverging_end_offset < 0 and part.diverging_epoch < 0 and part.error_code is ErrorCode.NONE:
                continue
            host = self.hosts.get(TopicPartition(part.topic, part.partition))
            if host is not None and host.topic_id == part.topic_id and host.offline is None:
                if part.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    cuts[host] = 0
                elif part.error_code is ErrorCode.NONE:
                    epoch, end = host.log.end_offset_for(part.diverging_epoch)
                    cuts[host] = min(part.diverging_end_offset, end) if epoch == part.diverging_epoch else end
        return cuts

    def _apply_all(self, chunk: m.ReplicaFetchResponse) -> list[m.ReplicaPosition]:
        positions: list[m.ReplicaPosition] = []
        for part in chunk.partitions:
            host = self.hosts.get(TopicPartition(part.topic, part.partition))
            if host is not None and host.topic_id == part.topic_id:
                position = self._apply(host, part)
                if position is None or not host.may_state():
                    continue
                if part.records and self._fetchers.holds_up(self, host, len(part.records)):
                    continue  # the leader sends no more of it before it hears where this copy stands
                positions.append(position)
        return positions

    def _apply(self, host: PartitionHost, part: m.ReplicaChunk) -> m.ReplicaPosition | None:
        """Returns the position to acknowledge with; None when there is nothing to say now."""
        if part.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._start_again(host, part)
        if part.error_code is not ErrorCode.NONE:
            self._on_refused(host, part.error_code)
            return None
        own_epoch, own_end = -1, -1
        if part.diverging_epoch >= 0 or part.diverging_end_offset >= 0:
            own_epoch, own_end = host.log.end_offset_for(part.diverging_epoch)
        try:
            effects = host.step(
                ev.ChunkArrived(
                    leader_epoch=part.leader_epoch,
                    offset=part.offset,
                    diverging_epoch=part.diverging_epoch,
                    diverging_end=part.diverging_end_offset,
                    own_epoch=own_epoch,
                    own_end=own_end,
                )
            )
            if not effects or not isinstance(effects[0], fx.AppendChunk):  # which comes alone
                return self._position(host) if effects else None
            if part.dropped_to > host.log.dropped_to:
                host.log.record_dropped_to(part.dropped_to)
            if part.records:
                self._fetchers.on_bytes(len(part.records), self._fetchers.broker_id in host.moving)
                sent = {batch.base_offset: batch.crc for batch in part.sent} if part.marked else None
                host.append_chunk(part.records, sent)
            host.leader_high_watermark = part.high_watermark
            appended = ev.FollowerAppended(
                part.leader_epoch, host.log.log_end_offset, part.high_watermark, part.log_start_offset
            )
            host.step(appended)
            moved = host.move_log_start(part.log_start_offset)
        except TidelogError as error:
            _log.warning("chunk of %s from broker %d refused: %s", host.tp, self.leader, error)
            if host.offline is None:
                self._fetchers.retry_later(self, host)
            return self._position(host, code=error.code)
        return self._position(host) if part.records or moved else None

    def _start_again(self, host: PartitionHost, part: m.ReplicaChunk) -> m.ReplicaPosition | None:
        """What this log wants next is not kept by its leader any more."""
        try:
            diverges = part.diverging_end_offset >= 0
            effects = host.step(ev.BelowLogStart(part.leader_epoch, part.offset, part.log_start_offset, diverges))
        except TidelogError as error:
            _log.warning("%s cannot start again at %d: %s", host.tp, part.log_start_offset, error)
            return None
        return self._position(host) if effects else None

    def _on_refused(self, host: PartitionHost, code: ErrorCode) -> None:
        """FENCED: a newer decision is on its way to us. Others: it is on its way to the leader, so state it again soon."""
        if code is not ErrorCode.FENCED_LEADER_EPOCH:
            self._fetchers.retry_later(self, host)

    def restate(self, host: PartitionHost) -> None:
        if self.hosts.get(host.tp) is host and host.may_state():
            self._state(self._position(host))


class LeaderFetchers:
    """All links of this broker; implements `partition_host.Fetchers`."""

    def __init__(
        self,
        broker_id: int,
        net: Net,
        clock: Clock,
        address_of: Callable[[int], Address | None],
        spawn: Spawn,
        on_bytes: OnBytes,
        quota: Quota,
        cutting: Cutting,
    ) -> None:
        """`quota` holds for the copies that this broker takes of what a reassignment brings to it. `cutting`: see
        `Cuts`."""
        self._quota = quota
        self.cutting = cutting
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.net = net
        self.clock = clock
        self.address_of = address_of
        self._spawn = spawn
        self.on_bytes = on_bytes
        self._links: dict[int, LeaderLink] = {}
        self._following: dict[TopicPartition, LeaderLink] = {}
        self._retry: dict[TopicPartition, tuple[LeaderLink, PartitionHost]] = {}
        self._retrying = False
        self._held: dict[TopicPartition, tuple[LeaderLink, PartitionHost]] = {}

    def follow(self, host: PartitionHost, leader: int) -> None:
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = LeaderLink(leader, self)
            self._spawn(f"replication from broker {leader}", link.run())
        self._following[host.tp] = link
        link.add(host)

    def unfollow(self, host: PartitionHost, newer_epoch: int) -> None:
        link = self._following.pop(host.tp, None)
        if link is not None:
            link.remove(host, newer_epoch)

    def restate(self, host: PartitionHost) -> None:
        link = self._following.get(host.tp)
        if link is not None:
            link.restate(host)

    def new_broker_epoch(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        for link in self._links.values():
            link.restart()

    def holds_up(self, link: LeaderLink, host: PartitionHost, size_bytes: int) -> bool:
        """Whether the position of a copy is stated later, because what has arrived of it was more than the quota."""
        if self.broker_id not in host.moving:
            return False
        self._quota.used(size_bytes)  # also of a copy that is whole with this
        if not host.throttles(self.broker_id) or self._quota.wait_s() == 0.0:
            return False
        if not self._held:
            self._spawn("restating throttled positions", self._run_held())
        self._held[host.tp] = (link, host)
        return True

    async def _run_held(self) -> None:
        # A rate that is raised meanwhile counts from the next look on, and so does a copy that is in the ISR now.
        while self._held:
            await self.clock.sleep(min(self._quota.wait_s(), HELD_POLL_S))
            all_may = self._quota.wait_s() == 0.0
            for tp, (link, host) in list(self._held.items()):
                if all_may or not host.throttles(self.broker_id):
                    del self._held[tp]
                    link.restate(host)

    def retry_later(self, link: LeaderLink, host: PartitionHost) -> None:
        """One pause for everything that was refused meanwhile."""
        self._retry[host.tp] = (link, host)
        if not self._retrying:
            self._retrying = True
            self._spawn("restating refused positions", self._run_retry())

    async def _run_retry(self) -> None:
        await self.clock.sleep(RETRY_S)
        self._retrying = False
        retry, self._retry = self._retry, {}
        for link, host in retry.values():
            link.restate(host)
