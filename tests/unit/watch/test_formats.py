"""Protocol events as messages, JSON and diagrams."""

import json

import pytest

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.ports.recorder import Cause, Origin, ProtocolEvent, Subject, Znode
from tidelog.watch.formats import json_of, lanes_and_arrows, mermaid
from tidelog.watch.order import Told
from tidelog.watch.text import sentence
from tidelog.watch.wire import from_message, to_message
from tidelog.wire import messages as m
from tidelog.wire.codec import decode, encode

TP = TopicPartition("events", 0)
REFUSED = m.OrderRefused(order="LeaderAndIsr; #1", code=ErrorCode.STALE_CONTROLLER_EPOCH)


def told(process: str, number: int, subject: Subject, fields: object, cause: Origin | None = None) -> Told:
    return Told(process, 1_700, ProtocolEvent(1_600_000_000_123_456_789, number, subject, fields, cause))  # type: ignore[arg-type]


@pytest.mark.parametrize("subject", [TP, 7, 0, "billing", None])
@pytest.mark.parametrize("cause", [None, Cause("broker-1", 5, 9), Znode("/brokers/ids/1", -1)])
def test_an_event_travels_whole(subject: Subject, cause: Origin | None) -> None:
    event = told("controller-1", 3, subject, REFUSED, cause).event
    assert from_message(decode(m.WatchedEvent, encode(to_message(event)))) == event


def test_a_kind_of_a_newer_release_has_a_sentence() -> None:
    event = from_message(m.WatchedEvent(number=1, time_ns=2))
    assert sentence(event) == "does what this release does not know"


def test_json_names_the_incarnation_as_a_small_number() -> None:
    found = json_of(told("broker-1", 3, TP, REFUSED, Cause("controller-1", 5, 9)), lambda process, life: 2)
    assert json.loads(json.dumps(found)) == {
        "time_ns": 1_600_000_000_123_456_789,
        "process": "broker-1",
        "incarnation": 2,
        "number": 3,
        "family": "orders",
        "kind": "OrderRefused",
        "subject": {"topic": "events", "partition": 0},
        "fields": {"order": "LeaderAndIsr; #1", "code": "STALE_CONTROLLER_EPOCH"},
        "text": "refuses LeaderAndIsr; #1: STALE_CONTROLLER_EPOCH",
        "cause": {"process": "controller-1", "incarnation": 2, "number": 9, "arrived": True},
    }


def test_a_diagram_has_an_arrow_from_each_cause() -> None:
    sent = told("controller-1", 1, 1, m.OrderSent(order="LeaderAndIsr", broker_id=1, partitions=1, full=False))
    refused = told("broker-1", 1, 1, REFUSED, sent.name)
    lines = list(mermaid([sent, refused]))
    assert lines == [
        "sequenceDiagram",
        "    participant controller-1",
        "    participant broker-1",
        "    Note over controller-1: 12:26:40.123 sends LeaderAndIsr to broker-1: 1 partition",
        "    controller-1->>broker-1: 12:26:40.123 refuses LeaderAndIsr#59; #35;1: STALE_CONTROLLER_EPOCH",
    ]


def test_lanes_and_arrows_are_those_of_messages() -> None:
    sent = told("controller-1", 1, 1, m.OrderSent(order="LeaderAndIsr", broker_id=1, partitions=1, full=False))
    refused = told("broker-1", 1, 1, REFUSED, sent.name)
    own = told("broker-1", 2, 1, REFUSED, refused.name)
    unseen = told("broker-1", 3, 1, REFUSED, Cause("controller-2", 5, 9))
    written = told("controller-1", 2, None, m.StoreWritten(purpose="", result="", changes=(), more=0), refused.name)
    lanes, arrows = lanes_and_arrows([sent, refused, own, unseen, written])
    assert lanes == ["controller-1", "broker-1", "zookeeper"]
    assert arrows == [
        ("controller-1", "controller-1"),
        ("controller-1", "broker-1"),
        ("broker-1", "broker-1"),
        ("broker-1", "broker-1"),
        ("controller-1", "zookeeper"),
    ]
