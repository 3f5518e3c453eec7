"""Records protocol events of a member of a group, and keeps which of them lead to its answers.

An answer to a Stop waits for the application, so the present cause is mostly not the one that led to it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tidelog.client import member_events as ev
from tidelog.client.membership import FATAL, FENCED, Membership
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.ports.recorder import CAUSE, Cause, Recorder
from tidelog.values import Message
from tidelog.wire import messages as m


class MemberRecorder:
    """`begin` is called before each step of the membership, `stepped` after it, and `note` before each of its effects is
    carried out. They leave in `CAUSE` what led to the effects."""

    def __init__(self, recorder: Recorder, membership: Membership, position: Callable[[TopicPartition], int]) -> None:
        """`position` returns the next offset to hand out, NO_OFFSET if there is none."""
        self._recorder = recorder
        self._membership = membership
        self._position = position
        self._registrations = 0
        self._lost: Cause | None = None
        """Leads to the next registration."""
        self._stop: Cause | None = None
        """The last Stop; leads to its answer."""
        self._start: Cause | None = None
        """The last Start; leads to its answer, and to fetches."""
        self._order: Cause | None = None
        """The last Stop or Start: the cause of commits."""

    def begin(self, event: ev.Event) -> None:
        self._registrations = self._membership.counters.registrations
        match event:
            case ev.Received(message):
                self._received(message)
            case ev.Opened():
                CAUSE.set(self._lost)
            case ev.Broke() if self._membership.registered:
                CAUSE.set(None)
                self._lost = self._record(m.CoordinatorLost(consumer_id=self._consumer_id))
            case ev.CommitFenced(key) if key == self._membership.started:
                CAUSE.set(None)
                self._fenced(ErrorCode.ILLEGAL_GENERATION, "a commit was refused")
            case _:
                CAUSE.set(None)

    def stepped(self) -> None:
        membership = self._membership
        if membership.counters.registrations > self._registrations:
            self._lost = None
            self._record(m.MemberJoined(consumer_id=self._consumer_id, returned=membership.started is not None))

    def note(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Send(message):
                self._sent(message)
            case ev.Revoke(_, partitions):
                self._stopped(partitions, "StopFetcher")
            case ev.Assign(anew, dropped):
                self._stopped(dropped, "StartFetcher leaves it out")
                for part in anew:
                    if part.offset >= 0:
                        self.started(TopicPartition(part.topic, part.partition), part.offset)
            case ev.Lose(partitions, reason):
                self._stopped(partitions, reason)
            case ev.Left(stored):
                self._record(m.MemberLeft(consumer_id=self._consumer_id, stored=stored))

    def started(self, tp: TopicPartition, offset: int) -> None:
        """Records that `tp` is fetched from `offset` on, where the coordinator or the reset policy has it begin."""
        fields = m.FetchingStarted(group_id=self._group_id, offset=offset)
        self._recorder.record(tp, fields, self._start)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Inside, a request to commit names the order by which the member fetches, or gives back, what it commits."""
        before = CAUSE.set(self._order)
        try:
            yield
        finally:
            CAUSE.reset(before)

    @property
    def _group_id(self) -> str:
        return self._membership.member.group_id

    @property
    def _consumer_id(self) -> str:
        return self._membership.member.consumer_id

    def _record(self, fields: Message) -> Cause | None:
        """Makes the event the cause of what follows."""
        recorded = self._recorder.record(self._group_id, fields)
        CAUSE.set(recorded)
        return recorded

    def _received(self, message: m.CoordinatorMessage) -> None:
        stop, start, registered = message.stop, message.start, message.registered
        if stop is not None:
            received = m.StopFetcherReceived(
                coordinator_epoch=stop.coordinator_epoch, generation=stop.generation, partitions=len(stop.revoked)
            )
            self._stop = self._order = self._record(received)
        elif start is not None:
            partitions = sum(len(each.assigned_parts) for each in start.ownership_info)
            self._start = self._order = self._record(
                m.StartFetcherReceived(
                    coordinator_epoch=start.coordinator_epoch, generation=start.generation, partitions=partitions
                )
            )
        elif registered is not None and registered.error_code in FATAL | FENCED:
            self._fenced(registered.error_code, registered.error_message)

    def _fenced(self, code: ErrorCode, reason: str) -> None:
        self._record(m.MemberFenced(consumer_id=self._consumer_id, code=code, reason=reason))

    def _sent(self, message: m.ConsumerMessage) -> None:
        stopped, started, leave = message.stopped, message.started, message.leave
        if message.ping is not None and message.ping.offset_info:
            CAUSE.set(self._order)
        elif stopped is not None:
            CAUSE.set(self._stop)
            self._record(m.StopFetcherObeyed(generation=stopped.generation, finishing=stopped.finishing))
        elif started is not None:
            CAUSE.set(self._start)
            self._record(m.StartFetcherObeyed(generation=started.generation))
        elif leave is not None:
            self._record(m.MemberLeaving(consumer_id=self._consumer_id, reason=leave.reason))

    def _stopped(self, partitions: Iterable[TopicPartition], why: str) -> None:
        for tp in partitions:
            fields = m.FetchingStopped(group_id=self._group_id, offset=self._position(tp), why=why)
            self._recorder.record(tp, fields)
