"""Routes each record of a history to the partition that it is about: partitions are judged apart from each other.

That is sound since an operation touches one partition: there are no transactions, and a poll that brings records of several
promises nothing about them together. Real-time order is local to an object (Herlihy and Wing, "Linearizability", 1990,
theorem 1), so that a cycle over several partitions and time has one in a single partition.
"""

from collections.abc import Iterable, Iterator

from tidelog.chaos.history import (
    ASSIGNED,
    REVOKED,
    Committed,
    Crash,
    Ownership,
    Polled,
    Processed,
    Record,
    Send,
    Sent,
    Stored,
    Watermark,
)
from tidelog.ids import TopicPartition

Routed = tuple[TopicPartition | None, Record]
"""None: it says something about all of them."""


class Nonsense(ValueError):
    """No client can have done this: the history itself is wrong."""


class Router:
    """Fed in the order of the history."""

    def __init__(self) -> None:
        self._open: dict[int, Send] = {}
        self._final_readers: set[str] = set()
        self._read_by: set[tuple[str, str]] = set()
        """Group and topic."""
        self._of_operation: dict[int, TopicPartition] = {}

    def routed(self, records: Iterable[Record]) -> Iterator[Routed]:
        """Each record with its partition; one that is about several is cut into one for each. Nonsense."""
        for record in records:
            match record:
                case Send():
                    yield self._send(record), record
                case Sent():
                    yield self._sent(record), record
                case Polled():
                    yield from self._polled(record)
                case Watermark():
                    yield TopicPartition(record.topic, record.partition), record
                case Processed():
                    for span in record.partitions:
                        tp = TopicPartition(span.topic, span.partition)
                        yield from self._of_group(record.t, record.group, tp)
                        yield tp, record._replace(partitions=(span,))
                case Committed() | Stored():
                    for position in record.offsets:
                        tp = TopicPartition(position.topic, position.partition)
                        yield from self._of_group(record.t, record.group, tp)
                        yield tp, record._replace(offsets=(position,))
                case _:
                    yield from self._about_all(record)

    def _send(self, record: Send) -> TopicPartition:
        if record.id in self._open:
            raise Nonsense(f"the id {record.id} is in use by the send of {self._open[record.id].value!r}")
        self._open[record.id] = record
        return self._one_place(record.op, TopicPartition(record.topic, record.partition))

    def _sent(self, record: Sent) -> TopicPartition:
        send = self._open.pop(record.id, None)
        if send is None:
            raise Nonsense(f"id {record.id} is completed, and no send with it is open")
        return TopicPartition(send.topic, send.partition)

    def _polled(self, record: Polled) -> Iterator[Routed]:
        brought = any(read.records for read in record.partitions)
        if brought and record.final and record.process not in self._final_readers:  # what it has not read it has missed
            yield from self._about_all(Ownership(record.t, ASSIGNED, record.process, (), final=True))
        for read in record.partitions:
            if read.records:
                tp = self._one_place(record.op, TopicPartition(read.topic, read.partition))
                yield tp, record._replace(partitions=(read,))

    def _one_place(self, op: int | None, tp: TopicPartition) -> TopicPartition:
        if op is not None and (known := self._of_operation.setdefault(op, tp)) != tp:
            raise Nonsense(f"operation {op} is about {known} and about {tp}, and there are no transactions")
        return tp

    def _of_group(self, t: float, group: str, tp: TopicPartition) -> Iterator[Routed]:
        """A group that works on one partition of a topic owes the others, too."""
        if (group, tp.topic) not in self._read_by:
            self._read_by.add((group, tp.topic))
            yield None, Ownership(t, REVOKED, "", (tp,), group)

    def _about_all(self, record: Record) -> Iterator[Routed]:
        if isinstance(record, Ownership) and record.final:
            self._final_readers.add(record.process)
        if isinstance(record, Crash):
            self._open = {number: send for number, send in self._open.items() if send.process != record.process}
        yield None, record
