"""Members of groups: registration, pings, leases, failure and leaving, at the level of the state machine."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.coordinator import effects as fx
from tidelog.coordinator import events as ev
from tidelog.coordinator.events import WriteId
from tidelog.coordinator.model import DRIFT, DRIFT_MIN_S, Committed
from tidelog.coordinator.operations import changes, operations
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.ports.meta import MULTI_LIMIT_BYTES, size_bytes
from tidelog.wire import messages as m
from unit.coordinator.scene import LIMITS, Consumer, Scene, pattern, topic_count, tps

E = ErrorCode
SESSION_S = 10.0
LEASE_S = SESSION_S * (1 + DRIFT) + DRIFT_MIN_S
HOUR_S = 3600
DAY_S = 24 * HOUR_S


def refused(consumer: Consumer) -> tuple[ErrorCode, str]:
    assert consumer.error is not None, "it was not refused"
    return consumer.error.error_code, consumer.error.error_message


# -- registration ----------------------------------------------------------------------------------------------------------


@requirement("RegisterConsumerResponse has an error code and no partitions")
@requirement("A registration is answered without partitions")
@requirement("A registration is answered with success or an error code")
def test_a_registration_is_answered_without_ownership_which_comes_with_start() -> None:
    scene = Scene()
    consumer = scene.consumer("a").register()
    assert consumer.heard == [m.RegisterConsumerResponse(coordinator_epoch=7, admission=0)]
    scene.run(1.0)
    assert consumer.owned == tps("t", 0, 1, 2, 3)
    (answer,) = scene.consumer("b", static_member=True).register().heard
    assert answer.admission > 0


BAD = [
    ({"group_id": ""}, E.INVALID_GROUP_ID, "group_id is empty"),
    ({"group_id": "a/b"}, E.INVALID_GROUP_ID, "group_id 'a/b'"),
    ({"group_id": "shards"}, E.INVALID_GROUP_ID, "may not be 'shards'"),
    ({"group_id": "coordinator"}, E.INVALID_GROUP_ID, "may not be 'coordinator'"),
    ({"group_id": "g" * 250}, E.INVALID_GROUP_ID, "250 characters; at most 249"),
    ({"consumer_id": ""}, E.INVALID_REQUEST, "consumer_id is empty"),
    ({"consumer_id": "a\n"}, E.INVALID_REQUEST, "consumer_id 'a\\n'"),
    ({"session_timeout_ms": 1000}, E.INVALID_SESSION_TIMEOUT, "session_timeout_ms 1000 is not over 1000"),
    ({"session_timeout_ms": 0}, E.INVALID_SESSION_TIMEOUT, "session_timeout_ms 0 is not over 1000"),
    ({"session_timeout_ms": -1}, E.INVALID_SESSION_TIMEOUT, "session_timeout_ms -1"),
    ({"session_timeout_ms": 2**31 - 1}, E.INVALID_SESSION_TIMEOUT, "at most 100000"),
    ({"max_processing_ms": -1}, E.INVALID_REQUEST, "max_processing_ms -1"),
    ({"max_processing_ms": 2**31 - 1}, E.INVALID_REQUEST, "max_processing_ms 2147483647"),
    ({"watch_port": -1}, E.INVALID_REQUEST, "watch_port -1 is neither 0 nor from 1024 to 65535"),
    ({"watch_port": 22}, E.INVALID_REQUEST, "watch_port 22"),
    ({"watch_port": 65_536}, E.INVALID_REQUEST, "watch_port 65536"),
    ({"auto_offset_reset": "earliest"}, E.INVALID_REQUEST, "auto_offset_reset 'earliest'"),
    ({"auto_offset_reset": "middle"}, E.INVALID_REQUEST, "auto_offset_reset 'middle'"),
    ({"assignor": "best"}, E.INCONSISTENT_GROUP_PROTOCOL, "assignor 'best'"),
    ({"assignor": "x" * 1_000_000}, E.INCONSISTENT_GROUP_PROTOCOL, "assignor 'xxx"),
    ({"auto_offset_reset": "я" * 1_000_000}, E.INVALID_REQUEST, "is not smallest, largest or empty"),
    ({"client_id": "x" * 250}, E.INVALID_REQUEST, "client_id has 250 characters; at most 249"),
    ({"topic_count": "{"}, E.INVALID_REQUEST, "topic_count"),
    ({"topic_count": topic_count("a/b")}, E.INVALID_TOPIC_EXCEPTION, "a/b"),
    ({"topic_count": pattern("(")}, E.INVALID_REQUEST, "("),
    ({"topic_count": topic_count("huge")}, E.INVALID_REQUEST, "1001 partitions; at most 1000"),
]


@requirement("RegisterConsumerRequest says everything about a consumer")
@requirement("RegisterConsumerResponse has an error code and no partitions")
@requirement("The minimum session timeout is a setting")
@requirement("Every coordinator error has a code and a consumer reaction")
@requirement("A registration needs a unique id and a session above the minimum")
@requirement("A duplicate consumer id or too short a session gets an error code")
@pytest.mark.parametrize(("change", "code", "text"), BAD, ids=lambda value: str(value)[:40])
def test_a_bad_registration_gets_its_code_and_the_consumer_closes(change: object, code: E, text: str) -> None:
    scene = Scene(topics={"t": 4, "huge": 1001})
    consumer = scene.consumer("a").register(**change)  # type: ignore[arg-type]
    found = refused(consumer)
    assert found[0] is code and text in found[1] and len(found[1]) < 1000
    assert not scene.of(fx.Close) and not scene.machine.groups, (
        "the coordinator keeps the connection, and no group is made"
    )
    (later,) = scene.join("b")
    assert later.owned == tps("t", 0, 1, 2, 3)


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
def test_a_registration_whose_number_cannot_grow_is_refused(number: int) -> None:
    scene = Scene()
    consumer = scene.consumer("a")
    consumer.number = number - 1
    code, text = refused(consumer.register())
    assert (code, text) == (E.INVALID_REQUEST, f"number {number} is not at least 1")
    assert not scene.machine.groups


def test_a_message_without_a_body_and_a_second_registration_end_the_stream_and_not_the_member() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    generation = scene.heads["g"].generation
    a.send()
    assert refused(a) == (E.INVALID_REQUEST, "a message without a body")
    a.error = None
    a.reconnect()
    assert a.error is None and a.owned == tps("t", 0, 1)
    a.register()
    assert refused(a) == (E.INVALID_REQUEST, "a consumer registers once on a stream")
    a.reconnect()
    scene.run(30.0)
    assert scene.heads["g"].generation == generation and (a.owned, b.owned) == (tps("t", 0, 1), tps("t", 2, 3))


@requirement("A registration needs a unique id and a session above the minimum")
@requirement("A duplicate consumer id or too short a session gets an error code")
def test_a_second_consumer_with_the_id_of_a_live_one_is_refused() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    generation = scene.heads["g"].generation
    second = scene.consumer("a").register()
    assert refused(second)[0] is E.DUPLICATE_CONSUMER_ID
    scene.run(3 * SESSION_S)
    assert not scene.of(fx.Close), "the coordinator keeps both connections"
    assert a.owned == tps("t", 0, 1, 2, 3) and scene.heads["g"].generation == generation


@requirement("A consumer that reconnects resumes its own registration")
def test_the_same_consumer_comes_back_at_once_and_goes_on() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    generation = scene.heads["g"].generation
    a.lose_connection()
    a.reconnect()
    assert a.error is None and a.owned == tps("t", 0, 1) and b.owned == tps("t", 2, 3)
    scene.run(30.0)
    assert scene.heads["g"].generation == generation and not scene.of(fx.Rebalanced)[2:], "nobody was rebalanced for it"


@requirement("A consumer that reconnects resumes its own registration")
def test_a_reconnect_that_overtakes_the_news_of_the_broken_stream_replaces_it() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    old = a.connection
    a.reconnect()
    assert fx.Close(old) in scene.effects and a.owned == tps("t", 0, 1, 2, 3)
    scene.run(30.0)
    assert scene.machine.describe("g").members[0].host == "host"


@requirement("A consumer that reconnects resumes its own registration")
def test_a_registration_that_was_sent_before_is_no_reconnect() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    current, late = a.connection, scene.consumer("late").connection
    request = m.RegisterConsumerRequest(**a.request)
    scene.step(ev.MessageArrived(late, "host", m.ConsumerMessage(number=1, register=request)))
    assert fx.Close(late) in scene.effects and fx.Close(current) not in scene.effects


def test_coord_14_a_newer_incarnation_of_a_static_member_takes_its_place_and_waits_for_the_older_ones_lease() -> None:
    scene = Scene()
    a, b = scene.join("a", "b", static_member=True)
    generation = scene.heads["g"].generation
    newer = scene.consumer("a", static_member=True).register()
    assert a.bodies(m.RegisterConsumerResponse)[-1].error_code is E.DUPLICATE_CONSUMER_ID, "the older one is fenced"
    scene.run(SESSION_S - 4)
    assert not newer.owned, "the older one may still fetch"
    scene.run(8.0)
    assert newer.owned == tps("t", 0, 1) and b.owned == tps("t", 2, 3)
    assert scene.owners["g"][TopicPartition("t", 0)].generation <= generation, "nothing has moved"


def test_coord_14_a_static_member_that_has_said_that_it_stopped_is_followed_at_once() -> None:
    scene = Scene()
    a, b = scene.join("a", "b", static_member=True)
    a.leave()
    assert isinstance(a.heard[-1], m.LeaveGroupResponse)
    newer = scene.consumer("a", static_member=True).register()
    assert newer.owned == tps("t", 0, 1) and b.owned == tps("t", 2, 3)


def test_a_static_member_that_stays_away_is_removed_when_its_session_is_over() -> None:
    scene = Scene()
    a, b = scene.join("a", "b", static_member=True)
    a.leave()
    scene.run(SESSION_S / 2)
    assert b.owned == tps("t", 2, 3)
    scene.run(SESSION_S)
    assert b.owned == tps("t", 0, 1, 2, 3)


def test_all_members_name_the_same_assignor() -> None:
    scene = Scene()
    scene.join("a", assignor="sticky")
    other = scene.consumer("b").register(assignor="range")
    assert refused(other)[0] is E.INCONSISTENT_GROUP_PROTOCOL and "'sticky'" in refused(other)[1]


def test_a_group_has_a_largest_size() -> None:
    scene = Scene(limits=replace(LIMITS, members_max=2))
    a, _ = scene.join("a", "b")
    third = scene.consumer("c").register()
    assert refused(third) == (E.GROUP_MAX_SIZE_REACHED, "group 'g' has 2 members; at most 2")
    a.leave()
    (third,) = scene.join("c")
    assert third.owned


def test_a_group_whose_members_would_not_fit_its_znode_takes_no_more() -> None:
    scene = Scene(limits=replace(LIMITS, members_max=10_000))
    last = scene.consumer("first")
    for index in range(2_000):
        last = scene.consumer(f"{index:0249}").register()
        if last.error is not None:
            break
    assert refused(last)[0] is E.GROUP_MAX_SIZE_REACHED and "at most 480000 bytes" in refused(last)[1]
    scene.run(5.0)
    write = fx.Write(WriteId(1), "g", {}, {}, scene.heads["g"])
    (change,) = changes(write)
    assert size_bytes(operations(change, frozenset())) < MULTI_LIMIT_BYTES - 10_000


SENDER: dict[str, Any] = {"consumer_id": "a", "coordinator_epoch": 1, "generation": 1}
FIRST: dict[str, dict[str, Any]] = {
    "nothing": {},
    "ping": {"ping": m.PingResponse(**SENDER)},
    "stopped": {"stopped": m.StopFetcherResponse(**SENDER, started_generation=1, finishing=False)},
    "started": {"started": m.StartFetcherResponse(**SENDER)},
    "leave": {"leave": m.LeaveGroupRequest(**SENDER)},
}


@pytest.mark.parametrize("first", FIRST)
def test_the_first_message_must_be_a_registration_and_there_is_only_one(first: str) -> None:
    scene = Scene()
    stranger = scene.consumer("a")
    stranger.send(**FIRST[first])
    code, text = refused(stranger)
    assert code is E.INVALID_REQUEST and "the first message" in text and not scene.machine.groups
    (b,) = scene.join("b")
    b.send(register=m.RegisterConsumerRequest(**b.request))
    assert refused(b)[0] is E.INVALID_REQUEST


def test_a_message_that_comes_again_is_not_done_again() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.positions = dict.fromkeys(a.owned, 9)
    ping = m.PingResponse(consumer_id="a", coordinator_epoch=7, generation=a.generation, offset_info=a.offset_info())
    scene.step(ev.MessageArrived(a.connection, "host", m.ConsumerMessage(number=a.number, ping=ping)))
    assert not scene.machine.groups["g"].reported, "its number was used before"
    a.answer_ping()
    assert scene.machine.groups["g"].reported


# -- pings and leases ------------------------------------------------------------------------------------------------------


@requirement("The partitions of a killed consumer move within a time budget")
@requirement("A ping goes to every member each third of its session")
@requirement("A scheduler of the coordinator sends the pings")
@requirement("A ping sets its watcher and schedules the next one")
def test_a_ping_goes_out_every_third_of_the_session() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    (b,) = scene.join("b", session_timeout_ms=6000)
    scene.run(SESSION_S)  # the first may come anywhere within the first third
    times = []
    for _ in range(9):
        before = len(a.bodies(m.PingRequest))
        scene.run(SESSION_S, lambda before=before: len(a.bodies(m.PingRequest)) > before)  # type: ignore[misc]
        times.append(scene.now)
    assert [round(b - a, 6) for a, b in itertools.pairwise(times)] == [round(SESSION_S / 3, 6)] * 8
    before = len(b.bodies(m.PingRequest))
    scene.run(20.0)
    assert len(b.bodies(m.PingRequest)) - before == 10, "every third of its own session"


def first_pinged_at(scene: Scene, consumer: Consumer) -> float:
    scene.run(SESSION_S, lambda: bool(consumer.bodies(m.PingRequest)))
    return scene.now


@requirement("A ping goes to every member each third of its session")
def test_first_pings_come_at_random_within_a_third() -> None:
    scene = Scene()
    shares = (0.1, 0.5, 0.9)
    scene.machine._desk.rand = iter(shares).__next__
    members = [scene.consumer(name).register() for name in "abc"]
    registered_at = scene.now
    waits_s = [first_pinged_at(scene, each) - registered_at for each in members]
    assert waits_s == pytest.approx([share * SESSION_S / 3 for share in shares])


@requirement("A ping sets its watcher and schedules the next one")
def test_pings_do_not_pile_up_after_a_delay() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    asked = len(a.bodies(m.PingRequest))
    scene.run(SESSION_S, lambda: len(a.bodies(m.PingRequest)) > asked)
    scene.now += SESSION_S * 0.9  # more than two pings were due meanwhile
    scene.step(ev.Woken())
    assert len(a.bodies(m.PingRequest)) == asked + 2
    scene.run(SESSION_S / 3 - 0.01)
    assert len(a.bodies(m.PingRequest)) == asked + 2, "a third of the session counts from the sending"
    scene.run(0.02)
    assert len(a.bodies(m.PingRequest)) == asked + 3


@requirement("The coordinator tracks the health of every member")
@requirement("A member fails after too many failed pings in a row")
def test_one_lost_answer_costs_nothing() -> None:
    scene = Scene()
    a, _b = scene.join("a", "b")
    scene.run(7.0)
    generation = scene.heads["g"].generation
    a.answers.discard("ping")
    asked = len(a.bodies(m.PingRequest))
    scene.run(SESSION_S, lambda: len(a.bodies(m.PingRequest)) > asked)
    a.answers.add("ping")
    scene.run(60.0)
    assert a.owned == tps("t", 0, 1) and not a.closed
    assert scene.heads["g"].generation == generation


@requirement("Offsets in a ping answer are recorded and stored later")
@requirement("PingRequest counts the failed pings before it")
@requirement("A member fails after too many failed pings in a row")
def test_pings_that_failed_before_an_answer_count_no_more() -> None:
    scene = Scene(limits=replace(LIMITS, failed_pings_max=3))
    (a,) = scene.join("a")
    member = scene.machine.groups["g"].members["a"]
    for _ in range(4):
        a.answers.discard("ping")
        scene.run(1.2 * SESSION_S)
        assert 1 <= member.failed_pings <= 3
        a.answers.add("ping")
        scene.run(SESSION_S / 2)
        assert member.failed_pings == 0
    assert not a.closed


@requirement("A member fails after too many failed pings in a row")
@pytest.mark.parametrize("change", [{"generation": 0}, {"error_code": E.UNKNOWN_SERVER_ERROR}], ids=str)
def test_any_answer_to_a_ping_resets_the_count(change: dict[str, Any]) -> None:
    scene = Scene(limits=replace(LIMITS, failed_pings_max=3))
    (a,) = scene.join("a")
    member = scene.machine.groups["g"].members["a"]
    a.answers.discard("ping")
    scene.run(1.2 * SESSION_S)
    assert member.failed_pings > 0
    fields: dict[str, Any] = {"consumer_id": "a", "coordinator_epoch": 7, "generation": a.generation}
    a.send(ping=m.PingResponse(**(fields | change)))
    assert member.failed_pings == 0


@requirement("StartFetcherRequest carries ownership and live brokers")
@requirement("PingRequest counts the failed pings before it")
@requirement("StopFetcherRequest names the consumer that is to stop")
def test_each_request_names_the_member_that_it_is_for() -> None:
    scene = Scene()
    members = scene.join("a")
    scene.run(SESSION_S)
    members += scene.join("b")
    scene.run(SESSION_S)
    for member in members:
        for kind in (m.PingRequest, m.StartFetcherRequest):
            assert {each.consumer_id for each in member.bodies(kind)} == {member.name}
    stops = [(member.name, each.consumer_id) for member in members for each in member.bodies(m.StopFetcherRequest)]
    assert stops and all(name == named for name, named in stops)


@requirement("The time to detect a dead member is computed and exported")
@requirement("PingRequest counts the failed pings before it")
def test_conflict_06_a_ping_is_sent_whether_or_not_the_one_before_was_answered_and_says_how_many_failed() -> None:
    scene = Scene(limits=replace(LIMITS, failed_pings_max=2))
    (a,) = scene.join("a")
    a.answers.clear()
    scene.run(3 * SESSION_S, lambda: a.closed)
    retries = [ping.num_retries for ping in a.bodies(m.PingRequest)]
    assert retries[:4] == [0, 0, 0, 1] and retries == sorted(retries)
    assert a.closed


@requirement("A broken stream alone moves no partition")
@requirement("A member fails after too many failed pings in a row")
@requirement("The coordinator tracks the health of every member")
@requirement("The death of a member starts a rebalance of its group")
@requirement("The time to detect a dead member is computed and exported")
@requirement("The number of failed pings that are allowed is a setting")
@requirement("The members that remain after a failure are rebalanced")
@requirement("An expired ping adds to the failures of its member")
@requirement("The partitions of a killed consumer move within a time budget")
@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_a_silent_consumer_is_dead_within_the_budget_and_not_before_its_lease_is_out(allowed: int) -> None:
    scene = Scene(limits=replace(LIMITS, failed_pings_max=allowed))
    a, b = scene.join("a", "b")
    scene.run(21.0)
    a.answers.clear()
    silent_since = scene.now
    last_answer = scene.machine.groups["g"].members["a"].answered_at
    scene.run(10 * SESSION_S, lambda: len(b.owned) == 4)
    least_s = (allowed / 3 + 2 / 3) * SESSION_S
    budget_s = least_s + SESSION_S / 3
    assert max(silent_since + least_s, last_answer + LEASE_S) - 1e-6 <= scene.now
    assert scene.now <= max(silent_since + budget_s, last_answer + LEASE_S) + 0.5


@requirement("A broken stream alone moves no partition")
@requirement("A partition moves only after the lease of its owner has ended")
def test_a_broken_stream_alone_moves_nothing_before_the_lease_is_out() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    scene.run(SESSION_S)
    heard = scene.machine.groups["g"].members["a"].answered_at
    a.lose_connection()
    scene.run(heard + 10.119 - scene.now)
    assert b.owned == tps("t", 2, 3), "a session, 1 percent of it and 20 ms"
    scene.run(0.002)
    assert b.owned == tps("t", 0, 1, 2, 3)


def test_conflict_05_each_message_names_the_newest_that_arrived_for_the_lease() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    for _ in range(5):
        scene.run(SESSION_S / 3)
        assert a.last_number >= a.number - 1, "the answer to the last ping is named by the next one"


def test_coord_08_after_a_pause_of_its_own_the_coordinator_gives_everybody_a_new_deadline() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    a.answers.discard("ping")
    scene.run(SESSION_S / 2)
    scene.now += 60.0  # nothing happened here meanwhile; the answers wait in the streams
    scene.step(ev.Paused(60.0))
    assert not a.closed and not b.closed
    a.answers.add("ping")
    scene.run(60.0)
    assert a.owned == tps("t", 0, 1) and b.owned == tps("t", 2, 3) and not scene.of(fx.Close)


def test_coord_08_who_was_between_two_streams_during_the_pause_has_a_lease_from_its_end() -> None:
    """Its registration may be among what waits to be read."""
    scene = Scene()
    a, b = scene.join("a", "b")
    a.lose_connection()
    scene.run(5.0)
    scene.now += 60.0
    scene.step(ev.Paused(60.0))
    scene.run(LEASE_S - 0.1)
    assert b.owned == tps("t", 2, 3)
    scene.run(0.2)
    assert b.owned == tps("t", 0, 1, 2, 3)


@pytest.mark.parametrize("hangs", [False, True])
def test_coord_08_short_pauses_again_and_again_give_the_dead_twice_their_time_and_no_more(hangs: bool) -> None:
    """As on a starved machine. It answers no ping, or its stream is gone."""
    scene = Scene()
    a, b = scene.join("a", "b")
    a.answers.clear()
    if not hangs:
        a.lose_connection()
    began_at, pauses = scene.now, 0
    while len(b.owned) < 4 and pauses < 10:
        scene.run(2.0, lambda: len(b.owned) == 4)
        scene.now += 0.6
        scene.step(ev.Paused(0.6))
        pauses += 1
    assert b.owned == tps("t", 0, 1, 2, 3) and not b.closed
    assert scene.now - began_at <= LEASE_S + 2 * 0.6 * pauses + 0.5


@requirement("The coordinator tracks the health of every member")
@pytest.mark.parametrize("runs_s", [0.6, 0.2])
def test_the_dead_are_noticed_although_time_stands_still(runs_s: float) -> None:
    """Time in which it stands still does not count, and all other time does."""
    scene = Scene()
    a, b = scene.join("a", "b")
    a.lose_connection()
    ran = 0.0
    while len(b.owned) < 4 and ran < 3 * LEASE_S:
        scene.run(runs_s, lambda: len(b.owned) == 4)
        ran += runs_s
        scene.now += 0.6
        scene.step(ev.Paused(0.6))
    assert b.owned == tps("t", 0, 1, 2, 3) and not b.closed
    assert ran <= LEASE_S + 0.6 + 1.0


@pytest.mark.parametrize("speaks", [False, True])
def test_an_answer_that_came_in_a_pause_has_time_to_be_read(speaks: bool) -> None:
    """Also at the very end of a lease, and again once its member has spoken."""
    scene = Scene()
    a, b = scene.join("a", "b")
    for _ in range(2):
        a.answers.clear()
        scene.run(LEASE_S - 0.2)
        scene.now += 1.0
        scene.step(ev.Paused(1.0))
        scene.run(0.9)
        assert not a.closed and b.owned == tps("t", 2, 3)
        a.answers = {"ping", "stop", "start"}
        if speaks:
            a.answer_ping()
        else:
            break
    scene.run(0.3)
    assert (len(b.owned) == 2) is speaks


def test_coord_08_after_a_pause_the_pings_that_were_due_in_it_are_sent_at_once() -> None:
    """A consumer's lease lasts from what it said before the ping that was answered last: two thirds of a session may be left."""
    scene = Scene()
    (a,) = scene.join("a")
    scene.run(SESSION_S)
    asked = len(a.bodies(m.PingRequest))
    scene.run(SESSION_S, lambda: len(a.bodies(m.PingRequest)) > asked)
    scene.run(SESSION_S / 3 - 0.5)
    scene.now += 1.0
    scene.step(ev.Paused(1.0))
    assert len(a.bodies(m.PingRequest)) == asked + 2
    scene.run(0.5)
    scene.now += 1.0
    scene.step(ev.Paused(1.0))
    assert len(a.bodies(m.PingRequest)) == asked + 2, "none was due"
    scene.run(SESSION_S / 3 - 1.5 + 0.01)
    assert len(a.bodies(m.PingRequest)) == asked + 3, "a third after the one before, in spite of the pause"


