"""Controlled shutdown in the machine: what is written, told and answered (F-12, HOLE-15, HOLE-20, HOLE-33, performance 4.7)."""

from collections.abc import Sequence

import pytest

from helpers.requirements import requirement
from tidelog.controller.effects import Effect, Send, StateWrite, Write
from tidelog.controller.events import ControlledShutdownRequested, DescribeRequested, Token
from tidelog.controller.model import Broker
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.controller.harness import (
    Harness,
    broker,
    isr,
    metadata,
    roles,
    state,
    stored_topic,
    want,
    writes,
)

B1, B2, B3 = broker(1, 11), broker(2, 12), broker(3, 13)
ALL = isr(b1=11, b2=12, b3=13)


class Leaving(Harness):
    def leave(self, broker_id: int, broker_epoch: int | None = None) -> tuple[int, list[Effect]]:
        epoch = self.brokers[broker_id].epoch if broker_epoch is None else broker_epoch
        request = m.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch)
        return self._asked(lambda token: ControlledShutdownRequested(request, token))

    def remaining(self, token: int) -> list[tuple[str, int]]:
        answer = self.replies[token]
        assert answer.error_code is ErrorCode.NONE
        return [(each.topic, each.partition) for each in answer.partitions_remaining]


@pytest.fixture
def c() -> Leaving:
    """Broker 1 leads t-0 and t-2, broker 2 leads t-1; everybody is in sync."""
    harness = Leaving()
    replicas = [(1, 2, 3), (2, 3, 1), (1, 3, 2)]
    states = [state(1, 4, ALL, 7), state(2, 0, ALL, 0), state(1, 2, ALL, 3)]
    harness.elected(stored_topic("t", replicas, states), brokers=(B1, B2, B3))
    return harness


def sends(effects: Sequence[Effect], kind: type) -> list[int]:
    return [each.broker_id for each in effects if isinstance(each, Send) and isinstance(each.request, kind)]


def live_told(effects: Sequence[Effect]) -> dict[int, list[int]]:
    """By broker: who is said to be shutting down."""
    return {
        each.broker_id: [b.broker_id for b in each.request.live_brokers if b.shutting_down]
        for each in effects
        if isinstance(each, Send) and isinstance(each.request, m.UpdateMetadataRequest)
    }


def test_f12_1_leaders_move_and_isrs_shrink_in_one_round_and_the_answer_comes_after_the_writes(c: Leaving) -> None:
    token, effects = c.leave(1)
    (write,) = [each for each in effects if isinstance(each, Write)]
    assert (write.cause, write.elections) == ("shutdown", 2)
    two, three = isr(b2=12, b3=13), isr(b2=12, b3=13)
    assert write.groups == (
        StateWrite(TopicPartition("t", 0), state(2, 5, two, 8, controller_epoch=2)),
        StateWrite(TopicPartition("t", 2), state(3, 3, two, 4, controller_epoch=2)),
        # A follower that leaves costs no leader epoch (F05.10), and nobody waits for it.
        StateWrite(TopicPartition("t", 1), state(2, 0, three, 1, controller_epoch=2)),
    )
    assert token not in c.replies and roles(effects) == {} and metadata(effects) == {}
    effects = c.write()
    assert c.remaining(token) == []
    told = [("t-0", 2, 5, {2: 12, 3: 13}), ("t-2", 3, 3, {2: 12, 3: 13}), ("t-1", 2, 0, {2: 12, 3: 13})]
    assert roles(effects) == metadata(effects) == {1: told, 2: told, 3: told}
    # Performance 4.7: one LeaderAndIsr and one UpdateMetadata for each broker, whatever the number of partitions.
    assert sends(effects, m.LeaderAndIsrRequest) == sends(effects, m.UpdateMetadataRequest) == [1, 2, 3]
    assert live_told(effects) == {1: [1], 2: [1], 3: [1]}


