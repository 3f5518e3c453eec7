"""Every znode: where it is and what its bytes mean. The only place that knows either.

All data is JSON with a `version` of its own layout; fields that a reader does not know are ignored, so that an older
process can read what a newer one wrote. What cannot be understood raises `BadZnode` with the path and the field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidelog.ids import NO_LEADER, TOPIC_ID_BYTES, Address, BrokerId
from tidelog.release import RELEASE, UNLEVELLED, Release
from tidelog.sizes import UNREGISTERED, Carried
from tidelog.wire.messages import IsrMember, Listener
from tidelog.wire.znode_fields import INT32_MAX as _INT32_MAX
from tidelog.wire.znode_fields import INT64_MAX as _INT64_MAX
from tidelog.wire.znode_fields import BadZnode as BadZnode
from tidelog.wire.znode_fields import decode as _decode
from tidelog.wire.znode_fields import distinct as _distinct
from tidelog.wire.znode_fields import dump as _dump
from tidelog.wire.znode_fields import field as _of
from tidelog.wire.znode_fields import flag as _flag
from tidelog.wire.znode_fields import integer as _int
from tidelog.wire.znode_fields import number as _number
from tidelog.wire.znode_fields import text as _text

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_DIRECTORIES: Final = "/brokers/directories"
BROKER_WITNESSES: Final = "/brokers/witnesses"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
DELETE_TOPICS: Final = "/admin/delete_topics"
PRODUCER_IDS: Final = "/latest_producer_id_block"
PLACEMENT: Final = "/admin/placement"
CONSUMERS: Final = "/consumers"
COORDINATOR: Final = "/consumers/coordinator"
COORDINATOR_EPOCH: Final = "/consumers/coordinator_epoch"
SHARDS: Final = "/consumers/shards"

PERSISTENT_PARENTS: Final = (
    "/cluster",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    "/admin",
    DELETE_TOPICS,
)
"""Made by whichever process comes first; parents before children."""

INTACT_SINCE_NOW: Final = -1
"""In a registration: this data directory has lost something before this life, or nobody can tell."""

SHARDS_MAX: Final = 1024

FORMER_DIRECTORIES_MAX: Final = 16

NO_VERSION: Final = -1
"""Of a znode that does not exist."""

_LAYOUT: Final = 1
_RECOVERING: Final = ',"recovering":true'
"""Left out while it is false, which is nearly always."""
_THROTTLES: Final = ("leader_throttle", "follower_throttle")
"""Of a placement; left out while there is none."""


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def broker_directories_path(broker_id: int) -> str:
    return f"{BROKER_DIRECTORIES}/{broker_id}"


def broker_witness_path(broker_id: int) -> str:
    """The znode whose last write tells a broker that the store is the one that it knows. It holds nothing."""
    return f"{BROKER_WITNESSES}/{broker_id}"


def broker_id_of(name: str) -> BrokerId | None:
    """Of a child of /brokers/ids; None for one that no broker has made."""
    if not (name.isascii() and name.isdecimal() and len(name) <= 10):
        return None
    broker_id = int(name)
    return BrokerId(broker_id) if str(broker_id) == name and broker_id <= _INT32_MAX else None


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def coordinator_path(shard: int) -> str:
    """Shard 0 is where D0 has the only coordinator (A6.01)."""
    return COORDINATOR if shard == 0 else f"{SHARDS}/{shard}/coordinator"


def coordinator_epoch_path(shard: int) -> str:
    return COORDINATOR_EPOCH if shard == 0 else f"{SHARDS}/{shard}/epoch"


def group_path(group_id: str) -> str:
    return f"{CONSUMERS}/{group_id}"


def owners_path(group_id: str) -> str:
    return f"{CONSUMERS}/{group_id}/owners"


def owner_path(group_id: str, topic: str, partition: int) -> str:
    return f"{CONSUMERS}/{group_id}/owners/{topic}/{partition}"


def offsets_path(group_id: str) -> str:
    return f"{CONSUMERS}/{group_id}/offsets"


def offset_path(group_id: str, topic: str, partition: int) -> str:
    return f"{CONSUMERS}/{group_id}/offsets/{topic}/{partition}"


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """/controller: who is active, and where it listens."""

    controller_id: int
    host: str
    port: int
    attempt: str
    """Unique for each try to become active, so that an unknown outcome can be examined (reliability 6.4)."""
    release: Release = RELEASE

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """/brokers/ids/[id]; the broker epoch is the znode's czxid."""

    broker_id: BrokerId
    listeners: tuple[Listener, ...]
    rack: str
    intact_since: int
    """First broker epoch since which this data directory has lost nothing; INTACT_SINCE_NOW: this very one."""
    attempt: str
    """Unique for each try to register, so that an unknown outcome can be examined."""
    release: Release = RELEASE
    directory_id: str = ""
    """Id of the broker's data directory; a copy of the directory has the same id."""
    carried: Carried = UNREGISTERED
    """Sizes of messages that the broker can carry."""


