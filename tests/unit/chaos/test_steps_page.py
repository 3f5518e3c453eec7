"""steps.html, the page of a recorded run: its events, its faults, and a picture for each look."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers.chaos_runs import TOPIC, write_run
from tidelog.chaos.checking import CannotCheck
from tidelog.chaos.protocol_log import PROTOCOL
from tidelog.chaos.report import page, steps_page


def line(t: float, process: str, number: int, kind: str, cause: Any = None, **fields: Any) -> str:
    subject = {"topic": TOPIC, "partition": 0}
    told = {"t": t, "process": process, "incarnation": 1, "number": number, "kind": kind, "family": "replica"}
    return json.dumps({**told, "subject": subject, "text": f"{kind} <b>", "cause": cause, "fields": fields}) + "\n"


EVENTS = [
    line(1.0, "broker-0", 1, "EpochStarted", leader_epoch=0, start=0),
    line(8.1, "controller-1", 1, "BrokerSuspected", broker_id=0),
    line(
        8.2,
        "controller-1",
        2,
        "LeaderChosen",
        {"process": "controller-1", "incarnation": 1, "number": 1, "arrived": True},
        isr_before=[0, 1],
    ),
    line(8.3, "broker-1", 1, "EpochStarted", leader_epoch=1, start=40),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path, partitions=1, rate=20.0)
    (tmp_path / PROTOCOL).write_text("".join(EVENTS))
    return tmp_path


def messages(directory: Path) -> dict[str, list[Any]]:
    """The messages in the page of a run, by kind."""
    text = steps_page.write_steps(directory).read_text()
    (kept,) = re.findall(r'<script type="application/json" id="saved">(.*?)</script>', text, re.DOTALL)
    found: dict[str, list[Any]] = {}
    for message in json.loads(kept):
        ((kind, content),) = [each for each in message.items() if each[0] != "v"]
        found.setdefault(kind, []).append(content)
    return found


def test_events_and_faults_stand_in_one_order(run: Path) -> None:
    (events,) = messages(run)["events"]
    assert [each["n"] for each in events] == list(range(len(events)))
    assert [each["t"] for each in events] == sorted(each["t"] for each in events)
    by_kind = {each["kind"]: each for each in events}
    assert by_kind["LeaderChosen"]["cause"] == ["controller-1", 1, 1] and by_kind["LeaderChosen"]["mark"] == "election"
    faults = [each for each in events if each["kind"] == "act"]
    assert faults and {each["mark"] for each in faults} <= {"fault", "mend"}


def test_there_is_a_picture_for_each_look(run: Path) -> None:
    pictures = messages(run)["picture"]
    assert len(pictures) > 10 and [each["t"] for each in pictures] == sorted(each["t"] for each in pictures)
    assert [each["n"] for each in pictures] == sorted(each["n"] for each in pictures)
    row = pictures[-1]["partitions"][0]
    assert (row["topic"], row["number"]) == (TOPIC, 0) and {each["broker"] for each in row["replicas"]} == {0, 1, 2}
    assert any(each["end"] > 0 for each in row["replicas"]) and {
        each["kind"] for each in pictures[-1]["processes"]
    } >= {
        "broker",
        "controller",
    }


def test_many_events_and_pictures_are_thinned(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_page, "EVENTS_MAX", 3)
    monkeypatch.setattr(steps_page, "PICTURES_MAX", 5)
    advanced = [line(9.0, "broker-1", n, "HighWatermarkAdvanced") for n in range(2, 50)]
    (run / PROTOCOL).write_text("".join([*EVENTS, *advanced]))
    found = messages(run)
    kinds = [each["kind"] for each in found["events"][0] if each["kind"] != "act"]
    assert kinds == ["BrokerSuspected", "LeaderChosen", "EpochStarted"] and 3 <= len(found["picture"]) <= 5


def test_the_page_of_the_run_links_to_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "embedded", lambda figures: ("", [""] * len(figures)))
    assert '<a href="steps.html">All steps</a>' in page.write_report(run).read_text()
    assert (run / "steps.html").exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "the run has kept no protocol events"),
        ("", "the run has kept no protocol events"),
        ("{}\n", "protocol.jsonl, line 1: not a protocol event"),
        ("".join(EVENTS)[:-20], "protocol.jsonl, line 4: not a protocol event"),
        ('{"t": 1}\n', "not a protocol event"),
    ],
)
def test_a_run_without_whole_events_is_told(run: Path, text: str | None, complaint: str) -> None:
    (run / PROTOCOL).unlink()
    if text is not None:
        (run / PROTOCOL).write_text(text)
    with pytest.raises(CannotCheck) as error:
        steps_page.write_steps(run)
    assert complaint in str(error.value).lower() or complaint in str(error.value)
    assert "\n" not in str(error.value) and not (run / "steps.html").exists()


def test_a_directory_without_a_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotCheck, match="holds no run"):
        steps_page.write_steps(tmp_path)
