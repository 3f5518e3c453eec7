"""What the traffic process tells Prometheus: an end-to-end probe (kminion's idea), from the send to the record read back."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.runtime.metrics import FAST_S, ProcessMetrics
from tidelog.runtime.scrape import ask_on

ROUND_TRIP_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""A record that waits for an election is read back seconds later."""

AckGaps = Callable[[], Mapping[int, float]]
"""The longest time without an acknowledgement of each partition since the last call."""


class _AckGapCollector(Collector):
    def __init__(self, ask: AckGaps) -> None:
        self._ask = ask

    def describe(self) -> Iterable[Metric]:
        return [self._family({})]

    def collect(self) -> Iterator[Metric]:
        yield self._family(self._ask())

    def _family(self, gaps: Mapping[int, float]) -> Metric:
        family = GaugeMetricFamily(
            "tidelog_e2e_longest_ack_gap_seconds",
            "The longest time since the last scrape without an acknowledgement; one that goes on counts up to now.",
            labels=["partition"],
        )
        for partition, seconds in sorted(gaps.items()):
            family.add_metric([str(partition)], seconds)
        return family


class TrafficMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.process = ProcessMetrics(registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"tidelog_e2e_{name}_total", text, registry=registry)

        self.produced = counter("produced", "Records given to the producer.")
        self.failed = counter("failed", "Records whose send failed; some may have been written.")
        self.received = counter("received", "Records read back.")
        self.lost = counter("lost", "Acknowledged records that the reader passed by without seeing them.")
        self.duplicated = counter("duplicated", "Records that were read back again.")
        self.out_of_order = counter("out_of_order", "Records read after a later one of their partition.")
        self._acked = counter("acked", "Records acknowledged.")
        self._not_sent = Counter(
            "tidelog_e2e_not_sent_total", "Records that were not even tried, by why.", ["reason"], registry=registry
        )
        self._produce = Histogram(
            "tidelog_e2e_produce_seconds", "From the send to its acknowledgement.", buckets=FAST_S, registry=registry
        )
        self._round_trip = Histogram(
            "tidelog_e2e_roundtrip_seconds",
            "From the send until the record was read back.",
            buckets=ROUND_TRIP_S,
            registry=registry,
        )
        self._last_ack = Gauge(
            "tidelog_e2e_last_ack_timestamp_seconds",
            "Unix time of the newest acknowledgement.",
            ["partition"],
            registry=registry,
        )

    def watch_ack_gaps(self, longest: AckGaps, loop: asyncio.AbstractEventLoop | None) -> None:
        """Call once, on the thread of `loop`, where `longest` will run."""
        self._registry.register(_AckGapCollector(ask_on(loop, longest)))

    def acked(self, partition: int, took_s: float, wall_s: float) -> None:
        self._acked.inc()
        self._produce.observe(took_s)
        self._last_ack.labels(str(partition)).set(wall_s)

    def not_sent(self, reason: str) -> None:
        """refused: the producer does not take it; left_out: too many wait for an answer."""
        self._not_sent.labels(reason).inc()

    def read_back(self, took_s: float) -> None:
        self.received.inc()
        self._round_trip.observe(took_s)
