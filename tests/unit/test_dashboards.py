"""The generated boards: up to date, well formed, and asking only for what our processes tell."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.scripts import ROOT, load_script
from tidelog.runtime.agent_metrics import NOT_STARTED, AgentMetrics
from tidelog.runtime.group_metrics import GroupCollector
from tidelog.runtime.metrics import BrokerMetrics, ControllerMetrics

generator = load_script("gen_dashboards")
BOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
SUFFIX = re.compile(r"_(total|bucket|count|sum|info)$")
# What Prometheus adds by itself to every target.
OF_PROMETHEUS = {"up"}
# Fields of mntr; that they exist is tested where a server and Prometheus run.
OF_ZOOKEEPER = {
    f"tidelog_zookeeper_{field}"
    for field in ("up", "server_state", "avg_latency", "outstanding_requests", "num_alive_connections", "znode_count")
} | {"tidelog_zookeeper_watch_count"}


def panels(path: Any) -> Iterator[dict[str, Any]]:
    return (panel for panel in json.loads(path.read_text())["panels"] if panel["type"] != "row")


def families() -> set[str]:
    registry = CollectorRegistry()
    BrokerMetrics(registry).watch_partitions(lambda: [], 1)
    registry.register(GroupCollector(lambda: [], 1, 1))
    controllers = CollectorRegistry()
    ControllerMetrics(controllers)
    agents = CollectorRegistry()
    AgentMetrics(agents).watch(lambda: NOT_STARTED, (), loop=None)
    return {family.name for each in (registry, controllers, agents) for family in each.collect()}


def names_in(query: str) -> set[str]:
    """Metric names: identifiers that are no function, no label and no keyword."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b(by|on|without) \([^)]*\)", " ", query)
    words = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\w)(?!\s*\()", bare)
    return set(words) - {"and", "or", "unless", "by", "on"}


def test_the_boards_are_up_to_date() -> None:
    made = generator.files()
    assert sorted(made) == BOARDS
    for path, text in made.items():
        assert path.read_text() == text, "run make dashboards"


@pytest.mark.parametrize("path", BOARDS, ids=lambda p: str(p.stem))
def test_every_panel_has_a_query_and_everything_an_id_of_its_own(path: Any) -> None:
    ids = [panel["id"] for panel in json.loads(path.read_text())["panels"]]
    assert len(ids) == len(set(ids))
    titles = [panel["title"] for panel in panels(path)]
    assert len(titles) > 40 and all(titles)
    for panel in panels(path):
        targets = panel["targets"]
        assert targets and all(t["expr"].strip() and t["legendFormat"] for t in targets), panel["title"]
        assert len({t["refId"] for t in targets}) == len(targets), panel["title"]
        assert panel["description"], panel["title"]
        assert all(t["datasource"]["uid"] == "${datasource}" for t in targets)


@pytest.mark.parametrize("path", BOARDS, ids=lambda p: str(p.stem))
def test_every_metric_asked_for_is_one_that_our_processes_tell(path: Any) -> None:
    known = families() | OF_PROMETHEUS | OF_ZOOKEEPER
    asked = {name for panel in panels(path) for target in panel["targets"] for name in names_in(target["expr"])}
    assert {name for name in asked if SUFFIX.sub("", name) not in known and name not in known} == set()


def test_names_are_found_in_a_query() -> None:
    query = 'max by (a) ((x_total{b="c"} - y) and on (a) z) or vector(0) + histogram_quantile(0.9, rate(w_bucket[5s]))'
    assert names_in(query) == {"x_total", "y", "z", "w_bucket"}
