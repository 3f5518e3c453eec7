"""Errors are a protocol: each has Kafka's number, and says whether a client may retry and must refresh its metadata.

The register is section R of the requirements. A handler raises a `TidelogError`; the service turns it into the code and
the message of one partition's or one item's answer. A gRPC status is for transport trouble only. A client raises the class of
the code again.
"""

from enum import IntEnum
from typing import Any, ClassVar, Final, Self


class ErrorCode(IntEnum):
    """Kafka's error numbers; the same as `tidelog.v1.ErrorCode` on the wire."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    DUPLICATE_CONSUMER_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108


RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""The same request may succeed later."""

REFRESH_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""The caller's picture of the cluster is old: ask for metadata before the retry."""


class Error(Exception):
    """Root of all errors that clients raise about a cluster. Wrong types and values are TypeErrors and ValueErrors."""


_CLASSES: Final[dict[ErrorCode, type["TidelogError"]]] = {}


class TidelogError(Error):
    """An error with a code. `message` names the field and the limit that a request broke.

    `TidelogError(message, code)` is an instance of the class of that code.
    """

    default_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init_subclass__(cls, *, code: ErrorCode | None = None) -> None:
        """A class with a `code` stands for it."""
        if code is not None:
            cls.default_code = code
            _CLASSES[code] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        code = args[1] if len(args) > 1 else kwargs.get("code")
        kind = _CLASSES.get(code, cls) if cls is TidelogError and code is not None else cls
        return super().__new__(kind, *args, **kwargs)  # type: ignore[return-value]  # a class of a code is below TidelogError

    def __reduce__(self) -> tuple[Any, ...]:
        """Subclasses take other arguments than a message, and a copy is not to call their `__init__` again."""
        return _restored, (type(self), self.args, self.__dict__)

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE

    @property
    def refresh_metadata(self) -> bool:
        return self.code in REFRESH_METADATA


