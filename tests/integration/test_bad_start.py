"""Processes that cannot start say why, one line a problem, and end; a damaged log costs its partition on that broker only."""

import asyncio
import os
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from helpers.cluster import MakeCluster, unique_topic
from helpers.requirements import requirement
from helpers.zookeeper import zk_clients
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.cluster.api import BROKER, bootstrap_servers, broker_name
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import check_run
from tidelog.cluster.wait import until
from tidelog.ids import Address, BrokerId
from tidelog.ports.meta import Create
from tidelog.release import RELEASE, Release
from tidelog.runtime.os_disk import OsDisk
from tidelog.runtime.process import EXIT_REFUSED
from tidelog.storage.data_dir import DataDir
from tidelog.wire.batch import read_header
from tidelog.wire.znodes import BrokerRegistration, broker_path, encode_broker

pytestmark = pytest.mark.integration

BROKER_ID = 77
"""Of a broker that the shared cluster does not have and never gets."""
WITHIN_S = 60.0
"""How long anything may take that comes in the end, the start of a process on a busy machine too."""


class Starter:
    """Starts one process by its module, with settings in the environment alone."""

    def __init__(self, home: Path, zookeeper: str, busy_port: int) -> None:
        self.home = home
        self.data_dir = home / "data"
        self.busy_port = busy_port
        internal, external, listen = free_ports(3)
        self._settings = {
            "broker": {
                "zookeeper": zookeeper,
                "broker_id": str(BROKER_ID),
                "listeners": f"INTERNAL://127.0.0.1:{internal},EXTERNAL://127.0.0.1:{external}",
                "data_dir": str(self.data_dir),
                "log_level": "warning",
            },
            "controller": {
                "zookeeper": zookeeper,
                "controller_id": str(BROKER_ID),
                "listen": f"127.0.0.1:{listen}",
                "log_level": "warning",
            },
        }

    def complaints(self, kind: str, settings: dict[str, str | None]) -> list[str]:
        """The lines of the standard error of a process that refuses to start; a setting that is None is left out."""
        given = {**self._settings[kind], **settings}
        env = {key: value for key, value in os.environ.items() if not key.startswith("TIDELOG_")}
        found = subprocess.run(
            [sys.executable, "-m", f"tidelog.{kind}"],
            env={**env, **{f"TIDELOG_{key.upper()}": value for key, value in given.items() if value is not None}},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert found.returncode == EXIT_REFUSED, (found.returncode, found.stdout, found.stderr)
        assert found.stdout == ""
        assert "Traceback" not in found.stderr
        return found.stderr.splitlines()


@pytest.fixture
def starter(tmp_path: Path, shared_cluster: LocalCluster) -> Iterator[Starter]:
    zookeeper = str(shared_cluster.plan["zookeeper-1"].for_clients)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        yield Starter(tmp_path, zookeeper, busy.getsockname()[1])


# --- releases -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def far_release(zookeeper: Address) -> AsyncIterator[None]:
    """Somebody is registered who works beside no release of today; no controller of today admits him."""
    release = Release("9.0.0", RELEASE.level + 9, RELEASE.level + 8)
    registration = BrokerRegistration(BrokerId(BROKER_ID + 1), (), "", 1, "x", release)
    async with zk_clients(zookeeper) as (meta,):
        await meta.multi([Create(broker_path(registration.broker_id), encode_broker(registration), ephemeral=True)])
        yield


@pytest.mark.parametrize("kind", ["broker", "controller"])
async def test_a_release_that_is_too_old_for_the_cluster_does_not_join(
    starter: Starter, shared_cluster: LocalCluster, kind: str
) -> None:
    async with far_release(shared_cluster.plan["zookeeper-1"].for_clients):
        (line,) = await asyncio.to_thread(starter.complaints, kind, {})
    assert line == (
        f"this is release {RELEASE.version} (feature level {RELEASE.level}); broker {BROKER_ID + 1} is release 9.0.0 (feature "
        f"level {RELEASE.level + 9}), which works beside level {RELEASE.level + 8} and later: start a newer one here"
    )
    assert not starter.data_dir.exists()


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("kind", "settings", "lines"),
    [
        ("broker", {"zookeeper": None}, ["zookeeper: required; set TIDELOG_ZOOKEEPER, or zookeeper in the file"]),
        ("controller", {"zookeeper": None}, ["zookeeper: required; set TIDELOG_ZOOKEEPER, or zookeeper in the file"]),
        ("broker", {"zookeeper": ""}, ["zookeeper: must not be empty (TIDELOG_ZOOKEEPER)"]),
        ("broker", {"data_dir": ""}, ["data_dir: must not be empty (TIDELOG_DATA_DIR)"]),
        (
            "broker",
            {"datadir": "/x"},
            ["TIDELOG_DATADIR: unknown setting; did you mean 'TIDELOG_DATA_DIR'?"],
        ),
        (
            "controller",
            {"default_replication_facter": "3"},
            ["TIDELOG_DEFAULT_REPLICATION_FACTER: unknown setting; "
             "did you mean 'TIDELOG_DEFAULT_REPLICATION_FACTOR'?"],
        ),
        (
            "broker",
            {"broker_id": "-1"},
            ["broker_id: must be a whole number from 0 to 2147483647, not '-1' (TIDELOG_BROKER_ID)"],
        ),
        (
            "broker",
            {"listeners": "INTERNAL://127.0.0.1:1,EXTERNAL://127.0.0.1:1"},
            ["listeners: two of them listen at 127.0.0.1:1; each needs a port of its own"],
        ),
        (
            "controller",
            {"listen": "here"},
            ["listen: 'here' is not host:port with a port from 0 to 65535 (TIDELOG_LISTEN)"],
        ),
        (
            "broker",
            {"zookeper": "h:1", "zookeeper": None, "segment_bytes": "7", "log_level": "loud", "listeners": "h:1"},
            [
                "TIDELOG_ZOOKEPER: unknown setting; did you mean 'TIDELOG_ZOOKEEPER'?",
                "listeners: 'h:1' is not INTERNAL://host:port or EXTERNAL://host:port (TIDELOG_LISTENERS)",
                "log_level: must be debug, info, warning or error, not 'loud' (TIDELOG_LOG_LEVEL)",
                "segment_bytes: must be a whole number from 1024 to 2147483647, not '7' (TIDELOG_SEGMENT_BYTES)",
                "zookeeper: required; set TIDELOG_ZOOKEEPER, or zookeeper in the file",
            ],
        ),
        ("broker", {"config_file": "/nowhere.toml"}, ["/nowhere.toml: No such file or directory"]),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_told_in_one_line_each(
    starter: Starter, kind: str, settings: dict[str, str | None], lines: list[str]
) -> None:
    assert sorted(starter.complaints(kind, settings)) == lines
    assert not starter.data_dir.exists()


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        ("broker", "listeners", "INTERNAL://127.0.0.1:{port}"),
        ("broker", "metrics_address", "127.0.0.1:{port}"),
        ("controller", "listen", "127.0.0.1:{port}"),
        ("controller", "metrics_address", "127.0.0.1:{port}"),
    ],
)
def test_a_port_in_use_is_named_with_what_to_do(starter: Starter, kind: str, setting: str, value: str) -> None:
    (line,) = starter.complaints(kind, {setting: value.format(port=starter.busy_port)})
    assert f"127.0.0.1:{starter.busy_port}: Address already in use" in line
    assert line.endswith("stop the process that listens there, or set another port")