def test_coord_08_a_stop_that_is_unanswered_gets_the_time_that_the_pause_took() -> None:
    scene = Scene()
    _a, b = scene.join("a", "b")
    b.answers.discard("stop")
    c = scene.consumer("c").register()
    scene.run(SESSION_S / 2)
    scene.now += 60.0
    scene.step(ev.Paused(60.0))
    assert not scene.expired("stop")
    b.answer_stop(b.bodies(m.StopFetcherRequest)[0])
    scene.run(1.0)
    assert c.owned and b.owned and not b.closed


def test_coord_08_without_the_notice_of_a_pause_everybody_would_be_dead() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    a.answers.clear()
    b.answers.clear()
    scene.run(SESSION_S / 2)
    scene.now += 60.0
    scene.step(ev.Woken())
    scene.run(1.0)
    assert a.closed or b.closed, "else the test above proves nothing"


# -- leaving ---------------------------------------------------------------------------------------------------------------


@requirement("Leaving a group is bounded by the session timeout")
@requirement("A consumer that leaves has stored its last offsets")
def test_a_leave_is_answered_when_the_last_offsets_are_stored() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    a.positions = dict.fromkeys(a.owned, 5)
    scene.holds_writes = True
    a.leave()
    assert not a.bodies(m.LeaveGroupResponse)
    assert scene.held[0].offsets == dict.fromkeys(tps("t", 0, 1), Committed(5)), "what the answer waits for"  # type: ignore[union-attr]
    scene.carry_out()
    assert a.bodies(m.LeaveGroupResponse) and a.closed
    assert scene.offsets["g"] == dict.fromkeys(tps("t", 0, 1), Committed(5))
    scene.holds_writes = False
    scene.carry_out()
    assert b.owned == tps("t", 0, 1, 2, 3) and {b.positions[tp] for tp in tps("t", 0, 1)} == {5}


