"""Racks: where they let a partition's replicas lie (HOLE-29, KIP-36).

The replicas of a partition are in different racks as long as there are racks without one; once each has one, racks say
nothing more (F09.2). Where no broker has a rack each broker counts as a rack of its own, so that nothing is restricted.
"""

from collections.abc import Collection, Mapping, Set
from itertools import chain, zip_longest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId


def check_racks(brokers: Mapping[BrokerId, str]) -> None:
    """TidelogError where some brokers have a rack and others none, as Kafka refuses it: a replica there is in no known rack."""
    without = sorted(each for each, rack in brokers.items() if not rack)
    if 0 < len(without) < len(brokers):
        raise TidelogError(
            f"rack: brokers {without} have none and the others have one; set it on all of them, or on none",
            ErrorCode.INVALID_REQUEST,
        )


def alternated(brokers: Mapping[BrokerId, str]) -> list[BrokerId]:
    """The brokers in the order of their numbers, taken from one rack after the other: neighbours are in different racks."""
    by_rack: dict[str, list[BrokerId]] = {}
    for each in sorted(brokers):
        by_rack.setdefault(brokers[each], []).append(each)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [each for each in chain.from_iterable(rounds) if each is not None]


class Racks:
    """The rule for one set of brokers, all with a rack or all without (`check_racks`)."""

    def __init__(self, brokers: Mapping[BrokerId, str]) -> None:
        self._of: dict[BrokerId, str | BrokerId] = {each: rack or each for each, rack in brokers.items()}
        self._members: dict[str | BrokerId, set[BrokerId]] = {}
        for each, rack in self._of.items():
            self._members.setdefault(rack, set()).add(each)

    def takes(self, chosen: Collection[BrokerId], broker_id: BrokerId, factor: int) -> bool:
        """Whether `broker_id` may hold one more of `factor` replicas, `chosen` being taken: some are left for other racks."""
        if broker_id in chosen:
            return False
        covered = {self._of[each] for each in chosen}
        return self._of[broker_id] not in covered or factor - len(chosen) > len(self._members) - len(covered)

    def comes_next(self, chosen: Collection[BrokerId], broker_id: BrokerId) -> bool:
        """Whether it may be the next replica where racks without one come first, so that any first part is spread over racks."""
        covered = {self._of[each] for each in chosen}
        return broker_id not in chosen and (self._of[broker_id] not in covered or len(covered) == len(self._members))

    def takers(self, replicas: Set[BrokerId], giver: BrokerId, among: Set[BrokerId]) -> Set[BrokerId]:
        """Who of `among` may hold the replica of `giver` in its place, the other `replicas` staying where they are."""
        own = self._of[giver]
        others = [self._of[each] for each in replicas if each != giver]
        if len(replicas) < len(self._members):
            return among - {giver}.union(*(self._members[rack] for rack in others))
        if own not in others:  # the only one of its rack: there it must stay
            among &= self._members[own]
        return among - replicas
