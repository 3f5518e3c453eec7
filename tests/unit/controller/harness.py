"""A controller machine with a small metadata store: events in, literal effects out, invariants checked after each step."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidelog import topic_config
from tidelog.controller.effects import (
    AskEnds,
    Connect,
    Disconnect,
    Effect,
    Examine,
    IsrsChanged,
    MakePlan,
    Outcome,
    Reply,
    Send,
    Write,
    WriteGroup,
)
from tidelog.controller.events import (
    BrokerAnswered,
    BrokersChanged,
    BrokersRequested,
    ConfigsAlterRequested,
    Draw,
    Elected,
    Event,
    Examined,
    FailedReplica,
    IsrProposed,
    PartitionsCreateRequested,
    Planned,
    ReassignmentRequested,
    ReplicaEnd,
    ReplicaEndsTold,
    Snapshot,
    StoredTopic,
    Suspected,
    Token,
    TopicsCreateRequested,
    TopicsDeleteRequested,
    WritesDone,
)
from tidelog.controller.machine import ControllerMachine, MachineSettings
from tidelog.controller.model import Broker, PartitionState
from tidelog.controller.operations import examined_path, operations
from tidelog.controller.planner import rebalance
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TOPIC_ID_BYTES, BrokerId, TopicPartition
from tidelog.ports.meta import Create, Delete, SetData
from tidelog.wire import messages as m
from tidelog.wire import znodes

Told = tuple[str, int, int, dict[int, int]]
"""A partition as a broker hears of it: (name-index, leader, leader epoch, {ISR member: its broker epoch})."""


def broker(broker_id: int, epoch: int, intact_since: int | None = None) -> Broker:
    """`intact_since` is the epoch itself unless given: nothing is known of earlier lives."""
    return Broker(BrokerId(broker_id), epoch, epoch if intact_since is None else intact_since)


def isr(**members: int) -> tuple[m.IsrMember, ...]:
    """`isr(b1=11, b2=12)`: broker 1 in its life 11, broker 2 in its life 12."""
    return tuple(m.IsrMember(broker_id=int(name[1:]), broker_epoch=epoch) for name, epoch in members.items())


def state(
    leader: int, leader_epoch: int, members: tuple[m.IsrMember, ...], version: int, controller_epoch: int = 1
) -> PartitionState:
    return PartitionState(BrokerId(leader), leader_epoch, members, controller_epoch, version)


def stored_topic(
    name: str,
    replicas: Sequence[Sequence[int]],
    states: Sequence[PartitionState | None],
    configs: Mapping[str, str] | None = None,
) -> StoredTopic:
    assigned = tuple(tuple(BrokerId(each) for each in row) for row in replicas)
    return StoredTopic(name, (b"id-of-" + name.encode())[-TOPIC_ID_BYTES:], assigned, tuple(states), configs or {})


def parse_config(configs: Mapping[str, str]) -> topic_config.TopicConfig:
    return topic_config.parse(configs, topic_config.TopicConfig())


class MemoryStore:
    """Znodes with versions; the controller epoch is checked by `fenced`."""

    def __init__(self) -> None:
        self.znodes: dict[str, tuple[bytes, int]] = {}
        self.fenced = False

    def apply(self, group: WriteGroup) -> Outcome:
        if self.fenced:
            return Outcome.FENCED
        after = dict(self.znodes)
        for op in operations(group):
            exists = op.path in after
            if exists == isinstance(op, Create):
                return Outcome.CONFLICT
            if isinstance(op, SetData) and after[op.path][1] != op.version:
                return Outcome.CONFLICT
            match op:
                case Create(path, data):
                    after[path] = data, 0
                case SetData(path, data, version):
                    after[path] = data, version + 1
                case Delete(path):
                    del after[path]
        self.znodes = after
        return Outcome.WRITTEN

    def put_topic(self, topic: StoredTopic) -> None:
        assignment = znodes.TopicAssignment(topic.topic_id, topic.replicas, topic.moves)
        self.znodes[znodes.topic_path(topic.name)] = znodes.encode_topic(assignment), 0
        self.znodes[znodes.partitions_path(topic.name)] = b"", 0
        self.znodes[znodes.topic_config_path(topic.name)] = b"{}", 0
        for index, each in enumerate(topic.states):
            if each is not None:
                self.znodes[znodes.partition_path(topic.name, index)] = b"", 0
                self.znodes[znodes.state_path(topic.name, index)] = (
                    znodes.encode_state(each.stored()),
                    each.partition_epoch,
                )


def snapshot_of(store: MemoryStore, brokers: Iterable[Broker]) -> Snapshot:
    """What the next controller reads."""
    topics = []
    for path, (data, version) in sorted(store.znodes.items()):
        name = path.removeprefix(znodes.TOPICS + "/")
        if name == path or "/" in name:
            continue
        found = znodes.decode_topic(name, data)
        states: list[PartitionState | None] = []
        for index in range(len(found.partitions)):
            node = store.znodes.get(znodes.state_path(name, index))
            if node is None:
                states.append(None)
                continue
            states.append(PartitionState.of(znodes.decode_state(name, index, node[0]), node[1]))
        config = znodes.topic_config_path(name) in store.znodes
        topics.append(
            StoredTopic(name, found.topic_id, found.partitions, tuple(states), {}, config, version, found.moves)
        )
    node = store.znodes.get(znodes.PLACEMENT)
    placement = None if node is None else (znodes.decode_placement(node[0]), node[1])
    marks = [p.removeprefix(znodes.DELETE_TOPICS + "/") for p in store.znodes if p.startswith(znodes.DELETE_TOPICS)]
    return Snapshot(tuple(brokers), tuple(topics), tuple(marks), placement=placement)


class Harness:
    """Writes are held back until `write()` applies them; `run()` applies everything until nothing is left."""

    def __init__(self, *, hold_s: float = 10.0) -> None:
        self.machine = ControllerMachine(
            MachineSettings(
                controller_id=100,
                cluster_id="c",
                default_partitions=1,
                default_replication_factor=3,
                min_insync_replicas=2,
                suspect_hold_s=hold_s,
                parse_config=parse_config,
            )
        )
        self.store = MemoryStore()
        self.in_flight: list[WriteGroup] = []
        self.doubtful: list[Any] = []
        self.plans: list[MakePlan] = []
        self.brokers: dict[int, Broker] = {}
        self.replies: dict[int, Any] = {}
        self.shrinks: Counter[str] = Counter()
        self.expansions: Counter[str] = Counter()
        self._token = 0
        self.pongs = True
        self.ends: dict[int, ReplicaEnd] | None = {}
        """Ends of the logs of each broker, told at once; others do not tell. None: no broker answers."""
        self.asked: list[AskEnds] = []

    def step(self, event: Event) -> list[Effect]:
        effects = self.machine.step(event)
        self.machine.validate()
        for effect in effects:
            match effect:
                case Write(groups):
                    self.in_flight += groups
                case Examine(groups):
                    self.doubtful += groups
                case MakePlan():
                    self.plans.append(effect)
                case AskEnds():
                    self.asked.append(effect)
                case Reply(token, answer):
                    assert token not in self.replies, f"request {token} answered twice"
                    self.replies[token] = answer
                case IsrsChanged(shrinks, expansions):
                    self.shrinks.update(shrinks)
                    self.expansions.update(expansions)
                case _:
                    pass
        return effects + (self.tell_ends() if self.ends is not None else [])

    def tell_ends(self) -> list[Effect]:
        """Answers what the controller has asked."""
        asked, self.asked = self.asked, []
        ends = self.ends or {}
        return [
            effect
            for each in asked
            for effect in self.step(
                ReplicaEndsTold(
                    each.broker_id,
                    each.broker_epoch,
                    each.partitions,
                    {tp: ends[each.broker_id] for tp, _ in each.partitions if each.broker_id in ends},
                )
            )
        ]

    # events

    def elected(
        self, *topics: StoredTopic, brokers: Iterable[Broker] = (), deletions: tuple[str, ...] = (), epoch: int = 2
    ) -> list[Effect]:
        for topic in topics:
            self.store.put_topic(topic)
        for name in deletions:
            self.store.znodes[znodes.delete_topic_path(name)] = b"", 0
        return self.takes_over(Snapshot(tuple(brokers), topics, deletions), epoch)

    def takes_over(self, snapshot: Snapshot, epoch: int) -> list[Effect]:
        self.brokers = {int(each.broker_id): each for each in snapshot.brokers}
        effects = self.step(Elected(epoch, snapshot))
        self._ponged({}, self.brokers)
        return effects

    def brokers_are(self, *brokers: Broker) -> list[Effect]:
        before, self.brokers = self.brokers, {int(each.broker_id): each for each in brokers}
        effects = self.step(BrokersChanged(brokers))
        self._ponged(before, self.brokers)
        return effects

    def _ponged(self, before: dict[int, Broker], now: dict[int, Broker]) -> None:
        """Every life that has begun answers on its liveness stream, unless told not to: nothing has failed there."""
        for number, broker in now.items():
            if self.pongs and (number not in before or before[number].epoch != broker.epoch):
                assert self.pong(broker) == []

    def pong(self, broker: Broker, *failed: FailedReplica) -> list[Effect]:
        answer = BrokerAnswered(broker.broker_id, broker.epoch, ErrorCode.NONE, failed, lists_all_failed=True)
        return self.step(answer)

    def died(self, *broker_ids: int) -> list[Effect]:
        return self.brokers_are(*(each for number, each in self.brokers.items() if number not in broker_ids))

    def came(self, *brokers: Broker) -> list[Effect]:
        return self.brokers_are(*{**self.brokers, **{int(each.broker_id): each for each in brokers}}.values())

    def suspected(self, broker_id: int) -> list[Effect]:
        return self.step(Suspected(BrokerId(broker_id), self.brokers[broker_id].epoch))

    def proposed(
        self,
        asker: int,
        *wanted: tuple[str, int, m.LeaderAndIsr],
        broker_epoch: int | None = None,
        topic_id: bytes = b"",
        controller_epoch: int | None = None,
        sequence: int | None = None,
    ) -> tuple[int, list[Effect]]:
        """Each of `wanted` is (topic, partition, what). Without a sequence it is the asker's next request."""
        epoch = self.brokers[asker].epoch if broker_epoch is None else broker_epoch
        request = m.AlterIsrRequest(
            broker_id=asker,
            broker_epoch=epoch,
            controller_epoch=self.machine.controller_epoch if controller_epoch is None else controller_epoch,
            sequence=self._token + 1 if sequence is None else sequence,
            topics=tuple(
                m.AlterIsrTopic(
                    topic=topic,
                    topic_id=topic_id,
                    partitions=(m.AlterIsrPartition(partition_id=partition, leader_and_isr=what),),
                )
                for topic, partition, what in wanted
            ),
        )
        return self._asked(lambda token: IsrProposed(request, token))

    def create(self, *topics: m.NewTopic, validate_only: bool = False) -> tuple[int, list[Effect]]:
        request = m.CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
        draws = tuple(Draw(b"new-" + topic.name.encode(), 0) for topic in topics)
        return self._asked(lambda token: TopicsCreateRequested(request, token, draws))

    def delete(self, *names: str) -> tuple[int, list[Effect]]:
        request = m.DeleteTopicsRequest(names=names, timeout_ms=1000)
        return self._asked(lambda token: TopicsDeleteRequested(request, token))

    def grow(self, *topics: m.NewPartitions, validate_only: bool = False) -> tuple[int, list[Effect]]:
        request = m.CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
        return self._asked(lambda token: PartitionsCreateRequested(request, token))

    def move(
        self,
        rows: Mapping[int, Sequence[int]],
        *,
        topic: str = "t",
        cancelled: Sequence[int] = (),
        replace: bool = False,
        validate_only: bool = False,
        throttle: tuple[int, int] = (0, 0),
    ) -> tuple[int, list[Effect]]:
        """`rows`: partition -> its replicas as they are to be."""
        partitions = tuple(m.PartitionAssignment(partition=p, replicas=tuple(row)) for p, row in rows.items())
        plan = m.TopicReassignment(topic=topic, partitions=partitions, cancelled=tuple(cancelled))
        return self.moves(plan, replace=replace, validate_only=validate_only, throttle=throttle)

    def moves(
        self,
        *topics: m.TopicReassignment,
        replace: bool = False,
        validate_only: bool = False,
        throttle: tuple[int, int] = (0, 0),
    ) -> tuple[int, list[Effect]]:
        """`throttle`: of leaders and of followers."""
        request = m.AlterPartitionReassignmentsRequest(
            topics=topics,
            replace=replace,
            validate_only=validate_only,
            timeout_ms=1000,
            leader_throttle=throttle[0],
            follower_throttle=throttle[1],
        )
        return self._asked(lambda token: ReassignmentRequested(request, token))

    def alter(self, *changes: m.ConfigChange, name: str = "t", validate_only: bool = False) -> tuple[int, list[Effect]]:
        topic = m.TopicConfigChanges(name=name, changes=changes)
        request = m.IncrementalAlterConfigsRequest(topics=(topic,), timeout_ms=1000, validate_only=validate_only)
        return self._asked(lambda token: ConfigsAlterRequested(request, token))

    def add_brokers(self, *ids: int, replace: bool = False, validate_only: bool = False) -> tuple[int, list[Effect]]:
        request = m.AddBrokersRequest(
            broker_ids=ids,
            replace=replace,
            validate_only=validate_only,
            timeout_ms=1000,
            leader_throttle=0,
            follower_throttle=0,
        )
        return self._asked(lambda token: BrokersRequested(request, token))

    def drain(self, *ids: int, undo: bool = False, validate_only: bool = False) -> tuple[int, list[Effect]]:
        request = m.DrainBrokersRequest(
            broker_ids=ids,
            undo=undo,
            validate_only=validate_only,
            timeout_ms=1000,
            leader_throttle=0,
            follower_throttle=0,
        )
        return self._asked(lambda token: BrokersRequested(request, token))

    def plan(self) -> list[Effect]:
        """The planner's answer to what it was asked first."""
        effect = self.plans.pop(0)
        token = Token(effect.token)
        try:
            rows = rebalance(effect.current, effect.brokers, leaving=effect.leaving)
        except TidelogError as error:
            return self.step(Planned(token, {}, error.code, error.message))
        return self.step(Planned(token, rows))

    def _asked(self, event: Callable[[Token], Event]) -> tuple[int, list[Effect]]:
        self._token += 1
        return self._token, self.step(event(Token(self._token)))

    # the store's answers

    def write(self, *, unknown: bool = False, lost: bool = False) -> list[Effect]:
        """Applies what is in flight. `unknown`: applied, but the answer is lost; `lost`: not even applied."""
        groups, self.in_flight = self.in_flight, []
        results = []
        for group in groups:
            outcome = Outcome.UNKNOWN if lost else self.store.apply(group)
            results.append((group, Outcome.UNKNOWN if unknown else outcome))
        return self.step(WritesDone(tuple(results)))

    def examine(self) -> list[Effect]:
        groups, self.doubtful = self.doubtful, []
        return self.step(Examined(tuple((each, self.store.znodes.get(examined_path(each))) for each in groups)))

    def run(self) -> list[Effect]:
        effects: list[Effect] = []
        while self.in_flight or self.doubtful:
            effects += self.write() if self.in_flight else self.examine()
        return effects

    # looking

    def partition(self, topic: str = "t", index: int = 0) -> tuple[int, int, dict[int, int], int]:
        """(leader, leader epoch, {ISR member: broker epoch}, version) as the store holds it."""
        data, version = self.store.znodes[znodes.state_path(topic, index)]
        stored = znodes.decode_state(topic, index, data)
        known = self.machine.state.partition(TopicPartition(topic, index))
        assert known is not None
        assert known.state == PartitionState.of(stored, version)
        return stored.leader, stored.leader_epoch, _lives(stored.isr), version

    def isr_answers(self, token: int) -> list[tuple[str, int, ErrorCode]]:
        answer = self.replies[token]
        return [(each.topic, item.partition_id, item.error_code) for each in answer.topics for item in each.partitions]


