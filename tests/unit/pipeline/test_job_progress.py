"""How far a query is, read out of Spark's own reports."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tidelog.ids import TopicPartition
from tidelog.pipeline.jobs.metrics import PipelineMetrics
from tidelog.pipeline.jobs.progress import OBSERVED, Progress, Totals, line, parse, summary

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def report(batch: int, end: Any, latest: Any, *, rows: int = 30, **more: Any) -> dict[str, Any]:
    """Of Spark 4.3, without what is not read."""
    source = {"endOffset": end, "latestOffset": latest, "numInputRows": rows}
    return {
        "batchId": batch,
        "durationMs": {"addBatch": 400, "triggerExecution": 500},
        "sources": [source],
        "stateOperators": [],
        **more,
    }


def parsed(*args: Any, **more: Any) -> Progress:
    found = parse(report(*args, **more))
    assert found is not None
    return found


def test_a_report_tells_rows_time_and_lag_of_each_partition() -> None:
    found = parsed(3, {"a": {"0": 10, "1": 20}}, {"a": {"0": 15, "1": 20}})
    assert (found.batch, found.rows, found.took_s) == (3, 30, 0.5)
    assert (found.ends, found.lag) == ({A0: 10, A1: 20}, {A0: 5, A1: 0})


def test_offsets_may_be_json_in_json() -> None:
    found = parsed(0, json.dumps({"b": {"0": 7}, "topic ids": {"b": "0b"}}), json.dumps({"b": {"0": 9}}))
    assert (found.ends, found.lag) == ({B0: 7}, {B0: 2})


def test_a_source_that_does_not_say_where_the_log_ends_has_no_lag() -> None:
    found = parsed(0, {"a": {"0": 1}}, None)
    assert (found.lag, found.latest) == ({}, {})
    assert "lag" not in line(found)


def test_a_report_of_a_trigger_without_work_is_none() -> None:
    idle = report(4, {"a": {"0": 1}}, None, rows=0)
    idle["durationMs"] = {"latestOffset": 3, "triggerExecution": 4}
    assert parse(idle) is None


def test_what_the_job_observed_and_the_state_are_told() -> None:
    more = {
        "observedMetrics": {OBSERVED: {"corrupt": 4}},
        "stateOperators": [{"numRowsTotal": 6, "numRowsDroppedByWatermark": 2}],
    }
    found = parsed(1, {"a": {"0": 1}}, {"a": {"0": 1}}, **more)
    assert (found.corrupt, found.windows, found.late) == (4, 6, 2)
    assert line(found) == (
        "batch 1: 30 records in 0.5 s, 60 records/s, lag 0, 4 corrupt, 2 rows too late, 6 windows open"
    )


def test_totals_are_of_the_run_and_offsets_of_the_last_batch() -> None:
    totals = Totals()
    totals.add(parsed(7, {"a": {"0": 110}}, {"a": {"0": 140}}, rows=10))
    totals.add(parsed(8, {"a": {"0": 130, "1": 5}}, {"a": {"0": 140, "1": 5}}, rows=25))
    assert (totals.rows, totals.batches, totals.rows_per_s, totals.behind) == (35, 2, 35.0, 10)
    assert summary(totals) == "35 records in 2 batches, 35 records/s"
    assert totals.as_json()["partitions"] == [
        {"topic": "a", "partition": 0, "currentOffset": 130, "lag": 10},
        {"topic": "a", "partition": 1, "currentOffset": 5, "lag": 0},
    ]


def test_a_run_that_found_nothing_says_so() -> None:
    assert summary(Totals()) == "0 records in 0 batches"


@pytest.mark.parametrize(
    "rows, took_ms, told",
    [
        (1, 48_000, "1 record in 1 batch, 0.021 records/s"),
        (2, 1_000, "2 records in 1 batch, 2.0 records/s"),
        (473, 9_000, "473 records in 1 batch, 53 records/s"),
        (5_000, 1_000, "5,000 records in 1 batch, 5,000 records/s"),
        (0, 1_000, "0 records in 1 batch, 0 records/s"),
    ],
)
def test_one_is_singular_and_a_slow_rate_is_not_zero(rows: int, took_ms: int, told: str) -> None:
    took = {"durationMs": {"addBatch": took_ms, "triggerExecution": took_ms}}
    found, totals = parsed(0, {"a": {"0": rows}}, None, rows=rows, **took), Totals()
    totals.add(found)
    assert summary(totals) == told
    assert line(found).endswith(told.split(", ", 1)[1])


def test_one_late_row_and_one_window_are_singular() -> None:
    state = {"stateOperators": [{"numRowsTotal": 1, "numRowsDroppedByWatermark": 1}]}
    found, totals = parsed(0, {"a": {"0": 1}}, None, rows=1, **state), Totals()
    totals.add(found)
    assert line(found).endswith("1 row too late, 1 window open")
    assert summary(totals).endswith("1 row too late for its window, 1 window still open")


@pytest.mark.parametrize(
    "name, value",
    [
        ("tidelog_pipeline_rows_total", 60),
        ("tidelog_pipeline_batches_total", 2),
        ("tidelog_pipeline_corrupt_rows_total", 4),
        ("tidelog_pipeline_batch_duration_seconds_count", 2),
        ("tidelog_pipeline_lag_records", 5),
    ],
)
def test_metrics_follow_the_batches(name: str, value: float) -> None:
    registry = CollectorRegistry()
    metrics = PipelineMetrics(registry)
    metrics.progressed(parsed(0, {"a": {"0": 1, "1": 1}}, {"a": {"0": 9, "1": 9}}))
    corrupt = {"observedMetrics": {OBSERVED: {"corrupt": 4}}}
    metrics.progressed(parsed(1, {"a": {"0": 4, "1": 9}}, {"a": {"0": 9, "1": 9}}, **corrupt))
    assert registry.get_sample_value(name) == value
    labels = {"topic": "a", "partition": "0"}
    assert registry.get_sample_value("tidelog_pipeline_partition_lag_records", labels) == 5
