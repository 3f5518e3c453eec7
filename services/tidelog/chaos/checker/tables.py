"""What a history says, as columns: no object for a record, so that a million operations fit and are quick to go through.

A key is a topic-partition; keys, values, processes and polls are numbered as they come. A value identifies its send, so the
columns of sends are indexed by it. What several readers see alike is looked at once: the second reader's poll is compared
with what the first one learnt, in one step.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from math import inf
from typing import Final

from tidelog.chaos.history import FAIL, OK, Crash, Phase, Polled, Send, Sent, Watermark
from tidelog.ids import NO_EPOCH, NO_OFFSET, TopicPartition

UNKNOWN: Final = 0
ACKED: Final = 1
REFUSED: Final = 2
NOBODY: Final = -1
ACKS: Final = ("0", "1", "all")
FROM_ALL: Final = ACKS.index("all")
SAMPLE_S: Final = 1.0


class Nonsense(ValueError):
    """No client can have done this: the history itself is wrong."""


class FinalRead:
    """What one reader of the final phase saw of one key, in its order."""

    __slots__ = ("offsets", "values")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.values = array("q")


class Tables:
    """Fed in the order of the history; a column is complete when all was fed."""

    def __init__(self, *, records_expire: bool = False) -> None:
        self._records_expire = records_expire
        self.keys: list[TopicPartition] = []
        self.key_of: dict[tuple[str, int], int] = {}
        self.processes: list[str] = []
        self._process_of: dict[str, int] = {}
        # By value.
        self.values: list[str] = []
        self._value_of: dict[str, int] = {}
        self._elsewhere: dict[tuple[int, str], int] = {}
        self.key = array("i")
        self.send_id = array("q")
        """NOBODY: it was read, and nobody sent it to this key."""
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
        """The leader's at the acknowledgement, or the latest that was known of the key."""
        self.one_copy = bytearray()
        """Acknowledged when no more than one replica had to have it (X3)."""
        self.read_by = array("q")
        """The first poll that brought it."""
        self.pending: dict[int, int] = {}
        # By poll.
        self.poll_id = array("q")
        self.poll_began = array("d")
        self.poll_ended = array("d")
        self.poll_process = array("i")
        self.op_reads: list[tuple[int, int, int]] = []
        """(op, poll, value) of polls that belong to an operation."""
        # By key.
        self.log: list[dict[int, int]] = []
        """Offset to the value that the first poll found there."""
        self.conflicts: list[dict[int, set[int]]] = []
        """Offset to all values found there, if they are several."""
        self.log_start: list[int] = []
        """The highest that a leader told, where records may expire; else 0."""
        self._epoch_now: list[int] = []
        self.epoch_healed: list[int] | None = None
        """The latest leader epoch of each key when the final phase began."""
        self._tails: list[tuple[array[int], array[float]]] = []
        self.final: dict[str, dict[int, FinalRead]] = {}
        self.crashed: set[str] = set()
        self.worst_lag_s = 0.0
        self.unseen_over_time: list[tuple[float, int]] = []
        self._unseen = 0
        self._next_sample = 0.0
        self.records_read = 0

    def key_number(self, topic: str, partition: int) -> int:
        found = self.key_of.get((topic, partition))
        if found is None:
            found = self.key_of[topic, partition] = len(self.keys)
            self.keys.append(TopicPartition(topic, partition))
            self.log.append({})
            self.conflicts.append({})
            self.log_start.append(0)
            self._epoch_now.append(NO_EPOCH)
            self._tails.append((array("q"), array("d")))
        return found

    def process_number(self, name: str) -> int:
        found = self._process_of.get(name)
        if found is None:
            found = self._process_of[name] = len(self.processes)
            self.processes.append(name)
        return found

    def send(self, record: Send) -> int:
        """The value's number. Nonsense."""
        t, send_id, process, topic, partition, value, acks, op = record
        key = self.key_of.get((topic, partition))
        if key is None:
            key = self.key_number(topic, partition)
        v = self._value_of.get(value)
        if v is None:
            v = self._append(key, value)
            self._value_of[value] = v
        elif self.send_id[v] != NOBODY:
            raise Nonsense(f"the value {value!r} is sent a second time, so no reader can say which send it has seen")
        elif self.key[v] != key:  # read elsewhere before it was sent here
            self._elsewhere[self.key[v], value] = v
            here = self._elsewhere.pop((key, value), None)  # it may have been read here too
            v = self._value_of[value] = self._append(key, value) if here is None else here
        if send_id in self.pending:
            raise Nonsense(f"the id {send_id} is in use by the send of {self.values[self.pending[send_id]]!r}")
        self.send_id[v] = send_id
        self.process[v] = self.process_number(process)
        self.began[v] = t
        self.acks[v] = ACKS.index(acks)
        if op is not None:
            self.op[v] = op
        self.pending[send_id] = v
        return v

    def sent(self, record: Sent) -> int:
        """The value's number. Nonsense."""
        t, send_id, outcome, offset, epoch, isr, _ = record
        v = self.pending.pop(send_id, None)
        if v is None:
            raise Nonsense(f"id {send_id} is completed, and no send with it is open")
        self.ended[v] = t
        key = self.key[v]
        if epoch is not None and epoch > self._epoch_now[key]:
            self._epoch_now[key] = epoch
        if outcome == OK and self.acks[v]:
            self.outcome[v] = ACKED
            self.epoch[v] = self._epoch_now[key] if epoch is None else epoch
            self.one_copy[v] = isr == 1 or ACKS[self.acks[v]] == "1"
            if self.read_by[v] < 0:
                self._unseen += 1
        elif outcome == FAIL:
            self.outcome[v] = REFUSED
        if offset is not None and offset != NO_OFFSET:
            self.acked_at[v] = offset
            self._tail(key, offset, t)
        if t >= self._next_sample:
            self._sample(t)
        return v

    def polled(self, record: Polled) -> None:
        poll = len(self.poll_id)
        self.poll_id.append(record.id)
        self.poll_began.append(record.began)
        self.poll_ended.append(record.t)
        self.poll_process.append(self.process_number(record.process))
        for topic, partition, records in record.partitions:
            if not records:
                continue
            key = self.key_number(topic, partition)
            offsets, values = zip(*records, strict=True)
            ids = list(map(self._value_of.get, values))
            log = self.log[key]
            if None in ids or list(map(log.get, offsets)) != ids:
                self._learn(key, poll, records, ids)
            self.records_read += len(records)
            self._lag(key, offsets[-1], record)
            if record.final:
                read = self.final.setdefault(record.process, {}).setdefault(key, FinalRead())
                read.offsets.extend(offsets)
                read.values.extend(ids)  # type: ignore[arg-type]
            if record.op is not None:
                self.op_reads.extend((record.op, poll, v) for v in ids if v is not None)
        if record.t >= self._next_sample:
            self._sample(record.t)

    def watermark(self, record: Watermark) -> int:
        key = self.key_number(record.topic, record.partition)
        if record.leader_epoch > self._epoch_now[key]:
            self._epoch_now[key] = record.leader_epoch
        if self._records_expire and record.log_start is not None and record.log_start > self.log_start[key]:
            self.log_start[key] = record.log_start
        return key

    def final_reader(self, process: str) -> None:
        """It counts even if it finds nothing to read."""
        self.final.setdefault(process, {})

    def phase(self, record: Phase) -> None:
        if record.phase == "final":
            self.epoch_healed = list(self._epoch_now)

    def crash(self, record: Crash) -> list[int]:
        """Values of the sends that will have no completion any more."""
        self.crashed.add(record.process)
        process = self._process_of.get(record.process, NOBODY)
        left = [(send_id, v) for send_id, v in self.pending.items() if self.process[v] == process]
        for send_id, _ in left:
            del self.pending[send_id]
        return [v for _, v in left]

    def leader_changed_after(self, v: int) -> bool:
        """Between the acknowledgement of `v` and the end of healing, as far as anyone saw."""
        known = self._epoch_now if self.epoch_healed is None else self.epoch_healed
        key = self.key[v]
        return self.epoch[v] != NO_EPOCH and key < len(known) and known[key] > self.epoch[v]

    def _append(self, key: int, value: str) -> int:
        v = len(self.values)
        self.values.append(value)
        self.key.append(key)
        self.send_id.append(NOBODY)
        self.process.append(NOBODY)
        self.op.append(NOBODY)
        self.began.append(inf)
        self.ended.append(inf)
        self.outcome.append(UNKNOWN)
        self.acked_at.append(NO_OFFSET)
        self.epoch.append(NO_EPOCH)
        self.one_copy.append(False)
        self.acks.append(0)
        self.read_by.append(NOBODY)
        return v

    def _learn(self, key: int, poll: int, records: Sequence[tuple[int, str]], ids: list[int | None]) -> None:
        """What nobody has polled yet; `ids` is completed."""
        log = self.log[key]
        for position, (offset, value) in enumerate(records):
            v = ids[position]
            if v is None or self.key[v] != key:
                v = ids[position] = self._unsent(key, value)
            if self.read_by[v] < 0:
                self.read_by[v] = poll
                if self.outcome[v] == ACKED:
                    self._unseen -= 1
            seen = log.get(offset)
            if seen is None:
                log[offset] = v
            elif seen != v:
                self.conflicts[key].setdefault(offset, {seen}).add(v)

    def _unsent(self, key: int, value: str) -> int:
        """A value that nobody has sent to this key so far."""
        if value not in self._value_of:
            v = self._value_of[value] = self._append(key, value)
            return v
        if (key, value) not in self._elsewhere:
            self._elsewhere[key, value] = self._append(key, value)
        return self._elsewhere[key, value]

    def _tail(self, key: int, offset: int, t: float) -> None:
        offsets, times = self._tails[key]
        if not offsets or offset > offsets[-1]:
            offsets.append(offset)
            times.append(t)

    def _lag(self, key: int, newest: int, record: Polled) -> None:
        """Real-time lag: how long before the poll began its newest offset had stopped being the tail (1.4)."""
        offsets, times = self._tails[key]
        after = bisect_right(offsets, newest)
        if after < len(times):
            self.worst_lag_s = max(self.worst_lag_s, record.began - times[after])
        self._tail(key, newest, record.t)

    def _sample(self, t: float) -> None:
        self.unseen_over_time.append((t, self._unseen))
        self._next_sample = t + SAMPLE_S
