"""What a broker does with the controller's requests: the fences, and what each request means for its partitions."""

import asyncio
import re
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest

from helpers.bad_names import BAD_NAMES
from helpers.batches import batch
from helpers.broker import TOPIC_ID, BrokerBench, member
from helpers.requirements import requirement
from tidelog.broker.app import parse_known
from tidelog.broker.control_service import ControlService
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.meta import MetaError, OutcomeUnknown
from tidelog.ports.net import KnownCaller
from tidelog.testing import loop as sim
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.batch import validate_produce
from tidelog.wire.limits import SEQUENCE_JUMP_MAX

EPOCH = 101
CONTEXT = KnownCaller("test")
OTHER_ID = b"\xaa" * 16
EVENTS = TopicPartition("events", 0)

NONE = ErrorCode.NONE
STALE_CONTROLLER = ErrorCode.STALE_CONTROLLER_EPOCH
STALE_BROKER = ErrorCode.STALE_BROKER_EPOCH
Request = m.LeaderAndIsrRequest | m.StopReplicaRequest | m.UpdateMetadataRequest


class ControlBench:
    """Broker 1, registered with broker epoch 101; controller 9 of controller epoch 5 speaks to it."""

    def __init__(self, broker_epoch: int = EPOCH) -> None:
        self.bench = BrokerBench()
        self.broker_epoch = broker_epoch
        self.metadata = MetadataCache()
        self.live_told: list[dict[int, int]] = []
        self.ready: list[bool] = []
        self.newest: int | MetaError = 6
        """Controller epoch in ZooKeeper, or why it cannot be read."""
        self.service = ControlService(
            1,
            lambda: self.broker_epoch,
            self.bench.manager,
            self.metadata,
            lambda entries: parse_known(entries, TopicConfig()),
            self.bench.manager.set_strays_aside,
            self.live_told.append,
            self.ready.append,
            self._epoch_in_store,
        )

    async def _epoch_in_store(self) -> int:
        await asyncio.sleep(0.1)
        if isinstance(self.newest, MetaError):
            raise self.newest
        return self.newest

    def became(self, epoch: int) -> None:
        self.broker_epoch = epoch
        self.service.registered_again()

    def send(self, request: Request) -> Any:
        handlers: dict[type, Any] = {
            m.LeaderAndIsrRequest: self.service.leader_and_isr,
            m.StopReplicaRequest: self.service.stop_replica,
            m.UpdateMetadataRequest: self.service.update_metadata,
        }
        answer: Awaitable[Any] = handlers[type(request)](request, CONTEXT)
        return sim.run(_awaited(answer))

    def code(self, request: Request) -> ErrorCode:
        code: ErrorCode = self.send(request).error_code
        return code

    def results(self, request: m.LeaderAndIsrRequest | m.StopReplicaRequest) -> list[ErrorCode]:
        answer = self.send(request)
        assert answer.error_code is NONE
        return [each.error_code for each in answer.partitions]

    def append(self) -> None:
        self.bench.host.append(validate_produce(batch(b"one"), batch_bytes_max=1 << 20), -1, acks=1)

    @property
    def has_log(self) -> bool:
        return self.bench.logs.get(EVENTS) is not None


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def state(
    leader: int = 1, leader_epoch: int = 3, topic_id: bytes = TOPIC_ID, topic: str = "events"
) -> m.PartitionState:
    return m.PartitionState(
        topic=topic,
        topic_id=topic_id,
        partition=0,
        controller_epoch=5,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=(member(1), member(2)),
        partition_epoch=7,
        replicas=(1, 2),
    )


LIVE = tuple(m.LiveBroker(broker_id=i, broker_epoch=member(i).broker_epoch, fetch_max_bytes=0) for i in (1, 2))


def roles(
    *states: m.PartitionState,
    full: bool = True,
    controller_epoch: int = 5,
    broker_epoch: int = EPOCH,
    configs: Any = (),
    sequence: int = 1,
    continued: bool = False,
    more: bool = False,
) -> m.LeaderAndIsrRequest:
    topics = tuple(m.TopicState(topic=s.topic, topic_id=s.topic_id, configs=configs) for s in states)
    return m.LeaderAndIsrRequest(
        leader_throttle=0,
        follower_throttle=0,
        controller_id=9,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        full=full,
        partition_states=states,
        live_brokers=LIVE,
        topic_states=topics,
        sequence=sequence,
        continued=continued,
        more=more,
    )


