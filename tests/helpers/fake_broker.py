"""A cluster of brokers in memory, behind the Net port: no replication, one log per partition, faults on demand.

For tests of clients: it keeps the promises that a client may rely on (leaders, epochs, acks, long polls, offsets), and
breaks them when a test says so. What it stores is what it was sent, so a test can compare logs.
"""

import asyncio
import random
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from helpers.fake_groups import FakeGroups
from helpers.fake_log import FakePartition
from helpers.fake_moves import FakeMoves
from helpers.fake_produce_stream import FakeProduceStream
from tidelog.client.connections import ClientPorts
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address
from tidelog.ports.net import Probe
from tidelog.testing.clock import SimClock
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.batch import read_header

Fault = Callable[["FakeCall"], Awaitable[Any]]


@dataclass
class FakeTopic:
    topic_id: bytes
    partitions: list[FakePartition]
    configs: dict[str, str] = field(default_factory=dict)


@dataclass
class FakeCall:
    """One call as a fault sees it; `serve` does what the broker would have done."""

    broker_id: int
    method: str
    request: Any
    serve: Callable[[], Awaitable[Any]]


class FakeCluster:
    """`ports` is what a client takes. Addresses are b1:9092, b2:9092, ..."""

    def __init__(self, brokers: int = 3, *, latency_s: float = 0.001, seed: int = 1) -> None:
        self.addresses = {b: Address(f"b{b}", 9092) for b in range(1, brokers + 1)}
        self.topics: dict[str, FakeTopic] = {}
        self.groups = FakeGroups(next(iter(self.addresses)))
        self.moves = FakeMoves(tuple(self.addresses))
        self.clock = SimClock()
        self.latency_s = latency_s
        self.down: set[int] = set()
        self.deaths_are_known = True
        """False: metadata goes on naming brokers that are down, as for a moment after a kill."""
        self.faults: list[Fault] = []
        self.calls: list[FakeCall] = []
        self.batch_bytes_max = 1_048_588
        self.next_producer_id = 1000
        self.rand = random.Random(seed)
        self._changed = asyncio.Event()

    @property
    def bootstrap(self) -> str:
        return ",".join(str(a) for a in self.addresses.values())

    @property
    def ports(self) -> ClientPorts:
        """For one client, on any event loop: an Event belongs to the loop that first waited for it."""
        self._changed = asyncio.Event()
        return ClientPorts(self.clock, FakeNet(self), self.rand)

    def create(self, name: str, partitions: int = 1, **configs: str) -> FakeTopic:
        ids = list(self.addresses)
        topic = FakeTopic(
            self.rand.randbytes(16), [FakePartition(ids[p % len(ids)]) for p in range(partitions)], dict(configs)
        )
        self.topics[name] = topic
        return topic

    def partition(self, topic: str, partition: int = 0) -> FakePartition:
        return self.topics[topic].partitions[partition]

    def notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def of(self, method: str) -> list[FakeCall]:
        return [call for call in self.calls if call.method == method]

    # -- faults -------------------------------------------------------------------------------------------------------

    def once(self, method: str, fault: Fault) -> None:
        """The next call of `method` goes through `fault`, which may serve it, fail, or both."""

        async def only(call: FakeCall) -> Any:
            if call.method != method:
                return NotImplemented
            self.faults.remove(only)
            return await fault(call)

        self.faults.append(only)

    def lose_answer(self, method: str, times: int = 1) -> None:
        """The broker acts, and its answer never arrives."""

        async def lose(call: FakeCall) -> Any:
            await call.serve()
            raise TransportError("UNAVAILABLE", "connection reset")

        for _ in range(times):
            self.once(method, lose)

    # -- serving ------------------------------------------------------------------------------------------------------

    async def call(self, broker_id: int, path: str, request: Any, timeout_s: float) -> Any:
        method = path.rpartition("/")[2]
        call = FakeCall(broker_id, method, request, lambda: self._serve(broker_id, method, request))
        self.calls.append(call)
        try:
            async with asyncio.timeout(timeout_s):
                await self.clock.sleep(self.latency_s)
                if broker_id in self.down:
                    raise TransportError("UNAVAILABLE", "connection refused")
                for fault in list(self.faults):
                    answer = await fault(call)
                    if answer is not NotImplemented:
                        return answer
                return await call.serve()
        except TimeoutError:
            raise TransportError("DEADLINE_EXCEEDED") from None

    async def _serve(self, broker_id: int, method: str, request: Any) -> Any:
        handler: Callable[[int, Any], Awaitable[Any]]
        if method in _GROUP_HANDLERS:
            handler = getattr(self.groups, _GROUP_HANDLERS[method])
        elif method in _MOVE_HANDLERS:
            handler = getattr(self.moves, _MOVE_HANDLERS[method])
        else:
            handler = getattr(self, _HANDLERS[method])
        return await handler(broker_id, request)

    async def _cluster_metadata(self, broker_id: int, request: m.ClusterMetadataRequest) -> m.ClusterMetadataResponse:
        names = sorted(self.topics) if request.all_topics else request.topics
        return m.ClusterMetadataResponse(
            coordinator_id=self.groups.coordinator_of(request.group_id),
            brokers_info=tuple(
                m.BrokerInfo(id=b, host=a.host, port=a.port)
                for b, a in self.addresses.items()
                if b not in self.down or not self.deaths_are_known
            ),
            cluster_id="fake",
            controller_id=0,
            topics=tuple(self._topic_metadata(name) for name in names),
        )

    def _topic_metadata(self, name: str) -> m.TopicMetadata:
        topic = self.topics.get(name)
        if topic is None:
            return m.TopicMetadata(topic=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return m.TopicMetadata(
            topic=name,
            topic_id=topic.topic_id,
            partitions=tuple(
                m.PartitionMetadata(
                    partition=i, leader=p.leader, leader_epoch=p.leader_epoch, replicas=(p.leader,), isr=(p.leader,)
                )
                for i, p in enumerate(topic.partitions)
            ),
        )

    def _find(self, broker_id: int, ask: Any) -> FakePartition | ErrorCode:
        topic = self.topics.get(ask.topic)
        if topic is None or not 0 <= ask.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if getattr(ask, "topic_id", b"") not in (b"", topic.topic_id):
            return ErrorCode.UNKNOWN_TOPIC_ID
        p: FakePartition = topic.partitions[ask.partition]
        if getattr(ask, "own", False):
            return p  # every broker has a replica of everything, and none is behind
        if p.leader != broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if ask.leader_epoch >= 0 and ask.leader_epoch != p.leader_epoch:
            older = ask.leader_epoch < p.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        return p

    async def _produce(self, broker_id: int, request: m.ProduceRequest) -> m.ProduceResponse:
        await self.clock.sleep(self.latency_s)
        return m.ProduceResponse(results=tuple(self._append(broker_id, ask) for ask in request.partitions))

    def _append(self, broker_id: int, ask: m.ProducePartition) -> m.ProduceResult:
        found = self._find(broker_id, ask)
        if isinstance(found, ErrorCode):
            return produce_result(ask.topic, ask.partition, error_code=found)
        try:
            base = found.append(ask.records, self.batch_bytes_max)
        except TidelogError as error:
            return produce_result(ask.topic, ask.partition, error_code=error.code, error_message=error.message)
        self.notify()
        return produce_result(ask.topic, ask.partition, base_offset=base)

    async def _init_producer_id(self, broker_id: int, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse:
        producer_id, epoch = request.producer_id, request.producer_epoch + 1
        if producer_id < 0 or epoch >= 2**15:
            producer_id, epoch = self.next_producer_id, 0
            self.next_producer_id += 1
        return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)

    async def _fetch(self, broker_id: int, request: m.FetchRequest) -> m.FetchResponse:
        deadline = self.clock.now() + request.max_wait_ms / 1000
        while True:
            changed = self._changed
            results = [self._read(broker_id, ask) for ask in request.partitions]
            size = sum(len(r.records) for r in results)
            eager = any(r.error_code is not ErrorCode.NONE or r.diverging_epoch >= 0 for r in results)
            left = deadline - self.clock.now()
            if eager or size >= max(request.min_bytes, 1) or left <= 0:
                return m.FetchResponse(results=tuple(results))
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                pass  # answered as it is in the next round

    def _read(self, broker_id: int, ask: m.FetchPartition) -> m.FetchResult:
        found = self._find(broker_id, ask)
        if isinstance(found, ErrorCode):
            return fetch_result(ask, error_code=found)
        state = {"high_watermark": found.end, "log_start_offset": found.log_start}
        epoch, end = found.diverging(ask.offset, ask.last_fetched_epoch)
        if epoch >= 0:
            return fetch_result(ask, diverging_epoch=epoch, diverging_end_offset=end, **state)
        if not found.log_start <= ask.offset <= found.end:
            return fetch_result(ask, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, **state)
        records = b""
        first = bisect_right(found.batches, ask.offset, key=lambda batch: read_header(batch).end_offset)
        for batch in islice(found.batches, first, None):
            if records and len(records) + len(batch) > ask.max_bytes:
                break
            records += batch
        return fetch_result(ask, records=records, **state)

    async def _list_offsets(self, broker_id: int, request: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
        results = []
        for ask in request.partitions:
            found = self._find(broker_id, ask)
            result = m.ListOffsetsResult(
                topic=ask.topic, partition=ask.partition, timestamp=-1, offset=-1, leader_epoch=-1
            )
            if isinstance(found, ErrorCode):
                results.append(replace(result, error_code=found))
            elif ask.timestamp in (-1, -2):
                offset = found.log_start if ask.timestamp == -2 else found.end
                epoch = found.leader_epoch if ask.timestamp == -1 else found.epochs[0][0] if found.epochs else -1
                results.append(replace(result, offset=offset, leader_epoch=epoch))
            else:
                start = max(found.log_start, ask.search_start.offset if ask.search_start else 0)
                headers = [h for h in map(read_header, found.batches) if h.end_offset > start]
                wanted = max((h.max_timestamp for h in headers), default=0) if ask.timestamp == -3 else ask.timestamp
                first = next((h for h in headers if h.max_timestamp >= wanted), None)
                if first is not None:
                    result = replace(
                        result,
                        offset=max(first.base_offset, start),
                        timestamp=first.max_timestamp,
                        leader_epoch=first.leader_epoch,
                    )
                results.append(result)
        return m.ListOffsetsResponse(results=tuple(results))

    # -- admin --------------------------------------------------------------------------------------------------------

    async def _describe_topics(self, broker_id: int, request: m.DescribeTopicsRequest) -> m.DescribeTopicsResponse:
        return m.DescribeTopicsResponse(topics=tuple(self._describe(n) for n in request.names or sorted(self.topics)))

    def _describe(self, name: str) -> m.TopicDescription:
        topic = self.topics.get(name)
        if topic is None:
            return m.TopicDescription(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return m.TopicDescription(
            name=name,
            topic_id=topic.topic_id,
            configs=tuple(m.ConfigEntry(key=k, value=v) for k, v in topic.configs.items()),
            partitions=tuple(
                m.PartitionDescription(
                    partition=i,
                    leader=p.leader,
                    leader_epoch=p.leader_epoch,
                    replicas=self.moves.replicas(name, i),
                    isr=tuple(b for b in self.addresses if b not in self.down),
                    partition_epoch=0,
                    min_isr=int(topic.configs.get("min.insync.replicas", 2)),
                )
                for i, p in enumerate(topic.partitions)
            ),
        )

    async def _describe_cluster(self, broker_id: int, request: m.DescribeClusterRequest) -> m.DescribeClusterResponse:
        partitions = [p for t in self.topics.values() for p in t.partitions]
        return m.DescribeClusterResponse(
            cluster_id="fake",
            controller_id=0,
            controller_epoch=1,
            brokers=tuple(
                m.ClusterBroker(
                    broker=m.LiveBroker(
                        broker_id=b,
                        broker_epoch=b,
                        fetch_max_bytes=0,
                        listeners=(m.Listener(name="EXTERNAL", host=a.host, port=a.port),),
                    ),
                    state="alive",
                    leaders=sum(p.leader == b for p in partitions),
                    replicas=len(partitions),
                    software="0.2.0",
                    feature_level=2,
                )
                for b, a in self.addresses.items()
                if b not in self.down
            ),
            topics=len(self.topics),
            partitions=len(partitions),
            leaderless_partitions=sum(p.leader < 0 for p in partitions),
            under_replicated_partitions=len(partitions) if self.down else 0,
            under_min_isr_partitions=0,
            draining=tuple(m.DrainingBroker(broker_id=b, replicas=n) for b, n in self.moves.draining.items()),
            feature_level=2,
        )


_METHODS = (
    s.COORDINATOR_SERVICE_CLUSTER_METADATA,
    s.REPLICA_SERVICE_PRODUCE,
    s.REPLICA_SERVICE_INIT_PRODUCER_ID,
    s.REPLICA_SERVICE_FETCH,
    s.REPLICA_SERVICE_LIST_OFFSETS,
    s.ADMIN_SERVICE_DESCRIBE_TOPICS,
    s.ADMIN_SERVICE_DESCRIBE_CLUSTER,
)
_GROUP_METHODS = (
    s.COORDINATOR_SERVICE_COMMIT_OFFSETS,
    s.COORDINATOR_SERVICE_FETCH_OFFSETS,
    s.COORDINATOR_SERVICE_LIST_GROUPS,
    s.COORDINATOR_SERVICE_DESCRIBE_GROUPS,
    s.COORDINATOR_SERVICE_DELETE_GROUPS,
)
_MOVE_METHODS = (
    s.ADMIN_SERVICE_DESCRIBE_LOG_DIRS,
    s.ADMIN_SERVICE_DISCARD_DAMAGE,
    s.ADMIN_SERVICE_ADD_BROKERS,
    s.ADMIN_SERVICE_DRAIN_BROKERS,
    s.ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS,
    s.ADMIN_SERVICE_LIST_PARTITION_REASSIGNMENTS,
)


def _snake(method: Any) -> str:
    name = method.path.rpartition("/")[2]
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


_HANDLERS = {method.path.rpartition("/")[2]: _snake(method) for method in _METHODS}
_GROUP_HANDLERS = {method.path.rpartition("/")[2]: _snake(method).removeprefix("_") for method in _GROUP_METHODS}
_MOVE_HANDLERS = {method.path.rpartition("/")[2]: _snake(method).removeprefix("_") for method in _MOVE_METHODS}


def produce_result(topic: str, partition: int, **fields: Any) -> m.ProduceResult:
    known = {"base_offset": -1, "log_start_offset": 0, "leader_id": -1, "leader_epoch": -1}
    return m.ProduceResult(topic=topic, partition=partition, **{**known, **fields})


def fetch_result(ask: m.FetchPartition, **fields: Any) -> m.FetchResult:
    known = {
        "high_watermark": -1,
        "log_start_offset": -1,
        "diverging_epoch": -1,
        "diverging_end_offset": -1,
        "leader_id": -1,
        "leader_epoch": -1,
    }
    return m.FetchResult(topic=ask.topic, partition=ask.partition, **{**known, **fields})


class FakeChannel:
    def __init__(self, cluster: FakeCluster, address: Address) -> None:
        self._cluster = cluster
        self._address = address
        self.closed = False

    async def call(self, method: Any, request: Any, timeout_s: float) -> Any:
        assert not self.closed, "a call on a closed channel"
        broker_id = next((b for b, a in self._cluster.addresses.items() if a == self._address), None)
        if broker_id is None:
            raise TransportError("UNAVAILABLE", f"nothing listens at {self._address}")
        return await self._cluster.call(broker_id, method.path, request, timeout_s)

    def open(self, method: Any) -> Any:
        if method is s.COORDINATOR_SERVICE_SESSION:
            broker_id = next(b for b, a in self._cluster.addresses.items() if a == self._address)
            return self._cluster.groups.open(broker_id)
        assert method is s.REPLICA_SERVICE_PRODUCE_STREAM, "clients open no other streams"
        return FakeProduceStream(self.call)

    async def close(self) -> None:
        self.closed = True


class FakeNet:
    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.channels: list[FakeChannel] = []

    def channel(self, address: Address, *, purpose: str, to_anyone: bool = False) -> FakeChannel:
        self.channels.append(FakeChannel(self._cluster, address))
        return self.channels[-1]

    async def serve(self, listen: Address, routes: Sequence[Any], advertised: Address | None = None) -> Any:
        raise NotImplementedError("clients serve nothing")

    async def probe(self, address: Address, timeout_s: float) -> Probe:
        brokers = {at: broker for broker, at in self._cluster.addresses.items()}
        if address not in brokers:
            return Probe.GONE
        return Probe.REFUSED if brokers[address] in self._cluster.down else Probe.OPEN
