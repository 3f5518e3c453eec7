"""How a repeated micro-batch finds out what is in the log already, and how attempts keep out of each other's way. Pure.

Each task of a query numbers the records that it writes to a partition 0, 1, 2, ... in each micro-batch. Producer id and
epoch are made of query, task and micro-batch, so every attempt at one task of one micro-batch writes under the same name,
and the leader stores each number once (`storage.producer_state`). That fences: an attempt that Spark has given up and
that still runs cannot add a record once another one has written, nor the other way round; one of them is refused.

Which rows are there is found by their content, not by their order, which may change after a shuffle: a repetition reads
back what is stored under its name, skips an equal row for each, and goes on with the next number. What is stored and is
not among its rows shows that the micro-batch was not repeated as it was, which is an error.

One ambiguity is left. A leader takes a batch with the numbers of a stored one for that one. Two attempts with rows in
different order must therefore never send the same range of numbers, except the last of a partition, which is whatever is
missing and so equal in both: `batch_end` makes each attempt end its batches at numbers of its own. There are no more such
numbers than rows fit a batch. Where fewer than 16 do, some attempts share theirs, and one that was given up and goes on beside
another, with its rows in another order, may have a batch of the other taken for its own.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidelog.client.numbering import SEQUENCE_MASK, Identity
from tidelog.client.records import Header
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire.batch import BatchHeader

HEADER: Final = "tidelog-sink"

_DERIVED: Final = 1 << 62
"""Producer ids from here on are made of names. The controller counts up from 0 and never comes so far."""
_EPOCH_BITS: Final = 15
INT_MAX: Final = 2**31 - 1

CONFLICTS: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Answers of a leader that has records of another attempt, or of a later micro-batch."""


class NotRepeatable(RuntimeError):
    """A micro-batch did not come back with the rows that it had."""


class StateError(RuntimeError):
    """The sink's state in the checkpoint cannot be used."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one task of one micro-batch."""

    query_id: str
    batch_id: int
    task: int
    """The number of the task among those of its micro-batch."""
    repeated: bool
    """There may have been an earlier one."""
    number: int
    """Another one for every attempt, as far as Spark lets us know: see `attempt_number`."""

    @property
    def identity(self) -> Identity:
        """What it writes under. Higher micro-batches have higher epochs, and after the last epoch another id."""
        name = f"{self.query_id}/{self.task}/{self.batch_id >> _EPOCH_BITS}"
        digest = blake2b(name.encode(), digest_size=8).digest()
        return Identity(_DERIVED | int.from_bytes(digest, "big") >> 2, self.batch_id & (1 << _EPOCH_BITS) - 1)

    def headers(self, partition: int, first: int, count: int) -> list[Header]:
        """Of records number `first` and so on of this task in that partition: no other record of the topic has the same,
        whatever order attempts get their rows in."""
        begin = f"{self.query_id}:{self.batch_id}:{self.task}.{partition}.".encode()
        return [(HEADER, b"%b%d" % (begin, number)) for number in range(first, first + count)]

    @property
    def header_bytes_max(self) -> int:
        return len(HEADER) + len(self.headers(INT_MAX, INT_MAX, 1)[0][1] or b"")


def attempt_number(runs: int, attempt: int, task_attempt_id: int) -> int:
    """Differs in its low four bits between runs of a micro-batch and attempts at a task; Spark counts neither when it
    repeats a whole stage, but then the id of the attempt, in the bits above, is another one."""
    # 5: a run has four attempts by default, and neighbours differ in the lowest bit where few records fit a batch.
    return (runs * 5 + attempt) % 16 + 16 * (task_attempt_id % (1 << 26))


def batch_end(first: int, fits: int, number: int) -> int:
    """Where a batch ends that begins at sequence `first` and has room for `fits` records, of which more are to come.

    The largest end that is `number` modulo the largest power of two for which there always is one.
    """
    modulus = 1 << (fits.bit_length() - 1)
    return first + fits - (first + fits - number) % modulus if modulus > 1 else first + fits


