"""Producer: sends records to the leaders of their partitions, in batches, and retries what failed."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from tidelog.client.accumulator import Accumulator, Batch, EndOf, halves
from tidelog.client.connections import Bootstrap, ClientPorts, Connections, parse_bootstrap, real_ports
from tidelog.client.errors import ClientClosed, ClusterUnreachable, DeliveryError, refused_for_sure
from tidelog.client.gate import Gate
from tidelog.client.metadata import MAX_AGE_MS, ClusterMetadata
from tidelog.client.numbering import Identity
from tidelog.client.partitioner import next_sticky, partition_for_key
from tidelog.client.producer_stats import ProducerStats
from tidelog.client.records import Header, codec_of, record_size_max
from tidelog.client.snapshot import TopicInfo
from tidelog.errors import ErrorCode, TidelogError, TransportError, is_transient
from tidelog.ids import NO_EPOCH, NO_OFFSET, BrokerId, TopicPartition
from tidelog.runtime.bell import Turns
from tidelog.runtime.retry import METADATA, PRODUCER
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire.batch import HEADER_BYTES, NO_PRODUCER_ID, read_header
from tidelog.wire.limits import parts
from tidelog.wire.services import REPLICA_SERVICE_INIT_PRODUCER_ID

ACKS: Final = {"0": 0, "1": 1, "all": -1, "-1": -1}
_ANSWER_SLACK_S: Final = 1.0
"""A broker parks a produce for the request's timeout; its answer then needs a moment to arrive."""


class RecordMetadata(NamedTuple):
    """Where a record is in the log; offset -1 with acks=0, which waits for no position."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    leader_epoch: int = NO_EPOCH
    """Of the leader that has acknowledged it."""
    attempts: int = 1
    """Number of times that it was sent."""
    isr_size: int = 0
    """Replicas in sync when it was acknowledged; 0: not known, as with acks=0."""


Ack = asyncio.Future[RecordMetadata]

_TIMESTAMP_END: Final = 2**63
IN_FLIGHT_MAX: Final = 5
"""Batches of one partition, with idempotence: as many as a leader remembers (KIP-98)."""

PRODUCER_STATE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""What a leader answers when a batch does not follow the last one that it knows of this producer."""

IDENTITY_S: Final = 2.0
"""How long one broker is given for a producer id; the next one may be nearer to the controller."""

_log = logging.getLogger(__name__)


def flushes_after(error: type[BaseException] | None) -> bool:
    """Whatever ends the block of a `with`, what was sent before is sent on, unless it is to end at once."""
    return error is None or not issubclass(error, (asyncio.CancelledError, KeyboardInterrupt))


class _Parts:
    """What is known of an encoded batch that was split."""

    __slots__ = ("offset", "open")

    def __init__(self) -> None:
        self.open = 1
        """Parts that are neither acknowledged nor failed."""
        self.offset = NO_OFFSET
        """Of the first record that is acknowledged."""

    def acknowledged(self, offset: int) -> None:
        self.offset = offset if self.offset == NO_OFFSET else min(offset, self.offset)