def stop(
    leader_epoch: int,
    delete: bool = False,
    topic_id: bytes = TOPIC_ID,
    controller_epoch: int = 5,
    broker_epoch: int = EPOCH,
    sequence: int = 1,
) -> m.StopReplicaRequest:
    part = m.StopReplicaPartition(
        topic="events", topic_id=topic_id, partition=0, leader_epoch=leader_epoch, delete_partition=delete
    )
    return m.StopReplicaRequest(
        controller_id=9,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        sequence=sequence,
        partitions=(part,),
    )


def news(
    *states: m.PartitionState,
    controller_epoch: int = 5,
    broker_epoch: int = EPOCH,
    live: tuple[m.LiveBroker, ...] = LIVE,
    full: bool = False,
    sequence: int = 1,
    continued: bool = False,
    more: bool = False,
) -> m.UpdateMetadataRequest:
    return m.UpdateMetadataRequest(
        leader_throttle=0,
        follower_throttle=0,
        controller_id=9,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        full=full,
        partition_states=states,
        live_brokers=live,
        sequence=sequence,
        continued=continued,
        more=more,
    )


REQUESTS = {
    "LeaderAndIsr": lambda **epochs: roles(state(leader_epoch=9), **epochs),
    "StopReplica": lambda **epochs: stop(9, **epochs),
    "UpdateMetadata": lambda **epochs: news(state(leader_epoch=9), **epochs),
}


@requirement("A controller isolated beyond its session changes nothing on return")
@requirement("Epochs never decrease and one epoch has one leader")
@pytest.mark.parametrize("build", REQUESTS.values(), ids=REQUESTS.keys())
@pytest.mark.parametrize(
    ("epochs", "code"),
    [
        ({"controller_epoch": 4}, STALE_CONTROLLER),
        ({"controller_epoch": 5}, NONE),
        ({"controller_epoch": 6}, NONE),
        ({"broker_epoch": 100}, STALE_BROKER),
        # Our next life, of which we have not heard: what it is told now would be forgotten when we do.
        ({"broker_epoch": 102}, STALE_BROKER),
        ({"broker_epoch": 100, "controller_epoch": 6}, STALE_BROKER),
    ],
    ids=str,
)
def test_f14_2_i13_i7_fences(build: Any, epochs: dict[str, int], code: ErrorCode) -> None:
    control = ControlBench()
    assert control.code(roles(state())) is NONE
    assert control.code(build(**epochs)) is code
    # What was refused changed nothing, and a request for another life raises no controller epoch.
    told = control.metadata.leader_of(EVENTS)
    if code is not NONE:
        assert control.bench.host.replica.leader_epoch == 3
        assert control.bench.host.is_leader
        assert told is None
        assert control.service.controller_epoch == 5
    else:
        assert control.service.controller_epoch == epochs["controller_epoch"]


@pytest.mark.parametrize("build", REQUESTS.values(), ids=REQUESTS.keys())
def test_before_its_registration_a_broker_obeys_nobody(build: Any) -> None:
    control = ControlBench(broker_epoch=-1)
    assert control.code(build()) is STALE_BROKER
    assert control.code(build(broker_epoch=-1)) is STALE_BROKER
    assert len(control.bench.manager) == 0


@requirement("A checkpoint keeps the entries that an update does not name")
def test_the_first_request_of_a_life_must_be_full() -> None:
    control = ControlBench()
    assert control.code(roles(state(), full=False)) is STALE_BROKER
    assert len(control.bench.manager) == 0 and not control.service.ready
    assert control.code(roles(state())) is NONE
    assert control.service.ready and control.ready[-1:] == [False]
    assert control.code(news(full=True)) is NONE
    assert control.ready[-1] is True  # healthy only when it can tell a client where its partitions are
    assert control.code(roles(state(leader_epoch=4), full=False)) is NONE
    assert control.bench.host.replica.leader_epoch == 4


