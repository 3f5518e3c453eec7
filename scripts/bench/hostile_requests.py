"""Requests that HOSTILE sends: generated ones that a client would not send, and ordinary ones of the same methods.

They come from the generator of the tests, tests/helpers/hostile.py, which must be on the path.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from helpers import hostile
from tidelog.broker.service import ADMIN_METHODS
from tidelog.client.groups import topic_count
from tidelog.client.records import Record, encode_batch
from tidelog.ports.net import Bidi, Unary
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.codec import encode

Method = Unary[Any, Any] | Bidi[Any, Any]
VICTIM: Final = "victim"
"""The topic that requests are about. They may delete it, and it is created again."""
EXTERNAL, INTERNAL, CONTROLLER = "EXTERNAL", "INTERNAL", "CONTROLLER"
GROUP: Final = "harmless"
NO_BROKER: Final = 99
"""The id of no broker."""
BATCH: Final = encode_batch([Record(None, b"x" * 100, (), 1_700_000_000_000)])
_REPLICA_ID: Final = b"\x08" + bytes((NO_BROKER,))
"""Field 1 of ReplicaFetchRequest. The last one in a message counts."""


class Asked(NamedTuple):
    """A request, for one of the listeners of a kind."""

    method: Method
    listener: str
    data: bytes


def listeners(method: Method) -> tuple[str, ...]:
    """Kinds of listeners that are asked for a method. INTERNAL also serves what EXTERNAL does, by the same handlers."""
    if method.path.startswith("/tidelog.v1.ControllerService/"):
        return (CONTROLLER,)
    if method.path.startswith("/tidelog.v1.BrokerControl/") or method is s.REPLICA_SERVICE_REPLICA_FETCH:
        return (INTERNAL,)
    if method in ADMIN_METHODS or method is s.ADMIN_SERVICE_DESCRIBE_CLUSTER:
        return EXTERNAL, CONTROLLER
    return (EXTERNAL,)


def hostile_requests() -> Iterator[Asked]:
    """Endless: the methods by turns, each with its next request."""
    return _by_turns(_hostile)


def harmless_requests() -> Iterator[Asked]:
    """The same with one small request for each method."""
    return _by_turns(lambda method: itertools.repeat(encode(harmless(method))))


def _by_turns(requests: Callable[[Method], Iterator[bytes]]) -> Iterator[Asked]:
    turns = [(method, itertools.cycle(listeners(method)), requests(method)) for method in hostile.METHODS]
    for method, kinds, each in itertools.cycle(turns):
        yield Asked(method, next(kinds), next(each))


def _hostile(method: Method) -> Iterator[bytes]:
    """Every broker has another epoch than those that are generated, so none obeys an order or takes part in a change of the ISR.
    Only a follower is believed whatever its epoch, and has one stream to a leader: ReplicaFetch names no real one."""
    kind = method.request
    while True:
        for request in itertools.chain(
            [hostile.empty(kind)],
            hostile.extremes(kind, hostile.LEAST),
            hostile.extremes(kind, hostile.about(VICTIM)),
            hostile.long_names(kind),
            hostile.at_limits(kind),
            hostile.full_lists(kind),
            hostile.garbage(),
        ):
            named = method is not s.REPLICA_SERVICE_REPLICA_FETCH or _names_no_broker(request)
            yield request.data if named else request.data + _REPLICA_ID


def _names_no_broker(request: hostile.Request) -> bool:
    return request.field == "replica_id" and not request.value.startswith("0 ")


def harmless(method: Method) -> Any:
    """A small request that is valid, or what a broker refuses because only the controller or another broker may send it."""
    kind = method.request
    changes = _HARMLESS.get(kind)
    if isinstance(changes, dict):
        return replace(hostile.about(VICTIM).message(kind), **changes)
    return hostile.about(VICTIM).message(kind) if changes is None else changes


_FIRST: Final = (m.TopicPartitions(topic=VICTIM, partitions=(0,)),)
_PRODUCE: Final = m.ProduceRequest(
    acks=-1,
    timeout_ms=1_000,
    partitions=(m.ProducePartition(topic=VICTIM, partition=0, leader_epoch=-1, records=BATCH),),
)
_REGISTER: Final = m.RegisterConsumerRequest(
    group_id=GROUP,
    consumer_id="harmless-1",
    topic_count=topic_count([VICTIM], None, None),
    session_timeout_ms=10_000,
    incarnation=1,
    max_processing_ms=300_000,
    client_id=GROUP,
    admission=0,
    watch_port=0,
)
_HARMLESS: Final[Mapping[type[Any], Any]] = {
    # fields of a request about partition 0 of the victim, or a whole request
    m.CreateTopicsRequest: {
        "topics": (m.NewTopic(name="another", num_partitions=1, replication_factor=3),),
        "validate_only": True,
    },
    m.DeleteTopicsRequest: {"names": ("another",)},
    m.CreatePartitionsRequest: {"topics": (m.NewPartitions(name=VICTIM, total_count=2),), "validate_only": True},
    m.ElectLeadersRequest: {"topics": _FIRST, "candidates": ()},
    m.AlterPartitionReassignmentsRequest: {
        "topics": (
            m.TopicReassignment(topic=VICTIM, partitions=(m.PartitionAssignment(partition=0, replicas=(0, 1, 2)),)),
        ),
        "validate_only": True,
    },
    m.IncrementalAlterConfigsRequest: {
        "topics": (m.TopicConfigChanges(name=VICTIM, changes=(m.ConfigChange(key="retention.ms", value="-1"),)),),
        "validate_only": True,
    },
    m.AddBrokersRequest: {"validate_only": True},
    m.DrainBrokersRequest: {"validate_only": True},
    m.ConsumerMessage: m.ConsumerMessage(number=1, register=_REGISTER),
    m.CommitOffsetsRequest: {"group_id": GROUP},
    m.FetchOffsetsRequest: {"group_id": GROUP},
    m.ListGroupsRequest: {"states": ()},
    m.DescribeGroupsRequest: {"group_ids": (GROUP,)},
    m.DeleteGroupsRequest: {"group_ids": ("another",)},
    m.ProduceRequest: _PRODUCE,
    m.FetchRequest: m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1_024,
        partitions=(
            m.FetchPartition(
                topic=VICTIM, partition=0, leader_epoch=-1, offset=0, last_fetched_epoch=-1, max_bytes=1_024
            ),
        ),
    ),
    m.ListOffsetsRequest: m.ListOffsetsRequest(
        partitions=(m.ListOffsetsPartition(topic=VICTIM, partition=0, leader_epoch=-1, timestamp=-1),)
    ),
    m.InitProducerIdRequest: {"producer_id": -1, "producer_epoch": -1},
    m.ReplicaFetchRequest: {"replica_id": NO_BROKER},
    m.WatchRequest: {"families": (), "topics": (), "groups": (), "member": None},
}
