"""A simulated host of a consumer: the real `Consumer(group=...)` with an application that takes its time over records."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from tidelog.client.connections import ClientPorts
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.ports.rand import Rand
from tidelog.testing.group_watch import GroupWatch
from tidelog.testing.loop import SimProcess
from tidelog.testing.rand import seeded
from tidelog.testing.sim_node import SimNode, World

POLL_S: Final = 0.3
AGAIN_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class Habits:
    """Of one host's application: drawn, the same in each of its lives."""

    group: str
    topics: tuple[str, ...]
    session_ms: int
    static: bool
    commits: bool
    """By itself, and it asks before each effect whether the partition is still its own; else as the consumer does it."""
    slow_share: float
    """How often it takes about as long as a session over what it got."""
    chunk: int
    """Records at once."""
    max_processing_ms: int
    named: bool = False
    """Its consumer id is the name of its host."""
    pace_s: float | None = None
    """Seconds over the records of a partition that it got at once; None: drawn."""


class Agent:
    def __init__(
        self, name: str, habits: Habits, bootstrap: Sequence[Address], ports: ClientPorts, watch: GroupWatch, rand: Rand
    ) -> None:
        self._name = name
        self._habits = habits
        self.slow_share = habits.slow_share
        self.pace_s = habits.pace_s
        self._bootstrap = list(bootstrap)
        self._ports = ports
        self._watch = watch
        self._rand = rand
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._done: dict[TopicPartition, int] = {}
        """The next offset to process, where it is not committed."""
        self._void: set[TopicPartition] = set()
        """Gone since the records at hand were polled."""
        self._consumer = self._new_consumer()

    async def stop(self) -> None:
        """Leaves the group after what it has in its hands."""
        self._stopping.set()
        await self._ended.wait()

    async def run(self) -> None:
        """A consumer that ends with an error is followed by another, as in a process that is started again."""
        while not self._stopping.is_set():
            self._done.clear()
            self._consumer = self._new_consumer()
            try:
                async with self._consumer:
                    while not self._stopping.is_set():
                        await self._work()
                    await self._commit(list(self._done))
            except (TidelogError, TransportError, ClusterUnreachable):
                await self._ports.clock.sleep(AGAIN_S)
        self._ended.set()

    def _new_consumer(self) -> Consumer:
        habits = self._habits
        return Consumer(
            self._bootstrap,
            group=habits.group,
            topics=habits.topics,
            consumer_id=self._name if habits.static or habits.named else None,
            static=habits.static,
            session_timeout_ms=habits.session_ms,
            max_processing_ms=habits.max_processing_ms,
            auto_commit=not habits.commits,
            on_revoked=self._revoked if habits.commits else None,
            on_lost=self._lost if habits.commits else None,
            client_id=self._name,
            ports=self._ports,
        )

    async def _work(self) -> None:
        records = await self._consumer.poll(self._habits.chunk, POLL_S)
        self._void.clear()  # what went before is not in these records
        consumer_id = self._consumer.group_metadata.consumer_id
        for record in records:
            self._watch.handed_out(self._habits.group, consumer_id, _tp(record), record.offset, record.value or b"")
        for tp, run in _by_partition(records):
            await self._ports.clock.sleep(self._duration_s())
            if self._habits.commits and (tp in self._void or not self._consumer.owns(tp)):
                self._void.add(tp)
                continue
            for record in run:
                self._watch.processed(
                    self._habits.group, consumer_id, tp, record.offset, record.value or b"", asked=self._habits.commits
                )
                self._done[tp] = record.offset + 1
        if self._habits.commits and (not records or self._rand.random() < 0.3):
            await self._commit(list(self._done))

    def _duration_s(self) -> float:
        if self.pace_s is not None:
            return self.pace_s
        if self._rand.random() < self.slow_share:
            return self._habits.session_ms / 1000 * (0.3 + 1.4 * self._rand.random())
        return 0.05 * self._rand.random()

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        await self._commit(partitions)
        self._lost(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._void.update(partitions)
        for tp in partitions:
            self._done.pop(tp, None)

    async def _commit(self, partitions: Sequence[TopicPartition]) -> None:
        """What fails is committed with what comes next, or processed again by the next owner."""
        offsets = {tp: self._done[tp] for tp in partitions if tp in self._done}
        if not offsets or not self._habits.commits:
            return
        try:
            await self._consumer.commit(offsets)
        except (TidelogError, TransportError):
            return
        for tp, offset in offsets.items():
            if self._done.get(tp) == offset:
                del self._done[tp]


class AgentNode(SimNode):
    def __init__(self, world: World, name: str, habits: Habits, watch: GroupWatch) -> None:
        super().__init__(world, name)
        self.habits = habits
        self._watch = watch
        self.agent: Agent | None = None

    @property
    def application(self) -> Agent | None:
        return self.agent

    def hasten(self) -> None:
        """Its application is slow no more, in this life and in those to come; what it is about it still takes its time over."""
        if self.habits.slow_share:
            self.world.tell(f"the application of {self.name} is no longer slow", self.name, mends=True)
        self.habits = replace(self.habits, slow_share=0.0)
        if self.agent is not None:
            self.agent.slow_share = 0.0

    def take(self, seconds: float) -> None:
        """Its application takes so long over what it gets of a partition at once, in this life and in those to come."""
        self.habits = replace(self.habits, pace_s=seconds)
        if self.agent is not None:
            self.agent.pace_s = seconds

    def _launch(self, process: SimProcess) -> None:
        world, life = self.world, f"{self.name}/{self.starts}"
        net, rand = world.network.node(self.name, process), seeded(world.seed, life)
        ports = ClientPorts(self.clock, net, rand, recorder=self._ring())
        bootstrap = [node.address for node in world.brokers]
        agent = Agent(self.name, self.habits, bootstrap, ports, self._watch, seeded(world.seed, f"{life}/work"))
        self.agent = agent
        process.start("agent", agent.run())

    def _forget(self) -> None:
        self.agent = None


def _tp(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def _by_partition(records: Sequence[ConsumerRecord]) -> Iterator[tuple[TopicPartition, list[ConsumerRecord]]]:
    for tp, run in groupby(records, key=_tp):
        yield tp, list(run)
