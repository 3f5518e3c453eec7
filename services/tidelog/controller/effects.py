"""What a controller wants done. The shell does it and decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tidelog.controller.model import Broker, PartitionState
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire.znodes import Move, ProducerIdBlock, StoredPlacement, TopicAssignment


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
    replaces_configs: bool = False
    """Settings are there already, which are those of no topic."""


@dataclass(frozen=True, slots=True)
class PartitionsWrite:
    """A topic's whole assignment, on condition that the version below is in force. From here on its partitions exist."""

    name: str
    topic_id: bytes
    replicas: tuple[tuple[BrokerId, ...], ...]
    """Of all partitions; of one that moves all that have a copy."""
    version: int
    """Of the topic's znode, once it is written."""
    moves: Mapping[int, Move] = field(default_factory=dict)
    """The reassignments under way, by partition."""

    def stored(self) -> TopicAssignment:
        return TopicAssignment(self.topic_id, self.replicas, self.moves)


@dataclass(frozen=True, slots=True)
class PlacementWrite:
    """What holds for all replicas, on condition that the znode has this version; -1 creates it."""

    placement: StoredPlacement
    version: int


@dataclass(frozen=True, slots=True)
class ReassignmentWrite:
    """Topics' assignments as they begin or end to move, with the states that go with an end: all of it or nothing."""

    topics: tuple[PartitionsWrite, ...]
    states: tuple[StateWrite, ...] = ()
    placement: "PlacementWrite | None" = None


@dataclass(frozen=True, slots=True)
class ConfigsWrite:
    """All that a topic says for itself, on condition that the version below is in force; version 0 creates the znode."""

    name: str
    topic_id: bytes
    configs: Mapping[str, str]
    version: int
    """Of the settings' znode, once it is written."""


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
    StateWrite
    | TopicWrite
    | PartitionsWrite
    | ReassignmentWrite
    | ConfigsWrite
    | DeletionMark
    | PartitionRemoval
    | TopicRemoval
    | ProducerIdsWrite
)
"""Operations that are applied together or not at all; the shell puts many groups into one fenced multi."""

Examinable: TypeAlias = (
    StateWrite | TopicWrite | PartitionsWrite | ReassignmentWrite | ConfigsWrite | ProducerIdsWrite | TopicRemoval
)
"""Groups of which one znode's content tells whether they were applied, or can be."""


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
    unclean, released, disk, isr, topics, producer_ids, reassigned, new, again."""
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
class AskEnds:
    """A question to a broker: where do its logs of these partitions end? `ReplicaEndsTold` follows within a bound."""

    broker_id: BrokerId
    broker_epoch: int
    partitions: tuple[tuple[TopicPartition, bytes], ...]
    """With their topic ids."""


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
        | m.AlterPartitionReassignmentsResponse
        | m.AddBrokersResponse
        | m.DrainBrokersResponse
        | m.ListPartitionReassignmentsResponse
        | m.IncrementalAlterConfigsResponse
        | m.DescribeTopicsResponse
        | m.DescribeClusterResponse
    )


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Work out which moves even out the load (`planner.rebalance`), beside the event loop: of ten thousand partitions it takes
    a second. The answer is an event, `Planned`."""

    token: int
    current: Mapping[TopicPartition, tuple[BrokerId, ...]]
    brokers: Mapping[BrokerId, str]
    """That may hold replicas, with their racks."""
    leaving: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class IsrsChanged:
    """Partitions whose ISR has lost members, and those whose ISR has gained some, by cause; it is written."""

    shrinks: Mapping[str, int]
    expansions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Resign:
    """Stop acting at once; somebody else is controller, or ought to be."""

    reason: str


Effect = Write | Examine | Connect | Disconnect | Send | AskEnds | Reply | MakePlan | IsrsChanged | Resign
