"""What `tidelog top` shows, worked out of the newest overview of a cluster and the one before: the worst comes first. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from tidelog.client.overview import NO_CONTROLLER, Overview, SeenBroker, SeenGroup, Told
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m

DOWN: Final = "down"
_CALM_STATES: Final = ("Stable", "Empty")


class Level(IntEnum):
    FINE = 0
    UNEASY = 1
    BAD = 2


class Status(IntEnum):
    """What is wrong with a partition; the worst has the largest number."""

    FINE = 0
    NOT_PREFERRED = 1
    RECOVERING = 2
    UNDER_REPLICATED = 3
    UNDER_MIN_ISR = 4
    LEADER_SILENT = 5
    OFFLINE = 6
    VETOED = 7

    @property
    def level(self) -> Level:
        if self <= Status.NOT_PREFERRED:
            return Level.FINE
        return Level.UNEASY if self <= Status.UNDER_REPLICATED else Level.BAD

    @property
    def text(self) -> str:
        return "" if self is Status.FINE else _STATUS_TEXTS.get(self) or self.name.lower().replace("_", " ")


_STATUS_TEXTS: Final = {Status.UNDER_MIN_ISR: "under min ISR", Status.UNDER_REPLICATED: "under-replicated"}


class BrokerRow(NamedTuple):
    broker_id: int
    address: str
    state: str
    """alive, suspected, shutting_down as the controller says, or down: it is not in the cluster."""
    silent_s: float | None
    """Since its last answer; None: it has answered now, or never."""
    problem: str
    leaders: int
    replicas: int
    out_of_sync: int
    """Replicas on it that are not in their ISR."""
    behind: int
    """Records that its replicas lack, all together."""
    rate: float | None
    groups: int
    level: Level


class PartitionRow(NamedTuple):
    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    high_watermark: int | None
    log_end: int | None
    """The leader's."""
    behind: Mapping[int, int]
    """Records of the leader's log that a replica lacks, of those of which it is known."""
    rate: float | None
    """Committed records a second."""
    status: Status

    @property
    def lag(self) -> int | None:
        """Of the slowest replica."""
        return max(self.behind.values(), default=None)

    @property
    def level(self) -> Level:
        return self.status.level


class GroupRow(NamedTuple):
    group_id: str
    state: str
    coordinator: int
    generation: int
    members: int
    partitions: int
    """Owned by a member, or with a committed offset."""
    lag: int | None
    rate: float | None
    """Committed a second."""
    silent_s: float | None
    """Since its coordinator last spoke of it; None: now."""
    level: Level


@dataclass(frozen=True, slots=True)
class View:
    wall_ms: int
    cluster_id: str
    controller: int | None
    controller_epoch: int
    described_ago_s: float | None
    """How old the controller's word is; None: there is none."""
    topics: int
    partition_count: int
    offline: int
    under_replicated: int
    under_min_isr: int
    rate: float | None
    brokers: tuple[BrokerRow, ...]
    """The worst first, like partitions and groups."""
    partitions: tuple[PartitionRow, ...]
    groups: tuple[GroupRow, ...]
    problems: tuple[str, ...]
    """What cannot be seen now, in words."""


def view_of(before: Overview | None, now: Overview) -> View:
    rows = [_partition(topic, p, before, now) for topic in now.topics for p in topic.partitions]
    cluster = now.cluster
    rates = [row.rate for row in rows if row.rate is not None]
    return View(
        wall_ms=now.wall_ms,
        cluster_id=cluster.cluster_id if cluster is not None else "",
        controller=_office_holder(now),
        controller_epoch=cluster.controller_epoch if cluster is not None else -1,
        described_ago_s=None if now.described_at is None else now.at - now.described_at,
        topics=cluster.topics if cluster is not None else 0,
        partition_count=cluster.partitions if cluster is not None else 0,
        offline=cluster.leaderless_partitions if cluster is not None else 0,
        under_replicated=cluster.under_replicated_partitions if cluster is not None else 0,
        under_min_isr=cluster.under_min_isr_partitions if cluster is not None else 0,
        rate=sum(rates) if rates else None,
        brokers=_brokers(now, rows),
        partitions=tuple(sorted(rows, key=lambda r: (-r.status, -(r.lag or 0), r.topic, r.partition))),
        groups=_groups(before, now),
        problems=_problems(now),
    )


def _office_holder(now: Overview) -> int | None:
    """As far as is known."""
    return None if now.cluster is None or now.problem == NO_CONTROLLER else now.cluster.controller_id


