"""A move with a throttle on real processes: another rate counts on the way, and with the last move the limit is gone (KIP-73)."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cluster import unique_topic
from helpers.scene import WITHIN_S
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.client.reassignments import Throttle
from tidelog.cluster.api import bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.ids import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

VALUE_BYTES = 512 << 10
VALUES = 16
SIZE_BYTES = VALUES * VALUE_BYTES
NO_THROTTLE = Throttle(0, 0)


async def filled(admin: Admin, servers: str) -> TopicPartition:
    """A partition with one copy, on broker 0."""
    tp = TopicPartition(unique_topic("throttle"), 0)
    await admin.create_topic(tp.topic, assignment=((0,),), configs={"min.insync.replicas": "1"})
    await admin.wait_until_led(tp.topic, in_sync=True, timeout_s=WITHIN_S)
    async with Producer(servers) as producer:
        for _ in range(VALUES):
            await (await producer.send(tp.topic, os.urandom(VALUE_BYTES)))
    return tp


async def moved(admin: Admin, tp: TopicPartition) -> None:
    deadline = asyncio.get_running_loop().time() + WITHIN_S
    while await admin.reassignments.list():
        assert asyncio.get_running_loop().time() < deadline, await admin.reassignments.list()
        await asyncio.sleep(0.02)
    (partition,) = (await admin.describe_topic(tp.topic)).partitions
    assert (partition.leader, partition.replicas, partition.isr) == (1, (1,), (1,))


async def lifted(admin: Admin) -> None:
    deadline = asyncio.get_running_loop().time() + WITHIN_S
    while (found := await admin.reassignments.throttles()) != NO_THROTTLE:
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.02)


def log_bytes(cluster: LocalCluster, broker: int, tp: TopicPartition) -> int:
    return sum(file.stat().st_size for file in cluster.data_dir(f"broker-{broker}").glob(f"{tp}/*.log"))


def reassign(servers: str, verb: str, *args: object, exit_code: int = 0) -> str:
    command = [sys.executable, "-m", "tidelog.cli.main", "reassign", verb, *map(str, args)]
    ran = subprocess.run([*command, "--bootstrap-server", servers], capture_output=True, timeout=60, check=False)
    assert ran.returncode == exit_code, ran.stderr.decode()
    return ran.stdout.decode()


async def test_a_throttle_is_changed_on_the_way_by_the_command_line_and_ends_with_the_move(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = bootstrap_servers(shared_cluster)
    file = tmp_path / "plan.json"
    plan = ("--reassignment-json-file", file)

    async with Admin(servers) as admin:
        tp = await filled(admin, servers)
        rows = [{"topic": tp.topic, "partition": tp.partition, "replicas": [1]}]
        file.write_text(json.dumps({"version": 1, "partitions": rows}))
        # At this rate it would take a quarter of an hour.
        said = await asyncio.to_thread(reassign, servers, "execute", *plan, "--throttle", 10_000)
        assert "The inter-broker throttle limit was set to 10000 B/s" in said
        said = await asyncio.to_thread(reassign, servers, "verify", *plan, exit_code=1)
        assert f"Reassignment of partition {tp} is still in progress." in said
        assert log_bytes(shared_cluster, 1, tp) < SIZE_BYTES / 2
        assert await admin.reassignments.throttles() == Throttle(10_000, 10_000)
        more = ("--additional", "--throttle", 100_000_000)
        said = await asyncio.to_thread(reassign, servers, "execute", *plan, *more)
        assert "The inter-broker throttle limit was set to 100000000 B/s" in said
        await moved(admin, tp)
        said = await asyncio.to_thread(reassign, servers, "verify", *plan)
        assert f"Reassignment of partition {tp} is completed." in said
        await lifted(admin)
        await admin.delete_topic(tp.topic)
