"""What a producer has sent, counted a request and a batch at a time: a record costs nothing more for it. Pure."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(slots=True)
class ProducerStats:
    """Since it was started."""

    requests: int = 0
    """Produce requests that were written, whatever became of them."""
    batches: int = 0
    """In these requests, retries included."""
    records: int = 0
    record_bytes: int = 0
    """Of these batches, headers included, as they were sent."""
    retried_records: int = 0
    failed_records: int = 0
    """That nobody took in time, or that were refused for good."""
    answered: int = 0
    answer_s: float = 0.0
    """From writing a request to its answer, summed over `answered`."""
    answer_s_max: float = 0.0

    def sent(self, batches: Collection[tuple[int, int, bool]]) -> None:
        """One request; of each batch how many records, how many bytes, and whether it was sent before."""
        self.requests += 1
        self.batches += len(batches)
        for records, size_bytes, again in batches:
            self.records += records
            self.record_bytes += size_bytes
            self.retried_records += records if again else 0

    def answer(self, took_s: float) -> None:
        self.answered += 1
        self.answer_s += took_s
        self.answer_s_max = max(self.answer_s_max, took_s)

    def metrics(self) -> dict[str, float]:
        """Under the names of Kafka's producer-metrics."""
        return {
            "batch-size-avg": self.record_bytes / max(1, self.batches),
            "byte-total": self.record_bytes,
            "record-error-total": self.failed_records,
            "record-retry-total": self.retried_records,
            "record-send-total": self.records,
            "records-per-request-avg": self.records / max(1, self.requests),
            "request-latency-avg": 1000 * self.answer_s / max(1, self.answered),
            "request-latency-max": 1000 * self.answer_s_max,
            "request-total": self.requests,
        }