@dataclass(frozen=True, slots=True)
class StoredDirectories:
    """/brokers/directories/[id]: the data directory with which a broker has registered, and those before it.

    A broker writes it in the multi that registers it, and only when the directory is another one: the znode's mzxid is the first
    broker epoch of `present`.
    """

    present: str
    former: tuple[tuple[int, str], ...] = ()
    """The first broker epoch and id of each former directory, oldest first; at most FORMER_DIRECTORIES_MAX."""

    def replaced(self, directory_id: str, since: int) -> "StoredDirectories":
        """Returns what is to be stored when another directory takes its place; `since` is the mzxid of what is stored."""
        return StoredDirectories(directory_id, (*self.former, (since, self.present))[-FORMER_DIRECTORIES_MAX:])


class Move(NamedTuple):
    """A reassignment of one partition that is under way: its replicas before and after, preferred leader first."""

    old: tuple[BrokerId, ...]
    target: tuple[BrokerId, ...]
    """Equal to `old` when the reassignment was cancelled."""


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """/brokers/topics/[t]: the assigned replicas of each partition, index by index, preferred leader first.

    Where a partition moves these are all that have a copy, the targets first: a controller that does not know `moves` takes
    them for its replicas, and loses nothing (F11.2).
    """

    topic_id: bytes
    partitions: tuple[tuple[BrokerId, ...], ...]
    moves: Mapping[int, Move] = field(default_factory=dict)
    """By partition; both rows are among its replicas."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """/brokers/topics/[t]/partitions/[p]/state: leader, ISR and epoch in one znode (HOLE-39)."""

    leader: BrokerId
    leader_epoch: int
    isr: tuple[IsrMember, ...]
    controller_epoch: int
    recovering: bool = False
    """Its leader was elected uncleanly and has not reported back yet (KIP-704)."""


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """/latest_producer_id_block: the last block of producer ids that was given away, both ends inclusive, and to whom."""

    broker_id: BrokerId
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True)
class StoredPlacement:
    """/admin/placement: what holds for all replicas."""

    draining: tuple[BrokerId, ...] = ()
    """Brokers that get no replicas any more."""
    leader_throttle: int = 0
    """Bytes a second of what moves copy, for each broker that sends it; 0: no limit."""
    follower_throttle: int = 0
    """The same for each broker that takes it."""
    planning: bool = False
    """A plan for brokers that came or that go is not wholly written: the next controller completes it."""


@dataclass(frozen=True, slots=True)
class CoordinatorRegistration:
    """/consumers/coordinator: which broker coordinates (A6.01)."""

    broker_id: BrokerId
    attempt: str
    """Unique for each try, so that an unknown outcome can be examined (reliability 6.4)."""


class StoredMember(NamedTuple):
    """Of a group's head."""

    session_timeout_ms: int
    incarnation: int
    static: bool
    admission: int
    """Orders the incarnations of a static member; 0: none, or stored by 0.2."""


@dataclass(frozen=True, slots=True)
class StoredHead:
    """/consumers/[g]: what is to be known of a group beside owners and offsets."""

    generation: int
    phase: str
    members: Mapping[str, StoredMember]
    assignor: str
    empty_since_ms: int
    """-1: there are members."""
    began: int | None
    """The newest transaction that had created a topic when the group began; None: unknown, as 0.2 stores it."""


class StoredOwner(NamedTuple):
    """/consumers/[g]/owners/[t]/[p] (A6.03)."""

    thread: str
    consumer: str
    generation: int


class StoredOffset(NamedTuple):
    """/consumers/[g]/offsets/[t]/[p] (A6.05)."""

    offset: int
    leader_epoch: int
    """-1: unknown."""
    metadata: str
    topic_id: bytes = b""
    """The topic that it counts in; empty: unknown, as 0.2.0 stores it."""


