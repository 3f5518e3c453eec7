"""What breaks in a simulated run: drawn from the seed, a random subset of kinds each run (swarm testing), healed at the end.

Periods differ in their pace, and a quarter of them is quiet and mended, so that the cluster sometimes recovers and what
breaks next finds it in another state (reliability 1.8, 4.4). Faults are bounded, healing is not.
"""

import asyncio
import errno
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final

from tidelog.testing import goals
from tidelog.testing.bit_rot import BitRot
from tidelog.testing.disk import Crash, SimDisk
from tidelog.testing.meta import SimMeta
from tidelog.testing.net_exchange import Faults as LinkFaults
from tidelog.testing.sim_breaking import Breaking
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import ZOOKEEPER, SimNode
from tidelog.testing.slow_disks import SlowDisks
from tidelog.testing.znode_damage import ZnodeDamage
from tidelog.wire import znodes

PERIOD_S: Final = (2.0, 6.0)
PACES_S: Final = (0.08, 0.3, 1.0, 2.0)
"""Mean time between two faults of a period."""

POWER_LOSSES_MAX: Final = 2
"""Each may leave a partition vetoed for the rest of the run."""

WEIGHTS: Final = {
    "elections": 5,
    "late commands": 2,
    "resets": 2,
    "flapping link": 4,
    "restart": 2,
    "pause": 2,
    "damaged znode": 3,
    "bit rot": 3,
    "last replica": 4,
    "second process": 6,
}
"""How often a kind is drawn, where more often than others: fences of leader epochs and of versions are tested by nothing else."""

_FAILING: Final = ("append", "sync", "append", "truncate", "pread")
_HOUR_MS: Final = 3_600_000


def _weighted(kinds: Sequence[str]) -> list[str]:
    return [kind for kind in kinds for _ in range(WEIGHTS.get(kind, 1))]


