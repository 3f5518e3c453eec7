"""Where replicas go when a cluster grows, shrinks or is balanced anew (HL3, OPEN-15, F-10): plans only, nothing moves here."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tidelog.controller.leading import lead_evenly
from tidelog.controller.leveling import Holdings
from tidelog.controller.placement import spread
from tidelog.controller.racks import Racks, check_racks
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]
Assignments = Mapping[TopicPartition, Replicas]
"""The replicas of each partition; the first is the preferred leader."""


def rebalance(
    current: Assignments, brokers: Mapping[BrokerId, str], *, leaving: Collection[BrokerId] = ()
) -> dict[TopicPartition, Replicas]:
    """The least moves that even out the load: only changed partitions are in the answer.

    `brokers` names those that may hold replicas afterwards, each with its rack ('' is none); `leaving` those that must hold
    none. So it serves growth, draining and both at once. A replica on any other broker (one that is down and not leaving)
    stays where it is, with its lead, and is not counted below; balance anew when that broker is back.

    After it, and in this order of precedence:

    * No replica is on a leaving broker, no partition has more or fewer replicas than before.
    * The replicas of each partition are in different racks, or where there are more of them than racks, every rack has one
      (HOLE-29), whether or not that was so before.
    * Replicas per broker differ by at most one. Where racks or replication factors do not let them (a rack of one broker must
      hold a replica of everything), they are the most even that there are: the largest load is the least possible, then the
      second largest, and so on.
    * No fewer moved replicas (those on a broker that did not hold one of that partition) lead to loads that are as even under
      the same rules: `leveling` finds the least of a convex flow and stops at the proof of it, a residual graph without a
      negative cycle. A plan that moves nothing is among those compared, so where all is even nothing moves.
    * Preferred leaders per broker differ by at most one, by another order of replicas alone, where all partitions have one
      replication factor and replicas per broker differ by at most one: the argument is in `leading`. Fewest partitions get
      another preferred leader. Otherwise the order makes leaders as even as can be, and if that is not within one,
      pairs of replicas change places until it is or none helps. Only these come on top of the least number of moves; each
      is the cheapest one, but that their number is the least is not proven.

    The moves are taken from all topics in about equal shares. The same input gives the same plan, in whatever order it comes.
    TidelogError, and nothing is planned, if there are no brokers, if a partition has more replicas than there are brokers
    (both named, with the limit), if some brokers have racks and others none, or if one both stays and leaves.
    """
    _check(current, brokers, leaving)
    partitions = sorted(current)
    homes = [[each for each in current[tp] if each in brokers] for tp in partitions]
    factors = [sum(each in brokers or each in leaving for each in current[tp]) for tp in partitions]
    racks = Racks(brokers)
    held = _filled(homes, factors, brokers, racks)
    replicas = Holdings(
        brokers,
        held,
        [frozenset(home) for home in homes],
        lambda item, giver, among: racks.takers(held[item], giver, among),
        _fair_order(partitions),
    )
    replicas.level()
    known = {*brokers, *leaving}
    heads = [
        {_in_place(current[tp], each, known)[0]}.intersection(brokers)
        for tp, each in zip(partitions, held, strict=True)
    ]
    lead_evenly(replicas, heads, [frozenset(current[tp][:1]) for tp in partitions])
    planned: dict[TopicPartition, Replicas] = {}
    for tp, each, head in zip(partitions, held, heads, strict=True):
        row = _in_place(current[tp], each, known)
        planned[tp] = (*head, *(other for other in row if other not in head))
    return {tp: row for tp, row in planned.items() if row != current[tp]}


def _filled(
    homes: Sequence[Sequence[BrokerId]], factors: Sequence[int], brokers: Collection[BrokerId], racks: Racks
) -> list[set[BrokerId]]:
    """Replicas that stay as far as racks let them, and the missing ones on those that hold least."""
    held: list[set[BrokerId]] = []
    load = dict.fromkeys(sorted(brokers), 0)
    for home, factor in zip(homes, factors, strict=True):
        stay: set[BrokerId] = set()
        for each in home:
            if racks.takes(stay, each, factor):
                stay.add(each)
                load[each] += 1
        held.append(stay)
    for stay, factor in zip(held, factors, strict=True):
        while len(stay) < factor:
            least = min((each for each in load if racks.takes(stay, each, factor)), key=load.__getitem__)
            stay.add(least)
            load[least] += 1
    return held


def _fair_order(partitions: Sequence[TopicPartition]) -> list[int]:
    """Indexes of the partitions, so that every first part of them takes about the same share of each topic."""
    sizes = Counter(tp.topic for tp in partitions)
    seen: Counter[str] = Counter()
    place = []
    for tp in partitions:
        place.append((seen[tp.topic] + 0.5) / sizes[tp.topic])
        seen[tp.topic] += 1
    return sorted(range(len(partitions)), key=place.__getitem__)


def _in_place(old: Replicas, new: Collection[BrokerId], known: Collection[BrokerId]) -> Replicas:
    """The replicas that stay keep their places, and the others' places go to those that come."""
    coming = iter(sorted(set(new) - set(old)))
    return tuple(each if each in new or each not in known else next(coming) for each in old)


def generate(current: Assignments, brokers: Mapping[BrokerId, str]) -> dict[TopicPartition, Replicas]:
    """All topics placed anew over `brokers` as at their creation (HL2.01), whatever moves: only changed partitions.

    Each topic begins where the one before it (by name) ended, so that leaders are even over all topics too. Replication
    factors stay. Racks as in `placement.spread`. No replica stays on any other broker.
    """
    _check(current, brokers, {each for row in current.values() for each in row} - brokers.keys())
    topics: dict[str, list[TopicPartition]] = {}
    for tp in sorted(current):
        topics.setdefault(tp.topic, []).append(tp)
    start, n = 0, len(brokers)
    planned: dict[TopicPartition, Replicas] = {}
    for tps in topics.values():
        factor, count = max(len(current[tp]) for tp in tps), tps[-1].partition + 1
        rows = spread(brokers, count, factor, start=start % n, shift=start // n % max(n - 1, 1))
        planned.update((tp, rows[tp.partition][: len(current[tp])]) for tp in tps)
        start += count
    return {tp: row for tp, row in planned.items() if row != current[tp]}


def _check(current: Assignments, brokers: Mapping[BrokerId, str], leaving: Collection[BrokerId]) -> None:
    if not brokers:
        raise TidelogError(
            "brokers: at least one is needed to hold replicas, and none is left", ErrorCode.INVALID_REQUEST
        )
    if both := sorted(brokers.keys() & set(leaving)):
        raise TidelogError(
            f"leaving: {both} are named among the brokers that may hold replicas", ErrorCode.INVALID_REQUEST
        )
    check_racks(brokers)
    for tp in sorted(current):
        factor = sum(each in brokers or each in leaving for each in current[tp])
        if factor > len(brokers):
            raise TidelogError(
                f"brokers: {tp} needs {factor} of them for its replicas, and there are {len(brokers)}",
                ErrorCode.INVALID_REPLICATION_FACTOR,
            )
