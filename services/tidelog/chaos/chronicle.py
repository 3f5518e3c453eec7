"""Where everything of a run is written down as it happens: the history, on the run's one clock, and what it adds up to."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelog.chaos.history import FaultStep, HistoryWriter, Phase, Record, Watermark
from tidelog.chaos.notes import Notes
from tidelog.chaos.samples import BrokerLook, Sample
from tidelog.chaos.sources import name_of
from tidelog.client.records import ConsumerRecord
from tidelog.cluster.api import broker_id_of
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock


class Chronicle(Notes):
    """One for a run, used from its event loop alone."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(clock.now())
        self.clock = clock
        self._writer = HistoryWriter(path)
        self._faults = 0
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._writer.close()

    def now(self) -> float:
        """Seconds since the run began."""
        return self.clock.now() - self.began

    def append(self, record: Record) -> None:
        self._writer.append(record)

    def phase(self, name: str) -> None:
        """With it, all that was said before is in the file."""
        self.append(Phase(self.now(), name))
        self._writer.flush()
        self._ended = name == "end"

    def polled(
        self, process: str, began: float, records: Sequence[ConsumerRecord], group: str | None, final: bool = False
    ) -> None:
        """`began` as the clock had it."""
        by_partition: dict[TopicPartition, list[tuple[int, str]]] = {}
        for record in records:
            found = by_partition.setdefault(TopicPartition(record.topic, record.partition), [])
            timestamp_ms = None if record.timestamp_type else record.timestamp_ms
            found.append((record.offset, name_of(record.key, record.value, record.headers, timestamp_ms)))
        self.read_by(process, began, by_partition, group, final)

    def fault(self, number: int, fault: str, what: str, targets: Sequence[str], name: str) -> None:
        self.append(FaultStep(self.now(), fault, what, tuple(targets), name, number))

    def next_fault(self) -> int:
        self._faults += 1
        return self._faults

    def looked(self, sample: Sample) -> None:
        """What leaders say of themselves when they are asked belongs to the history (X4)."""
        if self._ended or not isinstance(sample, BrokerLook):
            return
        for replica in sample.replicas:
            if replica.leads:
                self.append(
                    Watermark(
                        self.now(),
                        replica.topic,
                        replica.partition,
                        broker_id_of(sample.process),
                        replica.leader_epoch,
                        replica.high_watermark,
                        replica.log_end,
                        replica.log_start,
                        sample.t,
                        replica.isr_size,
                    )
                )