@pytest.mark.parametrize("setting", ["listeners", "metrics_address"])
def test_an_address_of_another_machine_is_named(starter: Starter, setting: str) -> None:
    """192.0.2.1 is nobody's (RFC 5737)."""
    value = {"listeners": "INTERNAL://192.0.2.1:9092", "metrics_address": "192.0.2.1:9092"}[setting]
    (line,) = starter.complaints("broker", {setting: value})
    assert "192.0.2.1:9092: Cannot assign requested address" in line


def test_another_cluster_behind_zookeeper_is_refused(starter: Starter) -> None:
    (line,) = starter.complaints("broker", {"cluster_id": "mine"})
    assert line.startswith("cluster_id is mine, but this ZooKeeper holds cluster ")
    assert line.endswith("correct cluster_id or zookeeper")
    (line,) = starter.complaints("controller", {"cluster_id": "mine"})
    assert line.startswith("cluster_id is mine, but this ZooKeeper holds cluster ")


# --- data directories -----------------------------------------------------------------------------------------------


def cluster_id(cluster: LocalCluster) -> str:
    async def ask() -> str:
        async with Admin(bootstrap_servers(cluster)) as admin:
            return (await admin.describe_cluster()).cluster_id

    return asyncio.run(ask())


@pytest.mark.smoke
def test_a_data_directory_in_use(starter: Starter, shared_cluster: LocalCluster) -> None:
    used = str(shared_cluster.data_dir("broker-0"))
    (line,) = starter.complaints("broker", {"broker_id": "0", "data_dir": used})
    assert line == (
        f"data directory {used} is in use by another process; stop it, or give this broker its own directory"
    )


