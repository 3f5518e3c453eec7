"""The generated boards: up to date, well formed, and asking only for what our processes tell."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from prometheus_client import CollectorRegistry

from dashboards.alerts import ALERTS
from dashboards.boards import BOARDS
from dashboards.draw import flat, model, selection
from dashboards.marks import MARKS
from dashboards.panels import VARIABLES, Board, Kind, Panel
from dashboards.rules import RECORDINGS
from dashboards.zoom import GAP_S, POINTS_MAX, SCRAPE_S, Zoom
from helpers.scripts import load_script
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.controller.__main__ import UnreadZnodes
from tidelog.exporter.mntr import KEPT
from tidelog.pipeline.jobs.metrics import PipelineMetrics
from tidelog.runtime.agent_metrics import NOT_STARTED, AgentMetrics
from tidelog.runtime.group_metrics import GroupCollector
from tidelog.runtime.metrics import BrokerMetrics, ControllerMetrics
from tidelog.runtime.traffic_metrics import TrafficMetrics

generator = load_script("generate")
FILES = sorted(generator.GRAFANA.glob("*.json"))
SUFFIX = re.compile(r"_(total|bucket|count|sum|info)$")
OF_PROMETHEUS = {"up", "ALERTS"}
"""What Prometheus adds by itself."""
OF_ZOOKEEPER = {f"tidelog_zookeeper_{field}" for field in ("up", "server_state", *KEPT)}
"""That a server tells these fields is tested where one runs."""
UNITS = {"short", "s", "ms", "bytes", "Bps", "reqps", "percentunit"}
"""Of Grafana's own list, those that the boards may use: an unknown one is drawn as a suffix."""
GRID_COLUMNS = 24
SCREEN = 28
"""Units of the grid, of 30 pixels and a gap of 8, in 1080 pixels."""


def panels(path: Path) -> Iterator[dict[str, Any]]:
    return (panel for panel in flat(json.loads(path.read_text())["panels"]) if panel["type"] != "row")


def families() -> set[str]:
    brokers, controllers, agents, traffic, chaos, pipeline = (CollectorRegistry() for _ in range(6))
    BrokerMetrics(brokers).watch_partitions(lambda: [], lambda: [], 1)
    brokers.register(GroupCollector(lambda: [], 1, 1))
    ControllerMetrics(controllers)
    UnreadZnodes(controllers)
    AgentMetrics(agents).watch(lambda: NOT_STARTED, (), loop=None)
    TrafficMetrics(traffic).watch_ack_gaps(dict, loop=None)
    ChaosMetrics(chaos)
    PipelineMetrics(pipeline)
    return {
        family.name for each in (brokers, controllers, agents, traffic, chaos, pipeline) for family in each.collect()
    }


def names_in(query: str) -> set[str]:
    """Metric names: identifiers that are no function, no label and no keyword."""
    bare = re.sub(r"\"[^\"]*\"|\{[^}]*\}|\[[^]]*\]|\b(by|on|without) \([^)]*\)", " ", query)
    words = re.findall(r"(?<![\w:])[a-zA-Z_:][a-zA-Z0-9_:]*(?!\w)(?!\s*\()", bare)
    return set(words) - {"and", "or", "unless", "by", "on", "offset", "bool"}


def overlap(a: dict[str, int], b: dict[str, int]) -> bool:
    beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
    return not beside and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]


def test_the_files_are_up_to_date_and_there_are_no_others() -> None:
    made = generator.files()
    pages = [
        generator.ROOT / "docs" / name
        for name in (
            *("runbook.md", "faults.md", "internals/steps.md"),
            *("operations/settings.md", "operations/error-codes.md"),
        )
    ]
    assert sorted(made) == sorted([*FILES, *generator.RULES.glob("*.yml"), *pages])
    for path, text in made.items():
        assert path.read_text() == text, "run make generate"


def test_there_are_six_boards() -> None:
    titles = [json.loads(path.read_text())["title"] for path in FILES]
    assert sorted(titles) == [
        *("Broker internals", "Cluster health", "Consumer groups", "Controller and ZooKeeper", "Replication and chaos"),
        "Spark jobs",
    ]
    assert len({json.loads(path.read_text())["uid"] for path in FILES}) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.stem))
