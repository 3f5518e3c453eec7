"""A request that is too large for one message, in parts: nothing lost, nothing twice, every part small enough."""

from collections.abc import Iterable
from typing import TypeVar

import pytest

from helpers.requirements import requirement
from tidelog.controller.merge import Request
from tidelog.controller.parts import parts
from tidelog.sizes import PART_BYTES
from tidelog.wire import messages as m
from tidelog.wire.codec import encode
from unit.controller.test_merge import metadata, partition, roles, stop

R = TypeVar("R", m.LeaderAndIsrRequest, m.StopReplicaRequest, m.UpdateMetadataRequest)

NAME = "n" * 245
MANY = 40_000


def states(count: int, per_topic: int = 100) -> tuple[m.PartitionState, ...]:
    """With long names and large numbers: nothing that a cluster holds is longer."""
    member = m.IsrMember(broker_id=2**31 - 1, broker_epoch=2**63 - 1)
    return tuple(
        m.PartitionState(
            topic=f"{NAME}{index // per_topic:04}",
            topic_id=bytes(16),
            partition=2**30 + index,
            controller_epoch=2**31 - 1,
            leader=-1,
            leader_epoch=2**31 - 1,
            isr=(member, member, member),
            partition_epoch=2**31 - 1,
            replicas=(2**31 - 1,) * 3,
            is_new=True,
            recovering=True,
        )
        for index in range(count)
    )


MANY_STATES = states(MANY)


def of_kind(kind: type[R], requests: Iterable[Request]) -> list[R]:
    """All of `requests`, each of which must be a `kind`."""
    found = []
    for request in requests:
        assert isinstance(request, kind), request
        found.append(request)
    return found


def sized(request: R) -> list[R]:
    cut = of_kind(type(request), parts(request))
    sizes = [len(encode(part)) for part in cut]
    assert max(sizes) <= PART_BYTES
    assert len(cut) <= 2 * sum(sizes) / PART_BYTES + 1, "parts that are nearly empty"
    return cut


@requirement("A topic id separates topics that share a name")
def test_a_full_list_of_40_000_partitions_goes_in_parts_that_say_so() -> None:
    cut = sized(roles(*MANY_STATES, full=True))
    assert len(cut) > 4
    assert [(part.full, part.continued, part.more) for part in cut] == [
        (True, index > 0, index < len(cut) - 1) for index in range(len(cut))
    ]
    told = [state for part in cut for state in part.partition_states]
    assert tuple(told) == MANY_STATES
    for part in cut:
        assert {topic.topic for topic in part.topic_states} == {state.topic for state in part.partition_states}


def test_news_of_40_000_partitions_go_in_parts_that_stand_alone() -> None:
    cut = sized(roles(*MANY_STATES))
    assert not any(part.full or part.continued or part.more for part in cut)
    assert tuple(state for part in cut for state in part.partition_states) == MANY_STATES


@pytest.mark.parametrize("full", [True, False])
def test_metadata_of_40_000_partitions_and_many_deleted_topics(full: bool) -> None:
    deleted = tuple(f"{NAME}{index:04}" for index in range(9_000))
    cut = sized(metadata(*MANY_STATES, full=full, deleted=deleted))
    told = [state for part in cut for state in part.partition_states]
    gone = [name for part in cut for name in part.deleted_topics]
    assert tuple(told) == MANY_STATES and tuple(gone) == deleted
    first_told = next(index for index, part in enumerate(cut) if part.partition_states)
    assert not any(part.deleted_topics for part in cut[first_told:])
    assert [part.more for part in cut] == [full] * (len(cut) - 1) + [False]
    assert [part.continued for part in cut] == [False] + [full] * (len(cut) - 1)


def test_40_000_stops() -> None:
    request = stop(*((f"{NAME}{index // 100:04}", 2**30 + index, bytes(16)) for index in range(MANY)))
    cut = sized(request)
    assert tuple(each for part in cut for each in part.partitions) == request.partitions


@pytest.mark.parametrize(
    "request_",
    [
        roles(full=True),
        roles(partition("t", 0), full=True),
        metadata(full=True),
        metadata(partition("t", 0), deleted=("u",)),
        stop(("u", 0, b"a")),
        stop(),
    ],
)
def test_what_is_small_stays_as_it_is(request_: Request) -> None:
    assert parts(request_) == [request_]


def test_one_item_that_is_larger_goes_alone() -> None:
    assert len(parts(roles(*states(3), full=True), part_bytes=10)) == 3
