"""The producer's accumulator by itself."""

from tidelog.client.accumulator import Accumulator
from tidelog.client.records import codec_of
from tidelog.ids import BrokerId, TopicPartition

LIFETIME_S = 20.0
TP = TopicPartition("t", 0)


def test_a_batch_expires_at_the_instant_that_next_at_names() -> None:
    # Sums and differences of floats round differently: if the two disagree, the sender spins until the clock moves on.
    for tenths in range(1, 2000):
        created_at = tenths / 10
        accumulator: Accumulator[None] = Accumulator(
            batch_bytes=1024, linger_s=0.0, buffer_bytes=4096, request_bytes=4096, codec=codec_of("none")
        )
        accumulator.append(TP, 0, None, b"v", [], None, created_at)
        accumulator.drain(created_at, lambda _: BrokerId(1), lambda _: False)
        due_at = accumulator.next_at(created_at, LIFETIME_S)
        assert due_at is not None
        assert len(list(accumulator.expire(due_at, LIFETIME_S))) == 1, created_at