@pytest.mark.parametrize("static", [False, True])
def test_an_answer_to_a_ping_that_crosses_a_leave_is_no_fault(static: bool) -> None:
    scene = Scene()
    (a,) = scene.join("a", static_member=static)
    scene.holds_writes = True
    a.leave()
    a.answer_ping()
    assert a.error is None and not a.bodies(m.LeaveGroupResponse)
    scene.carry_out()
    assert a.bodies(m.LeaveGroupResponse) and a.closed
    scene.holds_writes = False
    (again,) = scene.join("b")
    assert not again.closed


@requirement("A consumer that leaves has stored its last offsets")
def test_a_leave_moves_ownership_without_any_wait() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    left_at = scene.now
    a.leave()
    assert b.owned == tps("t", 0, 1, 2, 3) and scene.now == left_at


def test_offsets_in_a_leave_of_an_older_generation_do_not_count() -> None:
    scene = Scene()
    a, b = scene.join("a", "b")
    a.positions = dict.fromkeys(a.owned, 5)
    a.generation -= 1
    a.leave()
    assert not scene.offsets["g"] and len(b.owned) == 4


def test_a_leave_that_crosses_a_start_has_its_last_offsets_stored() -> None:
    scene = Scene()
    a, _b = scene.join("a", "b")
    a.positions = dict.fromkeys(a.owned, 5)
    a.answers.discard("start")
    a.reconnect()  # it gets a Start again, which is on its way when it leaves
    a.leave()
    assert scene.offsets["g"] == dict.fromkeys(tps("t", 0, 1), Committed(5))


