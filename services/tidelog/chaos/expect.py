"""Extra assertions of a scenario: named predicates over what was seen of the cluster and over the history.

Each is judged like a promise: kept or not, what was measured, and the limit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.chaos import samples as s
from tidelog.chaos.checker.verdict import Kept
from tidelog.chaos.history import Crash, FaultStep, Ownership, Phase, Processed, Record, Sent
from tidelog.chaos.quantities import count, duration, share
from tidelog.chaos.scenario import Expected
from tidelog.ids import NO_LEADER, TopicPartition
from tidelog.names import suggestion


@dataclass(slots=True)
class Window:
    """A fault, from its beginning to its end."""

    fault: str
    name: str
    targets: Sequence[str]
    began: float
    effect: float | None = None
    heal: float | None = None
    healed: float | None = None


@dataclass(slots=True)
class Facts:
    """What the predicates ask of the history, in one pass."""

    windows: dict[int, Window] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    """Sends that have failed for certain, by error."""
    phases: dict[str, float] = field(default_factory=dict)
    assigned: list[Ownership] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    processed: list[tuple[float, int]] = field(default_factory=list)
    """(when, how many records) by members of the group."""

    @classmethod
    def of(cls, history: Iterable[Record]) -> "Facts":
        facts = cls()
        for record in history:
            facts._note(record)
        return facts

    def _note(self, record: Record) -> None:
        match record:
            case FaultStep(what="begin"):
                self.windows[record.id] = Window(record.fault, record.name, record.target, record.t)
            case FaultStep() if record.id in self.windows:
                setattr(self.windows[record.id], record.what, record.t)
            case Sent(outcome="fail"):
                self.refused[record.error or "?"] += 1
            case Phase():
                self.phases.setdefault(record.phase, record.t)
            case Ownership(kind="assigned", group=str()):
                self.assigned.append(record)
            case Crash():
                self.crashes.append(record)
            case Processed():
                self.processed.append((record.t, sum(span.last - span.first + 1 for span in record.partitions)))
            case _:
                pass

    @property
    def first_fault(self) -> float:
        """Everything, when there was none."""
        return min((window.began for window in self.windows.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class Seen:
    facts: Facts
    samples: s.Samples
    observed: Sequence[Mapping[str, Any]] = ()
    """By the faults: of each what it saw of its targets."""

    def partitions(self, since: float = 0.0) -> Iterator[tuple[float, s.PartitionState]]:
        for look in self.samples.of(s.Partitions):
            if look.t >= since:
                yield from ((look.t, each) for each in look.partitions)


Judge = Callable[[Seen, Any], tuple[bool, str]]


@dataclass(frozen=True, slots=True)
class Predicate:
    name: str
    about: str
    judge: Judge
    """Whether it holds, and what was measured."""
    parse: Callable[[str], Any] | None = None
    """Of its argument; None: it takes none."""


def check(name: str, argument: str) -> Expected:
    """ValueError says what is wrong with it."""
    predicate = PREDICATES.get(name)
    if predicate is None:
        raise ValueError(f"no predicate {name!r}{suggestion(name, PREDICATES)} (there are {', '.join(PREDICATES)})")
    if predicate.parse is None and argument:
        raise ValueError(f"{name!r} takes no argument")
    if predicate.parse is not None:
        if not argument:
            raise ValueError(f"{name!r} needs an argument: `{name}: ...`")
        predicate.parse(argument)
    return Expected(name, argument)


def judge(expected: Sequence[Expected], seen: Seen) -> list[Kept]:
    found = []
    for each in expected:
        predicate = PREDICATES[each.name]
        argument = None if predicate.parse is None else predicate.parse(each.argument)
        kept, measured = predicate.judge(seen, argument)
        found.append(Kept(predicate.about, kept, measured, each.argument or "-"))
    return found


# --- the ISR and elections ------------------------------------------------------------------------------------------


def _smallest_isr(seen: Seen) -> int | None:
    return min((len(state.isr) for _, state in seen.partitions(seen.facts.first_fault)), default=None)


def _isr_shrinks_to(seen: Seen, size: int) -> tuple[bool, str]:
    smallest = _smallest_isr(seen)
    return smallest == size, "not seen" if smallest is None else str(smallest)


def _isr_stays_full(seen: Seen, _: None) -> tuple[bool, str]:
    short = [state for _, state in seen.partitions(seen.facts.first_fault) if set(state.isr) != set(state.replicas)]
    seen_any = _smallest_isr(seen) is not None
    return seen_any and not short, f"ISR {list(short[0].isr)} of partition {short[0].partition}" if short else "full"


def _elections(seen: Seen) -> dict[TopicPartition, int]:
    """How much each partition's leader epoch has risen while somebody looked."""
    epochs: dict[TopicPartition, list[int]] = {}
    for _, state in seen.partitions():
        epochs.setdefault(TopicPartition(state.topic, state.partition), []).append(state.leader_epoch)
    return {tp: max(found) - found[0] for tp, found in epochs.items()}


