"""Limits for the lists of every request: a server's decoder refuses more items, and senders cut by the same numbers.

A limit holds for all items of one field together, also where each of many outer items has such a list. Items are counted
before any of them becomes a Python object: 4 MiB hold two million empty ones.
"""

import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from tidelog import values
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire import messages as m

K = TypeVar("K")
T = TypeVar("T")

PARTITIONS: Final = 10_000
"""Partitions that a client's request names. No topic has more, and no AlterIsr of a broker, which counts 116 bytes for each."""
NAMES: Final = 10_000
"""Topics that a client asks about."""
GROUPS: Final = 1_000
"""Groups that a client asks about: what is said of one may be long."""
TOPICS: Final = 1_000
"""Topics that one request changes."""
CONFIGS: Final = 50_000
"""Settings in one request: TOPICS times as many as there are, and some."""
REPLICAS: Final = 100_000
"""Replicas of PARTITIONS partitions."""
BROKERS: Final = 1_000
OFFSETS: Final = 200_000
"""Offsets of one group: the default of `group_max_partitions`."""
STATES: Final = 100
"""Names of group states, of which there are five, or of families of events."""
TOLD: Final = 20_000
"""Partitions or topics in one order of a controller, which sends no more than 1 MiB at a time and counts 66 bytes or more for
each (`controller.parts`)."""
MEMBERS: Final = 40_000
"""Members of in-sync sets in one order: a controller counts 33 bytes for each."""
DELETED: Final = 100_000
"""Names of deleted topics in one order: a controller counts 12 bytes for each beside its length."""
LIVE: Final = 10_000
"""Brokers of a cluster."""
LISTENERS: Final = 3 * LIVE
POSITIONS: Final = 50_000
"""Replicas that a follower speaks of at once. It sends 1 MiB at a time and counts 160 bytes for each; one of release 0.2.0 sends
all that it has in one request."""
SEQUENCE_JUMP_MAX: Final = 2**32
"""The largest step from one sequence number of a controller's orders to the next. It numbers its tries one by one, so that a
larger one is not its own; by one as large it gets behind a number that another sender has used."""

_ELECTED: Final = {"topics": TOPICS, "topics.partitions": PARTITIONS}
_PARTITION_STATES: Final = {
    "partition_states": TOLD,
    "partition_states.isr": MEMBERS,
    "partition_states.replicas": REPLICAS,
    "partition_states.adding_replicas": REPLICAS,
    "partition_states.removing_replicas": REPLICAS,
    "partition_states.offline_replicas": REPLICAS,
    "live_brokers": LIVE,
    "live_brokers.listeners": LISTENERS,
}

LIMITS: Final[Mapping[type[Any], Mapping[str, int]]] = {
    m.CreateTopicsRequest: {
        "topics": TOPICS,
        "topics.assignments": PARTITIONS,
        "topics.assignments.replicas": REPLICAS,
        "topics.configs": CONFIGS,
    },
    m.DeleteTopicsRequest: {"names": TOPICS},
    m.DescribeTopicsRequest: {"names": NAMES},
    m.CreatePartitionsRequest: {
        "topics": TOPICS,
        "topics.assignments": PARTITIONS,
        "topics.assignments.replicas": REPLICAS,
    },
    m.ElectLeadersRequest: {**_ELECTED, "candidates": BROKERS},
    m.ReleaseVetoRequest: _ELECTED,
    m.AlterPartitionReassignmentsRequest: {
        "topics": TOPICS,
        "topics.partitions": PARTITIONS,
        "topics.partitions.replicas": REPLICAS,
        "topics.cancelled": PARTITIONS,
    },
    m.ListPartitionReassignmentsRequest: _ELECTED,
    m.IncrementalAlterConfigsRequest: {"topics": TOPICS, "topics.changes": CONFIGS},
    m.DescribeConfigsRequest: {"topics": TOPICS},
    m.DeleteRecordsRequest: {"partitions": PARTITIONS},
    m.DescribeLogDirsRequest: {"topics": NAMES},
    m.DiscardDamageRequest: _ELECTED,
    m.AddBrokersRequest: {"broker_ids": BROKERS},
    m.DrainBrokersRequest: {"broker_ids": BROKERS},
    m.LeaderAndIsrRequest: {**_PARTITION_STATES, "topic_states": TOLD, "topic_states.configs": CONFIGS},
    m.StopReplicaRequest: {"partitions": TOLD},
    m.UpdateMetadataRequest: {**_PARTITION_STATES, "deleted_topics": DELETED},
    m.ReplicaEndsRequest: {"partitions": PARTITIONS},
    m.AlterIsrRequest: {
        "topics": PARTITIONS,
        "topics.partitions": PARTITIONS,
        "topics.partitions.leader_and_isr.isr": REPLICAS,
    },
    m.ClusterMetadataRequest: {"topics": NAMES},
    m.ConsumerMessage: dict.fromkeys(("ping.offset_info", "stopped.offset_info", "leave.offset_info"), OFFSETS),
    m.CommitOffsetsRequest: {"offsets": OFFSETS},
    m.FetchOffsetsRequest: {"partitions": OFFSETS},
    m.ListGroupsRequest: {"states": STATES},
    m.DescribeGroupsRequest: {"group_ids": GROUPS},
    m.DeleteGroupsRequest: {"group_ids": GROUPS},
    m.ProduceRequest: {"partitions": PARTITIONS},
    m.FetchRequest: {"partitions": PARTITIONS},
    m.ListOffsetsRequest: {"partitions": PARTITIONS},
    m.OffsetForLeaderEpochRequest: {"partitions": PARTITIONS},
    m.ReplicaFetchRequest: {"partitions": POSITIONS},
    m.WatchRequest: {"families": STATES, "topics": NAMES, "groups": GROUPS},
}
"""Most items of each list, by its path from the request; every request that has a list is here."""


