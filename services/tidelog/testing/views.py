"""Pictures of a simulated cluster for the invariants: the stored states, and what every living broker holds and believes."""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.broker.partition_host import PartitionHost
from tidelog.ids import TopicPartition
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.invariants import BatchView, LogView, PartitionView, ReplicaView, StoredView
from tidelog.testing.meta import SimZooKeeper
from tidelog.testing.meta_tree import Znode
from tidelog.wire import znodes
from tidelog.wire.batch import iter_batches

_READ_BYTES: Final = 1 << 30


def stored_states(tree: Mapping[str, Znode]) -> dict[TopicPartition, StoredView]:
    """Every partition with a state znode."""
    found = {}
    for path, node in tree.items():
        tp = partition_of(path)
        if tp is None:
            continue
        topic, partition = tp
        topic_node = tree.get(znodes.topic_path(topic))
        if topic_node is None:
            continue
        found[tp] = stored_state(topic, partition, node, topic_node)
    return found


def partition_of(path: str) -> TopicPartition | None:
    """Which partition's state is stored at `path`; None for any other znode."""
    if not path.startswith(znodes.TOPICS + "/") or not path.endswith("/state"):
        return None
    *_, topic, _, partition, _ = path.split("/")
    return TopicPartition(topic, int(partition))


def stored_state(topic: str, partition: int, node: Znode, topic_node: Znode) -> StoredView:
    assignment = znodes.decode_topic(topic, topic_node.data)
    state = znodes.decode_state(topic, partition, node.data)
    return StoredView(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=frozenset((x.broker_id, x.broker_epoch) for x in state.isr),
        replicas=tuple(assignment.partitions[partition]),
        version=node.stat.version,
        controller_epoch=state.controller_epoch,
        topic_id=assignment.topic_id,
        recovering=state.recovering,
    )


class BatchReader:
    """Batches of a log, read once: what was read before is read again only after a truncation."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[PartitionLog, int, LogView]] = {}

    def log(self, log: PartitionLog) -> LogView:
        kept, cuts, view = self._known.get(id(log), (log, -1, LogView()))
        if kept is not log or cuts != log.cuts:
            view = LogView()
        self._known[id(log)] = (log, log.cuts, view)
        start = view.batches[-1].end_offset if view.batches else log.log_start_offset
        while start < log.log_end_offset:
            records = log.read(start, _READ_BYTES, log.log_end_offset)
            view.extend(BatchView(h.base_offset, h.end_offset, h.leader_epoch, h.crc) for _, h in iter_batches(records))
            start = view.batches[-1].end_offset
        return view


def replica_view(host: PartitionHost, broker_id: int, broker_epoch: int, reader: BatchReader) -> ReplicaView | None:
    """None for a copy that is offline: it serves nobody."""
    if host.offline is not None or host.log.failure is not None:
        return None
    leading = host.replica.leading
    isr = leading.isr.maximal_isr if leading is not None else frozenset()
    return ReplicaView(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        leads=leading is not None,
        leader_epoch=host.replica.leader_epoch,
        high_watermark=host.replica.high_watermark,
        log_end_offset=host.replica.log_end_offset,
        log=reader.log(host.log),
        maximal_isr=frozenset((x.broker_id, x.broker_epoch) for x in isr),
        committed_isr_size=0 if leading is None else len(leading.isr.committed.isr),
        min_isr=0 if leading is None else min(leading.min_isr, leading.factor),
        epoch_start=0 if leading is None else leading.epoch_start,
        epoch_starts=host.log.epochs.entries,
        log_start_offset=host.log.log_start_offset,
    )


def partition_views(
    states: Mapping[TopicPartition, StoredView],
    brokers: Iterable[tuple[int, int, Iterable[PartitionHost]]],
    reader: BatchReader,
) -> list[PartitionView]:
    """`brokers`: (broker id, broker epoch, its partitions) of every one that lives."""
    replicas: dict[TopicPartition, dict[int, ReplicaView]] = {tp: {} for tp in states}
    for broker_id, broker_epoch, hosts in brokers:
        for host in hosts:
            view = replica_view(host, broker_id, broker_epoch, reader)
            if view is not None:
                replicas.setdefault(host.tp, {})[broker_id] = view
    return [PartitionView(tp, states.get(tp), found) for tp, found in sorted(replicas.items())]


def vetoed(states: Mapping[TopicPartition, StoredView], zookeeper: SimZooKeeper) -> frozenset[TopicPartition]:
    """Partitions that rightly have no leader: every member of the ISR is back in another life that lost something, as it says."""
    leaderless = {tp: stored for tp, stored in states.items() if stored.leader < 0}
    if not leaderless:
        return frozenset()
    registered = {}
    for name in zookeeper.below(znodes.BROKER_IDS):
        node = zookeeper.find(znodes.broker_path(int(name)))
        if node is not None:
            registered[int(name)] = (node.stat.czxid, znodes.decode_broker(int(name), node.data))
    found = set()
    for tp, stored in leaderless.items():
        lives = [(registered.get(broker), epoch) for broker, epoch in stored.isr]
        if all(r is not None and r[0] != epoch and not 0 <= r[1].intact_since <= epoch for r, epoch in lives):
            found.add(tp)
    return frozenset(found)
