"""ISR shrinks and expansions by cause: one count for each partition, when its new ISR is written."""

import pytest
from prometheus_client import CollectorRegistry

from tidelog.controller.events import ControlledShutdownRequested, FailedReplica, Token
from tidelog.controller.model import IsrCause
from tidelog.ids import TopicPartition
from tidelog.runtime.metrics import ControllerMetrics
from tidelog.topic_config import UNCLEAN_ELECTION
from tidelog.wire import messages as m
from unit.controller.harness import Harness, broker, isr, state, stored_topic, want

B1, B2, B3, B4 = broker(1, 11), broker(2, 12), broker(3, 13), broker(4, 14)
ALL, TWO = isr(b1=11, b2=12, b3=13), isr(b1=11, b2=12)
T0 = TopicPartition("t", 0)


def three(*, unclean: bool = False) -> Harness:
    """Broker 1 leads t-0 and t-1, and brokers 2 and 3 are in sync."""
    c = Harness()
    configs = {UNCLEAN_ELECTION: "true"} if unclean else None
    states = [state(1, 4, ALL, 7), state(1, 4, ALL, 7)]
    c.elected(stored_topic("t", [(1, 2, 3)] * 2, states, configs), brokers=(B1, B2, B3, B4))
    return c


def test_a_take_over_changes_no_isr() -> None:
    c = three()
    assert (c.shrinks, c.expansions) == ({}, {})


def test_what_a_leader_asks_for() -> None:
    c = three()
    c.proposed(1, want(1, 4, TWO, 7))
    assert c.shrinks == {}, "it is not written"
    c.write()
    assert (c.shrinks, c.expansions) == ({"leader": 1}, {})
    c.proposed(1, want(1, 4, ALL, 8))
    c.write()
    assert (c.shrinks, c.expansions) == ({"leader": 1}, {"leader": 1})


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_of_unknown_outcome_counts_once(applied: bool) -> None:
    c = three()
    c.proposed(1, want(1, 4, TWO, 7))
    c.write(unknown=applied, lost=not applied)
    c.run()
    assert c.shrinks == {"leader": 1}


def test_another_controllers_write_is_not_counted() -> None:
    c = three()
    c.proposed(1, want(1, 4, TWO, 7))
    other = Harness()
    other.store = c.store
    other.elected(stored_topic("t", [(1, 2, 3)] * 2, [state(1, 4, ALL, 7)] * 2), brokers=(B1, B2, B3), epoch=3)
    other.proposed(1, want(1, 4, isr(b1=11, b3=13), 7))
    other.write()
    c.write()
    c.examine()
    assert (c.shrinks, other.shrinks) == ({}, {"leader": 1})


def test_a_suspected_broker_whose_session_then_ends_counts_once() -> None:
    c = three()
    c.suspected(1)
    c.run()
    c.died(1)
    c.run()
    assert (c.shrinks, c.expansions) == ({"broker gone": 2}, {})


def test_a_bounced_broker_is_gone_until_its_leader_takes_it_in() -> None:
    c = three()
    c.came(broker(3, 23, intact_since=13))
    c.run()
    c.proposed(1, want(1, 4, isr(b1=11, b2=12, b3=23), 8))
    c.run()
    assert (c.shrinks, c.expansions) == ({"broker gone": 2}, {"leader": 1})


def test_the_last_member_stays_and_its_return_changes_nothing() -> None:
    c = three()
    c.died(2, 3)
    c.run()
    c.died(1)
    c.run()
    c.came(broker(1, 21, intact_since=11))
    c.run()
    assert (c.shrinks, c.expansions) == ({"broker gone": 2}, {})


def test_a_controlled_shutdown() -> None:
    c = three()
    c.step(ControlledShutdownRequested(m.ControlledShutdownRequest(broker_id=2, broker_epoch=12), Token(99)))
    c.run()
    c.died(2)
    c.run()
    assert (c.shrinks, c.expansions) == ({"shutdown": 2}, {})


def test_a_disk_that_fails() -> None:
    c = three()
    c.pong(B2, FailedReplica(T0, b"id-of-t"))
    c.run()
    assert (c.shrinks, c.expansions) == ({"disk": 1}, {})


def test_the_end_of_a_move() -> None:
    c = three()
    c.move({0: (1, 2, 4)})
    c.run()
    c.proposed(1, want(1, 4, (*ALL, *isr(b4=14)), 7))
    c.run()
    assert c.partition()[2] == {1: 11, 2: 12, 4: 14}
    assert (c.shrinks, c.expansions) == ({"reassignment": 1}, {"leader": 1})


def test_an_unclean_election_takes_one_out_and_another_in() -> None:
    c = three(unclean=True)
    for asker_epoch, members, version in ((4, TWO, 7), (4, isr(b1=11), 8)):
        c.proposed(1, want(1, asker_epoch, members, version))
        c.run()
    c.died(1)
    c.run()
    assert c.partition()[2] == {2: 12}
    assert c.shrinks == {"leader": 2, "unclean election": 1, "broker gone": 1}, "t-1 had other members"
    assert c.expansions == {"unclean election": 1}


def test_every_cause_is_there_from_the_start() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    shrinks, expansions = (f"tidelog_controller_isr_{each}_total" for each in ("shrinks", "expansions"))
    assert {cause: registry.get_sample_value(shrinks, {"cause": cause}) for cause in IsrCause} == dict.fromkeys(
        IsrCause, 0
    )
    for cause in ("leader", "unclean election"):
        assert registry.get_sample_value(expansions, {"cause": cause}) == 0
    metrics.isrs_changed({"broker gone": 12}, {"leader": 3})
    assert registry.get_sample_value(shrinks, {"cause": "broker gone"}) == 12
    assert registry.get_sample_value(expansions, {"cause": "leader"}) == 3
