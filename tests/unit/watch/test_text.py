"""Sentences of protocol events, and events of several processes in one order."""

import pytest
from google.protobuf.descriptor import FieldDescriptor

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.ports.recorder import Cause, ProtocolEvent, Subject
from tidelog.testing.clock import ManualClock
from tidelog.values import Message
from tidelog.watch.kinds import FAMILIES
from tidelog.watch.ring import Ring
from tidelog.watch.text import lines, merged, of_partition, sentence
from tidelog.wire import messages as m
from tidelog.wire.pb import watch_pb2

TP = TopicPartition("events", 0)
OTHER = TopicPartition("other", 1)
KINDS = sorted(
    field.message_type.name
    for field in watch_pb2.DESCRIPTOR.message_types_by_name["WatchedEvent"].oneofs_by_name["kind"].fields
)


def said(subject: Subject, fields: Message) -> str:
    return sentence(ProtocolEvent(0, 1, subject, fields, None))


def test_each_kind_is_of_one_family() -> None:
    assert sorted(kind.__name__ for kinds in FAMILIES.values() for kind in kinds) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_sentence(kind: str) -> None:
    values = {
        FieldDescriptor.CPPTYPE_INT32: 7,
        FieldDescriptor.CPPTYPE_INT64: 8_000,
        FieldDescriptor.CPPTYPE_BOOL: True,
        FieldDescriptor.CPPTYPE_STRING: "text",
        FieldDescriptor.CPPTYPE_ENUM: ErrorCode.NOT_CONTROLLER,
    }
    fields = watch_pb2.DESCRIPTOR.message_types_by_name[kind].fields
    given = {f.name: values[f.cpp_type] for f in fields if not f.is_repeated}
    lists = {f.name: (1, 2) for f in fields if f.is_repeated and f.cpp_type == FieldDescriptor.CPPTYPE_INT32}
    text = said(TP, getattr(m, kind)(**given, **lists))
    assert text and text[0].islower() and not text.endswith(".")


def test_some_sentences() -> None:
    chosen = m.LeaderChosen(
        leader_before=1, leader=2, leader_epoch=6, isr_before=(1, 2, 3), isr=(2, 3), why="suspected"
    )
    assert said(TP, chosen) == "elects broker-2 for events-0: epoch 6, ISR 1,2,3 -> 2,3 (suspected)"
    none = m.LeaderChosen(leader_before=2, leader=-1, leader_epoch=7, isr_before=(2,), isr=(2,), why="broker_down")
    assert said(TP, none) == "elects no broker for events-0: epoch 7, ISR 2 -> 2 (broker_down)"
    leads = m.BecameLeader(leader_epoch=6, log_end=81_220, high_watermark=81_204)
    assert said(TP, leads) == "events-0: leads in epoch 6, log end 81,220, high watermark 81,204"
    cut = m.LogTruncated(from_offset=9, to_offset=7, rule="leader epoch", epoch=3)
    assert said(TP, cut) == "events-0: truncates its log from 9 to 7 (epoch 3 of the leader ends there)"
    same = m.LogTruncated(from_offset=7, to_offset=7, rule="common epoch", epoch=2)
    assert said(TP, same) == (
        "events-0: truncates nothing, its log ends at 7 (epoch 2, the last in common, ends there)"
    )
    change = m.ZnodeChange(path="/a", version_before=11, version=12)
    assert said(None, m.StoreWritten(changes=(change,), more=0, result="written")) == "writes /a: version 11 -> 12"
    conflict = m.StoreWritten(changes=(change,) * 5, more=2, result="conflict")
    fenced = m.StoreWritten(more=2, result="fenced", purpose="offsets")
    assert said("g", fenced) == "writes 2 znodes (offsets): fenced"
    assert said(None, conflict).endswith("/a: version 11 -> 12 and 6 more znodes: conflict")


def test_an_effect_stands_behind_its_cause_by_any_clocks() -> None:
    early, late = ManualClock(0.0), ManualClock(3600.0)
    broker, controller, other = Ring("broker-1", 1, early), Ring("controller-1", 1, late), Ring("broker-2", 1, early)
    early.advance(1.0)
    order = controller.record(1, m.OrderSent(order="LeaderAndIsr", broker_id=1, partitions=1, full=False))
    received = broker.record(
        1, m.OrderReceived(order="LeaderAndIsr", controller_id=1, controller_epoch=1, partitions=1, full=False), order
    )
    broker.record(TP, m.BecameLeader(leader_epoch=1, log_end=0, high_watermark=0), received)
    other.record(OTHER, m.BecameLeader(leader_epoch=1, log_end=0, high_watermark=0), Cause("controller-9", 1, 1))
    assert [type(told.event.fields) for told in merged([broker, controller, other])] == [
        m.BecameLeader,
        m.OrderSent,
        m.OrderReceived,
        m.BecameLeader,
    ], "one whose cause is not there stands by its time"


def test_a_partition_is_told_with_what_led_to_it() -> None:
    clock = ManualClock()
    ring = Ring("controller-1", 1, clock)
    suspected = ring.record(1, m.BrokerSuspected(broker_id=1))
    for tp in (TP, OTHER):
        ring.record(tp, m.IsrChosen(isr_before=(1, 2), isr=(2,), why="suspected"), suspected)
    change = m.ZnodeChange(path="/brokers/topics/events/partitions/0/state", version_before=1, version=2)
    ring.record(None, m.StoreWritten(changes=(change,), more=0, result="written"), suspected)
    ring.record(2, m.BrokerLost(broker_id=2))
    shown = of_partition(merged([ring]), TP)
    assert [told.event.number for told in shown] == [1, 2, 4]
    assert [line.partition("  ")[2] for line in lines(shown)] == [
        "controller-1  suspects broker-1: its port refuses connections",
        "controller-1  changes the ISR of events-0: 1,2 -> 2 (suspected)",
        "controller-1  writes /brokers/topics/events/partitions/0/state: version 1 -> 2",
    ]


def test_a_clock_that_jumps_back_does_not_turn_a_process_around() -> None:
    clock = ManualClock(100.0)
    ring = Ring("broker-1", 1, clock)
    ring.record(TP, m.EpochStarted(leader_epoch=1, start=0))
    clock.advance(-50.0)
    ring.record(TP, m.EpochStarted(leader_epoch=2, start=0))
    assert [told.event.number for told in merged([ring])] == [1, 2]


def test_a_sentence_moves_no_cursor_and_begins_no_line() -> None:
    gone = m.MemberLeaving(consumer_id="a\n12:00", reason="\x1b[31m")
    assert sentence(ProtocolEvent(0, 1, "g", gone, None)) == "a?12:00 leaves g: ?[31m"
