"""Preferred leaders, as even as can be over replicas that are placed: by another order of them, and else by exchanges.

Where all partitions have one replication factor r and the loads differ by one at most, the order alone does it. Let every
broker hold q or q + 1 replicas, and each replica lead 1/r of its partition: a broker leads q/r or (q + 1)/r. The flow that
this is has a whole one whose loads are these, rounded down or up (all bounds are whole); and between them lies no whole
number but perhaps one of both, so the rounded loads differ by one at most. With several replication factors that may fail:
where some brokers hold all partitions of one replica, they lead more than the others however many replicas they hold. Then
pairs of replicas change places, which leaves the loads as they are, or a replica goes to who then
holds the one more that the giver held.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from tidelog.controller.leveling import HandOver, Holdings
from tidelog.ids import BrokerId


class _Exchange(NamedTuple):
    led: HandOver
    """Its giver leads; its taker shall."""
    followed: tuple[HandOver, ...]
    """One back, so that both hold as much as before; none, if the giver held one more than the taker."""


def lead_evenly(replicas: Holdings, heads: Sequence[set[BrokerId]], homes: Sequence[Set[BrokerId]]) -> None:
    """Changes `heads`, the leader of each partition (empty: not counted), and `replicas` only where no order is even.

    `homes` are the leaders that cost nothing: of all orders that are as even, the one with the fewest other leaders. Each
    exchange is the cheapest that makes leaders more even; whether some dearer one would have saved others is not looked into.
    """
    brokers = replicas.brokers
    leaders = Holdings(
        brokers,
        heads,
        homes,
        lambda item, giver, among: (among & replicas.held[item]) - {giver},
        range(len(heads)),
    )
    leaders.level()
    while max(map(leaders.load, brokers)) - min(map(leaders.load, brokers)) > 1:
        before = leaders.squares()
        exchange = _cheapest(replicas, leaders)
        if exchange is None:
            return
        cost = _cost(replicas, exchange)
        while exchange is not None:
            for step in (exchange.led, *exchange.followed):
                replicas.hand_over(step)
            leaders.hand_over(exchange.led)
            exchange = _again(replicas, leaders, exchange, cost)
        leaders.level()
        assert leaders.squares() < before  # what makes the way to the giver and from the taker is not touched by it


def _cost(replicas: Holdings, exchange: _Exchange) -> int:
    return sum(map(replicas.cost, (exchange.led, *exchange.followed)))


def _followed(replicas: Holdings, leaders: Holdings, broker_id: BrokerId) -> list[int]:
    return [item for item in replicas.of(broker_id) if item not in leaders.of(broker_id)]


def _again(replicas: Holdings, leaders: Holdings, done: _Exchange, cost: int) -> _Exchange | None:
    """Another one between the same two, if it is as cheap and helps by itself: there may be thousands."""
    giver, taker = done.led.giver, done.led.taker
    if not done.followed or leaders.load(giver) - leaders.load(taker) < 2:
        return None
    led = replicas.row(giver, leaders.of(giver), {taker}).best.get(taker)
    followed = replicas.row(taker, _followed(replicas, leaders, taker), {giver}).best.get(giver)
    if led is None or followed is None:
        return None
    exchange = _Exchange(led, (followed,))
    return exchange if _cost(replicas, exchange) <= cost else None


def _cheapest(replicas: Holdings, leaders: Holdings) -> _Exchange | None:
    """Between one that who leads most can hand leadership to and one that can hand it on to who leads least."""
    brokers = replicas.brokers
    onward = {each: leaders.row(each, leaders.of(each)).best.keys() for each in brokers}
    back = {each: {giver for giver, takers in onward.items() if each in takers} for each in brokers}
    most = max(map(leaders.load, brokers))
    givers = _reached((each for each in brokers if leaders.load(each) == most), onward)
    takers = _reached((each for each in brokers if leaders.load(each) <= most - 2), back)
    led = {each: replicas.row(each, leaders.of(each)).best for each in givers}
    followed = {each: replicas.row(each, _followed(replicas, leaders, each)).best for each in takers}
    pairs = [(giver, taker) for giver in sorted(givers) for taker in sorted(takers) if taker in led[giver]]
    exchanges = [
        _Exchange(led[giver][taker], (followed[taker][giver],)) for giver, taker in pairs if giver in followed[taker]
    ]
    exchanges += [
        _Exchange(led[giver][taker], ()) for giver, taker in pairs if replicas.load(giver) == replicas.load(taker) + 1
    ]
    return min(exchanges, key=lambda each: _cost(replicas, each), default=None)


def _reached(start: Iterable[BrokerId], onward: Mapping[BrokerId, Collection[BrokerId]]) -> set[BrokerId]:
    """Whom hand-overs reach from `start`, over any number of others."""
    found = set(start)
    waiting = list(found)
    while waiting:
        new = set(onward[waiting.pop()]) - found
        found |= new
        waiting += new
    return found
