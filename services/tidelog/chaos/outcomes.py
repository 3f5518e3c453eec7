"""What an operation that ended with an error has certainly done, or not done (reliability 1.2).

`fail` is said only where nothing can have happened. Whatever is in doubt is `info`: a checker that takes an unknown outcome
for a "no" reports records that nobody sent, and one that takes it for a "yes" reports losses that are none.
"""

from typing import Final

from tidelog.chaos.history import FAIL, INFO, OK
from tidelog.client.errors import REFUSED_BEFORE_APPEND, DeliveryError
from tidelog.errors import ErrorCode, TidelogError, TransportError

CERTAIN_NO: Final = REFUSED_BEFORE_APPEND | {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}
"""One answer with such a code, to a request that was sent once, means that nothing was done.

The last two answer commits: they come before the coordinator writes (G1). NOT_LEADER_OR_FOLLOWER and
NOT_ENOUGH_REPLICAS_AFTER_APPEND may come after an append, and NOT_COORDINATOR after a write: they are not here.
"""


def outcome(error: BaseException | None) -> str:
    """`ok`, `fail` or `info` of an operation that ended with `error`; None is success.

    A `DeliveryError` speaks for all attempts of its record: a refusal after a lost answer is no refusal.
    """
    match error:
        case None:
            return OK
        case DeliveryError():
            return FAIL if error.outcome_known else INFO
        case TidelogError():
            return FAIL if error.code in CERTAIN_NO else INFO
    return INFO


def error_name(error: BaseException) -> str:
    """As it stands in a history: Kafka's name of the error, gRPC's of the status, or Python's of the exception."""
    match error:
        case TidelogError():
            return error.code.name
        case TransportError():
            return error.status
    return type(error).__name__
