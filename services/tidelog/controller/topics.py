"""Creation and deletion of topics, from the request to the answer, over any number of writes.

A topic exists from the moment its assignment is stored, and is gone from the moment its deletion mark is stored: a new
controller finds either and finishes the work (reliability 9, row 18). Nothing here waits for brokers; one that is away
learns what it missed from the full LeaderAndIsr and by topic id (HOLE-10).
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tidelog.controller import placement
from tidelog.controller.effects import DeletionMark, PartitionRemoval, Reply, TopicRemoval, TopicWrite
from tidelog.controller.events import Draw, Token, TopicsCreateRequested, TopicsDeleteRequested
from tidelog.controller.gather import Gather
from tidelog.controller.model import ClusterState, Partition, Topic
from tidelog.controller.outbox import Outbox
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId, TopicPartition
from tidelog.names import refuse_internal, shown, validate_topic_name
from tidelog.release import LEVEL_0_3
from tidelog.topic_config import LOG_APPEND_TIME, TopicConfig
from tidelog.wire import messages as m

ParseConfig = Callable[[Mapping[str, str]], TopicConfig]
"""Raises TidelogError INVALID_CONFIG with key, value and limit."""


@dataclass(slots=True)
class _Creation:
    token: Token
    slot: int
    write: TopicWrite
    min_insync_replicas: int
    unsettled: set[TopicPartition] = field(default_factory=set)
    """Partitions whose first state is being written."""


@dataclass(slots=True)
class _Deletion:
    waiting: list[tuple[Token, int]]
    """Tokens and slots to answer; none after a failover."""
    remaining: int = 0
    """Partitions whose znodes are still there."""


class TopicDesk:
    """Works on topics through `settle`, the machine's rule for one partition."""

    def __init__(
        self,
        state: ClusterState,
        out: Outbox,
        settle: Callable[[Partition], None],
        parse_config: ParseConfig,
        default_partitions: int,
        default_factor: int,
        is_reconfigured: Callable[[str], bool],
    ) -> None:
        """`is_reconfigured`: whether a write of a topic's settings is under way, which may create their znode."""
        self._is_reconfigured = is_reconfigured
        self._state = state
        self._out = out
        self._settle = settle
        self._parse_config = parse_config
        self._default_partitions = default_partitions
        self._default_factor = default_factor
        self._creations: dict[str, _Creation] = {}
        self._deletions: dict[str, _Deletion] = {}
        self._created: dict[Token, Gather[m.CreatedTopic]] = {}
        self._deleted: dict[Token, Gather[m.DeletedTopic]] = {}

    # creation

    def create(self, event: TopicsCreateRequested) -> None:
        request, token = event.request, event.token
        self._created[token] = Gather(len(request.topics))
        names = Counter(topic.name for topic in request.topics)
        for slot, (topic, draw) in enumerate(zip(request.topics, event.draws, strict=True)):
            try:
                if names[topic.name] > 1:
                    raise TidelogError(f"topics name {shown(topic.name)} more than once", ErrorCode.INVALID_REQUEST)
                creation = self._check(topic, draw, token, slot)
            except TidelogError as error:
                self._answer_created(token, slot, _refused(topic, error))
                continue
            if request.validate_only:
                self._answer_created(token, slot, _accepted(creation.write))
            else:
                self._creations[topic.name] = creation
                self._out.write(creation.write)
        self._close_created(token)

    def _check(self, topic: m.NewTopic, draw: Draw, token: Token, slot: int) -> _Creation:
        validate_topic_name(topic.name)
        refuse_internal(topic.name)
        if topic.name in self._creations or topic.name in self._state.topics:
            doing = ", and is being deleted" if topic.name in self._deletions else ""
            raise TidelogError(f"topic {topic.name!r} already exists{doing}", ErrorCode.TOPIC_ALREADY_EXISTS)
        configs = {entry.key: entry.value for entry in topic.configs}
        if len(configs) != len(topic.configs):
            raise TidelogError("configs name a key more than once", ErrorCode.INVALID_CONFIG)
        config = self._parse_config(configs)
        self._state.check_sizes(configs, config)
        check_features(self._state, configs)
        replicas = placement.plan(
            topic,
            self._state.open_brokers(),
            default_partitions=self._default_partitions,
            default_factor=self._default_factor,
            start=draw.start,
        )
        write = TopicWrite(name=topic.name, topic_id=draw.topic_id, replicas=replicas, configs=configs)
        return _Creation(token, slot, write, config.min_insync_replicas)

    def stored(self, write: TopicWrite) -> None:
        """The topic exists: every partition gets its first state."""
        self._out.because("new")
        creation = self._creations[write.name]
        topic = Topic(write.name, write.topic_id, write.configs, creation.min_insync_replicas)
        self._state.add_topic(topic, write.replicas)
        for partition in topic.partitions:
            self._settle(partition)
        # Where no replica is alive any more the partition waits for one (F01.3); its creator does not.
        creation.unsettled = {each.tp for each in topic.partitions if each.writing is not None}
        self._close_creation(creation)

    def settled(self, tp: TopicPartition) -> None:
        """A partition has its first state."""
        creation = self._creations.get(tp.topic)
        if creation is not None:
            creation.unsettled.discard(tp)
            self._close_creation(creation)

    def _close_creation(self, creation: _Creation) -> None:
        if not creation.unsettled:
            del self._creations[creation.write.name]
            self._answer_created(creation.token, creation.slot, _accepted(creation.write))
            self._close_created(creation.token)

    def not_stored(self, write: TopicWrite, code: ErrorCode, message: str) -> None:
        """Nothing of the topic exists."""
        creation = self._creations.pop(write.name)
        self._answer_created(
            creation.token, creation.slot, _created(write.name, error_code=code, error_message=message)
        )
        self._close_created(creation.token)

    def _answer_created(self, token: Token, slot: int, result: m.CreatedTopic) -> None:
        self._created[token].put(slot, result)

    def _close_created(self, token: Token) -> None:
        results = self._created[token].complete()
        if results is not None:
            del self._created[token]
            self._out.reply(Reply(token, m.CreateTopicsResponse(topics=results)))

    def is_placing_on(self, broker_ids: Collection[BrokerId]) -> bool:
        """Whether a topic that is not stored yet has replicas there."""
        new = (each.write for name, each in self._creations.items() if name not in self._state.topics)
        return any(not set(broker_ids).isdisjoint(row) for write in new for row in write.replicas)

    # deletion

    def is_deleting(self, name: str) -> bool:
        """Whether somebody has asked for it, stored or not yet."""
        return name in self._deletions

    def delete(self, event: TopicsDeleteRequested) -> None:
        names, token = event.request.names, event.token
        self._deleted[token] = Gather(len(names))
        for slot, name in enumerate(names):
            if name in self._deletions:
                self._deletions[name].waiting.append((token, slot))
            elif name in self._creations:
                self._answer_deleted(token, slot, name, ErrorCode.INVALID_REQUEST, "the topic is being created")
            elif name in self._state.topics:
                self._deletions[name] = _Deletion([(token, slot)])
                self._out.write(DeletionMark(name))
            else:
                self._answer_deleted(token, slot, name, *_why_unknown(name))
        self._close_deleted(token)

    def marked(self, name: str) -> None:
        """The deletion is stored, by this controller or by one before it: the topic is gone for everybody."""
        topic = self._state.topics.get(name)
        deletion = self._deletions.setdefault(name, _Deletion([]))
        if topic is None:
            self._out.write(TopicRemoval(name, has_topic_node=False, has_config_node=False))
            return
        topic.deleting = True
        self._out.delete(topic)
        deletion.remaining = len(topic.partitions)
        for partition in topic.partitions:
            if partition.writing is None:
                self.remove(partition)  # the others when their writes are over

    def remove(self, partition: Partition) -> None:
        """`partition` belongs to a topic that is being deleted, and no write of it is under way."""
        if partition.state is None:
            self.removed(partition.tp)
        else:
            self._out.write(PartitionRemoval(partition.tp))

    def removed(self, tp: TopicPartition) -> None:
        deletion = self._deletions[tp.topic]
        deletion.remaining -= 1
        self._remove_topic(self._state.topics[tp.topic], deletion)

    def reconfigured(self, name: str) -> None:
        """No write of its settings is under way any more."""
        topic, deletion = self._state.topics.get(name), self._deletions.get(name)
        if topic is not None and deletion is not None and topic.deleting:
            self._remove_topic(topic, deletion)

    def _remove_topic(self, topic: Topic, deletion: _Deletion) -> None:
        if deletion.remaining == 0 and not self._is_reconfigured(topic.name):
            self._out.write(TopicRemoval(topic.name, has_config_node=topic.has_config_node))

    def gone(self, name: str) -> None:
        """No znode of the topic is left."""
        if name in self._state.topics:
            self._state.remove_topic(name)
        self._end_deletion(name, ErrorCode.NONE, "")

    def not_removed(self, name: str, problem: str) -> None:
        """The store refuses; the next controller tries again."""
        self._end_deletion(name, ErrorCode.UNKNOWN_SERVER_ERROR, problem)

    def _end_deletion(self, name: str, code: ErrorCode, message: str) -> None:
        for token, slot in self._deletions.pop(name, _Deletion([])).waiting:
            self._answer_deleted(token, slot, name, code, message)
            self._close_deleted(token)

    def _answer_deleted(self, token: Token, slot: int, name: str, code: ErrorCode, message: str) -> None:
        self._deleted[token].put(slot, m.DeletedTopic(name=name, error_code=code, error_message=message))

    def _close_deleted(self, token: Token) -> None:
        results = self._deleted[token].complete()
        if results is not None:
            del self._deleted[token]
            self._out.reply(Reply(token, m.DeleteTopicsResponse(topics=results)))


def _why_unknown(name: str) -> tuple[ErrorCode, str]:
    try:
        validate_topic_name(name)
        refuse_internal(name)
    except TidelogError as error:
        return error.code, error.message
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist"


def _created(name: str, *, error_code: ErrorCode, error_message: str) -> m.CreatedTopic:
    return m.CreatedTopic(
        name=name, error_code=error_code, error_message=error_message, num_partitions=-1, replication_factor=-1
    )


def _refused(topic: m.NewTopic, error: TidelogError) -> m.CreatedTopic:
    return _created(topic.name, error_code=error.code, error_message=error.message)


def _accepted(write: TopicWrite) -> m.CreatedTopic:
    return m.CreatedTopic(
        name=write.name,
        topic_id=write.topic_id,
        num_partitions=len(write.replicas),
        replication_factor=len(write.replicas[0]),
    )


def check_features(state: ClusterState, configs: Mapping[str, str]) -> None:
    """UNSUPPORTED_VERSION when a topic is to get a setting that some live broker does not know."""
    if configs.get("message.timestamp.type") == LOG_APPEND_TIME:
        state.check_level(LEVEL_0_3, "message.timestamp.type cannot be LogAppendTime")
