"""Everything that a lab does to its cluster has the effect that its name says."""

from collections.abc import Iterator

import pytest

from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.lab import Lab, LabError
from tidelog.wire import messages as m


@pytest.fixture
def lab() -> Iterator[Lab]:
    """One partition on brokers 0, 1 and 2, which broker 0 leads."""
    with Lab(seed=3, partitions=0) as made:
        made.create_topic("events", replicas=[[0, 1, 2]])
        yield made


def test_a_broker_that_is_asked_to_stop_hands_over_first(lab: Lab) -> None:
    lab.stop("broker-0")
    lab.until(lambda c: c.partition("events", 0).leader == 1)
    assert lab.cluster.processes()["broker-0"] == "stopping"
    with pytest.raises(LabError, match="broker-0 stops already"):
        lab.stop("broker-0")
    lab.until(lambda c: c.processes()["broker-0"] == "down")
    assert lab.events("BrokerSuspected") == []


def test_a_restarted_broker_comes_back_by_itself(lab: Lab) -> None:
    lab.restart("broker-0")
    lab.until(lambda c: c.partition("events", 0).leader == 1 and c.partition("events", 0).in_sync)
    assert lab.cluster.processes()["broker-0"] == "up"


def test_a_paused_broker_does_nothing_until_it_goes_on(lab: Lab) -> None:
    lab.pause("broker-2")
    assert lab.cluster.processes()["broker-2"] == "paused"
    lab.produce("events", 5, wait=False)
    lab.until(lambda c: c.partition("events", 0).isr == (0, 1))
    assert lab.partition("events", 0).at[2].log_end == 0
    lab.resume("broker-2")
    lab.until(lambda c: c.partition("events", 0).in_sync)
    assert lab.partition("events", 0).at[2].log_end == 5


def test_a_session_that_expires_ends_a_leadership(lab: Lab) -> None:
    lab.expire("broker-0")
    lab.until(lambda c: c.partition("events", 0).leader == 1, limit=2)
    assert lab.cluster.processes()["broker-0"] == "up"


def test_links_are_cut_one_way_or_both_and_mended(lab: Lab) -> None:
    lab.cut("broker-0", "broker-2", both=False)
    assert lab.produce("events", 3, wait=False).waiting == 3
    lab.run(0.5)
    assert [lab.partition("events", 0).at[broker].log_end for broker in (0, 1, 2)] == [3, 3, 0]
    lab.heal("broker-0", "broker-2")
    lab.until(lambda c: c.partition("events", 0).high_watermark == 3, limit=1)
    lab.isolate("broker-2")
    lab.until(lambda c: 2 not in c.partition("events", 0).isr)
    lab.heal()
    lab.until(lambda c: c.partition("events", 0).in_sync)
    lab.cut("broker-0", "zookeeper")
    lab.until(lambda c: c.partition("events", 0).leader == 1)


def test_a_slow_link_delays_what_is_sent_over_it(lab: Lab) -> None:
    lab.produce("events")
    lab.slow_link("broker-0", "broker-1", 0.7)
    began = lab.time
    lab.produce("events")
    assert 0.7 < lab.time - began < 1.0


def test_a_full_disk_takes_a_broker_out_and_no_record_is_lost(lab: Lab) -> None:
    lab.produce("events", 3)
    lab.fill_disk("broker-0")
    assert lab.produce("events", 3).acked == 3
    assert lab.partition("events", 0).leader == 1
    lab.mend_disk("broker-0")
    lab.run(1)
    if lab.cluster.processes()["broker-0"] == "down":
        lab.start("broker-0")
    lab.until(lambda c: c.partition("events", 0).in_sync)
    assert lab.verdict().lost == 0


def test_a_slow_disk_delays_what_is_done_in_the_background(lab: Lab) -> None:
    lab.slow_disk("broker-0", 0.5)
    assert lab.produce("events", 3).acked == 3
    lab.mend_disk("broker-0")


def test_power_that_is_lost_takes_along_what_was_not_synced(lab: Lab) -> None:
    lab.produce("events", 5)
    lab.lose_power("broker-2")
    lab.start("broker-2")
    lab.run(0.01)
    lab.until(lambda c: c.partition("events", 0).in_sync)
    resets = lab.events("BecameFollower", process="broker-2")
    assert isinstance(resets[-1].fields, m.BecameFollower) and resets[-1].fields.log_end == 0
    assert lab.verdict().sound