def _rate(before: Told | None, now: Told | None) -> float | None:
    """A second; None where two moments are not known. What fell was another log: a topic that was made anew."""
    if before is None or now is None or now.at <= before.at:
        return None
    return max(0.0, (now.offset - before.offset) / (now.at - before.at))


def _partition(
    topic: m.TopicDescription, p: m.PartitionDescription, before: Overview | None, now: Overview
) -> PartitionRow:
    tp = TopicPartition(topic.name, p.partition)
    ends = {r: now.brokers[BrokerId(r)].log_end(tp) for r in p.replicas if BrokerId(r) in now.brokers}
    end = ends.get(p.leader)
    others = {r: its for r, its in ends.items() if r != p.leader}
    told = now.high_watermarks.get(tp)
    return PartitionRow(
        topic=topic.name,
        partition=p.partition,
        leader=None if p.leader < 0 else p.leader,
        leader_epoch=p.leader_epoch,
        replicas=p.replicas,
        isr=p.isr,
        high_watermark=None if told is None else told.offset,
        log_end=end,
        # Replicas answer one after the other: a follower may by then have more than its leader had.
        behind={r: max(0, end - its) for r, its in others.items() if its is not None} if end is not None else {},
        rate=_rate(before.high_watermarks.get(tp) if before is not None else None, told),
        status=_status(p, now.brokers),
    )


def _status(p: m.PartitionDescription, brokers: Mapping[BrokerId, SeenBroker]) -> Status:
    leader = brokers.get(BrokerId(p.leader))
    found = [
        (p.vetoed, Status.VETOED),
        (p.leader < 0, Status.OFFLINE),
        (leader is None or leader.problem != "", Status.LEADER_SILENT),
        (len(p.isr) < p.min_isr, Status.UNDER_MIN_ISR),
        (len(p.isr) < len(p.replicas) - len(p.adding_replicas), Status.UNDER_REPLICATED),
        (p.recovering, Status.RECOVERING),
        (p.replicas[:1] != (p.leader,), Status.NOT_PREFERRED),
    ]
    return next((status for is_so, status in found if is_so), Status.FINE)


# -- brokers ----------------------------------------------------------------------------------------------------------


def _brokers(now: Overview, rows: Sequence[PartitionRow]) -> tuple[BrokerRow, ...]:
    listed = {b.broker.broker_id: b for b in now.cluster.brokers} if now.cluster is not None else {}
    found = [_broker(now, broker, listed.get(number), rows) for number, broker in now.brokers.items()]
    return tuple(sorted(found, key=lambda row: (-row.level, row.broker_id)))


def _broker(now: Overview, seen: SeenBroker, listed: m.ClusterBroker | None, rows: Sequence[PartitionRow]) -> BrokerRow:
    number = int(seen.broker_id)
    led = [row for row in rows if row.leader == number]
    held = [row for row in rows if number in row.replicas]
    rates = [row.rate for row in led if row.rate is not None]
    state = listed.state if listed is not None else DOWN
    out_of_sync = sum(number not in row.isr for row in held)
    level = (
        Level.BAD if seen.problem or state == DOWN else Level.UNEASY if out_of_sync or state != "alive" else Level.FINE
    )
    return BrokerRow(
        broker_id=number,
        address="" if seen.address is None else str(seen.address),
        state=state,
        silent_s=now.at - seen.answered_at if seen.problem and seen.answered_at is not None else None,
        problem=seen.problem,
        leaders=listed.leaders if listed is not None else len(led),
        replicas=listed.replicas if listed is not None else len(held),
        out_of_sync=out_of_sync,
        behind=sum(row.behind.get(number, 0) for row in held),
        rate=None if seen.problem else sum(rates),
        groups=sum(each.group.coordinator_id == number for each in now.groups.values()),
        level=level,
    )


# -- groups -----------------------------------------------------------------------------------------------------------


def _groups(before: Overview | None, now: Overview) -> tuple[GroupRow, ...]:
    rows = [
        _group(before.groups.get(name) if before is not None else None, seen, now) for name, seen in now.groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.level, -(row.lag or 0), row.group_id)))


