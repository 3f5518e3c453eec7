"""A coordinator's machine with consumers that answer by script, a store that answers at once or when told, and its own time."""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.coordinator import effects as fx
from tidelog.coordinator import events as ev
from tidelog.coordinator.events import ConnectionId, Outcome, Token
from tidelog.coordinator.machine import CoordinatorMachine
from tidelog.coordinator.model import Committed, GroupHead, GroupLimits, Owner, StoredGroup, TopicInfo
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

LIMITS = GroupLimits(
    handlers=2,
    session_min_s=1.0,
    session_max_s=100.0,
    failed_pings_max=0,
    commit_interval_s=1.0,
    rebalance_retries_max=3,
    backoff_s=0.2,
    backoff_max_s=2.0,
    join_delay_s=0.1,
    join_delay_max_s=1.0,
    initial_delay_s=0.5,
    incremental=True,
    members_max=10,
    partitions_max=1000,
    default_assignor="range",
    retention_s=600.0,
)

EPOCH = 7


def topic_count(*topics: str, streams: int = 1) -> str:
    return json.dumps({"pattern": "static", "subscription": dict.fromkeys(topics, streams)})


def pattern(regex: str, kind: str = "white_list") -> str:
    return json.dumps({"pattern": kind, "subscription": {regex: 1}})


def tps(topic: str, *partitions: int) -> set[TopicPartition]:
    return {TopicPartition(topic, p) for p in partitions}


@dataclass
class Consumer:
    """One incarnation of a consumer, which does what it is told unless `answers` says otherwise."""

    scene: "Scene"
    name: str
    group_id: str
    incarnation: int
    connection: ConnectionId
    request: dict[str, Any]
    number: int = 0
    answers: set[str] = field(default_factory=lambda: {"ping", "stop", "start"})
    heard: list[Any] = field(default_factory=list)
    """Bodies of messages, in order."""
    closed: bool = False
    owned: set[TopicPartition] = field(default_factory=set)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[TopicPartition, bytes] = field(default_factory=dict)
    """Topic ids of the positions, as it was told them."""
    knows_ids: bool = True
    """False: it is a client of 0.2.0."""
    generation: int = 0
    epoch: int = EPOCH
    error: m.RegisterConsumerResponse | None = None
    last_number: int = 0

    def send(self, **body: Any) -> None:
        self.number += 1
        message = m.ConsumerMessage(number=self.number, **body)
        self.scene.step(ev.MessageArrived(self.connection, "host", message))

    def register(self, **changes: Any) -> "Consumer":
        self.request |= changes
        self.send(register=m.RegisterConsumerRequest(**self.request))
        return self

    def hear(self, message: m.CoordinatorMessage) -> None:
        self.last_number = message.last_number
        body = message.registered or message.ping or message.stop or message.start or message.left
        self.heard.append(body)
        match body:
            case m.RegisterConsumerResponse(error_code=code) if code is not ErrorCode.NONE:
                self.error = body
            case m.RegisterConsumerResponse(admission=admission):
                self.request["admission"] = admission or self.request["admission"]
            case m.PingRequest() if "ping" in self.answers:
                self.answer_ping(body)
            case m.StopFetcherRequest() if "stop" in self.answers:
                self.answer_stop(body)
            case m.StartFetcherRequest() if "start" in self.answers:
                self.answer_start(body)

    def answer_ping(self, ping: m.PingRequest | None = None, *, offsets: bool = True) -> None:
        self.send(
            ping=m.PingResponse(
                consumer_id=self.name,
                coordinator_epoch=self.epoch,
                generation=self.generation,
                offset_info=self.offset_info() if offsets else (),
            )
        )

    def answer_stop(self, stop: m.StopFetcherRequest, **changes: Any) -> None:
        revoked = {TopicPartition(each.topic, each.partition) for each in stop.revoked} or set(self.owned)
        response = m.StopFetcherResponse(
            consumer_id=self.name,
            coordinator_epoch=stop.coordinator_epoch,
            generation=stop.generation,
            started_generation=self.generation,
            offset_info=tuple(each for each in self.offset_info() if (each.topic, each.partition) in revoked),
        )
        if not changes.get("finishing"):
            self.owned -= revoked
        self.send(stopped=replace(response, **changes))

    def answer_start(self, start: m.StartFetcherRequest) -> None:
        given = {TopicPartition(p.topic, p.partition): p for o in start.ownership_info for p in o.assigned_parts}
        for tp, part in given.items():
            known = self.ids.get(tp, b"")
            if tp not in self.owned or (known and part.topic_id not in (b"", known)):
                self.positions[tp] = max(part.offset, 0)
                self.ids[tp] = part.topic_id if self.knows_ids else b""
        self.owned = set(given)
        self.epoch, self.generation = start.coordinator_epoch, start.generation
        self.send(
            started=m.StartFetcherResponse(
                consumer_id=self.name, coordinator_epoch=start.coordinator_epoch, generation=start.generation
            )
        )

    def offset_info(self) -> tuple[m.OffsetInfo, ...]:
        return tuple(self.info(tp, self.positions[tp]) for tp in sorted(self.owned) if self.positions[tp])

    def info(self, tp: TopicPartition, offset: int) -> m.OffsetInfo:
        topic_id = self.ids.get(tp, b"")
        return m.OffsetInfo(topic=tp.topic, partition=tp.partition, offset=offset, leader_epoch=-1, topic_id=topic_id)

    def leave(self) -> None:
        self.send(
            leave=m.LeaveGroupRequest(
                consumer_id=self.name,
                coordinator_epoch=self.epoch,
                generation=self.generation,
                offset_info=self.offset_info(),
            )
        )

    def lose_connection(self) -> None:
        """Broken, and nobody answers any more."""
        self.scene.step(ev.ConnectionLost(self.connection))

    def reconnect(self, **changes: Any) -> "Consumer":
        self.connection = self.scene.new_connection()
        self.scene.consumers[self.connection] = self
        self.closed = False
        return self.register(**changes)

    def commit(self, offset: int, *partitions: TopicPartition, **changes: Any) -> Token:
        self.number += 1
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "consumer_id": self.name,
            "incarnation": self.incarnation,
            "coordinator_epoch": self.epoch,
            "generation": self.generation,
            "number": self.number,
            "offsets": tuple(self.info(tp, offset) for tp in partitions or sorted(self.owned)),
        }
        return self.scene.commit(m.CommitOffsetsRequest(**(values | changes)))

    def bodies(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.heard if isinstance(each, kind)]


