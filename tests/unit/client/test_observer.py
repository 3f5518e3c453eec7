"""Looking at a whole cluster, against brokers in memory: few requests, and nobody silent hides the others."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from helpers.batches import batch
from helpers.brokers import Brokers, brokers, no_tasks_left
from tidelog.client.observer import ClusterObserver
from tidelog.client.overview import NO_CONTROLLER, Overview
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def filled(**options: Any) -> tuple[Brokers, list[str]]:
    """Topics t and other, and a group at each broker."""
    cluster = await brokers(coordinator_shards=8, **options)
    await cluster.create("t", partitions=3)
    await cluster.create("other")
    await cluster.append("t", 0, batch(b"a", b"b"))
    groups = [await cluster.name_at(broker, f"g{broker}-") for broker in cluster.ids]
    for group in groups:
        await cluster.create_group(group, {T0: 1})
    return cluster, groups


@asynccontextmanager
async def watching(cluster: Brokers, **options: Any) -> AsyncIterator[ClusterObserver]:
    observer = ClusterObserver(cluster.bootstrap, cluster.ports, **options)
    try:
        yield observer
    finally:
        await observer.stop()


def answering(seen: Overview) -> list[int]:
    return sorted(broker.broker_id for broker in seen.brokers.values() if not broker.problem)


async def test_a_look_sees_everything_with_three_requests_and_three_to_each_broker() -> None:
    cluster, groups = await filled()
    async with no_tasks_left(), watching(cluster) as observer:
        seen = await observer.look(1.0)
        assert (seen.heard, seen.problem, [t.name for t in seen.topics]) == (True, "", ["other", "t"])
        assert answering(seen) == [1, 2, 3]
        assert [broker.log_ends[T0] for broker in seen.brokers.values()] == [2, 2, 2]
        assert (seen.high_watermarks[T0].offset, seen.high_watermarks[T1].offset) == (2, 0)
        coordinators = {name: each.group.coordinator_id for name, each in seen.groups.items()}
        assert coordinators == dict(zip(groups, (1, 2, 3), strict=True))
        cluster.calls.clear()
        await observer.look(1.0)
        assert Counter(call.method for call in cluster.calls) == {
            "ClusterMetadata": 1,
            "DescribeCluster": 1,
            "DescribeTopics": 1,
            "ListOffsets": 3,
            "ListGroups": 3,
            "DescribeGroups": 3,
        }


async def test_only_what_is_chosen_is_asked_for() -> None:
    cluster, groups = await filled()
    async with watching(
        cluster, topics=lambda name: name == "other", groups=lambda name: name == groups[1]
    ) as observer:
        seen = await observer.look(1.0)
        assert ([t.name for t in seen.topics], list(seen.groups)) == (["other"], [groups[1]])
        asked = {p.topic for call in cluster.of("ListOffsets") for p in call.request.partitions}
        assert (asked, len(cluster.of("DescribeGroups"))) == ({"other"}, 1)


async def test_a_paused_broker_costs_its_patience_and_keeps_what_it_said() -> None:
    cluster, groups = await filled()
    async with watching(cluster) as observer:
        before = await observer.look(1.0)
        cluster.silent.add(1)
        for number in range(3):
            began = cluster.clock.now()
            seen = await observer.look(1.0)
            took = cluster.clock.now() - began
            assert took < (2.1 if number == 0 else 1.1), "who was silent is not asked about the cluster again"
            assert answering(seen) == [2, 3] and seen.brokers[1].problem == "no answer"  # type: ignore[index]
        assert seen.brokers[1].log_ends == before.brokers[1].log_ends  # type: ignore[index]
        assert seen.brokers[1].answered_at == before.brokers[1].answered_at  # type: ignore[index]
        assert (seen.groups[groups[0]], seen.groups[groups[1]].at > before.groups[groups[1]].at) == (
            before.groups[groups[0]],
            True,
        )
        assert seen.high_watermarks[T0] == before.high_watermarks[T0], "its leader has said nothing since"
        cluster.silent.clear()
        assert answering(await observer.look(1.0)) == [1, 2, 3]


async def test_a_dead_broker_is_known_and_not_asked() -> None:
    cluster, _ = await filled()
    async with watching(cluster) as observer:
        await observer.look(1.0)
        cluster.kill(2)
        await cluster.settle()
        await observer.look(1.0)
        cluster.calls.clear()
        seen = await observer.look(1.0)
        assert 2 not in {cluster.broker_of(call) for call in cluster.calls}
        assert seen.brokers[2].problem == "not in the cluster" and seen.brokers[2].address is not None  # type: ignore[index]
        assert seen.brokers[2].log_ends[T0] == 2  # type: ignore[index]
    async with watching(cluster) as late:
        seen = await late.look(1.0)
        assert seen.brokers[2].problem == "not in the cluster", "replicas name it"  # type: ignore[index]


async def test_when_nothing_answers_everybody_is_asked_again_and_what_was_known_stays() -> None:
    cluster, _ = await filled()
    async with watching(cluster) as observer:
        before = await observer.look(1.0)
        cluster.kill(1, 2, 3)
        for _ in range(2):
            seen = await observer.look(1.0)
            assert (seen.heard, seen.problem, seen.topics, seen.groups) == (
                *(False, "not reached"),
                *(before.topics, before.groups),
            )
            assert {broker.problem for broker in seen.brokers.values()} == {"not reached"}
        await cluster.restart(1, 2, 3)
        assert answering(await observer.look(1.0)) == [1, 2, 3]
    cluster.kill(1, 2, 3)
    async with watching(cluster) as late:
        seen = await late.look(1.0)
        assert (seen.heard, seen.cluster, dict(seen.brokers)) == (False, None, {})


async def test_who_answers_is_heard_although_the_one_that_is_asked_about_the_cluster_is_silent() -> None:
    cluster, _ = await filled(latency_s=0.01)
    async with watching(cluster) as observer:
        before = await observer.look(1.0)
        cluster.silent |= {1, 2, 3}
        assert answering(await observer.look(1.0)) == []
        cluster.silent -= {1, 3}  # the second is the next to be asked
        seen = await observer.look(1.0)
        assert (answering(seen), seen.heard, seen.problem) == ([1, 3], True, "no answer")
        assert seen.described_at == before.described_at
        assert (await observer.look(1.0)).problem == ""


async def test_without_a_controller_brokers_are_seen_and_the_next_look_asks_elsewhere() -> None:
    cluster, _ = await filled()

    async def nobody(call: Call) -> Any:
        if call.method in ("DescribeCluster", "DescribeTopics"):
            return m.DescribeTopicsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return NotImplemented

    async def cut_off(call: Call) -> Any:
        if call.method == "DescribeCluster" and cluster.broker_of(call) == asked:
            raise TransportError("DEADLINE_EXCEEDED")
        return NotImplemented

    async with watching(cluster) as observer:
        before = await observer.look(1.0)
        cluster.faults.append(nobody)
        seen = await observer.look(1.0)
        assert (seen.problem, answering(seen)) == (NO_CONTROLLER, [1, 2, 3])
        assert (seen.topics, seen.described_at) == (before.topics, before.described_at)
        cluster.faults.clear()
        asked = cluster.broker_of(cluster.of("DescribeCluster")[-1]) % 3 + 1
        cluster.faults.append(cut_off)
        assert (await observer.look(1.0)).problem == "no answer"
        assert (await observer.look(1.0)).problem == "", "one broker alone is cut off from the controller"


async def test_a_group_is_gone_when_every_shard_is_served_and_nobody_names_it() -> None:
    cluster, groups = await filled()
    vacant = True

    async def deposed(call: Call) -> Any:
        """One of its shards is lost to a broker, and no other has it yet."""
        if call.method != "ListGroups" or cluster.broker_of(call) != 3 or not vacant:
            return NotImplemented
        answer = await call.serve()
        return replace(answer, shards=answer.shards[1:])

    async with watching(cluster) as observer:
        before = await observer.look(1.0)
        await cluster.admin.groups.delete(groups[2])
        cluster.faults.append(deposed)
        seen = await observer.look(1.0)
        assert seen.groups[groups[2]] == before.groups[groups[2]], "its shard may be the vacant one"
        vacant = False
        assert list((await observer.look(1.0)).groups) == groups[:2]


async def test_a_topic_that_is_gone_and_what_no_leader_tells_leave_no_offsets_behind() -> None:
    cluster, _ = await filled()
    async with watching(cluster) as observer:
        await observer.look(1.0)
        await cluster.delete("t")
        seen = await observer.look(1.0)
        assert T0 not in seen.high_watermarks
        assert all(T0 not in broker.log_ends for broker in seen.brokers.values())
