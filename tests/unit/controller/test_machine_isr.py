"""AlterIsr (KIP-497, C3, F05.8): the checks in their order, answers after the write, one write a partition."""

import pytest

from helpers.requirements import requirement
from tidelog.controller.effects import StateWrite
from tidelog.controller.events import FailedReplica, StreamOpened, Tick
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from unit.controller.harness import Harness, broker, isr, metadata, roles, state, stored_topic, want, writes

B1, B2, B3, B4 = broker(1, 11), broker(2, 12), broker(3, 13), broker(4, 14)
ALL = isr(b1=11, b2=12, b3=13)
TWO = isr(b1=11, b2=12)


@pytest.fixture
def c() -> Harness:
    """Broker 1 leads t-0 and t-1 at leader epoch 4 with ISR {1, 2} at version 7."""
    harness = Harness()
    states = [state(1, 4, TWO, 7), state(1, 4, TWO, 7)]
    harness.elected(stored_topic("t", [(1, 2, 3), (1, 2, 3)], states), brokers=(B1, B2, B3, B4))
    return harness


@requirement("ISR and catch-up replicas make up the assigned replicas")
@requirement("The leader maintains the set of replicas that are caught up")
@requirement("AlterIsr is answered as a whole and for each partition")
@requirement("A leader changes the ISR only on the version that it was told")
@requirement("The controller publishes only stored and current states")
def test_conflict_12_the_answer_comes_after_the_write_and_leader_and_isr_follows(c: Harness) -> None:
    token, effects = c.proposed(1, want(1, 4, ALL, 7))
    assert writes(effects) == [StateWrite(TopicPartition("t", 0), state(1, 4, ALL, 8, controller_epoch=2))]
    assert token not in c.replies and roles(effects) == metadata(effects) == {}
    effects = c.write()
    in_force = m.LeaderAndIsr(leader=1, leader_epoch=4, isr=ALL, current_zk_version=8)
    result = m.AlterIsrPartitionResult(partition_id=0, leader_and_isr=in_force)
    assert c.replies[token] == m.AlterIsrResponse(topics=(m.AlterIsrTopicResult(topic="t", partitions=(result,)),))
    new = ("t-0", 1, 4, {1: 11, 2: 12, 3: 13})
    assert roles(effects) == {1: [new], 2: [new], 3: [new]}
    assert metadata(effects) == {1: [new], 2: [new], 3: [new], 4: [new]}


@requirement("AlterIsr is answered as a whole and for each partition")
@requirement("One AlterIsr carries the changes of many partitions")
def test_many_partitions_are_one_write_and_one_answer(c: Harness) -> None:
    token, effects = c.proposed(1, want(1, 4, ALL, 7), want(1, 4, isr(b1=11), 7, index=1))
    assert len(writes(effects)) == 2
    c.write()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE), ("t", 1, ErrorCode.NONE)]


