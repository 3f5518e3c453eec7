"""The leader's side of one ReplicaFetch stream: one follower, every partition that it follows here.

At most one unacknowledged chunk: everything that piled up meanwhile goes into the next one, so the stream batches by itself
(performance 4.3). A high watermark rides on the next chunk of its partition, or goes alone after a pause.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.broker.partition_host import OnBytes, PartitionHost
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.broker.throttle import Quota
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_EPOCH, NO_OFFSET, TopicPartition
from tidelog.names import TOPIC_NAME_MAX
from tidelog.ports.clock import Clock
from tidelog.ports.net import Stream
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.runtime.bell import Bell, give_way, in_turns
from tidelog.sizes import ITEM_BYTES, SLACK_BYTES
from tidelog.storage.producer_state import SentCrcs
from tidelog.wire import messages as m
from tidelog.wire.batch import from_offset

_log = logging.getLogger(__name__)

COPIES_SHARE: Final = 4
"""Of a chunk one in so many bytes is kept for what reassignments copy, if there is any."""

ANSWERS_MAX: Final = 5_000
"""Refusals and divergences in one chunk: what is not in it comes with the next one."""


class _HeldBack(NamedTuple):
    host: PartitionHost
    offset: int
    size_bytes: int


def _size_of(part: m.ReplicaChunk) -> int:
    """The most that it takes in a message."""
    return len(part.records) + ITEM_BYTES + len(part.topic)


class FollowerSession:
    def __init__(
        self,
        stream: Stream[m.ReplicaFetchRequest, m.ReplicaFetchResponse],
        manager: ReplicaManager,
        clock: Clock,
        chunk_bytes: int,
        on_bytes: OnBytes,
        on_introduced: Callable[["FollowerSession"], None],
        quota: Quota,
    ) -> None:
        self._quota = quota
        self._on_bytes = on_bytes
        self._on_introduced = on_introduced
        self._stream = stream
        self._manager = manager
        self._clock = clock
        self._chunk_bytes = chunk_bytes
        self._wake = Bell()
        self.replica = -1
        """Of the follower; -1 until it has spoken."""
        self.broker_epoch = NO_EPOCH
        self._offsets: dict[TopicPartition, int] = {}
        self._news: dict[TopicPartition, PartitionHost] = {}
        """Partitions with something to send, in rotation: taken from the front, put back at the end."""
        self._copies: dict[TopicPartition, PartitionHost] = {}
        """The same, of what a reassignment brings: nobody waits for it, so it comes after the others in each chunk."""
        self._unstated: set[TopicPartition] = set()
        """Sent to, and not heard of since: with flush=sync the position comes after the sync, not with the chunk's ack."""
        self._throttled: dict[TopicPartition, PartitionHost] = {}
        """Copies of a reassignment with something to send, that wait for the quota."""
        self._high_watermarks: dict[TopicPartition, PartitionHost] = {}
        self.held_back: dict[TopicPartition, _HeldBack] = {}
        """Partitions whose next batch is larger than this follower takes. The others go on."""
        self._answers: list[m.ReplicaChunk] = []
        """Refusals and divergences: they carry no records and go with the next chunk."""
        self._chunks_sent = 0
        self._unacked = 0

    # -- what partitions tell (FollowerSink) -------------------------------------------------------------------------

    def news(self, host: PartitionHost) -> None:
        self._has_news(host)
        if not self._unacked:
            self._wake.ring()

    def _has_news(self, host: PartitionHost) -> None:
        (self._copies if host.throttles(self.replica) else self._news)[host.tp] = host

    def high_watermark_moved(self, host: PartitionHost) -> None:
        self._high_watermarks[host.tp] = host

    def flush_high_watermarks(self) -> None:
        """Called from time to time: an idle partition's follower learns the last high watermark too (HL6.06), and what waits
        for the quota goes on."""
        self._resume_throttled()
        for tp, held in list(self.held_back.items()):
            deleted = held.host.log.log_start_offset > held.offset
            if deleted or held.size_bytes <= self._manager.carriage.to(self.replica):
                del self.held_back[tp]
                self._has_news(held.host)
        if (self._high_watermarks or self._news or self._copies) and not self._unacked:
            self._wake.ring()

    def _resume_throttled(self) -> None:
        if not self._throttled:
            return
        all_may = self._quota.allowance_bytes() != 0
        for tp, host in list(self._throttled.items()):
            if all_may or not host.throttles(self.replica):
                del self._throttled[tp]
                self._has_news(host)

    # -- the stream --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the stream ends; the caller runs `send` beside it."""
        try:
            while (request := await self._stream.read()) is not None:
                await self._on_request(request)
                await give_way()
        finally:
            self._close()

    def end(self) -> None:
        """Breaks the stream; `run` and `send` end with it."""
        self._stream.cancel()

    async def send(self) -> None:
        """Writes chunks until cancelled or the stream breaks."""
        try:
            while True:
                await self._wake.wait()
                if self._unacked:
                    continue
                parts = self._build()
                if parts:
                    self._chunks_sent += 1
                    self._unacked = self._chunks_sent
                    await self._stream.write(m.ReplicaFetchResponse(chunk=self._chunks_sent, partitions=parts))
        except TransportError:
            pass  # the reading side sees it too and closes the session

    async def _on_request(self, request: m.ReplicaFetchRequest) -> None:
        if request.replica_id < 0:
            raise TidelogError(
                f"replica_id is {request.replica_id}, it must not be negative", ErrorCode.INVALID_REQUEST
            )
        if self.replica < 0:
            self.replica, self.broker_epoch = request.replica_id, request.broker_epoch
            self._on_introduced(self)
        await in_turns(self._on_position, request.partitions)
        if request.acked_chunk and request.acked_chunk == self._unacked:
            self._unacked = 0
        if not self._unacked and (self._news or self._copies or self._answers):
            self._wake.ring()

    def _on_position(self, position: m.ReplicaPosition) -> None:
        if position.leaving:
            tp = TopicPartition(position.topic, position.partition)
            self._forget(tp)
            host = self._manager.find(tp)
            # Epochs of an earlier topic of this name say nothing about this one (HOLE-10).
            if host is not None and position.topic_id == host.topic_id:
                host.step(ev.FollowerGone(self.replica, self.broker_epoch))
                host.depose(position.leader_epoch)
            return
        try:
            host = self._manager.host(
                position.topic, position.partition, position.topic_id, ErrorCode.INCONSISTENT_TOPIC_ID
            )
        except TidelogError as error:
            self._refuse(position, error.code)
            return
        found_epoch, found_end = host.log.end_offset_for(position.last_fetched_epoch)
        effects = host.step(
            ev.FollowerPosition(
                replica=self.replica,
                broker_epoch=self.broker_epoch,
                leader_epoch=position.leader_epoch,
                offset=position.offset,
                last_epoch=position.last_fetched_epoch,
                found_epoch=found_epoch,
                found_end=found_end,
                at=self._clock.now(),
                log_start=host.log.log_start_offset,
                own_start=position.log_start_offset,
                dropped_to=host.log.dropped_to,
                drops=host.log.drops,
            )
        )
        for effect in effects:
            match effect:
                case fx.SendRecords():
                    self._serve(host, effect.offset, position.error_code)
                    host.follower_stated_start(self.replica, position.log_start_offset)
                case fx.SendDivergence():
                    self._forget(host.tp)
                    self._answers.append(self._chunk(host, effect.offset, epoch=effect.epoch, end=effect.end))
                case fx.SendLogStart():
                    self._tell_log_start(host, effect.offset, effect.diverging_end)
                case fx.RefusePosition():
                    host.fenced(f"the position of broker-{self.replica}", position.leader_epoch, effect.code)
                    self._refuse(position, effect.code)

    def _serve(self, host: PartitionHost, offset: int, last_result: ErrorCode) -> None:
        if host.tp not in self._offsets:
            # Its high watermark may be an old one: of before a restart, or the last one was lost with a stream.
            self._high_watermarks[host.tp] = host
        self._offsets[host.tp] = offset
        self.held_back.pop(host.tp, None)
        self._unstated.discard(host.tp)
        if host.sinks.get(self.replica) is not self:
            host.connected(self.replica, self)
        if offset < host.log.log_end_offset and last_result is ErrorCode.NONE:
            self._has_news(host)
        elif last_result is not ErrorCode.NONE:
            _log.warning("follower %d could not append to %s: %s", self.replica, host.tp, last_result.name)

    def _tell_log_start(self, host: PartitionHost, offset: int, diverging_end: int = NO_OFFSET) -> None:
        self._forget(host.tp)
        self._answers.append(self._chunk(host, offset, end=diverging_end, code=ErrorCode.OFFSET_OUT_OF_RANGE))

    def _refuse(self, position: m.ReplicaPosition, code: ErrorCode) -> None:
        self._forget(TopicPartition(position.topic, position.partition))
        self._answers.append(
            m.ReplicaChunk(
                topic=position.topic,
                partition=position.partition,
                leader_epoch=position.leader_epoch,
                error_code=code,
                high_watermark=NO_OFFSET,
                log_start_offset=NO_OFFSET,
                diverging_epoch=NO_EPOCH,
                diverging_end_offset=NO_OFFSET,
                offset=position.offset,
                topic_id=position.topic_id,
                dropped_to=0,
            )
        )

    def _build(self) -> tuple[m.ReplicaChunk, ...]:
        parts: list[m.ReplicaChunk] = []
        batch_bytes = self._manager.carriage.to(self.replica)
        chunk_bytes = min(self._chunk_bytes, batch_bytes)
        # A busy topic does not starve the copies, nor do they keep those waiting that producers wait for.
        kept = chunk_bytes // COPIES_SHARE if self._copies else 0
        left = self._take(self._news, chunk_bytes - kept, parts, batch_bytes)
        self._take(self._copies, max(left, 0) + kept, parts, batch_bytes)
        room = batch_bytes + SLACK_BYTES - sum(map(_size_of, parts)) - (ITEM_BYTES + TOPIC_NAME_MAX)
        sizes = itertools.accumulate(map(_size_of, itertools.islice(self._answers, ANSWERS_MAX)))
        fitting = sum(size <= room for size in sizes)
        answers, self._answers = self._answers[:fitting], self._answers[fitting:]
        room -= sum(map(_size_of, answers))
        waiting: dict[TopicPartition, PartitionHost] = {}
        for tp, host in self._high_watermarks.items():
            if tp in self._unstated or room < 0:
                waiting[tp] = host  # it would name a position that the follower has left; or there is no room
            elif (offset := self._offset_of(host)) is not None:
                parts.append(self._chunk(host, offset))
                room -= _size_of(parts[-1])
        self._high_watermarks = waiting
        return (*answers, *parts)

    def _take(
        self, news: dict[TopicPartition, PartitionHost], room: int, parts: list[m.ReplicaChunk], batch_bytes: int
    ) -> int:
        """Adds what fits of `news` to `parts`, at least one batch of up to `batch_bytes`; returns how much room is left."""
        sent_any = False
        parts_max = (batch_bytes + SLACK_BYTES - min(self._chunk_bytes, batch_bytes)) // (ITEM_BYTES + TOPIC_NAME_MAX)
        for tp in list(news):
            if room <= 0 or len(parts) >= parts_max:
                break
            host = news.pop(tp)
            offset = self._offset_of(host)
            if offset is None or offset >= host.log.log_end_offset or tp in self._unstated:
                continue  # it was stated twice, or its next position brings it back
            if offset < host.log.log_start_offset:
                self._tell_log_start(host, offset)  # the start has moved since that was stated
                continue
            if tp in self.held_back:
                continue
            moves = self.replica in host.moving
            throttled = moves and host.throttles(self.replica)
            allowance = self._quota.allowance_bytes() if throttled else None
            if allowance == 0:
                self._throttled[tp] = host
                continue
            # However small the quota is, it gives one batch at a time.
            limit, min_one = (room, not sent_any) if allowance is None else (min(room, allowance), True)
            try:
                read = host.read(offset, limit, host.log.log_end_offset, min_one=min_one)
            except TidelogError as error:
                _log.warning("cannot read %s at %d for follower %d: %s", tp, offset, self.replica, error)
                continue
            if not read and host.reads_index:
                continue  # there is news when the index is there
            if len(read) > batch_bytes:
                self._hold_back(host, offset, len(read), batch_bytes)
                continue
            records = from_offset(read, offset)
            if not records or (parts and len(read) > room and len(read) + sum(map(_size_of, parts)) > batch_bytes):
                news[tp] = host  # no room for its next batch: first in the next chunk but for newer ones
                break
            room -= len(records)
            if throttled:
                self._quota.used(len(records))
            self._on_bytes(len(records), moves)
            sent_any = True
            self._unstated.add(tp)
            self._high_watermarks.pop(tp, None)
            parts.append(self._chunk(host, offset, records=records, sent=host.log.sent_crcs(offset)))
        return room

    def _hold_back(self, host: PartitionHost, offset: int, size_bytes: int, batch_bytes: int) -> None:
        """A larger message would end the stream, which is that of every partition (KAFKA-2338)."""
        self.held_back[host.tp] = _HeldBack(host, offset, size_bytes)
        _log.warning(
            "%s is not replicated to broker %d: the batch at offset %d takes %d bytes, fetch_max_bytes allows %d",
            *(host.tp, self.replica, offset, size_bytes, batch_bytes),
        )

    def _offset_of(self, host: PartitionHost) -> int | None:
        """The position that this follower stated to this leader in its present epoch; None where it has not (HOLE-04)."""
        serves = host.is_leader and host.sinks.get(self.replica) is self
        return self._offsets.get(host.tp) if serves else None

    @staticmethod
    def _chunk(
        host: PartitionHost,
        offset: int,
        records: bytes = b"",
        epoch: int = NO_EPOCH,
        end: int = NO_OFFSET,
        code: ErrorCode = ErrorCode.NONE,
        sent: SentCrcs = None,
    ) -> m.ReplicaChunk:
        return m.ReplicaChunk(
            topic=host.tp.topic,
            partition=host.tp.partition,
            leader_epoch=host.replica.leader_epoch,
            error_code=code,
            high_watermark=host.replica.high_watermark,
            log_start_offset=host.log.log_start_offset,
            diverging_epoch=epoch,
            diverging_end_offset=end,
            offset=offset,
            topic_id=host.topic_id,
            dropped_to=host.log.dropped_to if offset < host.log.dropped_to else 0,
            marked=sent is not None,
            sent=tuple([m.SentBatch(base_offset=base, crc=crc) for base, crc in sent.items()]) if sent else (),
            records=records,
        )

    def _forget(self, tp: TopicPartition) -> None:
        self._offsets.pop(tp, None)
        self._unstated.discard(tp)
        self._news.pop(tp, None)
        self._copies.pop(tp, None)
        self._throttled.pop(tp, None)
        self.held_back.pop(tp, None)
        self._high_watermarks.pop(tp, None)
        host = self._manager.find(tp)
        if host is not None and host.sinks.get(self.replica) is self:
            del host.sinks[self.replica]

    def _close(self) -> None:
        for tp in list(self._offsets):
            host = self._manager.find(tp)
            if host is not None and host.sinks.get(self.replica) is self:
                del host.sinks[self.replica]
                host.step(ev.FollowerGone(self.replica, self.broker_epoch))
        self._offsets.clear()


