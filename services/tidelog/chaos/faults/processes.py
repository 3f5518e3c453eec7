"""Faults of processes: they die, are stopped in order, stand still, or come back at once."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Self

from tidelog.chaos.faults.base import Bed, Fault, FaultMissed, Injected, On, one_of, parameter, to_the_end, undo_each
from tidelog.chaos.quantities import duration
from tidelog.cluster.api import BROKER, KINDS, ZOOKEEPER, Cluster, ClusterError, Pause, State, broker_id_of, kind_of
from tidelog.storage.data_dir import CLEAN_FILE
from tidelog.wire.znodes import broker_path

PROCESSES: Final = frozenset(KINDS)
NO_QUORUM_WITHIN_S: Final = 15.0
ENDS_WITHIN_S: Final = 30.0
REGISTERS_WITHIN_S: Final = 60.0
"""Longer than any session lasts: whoever waits for a registration that does not come sees the end of the session first."""


def state_of(cluster: Cluster, name: str) -> State:
    return next(row.state for row in cluster.status() if row.name == name)


@dataclass(frozen=True)
class Kill(Fault):
    """SIGKILL leaves what was written to the kernel; see SIMULATOR_ONLY for what does not."""

    name: ClassVar[str] = "kill"
    about: ClassVar[str] = "SIGKILL; healed by a start"
    hits: ClassVar[frozenset[str]] = PROCESSES

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        async with bed.injecting(self, targets, partial(start_stopped, bed.cluster, targets)) as injected:
            await killed(bed.cluster, targets)
            injected.effect = f"{', '.join(targets)} killed"
        return injected


@dataclass(frozen=True)
class Stop(Fault):
    name: ClassVar[str] = "stop"
    about: ClassVar[str] = "SIGTERM, and the end of the process is waited for; healed by a start"
    hits: ClassVar[frozenset[str]] = PROCESSES
    within: float = parameter("30s", duration, "how long each may take to end")

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        asked: set[str] = set()
        async with bed.injecting(self, targets, partial(_start_ended, bed.cluster, targets, asked)) as injected:
            for target in targets:
                began_at = bed.clock.now()
                await _ended(bed.cluster, target, asked, self.within)
                took_s = bed.clock.now() - began_at
                ended = await to_the_end(_ending, bed.cluster, target)
                injected.observed[target] = {"took_s": took_s, **ended}
            check_state(bed.cluster, targets, State.STOPPED)
            injected.effect = f"{', '.join(targets)} ended"
        return injected


def _ending(cluster: Cluster, name: str) -> Mapping[str, object]:
    """Exit code, and of a broker whether it says that it ended in order."""
    found: dict[str, object] = {"exit_code": cluster.exit_code(name)}
    if kind_of(name) == BROKER:
        found["clean"] = CLEAN_FILE in cluster.files(name).sizes()
    return found


@dataclass(frozen=True)
class PauseProcess(Fault):
    name: ClassVar[str] = "pause"
    about: ClassVar[str] = "stands still, with its connections open; healed by going on"
    hits: ClassVar[frozenset[str]] = PROCESSES
    how: str = parameter(
        "signal", one_of("signal", "freezer"), "by SIGSTOP, or by the cgroup's freezer, which nobody sees"
    )

    def why_not(self, on: On) -> str | None:
        if on is On.LOCAL and self.how == "freezer":
            return "a local process has no cgroup of its own to freeze"
        return None

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        async with bed.injecting(self, targets, partial(_resume_paused, bed.cluster, targets)) as injected:
            for target in targets:
                await to_the_end(bed.cluster.pause, target, Pause(self.how))
            check_state(bed.cluster, targets, State.PAUSED)
            injected.effect = f"{', '.join(targets)} stand{'s' * (len(targets) == 1)} still"
        return injected


@dataclass(frozen=True)
class Bounce(Fault):
    """A broker's session of before outlives its return: ZooKeeper says so, since no time that is measured here could."""

    name: ClassVar[str] = "bounce"
    about: ClassVar[str] = "SIGKILL and a start at once, before the session is over"
    passes: ClassVar[bool] = True
    hits: ClassVar[frozenset[str]] = PROCESSES
    within: float = parameter("3s", duration, "who registers nowhere was down for longer: no fast bounce")

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        async with bed.injecting(self, targets, partial(start_stopped, bed.cluster, targets)) as injected:
            before = _lives(bed.cluster)
            for target in targets:
                former = await to_the_end(_FormerSession.of, bed.cluster, target) if kind_of(target) == BROKER else None
                injected.observed[target] = down_s = await to_the_end(bed.cluster.bounce, target)
                _check_new(before, _lives(bed.cluster), [target])
                if former is not None:
                    former.down_s = down_s
                    await bed.until(former.has_outlived_the_return, f"{target} registering again", REGISTERS_WITHIN_S)
                elif down_s > self.within:
                    raise FaultMissed(f"{target} was down for {down_s:.1f} s, a fast bounce lasts {self.within:g} s")
            told = [f"{target} after {down_s:.1f} s" for target, down_s in injected.observed.items()]
            injected.effect = f"killed and back: {', '.join(told)}"
        return injected


@dataclass(slots=True)
class _FormerSession:
    """Of a broker that is killed. While it lives, and the znode with it, nobody can tell from ZooKeeper that the broker died."""

    cluster: Cluster
    name: str
    id: int
    down_s: float = 0.0
    registered: bool = False
    """The broker is, with another session."""

    @classmethod
    def of(cls, cluster: Cluster, name: str) -> Self:
        """FaultMissed when it has none."""
        holder = cluster.sessions().holders.get(broker_path(broker_id_of(name)))
        if holder is None:
            raise FaultMissed(f"{name} is not registered, so that it has no session to outlive")
        return cls(cluster, name, holder)

    def has_outlived_the_return(self) -> bool:
        """As a look shows that was asked for after the new registration was seen. FaultMissed when it is over."""
        seen = self.cluster.sessions()
        if self.id not in seen.alive:
            when = "before it was seen registered" if self.registered else "before it registered again"
            raise FaultMissed(
                f"{self.name} was down for {self.down_s:.1f} s and its session of before ended {when}: no fast bounce"
            )
        if self.registered:
            return True
        self.registered = seen.holders.get(broker_path(broker_id_of(self.name))) not in (None, self.id)
        return False


