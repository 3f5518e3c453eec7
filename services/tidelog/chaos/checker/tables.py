"""One partition of a history as columns: no object for a record, so that a million operations fit and are quick to go through.

Values, processes and polls are numbered as they come. A value identifies its send, so the columns of sends are indexed by it.
What several readers see alike is looked at once: the second reader's poll is compared with what the first one learnt, in one
step.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from math import inf
from typing import Final

from tidelog.chaos.checker.routing import Nonsense
from tidelog.chaos.history import FAIL, OK, Crash, Phase, Polled, Send, Sent, Watermark
from tidelog.ids import NO_EPOCH, NO_OFFSET, TopicPartition

UNKNOWN: Final = 0
ACKED: Final = 1
REFUSED: Final = 2
NOBODY: Final = -1
ACKS: Final = ("0", "1", "all")
FROM_ALL: Final = ACKS.index("all")
SAMPLE_S: Final = 1.0


class FinalRead:
    """The records that one reader of the final phase saw, in its order."""

    __slots__ = ("offsets", "values")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.values = array("q")


class Tables:
    """Fed in the order of the history; a column is complete when all was fed."""

    def __init__(self, tp: TopicPartition, *, records_expire: bool = False) -> None:
        self.tp: Final = tp
        self.records_expire: Final = records_expire
        self.processes: list[str] = []
        self._process_of: dict[str, int] = {}
        # By value.
        self.values: list[str] = []
        self._value_of: dict[str, int] = {}
        self.send_id = array("q")
        """NOBODY: it was read, and nobody sent it to this partition."""
        self.process = array("i")
        self.op = array("q")
        self.began = array("d")
        self.ended = array("d")
        self.outcome = bytearray()
        """An acks=0 record that was handed over is UNKNOWN too: nobody has acknowledged anything."""
        self.acked_at = array("q")
        self.acks = bytearray()
        """Position in ACKS."""
        self.epoch = array("q")
        """The leader's at the acknowledgement, or the latest that was known."""
        self.one_copy = bytearray()
        """Acknowledged when no more than one replica had to have it (X3)."""
        self.once = bytearray()
        """Acknowledged, and known to have been sent once."""
        self.read_by = array("q")
        """The first poll that brought it."""
        self.pending: dict[int, int] = {}
        """Id of a send that is not completed to its value."""
        self.batches: dict[tuple[int, int], list[int]] = {}
        """Values of unknown outcome that a process sent in one batch."""
        # By poll.
        self.poll_id = array("q")
        self.poll_began = array("d")
        self.poll_ended = array("d")
        self.poll_process = array("i")
        self.op_reads: list[tuple[int, int, int]] = []
        """(op, poll, value) of polls that belong to an operation."""
        self.log: dict[int, int] = {}
        """Offset to the value that the first poll found there."""
        self.conflicts: dict[int, set[int]] = {}
        """Offset to all values found there, if they are several."""
        self.log_start = 0
        """The highest that a leader told, where records may expire; else 0."""
        self._epoch_now = NO_EPOCH
        self.epoch_healed: int | None = None
        """The latest leader epoch when the final phase began."""
        self._tail_offsets, self._tail_times = array("q"), array("d")
        self._replicated: dict[int, int] = {}
        """Leader epoch to the highest watermark that its leader told while it was not alone in the ISR."""
        self.final: dict[str, FinalRead] = {}
        self.crashed: set[str] = set()
        self.worst_lag_s = 0.0
        self.unseen: dict[int, int] = {}
        """Second of the run to the growth in it of the number of acknowledged values that are not read yet."""
        self.records_read = 0

    def process_number(self, name: str) -> int:
        found = self._process_of.get(name)
        if found is None:
            found = self._process_of[name] = len(self.processes)
            self.processes.append(name)
        return found

    def send(self, record: Send) -> int:
        """The value's number. Nonsense."""
        t, send_id, process, _, _, value, acks, op = record
        v = self._value_of.get(value)
        if v is None:
            v = self._append(value)
        elif self.send_id[v] != NOBODY:
            raise Nonsense(f"the value {value!r} is sent a second time, so no reader can say which send it has seen")
        self.send_id[v] = send_id
        self.process[v] = self.process_number(process)
        self.began[v] = t
        self.acks[v] = ACKS.index(acks)
        if op is not None:
            self.op[v] = op
        self.pending[send_id] = v
        return v

    def sent(self, record: Sent) -> int:
        """The value's number."""
        t, send_id, outcome, offset, epoch, isr, _, batch, attempts = record
        v = self.pending.pop(send_id)
        self.ended[v] = t
        if epoch is not None and epoch > self._epoch_now:
            self._epoch_now = epoch
        if outcome == OK and self.acks[v]:
            self.outcome[v] = ACKED
            self.epoch[v] = self._epoch_now if epoch is None else epoch
            self.one_copy[v] = isr == 1 or ACKS[self.acks[v]] == "1"
            if self.read_by[v] < 0:
                self._count_unseen(t, 1)
            if attempts == 1:
                self.once[v] = True
        elif outcome == FAIL:
            self.outcome[v] = REFUSED
        elif batch is not None:
            self.batches.setdefault((self.process[v], batch), []).append(v)
        if offset is not None and offset != NO_OFFSET:
            self.acked_at[v] = offset
            self._tail(offset, t)
        return v

    def polled(self, record: Polled) -> None:
        poll = len(self.poll_id)
        self.poll_id.append(record.id)
        self.poll_began.append(record.began)
        self.poll_ended.append(record.t)
        self.poll_process.append(self.process_number(record.process))
        records = record.partitions[0].records
        offsets, values = zip(*records, strict=True)
        ids = list(map(self._value_of.get, values))
        log = self.log
        if None in ids or list(map(log.get, offsets)) != ids:
            self._learn(poll, records, ids)
        self.records_read += len(records)
        self._lag(offsets[-1], record)
        if record.final:
            read = self.final.setdefault(record.process, FinalRead())
            read.offsets.extend(offsets)
            read.values.extend(ids)  # type: ignore[arg-type]
        if record.op is not None:
            self.op_reads.extend((record.op, poll, v) for v in ids if v is not None)

    def watermark(self, record: Watermark) -> None:
        if record.leader_epoch > self._epoch_now:
            self._epoch_now = record.leader_epoch
        if record.isr != 1:
            known = self._replicated.get(record.leader_epoch, 0)
            self._replicated[record.leader_epoch] = max(known, record.high_watermark)
        if self.records_expire and record.log_start is not None and record.log_start > self.log_start:
            self.log_start = record.log_start

    def final_reader(self, process: str) -> None:
        """It counts even if it finds nothing to read."""
        self.final.setdefault(process, FinalRead())

    def phase(self, record: Phase) -> None:
        if record.phase == "final":
            self.epoch_healed = self._epoch_now

    def crash(self, record: Crash) -> list[int]:
        """Values of the sends that will have no completion any more."""
        self.crashed.add(record.process)
        process = self._process_of.get(record.process, NOBODY)
        left = [(send_id, v) for send_id, v in self.pending.items() if self.process[v] == process]
        for send_id, _ in left:
            del self.pending[send_id]
        return [v for _, v in left]

    def was_replicated(self, v: int) -> bool:
        """True if the leader that acknowledged `v` told of a high watermark behind it, with others in the ISR."""
        return NO_OFFSET < self.acked_at[v] < self._replicated.get(self.epoch[v], 0)

    def leader_changed_after(self, v: int) -> bool:
        """Between the acknowledgement of `v` and the end of healing, as far as anyone saw."""
        known = self._epoch_now if self.epoch_healed is None else self.epoch_healed
        return self.epoch[v] != NO_EPOCH and known > self.epoch[v]

    def _append(self, value: str) -> int:
        v = self._value_of[value] = len(self.values)
        self.values.append(value)
        self.send_id.append(NOBODY)
        self.process.append(NOBODY)
        self.op.append(NOBODY)
        self.began.append(inf)
        self.ended.append(inf)
        self.outcome.append(UNKNOWN)
        self.acked_at.append(NO_OFFSET)
        self.epoch.append(NO_EPOCH)
        self.one_copy.append(False)
        self.once.append(False)
        self.acks.append(0)
        self.read_by.append(NOBODY)
        return v

    def _learn(self, poll: int, records: Sequence[tuple[int, str]], ids: list[int | None]) -> None:
        """What nobody has polled yet; `ids` is completed."""
        log = self.log
        for position, (offset, value) in enumerate(records):
            v = ids[position]
            if v is None:
                v = self._value_of.get(value)  # it may be in this poll twice
                v = ids[position] = self._append(value) if v is None else v
            if self.read_by[v] < 0:
                self.read_by[v] = poll
                if self.outcome[v] == ACKED:
                    self._count_unseen(self.poll_ended[poll], -1)
            seen = log.get(offset)
            if seen is None:
                log[offset] = v
            elif seen != v:
                self.conflicts.setdefault(offset, {seen}).add(v)

    def _tail(self, offset: int, t: float) -> None:
        if not self._tail_offsets or offset > self._tail_offsets[-1]:
            self._tail_offsets.append(offset)
            self._tail_times.append(t)

    def _lag(self, newest: int, record: Polled) -> None:
        """Real-time lag: how long before the poll began its newest offset had stopped being the tail (1.4)."""
        after = bisect_right(self._tail_offsets, newest)
        if after < len(self._tail_times):
            self.worst_lag_s = max(self.worst_lag_s, record.began - self._tail_times[after])
        self._tail(newest, record.t)

    def _count_unseen(self, t: float, more: int) -> None:
        second = int(t / SAMPLE_S)
        self.unseen[second] = self.unseen.get(second, 0) + more