@dataclass
class Scene:
    limits: GroupLimits = LIMITS
    topics: dict[str, int] = field(default_factory=lambda: {"t": 4})
    ids: dict[str, bytes] = field(default_factory=dict)
    """Ids of topics; those of others are unknown."""
    stored: tuple[StoredGroup, ...] = ()
    epoch: int = EPOCH
    log_end: int | None = 1_000_000
    holds_writes: bool = False
    now: float = 100.0
    wall_ms: int = 1_000_000
    made: dict[str, int] = field(default_factory=dict)
    """In which order the topics were created."""

    def __post_init__(self) -> None:
        self.machine = CoordinatorMachine(self.limits, lambda: 0.5)
        self.consumers: dict[ConnectionId, Consumer] = {}
        self.effects: list[fx.Effect] = []
        self.replies: dict[Token, Any] = {}
        self.held: list[fx.Write | fx.DeleteGroup] = []
        self.heads: dict[str, GroupHead] = {}
        self.owners: dict[str, dict[TopicPartition, Owner]] = {}
        self.offsets: dict[str, dict[TopicPartition, Committed]] = {}
        self.writes: list[fx.Write] = []
        self._todo: deque[fx.Effect] = deque()
        self._busy = False
        self._connections = self._tokens = self._incarnations = 0
        for each in self.stored:
            self.heads[each.group_id] = each.head
            self.owners[each.group_id] = dict(each.owners)
            self.offsets[each.group_id] = dict(each.offsets)
        self.step(ev.Loaded(1, self.epoch, self.stored, self.infos()))

    def infos(self) -> dict[str, TopicInfo]:
        made = {name: self.made.setdefault(name, len(self.made) + 1) for name in self.topics}
        return {name: TopicInfo(self.ids.get(name, b""), n, made[name]) for name, n in self.topics.items()}

    # -- time and events

    def step(self, event: ev.Event) -> None:
        """With everything that follows from it at this instant."""
        self._todo.extend(self.machine.step(event, self.now, self.wall_ms))
        if self._busy:
            return
        self._busy = True
        while self._todo:
            self._do(self._todo.popleft())
        self._busy = False

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = self.now + seconds
        while not until():
            at = self.machine.next_at()
            if at is None or at > end:
                self.wall_ms += round((end - self.now) * 1000)
                self.now = end
                return
            self.wall_ms += round(max(0.0, at - self.now) * 1000)
            self.now = max(self.now, at)
            self.step(ev.Woken())

    def _do(self, effect: fx.Effect) -> None:
        self.effects.append(effect)
        match effect:
            case fx.Send(connection, message):
                consumer = self.consumers[connection]
                if not consumer.closed and consumer.connection == connection:
                    consumer.hear(message)
            case fx.Close(connection):
                consumer = self.consumers[connection]
                consumer.closed |= consumer.connection == connection
                self.step(ev.ConnectionLost(connection))
            case fx.Reply(token, response):
                assert token not in self.replies, "answered twice"
                self.replies[token] = response
            case fx.Write() | fx.DeleteGroup():
                self.held.append(effect)
                if not self.holds_writes:
                    self.carry_out()
            case fx.FindEnds(partitions):
                self.step(ev.EndsFound(dict.fromkeys(partitions, self.log_end)))

    def carry_out(self, outcome: Outcome = Outcome.WRITTEN) -> None:
        held, self.held = self.held, []
        for write in held:
            if outcome is Outcome.WRITTEN:
                self._store(write)
            self.step(ev.WriteDone(write.write_id, outcome))

    def _store(self, write: fx.Write | fx.DeleteGroup) -> None:
        if isinstance(write, fx.DeleteGroup):
            for each in (self.heads, self.owners, self.offsets):
                each.pop(write.group_id, None)
            return
        self.writes.append(write)
        offsets, owners = self.offsets.setdefault(write.group_id, {}), self.owners.setdefault(write.group_id, {})
        for tp, committed in write.offsets.items():
            offsets.pop(tp, None)
            if committed is not None:
                offsets[tp] = committed
        for tp, owner in write.owners.items():
            owners.pop(tp, None)
            if owner is not None:
                owners[tp] = owner
        if write.head is not None:
            self.heads[write.group_id] = write.head

    # -- who takes part

    def new_connection(self) -> ConnectionId:
        self._connections += 1
        return ConnectionId(self._connections)

    def consumer(self, name: str, *topics: str, group: str = "g", **request: Any) -> Consumer:
        """Made, not yet registered."""
        self._incarnations += 1
        values: dict[str, Any] = {
            "group_id": group,
            "consumer_id": name,
            "topic_count": topic_count(*(topics or ("t",))),
            "auto_commit": True,
            "auto_offset_reset": "smallest",
            "session_timeout_ms": 10_000,
            "incarnation": self._incarnations,
            "max_processing_ms": 30_000,
            "admission": 0,
            "watch_port": 0,
        }
        consumer = Consumer(self, name, group, self._incarnations, self.new_connection(), values | request)
        self.consumers[consumer.connection] = consumer
        return consumer

    def join(self, *names: str, group: str = "g", **request: Any) -> list[Consumer]:
        """Registered, and their group stable."""
        joined = [self.consumer(name, group=group, **request).register() for name in names]
        self.run(5.0, lambda: all(each.generation for each in joined) and self.state(group) == "Stable")
        return joined

    def commit(self, request: m.CommitOffsetsRequest) -> Token:
        self._tokens += 1
        token = Token(self._tokens)
        self.step(ev.CommitRequested(token, request))
        return token

    def delete(self, *groups: str) -> Any:
        self._tokens += 1
        token = Token(self._tokens)
        self.step(ev.DeleteRequested(token, m.DeleteGroupsRequest(group_ids=groups)))
        return self.replies.get(token)

    def change_topics(self, ids: Mapping[str, bytes] | None = None, **topics: int) -> None:
        self.topics |= topics
        self.topics = {name: count for name, count in self.topics.items() if count}
        self.ids |= ids or {}
        self.step(ev.TopicsChanged(self.infos()))

    # -- what came of it

    def state(self, group: str = "g") -> str:
        return self.machine.describe(group).state

    def of(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.effects if isinstance(each, kind)]

    def expired(self, asked: str) -> bool:
        """Says whether a request of this kind was not answered in time."""
        return any(each.asked.value == asked for each in self.of(fx.Expired))

    def stored_groups(self) -> tuple[StoredGroup, ...]:
        return tuple(
            StoredGroup(g, head, self.owners.get(g, {}), self.offsets.get(g, {})) for g, head in self.heads.items()
        )

    def failover(self, **changes: Any) -> "Scene":
        """Another coordinator, which reads what this one has stored."""
        values: dict[str, Any] = {
            "limits": self.limits,
            "topics": dict(self.topics),
            "ids": dict(self.ids),
            "stored": self.stored_groups(),
            "epoch": self.epoch + 1,
            "now": self.now,
            "wall_ms": self.wall_ms,
            "log_end": self.log_end,
            "made": dict(self.made),
        }
        other = Scene(**(values | changes))
        other._incarnations = self._incarnations
        return other

    def move(self, consumer: Consumer) -> Consumer:
        """The same consumer, registered with this coordinator."""
        consumer.scene = self
        return consumer.reconnect()
