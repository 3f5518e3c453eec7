"""One consumer's membership of a group: what arrives goes in, what to send and what to do comes out. Pure (A18).

Order is by (coordinator epoch, generation): nothing older than the newest that was heard counts, also for the lease, and over
reconnects (COORD-4). A Start is done once (COORD-5). Offsets are those of the generation that was started (FIND-10).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any, Final

from tidelog.client.lease import Lease
from tidelog.client.member_events import (
    Assign,
    Broke,
    Close,
    CommitFenced,
    Effect,
    Event,
    Fail,
    Join,
    Key,
    Leave,
    Left,
    Lose,
    Member,
    Opened,
    OutOfRange,
    Received,
    Released,
    Revoke,
    Send,
    Tick,
    Wait,
)
from tidelog.client.progress import Progress
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

_NEVER: Final[Key] = (0, 0)
_REGISTER_SHARE: Final = 1 / 3
"""Of a session timeout: how long a coordinator may take to answer a registration, so that the lease outlives two of them."""
_FINISHING_SHARE: Final = 1 / 3
"""Of a session timeout: who is not done with a Stop by then says so (COORD-15, OPEN-02)."""

FATAL: Final = frozenset(
    {
        ErrorCode.DUPLICATE_CONSUMER_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""A registration that is repeated would be refused again. DUPLICATE_CONSUMER_ID is final only for a member that was replaced."""

FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The coordinator knows nothing of what this consumer holds."""


class Standing(Enum):
    """For metrics and operators."""

    JOINING = "joining"
    """Not started yet, or not again."""
    STABLE = "stable"
    REBALANCING = "rebalancing"
    """Stopped, at least in part, and not started since."""
    RECONNECTING = "reconnecting"
    """Without a coordinator; it goes on while its lease lasts (OPEN-07)."""
    LEAVING = "leaving"
    LEFT = "left"
    FAILED = "failed"


class _Stream(Enum):
    CLOSED = 0
    OPEN = 1
    REGISTERED = 2


@dataclass(slots=True)
class _Release:
    """A Stop whose answer waits for the application."""

    key: Key
    since: float
    partitions: list[TopicPartition] = field(default_factory=list)
    tokens: set[int] = field(default_factory=set)
    finishing: bool = False
    """That has been said."""


@dataclass(slots=True)
class _Leaving:
    until: float
    reason: str
    offsets: tuple[m.OffsetInfo, ...]


@dataclass(slots=True)
class Counters:
    stops: int = 0
    starts: int = 0
    pings: int = 0
    losses: int = 0
    """Times that everything was lost without a Stop."""
    registrations: int = 0
    stale: int = 0
    """Messages that were older than what had been heard."""


class Membership:
    def __init__(self, member: Member) -> None:
        self.member = member
        self.session_s = member.session_timeout_ms / 1000
        self._processing_s = member.max_processing_ms / 1000
        self.lease = Lease(self.session_s)
        self.progress = Progress()
        self.counters = Counters()
        self.held: dict[TopicPartition, Key] = {}
        """What it owns and may fetch, and the Start that gave it."""
        self.heard: Key = _NEVER
        self.started: Key | None = None
        """The last Start that it is bound by."""
        self.failure: TidelogError | None = None
        self.working_since: float | None = None
        """Since when the application has not asked for records; None while it does."""
        self.heard_at: float | None = None
        self._stream = _Stream.CLOSED
        self._opened_at = 0.0
        self._wanted = True
        self._release: _Release | None = None
        self._tokens = 0
        self._stopped: tuple[Key, tuple[m.OffsetInfo, ...]] = (_NEVER, ())
        """The last Stop that was answered, and how."""
        self._admission = 0
        """The number that the coordinator gave to this static member; 0 before."""
        self._rejoin = False
        """It has stopped by itself: until a Start has come, registrations ask for a rebalance (A18.02)."""
        self._waits = False
        """Another member has its id; that has been said."""
        self._leaving: _Leaving | None = None
        self._out: list[Effect] = []

    # -- what is known -----------------------------------------------------------------------------------------------------------

    @property
    def wants_stream(self) -> bool:
        return self._wanted and self.failure is None

    @property
    def registered(self) -> bool:
        return self._stream is _Stream.REGISTERED

    @property
    def generation(self) -> int:
        """Of the last Start; 0 without one."""
        return self.started[1] if self.started else 0

    @property
    def standing(self) -> Standing:
        if self.failure is not None:
            return Standing.FAILED
        if self._leaving is not None:
            return Standing.LEAVING
        if not self._wanted:
            return Standing.LEFT
        if self.started is None:
            return Standing.JOINING
        if not self.registered:
            return Standing.RECONNECTING
        return Standing.STABLE if self.heard == self.started else Standing.REBALANCING

    def may_fetch(self, now: float) -> bool:
        """Asked before each fetch and each hand-out: a process that stood still finds out here (COORD-1)."""
        return self.started is not None and self.lease.holds(now) and self._leaving is None

    def next_at(self, now: float) -> float | None:
        """When to give Tick if nothing else happens; None: there is nothing to wait for."""
        times = []
        if self.started is not None:
            times.append(self.lease.until)
        if self._stream is not _Stream.CLOSED:
            times.append(self._silent_at)
        if self._release is not None and not self._release.finishing:
            times.append(self._release.since + _FINISHING_SHARE * self.session_s)
        if self._leaving is not None:
            times.append(self._leaving.until)
        elif self.wants_stream:
            # Of an application that is asking now, as if it went to work at once: it does so without telling.
            times.append((now if self.working_since is None else self.working_since) + self._processing_s)
        return min(times, default=None)

    @property
    def _silent_at(self) -> float:
        """When the coordinator has been silent for too long (A4.08)."""
        if not self.registered or self.heard_at is None:
            return self._opened_at + _REGISTER_SHARE * self.session_s
        return self.heard_at + self.session_s

    def commit_request(self, offsets: Iterable[m.OffsetInfo], now: float) -> m.CommitOffsetsRequest:
        """An active commit, in the name of the last Start; ILLEGAL_GENERATION without one."""
        if self.started is None:
            raise TidelogError(
                f"consumer {self.member.consumer_id!r} owns nothing in group {self.member.group_id!r} now: "
                "what it had may be another's",
                ErrorCode.ILLEGAL_GENERATION,
            )
        return m.CommitOffsetsRequest(
            group_id=self.member.group_id,
            consumer_id=self.member.consumer_id,
            incarnation=self.member.incarnation,
            coordinator_epoch=self.started[0],
            generation=self.started[1],
            number=self.lease.next_number(now),
            offsets=tuple(offsets),
        )

    # -- steps -------------------------------------------------------------------------------------------------------------------

    def step(self, event: Event, now: float) -> list[Effect]:
        if not _is_refusal(event):  # one that waited while the process stood still tells why its lease is out
            self._check_lease(now)
        match event:
            case Opened():
                self._opened(now)
            case Broke():
                self._stream = _Stream.CLOSED
                self.progress.stream_ended()
            case Received(message):
                self._received(message, now)
            case Released(token):
                self._released(token, now)
            case OutOfRange(partition):
                self._out_of_range(partition)
            case CommitFenced(key):
                if key == self.started:
                    self._fenced("a commit was refused")
            case Join():
                self._wanted = self.failure is None
            case Leave(reason):
                self._leave(reason, now)
            case Tick():
                self._time(now)
        out, self._out = self._out, []
        return out

    def _check_lease(self, now: float) -> None:
        if self.started is None or self.lease.holds(now):
            return
        self._lose("its lease has run out")
        self._close()
        if self._leaving is not None:
            self._left(stored=False)

    def _lose(self, reason: str) -> None:
        release = self._release.partitions if self._release else []
        lost = (*self.held, *release)
        self.held.clear()
        self.progress.drop(lost)
        self._release, self.started = None, None
        self.lease.end()
        if lost:
            self.counters.losses += 1
            self._out.append(Lose(lost, reason))

    def _close(self) -> None:
        if self._stream is not _Stream.CLOSED:
            self._stream = _Stream.CLOSED
            self.progress.stream_ended()
            self._out.append(Close())

    def _send(self, now: float, **body: Any) -> int:
        number = self.lease.next_number(now)
        self._out.append(Send(m.ConsumerMessage(number=number, **body)))
        return number

    def _opened(self, now: float) -> None:
        member = self.member
        self._stream, self._opened_at = _Stream.OPEN, now
        register = m.RegisterConsumerRequest(
            group_id=member.group_id,
            consumer_id=member.consumer_id,
            topic_count=member.topic_count,
            auto_commit=member.auto_commit,
            auto_offset_reset=member.auto_offset_reset,
            session_timeout_ms=member.session_timeout_ms,
            incarnation=member.incarnation,
            static_member=member.static,
            max_processing_ms=member.max_processing_ms,
            assignor=member.assignor,
            rejoin=self._rejoin,
            client_id=member.client_id,
            admission=self._admission,
            watch_port=member.watch_port,
        )
        self._send(now, register=register)

    def _time(self, now: float) -> None:
        if self._leaving is not None and now >= self._leaving.until:
            self._close()
            self._left(stored=False)
            return
        if self._stream is not _Stream.CLOSED and now >= self._silent_at:
            self._close()
        release = self._release
        if release is not None and not release.finishing and now >= release.since + _FINISHING_SHARE * self.session_s:
            release.finishing = True
            self._answer_stop(release.key, (), now, finishing=True)
        late = self.working_since is not None and now >= self.working_since + self._processing_s
        if late and self._wanted and self._leaving is None:
            self._leave("the application has not asked for records within max_processing_ms", now)

    # -- what the coordinator says -----------------------------------------------------------------------------------------------

    def _received(self, message: m.CoordinatorMessage, now: float) -> None:
        if self._stream is _Stream.CLOSED:
            return
        if message.registered is not None:
            self._answered(message.registered, message.last_number, now)
        elif message.left is not None:
            self._close()
            if self._leaving is not None:
                self._left(stored=message.left.error_code is ErrorCode.NONE)
        else:
            asked = message.ping or message.stop or message.start
            if asked is None:
                return
            key = (asked.coordinator_epoch, asked.generation)
            if key < self.heard:
                self.counters.stale += 1
                return
            self.heard, self.heard_at = key, now
            self._arrived(message.last_number)
            self._do(asked, key, now)

    def _arrived(self, number: int) -> None:
        self.lease.arrived(number)
        self.progress.arrived(number)

    def _answered(self, answer: m.RegisterConsumerResponse, last_number: int, now: float) -> None:
        code = answer.error_code
        if code is not ErrorCode.NONE:
            self._refused(code, answer.error_message)
        elif answer.coordinator_epoch < self.heard[0]:
            self.counters.stale += 1
            self._close()  # it does not know yet that its term is over
        else:
            self._stream, self.heard_at = _Stream.REGISTERED, now
            self._admission = answer.admission or self._admission
            self._waits = False
            self.counters.registrations += 1
            self._arrived(last_number)
            if self._leaving is not None and not self._leaving.offsets:
                self._say_leave(now)
            # else with the Start that follows: offsets count in the generation that it names

    def _refused(self, code: ErrorCode, message: str) -> None:
        """Whatever it refuses, the consumer closes the stream (A12.05)."""
        member = self.member
        error = TidelogError(
            f"consumer {member.consumer_id!r} of group {member.group_id!r}: {message or code.name}", code
        )
        replaced = self.registered or self._admission > 0
        self._close()
        if self._leaving is not None and (code in FATAL or code in FENCED):
            self._left(stored=False)
        elif code is ErrorCode.DUPLICATE_CONSUMER_ID and not replaced:
            # Perhaps the one before it, which has crashed: it is free when the lease of that one is out.
            self._fenced(error.message)
            if not self._waits:
                self._waits = True
                self._out.append(Wait(error))
        elif code in FATAL:
            self.failure = error
            self._lose(error.message)
            self._out.append(Fail(error))
        elif code in FENCED:
            self._fenced(message or code.name)

    def _fenced(self, reason: str) -> None:
        """A member that the coordinator does not know begins anew; its generations may, too."""
        self._close()
        self._lose(reason)
        self.heard = (self.heard[0], 0)

    def _do(self, asked: m.PingRequest | m.StopFetcherRequest | m.StartFetcherRequest, key: Key, now: float) -> None:
        match asked:
            case m.PingRequest():
                self._ping(key, now)
            case m.StopFetcherRequest() if self._leaving is None:
                self._stop(asked, key, now)
            case m.StartFetcherRequest() if self._leaving is None:
                self._start(asked, key, now)
            case m.StartFetcherRequest():
                assert self._leaving is not None
                self.started = key
                self._leaving.offsets = _not_behind(self._leaving.offsets, asked)
                self._say_leave(now)

    def _ping(self, key: Key, now: float) -> None:
        self.counters.pings += 1
        counts = self.member.auto_commit and key == self.started and self._leaving is None
        offsets = self.progress.untold() if counts else ()
        ping = m.PingResponse(
            consumer_id=self.member.consumer_id,
            offset_info=offsets,
            coordinator_epoch=key[0],
            generation=key[1],
        )
        self.progress.reported(self._send(now, ping=ping), offsets)

    def _stop(self, request: m.StopFetcherRequest, key: Key, now: float) -> None:
        if key == self.started:
            return  # its Start has come already
        named = [TopicPartition(p.topic, p.partition) for p in request.revoked] or [*self.held]
        revoked = [tp for tp in named if tp in self.held]
        if key != self._stopped[0] and (self._release is None or self._release.key != key):
            self.counters.stops += 1
        if self._release is None and not revoked:
            self._answer_stop(key, self._stopped[1] if self._stopped[0] == key else (), now)
            return
        for tp in revoked:
            del self.held[tp]
        before = self._release
        if before is None or before.key != key:
            self._release = _Release(key, now)
            if before is not None:
                self._release.partitions, self._release.tokens = before.partitions, before.tokens
        assert self._release is not None
        if revoked:
            self._tokens += 1
            self._release.partitions += revoked
            self._release.tokens.add(self._tokens)
            self._out.append(Revoke(self._tokens, tuple(revoked)))

    def _released(self, token: int, now: float) -> None:
        release = self._release
        if release is None:
            return
        release.tokens.discard(token)  # that of a Stop which a Start has ended is not among them
        if release.tokens:
            return
        self._release = None
        offsets = self.progress.processed(release.partitions) if self.member.auto_commit else ()
        self.progress.drop(release.partitions)
        self._answer_stop(release.key, offsets, now)

    def _answer_stop(self, key: Key, offsets: tuple[m.OffsetInfo, ...], now: float, *, finishing: bool = False) -> None:
        if not finishing:
            self._stopped = (key, offsets)
        stopped = m.StopFetcherResponse(
            consumer_id=self.member.consumer_id,
            offset_info=offsets,
            coordinator_epoch=key[0],
            generation=key[1],
            started_generation=self.generation,
            finishing=finishing,
        )
        if self.registered:
            self._send(now, stopped=stopped)

    def _start(self, request: m.StartFetcherRequest, key: Key, now: float) -> None:
        if key != self.started:
            self.counters.starts += 1
            if self.started is not None and self.started[0] != key[0]:
                self.progress.term_began()
            # Reports that had not arrived when it was sent are refused, as of the generation before: they are made again.
            self.progress.stream_ended()
            self._take(request, key)
            self.started, self._rejoin = key, False
        started = m.StartFetcherResponse(
            consumer_id=self.member.consumer_id, coordinator_epoch=key[0], generation=key[1]
        )
        self._send(now, started=started)

    def _take(self, request: m.StartFetcherRequest, key: Key) -> None:
        given = {TopicPartition(p.topic, p.partition): p for o in request.ownership_info for p in o.assigned_parts}
        dropped = [tp for tp in self.held if tp not in given or self._is_another_topic(given[tp])]
        kept = {tp: since for tp, since in self.held.items() if tp not in dropped}
        anew = [tp for tp in given if tp not in kept]
        self.progress.drop((*anew, *dropped, *(self._release.partitions if self._release else ())))
        self.progress.given({tp: given[tp].topic_id for tp in anew})
        self.held = {tp: kept.get(tp, key) for tp in given}
        self._release = None
        self._out.append(Assign(tuple(given[tp] for tp in anew), tuple(dropped), request.brokers_info))

    def _is_another_topic(self, part: m.AssignedPartition) -> bool:
        """True if `part` is not of the topic of the name that is held: the position in that one means nothing in this one."""
        known = self.progress.topic_id(TopicPartition(part.topic, part.partition))
        return bool(known and part.topic_id) and known != part.topic_id

    # -- what the application does -----------------------------------------------------------------------------------------------

    def _out_of_range(self, partition: TopicPartition) -> None:
        if partition in self.held:
            self._rejoin = True
            self._close()
            self._lose(f"the offset of {partition} is out of range")

    def _leave(self, reason: str, now: float) -> None:
        if self._leaving is not None or not self.wants_stream:
            return
        lost = (*self.held, *(self._release.partitions if self._release else ()))
        # All of them, also what was told: nobody knows here whether it is stored (HOLE-49).
        offsets = self.progress.processed(lost) if self.member.auto_commit else ()
        self._leaving = _Leaving(now + self.session_s, reason, offsets)
        self.held.clear()
        self._release = None
        self.progress.drop(lost)
        if lost:
            self._out.append(Lose(lost, reason))
        if self.registered:
            self._say_leave(now)
        elif self.started is None:
            self._close()
            self._left(stored=False)

    def _say_leave(self, now: float) -> None:
        assert self._leaving is not None
        epoch, generation = self.started or self.heard
        leave = m.LeaveGroupRequest(
            consumer_id=self.member.consumer_id,
            coordinator_epoch=epoch,
            generation=generation,
            offset_info=self._leaving.offsets,
            reason=self._leaving.reason,
        )
        self._send(now, leave=leave)

    def _left(self, *, stored: bool) -> None:
        """Whoever joins again begins anew; what is left of the order is the coordinator's epoch."""
        self._leaving, self._wanted, self.started = None, False, None
        self.heard = (self.heard[0], 0)
        self.lease.end()
        self._out.append(Left(stored))


def _not_behind(offsets: Iterable[m.OffsetInfo], start: m.StartFetcherRequest) -> tuple[m.OffsetInfo, ...]:
    """Returns those offsets of former generations that may be stored in this one: another member may have gone further since."""
    given = {(p.topic, p.partition): p.offset for o in start.ownership_info for p in o.assigned_parts}
    return tuple(each for each in offsets if each.offset >= given.get((each.topic, each.partition), inf))


def _is_refusal(event: Event) -> bool:
    answer = event.message.registered if isinstance(event, Received) else None
    return answer is not None and answer.error_code is not ErrorCode.NONE
