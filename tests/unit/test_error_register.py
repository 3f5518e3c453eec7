"""Section R of the requirements, row by row: who answers the code, and what its receiver does about it.

The row of generation 2 (ZKQueue) comes with its code.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from helpers.aio import run
from helpers.batches import batch
from helpers.broker import BrokerBench
from helpers.replica import leader, members
from helpers.replication import FakeLeader, broker_world, until
from helpers.requirements import requirement
from tidelog.client.member_events import Broke, Close, Fail, Lose, Wait
from tidelog.controller.effects import Resign
from tidelog.controller.events import BrokerAnswered
from tidelog.controller.service import ControllerRoutes
from tidelog.errors import REFRESH_METADATA, RETRIABLE, ErrorCode, TidelogError
from tidelog.ids import BrokerId
from tidelog.ports.net import KnownCaller
from tidelog.replica import effects as fx
from tidelog.replica.isr import Committed, PendingExpand
from tidelog.runtime.authorization import guarded
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.retry import ALTER_ISR, ALTER_ISR_UNAUTHORIZED, PRODUCER
from tidelog.testing import loop as sim
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire import services as s
from unit.broker import test_alter_isr_plane as plane
from unit.broker.test_control_service import roles, state, stop
from unit.client import test_membership as member
from unit.controller.harness import isr, want
from unit.coordinator import shell
from unit.coordinator.scene import Scene
from unit.runtime.test_authorization import Denying
from unit.test_epoch_fences import alter_isr, asked, controller, position, told

E = ErrorCode
ASKER = m.AlterIsrRequest(broker_id=1, broker_epoch=11, controller_epoch=2, sequence=1)
EXPAND = fx.ProposeIsr(5, 50, members(1, 2, 3))


# -- who answers ---------------------------------------------------------------------------------------------------------


def refused_by_the_controller(*wanted: Any) -> ErrorCode:
    c = controller()
    token, _ = c.proposed(1, *wanted)
    ((_, _, code),) = c.isr_answers(token)
    return code


def of_a_controller_process(authorizer: Any = None) -> ErrorCode:
    """A standby answers, behind `authorizer`."""
    handlers = ControllerRoutes(lambda: None, SystemClock(), None, _Uncounted(), 1.0)  # type: ignore[arg-type]
    routes = handlers.routes() if authorizer is None else guarded(handlers.routes(), authorizer, lambda api: None)
    (route,) = [each for each in routes if each.method is s.CONTROLLER_SERVICE_ALTER_ISR]
    answer: m.AlterIsrResponse = run(route.handler(ASKER, KnownCaller("test")))  # type: ignore[arg-type]
    return answer.error_code


class _Uncounted:
    def answered(self, api: str, code: ErrorCode, total_s: float) -> None: ...


def produced(acks: int = 1, **told_as: Any) -> ErrorCode:
    async def story() -> ErrorCode:
        bench = BrokerBench()
        bench.told(**told_as)
        return (await bench.send(batch(b"x"), acks=acks)).error_code

    return run(story())


def failed_after_the_append() -> ErrorCode:
    """The ISR is confirmed to have shrunk below min ISR while a produce is parked (HOLE-23)."""
    harness = leader()
    harness.appended(12, at=1.0)
    harness.fetched(2, 12, at=1.1)
    proposal = fx.ProposeIsr(5, 50, members(1, 2))
    assert proposal in harness.tick(20.0)
    failed = harness.answered(proposal, isr=members(1), at=20.1)
    (code,) = [effect.code for effect in failed if isinstance(effect, fx.FailPending)]
    return code


# -- what is done about it -----------------------------------------------------------------------------------------------


def as_leader(code: ErrorCode, version: int = 50) -> str:
    """What the leader's machine does when one of its proposals is answered with `code`."""
    harness = leader(members(1, 2))
    assert harness.fetched(3, 10) == [EXPAND]
    out = harness.answered(EXPAND, code, version)
    if isinstance(harness.replica.isr, PendingExpand):
        return "asks again" if out == [EXPAND] else "waits"
    assert harness.replica.isr == Committed(members(1, 2)) and out == []
    assert harness.fetched(3, 10, at=9.0) == [EXPAND], "it may ask again later"
    return "reverts"


