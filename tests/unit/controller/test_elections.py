"""Preferred, unclean and released leaders in the machine (F-13, E14, HOLE-25, HOLE-26, HOLE-33, L18, L19, L27, row 7)."""

from collections.abc import Mapping

import pytest

from helpers.requirements import requirement
from tidelog.controller.effects import Effect, Send, StateWrite, Write
from tidelog.controller.events import (
    ControlledShutdownRequested,
    DescribeRequested,
    ElectionRequested,
    Tick,
)
from tidelog.controller.machine import ControllerMachine, MachineSettings
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.controller.harness import (
    Harness,
    broker,
    isr,
    metadata,
    parse_config,
    roles,
    state,
    stored_topic,
    want,
    writes,
)

B1, B2, B3 = broker(1, 11), broker(2, 12), broker(3, 13)
ALL = isr(b1=11, b2=12, b3=13)
UNCLEAN = {"unclean.leader.election.enable": "true"}
NONE, NOT_NEEDED = ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED


class Electing(Harness):
    def elect(
        self, *partitions: int, topic: str = "t", unclean: bool = False, everywhere: bool = False
    ) -> tuple[int, list[Effect]]:
        topics = () if everywhere else (m.TopicPartitions(topic=topic, partitions=partitions),)
        request = m.ElectLeadersRequest(unclean=unclean, topics=topics, timeout_ms=1000)
        return self._asked(lambda token: ElectionRequested(request, token))

    def release(self, *partitions: int, everywhere: bool = False) -> tuple[int, list[Effect]]:
        topics = () if everywhere else (m.TopicPartitions(topic="t", partitions=partitions),)
        request = m.ReleaseVetoRequest(topics=topics, timeout_ms=1000)
        return self._asked(lambda token: ElectionRequested(request, token))

    def results(self, token: int) -> list[tuple[int, ErrorCode]]:
        answer = self.replies[token]
        assert answer.error_code is NONE
        assert all((each.error_message == "") == (each.error_code is NONE) for each in answer.results)
        return [(each.partition, each.error_code) for each in answer.results]

    def described(self, index: int = 0) -> m.PartitionDescription:
        token, _ = self._asked(lambda t: DescribeRequested(m.DescribeTopicsRequest(names=("t",)), t))
        (topic,) = self.replies[token].topics
        found: m.PartitionDescription = topic.partitions[index]
        return found


def away() -> Electing:
    """Broker 2 leads t-0 and t-1; both prefer broker 1, which is in sync in t-0 alone."""
    c = Electing()
    states = [state(2, 4, ALL, 7), state(2, 4, isr(b2=12, b3=13), 7)]
    c.elected(stored_topic("t", [(1, 2, 3), (1, 2, 3)], states), brokers=(B1, B2, B3))
    return c


# preferred


@requirement("Partition i goes to broker i mod n")
def test_f13_1_the_preferred_replica_leads_after_the_write_and_the_isr_stays() -> None:
    c = away()
    token, effects = c.elect(0)
    (write,) = effects
    assert isinstance(write, Write) and (write.cause, write.elections, write.unclean) == ("preferred", 1, ())
    assert writes(effects) == [StateWrite(TopicPartition("t", 0), state(1, 5, ALL, 8, controller_epoch=2))]
    assert token not in c.replies
    effects = c.write()
    assert c.results(token) == [(0, NONE)]
    told = [("t-0", 1, 5, {1: 11, 2: 12, 3: 13})]
    assert roles(effects) == metadata(effects) == {1: told, 2: told, 3: told}


def test_f13_1_each_partition_has_its_own_answer() -> None:
    c = away()
    token, effects = c.elect(0, 1, 2, 0)
    assert len(writes(effects)) == 1
    c.run()
    assert c.results(token) == [
        (0, NONE),
        (1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, NOT_NEEDED),
    ]
    messages = [each.error_message for each in c.replies[token].results]
    assert messages == [
        "",
        "broker 1 is not alive, not in sync, suspected or shutting down",
        "topic 't' has no partition 2",
        "broker 1 leads and is the preferred leader",
    ]


