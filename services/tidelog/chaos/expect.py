"""Extra assertions of a scenario: named predicates over what was seen of the cluster and over the history.

Each is judged like a promise: kept or not, what was measured, and the limit.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final

from tidelog.chaos import samples as s
from tidelog.chaos.checker.verdict import Kept
from tidelog.chaos.facts import Facts
from tidelog.chaos.quantities import count, duration, share
from tidelog.chaos.scenario import Expected
from tidelog.cluster.api import BROKER, CONTROLLER, ZOOKEEPER, broker_name, kind_of
from tidelog.ids import NO_EPOCH, NO_LEADER, TopicPartition
from tidelog.names import suggestion

LOOKS_REACH_S: Final = 3.0
"""How long before the end of the last fault the last look may be."""
SETTLED_S: Final = 0.5
"""What was on its way when the link was cut has arrived."""


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

    def throughout(self, times: Iterable[float]) -> bool:
        """Whether the looks of these times began before the first fault and reach to the end of the last: what is not seen by
        such looks did not happen, or was undone."""
        looked, facts = sorted(times), self.facts
        if not looked or not facts.windows:
            return bool(looked)
        return looked[0] <= facts.first_fault and looked[-1] >= facts.faults_until - LOOKS_REACH_S


Judge = Callable[[Seen, Any], tuple[bool, str]]


@dataclass(frozen=True, slots=True)
class Predicate:
    name: str
    about: str
    """The phrase for what is judged; `{}` here and in `limit` stands for the argument."""
    limit: str
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
        said = f"{argument:g} s" if predicate.parse is duration else each.argument
        found.append(Kept(predicate.about.format(said), kept, measured, predicate.limit.format(said)))
    return found


# --- the ISR and elections ------------------------------------------------------------------------------------------


def _smallest_isr(seen: Seen) -> int | None:
    return min((len(state.isr) for _, state in seen.partitions(seen.facts.first_fault)), default=None)


def _isr_shrinks_to(seen: Seen, size: int) -> tuple[bool, str]:
    smallest = _smallest_isr(seen)
    return smallest == size, "not seen" if smallest is None else str(smallest)


def _isr_stays_full(seen: Seen, _: None) -> tuple[bool, str]:
    """Between two looks it may have shrunk and grown, each of which raises the partition epoch; and so does an election."""
    short = [
        (t, state) for t, state in seen.partitions(seen.facts.first_fault) if set(state.isr) != set(state.replicas)
    ]
    if short:
        t, state = short[0]
        return False, f"ISR {list(state.isr)} of partition {state.partition} at {t:.2f} s"
    if not _seen_throughout(seen):
        return False, "not seen"
    since = max((t for t, _ in seen.partitions() if t <= seen.facts.first_fault), default=0.0)
    changes: dict[int, list[int]] = defaultdict(list)
    for _t, state in seen.partitions(since):
        changes[state.partition].append(state.partition_epoch - state.leader_epoch)
    changed = sorted(partition for partition, found in changes.items() if len(set(found)) > 1)
    return not changed, f"changed in partitions {changed}" if changed else "full"


def _seen_throughout(seen: Seen) -> bool:
    return seen.throughout(t for t, _ in seen.partitions())


def _elections(seen: Seen) -> dict[TopicPartition, int]:
    """How much each partition's leader epoch has risen while somebody looked."""
    epochs: dict[TopicPartition, list[int]] = {}
    for _, state in seen.partitions():
        epochs.setdefault(TopicPartition(state.topic, state.partition), []).append(state.leader_epoch)
    return {tp: max(found) - found[0] for tp, found in epochs.items()}


def _elections_at_most(seen: Seen, most: int) -> tuple[bool, str]:
    worst = max(_elections(seen).values(), default=None)
    if worst is None or not _seen_throughout(seen):
        return False, "not seen"
    return worst <= most, str(worst)


def _elections_at_least(seen: Seen, least: int) -> tuple[bool, str]:
    total = sum(_elections(seen).values())
    return total >= least, str(total)


def _no_elections(seen: Seen, _: None) -> tuple[bool, str]:
    found = sum(_elections(seen).values())
    looked = _seen_throughout(seen)
    return not found and looked, f"{found} elections" if found or looked else "not seen"


