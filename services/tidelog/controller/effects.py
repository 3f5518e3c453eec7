"""What a controller wants done. The shell does it and decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tidelog.controller.model import Broker, PartitionState
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire.znodes import ProducerIdBlock


@dataclass(frozen=True, slots=True)
class StateWrite:
    """One partition's next state, on condition that the version below it is in force; version 0 creates the znode.

    It is created and never overwritten (F01.4), together with the znode above it.
    """

    tp: TopicPartition
    state: PartitionState


@dataclass(frozen=True, slots=True)
class TopicWrite:
    """A new topic: its assignment and its configs. From here on the topic exists, whoever is controller."""

    name: str
    topic_id: bytes
    replicas: tuple[tuple[BrokerId, ...], ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PartitionsWrite:
    """A topic's assignment with more partitions, on condition that the version below is in force. From here on they exist."""

    name: str
    topic_id: bytes
    replicas: tuple[tuple[BrokerId, ...], ...]
    """Of all partitions, the old ones as they were."""
    version: int
    """Of the topic's znode, once it is written."""


@dataclass(frozen=True, slots=True)
class DeletionMark:
    """From here on the topic is going to be deleted, whoever is controller."""

    name: str


@dataclass(frozen=True, slots=True)
class PartitionRemoval:
    """The znodes of one partition of a topic that is being deleted."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class TopicRemoval:
    """The last znodes of a topic, and the mark of its deletion with them."""

    name: str
    has_topic_node: bool = True
    has_config_node: bool = True


@dataclass(frozen=True, slots=True)
class ProducerIdsWrite:
    """Gives a block of producer ids away, on condition that the znode has this version; -1 creates it."""

    block: ProducerIdBlock
    version: int


WriteGroup: TypeAlias = (
    StateWrite | TopicWrite | PartitionsWrite | DeletionMark | PartitionRemoval | TopicRemoval | ProducerIdsWrite
)
"""Operations that are applied together or not at all; the shell puts many groups into one fenced multi."""

Examinable: TypeAlias = StateWrite | TopicWrite | PartitionsWrite | ProducerIdsWrite
"""Groups of which one znode's content tells whether they were applied."""


class Outcome(Enum):
    """Of one write group."""

    WRITTEN = "written"
    CONFLICT = "conflict"
    """Not applied: a version or the existence of a znode is not as it was believed to be."""
    UNKNOWN = "unknown"
    """Nobody knows whether it was applied (HOLE-13)."""
    REFUSED = "refused"
    """Not applied, and it never will be: too large, or foreign znodes are in the way."""
    FENCED = "fenced"
    """Not applied: /controller_epoch is another one's."""


@dataclass(frozen=True, slots=True)
class Write:
    groups: tuple[WriteGroup, ...]
    cause: str
    """What brought it about, as a metric's label: elected, broker_down, broker_up, suspected, shutdown, preferred,
    unclean, released, disk, isr, topics, producer_ids, new, again."""
    elections: int = 0
    """Leaders that it elects."""
    unclean: tuple[TopicPartition, ...] = ()
    """Those of them that may lack what was acknowledged (HOLE-25)."""


@dataclass(frozen=True, slots=True)
class Examine:
    """Sync, then read what these groups were to write: the state znode, the topic znode or the last producer ids."""

    groups: tuple[Examinable, ...]


@dataclass(frozen=True, slots=True)
class Connect:
    """From now on requests may be sent to this life of a broker, and its stream is watched."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class Disconnect:
    """This life of a broker is over: drop what waits for it."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Send:
    """In order with the other requests to this broker; repeated until it has answered (HOLE-37)."""

    broker_id: BrokerId
    request: m.LeaderAndIsrRequest | m.StopReplicaRequest | m.UpdateMetadataRequest


@dataclass(frozen=True, slots=True)
class Reply:
    token: int
    answer: (
        m.AlterIsrResponse
        | m.ControlledShutdownResponse
        | m.ElectLeadersResponse
        | m.ReleaseVetoResponse
        | m.AllocateProducerIdsResponse
        | m.CreateTopicsResponse
        | m.DeleteTopicsResponse
        | m.CreatePartitionsResponse
        | m.DescribeTopicsResponse
        | m.DescribeClusterResponse
    )


@dataclass(frozen=True, slots=True)
class Resign:
    """Stop acting at once; somebody else is controller, or ought to be."""

    reason: str


Effect = Write | Examine | Connect | Disconnect | Send | Reply | Resign