@dataclass(frozen=True)
class Restart(Fault):
    name: ClassVar[str] = "restart"
    about: ClassVar[str] = "SIGTERM and, when it has ended, a start"
    passes: ClassVar[bool] = True
    hits: ClassVar[frozenset[str]] = PROCESSES

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        asked: set[str] = set()
        async with bed.injecting(self, targets, partial(_start_ended, bed.cluster, targets, asked)) as injected:
            before = _lives(bed.cluster)
            for target in targets:
                await _ended(bed.cluster, target, asked)
                await to_the_end(bed.cluster.start, target)
            _check_new(before, _lives(bed.cluster), targets)
            injected.effect = f"{', '.join(targets)} restarted"
        return injected


@dataclass(frozen=True)
class RollingRestart(Fault):
    """As an operator does it: the next one only when everybody is in sync again."""

    name: ClassVar[str] = "rolling-restart"
    about: ClassVar[str] = "one after the other restarted in order, each when every ISR is full again"
    passes: ClassVar[bool] = True
    hits: ClassVar[frozenset[str]] = frozenset({BROKER})
    settle: float = parameter("1m", duration, "how long every ISR may take to be full after each")

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        asked: set[str] = set()
        async with bed.injecting(self, targets, partial(_start_ended, bed.cluster, targets, asked)) as injected:
            before = _lives(bed.cluster)
            for target in targets:
                await _ended(bed.cluster, target, asked)
                await to_the_end(bed.cluster.start, target)
                bed.say(f"{target} restarted")
                await bed.admin.wait_until_led(bed.topic, in_sync=True, timeout_s=self.settle)
            _check_new(before, _lives(bed.cluster), targets)
            injected.effect = f"{', '.join(targets)} restarted one after the other"
        return injected


@dataclass(frozen=True)
class LoseQuorum(Fault):
    name: ClassVar[str] = "lose-quorum"
    about: ClassVar[str] = "so many ZooKeeper servers killed that those left serve nobody; healed by a start"
    hits: ClassVar[frozenset[str]] = frozenset({ZOOKEEPER})

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        async with bed.injecting(self, targets, partial(start_stopped, bed.cluster, targets)) as injected:
            await killed(bed.cluster, targets)
            serves_nobody = partial(_without_quorum, bed.cluster)
            await bed.until(serves_nobody, "the quorum being lost", NO_QUORUM_WITHIN_S)
            injected.effect = f"no ZooKeeper server serves without {', '.join(targets)}"
        return injected


def _without_quorum(cluster: Cluster) -> bool:
    rows = [row for row in cluster.status() if row.kind == ZOOKEEPER and row.state is State.RUNNING]
    return not any(cluster.zookeeper_mode(row.name) for row in rows)


async def killed(cluster: Cluster, targets: Sequence[str]) -> None:
    """FaultMissed when one of them still runs."""
    for target in targets:
        await to_the_end(cluster.kill, target)
    check_state(cluster, targets, State.STOPPED)


async def _ended(cluster: Cluster, target: str, asked: set[str], within_s: float = ENDS_WITHIN_S) -> None:
    """Returns when it has ended in order. `asked` has it while it was asked to."""
    asked.add(target)
    await to_the_end(cluster.stop, target, within_s)
    asked.discard(target)


def _start_ended(cluster: Cluster, targets: Sequence[str], asked: Collection[str]) -> None:
    """Starts what does not run. A process that was asked to end, and still runs, is killed first: it would end later."""
    undo_each([*(partial(end, cluster, target) for target in asked), partial(start_stopped, cluster, targets)])


def end(cluster: Cluster, name: str) -> None:
    """Kills it unless it has ended."""
    try:
        if state_of(cluster, name) is not State.STOPPED:
            cluster.kill(name)
    except ClusterError:
        if state_of(cluster, name) is not State.STOPPED:  # else it ended in between
            raise


def start_stopped(cluster: Cluster, targets: Sequence[str]) -> None:
    _where(cluster, targets, State.STOPPED, cluster.start)


def _resume_paused(cluster: Cluster, targets: Sequence[str]) -> None:
    _where(cluster, targets, State.PAUSED, cluster.resume)


def _where(cluster: Cluster, targets: Sequence[str], state: State, act: Callable[[str], None]) -> None:
    def one(target: str) -> None:
        if state_of(cluster, target) is state:
            act(target)

    undo_each(partial(one, target) for target in targets)


def check_state(cluster: Cluster, targets: Sequence[str], wanted: State) -> None:
    """FaultMissed names whoever is in another one."""
    rows = {row.name: row for row in cluster.status()}
    wrong = [f"{t} is {rows[t].state.value} as process {rows[t].pid}" for t in targets if rows[t].state is not wanted]
    if wrong:
        raise FaultMissed(f"{', '.join(wrong)}, not {wanted.value}")


def _lives(cluster: Cluster) -> dict[str, int | None]:
    return {row.name: row.pid for row in cluster.status()}


def _check_new(before: Mapping[str, int | None], after: Mapping[str, int | None], targets: Sequence[str]) -> None:
    same = [target for target in targets if after[target] in (None, before[target])]
    if same:
        raise FaultMissed(f"{', '.join(same)} did not come back as another process")