def _leaderless(seen: Seen, _: None) -> tuple[bool, str]:
    without = [(t, state.partition) for t, state in seen.partitions() if state.leader == NO_LEADER]
    if not without and not _seen_throughout(seen):
        return False, "not seen"
    if not without:
        return True, "none"
    return False, f"partitions {sorted({partition for _, partition in without})}, first at {without[0][0]:.2f} s"


# --- controllers, sessions, groups ----------------------------------------------------------------------------------


def _controller_epochs(seen: Seen) -> set[int]:
    return {look.epoch for look in seen.samples.of(s.ControllerLook) if look.active}


def _controller_changes(seen: Seen, changes: int) -> tuple[bool, str]:
    epochs = _controller_epochs(seen)
    if not seen.throughout(look.t for look in seen.samples.of(s.ControllerLook) if look.active):
        return False, "not seen"
    return len(epochs) == changes + 1, f"{len(epochs) - 1}"


def _one_controller(seen: Seen, _: None) -> tuple[bool, str]:
    last = {look.process: look for look in seen.samples.of(s.ControllerLook) if look.t >= seen.facts.faults_until}
    active = {look.process: look.epoch for look in last.values() if look.active}
    told = ", ".join(f"{name} in epoch {epoch}" for name, epoch in sorted(active.items()))
    newest = max(_controller_epochs(seen), default=None)
    return list(active.values()) == [newest], told or "none"


def _sessions_kept(seen: Seen, _: None) -> tuple[bool, str]:
    """A counter begins anew with each life of its process, so that what it rises by counts."""
    last: dict[str, int] = {}
    times: dict[str, list[float]] = defaultdict(list)
    expired: Counter[str] = Counter()
    for look in seen.samples.looks:
        if isinstance(look, s.ProcessStates):
            for name in look.states:
                if kind_of(name) in (BROKER, CONTROLLER):
                    times[name]  # it must be seen itself
        elif isinstance(look, s.BrokerLook | s.ControllerLook) and look.session_expirations is not None:
            before = last.get(look.process, look.session_expirations)
            expired[look.process] += max(0, look.session_expirations - before)
            last[look.process] = look.session_expirations
            times[look.process].append(look.t)
    ended = +expired
    if ended:
        return False, ", ".join(f"{name}: {n}" for name, n in ended.items())
    unseen = sorted(name for name, found in times.items() if not seen.throughout(found))
    return bool(times) and not unseen, f"not seen: {', '.join(unseen)}" if unseen else "all" if times else "not seen"


def _all_zookeepers_serve(seen: Seen, _: None) -> tuple[bool, str]:
    """In the end, as the last look at each says, or the last one that got no answer."""
    roles: dict[str, str] = {}
    for look in seen.samples.looks:
        if isinstance(look, s.ZooKeeperLook):
            roles[look.process] = look.role if look.t >= seen.facts.faults_until else ""
        elif isinstance(look, s.Silent) and kind_of(look.source) == ZOOKEEPER:
            roles[look.source] = ""
    away = sorted(name for name, role in roles.items() if not role)
    return bool(roles) and not away, f"not {', '.join(away)}" if away else "all" if roles else "not seen"


def _group_looks(seen: Seen) -> list[s.GroupLook]:
    """While it had members, and the load lasted."""
    until = seen.facts.phases.get("final", inf)
    return [look for look in seen.samples.of(s.GroupLook) if look.members and look.t < until]


def _no_rebalance(seen: Seen, _: None) -> tuple[bool, str]:
    """From the last look before the first fault on. Another coordinator counts on from the generation of the one before."""
    looks = _group_looks(seen)
    if not seen.throughout(look.t for look in looks):
        return False, "not seen"
    since = max((look.t for look in looks if look.t <= seen.facts.first_fault), default=0.0)
    generations = {look.generation for look in looks if look.t >= since}
    return len(generations) == 1, f"generation {', '.join(map(str, sorted(generations)))}"


def _coordinator_changes(seen: Seen, _: None) -> tuple[bool, str]:
    epochs = {look.coordinator_epoch for look in _group_looks(seen)}
    return len(epochs) > 1, f"{len(epochs) - 1}"


