"""A topic of which replicas can move to a broker that holds nothing yet."""

from typing import Final

from helpers.driven_brokers import Driven

BEFORE: Final = {0: (1, 2), 1: (2, 1), 2: (1, 2)}
"""Replicas of each partition."""
DEAD: Final = 99
"""A broker that is never alive."""


def placed(cluster: Driven) -> Driven:
    """Topic `events`. What moves to broker 3 stands still while that reaches neither of the others."""
    cluster.place("events", *BEFORE.values())
    cluster.part(1, 3)
    cluster.part(2, 3)
    return cluster


def rows(cluster: Driven) -> dict[int, tuple[int, ...]]:
    """Stored replicas of each partition, of one that moves those of both sides."""
    return {tp.partition: state.replicas for tp, state in cluster.states.items()}
