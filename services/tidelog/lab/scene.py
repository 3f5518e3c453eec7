"""Pictures of a simulated cluster as the page draws them; docs/internals/page.md has their format."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.broker.partition_host import PartitionHost
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.lab.clients import ACKS, Clients
from tidelog.lab.cluster import SLOW_OPS, LabCluster
from tidelog.lab.shown import Shown
from tidelog.lab.view import DOWN, UP, Partition, Replica
from tidelog.page.messages import shown
from tidelog.replica.isr import PendingExpand, PendingShrink
from tidelog.replica.leader import LeaderState
from tidelog.testing.net_exchange import Faults, Link
from tidelog.testing.sim_agent import AgentNode
from tidelog.testing.sim_node import ZOOKEEPER, SimNode
from tidelog.testing.sim_twins import Twin
from tidelog.wire import znodes

STANDS_S: Final = 0.1
"""A high watermark that is behind for less than this is not worth a word."""
SILENT_S: Final = 1.0
"""A member answers pings several times in its session timeout; a pause that is shorter than this is none."""
_OFFLINE: Final = "offline"
_UNKNOWN: Final = "unknown"


def scene(cluster: Shown, partitions: Sequence[Partition]) -> dict[str, Any]:
    """Returns everything of a picture but its verdict and the number of its events.

    partitions: all of this moment.
    """
    leaders = _leaders(cluster)
    rows = [_partition(cluster, each, leaders.get(_tp(each))) for each in partitions]
    return {
        "t": round(cluster.now(), 6),
        "processes": [*_processes(cluster), *(_producers(cluster) if isinstance(cluster, LabCluster) else ())],
        **shown(rows),
        "groups": [_group(cluster, name) for name in cluster.view.groups()],
        "faults": sorted(_link_faults(cluster)),
    }


def _tp(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.number)


# -- partitions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Leader:
    """The newest leader of a partition, as brokers believe."""

    broker: int
    host: PartitionHost
    state: LeaderState


def _leaders(cluster: Shown) -> dict[TopicPartition, _Leader]:
    found: dict[TopicPartition, _Leader] = {}
    for node in cluster.sim.brokers:
        for host in node.hosts():
            known, leading = found.get(host.tp), host.replica.leading
            if leading is not None and (known is None or known.host.replica.leader_epoch < host.replica.leader_epoch):
                found[host.tp] = _Leader(node.number, host, leading)
    return found


def _partition(cluster: Shown, partition: Partition, leader: _Leader | None) -> dict[str, Any]:
    left = cluster.view.left(_tp(partition))
    return {
        "topic": partition.topic,
        "number": partition.number,
        "leader": partition.leader,
        "epoch": partition.epoch,
        "isr": list(partition.isr),
        "pending": None if leader is None else _pending(leader.state),
        "stands": None if leader is None else _stands(cluster, leader),
        "replicas": [
            _replica(cluster.sim.nodes[f"broker-{broker}"], partition.at.get(broker), left.get(broker))
            for broker in _brokers(partition)
        ],
    }


def _brokers(partition: Partition) -> list[int]:
    """The assignment, and brokers that have a log that they no longer should have."""
    return [*partition.replicas, *sorted(set(partition.at) - set(partition.replicas))]


def _replica(node: SimNode, replica: Replica | None, left: Replica | None) -> dict[str, Any]:
    """left: what the last life of the broker had, which counts until this life has opened its log."""
    found = replica or left
    if found is None:
        offsets: dict[str, Any] = {"start": NO_OFFSET, "end": NO_OFFSET, "high": NO_OFFSET, "epochs": []}
    else:
        epochs = [list(each) for each in found.epochs]
        offsets = {"start": found.log_start, "end": found.log_end, "high": found.high_watermark, "epochs": epochs}
    return {
        "broker": node.number,
        "state": _state(node, replica),
        "leads": replica is not None and replica.leads,
        **offsets,
    }


def _state(node: SimNode, replica: Replica | None) -> str:
    if replica is None:
        return _UNKNOWN if node.running else DOWN
    return _OFFLINE if replica.offline else UP


def _pending(leading: LeaderState) -> list[int] | None:
    """The ISR that a leader has asked for."""
    match leading.isr:
        case PendingExpand(proposed=proposed) | PendingShrink(proposed=proposed):
            return sorted(member.broker_id for member in proposed)
    return None


def _stands(cluster: Shown, leader: _Leader) -> dict[str, Any] | None:
    """For how long a high watermark is behind, and why."""
    since = cluster.sim.observer.behind_since(leader.host.replica)
    if since is None or cluster.now() - since < STANDS_S:
        return None
    return {"seconds": round(cluster.now() - since, 3), "why": _why_it_stands(leader)}


def _why_it_stands(leader: _Leader) -> str:
    leading, high_watermark = leader.state, leader.host.replica.high_watermark
    if leading.under_min_isr:
        return f"the ISR has {len(leading.isr.committed.isr)} members, and min.insync.replicas is {leading.min_isr}"
    behind = {
        member.broker_id
        for member in leading.isr.maximal_isr
        if member.broker_id != leader.broker
        and ((found := leading.progress.get(member.broker_id)) is None or found.offset <= high_watermark)
    }
    if not behind:
        return "commits are on their way"
    names = ", ".join(f"broker-{each}" for each in sorted(behind))
    match leading.isr:
        case PendingShrink(leaving=leaving) if behind <= {member.broker_id for member in leaving}:
            return f"the controller has not confirmed yet that {names} left the ISR"
        case PendingExpand(joining=joining) if behind <= {member.broker_id for member in joining}:
            return f"{names} may have joined the ISR, which the controller has not confirmed yet"
    return f"{names} {'are' if len(behind) > 1 else 'is'} in the ISR and behind"


# -- processes -----------------------------------------------------------------------------------------------------------


def _processes(cluster: Shown) -> Iterator[dict[str, Any]]:
    states, controller = cluster.view.processes(), cluster.view.controller
    epoch = cluster.sim.zookeeper.find(znodes.CONTROLLER_EPOCH)
    acting = f"active, epoch {int(epoch.data)}" if epoch is not None else "active"
    sessions = len(cluster.sim.zookeeper.live_sessions)
    for name, node in cluster.sim.world.everything.items():
        note = "" if states[name] == DOWN else acting if name == controller else _note(node)
        kind = name.partition("-")[0]
        yield {"name": name, "kind": kind, "state": states[name], "note": note, "faults": list(_ailments(node))}
    note = f"{sessions} session{'' if sessions == 1 else 's'}"
    yield {"name": ZOOKEEPER, "kind": ZOOKEEPER, "state": states[ZOOKEEPER], "note": note, "faults": []}


def _note(node: SimNode) -> str:
    if isinstance(node, AgentNode):
        return f"group {node.habits.group}"
    if isinstance(node, Twin):
        return f"a second process of {node.first.name}"
    if node.is_broker:
        return f"leads {sum(host.replica.leading is not None for host in node.hosts())}"
    return "standby"


def _ailments(node: SimNode) -> Iterator[str]:
    if any(meta.is_cut for meta in (node.meta, node.coordinator_meta) if meta is not None) and node.running:
        yield "cut off from zookeeper"
    if node.disk.capacity_bytes is not None:
        yield "its disk is full"
    if seconds := max(map(node.disk.slowed, SLOW_OPS)):
        yield f"its disk takes {seconds:g} s a write"
    if node.clock.wall_offset_ms:
        yield f"its calendar is off by {node.clock.wall_offset_ms / 1000:+g} s"


def _producers(cluster: LabCluster) -> Iterator[dict[str, Any]]:
    for acks in ACKS:
        rates = [f"{rate:g} records/s to {topic}" for topic, (rate, its) in cluster.rates.items() if its == acks]
        waiting = cluster.clients.tally.waiting[acks]
        if rates or waiting or acks == ACKS[0]:
            note = ", ".join([f"acks={acks}", *rates, f"{waiting:,} waiting"])
            yield {"name": Clients.name_of(acks), "kind": "producer", "state": UP, "note": note, "faults": []}


def _link_faults(cluster: Shown) -> Iterator[str]:
    usual = cluster.sim.network.link_faults
    if usual != Faults():
        yield f"every link takes up to {usual.delay_s[1]:g} s, loses {usual.loss:.1%} and repeats {usual.duplicate:.0%}"
    links = {(link.source, link.target): link for link in cluster.sim.network.disturbed()}
    cut = {ends for ends, link in links.items() if link.is_cut}
    names = set(cluster.sim.network.nodes)
    alone = {one for one in names if len(names) > 2 and all({(one, x), (x, one)} <= cut for x in names - {one})}
    yield from (f"{one} is cut off from all others" for one in alone)
    for (source, target), link in links.items():
        if not alone & {source, target}:
            both = (target, source) in cut
            if link.is_cut and not (both and source > target):
                yield f"{source} {'<->' if both else '->'} {target} is cut"
            yield from _slow(link, usual.delay_s)


def _slow(link: Link, usual: tuple[float, float]) -> Iterator[str]:
    if link.faults.delay_s != usual:
        yield f"{link.source} -> {link.target} takes {link.faults.delay_s[1]:g} s"
    if link.faults.loss:
        yield f"{link.source} -> {link.target} loses {link.faults.loss:.0%}"


# -- groups --------------------------------------------------------------------------------------------------------------


def _silence(cluster: Shown, group: str, member: str) -> str:
    """The time for which the coordinator has not heard of a member, whose lease goes on meanwhile."""
    found = cluster.view.silence(group, member)
    if found is None or found[0] < SILENT_S:
        return ""
    return f"silent for {found[0]:.1f} s; its lease ends after {found[1]:.1f} s"


def _group(cluster: Shown, name: str) -> dict[str, Any]:
    group = cluster.view.group(name)
    tps = sorted({*group.owners, *group.committed, *group.processed})
    return {
        "name": name,
        "generation": group.generation,
        "phase": group.phase,
        "coordinator": cluster.view.coordinator(name),
        "members": [{"name": each, "note": _silence(cluster, name, each)} for each in group.members],
        "partitions": [
            {
                "topic": tp.topic,
                "number": tp.partition,
                "owner": group.owners.get(tp, ""),
                "committed": group.committed.get(tp, NO_OFFSET),
                "processed": group.processed.get(tp, NO_OFFSET),
            }
            for tp in tps
        ],
    }
