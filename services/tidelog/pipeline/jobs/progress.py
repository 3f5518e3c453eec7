"""How far a query is, from what Spark reports after each micro-batch. Pure."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.ids import TopicPartition
from tidelog.pipeline.admission import TOPIC_IDS

OBSERVED: Final = "tidelog"
"""The name under which the jobs count what they see in rows (`DataFrame.observe`)."""

RATE_WHOLE: Final = 10.0
"""Records per second from which a rate has no decimal places."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Progress:
    """One micro-batch."""

    batch: int
    rows: int
    took_s: float
    ends: Offsets
    """The next offset of each partition."""
    latest: Offsets
    """Where the logs ended when the batch was planned; empty where the source does not say."""
    corrupt: int
    """Rows whose value is not what it should be."""
    windows: int | None
    """Kept in the state, still open; None without a state."""
    late: int
    """Rows that were left out because their window was over. Spark adds up what a task has for a window and a group before
    it looks, so that a row may be several records."""

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """Records that are there and not yet read, of each partition."""
        return {tp: max(0, latest - self.ends.get(tp, latest)) for tp, latest in self.latest.items()}


def parse(report: Mapping[str, Any]) -> Progress | None:
    """Of Spark's `StreamingQueryProgress` as JSON; None when it reports that nothing happened."""
    took_ms = report.get("durationMs", {})
    if "addBatch" not in took_ms:
        return None
    sources: list[Mapping[str, Any]] = report.get("sources", [])
    operators: list[Mapping[str, Any]] = report.get("stateOperators", [])
    return Progress(
        batch=report["batchId"],
        rows=sum(source["numInputRows"] for source in sources),
        took_s=took_ms.get("triggerExecution", took_ms["addBatch"]) / 1000,
        ends=_merged(source.get("endOffset") for source in sources),
        latest=_merged(source.get("latestOffset") for source in sources),
        corrupt=int(report.get("observedMetrics", {}).get(OBSERVED, {}).get("corrupt") or 0),
        windows=sum(operator["numRowsTotal"] for operator in operators) if operators else None,
        late=sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators),
    )


def _merged(offsets: Iterable[Any]) -> dict[TopicPartition, int]:
    found = {}
    for each in offsets:
        by_topic = json.loads(each) if isinstance(each, str) else each
        if not isinstance(by_topic, dict):
            continue  # a source that does not report where its log ends
        for topic, by_partition in by_topic.items():
            if topic == TOPIC_IDS:
                continue
            found.update({TopicPartition(topic, int(number)): offset for number, offset in by_partition.items()})
    return found


@dataclass(slots=True)
class Totals:
    """What one run of a job did."""

    rows: int = 0
    batches: int = 0
    corrupt: int = 0
    late: int = 0
    busy_s: float = 0.0
    """In micro-batches."""
    windows: int | None = None
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    lag: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, progress: Progress) -> None:
        self.rows += progress.rows
        self.batches += 1
        self.corrupt += progress.corrupt
        self.late += progress.late
        self.busy_s += progress.took_s
        self.windows = progress.windows
        self.ends.update(progress.ends)
        self.lag = progress.lag

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.busy_s if self.busy_s else 0.0

    @property
    def behind(self) -> int:
        return sum(self.lag.values())

    def as_json(self) -> dict[str, Any]:
        partitions = [
            {"topic": tp.topic, "partition": tp.partition, "currentOffset": end, "lag": self.lag.get(tp)}
            for tp, end in sorted(self.ends.items())
        ]
        return {
            "rows": self.rows,
            "batches": self.batches,
            "corrupt": self.corrupt,
            "late": self.late,
            "busySeconds": round(self.busy_s, 3),
            "rowsPerSecond": round(self.rows_per_s, 3),
            "openWindows": self.windows,
            "partitions": partitions,
        }


def line(progress: Progress) -> str:
    """Of one micro-batch, for whoever watches."""
    parts = [
        f"batch {progress.batch}: {_counted(progress.rows, 'record')} in {progress.took_s:.1f} s, "
        f"{_rate(progress.rows, progress.took_s)}",
        *([f"lag {sum(progress.lag.values()):,}"] if progress.latest else []),
        *([f"{progress.corrupt:,} corrupt"] if progress.corrupt else []),
        *([f"{_counted(progress.late, 'row')} too late"] if progress.late else []),
        *([f"{_counted(progress.windows, 'window')} open"] if progress.windows is not None else []),
    ]
    return ", ".join(parts)


def summary(totals: Totals) -> str:
    """Of a whole run."""
    rate = [_rate(totals.rows, totals.busy_s)] if totals.batches else []
    parts = [
        f"{_counted(totals.rows, 'record')} in {_counted(totals.batches, 'batch', 'batches')}",
        *rate,
        *([f"{totals.corrupt:,} corrupt"] if totals.corrupt else []),
        *(
            [_counted(totals.late, "row too late for its window", "rows too late for their windows")]
            if totals.late
            else []
        ),
        *([f"{_counted(totals.windows, 'window')} still open"] if totals.windows else []),
    ]
    return ", ".join(parts)


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _rate(rows: int, took_s: float) -> str:
    """Two digits at least, so that a slow run has a rate that is not 0."""
    per_s = rows / took_s if took_s else 0.0
    digits = 0 if per_s >= RATE_WHOLE or not per_s else max(1, -math.floor(math.log10(per_s)) + 1)
    return f"{per_s:,.{digits}f} records/s"
