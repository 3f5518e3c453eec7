"""ZooKeeper comes back with an older copy of its state: a last act of some runs, after the verdict on all else.

It breaks promises that hold otherwise: what was acknowledged after the copy may be hidden. These are left:

* No record is deleted. A replica that the copy does not know is set aside, with every byte that it had.
* A partition whose leader epoch did not fall is led again, with every replica in sync. An order for one whose epoch fell fails
  for it alone. A partition need not be led if a member of its in-sync set has moved away since, and its log is deleted.
* A broker that has registered after the copy, or written its witness, notices that it is older.
* Every record that was acknowledged before the copy is read, where the partition is led again. Excepted are partitions with a
  member in sync that has moved away since, if its broker does not notice the older copy before it is told to lead: that member
  may lead with an empty log. A broker looks when it registers. One that runs on may have a session that the copy knows, too.
"""

import asyncio
from collections.abc import Mapping, Set
from functools import partial
from typing import Final

from tidelog.broker.past_guard import WITNESS_S
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.ids import TopicPartition
from tidelog.storage.checkpoint import LogKey
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.testing import goals
from tidelog.testing.invariants import Violation
from tidelog.testing.meta import Copy
from tidelog.testing.rand import seeded
from tidelog.testing.sim_breaking import Breaking
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import ZOOKEEPER, SimNode
from tidelog.testing.views import stored_states
from tidelog.wire import znodes

SHARE: Final = 0.25
"""Share of the runs with this act."""

Files = Mapping[str, bytes]
"""Segments of a log, by name."""


