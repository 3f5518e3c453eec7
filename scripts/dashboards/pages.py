"""Pages about alerts and faults: what to do when an alert fires, and what each panel and alert shows of a fault."""

import re
from collections.abc import Iterator
from textwrap import fill
from typing import Final

from dashboards.alerts import ALERTS, Alert
from dashboards.boards import BOARDS
from dashboards.panels import Panel
from dashboards.proof import Condition, Fault, Proof, parse

GENERATED: Final = "<!-- Generated from scripts/dashboards by `make generate`; a change made here would be lost. -->\n"
RUNBOOK: Final = "docs/runbook.md"
FAULTS: Final = "docs/faults.md"
RUNBOOK_HEAD: Final = f"""# Runbook
{GENERATED}
This page has a section for each alert in `deploy/prometheus/rules/alerts.yml`: the message of the alert, what to do, and when the
alert fires. Titles of Grafana boards and their rows are in *italics*, and titles of panels are in quotes.

"""
FAULTS_HEAD: Final = f"""# What boards and alerts show under faults
{GENERATED}
A test causes each fault in a local cluster of three brokers, two controllers, one ZooKeeper server and two agents. A real
Prometheus scrapes the cluster, and the test checks every row of these tables. The load writes to the topic `events`, which has
six partitions with three replicas each. The topics `single` and `frail` have one partition each: that of `single` has one
replica, and that of `frail` has two. A series is a line of a graph or a row of a timeline, and a gain is its last value minus its
first. For an alert, the tables show only whether its condition holds; *silent* means that it does not. The [runbook](runbook.md)
says how long the condition must hold before the alert fires. An empty cell is not checked.

"""
WIDTH: Final = 130
COMPARED: Final = {"==": "", "!=": "not ", ">=": "at least ", "<=": "at most ", ">": "above ", "<": "below "}
UNITS: Final = {"s": " s", "ms": " ms", "bytes": " B", "Bps": " B/s", "reqps": " a second"}
SAID: Final = {
    "max == 0": "0 throughout",
    "series == 0": "no series",
    "fewest == 0": "no series for a moment",
    "drop == 0": "never falls",
    "changes == 0": "no change",
}
WORDS: Final = {
    "max": "highest value {}",
    "min": "lowest value {}",
    "last": "last value {}",
    "series": "{} series",
    "rise": "gain {}",
    "drop": "largest drop {}",
    "changes": "changes: {}",
}
OF_ALERT: Final = {"series == 0": "silent", "series == 1": "its condition holds", "series >= 1": "its condition holds"}
"""Predicates on the condition of an alert."""


def anchor(title: str) -> str:
    """The name of a heading in a link."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def runbook_of(alert: Alert) -> str:
    return f"{RUNBOOK}#{anchor(alert.name)}"


def runbook() -> str:
    return RUNBOOK_HEAD + "\n".join(_section(alert) for alert in ALERTS)


def _section(alert: Alert) -> str:
    names = dict.fromkeys(proof.fault.value for proof in alert.proofs if _holds(proof))
    fires = [f"[{name}](faults.md#{anchor(name)})" for name in names]
    tested = "Tested under these faults" if len(fires) > 1 else "Tested under this fault"
    shown = f"{tested}: {', '.join(fires)}.\n" if fires else ""
    when = f"when this condition has held for {alert.for_s} s" if alert.for_s else "as soon as this condition holds"
    return f"""## {alert.name}

**{alert.severity}**: {_without_templates(alert.summary)}

{fill(alert.what_to_do, WIDTH)}

The alert fires {when}:

```promql
{alert.query}
```
{shown}"""


def _holds(proof: Proof) -> bool:
    conditions = [each for text in proof.phases().values() if text for each in parse(text)]
    return any(each.measure == "series" and each.limit > 0 for each in conditions)


def _without_templates(text: str) -> str:
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"`\1`", text)
    text = text.replace("{{ $value | humanizeDuration }}", "`DURATION`")
    return re.sub(r"\{\{ \$value[^}]*\}\}", "`N`", text)


def faults() -> str:
    return FAULTS_HEAD + "\n".join(_table(fault) for fault in Fault)


def _table(fault: Fault) -> str:
    heads = ("panel or alert", "before", "during", "after")
    rows = [heads, ("---",) * len(heads), *_rows(fault)]
    if fault is Fault.LOAD:  # has no before and no after
        rows = [(row[0], row[2]) for row in rows]
    return (
        "\n".join(
            [
                f"## {fault.value.capitalize()}",
                "",
                fill(fault.about, WIDTH),
                "",
                *(f"| {' | '.join(row)} |" for row in rows),
            ]
        )
        + "\n"
    )


def _rows(fault: Fault) -> Iterator[tuple[str, ...]]:
    for panel in {panel.title: panel for board in BOARDS for panel in board.panels}.values():
        for proof in panel.proofs:
            if proof.fault is fault:
                of = re.sub(r"\{\{(\w+)\}\}", r"\1", f", {proof.of}") if proof.of else ""
                yield panel.title + of, *(in_words(text, panel) for text in proof.phases().values())
    for alert in ALERTS:
        for proof in alert.proofs:
            if proof.fault is fault:
                link = f"alert [{alert.name}](runbook.md#{anchor(alert.name)})"
                yield link, *(in_words(text) for text in proof.phases().values())


def in_words(text: str, panel: Panel | None = None) -> str:
    """A predicate on the queries of `panel`, or on the condition of an alert."""
    return "; ".join(_said(condition, panel) for condition in parse(text)) if text else ""


def _said(condition: Condition, panel: Panel | None) -> str:
    where = f"{condition.label} {condition.wanted}: " if condition.label else ""
    bare = f"{condition.measure} {condition.compare} {condition.limit:g}"
    fixed = OF_ALERT.get(bare) if panel is None else SAID.get(bare)
    if fixed:
        return where + fixed
    limit = f"{int(condition.limit):,}" if condition.limit.is_integer() else f"{condition.limit:g}"
    value = COMPARED[condition.compare] + limit
    if condition.measure == "fewest":
        always = condition.compare in ("==", ">=")
        return where + (f"never fewer than {limit} series" if always else f"{value} series for a moment")
    if panel is not None and condition.measure in ("max", "min", "last", "rise", "drop"):
        value += UNITS.get(panel.unit, "")
        if panel.names and condition.measure not in ("rise", "drop") and condition.limit in panel.names:
            value += f" ({panel.names[int(condition.limit)]})"
    return where + WORDS[condition.measure].format(value)
