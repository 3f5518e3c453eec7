"""Write groups as operations of the metadata store, and what a doubtful one is to be compared with."""

from typing import Final, assert_never

from tidelog.controller.effects import (
    ConfigsWrite,
    DeletionMark,
    Examinable,
    PartitionRemoval,
    PartitionsWrite,
    PlacementWrite,
    ProducerIdsWrite,
    ReassignmentWrite,
    StateWrite,
    TopicRemoval,
    TopicWrite,
    WriteGroup,
)
from tidelog.ports.meta import MULTI_LIMIT_BYTES, Create, Delete, Op, SetData, size_bytes
from tidelog.wire import znodes

END_BYTES: Final = 2048
"""More than the end of one move takes beyond what the move itself does: the path and the state of its partition."""


def can_be_ended(group: ReassignmentWrite) -> bool:
    """Whether each of the moves that it begins has room at its end, beside the same topic, in one multi."""
    return size_bytes(operations(group)) + END_BYTES <= MULTI_LIMIT_BYTES


def operations(group: WriteGroup) -> list[Op]:
    """All or nothing; parents before children when creating, after them when deleting."""
    match group:
        case StateWrite():
            return _state(group)
        case TopicWrite(name, topic_id, replicas, configs):
            path = znodes.topic_config_path(name)
            assignment = znodes.TopicAssignment(topic_id, replicas)
            return [
                Create(znodes.topic_path(name), znodes.encode_topic(assignment)),
                Create(znodes.partitions_path(name)),
                *([Delete(path)] if group.replaces_configs else []),
                Create(path, znodes.encode_topic_config(configs)),
            ]
        case PartitionsWrite():
            return [_assignment(group)]
        case ReassignmentWrite(topics, states, placement):
            assigned = [*map(_assignment, topics), *(op for each in states for op in _state(each))]
            return assigned if placement is None else [*assigned, _placement(placement)]
        case ConfigsWrite(name, _, configs, version):
            path, data = znodes.topic_config_path(name), znodes.encode_topic_config(configs)
            return [SetData(path, data, version - 1) if version else Create(path, data)]
        case ProducerIdsWrite(block, version):
            data = znodes.encode_producer_ids(block)
            if version == znodes.NO_VERSION:
                return [Create(znodes.PRODUCER_IDS, data)]
            return [SetData(znodes.PRODUCER_IDS, data, version)]
        case DeletionMark(name):
            return [Create(znodes.delete_topic_path(name))]
        case PartitionRemoval(tp):
            return [Delete(znodes.state_path(*tp)), Delete(znodes.partition_path(*tp))]
        case TopicRemoval(name, has_topic_node, has_config_node):
            ops: list[Op] = [Delete(znodes.delete_topic_path(name))]
            if has_topic_node:
                ops += [Delete(znodes.partitions_path(name)), Delete(znodes.topic_path(name))]
            if has_config_node:
                ops += [Delete(znodes.topic_config_path(name))]
            return ops
        case _:
            assert_never(group)


def examined_path(group: Examinable) -> str:
    """The znode whose content tells whether `group` was applied, or can be."""
    match group:
        case StateWrite(tp):
            return znodes.state_path(*tp)
        case TopicWrite(name) | PartitionsWrite(name):
            return znodes.topic_path(name)
        case ReassignmentWrite(topics):
            return znodes.topic_path(topics[0].name) if topics else znodes.PLACEMENT
        case ConfigsWrite(name) | TopicRemoval(name):
            return znodes.topic_config_path(name)
        case ProducerIdsWrite():
            return znodes.PRODUCER_IDS


def _assignment(group: PartitionsWrite) -> Op:
    return SetData(znodes.topic_path(group.name), znodes.encode_topic(group.stored()), group.version - 1)


def _placement(write: PlacementWrite) -> Op:
    data = znodes.encode_placement(write.placement)
    if write.version == znodes.NO_VERSION:
        return Create(znodes.PLACEMENT, data)
    return SetData(znodes.PLACEMENT, data, write.version)


def _state(group: StateWrite) -> list[Op]:
    state = group.state
    path = znodes.state_path(*group.tp)
    data = znodes.encode_state(state.stored())
    if state.partition_epoch == 0:
        return [Create(znodes.partition_path(*group.tp)), Create(path, data)]
    return [SetData(path, data, state.partition_epoch - 1)]
