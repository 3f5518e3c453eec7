"""report.html: one page that needs nothing else, from the files of a run's directory.

Whatever is missing there, since the run was cut off, is missing on the page, which says so.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tidelog.chaos import history as h
from tidelog.chaos import samples as s
from tidelog.chaos import scenario_file
from tidelog.chaos.checker.availability import limit_s
from tidelog.chaos.checker.names import RULES
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.verdict import Anomaly, Example, Gap, Verdict
from tidelog.chaos.checking import HISTORY, RUN, VERDICT, CannotCheck, read_promise
from tidelog.chaos.report import cluster_view, panels, sequence, steps_page, units
from tidelog.chaos.report.canvas import Canvas, embedded
from tidelog.chaos.report.panels import Panel
from tidelog.chaos.report.timeline import UNANSWERED, Timeline, Where, timeline
from tidelog.chaos.run_files import SCENARIO_FILE
from tidelog.chaos.scenario import Column, Scenario
from tidelog.chaos.steps import Failover, LeaderTimes, read_events
from tidelog.chaos.summary import Summary
from tidelog.chaos.yaml_nodes import ScenarioError
from tidelog.cluster.api import AGENT, BROKER, CONTROLLER, ZOOKEEPER, kind_of

FILE_NAME: Final = "report.html"

ROWS_MAX: Final = 24
"""Partitions that have a row in a state time line."""
OFFSETS_MAX: Final = 6
"""Partitions that have a plot of their own."""
GAPS_MAX: Final = 50
FAULTS_MAX: Final = 40
OPERATIONS_MAX: Final = 8
"""Of one example."""
FAULTS_TOLD: Final = 6
"""In the paragraph at the top; the legend of the time line has more."""
MOMENT: Final = re.compile(r"\b(at|from|to) (\d+\.\d+) s\b")


@dataclass(frozen=True, slots=True)
class Headline:
    tone: str
    """good, bad, open"""
    headline: str
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """What the directory holds."""

    about: Mapping[str, Any]
    """run.json."""
    timeline: Timeline
    complete: bool
    """The run came to its end, and all of its files are whole."""
    samples: s.Samples
    verdict: Verdict | None
    operations: Mapping[int, Sequence[h.Record]]
    """Of the history: those that show an anomaly, by their ids."""
    scenario: str = ""
    files: Sequence[str] = ()
    directory: str = ""
    plan: Scenario | None = None
    """The scenario as it was played; None: its file says nothing."""
    promise: Promise = field(default_factory=Promise)
    summary: Summary = field(default_factory=Summary)
    failovers: Sequence[Failover] = ()
    no_steps: str = ""
    """The reason why the steps of failovers are not known."""


def write_report(directory: Path) -> Path:
    """The path of the page. CannotCheck when the directory holds none; HistoryDamaged, ValueError when a file is no such file."""
    with suppress(CannotCheck):  # this page says what is wrong
        steps_page.write_steps(directory)
    page = directory / FILE_NAME
    page.write_text(render(read_run(directory)), encoding="utf-8")
    return page


# -- reading ---------------------------------------------------------------------------------------------------------------


def read_run(directory: Path) -> Run:
    about = _json(directory / RUN)
    if about is None:
        raise CannotCheck(f"{directory} holds no run: there is no {RUN} in it")
    verdict = _json(directory / VERDICT)
    judged = None if verdict is None else Verdict.from_json(verdict)
    shown = {number for example in _examples(judged) for number in example.operations[:OPERATIONS_MAX]}
    summary, leaders = Summary(), LeaderTimes()
    line, complete, operations = _timeline(directory, shown, summary, leaders)
    failovers, no_steps = _failovers(directory, leaders)
    found = s.read_samples(directory / s.FILE_NAME)
    summary.look(found)
    ended = max([line.until, *(look.t + look.took for look in found.looks)])
    scenario = directory / SCENARIO_FILE
    return Run(
        about,
        Timeline(ended, line.faults, line.phases, line.sends, line.readings),
        complete and found.complete,
        found,
        judged,
        operations,
        scenario.read_text(encoding="utf-8", errors="replace") if scenario.exists() else "",
        sorted(each.name + ("/" if each.is_dir() else "") for each in directory.iterdir() if each.name != FILE_NAME),
        str(directory),
        _plan(scenario, about),
        read_promise(directory / RUN),
        summary,
        failovers,
        no_steps,
    )


def _failovers(directory: Path, leaders: LeaderTimes) -> tuple[Sequence[Failover], str]:
    try:
        events = read_events(directory)
    except (OSError, ValueError) as error:
        return (), f"The steps are not known: {error}."
    return (leaders.failovers(events), "") if events else ((), steps_page.NO_EVENTS)


def _plan(path: Path, about: Mapping[str, Any]) -> Scenario | None:
    try:
        return scenario_file.load(path).in_column(Column(about.get("column", Column.ALL_2)))
    except (ScenarioError, OSError, ValueError):
        return None


def _json(path: Path) -> Any:
    """None when there is no such file; ValueError names one that is no JSON."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _timeline(
    directory: Path, shown: set[int], summary: Summary, leaders: LeaderTimes
) -> tuple[Timeline, bool, Mapping[int, Sequence[h.Record]]]:
    if not (directory / HISTORY).exists():
        return Timeline(), False, {}
    reader = h.HistoryReader(directory / HISTORY)
    operations: dict[int, list[h.Record]] = {}

    def noted() -> Iterable[h.Record]:
        for record in reader:
            summary.take(record)
            leaders.take(record)
            if isinstance(record, h.Send | h.Sent | h.Polled) and record.id in shown:
                operations.setdefault(record.id, []).append(record)
            yield record

    return timeline(noted()), reader.complete, operations


