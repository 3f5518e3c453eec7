"""A coordinator's term over the twins of its ports: from the election to streams, offsets in the store and the end."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.broker.groups import detection_s, group_snapshots
from tidelog.coordinator import machine
from tidelog.coordinator.events import DeleteRequested
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.meta import Delete, SetData
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire import znodes
from unit.coordinator.shell import GROUP, SESSION_S, Consumer, Host, World

E = ErrorCode


async def fetched(world: World, host: Host, group_id: str = GROUP) -> dict[int, int] | ErrorCode:
    request = m.FetchOffsetsRequest(group_id=group_id)
    answer = await world.call(host, s.COORDINATOR_SERVICE_FETCH_OFFSETS, request)
    return answer.error_code or {each.partition: each.offset for each in answer.offsets}


def stored_offset(world: World, partition: int) -> int:
    path = znodes.offset_path(GROUP, "events", partition)
    node = world.zookeeper.find(path)
    return -1 if node is None else znodes.decode_offset(path, node.data).offset


@requirement("A broker is described by id, host and port")
async def test_a_consumer_registers_starts_commits_and_leaves(world: World) -> None:
    await world.topic()
    host = await world.serving()
    consumer = await world.member(host)
    assert consumer.partitions == {0: -1, 1: -1, 2: -1, 3: -1}
    broker = m.BrokerInfo(id=1, host="EXTERNAL-1", port=1, rack="rack-1")
    assert consumer.starts[0].brokers_info == (broker,), "its own door's"
    answer = await consumer.commit(p0=7, p1=1000, p2=1001)
    codes = [each.error_code for each in answer.results]
    assert codes[:2] == [E.NONE, E.NONE] and codes[2] is not E.NONE, "beyond the end of the log"
    assert (stored_offset(world, 0), stored_offset(world, 1), stored_offset(world, 2)) == (7, 1000, -1)
    assert await fetched(world, host) == {0: 7, 1: 1000}
    await consumer.leave()
    await world.until(lambda: consumer.ended == "OK", "the stream ends in order")
    assert consumer.heard[-1].left == m.LeaveGroupResponse()
    head = world.zookeeper.find(znodes.group_path(GROUP))
    assert head is not None and not znodes.decode_head(GROUP, head.data).members


@requirement("Committed offsets of a group are stored in ZooKeeper")
@requirement("A new coordinator serves once its groups and topics are read")
@requirement("A ping goes to every member each third of its session")
@requirement("A committer writes reported offsets periodically")
async def test_pings_flow_and_their_offsets_are_stored(world: World) -> None:
    await world.topic()
    host = await world.serving()
    consumer = await world.member(host)
    consumer.offsets = (m.OffsetInfo(topic="events", partition=3, offset=12, leader_epoch=5, metadata="here"),)
    await world.until(lambda: stored_offset(world, 3) == 12, "the committer has written", 2.0)
    path = "/consumers/readers/offsets/events/3"
    node = world.zookeeper.find(path)
    assert node is not None
    assert znodes.decode_offset(path, node.data)[:3] == (12, 5, "here")
    before = len(consumer.pings)
    await world.clock.sleep(2.0)
    assert 9 <= len(consumer.pings) - before <= 11, "one every third of 600 ms"
    assert host.sample("tidelog_coordinator_ping_seconds_count") == len(consumer.pings)


@requirement("Partition owners of a group are stored in persistent znodes")
async def test_owners_are_stored_in_persistent_znodes(world: World) -> None:
    await world.topic()
    consumer = await world.member(await world.serving())
    path = znodes.owner_path(GROUP, "events", 2)
    node = world.zookeeper.find(path)
    assert node is not None and not node.stat.ephemeral_owner
    generation = consumer.starts[-1].generation
    assert znodes.decode_owner(path, node.data) == znodes.StoredOwner("c1-0", "c1", generation)


@requirement("StartFetcherRequest carries ownership and live brokers")
@requirement("A start request refreshes the broker list of a consumer")
async def test_a_start_names_the_brokers_that_live_now(world: World) -> None:
    await world.topic()
    host = await world.serving(1)
    first = await world.member(host)
    assert {each.id for each in first.starts[-1].brokers_info} == {1}
    await world.host(2)
    second = await world.member(host, "c2")
    await world.until(lambda: len(first.partitions) == 2, "they share")
    assert {each.id for each in second.starts[-1].brokers_info} == {1, 2}


@requirement("The partitions of a killed consumer move within a time budget")
async def test_a_silent_consumer_loses_its_partitions_to_the_others(world: World) -> None:
    await world.topic()
    host = await world.serving()
    first = await world.member(host, "c1")
    second = await world.member(host, "c2")
    await world.until(lambda: len(first.partitions) == 2, "they share")
    first.silent = True
    took_s = await world.until(lambda: len(second.partitions) == 4, "one has all", 3.0)
    assert 0.6 <= took_s < 1.0
    assert host.sample("tidelog_coordinator_watcher_expirations_total", request="ping") >= 1


@requirement("The time to detect a dead member is computed and exported")
async def test_the_budget_is_that_of_the_longest_session_in_the_group(world: World) -> None:
    await world.topic()
    host = await world.serving(failed_pings_max=2)
    await world.member(host, "c1", session_timeout_ms=900)
    await world.member(host, "c2", session_timeout_ms=3000)
    (group,) = group_snapshots(host.coordinators, 2)
    assert (group.members, group.detection_s) == (2, detection_s(3.0, 2))


@requirement("A coordinator on the brokers rebalances consumer groups")
@requirement("A killed coordinator broker costs no committed offset")
@requirement("StartFetcherRequest carries ownership and live brokers")
@requirement("Another broker takes over when the coordinator dies")
async def test_another_broker_goes_on_with_what_is_stored(world: World) -> None:
    await world.topic()
    first = await world.serving(1)
    second = await world.host(2)
    consumer = await world.member(first)
    await consumer.commit(p0=42)
    world.kill(first)
    await world.until(second.serves, "the other one coordinates", 6.0)
    again = await world.member(second)
    assert again.partitions == {0: 42, 1: -1, 2: -1, 3: -1}
    assert again.starts[0].coordinator_epoch == consumer.starts[0].coordinator_epoch + 1
    assert again.starts[0].generation == consumer.starts[0].generation, "the same member, the same generation"


@requirement("A coordinator that loses its session starts from an empty state")
@requirement("A coordinator failover rebalances no group and skips no record")
@requirement("Each shard has one active coordinator")
@requirement("Every multi of a coordinator checks the coordinator epoch")
async def test_a_deposed_coordinator_sends_nothing_and_stores_nothing(world: World) -> None:
    await world.topic()
    first = await world.serving(1)
    second = await world.host(2)
    consumer = await world.member(first)
    first.meta.cut()
    await world.until(lambda: not first.serves(), "its lease is out", 2.0)
    pings = len(consumer.pings)
    await world.until(second.serves, "the other one coordinates", 6.0)
    assert len(consumer.pings) == pings, "no ping without a lease"
    assert await fetched(world, first) is E.NOT_COORDINATOR
    first.meta.heal()
    await world.until(lambda: consumer.ended is not None, "its stream is ended", 6.0)
    assert stored_offset(world, 0) == -1


@requirement("A coordinator that loses its session starts from an empty state")
@requirement("An expired session clears the memory of a coordinator")
@requirement("A coordinator starts and stops in a fixed order")
async def test_after_the_end_of_its_session_a_broker_clears_its_memory_and_stands_again(world: World) -> None:
    await world.topic()
    host = await world.serving(commit_interval_s=60.0)
    consumer = await world.member(host)
    await consumer.commit(p1=5)
    consumer.offsets = (m.OffsetInfo(topic="events", partition=2, offset=9, leader_epoch=0),)
    term = host.coordinators.terms[0]
    await world.until(lambda: term.machine.groups[GROUP].reported, "a ping has brought an offset")
    world.zookeeper.expire(host.meta.session_id)
    await world.until(lambda: consumer.ended is not None, "its streams end")
    await world.until(host.serves, "it is elected again")
    assert host.coordinators.terms[0] is not term
    assert host.coordinators.terms[0].epoch == term.epoch + 1
    again = await world.member(host)
    assert (again.partitions[1], again.partitions[2]) == (5, -1), "what was not stored is forgotten"
    await world.topic("events", partitions=6)
    newest = await world.member(host, "c2")
    await world.until(lambda: len(newest.partitions) == 3, "topics are watched in the new session")


@requirement("A member silent during a rebalance fails only the attempt")
async def test_an_alarm_says_once_what_it_is(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.topic()
    host = await world.serving()
    consumer = Consumer(world, host, "c1", GROUP)
    consumer.starts_with = E.UNKNOWN_SERVER_ERROR
    await consumer.register()
    await world.until(lambda: "ConsumerRebalanceFailedException" in caplog.text, "it is alarmed")
    text = f"group {GROUP}: ConsumerRebalanceFailedException: 5 attempts in a row have failed (join)"
    assert text in caplog.text


async def test_a_deposed_coordinator_says_what_may_be_deleted(world: World) -> None:
    """A deletion that it has begun with may be done, and one in its queue is not. A commit may be repeated in any case."""
    await world.topic()
    host = await world.serving()
    offset = m.OffsetInfo(topic="events", partition=0, offset=3, leader_epoch=-1)
    fields = {"group_id": "h", "incarnation": 0, "coordinator_epoch": -1, "generation": -1, "number": 0}
    commit = m.CommitOffsetsRequest(offsets=(offset,), **fields)
    assert (await world.call(host, s.COORDINATOR_SERVICE_COMMIT_OFFSETS, commit)).error_code is E.NONE
    host.meta.cut()
    deletion = m.DeleteGroupsRequest(group_ids=("h",))
    begun = asyncio.ensure_future(world.call(host, s.COORDINATOR_SERVICE_DELETE_GROUPS, deletion))
    stored = asyncio.ensure_future(
        world.call(host, s.COORDINATOR_SERVICE_COMMIT_OFFSETS, replace(commit, group_id="i"))
    )
    term = host.coordinators.terms[0]
    await world.until(lambda: not term.acting, "its lease is out")
    queued = asyncio.ensure_future(term.ask(lambda token: DeleteRequested(token, deletion), repeatable=False))
    world.zookeeper.expire(host.meta.session_id)
    host.meta.heal()
    assert [each.error_code for each in (await begun).results] == [E.REQUEST_TIMED_OUT]
    assert (await stored).error_code is E.NOT_COORDINATOR
    with pytest.raises(TidelogError) as refused:
        await queued
    assert refused.value.code is E.NOT_COORDINATOR


@requirement("A coordinator failover rebalances no group and skips no record")
async def test_coord_10_a_fenced_write_ends_the_term(world: World) -> None:
    await world.topic()
    host = await world.serving()
    consumer = await world.member(host)
    epoch = host.coordinators.terms[0].epoch
    await world.operator.multi([SetData(znodes.COORDINATOR_EPOCH, b"%d" % (epoch + 1))])
    answer = await consumer.commit(p0=3)
    assert answer.error_code is E.NOT_COORDINATOR
    assert stored_offset(world, 0) == -1
    await world.until(lambda: consumer.ended is not None, "its streams end")
    await world.until(host.serves, "it is elected again, under an epoch of its own")
    assert host.coordinators.terms[0].epoch == epoch + 2


async def test_an_operator_who_deletes_the_place_of_a_coordinator_ends_its_term_at_once(world: World) -> None:
    """And not with the next beat of its lease: until then it would keep members alive that another one gives up."""

    await world.topic()
    first = await world.serving(1)
    second = await world.host(2)
    consumer = await world.member(first)
    path = znodes.coordinator_path(0)

    def version() -> int:
        found = world.zookeeper.find(path)
        assert found is not None
        return found.stat.version

    before = version()
    await world.until(lambda: version() > before, "a beat, so that the next one is far away", SESSION_S)
    await world.operator.multi([Delete(path)])
    await world.until(lambda: not first.serves(), "its end", SESSION_S / 20)
    await world.until(lambda: consumer.ended is not None, "the end of its streams", SESSION_S / 20)
    await world.until(lambda: first.serves() or second.serves(), "another term")


@requirement("A broker that stops closes its electors first")
@requirement("A coordinator starts and stops in a fixed order")
async def test_a_broker_that_stops_stores_the_last_offsets_and_is_followed_at_once(world: World) -> None:
    await world.topic()
    first = await world.serving(1, commit_interval_s=60.0)
    second = await world.host(2, commit_interval_s=60.0)
    consumer = await world.member(first)
    consumer.offsets = (m.OffsetInfo(topic="events", partition=2, offset=9, leader_epoch=0),)
    await world.clock.sleep(0.5)
    assert stored_offset(world, 2) == -1
    await first.process.start("stop", first.coordinators.stop())
    assert stored_offset(world, 2) == 9
    await world.until(lambda: consumer.ended, "its stream ends", 0.1)
    assert consumer.ended == "OK"
    took_s = await world.until(second.serves, "the other one coordinates")
    assert took_s < 0.5


async def test_coord_08_a_pause_of_the_coordinator_kills_no_consumer(world: World) -> None:
    await world.topic()
    host = await world.serving()
    members = [await world.member(host, f"c{n}", session_timeout_ms=1200) for n in range(2)]
    await world.clock.sleep(1.0)
    generation = members[0].starts[-1].generation
    for each in members:
        each.silent = True
    await world.clock.sleep(0.45)  # the answer to one ping is lost, which costs nothing
    for each in members:
        each.silent = False
    host.process.pause()
    world.network.pause("broker-1")
    host.meta.pause()
    await world.clock.sleep(1.25)  # longer than a session of a consumer, shorter than the coordinator's lease
    host.process.resume()
    world.network.resume("broker-1")
    host.meta.resume()
    await world.clock.sleep(2.0)
    assert all(each.ended is None for each in members)
    assert [each.starts[-1].generation for each in members] == [generation] * 2
    assert host.sample("tidelog_coordinator_rebalance_attempts_failed_total", reason="failure") == 0


@requirement("Every coordinator error has a code and a consumer reaction")
@requirement("A new coordinator serves once its groups and topics are read")
async def test_a_damaged_group_is_refused_until_it_is_repaired(world: World) -> None:
    await world.topic()
    host = await world.serving()
    await (await world.member(host)).commit(p0=1)
    await world.operator.multi([SetData(znodes.offset_path(GROUP, "events", 0), b"?")])
    world.zookeeper.expire(host.meta.session_id)
    await world.until(lambda: not host.serves(), "the term is over")
    await world.until(host.serves, "it is elected again")
    assert await fetched(world, host) is E.COORDINATOR_NOT_AVAILABLE
    refused = Consumer(world, host)
    await refused.register()
    await world.until(lambda: refused.ended, "it is refused")
    assert refused.heard[0].registered is not None
    assert refused.heard[0].registered.error_code is E.COORDINATOR_NOT_AVAILABLE
    assert (await world.member(host, "c1", "others")).starts


@requirement("A new coordinator serves once its groups and topics are read")
async def test_a_group_that_is_repaired_is_served_again(world: World) -> None:
    await world.topic()
    host = await world.serving()
    await (await world.member(host)).commit(p0=1)
    path = znodes.offset_path(GROUP, "events", 0)
    node = world.zookeeper.find(path)
    assert node is not None
    await world.operator.multi([SetData(path, b"?")])
    world.zookeeper.expire(host.meta.session_id)
    await world.until(lambda: not host.serves(), "the term is over")
    await world.until(host.serves, "it is elected again")
    assert await fetched(world, host) is E.COORDINATOR_NOT_AVAILABLE
    await world.clock.sleep(20)
    assert host.serves(), "what is still damaged ends no term"
    await world.operator.multi([SetData(path, node.data)])
    await world.until(lambda: not host.serves(), "the next term reads it")
    await world.until(host.serves, "it is elected again")
    assert await fetched(world, host) == {0: 1}


class SlowTopics:
    """A coordinator's look at the topics that takes until `gate` opens: its lease may be in doubt for as long."""

    def __init__(self, host: Host) -> None:
        self.gate = asyncio.Event()
        self.waiting = False
        self._watcher: Any = host.coordinators._topics
        self._current = self._watcher.current
        self._watcher.current = self.current

    async def current(self) -> Any:
        found = await self._current()
        self.waiting = True
        await self.gate.wait()
        return found