class Stored:
    """What earlier attempts of one task have stored of one micro-batch."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._next: dict[TopicPartition, int] = {}
        self._parts: list[npt.NDArray[np.int64]] = []
        self._contents: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def is_ours(self, header: BatchHeader) -> bool:
        return (header.producer_id, header.producer_epoch) == self._identity

    def add(self, tp: TopicPartition, header: BatchHeader, contents: Iterable[int]) -> None:
        """A batch that `is_ours`, in the order of the log; `contents` is a number for each record that equal rows share.

        StateError when records before it are gone: nobody can tell then which rows are still to be written.
        """
        expected = self._next.get(tp, 0)
        if header.base_sequence != expected:
            raise StateError(
                f"{tp}: records {expected} to {header.base_sequence} that this micro-batch has written are gone from the "
                f"log before offset {header.base_offset}; it cannot be told what is missing"
            )
        self._next[tp] = (expected + header.record_count) & SEQUENCE_MASK
        self._parts.append(np.fromiter(contents, np.int64, header.record_count))

    def next_sequence(self, tp: TopicPartition) -> int:
        return self._next.get(tp, 0)

    def take(self, contents: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these rows are stored. Each stored record answers for one row."""
        self._settle()
        skip = np.zeros(len(contents), np.bool_)
        if not len(self._contents):
            return skip
        at = np.minimum(np.searchsorted(self._contents, contents), len(self._contents) - 1)
        (known,) = np.nonzero((self._contents[at] == contents) & (self._counts[at] > 0))
        for row in known.tolist():
            where = at[row]
            if self._counts[where]:
                self._counts[where] -= 1
                skip[row] = True
        return skip

    def _settle(self) -> None:
        """What was added since goes to the rest."""
        if self._parts:
            old = np.repeat(self._contents, self._counts)
            self._contents, self._counts = np.unique(np.concatenate([old, *self._parts]), return_counts=True)
            self._parts.clear()

    def check_all_taken(self, attempt: Attempt) -> None:
        """NotRepeatable when records are stored that were not among the rows."""
        self._settle()
        left = int(self._counts.sum())
        if left:
            raise NotRepeatable(
                f"micro-batch {attempt.batch_id} did not come back as it was: task {attempt.task} finds {left} records of an "
                "earlier attempt in the log that are not among its rows. The plan is not deterministic (rand(), uuid(), a "
                "source or table that changes), or the query was changed; exactly-once cannot hold for this micro-batch. "
                "delivery=at-least-once goes on, with duplicates"
            )


@dataclass(frozen=True, slots=True)
class SinkState:
    """What the driver keeps in the checkpoint."""

    query_id: str
    ends: Mapping[TopicPartition, int]
    """Where to read back from: no record of a micro-batch after `finished` is below."""
    finished: int = -1
    """The last micro-batch whose rows are all acknowledged."""
    runs: int = 0
    """How often the one after it has begun."""

    def begun(self) -> "SinkState":
        return replace(self, runs=self.runs + 1)

    def ended(self, batch_id: int, ends: Mapping[TopicPartition, int]) -> "SinkState":
        """Micro-batch `batch_id` is finished; positions never go back."""
        if batch_id <= self.finished:
            return replace(self, runs=0)
        kept = {tp: max(end, self.ends.get(tp, 0)) for tp, end in ends.items()}
        return replace(self, ends={**self.ends, **kept}, finished=batch_id, runs=0)

    def partitions_of(self, topic: str) -> int | None:
        """How many partitions the topic had when the micro-batch began; None for one that was not known then."""
        count = sum(tp.topic == topic for tp in self.ends)
        return count or None

    def start_of(self, tp: TopicPartition) -> int | None:
        return self.ends.get(tp)

    def to_json(self) -> str:
        ends: dict[str, dict[str, int]] = {}
        for tp in sorted(self.ends):
            ends.setdefault(tp.topic, {})[str(tp.partition)] = self.ends[tp]
        found = {"version": 1, "query": self.query_id, "finished": self.finished, "runs": self.runs, "ends": ends}
        return json.dumps(found)


def state_from_json(text: str, where: str) -> SinkState:
    """StateError with `where` the text is from."""
    try:
        found: dict[str, Any] = json.loads(text)
        if found["version"] != 1:
            raise ValueError(f"version {found['version']} is not known")
        ends = {
            TopicPartition(str(topic), int(partition)): int(end)
            for topic, by_partition in found["ends"].items()
            for partition, end in by_partition.items()
        }
        return SinkState(str(found["query"]), ends, int(found["finished"]), int(found["runs"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(
            f"{where} is not the state of a tidelog sink ({type(error).__name__}: {error}); take it away and the query "
            "reads back from the beginning of the log"
        ) from None
