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

    Any call may raise ClusterUnreachable when no broker answers in `request_timeout_ms`, and ClientClosed after the end.

    Its parameters, of which wrong ones raise TypeError or ValueError:

    bootstrap: "host:port,host:port" or a list of addresses; one broker that answers is enough. None: the variable
        TIDELOG_BOOTSTRAP_SERVERS, else localhost:19092, 29092 and 39092.
    group: it is a member of this group, which assigns to it what it reads. None: see `assign`.
    topics: what the group's member reads; those that do not exist are read once they are created.
    pattern: instead of `topics` all whose names match this regular expression, now or later.
    exclude_pattern: instead of `topics` all whose names do not match it.
    consumer_id: the member's name. None: one of `client_id` and random digits. Started again after a crash, it joins when the
        session of the run before is over.
    static: a member that restarts within its session timeout keeps its partitions; it needs a `consumer_id`.
    session_timeout_ms: how long a member may be silent before its coordinator takes its partitions away.
    max_processing_ms: how long a member may go without a poll before it leaves the group.
    auto_commit: `poll` and the end of the session commit what was processed.
    assignor: range, roundrobin or sticky: how the group shares partitions. Empty: as the brokers' group_assignor says.
    on_assigned: called with partitions that the member was given, before it reads them.
    on_revoked: called with partitions that it gives back, which it may still commit.
    on_lost: called with partitions that another member may read by now.
    auto_offset_reset: where reading begins without an offset, or with one outside the log: earliest, latest or error.
    max_wait_ms: how long a broker without new records waits before it answers.
    min_bytes: how many bytes make a broker answer before that.
    max_bytes: size of one answer of a broker, or one batch where that is larger.
    partition_bytes: size of one partition's part of an answer, or one batch.
    queued_max_bytes: how much is fetched ahead: an equal share for each partition, or one batch where that is larger.
    request_timeout_ms: how long calls that ask the cluster try again.
    client_id: the name of this client at the brokers.
    metadata_max_age_ms: the age at which what is known of topics and leaders is asked for again.
    ports: clock, network and random numbers of a test.
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
        if isinstance(topics, str):
            raise TypeError(f"topics {topics!r} is a str: name topics in a list")
        self._ports = ports or real_ports(max(max_bytes, partition_bytes))
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
            watch_port=self._ports.watch_port,
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
        self._fetcher.on_placed = self._group.began

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
        """Reads these from now on; those assigned before keep their position.

        Raises UnknownTopicOrPartitionError, and then takes none of them; ValueError for a member of a group.
        """
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
        """Reads every partition of these, also those that will be added: they are read from their first record.

        Raises UnknownTopicOrPartitionError, and then takes none of them; ValueError for a member of a group.
        """
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
        """The partitions of a topic. Raises UnknownTopicOrPartitionError when the topic stays unknown."""
        await self._begin()
        info = await self._metadata.topic(topic)
        return [TopicPartition(topic, p) for p in range(len(info.partitions))]

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it reads, paused ones too."""
        return self._state.assigned

    def owns(self, tp: TopicPartition) -> bool:
        """Whether it reads `tp` at this instant; of a group: while no other member can."""
        return tp in self._state.assigned if self._group is None else self._group.owns(tp)

    def seek(self, tp: TopicPartition, offset: int, last_epoch: int = NO_EPOCH) -> None:
        """The next record of `tp` is the first at or after `offset`. Raises KeyError if `tp` is not assigned.

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
        """The next record of these, or of all that are assigned, is the first of the log. Raises KeyError as `seek` does."""
        for tp, offset in (await self.beginning_offsets(tps or self.assignment)).items():
            self.seek(tp, offset)

    async def seek_to_end(self, *tps: TopicPartition) -> None:
        """The next record of these, or of all that are assigned, is one that is written later. Raises KeyError as `seek` does."""
        for tp, offset in (await self.end_offsets(tps or self.assignment)).items():
            self.seek(tp, offset)

    async def position(self, tp: TopicPartition) -> int:
        """Offset of the next record that `poll` will hand out. Raises KeyError if `tp` is not assigned.

        OffsetOutOfRangeError: nothing says where to begin, and `auto_offset_reset` is error.
        """
        await self._begin()
        tp = TopicPartition(*tp)
        if self._state.position(tp) == NO_OFFSET:
            await self._fetcher.place([tp])
        return self._state.position(tp)

    def high_watermark(self, tp: TopicPartition) -> int:
        """The end of what can be read, as the last fetch saw it; -1 before the first. Raises KeyError if not assigned."""
        return self._state.high_watermark(tp)

    async def beginning_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Offsets of the first records that are still there. Raises UnknownTopicOrPartitionError."""
        return {tp: f.offset for tp, f in (await self.offsets_for_times(dict.fromkeys(tps, EARLIEST))).items()}

    async def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks: exclusive ends of what can be read. Raises UnknownTopicOrPartitionError."""
        return {tp: f.offset for tp, f in (await self.offsets_for_times(dict.fromkeys(tps, LATEST))).items()}

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """The first record at or after each Unix time in ms; its offset is -1 where there is none.

        -3 instead of a time asks for the first record with the largest timestamp. A batch whose records are all older than
        its header says answers with its own first offset. Raises UnknownTopicOrPartitionError, and LeaderNotAvailableError
        when a partition has no leader for `request_timeout_ms`.
        """
        await self._begin()
        return await self._fetcher.find({TopicPartition(*tp): at for tp, at in times_ms.items()})

    def pause(self, *tps: TopicPartition) -> None:
        """These are not handed out until `resume`. A new assignment begins without pauses. Raises KeyError if not assigned."""
        self._state.pause([TopicPartition(*tp) for tp in tps], True)

    def resume(self, *tps: TopicPartition) -> None:
        """These are handed out again after `pause`. Raises KeyError if one is not assigned."""
        self._state.pause([TopicPartition(*tp) for tp in tps], False)
        self._fetcher.wake()
        self._arrived.set()

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that `pause` holds back."""
        return self._state.paused

    # -- as a member of a group ---------------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, int | tuple[int, str]] | None = None, timeout_s: float | None = None
    ) -> None:
        """Stores these offsets, or those behind all that was handed out, as the group's: the next records to process.

        A tuple is an offset and a text for whoever reads it. Returns when they are stored.

        Raises IllegalGenerationError and UnknownMemberIdError when the partitions may be another member's by now: what was
        processed will be processed again. OffsetMetadataTooLargeError: the text is too long. A TransportError, or an error
        that is `retriable`, comes when `timeout_s` (default: request_timeout_ms) is over: the offsets may be stored.
        ValueError: it is no member of a group.
        """
        await self._begin()
        await self._member.commit(offsets, timeout_s)

    async def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """The group's offsets as the coordinator has stored them; None where nothing was committed.

        Raises CoordinatorNotAvailableError when no broker coordinates the group; ValueError without a group.
        """
        await self._begin()
        return await self._member.committed(tps)

    @property
    def group_metadata(self) -> GroupMetadata:
        """Names the member and its generation, for an application that fences its own effects. ValueError without a group."""
        return self._member.metadata

    @property
    def fetched_at(self) -> float | None:
        """When a leader last answered a fetch, by this process's clock; None: none has yet."""
        return self._fetcher.fetched_at

    @property
    def placed(self) -> Mapping[TopicPartition, int]:
        """Positions at which auto_offset_reset=latest began, until an offset is committed there. ValueError without a group.

        The next owner of such a partition begins at the end that its log has by then, and leaves out what came in between.
        """
        return self._member.placed

    @property
    def stats(self) -> ConsumerStats:
        """Counters of a member, as of now. ValueError without a group."""
        return self._member.stats

    @property
    def _member(self) -> GroupMember:
        if self._group is None:
            raise ValueError("this consumer is no member of a group")
        return self._group

    # -- reading ------------------------------------------------------------------------------------------------------

    async def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[ConsumerRecord]:
        """Up to `max_records` records, as soon as there is one; [] when `timeout_s` passes without.

        Of a member of a group it also says that all that it got before is processed.

        Raises BadBatchError at a damaged batch, OffsetOutOfRangeError at an offset outside the log and LogTruncationError at a
        log that was cut below the position, the last two where `auto_offset_reset` is error; again and again, until `seek`
        leads elsewhere. UnknownTopicOrPartitionError: an assigned topic was deleted, or no broker knows it for now. A member also
        raises what ended its membership: InvalidSessionTimeoutError, GroupMaxSizeReachedError, InconsistentGroupProtocolError or,
        when a newer consumer has taken over its id, DuplicateConsumerIdError. While another member has its id it waits, and warns
        once.
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
        """The next record, as `poll` hands it out, however long it takes. Raises as `poll` does."""
        while not (records := await self.poll(1, timeout_s=3600)):
            pass
        return records[0]

    def fetch_batches(
        self, topic: str, partition: int, start: int, end: int, topic_id: bytes = b""
    ) -> AsyncIterator[bytes]:
        """The record batches that hold offsets `start` to `end` (exclusive), as bytes, undecoded, CRC checked.

        Each item is one or more whole batches; the first may begin before `start` and the last end after `end`. Needs no
        assignment. Raises PositionOutOfRangeError if the log no longer holds all of the range: it is complete or it fails;
        with `topic_id` InconsistentTopicIdError if the topic is another one by now.
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
