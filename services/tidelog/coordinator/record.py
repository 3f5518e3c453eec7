"""Records protocol events of a coordinator's groups, and keeps which of them lead to what comes later.

A rebalance waits for others, for answers and for the store, so the present cause is mostly not the one that led to a step.
"""

from typing import Final

from tidelog.coordinator import effects as fx
from tidelog.coordinator import events as ev
from tidelog.coordinator.schedule import Asked
from tidelog.ids import NO_EPOCH
from tidelog.ports.recorder import CAUSE, Cause, Recorder
from tidelog.values import Message
from tidelog.wire import messages as m

_REQUESTS: Final = {Asked.STOP: "StopFetcher", Asked.START: "StartFetcher"}


class _Story:
    """The events of one group that may lead on."""

    __slots__ = ("attempt", "generation", "sent", "signs", "wanted")

    def __init__(self) -> None:
        self.wanted: Cause | None = None
        """Leads to the next rebalance."""
        self.generation = NO_EPOCH
        """The one of the attempt that runs."""
        self.attempt: Cause | None = None
        """The newest event of that attempt."""
        self.signs: dict[str, Cause | None] = {}
        """The newest sign that a consumer may be dead, by consumer."""
        self.sent: dict[str, Cause | None] = {}
        """The Stop or Start that a consumer has not answered yet."""


class GroupRecorder:
    """`begin` is called before each step of the machine, and `note` before each of its effects is carried out. It leaves in
    `CAUSE` what led to the effect."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._stories: dict[str, _Story] = {}
        self._members: dict[ev.ConnectionId, tuple[str, str]] = {}
        """Group and consumer by connection."""
        self._writes: dict[ev.WriteId, str] = {}
        """Groups by the writes under way of their attempts."""

    def begin(self, event: ev.Event, cause: Cause | None) -> None:
        CAUSE.set(cause)
        match event:
            case ev.WriteDone(write_id):
                story = self._stories.get(self._writes.pop(write_id, ""))
                if story is not None:
                    story.attempt = cause
            case ev.ConnectionLost(connection):
                self._members.pop(connection, None)

    def note(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Send(connection, message):
                self._sent(connection, message)
            case fx.Write():
                self._writing(effect)
            case fx.Due():
                CAUSE.set(None)
            case fx.Registered():
                self._registered(effect)
            case fx.Disconnected(group_id, consumer_id):
                self._sign(group_id, consumer_id, m.MemberDisconnected(consumer_id=consumer_id), CAUSE.get())
            case fx.Expired():
                self._expired(effect)
            case fx.Gone():
                self._gone(effect)
            case fx.RebalanceWanted(group_id):
                self._story(group_id).wanted = CAUSE.get()
            case fx.RebalanceBegun():
                self._begun(effect)
            case fx.Answered():
                self._answered(effect)
            case fx.Rebalanced():
                self._ended(effect)
            case fx.DeleteGroup(group_id=group_id):
                self._stories.pop(group_id, None)

    def _story(self, group_id: str) -> _Story:
        return self._stories.setdefault(group_id, _Story())

    def _record(self, group_id: str, fields: Message, cause: Cause | None) -> Cause | None:
        """Makes the event the cause of what follows."""
        CAUSE.set(cause)
        recorded = self._recorder.record(group_id, fields)
        CAUSE.set(recorded)
        return recorded

    # -- members --------------------------------------------------------------------------------------------------------------

    def _registered(self, effect: fx.Registered) -> None:
        self._members[effect.connection] = (effect.group_id, effect.consumer_id)
        story = self._story(effect.group_id)
        story.signs.pop(effect.consumer_id, None)
        fields = m.MemberRegistered(consumer_id=effect.consumer_id, returned=effect.returned, members=effect.members)
        self._record(effect.group_id, fields, CAUSE.get())

    def _sign(self, group_id: str, consumer_id: str, fields: Message, cause: Cause | None) -> None:
        self._story(group_id).signs[consumer_id] = self._record(group_id, fields, cause)

    def _expired(self, effect: fx.Expired) -> None:
        consumer_id, story = effect.consumer_id, self._story(effect.group_id)
        if effect.asked is Asked.PING:
            missed: Message = m.PingMissed(consumer_id=consumer_id, misses=effect.misses)
            before = story.signs.get(consumer_id) if effect.misses > 1 else None
        else:
            missed = m.AnswerMissed(consumer_id=consumer_id, request=_REQUESTS[effect.asked])
            before = story.sent.pop(consumer_id, None)
        self._sign(effect.group_id, consumer_id, missed, before)

    def _gone(self, effect: fx.Gone) -> None:
        story = self._story(effect.group_id)
        story.sent.pop(effect.consumer_id, None)
        sign = story.signs.pop(effect.consumer_id, None)
        fields = m.MemberGone(
            consumer_id=effect.consumer_id, reason=effect.reason, owned=effect.owned, members=effect.members
        )
        self._record(effect.group_id, fields, CAUSE.get() if effect.reason == "leave" else sign)

    # -- rebalances -----------------------------------------------------------------------------------------------------------

    def _begun(self, effect: fx.RebalanceBegun) -> None:
        story = self._story(effect.group_id)
        fields = m.RebalanceBegun(
            generation=effect.generation, reason=effect.reason, members=effect.members, stopped=effect.stopped
        )
        story.generation = effect.generation
        story.attempt = self._record(effect.group_id, fields, story.wanted)
        story.wanted = None

    def _sent(self, connection: ev.ConnectionId, message: m.CoordinatorMessage) -> None:
        asked, member = message.stop or message.start, self._members.get(connection)
        if message.ping is not None:
            CAUSE.set(None)
        if asked is None or member is None:
            return
        group_id, consumer_id = member
        story = self._story(group_id)
        # Outside an attempt a member is told what it owns because it has registered.
        cause = story.attempt if asked.generation == story.generation else CAUSE.get()
        fields: Message
        if isinstance(asked, m.StopFetcherRequest):
            fields = m.StopFetcherSent(
                consumer_id=consumer_id, generation=asked.generation, partitions=len(asked.revoked)
            )
        else:
            partitions = sum(len(each.assigned_parts) for each in asked.ownership_info)
            fields = m.StartFetcherSent(consumer_id=consumer_id, generation=asked.generation, partitions=partitions)
        story.sent[consumer_id] = self._record(group_id, fields, cause)

    def _answered(self, effect: fx.Answered) -> None:
        story = self._story(effect.group_id)
        # A consumer that records nothing does not say what led to its answer.
        cause = CAUSE.get() or story.sent.get(effect.consumer_id)
        fields: Message
        if effect.asked is Asked.STOP:
            fields = m.StopFetcherAnswered(
                consumer_id=effect.consumer_id, generation=effect.generation, finishing=effect.finishing
            )
        else:
            fields = m.StartFetcherAnswered(consumer_id=effect.consumer_id, generation=effect.generation)
        recorded = self._record(effect.group_id, fields, cause)
        if not effect.finishing:
            story.sent.pop(effect.consumer_id, None)
            if effect.generation == story.generation:
                story.attempt = recorded

    def _writing(self, write: fx.Write) -> None:
        story = self._stories.get(write.group_id)
        if story is not None and write.head is not None and write.head.generation == story.generation:
            self._writes[write.write_id] = write.group_id
            CAUSE.set(story.attempt)

    def _ended(self, effect: fx.Rebalanced) -> None:
        story = self._story(effect.group_id)
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