def want(
    leader: int, leader_epoch: int, members: tuple[m.IsrMember, ...], version: int, index: int = 0, topic: str = "t"
) -> tuple[str, int, m.LeaderAndIsr]:
    return (
        topic,
        index,
        m.LeaderAndIsr(leader=leader, leader_epoch=leader_epoch, isr=members, current_zk_version=version),
    )


def roles(effects: Sequence[Effect]) -> dict[int, list[Told]]:
    """What LeaderAndIsr requests tell, by broker."""
    told: dict[int, list[Told]] = {}
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.request, m.LeaderAndIsrRequest):
            told.setdefault(effect.broker_id, []).extend(map(_told, effect.request.partition_states))
    return told


def full_roles(effects: Sequence[Effect]) -> list[int]:
    """Brokers that got a full LeaderAndIsr."""
    return [
        effect.broker_id
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.request, m.LeaderAndIsrRequest) and effect.request.full
    ]


def metadata(effects: Sequence[Effect]) -> dict[int, list[Told]]:
    told: dict[int, list[Told]] = {}
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.request, m.UpdateMetadataRequest):
            told.setdefault(effect.broker_id, []).extend(map(_told, effect.request.partition_states))
    return told


def stops(effects: Sequence[Effect]) -> dict[int, list[tuple[str, int, int, bool]]]:
    return {
        effect.broker_id: [
            (each.topic, each.partition, each.leader_epoch, each.delete_partition) for each in effect.request.partitions
        ]
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.request, m.StopReplicaRequest)
    }


def writes(effects: Sequence[Effect]) -> list[WriteGroup]:
    return [group for effect in effects if isinstance(effect, Write) for group in effect.groups]


def links(effects: Sequence[Effect]) -> list[Connect | Disconnect]:
    return [effect for effect in effects if isinstance(effect, Connect | Disconnect)]


def _told(each: m.PartitionState) -> Told:
    return f"{each.topic}-{each.partition}", each.leader, each.leader_epoch, _lives(each.isr)


def _lives(members: Iterable[m.IsrMember]) -> dict[int, int]:
    return {member.broker_id: member.broker_epoch for member in members}


def in_racks(text: str) -> dict[BrokerId, str]:
    """One broker a letter, which is its rack."""
    return {BrokerId(number): rack for number, rack in enumerate(text)}


def refusal(c: Harness, token: int) -> tuple[ErrorCode, str]:
    return c.replies[token].error_code, c.replies[token].error_message


def codes(c: Harness, token: int) -> list[tuple[str, ErrorCode]]:
    return [(each.name, each.error_code) for each in c.replies[token].topics]
