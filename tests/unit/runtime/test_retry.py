"""Policies are data: what they apply to, how long they pause, when they give up."""

import random

import pytest

from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.runtime.retry import ADMIN, ALTER_ISR, BOOTSTRAP, FETCH, METADATA, PRODUCER, Policy
from tidelog.testing.clock import SimClock

ALL = [PRODUCER, FETCH, BOOTSTRAP, METADATA, ADMIN, ALTER_ISR]


@pytest.mark.parametrize("policy", ALL)
def test_pauses_grow_to_their_ceiling_and_a_seed_repeats_them(policy: Policy) -> None:
    def pauses() -> list[float]:
        rand = random.Random(7)
        return [policy.pause_s(rand, n) for n in range(1, 60)]

    found = pauses()
    assert found == pauses()
    assert policy.first_pause_s / 2 <= found[0] <= policy.first_pause_s
    assert all(policy.ceiling_s / 2 <= p <= policy.ceiling_s for p in found[30:])


def test_kill_the_producer_looks_often_enough_to_find_a_leader_within_a_second() -> None:
    rand = random.Random(1)
    total, tries = 0.0, 0
    while total < 1.0:
        tries += 1
        total += PRODUCER.pause_s(rand, tries)
    assert tries >= 7


@pytest.mark.parametrize("policy", ALL)
def test_transport_trouble_is_retried_and_nonsense_is_not(policy: Policy) -> None:
    assert policy.applies(TransportError("UNAVAILABLE"))
    assert policy.applies(TidelogError("x", ErrorCode.NOT_CONTROLLER))
    assert not policy.applies(TransportError("UNIMPLEMENTED"))
    assert not policy.applies(TidelogError("x", ErrorCode.INVALID_REQUEST))
    assert not policy.applies(ValueError("a bug"))


async def test_a_loop_gives_up_in_time_with_the_last_error() -> None:
    clock = SimClock()
    tries = 0
    with pytest.raises(TransportError, match="UNAVAILABLE"):
        async for attempt in ADMIN.retrying(clock, random.Random(1), 2.0):
            with attempt:
                tries += 1
                raise TransportError("UNAVAILABLE")
    assert tries > 2
    assert clock.now() < 2.0
