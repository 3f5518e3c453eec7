"""Steps of failovers on the page of a run."""

import json
import re
from pathlib import Path

import pytest

from helpers.chaos_runs import END, TOPIC, write_run
from tidelog.chaos.protocol_log import PROTOCOL
from tidelog.chaos.report import page, sequence
from tidelog.chaos.steps import Event, Failover
from tidelog.ids import TopicPartition
from tidelog.ports.recorder import Cause

TP = TopicPartition(TOPIC, 0)


def event(
    t: float, process: str, number: int, text: str, cause: Cause | None = None, kind: str = "LeaderChosen"
) -> Event:
    return Event(t, Cause(process, 1, number), text, cause, kind, TP)


CHOSEN = event(8.05, "controller-1", 1, "elects broker-2")
LEADS = event(8.07, "broker-2", 1, "leads & <b>", CHOSEN.name)
WRITTEN = event(8.08, "broker-2", 2, "writes", LEADS.name, "StoreWritten")
ACKED = event(8.5, "client", 0, "has the first acknowledgement")


def failover(*steps: Event) -> Failover:
    return Failover("kill leader of 0", TP, 8.0, steps)


def rendered(found: Failover) -> str:
    template = page.environment().get_template("failovers.html.j2")
    return template.render(failovers=[sequence.draw(found, "data/a run")], failovers_note="", files=[])


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page gets no plots, which take most of its time."""
    monkeypatch.setattr(page, "embedded", lambda figures: ("", [""] * len(figures)))


def json_of(told: Event) -> str:
    names = [None if name is None else name._asdict() for name in (told.name, told.cause)]
    name, cause = [each and {**each, "incarnation": each["life"]} for each in names]
    subject = TP._asdict()
    return json.dumps(
        {"t": told.t, **name, "text": told.text, "kind": told.kind, "cause": cause, "subject": subject, "fields": {}}
    )


def run_page(directory: Path, lines: str | None, until: float = END) -> str:
    """The part of a page about failovers. `lines` are the protocol events that the run has kept; None: it has no such file."""
    write_run(directory, partitions=1, rate=20.0, until=until)
    if lines is not None:
        (directory / PROTOCOL).write_text(lines)
    text = page.write_report(directory).read_text()
    return text[text.index('<h2 id="failovers"') : text.index("<h2>To repeat it")]


def test_a_row_has_time_process_and_sentence() -> None:
    text = rendered(failover(CHOSEN, LEADS, ACKED))
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in text.split("<tr>")[2:]]
    assert rows == [
        ["50 ms", "controller-1", "elects broker-2"],
        ["70 ms", "broker-2", "leads &amp; &lt;b&gt;"],
        ["500 ms", "client", "has the first acknowledgement"],
    ]
    assert "kill leader of 0: chaos-0 acknowledges again after 500 ms" in text


def test_names_are_not_taken_for_markup() -> None:
    evil = "</svg><script>alert(1)</script>"
    found = Failover(evil, TopicPartition(evil, 0), 8.0, [event(8.1, evil, 1, evil), ACKED])
    text = rendered(found)
    assert "<script" not in text and text.count("</svg>") == 1


def test_an_arrow_follows_each_cause() -> None:
    drawing = sequence.draw(failover(CHOSEN, LEADS, WRITTEN, ACKED), "run").drawing
    at = dict(drawing.lanes)
    assert list(at) == ["controller-1", "broker-2", "client", "zookeeper"]
    assert [(row.begin, row.end) for row in drawing.rows] == [
        (at["controller-1"], at["controller-1"]),
        (at["controller-1"], at["broker-2"]),
        (at["broker-2"], at["zookeeper"]),
        (at["client"], at["client"]),
    ]
    heights = [row.y for row in drawing.rows]
    assert heights == sorted(set(heights)) and heights[-1] < drawing.height


def test_sentences_stay_inside_the_drawing() -> None:
    long = event(8.1, "broker-1", 1, "x" * 500)
    drawing = sequence.draw(failover(long, ACKED), "run").drawing
    assert drawing.width <= sequence.WIDTH_PX, "the window of 768 pixels needs no smaller letters"
    half = len(drawing.rows[0].text) * sequence.LETTER_PX / 2
    assert drawing.rows[0].text.endswith("x…")
    assert drawing.rows[0].middle - half >= sequence.LEFT_PX and drawing.rows[0].middle + half <= drawing.width


def test_many_steps_are_cut_and_counted() -> None:
    steps = [event(8.0 + n / 1000, "broker-2", n, f"step {n}") for n in range(100)]
    text = rendered(failover(*steps, ACKED))
    assert text.count("<tr>") == 1 + sequence.STEPS_MAX and text.count("<circle") == sequence.STEPS_MAX
    assert "step 58" in text and "step 59" not in text and "has the first acknowledgement" in text
    assert "41 steps before the acknowledgement are left out." in text
    assert "<code>tidelog chaos steps &#39;data/a run&#39; --partition chaos-0</code>" in text
    assert "left out" not in rendered(failover(*steps[: sequence.STEPS_MAX - 1], ACKED))


def test_the_page_of_a_run_shows_its_failovers(tmp_path: Path) -> None:
    text = run_page(tmp_path, "".join(json_of(each) + "\n" for each in (CHOSEN, LEADS)))
    assert text.count("<svg") == 1 and "<script" not in text
    assert ">70 ms<" in text and "elects broker-2" in text and "leads &amp; &lt;b&gt;" in text


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (None, "no protocol events: `tidelog chaos run` keeps them since release 0.3.0"),
        ("", "no protocol events"),
        ('{"t": ', "protocol.jsonl, line 1: not a protocol event"),
    ],
)
def test_the_page_says_why_it_has_no_steps(tmp_path: Path, lines: str | None, said: str) -> None:
    text = run_page(tmp_path, lines)
    assert said in text and "<svg" not in text


def test_a_run_without_another_leader_says_so(tmp_path: Path) -> None:
    text = run_page(tmp_path, json_of(CHOSEN) + "\n", until=5.0)
    assert "No fault was followed by an acknowledgement from another leader." in text