def encode_cluster_id(cluster_id: str) -> bytes:
    return _dump({"version": _LAYOUT, "id": cluster_id})


def decode_cluster_id(data: bytes, path: str = CLUSTER_ID) -> str:
    return _decode(path, data, lambda fields: _text(fields, "id"))


def encode_controller(registration: ControllerRegistration) -> bytes:
    return _dump(
        {
            "version": _LAYOUT,
            "controller_id": registration.controller_id,
            "host": registration.host,
            "port": registration.port,
            "attempt": registration.attempt,
            **_release_fields(registration.release),
        }
    )


def decode_controller(data: bytes, path: str = CONTROLLER) -> ControllerRegistration:
    return _decode(
        path,
        data,
        lambda fields: ControllerRegistration(
            controller_id=_int(fields, "controller_id"),
            host=_text(fields, "host"),
            port=_int(fields, "port"),
            attempt=_text(fields, "attempt"),
            release=_release(fields),
        ),
    )


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode("ascii")


def decode_controller_epoch(data: bytes, path: str = CONTROLLER_EPOCH) -> int:
    try:
        return _number(int(data.decode("ascii")), "epoch", 0, _INT32_MAX - 1)
    except ValueError as error:
        raise BadZnode(path, f"{data[:40]!r} is not an epoch") from error


def encode_broker(registration: BrokerRegistration) -> bytes:
    return _dump(
        {
            "version": _LAYOUT,
            "listeners": [{"name": each.name, "host": each.host, "port": each.port} for each in registration.listeners],
            "rack": registration.rack,
            "intact_since": registration.intact_since,
            "attempt": registration.attempt,
            **_release_fields(registration.release),
            "directory": registration.directory_id,
            **registration.carried._asdict(),
        }
    )


def decode_broker(broker_id: int, data: bytes) -> BrokerRegistration:
    def build(fields: Mapping[str, Any]) -> BrokerRegistration:
        listeners = _of(fields, "listeners", list)
        return BrokerRegistration(
            broker_id=BrokerId(broker_id),
            listeners=tuple(
                Listener(name=_text(each, "name"), host=_text(each, "host"), port=_int(each, "port"))
                for each in listeners
            ),
            rack=_text(fields, "rack", ""),
            intact_since=_int(fields, "intact_since", INTACT_SINCE_NOW, _INT64_MAX),
            attempt=_text(fields, "attempt"),
            release=_release(fields),
            directory_id=_text(fields, "directory", ""),
            carried=Carried(*(_int({**UNREGISTERED._asdict(), **fields}, each, 1) for each in Carried._fields)),
        )

    return _decode(broker_path(broker_id), data, build)


def encode_directories(directories: StoredDirectories) -> bytes:
    former = [list(each) for each in directories.former]
    return _dump({"version": _LAYOUT, "directory": directories.present, "former": former})


def decode_directories(broker_id: int, data: bytes) -> StoredDirectories:
    path = broker_directories_path(broker_id)

    def entry(fields: Any) -> tuple[int, str]:
        match fields:
            case [int(since), str(directory_id)]:
                return since, directory_id
        raise BadZnode(path, "former is not a list of epochs and directories")

    def build(fields: Mapping[str, Any]) -> StoredDirectories:
        return StoredDirectories(_text(fields, "directory"), tuple(map(entry, _of(fields, "former", list))))

    return _decode(path, data, build)


def _release_fields(release: Release) -> dict[str, Any]:
    return {"software": release.version, "feature_level": release.level, "feature_level_min": release.oldest}


def _release(fields: Mapping[str, Any]) -> Release:
    return Release(
        _text(fields, "software", ""),
        level=_int({"feature_level": UNLEVELLED.level, **fields}, "feature_level", 1),
        oldest=_int({"feature_level_min": UNLEVELLED.oldest, **fields}, "feature_level_min", 1),
    )


