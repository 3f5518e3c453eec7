"""Who gets which partition (F08.1, KIP-54)."""

import json
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cpu import seconds_of
from helpers.requirements import requirement
from tidelog.coordinator.assignors import ASSIGNORS, assign
from tidelog.coordinator.subscription import Subscription, parse
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition

KINDS = ("range", "roundrobin", "sticky")
Owners = Mapping[TopicPartition, str]


def static(**streams: int) -> Subscription:
    return parse(json.dumps({"pattern": "static", "subscription": streams}))


def by_thread(owners: Owners) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each, thread in sorted(owners.items()):
        found.setdefault(thread, []).append(str(each))
    return found


def consumer_of(thread: str) -> str:
    return thread.rpartition("-")[0]


def moved(before: Owners, after: Owners) -> list[TopicPartition]:
    return [each for each in before.keys() | after.keys() if before.get(each) != after.get(each)]


@requirement("The partitions of a topic are divided among consumer threads")
def test_there_are_these_assignors() -> None:
    assert tuple(ASSIGNORS) == KINDS
    with pytest.raises(TidelogError, match="range, roundrobin, sticky") as caught:
        assign("fair", {}, {}, {})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@requirement("The partitions of a topic are divided among consumer threads")
def test_f08_1_range_gives_consecutive_partitions_and_one_more_to_the_first() -> None:
    members = {"b": static(t=1), "a": static(t=2)}
    assert by_thread(assign("range", members, {"t": 8}, {})) == {
        "a-0": ["t-0", "t-1", "t-2"],
        "a-1": ["t-3", "t-4", "t-5"],
        "b-0": ["t-6", "t-7"],
    }


def test_f08_1_range_is_per_topic_and_surplus_threads_get_nothing() -> None:
    members = {"a": static(t=1, u=1), "b": static(t=1, u=1), "c": static(u=3)}
    owners = by_thread(assign("range", members, {"t": 3, "u": 2}, {}))
    assert owners == {"a-0": ["t-0", "t-1", "u-0"], "b-0": ["t-2", "u-1"]}


def test_f08_1_threads_are_sorted_as_text() -> None:
    owners = assign("range", {"a": static(t=11)}, {"t": 11}, {})
    assert [owners[TopicPartition("t", i)] for i in (0, 1, 2, 10)] == ["a-0", "a-1", "a-10", "a-9"]


def test_roundrobin_goes_over_all_topics_and_passes_over_who_does_not_read_one() -> None:
    everyone = {name: static(t=1, u=1) for name in ("a", "b")}
    owners = by_thread(assign("roundrobin", everyone, {"t": 3, "u": 3}, {}))
    assert owners == {"a-0": ["t-0", "t-2", "u-1"], "b-0": ["t-1", "u-0", "u-2"]}
    members = {"a": static(t=1), "b": static(t=1, u=1), "c": static(u=1)}
    owners = by_thread(assign("roundrobin", members, {"t": 3, "u": 3}, {}))
    assert owners == {"a-0": ["t-0", "t-2"], "b-0": ["t-1", "u-0", "u-2"], "c-0": ["u-1"]}


def test_a_wildcard_reads_what_fits_and_no_more() -> None:
    members = {"a": parse('{"pattern": "white_list", "subscription": {"ev.*": 1}}')}
    for kind in KINDS:
        owners = assign(kind, members, {"events": 1, "clicks": 1}, {})
        assert owners == {TopicPartition("events", 0): "a-0"}


def test_an_unknown_topic_and_nobody_at_all_get_nothing() -> None:
    for kind in KINDS:
        assert assign(kind, {"a": static(t=1, nowhere=1)}, {"t": 0, "u": 2}, {}) == {}
        assert assign(kind, {}, {"t": 4}, {}) == {}


def test_sticky_takes_back_what_nobody_had_before_it_moves_what_somebody_had() -> None:
    members = {"a": static(t=1, u=1), "b": static(t=1)}
    before = {TopicPartition("t", 0): "a-0", TopicPartition("t", 1): "b-0"}
    owners = by_thread(assign("sticky", members, {"t": 4, "u": 2}, before))
    assert owners == {"a-0": ["t-0", "u-0", "u-1"], "b-0": ["t-1", "t-2", "t-3"]}


def test_sticky_moves_load_through_an_audience_in_between() -> None:
    """A newcomer reads nothing of the one with the most; the one between them takes on that side and gives on this.

    It ends where no single move helps.
    """
    members = {"a": static(t=1), "b": static(t=1, u=1), "c": static(u=1)}
    before = {TopicPartition("t", i): "a-0" for i in range(6)} | {TopicPartition("u", i): "b-0" for i in range(3)}
    owners = assign("sticky", members, {"t": 6, "u": 3}, before)
    assert Counter(owners.values()) == {"a-0": 4, "b-0": 3, "c-0": 2}


topics = st.sampled_from(["t", "u", "v", "w"])
counts = st.dictionaries(topics, st.integers(0, 12), max_size=4)
subscriptions = st.dictionaries(topics, st.integers(1, 3), min_size=1).map(lambda streams: static(**streams))
patterns = st.sampled_from(["[tu]", ".", "w", "no.*"]).map(
    lambda text: parse(json.dumps({"pattern": "white_list", "subscription": {text: 2}}))
)
names = st.sampled_from([f"c{i}" for i in range(12)] + ["c1-0"])
groups = st.dictionaries(names, subscriptions | patterns, max_size=8)
likes = st.dictionaries(names, st.just(static(t=1, u=1, v=1, w=1)), min_size=1, max_size=9)


