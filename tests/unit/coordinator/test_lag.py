"""The lag of groups: log end and committed offset of one moment, looked up often and at once."""

from tidelog.coordinator.election import shard_of
from tidelog.ids import TopicPartition
from unit.coordinator.shell import GROUP, Host, World


def lag(host: Host, partition: int = 0, group_id: str = GROUP) -> float | None:
    labels = {"group": group_id, "topic": "events", "partition": str(partition)}
    return host.registry.get_sample_value("tidelog_group_lag_records", labels)


async def test_a_group_that_commits_steadily_shows_its_lag(world: World) -> None:
    """It commits each second what was written 5 s before: 2,000 records behind, and up to a second's 400 more."""
    await world.topic()
    host = await world.serving(lag_s=5.0)
    consumer = await world.member(host)
    tp, seen = TopicPartition("events", 0), []
    for second in range(60):
        world.ends[tp] = 400 * second
        if second >= 5:
            await consumer.commit(p0=400 * (second - 5))
        await world.clock.sleep(1.0)
        seen.append(lag(host))
    assert {each for each in seen[6:] if each is None or not 1_900 <= each <= 2_500} == set(), seen


async def test_the_first_lag_of_a_partition_is_there_at_once(world: World) -> None:
    await world.topic()
    host = await world.serving(lag_s=3600.0)
    consumer = await world.member(host)
    await consumer.commit(p0=400)
    await world.clock.sleep(0.5)
    assert (lag(host, 0), lag(host, 1)) == (600, None)
    await consumer.commit(p1=900)
    await world.clock.sleep(0.5)
    assert (lag(host, 0), lag(host, 1)) == (600, 100)
    other = await world.member(host, "c2", "others")
    await other.commit(p0=1)
    await world.clock.sleep(0.5)
    assert lag(host, 0, "others") == 999


async def test_a_new_coordinator_shows_lags_at_once(world: World) -> None:
    await world.topic()
    first = await world.serving(1, lag_s=3600.0)
    second = await world.host(2, lag_s=3600.0)
    consumer = await world.member(first)
    await consumer.commit(p1=400)
    world.ends[TopicPartition("events", 1)] = 1_200
    first.meta.cut()
    await world.until(second.serves, "the other one coordinates", 6.0)
    await world.clock.sleep(0.5)
    assert (lag(first, 1), lag(second, 1)) == (None, 800)


async def test_one_call_asks_a_leader_for_all_groups_and_shards(world: World) -> None:
    await world.topic()
    host = await world.host(1, shards=4, lag_s=5.0)
    await world.until(lambda: all(host.serves(each) for each in range(4)), "it coordinates all shards")
    groups = [f"g{n}" for n in range(6)]
    assert len({shard_of(each, 4) for each in groups}) > 1
    for each in groups:
        member = await world.member(host, "c1", each)
        await member.commit(p0=100, p1=100, p2=100, p3=100)
    await world.clock.sleep(1.0)
    host.asked.clear()
    await world.clock.sleep(15.0)
    assert [len(each.partitions) for each in host.asked] in ([4] * 2, [4] * 3)
    assert {lag(host, partition, each) for each in groups for partition in range(4)} == {900}


async def test_a_leader_that_does_not_answer_leaves_its_lags_unknown(world: World) -> None:
    await world.topic()
    host = await world.serving(1, lag_s=1.0)
    await world.host(2)
    consumer = await world.member(host)
    await consumer.commit(p0=400, p1=400)
    await world.clock.sleep(0.5)
    assert (lag(host, 0), lag(host, 1)) == (600, 600)
    world.network.kill("broker-2")
    await world.clock.sleep(10.0)
    assert (lag(host, 0), lag(host, 1)) == (600, None)


async def test_an_offset_beyond_the_log_is_no_negative_lag(world: World) -> None:
    """An unclean election has cut the log."""
    await world.topic()
    host = await world.serving(lag_s=1.0)
    consumer = await world.member(host)
    await consumer.commit(p0=400)
    world.ends[TopicPartition("events", 0)] = 300
    await world.clock.sleep(2.0)
    assert lag(host) == 0
