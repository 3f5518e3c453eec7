"""Plays a time line: each fault comes at its time, is seen to have taken effect, and goes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.faults.base import Bed, FaultMissed
from tidelog.chaos.injector import Injector
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.samples import Partitions, Sample
from tidelog.chaos.scenario import PlannedFault
from tidelog.chaos.targets import resolve
from tidelog.chaos.time_line import Moment
from tidelog.client.admin import Admin
from tidelog.cluster.api import ClusterError, broker_name
from tidelog.errors import TidelogError, TransportError
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


async def nothing_ends(part: float) -> None:
    raise AssertionError("this load has no parts")


@dataclass(slots=True)
class FaultPlayer:
    bed: Bed
    chronicle: Chronicle
    metrics: ChaosMetrics
    reached: Callable[[float], Awaitable[None]] = field(kw_only=True, default=nothing_ends)
    """Waits until so much of a load that ends was sent."""
    moved: Callable[[Sequence[str]], bool] = field(kw_only=True, default=lambda targets: False)
    """True if other agents own everything."""
    patience_s: float = PATIENCE_S
    played: list[PlayedFault] = field(default_factory=list)
    affected: set[int] = field(default_factory=set)
    """Partitions that a target led when it was hit."""
    left_out: list[str] = field(default_factory=list)
    """Drawn faults that found no target, missed, or met another fault; and why."""
    _hitting: list[Sequence[str]] = field(default_factory=list)
    """Targets of faults whose effect has not been seen yet."""
    _took: list[Moment] = field(default_factory=list)
    _injector: Injector = field(init=False)
    _ending: set[int] = field(default_factory=set)
    """Faults that have an end of their own."""
    _beginning: int = 0
    """Faults whose time has come and whose effect has not been seen yet."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    """A fault has missed, or the load has ended."""
    _problem: str = ""

    def __post_init__(self) -> None:
        self._injector = Injector(self.chronicle, self.metrics)

    async def play(self, moments: Sequence[Moment], duration_s: float, *, ends_with_load: bool = False) -> None:
        """For the duration, or until a load that ends has ended and its faults are healed. FaultMissed when a fault that was
        asked for had no effect in it, and when none at all had one."""
        began = self.bed.clock.now()
        tasks = Supervisor("faults")
        try:
            for moment in moments:
                tasks.start(moment.text, self._play(moment, began + moment.planned.at_s))
            if ends_with_load:
                tasks.start("end of the load", self._end_with_load(moments))
            try:
                async with asyncio.timeout(duration_s):
                    await self._stop.wait()
            except TimeoutError:
                if ends_with_load:
                    raise FaultMissed(f"the load and its faults have not ended after {duration_s:g} s") from None
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
        while self._beginning and not self._stop.is_set() and clock.now() < give_up_at:
            await clock.sleep(LOOK_AGAIN_S)

    async def _end_with_load(self, moments: Sequence[Moment]) -> None:
        """A fault that is healed at a part of the load, or when its partitions have moved, belongs to the load."""
        await self.reached(1.0)
        while len(self._took) < len(moments) or self._ending & set(self._injector.active):
            await self.bed.clock.sleep(LOOK_AGAIN_S)
        self._stop.set()

    async def heal_all(self) -> None:
        for number in list(self._injector.active):
            await self._heal(number)
        await self.bed.in_force.heal_all()  # also what an interrupted injection has left

    def looked(self, sample: Sample) -> None:
        """Tells how long the cluster took to be whole again after a fault."""
        if isinstance(sample, Partitions):
            self._injector.looked(sample.partitions, sample.t)

    async def _play(self, moment: Moment, at: float) -> None:
        if moment.planned.at_part is None:
            await self.bed.clock.sleep(at - self.bed.clock.now())
        else:
            await self.reached(moment.planned.at_part)
        self._beginning += 1
        try:
            targets = await resolve(moment.planned.target, self.bed)
            hit = {
                name for names in (*self._hitting, *(each.targets for each in self.bed.in_force.left)) for name in names
            }
            if moment.drawn and hit & set(targets):
                self._leave_out(f"{moment.text}: another fault has hit it")
                return
            self._hitting.append(targets)  # with no await since the look: two faults of one time may have one target
            try:
                number = await self._inject(moment, targets)
            finally:
                self._hitting.remove(targets)
        except MISSES as error:
            if moment.drawn:
                self._leave_out(f"{moment.text}: {error}")
            else:
                self._problem = self._problem or f"{moment.text}: {error}"
                self._stop.set()
            return
        finally:
            self._beginning -= 1
        if _ends(moment.planned):
            await self._until_its_end(moment.planned, targets)
            await self._heal(number)

    async def _until_its_end(self, planned: PlannedFault, targets: Sequence[str]) -> None:
        if planned.until_part is not None:
            await self.reached(planned.until_part)
        elif planned.until_moved:
            while not self.moved(targets):
                await self.bed.clock.sleep(LOOK_AGAIN_S)
        elif planned.for_s is not None:
            await self.bed.clock.sleep(planned.for_s)

    def _leave_out(self, what: str) -> None:
        self.left_out.append(what)
        self.bed.say(f"left out: {what}")

    async def _inject(self, moment: Moment, targets: Sequence[str]) -> int:
        self.affected |= await _led_by(targets, self.bed.admin, self.bed.topic)
        self.bed.say(f"{moment.text}: begins at {', '.join(targets)}")  # its effect may be seen before it is checked
        number, injected = await self._injector.inject(self.bed, moment.planned.fault, targets, moment.text)
        after = "" if moment.planned.at_part is None else f" after {self.chronicle.sent:,} records"
        self.bed.say(f"{moment.text}: {injected.effect}{after}")
        self.played.append(PlayedFault(number, moment.text, tuple(targets), injected.effect, injected.observed))
        self._took.append(moment)
        if _ends(moment.planned):
            self._ending.add(number)
        return number

    async def _heal(self, number: int) -> None:
        text = self._injector.active[number].text
        await self._injector.heal(number)
        self.bed.say(f"{text}: healed")


def _ends(planned: PlannedFault) -> bool:
    """Before everything is healed."""
    return planned.for_s is not None or planned.until_part is not None or planned.until_moved


async def _led_by(targets: Sequence[str], admin: Admin, topic: str) -> set[int]:
    """None while no broker answers: then no target leads anything."""
    try:
        async with asyncio.timeout(ANSWER_S):
            described = await admin.describe_topic(topic)
    except TimeoutError:
        return set()
    return {p.partition for p in described.partitions if broker_name(p.leader) in targets}
