"""Records of a history, made of what clients did: a harness tells of each send and each poll, and keeps what comes of it."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final
from weakref import WeakKeyDictionary

from tidelog.chaos.history import INFO, OK, Polled, Read, Record, Send, Sent
from tidelog.chaos.outcomes import error_name, outcome
from tidelog.client.errors import DeliveryError
from tidelog.client.producer import RecordMetadata
from tidelog.ids import NO_EPOCH, NO_OFFSET, TopicPartition

ACKS_ALL: Final = "all"
FROM_LEADER: Final = "1"
NOTHING_ACKNOWLEDGED: Final = "0"
"""Without acknowledgements it is not known what became of a record that was sent."""


class Notes(ABC):
    """One for a run, used from its event loop alone."""

    def __init__(self, began: float = 0.0) -> None:
        """`began`: when the run did, by the clock of the harness."""
        self.began = began
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
        self._ids = 0
        self._batches: WeakKeyDictionary[DeliveryError, int] = WeakKeyDictionary()
        """Numbers of batches that have failed, by their errors."""
        self._failed = count(1)

    @abstractmethod
    def now(self) -> float:
        """Seconds since the run began."""

    @abstractmethod
    def append(self, record: Record) -> None:
        """Keeps it."""

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
        isr = metadata.isr_size or None if metadata is not None else None
        self.append(Sent(self.now(), number, sure, offset, epoch, isr, name, batch, attempts))

    def _batch_of(self, error: DeliveryError) -> int:
        """All records of a batch end with one error; those of other batches may end in between."""
        if error not in self._batches:
            self._batches[error] = next(self._failed)
        return self._batches[error]

    def read_by(
        self,
        process: str,
        began: float,
        by_partition: Mapping[TopicPartition, Sequence[tuple[int, str]]],
        group: str | None,
        final: bool = False,
    ) -> None:
        """One poll, by offsets and names of what it brought; `began` as the clock had it."""
        total = sum(map(len, by_partition.values()))
        reads = tuple(Read(*tp, tuple(rows)) for tp, rows in by_partition.items())
        for tp, rows in by_partition.items():
            self._saw(tp, rows[-1][0])
        self._ids += 1
        self.read += total
        self.read_alone += 0 if group is not None else total
        self.append(Polled(self.now(), process, self._ids, began - self.began, reads, group, final))

    @property
    def acked(self) -> int:
        return self.outcomes[OK]

    def _saw(self, tp: TopicPartition, offset: int) -> None:
        self.highest[tp] = max(self.highest.get(tp, NO_OFFSET), offset)
