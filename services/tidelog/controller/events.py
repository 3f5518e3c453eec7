"""What can happen to a controller. Every event is a fact of the outside; time and chance come with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from tidelog.controller.effects import Outcome, WriteGroup
from tidelog.controller.model import Broker, PartitionState
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire.znodes import Move, ProducerIdBlock, StoredPlacement

Token = NewType("Token", int)
"""Names a request that waits for its `Reply`."""


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as a new controller finds it."""

    name: str
    topic_id: bytes
    replicas: tuple[tuple[BrokerId, ...], ...]
    states: tuple[PartitionState | None, ...]
    """None where there is no state znode: the controller before this one died while it created or deleted the topic."""
    configs: Mapping[str, str]
    has_config_node: bool = True
    version: int = 0
    """Of the topic's znode; grows when partitions are added and when they move."""
    moves: Mapping[int, Move] = field(default_factory=dict)
    config_version: int = 0
    """Of the znode of its settings, if there is one."""
    unread: int | None = None
    """Zxid of the last write of its settings, if they cannot be read."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything in the metadata store, read after a sync. An incomplete one would make brokers delete data (HOLE-10)."""

    brokers: tuple[Broker, ...]
    topics: tuple[StoredTopic, ...]
    deletions: tuple[str, ...]
    """Topics whose deletion was stored, whether they still exist or not."""
    producer_ids: tuple[ProducerIdBlock, int] | None = None
    """The last block that was given away, with its znode's version; None before the first."""
    placement: tuple[StoredPlacement, int] | None = None
    """With its znode's version; None before the first drain."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Znodes of settings that cannot be read, by path, and why: what is left out here is unknown."""


@dataclass(frozen=True, slots=True)
class Elected:
    """This process is the controller. Comes once, first."""

    controller_epoch: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """All registrations of this moment; what changed is for the machine to find (HOLE-41)."""

    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class Suspected:
    """The stream to a broker broke and its port refuses connections."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """A broker answers on its liveness stream."""

    broker_id: BrokerId
    broker_epoch: int
    now: float


@dataclass(frozen=True, slots=True)
class StreamBroken:
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class IsrProposed:
    request: m.AlterIsrRequest
    token: Token


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequested:
    request: m.ControlledShutdownRequest
    token: Token


@dataclass(frozen=True, slots=True)
class ElectionRequested:
    """Somebody at a terminal wants other leaders."""

    request: m.ElectLeadersRequest | m.ReleaseVetoRequest
    token: Token


@dataclass(frozen=True, slots=True)
class ProducerIdsRequested:
    request: m.AllocateProducerIdsRequest
    token: Token


@dataclass(frozen=True, slots=True)
class Draw:
    """Chance for one new topic: its id, and where its placement starts."""

    topic_id: bytes
    start: int


@dataclass(frozen=True, slots=True)
class TopicsCreateRequested:
    request: m.CreateTopicsRequest
    token: Token
    draws: tuple[Draw, ...]
    """One for each topic of the request."""


@dataclass(frozen=True, slots=True)
class TopicsDeleteRequested:
    request: m.DeleteTopicsRequest
    token: Token


@dataclass(frozen=True, slots=True)
class PartitionsCreateRequested:
    request: m.CreatePartitionsRequest
    token: Token


@dataclass(frozen=True, slots=True)
class ReassignmentRequested:
    request: m.AlterPartitionReassignmentsRequest
    token: Token
    drains: frozenset[BrokerId] = frozenset()
    """Of a plan that was made here: these brokers are being drained from then on, and the next ones no longer."""
    undrains: frozenset[BrokerId] = frozenset()
    answer: type[m.AlterPartitionReassignmentsResponse | m.AddBrokersResponse | m.DrainBrokersResponse] = (
        m.AlterPartitionReassignmentsResponse
    )
    planning: bool | None = None
    """True if other parts of a plan are missing after this one; None: it is no part."""

    @property
    def changes_placement(self) -> bool:
        throttles = self.request.leader_throttle or self.request.follower_throttle
        return bool(self.drains or self.undrains or throttles) or self.planning is not None

    @property
    def made_here(self) -> bool:
        """It may turn out that nothing has to move."""
        return self.answer is not m.AlterPartitionReassignmentsResponse


@dataclass(frozen=True, slots=True)
class BrokersRequested:
    """Somebody at a terminal wants brokers to get their share, or to have none any more."""

    request: m.AddBrokersRequest | m.DrainBrokersRequest
    token: Token


@dataclass(frozen=True, slots=True)
class Planned:
    """What became of a `MakePlan`: the partitions that change, with their replicas as they are to be; or why there is no plan."""

    token: Token
    rows: Mapping[TopicPartition, tuple[BrokerId, ...]]
    code: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ConfigsAlterRequested:
    request: m.IncrementalAlterConfigsRequest
    token: Token


@dataclass(frozen=True, slots=True)
class DescribeRequested:
    request: m.DescribeTopicsRequest | m.DescribeClusterRequest | m.ListPartitionReassignmentsRequest
    token: Token


@dataclass(frozen=True, slots=True)
class WritesDone:
    """What became of write groups; groups of one `Write` may come back in several of these."""

    results: tuple[tuple[WriteGroup, Outcome], ...]


@dataclass(frozen=True, slots=True)
class Examined:
    """The present content and version of what groups of doubtful outcome were to write; None: no such znode."""

    found: tuple[tuple[WriteGroup, tuple[bytes, int] | None], ...]


class FailedReplica(NamedTuple):
    """A partition whose disk has failed on one broker. Without an id it says nothing about which topic of that name."""

    tp: TopicPartition
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class BrokerAnswered:
    """A broker's top-level answer to a control request, or a pong of its own, and the partitions whose disk has failed
    there."""

    broker_id: BrokerId
    broker_epoch: int
    code: ErrorCode
    failed: tuple[FailedReplica, ...] = ()
    lists_all_failed: bool = False
    """What `failed` does not name works (again)."""


class ReplicaEnd(NamedTuple):
    """End of a replica's log; compared in this order."""

    last_epoch: int
    """Leader epoch of its last record; -1 when it has none."""
    end_offset: int


@dataclass(frozen=True, slots=True)
class ReplicaEndsTold:
    """A broker's answer to `AskEnds`, or that there is none in time. What `ends` does not name is unknown."""

    broker_id: BrokerId
    broker_epoch: int
    asked: tuple[tuple[TopicPartition, bytes], ...]
    ends: Mapping[TopicPartition, ReplicaEnd]


@dataclass(frozen=True, slots=True)
class Tick:
    now: float


Event = (
    Elected
    | BrokersChanged
    | Suspected
    | StreamOpened
    | StreamBroken
    | IsrProposed
    | ControlledShutdownRequested
    | ElectionRequested
    | ProducerIdsRequested
    | TopicsCreateRequested
    | TopicsDeleteRequested
    | PartitionsCreateRequested
    | ReassignmentRequested
    | ConfigsAlterRequested
    | BrokersRequested
    | Planned
    | DescribeRequested
    | WritesDone
    | Examined
    | BrokerAnswered
    | ReplicaEndsTold
    | Tick
)
