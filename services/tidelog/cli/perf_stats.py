"""The figures of `tidelog perf`: counted record by record in bounded memory, and Kafka's lines about them. Pure.

kafka-producer-perf-test keeps a sample of the latencies; here each is counted in a slot of a tenth of a millisecond, so that
the percentiles are those of all records.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

MB: Final = 1024 * 1024
"""What Kafka's tools call one."""
PERCENTILES: Final = {"50th": 0.5, "95th": 0.95, "99th": 0.99, "99.9th": 0.999}
SLOTS_PER_S: Final = 10_000
SLOTS_MAX: Final = 600 * SLOTS_PER_S
"""Whatever took longer than ten minutes counts as ten minutes: a limit of the memory, far behind any delivery timeout."""


class Latencies:
    """Of records: how many, their sum and largest, and how many fell into each slot."""

    __slots__ = ("_slots", "count", "sum_s", "worst_s")

    def __init__(self) -> None:
        self._slots: Counter[int] = Counter()
        self.count = 0
        self.sum_s = 0.0
        self.worst_s = 0.0

    def add(self, took_s: float) -> None:
        self.count += 1
        self.sum_s += took_s
        if took_s > self.worst_s:
            self.worst_s = took_s
        self._slots[min(int(took_s * SLOTS_PER_S), SLOTS_MAX)] += 1

    @property
    def mean_ms(self) -> float:
        return 1000 * self.sum_s / self.count if self.count else 0.0

    def percentiles_ms(self) -> dict[str, float]:
        """Nearest rank, rounded down to the slot; 0 without records."""
        found: dict[str, float] = {}
        ranks = {name: int(share * self.count) for name, share in PERCENTILES.items()}
        seen = 0
        for slot in sorted(self._slots):
            seen += self._slots[slot]
            for name, rank in ranks.items():
                if name not in found and seen > rank:
                    found[name] = 1000 * slot / SLOTS_PER_S
        return {name: found.get(name, 0.0) for name in PERCENTILES}


@dataclass(slots=True)
class _Window:
    began: float
    records: int = 0
    size_bytes: int = 0
    sum_s: float = 0.0
    worst_s: float = 0.0


class SendStats:
    """Acknowledged records: all of them, and those since the last window's line."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._window = _Window(began)
        self.size_bytes = 0
        self.latencies = Latencies()

    def add(self, took_s: float, size_bytes: int) -> None:
        self.latencies.add(took_s)
        self.size_bytes += size_bytes
        window = self._window
        window.records += 1
        window.size_bytes += size_bytes
        window.sum_s += took_s
        if took_s > window.worst_s:
            window.worst_s = took_s

    def window_line(self, now: float) -> str:
        """About what came since the last one, and begins the next window."""
        window, self._window = self._window, _Window(now)
        elapsed = max(now - window.began, 1e-9)
        mean_ms = 1000 * window.sum_s / window.records if window.records else 0.0
        return (
            f"{window.records} records sent, {window.records / elapsed:.1f} records/sec "
            f"({window.size_bytes / elapsed / MB:.2f} MB/sec), {mean_ms:.1f} ms avg latency, "
            f"{1000 * window.worst_s:.1f} ms max latency."
        )

    def total_line(self, now: float, kind: str = "") -> str:
        """`kind` is "" or "steady state "."""
        found = self.as_json(now)
        percentiles = ", ".join(f"{ms:.0f} ms {name}" for name, ms in self.latencies.percentiles_ms().items())
        return (
            f"{found['records']} {kind}records sent, {found['recordsPerSec']:.6f} records/sec "
            f"({found['mbPerSec']:.2f} MB/sec), {found['avgLatencyMs']:.2f} ms avg latency, "
            f"{found['maxLatencyMs']:.2f} ms max latency, {percentiles}."
        )

    def as_json(self, now: float) -> dict[str, Any]:
        elapsed = max(now - self._began, 1e-9)
        return {
            "records": self.latencies.count,
            "seconds": elapsed,
            "recordsPerSec": self.latencies.count / elapsed,
            "mbPerSec": self.size_bytes / elapsed / MB,
            "avgLatencyMs": self.latencies.mean_ms,
            "maxLatencyMs": 1000 * self.latencies.worst_s,
            "latencyMs": self.latencies.percentiles_ms(),
        }


@dataclass(slots=True)
class ReadStats:
    """What a consumer has read. Times are monotonic seconds."""

    began: float
    records: int = 0
    size_bytes: int = 0
    rebalance_s: float = 0.0
    """Until partitions were assigned, at the start and after each revocation."""

    def rates(self, since: "ReadStats", now: float) -> dict[str, float]:
        """Since another state of it, under the names of Kafka's columns."""
        elapsed = max(now - since.began, 1e-9)
        size_mb = (self.size_bytes - since.size_bytes) / MB
        records = self.records - since.records
        rebalance_s = self.rebalance_s - since.rebalance_s
        fetch_s = max(elapsed - rebalance_s, 0.0)
        return {
            "data.consumed.in.MB": self.size_bytes / MB,
            "MB.sec": size_mb / elapsed,
            "data.consumed.in.nMsg": self.records,
            "nMsg.sec": records / elapsed,
            "rebalance.time.ms": round(1000 * rebalance_s),
            "fetch.time.ms": round(1000 * fetch_s),
            "fetch.MB.sec": size_mb / fetch_s if fetch_s else 0.0,
            "fetch.nMsg.sec": records / fetch_s if fetch_s else 0.0,
        }


READ_COLUMNS: Final = (
    *("data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec"),
    *("rebalance.time.ms", "fetch.time.ms", "fetch.MB.sec", "fetch.nMsg.sec"),
)


def read_line(rates: dict[str, float]) -> str:
    """Whole numbers as such, the others with four decimals."""
    values = (rates[name] for name in READ_COLUMNS)
    return ", ".join(str(value) if isinstance(value, int) else f"{value:.4f}" for value in values)
