"""The steps between a fault and the first acknowledgement, from the files of a run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.chaos.checking import HISTORY
from tidelog.chaos.history import OK, FaultStep, HistoryWriter, Record, Send, Sent
from tidelog.chaos.protocol_log import PROTOCOL
from tidelog.chaos.steps import failovers, of_partition, read_events
from tidelog.ids import TopicPartition

TP = TopicPartition("load", 0)


def sends(t: float, number: int, partition: int, epoch: int) -> list[Record]:
    return [
        Send(t - 0.01, number, "producer-0", "load", partition, f"v{number}", "all"),
        Sent(t, number, OK, number, epoch, 2),
    ]


def event(t: float, process: str, number: int, text: str, **given: Any) -> dict[str, Any]:
    found = {"incarnation": 1, "kind": "LeaderChosen", "subject": None, "fields": {}, "cause": None}
    return {"t": t, "process": process, "number": number, "text": text, **found, **given}


def caused_by(process: str, number: int) -> dict[str, Any]:
    return {"process": process, "incarnation": 1, "number": number, "arrived": True}


def of_load(partition: int) -> dict[str, Any]:
    return {"topic": "load", "partition": partition}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    history: list[Record] = [
        *sends(1.0, 1, 0, 4),
        *sends(1.1, 2, 1, 7),
        FaultStep(2.0, "kill", "begin", ("broker-1",), "kill broker-1", 1),
        FaultStep(2.1, "kill", "effect", ("broker-1",), "kill broker-1", 1),
        *sends(2.15, 3, 1, 7),
        *sends(2.2, 4, 0, 5),
        *sends(2.3, 5, 0, 5),
        FaultStep(5.0, "pause", "begin", ("broker-2",), "pause broker-2", 2),
        *sends(6.0, 6, 0, 5),
    ]
    writer = HistoryWriter(tmp_path / HISTORY)
    for record in history:
        writer.append(record)
    writer.close()
    events = [
        event(1.5, "controller-1", 1, "is elected"),
        event(2.05, "controller-1", 2, "suspects broker-1"),
        event(
            2.06,
            "controller-1",
            3,
            "elects broker-2 for load-0",
            subject=of_load(0),
            cause=caused_by("controller-1", 2),
        ),
        event(
            2.06,
            "controller-1",
            4,
            "elects broker-2 for load-1",
            subject=of_load(1),
            cause=caused_by("controller-1", 2),
        ),
        event(2.07, "controller-1", 5, "sends LeaderAndIsr", cause=caused_by("controller-1", 3)),
        event(2.08, "broker-2", 9, "load-0: leads", subject=of_load(0), cause=caused_by("controller-1", 5)),
        event(2.4, "broker-2", 10, "load-0: later", subject=of_load(0)),
    ]
    (tmp_path / PROTOCOL).write_text("".join(json.dumps(each) + "\n" for each in events))
    return tmp_path


def test_a_failover_ends_with_the_first_acknowledgement(run: Path) -> None:
    (found,) = failovers(run)
    assert (found.fault, found.tp, found.began) == ("kill broker-1", TP, 2.0)
    assert [(found.after(step), step.name.process, step.text) for step in found.steps] == [
        ("50 ms", "controller-1", "suspects broker-1"),
        ("60 ms", "controller-1", "elects broker-2 for load-0"),
        ("70 ms", "controller-1", "sends LeaderAndIsr"),
        ("80 ms", "broker-2", "load-0: leads"),
        ("200 ms", "client", "has the first acknowledgement"),
    ]


def test_events_of_a_partition_come_with_what_led_to_them(run: Path) -> None:
    texts = [each.text for each in of_partition(read_events(run), TopicPartition("load", 1))]
    assert texts == ["suspects broker-1", "elects broker-2 for load-1"]


def test_a_run_of_an_older_release_has_no_events(run: Path) -> None:
    (run / PROTOCOL).unlink()
    assert read_events(run) == []
    assert [len(found.steps) for found in failovers(run)] == [1], "the acknowledgement"


@pytest.mark.parametrize(
    "line", [b'{"t": ', b'{"t": 1}', b"[]", b"5", b"\xff\xfe{", b'{"t": "soon", "kind": "", "subject": 3}']
)
def test_a_damaged_line_is_named(run: Path, line: bytes) -> None:
    (run / PROTOCOL).write_bytes((run / PROTOCOL).read_bytes() + line)
    with pytest.raises(ValueError, match=f"{PROTOCOL}, line 8: not a protocol event"):
        read_events(run)
