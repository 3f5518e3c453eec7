"""What a run promised. It decides which anomalies are tolerated; it never hides one."""

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

from tidelog.ids import TopicPartition

Loss = Literal["none", "one-copy", "allowed"]
LOSSES: Final[tuple[Loss, ...]] = ("none", "one-copy", "allowed")


@dataclass(frozen=True, slots=True)
class Availability:
    """No partition goes without an acknowledgement for longer than `at_most_s` while records wait for one."""

    at_most_s: float
    partitions: tuple[TopicPartition, ...] | None = None
    """None: every one."""
    acks: str | None = None
    """Of the records that are meant; None: every level by itself."""


@dataclass(frozen=True, slots=True)
class Promise:
    lost: Loss = "none"
    """Which acknowledged records may be gone.

    none      no one
    one-copy  those that only one replica had when they were acknowledged (acks=1, or an ISR of one), whose leader changed
              afterwards, and which nobody had read (X3)
    allowed   any, and what was read may be overwritten: power loss of all replicas, unclean elections
    """
    idempotent: bool = False
    """Whether the producers with acks=all are; others cannot be. None of their records is in the log twice, and none passes
    one that was sent before it."""
    available: tuple[Availability, ...] = ()
    uncommitted_max: int | None = None
    """How many records of a partition a member of a group has in hand at most, processed and not committed (X5)."""
    records_expire: bool = False
    """They may be deleted meanwhile, by age, by size or since somebody asks for it: what is below the log start is not missed.
    Else a log start that rises is no excuse; scenarios keep theirs for ever."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """TypeError, ValueError: it is no promise."""
        if (lost := found.get("lost", "none")) not in LOSSES:
            raise ValueError(f"lost is {lost!r}, not one of {', '.join(LOSSES)}")
        available = tuple(_availability(**each) for each in found.get("available", ()))
        return cls(**{**found, "available": available})


def _availability(
    at_most_s: float, partitions: list[tuple[str, int]] | None = None, acks: str | None = None
) -> Availability:
    chosen = None if partitions is None else tuple(TopicPartition(*each) for each in partitions)
    return Availability(at_most_s, chosen, acks)
