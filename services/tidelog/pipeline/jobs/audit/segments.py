"""The logs of replicas, read from the segments of a run that kept its cluster."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tidelog.chaos.checker.replicas import ReplicaLog
from tidelog.chaos.replicas import replica_log
from tidelog.cluster.api import BROKER
from tidelog.ids import TopicPartition
from tidelog.storage.segment import parse_segment_name

CLUSTER: Final = "cluster"
"""Where a run keeps its cluster, if it was told to."""
Folder = tuple[int, TopicPartition, int, Path]
"""Run, partition, broker and where its segments are."""


def segments_of(
    spark: SparkSession, directories: Mapping[int, Path]
) -> Mapping[int, Mapping[TopicPartition, list[ReplicaLog]]]:
    """Run that kept its cluster to partition to logs, in the order of brokers. A task a folder."""
    folders = [folder for run, directory in directories.items() for folder in _folders(run, directory / CLUSTER)]
    found: dict[int, dict[TopicPartition, list[ReplicaLog]]] = defaultdict(lambda: defaultdict(list))
    if folders:
        for run, tp, log in spark.sparkContext.parallelize(folders, len(folders)).map(_read).collect():
            found[run][tp].append(log)
    return found


def _folders(run: int, cluster: Path) -> Iterator[Folder]:
    for home in sorted(cluster.glob(f"{BROKER}-*")):
        for folder in sorted((home / "data").glob("*-*")):
            topic, _, partition = folder.name.rpartition("-")
            broker = home.name.rpartition("-")[2]
            if partition.isdecimal() and broker.isdecimal() and folder.is_dir():
                yield run, TopicPartition(topic, int(partition)), int(broker), folder.resolve()


def _read(folder: Folder) -> tuple[int, TopicPartition, ReplicaLog]:
    """A segment at a time."""
    run, tp, broker, path = folder
    files = sorted(file for file in path.glob("*.log") if parse_segment_name(file.name) is not None)
    logs = [replica_log(broker, {file.name: file.read_bytes()}) for file in files]
    stretches = tuple(stretch for log in logs for stretch in log.stretches)
    start = logs[0].log_start if logs else 0
    return run, tp, ReplicaLog(broker, start, stretches[-1].end if stretches else start, stretches)