@requirement("A controlled shutdown moves leaders before the process exits")
def test_its_end_then_changes_nothing(c: Leaving) -> None:
    c.leave(1)
    c.run()
    assert writes(c.died(1)) == []
    assert [c.partition(index=i)[:2] for i in range(3)] == [(2, 5), (2, 0), (3, 3)]


@requirement("The controller rejects an ISR change that adds an offline broker")
@requirement("The ISR admits no broker that is dead or shutting down")
def test_who_leaves_is_not_let_back_in(c: Leaving) -> None:
    c.leave(1)
    c.run()
    token, effects = c.proposed(2, want(2, 5, ALL, 8))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INELIGIBLE_REPLICA)] and writes(effects) == []


@requirement("The ISR admits no broker that is dead or shutting down")
def test_a_leader_without_a_share_in_it_hears_of_it_at_once() -> None:
    c = Leaving()
    c.elected(stored_topic("t", [(2, 3, 1)], [state(2, 4, isr(b2=12, b3=13), 7)]), brokers=(B1, B2, B3))
    token, effects = c.leave(1)
    assert c.remaining(token) == [] and writes(effects) == []
    assert live_told(effects) == {1: [1], 2: [1], 3: [1]}


@requirement("A broker that is shutting down is not elected")
def test_who_leaves_is_not_elected_while_another_can_be(c: Leaving) -> None:
    c.leave(1)
    c.run()
    c.died(2)
    c.run()
    assert c.partition(index=0)[:3] == (3, 6, {3: 13})
    # A new topic prefers those that stay.
    placed = (m.PartitionAssignment(partition=0, replicas=(1, 3)),)
    c.create(m.NewTopic(name="new", num_partitions=-1, replication_factor=-1, assignments=placed))
    c.run()
    assert c.partition("new")[:3] == (3, 0, {3: 13})


def test_f12_1_what_nobody_in_sync_can_take_remains_until_somebody_is() -> None:
    c = Leaving()
    c.elected(
        stored_topic("t", [(1, 2, 3), (1, 2, 3)], [state(1, 4, isr(b1=11), 7), state(1, 4, ALL, 7)]),
        brokers=(B1, B2, B3),
    )
    token, _ = c.leave(1)
    c.run()
    assert c.remaining(token) == [("t", 0)]
    # Broker 2 comes into sync: the leader that leaves may let it in, and it takes over without being asked again.
    token, _ = c.proposed(1, want(1, 4, isr(b1=11, b2=12), 7))
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.FENCED_LEADER_EPOCH)]  # it leads no more
    assert c.partition(index=0) == (2, 5, {2: 12}, 9)
    token, effects = c.leave(1)
    assert c.remaining(token) == [] and writes(effects) == []


@pytest.mark.parametrize(
    ("replicas", "alive", "why"),
    [
        ((1,), (B1, B2, B3), "it has a single replica"),
        ((1, 2), (B1, B3), "its other replica is dead"),
    ],
)
def test_f12_1_what_nobody_can_ever_take_does_not_keep_a_broker(
    replicas: tuple[int, ...], alive: tuple[Broker, ...], why: str
) -> None:
    c = Leaving()
    c.elected(stored_topic("t", [replicas], [state(1, 4, isr(b1=11), 7)]), brokers=alive)
    token, effects = c.leave(1)
    assert c.remaining(token) == [] and writes(effects) == [], why
    assert c.partition()[0] == 1  # it leads to its end


def test_all_brokers_leave_at_once_and_none_is_kept(c: Leaving) -> None:
    tokens = [c.leave(each)[0] for each in (1, 2, 3)]
    c.run()
    assert [c.remaining(each) for each in tokens] == [[], [], []]
    # The first one has left. Between two that both leave nobody is preferred: whoever goes later leads until then.
    assert [c.partition(index=i)[::2] for i in range(3)] == [
        (2, {2: 12, 3: 13}),
        (2, {2: 12, 3: 13}),
        (3, {2: 12, 3: 13}),
    ]
    c.died(1, 2)
    c.run()
    assert [c.partition(index=i)[::2] for i in range(3)] == [(3, {3: 13})] * 3


