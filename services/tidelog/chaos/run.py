"""One run: load, faults on their time line, healing, a final phase, and the files from which it is judged."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Protocol

from tidelog.chaos import samples
from tidelog.chaos.agents import AgentWatch
from tidelog.chaos.changes import Changes
from tidelog.chaos.checker.verdict import Kept
from tidelog.chaos.checking import HISTORY, REPLICAS
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.fault_player import FaultPlayer
from tidelog.chaos.faults.base import Bed, FaultMissed, InForce, On, to_the_end
from tidelog.chaos.final_read import CannotRead, read_everything
from tidelog.chaos.history import Position, Stored
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.observe import Observer
from tidelog.chaos.premises import idle_parts
from tidelog.chaos.protocol_log import PROTOCOL, ProtocolLog
from tidelog.chaos.replicas import read_replicas, rotten_copies
from tidelog.chaos.run_files import WHOLE_WITHIN_S, RunFile, promise_of
from tidelog.chaos.scenario import Scenario
from tidelog.chaos.sources import Lines, Orders, Source
from tidelog.chaos.spark_reader import read_with_spark
from tidelog.chaos.time_line import time_line
from tidelog.chaos.workload import Load, LoopLag
from tidelog.client.admin import Admin
from tidelog.client.connections import ClientPorts
from tidelog.client.offsets import LATEST
from tidelog.cluster.api import ZOOKEEPER, Cluster, ClusterError, bootstrap_servers, kind_of
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.rand import Rand
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.runtime.tasks import Supervisor

LED_WITHIN_S: Final = 30.0
AT_WORK_WITHIN_S: Final = 30.0
"""Members of a run before that have left nobody a word are waited for."""
SERVES_WITHIN_S: Final = 45.0
"""A ZooKeeper server that takes itself for the leader in vain finds out after 20 s (initLimit of deploy/zookeeper/zoo.cfg)."""
CAUGHT_UP_WITHIN_S: Final = 30.0
CAUGHT_UP_WITH_ALL_S: Final = 300.0
"""After a load that is sent as fast as the client takes it, most of which may still lie before the group."""
READ_WITHIN_S: Final = 60.0
SETTLE_S: Final = 5.0
LOOK_AGAIN_S: Final = 0.1

TICK_S: Final = 0.25

NO_VERDICT: Final = (FaultMissed, ClusterError, TidelogError, TransportError)


class NoVerdict(Exception):
    """The run says nothing about the cluster; the message says why."""


class Unkept(Exception):
    """Everything was healed, and the cluster does not do what it promises then. That shows in no history."""

    def __init__(self, promise: str, measured: str, limit: str) -> None:
        super().__init__(f"{promise}: {measured}")
        self.kept = Kept(promise, False, measured, limit)


class Watcher(Protocol):
    """Whoever looks on."""

    def say(self, what: str) -> None: ...

    def phase(self, name: str) -> None: ...

    def tick(self, chronicle: Chronicle, part: float, faults: Sequence[str]) -> None:
        """A few times a second; `part` of the run's time or of its records is over, from 0 to 1."""
        ...