def waits_for_a_new_state_and_looks_again(code: ErrorCode) -> None:
    assert as_leader(code) == "waits"
    harness = leader(members(1, 2))
    harness.fetched(3, 10)
    harness.answered(EXPAND, code, 50)
    # The LeaderAndIsr that was on its way: nobody joined. The follower is still there, so it is asked for once more.
    again = fx.ProposeIsr(5, 51, members(1, 2, 3))
    assert harness.told(1, partition_epoch=51, isr=members(1, 2), at=3.0) == [again]


@dataclass
class Carried:
    """What the broker's AlterIsr client did after one answer with an error of its own, and then a grant."""

    pauses: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    controllers: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    looked: int = 0


def as_client(code: ErrorCode) -> Carried:
    seen = Carried()

    async def story() -> None:
        async with plane.running_plane() as bench:
            bench.controller.answers = [m.AlterIsrResponse(error_code=code)]
            bench.propose(plane.P0, plane.proposal(7))
            await asyncio.sleep(0.01)
            bench.broker_epoch, bench.controller_epoch = 102, 6
            await asyncio.sleep(60.0)
            assert [x for _, _, x, _ in bench.replicas.answered] == [E.NONE], "nothing was given up"
            sent = bench.controller.sent_at
            seen.pauses = [b - a for a, b in itertools.pairwise(sent)]
            seen.epochs = [request.broker_epoch for request in bench.controller.requests]
            seen.controllers = [request.controller_epoch for request in bench.controller.requests]
            seen.sequences = [request.sequence for request in bench.controller.requests]
            seen.looked = bench.controller.looked

    sim.run(story())
    return seen


def alarms_and_asks_slowly(caplog: pytest.LogCaptureFixture) -> None:
    (pause_s,) = as_client(E.CLUSTER_AUTHORIZATION_FAILED).pauses
    assert pause_s >= ALTER_ISR_UNAUTHORIZED.first_pause_s / 2
    assert [r.levelno for r in caplog.records if "AlterIsr refused" in r.getMessage()] == [logging.ERROR]


def asks_again_with_the_epoch_of_now(_: object) -> None:
    seen = as_client(E.STALE_BROKER_EPOCH)
    assert seen.epochs == [101, 102] and seen.pauses[0] <= 2 * ALTER_ISR.first_pause_s


def asks_again_with_the_term_of_now(_: object) -> None:
    seen = as_client(E.STALE_CONTROLLER_EPOCH)
    assert seen.controllers == [5, 6] and seen.pauses[0] <= 2 * ALTER_ISR.first_pause_s
    assert as_leader(E.STALE_CONTROLLER_EPOCH) == "asks again"