def test_each_new_life_must_be_told_everything_again() -> None:
    control = ControlBench()
    control.code(roles(state()))
    control.code(news(full=True))
    control.became(202)
    assert not control.service.ready and control.ready[-2:] == [True, False]
    assert control.code(roles(state(leader_epoch=4), full=False, broker_epoch=202)) is STALE_BROKER
    assert control.code(roles(state(leader_epoch=4), broker_epoch=202)) is NONE
    assert control.ready[-1] is False
    assert control.code(news(full=True, broker_epoch=202)) is NONE
    assert control.ready[-1] is True


def test_live_1_the_full_request_that_comes_before_we_know_our_new_epoch_is_not_lost() -> None:
    """Found by the simulator (seed 1014): it was obeyed, forgotten when the epoch became known, and never sent again."""
    control = ControlBench()
    control.code(roles(state()))
    early = roles(state(leader_epoch=4), broker_epoch=202)
    obeyed_early = control.code(early) is NONE
    control.became(202)
    if not obeyed_early:
        assert control.code(early) is NONE  # the controller's channel repeats what was refused
    assert control.code(roles(state(leader_epoch=5), full=False, broker_epoch=202)) is NONE


@requirement("A topic id separates topics that share a name")
def test_strays_go_with_a_full_request_only() -> None:
    control = ControlBench()
    control.code(roles(state(), state(topic="other")))
    control.code(roles(state(leader_epoch=4), full=False))
    assert control.bench.manager.find(TopicPartition("other", 0)) is not None
    control.code(roles(state(leader_epoch=4)))
    assert control.bench.manager.find(TopicPartition("other", 0)) is None
    assert control.bench.logs.get(TopicPartition("other", 0)) is None
    assert control.has_log


@requirement("A topic id separates topics that share a name")
def test_a_log_from_an_earlier_life_that_is_not_listed_goes_too() -> None:
    control = ControlBench()
    control.bench.logs.create(TopicPartition("old", 0), OTHER_ID)
    control.code(roles(state()))
    assert control.bench.logs.get(TopicPartition("old", 0)) is None


@requirement("A topic id separates topics that share a name")
def test_a_topic_made_again_does_not_inherit_the_old_records() -> None:
    control = ControlBench()
    control.code(roles(state(leader_epoch=8)))
    control.append()
    assert control.results(roles(state(leader_epoch=0, topic_id=OTHER_ID), full=False)) == [NONE]
    host = control.bench.host
    assert (host.topic_id, host.log.log_end_offset, host.replica.leader_epoch) == (OTHER_ID, 0, 0)
    # The old incarnation's commands no longer find anything.
    assert control.results(stop(9, delete=True)) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert control.has_log


@requirement("The replica of a deleted topic is stopped and deleted")
@requirement("Repeated or reordered control messages break no invariant")
@requirement("StopReplica is fenced by the leader epoch")
@pytest.mark.parametrize(
    ("leader_epoch", "code", "role_ends"),
    [
        (2, ErrorCode.FENCED_LEADER_EPOCH, False),
        (3, ErrorCode.FENCED_LEADER_EPOCH, False),  # sent before the decision that it would undo
        (4, NONE, True),
        (-1, NONE, True),
        (-2, NONE, True),
    ],
)
def test_stop_replica_is_fenced_by_leader_epoch(leader_epoch: int, code: ErrorCode, role_ends: bool) -> None:
    control = ControlBench()
    control.code(roles(state()))
    control.append()
    assert control.results(stop(leader_epoch)) == [code]
    assert control.bench.host.is_leader is not role_ends
    assert control.bench.host.log.log_end_offset == 1  # its records stay until a deletion


@requirement("A topic is deleted in a fixed order of steps")
@requirement("The replica of a deleted topic is stopped and deleted")
@pytest.mark.parametrize(("leader_epoch", "gone"), [(2, False), (3, False), (4, True), (-1, True), (-2, True)])
def test_f14_3_a_deletion_removes_the_log_and_minus_2_overrides_every_epoch(leader_epoch: int, gone: bool) -> None:
    control = ControlBench()
    control.code(roles(state()))
    assert control.results(stop(leader_epoch, delete=True)) == [NONE if gone else ErrorCode.FENCED_LEADER_EPOCH]
    assert (control.bench.manager.find(EVENTS) is None) is gone
    assert control.has_log is not gone


