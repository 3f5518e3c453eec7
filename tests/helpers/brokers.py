"""A cluster in memory for tests of clients: the real controller, brokers and coordinators on the simulated loop.

Calls of clients pass through one interceptor, which records them and applies the faults that a test sets. What a test does to
the cluster itself goes around the interceptor.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from aiokafka.record.memory_records import MemoryRecords

from tidelog.broker.partition_host import PartitionHost
from tidelog.client.admin import Admin
from tidelog.client.connections import ClientPorts
from tidelog.client.consumer import Consumer
from tidelog.coordinator.term import Term
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.ports.net import Server
from tidelog.runtime.tasks import Supervisor
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import Crash
from tidelog.testing.intercept import Call, Interceptor
from tidelog.testing.invariants import StoredView
from tidelog.testing.loop import SimLoop, SimProcess, tasks_outside
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.net import SimNetwork
from tidelog.testing.net_exchange import Faults
from tidelog.testing.rand import seeded
from tidelog.testing.sim_node import SimNode, Timing, World
from tidelog.testing.views import stored_states
from tidelog.watch.ring import Ring
from tidelog.watch.service import WatchService
from tidelog.wire import messages as m
from tidelog.wire import znodes
from tidelog.wire.batch import iter_batches
from tidelog.wire.services import REPLICA_SERVICE_PRODUCE

CONTROLLER: Final = 1
SETTLES_S: Final = 60.0
AHEAD_MS: Final = 20 * 365 * 24 * 3_600_000
"""The calendar of brokers is ahead of every timestamp that a test or a clock of this machine gives a record."""
GROUPS: Final = {
    "coordinator_shards": 1,
    "group_min_session_timeout_ms": 100,
    "group_max_session_timeout_ms": 60_000,
    "group_failed_pings_max": 2,
    "offset_commit_interval_ms": 100,
    "rebalance_backoff_ms": 100,
    "rebalance_backoff_max_ms": 1_000,
    "group_initial_rebalance_delay_ms": 100,
    "group_join_delay_ms": 100,
    "group_join_delay_max_ms": 300,
    "group_assignor": "range",
}


class Brokers(Interceptor):
    """`ports` is what a client takes. Brokers are numbered from 1; their addresses are broker-1:9092 and so on."""

    def __init__(
        self, count: int = 3, *, seed: int = 1, latency_s: float = 0.0005, session_ms: int = 6_000, **settings: Any
    ) -> None:
        """`latency_s` is one way. `settings` are settings of the brokers."""
        super().__init__()
        self.clock = SimClock()
        self.rand = seeded(seed, "client")
        self.ids = tuple(range(1, count + 1))
        timing = Timing(
            session_ms=session_ms,
            lag_ms=10_000,
            request_ms=10_000,
            suspect_hold_ms=1_000,
            keepalive_s=4.0,
            segment_bytes=1 << 20,
            rebalance_ms=300_000,
        )
        zookeeper = SimZooKeeper(seeded(seed, "zookeeper"))
        network = SimNetwork(seeded(seed, "network"), faults=Faults(delay_s=(latency_s, latency_s)))
        self.world = World(seed, seeded(seed, "faults"), timing, zookeeper, network)
        names = [*(f"broker-{i}" for i in self.ids), f"controller-{CONTROLLER}"]
        self.world.nodes.update((name, SimNode(self.world, name)) for name in names)
        for node in self.world.brokers:
            node.settings = GROUPS | settings
            node.clock.wall_offset_ms = AHEAD_MS
        self.controller.settings = {"auto_leader_rebalance_enable": False}
        self.addresses = {b: self.node(b).address for b in self.ids}
        """Addresses at which clients reach the brokers."""
        operator = Interceptor()
        operator.faults.append(self._skip_stopped)
        self._outside = ClientPorts(self.clock, operator.net(network.node("operator")), seeded(seed, "operator"))
        self.started = False
        self._elects = asyncio.Lock()
        self._damage: dict[bytes, bytes] = {}
        self._left: dict[str, asyncio.Event] = {}
        self._members: dict[str, asyncio.Task[None]] = {}
        self._ends = Supervisor("ends of killed processes")
        self.servers: list[Server] = []
        """Real servers, of a cluster that clients reach over sockets."""
        self.silent: set[int] = set()
        """Brokers that answer no client; among themselves they go on."""
        self.faults.append(self._hold)
        self._unnoticed: set[int] = set()
        """Killed brokers that count as alive."""
        self.admin = Admin(self.bootstrap, ports=self._outside)
        """The test's own: its calls are neither recorded nor disturbed."""

    async def start(self) -> "Brokers":
        """Returns when every broker serves."""
        self.started = True
        for node in self.world.nodes.values():
            node.start()
        await self.settle()
        return self

    async def stop(self) -> None:
        """Ends every process; for clusters on a real loop."""
        for server in self.servers:
            await server.stop(0)
        nodes = [node for node in self.world.nodes.values() if node.application is not None]
        await asyncio.gather(*(node.application.stop() for node in nodes if node.application is not None))
        for node in nodes:
            assert node.process is not None
            await node.process.supervisor.stop()
        await self.admin.stop()

    # -- what a client needs ------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(str(address) for address in self.addresses.values())

    @property
    def ports(self) -> ClientPorts:
        return self.ports_of("client")

    @property
    def cluster_id(self) -> str:
        process = self.node(self.running[0]).broker
        assert process is not None
        return process.metadata.cluster_id

    def ports_of(self, name: str) -> ClientPorts:
        """Ports of a client at a host of its own, so that `cut` can cut it off."""
        return ClientPorts(self.clock, self.net(self.world.network.node(name)), self.rand)

    # -- topics -------------------------------------------------------------------------------------------------------

    async def create(self, name: str, partitions: int = 1, *, replicas: int = 0, **configs: str) -> None:
        """Partition p is led by the p-th broker, and the next ones follow; `replicas` 0: all of them."""
        await self.place(name, *(self._row(p, replicas) for p in range(partitions)), **configs)

    async def place(self, name: str, *rows: Sequence[int], **configs: str) -> None:
        """A topic with a partition on the brokers of each row."""
        configs = {key.replace("_", "."): value for key, value in configs.items()}
        await self.admin.create_topic(name, assignment=list(rows), configs=configs)
        await self.settle()

    async def configure(self, name: str, **configs: str) -> None:
        await self.admin.alter_configs(name, {key.replace("_", "."): value for key, value in configs.items()})

    async def grow(self, name: str, total: int) -> None:
        had = await self.admin.describe_topic(name)
        first = len(had.partitions)
        rows = [self._row(p, len(had.partitions[0].replicas)) for p in range(first, total)]
        await self.admin.create_partitions(name, total, assignment=rows)
        await self.settle()

    async def delete(self, name: str) -> None:
        await self.admin.delete_topic(name)
        await self.settle()

    async def elect(self, topic: str, partition: int, leader: int) -> None:
        """Makes `leader`, which is in the ISR, the preferred leader, and then the leader."""
        tp = TopicPartition(topic, partition)
        async with self._elects:
            replicas = self.states[tp].replicas
            await self.admin.reassignments.alter({tp: [leader, *(b for b in replicas if b != leader)]})
            (elected,) = await self.admin.elect_leaders([tp])
            assert elected.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED), elected
            await self.settle()

    async def move(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Moves a partition; returns when that is done."""
        tp = TopicPartition(topic, partition)
        await self.admin.reassignments.alter({tp: list(replicas)})
        await self.until(lambda: self.states[tp].replicas == tuple(replicas), f"{tp} is on {replicas}")
        await self.settle()

    async def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """Deletes the records below an offset."""
        await self.admin.logs.delete_records({TopicPartition(topic, partition): offset})

    async def append(self, topic: str, partition: int, *batches: bytes, acks: int = -1) -> None:
        """The leader appends these and every member of the ISR has them."""
        channel = self._outside.net.channel(self.node(self.leader(topic, partition)).address, purpose="test")
        for records in batches:
            ask = m.ProducePartition(topic=topic, partition=partition, leader_epoch=-1, records=records)
            request = m.ProduceRequest(acks=acks, timeout_ms=10_000, partitions=(ask,))
            (result,) = (await channel.call(REPLICA_SERVICE_PRODUCE, request, 10.0)).results
            if result.error_code is not ErrorCode.NONE:
                raise TidelogError(result.error_message, result.error_code)
        await channel.close()

    @property
    def states(self) -> dict[TopicPartition, StoredView]:
        """The stored state of each partition."""
        return stored_states(self.world.zookeeper.dump())

    @property
    def topics(self) -> dict[str, int]:
        """Number of partitions by topic, in order."""
        return dict(sorted(Counter(tp.topic for tp in self.states).items()))

    def topic_id(self, topic: str) -> bytes:
        return next(state.topic_id for tp, state in self.states.items() if tp.topic == topic)

    def leader(self, topic: str, partition: int = 0) -> int:
        """-1: it has none."""
        return self.states[TopicPartition(topic, partition)].leader

    def host(self, topic: str, partition: int = 0, broker: int | None = None) -> PartitionHost:
        """The replica of a broker, by default the leader's."""
        broker = self.leader(topic, partition) if broker is None else broker
        process = self.node(broker).broker
        assert process is not None and process.manager is not None
        found = process.manager.find_named(topic, partition)
        assert found is not None
        return found

    def end(self, topic: str, partition: int = 0) -> int:
        """Log end offset of the leader."""
        return self.host(topic, partition).log.log_end_offset

    def batches(self, topic: str, partition: int = 0) -> list[bytes]:
        """Batches in the leader's log, in order."""
        log = self.host(topic, partition).log
        found: list[bytes] = []
        at = log.log_start_offset
        while at < log.log_end_offset:
            records = log.read(at, 1 << 30, log.log_end_offset)
            for start, header in iter_batches(records):
                found.append(bytes(records[start : start + header.size_bytes]))
                at = header.end_offset
        return found

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of the records in the leader's log, in order."""
        out: list[bytes | None] = []
        for batch in self.batches(topic, partition):
            records = MemoryRecords(batch)
            while (decoded := records.next_batch()) is not None:
                assert decoded.validate_crc()
                out.extend(record.value for record in decoded)
        return out

    # -- groups -------------------------------------------------------------------------------------------------------

    def coordinator(self, group_id: str = "g") -> int:
        """The broker that coordinates a group; -1: no broker does now."""
        return next((broker for broker in self.running if self._term(broker, group_id) is not None), -1)

    def term(self, group_id: str = "g") -> Term | None:
        """The term of the broker that coordinates a group."""
        return next((term for broker in self.running if (term := self._term(broker, group_id)) is not None), None)

    async def until_coordinated(self, group_id: str) -> None:
        """Every running broker names the coordinator of a group."""

        def named() -> bool:
            found = [self.node(broker).broker for broker in self.running]
            names = {each.coordinators.coordinator_of(group_id) for each in found if each and each.coordinators}
            return names == {self.coordinator(group_id)} != {-1}

        await self.until(named, f"every broker knows the coordinator of {group_id}")

    def _term(self, broker: int, group_id: str) -> Term | None:
        process = self.node(broker).broker
        term = process and process.coordinators and process.coordinators.term_of(group_id)
        return term if term and term.acting else None

    async def depose_controller(self, after_s: float) -> None:
        """The session of the active controller ends that long after this has returned."""
        controller = self.controller.controller
        await self.until(lambda: controller is not None and controller.active, "a controller acts")
        meta = self.controller.meta
        assert meta is not None
        session_id = meta.session_id
        asyncio.get_running_loop().call_later(after_s, lambda: self.world.zookeeper.expire(session_id))

    async def depose(self) -> None:
        """The session of the coordinator ends, and until `coordinate` no broker takes its place."""
        old = self.coordinator()
        for broker in self.running:
            if broker != old:
                self._coordinators_of(broker).cut()
        self.world.zookeeper.expire(self._coordinators_of(old).session_id)
        await self.until(lambda: self.coordinator() < 0, "there is no coordinator")
        self._coordinators_of(old).cut()

    async def coordinate(self, broker: int) -> None:
        """Makes a broker the coordinator of all groups."""
        if self.coordinator() > 0:
            await self.depose()
        for each in (broker, *(b for b in self.running if b != broker)):
            self._coordinators_of(each).heal()
            await self.until(partial(self._named, each, broker), f"broker {each} knows that {broker} coordinates")

    def _named(self, broker: int, coordinator: int) -> bool:
        process = self.node(broker).broker
        assert process is not None and process.coordinators is not None
        return self.coordinator() == coordinator == process.coordinators.coordinator_of("")

    def _coordinators_of(self, broker: int) -> SimMeta:
        meta = self.node(broker).coordinator_meta
        assert meta is not None
        return meta

    def owners(self, group_id: str = "g") -> dict[TopicPartition, str]:
        """The stored owners of a group's partitions."""
        return {
            tp: znodes.decode_owner(path, data).consumer
            for tp, path, data in self._stored(znodes.owners_path(group_id))
        }

    def offsets(self, group_id: str = "g") -> dict[TopicPartition, int]:
        """The stored offsets of a group."""
        return {
            tp: znodes.decode_offset(path, data).offset
            for tp, path, data in self._stored(znodes.offsets_path(group_id))
        }

    def members(self, group_id: str = "g") -> list[str]:
        """Members as the coordinator knows them."""
        term = self.term(group_id)
        group = None if term is None else term.machine.groups.get(group_id)
        return [] if group is None else sorted(group.members)

    def group_state(self, group_id: str = "g") -> str:
        """The state of a group as its coordinator describes it; empty without a coordinator."""
        term = self.term(group_id)
        return "" if term is None else term.machine.describe(group_id).state

    def _stored(self, above: str) -> Iterator[tuple[TopicPartition, str, bytes]]:
        """Znodes two levels below a group's folder: topic and partition."""
        for path, node in self.world.zookeeper.dump().items():
            topic, _, partition = path.removeprefix(above + "/").partition("/")
            if path.startswith(above + "/") and partition:
                yield TopicPartition(topic, int(partition)), path, node.data

    async def name_at(self, broker: int, prefix: str = "g") -> str:
        """Name of a group that `broker` coordinates. Give brokers several shards for it."""
        names = [f"{prefix}{number}" for number in range(100)]
        await self.until(lambda: all(self.coordinator(each) > 0 for each in names), "every shard has a coordinator")
        return next(each for each in names if self.coordinator(each) == broker)

    async def create_group(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """A group without members that has committed these offsets."""
        await self.until_coordinated(group_id)
        results = await self.admin.groups.alter_offsets(group_id, offsets)
        assert all(result.error_code is ErrorCode.NONE for result in results), results

    async def join(
        self,
        group_id: str,
        consumer_id: str,
        topic: str,
        *,
        polls: bool = True,
        records: bool = False,
        agent_id: str | None = None,
    ) -> Consumer:
        """A member that stays until `leave`; returns when it owns a partition. With `polls` False it takes no record. With
        `records` it records protocol events and shows them, as an agent does; its process is `agent_id`, if not `consumer_id`."""
        process = SimProcess(consumer_id)
        rand = seeded(self.world.seed, consumer_id)
        net = self.world.network.node(consumer_id, process)
        ports = ClientPorts(self.clock, net, rand)
        process_name = consumer_id if agent_id is None else agent_id
        ring = Ring(process_name, self.clock.wall_ms(), self.clock)
        watch = WatchService(ring, self.clock)
        server = await net.serve(Address(consumer_id, 0), [watch.route()])
        if records:
            self.world.rings.append(ring)
            ports = replace(ports, recorder=ring, watch_port=server.address.port)
        consumer = Consumer(
            self.bootstrap,
            ports=ports,
            group=group_id,
            topics=[topic],
            consumer_id=consumer_id,
            client_id=process_name if records else "tidelog-consumer",
        )
        left = self._left[consumer_id] = asyncio.Event()

        async def run() -> None:
            async with consumer:
                while polls and not left.is_set():
                    await consumer.poll(timeout_s=0.1)
                await left.wait()
            watch.end()
            await server.stop(1.0)

        self._members[consumer_id] = process.start("member", run())
        await self.until(lambda: consumer.assignment, f"{consumer_id} owns a partition")
        await self.until_coordinated(group_id)
        return consumer

    async def leave(self, consumer_id: str) -> None:
        self._left.pop(consumer_id).set()
        await self._members.pop(consumer_id)

    # -- faults of brokers --------------------------------------------------------------------------------------------

    def node(self, broker: int) -> SimNode:
        return self.world.nodes[f"broker-{broker}"]

    @property
    def controller(self) -> SimNode:
        return self.world.nodes[f"controller-{CONTROLLER}"]

    @property
    def running(self) -> list[int]:
        """Brokers whose process runs and is not stopped."""
        nodes = {broker: self.node(broker) for broker in self.ids}
        return [broker for broker, it in nodes.items() if it.running and not (it.process and it.process.paused)]

    def kill(self, *brokers: int) -> None:
        """SIGKILL. The controller notices it soon; `settle` waits for that."""
        for broker in brokers:
            process = self.node(broker).process
            assert process is not None
            self.node(broker).kill()
            if not isinstance(asyncio.get_running_loop(), SimLoop):
                self._ends.start(
                    "end", process.supervisor.stop()
                )  # only the simulated loop runs no step of it any more

    def pause(self, *brokers: int) -> None:
        """SIGSTOP."""
        for broker in brokers:
            self.node(broker).pause()

    def resume(self, *brokers: int) -> None:
        """SIGCONT."""
        for broker in brokers:
            self.node(broker).resume()

    def kill_unnoticed(self, *brokers: int) -> None:
        """SIGKILL. Until `notice`, or until its session ends, a broker counts as alive."""
        for broker in brokers:
            self.world.network.cut(self.controller.name, f"broker-{broker}")
            self.node(broker).kill()
            self._unnoticed.add(broker)

    async def notice(self, *brokers: int) -> None:
        """The sessions of killed brokers end; their partitions have other leaders."""
        for broker in brokers:
            for meta in (self.node(broker).meta, self.node(broker).coordinator_meta):
                assert meta is not None
                self.world.zookeeper.expire(meta.session_id)
        self._unnoticed.difference_update(brokers)
        await self.settle()

    def part(self, one: int, other: int) -> None:
        """Until `rejoin`, neither of two brokers copies what the other leads."""
        for source, target in ((one, other), (other, one)):
            self.world.network.cut(f"broker-{source}", f"broker-{target}")

    def rejoin(self, one: int, other: int) -> None:
        for source, target in ((one, other), (other, one)):
            self.world.network.heal(f"broker-{source}", f"broker-{target}")

    def cut(self, client: str, *, up: bool = True, down: bool = True) -> None:
        """Messages from a client to brokers (`up`), or from them to it, no longer arrive."""
        for broker in self.ids:
            if up:
                self.world.network.cut(client, f"broker-{broker}")
            if down:
                self.world.network.cut(f"broker-{broker}", client)

    def refuse(self, client: str) -> None:
        """Brokers reset the connections of a client and refuse new ones."""
        for broker in self.ids:
            self.world.network.refuse(client, f"broker-{broker}")

    def heal(self) -> None:
        """Every link works again."""
        self.world.network.heal_all()

    async def wait(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    def later(self, seconds: float, act: Callable[..., Any], *args: Any) -> None:
        """Calls `act` after so many seconds."""
        asyncio.get_running_loop().call_later(seconds, act, *args)

    def delay(self, seconds: float) -> None:
        """From now on every message takes so long."""
        self.world.network.disturb(Faults(delay_s=(seconds, seconds)))

    def launch(self, *brokers: int) -> None:
        """Starts killed brokers."""
        self.world.network.heal_all()
        self._unnoticed.difference_update(brokers)
        for broker in brokers:
            self.node(broker).start()

    async def restart(self, *brokers: int) -> None:
        """Starts killed brokers; returns when they serve."""
        self.launch(*brokers)
        await self.settle()

    async def lose_power(self, broker: int) -> None:
        """Its host loses power, and what was not synced to disk. It starts again, and leads again what is on it alone."""
        self.node(broker).kill(Crash.DROP_UNSYNCED)
        self.launch(broker)
        lost = [tp for tp, state in self.states.items() if state.replicas == (broker,)]
        await self.until(lambda: self._knows(broker), "it has registered")
        await self.admin.release_veto(lost)
        await self.settle()

    async def settle(self) -> None:
        """Every running broker knows the leaders that are stored, and every running replica is in sync."""
        await self.until(self._settled, "the cluster settles")

    async def until(self, condition: Callable[[], Any], what: str = "the condition") -> None:
        give_up_at = self.clock.now() + SETTLES_S
        while not condition():
            assert self.clock.now() < give_up_at, f"not within {SETTLES_S:.0f} s: {what}"
            await self.clock.sleep(0.005)

    # -- faults of calls ----------------------------------------------------------------------------------------------

    def broker_of(self, call: Call) -> int:
        """The broker that is called; -1 if there is none."""
        return next((b for b in self.ids if call.address in (self.addresses[b], self.node(b).address)), -1)

    def damage(self, old: bytes, new: bytes) -> None:
        """From now on clients fetch `new` in the place of `old`, which is as long."""
        assert len(old) == len(new)

        if not self._damage:
            self.faults.append(self._damaged)
        self._damage[old] = new

    async def _hold(self, call: Call) -> Any:
        while self.broker_of(call) in self.silent:
            await self.clock.sleep(0.05)
        return NotImplemented

    async def _damaged(self, call: Call) -> Any:
        if call.method != "Fetch":
            return NotImplemented
        answer: m.FetchResponse = await call.serve()
        results = []
        for result in answer.results:
            records = bytes(result.records)
            for old, new in self._damage.items():
                records = records.replace(old, new)
            results.append(replace(result, records=records))
        return m.FetchResponse(results=tuple(results))

    def refuse_produce(self, code: ErrorCode, *, times: int = 1, append: bool = False, **result: Any) -> None:
        async def refuse(call: Call) -> m.ProduceResponse:
            if append:
                await call.serve()
            return m.ProduceResponse(
                results=tuple(
                    produce_result(p.topic, p.partition, error_code=code, error_message="scripted", **result)
                    for p in call.request.partitions
                )
            )

        for _ in range(times):
            self.once("Produce", refuse)

    async def _skip_stopped(self, call: Call) -> Any:
        """The operator asks no broker that stands still."""
        if self.broker_of(call) in self.running:
            return NotImplemented
        raise TransportError("UNAVAILABLE", "it does not run")

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _row(self, partition: int, replicas: int) -> list[int]:
        ids = self.ids
        return [ids[(partition + i) % len(ids)] for i in range(replicas or len(ids))]

    def _knows(self, broker: int) -> bool:
        """True if other brokers count a broker as alive, and it knows them."""
        processes = [self.node(b).broker for b in self.running]
        return all(process is not None and broker in process.metadata.live for process in processes)

    def _settled(self) -> bool:
        states = self.states
        alive = {b for b in self.ids if self.node(b).running} | self._unnoticed
        if any(state.leader >= 0 and state.leader not in alive for state in states.values()):
            return False
        return all(self._agrees(b, states, alive) for b in self.running)

    def _agrees(self, broker: int, states: Mapping[TopicPartition, StoredView], alive: set[int]) -> bool:
        """True if a broker knows what is stored and is in sync in all that it should hold."""
        process = self.node(broker).broker
        if process is None or process.manager is None or process.metadata.live.keys() != alive:
            return False
        known = process.metadata.answer(m.ClusterMetadataRequest(all_topics=True), "INTERNAL")
        leaders = {TopicPartition(t.topic, p.partition): p for t in known.topics for p in t.partitions}
        if leaders.keys() != states.keys():
            return False
        for tp, state in states.items():
            if (leaders[tp].leader, leaders[tp].leader_epoch) != (state.leader, state.leader_epoch):
                return False
            if broker in state.replicas and state.leader >= 0:
                host = process.manager.find(tp)
                if host is None or host.replica.leader_epoch != state.leader_epoch or host.offline:
                    return False
                if broker not in {member for member, _ in state.isr}:
                    return False
        return True


async def unstarted(count: int, **options: Any) -> Brokers:
    return Brokers(count, **options)


async def brokers(count: int = 3, **options: Any) -> Brokers:
    """A cluster that serves; it ends with the loop of the test."""
    return await Brokers(count, **options).start()


@asynccontextmanager
async def no_tasks_left() -> AsyncIterator[None]:
    """A client that was stopped leaves no task behind."""
    before = tasks_outside()
    yield
    assert tasks_outside() <= before


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


def produce_result(topic: str, partition: int, **fields: Any) -> m.ProduceResult:
    known = {"base_offset": -1, "log_start_offset": 0, "leader_id": -1, "leader_epoch": -1, "isr_size": 0}
    return m.ProduceResult(topic=topic, partition=partition, **{**known, **fields})


def forgotten_meanwhile(client: Any, broker: int, task: str) -> None:
    """A refresh of the metadata comes between the choice of `broker` and the first step of the task that calls it, once."""
    supervisor, metadata = client._supervisor, client._metadata
    start = supervisor.start

    def late(name: str, coroutine: Any) -> Any:
        if name == task:
            supervisor.start = start
            left = {b: address for b, address in metadata.snapshot.brokers.items() if b != broker}
            metadata.snapshot = replace(metadata.snapshot, brokers=left)
        return start(name, coroutine)

    supervisor.start = late
