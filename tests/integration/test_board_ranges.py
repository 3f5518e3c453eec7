"""Boards at each range that they may show, up to a day; and the board of Spark jobs, whose metrics no played fault has."""

import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from dashboards.boards import BOARDS
from dashboards.panels import Kind, Panel
from dashboards.proof import Series
from dashboards.zoom import GAP_S, SCRAPE_S, Zoom
from helpers.day_of_samples import HOUR, LOOKBACK_S, MINUTE, Day, prometheus_with
from helpers.prometheus import Prometheus, prometheus_server, why_not
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.wait import until
from tidelog.ids import Address, TopicPartition
from tidelog.pipeline.jobs.metrics import PipelineMetrics
from tidelog.pipeline.jobs.progress import Progress

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

(STORY,) = (board for board in BOARDS if board.opening)
GRAPHS = [panel for panel in STORY.opening if panel.kind is not Kind.STAT]
OF_BROKERS = {"Leader by partition", "In-sync replicas by partition", "High watermark", "Group lag"}
OF_BROKERS |= {"Longest stall of a high watermark"}
OF_TRAFFIC = {"Longest gap between acknowledgements"}
NOW_AND_THEN = {"ISR shrinks and expansions", "Rebalances"}
"""Something is shown when something happens."""
PARTITIONS = 3


@pytest.fixture(scope="module")
def day() -> Day:
    return Day(int(time.time()) // HOUR * HOUR)


@pytest.fixture(scope="module")
def prometheus(day: Day, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        pytest.skip("Prometheus is not installed (Debian: apt-get install prometheus)")
    with prometheus_with(day, tmp_path_factory.mktemp("day")) as server:
        yield server


@pytest.mark.parametrize("range_s", [5 * MINUTE, HOUR, 3 * HOUR, 24 * HOUR], ids=["5m", "1h", "3h", "24h"])
@pytest.mark.parametrize("panel", GRAPHS, ids=lambda panel: str(panel.title))
def test_a_value_at_each_point_where_a_process_lives(
    prometheus: Prometheus, day: Day, panel: Panel, range_s: int
) -> None:
    zoom = Zoom(range_s)
    step = zoom.step_s(panel.kind)
    begin = (day.end - range_s) // step * step
    series = [
        each
        for query in panel.queries
        for each in prometheus.series(zoom.filled(query, panel.kind), begin, day.end, step)
    ]
    lives = day.broker_lives if panel.title in OF_BROKERS else day.cluster_lives
    shown = [{at for at, _ in each.points} for each in series]
    seen_s = LOOKBACK_S + max(4 * SCRAPE_S, step + SCRAPE_S)  # a sample counts no longer
    for at in range(begin, day.end + 1, step):
        before = {lives(moment) for moment in range(at - seen_s, at + 1)}
        found = sum(at in each for each in shown)
        if before == {False}:
            assert found == 0, f"{panel.title} at {at - day.end} s: nothing lives"
        elif before == {True} and panel.title not in NOW_AND_THEN:
            expected = 1 if panel.title == "Group lag" else PARTITIONS
            assert found == expected, f"{panel.title} at {at - day.end} s"
    if panel.title not in NOW_AND_THEN:
        assert unbroken(series, lives, GAP_S[panel.kind]), "no stripes"


def unbroken(series: list[Series], lives: Callable[[int], bool], gap_s: int) -> bool:
    """A point is followed by the next one before Grafana draws a gap, where the process lived."""
    gaps = [(at, then) for each in series for (at, _), (then, _) in pairwise(each.points) if then - at > gap_s]
    return not any(all(lives(moment) for moment in range(int(at), int(then))) for at, then in gaps)


def test_a_short_fault_is_seen_in_a_whole_day(prometheus: Prometheus, day: Day) -> None:
    """A minute of a dead broker, and a stall that one scrape has told."""
    zoom, panels = Zoom(24 * HOUR), {panel.title: panel for panel in STORY.opening}
    without_broker_1 = 2**2 + 2**3
    for title, other in (("Leader by partition", 2), ("In-sync replicas by partition", without_broker_1)):
        (query,) = panels[title].queries
        asked = zoom.filled(query, Kind.TIMELINE)
        begin = day.end - 300
        series = prometheus.series(asked, begin, day.end, zoom.step_s(Kind.TIMELINE))
        (first,) = (each for each in series if each.labels["partition"] == "0")
        assert other in first.values and len(set(first.values)) == 2, title
    (query,) = panels["Longest stall of a high watermark"].queries
    series = prometheus.series(zoom.filled(query, Kind.GRAPH), day.end - 300, day.end, zoom.step_s(Kind.GRAPH))
    assert max(max(each.values) for each in series) > 1


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_the_board_of_spark_jobs_shows_what_a_driver_tells(tmp_path: Path) -> None:
    (board,) = (board for board in BOARDS if not board.played)
    metrics, tp = PipelineMetrics(CollectorRegistry()), TopicPartition("events", 0)
    listen = Address("127.0.0.1", free_ports(1)[0])
    with metrics.served(listen), prometheus_server(tmp_path, {"pipeline": [listen]}) as server:
        batches, unseen = count(1), {query for panel in board.panels for query in panel.queries}

        def seen() -> bool:
            metrics.progressed(Progress(next(batches), 10, 0.4, {tp: 90}, {tp: 100}, corrupt=1, windows=3, late=2))
            unseen.difference_update(q for q in [*unseen] if server.newest(Zoom(300, 1).filled(q, Kind.GRAPH)))
            return not unseen

        until(seen, "a value of each query", timeout_s=60, interval_s=0.5)
        assert server.newest("tidelog_pipeline_lag_records") == [10]
