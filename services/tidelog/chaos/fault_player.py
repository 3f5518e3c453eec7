"""Plays a time line: each fault comes at its time, is seen to have taken effect, and goes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.faults.base import Bed, FaultMissed, Injected
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.samples import Partitions, Sample
from tidelog.chaos.targets import resolve
from tidelog.chaos.time_line import Moment
from tidelog.client.admin import AdminClient
from tidelog.cluster.api import ClusterError, broker_name
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import NO_LEADER
from tidelog.runtime.tasks import Supervisor

ANSWER_S: Final = 2.0
PATIENCE_S: Final = 90.0
"""After the time of the run, for faults whose own time has come: a slow machine takes long to name a target and to hit it."""
LOOK_AGAIN_S: Final = 0.1
MISSES: Final = (FaultMissed, ClusterError, TidelogError, TransportError)


@dataclass(frozen=True, slots=True)
class PlayedFault:
    id: int
    name: str
    targets: Sequence[str]
    effect: str
    observed: Mapping[str, object] = field(default_factory=dict)
    """What the fault has seen of its targets, as it is named there."""


@dataclass(slots=True)
class FaultPlayer:
    bed: Bed
    chronicle: Chronicle
    metrics: ChaosMetrics
    patience_s: float = PATIENCE_S
    played: list[PlayedFault] = field(default_factory=list)
    affected: set[int] = field(default_factory=set)
    """Partitions that a target led when it was hit."""
    left_out: list[str] = field(default_factory=list)
    """Drawn faults that found no target, missed, or met another fault; and why."""
    _took: list[Moment] = field(default_factory=list)
    _active: dict[int, tuple[Moment, Injected]] = field(default_factory=dict)
    _beginning: int = 0
    """Faults whose time has come and whose effect has not been seen yet."""
    _healing: set[int] = field(default_factory=set)
    _recovering: list[tuple[str, float]] = field(default_factory=list)
    """(fault, when it was healed) of those after which nobody has seen the cluster whole yet."""
    _missed: asyncio.Event = field(default_factory=asyncio.Event)
    _problem: str = ""

    async def play(self, moments: Sequence[Moment], duration_s: float) -> None:
        """For the duration. FaultMissed when a fault that was asked for had no effect in it, and when none at all had one."""
        began = self.bed.clock.now()
        tasks = Supervisor("faults")
        try:
            for moment in moments:
                tasks.start(moment.text, self._play(moment, began + moment.planned.at_s))
            try:
                async with asyncio.timeout(duration_s):
                    await self._missed.wait()
            except TimeoutError:
                await self._have_begun()
        finally:
            await tasks.stop()
        if tasks.failure is not None:
            raise tasks.failure
        if self._problem:
            raise FaultMissed(self._problem)
        if late := [each.text for each in moments if not each.drawn and each not in self._took]:
            raise FaultMissed(f"{', '.join(late)}: no effect was seen before the run's time was over")
        if moments and not self.played:
            raise FaultMissed("no fault took effect in the time of the run")

    async def _have_begun(self) -> None:
        """A fault whose time came is a part of the run, however long a slow machine takes over it: a rolling restart, say."""
        clock = self.bed.clock
        give_up_at = clock.now() + self.patience_s
        while self._beginning and not self._missed.is_set() and clock.now() < give_up_at:
            await clock.sleep(LOOK_AGAIN_S)

    async def heal_all(self) -> None:
        for number in list(self._active):
            await self._heal(number)
        await self.bed.in_force.heal_all()

    def looked(self, sample: Sample) -> None:
        """Tells how long the cluster took to be whole again after a fault."""
        if not isinstance(sample, Partitions) or not self._recovering:
            return
        whole = all(p.leader != NO_LEADER and set(p.isr) == set(p.replicas) for p in sample.partitions)
        healed = [each for each in self._recovering if each[1] <= sample.t]
        if whole and sample.partitions:
            for each in healed:
                self.metrics.recovered(each[0], sample.t - each[1])
                self._recovering.remove(each)

    async def _play(self, moment: Moment, at: float) -> None:
        await self.bed.clock.sleep(at - self.bed.clock.now())
        self._beginning += 1
        try:
            targets = await resolve(moment.planned.target, self.bed)
            if moment.drawn and any(set(targets) & set(each.targets) for each in self.bed.in_force.left):
                self._leave_out(f"{moment.text}: another fault has hit it")
                return
            number = await self._inject(moment, targets)
        except MISSES as error:
            if moment.drawn:
                self._leave_out(f"{moment.text}: {error}")
            else:
                self._problem = self._problem or f"{moment.text}: {error}"
                self._missed.set()
            return
        finally:
            self._beginning -= 1
        if moment.planned.for_s is not None:
            await self.bed.clock.sleep(moment.planned.for_s)
            await self._heal(number)

    def _leave_out(self, what: str) -> None:
        self.left_out.append(what)
        self.bed.say(f"left out: {what}")

    async def _inject(self, moment: Moment, targets: Sequence[str]) -> int:
        fault, number = moment.planned.fault, self.chronicle.next_fault()
        self.affected |= await _led_by(targets, self.bed.admin, self.bed.topic)
        self.chronicle.fault(number, fault.name, "begin", targets, moment.text)
        injected = await fault.inject(self.bed, targets)
        self.chronicle.fault(number, fault.name, "effect", targets, moment.text)
        self.metrics.began(fault.name, targets)
        self.bed.say(f"{moment.text}: {injected.effect}")
        self.played.append(PlayedFault(number, moment.text, tuple(targets), injected.effect, injected.observed))
        self._took.append(moment)
        self._active[number] = (moment, injected)
        return number

    async def _heal(self, number: int) -> None:
        """Again if the time was over in the middle of it."""
        moment, injected = self._active[number]
        name, targets = moment.planned.fault.name, injected.targets
        if number not in self._healing:
            self._healing.add(number)
            self.chronicle.fault(number, name, "heal", targets, moment.text)
        await injected.heal()
        del self._active[number]
        self.chronicle.fault(number, name, "healed", targets, moment.text)
        self.metrics.ended(name, targets)
        self._recovering.append((name, self.chronicle.now()))
        self.bed.say(f"{moment.text}: healed")


async def _led_by(targets: Sequence[str], admin: AdminClient, topic: str) -> set[int]:
    """None while no broker answers: then no target leads anything."""
    try:
        async with asyncio.timeout(ANSWER_S):
            described = await admin.describe_topic(topic)
    except TimeoutError:
        return set()
    return {p.partition for p in described.partitions if broker_name(p.leader) in targets}
