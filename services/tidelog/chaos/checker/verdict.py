"""What the checker says of a run; verdict.json is this value."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

EXAMPLES_MAX: Final = 10
EXIT_BROKEN: Final = 1
EXIT_NO_VERDICT: Final = 3


@dataclass(frozen=True, slots=True)
class Example:
    """One place where an anomaly shows."""

    text: str
    """A whole sentence, with processes, values, offsets and times."""
    t: float
    """Where on the time line it shows."""
    topic: str | None = None
    partition: int | None = None
    operations: tuple[int, ...] = ()
    """`id`s of the operations in the history that show it."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    count: int
    tolerated: bool
    """By the promise, or by its definition."""
    examples: tuple[Example, ...] = ()
    """At most EXAMPLES_MAX."""

    @property
    def bad(self) -> bool:
        return self.count > 0 and not self.tolerated


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time in which records of one ack level waited and their partition acknowledged none."""

    topic: str
    partition: int
    acks: str
    began: float
    ended: float
    over: bool
    """Ended with an acknowledgement; else with the last that was heard of the partition."""
    faults: tuple[str, ...] = ()
    """Names of the faults that were in force in it."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Kept:
    """A promise, and what became of it. `measured` and `limit` are texts with their units."""

    text: str
    kept: bool
    measured: str
    limit: str


@dataclass(frozen=True, slots=True)
class Verdict:
    anomalies: Mapping[str, Anomaly]
    """Every rule that was judged, with count 0 too; why one was not judged is among `notes`."""
    gaps: tuple[Gap, ...] = ()
    """One for each partition and ack level that had records to send."""
    promises: tuple[Kept, ...] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    """The history reaches to the end of the run, and nothing that is to be judged with it is missing."""
    notes: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Nothing was found that is not tolerated."""
        return not any(anomaly.bad for anomaly in self.anomalies.values())

    @property
    def kept(self) -> bool:
        return all(promise.kept for promise in self.promises)

    @property
    def exit_code(self) -> int:
        """0 sound and all promises kept, 1 not, 3 no verdict: what there is of the run is sound, but something is missing."""
        if not (self.sound and self.kept):
            return EXIT_BROKEN
        return 0 if self.complete else EXIT_NO_VERDICT

    def with_promises(self, *more: Kept) -> Self:
        """Those that are judged by other things than the history."""
        return replace(self, promises=(*self.promises, *more))

    def to_json(self) -> dict[str, Any]:
        return {
            "sound": self.sound,
            "kept": self.kept,
            "complete": self.complete,
            "anomalies": {name: asdict(anomaly) for name, anomaly in self.anomalies.items()},
            "gaps": [{**asdict(gap), "seconds": round(gap.seconds, 6)} for gap in self.gaps],
            "promises": [asdict(promise) for promise in self.promises],
            "stats": dict(self.stats),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """KeyError, TypeError: it is no verdict."""
        return cls(
            anomalies={
                name: Anomaly(
                    each["count"],
                    each["tolerated"],
                    tuple(Example(**{**e, "operations": tuple(e["operations"])}) for e in each["examples"]),
                )
                for name, each in found["anomalies"].items()
            },
            gaps=tuple(
                Gap(**{**{k: v for k, v in each.items() if k != "seconds"}, "faults": tuple(each["faults"])})
                for each in found["gaps"]
            ),
            promises=tuple(Kept(**each) for each in found["promises"]),
            stats=found["stats"],
            complete=found["complete"],
            notes=tuple(found["notes"]),
        )


def worst(exit_codes: Iterable[int]) -> int:
    """The exit code of several runs. A broken promise comes before a missing verdict, which runs are repeated for."""
    codes = {*exit_codes}
    return EXIT_BROKEN if EXIT_BROKEN in codes else max(codes, default=0)
