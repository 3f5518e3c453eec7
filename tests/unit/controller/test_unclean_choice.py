"""An unclean election loses something; it takes the replica with the largest log, so that it loses least (KIP-966)."""

from collections.abc import Mapping
from dataclasses import replace

from tidelog.controller.effects import AskEnds, Effect, StateWrite
from tidelog.controller.events import ElectionRequested, ReplicaEnd, ReplicaEndsTold
from tidelog.controller.survey import largest
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId, TopicPartition
from tidelog.release import Release
from tidelog.wire import messages as m
from unit.controller.harness import Harness, broker, isr, state, stored_topic, writes

T0 = TopicPartition("t", 0)
UNCLEAN = {"unclean.leader.election.enable": "true"}
EMPTY = ReplicaEnd(-1, 0)
OLD = Release("0.2.0", level=2, oldest=2)


class Losing(Harness):
    """The ISR of t-0 was broker 1 alone, whose disk is empty now: all three are alive, and none leads."""

    def __init__(self, ends: Mapping[int, ReplicaEnd] | None, configs: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.ends = None if ends is None else dict(ends)
        stored = stored_topic("t", [(1, 2, 3)], [state(1, 4, isr(b1=11), 7)], configs)
        self.elected(stored, brokers=(broker(1, 21), broker(2, 12), broker(3, 13)))
        self.run()

    def elect(self, *candidates: int, validate_only: bool = False) -> tuple[int, list[Effect]]:
        topics = (m.TopicPartitions(topic="t", partitions=(0,)),)
        request = m.ElectLeadersRequest(
            unclean=True, topics=topics, timeout_ms=1000, candidates=candidates, validate_only=validate_only
        )
        return self._asked(lambda token: ElectionRequested(request, token))

    def result(self, token: int) -> m.ElectionResult:
        (found,) = self.replies[token].results
        assert isinstance(found, m.ElectionResult)
        return found

    def chosen(self) -> int:
        return self.partition()[0]


def test_an_empty_replica_does_not_lead_beside_a_full_one() -> None:
    c = Losing({1: EMPTY, 2: ReplicaEnd(4, 90), 3: ReplicaEnd(4, 100)})
    token, effects = c.elect()
    assert {each.broker_id for each in effects if isinstance(each, AskEnds)} == {1, 2, 3}
    assert [each.state.leader for each in writes(effects) if isinstance(each, StateWrite)] == [3]
    c.run()
    assert c.chosen() == 3
    assert c.result(token).leader == 3
    assert [(each.broker_id, each.last_epoch, each.end_offset) for each in c.result(token).ends] == [
        (1, -1, 0),
        (2, 4, 90),
        (3, 4, 100),
    ]


def test_the_largest_log_is_that_of_the_last_epoch() -> None:
    one, two, three = BrokerId(1), BrokerId(2), BrokerId(3)
    ends = {one: ReplicaEnd(3, 500), two: ReplicaEnd(4, 20), three: ReplicaEnd(4, 20)}
    assert largest((one, two, three), ends) == 2, "the first of equals"
    assert largest((one, two, three), {one: EMPTY}) == 1
    assert largest((two, three), {}) == 2, "nothing is known: the first, as before"
    assert largest((), ends) is None


def test_a_topic_that_consents_gets_the_same_choice() -> None:
    c = Losing({1: EMPTY, 2: ReplicaEnd(4, 90), 3: ReplicaEnd(4, 100)}, UNCLEAN)
    assert c.chosen() == 3 and c.partition()[1] == 5


def test_a_topic_that_consents_waits_for_the_last_answer() -> None:
    c = Losing(None, UNCLEAN)
    assert c.chosen() == 1, "nothing is decided"
    c.ends = {2: ReplicaEnd(4, 90)}
    c.tell_ends()
    c.run()
    assert c.chosen() == 2, "those that do not answer in time are unknown"


def test_a_replica_in_sync_that_returns_ends_the_question() -> None:
    c = Losing(None, UNCLEAN)
    c.died(1)
    assert c.chosen() == 1, "nothing is decided"
    c.came(broker(1, 31, intact_since=11))
    c.run()
    assert c.partition()[:3] == (1, 5, {1: 31}), "it has all that was acknowledged; no answer is waited for"


def test_a_single_live_replica_is_not_asked() -> None:
    c = Losing(None, UNCLEAN)
    c.asked.clear()
    c.died(1, 3)
    c.run()
    assert (c.chosen(), c.asked) == (2, [])


def test_an_operator_names_the_replica() -> None:
    c = Losing({1: EMPTY, 2: ReplicaEnd(4, 90), 3: ReplicaEnd(4, 100)})
    token, _ = c.elect(9)
    assert c.result(token).error_code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert c.result(token).error_message == "of brokers [9] none is alive with a replica that works"
    token, _ = c.elect(2)
    c.run()
    assert (c.chosen(), c.result(token).leader) == (2, 2)


def test_what_would_be_chosen_is_said_before() -> None:
    c = Losing({1: EMPTY, 2: ReplicaEnd(4, 90), 3: ReplicaEnd(4, 100)})
    token, effects = c.elect(validate_only=True)
    assert writes(effects) == [] and c.chosen() == -1
    assert (c.result(token).error_code, c.result(token).leader) == (ErrorCode.NONE, 3)
    c.ends = {1: EMPTY, 2: ReplicaEnd(4, 90), 3: ReplicaEnd(4, 70)}
    c.elect()
    c.run()
    assert c.chosen() == 2, "they are asked again"


def test_a_broker_that_dies_while_it_is_asked_is_not_waited_for() -> None:
    c = Losing(None)
    token, _ = c.elect()
    asked, c.asked = c.asked, []
    for each in asked[:2]:
        c.step(ReplicaEndsTold(each.broker_id, each.broker_epoch, each.partitions, {T0: ReplicaEnd(4, each.broker_id)}))
    assert token not in c.replies
    c.died(3)
    c.run()
    assert c.chosen() == 2 and c.result(token).error_code is ErrorCode.NONE


def test_a_broker_that_bounces_is_asked_in_its_new_life() -> None:
    c = Losing(None)
    token, _ = c.elect()
    late = [each for each in c.asked if each.broker_id == 3]
    c.asked = [each for each in c.asked if each.broker_id != 3]
    c.came(broker(3, 33))
    c.ends = {1: EMPTY, 2: ReplicaEnd(4, 90), 3: ReplicaEnd(4, 50)}
    for each in late:
        c.step(ReplicaEndsTold(each.broker_id, each.broker_epoch, each.partitions, {T0: ReplicaEnd(4, 100)}))
    c.tell_ends()
    c.run()
    assert c.chosen() == 2 and c.result(token).error_code is ErrorCode.NONE


def test_a_topic_that_is_deleted_meanwhile_answers_the_operator() -> None:
    c = Losing(None)
    token, _ = c.elect()
    c.delete("t")
    c.run()
    assert c.result(token).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    c.ends = {}
    assert c.tell_ends() == []


def test_beside_an_older_release_the_first_live_replica_leads() -> None:
    c = Losing({1: EMPTY, 2: ReplicaEnd(4, 90), 3: ReplicaEnd(4, 100)})
    c.came(replace(broker(3, 33), release=OLD))
    token, _ = c.elect(2)
    assert c.result(token).error_code is ErrorCode.UNSUPPORTED_VERSION
    token, effects = c.elect()
    assert not [each for each in effects if isinstance(each, AskEnds)]
    c.run()
    assert (c.chosen(), c.result(token).ends) == (1, ())