def _examples(verdict: Verdict | None) -> Iterable[Example]:
    return (example for anomaly in (verdict.anomalies.values() if verdict else ()) for example in anomaly.examples)


# -- words -----------------------------------------------------------------------------------------------------------------


def headline(verdict: Verdict | None, until: float, ended: str = "") -> Headline:
    """`ended`: what the run says itself of its end."""
    if verdict is None:
        why = f" It says: {ended}." if ended else ""
        return Headline("open", "No verdict", f"The run ended before its history was checked.{why}")
    bad = [f"{each.count:,} {name}" for name, each in verdict.anomalies.items() if each.bad]
    missed = [
        f"{each.text} (measured {each.measured}, promised {each.limit})" for each in verdict.promises if not each.kept
    ]
    if bad:
        more = f" Promises missed: {'; '.join(missed)}." if missed else ""
        return Headline("bad", "Broken", f"The history shows {', '.join(bad)}.{more}")
    if missed:
        return Headline("bad", "A promise was missed", f"No record is missing or wrong, but {'; '.join(missed)}.")
    if not verdict.complete:
        return Headline("open", "No verdict", f"The history is cut off at {units.at(until)}; up to there it is sound.")
    tolerated = [f"{each.count:,} {name}" for name, each in verdict.anomalies.items() if each.count]
    allowed = f" Tolerated: {', '.join(tolerated)}." if tolerated else ""
    promises = "every promise was kept" if verdict.promises else "nothing was promised beyond that"
    return Headline("good", "Sound", f"Nothing is wrong in the history, and {promises}.{allowed}")


def about(run: Mapping[str, Any], line: Timeline) -> list[str]:
    """What the run was, in a few words each."""
    words = [f"row {run['row']} of the fault matrix"] if run.get("row") is not None else []
    if (wall_ms := run.get("started_wall_ms")) is not None:
        words.append(f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%d %B %Y, %H:%M:%S} UTC")
    words.append(f"{units.seconds(line.until)} long")
    return words + ([f"Tidelog {run['version']}"] if run.get("version") is not None else [])


