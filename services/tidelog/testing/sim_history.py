"""The history of a simulated run: what its clients did, for the checker of chaos to judge as it judges a run of real processes.

Clients of the load live outside the faults. A consumer that the story throws away, or ends before it has come to the end, counts
as crashed.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set

from tidelog.broker.partition_host import PartitionHost
from tidelog.chaos.checker.check import check
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.history import ASSIGNED, Crash, Ownership, Phase, Polled, Record, Send, Sent, Watermark
from tidelog.chaos.notes import ACKS_ALL, Notes
from tidelog.client.producer import RecordMetadata
from tidelog.client.records import ConsumerRecord
from tidelog.ids import TopicPartition
from tidelog.testing.invariants import Violation

PROMISE = Promise(lost="one-copy", idempotent=True)
FINAL = "reader"


class SimHistory(Notes):
    """Names of records are their values."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        self._promised: dict[TopicPartition, dict[int, bytes]] = {}

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def append(self, record: Record) -> None:
        self.records.append(record)

    def acknowledged(self, acks: str, value: bytes, metadata: RecordMetadata) -> None:
        if acks == ACKS_ALL:
            tp = TopicPartition(metadata.topic, metadata.partition)
            self._promised.setdefault(tp, {})[metadata.offset] = value

    def promised(self) -> dict[TopicPartition, dict[int, bytes]]:
        """Values of records that acks=all has acknowledged so far, by offset."""
        return {tp: dict(records) for tp, records in self._promised.items()}

    @property
    def acked_count(self) -> int:
        return self.acked_by[ACKS_ALL]

    def assigned(self, process: str, partitions: Iterable[TopicPartition], *, final: bool = False) -> None:
        """It reads each of them from the log start."""
        self.append(Ownership(self.now(), ASSIGNED, process, tuple(partitions), final=final))

    def gone(self, process: str) -> None:
        self.append(Crash(self.now(), process))

    def polled(self, process: str, began: float, records: Sequence[ConsumerRecord], *, final: bool = False) -> None:
        found: dict[TopicPartition, list[tuple[int, str]]] = {}
        for record in records:
            rows = found.setdefault(TopicPartition(record.topic, record.partition), [])
            rows.append((record.offset, (record.value or b"").decode()))
        if found:
            self.read_by(process, began, found, None, final)

    def leads(self, broker: int, host: PartitionHost) -> None:
        """Keeps what a leader says of its partition, which may have another one by now."""
        replica = host.replica
        assert replica.leading is not None
        self.append(
            Watermark(
                self.now(),
                host.tp.topic,
                host.tp.partition,
                broker,
                replica.leader_epoch,
                replica.high_watermark,
                replica.log_end_offset,
                host.log.log_start_offset,
                None,
                len(replica.leading.isr.committed.isr),
            )
        )

    def phase(self, name: str) -> None:
        self.append(Phase(self.now(), name))

    def judge(self, except_for: Set[TopicPartition] = frozenset()) -> None:
        """Violation: something is not as it was promised, but for these partitions."""
        found = check(without(self.records, except_for), PROMISE)
        if not (found.sound and found.kept):
            raise Violation(f"history: {_told(found)}")


def without(records: Iterable[Record], partitions: Set[TopicPartition]) -> list[Record]:
    """Leaves out what is about these partitions alone."""
    if not partitions:
        return list(records)
    kept: list[Record] = []
    left_out: set[int] = set()
    for record in records:
        match record:
            case Send() if TopicPartition(record.topic, record.partition) in partitions:
                left_out.add(record.id)
            case Sent() if record.id in left_out:
                pass
            case Polled():
                reads = tuple(
                    each for each in record.partitions if TopicPartition(each.topic, each.partition) not in partitions
                )
                if reads:
                    kept.append(record._replace(partitions=reads))
            case Watermark() if TopicPartition(record.topic, record.partition) in partitions:
                pass
            case Ownership():
                kept.append(record._replace(partitions=tuple(tp for tp in record.partitions if tp not in partitions)))
            case _:
                kept.append(record)
    return kept


def _told(verdict: Verdict) -> str:
    """The first place of each anomaly."""
    bad: Mapping[str, str] = {
        name: found.examples[0].text for name, found in verdict.anomalies.items() if found.bad and found.examples
    }
    return "; ".join(f"{name}: {text}" for name, text in bad.items())
