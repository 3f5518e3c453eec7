"""Overviews of clusters, made by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidelog.client.overview import Overview, SeenBroker, SeenGroup, Told
from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.wire import messages as m

AT = 100.0


def partition(
    number: int = 0, leader: int = 0, isr: Sequence[int] = (0, 1, 2), **fields: Any
) -> m.PartitionDescription:
    known: dict[str, Any] = {"leader_epoch": 4, "replicas": (0, 1, 2), "partition_epoch": 9, "min_isr": 2}
    return m.PartitionDescription(partition=number, leader=leader, isr=tuple(isr), **{**known, **fields})


def topic(name: str, *partitions: m.PartitionDescription) -> m.TopicDescription:
    return m.TopicDescription(name=name, topic_id=name.encode(), partitions=partitions)


def broker(
    number: int, ends: Mapping[tuple[str, int], int] | None = None, log: m.OwnLog | None = None, **fields: Any
) -> SeenBroker:
    """It has answered just now, unless `fields` say otherwise. `ends`: of its logs; `log`: the rest of each."""
    known: dict[str, Any] = {"address": Address("localhost", 19092 + number), "problem": "", "answered_at": AT}
    replicas = {
        TopicPartition(*tp): m.ListOffsetsResult(
            topic=tp[0], partition=tp[1], timestamp=-1, offset=end, leader_epoch=4, own_log=log
        )
        for tp, end in (ends or {}).items()
    }
    return SeenBroker(BrokerId(number), **{**known, "replicas": replicas, **fields})


def described(topics: Sequence[m.TopicDescription], live: Sequence[int] = (0, 1, 2)) -> m.DescribeClusterResponse:
    partitions = [p for t in topics for p in t.partitions]
    return m.DescribeClusterResponse(
        cluster_id="Kq7pZ0eXTdC9xM2b1u4A5w",
        controller_id=1,
        controller_epoch=3,
        brokers=tuple(
            m.ClusterBroker(
                broker=m.LiveBroker(broker_id=number, broker_epoch=7, fetch_max_bytes=0),
                state="alive",
                leaders=sum(p.leader == number for p in partitions),
                replicas=sum(number in p.replicas for p in partitions),
                feature_level=2,
            )
            for number in live
        ),
        topics=len(topics),
        partitions=len(partitions),
        leaderless_partitions=sum(p.leader < 0 for p in partitions),
        under_replicated_partitions=sum(len(p.isr) < len(p.replicas) for p in partitions),
        under_min_isr_partitions=sum(len(p.isr) < p.min_isr for p in partitions),
        feature_level=2,
    )


def overview(
    *topics: m.TopicDescription,
    brokers: Sequence[SeenBroker] | None = None,
    high_watermarks: Mapping[tuple[str, int], int] | None = None,
    groups: Sequence[SeenGroup] = (),
    **fields: Any,
) -> Overview:
    """Everybody answers and everything was told at AT, unless the arguments say otherwise."""
    seen = [broker(number) for number in (0, 1, 2)] if brokers is None else brokers
    known: dict[str, Any] = {"at": AT, "wall_ms": 1_700_000_000_000, "described_at": AT, "problem": ""}
    known["cluster"] = described(topics)
    return Overview(
        topics=topics,
        brokers={each.broker_id: each for each in seen},
        high_watermarks={TopicPartition(*tp): Told(offset, AT) for tp, offset in (high_watermarks or {}).items()},
        groups={each.group.group_id: each for each in groups},
        **{**known, **fields},
    )


def group(
    name: str,
    offsets: Mapping[tuple[str, int], int] | None = None,
    owned: Sequence[tuple[str, int]] = (),
    at: float = AT,
    **fields: Any,
) -> SeenGroup:
    """With one member, if `owned` says what it has."""
    member = m.DescribedMember(
        consumer_id="c",
        client_id="c",
        host="",
        topic_count="{}",
        session_timeout_ms=6000,
        partitions=tuple(m.PartitionName(topic=t, partition=p) for t, p in owned),
        watch_port=0,
    )
    known: dict[str, Any] = {"state": "Stable", "coordinator_id": 0, "coordinator_epoch": 2, "generation": 5}
    return SeenGroup(
        m.DescribedGroup(
            group_id=name,
            members=(member,) if owned else (),
            offsets=tuple(
                m.OffsetInfo(topic=t, partition=p, offset=offset, leader_epoch=0)
                for (t, p), offset in (offsets or {}).items()
            ),
            **{**known, **fields},
        ),
        at,
    )


def later(before: Overview, seconds: float, **high_watermarks: int) -> Overview:
    """`before`, with every clock moved on; `high_watermarks` go by the topic of a partition 0."""
    now = before.at + seconds
    moved = {TopicPartition(name, 0): Told(offset, now) for name, offset in high_watermarks.items()}
    return replace(
        before,
        at=now,
        described_at=now,
        brokers={number: replace(each, answered_at=now) for number, each in before.brokers.items()},
        high_watermarks={**before.high_watermarks, **moved},
    )
