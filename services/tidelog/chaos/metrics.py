"""What a chaos run tells Prometheus, so that dashboards can mark its faults (ecosystem 2.6: they survive a rebuild of Grafana
and need no token).

Prometheus of the Compose cluster scrapes `LISTEN` of the machine that runs it, for as long as somebody listens there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tidelog.ids import Address
from tidelog.runtime.metrics_server import MetricsServer, serve_metrics

LISTEN: Final = Address("0.0.0.0", 9142)
"""For Prometheus in a container: every address, because it reaches its host at that of a bridge."""
LISTEN_LOCAL: Final = Address("127.0.0.1", LISTEN.port)

RECOVERY_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
"""From a hand-over to a follower that has much to fetch."""


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
    def served(self, listen: Address, note: Callable[[str], None]) -> Iterator[None]:
        """For the length of a run, which needs nobody to look at it: `note` hears why it cannot be."""
        try:
            server = self.serve(listen)
        except OSError as error:
            note(f"dashboards do not show the faults of this run: {error.strerror}")
            yield
            return
        try:
            yield
        finally:
            server.close()

    def serve(self, listen: Address = LISTEN) -> MetricsServer:
        """OSError if something else listens there. Close it when the run has ended: its series end then."""
        return serve_metrics(listen, self._registry)


def _text(targets: Sequence[str]) -> str:
    return ",".join(targets)