@requirement("ISR and catch-up replicas make up the assigned replicas")
@requirement("The leader is in the ISR and the ISR is among the replicas")
@requirement("A leader paused beyond its session commits nothing when it wakes")
@requirement("A deposed leader that wakes up commits nothing")
@requirement("A broker with a replaced disk rejoins an ISR only after catch-up")
@requirement("A leader changes the ISR only on the version that it was told")
@requirement("FENCED_LEADER_EPOCH means that a newer leader exists")
@requirement("INVALID_REQUEST rejects an inconsistent ISR proposal")
@requirement("An ISR proposal on an outdated version is refused")
@requirement("AlterIsr reports a topic that is gone")
@requirement("A repeated AlterIsr succeeds once its ISR is in force")
@requirement("A controller that is behind answers NOT_CONTROLLER")
@requirement("AlterIsr names the broker epoch of every ISR member")
@requirement("The controller stores no ISR that lacks the leader")
@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        # HOLE-18: whoever is ahead of this controller must not be told that he is behind.
        (want(1, 5, ALL, 7), ErrorCode.NOT_CONTROLLER),
        (want(1, 4, ALL, 8), ErrorCode.NOT_CONTROLLER),
        (want(1, 4, TWO, 8), ErrorCode.NOT_CONTROLLER),
        (want(1, 3, ALL, 7), ErrorCode.FENCED_LEADER_EPOCH),
        (want(1, 3, TWO, 7), ErrorCode.FENCED_LEADER_EPOCH),
        # HOLE-17: the same set is success, also with an old version and in another order.
        (want(1, 4, TWO, 7), ErrorCode.NONE),
        (want(1, 4, isr(b2=12, b1=11), 3), ErrorCode.NONE),
        (want(1, 4, ALL, 6), ErrorCode.INVALID_UPDATE_VERSION),
        (want(1, 4, (), 6), ErrorCode.INVALID_UPDATE_VERSION),
        # HOLE-22 and the checks of the request's own sense.
        (want(1, 4, (), 7), ErrorCode.INVALID_REQUEST),
        (want(1, 4, isr(b2=12, b3=13), 7), ErrorCode.INVALID_REQUEST),
        (want(1, 4, isr(b1=11, b4=14), 7), ErrorCode.INVALID_REQUEST),
        (want(1, 4, (*TWO, *isr(b2=99)), 7), ErrorCode.INVALID_REQUEST),
        (want(2, 4, ALL, 7), ErrorCode.INVALID_REQUEST),
        # HOLE-21: the same broker in another life is not the one that was seen fetching.
        (want(1, 4, isr(b1=11, b2=12, b3=12), 7), ErrorCode.INELIGIBLE_REPLICA),
        (want(1, 4, isr(b1=11, b2=12, b3=14), 7), ErrorCode.INELIGIBLE_REPLICA),
        (want(1, 4, isr(b1=10, b2=12), 7), ErrorCode.INELIGIBLE_REPLICA),
        (want(1, 4, ALL, 7, index=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (want(1, 4, ALL, 7, index=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (want(1, 4, ALL, 7, index=2**31 - 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (want(1, 4, ALL, 7, topic="../x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (want(1, 4, isr(b1=11, b77=1), 7), ErrorCode.INVALID_REQUEST),
        (want(1, 4, (*isr(b1=11), *isr(b1=11)), 7), ErrorCode.INVALID_REQUEST),
        # A message that is missing reads as zeros.
        (("t", 0, m.LeaderAndIsr(leader=0, leader_epoch=0, current_zk_version=0)), ErrorCode.FENCED_LEADER_EPOCH),
        (want(1, 4, ALL, 7, topic="nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_f05_8_checks_in_order(c: Harness, wanted: tuple[str, int, m.LeaderAndIsr], code: ErrorCode) -> None:
    token, effects = c.proposed(1, wanted)
    assert writes(effects) == []
    assert [each[2] for each in c.isr_answers(token)] == [code]


@requirement("AlterIsr names the broker epoch of every ISR member")
def test_a_life_that_has_ended_is_refused_even_if_the_request_was_on_its_way(c: Harness) -> None:
    c.came(broker(3, 23))
    token, _ = c.proposed(1, want(1, 4, ALL, 7))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INELIGIBLE_REPLICA)]
    token, _ = c.proposed(1, want(1, 4, isr(b1=11, b2=12, b3=23), 7))
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


def suspected_for_a_while(c: Harness) -> None:
    """Broker 3 is refused as a member, and then in the same life it is none the worse for it."""
    c.suspected(3)
    c.run()
    token, _ = c.proposed(1, want(1, 4, ALL, 7), sequence=5)
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INELIGIBLE_REPLICA)]
    c.step(StreamOpened(BrokerId(3), 13, 20.0))
    c.step(Tick(40.0))
    assert c.machine.suspects == frozenset()


@requirement("Repeated or reordered control messages break no invariant")
@requirement("An unfit sender or receiver fails AlterIsr as a whole")
@requirement("An ISR change of unknown outcome stays pending")
@pytest.mark.parametrize("sequence", [4, 5], ids=["an earlier one", "the same one twice"])
def test_what_was_refused_once_is_not_granted_by_a_late_copy_of_the_request(c: Harness, sequence: int) -> None:
    """Its leader has taken the proposal back, and no version has been written that would refuse the copy."""
    suspected_for_a_while(c)
    late, effects = c.proposed(1, want(1, 4, ALL, 7), sequence=sequence)
    assert writes(effects) == []
    assert c.replies[late] == m.AlterIsrResponse(error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    # Numbers are of one life of one broker: another life begins with any, and so does another broker.
    c.came(broker(1, 21))
    c.run()
    assert c.partition()[:2] == (2, 5)
    for asker, wanted in ((1, want(1, 5, isr(b1=21), 8)), (2, want(2, 5, isr(b2=12, b3=13), 8))):
        token, _ = c.proposed(asker, wanted, sequence=1)
        c.run()
        assert c.replies[token].error_code is ErrorCode.NONE
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


def test_a_leader_that_asks_again_after_a_suspicion_is_granted(c: Harness) -> None:
    suspected_for_a_while(c)
    token, _ = c.proposed(1, want(1, 4, ALL, 7), sequence=6)
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


@requirement("An unfit sender or receiver fails AlterIsr as a whole")
@requirement("An ISR change of unknown outcome stays pending")
@pytest.mark.parametrize(
    ("term", "code"), [(1, ErrorCode.STALE_CONTROLLER_EPOCH), (3, ErrorCode.NOT_CONTROLLER)], ids=["older", "newer"]
)
def test_a_new_controller_hears_no_request_that_was_sent_to_another(c: Harness, term: int, code: ErrorCode) -> None:
    """It knows no number yet; whoever names its term has sent the request to no other."""
    assert c.machine.controller_epoch == 2
    token, effects = c.proposed(1, want(1, 4, ALL, 7), controller_epoch=term, sequence=2**40)
    assert writes(effects) == [] and c.replies[token] == m.AlterIsrResponse(error_code=code)
    # Nor has the number counted.
    token, _ = c.proposed(1, want(1, 4, ALL, 7), sequence=1)
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


@requirement("A flipped bit is never served or replicated")
def test_a_new_controller_admits_nobody_who_has_not_told_it_what_failed_there() -> None:
    """The one before it may have known that this copy is being thrown away and fetched again."""
    c = Harness()
    c.pongs = False
    c.elected(stored_topic("t", [(1, 2, 3)], [state(1, 4, TWO, 7)]), brokers=(B1, B2, B3))
    failed = FailedReplica(TopicPartition("t", 0), b"id-of-t")

    def expand() -> ErrorCode:
        token, _ = c.proposed(1, want(1, 4, ALL, 7))
        c.run()
        ((_, _, code),) = c.isr_answers(token)
        return code

    assert expand() is ErrorCode.INELIGIBLE_REPLICA
    c.pong(broker(3, 12))  # a late word of another life
    assert expand() is ErrorCode.INELIGIBLE_REPLICA
    c.pong(B3, failed)
    assert expand() is ErrorCode.INELIGIBLE_REPLICA
    c.pong(B3)
    assert expand() is ErrorCode.NONE
    # Nobody has to be heard to stay, nor to leave.
    token, _ = c.proposed(1, want(1, 4, isr(b1=11, b3=13), 8))
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


@requirement("The controller rejects an ISR change that adds an offline broker")
@requirement("A follower that the controller sees as dead stays out of the ISR")
def test_a_dead_member_is_refused(c: Harness) -> None:
    c.died(3)
    token, _ = c.proposed(1, want(1, 4, ALL, 7))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INELIGIBLE_REPLICA)]


@requirement("INVALID_REQUEST rejects an inconsistent ISR proposal")
def test_an_asker_that_does_not_lead_is_refused(c: Harness) -> None:
    token, _ = c.proposed(2, want(1, 4, ALL, 7))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INVALID_REQUEST)]


@requirement("AlterIsr is answered as a whole and for each partition")
@requirement("An unfit sender or receiver fails AlterIsr as a whole")
@pytest.mark.parametrize("asker_epoch", [10, 12])
def test_another_life_of_the_asker_is_refused_at_the_top(c: Harness, asker_epoch: int) -> None:
    token, _ = c.proposed(1, want(1, 4, ALL, 7), broker_epoch=asker_epoch)
    assert c.replies[token] == m.AlterIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)


@requirement("An unfit sender or receiver fails AlterIsr as a whole")
def test_an_unregistered_asker_is_refused_at_the_top(c: Harness) -> None:
    token, _ = c.proposed(9, want(9, 4, ALL, 7), broker_epoch=11)
    assert c.replies[token] == m.AlterIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)


@requirement("A topic id separates topics that share a name")
def test_a_topic_of_the_same_name_is_another_one(c: Harness) -> None:
    token, _ = c.proposed(1, want(1, 4, ALL, 7), topic_id=b"somebody-else")
    assert c.isr_answers(token) == [("t", 0, ErrorCode.UNKNOWN_TOPIC_ID)]
    token, _ = c.proposed(1, want(1, 4, TWO, 7), topic_id=b"id-of-t")
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


def test_an_empty_request_is_answered(c: Harness) -> None:
    token, _ = c.proposed(1)
    assert c.replies[token] == m.AlterIsrResponse()


@requirement("An ISR proposal on an outdated version is refused")
@requirement("A partition has one pending ISR change, and it is resolved")
@requirement("An AlterIsr that meets a controller change waits for its result")
def test_a_proposal_that_meets_a_write_in_flight_is_judged_after_it(c: Harness) -> None:
    c.died(2)  # the controller shrinks to {1}, version 8
    token, effects = c.proposed(1, want(1, 4, isr(b1=11, b3=13), 7))
    assert token not in c.replies and writes(effects) == []
    effects = c.write()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INVALID_UPDATE_VERSION)]
    assert ("t-0", 1, 4, {1: 11}) in roles(effects)[1], "its leader is told what is in force"