def encode_topic(assignment: TopicAssignment) -> bytes:
    fields: dict[str, Any] = {
        "version": _LAYOUT,
        "topic_id": assignment.topic_id.hex(),
        "partitions": {str(index): list(replicas) for index, replicas in enumerate(assignment.partitions)},
    }
    if assignment.moves:
        fields["moves"] = {str(index): [move.old, move.target] for index, move in assignment.moves.items()}
    return _dump(fields)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    def build(fields: Mapping[str, Any]) -> TopicAssignment:
        partitions: Mapping[str, Sequence[int]] = _of(fields, "partitions", dict)
        replicas = tuple(_row(partitions[str(index)], "partitions") for index in range(len(partitions)))
        if not replicas or not all(replicas):
            raise ValueError("'partitions' names a topic without partitions or a partition without replicas")
        moves = {} if "moves" not in fields else _moves(_of(fields, "moves", dict), replicas)
        topic_id = bytes.fromhex(_text(fields, "topic_id"))
        if not 0 < len(topic_id) <= TOPIC_ID_BYTES:
            raise ValueError(f"'topic_id' has {len(topic_id)} bytes, allowed are 1 to {TOPIC_ID_BYTES}")
        return TopicAssignment(topic_id, replicas, moves)

    return _decode(topic_path(topic), data, build)


def _row(brokers: Sequence[int], key: str) -> tuple[BrokerId, ...]:
    return _distinct(tuple(BrokerId(_number(each, key, 0, _INT32_MAX)) for each in brokers), key)


def _moves(stored: Mapping[str, Any], replicas: Sequence[tuple[BrokerId, ...]]) -> dict[int, Move]:
    moves = {}
    for name, (old, target) in stored.items():
        move = Move(_row(old, "moves"), _row(target, "moves"))
        index = int(name)
        if not 0 <= index < len(replicas) or not all(move) or not {*move.old, *move.target} <= {*replicas[index]}:
            raise ValueError(f"'moves' of partition {name} is not within its replicas: {list(map(list, move))}")
        moves[index] = move
    return moves


def encode_state(state: StoredState) -> bytes:
    # By hand: one of these is written for each partition at a failover, and json.dumps is three times as slow.
    isr = ",".join([f"[{member.broker_id},{member.broker_epoch}]" for member in state.isr])
    return (
        f'{{"version":{_LAYOUT},"leader":{state.leader},"leader_epoch":{state.leader_epoch},"isr":[{isr}],'
        f'"controller_epoch":{state.controller_epoch}{_RECOVERING if state.recovering else ""}}}'
    ).encode("ascii")


def decode_state(topic: str, partition: int, data: bytes) -> StoredState:
    def build(fields: Mapping[str, Any]) -> StoredState:
        state = StoredState(
            leader=BrokerId(_int(fields, "leader", NO_LEADER)),
            leader_epoch=_int(fields, "leader_epoch", high=_INT32_MAX - 1),  # the next election adds one
            isr=tuple(
                IsrMember(
                    broker_id=_number(broker_id, "isr", 0, _INT32_MAX),
                    broker_epoch=_number(broker_epoch, "isr", 0, _INT64_MAX),
                )
                for broker_id, broker_epoch in _of(fields, "isr", list)
            ),
            controller_epoch=_int(fields, "controller_epoch"),
            recovering=_flag(fields, "recovering"),
        )
        if not state.isr:
            raise ValueError("'isr' is empty")
        members = _distinct(tuple(BrokerId(member.broker_id) for member in state.isr), "isr")
        if state.leader != NO_LEADER and state.leader not in members:
            raise ValueError(f"'leader' {state.leader} is not in 'isr' {list(members)}")
        return state

    return _decode(state_path(topic, partition), data, build)


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    # Kafka's field names; it writes the ids as strings, since not every reader of JSON has 64-bit numbers.
    return _dump(
        {
            "version": _LAYOUT,
            "broker": block.broker_id,
            "block_start": str(block.first_id),
            "block_end": str(block.last_id),
        }
    )


def decode_producer_ids(data: bytes) -> ProducerIdBlock:
    def build(fields: Mapping[str, Any]) -> ProducerIdBlock:
        block = ProducerIdBlock(
            broker_id=BrokerId(_int(fields, "broker")),
            first_id=int(_text(fields, "block_start")),
            last_id=int(_text(fields, "block_end")),
        )
        if not 0 <= block.first_id <= block.last_id:
            raise ValueError("'block_start' to 'block_end' is no range of producer ids")
        return block

    return _decode(PRODUCER_IDS, data, build)


def encode_placement(placement: StoredPlacement) -> bytes:
    throttles = {key: getattr(placement, key) for key in _THROTTLES if getattr(placement, key)}
    planning = {"planning": True} if placement.planning else {}
    return _dump({"version": _LAYOUT, "draining": list(placement.draining), **throttles, **planning})


