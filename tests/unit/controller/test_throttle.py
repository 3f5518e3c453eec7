"""The limit of what moves may copy: stored with the plan, told to every broker, changed on the way, gone with the last move."""

import pytest

from tidelog.controller.effects import Effect, ReassignmentWrite, Send
from tidelog.controller.events import Tick
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import Harness, broker, isr, refusal, snapshot_of, state, stored_topic, want, writes

BROKERS = tuple(broker(number, 10 + number) for number in range(1, 5))
PLAN = {0: (3, 4)}


@pytest.fixture
def c() -> Harness:
    """`t` on brokers 1 and 2; brokers 3 and 4 are empty."""
    harness = Harness()
    harness.elected(stored_topic("t", ((1, 2),), (state(1, 5, isr(b1=11, b2=12), 20),)), brokers=BROKERS)
    return harness


def told(effects: list[Effect]) -> dict[int, tuple[int, int]]:
    """Leader's and follower's limit, by broker."""
    requests = {each.broker_id: each.request for each in effects if isinstance(each, Send)}
    return {
        int(broker_id): (request.leader_throttle, request.follower_throttle)
        for broker_id, request in requests.items()
        if isinstance(request, m.UpdateMetadataRequest)
    }


def told_with_roles(effects: list[Effect]) -> dict[int, tuple[int, int]]:
    requests = [(each.broker_id, each.request) for each in effects if isinstance(each, Send)]
    return {
        int(broker_id): (request.leader_throttle, request.follower_throttle)
        for broker_id, request in requests
        if isinstance(request, m.LeaderAndIsrRequest)
    }


def stored(c: Harness) -> znodes.StoredPlacement:
    return znodes.decode_placement(c.store.znodes[znodes.PLACEMENT][0])


def test_a_limit_is_stored_with_the_plan_and_told_to_every_broker(c: Harness) -> None:
    _, effects = c.move(PLAN, throttle=(1000, 2000))
    (group,) = writes(effects)
    assert isinstance(group, ReassignmentWrite) and group.topics and group.placement is not None
    effects = c.write()
    assert told(effects) == dict.fromkeys((1, 2, 3, 4), (1000, 2000))
    assert told_with_roles(effects) == dict.fromkeys((1, 2, 3, 4), (1000, 2000)), "the copies begin with these"
    assert stored(c) == znodes.StoredPlacement((), 1000, 2000)


def test_a_limit_changes_and_goes_on_the_way(c: Harness) -> None:
    c.move(PLAN, throttle=(1000, 1000))
    c.run()
    c.move(PLAN, throttle=(500, 0))
    assert set(told(c.write()).values()) == {(500, 1000)}
    c.moves(throttle=(-1, -1))
    assert set(told(c.write()).values()) == {(0, 0)}
    token, _ = c.moves(throttle=(-1, 0))
    assert refusal(c, token) == (ErrorCode.NONE, "") and c.in_flight == []


def test_a_limit_outlives_its_controller(c: Harness) -> None:
    c.move(PLAN, throttle=(1000, 2000))
    c.run()
    successor = Harness()
    successor.store = c.store
    effects = successor.takes_over(snapshot_of(c.store, BROKERS), 3)
    assert told(effects) == told_with_roles(effects) == dict.fromkeys((1, 2, 3, 4), (1000, 2000))


def test_a_limit_ends_with_the_last_move(c: Harness) -> None:
    c.drain(2)
    c.plan()
    c.run()
    c.moves(throttle=(1000, 2000))
    c.run()
    assert c.step(Tick(1.0)) == [] and stored(c).leader_throttle == 1000
    leader, epoch, _, version = c.partition()
    target = c.machine.state.topics["t"].partitions[0].target
    members = {f"b{each}": 10 + each for each in sorted({1, 2, *target})}
    c.proposed(leader, want(leader, epoch, isr(**members), version))
    c.run()
    assert c.machine.state.moving == {}
    c.step(Tick(2.0))
    assert set(told(c.write()).values()) == {(0, 0)}
    assert stored(c) == znodes.StoredPlacement((BrokerId(2),))
    assert c.step(Tick(3.0)) == []


@pytest.mark.parametrize("throttle", [(-2, 0), (0, -2)])
def test_a_bad_limit_is_refused_with_the_plan(c: Harness, throttle: tuple[int, int]) -> None:
    token, effects = c.move(PLAN, throttle=throttle)
    name = "leader_throttle" if throttle[0] else "follower_throttle"
    message = f"{name} -2 is below -1, which is no limit"
    assert refusal(c, token) == (ErrorCode.INVALID_REQUEST, message) and writes(effects) == []


def test_a_limit_without_moves_is_refused(c: Harness) -> None:
    token, _ = c.moves(throttle=(1000, 0))
    message = "leader_throttle, follower_throttle: nothing is being moved"
    assert refusal(c, token) == (ErrorCode.INVALID_REQUEST, message) and c.in_flight == []
