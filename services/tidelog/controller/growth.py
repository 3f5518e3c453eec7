"""More partitions for topics, from the request to the answer.

The partitions exist from the moment the longer assignment is stored, in one fenced multi: a new controller finds
partitions without a state and gives them their first one, as it does for a topic whose creation was cut off (row 18).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidelog.controller import placement
from tidelog.controller.effects import PartitionsWrite, ReassignmentWrite, Reply
from tidelog.controller.events import PartitionsCreateRequested, Token
from tidelog.controller.gather import Gather
from tidelog.controller.model import ClusterState, Partition, Topic
from tidelog.controller.operations import can_be_ended
from tidelog.controller.outbox import Outbox
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.names import shown, validate_topic_name
from tidelog.wire import messages as m
from tidelog.wire import znodes


class ForeignAssignment(Exception):
    """A topic's znode holds partitions that no controller of this term has written: the books are wrong."""


@dataclass(slots=True)
class _Growth:
    token: Token
    slot: int
    write: PartitionsWrite
    unsettled: set[TopicPartition] = field(default_factory=set)
    """New partitions whose first state is being written."""


class GrowthDesk:
    """Works on partitions through `settle`, the machine's rule for one of them. One growth of a topic at a time."""

    def __init__(
        self,
        state: ClusterState,
        out: Outbox,
        settle: Callable[[Partition], None],
        is_deleting: Callable[[str], bool],
    ) -> None:
        self._state = state
        self._out = out
        self._settle = settle
        self._is_deleting = is_deleting
        self._growths: dict[str, _Growth] = {}
        self._answers: dict[Token, Gather[m.PartitionsCreated]] = {}

    def create(self, event: PartitionsCreateRequested) -> None:
        request, token = event.request, event.token
        self._answers[token] = Gather(len(request.topics))
        names = Counter(wanted.name for wanted in request.topics)
        for slot, wanted in enumerate(request.topics):
            try:
                if names[wanted.name] > 1:
                    raise TidelogError(f"topics name {shown(wanted.name)} more than once", ErrorCode.INVALID_REQUEST)
                write = self._check(wanted)
            except TidelogError as error:
                self._answer(token, slot, wanted.name, error.code, error.message)
                continue
            if request.validate_only:
                self._answer(token, slot, wanted.name, ErrorCode.NONE, "")
            else:
                self._growths[wanted.name] = _Growth(token, slot, write)
                self._state.topics[wanted.name].being_written = True
                self._out.write(write)
        self._close_answer(token)

    def _check(self, wanted: m.NewPartitions) -> PartitionsWrite:
        topic = self._state.topics.get(wanted.name)
        if topic is None:
            validate_topic_name(wanted.name)
            raise TidelogError(f"topic {wanted.name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.deleting or self._is_deleting(wanted.name):
            raise TidelogError(f"topic {wanted.name!r} is being deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if wanted.name in self._growths:
            raise TidelogError(f"topic {wanted.name!r} is just getting more partitions", ErrorCode.INVALID_REQUEST)
        self._state.check_read(znodes.topic_config_path(wanted.name), f"the settings of topic {wanted.name!r}")
        present = tuple(partition.replicas for partition in topic.partitions)
        # What moves counts as moved: its replicas are the union of before and after.
        added = placement.grow(wanted, [each.target for each in topic.partitions], self._state.open_brokers())
        write = PartitionsWrite(topic.name, topic.topic_id, (*present, *added), topic.version + 1, topic.moves)
        if write.moves and not can_be_ended(ReassignmentWrite((write,))):
            message = (
                f"topic {wanted.name!r} holds as much as its znode can while it is moved: wait until that has ended"
            )
            raise TidelogError(message, ErrorCode.INVALID_PARTITIONS)
        return write

    def stored(self, write: PartitionsWrite) -> None:
        """The partitions exist: each gets its first state."""
        self._out.because("new")
        growth = self._growths[write.name]
        topic = self._topic_of(write)
        if topic is None or topic.deleting:
            # Its znodes go with it; the new partitions never had any.
            self._end(growth, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {write.name!r} has been deleted")
            return
        topic.version, topic.being_written = write.version, False
        added = self._state.add_partitions(topic, write.replicas[len(topic.partitions) :])
        for partition in added:
            self._settle(partition)
        # Where no replica is alive any more the partition waits for one (F01.3); who asked for it does not.
        growth.unsettled = {each.tp for each in added if each.writing is not None}
        self._close(growth)

    def not_stored(self, write: PartitionsWrite, code: ErrorCode, message: str) -> None:
        """The topic is as it was."""
        topic = self._topic_of(write)
        if topic is not None:
            topic.being_written = False
        self._end(self._growths[write.name], code, message)

    def examined(self, write: PartitionsWrite, found: tuple[bytes, int] | None) -> None:
        """After a conflict or an unknown outcome: what is stored counts. BadZnode, ForeignAssignment: resign."""
        topic = self._topic_of(write)
        assignment = None if found is None else znodes.decode_topic(write.name, found[0])
        if topic is None or topic.deleting or assignment is None or assignment.topic_id != write.topic_id:
            message = f"topic {write.name!r} has been deleted"
            self.not_stored(write, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
            return
        assert found is not None
        if assignment == write.stored():
            self.stored(replace(write, version=found[1]))
        elif (assignment.partitions, assignment.moves) == (
            tuple(partition.replicas for partition in topic.partitions),
            topic.moves,
        ):
            topic.version = found[1]
            message = f"the partitions of topic {write.name!r} could not be stored, nothing was changed"
            self.not_stored(write, ErrorCode.REQUEST_TIMED_OUT, message)
        else:
            raise ForeignAssignment(f"somebody else has changed the partitions of topic {write.name!r}")

    def is_growing(self, name: str) -> bool:
        return name in self._growths

    def settled(self, tp: TopicPartition) -> None:
        """A partition has its first state."""
        growth = self._growths.get(tp.topic)
        if growth is not None and tp in growth.unsettled:
            growth.unsettled.discard(tp)
            self._close(growth)

    def gone(self, name: str) -> None:
        """No znode of the topic is left; nobody is going to settle its partitions."""
        growth = self._growths.get(name)
        if growth is not None and growth.unsettled:
            self._end(growth, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} has been deleted")

    def _topic_of(self, write: PartitionsWrite) -> Topic | None:
        topic = self._state.topics.get(write.name)
        return topic if topic is not None and topic.topic_id == write.topic_id else None

    def _close(self, growth: _Growth) -> None:
        if not growth.unsettled:
            self._end(growth, ErrorCode.NONE, "")

    def _end(self, growth: _Growth, code: ErrorCode, message: str) -> None:
        del self._growths[growth.write.name]
        self._answer(growth.token, growth.slot, growth.write.name, code, message)
        self._close_answer(growth.token)

    def _answer(self, token: Token, slot: int, name: str, code: ErrorCode, message: str) -> None:
        self._answers[token].put(slot, m.PartitionsCreated(name=name, error_code=code, error_message=message))

    def _close_answer(self, token: Token) -> None:
        results = self._answers[token].complete()
        if results is not None:
            del self._answers[token]
            self._out.reply(Reply(token, m.CreatePartitionsResponse(topics=results)))