def too_many(field: str, count: int | str, most: int) -> TidelogError:
    return TidelogError(f"{field} holds {count} entries, at most {most} are allowed", ErrorCode.INVALID_REQUEST)


class Field(NamedTuple):
    """A list in a message, or a message that has lists inside."""

    path: str
    name: str
    most: int | None
    """None: it is no list."""
    inner: "tuple[Field, ...]"


class ListCounter:
    """Counts the lists of requests of one kind."""

    def __init__(self, kind: type[Any]) -> None:
        self._fields = fields(kind)
        self._least = min(LIMITS[kind].values())

    def check(self, request: Any, size_bytes: int) -> None:
        """TidelogError names the first list of `request`, a message of protobuf of this size, that holds too many items."""
        if size_bytes > self._least:  # each item takes a byte at least
            _count((request,), self._fields)


def fields(kind: type[Any]) -> tuple[Field, ...]:
    """The lists of requests of one kind, and what has lists inside."""
    return _fields(kind, "", LIMITS[kind]) if kind in LIMITS else ()


def has_lists(kind: type[Any]) -> bool:
    for hint in typing.get_type_hints(kind).values():
        held = [each for each in typing.get_args(hint) or (hint,) if isinstance(each, type)]
        if typing.get_origin(hint) is tuple or any(
            issubclass(each, values.Message) and has_lists(each) for each in held
        ):
            return True
    return False


def _fields(kind: type[Any], before: str, limits: Mapping[str, int]) -> tuple[Field, ...]:
    found = []
    for name, hint in typing.get_type_hints(kind).items():
        path = before + name
        many = typing.get_origin(hint) is tuple
        (held,) = set(typing.get_args(hint) or (hint,)) - {..., type(None)}
        is_message = isinstance(held, type) and issubclass(held, values.Message)
        inner = _fields(held, f"{path}.", limits) if is_message else ()
        if many or inner:
            found.append(Field(path, name, limits[path] if many else None, inner))
    return tuple(found)


def _count(holders: Iterable[Any], fields: Iterable[Field]) -> None:
    """All items of a list are counted before anything inside one of them is looked at."""
    for path, name, most, inner in fields:
        held = [getattr(holder, name) for holder in holders]
        if most is not None:
            count = sum(map(len, held))
            if count > most:
                raise too_many(path, count, most)
            held = [item for items in held for item in items] if inner else []
        if inner:
            _count(held, inner)


_CUT_LISTS: Final[dict[type[Any], tuple[int, tuple[Field, ...]]]] = {}


def _cut_list(kind: type[Any]) -> tuple[int, tuple[Field, ...]]:
    """The number of items in one part of the first list of a request, and the lists inside its items.

    With the longest topic names PARTITIONS items fit in 4 MiB, and more may not, also where a server would take more.
    """
    found = _CUT_LISTS.get(kind)
    if found is None:
        first = next(iter(LIMITS[kind]))
        _, _, most, inner = next(field for field in fields(kind) if field.path == first)
        assert most is not None, kind
        found = _CUT_LISTS[kind] = min(most, PARTITIONS), inner
    return found


def _counts(item: Any, fields: Iterable[Field]) -> Counter[str]:
    """Number of items in the lists inside `item`, by path."""
    counts: Counter[str] = Counter()
    for path, name, most, inner in fields:
        held = getattr(item, name)
        if most is not None:
            counts[path] += len(held)
        for each in held if most is not None else (held,):
            counts += _counts(each, inner)
    return counts


def parts(kind: type[Any], items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Cuts the first list of a request of `kind` so that no part is refused; nothing for no items.

    An item that holds more than a request may goes alone.
    """
    most, inner = _cut_list(kind)
    if not inner:
        for begin in range(0, len(items), most):
            yield tuple(items[begin : begin + most])
        return
    limits = LIMITS[kind]
    begin, held = 0, Counter[str]()
    for end, item in enumerate(items):
        more = _counts(item, inner)
        full = end - begin == most or any(held[path] + more[path] > limits[path] for path in more)
        if full and end > begin:
            yield tuple(items[begin:end])
            begin, held = end, Counter()
        held += more
    if begin < len(items):
        yield tuple(items[begin:])


def parts_by(kind: type[Any], items: Iterable[tuple[K, T]]) -> Iterator[tuple[K, tuple[T, ...]]]:
    """The same for items that go to different receivers, leaders for example: each receiver with one part at a time."""
    by: dict[K, list[T]] = {}
    for receiver, item in items:
        by.setdefault(receiver, []).append(item)
    for receiver, found in by.items():
        for part in parts(kind, found):
            yield receiver, part


def parts_or_all(kind: type[Any], items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """`parts` for a request whose empty list stands for everything: one empty part for no items."""
    yield from parts(kind, items) if items else ((),)
