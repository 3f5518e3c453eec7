"""Faults by hand: what the page of a running cluster may do to it, which are the faults of chaos runs."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

from tidelog.chaos.fault_player import MISSES
from tidelog.chaos.faults.base import Bed, Fault, Injected, On, OneOf, to_the_end
from tidelog.chaos.faults.registry import FAULTS, Parameter, make, parameters_of
from tidelog.chaos.injector import Injector
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.quantities import count, duration
from tidelog.chaos.targets import check_hits, parse, resolve
from tidelog.client.observer import repeat
from tidelog.client.overview import Overview
from tidelog.cluster.api import CLIENT, KINDS, Cluster, ClusterError, ProcessStatus, State, broker_name
from tidelog.page.live import LOOK_S, Note
from tidelog.page.source import File, Refused
from tidelog.runtime.tasks import Supervisor

HEAL: Final = "heal"
MANY: Final = {"rolling-restart": "all brokers", "lose-quorum": "majority zookeepers"}
"""Faults that hit several processes, and which."""
OF_A_TOPIC: Final = ("rolling-restart", "torn-tail", "bit-flip")
"""Faults that look at one topic."""
_GROUPS: Final = {"processes": "process", "links": "link", "disks": "Disks"}
"""Headings of the page, by the module of a fault."""
STALE_S: Final = 3.0
"""The age from which a look at processes is told to be old."""
FAILURES: Final = (*MISSES, OSError)
"""Errors with which a fault takes no effect; those of the container engine are OSErrors."""
_UP: Final = "up"
_DOWN: Final = "down"
_STATES: Final = {State.PAUSED: "paused", State.STOPPED: _DOWN}
_FIELDS: Final[Mapping[Callable[[str], object], str]] = {duration: "seconds", count: "number"}


class FaultDesk:
    """Injects what a reader asks for, and heals it when the reader says so or its time is over.

    bed: what faults lie in; the owner of its `in_force` undoes what is left in the end.
    notes: what was done is noted there.
    failed: called with one line about a fault that took no effect, or that could not be healed.
    """

    def __init__(self, bed: Bed, metrics: ChaosMetrics, notes: list[Note], failed: Callable[[str], None]) -> None:
        self._bed = bed
        self._notes = notes
        self._failed = failed
        self._began = bed.clock.now()
        self._numbers = 0
        self._injector = Injector(self, metrics)
        self._groups: list[Supervisor] = []
        """The tasks of each fault: a bug of one ends no other."""
        self._beginning: dict[str, Supervisor] = {}
        """Tasks of faults whose effect was not seen yet, by process."""
        self._statuses: Sequence[ProcessStatus] = ()
        self._looked_at = bed.clock.now()
        self._problem = ""
        """The error of the last look at processes, if it has failed."""
        self._offered = {name: fault for name, fault in FAULTS.items() if _possible(fault, bed.on, bed.cluster)}

    def start(self) -> None:
        """Begins to look at processes. A container engine that hangs holds up nothing else."""
        self._tasks("processes").start("processes", repeat(self._bed.clock, LOOK_S, self.look))

    async def look(self) -> None:
        """Asks once for the state of all processes."""
        try:
            self._statuses, self._problem = await to_the_end(self._bed.cluster.status), ""
        except (ClusterError, OSError) as error:  # of the container engine, too
            self._statuses, self._problem = (), str(error)
        self._looked_at = self._bed.clock.now()

    async def stop(self) -> None:
        """Returns when nothing begins or ends any more, also if it is cancelled: then it is safe to undo what is left."""
        cancelled = False
        while any(group.running for group in self._groups):
            try:
                for group in self._groups:
                    await group.stop()
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    def _tasks(self, name: str) -> Supervisor:
        self._groups = [each for each in self._groups if each.running]
        self._groups.append(
            Supervisor(name, lambda task: self._failed(f"{task}: an error ended it, which the terminal has"))
        )
        return self._groups[-1]

    # -- what the page is told ---------------------------------------------------------------------------------------

    def acts(self) -> list[dict[str, Any]]:
        """Returns what may be done here, as `hello` has it."""
        heal = {"do": HEAL, "label": "Heal", "group": "process", "asks": False, "about": "end the faults of this page"}
        fields = [{**_field("process", "process", needed=False), "about": "default: all faults"}]
        return [*map(_act, self._offered.values()), {**heal, "fields": fields}]

    def complete(self, seen: Overview, picture: dict[str, Any]) -> None:
        """Adds to a picture what brokers do not tell: faults, paused processes, and those that no broker knows."""
        if not seen.problem and seen.described_at is not None:
            partitions = [each for topic in seen.topics for each in topic.partitions]
            self._injector.looked(partitions, seen.described_at - self._began)
        picture["faults"] += [each.text for each in self._injector.active.values()]
        picture["faults"] += [f"{each.name} begins" for each in dict.fromkeys(self._beginning.values())]
        picture["faults"] += [_left(each) for each in self._undone()]
        rows = {row["name"]: row for row in picture["processes"]}
        if self._problem:
            picture["faults"].append(self._problem)
        elif (ago_s := self._bed.clock.now() - self._looked_at) > STALE_S:
            picture["faults"].append(f"no word of the state of processes for {ago_s:.0f} s")
        down = {each.name for each in self._statuses if each.state is State.STOPPED}
        for row in picture["partitions"]:
            for replica in row["replicas"]:
                if broker_name(replica["broker"]) in down:
                    replica["state"] = _DOWN
        for each in self._statuses:
            state = _STATES.get(each.state, _UP)
            if each.name not in rows:
                row = {"name": each.name, "kind": each.kind, "state": state, "note": "", "faults": []}
                picture["processes"].append(row)
            elif state != _UP:
                rows[each.name]["state"] = state
        picture["processes"].sort(key=lambda row: row["name"])

    # -- the book of the injector ------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._bed.clock.now() - self._began

    def next_fault(self) -> int:
        self._numbers += 1
        return self._numbers

    def fault(self, number: int, fault: str, what: str, targets: Sequence[str], name: str) -> None:
        match what:
            case "begin":
                self._notes.append(Note(f"{name} begins", tuple(targets)))
            case "healed" if not FAULTS[fault].passes:
                self._notes.append(Note(f"{name} is healed", tuple(targets), mends=True))

    # -- commands ----------------------------------------------------------------------------------------------------

    def do(self, command: Mapping[str, Any]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(self._do(command), asyncio.get_running_loop())

    def save(self, kind: str) -> Future[File]:
        refused: Future[File] = Future()
        refused.set_exception(Refused("the page of a running cluster cannot be saved; a chaos run writes one"))
        return refused

    async def _do(self, command: Mapping[str, Any]) -> None:
        match command:
            case {"act": {"do": str(name), **given}} if len(command) == 1:
                fields = {str(field): str(value) for field, value in given.items()}
                await (self._heal_at(fields) if name == HEAL else self._begin(name, fields))
            case _:
                raise Refused("a command has one key here, act; docs/internals/page.md has it")

    async def _heal_at(self, given: dict[str, str]) -> None:
        process = given.pop("process", "")
        if unknown := given.keys():
            raise Refused(f"{min(unknown)}: heal has no such field")
        numbers = [
            number for number, each in self._injector.active.items() if not process or process in each.injected.targets
        ]
        undone = [each for each in self._undone() if not process or process in each.targets]
        begun = {tasks: None for each, tasks in self._beginning.items() if not process or process == each}
        if not numbers and not undone and not begun:
            raise Refused(f"no fault of this page is in force{f' at {process}' if process else ''}")
        for number in numbers:
            self._tasks(HEAL).start(HEAL, self._heal(number))
        for each in undone:
            self._tasks(HEAL).start(HEAL, self._undo(each))
        for tasks in begun:
            self._tasks(HEAL).start(HEAL, tasks.stop())

    def _undone(self) -> list[Injected]:
        """Returns what is left of faults that took no effect and could not be undone."""
        known = [each.injected for each in self._injector.active.values()]
        left = (each for each in self._bed.in_force.left if each not in known)
        return [each for each in left if not self._beginning.keys() & set(each.targets)]

    async def _undo(self, injected: Injected) -> None:
        try:
            await injected.heal()
        except (ClusterError, OSError) as error:
            self._failed(f"{_left(injected)} could not be healed: {error}")
        else:
            self._notes.append(Note(f"{_left(injected)} is healed", injected.targets, mends=True))

    async def _begin(self, name: str, given: dict[str, str]) -> None:
        kind = self._offered.get(name)
        if kind is None:
            raise Refused(f"do: {name!r} is none of {', '.join([*self._offered, HEAL])}")
        wanted = given.pop("target" if name in MANY else "process", "")
        topic = given.pop("topic", "") if name in OF_A_TOPIC else ""
        for_s = given.pop("for", "") if not kind.passes else ""
        if name in OF_A_TOPIC and not topic:
            raise Refused(f"topic: {name} needs one")
        try:
            names = await to_the_end(self._bed.cluster.names)
            if name not in MANY and wanted not in names:
                raise Refused(f"process: {wanted!r} is not a process of this cluster, which has {', '.join(names)}")
            target = parse(wanted)
            check_hits(kind, target)
            ends_s = duration(for_s) if for_s else None
            fault = make(kind, given)
            if why := fault.why_not(self._bed.on):
                raise Refused(f"{name}: {why}")
            targets = await resolve(target, self._bed)
        except (ValueError, *FAILURES) as error:
            raise Refused(str(error)) from None
        for each in targets:
            if other := self._at(each):
                raise Refused(f"{each}: {other} is in force or begins there; heal it first")
        text = f"{name} {target.text}"
        bed = replace(self._bed, topic=topic, tasks=self._tasks(text))
        self._beginning |= dict.fromkeys(targets, bed.tasks)
        bed.tasks.start(text, self._play(bed, fault, targets, text, ends_s))

    def _at(self, process: str) -> str:
        """Returns the fault that is in force or begins at a process; "" if there is none."""
        found = (each.text for each in self._injector.active.values() if process in each.injected.targets)
        left = (_left(each) for each in self._undone() if process in each.targets)
        begins = self._beginning.get(process)
        return begins.name if begins else next(found, "") or next(left, "")

    async def _play(self, bed: Bed, fault: Fault, targets: Sequence[str], text: str, ends_s: float | None) -> None:
        try:
            number, injected = await self._injector.inject(bed, fault, targets, text)
        except FAILURES as error:
            self._notes.append(Note(f"{text} took no effect: {error}", tuple(targets), mends=True))
            self._failed(f"{text}: {error}")
            return
        except asyncio.CancelledError:
            self._notes.append(Note(f"{text} is ended before its effect was seen", tuple(targets), mends=True))
            raise
        finally:
            for each in targets:
                del self._beginning[each]
        self._notes.append(Note(f"{text}: {injected.effect}"))
        if fault.passes:
            await self._heal(number)
        elif ends_s is not None:
            await bed.clock.sleep(ends_s)
            await self._heal(number)

    async def _heal(self, number: int) -> None:
        """Another one may have healed it."""
        active = self._injector.active.get(number)
        if active is None:
            return
        try:
            await self._injector.heal(number)
        except (ClusterError, OSError) as error:
            self._failed(f"{active.text} could not be healed: {error}")


def _left(injected: Injected) -> str:
    return f"what is left of {injected.name} {', '.join(injected.targets)}"


def _possible(fault: type[Fault], on: On, cluster: Cluster) -> bool:
    """Links of a local cluster can be cut only by the program that has started it."""
    made = fault()
    if made.why_not(on) is not None or (fault.needs_proxy and on is On.LOCAL):
        return False
    try:
        made.check(cluster)
    except ClusterError:
        return False
    return True


def _act(fault: type[Fault]) -> dict[str, Any]:
    return {
        "do": fault.name,
        "label": fault.name[0].upper() + fault.name[1:].replace("-", " "),
        "group": _GROUPS[fault.__module__.rpartition(".")[2]],
        "asks": fault.destroys,
        "about": fault.about,
        "fields": list(_fields(fault)),
    }


def _fields(fault: type[Fault]) -> Iterator[dict[str, Any]]:
    if fault.name in MANY:
        yield _field("target", "text", needed=True, value=MANY[fault.name])
    else:
        yield {**_field("process", "process", needed=True), "choices": sorted({*KINDS} & fault.hits - {CLIENT})}
    if fault.name in OF_A_TOPIC:
        yield _field("topic", "topic", needed=True)
    yield from map(_of_parameter, parameters_of(fault).values())
    if not fault.passes:
        yield {**_field("for", "seconds", needed=False), "about": "default: until it is healed"}


def _of_parameter(it: Parameter) -> dict[str, Any]:
    choices = it.parse.choices if isinstance(it.parse, OneOf) else ()
    kind = "choice" if choices else _FIELDS.get(it.parse, "text")
    return {**_field(it.name, kind, needed=False, value=it.written), "choices": list(choices), "about": it.about}


def _field(name: str, kind: str, *, needed: bool, value: str | None = None) -> dict[str, Any]:
    return {"name": name, "label": name, "kind": kind, "needed": needed, "choices": [], "value": value}
