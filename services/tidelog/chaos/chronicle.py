"""Where everything of a run is written down as it happens: the history, on the run's one clock, and what it adds up to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tidelog.chaos.history import INFO, OK, FaultStep, HistoryWriter, Phase, Polled, Read, Record, Send, Sent, Watermark
from tidelog.chaos.outcomes import error_name, outcome
from tidelog.chaos.samples import BrokerLook, Sample
from tidelog.chaos.sources import name_of
from tidelog.client.errors import DeliveryError
from tidelog.client.producer import RecordMetadata
from tidelog.client.records import ConsumerRecord
from tidelog.cluster.api import broker_id_of
from tidelog.ids import NO_EPOCH, NO_OFFSET, TopicPartition
from tidelog.ports.clock import Clock

ACKS_ALL: Final = "all"
FROM_LEADER: Final = "1"
NOTHING_ACKNOWLEDGED: Final = "0"
"""Without acknowledgements nobody knows what became of a record that was sent."""


class Chronicle:
    """One for a run, used from its event loop alone."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.clock = clock
        self.began = clock.now()
        self.outcomes: Counter[str] = Counter()
        self.sent = 0
        """Records that were tried."""
        self.read = 0
        """Records, by all consumers."""
        self.acked_by: Counter[str] = Counter()
        """Records by ack level."""
        self.read_alone = 0
        """Records, by consumers without a group."""
        self.highest: dict[TopicPartition, int] = {}
        """The highest offset that any operation ever saw."""
        self._writer = HistoryWriter(path)
        self._ids = 0
        self._batches = 0
        self._batch_error: DeliveryError | None = None
        """The error of the batch that failed last."""
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

    def tried(self, process: str, topic: str, partition: int, value: str, acks: str) -> int:
        self._ids += 1
        self.sent += 1
        self.append(Send(self.now(), self._ids, process, topic, partition, value, acks))
        return self._ids

    def ended(self, number: int, acks: str, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        sure = outcome(error)
        if metadata is not None and acks != NOTHING_ACKNOWLEDGED:
            self._saw(TopicPartition(metadata.topic, metadata.partition), metadata.offset)
        elif error is None:
            sure = INFO
        self.outcomes[sure] += 1
        self.acked_by[acks] += sure == OK
        offset = None if metadata is None or metadata.offset == NO_OFFSET else metadata.offset
        epoch = None if metadata is None or metadata.leader_epoch == NO_EPOCH else metadata.leader_epoch
        name = None if error is None else error_name(error)
        batch = self._batch_of(error) if sure == INFO and isinstance(error, DeliveryError) else None
        attempts = metadata.attempts if metadata is not None and acks == FROM_LEADER else None
        self.append(Sent(self.now(), number, sure, offset, epoch, None, name, batch, attempts))

    def _batch_of(self, error: DeliveryError) -> int:
        """All records of a batch end with one error, one after the other."""
        if error is not self._batch_error:
            self._batches += 1
            self._batch_error = error
        return self._batches

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

    def read_by(
        self,
        process: str,
        began: float,
        by_partition: Mapping[TopicPartition, Sequence[tuple[int, str]]],
        group: str | None,
        final: bool = False,
    ) -> None:
        """One poll, by offsets and names of what it brought; `began` as the clock had it."""
        count = sum(map(len, by_partition.values()))
        reads = tuple(Read(*tp, tuple(rows)) for tp, rows in by_partition.items())
        for tp, rows in by_partition.items():
            self._saw(tp, rows[-1][0])
        self._ids += 1
        self.read += count
        self.read_alone += 0 if group is not None else count
        self.append(Polled(self.now(), process, self._ids, began - self.began, reads, group, final))

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

    @property
    def acked(self) -> int:
        return self.outcomes[OK]

    def _saw(self, tp: TopicPartition, offset: int) -> None:
        self.highest[tp] = max(self.highest.get(tp, NO_OFFSET), offset)
