"""Consumer: reads assigned partitions from their leaders, up to the high watermark, with long polls."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack

from tidelog.client.connections import Bootstrap, ClientPorts, Connections, parse_bootstrap, real_ports
from tidelog.client.errors import ClientClosed
from tidelog.client.fetch_state import QUEUED_MAX_BYTES, FetchState
from tidelog.client.fetcher import Fetcher, FetchOptions
from tidelog.client.gate import Gate
from tidelog.client.groups import (
    CommittedOffset,
    ConsumerStats,
    GroupMember,
    GroupMetadata,
    Listener,
    Listeners,
    reset_on_the_wire,
    topic_count,
)
from tidelog.client.member_events import Member
from tidelog.client.metadata import MAX_AGE_MS, ClusterMetadata
from tidelog.client.offsets import EARLIEST, LATEST, FoundOffset
from tidelog.client.range_reader import RangeReader
from tidelog.client.records import ConsumerRecord
from tidelog.errors import ErrorCode
from tidelog.ids import NO_EPOCH, NO_OFFSET, Address, TopicPartition
from tidelog.names import validate_group_id, validate_topic_name
from tidelog.runtime.bell import Turns
from tidelog.runtime.tasks import Supervisor

_log = logging.getLogger(__name__)


class Consumer:
    """Used as `async with Consumer("host:port") as consumer`, or with `start` and `stop`, in one event loop.

    `poll` hands out records in offset order within each partition. `async for` takes one at a time, for ever: after a loop
    that was left by `break` or an exception, the next loop or `poll` begins behind the record that the loop had last. A
    member's last record counts as processed when more is asked for or `commit` is called, also after an exception; of one
    that stops before, it is handed out again to the next owner.

    At most `queued_max_bytes` are fetched ahead, an equal share for each partition, or one batch where that is larger.

    A damaged batch, an offset outside the log without a
    reset policy, and a truncation below the position are raised by `poll`, again and again until the caller seeks.
    """

    def __init__(
        self,
        bootstrap: Bootstrap = None,
        *,
        group: str | None = None,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        exclude_pattern: str | None = None,
        consumer_id: str | None = None,
        static: bool = False,
        session_timeout_ms: int = 10_000,
        max_processing_ms: int = 300_000,
        auto_commit: bool = True,
        assignor: str = "",
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        auto_offset_reset: str = "earliest",
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 16 * 1024 * 1024,
        partition_bytes: int = 1024 * 1024,
        queued_max_bytes: int = QUEUED_MAX_BYTES,
        request_timeout_ms: int = 15_000,
        client_id: str = "tidelog-consumer",
        metadata_max_age_ms: int = MAX_AGE_MS,
        ports: ClientPorts | None = None,
    ) -> None:
        """With `group` it is a member, and what it reads is assigned to it: of `topics`, or of those that match `pattern`, or
        do not match `exclude_pattern`, now or later. `static`: it keeps its `consumer_id` and its partitions over a restart."""
        if isinstance(topics, str):
            raise TypeError(f"topics {topics!r} is a str: name topics in a list")
        self._ports = ports or real_ports()
        self._options = FetchOptions(
            client_id=client_id,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_bytes=partition_bytes,
            queued_max_bytes=queued_max_bytes,
            limit_s=request_timeout_ms / 1000,
            reset=auto_offset_reset,
        )
        self._set_up(parse_bootstrap(bootstrap), metadata_max_age_ms)
        if group is None:
            if topics or pattern is not None or exclude_pattern is not None:
                raise ValueError("topics, pattern and exclude_pattern need a group; see assign_topics")
            self._fetcher.on_refreshed = self._assign_added
            return
        if static and consumer_id is None:
            raise ValueError("a static member needs a consumer_id, by which it is known after a restart")
        member = Member(
            group_id=validate_group_id(group),
            consumer_id=consumer_id or f"{client_id}-{self._ports.rand.randbytes(8).hex()}",
            incarnation=int.from_bytes(self._ports.rand.randbytes(8)) >> 1,
            topic_count=topic_count([validate_topic_name(t) for t in topics], pattern, exclude_pattern),
            auto_commit=auto_commit,
            auto_offset_reset=reset_on_the_wire(auto_offset_reset),
            session_timeout_ms=session_timeout_ms,
            static=static,
            max_processing_ms=max_processing_ms,
            assignor=assignor,
            client_id=client_id,
        )
        self._join_as(member, Listeners(on_assigned, on_revoked, on_lost))
        self._subscribe(topics)

    def _set_up(self, bootstrap: Sequence[Address], metadata_max_age_ms: int) -> None:
        self._whole_topics: set[str] = set()
        self._subscribed: frozenset[str] = frozenset()
        self._missing: set[str] = set()
        self._running = False
        self._ended = False
        self._ending = asyncio.Lock()
        self._group: GroupMember | None = None
        options = self._options
        self._gate = Gate(self._ports.net, "consumer")
        self._connections = Connections(self._gate)
        self._metadata = ClusterMetadata(
            self._ports, self._connections, bootstrap, options.limit_s, metadata_max_age_ms
        )
        self._state = FetchState(
            partition_bytes=options.partition_bytes, reset=options.reset, queued_max_bytes=options.queued_max_bytes
        )
        self._supervisor = Supervisor("consumer", on_failure=lambda _: self._arrived.set())
        self._arrived = asyncio.Event()
        self._turns = Turns(self._ports.clock.now)
        self._fetcher = Fetcher(
            self._ports, self._connections, self._metadata, self._state, options, self._supervisor, self._arrived
        )

    def _join_as(self, member: Member, listeners: Listeners) -> None:
        self._group = GroupMember(
            member,
            listeners,
            self._ports,
            self._connections,
            self._metadata,
            self._state,
            self._assignment_changed,
            self._options.limit_s,
        )
        self._fetcher.patient = True
        self._fetcher.may_fetch = self._group.may_fetch
        self._fetcher.on_left_log = self._left_log
        self._fetcher.on_placed = self._group.sought

    def _subscribe(self, topics: Sequence[str]) -> None:
        self._subscribed = frozenset(topics)
        self._metadata.want(topics)
        self._fetcher.on_refreshed = self._report_missing

    def _report_missing(self) -> None:
        """Once, until they are there: a topic that is created later is assigned then, one whose name is misspelt never."""
        errors = self._metadata.snapshot.errors
        missing = {t for t in self._subscribed if errors.get(t) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if new := missing - self._missing:
            _log.warning("subscribed topics do not exist: %s", ", ".join(sorted(new)))
        self._missing = missing

    def _assignment_changed(self, metadata_is_missing: bool) -> None:
        if metadata_is_missing:
            self._fetcher.refresh()
        self._fetcher.wake()
        self._arrived.set()

    def _left_log(self, tp: TopicPartition) -> bool:
        return self._group is not None and self._options.reset != "error" and self._group.left_log(tp)

    async def start(self) -> None:
        """Returns when a broker has answered; ClusterUnreachable when none does."""
        await self._metadata.refresh(self._metadata.version)
        self._report_missing()
        self._running = True
        self._fetcher.start()
        if self._group is not None:
            self._group.start(self._supervisor)

    async def __aenter__(self) -> "Consumer":
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._connections.close)
            await self.start()
            undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """A member leaves its group first, which another then takes over from at once: within a session timeout at most.

        What `poll` handed out last counts as not processed, unless a commit or another `poll` has followed. Raises what
        `on_revoked` raises, at the end.
        """
        running = self._end()
        async with self._ending:  # a second one returns when the first has ended
            try:
                if self._group is not None and running:
                    await self._group.stop()
            finally:
                await self.abandon()

    async def abandon(self) -> None:
        """Ends without a word, as a process that dies: its group learns of it from its silence."""
        self._end()
        await self._supervisor.stop()
        self._gate.close()
        await self._connections.close()

    def _end(self) -> bool:
        """Nothing is handed out any more, also to calls that wait; True: it was running."""
        running, self._running, self._ended = self._running, False, True
        self._arrived.set()
        return running

    async def _begin(self) -> None:
        self._gate.check()
        await self._turns.pass_on()

    # -- what to read -------------------------------------------------------------------------------------------------

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these from now on; those assigned before keep their position. Unknown ones are refused, none is taken."""
        await self._begin()
        if self._group is not None:
            raise ValueError("what a member of a group reads is assigned by the group's coordinator")
        tps = [TopicPartition(*tp) for tp in partitions]
        for tp in tps:
            await self._metadata.topic_with(tp)
        self._whole_topics.clear()
        self._state.assign(tps)
        self._fetcher.wake()

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
        await self._begin()
        info = await self._metadata.topic(topic)
        return [TopicPartition(topic, p) for p in range(len(info.partitions))]

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._state.assigned

    def owns(self, tp: TopicPartition) -> bool:
        """Whether it reads `tp` at this instant; of a group: while nobody else can (COORD-1)."""
        return tp in self._state.assigned if self._group is None else self._group.owns(tp)

    def seek(self, tp: TopicPartition, offset: int, last_epoch: int = NO_EPOCH) -> None:
        """The next record of `tp` is the first at or after `offset`; KeyError if it is not assigned.

        `last_epoch` is the leader epoch of the record before, if one was kept with the offset: a log that was cut below it
        meanwhile is then found out (KIP-320).
        """
        self._gate.check()
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; see seek_to_beginning and seek_to_end")
        self._state.seek(TopicPartition(*tp), offset, last_epoch)
        if self._group is not None:
            self._group.sought(TopicPartition(*tp), offset, last_epoch)
        self._fetcher.wake()

    async def seek_to_beginning(self, *tps: TopicPartition) -> None:
        for tp, offset in (await self.beginning_offsets(tps or self.assignment)).items():
            self.seek(tp, offset)

    async def seek_to_end(self, *tps: TopicPartition) -> None:
        for tp, offset in (await self.end_offsets(tps or self.assignment)).items():
            self.seek(tp, offset)

    async def position(self, tp: TopicPartition) -> int:
        """Offset of the next record that `poll` will hand out."""
        await self._begin()
        tp = TopicPartition(*tp)
        if self._state.position(tp) == NO_OFFSET:
            await self._fetcher.place([tp])
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
        await self._begin()
        return await self._fetcher.find({TopicPartition(*tp): at for tp, at in times_ms.items()})

    def pause(self, *tps: TopicPartition) -> None:
        """These are not handed out until `resume`; KeyError if one is not assigned. A new assignment begins without pauses."""
        self._state.pause([TopicPartition(*tp) for tp in tps], True)

    def resume(self, *tps: TopicPartition) -> None:
        self._state.pause([TopicPartition(*tp) for tp in tps], False)
        self._fetcher.wake()
        self._arrived.set()

    @property
    def paused(self) -> list[TopicPartition]:
        return self._state.paused

    # -- as a member of a group ---------------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, int | tuple[int, str]] | None = None, timeout_s: float | None = None
    ) -> None:
        """Stores these offsets, or those behind all that was handed out, as the group's: the next records to process.

        A tuple is an offset and a text for whoever reads it. Returns when they are stored. ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID: the partitions may be another's by now, and what was processed will be processed again. A
        TransportError or an error that passes once `timeout_s` (default: request_timeout_ms) is over: nobody knows.
        """
        await self._begin()
        await self._member.commit(offsets, timeout_s)

    async def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """As the coordinator has stored them; None where nothing was committed."""
        await self._begin()
        return await self._member.committed(tps)

    @property
    def group_metadata(self) -> GroupMetadata:
        return self._member.metadata

    @property
    def fetched_at(self) -> float | None:
        """When a leader last answered a fetch, by this process's clock; None: none has yet."""
        return self._fetcher.fetched_at

    @property
    def stats(self) -> ConsumerStats:
        """Of a member, as of now."""
        return self._member.stats

    @property
    def _member(self) -> GroupMember:
        if self._group is None:
            raise ValueError("this consumer is no member of a group")
        return self._group

    # -- reading ------------------------------------------------------------------------------------------------------

    async def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[ConsumerRecord]:
        """Up to `max_records` records, as soon as there is one; [] when `timeout_s` passes without.

        Of a member of a group it also says that all that it got before is processed. Raises what ends the membership.
        """
        if self._ended:
            raise ClientClosed("consumer")
        if self._group is not None:
            self._group.begin_poll()
        try:
            await self._turns.pass_on()
            records = self._take(max_records)
            if not records:
                async with asyncio.timeout(timeout_s):
                    while not records:
                        await self._arrived.wait()
                        self._arrived.clear()
                        records = self._take(max_records)
            return records
        except TimeoutError:
            return []
        finally:
            if self._group is not None:
                self._group.end_poll()

    def _take(self, max_records: int) -> list[ConsumerRecord]:
        if self._ended:
            raise ClientClosed("consumer")
        if not self._running or self._supervisor.failures:
            raise RuntimeError("the consumer is not running: call start() first, or read in the log what has ended it")
        if self._group is not None and not self._group.may_hand_out():
            return []
        records = self._state.take(max_records)
        if records:
            self._fetcher.wake()  # there is room to fetch ahead
            if self._group is not None:
                self._group.handed_out(records)
        return records

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, as `poll` hands it out, however long it takes."""
        while not (records := await self.poll(1, timeout_s=3600)):
            pass
        return records[0]

    def fetch_batches(
        self, topic: str, partition: int, start: int, end: int, topic_id: bytes = b""
    ) -> AsyncIterator[bytes]:
        """The record batches that hold offsets `start` to `end` (exclusive), as bytes, undecoded, CRC checked.

        Each item is one or more whole batches; the first may begin before `start` and the last end after `end`. Needs no
        assignment. PositionOutOfRangeError if the log no longer holds all of the range: it is complete or it fails.
        With `topic_id`, INCONSISTENT_TOPIC_ID if the topic is another one by now.
        """
        self._gate.check()
        reader = RangeReader(
            self._ports,
            self._connections,
            self._metadata,
            client_id=self._options.client_id,
            partition_bytes=self._options.partition_bytes,
            stall_s=self._options.limit_s,
            topic_id=topic_id,
        )
        return reader.read(TopicPartition(topic, partition), start, end)
