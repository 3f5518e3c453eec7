"""The table of reliability 1.2."""

import pytest

from tidelog.chaos.outcomes import error_name, outcome
from tidelog.client.errors import DeliveryError
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition

CERTAIN = [
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
]
UNKNOWN = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
]


def test_no_error_is_ok() -> None:
    assert outcome(None) == "ok"


@pytest.mark.parametrize("code", CERTAIN)
def test_what_is_answered_before_anything_is_done_is_a_certain_no(code: ErrorCode) -> None:
    assert outcome(TidelogError("", code)) == "fail"


@pytest.mark.parametrize("code", UNKNOWN)
def test_what_may_be_answered_after_an_append_is_unknown(code: ErrorCode) -> None:
    assert outcome(TidelogError("", code)) == "info"


@pytest.mark.parametrize("status", ["DEADLINE_EXCEEDED", "UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN"])
def test_trouble_of_the_transport_is_unknown(status: str) -> None:
    assert outcome(TransportError(status)) == "info"


@pytest.mark.parametrize("error", [TimeoutError(), OSError(), ValueError("x"), KeyboardInterrupt()])
def test_any_unexpected_exception_is_unknown(error: BaseException) -> None:
    assert outcome(error) == "info"


@pytest.mark.parametrize("known, expected", [(True, "fail"), (False, "info")])
def test_a_record_is_refused_only_if_none_of_its_attempts_can_have_appended(known: bool, expected: str) -> None:
    error = DeliveryError(TopicPartition("t", 0), "", ErrorCode.NOT_ENOUGH_REPLICAS, outcome_known=known)
    assert outcome(error) == expected


def test_an_error_is_written_by_its_name() -> None:
    assert error_name(TidelogError("", ErrorCode.NOT_ENOUGH_REPLICAS)) == "NOT_ENOUGH_REPLICAS"
    assert error_name(TransportError("UNAVAILABLE", "gone")) == "UNAVAILABLE"
    assert error_name(TimeoutError()) == "TimeoutError"
