"""Records protocol events of a coordinator's groups, and keeps which of them lead to what comes later.

A rebalance waits for others, for answers and for the store, so the present cause is mostly not the one that led to a step.
It has four events for each of thousands of members: their fields are made when they are read.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tidelog.coordinator import effects as fx
from tidelog.coordinator import events as ev
from tidelog.coordinator.schedule import Asked
from tidelog.ids import NO_EPOCH
from tidelog.ports.recorder import CAUSE, Cause, Fields, Origin, Recorder
from tidelog.values import Message
from tidelog.wire import messages as m

_REQUESTS: Final = {Asked.STOP: "StopFetcher", Asked.START: "StartFetcher"}


class _Story:
    """The events of one group that may lead on."""

    __slots__ = ("attempt", "committed", "generation", "sent", "signs", "wanted")

    def __init__(self) -> None:
        self.wanted: Origin | None = None
        """Leads to the next rebalance."""
        self.generation = NO_EPOCH
        """The one of the attempt that runs."""
        self.attempt: Origin | None = None
        """The newest event of that attempt."""
        self.committed: Origin | None = None
        """Led to the newest commit that is not stored yet."""
        self.signs: dict[str, Cause | None] = {}
        """The newest sign that a consumer may be dead, by consumer."""
        self.sent: dict[str, Cause | None] = {}
        """The Stop or Start that a consumer has not answered yet."""


class GroupRecorder:
    """`begin` is called before each step of the machine, and `note` before each of its effects is carried out. It leaves in
    `CAUSE` what led to the effect."""

    def __init__(self, recorder: Recorder) -> None:
        self._record_event = recorder.record
        self._stories: defaultdict[str, _Story] = defaultdict(_Story)
        self._members: dict[ev.ConnectionId, tuple[str, str]] = {}
        """Group and consumer by connection."""
        self._writes: dict[ev.WriteId, str] = {}
        """Groups by the writes under way of their attempts."""
        self._noting: Mapping[type, Callable[[Any], None]] = {
            fx.Send: self._sent,
            fx.Write: self._writing,
            fx.Due: self._due,
            fx.Registered: self._registered,
            fx.Disconnected: self._disconnected,
            fx.Expired: self._expired,
            fx.Gone: self._gone,
            fx.RebalanceWanted: self._wanted,
            fx.RebalanceBegun: self._begun,
            fx.Answered: self._answered,
            fx.Rebalanced: self._ended,
            fx.DeleteGroup: self._deleted,
        }

    def begin(self, event: ev.Event, cause: Origin | None) -> None:
        CAUSE.set(cause)
        match event:
            case ev.WriteDone(write_id):
                group_id = self._writes.pop(write_id, None)
                if group_id is not None:
                    self._stories[group_id].attempt = cause
            case ev.CommitRequested(_, request) if cause is not None and request.group_id in self._stories:
                self._stories[request.group_id].committed = cause
            case ev.MessageArrived(connection, _, message) if cause is not None and message.ping is not None:
                if (member := self._members.get(connection)) is not None:
                    self._stories[member[0]].committed = cause
            case ev.ConnectionLost(connection):
                self._members.pop(connection, None)

    def note(self, effect: fx.Effect) -> None:
        noting = self._noting.get(type(effect))
        if noting is not None:
            noting(effect)

    def _record(self, group_id: str, fields: Fields, cause: Origin | None) -> Cause | None:
        """Makes the event the cause of what follows."""
        if cause is None:
            CAUSE.set(None)
        recorded = self._record_event(group_id, fields, cause)
        CAUSE.set(recorded)
        return recorded

    def _due(self, _: fx.Due) -> None:
        CAUSE.set(None)

    def _deleted(self, effect: fx.DeleteGroup) -> None:
        self._stories.pop(effect.group_id, None)

    # -- members --------------------------------------------------------------------------------------------------------------

    def _registered(self, effect: fx.Registered) -> None:
        group_id, consumer_id = self._members[effect.connection] = (effect.group_id, effect.consumer_id)
        self._stories[group_id].signs.pop(consumer_id, None)
        fields = partial(m.MemberRegistered, consumer_id=consumer_id, returned=effect.returned, members=effect.members)
        self._record(group_id, fields, CAUSE.get())

    def _disconnected(self, effect: fx.Disconnected) -> None:
        fields = partial(m.MemberDisconnected, consumer_id=effect.consumer_id)
        signs = self._stories[effect.group_id].signs
        signs[effect.consumer_id] = self._record(effect.group_id, fields, CAUSE.get())

    def _expired(self, effect: fx.Expired) -> None:
        consumer_id, story = effect.consumer_id, self._stories[effect.group_id]
        if effect.asked is Asked.PING:
            fields: Fields = partial(m.PingMissed, consumer_id=consumer_id, misses=effect.misses)
            before = story.signs.get(consumer_id) if effect.misses > 1 else None
        else:
            fields = partial(m.AnswerMissed, consumer_id=consumer_id, request=_REQUESTS[effect.asked])
            before = story.sent.pop(consumer_id, None)
        story.signs[consumer_id] = self._record(effect.group_id, fields, before)

    def _gone(self, effect: fx.Gone) -> None:
        story = self._stories[effect.group_id]
        story.sent.pop(effect.consumer_id, None)
        sign = story.signs.pop(effect.consumer_id, None)
        fields = partial(
            m.MemberGone,
            consumer_id=effect.consumer_id,
            reason=effect.reason,
            owned=effect.owned,
            members=effect.members,
        )
        self._record(effect.group_id, fields, CAUSE.get() if effect.reason == "leave" else sign)

    # -- rebalances -----------------------------------------------------------------------------------------------------------

    def _wanted(self, effect: fx.RebalanceWanted) -> None:
        self._stories[effect.group_id].wanted = CAUSE.get()

    def _begun(self, effect: fx.RebalanceBegun) -> None:
        story = self._stories[effect.group_id]
        fields = m.RebalanceBegun(
            generation=effect.generation, reason=effect.reason, members=effect.members, stopped=effect.stopped
        )
        story.generation = effect.generation
        story.attempt = self._record(effect.group_id, fields, story.wanted)
        story.wanted = None

    def _sent(self, effect: fx.Send) -> None:
        message = effect.message
        asked, member = message.stop or message.start, self._members.get(effect.connection)
        if message.ping is not None:
            CAUSE.set(None)
        if asked is None or member is None:
            return
        group_id, consumer_id = member
        story = self._stories[group_id]
        # Outside an attempt a member is told what it owns because it has registered.
        cause = story.attempt if asked.generation == story.generation else CAUSE.get()
        if isinstance(asked, m.StopFetcherRequest):
            kind: Callable[..., Message] = m.StopFetcherSent
            partitions = len(asked.revoked)
        else:
            kind, partitions = m.StartFetcherSent, sum([len(each.assigned_parts) for each in asked.ownership_info])
        fields = partial(kind, consumer_id=consumer_id, generation=asked.generation, partitions=partitions)
        story.sent[consumer_id] = self._record(group_id, fields, cause)

    def _answered(self, effect: fx.Answered) -> None:
        story = self._stories[effect.group_id]
        # A consumer that records nothing does not say what led to its answer.
        cause = CAUSE.get() or story.sent.get(effect.consumer_id)
        recorded = self._record(effect.group_id, partial(_answer, effect), cause)
        if not effect.finishing:
            story.sent.pop(effect.consumer_id, None)
            if effect.generation == story.generation:
                story.attempt = recorded

    def _writing(self, write: fx.Write) -> None:
        story = self._stories.get(write.group_id)
        if story is None:
            return
        if write.head is None:
            CAUSE.set(CAUSE.get() or story.committed)  # the commits of an interval are stored together
            story.committed = None
        elif write.head.generation == story.generation:
            self._writes[write.write_id] = write.group_id
            CAUSE.set(story.attempt)

    def _ended(self, effect: fx.Rebalanced) -> None:
        story = self._stories[effect.group_id]
        fields = m.RebalanceEnded(
            generation=effect.generation,
            reason=effect.reason,
            failed=effect.failed,
            stopped=effect.stopped,
            took_ms=round(effect.seconds * 1000),
        )
        # What made an attempt fail is what was handled just now.
        ended = self._record(effect.group_id, fields, CAUSE.get() if effect.failed else story.attempt)
        story.generation, story.attempt = NO_EPOCH, None
        if effect.failed:
            story.wanted = ended


def _answer(effect: fx.Answered) -> m.StopFetcherAnswered | m.StartFetcherAnswered:
    if effect.asked is Asked.START:
        return m.StartFetcherAnswered(consumer_id=effect.consumer_id, generation=effect.generation)
    return m.StopFetcherAnswered(
        consumer_id=effect.consumer_id, generation=effect.generation, finishing=effect.finishing
    )
