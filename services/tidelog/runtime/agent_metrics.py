"""What an agent tells Prometheus: what it has handled, and its membership as it stands at a scrape."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.runtime.metrics import SLOW_S, ProcessMetrics
from tidelog.runtime.scrape import ask_on

NEVER_S: Final = -1.0


class AgentSnapshot(NamedTuple):
    """Of one member of a group."""

    state: str
    generation: int = 0
    """Of the last Start; 0 without one."""
    owned: Mapping[str, int] = {}
    """Partitions by topic."""
    lag_records: Mapping[str, int] = {}
    """By topic: high watermarks minus positions, over the owned partitions that were fetched."""
    since_ping_s: float = NEVER_S
    """Since the coordinator was heard; -1 before."""
    stops: int = 0
    starts: int = 0
    losses: int = 0
    """Times that everything was lost without a Stop."""


NOT_STARTED: Final = AgentSnapshot("starting")
_GAUGES: Final = {
    "tidelog_agent_generation": "Of the last Start; 0 without one.",
    "tidelog_agent_since_ping_seconds": "Since the coordinator was heard; -1 before that.",
}
_COUNTERS: Final = {
    "tidelog_agent_stops": "StopFetcher requests obeyed.",
    "tidelog_agent_starts": "StartFetcher requests obeyed.",
    "tidelog_agent_losses": "Times that everything was lost without a stop: the lease ran out, or the agent was fenced.",
}


class _MembershipCollector(Collector):
    def __init__(self, ask: Callable[[], AgentSnapshot], states: Iterable[str]) -> None:
        self._ask = ask
        self._states = tuple(states)

    def describe(self) -> Iterable[Metric]:
        return self._families(NOT_STARTED)

    def collect(self) -> Iterator[Metric]:
        yield from self._families(self._ask())

    def _families(self, now: AgentSnapshot) -> Iterator[Metric]:
        gauges = (now.generation, now.since_ping_s)
        for (name, text), value in zip(_GAUGES.items(), gauges, strict=True):
            yield GaugeMetricFamily(name, text, value=value)
        counters = (now.stops, now.starts, now.losses)
        for (name, text), value in zip(_COUNTERS.items(), counters, strict=True):
            yield CounterMetricFamily(name, text, value=value)
        state = GaugeMetricFamily("tidelog_agent_state", "1 at the state of the membership.", labels=["state"])
        for each in dict.fromkeys([*self._states, now.state]):
            state.add_metric([each], each == now.state)
        owned = GaugeMetricFamily("tidelog_agent_owned_partitions", "Partitions that it owns.", labels=["topic"])
        for topic, count in now.owned.items():
            owned.add_metric([topic], count)
        lag = GaugeMetricFamily("tidelog_agent_lag_records", "Behind the ends of what it owns.", labels=["topic"])
        for topic, records in now.lag_records.items():
            lag.add_metric([topic], records)
        yield from (state, owned, lag)


class AgentMetrics:
    """Everything that an agent measures; the worker's Observer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.process = ProcessMetrics(registry)
        self._registry = registry
        self._records = Counter("tidelog_agent_records_total", "Records handled.", ["topic"], registry=registry)
        self._time = Histogram(
            "tidelog_agent_handler_duration_seconds", "Of one chunk of records.", buckets=SLOW_S, registry=registry
        )
        self._errors = Counter(
            "tidelog_agent_handler_errors_total",
            "Chunks that failed, by what was done then.",
            ["action"],
            registry=registry,
        )
        self._dropped = Counter(
            "tidelog_agent_dropped_records_total",
            "Records that were polled and not handled: another agent may have their partition.",
            registry=registry,
        )

    def watch(
        self, snapshot: Callable[[], AgentSnapshot], states: Iterable[str], loop: asyncio.AbstractEventLoop | None
    ) -> None:
        """Call once, on the thread of `loop`, where `snapshot` will run."""
        self._registry.register(_MembershipCollector(ask_on(loop, snapshot), states))

    def handled(self, topic: str, records: int, seconds: float) -> None:
        self._records.labels(topic).inc(records)
        self._time.observe(seconds)

    def failed(self, action: str) -> None:
        self._errors.labels(action).inc()

    def dropped(self, records: int) -> None:
        self._dropped.inc(records)