def test_a_calendar_that_jumps_shows_in_timestamps_alone(lab: Lab) -> None:
    before = lab.events()[-1].event.wall_ns
    lab.jump_clock("broker-0", 3600)
    lab.produce("events")
    jumped = lab.events("HighWatermarkAdvanced", process="broker-0")[-1]
    assert jumped.event.wall_ns - before > 3_600_000_000_000 and jumped.t < 10
    assert lab.produce("events").acked == 1


def test_zookeeper_goes_away_and_comes_back(lab: Lab) -> None:
    lab.produce("events")  # the producer has its id from now on
    lab.kill("zookeeper")
    assert lab.cluster.processes()["zookeeper"] == "down"
    lab.run(6)
    assert lab.produce("events", 5).acked == 5
    lab.start("zookeeper")
    lab.kill("broker-0")
    lab.until(lambda c: c.partition("events", 0).leader == 1)


def test_a_controller_is_killed_in_its_next_decision(lab: Lab) -> None:
    first = lab.cluster.controller
    lab.kill_in_write(first, applied=False)
    lab.kill("broker-0")
    lab.until(lambda c: c.processes()[first] == "down")
    assert lab.partition("events", 0).leader == 0
    lab.until(lambda c: c.partition("events", 0).leader == 1)
    assert lab.cluster.controller != first


def test_topics_are_altered_moved_elected_and_deleted(lab: Lab) -> None:
    lab.alter_topic("events", {"min.insync.replicas": "3"})
    lab.reassign("events", 0, [2, 1])
    lab.until(lambda c: c.partition("events", 0).replicas == (2, 1))
    with pytest.raises(TidelogError, match="events-0: broker 2 leads and is the preferred leader"):
        lab.elect("events", 0)
    lab.expire("broker-2")
    lab.until(lambda c: c.partition("events", 0).leader == 1 and c.partition("events", 0).in_sync)
    lab.elect("events", 0)
    lab.until(lambda c: c.partition("events", 0).leader == 2)
    lab.delete_topic("events")
    lab.until(lambda c: c.topics() == [])
    with pytest.raises(KeyError, match="there is no topic 'events'"):
        lab.partition("events", 0)


def test_an_operator_elects_an_unclean_leader_by_name(lab: Lab) -> None:
    lab.alter_topic("events", {"min.insync.replicas": "1"})
    for broker in ("broker-1", "broker-2"):
        lab.kill(broker)
    lab.until(lambda c: c.partition("events", 0).isr == (0,))
    lab.produce("events", 4)
    lab.kill("broker-0")
    for broker in ("broker-1", "broker-2"):
        lab.start(broker)
    lab.run(6)
    assert lab.partition("events", 0).leader == -1
    assert lab.verdict().unread == (TopicPartition("events", 0),)
    lab.elect("events", 0, unclean=True, broker=2)
    lab.until(lambda c: c.partition("events", 0).leader == 2)
    verdict = lab.verdict(lost="allowed")
    assert (verdict.acknowledged, verdict.lost, verdict.sound) == (4, 4, True)
    assert not lab.verdict().sound


def test_a_load_goes_on_until_it_is_ended(lab: Lab) -> None:
    load = lab.load("events", 50)
    with pytest.raises(LabError, match="a load of events runs already"):
        lab.load("events", 1)
    lab.run(2)
    lab.stop_load("events")
    lab.run(1)
    assert load.acked == load.count == 100 and str(load) == "100 of 100 acknowledged"


def test_members_of_a_group_share_partitions_and_are_processes(lab: Lab) -> None:
    lab.create_topic("orders", 4)
    assert lab.join("readers", "orders", members=2) == ["agent-1", "agent-2"]
    lab.produce("orders", 40)
    lab.until(lambda c: "readers" in c.groups() and sum(c.group("readers").processed.values()) == 40)
    group = lab.group("readers")
    assert sorted(group.owners.values()) == ["agent-1", "agent-1", "agent-2", "agent-2"]
    assert group.members == ("agent-1", "agent-2") and group.repeated == 0
    assert lab.cluster.coordinator("readers").startswith("broker-")
    lab.stop("agent-1")
    lab.until(lambda c: set(c.group("readers").owners.values()) == {"agent-2"})
    assert lab.join("readers", "orders") == ["agent-3"]
    lab.until(lambda c: c.group("readers").members == ("agent-2", "agent-3"))
    lab.take("agent-3", 1.0)
    lab.delete_topic("orders")
    lab.run(5)
    with pytest.raises(LabError, match="broker-0 is not a consumer"):
        lab.take("broker-0", 1)
    with pytest.raises(KeyError, match="there is no group 'writers'"):
        lab.group("writers")