@pytest.mark.parametrize(
    ("topic", "code"), [("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("no/pe", ErrorCode.INVALID_TOPIC_EXCEPTION)]
)
def test_an_unknown_topic_is_answered(topic: str, code: ErrorCode) -> None:
    c = away()
    token, effects = c.elect(0, topic=topic)
    assert c.results(token) == [(0, code)] and writes(effects) == []


def test_all_partitions_are_those_that_it_could_change() -> None:
    c = away()
    token, _ = c.elect(everywhere=True)
    c.run()
    assert c.results(token) == [(0, NONE), (1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    token, _ = c.elect(everywhere=True, unclean=True)
    assert c.results(token) == []
    token, _ = c.release(everywhere=True)
    assert c.results(token) == []


@requirement("A broker that is shutting down is not elected")
def test_a_preferred_replica_that_leaves_or_is_suspected_is_not_elected() -> None:
    c = away()
    request = m.ControlledShutdownRequest(broker_id=1, broker_epoch=11)
    c._asked(lambda token: ControlledShutdownRequested(request, token))
    token, _ = c.elect(0)  # its removal from the ISR is being written
    c.run()
    assert c.results(token) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    assert c.partition() == (2, 4, {2: 12, 3: 13}, 8)
    c = away()
    c.suspected(1)
    token, _ = c.elect(0)
    c.run()
    assert c.results(token) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


@requirement("A bounced broker is treated as a failure plus a startup")
def test_the_next_life_of_the_preferred_replica_is_not_in_that_isr() -> None:
    c = away()
    c.came(broker(1, 21))
    token, _ = c.elect(0)
    c.run()
    assert c.results(token) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


@requirement("A write of unknown outcome is read back before it is judged")
@pytest.mark.parametrize("applied", [True, False])
def test_an_election_of_unknown_outcome_is_looked_up_before_the_answer(applied: bool) -> None:
    c = away()
    token, _ = c.elect(0)
    c.write(unknown=applied, lost=not applied)
    assert token not in c.replies
    c.run()
    assert c.results(token) == [(0, NONE)] and c.partition()[:2] == (1, 5)


def test_a_wish_waits_for_the_write_that_is_in_flight_and_goes_with_its_topic() -> None:
    c = away()
    c.proposed(2, want(2, 4, isr(b1=11, b2=12), 7))
    token, effects = c.elect(0)
    assert writes(effects) == []
    c.write()
    held, c.in_flight = c.in_flight, []
    assert token not in c.replies and held
    c.delete("t")
    c.write()
    c.in_flight += held
    c.run()
    assert c.results(token) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


# automatic


def balanced(interval_s: float | None = 10.0, percentage: int = 10, moved: int = 1) -> Electing:
    """Broker 1 ought to lead ten partitions; `moved` of them are led by broker 2."""
    c = Electing()
    c.machine = ControllerMachine(MachineSettings(100, "c", 1, 3, 2, 10.0, parse_config, interval_s, percentage))
    states = [state(2 if index < moved else 1, 4, ALL, 7) for index in range(10)]
    c.elected(stored_topic("t", [(1, 2, 3)] * 10, states), brokers=(B1, B2, B3))
    return c


def ticks(c: Electing, *instants: float) -> list[StateWrite]:
    return [group for now in instants for group in writes(c.step(Tick(now))) if isinstance(group, StateWrite)]


@requirement("The ISR converges to all live replicas that have caught up")
@requirement("Leadership returns to a preferred replica that is in sync")
def test_leadership_moves_back_once_the_imbalance_is_over_the_limit() -> None:
    assert ticks(balanced(moved=1), 100.0, 200.0) == []  # 10 % are allowed
    c = balanced(moved=2)
    assert ticks(c, 100.0, 109.0) == []  # the first look is one interval after the election
    elected = ticks(c, 110.0)
    assert [(each.tp.partition, each.state.leader, each.state.leader_epoch) for each in elected] == [
        (0, 1, 5),
        (1, 1, 5),
    ]
    c.run()
    assert ticks(c, 111.0, 120.0, 130.0) == []


@requirement("The ISR converges to all live replicas that have caught up")
@requirement("Leadership returns to a preferred replica that is in sync")
def test_not_before_the_preferred_replica_is_in_sync() -> None:
    c = balanced(moved=2)
    c.came(broker(1, 21))
    c.run()
    assert ticks(c, 100.0, 110.0) == []
    c.proposed(2, want(2, 4, isr(b1=21, b2=12, b3=13), 8))
    c.run()
    assert [each.tp.partition for each in ticks(c, 120.0)] == [0]


@requirement("A broker that is shutting down is not elected")
def test_the_balance_does_not_elect_who_leaves() -> None:
    c = balanced(moved=2)
    request = m.ControlledShutdownRequest(broker_id=1, broker_epoch=11)
    c._asked(lambda token: ControlledShutdownRequested(request, token))
    c.run()
    assert ticks(c, 100.0, 110.0, 120.0) == []


def test_the_balance_can_be_switched_off_and_made_strict() -> None:
    assert ticks(balanced(interval_s=None, moved=10), 100.0, 1000.0) == []
    assert len(ticks(balanced(percentage=0, moved=1), 100.0, 110.0)) == 1


# unclean


def last_died(configs: Mapping[str, str] | None = None) -> Electing:
    """The ISR of t-0 was broker 1 alone, which is dead; 2 and 3 are alive and behind. Nothing is written yet."""
    c = Electing()
    c.elected(stored_topic("t", [(1, 2, 3)], [state(1, 4, isr(b1=11), 7)], configs), brokers=(B1, B2, B3))
    c.died(1)
    return c


@requirement("An unclean election needs the consent of the topic")
@requirement("A partition with a dead ISR stays offline unless its topic consents")
def test_without_consent_the_partition_is_offline_with_its_isr_kept() -> None:
    c = last_died()
    c.run()
    assert c.partition() == (-1, 5, {1: 11}, 8)
    assert not c.described().vetoed  # nobody who could be let in is back


@requirement("ISR and catch-up replicas make up the assigned replicas")
@requirement("A power loss of the only ISR member leaves its partition offline")
@requirement("An unclean election needs the consent of the topic")
@requirement("A partition with a dead ISR stays offline unless its topic consents")
def test_with_the_topics_consent_the_first_live_replica_leads_at_once_and_it_is_counted() -> None:
    c = Electing()
    c.elected(stored_topic("t", [(1, 2, 3)], [state(1, 4, isr(b1=11), 7)], UNCLEAN), brokers=(B1, B2, B3))
    (write,) = [each for each in c.died(1) if isinstance(each, Write)]
    assert write.unclean == (TopicPartition("t", 0),) and write.elections == 1
    chosen = state(2, 5, isr(b2=12), 8, controller_epoch=2)
    (group,) = write.groups
    assert isinstance(group, StateWrite)
    assert group.state.recovering
    assert (group.state.leader, group.state.leader_epoch, group.state.isr) == (2, 5, chosen.isr)
    effects = c.write()
    sent = [e.request for e in effects if isinstance(e, Send) and isinstance(e.request, m.LeaderAndIsrRequest)]
    assert [each.recovering for request in sent for each in request.partition_states] == [True, True]
    assert c.described().recovering


@requirement("An unclean election needs the consent of the topic")
def test_a_clean_member_goes_before_an_unclean_one() -> None:
    c = Electing()
    c.elected(stored_topic("t", [(1, 2, 3)], [state(1, 4, isr(b1=11, b3=13), 7)], UNCLEAN), brokers=(B1, B2, B3))
    c.died(1)
    c.run()
    assert c.partition() == (3, 5, {3: 13}, 8) and not c.described().recovering


@requirement("An offline partition returns without loss with an ISR member")
def test_with_consent_but_nobody_alive_the_first_to_return_leads() -> None:
    c = Electing()
    c.elected(stored_topic("t", [(1, 2)], [state(1, 4, isr(b1=11), 7)], UNCLEAN), brokers=(B1, B3))
    c.died(1)
    c.run()
    assert c.partition() == (-1, 5, {1: 11}, 8)
    c.came(broker(2, 22))
    c.run()
    assert c.partition() == (2, 6, {2: 22}, 9) and c.described().recovering


@requirement("An offline partition returns without loss with an ISR member")
def test_without_consent_an_isr_member_that_lost_nothing_leads_on_return() -> None:
    c = last_died()
    c.run()
    c.came(broker(1, 21, intact_since=11))
    c.run()
    assert c.partition() == (1, 6, {1: 21}, 9) and not c.described().recovering


@requirement("INVALID_REQUEST rejects an inconsistent ISR proposal")
@requirement("An uncleanly elected leader reports back before its ISR grows")
def test_kip_704_the_isr_stands_still_until_the_leader_has_reported_back() -> None:
    c = last_died(UNCLEAN)
    c.run()
    token, effects = c.proposed(2, want(2, 5, isr(b2=12, b3=13), 8))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INVALID_REQUEST)] and writes(effects) == []
    # A report that names an old version is of an old state.
    token, _ = c.proposed(2, want(2, 5, isr(b2=12), 7))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INVALID_UPDATE_VERSION)]
    token, effects = c.proposed(2, want(2, 5, isr(b2=12), 8))
    assert writes(effects) == [StateWrite(TopicPartition("t", 0), state(2, 5, isr(b2=12), 9, controller_epoch=2))]
    c.run()
    assert c.isr_answers(token) == [("t", 0, NONE)] and not c.described().recovering
    token, _ = c.proposed(2, want(2, 5, isr(b2=12, b3=13), 9))
    c.run()
    assert c.isr_answers(token) == [("t", 0, NONE)]
    # The report repeated, its answer having been lost: success, and nothing is written (HOLE-17).
    token, effects = c.proposed(2, want(2, 5, isr(b2=12, b3=13), 8))
    assert c.isr_answers(token) == [("t", 0, NONE)] and writes(effects) == []


