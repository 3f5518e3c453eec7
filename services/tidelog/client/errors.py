"""What a client raises beyond the protocol's own errors; each names the partition and what to do next."""

from collections.abc import Mapping
from typing import Final

from tidelog.errors import (
    CorruptMessageError,
    ErrorCode,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    TidelogError,
    UnreadError,
)
from tidelog.ids import Address, TopicPartition

REFUSED_BEFORE_APPEND: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Answers that a leader gives before it appends: certainly nothing was written (reliability 1.2).

NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH are missing on purpose: a parked acks=all produce ends with them after
the append (HOLE-51, KAFKA-13574), so a checker that took them for a "no" would report phantom records.
"""


def refused_for_sure(error: BaseException) -> bool:
    """True if the request that ended with `error` certainly changed nothing."""
    return isinstance(error, UnreadError) or (isinstance(error, TidelogError) and error.code in REFUSED_BEFORE_APPEND)


class DeliveryError(TidelogError):
    """A record was not acknowledged.

    `outcome_known` is True when the record is certainly not in the log, False when it may be: some attempt ended without
    an answer, or with one that a leader may give after its append (reliability 1.2). All records of a batch, which is written as
    a whole or not at all, end with the same object.
    """

    def __init__(self, partition: TopicPartition, message: str, code: ErrorCode, *, outcome_known: bool) -> None:
        certainty = "it was not written" if outcome_known else "it may have been written"
        super().__init__(f"{partition}: {message}; {certainty}", code)
        self.partition = partition
        self.outcome_known = outcome_known


class ClientClosed(TidelogError):
    """A call on a client that is stopped, or was stopped while the call waited; nothing was done."""

    def __init__(self, client: str) -> None:
        super().__init__(f"the {client} is closed")


class ClusterUnreachable(RequestTimedOutError):
    """No broker answered. `certain`: every address refuses connections or has no host, so another try is not worth it."""

    def __init__(self, causes: Mapping[Address, str], *, certain: bool = False) -> None:
        by_cause: dict[str, list[str]] = {}
        for address, cause in causes.items():
            by_cause.setdefault(cause, []).append(str(address))
        super().__init__(
            "nothing answers at " + ", ".join(f"{', '.join(where)} ({cause})" for cause, where in by_cause.items())
        )
        self.certain = certain

    @property
    def retriable(self) -> bool:
        return not self.certain


class BadBatchError(CorruptMessageError):
    """A fetched batch is damaged. The position stays before it; seek to `next_offset` to skip it."""

    def __init__(self, partition: TopicPartition, offset: int, next_offset: int, reason: str) -> None:
        super().__init__(f"{partition}: bad batch at offset {offset}: {reason}; seek to {next_offset} to skip it")
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class PositionOutOfRangeError(OffsetOutOfRangeError):
    """The wanted offset is not in the log and there is no reset policy, or it is inside a range that must be complete."""

    def __init__(self, partition: TopicPartition, offset: int, log_start: int, end: int) -> None:
        super().__init__(f"{partition}: offset {offset} is not in the log, which holds offsets {log_start} to {end}")
        self.partition = partition
        self.offset = offset


class LogTruncationError(OffsetOutOfRangeError):
    """The log was cut below the position (KIP-320): what was read from `diverging_offset` on is no longer in it.

    After several unclean elections some of what was read before may be gone as well: seek to `diverging_offset` with the leader
    epoch of the record before it, and this error comes again with a lower one.
    """

    def __init__(self, partition: TopicPartition, offset: int, diverging_offset: int) -> None:
        super().__init__(
            f"{partition}: the log was truncated below position {offset}; "
            f"what was read from offset {diverging_offset} on is no longer in it"
        )
        self.partition = partition
        self.offset = offset
        self.diverging_offset = diverging_offset