def test_every_panel_has_a_query_and_everything_an_id_of_its_own(path: Path) -> None:
    ids = [panel["id"] for panel in flat(json.loads(path.read_text())["panels"])]
    assert len(ids) == len(set(ids))
    titles = [panel["title"] for panel in panels(path)]
    assert len(titles) >= 8 and all(titles) and len(set(titles)) == len(titles)
    for panel in panels(path):
        targets = panel["targets"]
        assert targets and all(t["expr"].strip() and t["legendFormat"] for t in targets), panel["title"]
        assert len({t["refId"] for t in targets}) == len(targets), panel["title"]
        assert len({t["legendFormat"] for t in targets}) == len(targets), panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert all(t["datasource"]["uid"] == "${datasource}" for t in targets)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.stem))
def test_what_is_written_is_read_by_grafanas_own_model_as_it_was(path: Path) -> None:
    text = path.read_text()
    again = json.loads(json.dumps(model.Dashboard.from_json(json.loads(text)), cls=JSONEncoder))
    assert again == json.loads(text)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.stem))
def test_no_panel_lies_over_another_or_outside_the_grid(path: Path) -> None:
    places = [panel["gridPos"] for panel in flat(json.loads(path.read_text())["panels"])]
    assert all(p["x"] >= 0 and p["x"] + p["w"] <= GRID_COLUMNS and p["w"] > 0 and p["h"] > 0 for p in places)
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []


def test_an_overlap_is_found() -> None:
    place = {"x": 0, "y": 0, "w": 8, "h": 8}
    assert overlap(place, {"x": 7, "y": 7, "w": 8, "h": 8})
    assert not overlap(place, {"x": 8, "y": 0, "w": 8, "h": 8})
    assert not overlap(place, {"x": 0, "y": 8, "w": 8, "h": 8})


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.stem))
def test_the_variables_of_a_board_are_those_that_its_queries_use(path: Path) -> None:
    defined = {each["name"] for each in json.loads(path.read_text())["templating"]["list"]}
    used = {"datasource"}
    for panel in panels(path):
        for target in panel["targets"]:
            used |= set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval", "__range"}
    assert used == defined


def test_a_variable_takes_the_values_of_the_label_of_its_name() -> None:
    for label, family in VARIABLES.items():
        assert selection(label, family).build().query == f"label_values({family}, {label})"
        assert family in families()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.stem))
def test_faults_are_marked_from_prometheus(path: Path) -> None:
    marks = json.loads(path.read_text())["annotations"]["list"]
    assert [mark["expr"] for mark in marks] == [mark.query for mark in MARKS]
    assert all(mark["enable"] and mark["datasource"]["type"] == "prometheus" for mark in marks)


def test_a_board_opens_with_one_screen() -> None:
    (board,) = (board for board in BOARDS if board.opening)
    drawn = json.loads((generator.GRAFANA / f"{board.uid}.json").read_text())["panels"]
    opening, rows = drawn[: len(board.opening)], drawn[len(board.opening) :]
    assert len(opening) <= 12 and max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in opening) <= SCREEN
    assert [row["title"] for row in rows] == list(board.rows)
    assert all(row["type"] == "row" and row["collapsed"] and row["panels"] for row in rows)


def test_no_state_of_a_day_is_followed_by_a_gap() -> None:
    for kind in POINTS_MAX:
        assert all(Zoom(hours * 3600).step_s(kind) < GAP_S[kind] for hours in (1, 3, 6, 12, 20, 24))
    for panel in (panel for path in FILES for panel in panels(path) if panel["type"] != "stat"):
        kind = Kind(panel["type"])
        assert (panel["interval"], panel["maxDataPoints"]) == (f"{SCRAPE_S}s", POINTS_MAX[kind]), panel["title"]
        assert panel["fieldConfig"]["defaults"]["custom"]["insertNulls"] == 1000 * GAP_S[kind], panel["title"]