def repeat(run: Mapping[str, Any]) -> str:
    if command := run.get("command"):
        return str(command)
    words = ["tidelog chaos run", str(run.get("name", ""))]
    for option, name, unit in (
        ("--on", "on", ""),
        ("--column", "column", ""),
        ("--seed", "seed", ""),
        ("--duration", "duration_s", "s"),
    ):
        if (value := run.get(name)) is not None:
            words.append(f"{option} {value:g}{unit}" if isinstance(value, float) else f"{option} {value}{unit}")
    return " ".join(words)


def figures(run: Run, elections: int | None) -> list[tuple[str, str, str]]:
    """The numbers that people ask for first: name, value, and a word on it."""
    totals: dict[str, int] = {}
    for of_level in run.timeline.sends.totals.values():
        for outcome, number in of_level.items():
            totals[outcome] = totals.get(outcome, 0) + number
    longest = longest_gap(run)
    said = {h.OK: "acknowledged", h.FAIL: "refused", h.INFO: "outcome unknown", UNANSWERED: "never answered"}
    return [
        ("records sent", units.count(sum(totals.values())), ""),
        *((words, units.count(totals[outcome]), "") for outcome, words in said.items() if totals.get(outcome)),
        ("faults", units.count(len(run.timeline.faults)), ""),
        *([] if elections is None else [("elections", units.count(elections), "")]),
        *(
            []
            if longest is None
            else [("longest wait", units.seconds(longest.seconds), limit_of(longest, run.promise))]
        ),
    ]


def longest_gap(run: Run) -> Gap | None:
    return max(run.verdict.gaps if run.verdict else (), key=lambda gap: gap.seconds, default=None)


def limit_of(gap: Gap, promise: Promise) -> str:
    """The promise about it, in words."""
    limit = limit_s(gap, promise)
    return "no limit was promised" if limit is None else f"promised: at most {limit:g} s"


def cluster(samples: s.Samples) -> list[str]:
    """The processes by kind, as they were seen first: `3 brokers`, `1 ZooKeeper server`."""
    names = next((list(look.states) for look in samples.of(s.ProcessStates)), [])
    kinds = (BROKER, CONTROLLER, ZOOKEEPER, AGENT)
    count = {kind: sum(kind_of(name) == kind for name in names) for kind in kinds}
    return [
        units.plural(number, "ZooKeeper server" if kind == ZOOKEEPER else kind)
        for kind, number in count.items()
        if number
    ]


def timed(text: str) -> Markup:
    """Each moment in it as a link to the time line."""
    link = r'\1 <a href="#timeline" data-t="\2">\2 s</a>'
    return Markup(MOMENT.sub(link, str(escape(text))))


def operation(record: h.Record) -> str:
    """One line."""
    match record:
        case h.Send():
            where = f"{record.topic}-{record.partition}"
            return f"{record.t:.3f} s  {record.process} sends {record.value} to {where}, acks={record.acks}"
        case h.Sent():
            at = "" if record.offset is None else f" at offset {record.offset:,}"
            more = [f"epoch {record.leader_epoch}"] if record.leader_epoch is not None else []
            more += [f"ISR of {record.isr}"] if record.isr is not None else []
            more += [record.error] if record.error else []
            told = f" ({', '.join(more)})" if more else ""
            return f"{record.t:.3f} s  {record.outcome}{at}{told}"
        case h.Polled():
            read = "; ".join(_read(each) for each in record.partitions if each.records)
            return f"{record.t:.3f} s  {record.process} polls {read}"
    return f"{record.t:.3f} s"


def _read(read: h.Read) -> str:
    (first, value), (last, final) = read.records[0], read.records[-1]
    span = f"{first:,} {value}" if first == last else f"{first:,} {value} to {last:,} {final}"
    return f"{read.topic}-{read.partition}: {span}"


