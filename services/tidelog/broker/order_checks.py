"""Checks an order of a controller before anything that it names becomes a path, a log or a state."""

from collections.abc import Iterable

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_LEADER, TOPIC_ID_BYTES
from tidelog.names import validate_topic_name
from tidelog.wire import messages as m
from tidelog.wire.limits import PARTITIONS

Named = m.PartitionState | m.StopReplicaPartition | m.ReplicaEndsPartition


def check_roles(request: m.LeaderAndIsrRequest) -> None:
    """TidelogError INVALID_REQUEST or INVALID_TOPIC_EXCEPTION names the field and its limit; so for the others here."""
    _check_names("topic_states", (each.topic for each in request.topic_states))
    for topic in request.topic_states:
        _check_id("topic_states", topic.topic, topic.topic_id)
    _check_states(request.partition_states)


def check_stop(request: m.StopReplicaRequest | m.ReplicaEndsRequest) -> None:
    _check_partitions("partitions", request.partitions)


def check_news(request: m.UpdateMetadataRequest) -> None:
    _check_names("deleted_topics", request.deleted_topics)
    _check_states(request.partition_states)


def _check_states(states: Iterable[m.PartitionState]) -> None:
    _check_partitions("partition_states", states)
    for state in states:
        if state.leader < NO_LEADER:
            raise _refusal(
                "partition_states", state.topic, f"leader is {state.leader}, allowed are -1 (none) and ids from 0"
            )
        if min(state.replicas, default=0) < 0:
            raise _refusal("partition_states", state.topic, f"replicas names {min(state.replicas)}, ids begin at 0")


def _check_partitions(field: str, named: Iterable[Named]) -> None:
    _check_names(field, (each.topic for each in named))
    for each in named:
        if not 0 <= each.partition < PARTITIONS:
            raise _refusal(field, each.topic, f"partition is {each.partition}, allowed are 0 to {PARTITIONS - 1}")
        _check_id(field, each.topic, each.topic_id)


def _check_names(field: str, names: Iterable[str]) -> None:
    for name in set(names):
        try:
            validate_topic_name(name)
        except TidelogError as error:
            raise TidelogError(f"{field}: {error.message}", error.code) from None


def _check_id(field: str, topic: str, topic_id: bytes) -> None:
    if not 0 < len(topic_id) <= TOPIC_ID_BYTES:
        raise _refusal(field, topic, f"topic_id has {len(topic_id)} bytes, allowed are 1 to {TOPIC_ID_BYTES}")


def _refusal(field: str, topic: str, what: str) -> TidelogError:
    return TidelogError(f"{field}, topic {topic}: {what}", ErrorCode.INVALID_REQUEST)