def _commits_kept(seen: Seen, _: None) -> tuple[bool, str]:
    """As whoever coordinates the group tells of them."""
    looks = [look for look in seen.samples.of(s.GroupLook) if look.committed]
    if not seen.throughout(look.t for look in looks):
        return False, "not seen"
    highest: dict[tuple[str, int], int] = {}
    for look in looks:
        for each in look.committed:
            before = highest.get((each.topic, each.partition), 0)
            if each.offset < before:
                return False, f"{each.topic}-{each.partition} from {before} to {each.offset} at {look.t:.1f} s"
            highest[each.topic, each.partition] = each.offset
    return True, "all"


def _group_stops(seen: Seen, at_most_s: float) -> tuple[bool, str]:
    """The longest time in which its members processed nothing, while the load lasted."""
    until = seen.facts.phases.get("final", inf)
    times = [t for t, _ in seen.facts.processed if t < until]
    if not times or until == inf:
        return False, "not seen"
    worst = max(after - before for before, after in pairwise([*times, until]))
    return worst <= at_most_s, f"{worst:.1f} s"


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


def _others_work_on(seen: Seen, least: float) -> tuple[bool, str]:
    """From each crash to the next, while the load lasted: what is processed of the partitions that were last in the hands of
    members that live, against the time before the first crash, by second; the worst of it."""
    facts = seen.facts
    until = facts.phases.get("heal", facts.phases.get("final", inf))
    spans = [(each.t, after.t) for each, after in pairwise(facts.crashes) if after.t <= until]
    worst: float | None = None
    for since, end in spans:
        dead = {crash.process for crash in facts.crashes if crash.t <= since}
        hands = {
            (part.topic, part.partition): work.process
            for work in facts.work
            if work.t < since
            for part in work.partitions
        }
        theirs = {tp for tp, process in hands.items() if process not in dead}
        before = _rate(facts, theirs, 0.0, spans[0][0])
        part = _rate(facts, theirs, since, end) / before if before else 0.0
        worst = part if worst is None else min(worst, part)
    return worst is not None and worst >= least, "not seen" if worst is None else f"{worst:.0%}"


def _rate(facts: Facts, partitions: Collection[tuple[str, int]], since: float, until: float) -> float:
    """Records a second that the group has processed of these partitions."""
    spans = [span for work in facts.work if since <= work.t < until for span in work.partitions]
    return sum(s.last - s.first + 1 for s in spans if (s.topic, s.partition) in partitions) / (until - since)


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


def _deposed_silent(seen: Seen, _: None) -> tuple[bool, str]:
    late = seen.facts.deposed_acks
    if late:
        return False, f"{len(late)}, first {late[0][1]} at {late[0][0]:.3f} s"
    return seen.facts.takeovers > 0, "none" if seen.facts.takeovers else "no new leader has acknowledged anything"


def _deposed_watermark(seen: Seen, _: None) -> tuple[bool, str]:
    """Of leaders that others have followed, from the first look that shows the newer epoch; they have to be looked at then."""
    newer: dict[TopicPartition, dict[int, float]] = defaultdict(dict)
    leaders: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
    for look in seen.samples.of(s.Partitions):
        for state in look.partitions:
            tp = TopicPartition(state.topic, state.partition)
            newer[tp].setdefault(state.leader_epoch, look.t + look.took)
            if state.leader != NO_LEADER:
                leaders[tp].setdefault(state.leader_epoch, broker_name(state.leader))
    looked, marks = False, defaultdict[tuple[str, TopicPartition, int], list[int]](list)
    for each in seen.samples.of(s.BrokerLook):
        for replica in each.replicas:
            tp = TopicPartition(replica.topic, replica.partition)
            known = max((epoch for epoch, t in newer[tp].items() if t <= each.t), default=NO_EPOCH)
            looked |= any(leader == each.process for epoch, leader in leaders[tp].items() if epoch < known)
            if replica.leads and replica.leader_epoch < known:
                marks[each.process, tp, replica.leader_epoch].append(replica.high_watermark)
    if not looked:
        return False, "no deposed leader was seen"
    rose = max((max(found) - min(found) for found in marks.values()), default=0)
    return not rose, f"rose by {rose}" if rose else "stood" if marks else "they lead no more"


def _first_window(seen: Seen) -> tuple[float, float] | None:
    """From the effect of the first fault, when what was on its way has arrived, to its healing."""
    window = min(seen.facts.windows.values(), key=lambda each: each.began, default=None)
    if window is None or window.effect is None or window.heal is None:
        return None
    return window.effect + SETTLED_S, window.heal