# -- the page --------------------------------------------------------------------------------------------------------------


def render(run: Run) -> str:
    drawn, notes, elections = draw(run)
    scripts, divs = embedded([panel.figure for panel in drawn])
    judged = run.verdict
    anomalies = judged.anomalies if judged else {}
    found = headline(judged, run.timeline.until, str(run.about.get("ended", "")))
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            **story(run, elections),
            name=run.about.get("name", "run"),
            title=run.about.get("title", ""),
            about=about(run.about, run.timeline),
            verdict=found,
            notes=[*(judged.notes if judged else ()), *_cut(run)],
            promises=judged.promises if judged else (),
            figures=figures(run, elections),
            drawn_notes=notes,
            panels=[(panel, Markup(div)) for panel, div in zip(drawn, divs, strict=True)],
            anomalies=[_row(name, each, run.operations) for name, each in anomalies.items() if each.count],
            clean=[name for name, each in anomalies.items() if not each.count],
            gaps=[_gap(gap, run.promise) for gap in _worst_gaps(judged)],
            failovers=[sequence.draw(each, run.directory) for each in run.failovers[:FAULTS_MAX]],
            failovers_note=_failovers_note(run),
            repeat=repeat(run.about),
            scenario=run.scenario,
            files=run.files,
            library=Markup(Resources(mode="inline", components=["bokeh"]).render()),
            script=Markup(scripts),
        )
    )