def _restored(kind: type[TidelogError], args: tuple[Any, ...], state: dict[str, Any]) -> TidelogError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class UnknownServerError(TidelogError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """A server failed in a way that has no code of its own; its log has the details."""


class OffsetOutOfRangeError(TidelogError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The offset is before the start of the log or after its end."""


class CorruptMessageError(TidelogError, code=ErrorCode.CORRUPT_MESSAGE):
    """A batch is damaged: its CRC or its header is wrong."""


class UnknownTopicOrPartitionError(TidelogError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """The topic or the partition does not exist, or this broker does not know it yet."""


class LeaderNotAvailableError(TidelogError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    """The partition currently has no leader."""


class NotLeaderOrFollowerError(TidelogError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    """This broker does not lead the partition, or has no replica of it."""


class RequestTimedOutError(TidelogError, code=ErrorCode.REQUEST_TIMED_OUT):
    """The request was not completed in time. It may still be carried out."""


class MessageTooLargeError(TidelogError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """A record or batch is larger than the topic or the client allows."""


class StaleControllerEpochError(TidelogError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    """The request comes from a controller that has been replaced."""


class OffsetMetadataTooLargeError(TidelogError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The metadata of a committed offset is too long."""


class CoordinatorLoadInProgressError(TidelogError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    """The coordinator of the group is still loading its state."""


class CoordinatorNotAvailableError(TidelogError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE):
    """Currently no broker coordinates the group."""


class NotCoordinatorError(TidelogError, code=ErrorCode.NOT_COORDINATOR):
    """Another broker coordinates the group."""


class InvalidTopicError(TidelogError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The topic's name is not allowed."""


class NotEnoughReplicasError(TidelogError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer replicas than min.insync.replicas are in sync. Nothing was written."""


class NotEnoughReplicasAfterAppendError(TidelogError, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
    """The record was written, but then fewer replicas than min.insync.replicas were in sync."""


class InvalidRequiredAcksError(TidelogError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    """The value of acks is not 0, 1 or all."""


class IllegalGenerationError(TidelogError, code=ErrorCode.ILLEGAL_GENERATION):
    """The group has rebalanced since the member was assigned its partitions."""


class InconsistentGroupProtocolError(TidelogError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """The member's assignment strategy is unknown, or differs from that of its group."""


class InvalidGroupIdError(TidelogError, code=ErrorCode.INVALID_GROUP_ID):
    """The group's ID is empty or too long."""


class UnknownMemberIdError(TidelogError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The group does not have this member, or no longer has it."""


class InvalidSessionTimeoutError(TidelogError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """The session timeout is outside the broker's limits."""


class RebalanceInProgressError(TidelogError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is rebalancing."""


class TopicAuthorizationFailedError(TidelogError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The caller is not allowed to perform this operation on the topic."""


class ClusterAuthorizationFailedError(TidelogError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """The caller is not allowed to perform this operation on the cluster."""


class InvalidTimestampError(TidelogError, code=ErrorCode.INVALID_TIMESTAMP):
    """A record's timestamp is too far from the clock of the partition's leader."""


class UnsupportedVersionError(TidelogError, code=ErrorCode.UNSUPPORTED_VERSION):
    """A process of an older release does not support this feature. Upgrade that process first."""


class TopicAlreadyExistsError(TidelogError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic with this name already exists."""


class InvalidPartitionsError(TidelogError, code=ErrorCode.INVALID_PARTITIONS):
    """The number of partitions is out of range, or not above the current number."""


class InvalidReplicationFactorError(TidelogError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The replication factor is out of range, or above the number of live brokers."""


class InvalidReplicaAssignmentError(TidelogError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """The replicas assigned to a partition are not valid, for example because a broker is not alive or is named twice."""


class InvalidConfigError(TidelogError, code=ErrorCode.INVALID_CONFIG):
    """A setting is unknown, or its value is not allowed."""


class NotControllerError(TidelogError, code=ErrorCode.NOT_CONTROLLER):
    """The controller that was asked is not the active one, or no controller is active."""


class InvalidRequestError(TidelogError, code=ErrorCode.INVALID_REQUEST):
    """The request contradicts itself or breaks a limit; the error message names it."""


class OutOfOrderSequenceNumberError(TidelogError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """A batch of an idempotent producer does not follow the previous one."""


class DuplicateSequenceNumberError(TidelogError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """A batch of an idempotent producer was already stored, so long ago that its offset is no longer remembered."""


class InvalidProducerEpochError(TidelogError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A newer producer has taken over this producer's ID."""


class OperationNotAttemptedError(TidelogError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    """Another part of the request was refused, so this part was not attempted."""


class StorageError(TidelogError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """The broker cannot read or write the partition's log on its disk."""


class UnknownProducerIdError(TidelogError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """A batch of an idempotent producer is older than everything that the partition remembers of this producer."""


class ReassignmentInProgressError(TidelogError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS):
    """The partition is being moved. Cancel the move first, or wait until it ends."""


class NonEmptyGroupError(TidelogError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group has members. Stop them first."""


class GroupIdNotFoundError(TidelogError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """The group does not exist."""


class FencedLeaderEpochError(TidelogError, code=ErrorCode.FENCED_LEADER_EPOCH):
    """The request names an older leader epoch than the partition's."""


class UnknownLeaderEpochError(TidelogError, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    """The request names a newer leader epoch than this broker knows."""


class StaleBrokerEpochError(TidelogError, code=ErrorCode.STALE_BROKER_EPOCH):
    """The request comes from, or is meant for, an earlier incarnation of the broker."""


class OffsetNotAvailableError(TidelogError, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    """The leader is new and does not yet know which records are committed."""


class PreferredLeaderNotAvailableError(TidelogError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
    """The preferred leader cannot lead: it is dead, not in sync, suspected or shutting down."""


class GroupMaxSizeReachedError(TidelogError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group has as many members as group_max_size allows."""


class DuplicateConsumerIdError(TidelogError, code=ErrorCode.DUPLICATE_CONSUMER_ID):
    """Another member of the group has this ID, or a newer one has taken it over. Kafka has no such code."""


class EligibleLeadersNotAvailableError(TidelogError, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE):
    """No live replica is allowed to lead the partition."""


class ElectionNotNeededError(TidelogError, code=ErrorCode.ELECTION_NOT_NEEDED):
    """The partition does not need this election: it already has a suitable leader, or there is no veto to release."""


class NoReassignmentInProgressError(TidelogError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
    """The partition is not being moved."""


class InvalidRecordError(TidelogError, code=ErrorCode.INVALID_RECORD):
    """A record is not allowed in this topic, for example a record without a key in a compacted topic."""


class ThrottlingQuotaExceededError(TidelogError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED):
    """A limit is reached: of watchers, of waiting fetches, or of responses that have not been read. Nothing was done, and the
    same request may succeed later."""


class InvalidUpdateVersionError(TidelogError, code=ErrorCode.INVALID_UPDATE_VERSION):
    """An ISR change names a version of the partition's state that is not the current one."""


class UnknownTopicIdError(TidelogError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """No topic has this ID: the topic was deleted, or this broker does not know it yet."""


class InconsistentTopicIdError(TidelogError, code=ErrorCode.INCONSISTENT_TOPIC_ID):
    """The topic with this name has a different ID: it was deleted and created again."""


class IneligibleReplicaError(TidelogError, code=ErrorCode.INELIGIBLE_REPLICA):
    """An ISR change names a replica that is dead, suspected or shutting down, or whose log has failed."""


class NewLeaderElectedError(TidelogError, code=ErrorCode.NEW_LEADER_ELECTED):
    """An ISR change was accepted and caused another leader to be elected."""


class TransportError(Error):
    """A call or a stream broke: nobody knows whether the other side acted on it.

    `status` is the gRPC status name (UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, ...).
    """

    def __init__(self, status: str, detail: str = "") -> None:
        super().__init__(f"{status}: {detail}" if detail else status)
        self.status = status
        self.detail = detail

    @property
    def by_size(self) -> bool:
        """The message was larger than its sender or its receiver allows, so the same call can never work."""
        said = "message larger than max" in self.detail or self.detail.startswith(
            f"{ErrorCode.MESSAGE_TOO_LARGE.name}:"
        )
        return self.status == "RESOURCE_EXHAUSTED" and said


class UnreadError(TransportError):
    """A stream broke before the other side read the request, so nothing came of it."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("CANCELLED", detail)


TRANSIENT_STATUS: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL", "UNKNOWN", "ABORTED"})
"""gRPC statuses after which the same call may succeed; all others are answers to a call that can never work."""


def is_transient(error: BaseException | None) -> bool:
    """True if the same request may succeed later, here or at another broker."""
    match error:
        case TransportError():
            return error.status in TRANSIENT_STATUS
        case TidelogError():
            return error.retriable
    return False
