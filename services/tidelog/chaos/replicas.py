"""X2: reads the segments of every replica of a topic, byte by byte, for the checker to compare.

What is a replica's own is left out: indexes, checkpoints, where a segment ends. What it is asked to hold is every batch.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

from tidelog.chaos.checker.replicas import PartitionReplicas, ReplicaLog, Stretch
from tidelog.chaos.faults.base import to_the_end
from tidelog.chaos.faults.disks import FLIPPED
from tidelog.client.admin import Admin
from tidelog.client.offsets import LATEST
from tidelog.cluster.api import Cluster, ClusterError, broker_id_of, broker_name
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.storage.log_store import parse_folder_name
from tidelog.storage.segment import parse_segment_name
from tidelog.topic_config import TopicConfig, known, parse
from tidelog.wire.batch import HEADER_BYTES, batch_size, read_header, whole_batch

DIGEST_BYTES = 16


async def read_replicas(cluster: Cluster, admin: Admin, topic: str) -> list[PartitionReplicas]:
    """Reads every partition, in order; a replica whose folder is gone holds nothing. ClusterError for a compacted topic.

    The high watermark is asked for first: a replica that is in sync then has everything below it in its files.
    """
    settings = {each.key: each.value for each in await admin.describe_configs(topic)}
    config = parse(known(settings), TopicConfig())
    if config.compacts:
        # Each replica compacts by itself, when it comes to it: their bytes differ, and what is gone is not lost.
        raise ClusterError(
            f"topic {topic} has cleanup.policy={config.cleanup_policy}: replicas of a compacted topic cannot be compared byte "
            "by byte (X2), nor can every record be asked for"
        )
    partitions = sorted((await admin.describe_topic(topic)).partitions, key=lambda each: each.partition)
    marks = await admin.list_offsets({TopicPartition(topic, each.partition): LATEST for each in partitions})
    found = []
    for each in partitions:
        tp = TopicPartition(topic, each.partition)
        logs = [await to_the_end(_read, cluster, broker, tp) for broker in sorted(each.replicas)]
        found.append(PartitionReplicas(topic, tp.partition, marks[tp].offset, tuple(logs)))
    return found


def _read(cluster: Cluster, broker: int, tp: TopicPartition) -> ReplicaLog:
    try:
        return replica_log(broker, cluster.files(broker_name(broker)).read(f"{tp.topic}-{tp.partition}"))
    except FileNotFoundError:
        return ReplicaLog(broker, 0, 0, ())


async def rotten_copies(
    cluster: Cluster, topic: str, observed: Iterable[Mapping[str, object]]
) -> list[tuple[int, int]]:
    """(broker, partition) of each copy in which a fault has flipped a bit, and which still holds a batch that fails its checksum:
    no scrub has come to it yet. `observed`: by faults of their targets."""
    found: dict[tuple[int, int], None] = {}
    for each in observed:
        for target, seen in each.items():
            path = seen.get(FLIPPED, "") if isinstance(seen, Mapping) else ""
            tp = parse_folder_name(path.partition("/")[0])
            if tp is not None and tp.topic == topic and await to_the_end(_is_rotten, cluster, target, tp):
                found[broker_id_of(target), tp.partition] = None
    return list(found)


def _is_rotten(cluster: Cluster, target: str, tp: TopicPartition) -> bool:
    try:
        files = cluster.files(target).read(f"{tp.topic}-{tp.partition}")
    except FileNotFoundError:
        return False
    return not all(_is_whole(data) for name, data in files.items() if parse_segment_name(name) is not None)


def _is_whole(segment: bytes) -> bool:
    at = 0
    while at < len(segment):
        try:
            at += whole_batch(segment, at).size_bytes
        except TidelogError:
            return False
    return True


def replica_log(broker: int, files: Mapping[str, bytes]) -> ReplicaLog:
    """`files` are those of the replica's folder by name."""
    segments = {base: data for name, data in files.items() if (base := parse_segment_name(name)) is not None}
    start = min(segments, default=0)
    stretches = tuple(stretch for base in sorted(segments) for stretch in _batches(segments[base]))
    return ReplicaLog(broker, start, stretches[-1].end if stretches else start, stretches)


def _batches(data: bytes) -> Iterator[Stretch]:
    """As long as they lie whole in `data`; nothing is checked, since altered bytes are what is looked for."""
    view, at = memoryview(data), 0
    while len(data) - at >= HEADER_BYTES:
        size = batch_size(data, at)
        if not HEADER_BYTES <= size <= len(data) - at:
            return
        header = read_header(data, at)
        digest = blake2b(view[at : at + size], digest_size=DIGEST_BYTES).hexdigest()
        yield Stretch(header.base_offset, header.end_offset, digest)
        at += size