def all_of(partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, i) for topic, count in partitions.items() for i in range(count)]


@requirement("The partitions of a topic are divided among consumer threads")
@given(kind=st.sampled_from(KINDS), members=groups, partitions=counts, data=st.data())
def test_every_partition_that_is_read_has_one_owner_who_reads_it(
    kind: str, members: dict[str, Subscription], partitions: dict[str, int], data: st.DataObject
) -> None:
    everything = all_of(partitions)
    threads = [f"{name}-{i}" for name in (*members, "gone") for i in range(3)]
    drawn = st.dictionaries(st.sampled_from(everything), st.sampled_from(threads)) if everything else st.just({})
    current = data.draw(drawn)
    held = data.draw(st.sets(st.sampled_from(everything))) if everything else set()
    owners = assign(kind, members, partitions, current, held)
    read = {each for each in everything if each not in held and any(s.matches(each.topic) for s in members.values())}
    assert owners.keys() == read
    for each, thread in owners.items():
        index = int(thread.rpartition("-")[2])
        assert 0 <= index < members[consumer_of(thread)].threads_for(each.topic)
    backwards = dict(reversed(members.items()))
    assert assign(kind, backwards, dict(reversed(partitions.items())), current, held) == owners
    if kind == "sticky":
        load = Counter(owners.values())
        for each, thread in owners.items():  # no single move would make it more even
            others = [f"{n}-{i}" for n, s in members.items() for i in range(s.threads_for(each.topic))]
            assert load[thread] - min(load[other] for other in others) <= 1
        assert assign(kind, members, partitions, owners, held) == owners


@given(kind=st.sampled_from(["roundrobin", "sticky"]), members=likes, partitions=counts)
def test_equal_subscriptions_get_equal_shares(
    kind: str, members: dict[str, Subscription], partitions: dict[str, int]
) -> None:
    owners = assign(kind, members, partitions, {})
    share, more = divmod(len(all_of(partitions)), len(members))
    load = Counter(consumer_of(thread) for thread in owners.values())
    assert sorted((load[name] for name in members), reverse=True) == [share + (i < more) for i in range(len(members))]


@given(members=likes, partitions=counts)
def test_sticky_moves_nothing_that_stays_balanced(members: dict[str, Subscription], partitions: dict[str, int]) -> None:
    owners = assign("roundrobin", members, partitions, {})
    assert assign("sticky", members, partitions, owners) == owners


@given(members=likes, partitions=counts, data=st.data())
def test_sticky_moves_only_what_a_lost_member_had(
    members: dict[str, Subscription], partitions: dict[str, int], data: st.DataObject
) -> None:
    before = assign("sticky", members, partitions, {})
    gone = data.draw(st.sampled_from(sorted(members)))
    left = {name: subscription for name, subscription in members.items() if name != gone}
    after = assign("sticky", left, partitions, before)
    assert sorted(moved(before, after)) == sorted(
        each for each, thread in before.items() if consumer_of(thread) == gone
    )


@given(members=likes, partitions=counts)
def test_sticky_moves_only_a_fair_share_to_a_new_member(
    members: dict[str, Subscription], partitions: dict[str, int]
) -> None:
    before = assign("sticky", members, partitions, {})
    after = assign("sticky", members | {"new": next(iter(members.values()))}, partitions, before)
    gained = [each for each, thread in after.items() if thread == "new-0"]
    assert sorted(moved(before, after)) == sorted(gained)
    assert len(gained) == len(before) // (len(members) + 1)


@given(members=likes, partitions=counts, data=st.data())
def test_sticky_moves_as_little_as_balance_allows(
    members: dict[str, Subscription], partitions: dict[str, int], data: st.DataObject
) -> None:
    """From any distribution: who has too much gives the surplus, who has too little takes what is missing."""
    threads = [f"{name}-0" for name in members]
    current = {each: data.draw(st.sampled_from(threads)) for each in all_of(partitions)}
    after = assign("sticky", members, partitions, current)
    share, more = divmod(len(current), len(threads))
    load = Counter(current.values())
    largest_first = sorted((load[thread] for thread in threads), reverse=True)
    surplus = sum(max(0, has - share - (i < more)) for i, has in enumerate(largest_first))
    assert len(moved(current, after)) == surplus


@pytest.mark.parametrize("kind", KINDS)
def test_k01_20000_partitions_over_5000_members_take_less_than_a_second(kind: str) -> None:
    partitions = {f"topic-{i}": 1000 for i in range(20)}
    members = {f"consumer-{i}": static(**dict.fromkeys(partitions, 1)) for i in range(5000)}
    owners = assign(kind, members, partitions, {})
    first = seconds_of(lambda: assign(kind, members, partitions, {}))
    del members["consumer-7"]
    again = assign(kind, members, partitions, owners)
    second = seconds_of(lambda: assign(kind, members, partitions, owners))
    assert len(owners) == len(again) == 20_000
    assert max(first, second) < 1
