"""Looking at a whole cluster, against brokers in memory: few requests, and a silent broker hides no other."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from helpers.batches import batch
from helpers.brokers import Brokers, brokers, no_tasks_left
from tidelog.client.connections import parse_bootstrap
from tidelog.client.observer import ANSWER_S, ClusterObserver
from tidelog.client.overview import (
    NO_CONTROLLER,
    NOT_LIVE,
    ClusterLook,
    GroupsLook,
    Look,
    Overview,
    ReplicasLook,
)
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.runtime.tasks import TaskFailed
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PERIOD_S = 0.5


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


class Watching:
    """An observer that looks, and its looks in the order in which they ended."""

    def __init__(self, cluster: Brokers, **options: Any) -> None:
        self.looks: list[Look] = []
        self._clock = cluster.clock
        known = {"bootstrap": cluster.bootstrap, "on_look": self.looks.append, **options}
        self.observer = ClusterObserver(ports=cluster.ports, period_s=PERIOD_S, **known)
        self.observer.start()

    async def first(self) -> Overview:
        return await self.observer.first()

    async def after(self, seconds: float = 2 * PERIOD_S) -> Overview:
        """Returns the overview later, by default when every source that answers was asked anew."""
        await self._clock.sleep(seconds)
        return self.observer.overview

    def of(self, kind: type[Look], broker: int | None = None) -> list[Any]:
        return [look for look in self.looks if isinstance(look, kind) and getattr(look, "broker", None) == broker]


@asynccontextmanager
async def watching(cluster: Brokers, **options: Any) -> AsyncIterator[Watching]:
    watched = Watching(cluster, **options)
    try:
        yield watched
    finally:
        await watched.observer.stop()


def answering(seen: Overview) -> list[int]:
    return sorted(broker.broker_id for broker in seen.brokers.values() if not broker.problem)


def ends(seen: Overview) -> list[int | None]:
    return [broker.log_end(T0) for broker in seen.brokers.values()]


async def test_three_requests_tell_of_the_cluster_and_three_of_each_broker() -> None:
    cluster, groups = await filled()
    async with no_tasks_left(), watching(cluster) as watched:
        assert not watched.observer.overview.complete
        seen = await watched.first()
        assert (seen.heard, seen.problem, [t.name for t in seen.topics]) == (True, "", ["other", "t"])
        assert (answering(seen), ends(seen)) == ([1, 2, 3], [2, 2, 2])
        assert (seen.high_watermarks[T0].offset, seen.high_watermarks[T1].offset) == (2, 0)
        coordinators = {name: each.group.coordinator_id for name, each in seen.groups.items()}
        assert coordinators == dict(zip(groups, (1, 2, 3), strict=True))
        cluster.calls.clear()
        later = await watched.after(PERIOD_S)
        assert Counter(call.method for call in cluster.calls) == {
            "ClusterMetadata": 1,
            "DescribeCluster": 1,
            "DescribeTopics": 1,
            "ListOffsets": 3,
            "ListGroups": 3,
            "DescribeGroups": 3,
        }
        assert later.at - seen.at == pytest.approx(PERIOD_S) and later.groups[groups[0]].at > seen.groups[groups[0]].at


async def test_brokers_are_found_by_another_name_than_theirs() -> None:
    """Containers advertise 127.0.0.1 to the host, where localhost is the usual name."""
    cluster, _ = await filled()
    listening = cluster.world.network.listening
    first = parse_bootstrap(cluster.bootstrap)[0]
    server = listening[first]
    server.advertised = first
    alias = Address("alias", first.port)
    listening[alias] = server
    observer = ClusterObserver([alias], cluster.ports, PERIOD_S)
    observer.start()
    seen = await observer.first()
    assert seen.problem == "" and {broker.problem for broker in seen.brokers.values()} == {""}
    await observer.stop()


async def test_only_what_is_chosen_is_asked_for() -> None:
    cluster, groups = await filled()
    async with watching(cluster, topics=lambda name: name == "other", groups=lambda name: name == groups[1]) as watched:
        seen = await watched.first()
        assert ([t.name for t in seen.topics], list(seen.groups)) == (["other"], [groups[1]])
        asked = {p.topic for call in cluster.of("ListOffsets") for p in call.request.partitions}
        assert (asked, len(cluster.of("DescribeGroups"))) == ({"other"}, 1)
    async with watching(cluster, topics=lambda name: False) as watched:
        await watched.first()
        cluster.silent.add(1)
        await watched.after(2 * ANSWER_S)
        assert watched.of(ReplicasLook, 1)[-1].problem == "no answer", "without a replica that is looked at"


async def test_each_look_tells_when_it_was_asked_and_how_long_it_took() -> None:
    cluster, groups = await filled(latency_s=0.01)
    async with watching(cluster) as watched:
        await watched.after(10 * PERIOD_S)
        cluster.silent.add(2)
        await watched.after(10 * PERIOD_S)
        of_cluster = watched.of(ClusterLook)[:10]
        assert {round(look.took, 2) for look in of_cluster} == {0.1}, (
            "three answers, two of them by way of the controller"
        )
        assert all(two.asked - one.asked == pytest.approx(PERIOD_S) for one, two in pairwise(of_cluster))
        looks = [look for look in watched.looks if not isinstance(look, ClusterLook)]
        assert [look.answered for look in watched.looks] == sorted(look.answered for look in watched.looks)
        for broker in (1, 3):
            replicas, of_groups = watched.of(ReplicasLook, broker), watched.of(GroupsLook, broker)
            assert {round(look.took, 3) for look in replicas} == {0.02}, "there and back"
            assert all(two.asked - one.asked == pytest.approx(PERIOD_S) for one, two in pairwise(replicas))
            assert [look.asked for look in of_groups] == [look.answered for look in replicas[: len(of_groups)]]
        replica = watched.of(ReplicasLook, 1)[-1].replicas[T0]
        assert (replica.offset, replica.leader_epoch, replica.own_log.isr_size) == (2, 0, 3)
        assert watched.of(ReplicasLook, 3)[-1].replicas[T0].own_log.isr_size == 0, "it does not lead"
        assert [each.group_id for each in watched.of(GroupsLook, 3)[-1].groups] == [groups[2]]
        silent = [look for look in looks if look.problem]
        assert {(look.broker, look.problem, round(look.took, 3)) for look in silent[1:]} == {(2, "no answer", ANSWER_S)}  # type: ignore[attr-defined]
        assert silent[-1] == replace(watched.of(GroupsLook, 2)[-1], groups=())


async def test_a_paused_broker_thins_no_looks_at_the_others() -> None:
    cluster, groups = await filled()
    async with watching(cluster) as watched:
        before = await watched.first()
        cluster.silent.add(1)
        watched.looks.clear()
        seen = await watched.after(10.0)
        assert {broker: len(watched.of(ReplicasLook, broker)) for broker in (2, 3)} == {2: 20, 3: 20}
        assert len(watched.of(ReplicasLook, 1)) in (9, 10), "the next is asked when the patience is over"
        assert len(watched.of(ClusterLook)) in (19, 20), "a silent broker is asked about the cluster once"
        assert answering(seen) == [2, 3] and seen.brokers[BrokerId(1)].problem == "no answer"
        assert seen.brokers[BrokerId(1)].replicas == before.brokers[1].replicas
        assert seen.brokers[BrokerId(1)].answered_at == before.brokers[1].answered_at
        assert seen.groups[groups[0]] == before.groups[groups[0]]
        assert seen.groups[groups[1]].at > before.groups[groups[1]].at
        assert seen.high_watermarks[T0] == before.high_watermarks[T0], "its leader has said nothing since"
        cluster.silent.clear()
        assert answering(await watched.after(2 * ANSWER_S)) == [1, 2, 3]


async def test_a_dead_broker_is_known_and_stays_out_of_the_cluster() -> None:
    cluster, _ = await filled()
    async with watching(cluster) as watched:
        await watched.first()
        cluster.kill(2)
        await cluster.settle()
        seen = await watched.after()
        assert seen.brokers[BrokerId(2)].problem == NOT_LIVE and seen.brokers[2].address is not None
        assert seen.brokers[BrokerId(2)].log_end(T0) == 2
        assert watched.of(ReplicasLook, 2)[-1].problem == "not reached"
    async with watching(cluster) as late:
        seen = await late.first()
        assert seen.brokers[BrokerId(2)].problem == NOT_LIVE, "replicas name it"
        assert (late.of(ReplicasLook, 2), seen.complete) == ([], True), "no address of it is known"
        await cluster.restart(2)
        assert answering(await late.after()) == [1, 2, 3]


async def test_a_broker_that_has_lost_its_session_is_still_asked() -> None:
    cluster, _ = await filled()
    async with watching(cluster) as watched:
        await watched.first()
        cluster.node(1).cut_zookeeper()
        cluster.world.network.cut("controller-1", "broker-1")
        await cluster.until(lambda: cluster.leader("t") != 1, "another leads")
        seen = await watched.after()
        assert seen.brokers[BrokerId(1)].problem == NOT_LIVE
        assert watched.of(ReplicasLook, 1)[-1].replicas[T0].leader_epoch < seen.topics[1].partitions[0].leader_epoch
        assert {look.problem for look in watched.of(ReplicasLook, 1)} == {""}


async def test_a_dead_broker_from_which_all_was_moved_is_gone() -> None:
    cluster, groups = await filled()

    async def unknown(call: Call) -> Any:
        if call.method == "DescribeTopics":
            return m.DescribeTopicsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return NotImplemented

    async with no_tasks_left(), watching(cluster, bootstrap=str(cluster.addresses[1])) as watched:
        await watched.first()
        cluster.kill(3)
        await cluster.settle()
        for number in range(3):
            await cluster.move("t", number, [1, 2])
        assert (await watched.after()).brokers[BrokerId(3)].problem == NOT_LIVE, "a topic is on it"
        cluster.faults.append(unknown)
        await cluster.move("other", 0, [1, 2])
        assert 3 in (await watched.after(4 * PERIOD_S)).brokers, "no controller has said that nothing is on it"
        cluster.faults.remove(unknown)
        seen = await watched.after()
        assert (list(seen.brokers), sorted(seen.groups), seen.complete) == ([1, 2], groups, True)
        cluster.silent |= {1, 2}
        cluster.calls.clear()
        await watched.after(4 * ANSWER_S)
        assert {cluster.broker_of(call) for call in cluster.calls} == {1, 2}
        cluster.silent.clear()
        await cluster.restart(3)
        assert answering(await watched.after(2 * ANSWER_S)) == [1, 2, 3]
        assert watched.of(ReplicasLook, 3)[-1].problem == ""


async def test_topics_that_are_not_looked_at_expect_a_broker_too() -> None:
    cluster = await brokers()
    await cluster.place("t", [1, 2, 3])
    await cluster.place("other", [1, 2])
    cluster.kill(3)
    await cluster.settle()
    async with watching(cluster, topics=lambda name: name == "other") as watched:
        assert (await watched.first()).brokers[BrokerId(3)].problem == NOT_LIVE
        await cluster.move("t", 0, [1, 2])
        assert list((await watched.after()).brokers) == [1, 2]
        cluster.silent |= {1, 2}
        cluster.calls.clear()
        await watched.after(4 * ANSWER_S)
        assert {cluster.broker_of(call) for call in cluster.of("ClusterMetadata")} == {1, 2, 3}, "its user named it"


async def test_a_broker_that_answers_is_not_gone() -> None:
    cluster = await brokers()
    await cluster.place("t", [2, 3])
    async with watching(cluster) as watched:
        await watched.first()
        cluster.node(1).cut_zookeeper()
        cluster.world.network.cut("controller-1", "broker-1")
        await watched.after(20.0)
        assert watched.observer.overview.brokers[BrokerId(1)].problem == NOT_LIVE
        assert {look.problem for look in watched.of(ReplicasLook, 1)} == {""}
        cluster.silent.add(1)
        assert list((await watched.after(3 * ANSWER_S)).brokers) == [2, 3]


async def test_a_broker_that_only_the_controller_knows_is_expected() -> None:
    cluster = await brokers()
    await cluster.place("t", [2, 3])

    async def behind(call: Call) -> Any:
        if call.method != "ClusterMetadata":
            return NotImplemented
        answer = await call.serve()
        return replace(answer, brokers_info=answer.brokers_info[1:])

    cluster.faults.append(behind)
    async with watching(cluster, bootstrap=str(cluster.addresses[2])) as watched:
        assert (await watched.first()).brokers[BrokerId(1)].problem == NOT_LIVE


async def test_when_nothing_answers_everybody_is_asked_again_and_what_was_known_stays() -> None:
    cluster, _ = await filled()
    async with watching(cluster) as watched:
        before = await watched.first()
        cluster.kill(1, 2, 3)
        for _ in range(2):
            seen = await watched.after()
            assert (seen.heard, seen.problem, seen.topics, seen.groups) == (
                *(False, "not reached"),
                *(before.topics, before.groups),
            )
            assert {broker.problem for broker in seen.brokers.values()} == {"not reached"}
        await cluster.restart(1, 2, 3)
        assert answering(await watched.after()) == [1, 2, 3]
    cluster.kill(1, 2, 3)
    async with watching(cluster) as late:
        seen = await late.first()
        assert (seen.heard, seen.cluster, dict(seen.brokers)) == (False, None, {})
        await cluster.restart(1, 2, 3)
        seen = await late.after()
        assert (answering(seen), seen.complete) == ([1, 2, 3], True)


async def test_who_answers_is_heard_although_the_one_that_is_asked_about_the_cluster_is_silent() -> None:
    cluster, _ = await filled(latency_s=0.01)
    async with watching(cluster) as watched:
        before = await watched.first()
        cluster.silent |= {1, 2, 3}
        assert answering(await watched.after(3 * ANSWER_S)) == []
        cluster.silent -= {1, 3}
        seen = await watched.after(2 * ANSWER_S)
        assert (answering(seen), seen.heard) == ([1, 3], True)
        assert seen.described_at is not None and before.described_at is not None
        seen = await watched.after(2 * ANSWER_S)
        assert (seen.problem, seen.described_at > before.described_at) == ("", True)  # type: ignore[operator]


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

    async with watching(cluster) as watched:
        before = await watched.first()
        cluster.faults.append(nobody)
        seen = await watched.after()
        assert (seen.problem, answering(seen)) == (NO_CONTROLLER, [1, 2, 3])
        assert (seen.topics, seen.described_at) == (before.topics, before.described_at)
        asked = cluster.broker_of(cluster.of("DescribeCluster")[-1]) % 3 + 1
        cluster.faults.remove(nobody)
        cluster.faults.append(cut_off)
        watched.looks.clear()
        await watched.after(6 * PERIOD_S)
        problems = [look.problem for look in watched.of(ClusterLook)]
        assert Counter(problems) == {"": 5, "no answer": 1}, "one broker alone is cut off from the controller"


async def test_a_door_that_knows_nothing_yet_is_asked_last() -> None:
    cluster, _ = await filled()

    async def started(call: Call) -> Any:
        if call.method == "ClusterMetadata" and cluster.broker_of(call) == 1:
            return replace(await call.serve(), brokers_info=())
        return NotImplemented

    cluster.faults.append(started)
    async with watching(cluster) as watched:
        assert (await watched.first()).problem == ""
        await watched.after(4 * PERIOD_S)
        asked = [cluster.broker_of(call) for call in cluster.of("ClusterMetadata")]
        assert asked[:2] == [1, 2] and set(asked[2:]) == {2}


async def test_replicas_count_although_groups_are_not_told() -> None:
    cluster, groups = await filled()

    async def silent(call: Call) -> Any:
        if call.method == "ListGroups" and cluster.broker_of(call) == 1:
            raise TransportError("DEADLINE_EXCEEDED")
        return NotImplemented

    async with watching(cluster) as watched:
        before = await watched.first()
        cluster.faults.append(silent)
        await cluster.append("t", 0, batch(b"c"))
        seen = await watched.after()
        broker = seen.brokers[BrokerId(1)]
        assert (broker.problem, broker.log_end(T0), seen.high_watermarks[T0].offset) == ("no answer", 3, 3)
        assert broker.answered_at == watched.of(ReplicasLook, 1)[-1].answered
        assert seen.groups[groups[0]] == before.groups[groups[0]]
        cluster.faults.remove(silent)
        seen = await watched.after()
        assert answering(seen) == [1, 2, 3] and seen.groups[groups[0]].at > before.groups[groups[0]].at


async def test_a_group_is_gone_when_every_shard_is_served_and_nobody_names_it() -> None:
    cluster, groups = await filled()
    vacant = True

    async def deposed(call: Call) -> Any:
        """One of its shards is lost to a broker, and no other has it yet."""
        if call.method != "ListGroups" or cluster.broker_of(call) != 3 or not vacant:
            return NotImplemented
        answer = await call.serve()
        return replace(answer, shards=answer.shards[1:])

    async with watching(cluster) as watched:
        await watched.first()
        cluster.faults.append(deposed)
        before = await watched.after()
        await cluster.admin.groups.delete(groups[2])
        told_at = before.groups[groups[2]].at
        seen = await watched.after()
        assert seen.groups[groups[2]].at - told_at <= PERIOD_S, "its shard may be the vacant one"
        vacant = False
        assert list((await watched.after()).groups) == groups[:2]


async def test_a_group_that_has_moved_is_as_its_new_coordinator_says() -> None:
    cluster, groups = await filled()
    async with watching(cluster) as watched:
        before = await watched.first()
        cluster.kill(1)
        await cluster.settle()
        await cluster.until(
            lambda: watched.observer.overview.groups[groups[0]].group.coordinator_id != 1, "another has the group"
        )
        moved = (await watched.after()).groups[groups[0]]
        assert moved.group.coordinator_epoch > before.groups[groups[0]].group.coordinator_epoch
        await cluster.admin.groups.delete(groups[0])
        assert groups[0] not in (await watched.after()).groups, "what the dead one said last counts no more"


async def test_a_topic_that_is_gone_and_what_no_leader_tells_leave_no_offsets_behind() -> None:
    cluster, _ = await filled()
    async with watching(cluster) as watched:
        await watched.first()
        await cluster.delete("t")
        seen = await watched.after()
        assert T0 not in seen.high_watermarks
        assert ends(seen) == [None] * 3


async def test_a_broker_is_not_asked_where_another_lives_by_now() -> None:
    cluster, _ = await filled()

    async def replaced(call: Call) -> Any:
        """Broker 9 is where broker 2 was."""
        if call.method != "ClusterMetadata":
            return NotImplemented
        answer = await call.serve()
        return replace(answer, brokers_info=tuple(replace(b, id=9 if b.id == 2 else b.id) for b in answer.brokers_info))

    async with watching(cluster) as watched:
        await watched.first()
        cluster.faults.append(replaced)
        seen = await watched.after()
        assert (seen.brokers[BrokerId(2)].problem, seen.brokers[2].address) == (NOT_LIVE, None)
        assert watched.of(ReplicasLook, 2)[-1].problem == "not reached"
        assert (watched.of(ReplicasLook, 9)[-1].problem, seen.brokers[BrokerId(2)].log_end(T0)) == ("", 2)


async def test_a_broker_is_asked_for_a_replica_that_was_moved_away_as_long_as_it_has_one() -> None:
    cluster, _ = await filled()

    async def moved(call: Call) -> Any:
        """Nothing is on broker 1 any more, which has not heard of it."""
        if call.method != "DescribeTopics":
            return NotImplemented
        answer = await call.serve()
        topics = [
            replace(t, partitions=tuple(replace(p, replicas=p.replicas[1:]) for p in t.partitions))
            for t in answer.topics
        ]
        return replace(answer, topics=tuple(topics))

    async with watching(cluster) as watched:
        await watched.first()
        cluster.faults.append(moved)
        seen = await watched.after(4 * PERIOD_S)
        assert seen.brokers[BrokerId(1)].log_end(T0) == 2
        cluster.faults.remove(moved)
        await cluster.move("t", 0, [2, 3])
        assert ends(await watched.after()) == [None, 2, 2]
        cluster.calls.clear()
        await watched.after()
        asked = [call.request.partitions for call in cluster.of("ListOffsets") if cluster.broker_of(call) == 1]
        assert asked and T0 not in {TopicPartition(each.topic, each.partition) for each in asked[-1]}


async def test_a_failure_ends_all_loops_and_comes_out() -> None:
    cluster, _ = await filled()

    def full(look: Look) -> None:
        if isinstance(look, ReplicasLook):
            raise OSError("disk full")

    async with no_tasks_left():
        watched = Watching(cluster, on_look=full)
        with pytest.raises(TaskFailed, match="disk full"):
            await watched.first()
        cluster.calls.clear()
        await cluster.clock.sleep(5.0)
        assert cluster.calls == []
        with pytest.raises(TaskFailed, match="disk full"):
            await watched.observer.stop()
