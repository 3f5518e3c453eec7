"""Every request that names an epoch, with each of its epochs older and newer than the truth: the code, and nothing changed.

HOLE-04 to HOLE-11, 14, 37, 39 to 41; F14.2, I7, I12, I13. One row of `CASES` is one request with one wrong epoch.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from helpers.aio import run
from helpers.batches import batch, placed
from helpers.broker import TOPIC_ID, BrokerBench, member
from helpers.replication import EVENTS, FakeFollower, FakeLeader, broker_world, until
from helpers.requirements import requirement
from tidelog.controller.effects import Outcome, Resign
from tidelog.controller.events import BrokerAnswered, ControlledShutdownRequested, Token, WritesDone
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId
from tidelog.ports.net import Bidi, KnownCaller, Unary
from tidelog.replica import events as ev
from tidelog.replica.isr import Member, PendingExpand
from tidelog.testing import loop as sim
from tidelog.wire import messages as m
from tidelog.wire import services as s
from unit.broker.test_control_service import EPOCH, ControlBench, news, roles, state, stop
from unit.controller.harness import Harness, broker, isr, stored_topic, want
from unit.controller.harness import state as stored

E = ErrorCode
OTHER_ID = b"\xee" * 16


@dataclass(frozen=True)
class Case:
    method: Unary[Any, Any] | Bidi[Any, Any]
    epoch: str
    """Which one is wrong."""
    how: str
    send: Callable[[], ErrorCode]
    """Builds what is asked, asks, asserts that nothing has changed, and returns the code of the answer."""
    code: ErrorCode

    def __str__(self) -> str:
        return f"{self.method.path.rpartition('/')[2]}, {self.epoch} {self.how}"


# -- the controller: broker 1 (life 11) leads t-0 in leader epoch 4 with ISR {1, 2} at version 7 ------------------------


def controller() -> Harness:
    c = Harness()
    lives = (broker(1, 11), broker(2, 12), broker(3, 13))
    c.elected(stored_topic("t", [(1, 2, 3)], [stored(1, 4, isr(b1=11, b2=12), 7)]), brokers=lives)
    return c


def alter_isr(
    leader_epoch: int = 4,
    version: int = 7,
    third_life: int = 13,
    broker_epoch: int = 11,
    topic_id: bytes = b"id-of-t",
    controller_epoch: int = 2,
    sequence: int = 7,
) -> ErrorCode:
    c = controller()
    c.proposed(1, sequence=6)  # names nothing, and is judged
    before = dict(c.store.znodes)
    wanted = want(1, leader_epoch, isr(b1=11, b2=12, b3=third_life), version)
    fences = {"broker_epoch": broker_epoch, "controller_epoch": controller_epoch, "sequence": sequence}
    token, _ = c.proposed(1, wanted, topic_id=topic_id, **fences)
    c.run()
    assert c.store.znodes == before
    answer: m.AlterIsrResponse = c.replies[token]
    if answer.error_code is not E.NONE:
        return answer.error_code
    ((_, _, code),) = c.isr_answers(token)
    return code


def controlled_shutdown(broker_epoch: int) -> ErrorCode:
    c = controller()
    before = dict(c.store.znodes)
    request = m.ControlledShutdownRequest(broker_id=1, broker_epoch=broker_epoch)
    c.step(ControlledShutdownRequested(request, Token(99)))
    c.run()
    assert c.store.znodes == before
    code: ErrorCode = c.replies[99].error_code
    # Nor is it kept from leading later on: an expansion with it is granted.
    token, _ = c.proposed(1, want(1, 4, isr(b1=11, b2=12, b3=13), 7))
    c.run()
    assert c.isr_answers(token) == [("t", 0, E.NONE)]
    return code


ALTER_ISR, SHUTDOWN = s.CONTROLLER_SERVICE_ALTER_ISR, s.CONTROLLER_SERVICE_CONTROLLED_SHUTDOWN
AT_THE_CONTROLLER = [
    # Whoever is ahead of this controller is not told that he is behind (HOLE-18).
    Case(ALTER_ISR, "leader epoch", "older", lambda: alter_isr(leader_epoch=3), E.FENCED_LEADER_EPOCH),
    Case(ALTER_ISR, "leader epoch", "newer", lambda: alter_isr(leader_epoch=5), E.NOT_CONTROLLER),
    Case(ALTER_ISR, "partition version", "older", lambda: alter_isr(version=6), E.INVALID_UPDATE_VERSION),
    Case(ALTER_ISR, "partition version", "newer", lambda: alter_isr(version=8), E.NOT_CONTROLLER),
    Case(ALTER_ISR, "broker epoch", "older", lambda: alter_isr(broker_epoch=10), E.STALE_BROKER_EPOCH),
    Case(ALTER_ISR, "broker epoch", "newer", lambda: alter_isr(broker_epoch=12), E.STALE_BROKER_EPOCH),
    Case(ALTER_ISR, "controller epoch", "older", lambda: alter_isr(controller_epoch=1), E.STALE_CONTROLLER_EPOCH),
    Case(ALTER_ISR, "controller epoch", "newer", lambda: alter_isr(controller_epoch=3), E.NOT_CONTROLLER),
    Case(ALTER_ISR, "leader epoch", "least", lambda: alter_isr(leader_epoch=-1), E.FENCED_LEADER_EPOCH),
    Case(ALTER_ISR, "leader epoch", "greatest", lambda: alter_isr(leader_epoch=2**31 - 1), E.NOT_CONTROLLER),
    Case(ALTER_ISR, "partition version", "least", lambda: alter_isr(version=-1), E.INVALID_UPDATE_VERSION),
    Case(ALTER_ISR, "partition version", "greatest", lambda: alter_isr(version=2**31 - 1), E.NOT_CONTROLLER),
    Case(ALTER_ISR, "controller epoch", "least", lambda: alter_isr(controller_epoch=-1), E.STALE_CONTROLLER_EPOCH),
    Case(ALTER_ISR, "controller epoch", "greatest", lambda: alter_isr(controller_epoch=2**31 - 1), E.NOT_CONTROLLER),
    Case(ALTER_ISR, "sequence", "least", lambda: alter_isr(sequence=-1), E.OUT_OF_ORDER_SEQUENCE_NUMBER),
    Case(ALTER_ISR, "sequence", "older", lambda: alter_isr(sequence=5), E.OUT_OF_ORDER_SEQUENCE_NUMBER),
    Case(ALTER_ISR, "sequence", "equal", lambda: alter_isr(sequence=6), E.OUT_OF_ORDER_SEQUENCE_NUMBER),
    Case(ALTER_ISR, "member's broker epoch", "older", lambda: alter_isr(third_life=12), E.INELIGIBLE_REPLICA),
    Case(ALTER_ISR, "member's broker epoch", "newer", lambda: alter_isr(third_life=14), E.INELIGIBLE_REPLICA),
    Case(ALTER_ISR, "topic id", "of another", lambda: alter_isr(topic_id=OTHER_ID), E.UNKNOWN_TOPIC_ID),
    Case(SHUTDOWN, "broker epoch", "older", lambda: controlled_shutdown(10), E.STALE_BROKER_EPOCH),
    Case(SHUTDOWN, "broker epoch", "newer", lambda: controlled_shutdown(12), E.STALE_BROKER_EPOCH),
]


# -- a broker and its controller: broker 1 (life 101) leads `events` in leader epoch 3 at version 7, controller epoch 5 ---


def picture(bench: BrokerBench) -> Any:
    """Everything that a request must not have changed."""
    return [
        (
            host.tp,
            host.topic_id,
            host.replica.role,
            host.replica.leader,
            host.replica.leader_epoch,
            host.replica.partition_epoch,
            host.replica.isr,
            host.replica.high_watermark,
            host.log.log_end_offset,
            host.log.epochs.entries,
        )
        for host in bench.manager
    ]


def told(request: m.LeaderAndIsrRequest | m.StopReplicaRequest | m.UpdateMetadataRequest) -> ErrorCode:
    control = ControlBench()
    control.send(roles(state(), sequence=5))
    control.send(news(state(), sequence=6, full=True))
    control.append()
    before, known = picture(control.bench), control.metadata.leader_of(EVENTS)
    answer = control.send(request)
    assert picture(control.bench) == before and control.metadata.leader_of(EVENTS) == known
    code: ErrorCode = answer.error_code
    if code is E.NONE and not isinstance(answer, m.UpdateMetadataResponse):
        (result,) = answer.partitions
        assert (
            result.topic_id == request.partitions[0].topic_id if isinstance(request, m.StopReplicaRequest) else TOPIC_ID
        )
        code = result.error_code
    return code


def other(**fields: Any) -> m.PartitionState:
    """A state that would change everything."""
    return replace(state(leader=2, leader_epoch=9), partition_epoch=20, **fields)


ROLES, STOP, METADATA = s.BROKER_CONTROL_LEADER_AND_ISR, s.BROKER_CONTROL_STOP_REPLICA, s.BROKER_CONTROL_UPDATE_METADATA
BUILD: dict[Any, Callable[..., Any]] = {
    ROLES: lambda **epochs: roles(other(), **{"sequence": 7, **epochs}),
    STOP: lambda **epochs: stop(-2, delete=True, **{"sequence": 7, **epochs}),
    METADATA: lambda **epochs: news(other(), **{"sequence": 7, **epochs}),
}


def control_case(method: Any, epoch: str, how: str, code: ErrorCode, **epochs: int) -> Case:
    return Case(method, epoch, how, lambda: told(BUILD[method](**epochs)), code)


FROM_THE_CONTROLLER = [
    case
    for method in (ROLES, STOP, METADATA)
    for case in (
        control_case(method, "controller epoch", "older", E.STALE_CONTROLLER_EPOCH, controller_epoch=4),
        control_case(method, "controller epoch", "least", E.STALE_CONTROLLER_EPOCH, controller_epoch=-1),
        control_case(method, "broker epoch", "older", E.STALE_BROKER_EPOCH, broker_epoch=EPOCH - 1),
        control_case(method, "broker epoch", "least", E.STALE_BROKER_EPOCH, broker_epoch=-1),
        control_case(method, "broker epoch", "greatest", E.STALE_BROKER_EPOCH, broker_epoch=2**63 - 1),
        # Ours in a moment, perhaps: the sender repeats it, and a full list must not be forgotten when we hear (HOLE-07).
        control_case(method, "broker epoch", "newer", E.STALE_BROKER_EPOCH, broker_epoch=EPOCH + 1),
        control_case(method, "sequence", "older", E.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence=5),
    )
] + [
    Case(
        ROLES,
        "leader epoch",
        "older",
        lambda: told(roles(replace(other(), leader_epoch=2), full=False, sequence=7)),
        E.FENCED_LEADER_EPOCH,
    ),
    # The same epoch with an older version is a repetition: harmless, so no error (N08).
    Case(
        ROLES,
        "partition version",
        "older",
        lambda: told(roles(replace(state(), partition_epoch=6, isr=(member(1),)), full=False, sequence=7)),
        E.NONE,
    ),
    Case(STOP, "leader epoch", "older", lambda: told(stop(2, delete=True, sequence=7)), E.FENCED_LEADER_EPOCH),
    Case(STOP, "leader epoch", "equal", lambda: told(stop(3, delete=True, sequence=7)), E.FENCED_LEADER_EPOCH),
    Case(
        STOP,
        "topic id",
        "of another",
        lambda: told(stop(-2, delete=True, topic_id=OTHER_ID, sequence=7)),
        E.INCONSISTENT_TOPIC_ID,
    ),
]


# -- clients and followers: broker 1 leads `events` in leader epoch 3 ----------------------------------------------------


def asked(ask: Callable[[BrokerBench], Awaitable[Any]]) -> ErrorCode:
    async def story() -> ErrorCode:
        bench = BrokerBench()
        bench.told()
        await bench.send(batch(b"one"))
        before = picture(bench)
        answer = await ask(bench)
        assert picture(bench) == before
        code: ErrorCode = getattr(answer, "results", (answer,))[0].error_code
        return code

    return run(story())


def list_offsets(leader_epoch: int) -> ErrorCode:
    part = m.ListOffsetsPartition(topic="events", partition=0, leader_epoch=leader_epoch, timestamp=-1)
    return asked(lambda bench: bench.fetch.list_offsets(m.ListOffsetsRequest(partitions=(part,))))


def epoch_end(current: int) -> ErrorCode:
    part = m.EpochPartition(topic="events", partition=0, current_leader_epoch=current, leader_epoch=3)
    request = m.OffsetForLeaderEpochRequest(partitions=(part,))
    return asked(lambda bench: bench.fetch.offset_for_leader_epoch(request))


def fetched_topic(topic_id: bytes) -> ErrorCode:
    part = m.FetchPartition(
        topic="events", topic_id=topic_id, partition=0, leader_epoch=3, offset=0, last_fetched_epoch=-1, max_bytes=1000
    )
    request = m.FetchRequest(client_id="t", max_wait_ms=0, min_bytes=1, max_bytes=1000, partitions=(part,))
    return asked(lambda bench: bench.fetch.fetch(request, KnownCaller("test")))


def position(**fields: Any) -> ErrorCode:
    """What a leader (epoch 3, follower 2 in its life 201) answers to a position; it must not be counted."""
    codes: list[ErrorCode] = []

    async def story() -> None:
        async with broker_world() as (world, one, two):
            two.process.kill()
            world.told(1, 3, only=[1])
            one.append()
            if (life := fields.pop("broker_epoch", None)) is not None:
                newest = FakeFollower(world)
                await newest.state(0)
                await newest.read()
                newest.stream.cancel()  # beside it another life has no stream at all
                await until(lambda: not one.host.sinks)
            follower = FakeFollower(world, broker_epoch=life)
            before = one.high_watermark, one.host.replica.isr
            await follower.state(1, 3, **fields)
            codes.extend(part.error_code for part in (await follower.read()).partitions)
            assert (one.high_watermark, one.host.replica.isr) == before

    sim.run(story())
    (code,) = codes
    return code


def chunk(**fields: Any) -> ErrorCode:
    """A follower in epoch 3 gets a chunk with a wrong epoch: it appends nothing and, where it can, states its position."""
    ends: list[int] = []

    async def story() -> None:
        async with broker_world(2) as (world, two):
            leader = FakeLeader(world)
            await leader.start()
            two.told(1, 3, partition_epoch=30, isr=(1, 2), replicas=(1, 2))
            await until(lambda: leader.requests)
            await leader.send(records=placed(batch(b"zombie"), 0, 3), high_watermark=1, **fields)
            ends.extend((two.end, two.high_watermark))

    sim.run(story())
    assert ends == [0, 0]
    return E.NONE


PRODUCE, FETCH = s.REPLICA_SERVICE_PRODUCE, s.REPLICA_SERVICE_FETCH
LIST, EPOCH_END, REPLICA = (
    s.REPLICA_SERVICE_LIST_OFFSETS,
    s.REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH,
    s.REPLICA_SERVICE_REPLICA_FETCH,
)
ONE = batch(b"two")
LEADERS: list[tuple[Any, Callable[[int], ErrorCode]]] = [
    (PRODUCE, lambda epoch: asked(lambda bench: bench.send(ONE, leader_epoch=epoch))),
    (FETCH, lambda epoch: asked(lambda bench: bench.get(0, leader_epoch=epoch))),
    (LIST, list_offsets),
    (EPOCH_END, epoch_end),
    (REPLICA, lambda epoch: position(leader_epoch=epoch)),
]
OF_CLIENTS_AND_FOLLOWERS = [
    case
    for method, send in LEADERS
    for case in (
        Case(method, "leader epoch", "older", lambda send=send: send(2), E.FENCED_LEADER_EPOCH),  # type: ignore[misc]
        Case(method, "leader epoch", "newer", lambda send=send: send(4), E.UNKNOWN_LEADER_EPOCH),  # type: ignore[misc]
    )
] + [
    Case(
        PRODUCE,
        "topic id",
        "of another",
        lambda: asked(lambda bench: bench.send(ONE, topic_id=OTHER_ID)),
        E.UNKNOWN_TOPIC_ID,
    ),
    Case(FETCH, "topic id", "of another", lambda: fetched_topic(OTHER_ID), E.UNKNOWN_TOPIC_ID),
    Case(REPLICA, "topic id", "of another", lambda: position(topic_id=OTHER_ID), E.INCONSISTENT_TOPIC_ID),
    Case(REPLICA, "broker epoch", "older", lambda: position(broker_epoch=200), E.STALE_BROKER_EPOCH),
    Case(REPLICA, "chunk's leader epoch", "older", lambda: chunk(leader_epoch=2), E.NONE),
    Case(REPLICA, "chunk's leader epoch", "newer", lambda: chunk(leader_epoch=4), E.NONE),
    Case(REPLICA, "chunk's topic id", "of another", lambda: chunk(topic_id=OTHER_ID), E.NONE),
]

CASES = [*AT_THE_CONTROLLER, *FROM_THE_CONTROLLER, *OF_CLIENTS_AND_FOLLOWERS]

NAME_NO_EPOCH: dict[Any, str] = {
    **dict.fromkeys(
        (
            s.ADMIN_SERVICE_CREATE_TOPICS,
            s.ADMIN_SERVICE_DELETE_TOPICS,
            s.ADMIN_SERVICE_DESCRIBE_TOPICS,
            s.ADMIN_SERVICE_DESCRIBE_CLUSTER,
            s.ADMIN_SERVICE_CREATE_PARTITIONS,
            s.ADMIN_SERVICE_ELECT_LEADERS,
            s.ADMIN_SERVICE_RELEASE_VETO,
            s.ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS,
            s.ADMIN_SERVICE_LIST_PARTITION_REASSIGNMENTS,
            s.ADMIN_SERVICE_INCREMENTAL_ALTER_CONFIGS,
            s.ADMIN_SERVICE_DESCRIBE_CONFIGS,
            s.ADMIN_SERVICE_DESCRIBE_BROKER_CONFIGS,
            s.ADMIN_SERVICE_DESCRIBE_LOG_DIRS,
            s.ADMIN_SERVICE_DELETE_RECORDS,
            s.ADMIN_SERVICE_DISCARD_DAMAGE,
            s.ADMIN_SERVICE_ADD_BROKERS,
            s.ADMIN_SERVICE_DRAIN_BROKERS,
            s.COORDINATOR_SERVICE_CLUSTER_METADATA,
            s.COORDINATOR_SERVICE_FETCH_OFFSETS,
            s.COORDINATOR_SERVICE_LIST_GROUPS,
            s.COORDINATOR_SERVICE_DESCRIBE_GROUPS,
            s.COORDINATOR_SERVICE_DELETE_GROUPS,
        ),
        "an operator or a client asks; what it changes is written under the controller epoch",
    ),
    **dict.fromkeys(
        (s.COORDINATOR_SERVICE_SESSION, s.COORDINATOR_SERVICE_COMMIT_OFFSETS),
        "its coordinator epoch and generation: with the coordinator's own tests (tests/unit/coordinator)",
    ),
    s.BROKER_CONTROL_REPLICA_ENDS: "changes nothing; its epochs: with the control service's own tests",
    s.BROKER_CONTROL_LIVENESS: "changes nothing; the controller compares the pong's broker epoch (test_liveness.py)",
    s.CONTROLLER_SERVICE_ALLOCATE_PRODUCER_IDS: "its broker epoch: with the producer ids' own tests",
    s.REPLICA_SERVICE_PRODUCE_STREAM: "its messages are ProduceRequests, answered by the handler of Produce",
    s.WATCH_SERVICE_WATCH_PROTOCOL: "changes nothing",
    s.REPLICA_SERVICE_INIT_PRODUCER_ID: "its producer epoch: with the producer ids' own tests",
}


@requirement("Every replica fetch carries the current leader epoch")
@requirement("A replica joins the ISR only past the start of the leader epoch")
@requirement("Every new leader epoch runs the truncation check again")
@requirement("A bounced broker is treated as a failure plus a startup")
@requirement("A checkpoint keeps the entries that an update does not name")
@requirement("StopReplica is fenced by the leader epoch")
@requirement("A topic id separates topics that share a name")
@requirement("Every controller write checks the controller epoch")
@requirement("Control requests are repeated in order until answered")
@requirement("Leader and ISR and epoch live in one znode")
@requirement("An ephemeral znode counts only for the session that made it")
@requirement("A watch only triggers a read that a timer repeats")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_wrong_epoch_is_answered_with_its_code_and_changes_nothing(case: Case) -> None:
    assert case.send() is case.code


def test_every_method_is_in_the_table() -> None:
    methods = {each.path for each in vars(s).values() if isinstance(each, Unary | Bidi)}
    assert methods == {case.method.path for case in CASES} | {method.path for method in NAME_NO_EPOCH}


# -- what comes back: answers are fenced like requests -------------------------------------------------------------------


@requirement("A pending ISR change is retried and its age is measured")
@requirement("An AlterIsr answer settles only its own proposal")
@pytest.mark.parametrize(
    ("leader_epoch", "version"), [(2, 8), (4, 8), (3, 6), (3, -1)], ids=["older", "newer", "older version", "none"]
)
def test_an_answer_to_alter_isr_of_another_epoch_is_ignored(leader_epoch: int, version: int) -> None:
    bench = BrokerBench()
    bench.told(isr=(1,), replicas=(1, 2))
    bench.host.step(ev.FollowerPosition(2, member(2).broker_epoch, 3, 0, -1, -1, 0, bench.clock.now()))
    ((_, proposal),) = bench.plane.proposals
    before = bench.host.replica.isr
    assert isinstance(before, PendingExpand)
    answer = m.LeaderAndIsr(leader=1, leader_epoch=leader_epoch, isr=(member(1), member(2)), current_zk_version=version)
    bench.manager.isr_answered(EVENTS, TOPIC_ID, proposal, E.NONE, answer)
    assert bench.host.replica.isr == before and bench.host.replica.partition_epoch == 7
    assert {x for x in before.maximal_isr} == {Member(1, 101), Member(2, 201)}


@requirement("Every controller write checks the controller epoch")
def test_mut_10_a_controller_whose_epoch_was_raised_writes_nothing_and_resigns() -> None:
    c = controller()
    token, _ = c.proposed(1, want(1, 4, isr(b1=11, b2=12, b3=13), 7))
    before = dict(c.store.znodes)
    c.store.fenced = True
    (end,) = c.write()
    assert isinstance(end, Resign) and c.store.znodes == before and token not in c.replies


def test_r_11_a_controller_of_whom_a_broker_has_heard_a_newer_one_resigns() -> None:
    c = controller()
    (end,) = c.step(BrokerAnswered(BrokerId(2), 12, E.STALE_CONTROLLER_EPOCH))
    assert isinstance(end, Resign)
    assert c.step(WritesDone(tuple((group, Outcome.WRITTEN) for group in c.in_flight))) == []


@pytest.mark.parametrize("code", [E.STALE_BROKER_EPOCH, E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_SERVER_ERROR])
def test_r_77_no_other_refusal_of_a_broker_ends_a_term(code: ErrorCode) -> None:
    assert controller().step(BrokerAnswered(BrokerId(2), 12, code)) == []


@pytest.mark.parametrize(
    "right",
    [
        lambda: alter_isr(),
        lambda: controlled_shutdown(11),
        lambda: told(roles(other(), full=False, sequence=7)),
        lambda: told(stop(-2, delete=True, sequence=7)),
        lambda: told(news(other(), sequence=7)),
        lambda: asked(lambda bench: bench.send(ONE, leader_epoch=3)),
        lambda: position(),
        lambda: chunk(),
    ],
    ids=[
        "AlterIsr",
        "ControlledShutdown",
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
        "Produce",
        "position",
        "chunk",
    ],
)
def test_with_every_epoch_right_the_same_requests_do_change_something(right: Callable[[], ErrorCode]) -> None:
    """Else the table above would hold of a broker that does nothing."""
    with pytest.raises((AssertionError, TimeoutError)):
        right()
