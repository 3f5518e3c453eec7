"""`compression.type` changes while a producer runs: what every replica has on its disk is as the topic says, and reads as it was
sent."""

import asyncio
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.aio import eventually, run
from helpers.cluster import unique_topic
from helpers.command_line import tidelog
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.ids import TopicPartition
from tidelog.runtime.os_disk import OsDisk
from tidelog.storage.dump import dump_segment
from tidelog.wire.batch import BatchHeader, Codec

pytestmark = pytest.mark.integration

LIMIT_S = 180.0
WITHIN_S = 60.0
STEPS = {
    "zstd": Codec.ZSTD,
    "uncompressed": Codec.NONE,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "producer": Codec.GZIP,
}
"""What the topic says one after the other, and how batches are stored then that come with gzip."""
FEW = 5
"""Batches that a setting must have met before the next one comes."""


def segments(cluster: LocalCluster, broker: int, topic: str) -> list[Path]:
    """One, as soon as there is any."""
    return list((cluster.data_dir(broker_name(broker)) / f"{topic}-0").glob("*.log"))


def held(cluster: LocalCluster, broker: int, topic: str) -> list[BatchHeader]:
    """Of every batch that is whole by now."""
    lines = [line for file in segments(cluster, broker, topic) for line in dump_segment(OsDisk(), str(file))]
    return [line.header for line in lines if line.header is not None and line.problem is None]


def dumped(cluster: LocalCluster, broker: int, topic: str) -> list[dict[str, Any]]:
    (file,) = segments(cluster, broker, topic)
    words = [sys.executable, "-m", "tidelog.cli.main", "log", "dump", str(file)]
    found = subprocess.run([*words, "--format", "json"], capture_output=True, timeout=60, check=True)
    return [json.loads(line) for line in found.stdout.splitlines()]


async def load(servers: str, tp: TopicPartition, sent: dict[int, bytes], stop: asyncio.Event) -> None:
    """Batches of an idempotent producer, several on their way at once."""
    async with Producer(servers, linger_ms=1, batch_bytes=2_000, compression="gzip") as producer:
        number = 0
        while not stop.is_set():
            acks = []
            for _ in range(100):
                value = b"%08d " % number + b"again and " * 20
                acks.append((value, await producer.send(tp.topic, value, partition=0)))
                number += 1
            for value, ack in acks:
                sent[(await ack).offset] = value


async def alter_under_load(cluster: LocalCluster, tp: TopicPartition, sent: dict[int, bytes]) -> None:
    servers = bootstrap_servers(cluster)
    stop = asyncio.Event()
    task = asyncio.create_task(load(servers, tp, sent, stop))

    async def stored_with(codec: Codec) -> None:
        def so() -> bool:
            assert not task.done() or task.result() is None
            return [header.codec for header in held(cluster, 0, tp.topic)[-FEW:]] == [codec] * FEW

        await eventually(so, f"{FEW} batches with {codec.name}", timeout_s=WITHIN_S)

    await stored_with(Codec.GZIP)
    for setting, codec in STEPS.items():
        change = ("configs", "alter", "--topic", tp.topic, "--add", f"compression.type={setting}")
        said = await asyncio.to_thread(tidelog, servers, *change)
        assert said == f"Completed updating config for topic {tp.topic}.\n"
        await stored_with(codec)
    stop.set()
    await task


async def read_back(servers: str, tp: TopicPartition, end: int) -> dict[int, bytes | None]:
    async with Consumer(servers) as consumer:
        await consumer.assign([tp])
        consumer.seek(tp, 0)
        found: dict[int, bytes | None] = {}
        while len(found) < end:
            found |= {record.offset: record.value for record in await consumer.poll(timeout_s=5.0)}
        return found


def test_the_codec_of_a_topic_changes_under_a_running_producer(shared_cluster: LocalCluster) -> None:
    servers, topic = bootstrap_servers(shared_cluster), unique_topic("codec")
    tp, sent = TopicPartition(topic, 0), dict[int, bytes]()
    tidelog(servers, "topics", "create", topic, "--partitions", "1", "--replication-factor", "3")
    said = tidelog(servers, "configs", "alter", "--topic", topic, "--add", "compression.type=brotli", exit_code=2)
    assert "compression.type='brotli' is none of: producer, uncompressed, gzip, snappy, lz4, zstd" in said
    run(alter_under_load(shared_cluster, tp, sent), timeout_s=LIMIT_S)
    end = max(sent) + 1
    assert sorted(sent) == list(range(end)), "each record once"
    assert run(read_back(servers, tp, end), timeout_s=WITHIN_S) == sent

    copies = [dumped(shared_cluster, broker, topic) for broker in range(3)]
    assert copies[0] == copies[1] == copies[2] and all(batch["valid"] for batch in copies[0])
    assert copies[0][-1]["lastOffset"] == end - 1 and all(batch["producerId"] >= 0 for batch in copies[0])
    runs = [codec for codec, _ in itertools.groupby(batch["compresscodec"] for batch in copies[0])]
    assert runs == ["gzip", *(codec.name.lower() for codec in STEPS.values())], "no batch before or after its turn"

    (row,) = [
        row
        for row in json.loads(tidelog(servers, "configs", "describe", "--topic", topic, "--all", "--format", "json"))
        if row["key"] == "compression.type"
    ]
    assert (row["value"], row["source"]) == ("producer", "DYNAMIC_TOPIC_CONFIG")
    tidelog(servers, "topics", "delete", topic)