@requirement("An uncleanly elected leader reports back before its ISR grows")
def test_recovering_is_stored_and_outlives_the_controller() -> None:
    c = last_died()
    c.run()
    token, effects = c.elect(0, unclean=True)
    assert [each.unclean for each in effects if isinstance(each, Write)] == [(TopicPartition("t", 0),)]
    c.run()
    assert c.results(token) == [(0, NONE)] and c.described().recovering
    partition = c.machine.state.partition(TopicPartition("t", 0))
    assert partition is not None and partition.state is not None
    nxt = Electing()
    nxt.elected(stored_topic("t", [(1, 2, 3)], [partition.state]), brokers=(B2, B3), epoch=3)
    assert nxt.described().recovering
    # Its leader bounces before it has reported: whoever leads next recovers still.
    nxt.came(broker(2, 22, intact_since=12))
    nxt.run()
    assert nxt.partition() == (2, 7, {2: 22}, 10) and nxt.described().recovering


@requirement("An unclean election needs the consent of the topic")
def test_by_hand_it_needs_no_consent_of_the_topic() -> None:
    c = last_died()
    token, _ = c.elect(0, unclean=True)  # while the leader's removal is being written
    c.run()
    assert c.results(token) == [(0, NONE)] and c.partition() == (2, 6, {2: 12}, 9)
    token, effects = c.elect(0, unclean=True)
    assert c.results(token) == [(0, NOT_NEEDED)] and writes(effects) == []
    c.died(2, 3)
    c.run()
    token, effects = c.elect(everywhere=True, unclean=True)
    assert c.results(token) == [(0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)] and writes(effects) == []


