"""A load whose every record is accounted for: what was sent is in a ledger, and so is what became of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from tidelog.chaos.ledger import SEQUENCE, SEQUENCE_HEADER, Ledger, digest
from tidelog.client.errors import DeliveryError
from tidelog.client.producer import Ack, Producer
from tidelog.errors import TidelogError
from tidelog.ports.clock import Clock


@dataclass(slots=True)
class Stalls:
    """The longest time, by partition, in which a record waited and its partition acknowledged nothing."""

    longest_s: dict[int, float] = field(default_factory=dict)
    _last_ack_at: dict[int, float] = field(default_factory=dict)

    def acked(self, partition: int, sent_at: float, now: float) -> None:
        waited_since = max(sent_at, self._last_ack_at.get(partition, sent_at))
        self.longest_s[partition] = max(self.longest_s.get(partition, 0.0), now - waited_since)
        self._last_ack_at[partition] = now

    def worst_s(self, partitions: Iterable[int] | None = None) -> float:
        chosen = self.longest_s if partitions is None else partitions
        return max((self.longest_s.get(partition, 0.0) for partition in chosen), default=0.0)


class VerifiedSender:
    """Numbers each record in the header `header` and notes its outcome."""

    def __init__(
        self, producer: Producer, topic: str, ledger: Ledger, clock: Clock, header: str = SEQUENCE_HEADER
    ) -> None:
        self.stalls = Stalls()
        self._producer = producer
        self._topic = topic
        self._ledger = ledger
        self._clock = clock
        self._header = header

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
        error = ack.exception()
        if error is None:
            metadata = ack.result()
            self._ledger.acked(number, metadata.partition, metadata.offset)
            self.stalls.acked(metadata.partition, sent_at, self._clock.now())
        elif isinstance(error, DeliveryError) and error.outcome_known:
            self._ledger.refused(number)