@requirement("A leader paused beyond its session commits nothing when it wakes")
@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("A leader changes the ISR only on the version that it was told")
@requirement("A deposed leader writes no ISR")
@requirement("An AlterIsr that meets a controller change waits for its result")
def test_an_election_in_flight_fences_the_old_leaders_proposal(c: Harness) -> None:
    c.suspected(1)
    token, _ = c.proposed(1, want(1, 4, isr(b1=11), 7))
    c.write()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.FENCED_LEADER_EPOCH)]


def test_a_death_that_meets_an_expansion_in_flight_is_dealt_with_after_it(c: Harness) -> None:
    token, _ = c.proposed(1, want(1, 4, ALL, 7))
    assert [write.tp.partition for write in writes(c.died(2)) if isinstance(write, StateWrite)] == [1]
    c.run()
    # The expansion is applied, and at once broker 2 leaves; LeaderAndIsr has told its leader both.
    assert c.partition() == (1, 4, {1: 11, 3: 13}, 9)
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INVALID_UPDATE_VERSION)]


@requirement("Repeated or reordered control messages break no invariant")
@requirement("A repeated AlterIsr succeeds once its ISR is in force")
def test_a_repeated_request_is_success_once_the_first_is_written(c: Harness) -> None:
    first, _ = c.proposed(1, want(1, 4, ALL, 7))
    second, effects = c.proposed(1, want(1, 4, ALL, 7))
    assert writes(effects) == []
    assert c.isr_answers(first) == [("t", 0, ErrorCode.REQUEST_TIMED_OUT)]  # its leader has given up on it
    c.write()
    assert c.isr_answers(second) == [("t", 0, ErrorCode.NONE)]
    third, _ = c.proposed(1, want(1, 4, ALL, 7))
    assert c.isr_answers(third) == [("t", 0, ErrorCode.NONE)]


