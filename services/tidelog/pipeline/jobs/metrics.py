"""What the driver of a job tells Prometheus; names begin with tidelog_pipeline_."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tidelog.ids import Address
from tidelog.pipeline.jobs.progress import Progress
from tidelog.runtime.metrics_server import serve_metrics

BATCH_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""A micro-batch of Spark takes tenths of a second with nothing in it."""

PARTITIONS_MAX: Final = 2_000
"""By name; the lag of the others is in the sum alone."""


class PipelineMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

        def counter(name: str, text: str) -> Counter:
            return Counter(f"tidelog_pipeline_{name}_total", text, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"tidelog_pipeline_{name}", text, registry=registry)

        self._rows = counter("rows", "Records read.")
        self._batches = counter("batches", "Micro-batches finished.")
        self._corrupt = counter("corrupt_rows", "Records whose value is not what the job expects.")
        self._late = counter(
            "late_rows", "Rows (records of a task, window and group added up) left out because the window was over."
        )
        self._duration = Histogram(
            "tidelog_pipeline_batch_duration_seconds", "Of one micro-batch.", buckets=BATCH_S, registry=registry
        )
        self._last = gauge("last_batch", "Number of the newest micro-batch.")
        self._windows = gauge("open_windows", "Rows in the state: windows that are not over.")
        self._lag_sum = gauge("lag_records", "Records that are in the topics and not yet read.")
        self._lag = Gauge(
            "tidelog_pipeline_partition_lag_records",
            f"The same by partition, at most {PARTITIONS_MAX} of them.",
            ["topic", "partition"],
            registry=registry,
        )

    def progressed(self, progress: Progress) -> None:
        self._rows.inc(progress.rows)
        self._batches.inc()
        self._corrupt.inc(progress.corrupt)
        self._late.inc(progress.late)
        self._duration.observe(progress.took_s)
        self._last.set(progress.batch)
        self._windows.set(progress.windows or 0)
        self._lag_sum.set(sum(progress.lag.values()))
        for tp, lag in sorted(progress.lag.items())[:PARTITIONS_MAX]:
            self._lag.labels(tp.topic, str(tp.partition)).set(lag)

    @contextmanager
    def served(self, address: Address | None) -> Iterator[Address | None]:
        """At /metrics of `address` while inside; OSError if nothing can listen there. None: nowhere."""
        if address is None:
            yield None
            return
        server = serve_metrics(address, self._registry)
        try:
            yield server.address
        finally:
            server.close()
