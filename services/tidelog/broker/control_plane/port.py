"""The ControlPlane port. Generations differ behind it; log, fetch and client code do not know which one is in force."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.replica.effects import ProposeIsr
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m


@dataclass(frozen=True, slots=True)
class Decision:
    """What one partition's replica here must be from now on."""

    state: m.PartitionState
    config: TopicConfig


class Replicas(Protocol):
    """What a control plane drives: the replica manager."""

    def become(self, decisions: Sequence[Decision], live: dict[int, int]) -> list[m.PartitionResult]:
        """Applies decisions in order; applying one twice is harmless."""
        ...

    def stop(self, tp: TopicPartition, topic_id: bytes, leader_epoch: int, delete: bool) -> ErrorCode: ...

    def failed(self) -> tuple[m.PartitionResult, ...]:
        """The partitions whose disk has failed here."""
        ...

    def end_of(self, asked: m.ReplicaEndsPartition) -> m.ReplicaEnd:
        """The end of the log of a partition."""
        ...

    def isr_answered(
        self, tp: TopicPartition, topic_id: bytes, proposal: ProposeIsr, code: ErrorCode, state: m.LeaderAndIsr | None
    ) -> None:
        """`topic_id` is the one that was asked for: an answer about an earlier topic of the name is dropped (HOLE-10)."""
        ...


class ControlPlane(Protocol):
    """What the replica manager asks of a control plane."""

    def propose_isr(self, tp: TopicPartition, topic_id: bytes, proposal: ProposeIsr) -> None:
        """Returns at once; `Replicas.isr_answered` follows, for an unknown outcome never: it is asked again."""
        ...

    def run(self) -> Awaitable[None]:
        """Carries proposals until cancelled."""
        ...
