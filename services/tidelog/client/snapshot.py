"""What a client knows of the cluster, as a value. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from tidelog.errors import ErrorCode
from tidelog.ids import NO_LEADER, Address, BrokerId, TopicPartition
from tidelog.wire import messages as m


class Leadership(NamedTuple):
    leader: BrokerId
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    topic_id: bytes
    partitions: tuple[Leadership, ...]
    """Index is the partition; `NO_LEADER` where nobody leads."""

    @property
    def available(self) -> tuple[int, ...]:
        return tuple(p for p, led in enumerate(self.partitions) if led.leader != NO_LEADER)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    cluster_id: str = ""
    controller_id: int = -1
    brokers: Mapping[BrokerId, Address] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: MappingProxyType({}))
    errors: Mapping[str, ErrorCode] = field(default_factory=lambda: MappingProxyType({}))
    """Of topics that were asked for and not described."""

    def leadership(self, tp: TopicPartition) -> Leadership | None:
        """None while the partition, or a leader whose address is known, is not known."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        led = topic.partitions[tp.partition]
        return led if led.leader in self.brokers else None

    def updated(self, answer: m.ClusterMetadataResponse) -> "ClusterSnapshot":
        """The answer wins, except where it knows an older leader epoch: brokers learn of an election at different times."""
        topics = dict(self.topics)
        errors: dict[str, ErrorCode] = {}
        for topic in answer.topics:
            if topic.error_code is not ErrorCode.NONE:
                topics.pop(topic.topic, None)
                errors[topic.topic] = topic.error_code
                continue
            topics[topic.topic] = _merged(self.topics.get(topic.topic), topic)
        return ClusterSnapshot(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            brokers={BrokerId(b.id): Address(b.host, b.port) for b in answer.brokers_info},
            topics=topics,
            errors=errors,
        )

    def hinted(self, tp: TopicPartition, leader: int, leader_epoch: int) -> "ClusterSnapshot":
        """With the leader that a refusing broker named; itself if that is not news."""
        topic = self.topics.get(tp.topic)
        if topic is None or leader not in self.brokers or tp.partition >= len(topic.partitions):
            return self
        if leader_epoch <= topic.partitions[tp.partition].leader_epoch:
            return self
        partitions = list(topic.partitions)
        partitions[tp.partition] = Leadership(BrokerId(leader), leader_epoch)
        return replace(self, topics={**self.topics, tp.topic: replace(topic, partitions=tuple(partitions))})


def _merged(known: TopicInfo | None, answer: m.TopicMetadata) -> TopicInfo:
    partitions = [Leadership(NO_LEADER, -1)] * (1 + max((p.partition for p in answer.partitions), default=-1))
    for p in answer.partitions:
        partitions[p.partition] = Leadership(BrokerId(p.leader), p.leader_epoch)
    if known is not None and known.topic_id == answer.topic_id:
        for index, (old, new) in enumerate(zip(known.partitions, partitions, strict=False)):
            if old.leader_epoch > new.leader_epoch:
                partitions[index] = old
    return TopicInfo(answer.topic_id, tuple(partitions))