def _group(before: SeenGroup | None, seen: SeenGroup, now: Overview) -> GroupRow:
    group = seen.group
    offsets = _offsets(group)
    owned = {TopicPartition(p.topic, p.partition) for member in group.members for p in member.partitions}
    known = {tp: now.high_watermarks[tp].offset for tp in offsets if tp in now.high_watermarks}
    coordinator = now.brokers.get(BrokerId(group.coordinator_id))
    silent = coordinator is None or coordinator.problem != ""
    # A coordinator that answered and did not name the group has only just been elected, or is one no more.
    aged = silent or (
        coordinator is not None and coordinator.answered_at is not None and seen.at < coordinator.answered_at
    )
    return GroupRow(
        group_id=group.group_id,
        state=group.state,
        coordinator=group.coordinator_id,
        generation=group.generation,
        members=len(group.members),
        partitions=len(owned | offsets.keys()),
        lag=sum(max(0, end - offsets[tp]) for tp, end in known.items()) if known else None,
        rate=_commit_rate(before, seen),
        silent_s=now.at - seen.at if aged else None,
        level=Level.BAD if aged else Level.FINE if group.state in _CALM_STATES else Level.UNEASY,
    )


def _commit_rate(before: SeenGroup | None, now: SeenGroup) -> float | None:
    if before is None:
        return None
    old, new = _offsets(before.group), _offsets(now.group)
    return _rate(
        Told(sum(old[tp] for tp in old.keys() & new.keys()), before.at),
        Told(sum(new[tp] for tp in old.keys() & new.keys()), now.at),
    )


def _offsets(group: m.DescribedGroup) -> dict[TopicPartition, int]:
    return {TopicPartition(o.topic, o.partition): o.offset for o in group.offsets if o.offset >= 0}


# -- what cannot be seen ----------------------------------------------------------------------------------------------


def _problems(now: Overview) -> tuple[str, ...]:
    found = []
    if not now.heard:
        found.append(f"no broker answers ({now.problem}); it is tried again")
    elif now.problem:
        what = now.problem if now.problem == NO_CONTROLLER else f"nothing is heard of the controller ({now.problem})"
        found.append(f"{what}; it is tried again")
    if now.problem:
        old = f"{now.at - now.described_at:.0f} s old" if now.described_at is not None else "not known yet"
        found.append(f"leaders and ISRs are {old}")
    silent = [broker for broker in now.brokers.values() if broker.problem]
    if silent and now.heard:
        found.append(f"no answer from {_named('broker', (broker.broker_id for broker in silent))}")
    return tuple(found)


def _named(kind: str, numbers: Iterable[int]) -> str:
    items = [str(number) for number in sorted(numbers)]
    return f"{kind} {items[0]}" if len(items) == 1 else f"{kind}s {', '.join(items[:-1])} and {items[-1]}"


# -- for programs -----------------------------------------------------------------------------------------------------


def json_of(view: View) -> dict[str, Any]:
    return {
        "timestamp": view.wall_ms,
        "clusterId": view.cluster_id or None,
        "controllerId": view.controller,
        "controllerEpoch": None if view.controller_epoch < 0 else view.controller_epoch,
        "describedAgoS": _rounded(view.described_ago_s),
        "topics": view.topics,
        "partitionCount": view.partition_count,
        "leaderlessPartitions": view.offline,
        "underReplicatedPartitions": view.under_replicated,
        "underMinIsrPartitions": view.under_min_isr,
        "recordsPerS": _rounded(view.rate),
        "problems": list(view.problems),
        "brokers": [
            {
                "id": b.broker_id,
                "address": b.address or None,
                "state": b.state,
                "answers": not b.problem,
                "silentS": _rounded(b.silent_s),
                "leaders": b.leaders,
                "replicas": b.replicas,
                "outOfSync": b.out_of_sync,
                "behind": b.behind,
                "recordsPerS": _rounded(b.rate),
                "groups": b.groups,
            }
            for b in view.brokers
        ],
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "leader": p.leader,
                "leaderEpoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "highWatermark": p.high_watermark,
                "logEndOffset": p.log_end,
                "lag": p.lag,
                "behind": {str(replica): lag for replica, lag in p.behind.items()},
                "recordsPerS": _rounded(p.rate),
                "status": p.status.text or None,
            }
            for p in view.partitions
        ],
        "groups": [
            {
                "group": g.group_id,
                "state": g.state,
                "coordinator": g.coordinator,
                "generation": g.generation,
                "members": g.members,
                "partitions": g.partitions,
                "lag": g.lag,
                "commitsPerS": _rounded(g.rate),
                "silentS": _rounded(g.silent_s),
            }
            for g in view.groups
        ],
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)
