"""The picture of a running cluster, made of an overview: what the controller says, and what each broker says of its replicas."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.client.overview import Overview, SeenBroker
from tidelog.ids import NO_LEADER, NO_OFFSET, BrokerId, TopicPartition
from tidelog.page.messages import shown
from tidelog.wire import messages as m

STANDS_S: Final = 1.5
"""A look takes a moment for each broker, so a high watermark that is behind for less may be none."""
_STATES: Final = {"alive": "up", "suspected": "unknown", "shutting_down": "stopping"}


@dataclass(slots=True)
class Pictures:
    """Makes pictures of one overview after the other. It remembers since when each high watermark is behind."""

    began_ms: int
    """The time of day at `t` 0."""
    _behind: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)
    """The high watermark of each partition whose log goes on above it, and the time at which that was seen first."""

    def picture(self, seen: Overview, events: int) -> dict[str, Any]:
        """events: how many events there were so far."""
        t = (seen.wall_ms - self.began_ms) / 1000
        rows = [self._partition(seen, topic, each) for topic in seen.topics for each in topic.partitions]
        return {
            "t": t,
            "n": events,
            "processes": list(_processes(seen)),
            **shown(rows),
            "groups": [_group(each.group) for each in seen.groups.values()],
            "faults": [seen.problem] if seen.problem else [],
            "verdict": None,
        }

    def _partition(self, seen: Overview, topic: m.TopicDescription, it: m.PartitionDescription) -> dict[str, Any]:
        tp = TopicPartition(topic.name, it.partition)
        replicas = [_replica(seen.brokers.get(BrokerId(broker)), broker, tp, it.leader) for broker in it.replicas]
        return {
            "topic": tp.topic,
            "number": tp.partition,
            "leader": it.leader,
            "epoch": it.leader_epoch,
            "isr": sorted(it.isr),
            "pending": None,
            "stands": self._stands(tp, it, replicas, seen.at),
            "replicas": replicas,
        }

    def _stands(
        self, tp: TopicPartition, it: m.PartitionDescription, replicas: Sequence[dict[str, Any]], at: float
    ) -> dict[str, Any] | None:
        leader = next((each for each in replicas if each["leads"]), None)
        if leader is None or not 0 <= leader["high"] < leader["end"]:
            self._behind.pop(tp, None)
            return None
        high, since = self._behind.setdefault(tp, (leader["high"], at))
        if high != leader["high"]:
            self._behind[tp] = (leader["high"], at)
            return None
        return {"seconds": round(at - since, 3), "why": _why(it, replicas, high)} if at - since >= STANDS_S else None


def _why(it: m.PartitionDescription, replicas: Sequence[dict[str, Any]], high: int) -> str:
    if len(it.isr) < it.min_isr:
        return f"the ISR has {len(it.isr)} members, and min.insync.replicas is {it.min_isr}"
    late = [f"broker-{each['broker']}" for each in replicas if each["broker"] in it.isr and each["end"] <= high]
    return f"{', '.join(late)} {'are' if len(late) > 1 else 'is'} in the ISR and behind" if late else "not known"


def _replica(broker: SeenBroker | None, number: int, tp: TopicPartition, leader: int) -> dict[str, Any]:
    """The last answer of a broker that is silent counts, and the state is unknown then."""
    told = None if broker is None else broker.replicas.get(tp)
    end = NO_OFFSET if told is None else told.offset
    log = None if told is None else told.own_log
    state = "unknown" if broker is None or broker.problem else "up" if end != NO_OFFSET else "offline"
    return {
        "broker": number,
        "state": "down" if broker is not None and broker.address is None else state,
        "leads": number == leader != NO_LEADER,
        "start": NO_OFFSET if log is None else log.log_start,
        "end": end,
        "high": NO_OFFSET if log is None else log.high_watermark,
        "epochs": [] if log is None else [[each.leader_epoch, each.start] for each in log.epochs],
    }


def _processes(seen: Overview) -> Iterator[dict[str, Any]]:
    described: Mapping[int, m.ClusterBroker] = (
        {} if seen.cluster is None else {each.broker.broker_id: each for each in seen.cluster.brokers}
    )
    leads: dict[int, int] = {}
    for topic in seen.topics:
        for each in topic.partitions:
            leads[each.leader] = leads.get(each.leader, 0) + 1
    for broker in seen.brokers.values():
        it = described.get(int(broker.broker_id))
        gone = broker.address is None or it is None
        state = "down" if gone else "unknown" if broker.problem else _STATES.get(it.state if it else "", "unknown")
        note = broker.problem or f"leads {leads.get(int(broker.broker_id), 0)}"
        yield _process(f"broker-{broker.broker_id}", "broker", state, note)
    if seen.cluster is not None:
        name, epoch = f"controller-{seen.cluster.controller_id}", seen.cluster.controller_epoch
        state, note = ("unknown", seen.problem) if seen.problem else ("up", f"active, epoch {epoch}")
        yield _process(name, "controller", state, note)
    for group in seen.groups.values():
        for member in group.group.members:
            connected = "up" if member.host and not seen.problem else "unknown"
            yield _process(member.client_id or member.consumer_id, "agent", connected, f"group {group.group.group_id}")


def _process(name: str, kind: str, state: str, note: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "state": state, "note": note, "faults": []}


def _group(group: m.DescribedGroup) -> dict[str, Any]:
    owners = {
        TopicPartition(each.topic, each.partition): member.consumer_id
        for member in group.members
        for each in member.partitions
    }
    committed = {TopicPartition(each.topic, each.partition): each.offset for each in group.offsets}
    return {
        "name": group.group_id,
        "generation": group.generation,
        "phase": group.state,
        "coordinator": "" if group.coordinator_id == NO_LEADER else f"broker-{group.coordinator_id}",
        "members": [{"name": member.consumer_id, "note": ""} for member in group.members],
        "partitions": [
            {
                "topic": tp.topic,
                "number": tp.partition,
                "owner": owners.get(tp, ""),
                "committed": committed.get(tp, NO_OFFSET),
                "processed": NO_OFFSET,
            }
            for tp in sorted({*owners, *committed})
        ],
    }
