"""Changes of topics' settings, from the request to the answer (KIP-339).

A change counts from the moment it is stored, in one fenced write on condition of the version that it was judged by. Then the
brokers that hold the topic are told; a new controller tells them everything anyway.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tidelog import topic_config
from tidelog.controller.effects import ConfigsWrite, Outcome, Reply
from tidelog.controller.events import ConfigsAlterRequested, Token
from tidelog.controller.gather import Gather
from tidelog.controller.model import ClusterState, Partition, Topic
from tidelog.controller.outbox import Outbox
from tidelog.controller.topics import ParseConfig, TopicDesk, check_features
from tidelog.errors import ErrorCode, TidelogError
from tidelog.names import shown, validate_topic_name
from tidelog.topic_config import MAX_MESSAGE_BYTES
from tidelog.wire import messages as m
from tidelog.wire import znodes


class ForeignConfigs(Exception):
    """Somebody who is not a controller of this term has changed a topic's settings: the books are wrong."""


@dataclass(frozen=True, slots=True)
class _Change:
    token: Token
    slot: int
    write: ConfigsWrite
    min_insync_replicas: int


class ConfigDesk:
    """One change of a topic at a time. `settle` is the machine's rule for one partition."""

    def __init__(
        self,
        state: ClusterState,
        out: Outbox,
        settle: Callable[[Partition], None],
        topics: TopicDesk,
        parse_config: ParseConfig,
    ) -> None:
        self._state = state
        self._out = out
        self._settle = settle
        self._topics = topics
        self._parse_config = parse_config
        self._changes: dict[str, _Change] = {}
        self._answers: dict[Token, Gather[m.ConfigsAltered]] = {}

    def is_writing(self, name: str) -> bool:
        """Whether a write of the topic's settings is under way."""
        return name in self._changes

    def alter(self, event: ConfigsAlterRequested) -> None:
        request, token = event.request, event.token
        self._answers[token] = Gather(len(request.topics))
        names = Counter(wanted.name for wanted in request.topics)
        for slot, wanted in enumerate(request.topics):
            try:
                if names[wanted.name] > 1:
                    raise TidelogError(f"topics name {shown(wanted.name)} more than once", ErrorCode.INVALID_REQUEST)
                change = self._check(wanted, token, slot)
            except TidelogError as error:
                self._answer(token, slot, wanted.name, error.code, error.message)
                continue
            topic = self._state.topics[wanted.name]
            if request.validate_only or (topic.has_config_node and change.write.configs == topic.configs):
                self._answer(token, slot, wanted.name, ErrorCode.NONE, "")
            else:
                self._changes[wanted.name] = change
                self._out.write(change.write)
        self._close(token)

    def _check(self, wanted: m.TopicConfigChanges, token: Token, slot: int) -> _Change:
        topic = self._state.topics.get(wanted.name)
        if topic is None:
            validate_topic_name(wanted.name)
            raise TidelogError(f"topic {wanted.name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.deleting or self._topics.is_deleting(wanted.name):
            raise TidelogError(f"topic {wanted.name!r} is being deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if wanted.name in self._changes:
            raise TidelogError(
                f"the settings of topic {wanted.name!r} are just being changed", ErrorCode.INVALID_REQUEST
            )
        if not wanted.changes:
            raise TidelogError("changes: empty, at least one is needed", ErrorCode.INVALID_REQUEST)
        self._state.check_read(znodes.topic_config_path(wanted.name), f"the settings of topic {wanted.name!r}")
        configs = topic_config.altered(topic.configs, wanted.changes)
        config = self._parse_config(topic_config.known(configs))
        if configs.get(MAX_MESSAGE_BYTES) != topic.configs.get(MAX_MESSAGE_BYTES):
            self._state.check_sizes(configs, config)
        check_features(self._state, {change.key: change.value for change in wanted.changes if not change.remove})
        version = topic.config_version + 1 if topic.has_config_node else 0
        write = ConfigsWrite(topic.name, topic.topic_id, configs, version)
        return _Change(token, slot, write, config.min_insync_replicas)

    def written(self, write: ConfigsWrite, outcome: Outcome) -> None:
        if outcome is Outcome.WRITTEN:
            self._stored(write)
        elif outcome is Outcome.REFUSED:
            message = f"the store refuses the settings of topic {write.name!r}: too large"
            self._not_stored(write, ErrorCode.INVALID_CONFIG, message)
        else:
            self._out.examine(write)

    def _stored(self, write: ConfigsWrite) -> None:
        """The settings count: who holds the topic hears of them."""
        self._out.because("topics")
        change = self._changes.pop(write.name)
        topic = self._topic_of(write)
        if topic is not None:
            topic.has_config_node, topic.config_version = True, write.version
            self._state.set_configs(topic, write.configs, change.min_insync_replicas)
            self._out.reconfigure(topic)
            for partition in topic.partitions:
                self._settle(partition)  # an unclean election may be allowed now (HOLE-25)
        self._end(change, ErrorCode.NONE, "")

    def _not_stored(self, write: ConfigsWrite, code: ErrorCode, message: str) -> None:
        """The topic says what it said before."""
        self._end(self._changes.pop(write.name), code, message)

    def _end(self, change: _Change, code: ErrorCode, message: str) -> None:
        self._answer(change.token, change.slot, change.write.name, code, message)
        self._close(change.token)
        self._topics.reconfigured(change.write.name)

    def examined(self, write: ConfigsWrite, found: tuple[bytes, int] | None) -> None:
        """After a conflict or an unknown outcome: what is stored counts. BadZnode, ForeignConfigs: resign."""
        topic = self._topic_of(write)
        if topic is None or topic.deleting:
            self._not_stored(write, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {write.name!r} has been deleted")
            return
        configs = None if found is None else znodes.decode_topic_config(write.name, found[0])
        if found is not None and configs == write.configs:
            self._stored(ConfigsWrite(write.name, write.topic_id, write.configs, found[1]))
        elif (configs, topic.has_config_node) in ((topic.configs, True), (None, False)):
            if found is not None:
                topic.config_version = found[1]
            message = f"the settings of topic {write.name!r} could not be stored, nothing was changed"
            self._not_stored(write, ErrorCode.REQUEST_TIMED_OUT, message)
        else:
            raise ForeignConfigs(f"somebody else has changed the settings of topic {write.name!r}")

    def _topic_of(self, write: ConfigsWrite) -> Topic | None:
        topic = self._state.topics.get(write.name)
        return topic if topic is not None and topic.topic_id == write.topic_id else None

    def _answer(self, token: Token, slot: int, name: str, code: ErrorCode, message: str) -> None:
        self._answers[token].put(slot, m.ConfigsAltered(name=name, error_code=code, error_message=message))

    def _close(self, token: Token) -> None:
        results = self._answers[token].complete()
        if results is not None:
            del self._answers[token]
            self._out.reply(Reply(token, m.IncrementalAlterConfigsResponse(topics=results)))
