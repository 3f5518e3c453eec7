"""Faults on a live cluster that a real Prometheus scrapes: every panel and every alert shows what it is there for.

What it shows is declared beside it (`proofs`), so whoever adds a panel says what it is good for, and this test plays it.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from dashboards.alerts import ALERTS
from dashboards.boards import BOARDS
from dashboards.marks import MARKS
from dashboards.proof import Proof, broken
from helpers import fault_story
from helpers.aio import run
from helpers.cluster import MakeCluster
from helpers.fault_story import RATE_S, SETTINGS, SHIM, Story, Windows
from helpers.prometheus import Prometheus, prometheus_server, why_not
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.cluster.api import AGENT, BROKER, CONTROLLER
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.local import LocalCluster
from tidelog.ids import Address

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

VARIABLES = {"$__rate_interval": f"{RATE_S}s", "$topic": ".*", "$group": ".*"}
"""What Grafana puts in their place."""
RANGE_S = 20
SINCE_S = 30
"""What the time shown reaches back before the end of a fault, where a busy machine was not quiet again in `RANGE_S`."""


class Claim(NamedTuple):
    """A proof of one query."""

    where: str
    query: str
    proof: Proof


def claims() -> Iterator[Claim]:
    """Of every panel, once however many boards show it, of every alert, and of the marks on every graph."""
    for panel in dict.fromkeys(panel.title for board in BOARDS for panel in board.panels):
        (shown,) = {id(p): p for board in BOARDS for p in board.panels if p.title == panel}.values()
        for query, legend in shown.queries.items():
            for proof in shown.proofs:
                if proof.of in (None, legend):
                    yield Claim(f"panel {shown.title!r}, {legend}", filled(query), proof)
    for alert in ALERTS:
        yield from (Claim(f"alert {alert.name}", filled(alert.query), proof) for proof in alert.proofs)
    for mark in MARKS:
        yield from (Claim(f"mark {mark.name}", mark.query, proof) for proof in mark.proofs)


def filled(query: str) -> str:
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return query


def unkept(prometheus: Prometheus, windows: Windows) -> list[str]:
    """Each predicate that does not hold, and what is seen instead."""
    problems = []
    for where, query, proof in claims():
        for phase, predicate in proof.phases().items():
            if predicate:
                window = windows[proof.fault, phase]
                shown_s = RANGE_S
                if phase == "after":
                    shown_s = max(RANGE_S, window.end - windows[proof.fault, "during"].end + SINCE_S)
                series = prometheus.series(query.replace("$__range", f"{shown_s}s"), window.begin, window.end)
                found = broken(predicate, series, window.instants)
                problems += [f"{where}: {phase} {proof.fault.value}: {each}" for each in found]
    return problems


def firing(prometheus: Prometheus, windows: Windows) -> list[str]:
    """Each alert that fires in a window, and for how long."""
    query = 'max by (alertname) (ALERTS{alertstate="firing"})'
    return [
        f"{phase} {fault.value}: {each.labels['alertname']} fires for {len(each.points)} s"
        for (fault, phase), window in windows.items()
        for each in prometheus.series(query, window.begin, window.end)
    ]


def metrics_addresses(cluster: LocalCluster, kind: str) -> list[Address]:
    return [row.addresses["METRICS"] for row in cluster.status() if row.kind == kind]


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_every_panel_and_every_alert_shows_what_it_is_there_for(
    tmp_path: Path, make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SHIM), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
    cluster = make_cluster(agents=2, settings=SETTINGS)
    run(fault_story.make_topics(cluster))
    chaos = ChaosMetrics()
    with ExitStack() as stack:
        server = chaos.serve(Address("127.0.0.1", free_ports(1)[0]))
        stack.callback(server.close)
        jobs = {kind: metrics_addresses(cluster, kind) for kind in (BROKER, CONTROLLER, AGENT)}
        jobs["zookeeper"] = [stack.enter_context(fault_story.zookeeper_exporter(cluster))]
        jobs["traffic"] = [stack.enter_context(fault_story.traffic(cluster))]
        jobs["chaos"] = [server.address]
        prometheus = stack.enter_context(prometheus_server(tmp_path, jobs))
        windows = Story(cluster, prometheus, chaos).play()
        problems = unkept(prometheus, windows)
        assert not problems, "\n".join([*problems, "alerts:", *firing(prometheus, windows)])
        assert {name: health for name, health in prometheus.rules().items() if health != "ok"} == {}
        for label, family in (("topic", "tidelog_partition_high_watermark"), ("group", "tidelog_group_members")):
            expected = {"topic": ["compacted", "events", "frail", "moved", "single"], "group": ["agents"]}[label]
            assert prometheus.label_values(label, family) == expected