@requirement("An empty group expires after its retention")
def test_an_empty_group_is_deleted_after_its_retention() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.positions = dict.fromkeys(a.owned, 5)
    a.leave()
    assert scene.state() == "Empty" and scene.heads["g"].empty_since_ms == scene.wall_ms
    scene.run(LIMITS.retention_s - 10)
    assert "g" in scene.heads
    scene.run(90.0)
    assert "g" not in scene.heads and not scene.machine.groups


@pytest.mark.parametrize("elsewhere", [False, True], ids=["set ahead", "of another broker"])
def test_a_group_is_seen_empty_before_a_clock_counts(elsewhere: bool) -> None:
    scene = Scene(replace(LIMITS, retention_s=7 * DAY_S))
    scene.join("a")[0].leave()
    if elsewhere:
        scene.run(DAY_S)
        scene = scene.failover()
    scene.wall_ms += 8 * DAY_S * 1000
    scene.run(HOUR_S - 60)
    assert "g" in scene.heads
    scene.run(180.0)
    assert "g" not in scene.heads


def test_open_05_a_group_that_is_joined_again_is_not_deleted() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.leave()
    scene.run(LIMITS.retention_s - 10)
    scene.join("b")
    scene.run(120.0)
    assert scene.heads["g"].empty_since_ms == -1


