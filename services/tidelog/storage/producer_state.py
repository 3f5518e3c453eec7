"""Which batches of which idempotent producer a log holds: the table that makes a retry harmless (HOLE-28, KIP-98). Pure.

Every replica keeps one for each log, fed by what it appends, so that whoever becomes leader knows what its predecessor
had stored. Only a leader judges a batch (`check`); what is in the log is taken as it is (`note`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire.batch import NO_CRC, NO_PRODUCER_ID, BatchHeader, invalid

REMEMBERED: Final = 5
"""Batches of one producer that are known one by one: as many as a client may have in flight (KIP-98)."""

SEQUENCE_MASK: Final = 2**31 - 1
"""Sequences count records from 0 to 2^31 - 1 and then from 0 again."""

PRODUCER_IDS_MAX: Final = 50_000
EXPIRATION_S: Final = 86_400.0

SentCrcs = Mapping[int, int] | None
"""CRC as sent, by offset, of those batches that are stored as other bytes; None: it is not known which these are."""
AS_SENT: Final[SentCrcs] = {}
"""Batches that their leader has changed say so, and the others are as they were sent."""


class SeenBatch(NamedTuple):
    """A stored batch: the sequences of its first and last record, both inclusive, and the offset of the first."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    crc: int = NO_CRC
    """CRC of the batch as its producer sent it; NO_CRC where that is not known."""

    @property
    def last_offset(self) -> int:
        return self.base_offset + ((self.last_sequence - self.base_sequence) & SEQUENCE_MASK)


class ProducerFacts(NamedTuple):
    """What a log says of one producer. `run`: how many records without a gap, back from the last, are known to be stored."""

    producer_id: int
    epoch: int
    run: int
    batches: tuple[SeenBatch, ...]


class ProducerLimits:
    """What all tables of a broker share: one clock, set from outside, and one bound on the memory."""

    def __init__(self, ids_max: int = PRODUCER_IDS_MAX, expiration_s: float = EXPIRATION_S) -> None:
        self.ids_max = ids_max
        """Producers in all tables together. A table that would go beyond forgets its own oldest one, so that a crowd of new
        producers in one partition costs the others nothing; each table may keep one in any case."""
        self.expiration_s = expiration_s
        self.now = 0.0
        """Monotonic seconds; as coarse as its owner likes."""
        self.ids = 0


class _Producer:
    __slots__ = ("batches", "epoch", "run", "seen_at")

    def __init__(self, epoch: int, run: int, batches: tuple[SeenBatch, ...], seen_at: float) -> None:
        self.epoch = epoch
        self.run = run
        self.batches = batches
        self.seen_at = seen_at