def test_a_stat_asks_for_now_alone() -> None:
    stats = [panel for path in FILES for panel in panels(path) if panel["type"] == "stat"]
    assert stats and all(target["instant"] and not target.get("range") for each in stats for target in each["targets"])


def test_no_series_is_without_a_name() -> None:
    """`or vector(0)` has no labels, which the legend of a stat does not need."""
    for panel in (panel for path in FILES for panel in panels(path) if panel["type"] != "stat"):
        assert not any("vector(0)" in target["expr"] for target in panel["targets"]), panel["title"]


def test_a_time_line_colours_every_state_and_names_those_that_are_codes() -> None:
    timelines = {panel.title: panel for board in BOARDS for panel in board.panels if panel.kind is Kind.TIMELINE}
    assert set(timelines) >= {
        "Leader by partition",
        "ISR size by partition",
        "Active controller",
        "Group state",
        "Brokers",
    }
    for panel in timelines.values():
        assert panel.colors and panel.colors[0][0] is None, panel.title
        assert panel.names or panel.title == "ISR size by partition", f"{panel.title}: numbers that mean themselves"
    for path in FILES:
        for drawn in (panel for panel in panels(path) if panel["type"] == "state-timeline"):
            (mapped,) = drawn["fieldConfig"]["defaults"].get("mappings") or ({"options": {}},)
            names = timelines[drawn["title"]].names or {}
            assert {int(value): option["text"] for value, option in mapped["options"].items()} == names


def test_every_metric_asked_for_is_one_that_our_processes_tell_or_that_is_recorded() -> None:
    known = families() | OF_PROMETHEUS | OF_ZOOKEEPER
    recorded = {recording.name for recording in RECORDINGS}
    queries = [query for board in BOARDS for panel in board.panels for query in panel.queries]
    asked = {name for query in [*queries, *(each.query for each in (*ALERTS, *MARKS))] for name in names_in(query)}
    assert {name for name in asked - recorded if SUFFIX.sub("", name) not in known and name not in known} == set()
    assert asked >= recorded, "recorded for nobody"
    of_recordings = {name for recording in RECORDINGS for name in names_in(recording.query)}
    assert {name for name in of_recordings if SUFFIX.sub("", name) not in known and name not in known} == set()


def test_names_are_found_in_a_query() -> None:
    query = 'max by (d) ((x_total{b="c"} - a_b:y:sum) and on (a) z) or vector(0) + histogram_quantile(0.9, rate(w_bucket[5s]))'
    query += ' > 5e6 and on () label_replace(up, "label", "$1", "other", "[a-z](.*)")'
    assert names_in(query) == {"x_total", "a_b:y:sum", "z", "w_bucket", "up"}


def board_ids(board: Board) -> str:
    return board.uid


@pytest.mark.parametrize("board", BOARDS, ids=board_ids)
def test_every_query_of_every_panel_has_a_proof(board: Board) -> None:
    for panel in board.panels:
        assert unproven(panel) == ([] if board.played else list(panel.queries.values())), panel.title
        for proof in panel.proofs:
            assert proof.of is None or proof.of in panel.queries.values(), f"{panel.title}: no query {proof.of}"


def unproven(panel: Panel) -> list[str]:
    said = {proof.of for proof in panel.proofs}
    return [] if None in said else [legend for legend in panel.queries.values() if legend not in said]


def test_a_panel_with_a_query_without_a_proof_is_found() -> None:
    (panel,) = (panel for panel in BOARDS[1].panels if panel.title == "Acknowledged records")
    assert unproven(panel) == []
    without = Panel(panel.title, panel.queries, panel.what, tuple(p for p in panel.proofs if p.of != "failed"))
    assert unproven(without) == ["failed"]
    assert unproven(Panel(panel.title, panel.queries, panel.what, ())) == list(panel.queries.values())


def test_a_title_stands_for_one_panel_on_whatever_board() -> None:
    panels = {id(panel): panel.title for board in BOARDS for panel in board.panels}
    assert len(set(panels.values())) == len(panels)
