"""A member of a group as a pure state machine: order, leases, stops and starts, whatever comes late, twice or never."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.client.member_events import (
    Assign,
    Broke,
    Close,
    CommitFenced,
    Effect,
    Event,
    Fail,
    Leave,
    Left,
    Lose,
    Member,
    Opened,
    OutOfRange,
    Received,
    Released,
    Revoke,
    Send,
    Tick,
    Wait,
)
from tidelog.client.membership import FATAL, Membership, Standing
from tidelog.client.records import ConsumerRecord
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

S = 9.0
P = [TopicPartition("t", p) for p in range(4)]


class Scene:
    """One member, and everything that it did."""

    def __init__(self, **fields: Any) -> None:
        known = {
            "group_id": "g",
            "consumer_id": "c",
            "incarnation": 7,
            "topic_count": "{}",
            "session_timeout_ms": S * 1000,
        }
        self.membership = Membership(Member(**{**known, **fields}))
        self.now = 100.0
        self.effects: list[Effect] = []

    def give(self, event: Event, after_s: float = 0.0) -> list[Effect]:
        self.now += after_s
        effects = self.membership.step(event, self.now)
        self.effects += effects
        return effects

    def say(self, after_s: float = 0.0, last_number: int | None = None, **body: Any) -> list[Effect]:
        """The coordinator speaks; it has everything that was sent, unless it says otherwise."""
        number = self.sent[-1].number if last_number is None else last_number
        return self.give(Received(m.CoordinatorMessage(last_number=number, **body)), after_s)

    def register(self, epoch: int = 1, code: ErrorCode = ErrorCode.NONE, admission: int = 0) -> list[Effect]:
        self.give(Opened())
        return self.answer(epoch, code, admission=admission)

    def answer(self, epoch: int = 1, code: ErrorCode = ErrorCode.NONE, after_s: float = 0.0, **f: Any) -> list[Effect]:
        """To its registration."""
        answer = m.RegisterConsumerResponse(**{"error_code": code, "coordinator_epoch": epoch, "admission": 0} | f)
        return self.say(after_s, registered=answer)

    def start(
        self, generation: int, *offsets: tuple[int, int], epoch: int = 1, topic_id: bytes = b"", **options: Any
    ) -> list[Effect]:
        """Partition and offset of each that it is to own."""
        parts = tuple(
            m.AssignedPartition(topic="t", partition=p, offset=o, leader_epoch=0, topic_id=topic_id) for p, o in offsets
        )
        request = m.StartFetcherRequest(
            num_threads=1,
            ownership_info=(m.OwnershipInfo(consumer_thread_id="c-0", assigned_parts=parts),),
            coordinator_epoch=epoch,
            generation=generation,
        )
        return self.say(start=request, **options)

    def stop(self, generation: int, *revoked: int, epoch: int = 1, **options: Any) -> list[Effect]:
        names = tuple(m.PartitionName(topic="t", partition=p) for p in revoked)
        request = m.StopFetcherRequest(coordinator_epoch=epoch, generation=generation, revoked=names)
        return self.say(stop=request, **options)

    def ping(self, generation: int, epoch: int = 1, **options: Any) -> list[Effect]:
        return self.say(ping=m.PingRequest(num_retries=0, coordinator_epoch=epoch, generation=generation), **options)

    def process(self, partition: int, *offsets: int) -> None:
        self.hand_out(partition, *offsets)
        self.membership.progress.finish()

    def hand_out(self, partition: int, *offsets: int) -> None:
        self.membership.progress.hand_out(ConsumerRecord("t", partition, o, 0, 0, None, None, (), 5) for o in offsets)

    @property
    def sent(self) -> list[m.ConsumerMessage]:
        return [effect.message for effect in self.effects if isinstance(effect, Send)]

    @property
    def held(self) -> list[int]:
        return sorted(tp.partition for tp in self.membership.held)


def joined(*offsets: tuple[int, int], generation: int = 1, **fields: Any) -> Scene:
    scene = Scene(**fields)
    scene.register()
    scene.start(generation, *(offsets or ((0, 10), (1, 20))))
    return scene


def kinds(effects: Iterable[Effect]) -> list[type[Effect]]:
    return [type(effect) for effect in effects]


def answers(effects: Iterable[Effect]) -> list[Any]:
    """What was sent, without its envelope."""
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    return [each.register or each.ping or each.stopped or each.started or each.leave for each in messages]


def offsets_in(answer: Any) -> dict[int, int]:
    return {each.partition: each.offset for each in answer.offset_info}


# -- order ---------------------------------------------------------------------------------------------------------------------


def test_find_10_coord_04_mut_19_a_late_start_after_a_newer_stop_changes_nothing() -> None:
    scene = joined()
    (revoke, *_) = scene.stop(3)
    assert isinstance(revoke, Revoke)
    scene.give(Released(revoke.token))
    assert scene.start(2, (0, 10), (1, 20)) == []
    assert (scene.held, scene.membership.started) == ([], (1, 1))


def test_coord_04_the_order_is_by_coordinator_epoch_first_and_outlives_a_reconnect() -> None:
    scene = joined()
    scene.start(1, (0, 10), epoch=2)
    scene.give(Broke())
    assert kinds(scene.register(epoch=1)) == [Close], "that one does not know that its term is over"
    scene.register(epoch=2)
    for late in (scene.stop(9), scene.start(9, (3, 0)), scene.ping(9)):
        assert late == []
    assert scene.held == [0]
    assert scene.membership.counters.stale == 4


def test_coord_05_a_start_that_comes_twice_is_answered_twice_and_done_once() -> None:
    scene = joined()
    first = answers(scene.start(2, (0, 10), (1, 20)))
    again = scene.start(2, (0, 10), (1, 20))
    assert kinds(again) == [Send] and answers(again) == first


@requirement("StartFetcherResponse confirms a start")
@requirement("StopFetcherResponse has the fields of PingResponse")
@requirement("PingResponse carries offsets only with auto commit")
@requirement("A start request refreshes the broker list of a consumer")
def test_each_answer_names_its_consumer() -> None:
    scene = joined(consumer_id="mine")
    scene.ping(1)
    (revoke, *_) = scene.stop(2, 0)
    assert isinstance(revoke, Revoke)
    scene.give(Released(revoke.token))
    given = answers(scene.effects)
    assert {type(each).__name__ for each in given} == {
        *("RegisterConsumerRequest", "StartFetcherResponse", "PingResponse", "StopFetcherResponse")
    }
    assert {each.consumer_id for each in given} == {"mine"}


def test_a_stop_that_was_overtaken_by_its_start_is_dropped() -> None:
    scene = joined(generation=2)
    assert scene.stop(2) == []
    assert scene.held == [0, 1]


def test_a_start_keeps_the_position_of_what_is_held_and_drops_what_it_does_not_name() -> None:
    scene = joined()
    scene.process(1, 20, 21)
    (assign, _) = scene.start(2, (1, 5), (2, 7))
    assert isinstance(assign, Assign)
    assert [(p.partition, p.offset) for p in assign.anew] == [(2, 7)]
    assert assign.dropped == (P[0],)
    assert offsets_in(answers(scene.ping(2))[0]) == {1: 22}


# -- the lease -----------------------------------------------------------------------------------------------------------------


def test_the_lease_counts_from_the_sending_of_what_has_arrived_not_from_what_is_heard() -> None:
    scene = joined()
    registered_at = scene.now
    number = scene.sent[-1].number  # the answer to the Start, which was sent at the same time
    for _ in range(4):
        scene.ping(1, after_s=2.0, last_number=number)  # heard, but nothing of what it sends has arrived since
    assert scene.membership.may_fetch(registered_at + S - 0.01)
    assert not scene.membership.may_fetch(registered_at + S)
    lost = scene.ping(1, after_s=1.0, last_number=number)
    assert kinds(lost) == [Lose, Close] and scene.held == []


def test_a_lost_ping_costs_no_lease() -> None:
    scene = joined()
    for _ in range(10):
        scene.ping(1, after_s=S / 3)
        scene.ping(1, after_s=S / 3)
        scene.give(Tick(), S / 3 - 0.01)
        assert scene.membership.may_fetch(scene.now)


def test_a_message_of_an_older_coordinator_gives_no_lease() -> None:
    scene = joined()
    scene.start(1, (0, 10), epoch=2)
    until = scene.membership.lease.until
    scene.ping(1, after_s=1.0, epoch=1)
    assert scene.membership.lease.until == until


def test_what_was_lost_is_started_again_with_the_same_generation() -> None:
    """The coordinator may not have noticed that the lease was over."""
    scene = joined()
    assert Lose in kinds(scene.give(Tick(), S))
    scene.give(Broke())
    scene.register()
    (assign, _) = scene.start(1, (0, 12))
    assert isinstance(assign, Assign) and [p.offset for p in assign.anew] == [12]


@requirement("A consumer leaves a coordinator that is silent for a session")
@requirement("A consumer that lost its coordinator looks for the next one")
def test_a_coordinator_that_is_silent_for_a_session_is_left() -> None:
    scene = Scene()
    scene.register()
    assert scene.membership.next_at(scene.now) == scene.now + S
    assert scene.give(Tick(), S - 0.01) == []
    assert kinds(scene.give(Tick(), 0.01)) == [Close]
    scene.give(Broke())
    assert scene.membership.wants_stream, "it begins anew"


@requirement("A consumer leaves a coordinator that is silent for a session")
@pytest.mark.parametrize("said", ["ping", "stop"])
def test_a_coordinator_that_asks_for_something_is_not_silent(said: str) -> None:
    scene = Scene()
    scene.register()
    (scene.ping if said == "ping" else scene.stop)(1, after_s=S - 0.01)
    assert scene.give(Tick(), S - 0.01) == []
    assert kinds(scene.give(Tick(), 0.01)) == [Close]


@requirement("A consumer leaves a coordinator that is silent for a session")
def test_a_member_that_hears_nothing_does_not_fetch() -> None:
    scene = joined()
    scene.ping(1, after_s=1.0)
    assert kinds(scene.give(Tick(), S)) == [Lose, Close]
    assert not scene.membership.may_fetch(scene.now)


@requirement("A consumer registers with its coordinator and awaits the answer")
def test_a_coordinator_that_does_not_answer_a_registration_is_left_while_the_lease_lasts() -> None:
    scene = joined()
    scene.give(Broke(), 1.0)
    scene.give(Opened())
    assert kinds(scene.give(Tick(), S / 3)) == [Close]
    assert scene.membership.may_fetch(scene.now) and scene.membership.standing is Standing.RECONNECTING


# -- stop ----------------------------------------------------------------------------------------------------------------------


def test_find_10_mut_18_a_stop_states_what_was_processed_not_what_was_handed_out() -> None:
    scene = joined()
    scene.process(0, 10, 11)
    scene.hand_out(0, 12, 13)
    (revoke,) = scene.stop(2)
    assert isinstance(revoke, Revoke)
    assert offsets_in(answers(scene.give(Released(revoke.token)))[0]) == {0: 12}


@requirement("StopFetcherResponse has the fields of PingResponse")
def test_find_10_an_answer_to_stop_names_the_generation_that_its_offsets_are_of() -> None:
    scene = joined(generation=4)
    scene.process(0, 10)
    (revoke,) = scene.stop(6, 0)
    assert isinstance(revoke, Revoke) and revoke.partitions == (P[0],)
    (stopped,) = answers(scene.give(Released(revoke.token)))
    assert (stopped.generation, stopped.started_generation, offsets_in(stopped)) == (6, 4, {0: 11})
    assert scene.held == [1]


def test_find_10_a_member_that_has_not_started_states_no_offset() -> None:
    scene = Scene()
    scene.register()
    (stopped,) = answers(scene.stop(2))
    assert (stopped.started_generation, stopped.offset_info) == (0, ())


@requirement("StopFetcherRequest names the consumer that is to stop")
def test_a_stop_that_comes_twice_is_answered_with_the_same_offsets() -> None:
    scene = joined()
    scene.process(0, 10)
    (revoke,) = scene.stop(2)
    assert scene.stop(2) == [], "it waits for the application"
    assert isinstance(revoke, Revoke)
    first = answers(scene.give(Released(revoke.token)))
    assert answers(scene.stop(2)) == first
    assert scene.membership.counters.stops == 1


@requirement("A member answers each request within two thirds of its session")
@requirement("StopFetcherResponse has the fields of PingResponse")
def test_open_02_who_is_not_done_within_a_third_of_the_session_says_so_first() -> None:
    scene = joined()
    (revoke,) = scene.stop(2, 1)
    scene.ping(2, after_s=S / 3 - 0.01)
    (finishing,) = answers(scene.give(Tick(), 0.01))
    assert finishing.finishing and not finishing.offset_info
    scene.ping(2, after_s=S / 3)
    assert answers(scene.give(Tick())) == [], "once"
    assert isinstance(revoke, Revoke)
    (stopped,) = answers(scene.give(Released(revoke.token)))
    assert not stopped.finishing


def test_a_newer_stop_takes_over_what_an_older_one_waits_for() -> None:
    scene = joined((0, 10), (1, 20), (2, 30))
    (one,) = scene.stop(2, 0)
    (two,) = scene.stop(3, 0, 1)
    assert isinstance(one, Revoke) and isinstance(two, Revoke) and two.partitions == (P[1],)
    assert scene.give(Released(one.token)) == []
    (stopped,) = answers(scene.give(Released(two.token)))
    assert stopped.generation == 3


def test_what_a_start_gave_back_is_not_released_by_the_stop_before_it() -> None:
    scene = joined()
    (old,) = scene.stop(2)
    scene.start(3, (0, 10))
    (new,) = scene.stop(4)
    assert isinstance(old, Revoke) and isinstance(new, Revoke)
    assert scene.give(Released(old.token)) == []
    assert len(answers(scene.give(Released(new.token)))) == 1


# -- reports -------------------------------------------------------------------------------------------------------------------


@requirement("PingResponse carries offsets only with auto commit")
@requirement("A ping answer reports offsets until they have arrived")
def test_a_ping_reports_what_is_new_until_it_is_known_to_have_arrived() -> None:
    scene = joined()
    scene.process(0, 10)
    before = scene.sent[-1].number
    assert offsets_in(answers(scene.ping(1))[0]) == {0: 11}
    assert offsets_in(answers(scene.ping(1, last_number=before))[0]) == {0: 11}, "not there yet"
    assert offsets_in(answers(scene.ping(1))[0]) == {}
    scene.process(0, 11)
    assert offsets_in(answers(scene.ping(1))[0]) == {0: 12}


@requirement("Topic, partition and offset form one value")
@requirement("A reported offset names topic, partition and offset")
def test_a_reported_offset_names_its_partition_and_leader_epoch() -> None:
    scene = joined()
    scene.process(1, 20)
    (ping,) = answers(scene.ping(1))
    assert ping.offset_info == (m.OffsetInfo(topic="t", partition=1, offset=21, leader_epoch=5),)


def test_what_was_reported_on_a_stream_that_broke_is_reported_again() -> None:
    """A later message that has arrived says nothing of an earlier one on another stream."""
    scene = joined()
    scene.process(0, 10)
    scene.ping(1)
    scene.give(Broke())
    scene.register()
    assert offsets_in(answers(scene.ping(1))[0]) == {0: 11}


def test_what_a_start_has_crossed_is_reported_again_in_the_generation_that_it_began() -> None:
    """The coordinator refuses offsets of the generation before; that the message has arrived says nothing of them."""
    scene = joined()
    scene.process(0, 10)
    scene.ping(1)
    heard = scene.sent[-1].number
    scene.process(1, 20)
    assert offsets_in(answers(scene.ping(1))[0]) == {1: 21}
    scene.start(2, (0, 10), (1, 20), last_number=heard)
    assert offsets_in(answers(scene.ping(2))[0]) == {1: 21}, "and not what had arrived before the Start was sent"
    assert offsets_in(answers(scene.ping(2))[0]) == {}


def test_the_next_coordinator_hears_again_what_the_one_before_may_not_have_stored() -> None:
    """It stores reports once in its interval, and what it had heard until it died is gone with it."""
    scene = joined()
    scene.process(0, 10)
    scene.ping(1)
    assert offsets_in(answers(scene.ping(1))[0]) == {}
    scene.give(Broke())
    scene.register(epoch=2)
    scene.start(1, (0, 10), (1, 20), epoch=2)
    assert offsets_in(answers(scene.ping(1, epoch=2))[0]) == {0: 11}
    assert offsets_in(answers(scene.ping(1, epoch=2))[0]) == {}


@requirement("Leaving a group is bounded by the session timeout")
def test_who_leaves_between_two_coordinators_names_what_only_the_first_has_heard() -> None:
    scene = joined()
    scene.process(0, 10)
    scene.ping(1)
    scene.ping(1)
    scene.give(Broke())
    scene.give(Leave("bye"))
    scene.register(epoch=2)
    (leave,) = answers(scene.start(1, (0, 10), (1, 20), epoch=2))
    assert offsets_in(leave) == {0: 11}


@requirement("A member fetches what it owns and may commit its offsets")
@requirement("A consumer that leaves has stored its last offsets")
@requirement("StopFetcherResponse has the fields of PingResponse")
@requirement("PingResponse carries offsets only with auto commit")
@requirement("A ping answer reports offsets until they have arrived")
def test_without_auto_commit_nothing_is_reported() -> None:
    scene = joined(auto_commit=False)
    scene.process(0, 10)
    assert answers(scene.ping(1))[0].offset_info == ()
    (revoke,) = scene.stop(2)
    assert isinstance(revoke, Revoke)
    assert answers(scene.give(Released(revoke.token)))[0].offset_info == ()
    assert answers(scene.give(Leave("bye")))[0].offset_info == ()


def test_find_10_a_ping_of_another_generation_than_the_started_one_gets_no_offsets() -> None:
    scene = joined()
    scene.process(1, 20)
    scene.stop(2, 0)
    assert answers(scene.ping(2))[0].offset_info == ()


def test_numbers_grow_over_streams_and_commits() -> None:
    scene = joined()
    scene.ping(1)
    commit = scene.membership.commit_request((), scene.now)
    scene.give(Broke())
    scene.register()
    numbers = [message.number for message in scene.sent]
    assert commit.number not in numbers
    assert sorted([*numbers, commit.number]) == list(range(1, len(numbers) + 2))
    assert numbers[-1] > commit.number > numbers[-2]


# -- the end -------------------------------------------------------------------------------------------------------------------


def test_leaving_names_the_last_offsets_and_ends_when_they_are_stored() -> None:
    scene = joined()
    scene.process(0, 10)
    scene.hand_out(1, 20)
    (lose, _) = effects = scene.give(Leave("bye"))
    assert isinstance(lose, Lose)
    (leave,) = answers(effects)
    assert (offsets_in(leave), leave.generation) == ({0: 11}, 1)
    assert not scene.membership.may_fetch(scene.now)
    assert scene.say(left=m.LeaveGroupResponse()) == [Close(), Left(stored=True)]
    assert scene.membership.standing is Standing.LEFT


@requirement("Leaving a group is bounded by the session timeout")
def test_leaving_is_bounded_by_the_lease() -> None:
    scene = joined()
    scene.give(Leave("bye"), 1.0)
    at = scene.membership.next_at(scene.now)
    assert at is not None and at <= scene.now + S
    assert Left(stored=False) in scene.give(Tick(), at - scene.now)


@requirement("Leaving a group is bounded by the session timeout")
def test_leaving_is_bounded_by_a_session_for_a_member_that_owns_nothing() -> None:
    scene = Scene()
    scene.register()
    scene.ping(0, after_s=1.0)
    assert kinds(scene.give(Leave("bye"), 1.0)) == [Send]
    assert Left(stored=False) not in scene.give(Tick(), S - 0.01)
    assert Left(stored=False) in scene.give(Tick(), 0.01)


def test_who_leaves_during_a_failover_says_it_to_the_next_coordinator_in_the_generation_that_counts_there() -> None:
    scene = joined()
    scene.process(0, 10)
    scene.give(Leave("bye"))
    scene.give(Broke())
    scene.register(epoch=2)
    (leave,) = answers(scene.start(1, (0, 10), (1, 20), epoch=2))
    assert (leave.coordinator_epoch, leave.generation, offsets_in(leave)) == (2, 1, {0: 11})


def test_a_leave_takes_back_nothing_of_another_member() -> None:
    scene = joined((0, 10), (1, 20), (2, 30))
    for partition, offset in ((0, 10), (1, 20), (2, 30)):
        scene.process(partition, offset)
    scene.give(Broke())
    scene.give(Leave("closed"))
    scene.register(epoch=2)
    (leave,) = answers(scene.start(2, (0, 15), (2, 31), epoch=2))
    assert (leave.generation, offsets_in(leave)) == (2, {2: 31}), "0 was another's, and 1 is"


def test_a_member_of_nothing_leaves_at_once() -> None:
    assert Scene().give(Leave("bye")) == [Left(stored=False)]


def test_an_application_that_does_not_poll_leaves() -> None:
    scene = joined(max_processing_ms=5000)
    scene.membership.working_since = scene.now
    assert scene.give(Tick(), 4.9) == []
    lose, send = scene.give(Tick(), 0.1)
    assert isinstance(lose, Lose) and isinstance(send, Send) and send.message.leave is not None


def test_a_member_that_has_failed_waits_for_no_time_that_has_passed() -> None:
    """Whoever keeps its time would ask it again and again without a pause."""
    scene = Scene(max_processing_ms=5000)
    scene.membership.working_since = scene.now
    scene.register(code=ErrorCode.INVALID_SESSION_TIMEOUT)
    assert scene.give(Tick(), 6.0) == []
    assert scene.membership.next_at(scene.now) is None


# -- errors --------------------------------------------------------------------------------------------------------------------


@requirement("A duplicate consumer id or too short a session gets an error code")
@requirement("Coordinator requests arrive on the stream of the consumer")
@requirement("A consumer closes its stream when it gets an error code")
@requirement("Every coordinator error has a code and a consumer reaction")
def test_every_refusal_closes_the_stream_and_is_fatal_fencing_or_only_the_wrong_broker() -> None:
    fencing = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
    for code in set(ErrorCode) - {ErrorCode.NONE, ErrorCode.DUPLICATE_CONSUMER_ID}:
        scene = joined()
        scene.give(Broke())
        effects = scene.register(epoch=1, code=code)
        if code in FATAL:
            assert kinds(effects) == [Close, Lose, Fail], code
            assert not scene.membership.wants_stream
        elif code in fencing:
            assert kinds(effects) == [Close, Lose] and scene.membership.wants_stream, code
        else:
            assert kinds(effects) == [Close] and scene.membership.may_fetch(scene.now), code


FINAL = [
    *(ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.INVALID_GROUP_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    *(ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION),
    *(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
]


@requirement("Every coordinator error has a code and a consumer reaction")
@pytest.mark.parametrize("code", FINAL)
def test_what_would_be_refused_again_is_not_asked_again(code: ErrorCode) -> None:
    scene = Scene()
    assert kinds(scene.register(code=code)) == [Close, Fail] and not scene.membership.wants_stream


@requirement("Every coordinator error has a code and a consumer reaction")
def test_who_was_forgotten_starts_with_generations_that_begin_anew() -> None:
    """Its group was deleted meanwhile; within one coordinator epoch, an old message cannot come over a new stream."""
    scene = joined(generation=17)
    scene.register(code=ErrorCode.UNKNOWN_MEMBER_ID)
    scene.give(Broke())
    scene.register()
    assert Assign in kinds(scene.start(1, (0, 0)))


def test_a_paused_member_learns_that_it_was_replaced() -> None:
    scene = joined(static=True)
    assert kinds(scene.answer(code=ErrorCode.DUPLICATE_CONSUMER_ID, after_s=S + 1)) == [Close, Lose, Fail]
    assert scene.membership.standing is Standing.FAILED and not scene.membership.wants_stream


@requirement("A duplicate consumer id or too short a session gets an error code")
@requirement("Every coordinator error has a code and a consumer reaction")
def test_a_name_that_is_taken_is_asked_for_until_it_is_free() -> None:
    scene = Scene()
    taken = {"code": ErrorCode.DUPLICATE_CONSUMER_ID, "error_message": "'c' belongs to a live member"}
    scene.give(Opened())
    (close, wait) = scene.answer(**taken)
    assert close == Close() and isinstance(wait, Wait) and str(wait.error).endswith("'c' belongs to a live member")
    scene.give(Broke())
    assert scene.membership.standing is Standing.JOINING and scene.membership.wants_stream
    scene.give(Opened())
    assert kinds(scene.answer(**taken)) == [Close], "its application is told once"
    scene.give(Broke())
    scene.register()
    scene.start(8, (0, 10))
    assert scene.held == [0]
    scene.give(Broke())
    scene.give(Opened())
    assert kinds(scene.answer(**taken)) == [Close, Lose, Wait], "what it held is another's, and it waits again"
    assert not scene.membership.may_fetch(scene.now) and scene.membership.wants_stream


@requirement("Every coordinator error has a code and a consumer reaction")
def test_a_name_that_a_newer_consumer_has_taken_over_is_final() -> None:
    on_its_stream, when_it_returns = joined(), Scene(static=True)
    assert kinds(on_its_stream.answer(code=ErrorCode.DUPLICATE_CONSUMER_ID)) == [Close, Lose, Fail]
    when_it_returns.register(admission=5)
    when_it_returns.give(Broke())
    assert kinds(when_it_returns.register(code=ErrorCode.DUPLICATE_CONSUMER_ID)) == [Close, Fail]


def test_a_refusal_that_comes_late_keeps_no_lease() -> None:
    scene = joined()
    assert kinds(scene.answer(code=ErrorCode.NOT_COORDINATOR, after_s=S + 1)) == [Close]
    assert not scene.membership.may_fetch(scene.now) and kinds(scene.give(Tick())) == [Lose]


@requirement("RegisterConsumerRequest says everything about a consumer")
def test_a_static_member_names_the_number_that_it_was_given() -> None:
    scene = Scene(static=True)
    for told, named in ((5, 0), (0, 5), (7, 5), (0, 7)):
        scene.register(admission=told)  # a coordinator of 0.2 gives none
        scene.give(Broke())
        registrations = [each.register.admission for each in scene.sent if each.register is not None]
        assert registrations[-1] == named


def test_coord_13_a_commit_that_was_refused_for_an_older_generation_says_nothing_of_this_one() -> None:
    scene = joined()
    scene.start(2, (0, 10), (1, 20))
    assert scene.give(CommitFenced((1, 1))) == []
    assert kinds(scene.give(CommitFenced((1, 2)))) == [Close, Lose]


@requirement("A fetch out of range restarts at the reset policy")
@requirement("RegisterConsumerRequest says everything about a consumer")
@requirement("An out of range offset makes a consumer force a rebalance")
def test_out_of_range_closes_stops_and_asks_for_a_rebalance() -> None:
    scene = joined()
    assert scene.give(OutOfRange(P[3])) == []
    assert kinds(scene.give(OutOfRange(P[0]))) == [Close, Lose]
    scene.give(Broke())
    scene.register()
    scene.give(Broke())
    assert answers(scene.give(Opened()))[0].rejoin, "until it was started"
    scene.answer()
    scene.start(2, (0, 10))
    scene.give(Broke())
    assert not answers(scene.give(Opened()))[0].rejoin


# -- any order -----------------------------------------------------------------------------------------------------------------

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["start", "stop", "ping"]),
        st.integers(1, 2),
        st.integers(1, 4),
        st.sets(st.integers(0, 3), max_size=3),
    ),
    max_size=25,
)


@requirement("StartFetcherResponse confirms a start")
@requirement("StopFetcherResponse has the fields of PingResponse")
@requirement("PingResponse carries offsets only with auto commit")
@settings(deadline=None, max_examples=300)
@given(MESSAGES)
def test_coord_04_05_whatever_comes_in_whatever_order_two_generations_are_never_mixed(messages: list[Any]) -> None:
    """Late, twice, overtaken: it holds only what the newest Start gave it, and what it states is of that generation."""
    scene = Scene()
    scene.register()
    newest = (0, 0)
    given_by: tuple[tuple[int, int], set[int]] = ((0, 0), set())
    for what, epoch, generation, partitions in messages:
        key = (epoch, generation)
        tokens = []
        if what == "start":
            effects = scene.start(generation, *((p, 100 * generation) for p in sorted(partitions)), epoch=epoch)
            if key >= newest and key != given_by[0]:
                given_by = (key, partitions)
        elif what == "stop":
            effects = scene.stop(generation, *partitions, epoch=epoch)
        else:
            effects = scene.ping(generation, epoch=epoch)
        tokens = [effect.token for effect in effects if isinstance(effect, Revoke)]
        assert not effects or key >= newest, "an old message does nothing"
        newest = max(newest, key)
        assert set(scene.held) <= given_by[1]
        for p in scene.held:
            scene.process(p, 100 * given_by[0][1] + len(scene.sent))
        for token in tokens:
            effects += scene.give(Released(token))
        for answer in answers(effects):
            assert (answer.coordinator_epoch, answer.generation) == key
            for each in getattr(answer, "offset_info", ()):
                assert each.offset // 100 == given_by[0][1] and each.partition in given_by[1]
            if isinstance(answer, m.StopFetcherResponse):
                assert answer.started_generation == given_by[0][1]


@requirement("A reported offset names topic, partition and offset")
@requirement("A topic id separates topics that share a name")
def test_a_start_of_another_topic_of_the_name_begins_anew() -> None:
    scene = Scene()
    scene.register()
    scene.start(1, (0, 10), topic_id=b"one")
    scene.process(0, 10, 11)
    (ping,) = answers(scene.ping(1))
    assert [(o.offset, o.topic_id) for o in ping.offset_info] == [(12, b"one")]
    scene.start(2, (0, 10), topic_id=b"")  # by a coordinator of 0.2.0
    scene.process(0, 12)
    assert [o.topic_id for o in answers(scene.ping(2))[0].offset_info] == [b"one"]
    assign, _ = scene.start(3, (0, 0), topic_id=b"two")
    assert isinstance(assign, Assign) and assign.dropped == (P[0],)
    assert [(p.offset, p.topic_id) for p in assign.anew] == [(0, b"two")] and scene.held == [0]
    assert answers(scene.ping(3))[0].offset_info == ()
    scene.process(0, 0)
    assert [(o.offset, o.topic_id) for o in answers(scene.ping(3))[0].offset_info] == [(1, b"two")]
    assign, _ = scene.start(4, (0, 1), topic_id=b"two")
    assert isinstance(assign, Assign) and (assign.dropped, assign.anew) == ((), ())