@requirement("Decisions are delivered in order and may be applied twice")
@requirement("Repeated or reordered control messages break no invariant")
def test_repeated_requests_are_harmless() -> None:
    control = ControlBench()
    first = control.results(roles(state()))
    control.append()
    host = control.bench.host
    assert control.results(roles(state())) == first == [NONE]
    assert control.bench.host is host and host.is_leader and host.log.log_end_offset == 1
    for _ in range(2):
        assert control.code(news(state(), full=True)) is NONE
    assert len(control.live_told) == 1
    for _ in range(3):
        assert control.results(stop(-2, delete=True)) == [NONE]


def test_an_older_leader_epoch_in_one_partition_stops_no_other() -> None:
    control = ControlBench()
    control.code(roles(state(leader_epoch=5)))
    both = roles(state(leader_epoch=4), state(topic="other"), full=False)
    assert control.results(both) == [ErrorCode.FENCED_LEADER_EPOCH, NONE]
    assert control.bench.host.replica.leader_epoch == 5


def test_a_late_decision_leaves_the_newer_settings_of_its_partition_alone() -> None:
    control = ControlBench()
    control.code(roles(state(leader_epoch=5)))
    late = replace(state(leader=2, leader_epoch=4), isr=(member(2),), replicas=(2, 1, 3))
    control.results(roles(late, full=False))
    assert (control.bench.host.assigned, control.bench.host.isr_size) == ((1, 2), 2)


def test_the_topic_config_travels_with_the_roles_and_an_unknown_key_does_no_harm() -> None:
    control = ControlBench()
    entries = (
        m.ConfigEntry(key="of.a.newer.version", value="x"),
        m.ConfigEntry(key="min.insync.replicas", value="1"),
    )
    control.code(roles(state(), configs=entries))
    assert control.bench.host.config.min_insync_replicas == 1
    # A later request about the same topic need not repeat it.
    control.code(replace(roles(state(leader_epoch=4), full=False), topic_states=()))
    assert control.bench.host.config.min_insync_replicas == 1


def test_leaders_hear_when_the_set_of_live_brokers_changes_and_only_then() -> None:
    control = ControlBench()
    control.code(roles(state()))
    control.code(news())
    control.code(news(state()))
    assert control.live_told == [{1: 101, 2: 201}]
    bounced = (LIVE[0], m.LiveBroker(broker_id=2, broker_epoch=299, fetch_max_bytes=0))
    control.code(news(live=bounced))
    control.code(news(live=LIVE[:1]))
    assert control.live_told[1:] == [{1: 101, 2: 299}, {1: 101}]


@requirement("A deposed leader that wakes up commits nothing")
def test_a_follower_finds_its_leader_by_leader_and_isr_alone() -> None:
    control = ControlBench()
    doors = (m.Listener(name="INTERNAL", host="two", port=9092),)
    live = (m.LiveBroker(broker_id=2, broker_epoch=201, fetch_max_bytes=0, listeners=doors),)
    control.code(replace(roles(state(leader=2)), live_brokers=live))
    assert control.metadata.address_of(2) == ("two", 9092)
    assert control.bench.fetchers.following == {EVENTS: 2}


def test_a_leader_knows_the_throttle_of_a_move_when_it_begins() -> None:
    """KIP-73: not only with UpdateMetadata, which comes later; by then the first copies have been sent."""
    control = ControlBench()
    control.code(replace(roles(state()), leader_throttle=1000, follower_throttle=2000))
    assert (control.metadata.leader_throttle, control.metadata.follower_throttle) == (1000, 2000)
    control.code(replace(roles(state(), full=False), leader_throttle=0, follower_throttle=0))
    assert (control.metadata.leader_throttle, control.metadata.follower_throttle) == (0, 0)


def ends(bench: ControlBench, *topic_ids: bytes, **epochs: int) -> m.ReplicaEndsResponse:
    asked = tuple(m.ReplicaEndsPartition(topic="events", topic_id=each, partition=0) for each in topic_ids)
    fields = {"controller_id": 9, "controller_epoch": 5, "broker_epoch": EPOCH, **epochs}
    answer: m.ReplicaEndsResponse = sim.run(
        _awaited(bench.service.replica_ends(m.ReplicaEndsRequest(partitions=asked, **fields), CONTEXT))
    )
    return answer


