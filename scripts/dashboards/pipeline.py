"""Jobs of Spark that read topics: how far behind they are, and what their micro-batches take."""

from typing import Final

from dashboards.panels import TOPIC, Kind, Panel, at_least

MINUTE: Final = "[1m]"
"""Micro-batches are seconds apart: a shorter window would have one now and none then."""
BATCH: Final = "tidelog_pipeline_batch_duration_seconds"
PANELS: Final = (
    Panel(
        "Jobs",
        {'up{job="pipeline"}': "{{instance}}"},
        "Up: the driver answers a scrape. A gap: no job runs.",
        (),
        Kind.TIMELINE,
        width=24,
        colors=at_least(1),
        names={0: "down", 1: "up"},
    ),
    Panel(
        "Lag of the job",
        {"tidelog_pipeline_lag_records": "{{instance}}"},
        "Records that were in the topics and not yet read at the last micro-batch of the job.",
        (),
        width=12,
    ),
    Panel(
        "Lag of the job, worst partitions",
        {f"topk(20, tidelog_pipeline_partition_lag_records{{{TOPIC}}})": "{{topic}}-{{partition}}"},
        "The 20 partitions that are farthest behind.",
        (),
        width=12,
        legend=False,
    ),
    Panel(
        "Records read",
        {f"rate(tidelog_pipeline_rows_total{MINUTE})": "{{instance}}"},
        "Records per second that the job read.",
        (),
        width=12,
    ),
    Panel(
        "Micro-batches",
        {f"increase(tidelog_pipeline_batches_total{MINUTE})": "{{instance}}"},
        "Micro-batches finished within the last minute. None: the job has no records to read, or it hangs; its lag shows "
        "which.",
        (),
        width=12,
    ),
    Panel(
        "Time of a micro-batch",
        {
            f"histogram_quantile({q}, sum by (le) (rate({BATCH}_bucket{MINUTE})))": name
            for q, name in ((0.5, "p50"), (0.99, "p99"), (1, "slowest"))
        },
        "Time from the start of its plan until its rows are written.",
        (),
        unit="s",
    ),
    Panel(
        "Newest micro-batch",
        {"tidelog_pipeline_last_batch": "{{instance}}"},
        "Number of the newest micro-batch. After a restart of the job, it continues from where it was.",
        (),
    ),
    Panel(
        "Left out",
        {
            f"increase(tidelog_pipeline_corrupt_rows_total{MINUTE})": "corrupt",
            f"increase(tidelog_pipeline_late_rows_total{MINUTE})": "late",
        },
        "Records whose value is not what the job expects, and rows that arrived after their window had closed.",
        (),
    ),
    Panel(
        "Open windows",
        {"tidelog_pipeline_open_windows": "{{instance}}"},
        "Rows in the state of an aggregation; 0 for a job without one.",
        (),
    ),
)
