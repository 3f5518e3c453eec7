"""The local cluster as real processes: it serves, each is killed and found again, and nothing is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cluster import MakeCluster, processes_of, unique_topic
from helpers.requirements import requirement
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import ClusterError, State, bootstrap_servers
from tidelog.cluster.choice import name_at
from tidelog.cluster.local import LocalCluster, local_name
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.wait import until
from tidelog.ids import TopicPartition

pytestmark = pytest.mark.integration

OWNER = """
import sys, time
from pathlib import Path
from tidelog.cluster.choice import name_at
from tidelog.cluster.local import LocalCluster
with LocalCluster(Path(sys.argv[1])) as cluster:
    cluster.up(brokers=[1], controllers=1)
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.smoke
async def test_it_serves_records(shared_cluster: LocalCluster, shared_servers: str) -> None:
    topic = unique_topic()
    async with Admin(shared_servers) as admin:
        await admin.create_topic(topic, 1, 3)
        await admin.wait_until_led(topic, in_sync=True)
        assert (await admin.describe_cluster()).cluster_name == local_name(shared_cluster.base)
    async with Producer(shared_servers) as producer:
        for number in range(10):
            await producer.send(topic, str(number).encode())
    async with Consumer(shared_servers) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        records: list[bytes | None] = []
        while len(records) < 10:
            records += [record.value for record in await consumer.poll(timeout_s=10.0)]
    assert records == [str(number).encode() for number in range(10)]


@pytest.mark.smoke
def test_status_and_endpoints_say_what_runs_where(shared_cluster: LocalCluster) -> None:
    rows = {row.name: row for row in shared_cluster.status()}
    assert list(rows) == ["zookeeper-1", "controller-1", "controller-2", "broker-0", "broker-1", "broker-2"]
    assert {row.state for row in rows.values()} == {State.RUNNING}
    assert shared_cluster.endpoints()["broker-2"] == rows["broker-2"].addresses["EXTERNAL"]
    assert len({row.pid for row in rows.values()}) == 6


def test_a_killed_broker_comes_back_and_another_program_can_see_to_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(brokers=[1, 2], controllers=1)
    other = LocalCluster(cluster.base)
    other.kill("broker-1")
    assert next(row.state for row in cluster.status() if row.name == "broker-1") is State.STOPPED
    with pytest.raises(ClusterError, match="broker-1 does not run"):
        cluster.kill("broker-1")
    cluster.start("broker-1")
    wait_ready(cluster, 30.0)
    other.pause("broker-2")
    assert next(row.state for row in cluster.status() if row.name == "broker-2") is State.PAUSED
    cluster.resume("broker-2")
    assert bootstrap_servers(other) == bootstrap_servers(cluster)
    cluster.kill("controller-1")
    assert name_at(bootstrap_servers(cluster)) == local_name(cluster.base), "a broker tells it without a controller"


def test_a_stopped_cluster_starts_again_with_its_data_in_its_directory_only(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(brokers=[1], controllers=1)
    ports = cluster.endpoints()
    cluster.down()
    assert processes_of(cluster.base) == []
    with pytest.raises(ClusterError, match="holds another cluster"):
        LocalCluster(cluster.base).up(brokers=[2], controllers=1)
    cluster.up()  # as it was
    assert cluster.endpoints() == ports
    assert len(cluster.names()) == 3


@requirement("Brokers are added to a running cluster by a command")
def test_a_cluster_that_runs_gets_a_broker_and_keeps_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(brokers=[1], controllers=1)
    before = {row.name: (row.pid, row.addresses) for row in cluster.status()}
    other = LocalCluster(cluster.base)
    other.up(brokers=[1, 3], controllers=1, outlive=True)
    try:
        after = {row.name: (row.pid, row.addresses) for row in other.status()}
        assert before.items() <= after.items()
        assert after.keys() - before.keys() == {"broker-3"}
        assert LocalCluster(cluster.base).names() == list(after)
        with pytest.raises(ClusterError, match=r"holds another cluster.*broker-3.*all are named"):
            other.up(brokers=[1], controllers=1)
    finally:
        other.stop("broker-3")


def test_a_process_that_cannot_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    complaint = r"(?s)broker-1 ended while the cluster was starting.*segment_bytes"
    with LocalCluster(tmp_path / "cluster") as cluster, pytest.raises(ClusterError, match=complaint):
        cluster.up(brokers=[1], controllers=1, settings={"broker-1": {"segment_bytes": "7"}})
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_its_owner(tmp_path: Path, number: signal.Signals) -> None:
    base = tmp_path / "cluster"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(base)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        assert owner.stdout.readline() == b"up\n"
        assert len(processes_of(base)) >= 4  # ZooKeeper, a controller, a broker and the guard
        os.killpg(owner.pid, number)  # as a terminal does: to the whole group
        owner.wait(30.0)
    until(lambda: processes_of(base) == [], "the end of every process", timeout_s=15.0)


def test_nothing_is_left_of_a_start_that_was_interrupted(tmp_path: Path) -> None:
    base = tmp_path / "cluster"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(base)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: len(processes_of(base)) >= 2, "its first processes", timeout_s=30.0)
    owner.send_signal(signal.SIGINT)
    owner.wait(30.0)
    until(lambda: processes_of(base) == [], "the end of every process", timeout_s=15.0)


def test_a_cluster_may_outlive_its_program(tmp_path: Path) -> None:
    base = tmp_path / "cluster"
    code = (
        "import sys; from pathlib import Path; from tidelog.cluster.local import LocalCluster;"
        "LocalCluster(Path(sys.argv[1])).up(brokers=[1], controllers=1, outlive=True)"
    )
    subprocess.run([sys.executable, "-c", code, str(base)], check=True, timeout=90)
    later = LocalCluster(base)
    try:
        assert {row.state for row in later.status()} == {State.RUNNING}
    finally:
        later.down()
    until(lambda: processes_of(base) == [], "the end of every process", timeout_s=15.0)