def test_a_broker_tells_the_ends_of_its_logs_without_orders() -> None:
    bench = ControlBench()
    log = bench.bench.logs.create(EVENTS, TOPIC_ID)
    assert [(e.last_epoch, e.end_offset) for e in ends(bench, TOPIC_ID).partitions] == [(-1, 0)]
    for epoch in (3, 5):
        log.append_as_leader(validate_produce(batch(b"record"), batch_bytes_max=1 << 20), epoch)
    log.assign_epoch(8, 2)
    found = ends(bench, TOPIC_ID, OTHER_ID).partitions
    assert [(e.error_code, e.last_epoch, e.end_offset) for e in found] == [(NONE, 5, 2), (NONE, -1, 0)], (
        "the epoch of the last record, and nothing of another topic of the name"
    )
    log.fence("broken")
    assert [e.error_code for e in ends(bench, TOPIC_ID).partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_question_about_ends_is_fenced_and_changes_nothing() -> None:
    bench = ControlBench()
    bench.send(roles())
    assert ends(bench, TOPIC_ID, broker_epoch=EPOCH - 1).error_code is STALE_BROKER
    assert ends(bench, TOPIC_ID, controller_epoch=4).error_code is STALE_CONTROLLER
    assert ends(bench, TOPIC_ID, controller_epoch=6).error_code is NONE
    assert bench.service.controller_epoch == 5
    assert ends(ControlBench(broker_epoch=-1), TOPIC_ID).error_code is STALE_BROKER


class Pings:
    """The broker's end of a liveness stream: three pings, then the end."""

    def __init__(self) -> None:
        self.left = 3
        self.pongs: list[m.LivenessPong] = []

    async def read(self) -> m.LivenessPing | None:
        self.left -= 1
        return m.LivenessPing(controller_id=9, controller_epoch=5) if self.left >= 0 else None

    async def write(self, message: m.LivenessPong) -> None:
        self.pongs.append(message)

    def cancel(self) -> None: ...


def test_liveness_answers_each_ping_with_the_epoch_of_this_life() -> None:
    control, pings = ControlBench(), Pings()
    sim.run(control.service.liveness(pings, CONTEXT))
    assert pings.pongs == [m.LivenessPong(broker_id=1, broker_epoch=EPOCH)] * 3


def listed(bench: ControlBench) -> list[str]:
    return sorted(host.tp.topic for host in bench.bench.manager)


@requirement("Repeated or reordered control messages break no invariant")
def test_a_request_that_was_overtaken_changes_nothing() -> None:
    bench = ControlBench()
    assert bench.code(roles(state(), sequence=4)) is NONE
    assert bench.code(roles(state(topic="new"), full=False, sequence=5)) is NONE
    late = {
        # The full list of before the partition was made would remove it; the others would undo what came after them.
        "full list": roles(state(), sequence=4),
        "roles": roles(state(leader=2, leader_epoch=9), full=False, sequence=3),
        "stop": stop(-2, delete=True, sequence=4),
        "metadata": news(full=True, sequence=0),
    }
    for what, request in late.items():
        assert bench.code(request) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what
    assert listed(bench) == ["events", "new"]
    assert bench.bench.host.replica.leader_epoch == 3
    assert bench.code(roles(state(topic="new"), full=False, sequence=6)) is NONE


@requirement("A new controller sends every decision again")
@requirement("Repeated or reordered control messages break no invariant")
def test_the_same_request_twice_is_applied_twice_and_harmless() -> None:
    bench = ControlBench()
    bench.send(roles(state(), sequence=4))
    bench.append()
    assert bench.results(roles(state(), sequence=4)) == [NONE]
    assert (bench.bench.host.log.log_end_offset, listed(bench)) == (1, ["events"])


def test_i7_a_new_controller_counts_from_where_it_likes_and_the_old_one_never_again() -> None:
    bench = ControlBench()
    bench.send(roles(state(), sequence=900))
    assert bench.code(roles(state(), controller_epoch=6, sequence=2)) is NONE
    assert bench.code(roles(controller_epoch=6, sequence=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert bench.code(roles(controller_epoch=5, sequence=901)) is STALE_CONTROLLER
    assert listed(bench) == ["events"]


@requirement("A topic id separates topics that share a name")
def test_of_a_list_in_parts_strays_go_with_the_last_part_only() -> None:
    bench = ControlBench()
    bench.send(roles(*(state(topic=name) for name in ("a", "b", "c", "gone")), sequence=1))
    bench.became(201)
    whole: dict[str, Any] = {"broker_epoch": 201}
    first = roles(state(topic="a"), sequence=2, more=True, **whole)
    second = roles(state(topic="b"), sequence=3, continued=True, more=True, **whole)
    third = roles(state(topic="c"), sequence=4, continued=True, **whole)
    for part in (first, first, second, second):
        assert bench.code(part) is NONE
        assert listed(bench) == ["a", "b", "c", "gone"] and not bench.service.ready
        # News must not come into the middle of a list by which a broker is not ready yet.
        assert bench.code(roles(state(topic="x"), full=False, sequence=part.sequence, **whole)) is STALE_BROKER
    assert bench.code(third) is NONE
    assert listed(bench) == ["a", "b", "c"] and bench.service.ready
    assert bench.code(third) is NONE, "the last part once more"
    assert listed(bench) == ["a", "b", "c"]


@requirement("A checkpoint keeps the entries that an update does not name")
@pytest.mark.parametrize("before", ["nothing", "another life", "another controller"])
def test_a_part_that_continues_nothing_is_refused(before: str) -> None:
    bench = ControlBench()
    bench.send(roles(state(topic="a"), sequence=1, more=before != "nothing"))
    where: dict[str, Any] = {}
    if before == "another life":
        bench.became(201)
        where = {"broker_epoch": 201}
    elif before == "another controller":
        where = {"controller_epoch": 6}
    part = roles(state(topic="b"), sequence=2, continued=True, **where)
    assert bench.code(part) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert listed(bench) == ["a"]
    metadata = news(state(topic="b"), full=True, sequence=3, continued=True, **where)
    assert bench.code(metadata) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert bench.code(roles(state(topic="b"), sequence=4, **where)) is NONE
    assert listed(bench) == ["b"]


def test_metadata_in_parts_replaces_nothing_before_the_last_one() -> None:
    bench = ControlBench()
    bench.send(news(state(topic="old"), full=True, sequence=1))
    bench.send(news(state(topic="a"), full=True, sequence=2, more=True))
    assert bench.metadata.leader_of(TopicPartition("old", 0)) is not None
    for _ in range(2):
        assert bench.code(news(state(topic="b"), full=True, sequence=3, continued=True)) is NONE
        known = [name for name in ("old", "a", "b") if bench.metadata.leader_of(TopicPartition(name, 0))]
        assert known == ["a", "b"]


@pytest.mark.parametrize("build", REQUESTS.values(), ids=REQUESTS.keys())
def test_a_forged_controller_epoch_deposes_no_controller(build: Any) -> None:
    control = ControlBench()
    control.newest = 5
    assert control.code(roles(state())) is NONE
    assert control.code(build(controller_epoch=2**31 - 1, sequence=9)) is ErrorCode.NOT_CONTROLLER
    assert control.service.controller_epoch == 5 and control.bench.host.replica.leader_epoch == 3
    assert control.code(build(sequence=2)) is NONE
    control.newest = 6
    assert control.code(build(controller_epoch=6)) is NONE


def test_an_epoch_that_zookeeper_cannot_confirm_waits() -> None:
    control = ControlBench()
    control.newest = OutcomeUnknown("no connection")
    assert control.code(roles(state())) is ErrorCode.NOT_CONTROLLER
    assert len(control.bench.manager) == 0 and not control.service.ready
    control.newest = 5
    assert control.code(roles(state())) is NONE
    control.newest = OutcomeUnknown("no connection")
    assert control.code(roles(state(), sequence=2)) is NONE, "what is confirmed needs no second word"


async def test_a_forged_epoch_holds_up_no_other_order() -> None:
    control = ControlBench()
    assert (await control.service.leader_and_isr(roles(state()), CONTEXT)).error_code is NONE
    forged = asyncio.ensure_future(control.service.leader_and_isr(roles(controller_epoch=99, sequence=9), CONTEXT))
    await asyncio.sleep(0)
    order = control.service.leader_and_isr(roles(state(leader_epoch=4), sequence=2), CONTEXT)
    assert (await order).error_code is NONE and not forged.done()
    assert (await forged).error_code is ErrorCode.NOT_CONTROLLER


async def test_an_order_for_a_life_that_ends_meanwhile_is_refused() -> None:
    control = ControlBench()
    asyncio.get_running_loop().call_later(0.05, control.became, 202)
    assert (await control.service.leader_and_isr(roles(state()), CONTEXT)).error_code is STALE_BROKER
    assert len(control.bench.manager) == 0


async def test_an_older_order_that_was_confirmed_later_is_refused() -> None:
    control = ControlBench()
    orders = (roles(state(leader_epoch=9), sequence=7), roles(state(leader_epoch=8), sequence=6))
    answers = await asyncio.gather(*(control.service.leader_and_isr(each, CONTEXT) for each in orders))
    assert [each.error_code for each in answers] == [NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert control.bench.host.replica.leader_epoch == 9


def test_numbers_do_not_jump() -> None:
    control = ControlBench()
    assert control.code(roles(state(), sequence=1)) is NONE
    assert control.code(roles(state(), sequence=2 + SEQUENCE_JUMP_MAX)) is ErrorCode.INVALID_REQUEST
    assert control.code(roles(state(), sequence=2)) is NONE
    assert control.code(roles(state(), sequence=2 + SEQUENCE_JUMP_MAX)) is NONE
    assert control.code(roles(state(), controller_epoch=6, sequence=2**63 - 1)) is ErrorCode.INVALID_REQUEST
    assert control.code(roles(state(), controller_epoch=6, sequence=1)) is NONE


def test_numbers_begin_anew_in_each_life() -> None:
    control = ControlBench()
    assert control.code(roles(state(), sequence=900)) is NONE
    control.became(202)
    assert control.code(roles(state(), broker_epoch=202, sequence=1)) is NONE


def _named(name: str) -> dict[str, Request]:
    part = m.StopReplicaPartition(topic=name, topic_id=TOPIC_ID, partition=0, leader_epoch=-2, delete_partition=True)
    return {
        "partition_states": replace(roles(state(topic=name)), topic_states=()),
        "topic_states": replace(roles(state(topic=name)), partition_states=()),
        "partitions": replace(stop(-2), partitions=(part,)),
        "partition_states of news": news(state(topic=name)),
        "deleted_topics": replace(news(), deleted_topics=(name,)),
    }


@pytest.mark.parametrize("field", _named("t"))
@pytest.mark.parametrize(("name", "said"), BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_a_name_that_no_topic_has_refuses_the_order(name: str, said: str, field: str) -> None:
    control = ControlBench()
    control.code(roles(state()))
    before = control.bench.disk.image()
    with pytest.raises(TidelogError, match=f"^{field.split()[0]}: .*{re.escape(said)}") as refused:
        control.send(replace(_named(name)[field], sequence=2))
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert control.bench.disk.image() == before and control.bench.host.is_leader


WRONG_STATES: dict[str, tuple[dict[str, Any], str]] = {
    "partition below": ({"partition": -1}, "partition is -1, allowed are 0 to 9999"),
    "partition above": ({"partition": 10_000}, "partition is 10000, allowed are 0 to 9999"),
    "no id": ({"topic_id": b""}, "topic_id has 0 bytes, allowed are 1 to 16"),
    "long id": ({"topic_id": b"i" * 200}, "topic_id has 200 bytes, allowed are 1 to 16"),
    "leader": ({"leader": -2}, "leader is -2, allowed are -1 (none) and ids from 0"),
    "replica": ({"replicas": (1, -5)}, "replicas names -5, ids begin at 0"),
}


@pytest.mark.parametrize(("change", "said"), WRONG_STATES.values(), ids=WRONG_STATES.keys())
@pytest.mark.parametrize("build", [roles, news], ids=["roles", "news"])
def test_an_order_with_an_impossible_number_is_refused(build: Any, change: dict[str, Any], said: str) -> None:
    control = ControlBench()
    wrong = replace(state(topic="wrong"), **change)
    with pytest.raises(TidelogError, match=f"partition_states, topic wrong: {re.escape(said)}") as refused:
        order = build(state(), wrong)
        control.send(replace(order, topic_states=()) if build is roles else order)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(control.bench.manager) == 0 and control.service.controller_epoch == -1, "the whole order is refused"