def _elections_at_most(seen: Seen, most: int) -> tuple[bool, str]:
    worst = max(_elections(seen).values(), default=None)
    return worst is not None and worst <= most, "not seen" if worst is None else f"{worst} of one partition"


def _elections_at_least(seen: Seen, least: int) -> tuple[bool, str]:
    total = sum(_elections(seen).values())
    return total >= least, f"{total} of all partitions"


def _no_elections(seen: Seen, _: None) -> tuple[bool, str]:
    found = _elections(seen)
    return bool(found) and not any(found.values()), f"{sum(found.values())}"


def _leaderless(seen: Seen, _: None) -> tuple[bool, str]:
    without = {state.partition for _, state in seen.partitions() if state.leader == NO_LEADER}
    return not without, f"partitions {sorted(without)}" if without else "none"


# --- controllers, sessions, groups ----------------------------------------------------------------------------------


def _controller_epochs(seen: Seen) -> set[int]:
    return {look.epoch for look in seen.samples.of(s.ControllerLook) if look.active}


def _controller_changes(seen: Seen, changes: int) -> tuple[bool, str]:
    epochs = _controller_epochs(seen)
    return len(epochs) == changes + 1, f"{len(epochs) - 1}"


def _sessions_kept(seen: Seen, _: None) -> tuple[bool, str]:
    """A counter begins anew with each life of its process, so that what it rises by counts."""
    last: dict[str, int] = {}
    expired: Counter[str] = Counter()
    for look in seen.samples.looks:
        if isinstance(look, s.BrokerLook | s.ControllerLook):
            before = last.get(look.process, look.session_expirations)
            expired[look.process] += max(0, look.session_expirations - before)
            last[look.process] = look.session_expirations
    ended = +expired
    return bool(last) and not ended, ", ".join(f"{name}: {n}" for name, n in ended.items()) or "all"


def _generations(seen: Seen, since: float) -> set[tuple[int, int]]:
    looks = (look for look in seen.samples.of(s.GroupLook) if look.members)
    until = seen.facts.phases.get("final", float("inf"))
    return {(look.coordinator_epoch, look.generation) for look in looks if since <= look.t < until}


def _no_rebalance(seen: Seen, _: None) -> tuple[bool, str]:
    """Another coordinator counts on from the generation of the one before."""
    generations = {generation for _, generation in _generations(seen, seen.facts.first_fault)}
    return len(generations) == 1, f"generations {sorted(generations)}"


def _coordinator_changes(seen: Seen, _: None) -> tuple[bool, str]:
    epochs = {epoch for epoch, _ in _generations(seen, 0.0)}
    return len(epochs) > 1, f"{len(epochs) - 1}"


def _group_moves_within(seen: Seen, within_s: float) -> tuple[bool, str]:
    """From each crash of a member to the next assignment."""
    waits = []
    for crash in seen.facts.crashes:
        if any(given.process == crash.process for given in seen.facts.assigned):
            after = [given.t for given in seen.facts.assigned if given.t > crash.t and given.process != crash.process]
            waits.append(min(after, default=float("inf")) - crash.t)
    worst = max(waits, default=None)
    return worst is not None and worst <= within_s, "no crash" if worst is None else f"{worst:.1f} s"


