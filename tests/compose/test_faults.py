"""Faults on containers while a client on this machine works through the published ports."""

import concurrent.futures
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from helpers.compose import ComposeProject
from helpers.requirements import requirement
from tidelog.client.producer import RecordMetadata
from tidelog.client.sync import SyncAdmin, SyncConsumer, SyncProducer
from tidelog.cluster.api import broker_name
from tidelog.cluster.wait import until
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

PARTITIONS = 3
BROKERS = [broker_name(n) for n in (1, 2, 3)]
RECOVERY_S = 60.0


@dataclass
class Load:
    """What was sent to one topic, and what became of it."""

    topic: str
    bootstrap: str
    sent: dict[tuple[int, bytes], concurrent.futures.Future[RecordMetadata]] = field(default_factory=dict)

    def send(self, producer: SyncProducer, count: int) -> None:
        for _ in range(count):
            number = len(self.sent)
            partition, value = number % PARTITIONS, b"record %08d" % number
            self.sent[partition, value] = producer.send(self.topic, value, partition=partition)

    def acked(self) -> dict[tuple[int, int], bytes]:
        """Values by partition and offset; each future is done when the producer has flushed."""
        done = {sent: future for sent, future in self.sent.items() if future.exception(timeout=0) is None}
        return {(partition, future.result().offset): value for (partition, value), future in done.items()}

    def read(self) -> dict[tuple[int, int], bytes | None]:
        partitions = [TopicPartition(self.topic, n) for n in range(PARTITIONS)]
        found: dict[tuple[int, int], bytes | None] = {}
        with SyncConsumer(self.bootstrap) as consumer:
            ends = consumer.end_offsets(partitions)
            consumer.assign(partitions)
            for tp in partitions:
                consumer.seek(tp, 0)
            until_at = time.monotonic() + RECOVERY_S
            while any(consumer.position(tp) < ends[tp] for tp in partitions):
                assert time.monotonic() < until_at, f"read {len(found)} records, then nothing more"
                found |= {(r.partition, r.offset): r.value for r in consumer.poll(5000, 1.0)}
        return found

    def check(self) -> None:
        """Every acknowledged record is where its acknowledgement says, and none was acknowledged twice in one place."""
        acked, found = self.acked(), self.read()
        assert len(acked) == sum(future.exception() is None for future in self.sent.values())
        assert {place: found.get(place) for place in acked} == acked


@pytest.fixture
def admin(project: ComposeProject) -> Iterator[SyncAdmin]:
    with SyncAdmin(project.bootstrap_servers) as client:
        yield client


@pytest.fixture
def load(project: ComposeProject, admin: SyncAdmin, request: pytest.FixtureRequest) -> Iterator[Load]:
    """A topic for this test; afterwards every broker is back and every ISR full."""
    topic = request.node.name.replace("[", "-").replace("]", "")[:200]
    admin.create_topic(topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
    admin.wait_until_led(topic, in_sync=True, timeout_s=RECOVERY_S)
    yield Load(topic, project.bootstrap_servers)
    project.faults.heal()
    for name in BROKERS:
        if project.container(name).status != "running":
            project.faults.start(name)
    admin.wait_until_led(topic, in_sync=True, timeout_s=RECOVERY_S)


def leader_of(admin: SyncAdmin, topic: str, partition: int = 0) -> m.PartitionDescription:
    return next(p for p in admin.describe_topic(topic).partitions if p.partition == partition)


@requirement("A published message survives failures of servers")
@requirement("A killed leader loses no acknowledged record")
@pytest.mark.smoke
def test_the_leader_is_killed_under_load_and_no_acked_record_is_lost(
    project: ComposeProject, admin: SyncAdmin, load: Load
) -> None:
    before = leader_of(admin, load.topic)
    victim = broker_name(before.leader)
    with SyncProducer(project.bootstrap_servers) as producer:
        load.send(producer, 2000)
        project.container(victim).kill()
        load.send(producer, 4000)
    assert project.container(victim).attrs["State"]["ExitCode"] == 137
    assert len(load.acked()) == 6000, "the others are two: enough for acks=all"
    after = leader_of(admin, load.topic)
    assert after.leader != before.leader and after.leader_epoch > before.leader_epoch
    load.check()

    project.container(victim).start()
    admin.wait_until_led(load.topic, in_sync=True, timeout_s=RECOVERY_S)
    project.wait_health(victim)
    load.check()


@requirement("An ephemeral znode counts only for the session that made it")
@requirement("A fast bounce is detected by the broker epoch")
def test_a_broker_restarts_before_its_old_session_expired(
    project: ComposeProject, admin: SyncAdmin, load: Load
) -> None:
    victim = broker_name(leader_of(admin, load.topic).leader)
    with SyncProducer(project.bootstrap_servers) as producer:
        load.send(producer, 1000)
        container = project.container(victim)
        container.kill()
        container.start()  # at once: the session lasts 6 s
        load.send(producer, 1000)
    admin.wait_until_led(load.topic, in_sync=True, timeout_s=RECOVERY_S)
    container.reload()
    assert container.status == "running"
    project.wait_health(victim)
    load.check()


@requirement("A follower paused beyond the lag limit rejoins after catch-up")
def test_a_follower_is_frozen_until_its_session_is_over_and_catches_up(
    project: ComposeProject, admin: SyncAdmin, load: Load
) -> None:
    """By the cgroup freezer, of which the process knows nothing."""
    before = leader_of(admin, load.topic)
    follower = next(replica for replica in before.replicas if replica != before.leader)
    frozen = broker_name(follower)
    with SyncProducer(project.bootstrap_servers) as producer:
        load.send(producer, 1000)
        project.faults.pause(frozen)
        try:
            assert project.container(frozen).status == "paused"
            load.send(producer, 1000)
            until(
                lambda: follower not in leader_of(admin, load.topic).isr,
                "an ISR without it",
                timeout_s=RECOVERY_S,
                interval_s=0.5,
            )
            load.send(producer, 1000)
            producer.flush()
            assert len(load.acked()) == 3000, "two are enough for acks=all"
        finally:
            project.faults.resume(frozen)
    admin.wait_until_led(load.topic, in_sync=True, timeout_s=RECOVERY_S)
    after = leader_of(admin, load.topic)
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    load.check()


@requirement("An isolated broker truncates its own tail when it rejoins")
def test_a_leader_that_only_clients_reach_commits_nothing_and_comes_back_as_a_follower(
    project: ComposeProject, admin: SyncAdmin, load: Load
) -> None:
    """Cut from every process of the cluster; its published port stays as it was."""
    before = leader_of(admin, load.topic)
    victim = broker_name(before.leader)
    with SyncProducer(project.bootstrap_servers, request_timeout_ms=3_000) as producer:
        load.send(producer, 1000)
        producer.flush()
        assert project.faults.passing(project.faults.isolate(victim)) == []
        load.send(producer, 1000)
        until(
            lambda: _led_by_another(admin, load.topic, before.leader),
            "another leader, and an ISR without the lost one",
            timeout_s=RECOVERY_S,
            interval_s=0.5,
        )
        load.send(producer, 1000)
        producer.flush()
        assert len(load.acked()) == 3000, "whatever the lost leader took is acknowledged by another one"
        project.faults.heal()
    admin.wait_until_led(load.topic, in_sync=True, timeout_s=RECOVERY_S)
    project.wait_health(victim)
    load.check()


def _led_by_another(admin: SyncAdmin, topic: str, lost: int) -> bool:
    try:
        found = leader_of(admin, topic)
    except TidelogError:
        return False  # it was the lost one that was asked
    return found.leader not in (-1, lost) and lost not in found.isr