def test_a_data_directory_of_another_cluster(starter: Starter) -> None:
    """It is refused before the broker listens, and so before it registers: a taken port is not what it complains of."""
    DataDir.open(
        OsDisk(), str(starter.data_dir), cluster_id="other", broker_id=BROKER_ID, rand=random.Random(1)
    ).release()
    taken = {"listeners": f"INTERNAL://127.0.0.1:{starter.busy_port}"}
    (line,) = starter.complaints("broker", taken)
    assert line.startswith(
        f"data directory {starter.data_dir} belongs to broker {BROKER_ID} of cluster 'other', this is broker "
    )
    assert line.endswith("set the right directory, or move this one away")


def test_a_place_where_nothing_can_be_made(starter: Starter) -> None:
    (line,) = starter.complaints("broker", {"data_dir": "/proc/tidelog"})
    assert line.startswith("/proc/tidelog: ")


# --- damage ---------------------------------------------------------------------------------------------------------


def batch_positions(file: Path) -> list[int]:
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        found.append(at)
        at += read_header(data, at).size_bytes
    return found


async def send(servers: str, topic: str, partition: int, count: int) -> None:
    """`count` batches of one record, acks=all."""
    async with Producer(servers, linger_ms=0) as producer:
        for number in range(count):
            await (await producer.send(topic, b"%d" % number, partition=partition))


async def every_isr_is_full(servers: str, topic: str) -> None:
    """The ISR of both partitions holds brokers 0, 1 and 2, or a TimeoutError."""
    async with Admin(servers) as admin, asyncio.timeout(WITHIN_S):
        while True:
            if [tuple(sorted(p.isr)) for p in (await admin.describe_topic(topic)).partitions] == [(0, 1, 2)] * 2:
                return
            await asyncio.sleep(0.2)


@requirement("A flipped bit is never served or replicated")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("harm", ["a flipped bit", "a hole"])
async def test_a_damaged_segment_costs_its_partition_on_that_broker_only(make_cluster: MakeCluster, harm: str) -> None:
    """Killed, a bit flipped in the middle of a committed segment, started again: named, offline, never served."""
    quick = {"high_watermark_checkpoint_interval_ms": "200"}
    cluster = await asyncio.to_thread(make_cluster, controllers=1, settings={BROKER: quick})
    servers, topic = bootstrap_servers(cluster), unique_topic()

    async with Admin(servers) as admin:
        await admin.create_topic(topic, assignment=[(0, 1, 2), (0, 1, 2)])
        await admin.wait_until_led(topic, in_sync=True)
        leader = (await admin.describe_topic(topic)).partitions[0].leader
    victim = broker_name(next(b for b in (0, 1, 2) if b != leader))
    for partition in (0, 1):
        await send(servers, topic, partition, 20)
    (file,) = (cluster.data_dir(victim) / f"{topic}-0").glob("*.log")
    checkpoint = cluster.data_dir(victim) / "replication-offset-checkpoint"
    until(lambda: len(batch_positions(file)) == 20, "all batches on the follower", timeout_s=WITHIN_S)
    until(
        lambda: checkpoint.exists() and checkpoint.read_text().count(" 20") >= 2,
        "the checkpoint of both",
        timeout_s=WITHIN_S,
    )

    cluster.kill(victim)
    place = batch_positions(file)[10]
    damaged = bytearray(file.read_bytes())
    if harm == "a flipped bit":
        damaged[place + 65] ^= 0x10
    else:
        damaged[place : place + 200] = bytes(200)
    file.write_bytes(damaged)
    cluster.start(victim)

    told = f"{file}: damaged at byte {place}, valid up to offset 10"
    until(lambda: told in cluster.logs(victim), "the damage in the log", timeout_s=WITHIN_S)
    # Nobody counts this copy, and the controller knows: it is cut where the damage begins and fetched again.
    until(lambda: f"{topic}-0 is back" in cluster.logs(victim), "the partition", timeout_s=WITHIN_S)
    for partition in (0, 1):
        await send(servers, topic, partition, 3)
    await every_isr_is_full(servers, topic)
    check_run(cluster, [victim])
    assert "partition is offline on this broker" in cluster.logs(victim)
    assert "Traceback" not in cluster.logs(victim)
    until(lambda: len(batch_positions(file)) == 23, "all batches on the healed replica", timeout_s=WITHIN_S)
    (whole,) = (cluster.data_dir(broker_name(leader)) / f"{topic}-0").glob("*.log")
    assert file.read_bytes() == whole.read_bytes()
