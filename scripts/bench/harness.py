"""How a figure is measured and printed.

Absolute speed drifts by a factor of two between runs of one machine, so a figure is a ratio: ours and the references take
turns, A B A B, and the median of the rounds' ratios is the result. Warm-up is dropped. Where the reference by itself varied
by more than a factor of two, there is no figure, and the line says why.
"""

import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SPREAD_MAX: Final = 2.0
ATTEMPTS: Final = 2
"""A neighbour may spoil one measurement; the second refusal stands."""


class CannotRun(Exception):
    """What a figure needs is not on this machine; the message says what, and where it comes from."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    seconds: float = 3.0
    """Of one measurement."""
    warm_up_s: float = 1.0
    rounds: int = 5
    kills: int = 10
    partitions: int = 1000
    many_partitions: int = 10_000
    few_partitions: int = 100
    failovers: int = 3
    """Of each kind at `many_partitions`."""
    gap_bytes: int = 256 << 20
    """Which a follower has to close."""
    moved_partition_bytes: int = 10_000_000
    """Of each of the `few_partitions` that are moved."""
    compacted_bytes: int = 128 << 20
    """Of a log."""
    creations: int = 3
    idle_s: float = 20.0
    members: int = 5_000
    """Of one group, with four partitions each; B11 compares it with a tenth."""
    small_group: int = 100
    """Members of the group that is rebalanced among the others."""
    steady_s: float = 60.0
    leaves: int = 10
    """Of a member of a group."""
    deaths: int = 5
    operations: int = 1_000_000
    """Of a history that is checked."""
    stream_records: int = 3_000_000
    """That a stream reads in micro-batches; about so many."""
    read_bytes: int = 2_000_000_000
    """Of random values that a batch reads."""
    sink_rows: int = 1_000_000
    """That a stream writes in micro-batches; about so many."""
    hostile_s: float = 600.0
    """Time of hostile requests, and that of harmless ones."""


FULL: Final = Scale()
SMOKE: Final = Scale(
    seconds=0.3,
    warm_up_s=0.1,
    rounds=2,
    kills=1,
    partitions=12,
    many_partitions=60,
    few_partitions=6,
    failovers=1,
    gap_bytes=4 << 20,
    moved_partition_bytes=400_000,
    compacted_bytes=2 << 20,
    creations=1,
    idle_s=0.5,
    members=20,
    small_group=3,
    steady_s=1.0,
    leaves=1,
    deaths=1,
    operations=5_000,
    stream_records=60_000,
    read_bytes=12_000_000,
    sink_rows=5_000,
    hostile_s=8.0,
)
"""For the tests that no benchmark rots; its figures mean nothing."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a benchmark gets."""

    scale: Scale
    directory: Path
    """Empty, on a real disk, removed afterwards."""
    wanted: frozenset[str]
    """Names of the figures that were asked for."""
    started_at: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Progress, not a result."""
        print(f"  {time.monotonic() - self.started_at:6.1f} s  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Figure:
    """One printed line. `ours` and `reference` are texts with their units."""

    name: str
    ratio: float
    ours: str
    reference: str
    n: int
    low: float
    high: float
    target: str
    """As text: "at least 0.4"."""

    def line(self) -> str:
        return (
            f"{self.name} ratio={self.ratio:.3g} (ours {self.ours}, reference {self.reference}, n={self.n})"
            f" min={self.low:.3g} max={self.high:.3g}, target {self.target}"
        )


@dataclass(frozen=True, slots=True)
class NoFigure:
    """A figure that cannot be given, and why."""

    name: str
    why: str

    def line(self) -> str:
        return f"{self.name} no ratio: {self.why}"


@dataclass(frozen=True, slots=True)
class Note:
    """A line that explains a figure: the steps of a kill."""

    text: str

    def line(self) -> str:
        return f"  {self.text}"


Line = Figure | NoFigure | Note
Measure = Callable[[float], Awaitable[float]]
"""Runs for so many seconds and returns a rate or a time."""


def spread(values: Sequence[float]) -> float:
    return max(values) / min(values) if min(values) > 0 else float("inf")


async def take_turns(
    bench: Bench, measures: Mapping[str, Measure], references: Sequence[str]
) -> dict[str, list[float]]:
    """Each warms up, then they take turns in every round. Done again if a reference varied too much for a figure."""
    scale = bench.scale
    for attempt in range(1, ATTEMPTS + 1):
        for measure in measures.values():
            await measure(scale.warm_up_s)
        taken: dict[str, list[float]] = {name: [] for name in measures}
        for number in range(1, scale.rounds + 1):
            for name, measure in measures.items():
                taken[name].append(await measure(scale.seconds))
            values = ", ".join(f"{name} {taken[name][-1]:.4g}" for name in measures)
            bench.say(f"round {number} of {scale.rounds}: {values}")
        worst = max(spread(taken[name]) for name in references)
        if worst <= SPREAD_MAX or attempt == ATTEMPTS:
            break
        bench.say(f"a reference varied {worst:.1f} times; once more")
    return taken


def compared(
    name: str,
    ours: Sequence[float],
    reference: Sequence[float],
    *,
    unit: str,
    target: str,
    times: float = 1.0,
    divided_by: float = 1.0,
    what: str = "",
) -> Figure | NoFigure:
    """The median of ours / (reference / `divided_by`) over the rounds.

    `times` turns a value into `unit`; `what` says more about the reference.
    """
    if (varied := spread(reference)) > SPREAD_MAX:
        between = f"{min(reference) * times:.4g} to {max(reference) * times:.4g} {unit}"
        why = f"the reference alone varied {varied:.1f} times ({between}); above {SPREAD_MAX:g} a ratio says nothing"
        return NoFigure(name, why)
    ratios = sorted(a * divided_by / b for a, b in zip(ours, reference, strict=True))
    return Figure(
        name,
        statistics.median(ratios),
        f"{statistics.median(ours) * times:.4g} {unit}",
        f"{statistics.median(reference) * times:.4g} {unit}{what}",
        len(ratios),
        ratios[0],
        ratios[-1],
        target,
    )


def against_limit(name: str, values: Sequence[float], *, limit: float, unit: str, target: str) -> Figure:
    """The reference is a fixed limit: nothing to take turns with."""
    ratios = sorted(v / limit for v in values)
    ours, reference = f"{statistics.median(values):.4g} {unit}", f"limit {limit:g} {unit}"
    return Figure(name, statistics.median(ratios), ours, reference, len(values), ratios[0], ratios[-1], target)


def percentile(values: Sequence[float], q: float) -> float:
    """Nearest rank; `q` from 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