class FollowerSessions:
    """Every open session of this broker."""

    def __init__(
        self,
        manager: ReplicaManager,
        clock: Clock,
        chunk_bytes: int,
        flush_s: float,
        on_bytes: OnBytes,
        quota: Quota,
    ) -> None:
        """`quota` holds for the copies that this broker sends to replicas which a reassignment brings."""
        self._quota = quota
        self._on_bytes = on_bytes
        self._manager = manager
        self._clock = clock
        self._chunk_bytes = chunk_bytes
        self._flush_s = flush_s
        self._sessions: dict[FollowerSession, None] = {}

    @property
    def held_back(self) -> int:
        """Partitions, one for each follower, whose next batch is larger than the follower takes."""
        return sum(len(session.held_back) for session in list(self._sessions))

    async def serve(self, stream: Stream[m.ReplicaFetchRequest, m.ReplicaFetchResponse]) -> None:
        """One stream, to its end."""
        session = FollowerSession(
            stream, self._manager, self._clock, self._chunk_bytes, self._on_bytes, self._introduced, self._quota
        )
        self._sessions[session] = None
        try:
            async with asyncio.TaskGroup() as group:
                sender = group.create_task(session.send())
                try:
                    await session.run()
                except TransportError:
                    pass  # the follower is gone; it opens another stream when it can
                finally:
                    sender.cancel()
        finally:
            del self._sessions[session]

    def _introduced(self, session: FollowerSession) -> None:
        """A follower has one stream to a leader. What an older one still says is late, and would take the partitions
        away from the new one; should the older be the one that spoke last, the follower opens another. STALE_BROKER_EPOCH for a
        stream of an earlier life of the follower."""
        others = [each for each in self._sessions if each is not session and each.replica == session.replica]
        latest = max((each.broker_epoch for each in others), default=session.broker_epoch)
        if session.broker_epoch < latest:
            raise TidelogError(
                f"broker_epoch is {session.broker_epoch}: broker {session.replica} follows in epoch {latest}",
                ErrorCode.STALE_BROKER_EPOCH,
            )
        for other in others:
            other.end()

    async def run_flushes(self) -> None:
        while True:
            await self._clock.sleep(self._flush_s)
            sessions = list(self._sessions)
            for session in sessions:
                session.flush_high_watermarks()
            if sessions and sessions[0] in self._sessions:
                # By turns: who wakes first takes what has come into the quota, and the others wait again.
                self._sessions[sessions[0]] = self._sessions.pop(sessions[0])
