"""The follower's side of the ReplicaFetch streams: one link to each leader, for all partitions that it leads."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.broker.partition_host import PartitionHost
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.net import Net, Stream
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.wire import messages as m
from tidelog.wire.services import REPLICA_SERVICE_REPLICA_FETCH

_log = logging.getLogger(__name__)

RETRY_S = 0.05
"""Pause before a refused position is stated again and before a broken stream is opened again."""

Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]
ReplicaStream = Stream[m.ReplicaFetchResponse, m.ReplicaFetchRequest]


class LeaderLink:
    """One stream to one leader, for the life of this process: it sleeps while nothing is followed there."""

    def __init__(self, leader: int, fetchers: "LeaderFetchers") -> None:
        self.leader = leader
        self.hosts: dict[TopicPartition, PartitionHost] = {}
        self._fetchers = fetchers
        self._stream: ReplicaStream | None = None
        self._writing = asyncio.Lock()
        self._outgoing: list[m.ReplicaPosition] = []
        self._outgoing_event = asyncio.Event()

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
        self._outgoing_event.set()

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
        )

    async def run(self) -> None:
        """Opens the stream again and again until cancelled, while there is something to follow."""
        while True:
            while not self.hosts:
                self._outgoing_event.clear()
                await self._outgoing_event.wait()
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
        self._outgoing_event.set()
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
                await self._outgoing_event.wait()
                self._outgoing_event.clear()
                positions, self._outgoing = self._outgoing, []
                if positions:
                    await self._write(stream, positions, acked_chunk=0)
        except TransportError:
            stream.cancel()  # the reading side ends with it

    async def _write(self, stream: ReplicaStream, positions: list[m.ReplicaPosition], acked_chunk: int) -> None:
        request = m.ReplicaFetchRequest(
            replica_id=self._fetchers.broker_id,
            broker_epoch=self._fetchers.broker_epoch,
            acked_chunk=acked_chunk,
            partitions=tuple(positions),
        )
        async with self._writing:
            await stream.write(request)

    async def _on_chunk(self, stream: ReplicaStream, chunk: m.ReplicaFetchResponse) -> None:
        positions: list[m.ReplicaPosition] = []
        for part in chunk.partitions:
            host = self.hosts.get(TopicPartition(part.topic, part.partition))
            if host is not None and host.topic_id == part.topic_id:
                position = self._apply(host, part)
                if position is not None and host.may_state():
                    positions.append(position)
        await self._write(stream, positions, acked_chunk=chunk.chunk)

    def _apply(self, host: PartitionHost, part: m.ReplicaChunk) -> m.ReplicaPosition | None:
        """Returns the position to acknowledge with; None when there is nothing to say now."""
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
            if not any(isinstance(effect, fx.AppendChunk) for effect in effects):
                return self._position(host) if effects else None
            if part.records:
                self._fetchers.on_bytes(len(part.records))
                host.append_chunk(part.records)
        except TidelogError as error:
            _log.warning("chunk of %s from broker %d refused: %s", host.tp, self.leader, error)
            if host.offline is None:
                self._fetchers.retry_later(self, host)
            return self._position(host, code=error.code)
        host.leader_high_watermark = part.high_watermark
        host.step(
            ev.FollowerAppended(part.leader_epoch, host.log.log_end_offset, part.high_watermark, part.log_start_offset)
        )
        return self._position(host) if part.records else None

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
        on_bytes: Callable[[int], None],
    ) -> None:
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
