"""A load whose every record is accounted for: what was sent is in a ledger, and so is what became of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from tidelog.chaos.ledger import SEQUENCE, SEQUENCE_HEADER, Ledger, Outcome, digest
from tidelog.client.errors import DeliveryError
from tidelog.client.producer import Ack, Producer
from tidelog.errors import TidelogError
from tidelog.ports.clock import Clock

OnOutcome = Callable[[Outcome, float, float], None]
"""What became of a record, when it was sent, and when its answer came; PENDING: it ended without a certain one."""


@dataclass(slots=True)
class Stalls:
    """The longest time, by partition, in which a record waited and its partition acknowledged nothing."""

    longest: dict[int, tuple[float, float]] = field(default_factory=dict)
    """When it began and when it ended."""
    _last_ack_at: dict[int, float] = field(default_factory=dict)

    @property
    def longest_s(self) -> dict[int, float]:
        return {partition: ended - began for partition, (began, ended) in self.longest.items()}

    def acked(self, partition: int, sent_at: float, now: float) -> None:
        waited_since = max(sent_at, self._last_ack_at.get(partition, sent_at))
        began, ended = self.longest.get(partition, (now, now))
        if now - waited_since >= ended - began:
            self.longest[partition] = waited_since, now
        self._last_ack_at[partition] = now

    def worst_s(self, partitions: Iterable[int] | None = None) -> float:
        found = self.longest_s
        return max(
            (found.get(partition, 0.0) for partition in (found if partitions is None else partitions)), default=0.0
        )


class VerifiedSender:
    """Numbers each record in the header `header` and notes its outcome."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        ledger: Ledger,
        clock: Clock,
        header: str = SEQUENCE_HEADER,
        on_outcome: OnOutcome = lambda outcome, sent_at, now: None,
    ) -> None:
        self.stalls = Stalls()
        self._producer = producer
        self._topic = topic
        self._ledger = ledger
        self._clock = clock
        self._header = header
        self._on_outcome = on_outcome

    async def send(self, key: bytes | None, value: bytes, partition: int | None = None) -> None:
        number = self._ledger.sent(digest(key, value))
        headers = ((self._header, SEQUENCE.pack(number)),)
        sent_at = self._clock.now()
        try:
            ack = await self._producer.send(self._topic, value, key, headers, partition)
        except TidelogError:
            self._ledger.refused(number)  # `send` raises before the record enters the buffer
            return
        ack.add_done_callback(partial(self._answered, number, sent_at))

    def refuse(self) -> None:
        """Counts a record that is not even tried."""
        self._ledger.refused(self._ledger.sent(0))

    def _answered(self, number: int, sent_at: float, ack: Ack) -> None:
        error, now = ack.exception(), self._clock.now()
        outcome = Outcome.PENDING
        if error is None:
            metadata = ack.result()
            self._ledger.acked(number, metadata.partition, metadata.offset)
            self.stalls.acked(metadata.partition, sent_at, now)
            outcome = Outcome.ACKED
        elif isinstance(error, DeliveryError) and error.outcome_known:
            self._ledger.refused(number)
            outcome = Outcome.REFUSED
        self._on_outcome(outcome, sent_at, now)