@requirement("Every coordinator error has a code and a consumer reaction")
@requirement("A new coordinator serves once its groups and topics are read")
@requirement("A coordinator starts and stops in a fixed order")
async def test_until_groups_and_topics_are_read_nobody_is_served(world: World) -> None:
    await world.topic()
    host = await world.host(1)
    slow = SlowTopics(host)
    await world.until(lambda: slow.waiting, "it is elected and reads")
    assert world.zookeeper.find(znodes.COORDINATOR) is not None
    assert await fetched(world, host) is E.COORDINATOR_LOAD_IN_PROGRESS
    early = Consumer(world, host)
    await early.register()
    await world.until(lambda: early.ended, "it is refused")
    assert early.heard[0].registered is not None
    assert early.heard[0].registered.error_code is E.COORDINATOR_LOAD_IN_PROGRESS
    listed = await world.call(host, s.COORDINATOR_SERVICE_LIST_GROUPS, m.ListGroupsRequest())
    assert listed.error_code is E.COORDINATOR_LOAD_IN_PROGRESS
    slow.gate.set()
    await world.until(host.serves, "it coordinates")
    assert (await world.member(host)).partitions == {0: -1, 1: -1, 2: -1, 3: -1}


@requirement("A new coordinator serves once its groups and topics are read")
async def test_a_topic_that_grows_between_the_reading_and_the_first_act_is_not_missed(world: World) -> None:
    await world.topic(partitions=1)
    host = await world.host(1)
    slow = SlowTopics(host)
    await world.until(lambda: slow.waiting, "it is elected and reads")
    await world.topic(partitions=3)
    await world.clock.sleep(0.5)  # the watch has fired, and the watcher has read it again
    slow.gate.set()
    await world.until(host.serves, "it coordinates")
    consumer = await world.member(host)
    await world.until(lambda: set(consumer.partitions) == {0, 1, 2}, "it has all of them", 5.0)


