"""Faults of the network: links are cut, lose packets, are reset, or are slow."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from tidelog.chaos.faults.base import Bed, Fault, FaultMissed, Injected, On, OneOf, parameter, to_the_end, undo_each
from tidelog.chaos.quantities import duration, rate, share
from tidelog.chaos.targets import EVERYTHING, Target, parse, resolve
from tidelog.cluster.api import CLIENT, KINDS, Cluster, ClusterError, Direction, State, Traffic, Way

PROCESSES: Final = frozenset(KINDS)
ENDS: Final = frozenset({*KINDS, CLIENT})
SEEN_WITHIN_S: Final = 15.0


async def others(peers: Target, bed: Bed, targets: Sequence[str]) -> list[str]:
    """The far ends; who is a target is none. ClusterError when nobody is left."""
    found = [name for name in await resolve(peers, bed) if name not in targets]
    if not found:
        raise ClusterError(f"peers {peers.text!r} are the targets themselves")
    return found


@dataclass(frozen=True)
class Isolate(Fault):
    """A partition of the network: between any two sets, or one of them and all the rest."""

    name: ClassVar[str] = "isolate"
    about: ClassVar[str] = "links to `peers` cut, both ways or one"
    hits: ClassVar[frozenset[str]] = ENDS
    needs_proxy: ClassVar[bool] = True
    peers: Target = parameter(EVERYTHING, parse, "the far ends of the links, as a target; clients only if named")
    direction: Direction = parameter(
        Direction.BOTH.value,
        OneOf(tuple(each.value for each in Direction), Direction),
        "what no longer arrives: inbound is what is sent to the target",
    )

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        peers = await others(self.peers, bed, targets)

        def rejoin() -> None:
            undo_each(partial(bed.cluster.rejoin, target, peers, self.direction) for target in targets)

        async with bed.injecting(self, targets, rejoin) as injected:
            cut: list[Way] = []
            for target in targets:
                cut += await to_the_end(bed.cluster.isolate, target, peers, self.direction)
            running = {CLIENT, *(row.name for row in bed.cluster.status() if row.state is State.RUNNING)}
            looked_at = [way for way in cut if running.issuperset(way)]
            if not looked_at:
                raise FaultMissed(
                    f"nobody runs at both ends of a link of {', '.join(targets)}: there is nothing to cut"
                )
            passing = await to_the_end(bed.cluster.passing, looked_at)
            if passing:
                raise FaultMissed(f"still arrives: {', '.join(f'{a} to {b}' for a, b in passing)}")
            injected.effect = f"{', '.join(targets)} cut from {', '.join(peers)} ({self.direction.value})"
        return injected


@dataclass(frozen=True)
class PacketLoss(Fault):
    name: ClassVar[str] = "packet-loss"
    about: ClassVar[str] = "a share of all packets lost, either way"
    hits: ClassVar[frozenset[str]] = PROCESSES
    not_on: ClassVar = {On.LOCAL: "local links run through a proxy, which carries bytes and sees no packets"}
    share: float = parameter("10%", share, "of all packets")

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        def lose_none() -> None:
            running = {row.name for row in bed.cluster.status() if row.state is not State.STOPPED}
            # With its end a container's rules are gone.
            undo_each(partial(bed.cluster.lose_packets, target, 0.0) for target in targets if target in running)

        async with bed.injecting(self, targets, lose_none) as injected:
            for target in targets:
                await to_the_end(bed.cluster.lose_packets, target, self.share)
            for target in targets:
                await bed.until(partial(_loses, bed.cluster, target), f"a packet of {target} lost", SEEN_WITHIN_S)
            injected.effect = f"{', '.join(targets)} lose{'s' * (len(targets) == 1)} {self.share:.0%} of all packets"
        return injected


@dataclass(frozen=True)
class Reset(Fault):
    name: ClassVar[str] = "reset"
    about: ClassVar[str] = "connections to `peers` ended with a reset, again and again until healed"
    hits: ClassVar[frozenset[str]] = ENDS
    needs_proxy: ClassVar[bool] = True
    peers: Target = parameter(EVERYTHING, parse, "the far ends of the connections, as a target")
    every: float = parameter("3s", duration, "from one reset to the next")

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        peers = await others(self.peers, bed, targets)
        async with bed.injecting(self, targets, lambda: None) as injected:
            closed = await self._reset(bed.cluster, targets, peers)
            if not closed:
                raise FaultMissed(f"{', '.join(targets)} had no connection to {', '.join(peers)} that could be reset")
            injected.observed["closed"] = closed
            injected.effect = f"{closed} ends of connections of {', '.join(targets)} reset"
            bed.tasks.start(self.name, self._go_on(bed, targets, peers, injected))
        return injected

    async def _go_on(self, bed: Bed, targets: Sequence[str], peers: Sequence[str], injected: Injected) -> None:
        while True:
            await bed.clock.sleep(self.every)
            if injected.over:
                return
            try:
                await self._reset(bed.cluster, targets, peers)
            except ClusterError as error:
                bed.say(f"no reset: {error}")  # another fault has ended the process

    async def _reset(self, cluster: Cluster, targets: Sequence[str], peers: Sequence[str]) -> int:
        return sum([await to_the_end(cluster.reset_connections, target, peers) for target in targets])


@dataclass(frozen=True)
class SlowLink(Fault):
    name: ClassVar[str] = "slow-link"
    about: ClassVar[str] = "links to `peers` delayed and narrow, both ways"
    hits: ClassVar[frozenset[str]] = ENDS
    needs_proxy: ClassVar[bool] = True
    peers: Target = parameter(EVERYTHING, parse, "the far ends of the links, as a target")
    delay: float = parameter("100ms", duration, "of what is sent, each way")
    jitter: float = parameter("0s", duration, "the delay is drawn between so much less and more")
    rate: float = parameter("1000MB/s", rate, "of each connection")

    def why_not(self, on: On) -> str | None:
        if on is On.COMPOSE and self.peers.kinds != {CLIENT}:
            return "containers talk to each other without the proxy that slows links down; peers can only be clients"
        return None

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        peers = await others(self.peers, bed, targets)
        traffic = Traffic(self.delay, self.jitter, self.rate)

        def unshape() -> None:
            undo_each(partial(_unshape, bed.cluster, target, peers) for target in targets)

        async with bed.injecting(self, targets, unshape) as injected:
            for target in targets:
                shaped = await to_the_end(bed.cluster.shape, target, peers, traffic)
                least_s = max(self.delay - self.jitter, 1 / self.rate)
                slow = partial(_is_slow, bed.cluster, shaped, least_s)
                await bed.until(slow, f"bytes of {target} that took {least_s:.3f} s", SEEN_WITHIN_S)
            injected.effect = f"{', '.join(targets)}: what passes to and from {', '.join(peers)} is slow"
        return injected


def _unshape(cluster: Cluster, target: str, peers: Sequence[str]) -> None:
    cluster.shape(target, peers, None)


def _loses(cluster: Cluster, name: str) -> bool:
    return cluster.lost_packets(name) > 0


def _is_slow(cluster: Cluster, ways: Sequence[Way], least_s: float) -> bool:
    waited = [cluster.waited_s(way) for way in ways]
    return any(each is not None and each >= least_s for each in waited)
