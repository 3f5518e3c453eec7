"""A control request that is too large for one message, in parts.

A broker with 40,000 partitions and long names is told 10 MB at once, and no broker receives more than `request_max_bytes`. One
item that is larger than a part goes alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from tidelog.controller.merge import Request
from tidelog.sizes import PART_BYTES
from tidelog.wire import messages as m

_INT: Final = 11
"""The longest varint, of a negative number, with its tag."""

T = TypeVar("T")


def parts(request: Request, part_bytes: int = PART_BYTES) -> list[Request]:
    """In the order to send. Only a full list needs to be told that it goes on: every other part stands alone."""
    match request:
        case m.LeaderAndIsrRequest():
            return _roles(request, part_bytes)
        case m.StopReplicaRequest():
            cut_stops = _cut(((each, _stop_bytes(each)) for each in request.partitions), part_bytes)
            return [replace(request, partitions=part) for part in cut_stops]
        case m.UpdateMetadataRequest():
            return _metadata(request, part_bytes)


def _roles(request: m.LeaderAndIsrRequest, part_bytes: int) -> list[Request]:
    topics = {topic.topic: topic for topic in request.topic_states}
    # A topic that lies across two parts is described in both.
    largest = max((_topic_bytes(topic) for topic in topics.values()), default=0)
    cut = _cut(_role_sizes(request.partition_states, topics), part_bytes - _live_bytes(request.live_brokers) - largest)
    return [
        replace(
            request,
            partition_states=states,
            topic_states=tuple(topics[name] for name in dict.fromkeys(x.topic for x in states) if name in topics),
            continued=request.full and index > 0,
            more=request.full and index < len(cut) - 1,
        )
        for index, states in enumerate(cut)
    ]


def _role_sizes(
    states: Iterable[m.PartitionState], topics: Mapping[str, m.TopicState]
) -> Iterator[tuple[m.PartitionState, int]]:
    named: set[str] = set()
    for state in states:
        new = state.topic not in named and state.topic in topics
        named.add(state.topic)
        yield state, _state_bytes(state) + (_topic_bytes(topics[state.topic]) if new else 0)


def _metadata(request: m.UpdateMetadataRequest, part_bytes: int) -> list[Request]:
    room = part_bytes - _live_bytes(request.live_brokers)
    deleted = _cut(((name, len(name) + 12) for name in request.deleted_topics), room)
    states = _cut(((state, _state_bytes(state)) for state in request.partition_states), room)
    # What was deleted goes first: the same name may have been made again.
    cut: list[tuple[tuple[str, ...], tuple[m.PartitionState, ...]]] = [
        *((names, ()) for names in deleted if names),
        *(((), part) for part in states if part),
    ]
    if len(deleted) == len(states) == 1:
        cut = [(deleted[0], states[0])]
    return [
        replace(
            request,
            deleted_topics=names,
            partition_states=part,
            continued=request.full and index > 0,
            more=request.full and index < len(cut) - 1,
        )
        for index, (names, part) in enumerate(cut)
    ]


def _cut(items: Iterable[tuple[T, int]], room: int) -> list[tuple[T, ...]]:
    """At least one part, if only an empty one."""
    cut: list[tuple[T, ...]] = []
    part: list[T] = []
    left = room
    for item, size in items:
        if part and size > left:
            cut.append(tuple(part))
            part, left = [], room
        part.append(item)
        left -= size
    return [*cut, tuple(part)] if part or not cut else cut


def _state_bytes(state: m.PartitionState) -> int:
    members = len(state.isr) * 3 * _INT
    replicas = (len(state.replicas) + len(state.adding_replicas) + len(state.removing_replicas) + 3) * _INT
    return len(state.topic) + len(state.topic_id) + 10 * _INT + members + replicas


def _topic_bytes(topic: m.TopicState) -> int:
    configs = sum(len(each.key.encode()) + len(each.value.encode()) + 3 * _INT for each in topic.configs)
    return len(topic.topic) + len(topic.topic_id) + 3 * _INT + configs


def _stop_bytes(stop: m.StopReplicaPartition) -> int:
    return len(stop.topic) + len(stop.topic_id) + 6 * _INT


def _live_bytes(live: Sequence[m.LiveBroker]) -> int:
    """And the request's own fields."""
    listeners = sum(len(x.name.encode()) + len(x.host.encode()) + 4 * _INT for each in live for x in each.listeners)
    return 8 * _INT + listeners + sum(len(each.rack.encode()) + 5 * _INT for each in live)