@requirement("A bounced broker is treated as a failure plus a startup")
@pytest.mark.parametrize("epoch", [10, 12])
def test_a_request_of_another_life_moves_nothing(c: Leaving, epoch: int) -> None:
    token, effects = c.leave(1, epoch)
    assert c.replies[token] == m.ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert writes(effects) == []
    assert c.machine.state.shutting_down == frozenset()


def test_an_unknown_broker_is_refused(c: Leaving) -> None:
    token, _ = c.leave(9, 11)
    assert c.replies[token] == m.ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)


def test_a_repeated_request_is_answered_with_the_first_one(c: Leaving) -> None:
    first, _ = c.leave(1)
    second, effects = c.leave(1)
    assert writes(effects) == [] and not {first, second} & c.replies.keys()
    c.write()
    assert c.remaining(first) == c.remaining(second) == []
    third, effects = c.leave(1)
    assert c.remaining(third) == [] and writes(effects) == []


@requirement("A controlled shutdown counts the ISR change in flight")
def test_an_expansion_that_is_being_written_is_seen() -> None:
    """Broker 3 asks to leave while its admission is on its way to the store: it must not stay in that ISR."""
    c = Leaving()
    c.elected(stored_topic("t", [(1, 2, 3)], [state(1, 4, isr(b1=11, b2=12), 7)]), brokers=(B1, B2, B3))
    c.proposed(1, want(1, 4, ALL, 7))
    token, effects = c.leave(3)
    assert writes(effects) == []
    c.write()
    assert token not in c.replies
    c.write()
    assert c.remaining(token) == []
    assert c.partition() == (1, 4, {1: 11, 2: 12}, 9)


def test_an_unknown_outcome_is_settled_before_the_answer(c: Leaving) -> None:
    token, _ = c.leave(1)
    c.write(lost=True)
    assert token not in c.replies
    c.examine()  # nothing was applied: it is written again
    assert token not in c.replies
    c.run()
    assert c.remaining(token) == [] and c.partition(index=0)[0] == 2


def test_a_broker_that_dies_meanwhile_is_a_death_like_any_other_and_its_next_life_stays(c: Leaving) -> None:
    token, _ = c.leave(1)
    c.came(broker(1, 21, intact_since=11))
    assert c.replies[token].error_code is ErrorCode.STALE_BROKER_EPOCH
    c.run()
    assert c.machine.state.shutting_down == frozenset()
    token, _ = c.proposed(2, want(2, 5, isr(b1=21, b2=12, b3=13), 8))
    c.run()
    assert c.isr_answers(token) == [("t", 0, ErrorCode.NONE)]


def test_a_new_controller_learns_it_from_the_next_request() -> None:
    c = Leaving()
    states = [state(2, 5, isr(b2=12, b3=13), 8)]
    c.elected(stored_topic("t", [(1, 2, 3)], states), brokers=(B1, B2, B3), epoch=3)
    token, _ = c.leave(1)
    assert c.remaining(token) == []
    token, _ = c.proposed(2, want(2, 5, ALL, 8))
    assert c.isr_answers(token) == [("t", 0, ErrorCode.INELIGIBLE_REPLICA)]


def test_a_topic_that_goes_meanwhile_is_not_waited_for(c: Leaving) -> None:
    token, _ = c.leave(1)
    held, c.in_flight = c.in_flight, []
    c.delete("t")
    c.write()
    c.in_flight += held
    c.run()
    assert c.remaining(token) == []
    assert "t" not in c.machine.state.topics


def test_describe_names_who_leaves(c: Leaving) -> None:
    c.leave(1)
    token, _ = c._asked(lambda t: DescribeRequested(m.DescribeClusterRequest(), Token(t)))
    assert [each.state for each in c.replies[token].brokers] == ["shutting_down", "alive", "alive"]