def test_one_partition_ten_thousand_times_gets_as_many_answers(c: Harness) -> None:
    token, effects = c.proposed(1, *[want(1, 4, TWO, 7)] * 10_000)
    assert writes(effects) == []
    assert [each[2] for each in c.isr_answers(token)] == [ErrorCode.NONE] * 10_000


def test_one_partition_twice_in_a_request_gets_two_answers(c: Harness) -> None:
    token, _ = c.proposed(1, want(1, 4, ALL, 7), want(1, 4, ALL, 7))
    c.write()
    assert [each[2] for each in c.isr_answers(token)] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]


@requirement("A write of unknown outcome is read back before it is judged")
def test_an_expansion_of_unknown_outcome_is_answered_by_what_is_stored(c: Harness) -> None:
    token, _ = c.proposed(1, want(1, 4, ALL, 7))
    c.write(unknown=True)
    assert token not in c.replies
    c.examine()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


@requirement("A write of unknown outcome is read back before it is judged")
def test_an_expansion_that_was_lost_is_written_again(c: Harness) -> None:
    token, _ = c.proposed(1, want(1, 4, ALL, 7))
    c.write(lost=True)
    assert len(writes(c.examine())) == 1
    c.write()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]
    assert c.partition() == (1, 4, {1: 11, 2: 12, 3: 13}, 8)


def test_a_suspected_leader_may_gain_the_follower_that_could_replace_it(c: Harness) -> None:
    c.proposed(1, want(1, 4, isr(b1=11), 7))
    c.run()
    c.suspected(1)
    token, _ = c.proposed(1, want(1, 4, TWO, 8))
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.FENCED_LEADER_EPOCH)]
    assert c.partition() == (2, 5, {2: 12}, 10)  # and at once the follower leads