@dataclass(slots=True)
class Run:
    """`play` is called once, inside `with InForce()` around the event loop."""

    scenario: Scenario
    file: RunFile
    cluster: Cluster
    directory: Path
    clock: Clock
    rand: Rand
    watcher: Watcher
    in_force: InForce
    metrics: ChaosMetrics

    async def play(self) -> None:
        """Returns when everything is in the files. NoVerdict says why there is nothing to judge. Unkept."""
        servers = bootstrap_servers(self.cluster)
        try:
            for planned in self.scenario.planned:
                planned.fault.check(self.cluster)
            async with Admin(servers) as admin:
                await self._create_topic(admin)
                with Chronicle(self.directory / HISTORY, self.clock) as chronicle:
                    await self._chronicled(servers, admin, chronicle)
        except NO_VERDICT as error:
            raise NoVerdict(str(error)) from error

    async def _create_topic(self, admin: Admin) -> None:
        shape = self.scenario.topic
        self.watcher.phase("set-up")
        configs = {"min.insync.replicas": str(shape.min_isr), **shape.configs}
        await admin.create_topic(self.topic, shape.partitions, shape.replication_factor, configs=configs)
        self.file.created = True
        await admin.wait_until_led(self.topic, in_sync=True, timeout_s=LED_WITHIN_S)
        copies = f"{shape.partitions} partitions, {shape.replication_factor} replicas, min ISR {shape.min_isr}"
        self.watcher.say(f"created topic {self.topic}: {copies}")

    async def _chronicled(self, servers: str, admin: Admin, chronicle: Chronicle) -> None:
        background, lag = Supervisor("run"), LoopLag(chronicle)
        bed = Bed(
            cluster=self.cluster,
            on=On(self.file.on),
            admin=admin,
            topic=self.scenario.aim or self.topic,
            clock=self.clock,
            rand=self.rand,
            tasks=background,
            in_force=self.in_force,
            say=self.watcher.say,
        )
        links = self.cluster.client_links() if self.scenario.reaches_clients else {}
        load = Load(
            servers,
            self.topic,
            self.scenario.workload,
            chronicle,
            lambda: ClientPorts(self.clock, GrpcNet(link_map=links), self.rand),
            self._source(),
        )
        agents = self._agents(admin, chronicle, load)
        player = FaultPlayer(bed, chronicle, self.metrics, reached=load.reached, moved=agents.moved)

        changes = Changes()

        def looked(sample: samples.Sample) -> None:
            chronicle.looked(sample)
            player.looked(sample)
            for line in changes.looked(sample):
                self.watcher.say(line)

        observer = Observer(
            self.cluster,
            self._ports,
            chronicle.began,
            self.directory / samples.FILE_NAME,
            topics=self.file.topics,
            groups=[] if self.file.group is None else [self.file.group],
            on_sample=looked,
        )
        async with observer, self._protocol(servers, chronicle):
            try:
                background.start("lag", lag.watch())
                background.start("ticks", self._ticks(chronicle, load))
                if self.scenario.workload.consumers.agents:
                    await agents.until_shared()
                    background.start("agents", agents.watch())
                await self._phases(servers, player, load)
            finally:
                await background.stop()
                await load.stop()
                self._note(player, lag)
        if background.failure is not None:
            raise background.failure

    async def _phases(self, servers: str, player: FaultPlayer, load: Load) -> None:
        chronicle = player.chronicle
        self._enter(chronicle, "load")
        load.start()
        await self._at_work(chronicle, load)
        moments = time_line(self.scenario, On(self.file.on), self.file.duration_s, self.rand)
        await player.play(moments, self.file.duration_s, ends_with_load=self.scenario.ends_with_load)
        self._enter(chronicle, "heal")
        await player.heal_all()
        try:
            await self._after_the_faults(servers, player, load)
        except CannotRead as error:
            raise Unkept("every partition can be read to its end", str(error), f"within {READ_WITHIN_S:g} s") from error
        except (TidelogError, TransportError) as error:
            raise Unkept("the cluster answers after the faults", str(error), "every request") from error

    async def _after_the_faults(self, servers: str, player: FaultPlayer, load: Load) -> None:
        """Reads everything once more; an error here is the cluster's fault. Unkept, CannotRead, TidelogError, TransportError."""
        admin, chronicle = player.bed.admin, player.chronicle
        await self._whole(admin)
        if any(kind_of(target) == ZOOKEEPER for fault in player.played for target in fault.targets):
            await ensemble_serves(self.cluster, self.clock, self.watcher.say)
        await load.stop_producers()
        self.watcher.say(
            f"{chronicle.acked:,} of {chronicle.sent:,} records acknowledged; reading everything once more"
        )
        self._enter(chronicle, "final")
        ends = await self._ends(admin, chronicle)
        within_s = CAUGHT_UP_WITHIN_S if load.part is None else CAUGHT_UP_WITH_ALL_S
        for each in await load.caught_up(ends, within_s):
            self.watcher.say(f"{each} has not come to the end after {within_s:g} s")
        await self._commits(admin, chronicle, ends, within_s)
        await load.stop()
        await read_everything(servers, ends, chronicle, READ_WITHIN_S)
        if self.scenario.workload.consumers.spark:
            self.watcher.phase("spark")
            await read_with_spark(servers, self.topic, self.scenario.topic.partitions, chronicle, self.directory)
        replicas = await read_replicas(self.cluster, admin, self.topic)
        (self.directory / REPLICAS).write_text(json.dumps([each.to_json() for each in replicas]))
        observed = [fault.observed for fault in player.played]
        self.file.rotten = await rotten_copies(self.cluster, self.topic, observed)
        self._enter(chronicle, "end")

    async def _whole(self, admin: Admin) -> None:
        """Unkept."""
        for topic in self.file.topics:
            try:
                await admin.wait_until_led(topic, in_sync=True, timeout_s=WHOLE_WITHIN_S)
            except (TidelogError, TransportError) as error:
                limit = f"within {WHOLE_WITHIN_S:g} s"
                raise Unkept("every partition has a leader and a full ISR", str(error), limit) from error
        self.watcher.say("every partition has a leader, and every ISR is full")

    def _protocol(self, servers: str, chronicle: Chronicle) -> ProtocolLog:
        return ProtocolLog(self.directory / PROTOCOL, servers, self._ports, self.file.topics, chronicle.began)

    def _source(self) -> Source | None:
        plan = self.scenario.workload
        if plan.orders is not None:
            return Orders(plan.orders, Random(self.file.seed), self.clock.wall_ms())
        return None if plan.lines is None else Lines(plan.lines)

    def _agents(self, admin: Admin, chronicle: Chronicle, load: Load) -> AgentWatch:
        count = self.scenario.workload.consumers.agents
        partitions = [TopicPartition(self.topic, p) for p in range(self.scenario.topic.partitions)]
        return AgentWatch(admin, count, partitions, self.directory, chronicle, load.processed, self.watcher.say)

    @property
    def _ports(self) -> ClientPorts:
        return ClientPorts(self.clock, GrpcNet(), self.rand)

    @property
    def topic(self) -> str:
        return self.file.topics[0]

    def _note(self, player: FaultPlayer, lag: LoopLag) -> None:
        file = self.file
        file.faults, file.affected, file.left_out = player.played, sorted(player.affected), player.left_out
        file.promise = promise_of(self.scenario, file).to_json()
        file.acked, file.seconds = player.chronicle.acked, round(player.chronicle.now(), 3)
        file.loop_lag_worst_s, file.loop_late = round(lag.worst_s, 3), lag.late

    def _enter(self, chronicle: Chronicle, phase: str) -> None:
        chronicle.phase(phase)
        self.watcher.phase(phase)

    async def _at_work(self, chronicle: Chronicle, load: Load) -> None:
        """A fault before that would hit a load that has not begun."""
        give_up_at = self.clock.now() + AT_WORK_WITHIN_S
        while idle := idle_parts(self.scenario.workload, chronicle, load.processed):
            if self.clock.now() > give_up_at:
                raise ClusterError(f"after {AT_WORK_WITHIN_S:g} s of load {', '.join(idle)}")
            await self.clock.sleep(LOOK_AGAIN_S)

    async def _commits(
        self, admin: Admin, chronicle: Chronicle, ends: Mapping[TopicPartition, int], within_s: float
    ) -> None:
        """Writes down what is committed at last, once that is all; a member commits behind its work."""
        if (group := self.file.group) is None:
            return
        give_up_at = self.clock.now() + within_s
        while True:
            found = await admin.groups.committed(group, ends)
            stored = {tp: found[tp].offset if tp in found else 0 for tp in ends}
            if stored == dict(ends) or self.clock.now() >= give_up_at:
                break
            await self.clock.sleep(LOOK_AGAIN_S)
        chronicle.append(Stored(chronicle.now(), group, tuple(Position(*tp, offset) for tp, offset in stored.items())))

    async def _ends(self, admin: Admin, chronicle: Chronicle) -> dict[TopicPartition, int]:
        """High watermarks behind everything that was ever seen. What still lies beyond them after a while is gone, which is
        for the checker to say."""
        wanted = {TopicPartition(self.topic, p): LATEST for p in range(self.scenario.topic.partitions)}
        give_up_at = self.clock.now() + SETTLE_S
        while True:
            ends = {tp: found.offset for tp, found in (await admin.list_offsets(wanted)).items()}
            short = [tp for tp, end in ends.items() if end <= chronicle.highest.get(tp, NO_OFFSET)]
            if not short or self.clock.now() >= give_up_at:
                return ends
            await self.clock.sleep(LOOK_AGAIN_S)

    async def _ticks(self, chronicle: Chronicle, load: Load) -> None:
        while True:
            part = chronicle.now() / self.file.duration_s if load.part is None else load.part
            self.watcher.tick(chronicle, part, [injected.name for injected in self.in_force.left])
            await self.clock.sleep(TICK_S)


async def ensemble_serves(cluster: Cluster, clock: Clock, say: Callable[[str], None]) -> None:
    """Waits for every ZooKeeper server, which the next run takes for granted too. One that does not come is for the scenario
    to judge."""
    give_up_at = clock.now() + SERVES_WITHIN_S
    while away := await to_the_end(_serve_nobody, cluster):
        if clock.now() >= give_up_at:
            say(f"{', '.join(away)}: serves nobody {SERVES_WITHIN_S:g} s after everything was healed")
            return
        await clock.sleep(LOOK_AGAIN_S)


def _serve_nobody(cluster: Cluster) -> list[str]:
    return [name for name in cluster.names(ZOOKEEPER) if not cluster.zookeeper_mode(name)]
