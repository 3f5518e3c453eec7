"""Each blocking client has what the asynchronous one has, with the same parameters and types."""

import inspect
from typing import assert_type

import pytest

from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.group_admin import GroupAdmin
from tidelog.client.log_admin import LogAdmin
from tidelog.client.producer import Producer
from tidelog.client.producer_stats import ProducerStats
from tidelog.client.reassignments import ReassignmentAdmin
from tidelog.client.records import ConsumerRecord
from tidelog.client.sync import (
    SyncAdmin,
    SyncConsumer,
    SyncGroupAdmin,
    SyncLogAdmin,
    SyncProducer,
    SyncReassignmentAdmin,
)
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

TWINS: list[tuple[type, type, set[str]]] = [
    # A blocking client starts when it is made, and `close` is its `stop`.
    (Admin, SyncAdmin, {"start", "stop"}),
    # `abandon` plays a process that dies; `fetched_at` is on the event loop's clock; `placed` is for agents.
    (Consumer, SyncConsumer, {"start", "stop", "abandon", "fetched_at", "placed"}),
    # Batches of `tidelog perf` and Spark, and what SyncProducer itself asks the producer inside.
    (
        Producer,
        SyncProducer,
        {
            "start",
            "stop",
            "produce_encoded",
            "topic_info",
            "checked_size",
            "stayed_full",
            "max_block_s",
            "buffer_bytes",
        },
    ),
    (GroupAdmin, SyncGroupAdmin, set()),
    (LogAdmin, SyncLogAdmin, set()),
    (ReassignmentAdmin, SyncReassignmentAdmin, set()),
]
IDS = [twin.__name__ for _, twin, _ in TWINS]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def parameters(function: object) -> list[inspect.Parameter]:
    assert callable(function)
    return list(inspect.signature(function).parameters.values())


@pytest.mark.parametrize(("kind", "twin", "absent"), TWINS, ids=IDS)
def test_nothing_public_is_missing(kind: type, twin: type, absent: set[str]) -> None:
    assert public(kind) - public(twin) == absent & public(kind)


@pytest.mark.parametrize(("kind", "twin", "absent"), TWINS, ids=IDS)
def test_parameters_are_the_same(kind: type, twin: type, absent: set[str]) -> None:
    for name in public(kind) - absent:
        if callable(getattr(kind, name)):
            assert parameters(getattr(twin, name)) == parameters(getattr(kind, name)), name
    if kind in (Admin, Consumer, Producer):
        assert inspect.signature(twin) == inspect.signature(kind)


def is_checked_by_mypy() -> None:
    """`make check` fails where one of these is of another type, and where mypy would not see one of the mistakes."""
    assert_type(SyncConsumer(group="g").poll(10, timeout_s=1), list[ConsumerRecord])
    assert_type(SyncAdmin().groups.committed("g"), dict[TopicPartition, m.OffsetInfo])
    assert_type(SyncProducer().stats, ProducerStats)
    SyncProducer(lingerms=3)  # type: ignore[call-arg]
    SyncAdmin().create_topic("t", partitions="3")  # type: ignore[arg-type]
