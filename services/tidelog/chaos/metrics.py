"""The faults of a chaos run as metrics, so that dashboards can mark them.

The Prometheus of the containers scrapes a run that breaks them, for as long as it lasts. Nothing is served for a run on local
processes, beside which there is no Prometheus.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tidelog.cluster.api import ClusterError
from tidelog.cluster.scrape_targets import ScrapeTargets
from tidelog.ids import Address
from tidelog.runtime.metrics_server import MetricsServer, serve_metrics

JOB: Final = "chaos"
RECOVERY_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
"""From a hand-over to a follower that has much to fetch."""

FindTargets = Callable[[], ScrapeTargets | None]


class ChaosMetrics:
    """Labels are few: names of faults, and names of processes."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry or CollectorRegistry()
        self._active = Gauge(
            "tidelog_chaos_fault_active",
            "1 while the fault is in effect; no series before its first time.",
            ["fault", "target"],
            registry=self._registry,
        )
        self._faults = Counter(
            "tidelog_chaos_faults_total", "Faults that took effect.", ["fault"], registry=self._registry
        )
        self._recovery = Histogram(
            "tidelog_chaos_time_to_recover_seconds",
            "From the end of a fault until every partition has a leader and a full ISR again.",
            ["fault"],
            buckets=RECOVERY_S,
            registry=self._registry,
        )

    def began(self, fault: str, targets: Sequence[str]) -> None:
        """Once it was seen to have taken effect."""
        self._faults.labels(fault).inc()
        self._recovery.labels(fault)
        self._active.labels(fault, _text(targets)).set(1)

    def ended(self, fault: str, targets: Sequence[str]) -> None:
        """Once it was healed; again is no error."""
        self._active.labels(fault, _text(targets)).set(0)

    def recovered(self, fault: str, seconds: float) -> None:
        self._recovery.labels(fault).observe(seconds)

    @contextmanager
    def served(self, find: FindTargets, note: Callable[[str], None]) -> Iterator[None]:
        """To the Prometheus whose targets `find` returns, if there is one, for the length of a run. A run goes on without it:
        `note` is told why.
        """

        def take_away(targets: ScrapeTargets, address: Address) -> None:
            try:
                targets.remove(JOB, address)
            except ClusterError as error:
                note(f"Prometheus goes on looking for this run at {address} until the next one: {error}")

        with ExitStack() as stack:
            try:
                if (targets := find()) is not None:
                    server = self.serve(Address(targets.host, 0))  # a free port: several runs may be served
                    stack.callback(server.close)
                    targets.remove_unserved(JOB)
                    stack.callback(take_away, targets, server.address)
                    targets.add(JOB, server.address)
            except (ClusterError, OSError) as error:
                note(f"dashboards do not show the faults of this run: {error}")
            yield

    def serve(self, listen: Address) -> MetricsServer:
        """OSError if something else listens there. Close it when the run has ended: its series end then."""
        return serve_metrics(listen, self._registry)


def _text(targets: Sequence[str]) -> str:
    return ",".join(targets)