def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("tidelog.chaos", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    found.filters |= {"timed": timed, "listed": units.listed, "plural": units.plural, "seconds": units.seconds}
    return found


def story(run: Run, elections: int | None) -> dict[str, Any]:
    """The values of story.html.j2."""
    longest = longest_gap(run)
    return {
        "told": {**dict.fromkeys(("on", "topics", "partitions", "column", "seed")), **run.about},
        "run": run,
        "plan": run.plan,
        "summary": run.summary,
        "cluster": cluster(run.samples),
        "elections": elections,
        "longest": longest,
        "limit": "" if longest is None else limit_of(longest, run.promise),
        "faults": [panels.told_of(fault, run.timeline.until) for fault in run.timeline.faults[:FAULTS_TOLD]],
    }


def _cut(run: Run) -> list[str]:
    if run.complete:
        return []
    return [f"The run was cut off: this page shows it up to {units.at(run.timeline.until)}."]


def _failovers_note(run: Run) -> str:
    if len(run.failovers) > FAULTS_MAX:
        return f"The first {FAULTS_MAX} of {len(run.failovers)} failovers are shown."
    return "" if run.failovers else run.no_steps or "No fault was followed by an acknowledgement from another leader."


def _row(name: str, anomaly: Anomaly, operations: Mapping[int, Sequence[h.Record]]) -> dict[str, Any]:
    shown = len(anomaly.examples)
    return {
        "name": name,
        "count": units.count(anomaly.count),
        "tone": "tolerated" if anomaly.tolerated else "no",
        "judged": "tolerated" if anomaly.tolerated else "✗ broken",
        "meaning": RULES.get(name, ""),
        "shown": units.plural(shown, "example") if shown < anomaly.count else "all of them",
        "examples": [
            {
                "at": f"at {units.at(example.t)}",
                "partition": "" if example.topic is None else f"{example.topic}-{example.partition}",
                "text": example.text,
                "operations": [
                    operation(record)
                    for number in example.operations[:OPERATIONS_MAX]
                    for record in operations.get(number, ())
                ],
            }
            for example in anomaly.examples
        ],
    }


def _worst_gaps(verdict: Verdict | None) -> Sequence[Gap]:
    return sorted(verdict.gaps if verdict else (), key=lambda gap: gap.seconds, reverse=True)[:GAPS_MAX]


def _gap(gap: Gap, promise: Promise) -> dict[str, str]:
    return {
        "partition": f"{gap.topic}-{gap.partition}",
        "acks": gap.acks,
        "seconds": units.seconds(gap.seconds),
        "limit": limit_of(gap, promise),
        "when": f"from {units.at(gap.began)} to {units.at(gap.ended)}{'' if gap.over else ' and on'}",
        "faults": ", ".join(gap.faults),
    }


def draw(run: Run) -> tuple[list[Panel], list[str], int | None]:
    """Panels for what is known, notes on what was left out, and how many elections were seen."""
    line, gaps = run.timeline, run.verdict.gaps if run.verdict else ()
    canvas = Canvas(line.until, line.faults)
    drawn, notes = list[Panel](), list[str]()
    if line.faults or line.phases:
        shown = [
            (example.t, name)
            for name, anomaly in (run.verdict.anomalies if run.verdict else {}).items()
            for example in anomaly.examples
        ]
        drawn.append(panels.faults(canvas, line, FAULTS_MAX, shown))
    if len(line.faults) > FAULTS_MAX:
        notes.append(f"{FAULTS_MAX} of {len(line.faults)} faults have a row; all are shaded.")
    if line.sends.counts:
        worst = max((gap for gap in gaps if gap.seconds > 0), key=lambda gap: gap.seconds, default=None)
        drawn += [panels.sends(canvas, line.sends, worst), panels.latency(canvas, line.sends)]
    states = cluster_view.partition_states(run.samples)
    rows = _chosen(states, gaps, run.verdict, ROWS_MAX)
    if len(states) > min(len(rows), OFFSETS_MAX):
        notes.append(
            f"Of {len(states)} partitions {len(rows)} have a row, and {min(len(rows), OFFSETS_MAX)} a plot of their own: "
            "those with anomalies, the longest gaps and the most elections."
        )
    if rows:
        of_rows = {where: states[where] for where in rows}
        alone = len({topic for topic, _ in states}) == 1

        def row_name(where: Where) -> str:
            return f"partition {where[1]}" if alone else cluster_view.name_of(where)

        drawn.append(panels.leaders(canvas, cluster_view.leader_spans(of_rows, row_name)))
        drawn.append(panels.isr(canvas, cluster_view.isr_spans(of_rows, row_name)))
    elections = cluster_view.elections(states)
    if elections.times:
        looked = [look.t for look in run.samples.of(s.Partitions)]
        drawn.append(panels.elections(canvas, elections, looked, cluster_view.controller_spans(run.samples)))
    if processes := cluster_view.process_spans(run.samples):
        drawn.append(panels.processes(canvas, processes))
    found = cluster_view.offsets(run.samples)
    brokers = sorted({each.name for of_partition in found.values() for each in of_partition.log_ends})
    for where in _chosen({w: states[w] for w in rows if w in found}, gaps, run.verdict, OFFSETS_MAX):
        drawn.append(panels.offsets(canvas, found[where], brokers))
    if groups := cluster_view.group_spans(run.samples):
        drawn.append(panels.groups(canvas, groups))
    if lags := [lag for lag in cluster_view.lags(run.samples, line.readings) if lag.times]:
        drawn.append(panels.lag(canvas, lags))
    return drawn, notes, int(elections.values[-1]) if elections.values else None


def _chosen(
    states: Mapping[Where, Sequence[tuple[float, s.PartitionState]]],
    gaps: Sequence[Gap],
    verdict: Verdict | None,
    limit: int,
) -> Sequence[Where]:
    bad = {(example.topic, example.partition) for example in _examples(verdict)}
    longest: dict[Where, float] = {}
    for gap in gaps:
        where = gap.topic, gap.partition
        longest[where] = max(longest.get(where, 0.0), gap.seconds)

    def score(where: Where) -> tuple[float, ...]:
        epochs = [state.leader_epoch for _, state in states[where]]
        return float(where in bad), longest.get(where, 0.0), float(max(epochs) - min(epochs))

    return cluster_view.most_eventful(sorted(states), limit, score)
