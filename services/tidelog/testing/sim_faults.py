"""What breaks in a simulated run: drawn from the seed, a random subset of kinds each run (swarm testing), healed at the end."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from tidelog.testing.disk import Crash
from tidelog.testing.sim_cluster import SimCluster, SimNode

_log = logging.getLogger(__name__)

PAUSE_MIN_S: Final = 0.2
PAUSE_MAX_S: Final = 4.0


class Faults:
    """`run` breaks things for a while; `heal` mends everything. `count` says what was done, by kind."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._rand = cluster.rand
        self.count: Counter[str] = Counter()
        self._power_was_lost = False
        kinds: dict[str, Callable[[], bool]] = {
            "kill": self._kill,
            "start": self._start,
            "pause": self._pause,
            "resume": self._resume,
            "cut": self._cut,
            "heal links": self._heal_links,
            "zookeeper link": self._zookeeper_link,
            "unknown outcome": self._unknown_outcome,
            "expire": self._expire,
            "power loss": self._power_loss,
        }
        healing = ("start", "resume", "heal links")
        self._kinds = {k: act for k, act in kinds.items() if k in healing or self._rand.random() < 0.6}

    async def run(self, seconds: float) -> None:
        """A quarter of the draws is quiet, so that the cluster sometimes recovers (reliability 1.8)."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        names = sorted(self._kinds)
        while loop.time() < until:
            await asyncio.sleep(PAUSE_MIN_S + self._rand.random() * (PAUSE_MAX_S - PAUSE_MIN_S))
            if self._rand.random() < 0.25:
                continue
            kind = names[self._rand.randrange(len(names))]
            if self._kinds[kind]():
                self.count[kind] += 1
                self._cluster.check()

    def heal(self) -> None:
        self._cluster.network.heal_all()
        for node in self._cluster.nodes.values():
            if node.running and node.process is not None and node.process.paused:
                node.resume()
            if node.running and node.meta is not None:
                node.meta.heal()
            if not node.running:
                node.start()

    def _pick(self, nodes: list[SimNode]) -> SimNode | None:
        return nodes[self._rand.randrange(len(nodes))] if nodes else None

    def _awake(self) -> list[SimNode]:
        return [n for n in self._cluster.nodes.values() if n.running and n.process is not None and not n.process.paused]

    def _kill(self) -> bool:
        node = self._pick(self._awake())
        if node is None:
            return False
        _log.info("fault: kill %s", node.name)
        node.kill()
        return True

    def _power_loss(self) -> bool:
        """At most one in a run: two at once may lose what was only in memory, which is documented (row 6)."""
        node = self._pick([n for n in self._awake() if n.name.startswith("broker")])
        if node is None or self._power_was_lost:
            return False
        self._power_was_lost = True
        how = Crash.KEEP_SOME if self._rand.random() < 0.5 else Crash.DROP_UNSYNCED
        _log.info("fault: power loss of %s (%s)", node.name, how.name)
        node.kill(how)
        return True

    def _start(self) -> bool:
        node = self._pick([n for n in self._cluster.nodes.values() if not n.running])
        if node is None:
            return False
        _log.info("fault: start %s", node.name)
        node.start()
        return True

    def _pause(self) -> bool:
        node = self._pick(self._awake())
        if node is None:
            return False
        _log.info("fault: pause %s", node.name)
        node.pause()
        return True

    def _resume(self) -> bool:
        paused = [n for n in self._cluster.nodes.values() if n.running and n.process is not None and n.process.paused]
        node = self._pick(paused)
        if node is None:
            return False
        _log.info("fault: resume %s", node.name)
        node.resume()
        return True

    def _cut(self) -> bool:
        names = sorted(self._cluster.nodes)
        one, other = names[self._rand.randrange(len(names))], names[self._rand.randrange(len(names))]
        if one == other:
            return False
        both = self._rand.random() < 0.5
        _log.info("fault: cut %s %s %s", one, "<->" if both else "->", other)
        self._cluster.network.cut(one, other)
        if both:
            self._cluster.network.cut(other, one)
        return True

    def _heal_links(self) -> bool:
        self._cluster.network.heal_all()
        for node in self._awake():
            if node.meta is not None:
                node.meta.heal()
        return True

    def _zookeeper_link(self) -> bool:
        node = self._pick(self._awake())
        if node is None or node.meta is None:
            return False
        _log.info("fault: cut %s from ZooKeeper", node.name)
        node.meta.cut()
        return True

    def _unknown_outcome(self) -> bool:
        node = self._pick(self._awake())
        if node is None or node.meta is None:
            return False
        applied = self._rand.random() < 0.5
        _log.info("fault: the next write of %s gets no answer (%s)", node.name, "applied" if applied else "lost")
        node.meta.lose_next_answer(applied=applied)
        return True

    def _expire(self) -> bool:
        node = self._pick(self._awake())
        if node is None or node.meta is None or not node.meta.session_id:
            return False
        if node.meta.session_id not in self._cluster.zookeeper.live_sessions:
            return False
        _log.info("fault: expire the session of %s", node.name)
        self._cluster.zookeeper.expire(node.meta.session_id)
        return True
