"""How many bytes the copies that moves make have already, from what the brokers say of their own data directories. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

Sizes = Mapping[int, Mapping[TopicPartition, int]]
"""Bytes of logs, by broker."""


class Copied(NamedTuple):
    """Bytes that the replicas which are being added have, of those that they need."""

    have: int
    need: int


def copied(move: m.OngoingReassignment, sizes: Sizes) -> Copied | None:
    """None: nobody who has the whole log says how large it is. A new replica of which nothing is known has nothing yet."""
    tp = TopicPartition(move.topic, move.partition)
    coming = set(move.target) - set(move.original)
    whole = max((sizes.get(each, {}).get(tp, -1) for each in set(move.replicas) - coming), default=-1)
    if whole < 0:
        return None
    # A copy may be larger for a moment: the others have deleted what is too old, and it hears of that a little later.
    have = sum(min(whole, sizes.get(each, {}).get(tp, 0)) for each in coming)
    return Copied(have, whole * len(coming))


def holders(moving: Iterable[m.OngoingReassignment]) -> dict[int, set[str]]:
    """Who has a copy of anything that moves, or gets one, and of which topics."""
    found: dict[int, set[str]] = {}
    for each in moving:
        for broker_id in each.replicas:
            found.setdefault(broker_id, set()).add(each.topic)
    return found


def total(found: Iterable[Copied | None]) -> Copied:
    known = [each for each in found if each is not None]
    return Copied(sum(each.have for each in known), sum(each.need for each in known))


class CopyMeter:
    """The sum over everything that moved since the first look: what has come to its end stays counted, as copied."""

    def __init__(self) -> None:
        self._sizes: dict[int, Mapping[TopicPartition, int]] = {}
        self._moves: dict[TopicPartition, Copied] = {}

    def look(self, moving: Iterable[m.OngoingReassignment], sizes: Sizes) -> Copied:
        """`sizes`: of the brokers that answered; of the others what they said last counts."""
        self._sizes |= sizes
        under_way = {TopicPartition(each.topic, each.partition): copied(each, self._sizes) for each in moving}
        ended = {tp: Copied(last.need, last.need) for tp, last in self._moves.items() if tp not in under_way}
        self._moves |= ended
        self._moves |= {tp: found for tp, found in under_way.items() if found is not None}
        return total(self._moves.values())