def decode_placement(data: bytes) -> StoredPlacement:
    def build(fields: Mapping[str, Any]) -> StoredPlacement:
        throttles = {key: _int(fields, key, high=_INT64_MAX) for key in _THROTTLES if key in fields}
        planning = _flag(fields, "planning")
        return StoredPlacement(_row(_of(fields, "draining", list), "draining"), **throttles, planning=planning)

    return _decode(PLACEMENT, data, build)


def encode_topic_config(entries: Mapping[str, str]) -> bytes:
    return _dump({"version": _LAYOUT, "config": dict(entries)})


def decode_topic_config(topic: str, data: bytes) -> dict[str, str]:
    def build(fields: Mapping[str, Any]) -> dict[str, str]:
        entries: Mapping[str, Any] = _of(fields, "config", dict)
        return {key: _text(entries, key) for key in entries}

    return _decode(topic_config_path(topic), data, build)


def encode_coordinator(registration: CoordinatorRegistration) -> bytes:
    return _dump({"version": _LAYOUT, "broker_id": registration.broker_id, "attempt": registration.attempt})


def decode_coordinator(data: bytes, path: str = COORDINATOR) -> CoordinatorRegistration:
    return _decode(
        path,
        data,
        lambda fields: CoordinatorRegistration(BrokerId(_int(fields, "broker_id")), _text(fields, "attempt")),
    )


def encode_shards(shards: int) -> bytes:
    return _dump({"version": _LAYOUT, "shards": shards})


def decode_shards(data: bytes) -> int:
    return _decode(SHARDS, data, lambda fields: _int(fields, "shards", 1, SHARDS_MAX))


def encode_head(head: StoredHead) -> bytes:
    # A member is a list without names: thousands of them must fit one znode.
    return _dump(
        {
            "version": _LAYOUT,
            "generation": head.generation,
            "phase": head.phase,
            "members": {
                consumer: [timeout_ms, incarnation, int(static), *([admission] if admission else ())]
                for consumer, (timeout_ms, incarnation, static, admission) in head.members.items()
            },
            "assignor": head.assignor,
            "empty_since_ms": head.empty_since_ms,
            **({} if head.began is None else {"began": head.began}),
        }
    )


def decode_head(group_id: str, data: bytes) -> StoredHead:
    def build(fields: Mapping[str, Any]) -> StoredHead:
        members: Mapping[str, Any] = _of(fields, "members", dict)
        return StoredHead(
            generation=_int(fields, "generation", high=_INT32_MAX - 1),  # the next rebalance adds one
            phase=_text(fields, "phase"),
            members={consumer: _stored_member(_of(members, consumer, list)) for consumer in members},
            assignor=_text(fields, "assignor"),
            empty_since_ms=_int(fields, "empty_since_ms", -1, _INT64_MAX),
            began=_int(fields, "began", 0, _INT64_MAX) if "began" in fields else None,
        )

    return _decode(group_path(group_id), data, build)


def _stored_member(values: list[Any]) -> StoredMember:
    fields = dict(zip(StoredMember._fields, values, strict=False))
    return StoredMember(
        session_timeout_ms=_int(fields, "session_timeout_ms", 1),
        incarnation=_int(fields, "incarnation", -(2**63), _INT64_MAX),
        static=bool(_int(fields, "static", 0, 1)),
        admission=_int(fields, "admission", 0, _INT64_MAX) if "admission" in fields else 0,
    )


def encode_owner(owner: StoredOwner) -> bytes:
    return _dump({"version": _LAYOUT, **owner._asdict()})


def decode_owner(path: str, data: bytes) -> StoredOwner:
    return _decode(
        path,
        data,
        lambda fields: StoredOwner(_text(fields, "thread"), _text(fields, "consumer"), _int(fields, "generation")),
    )


def encode_offset(offset: StoredOffset) -> bytes:
    fields = {"version": _LAYOUT, **offset._asdict(), "topic_id": offset.topic_id.hex()}
    if not offset.topic_id:
        del fields["topic_id"]
    return _dump(fields)


def decode_offset(path: str, data: bytes) -> StoredOffset:
    return _decode(
        path,
        data,
        lambda fields: StoredOffset(
            _int(fields, "offset", 0, _INT64_MAX),
            _int(fields, "leader_epoch", -1),
            _text(fields, "metadata"),
            bytes.fromhex(_text(fields, "topic_id", "")),
        ),
    )
