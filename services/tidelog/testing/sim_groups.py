"""A seeded run of consumer groups: agents that read what a producer writes, while they, their coordinators and the network break.

When everything is healed each group must become stable and process every record (LIVE-5).
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.errors import ClusterUnreachable
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.ports.rand import Rand
from tidelog.testing.group_faults import GroupFaults
from tidelog.testing.group_watch import GroupWatch
from tidelog.testing.invariants import Violation
from tidelog.testing.rand import seeded
from tidelog.testing.sim_agent import AgentNode, Habits
from tidelog.testing.sim_story import HEAL_S, TOPICS, Result, Run
from tidelog.testing.views import stored_states
from tidelog.wire import znodes

GROUPS: Final = {"alpha": 3, "beta": 2}
"""How many agents; the two have different coordinators, mostly on different brokers."""

GROWTH_S: Final = (3.0, 9.0)


class GroupRun(Run):
    FAULT_S = 16.0
    """A group takes seconds to see a fault and to be stable again."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        cluster, rand = self.cluster, seeded(seed, "groups")
        self.watch = GroupWatch(cluster.world, tuple(GROUPS), cluster.observer.reached)
        self.agents: dict[str, list[AgentNode]] = {}
        number = 0
        for group, count in GROUPS.items():
            usual = _drawn(rand, group)
            for _ in range(count):
                number += 1
                habits = replace(usual, static=rand.random() < 0.3, commits=rand.random() < 0.5)
                node = AgentNode(cluster.world, f"agent-{number}", habits, self.watch)
                cluster.nodes[node.name] = node
                self.agents.setdefault(group, []).append(node)

    def _faults(self) -> GroupFaults:
        return GroupFaults(self.cluster)

    def _checks(self) -> Callable[[], None]:
        of_replicas, of_groups = self.cluster.observer.after_step, self.watch.after_step

        def after_step() -> None:
            of_replicas()
            of_groups()

        return after_step

    async def _story(self) -> Result:
        with self.watch.watching():
            self.cluster.start()
            await self._until_created()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                loads = [tasks.create_task(load) for load in (self._produce("producer", "all"), self._grow())]
                await self._break_and_heal(loads)
                await self._until_converged()
                await self._until_processed()
                self._stop.set()
        cluster = self.cluster
        done = sum(self.watch.checker.stage(group, tp)[2] for group in GROUPS for tp in self._partitions)
        observer = cluster.observer
        acked = cluster.checker.acked_count
        return Result(acked, 0, cluster.delivered, self.faults.count, observer.reached, 0, done)

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
        """What keeps a group from being done."""
        tps = sorted(stored_states(self.cluster.zookeeper.dump()))
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