def _group_works_on(seen: Seen, least: float) -> tuple[bool, str]:
    """What the group processes while faults are in force, against what it did before, by second."""
    windows = seen.facts.windows.values()
    until = max((window.healed or window.began for window in windows), default=0.0)
    since = seen.facts.first_fault
    before = sum(n for t, n in seen.facts.processed if t < since) / max(since, 1e-9)
    during = sum(n for t, n in seen.facts.processed if since <= t < until) / max(until - since, 1e-9)
    part = during / before if before else 0.0
    return part >= least, f"{part:.0%}"


# --- the faults and the records -------------------------------------------------------------------------------------


def _refused_with(seen: Seen, error: str) -> tuple[bool, str]:
    found = seen.facts.refused
    return found[error] > 0, ", ".join(f"{n} {name}" for name, n in sorted(found.items())) or "nothing refused"


def _effect_within(seen: Seen, within_s: float) -> tuple[bool, str]:
    took = [window.effect - window.began for window in seen.facts.windows.values() if window.effect is not None]
    worst = max(took, default=None)
    return worst is not None and worst <= within_s, "no fault" if worst is None else f"{worst:.1f} s"


def _ends_in_order(seen: Seen, _: None) -> tuple[bool, str]:
    """Of those that were asked to end."""
    ends = {name: each for found in seen.observed for name, each in found.items() if isinstance(each, Mapping)}
    codes = [f"{name}: {each.get('exit_code')}" for name, each in ends.items()]
    good = all(each.get("exit_code") == 0 and each.get("clean", True) for each in ends.values())
    return bool(ends) and good, ", ".join(codes) or "nobody was asked to end"


def _watermark_stands(seen: Seen, partition: int) -> tuple[bool, str]:
    """Of the partition as its leaders tell it, between the effect of the first fault and its healing."""
    window = min(seen.facts.windows.values(), key=lambda each: each.began, default=None)
    if window is None or window.effect is None or window.heal is None:
        return False, "no fault"
    marks = [
        replica.high_watermark
        for look in seen.samples.of(s.BrokerLook)
        if window.effect + SETTLED_S <= look.t and look.t + look.took <= window.heal
        for replica in look.replicas
        if replica.leads and replica.partition == partition
    ]
    return bool(marks) and max(marks) == min(marks), f"rose by {max(marks) - min(marks)}" if marks else "not seen"


SETTLED_S: Final = 0.5
"""What was on its way when the link was cut has arrived."""

_ALL: Final = (
    Predicate("isr shrinks to", "the smallest ISR under faults", _isr_shrinks_to, count),
    Predicate("isr stays full", "no replica leaves its ISR", _isr_stays_full),
    Predicate("elections at most", "elections of one partition, at most", _elections_at_most, count),
    Predicate("elections at least", "elections of all partitions, at least", _elections_at_least, count),
    Predicate("no elections", "no election", _no_elections),
    Predicate("always a leader", "no partition without a leader", _leaderless),
    Predicate("controller changes", "changes of the active controller", _controller_changes, count),
    Predicate("sessions kept", "no ZooKeeper session expires", _sessions_kept),
    Predicate("no rebalance", "the group's generation stays", _no_rebalance),
    Predicate("coordinator changes", "another broker coordinates the group", _coordinator_changes),
    Predicate("group moves within", "a crashed member's partitions move within", _group_moves_within, duration),
    Predicate("group works on", "the group's rate under faults, of its rate before", _group_works_on, share),
    Predicate("refused with", "sends are refused with", _refused_with, str),
    Predicate("effect within", "the fault takes effect within", _effect_within, duration),
    Predicate("ends in order", "who is asked to end does, with exit code 0 and a clean marker", _ends_in_order),
    Predicate("watermark stands", "under the fault the high watermark stands, of partition", _watermark_stands, count),
)
PREDICATES: Final = {predicate.name: predicate for predicate in _ALL}