def asks_again_with_a_number_of_its_own(_: object) -> None:
    seen = as_client(E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert seen.sequences == [1, 2] and seen.pauses[0] <= 2 * ALTER_ISR.first_pause_s
    assert as_leader(E.OUT_OF_ORDER_SEQUENCE_NUMBER) == "asks again"


def finds_the_controller_and_asks_again(_: object) -> None:
    seen = as_client(E.NOT_CONTROLLER)
    assert seen.looked == 1 and len(seen.epochs) == 2
    assert as_leader(E.NOT_CONTROLLER) == "asks again"


def as_controller(code: ErrorCode) -> list[Any]:
    return controller().step(BrokerAnswered(BrokerId(2), 12, code))


def positions_of_a_follower_after(code: ErrorCode) -> int:
    """How many more positions it states within a second of a refusal."""
    counts: list[int] = []

    async def story() -> None:
        async with broker_world(2) as (world, two):
            fake = FakeLeader(world)
            await fake.start()
            two.told(1, 3, partition_epoch=30, isr=(1, 2), replicas=(1, 2))
            await until(fake.positions)
            before = len(fake.positions())
            await fake.send(error_code=code)
            await asyncio.sleep(1.0)
            counts.append(len(fake.positions()) - before)

    sim.run(story())
    return counts[0]


def as_customer(code: ErrorCode) -> tuple[bool, bool]:
    """(sends the same again, asks for metadata first)."""
    error = TidelogError("x", code)
    assert error.retriable == (code in RETRIABLE) and error.refresh_metadata == (code in REFRESH_METADATA)
    return PRODUCER.applies(error), error.refresh_metadata


def is_(want_: Any, got: Callable[[], Any]) -> Callable[[object], None]:
    def check(_: object) -> None:
        assert got() == want_

    return check


# -- the register --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    answered: Mapping[str, Callable[[], ErrorCode]]
    received: Mapping[str, Callable[[Any], None]]


FOLLOWING = {"leader": 2, "isr": (1, 2), "replicas": (1, 2)}
ROWS: dict[ErrorCode, Row] = {
    E.NOT_LEADER_OR_FOLLOWER: Row(
        {
            "produce": lambda: produced(**FOLLOWING),
            "fetch": lambda: asked(_fetch_from_a_follower),
        },
        {"client": is_((True, True), lambda: as_customer(E.NOT_LEADER_OR_FOLLOWER))},
    ),
    E.CLUSTER_AUTHORIZATION_FAILED: Row(
        {"AlterIsr": lambda: of_a_controller_process(Denying())}, {"broker": alarms_and_asks_slowly}
    ),
    E.STALE_BROKER_EPOCH: Row(
        {
            "AlterIsr": lambda: alter_isr(broker_epoch=10),
            "LeaderAndIsr": lambda: told(roles(state(), broker_epoch=100, sequence=7)),
            "position": lambda: position(broker_epoch=200),
        },
        {
            "broker": asks_again_with_the_epoch_of_now,
            "controller": is_([], lambda: as_controller(E.STALE_BROKER_EPOCH)),
        },
    ),
    E.NOT_CONTROLLER: Row(
        {"a standby": of_a_controller_process, "a stale controller": lambda: alter_isr(leader_epoch=5)},
        {"broker": finds_the_controller_and_asks_again},
    ),
    E.FENCED_LEADER_EPOCH: Row(
        {
            "AlterIsr": lambda: alter_isr(leader_epoch=3),
            "fetch": lambda: asked(lambda bench: bench.get(0, leader_epoch=2)),
            "position": lambda: position(leader_epoch=2),
            "StopReplica": lambda: told(stop(3, delete=True, sequence=7)),
        },
        {
            "leader": lambda _: waits_for_a_new_state_and_looks_again(E.FENCED_LEADER_EPOCH),
            "follower": is_(0, lambda: positions_of_a_follower_after(E.FENCED_LEADER_EPOCH)),
            "client": is_((True, True), lambda: as_customer(E.FENCED_LEADER_EPOCH)),
        },
    ),
    E.UNKNOWN_LEADER_EPOCH: Row(
        {
            "fetch": lambda: asked(lambda bench: bench.get(0, leader_epoch=4)),
            "position": lambda: position(leader_epoch=4),
        },
        {
            "follower": is_(1, lambda: positions_of_a_follower_after(E.UNKNOWN_LEADER_EPOCH)),
            "client": is_((True, True), lambda: as_customer(E.UNKNOWN_LEADER_EPOCH)),
        },
    ),
    E.INVALID_REQUEST: Row(
        {
            "empty ISR": lambda: refused_by_the_controller(want(1, 4, (), 7)),
            "ISR without its leader": lambda: refused_by_the_controller(want(1, 4, isr(b2=12, b3=13), 7)),
            "no replica": lambda: refused_by_the_controller(want(1, 4, isr(b1=11, b9=19), 7)),
        },
        {"leader": lambda _: waits_for_a_new_state_and_looks_again(E.INVALID_REQUEST)},
    ),
    E.INVALID_UPDATE_VERSION: Row(
        {"AlterIsr": lambda: alter_isr(version=6)},
        {"leader": lambda _: waits_for_a_new_state_and_looks_again(E.INVALID_UPDATE_VERSION)},
    ),
    E.UNKNOWN_TOPIC_OR_PARTITION: Row(
        {
            "topic": lambda: refused_by_the_controller(want(1, 4, isr(b1=11), 7, topic="gone")),
            "partition": lambda: refused_by_the_controller(want(1, 4, isr(b1=11), 7, index=9)),
        },
        {"leader": is_("waits", lambda: as_leader(E.UNKNOWN_TOPIC_OR_PARTITION))},
    ),
    E.INELIGIBLE_REPLICA: Row(
        {"AlterIsr": lambda: alter_isr(third_life=12)},
        {"leader": is_("reverts", lambda: as_leader(E.INELIGIBLE_REPLICA))},
    ),
    # The next two are other controllers' words (F05.9); this one never says them, and understands them.
    E.OPERATION_NOT_ATTEMPTED: Row({}, {"leader": is_("reverts", lambda: as_leader(E.OPERATION_NOT_ATTEMPTED))}),
    E.NEW_LEADER_ELECTED: Row({}, {"leader": lambda _: waits_for_a_new_state_and_looks_again(E.NEW_LEADER_ELECTED)}),
    E.STALE_CONTROLLER_EPOCH: Row(
        {
            "LeaderAndIsr": lambda: told(roles(state(), controller_epoch=4, sequence=7)),
            "StopReplica": lambda: told(stop(-2, delete=True, controller_epoch=4, sequence=7)),
            "AlterIsr": lambda: alter_isr(controller_epoch=1),
        },
        {
            "broker": asks_again_with_the_term_of_now,
            "controller": is_([Resign], lambda: [type(each) for each in as_controller(E.STALE_CONTROLLER_EPOCH)]),
        },
    ),
    E.NOT_ENOUGH_REPLICAS: Row(
        {"produce": lambda: produced(acks=-1, isr=(1,), replicas=(1, 2), config=TopicConfig(min_insync_replicas=2))},
        {"client": is_((True, False), lambda: as_customer(E.NOT_ENOUGH_REPLICAS))},
    ),
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Row(
        {"produce": failed_after_the_append},
        {"client": is_((True, False), lambda: as_customer(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND))},
    ),
    E.OFFSET_OUT_OF_RANGE: Row(
        {"fetch": lambda: asked(lambda bench: bench.get(99))},
        {"client": is_((False, False), lambda: as_customer(E.OFFSET_OUT_OF_RANGE))},
    ),
    # Of batches it is answered by the logs (tests of the producer state); nobody sends such a batch again.
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: Row(
        {
            "AlterIsr": lambda: alter_isr(sequence=5),
            "LeaderAndIsr": lambda: told(roles(state(), sequence=5)),
        },
        {
            "broker": asks_again_with_a_number_of_its_own,
            "client": is_((False, False), lambda: as_customer(E.OUT_OF_ORDER_SEQUENCE_NUMBER)),
        },
    ),
    E.INVALID_PRODUCER_EPOCH: Row({}, {"client": is_((False, False), lambda: as_customer(E.INVALID_PRODUCER_EPOCH))}),
    E.DUPLICATE_CONSUMER_ID: Row(
        {"RegisterConsumer": lambda: registered_after_another()},
        {"consumer": is_(([Close, Lose, Wait], True), lambda: as_member(E.DUPLICATE_CONSUMER_ID))},
    ),
    E.INVALID_SESSION_TIMEOUT: Row(
        {"RegisterConsumer": lambda: registered_after_another(consumer_id="b", session_timeout_ms=1000)},
        {"consumer": is_(([Close, Lose, Fail], False), lambda: as_member(E.INVALID_SESSION_TIMEOUT))},
    ),
    E.NOT_COORDINATOR: Row(
        {"a broker without the shard": lambda: of_a_broker_that_coordinates_nothing()},
        {"consumer": is_(([Close], True), lambda: as_member(E.NOT_COORDINATOR))},
    ),
    # Answered for a group that cannot be read (tests of the coordinator's term).
    E.COORDINATOR_NOT_AVAILABLE: Row(
        {}, {"consumer": is_(([Close], True), lambda: as_member(E.COORDINATOR_NOT_AVAILABLE))}
    ),
    E.ILLEGAL_GENERATION: Row(
        {"commit": lambda: committed_in_an_older_generation()},
        {"consumer": is_(([Close, Lose], True), lambda: as_member(E.ILLEGAL_GENERATION))},
    ),
}


def registered_after_another(**changes: Any) -> ErrorCode:
    scene = Scene()
    scene.join("a")
    consumer = scene.consumer("a").register(**changes)
    assert consumer.error is not None
    return consumer.error.error_code


def committed_in_an_older_generation() -> ErrorCode:
    scene = Scene()
    (a,) = scene.join("a")
    answer: m.CommitOffsetsResponse = scene.replies[a.commit(1, generation=a.generation - 1)]
    return answer.error_code


def of_a_broker_that_coordinates_nothing() -> ErrorCode:
    async def story() -> ErrorCode:
        async with shell.coordinator_world() as world:
            host = await world.host(1)  # it has not been elected yet
            request = m.FetchOffsetsRequest(group_id="g")
            return (await world.call(host, s.COORDINATOR_SERVICE_FETCH_OFFSETS, request)).error_code

    return sim.run(story())


def as_member(code: ErrorCode) -> tuple[list[Any], bool]:
    """What a member does when its registration is refused, and whether it looks for its coordinator again."""
    scene = member.joined()
    scene.give(Broke())
    return member.kinds(scene.register(code=code)), scene.membership.wants_stream


async def _fetch_from_a_follower(bench: BrokerBench) -> m.FetchResult:
    follower = BrokerBench()
    follower.told(**FOLLOWING)  # type: ignore[arg-type]
    return await follower.get(0)


ANSWERED = [(code, who) for code, row in ROWS.items() for who in row.answered]
RECEIVED = [(code, who) for code, row in ROWS.items() for who in row.received]


def named(value: object) -> str:
    return value.name if isinstance(value, ErrorCode) else str(value)


@requirement("Every coordinator error has a code and a consumer reaction")
@pytest.mark.parametrize(("code", "who"), ANSWERED, ids=named)
def test_r_the_code_is_answered(code: ErrorCode, who: str) -> None:
    assert ROWS[code].answered[who]() is code


@requirement("Every coordinator error has a code and a consumer reaction")
@pytest.mark.parametrize(("code", "who"), RECEIVED, ids=named)
def test_r_its_receiver_does_what_the_register_says(
    code: ErrorCode, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    ROWS[code].received[who](caplog)


def test_r_every_row_of_this_generation_is_here() -> None:
    """The numbers of section R, as they stand there."""
    register = {6, 31, 77, 41, 74, 75, 42, 95, 3, 107, 55, 108, 11, 19, 20, 45, 47, 1, 25, 26, 15, 16, 22}
    here = {int(code) for code in ROWS}
    assert register - here == {25}, (
        "what the register suggests for a duplicate consumer id is an unknown member's in Kafka"
    )
    assert here - register == {E.DUPLICATE_CONSUMER_ID}


@requirement("An ISR change of unknown outcome stays pending")
@pytest.mark.parametrize("code", [E.REQUEST_TIMED_OUT, E.UNKNOWN_SERVER_ERROR, E.NOT_CONTROLLER], ids=named)
def test_what_the_register_does_not_name_is_an_unknown_outcome(code: ErrorCode) -> None:
    assert as_leader(code) == "asks again"