class Producer:
    """Used as `async with Producer("host:port") as producer`, or with `start` and `stop`, in one event loop.

    Records of one partition are in the log in the order of their `send` calls. With idempotence, the default where acks is
    all, each is there once, whatever was lost on the way; without it a record may be there twice if an answer was lost. A
    future ends with DeliveryError when the record could not be delivered in `delivery_timeout_ms`.

    The end of the block flushes, also after an exception, but not when it was cancelled or interrupted from the keyboard: what
    is buffered fails then. After it every call raises ClientClosed.

    Its parameters, of which wrong ones raise TypeError or ValueError:

    bootstrap: "host:port,host:port" or a list of addresses; one broker that answers is enough. None: the variable
        TIDELOG_BOOTSTRAP_SERVERS, else localhost:19092, 29092 and 39092.
    acks: which replicas have a record that is acknowledged: "all" those in sync, 1 the leader, 0 perhaps none.
    enable_idempotence: a record is written once, however often it is sent. None: where acks is "all", which it needs.
    linger_ms: how long a batch that is not full waits for more records.
    batch_bytes: size of a full batch, before compression. A larger record has a batch of its own.
    compression: none, gzip, snappy, lz4 or zstd.
    buffer_bytes: memory for records that are not acknowledged, with what Python needs for each. `send` waits at the limit.
    request_bytes: size of a produce request, which carries batches of many partitions.
    record_bytes_max: the largest record that `send` takes. The topic's max.message.bytes counts too.
    max_in_flight: requests to one broker that are not answered; with idempotence at most 5 batches of one partition.
    request_timeout_ms: how long a broker has to answer a request before it is sent again.
    delivery_timeout_ms: how long a record has to be acknowledged before it fails.
    max_block_ms: how long `send` waits for room in the buffer, and for what it must know of a topic.
    client_id: the name of this client at the brokers.
    metadata_max_age_ms: the age at which what is known of topics and leaders is asked for again.
    ports: clock, network and random numbers of a test.
    """

    def __init__(
        self,
        bootstrap: Bootstrap = None,
        *,
        acks: int | str = "all",
        enable_idempotence: bool | None = None,
        linger_ms: float = 0,
        batch_bytes: int = 65536,
        compression: str = "none",
        buffer_bytes: int = 32 * 1024 * 1024,
        request_bytes: int = 1024 * 1024,
        record_bytes_max: int = 1_048_588,
        max_in_flight: int = 5,
        request_timeout_ms: int = 15_000,
        delivery_timeout_ms: int = 120_000,
        max_block_ms: int = 15_000,
        client_id: str = "tidelog-producer",
        metadata_max_age_ms: int = MAX_AGE_MS,
        ports: ClientPorts | None = None,
    ) -> None:
        if str(acks) not in ACKS:
            raise ValueError(f"acks {acks!r} is not 0, 1 or all")
        self._acks = ACKS[str(acks)]
        if enable_idempotence and self._acks != ACKS["all"]:
            raise ValueError(
                f"enable_idempotence needs acks all, acks is {acks}: what is not committed may be lost again"
            )
        self._idempotent = self._acks == ACKS["all"] if enable_idempotence is None else enable_idempotence
        self._codec = codec_of(compression)
        self._batch_bytes = batch_bytes
        self._record_bytes_max = record_bytes_max
        self._max_in_flight = max_in_flight
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_s = delivery_timeout_ms / 1000
        self.buffer_bytes = buffer_bytes
        self.max_block_s = max_block_ms / 1000
        self._client_id = client_id
        self._ports = ports or real_ports()
        self._gate = Gate(self._ports.net, "producer")
        self._connections = Connections(self._gate)
        self._metadata = ClusterMetadata(
            self._ports, self._connections, parse_bootstrap(bootstrap), self.max_block_s, metadata_max_age_ms
        )
        self._accumulator: Accumulator[Ack] = Accumulator(
            batch_bytes=batch_bytes,
            linger_s=linger_ms / 1000,
            buffer_bytes=buffer_bytes,
            request_bytes=request_bytes,
            codec=self._codec,
            idempotent=self._idempotent,
            in_flight_max=min(max_in_flight, IN_FLIGHT_MAX),
        )
        self.stats = ProducerStats()
        self._identity: Identity | None = None
        self._identity_wanted = asyncio.Event()
        self._fatal: TidelogError | None = None
        self._supervisor = Supervisor()
        self._in_flight: Counter[BrokerId] = Counter()
        self._parts: dict[Ack, _Parts] = {}
        self._partitions: dict[str, tuple[TopicInfo, tuple[TopicPartition, ...]]] = {}
        self._sticky: dict[str, int] = {}
        self._bytes_since_yield = 0
        self._turns = Turns(self._ports.clock.now)
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._refresh = asyncio.Event()
        self._running = False
        self._closed = False
        self._ending = asyncio.Lock()

    async def start(self) -> None:
        """Returns when a broker has answered; ClusterUnreachable when none does within `max_block_ms`."""
        await self._metadata.refresh(self._metadata.version)
        self._running = True
        self._supervisor.start("producer-sender", self._send_batches())
        self._supervisor.start("producer-metadata", self._refresh_metadata())
        if self._idempotent:
            self._identity_wanted.set()
            self._supervisor.start("producer-identity", self._keep_identity())

    async def __aenter__(self) -> "Producer":
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._connections.close)
            await self.start()
            undo.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        await self.stop(flush=flushes_after(kind))

    async def stop(self, *, flush: bool = True) -> None:
        """Refuses new records, then sends what is buffered, unless told not to; what is left fails."""
        running, self._running, self._closed = self._running, False, True
        self._room.set()  # those that wait for room are refused
        async with self._ending:  # a second one returns when the first has ended
            if flush and running:
                await self._flush()
            await self._supervisor.stop()
            self._fail_rest()
            self._gate.close()
            await self._connections.close()

    async def flush(self) -> None:
        """Returns when every record sent before is acknowledged or has failed; their futures say which."""
        await self._begin()
        await self._flush()

    async def _begin(self) -> None:
        if self._closed:
            raise ClientClosed("producer")
        await self._turns.pass_on()

    async def _flush(self) -> None:
        self._accumulator.begin_flush()
        self._wake.set()
        try:
            pending = [ack for batch in self._accumulator.batches() for ack in batch.waiters]
            if pending:
                await asyncio.wait(pending)
        finally:
            self._accumulator.end_flush()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Ack:
        """Hands a record over and returns the future of its acknowledgement.

        Without a `partition` the hash of the key chooses it, and for records without a key one batch after the other has
        another. A value of None deletes the key in a compacted topic. `timestamp_ms` is Unix time; None is now.

        Waits only for metadata and for room in the buffer, each at most `max_block_ms`. Raises TypeError and ValueError for a
        record that is none, MessageTooLargeError over `record_bytes_max`, UnknownTopicOrPartitionError, and
        RequestTimedOutError when the buffer stays full. The future raises DeliveryError.
        """
        header_list = list(headers)
        size = self.checked_size(topic, value, key, header_list, partition, timestamp_ms)
        if timestamp_ms is None:
            timestamp_ms = self._ports.clock.wall_ms()
        info = self._metadata.snapshot.topics.get(topic)
        if info is None:
            info = await self._metadata.topic(topic)
        now = self._ports.clock.now()
        if self._bytes_since_yield + size >= self._batch_bytes or now >= self._turns.due_at or not self._free:
            await self._breathe(size)
            now = self._ports.clock.now()
        else:
            self._bytes_since_yield += size
        tp = self._place(topic, info, key, partition, size)
        if tp is None:
            assert partition is not None
            tp = await self._added(topic, partition)
        ack: Ack = asyncio.get_running_loop().create_future()
        if self._accumulator.append(tp, timestamp_ms, key, value, header_list, ack, now):
            self._wake.set()
        return ack

    def checked_size(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[Header],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> int:
        """The most bytes that the record takes in a batch. Raises what is wrong with it, before anything is done: TypeError,
        ValueError, MessageTooLargeError or UnknownTopicOrPartitionError."""
        if not isinstance(topic, str):
            raise TypeError(f"topic {topic!r} is not a str")
        if headers and not all(isinstance(name, str) for name, _ in headers):
            raise TypeError("the name of a header is not a str")
        size = record_size_max(key, value, headers)
        if size > self._record_bytes_max:
            raise TidelogError(
                f"a record of {size} bytes for topic {topic!r}: record_bytes_max is {self._record_bytes_max}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        if partition is not None and partition < 0:
            message = f"topic {topic!r}: partition {partition} does not exist"
            raise TidelogError(message, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if timestamp_ms is not None and not 0 <= timestamp_ms < _TIMESTAMP_END:
            raise ValueError(f"timestamp_ms {timestamp_ms} is not a Unix time in milliseconds")
        return size

    async def produce_encoded(self, topic: str, partition: int, records: bytes, end_of: EndOf | None = None) -> Ack:
        """Sends one batch that the caller has encoded (`records.encode_batch`); the future ends when all of it is
        acknowledged, with the offset of its first record.

        `end_of` allows to split it where the topic finds it too large: it says where the first half ends.
        """
        if len(records) < HEADER_BYTES:
            raise ValueError(f"records: {len(records)} bytes, a batch has at least {HEADER_BYTES}")
        if self._idempotent and read_header(records).producer_id != NO_PRODUCER_ID:
            raise ValueError(
                "records: the batch names a producer already; turn enable_idempotence off to send it as it is"
            )
        info = self._metadata.snapshot.topics.get(topic)
        if info is None:
            info = await self._metadata.topic(topic)
        await self._breathe(len(records))
        tp = self._place(topic, info, None, partition, 0) or await self._added(topic, partition)
        ack: Ack = asyncio.get_running_loop().create_future()
        self._accumulator.append_encoded(tp, records, ack, self._ports.clock.now(), end_of)
        self._wake.set()
        return ack

    async def partitions_of(self, topic: str) -> int:
        """The number of a topic's partitions. Raises UnknownTopicOrPartitionError when the topic stays unknown."""
        await self._begin()
        return len((await self._metadata.topic(topic)).partitions)

    async def topic_info(self, topic: str, limit_s: float | None = None) -> TopicInfo:
        """What is known of the topic; UnknownTopicOrPartitionError when it stays unknown for `limit_s` (`max_block_ms`)."""
        await self._begin()
        return await self._metadata.topic(topic, limit_s)

    async def _breathe(self, size: int) -> None:
        """Back-pressure, and a turn for the sender after each batch's worth and for all after a while: a loop of sends would
        starve them."""
        self._refuse_ended()
        self._bytes_since_yield += size
        if self._bytes_since_yield >= self._batch_bytes:
            self._bytes_since_yield = 0
            await self._ports.clock.sleep(0)
        await self._turns.pass_on()
        self._refuse_ended()
        if not self._accumulator.full:
            return
        try:
            async with asyncio.timeout(self.max_block_s):
                while self._accumulator.full and self._running:
                    self._room.clear()
                    self._wake.set()
                    await self._room.wait()
        except TimeoutError:
            raise self.stayed_full() from None
        self._refuse_ended()

    def stayed_full(self) -> TidelogError:
        """The RequestTimedOutError of a record that has found no room."""
        return TidelogError(
            f"the buffer (buffer_bytes = {self.buffer_bytes}) stayed full for max_block_ms = {self.max_block_s * 1000:.0f}; "
            "the brokers take records more slowly than they are sent",
            ErrorCode.REQUEST_TIMED_OUT,
        )

    def _refuse_ended(self) -> None:
        """Before a record is taken, after each wait: nobody would send it, and its future would never end."""
        if self._fatal is not None:
            raise self._fatal
        if self._closed:
            raise ClientClosed("producer")
        if not self._running:
            raise RuntimeError("the producer is not running: call start() first")

    @property
    def _free(self) -> bool:
        """Nothing holds a record up."""
        return self._running and self._fatal is None and not self._accumulator.full

    async def _added(self, topic: str, partition: int) -> TopicPartition:
        """A partition that the metadata at hand does not know."""
        info = await self._metadata.topic_with(TopicPartition(topic, partition))
        self._refuse_ended()
        return self._tps(topic, info)[partition]

    def _place(
        self, topic: str, info: TopicInfo, key: bytes | None, partition: int | None, size: int
    ) -> TopicPartition | None:
        """Where a record goes; None: to a partition that is not known yet."""
        tps = self._tps(topic, info)
        if partition is not None:
            return tps[partition] if 0 <= partition < len(tps) else None
        if key is not None:
            return tps[partition_for_key(key, len(tps))]
        stuck = self._sticky.get(topic, -1)
        known = 0 <= stuck < len(tps)
        if not known or not self._accumulator.takes(tps[stuck], size - HEADER_BYTES):
            if known:
                self._accumulator.seal(tps[stuck])
            stuck = self._sticky[topic] = next_sticky(info.available, len(tps), stuck, self._ports.rand.random())
        return tps[stuck]

    def _tps(self, topic: str, info: TopicInfo) -> tuple[TopicPartition, ...]:
        cached = self._partitions.get(topic)
        if cached is None or cached[0] is not info:
            tps = tuple(TopicPartition(topic, p) for p in range(len(info.partitions)))
            cached = self._partitions[topic] = (info, tps)
        return cached[1]

    # -- background ---------------------------------------------------------------------------------------------------

    async def _send_batches(self) -> None:
        try:
            while True:
                self._wake.clear()
                now = self._ports.clock.now()
                for batch in self._accumulator.expire(now, self._delivery_timeout_s):
                    why = ", no broker has given a producer id" if self._idempotent and self._identity is None else ""
                    reason = f"delivery_timeout_ms passed before it could be sent{why}"
                    self._fail(batch, reason, ErrorCode.REQUEST_TIMED_OUT)
                for batch in self._accumulator.stranded():
                    reason = (
                        "records before it are missing in the log, and nobody knows whether an earlier try comes late"
                    )
                    self._fail(batch, reason, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                drained = self._accumulator.drain(now, self._leader_of, self._has_room, self._identity)
                for leader, taken in drained.requests.items():
                    for batches in parts(m.ProduceRequest, taken):
                        self._in_flight[leader] += 1
                        self._supervisor.start(f"produce-{leader}", self._produce(leader, batches))
                if drained.leaderless:
                    self._refresh.set()
                if drained.requests:
                    continue  # a partition may have another batch to go
                if self._identity is not None and self._accumulator.is_broken(self._identity):
                    self._identity_wanted.set()
                await self._until(self._accumulator.next_at(now, self._delivery_timeout_s), now)
        finally:
            # Also when a bug ends this task: nobody may wait for ever for a record that nobody will send.
            self._running = False
            self._fail_rest()

    async def _until(self, at: float | None, now: float) -> None:
        if at is None:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(max(at - now, 0)):
                await self._wake.wait()
        except TimeoutError:
            pass  # time has passed, which is what was waited for

    def _leader_of(self, tp: TopicPartition) -> BrokerId | None:
        led = self._metadata.leadership(tp)
        return None if led is None else led.leader

    def _has_room(self, leader: BrokerId) -> bool:
        return self._in_flight[leader] < self._max_in_flight

    async def _produce(self, leader: BrokerId, batches: tuple[Batch[Ack], ...]) -> None:
        try:
            request = m.ProduceRequest(
                client_id=self._client_id,
                acks=self._acks,
                timeout_ms=self._request_timeout_ms,
                partitions=tuple(self._produce_partition(batch) for batch in batches),
            )
            link = self._connections.produce_link(self._metadata.address(leader))
            self.stats.sent([(b.record_count, b.size_bytes, b.failures > 0) for b in batches])
            began = self._ports.clock.now()
            answer = await link.call(request, self._request_timeout_ms / 1000 + _ANSWER_SLACK_S)
        except TidelogError as error:
            self._request_refused(batches, error)
        except TransportError as error:
            self._refresh.set()
            for batch in batches:
                self._retry_or_fail(batch, error)
        else:
            self.stats.answer(self._ports.clock.now() - began)
            results = {(r.topic, r.partition): r for r in answer.results}
            for batch in batches:
                result = results.get(batch.partition)
                if result is None:
                    self._retry_or_fail(batch, TransportError("INTERNAL", f"{batch.partition} is not in the answer"))
                else:
                    self._answered(batch, result)
        finally:
            self._in_flight[leader] -= 1
            self._wake.set()
            self._room.set()

    def _produce_partition(self, batch: Batch[Ack]) -> m.ProducePartition:
        topic, partition = batch.partition
        led = self._metadata.leadership(batch.partition)
        info = self._metadata.snapshot.topics.get(topic)
        batch.leader_epoch = led.leader_epoch if led else NO_EPOCH
        return m.ProducePartition(
            topic=topic,
            topic_id=info.topic_id if info else b"",
            partition=partition,
            # A request that was given up and arrives late must not be appended after its own retry: the epoch fences it.
            leader_epoch=batch.leader_epoch,
            records=batch.records(),
        )

    def _answered(self, batch: Batch[Ack], result: m.ProduceResult) -> None:
        if result.error_code is ErrorCode.NONE:
            self._succeed(batch, result.base_offset, result.isr_size)
            return
        error = TidelogError(result.error_message or result.error_code.name, result.error_code)
        if self._idempotent and error.code in PRODUCER_STATE:
            self._misnumbered(batch, error)
            return
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and self._split(batch):
            return
        if result.leader_id >= 0 and self._metadata.hint(batch.partition, result.leader_id, result.leader_epoch):
            batch.failures += 1
            batch.maybe_appended |= not refused_for_sure(error)
            self._accumulator.try_again(batch, not_before=0.0)
            return
        # A leader that is cut off from its followers says so until it hears of its successor, whom others may know (row 16).
        if error.refresh_metadata or error.code is ErrorCode.REQUEST_TIMED_OUT:
            self._refresh.set()
        self._retry_or_fail(batch, error)

    def _split(self, batch: Batch[Ack]) -> bool:
        """Sends a batch in flight in two; False where it cannot be cut."""
        # Halves have other sequences: if an earlier try may have stored the whole, nobody could tell them from new records.
        if not batch.splittable or (self._idempotent and batch.maybe_appended):
            return False
        self._accumulator.replace(batch, halves(batch))
        if batch.end_of is not None:
            self._parts.setdefault(batch.waiters[0], _Parts()).open += 1
        return True

    def _request_refused(self, batches: Sequence[Batch[Ack]], error: TidelogError) -> None:
        """The leader's broker reads no request of this size; nothing was appended."""
        if len(batches) > 1:
            self._accumulator.limit_requests(sum(batch.size_bytes for batch in batches) // 2)
            for batch in batches:
                self._accumulator.try_again(batch, not_before=0.0)
        elif not self._split(batches[0]):
            self._retry_or_fail(batches[0], error)

    def _misnumbered(self, batch: Batch[Ack], error: TidelogError) -> None:
        """The leader's table of producers does not fit this batch (`storage.producer_state`)."""
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Either the batch before it is still on its way, or that one is lost: then all are numbered anew (KIP-360).
            if batch.alone:
                _log.warning("%s: records before a batch are missing there: %s", batch.partition, error)
                self._accumulator.break_off(batch.partition)
            batch.failures += 1
            self._accumulator.try_again(batch, not_before=0.0)
            return
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            self._end(TidelogError(f"another producer has taken over this one's id: {error}", error.code))
        # Stored long ago or never: in neither case does anybody know whether it is committed.
        batch.maybe_appended = True
        self._accumulator.done(batch)
        self._fail(batch, str(error), error.code)

    def _end(self, error: TidelogError) -> None:
        """Nothing can be sent any more: whatever waits fails, and whoever sends is told."""
        self._fatal = self._fatal or error
        for batch in list(self._accumulator.expire(float("inf"), 0.0)):
            self._fail(batch, error.message, error.code)

    async def _keep_identity(self) -> None:
        """A producer id to begin with, and its next epoch whenever a partition has to begin anew."""
        failures = 0
        while True:
            await self._identity_wanted.wait()
            self._identity_wanted.clear()
            if self._identity is not None and not self._accumulator.is_broken(self._identity):
                continue
            try:
                self._identity = await self._next_identity()
            except (TidelogError, TransportError) as error:
                if not is_transient(error.__cause__ if isinstance(error, ClusterUnreachable) else error):
                    self._end(TidelogError(f"no producer id can be had: {error}", getattr(error, "code", None)))
                    return
                failures += 1
                await self._ports.clock.sleep(PRODUCER.pause_s(self._ports.rand, failures))
                self._identity_wanted.set()
            else:
                failures = 0
                self._wake.set()

    async def _next_identity(self) -> Identity:
        held = self._identity or Identity(NO_PRODUCER_ID, -1)
        request = m.InitProducerIdRequest(
            client_id=self._client_id, producer_id=held.producer_id, producer_epoch=held.producer_epoch
        )
        limit_s = self._request_timeout_ms / 1000
        answer = await self._metadata.call_any(REPLICA_SERVICE_INIT_PRODUCER_ID, request, IDENTITY_S, limit_s)
        if answer.error_code is not ErrorCode.NONE:
            raise TidelogError(answer.error_message or answer.error_code.name, answer.error_code)
        return Identity(answer.producer_id, answer.producer_epoch)

    def _retry_or_fail(self, batch: Batch[Ack], error: TidelogError | TransportError) -> None:
        batch.failures += 1
        batch.maybe_appended |= not refused_for_sure(error)
        now = self._ports.clock.now()
        if PRODUCER.applies(error):
            not_before = now + PRODUCER.pause_s(self._ports.rand, batch.failures)
            if not_before < batch.created_at + self._delivery_timeout_s:
                self._accumulator.try_again(batch, not_before)
                return
        code = error.code if isinstance(error, TidelogError) else ErrorCode.REQUEST_TIMED_OUT
        self._accumulator.given_up(batch)
        self._accumulator.done(batch)
        self._fail(batch, f"{error} (try {batch.failures})", code)

    def _succeed(self, batch: Batch[Ack], base_offset: int, isr_size: int = 0) -> None:
        self._accumulator.settled(batch.partition, self._ports.clock.now())
        self._accumulator.done(batch)
        if (parts := self._parts.get(batch.waiters[0])) is not None:
            parts.acknowledged(base_offset)
            if self._part_ends(batch.waiters[0], parts):
                return
            base_offset = parts.offset
        topic, partition = batch.partition
        step = 0 if base_offset == NO_OFFSET else 1
        offset, epoch, attempts = base_offset, batch.leader_epoch, batch.failures + 1
        for ack, timestamp_ms in zip(batch.waiters, batch.timestamps_ms, strict=True):
            if not ack.done():
                ack.set_result(RecordMetadata(topic, partition, offset, timestamp_ms, epoch, attempts, isr_size))
            offset += step

    def _part_ends(self, ack: Ack, parts: _Parts) -> bool:
        """Whether there are others that have not ended."""
        parts.open -= 1
        if not parts.open:
            del self._parts[ack]
        return parts.open > 0

    def _fail(self, batch: Batch[Ack], reason: str, code: ErrorCode) -> None:
        parts = self._parts.get(batch.waiters[0])
        # Of a batch that was split another part may be in the log.
        known = parts is None and not batch.maybe_appended
        if parts is not None:
            self._part_ends(batch.waiters[0], parts)
        error = DeliveryError(batch.partition, reason, code, outcome_known=known)
        self.stats.failed_records += batch.record_count
        for ack in batch.waiters:
            if not ack.done():
                ack.set_exception(error)
                ack.exception()  # a sender who does not look at its futures wants no warning from the event loop
        self._room.set()

    def _fail_rest(self) -> None:
        for batch in self._accumulator.in_flight():
            batch.maybe_appended = True  # it may be on its way, and nobody will hear the answer (reliability 1.2)
        for batch in self._accumulator.batches():
            self._fail(batch, "the producer was stopped", ErrorCode.REQUEST_TIMED_OUT)
        self._room.set()

    async def _refresh_metadata(self) -> None:
        """One refresh at a time, at a growing distance while nothing changes; new leaders get their batches at once."""
        fruitless = 0
        while True:
            await self._metadata.due(self._refresh)
            before = self._metadata.snapshot
            try:
                await self._metadata.refresh(self._metadata.version)
            except ClusterUnreachable:
                pass  # each batch reports it when its own time is up
            news = [
                tp
                for tp in self._accumulator.waiting()
                if self._metadata.leadership(tp) not in (None, before.leadership(tp))
            ]
            for tp in news:
                self._accumulator.hurry(tp)
            self._wake.set()
            fruitless = 0 if news else fruitless + 1
            if fruitless:
                await self._ports.clock.sleep(METADATA.pause_s(self._ports.rand, fruitless))
            if self._accumulator.pausing(self._ports.clock.now()):
                self._refresh.set()  # looking for a new leader costs less than a try at the old one
