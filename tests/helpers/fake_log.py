"""One partition's log in memory, as `fake_broker` keeps it."""

from dataclasses import dataclass, field

from aiokafka.record.memory_records import MemoryRecords

from tidelog.storage.producer_state import ProducerLimits, ProducerTable
from tidelog.wire.batch import NO_PRODUCER_ID, read_header, stamp, validate_produce


@dataclass
class FakePartition:
    leader: int
    leader_epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    log_start: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, start offset) as a leader knows them."""
    producers: ProducerTable = field(default_factory=lambda: ProducerTable(ProducerLimits()))

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).end_offset if self.batches else self.log_start

    def append(self, records: bytes, batch_bytes_max: int) -> int:
        base = self.end
        at = base
        batches = validate_produce(records, batch_bytes_max=batch_bytes_max)
        if batches.headers[0].producer_id != NO_PRODUCER_ID:
            stored = self.producers.check(batches.headers[0], batches.headers[0].crc)
            if stored is not None:
                return stored.base_offset
        self.producers.note(batches.headers, base)
        data = b"".join(bytes(part) for part in stamp(batches, base, self.leader_epoch))
        position = 0
        for header in batches.headers:
            self.batches.append(data[position : position + header.size_bytes])
            position += header.size_bytes
            at += header.record_count
        if not self.epochs or self.epochs[-1][0] < self.leader_epoch:
            self.epochs.append((self.leader_epoch, base))
        return base

    def diverging(self, offset: int, epoch: int) -> tuple[int, int]:
        """KIP-320: (-1, -1), or where the reader has to go back to."""
        if epoch < 0:
            return -1, -1
        known = [e for e, _ in self.epochs if e <= epoch]
        best = known[-1] if known else -1
        end = next((start for e, start in self.epochs if e > epoch), self.end)
        return (best, end) if best < epoch or end < offset else (-1, -1)

    def values(self) -> list[bytes | None]:
        out: list[bytes | None] = []
        for batch in self.batches:
            records = MemoryRecords(batch)
            while (decoded := records.next_batch()) is not None:
                assert decoded.validate_crc()
                out.extend(record.value for record in decoded)
        return out