class OlderCopy(Breaking):
    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster, seeded(cluster.seed, "older copy"))
        self.drawn = self._rand.random() < SHARE
        self._waits = seeded(cluster.seed, "witness").random() < 0.5
        """Until every broker has written its witness after the copy."""
        self._copy: Copy | None = None
        self._acked: Mapping[TopicPartition, Mapping[int, bytes]] = {}

    def take_within(self, seconds: float) -> None:
        """Takes the copy at some time from now on."""
        self._later(self._between(0.0, seconds), self._take)

    def _take(self) -> None:
        self._say("a copy of the state of ZooKeeper is taken")
        self._copy = self._cluster.zookeeper.copy()
        self._acked = self._cluster.history.promised()

    async def play(self, limit_s: float) -> dict[TopicPartition, Mapping[int, bytes]]:
        """Returns what is to be read in each partition that is led again."""
        assert self._copy is not None
        copy, cluster = self._copy, self._cluster
        if self._waits:
            await asyncio.sleep(2 * WITNESS_S)
        self.count["older copy of ZooKeeper"] += 1
        marked = {path.rpartition("/")[2] for path in copy.nodes if path.startswith(f"{znodes.DELETE_TOPICS}/")}
        gone = {*marked, *cluster.zookeeper.below(znodes.DELETE_TOPICS)}
        logs = ((node, key, files) for node in cluster.brokers for key, files in _logs(node).items())
        before = {(node, key): files for node, key, files in logs if key.topic not in gone and any(files.values())}
        behind = self._behind(copy)
        knowing = [node for node in cluster.brokers if self._waits or _broker_epoch(node) > copy.zxid]
        bare = self._bare(copy)
        restarted = await self._return_to(copy)
        early = {node.number for node in knowing} if restarted else set()
        promised = {tp: records for tp, records in self._acked.items() if early.issuperset(bare.get(tp, ()))}
        await self._until_led(frozenset(behind | bare.keys()), limit_s)
        self._check_logs(before, self._moved(copy))
        for node in knowing:
            if not _manager(node).another_past:
                raise Violation(f"older copy: {node.name} had written its witness after it, and does not notice it")
        whole = cluster.whole()
        offline = {host.tp for node in cluster.brokers for host in node.hosts() if host.offline is not None}
        cluster.observer.reached[goals.FELL] += len(behind & offline)
        return {tp: records for tp, records in promised.items() if tp in whole}

    @staticmethod
    def check_read(tp: TopicPartition, promised: Mapping[int, bytes], read: Mapping[int, bytes]) -> None:
        for offset, value in promised.items():
            if read.get(offset) != value:
                raise Violation(
                    f"older copy: {tp} {offset} was acknowledged as {value!r} before it, and is {read.get(offset)!r}"
                )

    def _behind(self, copy: Copy) -> set[TopicPartition]:
        """Partitions of the copy whose logs have seen a later leader epoch."""
        states = stored_states(copy.nodes)
        found = set()
        for node in self._cluster.brokers:
            for host in node.hosts():
                stored = states.get(host.tp)
                epoch = max(host.log.epochs.latest_epoch, host.replica.leader_epoch)
                if stored is not None and stored.topic_id == host.topic_id and stored.leader_epoch < epoch:
                    found.add(host.tp)
        return found

    def _bare(self, copy: Copy) -> dict[TopicPartition, set[int]]:
        """Members of the copy's in-sync sets that have no log of the partition any more."""
        held: set[tuple[int, LogKey]] = set()
        for node in self._cluster.brokers:
            manager = _manager(node)
            logs = (
                log.key for log in manager.stored().values() if log.log_end_offset > 0 or log.epochs.latest_epoch >= 0
            )
            held.update((node.number, key) for key in (*logs, *(stray.key for stray in manager.strays)))
        found = {}
        for tp, stored in stored_states(copy.nodes).items():
            key = LogKey(tp.topic, tp.partition, stored.topic_id)
            if bare := {broker for broker, _ in stored.isr if (broker, key) not in held}:
                found[tp] = bare
        self._cluster.observer.reached[goals.MOVED_AWAY] += len(found)
        return found

    async def _return_to(self, copy: Copy) -> bool:
        """All hosts stop with ZooKeeper's servers: True. Or only those stop, and an operator restarts all processes later: a
        client that has seen a later state finds no server."""
        zookeeper, nodes = self._cluster.zookeeper, self._shuffled(list(self._cluster.nodes.values()))
        alone = self._maybe()
        if not alone:
            for node in nodes:
                self._kill(node)
        self._stop_zookeeper()
        await asyncio.sleep(self._between(0.0, 3.0))
        zookeeper.return_to(copy, zxid=zookeeper.zxid + 1 if self._maybe() else 0)
        self._say("zookeeper comes up with the older copy of its state", ZOOKEEPER)
        zookeeper.start()
        at = 0.0
        for node in nodes:
            if alone:
                self._later(at, partial(self._kill, node))
            at += self._between(0.0, 1.0)
            self._later(at, partial(self._start_one, node))
        await asyncio.sleep(at)
        return not alone

    def _kill(self, node: SimNode) -> None:
        if not node.dead:
            node.kill()

    async def _until_led(self, behind: frozenset[TopicPartition], limit_s: float) -> None:
        cluster, now = self._cluster, asyncio.get_running_loop().time
        begun = now()
        while not (self._told() and cluster.converged(except_for=cluster.vetoed() | behind)):
            if now() > begun + limit_s:
                raise Violation(f"older copy: no convergence within {limit_s:.0f} s: {cluster.describe()}")
            await asyncio.sleep(0.5)

    def _told(self) -> bool:
        """Each broker knows of all its replicas."""
        states = stored_states(self._cluster.zookeeper.dump())
        told = {node.number: {host.tp for host in node.hosts()} for node in self._cluster.brokers}
        return all(tp in told[broker] for tp, stored in states.items() for broker in stored.replicas)

    def _moved(self, copy: Copy) -> set[tuple[int, TopicPartition]]:
        """Replicas of the copy, by broker, that have moved away since: a move that it names, or a drained broker, goes on."""
        states = stored_states(self._cluster.zookeeper.dump())
        return {
            (broker, tp)
            for tp, stored in stored_states(copy.nodes).items()
            for broker in stored.replicas
            if tp in states and broker not in states[tp].replicas
        }

    def _check_logs(
        self, before: Mapping[tuple[SimNode, LogKey], Files], moved: Set[tuple[int, TopicPartition]]
    ) -> None:
        for (node, key), files in before.items():
            stray = _manager(node).strays.find(key)
            if stray is None:
                if key not in _logs(node) and (node.number, TopicPartition(key.topic, key.partition)) not in moved:
                    raise Violation(f"older copy: {node.name} has no log of {key} any more")
            elif (found := _segments(node, stray.folder)) != files:
                raise Violation(
                    f"older copy: the stray of {key} on {node.name} has {list(found)}, the log had {list(files)}"
                )
            else:
                self._cluster.observer.reached[goals.SET_ASIDE] += 1


def _broker_epoch(node: SimNode) -> int:
    registration = None if node.broker is None else node.broker.registration
    return -1 if registration is None else registration.broker_epoch


def _manager(node: SimNode) -> ReplicaManager:
    assert node.broker is not None and node.broker.manager is not None
    return node.broker.manager


def _logs(node: SimNode) -> dict[LogKey, Files]:
    return {log.key: _segments(node, log.folder) for log in _manager(node).stored().values()}


def _segments(node: SimNode, folder: str) -> Files:
    disk = node.disk
    return {e.name: disk.read(f"{folder}/{e.name}") for e in disk.list_dir(folder) if e.name.endswith(LOG_SUFFIX)}
