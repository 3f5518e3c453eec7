"""X2: what the files of a replica are made of, for the comparison."""

from pathlib import Path
from types import SimpleNamespace as Some

import pytest

from helpers.aio import run
from helpers.batches import batch
from helpers.fake_cluster import FakeCluster
from tidelog.chaos.checker.check import check
from tidelog.chaos.checker.replicas import PartitionReplicas, ReplicaLog
from tidelog.chaos.faults.disks import FLIPPED
from tidelog.chaos.replicas import read_replicas, replica_log, rotten_copies
from tidelog.cluster.api import ClusterError
from tidelog.ids import TopicPartition
from tidelog.storage.segment import segment_name
from tidelog.wire.batch import stamp, validate_produce


def stored(value: bytes, offset: int) -> bytes:
    """A batch of one record as a leader of epoch 0 keeps it."""
    return b"".join(stamp(validate_produce(batch(value), batch_bytes_max=1 << 20), offset, 0))


ONE, TWO, THREE = (stored(b"value %d" % offset, offset) for offset in range(3))


def ends(log: ReplicaLog) -> list[tuple[int, int]]:
    return [(stretch.first, stretch.end) for stretch in log.stretches]


def test_x2_a_replica_is_its_batches_wherever_its_segments_end() -> None:
    whole = replica_log(1, {segment_name(0): ONE + TWO + THREE, "0.index": b"x"})
    parts = replica_log(2, {segment_name(2): THREE, segment_name(0): ONE + TWO})
    assert ends(whole) == [(0, 1), (1, 2), (2, 3)]
    assert (whole.log_start, whole.log_end) == (parts.log_start, parts.log_end) == (0, 3)
    assert whole.stretches == parts.stretches


def test_x2_one_altered_bit_shows() -> None:
    altered = bytearray(TWO)
    altered[-1] ^= 1
    first, second = (replica_log(1, {segment_name(0): ONE + each}) for each in (TWO, bytes(altered)))
    assert first.stretches[0] == second.stretches[0] and first.stretches[1] != second.stretches[1]


@pytest.mark.parametrize("tail", [TWO[:-1], TWO[:30], bytes(200)], ids=["torn", "no header", "zeros"])
def test_x2_a_replica_ends_where_its_bytes_make_no_batch(tail: bytes) -> None:
    log = replica_log(1, {segment_name(0): ONE + tail})
    assert (ends(log), log.log_end) == ([(0, 1)], 1)


def test_x2_an_empty_replica_ends_where_it_starts() -> None:
    log = replica_log(1, {segment_name(7): b""})
    assert (log.log_start, log.log_end, log.stretches) == (7, 7, ())


class Admin:
    def __init__(self, policy: str = "delete") -> None:
        self.policy = policy

    async def describe_configs(self, name: str) -> object:
        return [Some(key="flush", value="sync"), Some(key="cleanup.policy", value=self.policy)]

    async def describe_topic(self, name: str) -> object:
        return Some(partitions=[Some(partition=p, replicas=(2, 1)) for p in (1, 0)])

    async def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, object]:
        return {tp: Some(offset=tp.partition + 1) for tp in wanted}


def test_x2_every_replica_of_every_partition_is_read(tmp_path: Path) -> None:
    cluster = FakeCluster(base=tmp_path)
    for broker in ("broker-1", "broker-2"):
        for partition in (0, 1):
            folder = tmp_path / broker / f"t-{partition}"
            folder.mkdir(parents=True)
            (folder / segment_name(0)).write_bytes(ONE + TWO)
    found = run(read_replicas(cluster, Admin(), "t"))  # type: ignore[arg-type]
    assert [(each.partition, each.high_watermark) for each in found] == [(0, 1), (1, 2)]
    assert [[log.broker for log in each.replicas] for each in found] == [[1, 2], [1, 2]]
    assert PartitionReplicas.from_json(found[0].to_json()) == found[0]


def test_x2_a_replica_whose_folder_is_gone_holds_nothing(tmp_path: Path) -> None:
    found = run(read_replicas(FakeCluster(base=tmp_path), Admin(), "t"))  # type: ignore[arg-type]
    assert found[0].replicas == (ReplicaLog(1, 0, 0, ()), ReplicaLog(2, 0, 0, ()))
    assert check([], replicas=found).anomalies["replica-torn"].count == 4


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_x2_a_compacted_topic_is_not_judged(tmp_path: Path, policy: str) -> None:
    with pytest.raises(ClusterError, match=f"topic t has cleanup.policy={policy}: replicas of a compacted topic"):
        run(read_replicas(FakeCluster(base=tmp_path), Admin(policy), "t"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "rotten"),
    [(ONE + bytes([*TWO[:-1], TWO[-1] ^ 1]) + THREE, True), (ONE + TWO, False), (ONE + TWO[:-1], True), (b"", False)],
    ids=["flipped", "whole", "torn", "empty"],
)
def test_a_copy_is_rotten_while_a_flipped_bit_is_in_it(tmp_path: Path, stored: bytes, rotten: bool) -> None:
    cluster = FakeCluster(base=tmp_path)
    folder = tmp_path / "broker-1" / "t-0"
    folder.mkdir(parents=True)
    (folder / segment_name(0)).write_bytes(stored)
    observed = [{"broker-1": {FLIPPED: f"t-0/{segment_name(0)}"}}, {"broker-2": {FLIPPED: "t-1/gone.log"}}, {"x": 1}]
    assert run(rotten_copies(cluster, "t", observed)) == ([(1, 0)] if rotten else [])  # type: ignore[arg-type]
    assert run(rotten_copies(cluster, "other", observed)) == []  # type: ignore[arg-type]