@requirement("The coordinator has a ZooKeeper session of its own")
async def test_the_coordinators_session_is_its_own_and_outlives_the_brokers_other_one(world: World) -> None:
    await world.topic()
    host = await world.serving()
    consumer = await world.member(host)
    term = host.coordinators.terms[0]
    assert host.meta.session_id != host.broker_meta.session_id
    world.zookeeper.expire(host.broker_meta.session_id)
    await world.clock.sleep(5.0)
    assert host.coordinators.terms[0] is term and term.acting and consumer.ended is None
    assert (await consumer.commit(p0=3)).results[0].error_code is E.NONE


@requirement("Added partitions start a rebalance of interested groups")
@requirement("A coordinator notices new topics and partitions")
@pytest.mark.parametrize("incremental", [True, False])
async def test_a_new_partition_reaches_the_group(world: World, incremental: bool) -> None:
    await world.topic(partitions=1)
    host = await world.serving(incremental=incremental)
    consumer = await world.member(host)
    assert set(consumer.partitions) == {0}
    await world.topic(partitions=3)
    await world.until(lambda: set(consumer.partitions) == {0, 1, 2}, "it has all of them")
    assert consumer.ended is None


@requirement("The partitions of a topic are divided among consumer threads")
async def test_a_rebalance_reads_no_topic_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.topic()
    host = await world.serving()
    first = await world.member(host)
    read: list[str] = []

    def noted(method: Any) -> Any:
        def call(path: str, *watch: Any) -> Any:
            read.append(path)
            return method(path, *watch)

        return call

    for name in ("get", "children"):
        monkeypatch.setattr(host.meta, name, noted(getattr(host.meta, name)))
    second = await world.member(host, "c2")
    await world.until(lambda: len(first.partitions) == len(second.partitions) == 2, "they share")
    assert not any(path.startswith(znodes.TOPICS) for path in read)
    await world.topic(partitions=5)
    await world.until(lambda: len(first.partitions) + len(second.partitions) == 5, "they have the new one")
    assert znodes.topic_path("events") in read, "else this test notices nothing"