def test_deletion_needs_a_group_without_members() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    answer = scene.delete("g", "other", "g")
    assert [each.error_code for each in answer.results] == [E.NON_EMPTY_GROUP, E.GROUP_ID_NOT_FOUND]
    a.leave()
    assert [each.error_code for each in scene.delete("g").results] == [E.NONE]
    assert not scene.heads and scene.machine.describe("g").state == "Dead"


def test_coord_04_a_ping_is_not_older_than_what_a_consumer_heard_that_was_a_member_before() -> None:
    """It would not answer such a ping, and lose its place again before its rebalance has begun."""
    scene = Scene()
    a, b = scene.join("a", "b")
    a.lose_connection()
    scene.run(30.0, lambda: len(b.owned) == 4)
    generation = scene.heads["g"].generation
    a.heard.clear()
    a.answers.clear()
    scene.holds_writes = True
    a.reconnect()
    scene.run(9.0, lambda: bool(a.bodies(m.PingRequest)))
    assert a.bodies(m.PingRequest)[0].generation == generation > 1


def test_a_member_is_described_with_its_port_while_connected() -> None:
    scene = Scene()
    (a,) = scene.join("a", watch_port=9094)
    assert scene.machine.describe("g").members[0].watch_port == 9094
    a.lose_connection()
    assert scene.machine.describe("g").members[0].watch_port == 0
