"""A seeded run of consumer groups: agents that read what a producer writes, while they, their coordinators and the network break.

When everything is healed each group must become stable and process every record. In half of the runs the groups also
read a topic that is deleted and made anew again and again: of the last one of its name, too, they must process every record.
"""

import asyncio
from dataclasses import replace
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.producer import Producer
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.ports.rand import Rand
from tidelog.testing import goals
from tidelog.testing.clock import SimClock
from tidelog.testing.group_faults import GroupFaults
from tidelog.testing.group_watch import RENEWED, GroupWatch
from tidelog.testing.invariants import Violation
from tidelog.testing.rand import seeded
from tidelog.testing.sim_agent import AgentNode, Habits
from tidelog.testing.sim_edges import DRIFT
from tidelog.testing.sim_story import HEAL_S, TOPICS, Result, Run, Watch, within
from tidelog.testing.views import stored_states
from tidelog.wire import znodes

GROUPS: Final = {"alpha": 3, "beta": 2}
"""How many agents; the two have different coordinators, mostly on different brokers."""

GROWTH_S: Final = (3.0, 9.0)


class GroupRun(Run):
    FAULT_S = 16.0
    """A group takes seconds to see a fault and to be stable again."""

    RETURNS = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        cluster, rand = self.cluster, seeded(seed, "groups")
        self._lives = seeded(seed, "lives")
        self._drifts = seeded(seed, "drifts")
        self.renews = self._lives.random() < 0.5
        self._life: tuple[bytes, frozenset[bytes]] = (b"", frozenset())
        """Id of the last topic that was made anew, and what was acknowledged of it."""
        for each in cluster.nodes.values():
            each.clock = self._clock()
        self.watch = GroupWatch(cluster.world, tuple(GROUPS), cluster.observer.reached)
        self.agents: dict[str, list[AgentNode]] = {}
        number = 0
        for group, count in GROUPS.items():
            usual = _drawn(rand, group)
            if self.renews:
                usual = replace(usual, topics=(*usual.topics, RENEWED))
            for _ in range(count):
                number += 1
                habits = replace(usual, static=rand.random() < 0.3, commits=rand.random() < 0.5)
                node = AgentNode(cluster.world, f"agent-{number}", habits, self.watch)
                node.clock = self._clock()
                cluster.nodes[node.name] = node
                self.agents.setdefault(group, []).append(node)

    def _clock(self) -> SimClock:
        """A host's clock, mostly at the largest difference that leases allow for."""
        return SimClock(drift=DRIFT * (-1, -1, 0, 1, 1)[self._drifts.randrange(5)])

    def _faults(self) -> GroupFaults:
        return GroupFaults(self.cluster)

    def _watches(self) -> tuple[Watch, ...]:
        return *super()._watches(), self.watch

    async def _story(self) -> Result:
        self.cluster.start()
        await self._until_created()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            load = [self._produce("producer", "all"), self._grow(), *([self._renew()] if self.renews else ())]
            loads = [tasks.create_task(each) for each in load]
            await self._break_and_heal(loads)
            vetoed = await self._until_converged()
            await self._until_processed()
            self._stop.set()
        async with within(HEAL_S, "the last read did not end"):
            read = await self._final_read(vetoed)
        cluster = self.cluster
        done = sum(self.watch.checker.stage(group, tp)[2] for group in GROUPS for tp in self._partitions)
        observer = cluster.observer
        acked = cluster.history.acked_count
        return Result(acked, read, cluster.delivered, self.faults.count, observer.reached, len(cluster.vetoed()), done)

    async def _grow(self) -> None:
        """A topic gets a partition, which the groups find by themselves."""
        low, high = GROWTH_S
        await asyncio.sleep(low + (high - low) * seeded(self.seed, "growth").random())
        topic, total = "events", sum(tp.topic == "events" for tp in self._partitions) + 1
        admin = Admin(self.cluster.bootstrap, ports=self.cluster.client_ports("growth"))
        async with admin:
            while not self._idle.is_set():
                try:
                    if len((await admin.describe_topic(topic)).partitions) < total:
                        await admin.create_partitions(topic, total)
                    self._partitions.append(TopicPartition(topic, total - 1))
                    return
                except (TidelogError, TransportError, ClusterUnreachable, TimeoutError):
                    await asyncio.sleep(0.5)

    async def _renew(self) -> None:
        """A topic that the groups read is deleted and made anew, with more records or fewer, now and then without coordinator."""
        ports, request_ms = self.cluster.client_ports("lives"), self.cluster.timing.request_ms
        admin = Admin(self.cluster.bootstrap, ports=ports)
        producer = Producer(
            self.cluster.bootstrap, ports=ports, request_timeout_ms=request_ms, delivery_timeout_ms=4 * request_ms
        )
        async with admin, producer:
            while not self._idle.is_set():
                try:
                    await self._live_once(admin, producer)
                    await asyncio.sleep(0.5 + 3 * self._lives.random())
                except (TidelogError, TransportError, ClusterUnreachable, TimeoutError):
                    await asyncio.sleep(0.3)

    async def _live_once(self, admin: Admin, producer: Producer) -> None:
        self._life = (b"", frozenset())
        if self._lives.random() < 0.4 and isinstance(self.faults, GroupFaults):
            self.faults.kill_coordinator()
        try:
            await admin.delete_topic(RENEWED)
        except TidelogError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        await admin.create_topic(RENEWED, 2, 3, configs={"min.insync.replicas": "2"})
        await admin.wait_until_led(RENEWED, in_sync=True)
        topic_id, count = self._topic_id(), 10 + self._lives.randrange(80)
        values = [b"%b-%d" % (topic_id.hex().encode(), number) for number in range(count)]
        offsets = await asyncio.gather(
            *(self._send_to(producer, RENEWED, number % 2, value) for number, value in enumerate(values))
        )
        acked = frozenset(value for value, offset in zip(values, offsets, strict=True) if offset >= 0)
        if topic_id == self._topic_id():
            self._life = (topic_id, acked)
            self.cluster.observer.reached[goals.RENEWED] += 1

    def _topic_id(self) -> bytes:
        node = self.cluster.zookeeper.find(znodes.topic_path(RENEWED))
        return b"" if node is None else znodes.decode_topic(RENEWED, node.data).topic_id

    async def _until_processed(self) -> None:
        """LIVE-5."""
        now = asyncio.get_running_loop().time
        while missing := self._missing():
            if now() > self._healed_s + HEAL_S:
                raise Violation(f"LIVE-5: {HEAL_S:.0f} s after healing {missing}")
            self.cluster.tend()
            for node in (node for nodes in self.agents.values() for node in nodes if node.dead):
                node.start()
            await asyncio.sleep(0.5)

    def _missing(self) -> str:
        """Returns why a group is not done; "" if all are. Partitions that rightly have no leader do not count."""
        vetoed = self.cluster.vetoed()
        tps = sorted(
            tp for tp in stored_states(self.cluster.zookeeper.dump()) if tp.topic != RENEWED and tp not in vetoed
        )
        for group, nodes in self.agents.items():
            node = self.cluster.zookeeper.find(znodes.group_path(group))
            if node is None:
                return f"{group} is not stored"
            head, members = znodes.decode_head(group, node.data), self._members(group)
            if head.phase != "stable" or len(members) != len(nodes):
                return f"{group} is {head.phase} with members {sorted(members)}"
            for tp in tps:
                owner, committed, done = self.watch.checker.stage(group, tp)
                end = self.cluster.end(tp)
                if owner not in members or not committed == done == end:
                    return f"{group} {tp} of {owner or 'nobody'} is committed to {committed}, done to {done} of {end}"
            topic_id, acked = self._life
            is_led = not any(tp.topic == RENEWED for tp in vetoed)
            if is_led and topic_id == self._topic_id() and (left := acked - self.watch.read[group]):
                return f"{group} has not processed {len(left)} of {len(acked)} records of {RENEWED}, like {min(left)!r}"
        return ""

    def _members(self, group_id: str) -> list[str]:
        """Of a stable group, as its coordinator knows them."""
        for node in self.cluster.brokers:
            found = node.broker.coordinators if node.running and node.broker is not None else None
            term = None if found is None else found.term_of(group_id)
            group = None if term is None or not term.acting else term.machine.groups.get(group_id)
            if group is not None and group.state == "Stable":
                return [member.consumer_id for member in group.members.values() if member.present]
        return []


def _drawn(rand: Rand, group: str) -> Habits:
    def one_of(*choices: int) -> int:
        return choices[rand.randrange(len(choices))]

    return Habits(
        group=group,
        topics=tuple(TOPICS),
        session_ms=one_of(1_500, 2_500, 5_000),
        static=False,
        commits=False,
        slow_share=one_of(0, 5, 20) / 100,
        chunk=one_of(5, 50, 500),
        max_processing_ms=one_of(6_000, 60_000),
    )