def _marks_under_fault(seen: Seen, partition: int) -> list[int]:
    """High watermarks of the partition as its leaders tell them, under the first fault."""
    if (window := _first_window(seen)) is None:
        return []
    return [
        replica.high_watermark
        for look in seen.samples.of(s.BrokerLook)
        if window[0] <= look.t and look.t + look.took <= window[1]
        for replica in look.replicas
        if replica.leads and replica.partition == partition
    ]


def _watermark_stands(seen: Seen, partition: int) -> tuple[bool, str]:
    marks = _marks_under_fault(seen, partition)
    return len(marks) > 1 and max(marks) == min(marks), f"rose by {max(marks) - min(marks)}" if marks else "not seen"


def _nothing_new_read(seen: Seen, partition: int) -> tuple[bool, str]:
    """By the load's consumers, of what is not below the lowest of the high watermarks under the first fault."""
    marks, window = _marks_under_fault(seen, partition), _first_window(seen)
    if not marks or window is None:
        return False, "not seen"
    read = [
        each.offset
        for each in seen.facts.reads
        if each.tp.partition == partition and window[0] <= each.ended <= window[1] and each.offset >= min(marks)
    ]
    return not read, f"offset {max(read)}" if read else f"nothing from offset {min(marks)} on"


_ALL: Final = (
    Predicate("isr shrinks to", "the smallest ISR under faults", "exactly {}", _isr_shrinks_to, count),
    Predicate("isr stays full", "no replica leaves its ISR", "full throughout", _isr_stays_full),
    Predicate("elections at most", "elections of any one partition", "at most {}", _elections_at_most, count),
    Predicate("elections at least", "elections of all partitions together", "at least {}", _elections_at_least, count),
    Predicate("no elections", "no leader is elected", "0 elections", _no_elections),
    Predicate("always a leader", "no partition is without a leader", "none without", _leaderless),
    Predicate("controller changes", "changes of the active controller", "exactly {}", _controller_changes, count),
    Predicate(
        "one controller acts", "one controller is active in the end", "the one of the newest epoch", _one_controller
    ),
    Predicate("sessions kept", "no ZooKeeper session expires", "all kept", _sessions_kept),
    Predicate("all zookeepers serve", "every ZooKeeper server serves in the end", "all serve", _all_zookeepers_serve),
    Predicate("no rebalance", "the group is not rebalanced", "one generation", _no_rebalance),
    Predicate(
        "coordinator changes",
        "another broker takes over as coordinator of the group",
        "at least 1",
        _coordinator_changes,
    ),
    Predicate("commits kept", "no committed offset falls", "all kept", _commits_kept),
    Predicate(
        "group stops at most", "longest time in which the group processes nothing", "at most {}", _group_stops, duration
    ),
    Predicate(
        "group moves within",
        "time until the partitions of a crashed member have moved",
        "at most {}",
        _group_moves_within,
        duration,
    ),
    Predicate(
        "group works on",
        "the group's rate under faults, as a share of its rate before",
        "at least {}",
        _group_works_on,
        share,
    ),
    Predicate(
        "others work on",
        "the rate of the members beside those that crash, as a share of the rate before",
        "at least {}",
        _others_work_on,
        share,
    ),
    Predicate("refused with", "sends are refused with {}", "at least 1", _refused_with, str),
    Predicate("effect within", "time until the fault takes effect", "at most {}", _effect_within, duration),
    Predicate(
        "ends in order", "each process that is told to end does so with a clean marker", "exit code 0", _ends_in_order
    ),
    Predicate("deposed are silent", "no deposed leader acknowledges an acks=all record", "0", _deposed_silent),
    Predicate(
        "deposed watermark stands", "the high watermark of a deposed leader stands", "rises by 0", _deposed_watermark
    ),
    Predicate(
        "nothing new is read",
        "under the fault nothing is read above the high watermark of partition {}",
        "nothing",
        _nothing_new_read,
        count,
    ),
    Predicate(
        "watermark stands",
        "under the fault the high watermark of partition {} stands",
        "rises by 0",
        _watermark_stands,
        count,
    ),
)
PREDICATES: Final = {predicate.name: predicate for predicate in _ALL}