# the veto


def vetoed() -> Electing:
    """Row 7: the ISR was broker 1 alone; it lost power and is back."""
    c = last_died()
    c.came(broker(1, 21, intact_since=21))
    c.run()
    return c


@requirement("A power loss of the only ISR member leaves its partition offline")
def test_mut_13_the_last_member_that_may_have_lost_records_is_held_back_and_shown() -> None:
    c = vetoed()
    assert c.partition()[:3] == (-1, 5, {1: 11})
    assert c.described().vetoed and c.machine.vetoed() == [TopicPartition("t", 0)]
    token, _ = c.elect(0)
    assert c.results(token) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


@requirement("A power loss of the only ISR member leaves its partition offline")
@pytest.mark.parametrize("everywhere", [True, False])
def test_an_operator_lets_it_lead(everywhere: bool) -> None:
    c = vetoed()
    token, effects = c.release(everywhere=True) if everywhere else c.release(0)
    (write,) = effects
    assert isinstance(write, Write) and (write.cause, write.unclean) == ("released", (TopicPartition("t", 0),))
    c.run()
    assert c.results(token) == [(0, NONE)]
    assert c.partition()[:3] == (1, 6, {1: 21})
    assert c.described().recovering and not c.described().vetoed and c.machine.vetoed() == []


def test_a_release_without_a_veto_is_not_needed() -> None:
    c = last_died()
    c.run()
    token, effects = c.release(0)
    assert c.results(token) == [(0, NOT_NEEDED)] and writes(effects) == []
    c.came(broker(1, 21, intact_since=11))
    c.run()
    token, effects = c.release(0)
    assert c.results(token) == [(0, NOT_NEEDED)] and writes(effects) == []