def rebalances(host: Host, group_id: str = GROUP) -> dict[str, float]:
    """The group's count of rebalances by reason, as the broker tells it."""
    samples = (each for family in host.registry.collect() for each in family.samples)
    return {
        each.labels["reason"]: each.value
        for each in samples
        if each.name == "tidelog_coordinator_rebalances_total" and each.labels["group"] == group_id
    }


async def test_rebalances_are_counted_by_group_until_it_is_deleted(world: World) -> None:
    await world.topic()
    host = await world.serving()
    consumer = await world.member(host)
    other = await world.member(host, "c2", "others")
    await world.until(lambda: rebalances(host)["join"] == 1, "its rebalance is complete")
    await consumer.leave()
    await other.leave()
    await world.until(lambda: consumer.ended and other.ended, "both have left")
    delete = m.DeleteGroupsRequest(group_ids=(GROUP,))
    await world.call(host, s.COORDINATOR_SERVICE_DELETE_GROUPS, delete)
    assert rebalances(host) == {}
    assert rebalances(host, "others")["join"] == 1
    await world.member(host)
    await world.clock.sleep(1.0)
    assert rebalances(host)["join"] == 1, "another group of that name"


async def test_rebalances_go_when_another_broker_coordinates(world: World) -> None:
    await world.topic()
    first = await world.serving(1)
    second = await world.host(2)
    await world.member(first)
    await world.until(lambda: rebalances(first)["join"] == 1, "its rebalance is complete")
    first.meta.cut()
    await world.until(second.serves, "the other one coordinates", 6.0)
    assert rebalances(first) == {}
    assert rebalances(second)["join"] == 0


@requirement("A jump of the wall clock changes nothing but timestamps")
async def test_a_clock_that_is_set_ahead_deletes_no_group(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SEEN_EMPTY_S", 60.0)
    await world.topic()
    host = await world.serving(retention_s=600.0)
    consumer = await world.member(host)
    await consumer.commit(p0=7)
    await consumer.leave()
    await world.until(lambda: consumer.ended, "it has left")
    host.clock.wall_offset_ms = 8 * 24 * 3600 * 1000
    await world.clock.sleep(200.0)
    assert await fetched(world, host) == {0: 7}
    await world.clock.sleep(200.0)
    assert await fetched(world, host) == {}, "the clock gains a second in a second"


@requirement("A coordinator notices new topics and partitions")
async def test_a_topic_that_is_newer_than_its_group(world: World) -> None:
    await world.topic("other")
    host = await world.serving()
    consumer = await world.member(host, auto_offset_reset="largest")
    await world.topic(partitions=2)
    await world.until(lambda: consumer.partitions == {0: 0, 1: 0}, "it is assigned")
    assert await fetched(world, host) == {0: 0, 1: 0}
