"""Preferred, unclean and released leaders on real processes: L18, L19, L27 and row 7 of the fault matrix."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers.cluster import running_cluster, unique_topic
from helpers.requirements import requirement
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.wait import until
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

MIN_ISR_1 = {"min.insync.replicas": "1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Brokers 0 to 2; topics below live on 0 and 1, so that broker 2 can always be asked."""
    settings = {"controller": {"leader_imbalance_check_interval_ms": "500"}}
    with running_cluster(tmp_path_factory.mktemp("elect") / "cluster", settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def servers(cluster: LocalCluster) -> str:
    return bootstrap_servers(cluster)


def described(servers: str, topic: str) -> m.PartitionDescription:
    async def ask() -> m.PartitionDescription:
        async with Admin(servers) as admin:
            return (await admin.describe_topic(topic)).partitions[0]

    return asyncio.run(ask())


def wait_for(servers: str, topic: str, what: str, holds: Callable[[m.PartitionDescription], bool]) -> None:
    until(lambda: holds(described(servers, topic)), f"{topic}: {what}", timeout_s=60.0, interval_s=0.2)


def create(servers: str, prefix: str, replicas: list[int], configs: dict[str, str]) -> str:
    topic = unique_topic(prefix)

    async def make() -> None:
        async with Admin(servers) as admin:
            await admin.create_topic(topic, configs=configs, assignment=[replicas])
            await admin.wait_until_led(topic, in_sync=True, timeout_s=30.0)

    asyncio.run(make())
    return topic


def send(servers: str, topic: str, *values: bytes) -> None:
    async def produce() -> None:
        async with Producer(servers) as producer:
            for value in values:
                await (await producer.send(topic, value))

    asyncio.run(produce())


def read(servers: str, topic: str) -> list[bytes | None]:
    async def consume() -> list[bytes | None]:
        tp = TopicPartition(topic, 0)
        async with Consumer(servers) as consumer:
            end = (await consumer.end_offsets([tp]))[tp]
            await consumer.assign([tp])
            consumer.seek(tp, 0)
            found: list[bytes | None] = []
            while len(found) < end:
                found += [record.value for record in await consumer.poll(timeout_s=10.0)]
            return found

    return asyncio.run(consume())


def tidelog(servers: str, *args: str) -> Any:
    command = [sys.executable, "-m", "tidelog.cli.main", *args, "--bootstrap-server", servers, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def isr_of_one(cluster: LocalCluster, servers: str, prefix: str) -> str:
    """A topic on brokers 0 and 1 whose ISR is broker 0 alone: broker 1 has the first record, broker 0 both."""
    topic = create(servers, prefix, [0, 1], MIN_ISR_1)
    send(servers, topic, b"both have it")
    cluster.stop("broker-1")
    wait_for(servers, topic, "ISR of broker 0", lambda p: p.isr == (0,))
    send(servers, topic, b"broker 0 has it")
    return topic


@requirement("Leadership returns to a preferred replica that is in sync")
@requirement("The ISR converges to all live replicas that have caught up")
def test_leadership_returns_to_the_preferred_replica_once_it_is_in_sync(cluster: LocalCluster, servers: str) -> None:
    topic = create(servers, "l27", [1, 0, 2], {})
    cluster.stop("broker-1")
    wait_for(servers, topic, "another leader", lambda p: p.leader == 0)
    cluster.start("broker-1")
    wait_for(servers, topic, "its preferred leader", lambda p: p.leader == 1 and set(p.isr) == {0, 1, 2})


@requirement("A partition with a dead ISR stays offline unless its topic consents")
@requirement("An offline partition returns without loss with an ISR member")
def test_offline_without_consent_back_without_loss_and_by_hand_with_it(cluster: LocalCluster, servers: str) -> None:
    topic = isr_of_one(cluster, servers, "l18")
    cluster.kill("broker-0")
    cluster.start("broker-1")
    # L18, HOLE-25: broker 1 is alive and assigned, and does not lead; the ISR names who may.
    wait_for(servers, topic, "no leader", lambda p: (p.leader, p.isr, p.vetoed) == (-1, (0,), False))
    # L19: the ISR member returns in another life that has lost nothing.
    cluster.start("broker-0")
    wait_for(servers, topic, "broker 0", lambda p: p.leader == 0 and set(p.isr) == {0, 1})
    assert read(servers, topic) == [b"both have it", b"broker 0 has it"]

    cluster.stop("broker-1")
    wait_for(servers, topic, "ISR of broker 0", lambda p: p.isr == (0,))
    send(servers, topic, b"lost with broker 0")
    cluster.kill("broker-0")
    cluster.start("broker-1")
    wait_for(servers, topic, "no leader", lambda p: p.leader == -1)
    elect = ("elect-leaders", "--election-type", "unclean", "--topic", topic, "--partition", "0")
    named = [{"topic": topic, "partition": 0}]
    until(lambda: alive(servers, 1), "broker 1", timeout_s=60.0)
    done = tidelog(servers, *elect)
    (elected,) = done.pop("elected")
    assert done == {"electionType": "unclean", "alreadyValid": [], "failed": []}
    assert [{key: elected[key] for key in ("topic", "partition")}] == named
    assert elected["recordsLost"] == 0, "no other replica is alive that has them"
    # HOLE-26: it has reported back, then it takes records again.
    wait_for(servers, topic, "recovered", lambda p: p.leader == 1 and not p.recovering)
    send(servers, topic, b"after it")
    assert tidelog(servers, *elect)["alreadyValid"] == named
    cluster.start("broker-0")
    wait_for(servers, topic, "a full ISR", lambda p: set(p.isr) == {0, 1})
    assert read(servers, topic) == [b"both have it", b"broker 0 has it", b"after it"]


def alive(servers: str, broker_id: int) -> bool:
    async def ask() -> bool:
        async with Admin(servers) as admin:
            brokers = (await admin.describe_cluster()).brokers
            return any(each.broker.broker_id == broker_id and each.state == "alive" for each in brokers)

    return asyncio.run(ask())


@requirement("A power loss of the only ISR member leaves its partition offline")
@requirement("A broker with a replaced disk rejoins an ISR only after catch-up")
def test_a_last_member_that_lost_its_disk_is_held_back_until_somebody_lets_it_lead(
    cluster: LocalCluster, servers: str
) -> None:
    topic = isr_of_one(cluster, servers, "row-7")
    cluster.kill("broker-0")
    shutil.rmtree(cluster.data_dir("broker-0"))
    cluster.start("broker-0")
    wait_for(servers, topic, "the veto", lambda p: (p.leader, p.isr, p.vetoed) == (-1, (0,), True))
    named = [{"topic": topic, "partition": 0}]
    release = ("brokers", "release-veto", "--topic", topic, "--partition", "0")
    assert tidelog(servers, *release)["elected"] == named
    wait_for(servers, topic, "broker 0", lambda p: (p.leader, p.vetoed, p.recovering) == (0, False, False))
    assert tidelog(servers, *release)["alreadyValid"] == named
    assert read(servers, topic) == []  # that is what it had
    send(servers, topic, b"after it")
    cluster.start("broker-1")
    wait_for(servers, topic, "a full ISR", lambda p: set(p.isr) == {0, 1})
    assert read(servers, topic) == [b"after it"]
