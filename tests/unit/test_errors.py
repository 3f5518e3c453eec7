"""Errors: each code has a class, by which a program catches it."""

import copy
import pickle

import pytest

import tidelog
from helpers.brokers import brokers
from tidelog import errors
from tidelog.client.errors import ClusterUnreachable, DeliveryError, LogTruncationError
from tidelog.config import ConfigError
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address, TopicPartition

CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]
EVENTS_0 = TopicPartition("events", 0)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_a_code_has_a_class_named_after_it(code: ErrorCode) -> None:
    kind = type(TidelogError("no", code))
    words = code.name.removesuffix("_EXCEPTION").removeprefix("KAFKA_").removesuffix("_ERROR")
    assert kind.__name__ == f"{words.title().replace('_', '')}Error"
    assert vars(errors)[kind.__name__] is kind
    assert kind("no").code is code
    assert (kind.__doc__ or "").endswith(".")


def test_an_error_keeps_its_message_and_code() -> None:
    error = TidelogError("topic 'a' does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert isinstance(error, errors.UnknownTopicOrPartitionError)
    assert (str(error), error.message, error.code) == (*2 * ["topic 'a' does not exist"], 3)
    assert error.retriable and error.refresh_metadata


def test_an_error_without_a_code_has_no_class_of_its_own() -> None:
    assert type(TidelogError("no")) is TidelogError
    assert TidelogError("no").code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("kind", [TidelogError, TransportError, *map(type, (TidelogError("", code) for code in CODES))])
def test_all_have_one_root(kind: type[Exception]) -> None:
    assert issubclass(kind, tidelog.Error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ClusterUnreachable({Address("a", 1): "refused"}), errors.RequestTimedOutError),
        (LogTruncationError(EVENTS_0, 5, 3), errors.OffsetOutOfRangeError),
        (ConfigError("a: unknown setting"), errors.InvalidConfigError),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_error_with_one_code_is_below_its_class(error: TidelogError, kind: type[TidelogError]) -> None:
    assert isinstance(error, kind)
    assert error.code is kind.default_code


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_is_equal(copied: object) -> None:
    error = DeliveryError(EVENTS_0, "no answer", ErrorCode.REQUEST_TIMED_OUT, outcome_known=False)
    assert callable(copied)
    found = copied(error)
    assert type(found) is DeliveryError
    assert (str(found), vars(found)) == (str(error), vars(error))


async def test_a_client_raises_the_class_of_the_answer() -> None:
    cluster = await brokers()
    await cluster.create("events")
    async with tidelog.Admin(cluster.bootstrap, ports=cluster.ports) as admin:
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await admin.describe_topic("nosuch")
        with pytest.raises(errors.InvalidTopicError):
            await admin.delete_topic("a/b")
    async with tidelog.Producer(cluster.bootstrap, ports=cluster.ports) as producer:
        with pytest.raises(errors.MessageTooLargeError):
            await producer.send("events", bytes(2 << 20))