class Faults(Breaking):
    """`run` breaks things for a while; `heal` mends everything."""

    DAMAGE_SHARE: ClassVar[float] = 0.2
    """Share of the runs in which znodes are damaged."""

    ROT_SHARE: ClassVar[float] = 0.4
    """Share of the runs in which files rot."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster, cluster.world.rand)
        self._power_losses = 0
        self._elections_until = 0.0
        breaking = self._breaking()
        names = self._drawn(list(breaking))
        self.kinds = {kind: breaking[kind] for kind in breaking if kind in names}
        self._znodes = ZnodeDamage(cluster, self.DAMAGE_SHARE)
        if self._znodes.drawn:
            self.kinds["damaged znode"] = self._znodes.damage
        self._slow_disks = SlowDisks(cluster)
        if self._slow_disks.drawn:
            self.kinds["slow disk"] = self._slow_disks.strike
        self.rot = BitRot(cluster, self.ROT_SHARE)
        if self.rot.drawn:
            self.kinds["bit rot"] = self.rot.strike
        self._mending = (self._start, self._heal_links)

    def _breaking(self) -> dict[str, Callable[[], bool]]:
        """All kinds."""
        return {
            "kill": self._kill,
            "bounce": self._bounce,
            "terminate": self._terminate,
            "restart": self._restart,
            "pause": self._pause,
            "cut": self._cut,
            "isolate": self._isolate,
            "swizzle": self._swizzle,
            "late commands": self._late_commands,
            "bad network": self._bad_network,
            "slow link": self._slow_link,
            "flapping link": self._flapping_link,
            "resets": self._resets,
            "zookeeper link": self._zookeeper_link,
            "zookeeper outage": self._zookeeper_outage,
            "unknown outcome": self._unknown_outcome,
            "failover in a multi": self._failover_in_a_multi,
            "controller moved": self._move_controller,
            "expire": self._expire,
            "elections": self._elections,
            "power loss": self._power_loss,
            "power loss in a write": self._power_loss_in_a_write,
            "disk error": self._disk_error,
            "disk full": self._disk_full,
            "wall clock": self._wall_clock,
        }

    def _drawn(self, kinds: Sequence[str]) -> Sequence[str]:
        """Half of all, or in a third of the runs a few: what one kind leads to over several steps is not disturbed there."""
        if self._rand.random() < 2 / 3:
            return [kind for kind in kinds if self._rand.random() < 0.5]
        tickets = _weighted(kinds)
        return [self._one_of(tickets) for _ in range(1 + self._rand.randrange(3))]

    async def run(self, until: Callable[[], bool]) -> None:
        """Period after period, as long as `until` is false."""
        names = _weighted(sorted(self.kinds))
        loop = asyncio.get_running_loop()
        while not until():
            period_ends = loop.time() + self._between(*PERIOD_S)
            pace = self._one_of(PACES_S)
            quiet = not names or self._rand.random() < 0.25
            if quiet:
                self._mend()
            while loop.time() < period_ends and not until():
                await asyncio.sleep(self._between(0.2, 1.8) * pace)
                if quiet:
                    continue
                if self._rand.random() < 0.4:
                    self._one_of(self._mending)()
                    continue
                kind = self._one_of(names)
                if self.kinds[kind]():
                    self.count[kind] += 1

    def heal(self) -> None:
        """Nothing breaks any more, and everything that is broken is mended; a host whose disk failed starts anew."""
        self._over = True
        self._mend()
        for node in self._cluster.nodes.values():
            if node.disk.stop_after is not None:
                self._say(f"the host of {node.name} is not to lose power any more", node.name, mends=True)
            node.disk.stop_after = node.disk.on_power_cut = None
            if node.excused and node.running and not node.terminating:
                node.kill()
                node.start()

    def _mend(self) -> None:
        self._znodes.heal()
        self._heal_all()
        self._calm()
        self._slow_disks.heal()
        self._start_zookeeper()
        for node in self._cluster.nodes.values():
            self._mend_disk(node, node.disk)
            self._set_wall_clock(node, 0)
            if node.running and node.process is not None and node.process.paused:
                node.resume()
            if node.running:
                node.heal_zookeeper()
            if node.dead:
                node.start()

    def _awake(self, brokers_only: bool = False) -> list[SimNode]:
        nodes = self._cluster.brokers if brokers_only else list(self._cluster.nodes.values())
        return [n for n in nodes if n.running and not n.terminating and n.process is not None and not n.process.paused]

    def _pick(self, nodes: Sequence[SimNode]) -> SimNode | None:
        return self._one_of(nodes) if nodes else None

    # -- processes ---------------------------------------------------------------------------------------------------

    def _kill(self) -> bool:
        node = self._pick(self._awake())
        if node is None:
            return False
        node.kill()
        return True

    def _bounce(self) -> bool:
        """Gone and back before its session has ended (row 25); a third of them with a loss of power."""
        node = self._pick(self._awake())
        if node is None:
            return False
        crash = self._crash() if self._rand.random() < 0.35 else Crash.PROCESS
        node.kill(crash)
        self._later(self._between(0.0, 0.4), lambda: self._start_one(node))
        return True

    def _terminate(self) -> bool:
        node = self._pick(self._awake())
        if node is None:
            return False
        node.terminate()
        return True

    def _restart(self) -> bool:
        """SIGTERM, and up again as soon as it has ended (row 24); some hosts lose power soon after (KAFKA-10471)."""
        node = self._pick(self._awake())
        if node is None:
            return False
        process, strikes = node.process, self._rand.random() < 0.5
        node.terminate()

        def again() -> None:
            if node.process is not process:
                return
            if not node.dead:
                self._later(0.1, again)
                return
            if strikes and node in self._cluster.brokers:
                node.cut_power_soon(1 + self._rand.randrange(60), self._crash())
            self._start_one(node)

        self._later(0.1, again)
        return True

    def _start(self) -> bool:
        node = self._pick([n for n in self._cluster.nodes.values() if n.dead])
        if node is None:
            return False
        self._start_one(node)
        return True

    def _pause(self) -> bool:
        node = self._pick(self._awake())
        if node is None:
            return False
        session_s = self._cluster.timing.session_ms / 1000
        return self._pause_for(node, self._between(0.1, 1.0) if self._maybe() else self._between(0.5, 2.0) * session_s)

    def _pause_for(self, node: SimNode, seconds: float) -> bool:
        node.pause()
        process = node.process

        def resume() -> None:
            if node.process is process and node.running and process is not None and process.paused:
                node.resume()

        self._later(seconds, resume)
        return True

    # -- the network -------------------------------------------------------------------------------------------------

    def _cut(self) -> bool:
        names = sorted(self._cluster.nodes)
        one, other = self._one_of(names), self._one_of(names)
        if one == other:
            return False
        both = self._maybe()
        seconds = self._between(0.1, 8.0)
        self._cut_for(seconds, (one, other), *([(other, one)] if both else ()))
        return True

    def _isolate(self) -> bool:
        """From all other nodes, and half of the times from ZooKeeper too; clients still reach it (rows 13, 16)."""
        node = self._pick(self._awake(brokers_only=True))
        if node is None:
            return False
        seconds = self._between(0.3, 8.0)
        others = [other for other in sorted(self._cluster.nodes) if other != node.name]
        self._cut_for(seconds, *(ends for other in others for ends in ((node.name, other), (other, node.name))))
        if self._maybe():
            node.cut_zookeeper()
            self._later(seconds, node.heal_zookeeper)
        return True

    def _swizzle(self) -> bool:
        """The links of a random subset stop one by one and come back in a random order (reliability 4.1)."""
        names = sorted(self._cluster.nodes)
        chosen = [name for name in names if self._maybe()]
        links = [(a, b) for a in chosen for b in names if a != b]
        if not links:
            return False
        step = self._between(0.02, 0.3)
        stop, back = self._shuffled(links), self._shuffled(links)
        for number, ends in enumerate(stop):
            self._later(number * step, partial(self._cut_links, ends))
        for number, ends in enumerate(back):
            self._later((len(links) + number) * step, partial(self._heal, ends))
        return True

    def _late_commands(self) -> bool:
        """What the controllers tell one broker comes late, while it goes on to talk with the others; or what they say to each
        other takes its time, overtakes and repeats itself."""
        node = self._one_of(self._cluster.brokers)
        if self._maybe():
            seconds = self._between(0.2, 3.5)
            self._cut_for(seconds, *((controller.name, node.name) for controller in self._cluster.controllers))
            return True
        seconds = self._late_requests(node)
        for controller in self._cluster.controllers:
            self._slow_down(controller.name, node.name, seconds)
        return True

    def _late_requests(self, node: SimNode) -> float:
        """Up to how many seconds late; longer than the caller waits, too: what it has given up may still be acted on."""
        seconds = self._between(0.3, 1.5) * self._cluster.timing.request_ms / 1000
        for controller in self._cluster.controllers:
            self._slow_down(node.name, controller.name, seconds)
        return seconds

    def _slow_down(self, source: str, target: str, seconds: float) -> None:
        """For a while, with half of the requests sent twice."""
        faults = LinkFaults(delay_s=(0.0, seconds), tail=self._one_of((1, 3)), duplicate=0.5)
        self._disturb_for(source, target, faults, self._between(1.0, 4.0) * seconds)

    def _bad_network(self) -> bool:
        """Some seconds of loss, duplication and delay on all links (rows 27, 28)."""
        faults = LinkFaults(
            delay_s=self._one_of(((0.0001, 0.002), (0.001, 0.05), (0.0, 0.4))),
            loss=self._one_of((0.0, 0.005, 0.03)),
            duplicate=self._one_of((0.0, 0.05, 0.3)),
        )
        text = f"messages take up to {faults.delay_s[1]:g} s, {faults.loss:.1%} are lost, {faults.duplicate:.0%} are repeated"
        self._say(text, *self._cluster.world.everything)
        self._cluster.network.disturb(faults)
        self._later(self._between(0.5, 4.0), self._calm)
        return True

    def _calm(self) -> None:
        network, usual = self._cluster.network, LinkFaults()
        if any(faults != usual for faults in (network.link_faults, *(link.faults for link in network.disturbed()))):
            self._say("messages of all links are as usual", *self._cluster.world.everything, mends=True)
        network.disturb(usual)

    def _slow_link(self) -> bool:
        """One direction between two nodes holds messages for seconds, and repeats requests."""
        names = sorted(self._cluster.nodes)
        one, other = self._one_of(names), self._one_of(names)
        self._slow_down(one, other, self._between(0.2, 2.5))
        return True

    def _flapping_link(self) -> bool:
        """Two brokers lose each other for about as long as a lag is borne, again and again: an ISR that shrinks and grows,
        half of the times while one of them, who may lead, reaches the controllers late and twice."""
        brokers = list(self._cluster.brokers)
        one, other = (brokers.pop(self._rand.randrange(len(brokers))) for _ in range(2))
        if self._maybe():
            self._late_requests(one)
        lag_s, at = self._cluster.timing.lag_ms / 1000, 0.0
        for _ in range(2 + self._rand.randrange(5)):
            away_s = self._between(0.5, 2.0) * lag_s
            self._later(at, partial(self._cut_for, away_s, (one.name, other.name), (other.name, one.name)))
            at += away_s + self._between(0.1, 1.0)
        return True

    def _resets(self) -> bool:
        """The connections of some nodes break again and again (row 28), so positions are stated anew each time."""
        step, names = self._between(0.05, 0.4), sorted(self._cluster.nodes)
        struck = [self._one_of(names) for _ in range(3 + self._rand.randrange(12))]
        for number, name in enumerate(struck):
            self._later(number * step, partial(self._reset, name))
        return True

    def _reset(self, name: str) -> None:
        if self._cluster.network.reset(name):
            self._say(f"connections of {name} break", name)

    def _heal_links(self) -> bool:
        self._heal_all()
        for node in self._awake():
            node.heal_zookeeper()
        return True

    # -- ZooKeeper ---------------------------------------------------------------------------------------------------

    def _zookeeper_link(self) -> bool:
        node = self._pick(self._awake())
        if node is None:
            return False
        seconds = self._between(0.2, 8.0)
        node.cut_zookeeper()
        self._later(seconds, node.heal_zookeeper)
        return True

    def _zookeeper_outage(self) -> bool:
        """The ensemble has no quorum for a while; nobody's session expires meanwhile (row 21)."""
        if not self._cluster.zookeeper.running:
            return False
        self._stop_zookeeper()
        self._later(self._between(0.2, 6.0), self._start_zookeeper)
        return True

    def _start_zookeeper(self) -> None:
        if not self._cluster.zookeeper.running:
            self._say("zookeeper comes up", ZOOKEEPER, mends=True)
            self._cluster.zookeeper.start()

    def _unknown_outcome(self) -> bool:
        node = self._pick(self._awake())
        if node is None or node.meta is None:
            return False
        applied = self._maybe()
        if node.controller is not None and node.controller.active:
            # Not one of its lease's writes, which come far more often.
            node.meta.lose_next_multi(applied=applied, then=lambda: None)
        else:
            node.meta.lose_next_answer(applied=applied)
        what = "applied" if applied else "lost"
        return self._say(f"the next write of {node.name} to zookeeper gets no answer ({what})", node.name)

    def _failover_in_a_multi(self) -> bool:
        """The active controller writes, and in the middle of it loses its process, its session or only the answer."""
        active = [n for n in self._awake() if n.controller is not None and n.controller.active]
        node = self._pick(active)
        if node is None or node.meta is None:
            return False
        meta, process, how = node.meta, node.process, self._rand.randrange(3)

        def strike() -> None:
            if self._over or node.process is not process or not node.running:
                return
            self._cluster.observer.reached[goals.FAILOVER] += how < 2
            self._say(f"{node.name} loses {what} in its multi", node.name)
            if how == 0:
                node.kill()
            elif how == 1:
                self._expire_session(node, meta)

        what = ("its process", "its session", "the answer")[how]
        meta.lose_next_multi(applied=self._maybe(), then=strike)
        return self._say(f"{node.name} is to lose {what} in its next multi", node.name)

    def _move_controller(self) -> bool:
        """An operator deletes /controller: another is elected while the old one still holds its lease (HOLE-11)."""
        self._remove(znodes.CONTROLLER)
        if self._maybe():
            self._later(self._between(0.0, 0.3), partial(self._expire_one, self._one_of(self._cluster.brokers)))
        return True

    def _expire(self) -> bool:
        node = self._pick(self._awake())
        return node is not None and self._expire_one(node)

    def _expire_one(self, node: SimNode) -> bool:
        return node.meta is not None and self._expire_session(node, node.meta)

    def _expire_session(self, node: SimNode, meta: SimMeta, of: str = "") -> bool:
        if meta.session_id not in self._cluster.zookeeper.live_sessions:
            return False
        self._say(f"the ZooKeeper session {of}of {node.name} expires", node.name)
        self._cluster.zookeeper.expire(meta.session_id)
        return True

    def _elections(self) -> bool:
        """Several sessions end one shortly after the other: leaders change faster than everybody can be told. Or one session
        ends, whose broker may soon lead again, and another broker hears of none of it for a while, but goes on to state its
        positions. Somebody who may lead next has not got the last records."""
        now = asyncio.get_running_loop().time()
        if now < self._elections_until:
            return False  # one after the other: what the last one led to is still under way
        brokers = self._shuffled(self._cluster.brokers)[:3]
        behind, since_s = brokers[0], self._between(0.0, 0.5)
        self._cut_for(since_s + 0.01, *((other.name, behind.name) for other in brokers[1:]))
        if self._maybe():
            _, leaves, deaf = brokers
            seconds = self._between(1.0, 5.0)
            self._elections_until = now + seconds
            self._deafen(deaf, seconds)
            self._later(since_s, partial(self._expire_one, leaves))
            return True
        step, ends = self._between(0.02, 1.0), 2 + self._rand.randrange(4)
        self._elections_until = now + since_s + ends * step
        for number in range(ends):
            self._later(since_s + number * step, partial(self._expire_one, self._one_of(brokers)))
        return True

    def _deafen(self, node: SimNode, seconds: float) -> None:
        """What the controllers tell it comes late; its connections break, so that it states its positions anew."""
        for controller in self._cluster.controllers:
            self._disturb_for(controller.name, node.name, LinkFaults(delay_s=(seconds, seconds)), seconds)
        for _ in range(self._rand.randrange(16)):
            self._later(self._between(0.0, seconds), partial(self._reset, node.name))

    # -- power and disks ---------------------------------------------------------------------------------------------

    def _crash(self) -> Crash:
        """A process's death once the power losses of this run are used up."""
        if self._power_losses >= POWER_LOSSES_MAX:
            return Crash.PROCESS
        self._power_losses += 1
        return Crash.KEEP_SOME if self._maybe() else Crash.DROP_UNSYNCED

    def _power_loss(self) -> bool:
        node = self._pick(self._awake(brokers_only=True))
        if node is None:
            return False
        node.kill(self._crash())
        return True

    def _power_loss_in_a_write(self) -> bool:
        """At any write to the disk, also one of a start, half of the times of one that begins now."""
        node = self._one_of(self._cluster.brokers)
        if node.disk.stop_after is not None:
            return False
        if self._maybe() and node.running and not node.terminating:
            node.kill()
        node.cut_power_soon(1 + self._rand.randrange(30), self._crash())
        self._start_one(node)
        return True

    def _disk_error(self) -> bool:
        node = self._pick(self._awake(brokers_only=True))
        if node is None:
            return False
        node.excused = True
        node.harm()
        op = self._one_of(_FAILING)
        path = self._one_of(("", "events", "thin", "checkpoint"))
        node.disk.fail(op, errno.EIO, path=path, kept_bytes=self._rand.randrange(200))
        return self._say(f"the next {op} of {node.name} in {path!r} fails", node.name)

    def _disk_full(self) -> bool:
        node = self._pick(self._awake(brokers_only=True))
        if node is None:
            return False
        node.excused = True
        node.harm()
        left_bytes = self._rand.randrange(2_000)
        self._say(f"the disk of {node.name} is full, but for {left_bytes} bytes", node.name)
        node.disk.fill(left_bytes)
        self._later(self._between(0.5, 5.0), partial(self._mend_disk, node, node.disk))
        return True

    def _mend_disk(self, node: SimNode, disk: SimDisk) -> None:
        if disk is node.disk and disk.failing:
            self._say(f"the disk of {node.name} is mended", node.name, mends=True)
            disk.mend()

    def _wall_clock(self) -> bool:
        self._set_wall_clock(self._one_of(self._cluster.brokers), self._one_of((-_HOUR_MS, 0, _HOUR_MS)))
        return True

    def _set_wall_clock(self, node: SimNode, offset_ms: int) -> None:
        jump_ms = offset_ms - node.clock.wall_offset_ms
        if jump_ms:
            text = f"the wall clock of {node.name} jumps by {jump_ms / 1000:+g} s"
            self._say(text, node.name, mends=not offset_ms)
            node.clock.wall_offset_ms = offset_ms