class ProducerTable:
    """Of one log. Its order is that of the last use, the oldest first."""

    __slots__ = ("_limits", "_producers", "rewritten")

    def __init__(self, limits: ProducerLimits) -> None:
        self._limits = limits
        self._producers: dict[int, _Producer] = {}
        self.rewritten = False
        """Some of the CRCs are of batches that are stored as other bytes."""

    def __len__(self) -> int:
        return len(self._producers)

    def __repr__(self) -> str:
        return f"ProducerTable({len(self._producers)} producers)"

    def facts(self) -> list[ProducerFacts]:
        return [ProducerFacts(i, p.epoch, p.run, p.batches) for i, p in self._producers.items()]

    # --- judging ------------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, sent_crc: int) -> SeenBatch | None:
        """Whether a leader may append this batch of an idempotent producer: None. The stored one, if it is a repetition.

        `sent_crc`: of the batch as it was sent. INVALID_RECORD: a batch with these sequences is stored, and it is another one.
        Producer ids are no secret, so any client may have written it. If the CRC of the stored one is not known, equal
        sequences make a repetition.

        INVALID_PRODUCER_EPOCH: an older incarnation. OUT_OF_ORDER_SEQUENCE_NUMBER: a gap, so this batch is certainly not in
        the log. DUPLICATE_SEQUENCE_NUMBER: it certainly is, but longer ago than offsets are remembered.
        UNKNOWN_PRODUCER_ID: it is older than what is remembered at all, and nobody can tell.

        A producer that is not known may begin with any sequence (KIP-360): its records may have been deleted or its entry
        expired, and a healthy producer must not fail for that. What this could hide, an earlier batch of it that comes
        later, is what UNKNOWN_PRODUCER_ID is for.
        """
        known = self._producers.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch != known.epoch:
            return self._check_new_epoch(header, known.epoch)
        first = header.base_sequence
        last = known.batches[-1].last_sequence
        if first == (last + 1) & SEQUENCE_MASK:
            return None
        final = (first + header.last_offset_delta) & SEQUENCE_MASK
        for seen in reversed(known.batches):
            if seen.base_sequence == first and seen.last_sequence == final:
                if seen.crc not in (NO_CRC, sent_crc):
                    raise invalid(
                        f"{_named(header)}: another batch with these sequences is stored at {seen.base_offset}"
                    )
                return seen
        named = _named(header)
        behind = (last - first) & SEQUENCE_MASK
        if behind > SEQUENCE_MASK // 2:
            raise TidelogError(f"{named}, {(last + 1) & SEQUENCE_MASK} is next", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if behind < known.run and header.last_offset_delta <= behind:
            raise TidelogError(f"{named} was stored before, {last} is the last", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        raise TidelogError(
            f"{named} is older than what is remembered, the last {known.run} records up to {last}",
            ErrorCode.UNKNOWN_PRODUCER_ID,
        )

    @staticmethod
    def _check_new_epoch(header: BatchHeader, known_epoch: int) -> None:
        who = f"of producer {header.producer_id}"
        if header.producer_epoch < known_epoch:
            raise TidelogError(
                f"producer_epoch: {header.producer_epoch} {who}, {known_epoch} has begun",
                ErrorCode.INVALID_PRODUCER_EPOCH,
            )
        if header.base_sequence != 0:
            raise TidelogError(
                f"base_sequence: {header.base_sequence} {who}, its new epoch {header.producer_epoch} must begin with 0",
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            )

    # --- taking note --------------------------------------------------------------------------------------------

    def note(self, headers: Iterable[BatchHeader], base_offset: int, sent: SentCrcs = AS_SENT) -> None:
        """These batches are in the log now, with consecutive offsets from `base_offset`, whatever their headers say."""
        for header in headers:
            if header.producer_id != NO_PRODUCER_ID:
                self._note(header, base_offset, sent)
            base_offset += header.last_offset_delta + 1

    def _note(self, header: BatchHeader, base_offset: int, sent: SentCrcs) -> None:
        first, delta = header.base_sequence, header.last_offset_delta
        if sent is None:
            crc = NO_CRC
        elif base_offset in sent:
            crc, self.rewritten = sent[base_offset], True
        else:
            crc = header.sent_crc
        seen = SeenBatch(first, (first + delta) & SEQUENCE_MASK, base_offset, crc)
        known = self._producers.pop(header.producer_id, None)
        if known is None:
            known = _Producer(header.producer_epoch, delta + 1, (seen,), 0.0)
            self._limits.ids += 1
        elif known.epoch == header.producer_epoch and first == (known.batches[-1].last_sequence + 1) & SEQUENCE_MASK:
            known.batches = (*known.batches[1 - REMEMBERED :], seen)
            known.run += delta + 1
        else:
            # Another replica had forgotten what this one still knew, and took it as a beginning.
            known.epoch, known.run, known.batches = header.producer_epoch, delta + 1, (seen,)
        known.seen_at = self._limits.now
        self._producers[header.producer_id] = known
        if self._limits.ids > self._limits.ids_max and len(self._producers) > 1:
            self._forget(next(iter(self._producers)))

    def sent(self, offset: int) -> Iterator[tuple[int, int]]:
        """Offset and CRC as sent of the batches from `offset` on, if there are any that are stored as other bytes."""
        for producer in reversed(self._producers.values() if self.rewritten else ()):
            if producer.batches[-1].base_offset < offset:
                return  # the others have appended their last one before
            for seen in producer.batches:
                if seen.base_offset >= offset and seen.crc != NO_CRC:
                    yield seen.base_offset, seen.crc

    def load(self, facts: Sequence[ProducerFacts], rewritten: bool) -> None:
        """Everything anew, in the order of `facts`. They live from now on: an age survives no restart."""
        self.clear()
        self.rewritten = rewritten
        for producer_id, epoch, run, batches in facts:
            self._producers[producer_id] = _Producer(epoch, run, batches, self._limits.now)
        self._limits.ids += len(self._producers)

    # --- forgetting ---------------------------------------------------------------------------------------------

    def reaches(self, offset: int) -> bool:
        """Whether any producer is known by a batch at or after `offset`."""
        return bool(self._producers) and self._latest().batches[-1].base_offset >= offset

    def _latest(self) -> _Producer:
        return self._producers[next(reversed(self._producers))]

    def expire(self) -> None:
        """Forgets who has been silent for the whole expiration. Only memory is at stake: see `check`."""
        deadline = self._limits.now - self._limits.expiration_s
        while self._producers:
            oldest = next(iter(self._producers))
            if self._producers[oldest].seen_at > deadline:
                return
            self._forget(oldest)

    def clear(self) -> None:
        self._limits.ids -= len(self._producers)
        self._producers.clear()
        self.rewritten = False

    def _forget(self, producer_id: int) -> None:
        del self._producers[producer_id]
        self._limits.ids -= 1


def _named(header: BatchHeader) -> str:
    return f"base_sequence: {header.base_sequence} of producer {header.producer_id} in epoch {header.producer_epoch}"
