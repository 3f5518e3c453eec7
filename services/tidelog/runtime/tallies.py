"""Counters and histograms of what happens with every request.

Those of prometheus_client take a lock, and several calls for each of the two or three values that an observation changes: a
tenth of what a broker did for one small record. These are plain numbers that one thread changes, the event loop's, and that a
scrape reads from another: it may see a histogram's sum without its newest observation, never a number that was not there.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector


class Tally:
    """One child of a counter: who counts adds to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Timing:
    """One child of a histogram."""

    __slots__ = ("_bounds", "counts", "seconds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of each bucket alone, the last one being for what lies above all bounds."""
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Pairs of the text format: each bound with the observations at or below it."""
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(bounds, accumulate(self.counts.copy()), strict=True))


class Tallies(Collector):
    """A counter with labels; `name` without `_total`."""

    def __init__(self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._head = name, text, labels
        self._children: dict[tuple[str, ...], Tally] = {}
        registry.register(self)

    def labels(self, *values: str) -> Tally:
        """To be kept by who counts often."""
        found = self._children.get(values)
        if found is None:
            found = self._children[values] = Tally()
        return found

    def remove(self, *values: str) -> None:
        self._children.pop(values, None)

    def describe(self) -> Iterable[Metric]:
        name, text, labels = self._head
        return [CounterMetricFamily(name, text, labels=labels)]

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._head
        family = CounterMetricFamily(name, text, labels=labels)
        for values, tally in self._children.copy().items():
            family.add_metric(values, tally.value)
        yield family


class Timings(Collector):
    """A histogram with labels."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        """`bounds`: of the buckets, ascending, each included in its own; the one without a bound is added."""
        self._head = name, text, labels
        self._bounds = tuple(bounds)
        self._children: dict[tuple[str, ...], Timing] = {}
        registry.register(self)

    def labels(self, *values: str) -> Timing:
        found = self._children.get(values)
        if found is None:
            found = self._children[values] = Timing(self._bounds)
        return found

    def describe(self) -> Iterable[Metric]:
        name, text, labels = self._head
        return [HistogramMetricFamily(name, text, labels=labels)]

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._head
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, timing in self._children.copy().items():
            family.add_metric(values, timing.buckets(), timing.seconds)
        yield family
