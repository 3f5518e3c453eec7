"""Members: registration (A14), pings and their failure (A4, A9), stop and start answers, leaving, failure (A15)."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from tidelog.coordinator import assignors
from tidelog.coordinator.commits import Commits, Offsets
from tidelog.coordinator.desk import PING_SHARE, Desk
from tidelog.coordinator.effects import Close, Disconnected, Expired, Gone, PingAnswered, Registered, Send, Write
from tidelog.coordinator.events import ConnectionId, MessageArrived, WriteId
from tidelog.coordinator.group import NEVER, NEVER_STARTED, Group, Member
from tidelog.coordinator.model import Phase
from tidelog.coordinator.rebalance import JOIN, Rebalancer
from tidelog.coordinator.schedule import Asked, MemberKey, Timers, Watcher
from tidelog.coordinator.subscription import Subscription, parse
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import WATCH_PORTS
from tidelog.names import TOPIC_NAME_MAX, shown, validate_consumer_id, validate_group_id
from tidelog.wire import messages as m

LEASE: Final = "lease"
"""A member's deadline: its lease is out."""

UNBLOCK: Final = "unblock"
"""A member's deadline: the lease of the incarnation before it is out."""

RESETS: Final = ("smallest", "largest", "")
NAMES_COUNTED_FROM: Final = 1_000
HEAD_BYTES_MAX: Final = 480_000
"""Of what the members take in the znode of their group, which one multi must hold (512 KiB)."""
MEMBER_BYTES: Final = 60
"""Beside its name."""
PROCESSING_MAX_MS: Final = 24 * 3600 * 1000
CLIENT_ID_MAX: Final = TOPIC_NAME_MAX
"""Characters; it is kept and shown as it is."""


class Members:
    def __init__(self, desk: Desk, commits: Commits, rebalancer: Rebalancer) -> None:
        self._desk = desk
        self._commits = commits
        self._rebalancer = rebalancer
        self.pings: Timers[MemberKey] = Timers()
        """The ping scheduler (A9.01)."""
        self._connected: dict[ConnectionId, MemberKey] = {}
        self._departed: set[ConnectionId] = set()
        """Streams of those who have left: what comes after the leave, an answer to a ping that crossed it, means nothing."""
        self._leaving: dict[WriteId, tuple[Group, ConnectionId, int, Offsets]] = {}
        """Group, stream, number of the request and last offsets of those who leave."""
        self._admitting: dict[WriteId, tuple[Group, Member]] = {}
        """Incarnations that take the place of another one when the store names them."""

    # -- what arrives ---------------------------------------------------------------------------------------------------------

    def arrived(self, event: MessageArrived) -> None:
        key = self._connected.get(event.connection)
        message = event.message
        if event.connection in self._departed:
            return
        if key is None:
            if message.register is None:
                self._refuse(event.connection, ErrorCode.INVALID_REQUEST, "the first message of a stream is register")
            else:
                self._register(event, message.register)
            return
        group = self._desk.groups[key.group_id]
        member = group.members[key.consumer_id]
        if message.number <= member.last_number:
            return  # it came before, over this stream or another
        if member.silent and not self._breaks_silence(group, member, message):
            return
        member.last_number = message.number
        member.answered_at, member.spared = self._desk.now, False
        if message.ping is not None:
            self._pinged(group, member, message.number, message.ping)
        elif message.stopped is not None:
            if message.stopped.coordinator_epoch == self._desk.epoch:
                self._rebalancer.stopped(group, member, message.stopped, message.number)
        elif message.started is not None:
            if message.started.coordinator_epoch == self._desk.epoch:
                self._rebalancer.started(group, member, message.started)
        elif message.leave is not None:
            self._leave(group, member, message.number, message.leave)
        else:
            text = (
                "a consumer registers once on a stream" if message.register is not None else "a message without a body"
            )
            self._refuse(event.connection, ErrorCode.INVALID_REQUEST, text)
            self.lost(event.connection)

    def _breaks_silence(self, group: Group, member: Member, message: m.ConsumerMessage) -> bool:
        """The answer that was missing, late: while its lease lasts it may go on, and its group takes it in again."""
        answer = message.stopped or message.started
        if answer is None or (answer.coordinator_epoch, answer.generation) != (self._desk.epoch, member.told):
            return False
        if message.stopped is not None:
            member.stopped |= member.assigned  # it says so only of some; what it still fetches it is told again
        member.silent = False
        self._schedule(group, member)
        self._rebalancer.request(group, "returned")
        return True

    def lost(self, connection: ConnectionId) -> None:
        """The stream is gone; its consumer may come back on another one (A17.03)."""
        self._departed.discard(connection)
        key = self._connected.pop(connection, None)
        if key is None:
            return
        group = self._desk.groups[key.group_id]
        member = group.members[key.consumer_id]
        self._desk.out.append(Disconnected(*key))
        self._disconnect(group, member)
        if self._rebalancer.concerns(group, member):
            self._rebalancer.fail(group, member.consumer_id)

    def _disconnect(self, group: Group, member: Member) -> None:
        key = MemberKey(group.group_id, member.consumer_id)
        member.connection = None
        self.pings.clear(key)
        self._desk.unwatch_pings(group, member)
        self._desk.unwatch(Asked.STOP, group, member)
        self._desk.unwatch(Asked.START, group, member)
        self._desk.deadlines.set((LEASE, *key), member.dead_at)

    # -- registration ---------------------------------------------------------------------------------------------------------

    def _register(self, event: MessageArrived, request: m.RegisterConsumerRequest) -> None:
        try:
            if event.message.number < 1:
                text = f"number {event.message.number} is not at least 1"
                raise TidelogError(text, ErrorCode.INVALID_REQUEST)
            group = self._desk.groups.get(request.group_id)
            subscription = self._check(request, {} if group is None else group.parsed)
            known = None if group is None else group.members.get(request.consumer_id)
            self._check_place(request, group, known)
        except TidelogError as error:
            self._refuse(event.connection, error.code, error.message)
            return
        if group is None:
            group = self._desk.groups[request.group_id] = Group(request.group_id)  # handleNewGroup (A14.03)
        if known is not None and known.incarnation == request.incarnation:
            self._returned(event, group, known, request, subscription)
        else:
            self._joined(event, group, known, request, subscription)

    def _check(self, request: m.RegisterConsumerRequest, parsed: Mapping[str, Subscription]) -> Subscription:
        """Everything that the request says by itself (A14.01). `parsed`: subscriptions of the group's other members."""
        validate_group_id(request.group_id)
        validate_consumer_id(request.consumer_id)
        limits, session_s = self._desk.limits, request.session_timeout_ms / 1000
        if not limits.session_min_s < session_s <= limits.session_max_s:
            text = (
                f"session_timeout_ms {request.session_timeout_ms} is not over {limits.session_min_s * 1000:.0f}"
                f" and at most {limits.session_max_s * 1000:.0f}"
            )
            raise TidelogError(text, ErrorCode.INVALID_SESSION_TIMEOUT)
        if not 0 <= request.max_processing_ms <= PROCESSING_MAX_MS:
            text = f"max_processing_ms {request.max_processing_ms} is not from 0 to {PROCESSING_MAX_MS}"
            raise TidelogError(text, ErrorCode.INVALID_REQUEST)
        if request.watch_port and request.watch_port not in WATCH_PORTS:
            text = f"watch_port {request.watch_port} is neither 0 nor from {WATCH_PORTS[0]} to {WATCH_PORTS[-1]}"
            raise TidelogError(text, ErrorCode.INVALID_REQUEST)
        if request.auto_offset_reset not in RESETS:
            text = f"auto_offset_reset {shown(request.auto_offset_reset)} is not smallest, largest or empty"
            raise TidelogError(text, ErrorCode.INVALID_REQUEST)
        if len(request.client_id) > CLIENT_ID_MAX:
            text = f"client_id has {len(request.client_id)} characters; at most {CLIENT_ID_MAX}"
            raise TidelogError(text, ErrorCode.INVALID_REQUEST)
        if request.assignor and request.assignor not in assignors.ASSIGNORS:
            text = f"assignor {shown(request.assignor)} is not one of {', '.join(assignors.ASSIGNORS)}"
            raise TidelogError(text, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if (found := parsed.get(request.topic_count)) is not None:
            return found
        subscription = parse(request.topic_count)
        count = sum(map(self._desk.partitions, self._desk.topics_of(subscription)))
        if count > limits.partitions_max:
            text = f"topic_count names topics with {count} partitions; at most {limits.partitions_max}"
            raise TidelogError(text, ErrorCode.INVALID_REQUEST)
        return subscription

    def _check_place(self, request: m.RegisterConsumerRequest, group: Group | None, known: Member | None) -> None:
        """Whether the group can take it."""
        if group is None:
            return
        others = len(group.members) - (known is not None)
        assignor = request.assignor or self._desk.limits.default_assignor
        if others and group.assignor and assignor != group.assignor:
            text = f"the members of group {group.group_id!r} have the assignor {group.assignor!r}, not {assignor!r}"
            raise TidelogError(text, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if known is None and others >= self._desk.limits.members_max:
            text = f"group {group.group_id!r} has {others} members; at most {self._desk.limits.members_max}"
            raise TidelogError(text, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if known is None and others >= NAMES_COUNTED_FROM:
            size = sum(map(len, group.members)) + others * MEMBER_BYTES
            if size > HEAD_BYTES_MAX:
                text = (
                    f"the {others} members of group {group.group_id!r} fill its znode; at most {HEAD_BYTES_MAX} bytes"
                )
                raise TidelogError(text, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if known is None or known.incarnation == request.incarnation:
            return
        if known.static and request.static_member and 0 < request.admission < known.admission:
            raise TidelogError(_replaced(request.consumer_id), ErrorCode.DUPLICATE_CONSUMER_ID)
        # A member whose lease is out is dead, though nobody has looked yet.
        if not (known.static and request.static_member) and self._desk.now < known.free_at:
            text = f"consumer id {request.consumer_id!r} belongs to a live member of group {group.group_id!r}"
            raise TidelogError(text, ErrorCode.DUPLICATE_CONSUMER_ID)

    def _returned(
        self,
        event: MessageArrived,
        group: Group,
        member: Member,
        request: m.RegisterConsumerRequest,
        subscription: Subscription,
    ) -> None:
        """On another stream, or with another coordinator: it goes on with what it owns (COORD-9, OPEN-07)."""
        if event.message.number <= member.last_number:
            self._desk.close(event.connection)  # sent before the newest that is here: its stream has been given up
            return
        if member.connection is not None:
            old = member.connection
            self.lost(old)
            self._desk.close(old)
        other_topics = (
            member.subscription is not None
            and member.request is not None
            and (member.request.topic_count != request.topic_count)
        )
        self._connect(event, group, member, request, subscription, returned=True)
        if request.rejoin:
            member.generation, member.assigned = NEVER_STARTED, frozenset()
            member.void.clear()
            self._rebalancer.request(group, "rejoin")
            return
        missed = _missed_its_first_rebalance(group, member)
        self._resume(group, member)
        if other_topics:
            self._rebalancer.request(group, "subscription")
        elif member.void:
            self._rebalancer.request(group, "topics")
        elif missed:
            self._rebalancer.request(group, JOIN, self._desk.limits.join_delay_s)
        self._rebalancer.returned(group)
        self.settle(group)

    def _resume(self, group: Group, member: Member) -> None:
        """What is stored as its own, at once: nobody else is stopped or started."""
        if not member.may_start(self._desk.now):
            return
        if self._rebalancer.is_storing(group) and self._rebalancer.concerns(group, member):
            return  # what is stored may be somebody else's when the write is done: who comes next tells it (N11)
        # A generation that it has heard of would be a repeat to it; what is stored names one that it may have heard of only
        # from an earlier coordinator, whose epoch was lower. A member that has left and joined again may have heard any.
        unheard = member.told < group.generation == group.used
        generation = group.generation if unheard else group.next_generation()
        self._desk.start(group, member, generation, self._commits.newest(group))

    def settle(self, group: Group) -> None:
        """After a failover, once all have returned or are dead: a rebalance that was cut off is finished (A3.02), and
        partitions that came meanwhile are given to somebody."""
        if any(group.absent()):
            return
        if group.incomplete or self._rebalancer.is_outdated(group):
            self._rebalancer.request(group, "failover")

    def _joined(
        self,
        event: MessageArrived,
        group: Group,
        known: Member | None,
        request: m.RegisterConsumerRequest,
        subscription: Subscription,
    ) -> None:
        """handleAddedConsumer (A14.04). A newer incarnation of a static member takes its place (COORD-14)."""
        free_at = NEVER
        if known is not None:
            free_at = known.free_at
            if known.connection is not None:
                old = known.connection
                self.lost(old)
                self._rebalancer.fail(group, known.consumer_id)
                self._refuse(old, ErrorCode.DUPLICATE_CONSUMER_ID, _replaced(known.consumer_id))
        was_empty = not group.members
        member = Member(
            consumer_id=request.consumer_id,
            incarnation=request.incarnation,
            session_s=request.session_timeout_ms / 1000,
            static=request.static_member,
            answered_at=self._desk.now,
            blocked_until=free_at,
            before=None if known is None else known.stored(),
            admitted=known is None,
        )
        group.members[request.consumer_id] = member
        group.empty_since_ms = -1
        self._connect(event, group, member, request, subscription, returned=False)
        if known is None:
            delay_s = self._desk.limits.initial_delay_s if was_empty else self._desk.limits.join_delay_s
            self._rebalancer.request(group, JOIN, delay_s)
        elif self._desk.now >= free_at:
            self.admit(group, member)
        else:
            self._desk.deadlines.set((UNBLOCK, group.group_id, member.consumer_id), free_at)

    def admit(self, group: Group, member: Member) -> None:
        """The lease of the incarnation before it is out. The store names this one before it is started: otherwise the next
        coordinator would take that one for the owner."""
        if member.before is None:
            return
        member.before = None
        write_id = self._desk.next_write()
        self._admitting[write_id] = (group, member)
        self._desk.out.append(Write(write_id, group.group_id, {}, {}, group.last_head))

    def _admitted(self, group: Group, member: Member) -> None:
        """It takes the place: what the one before it owned, and whatever else the group has for it now."""
        member.admitted = True
        if group.members.get(member.consumer_id) is not member:
            return
        self._resume(group, member)
        self._rebalancer.request(group, JOIN, self._desk.limits.join_delay_s)

    def _connect(
        self,
        event: MessageArrived,
        group: Group,
        member: Member,
        request: m.RegisterConsumerRequest,
        subscription: Subscription,
        *,
        returned: bool,
    ) -> None:
        member.request, member.subscription = request, subscription
        if len(group.members) == 1:
            group.assignor = request.assignor or self._desk.limits.default_assignor
        group.parsed[request.topic_count] = subscription
        member.session_s = request.session_timeout_ms / 1000
        member.connection, member.host = event.connection, event.host
        member.silent = member.released = False
        member.last_number = event.message.number
        member.answered_at, member.spared = self._desk.now, False
        if member.static and not member.admission:
            member.admission = self._desk.next_admission()
        self._connected[event.connection] = MemberKey(group.group_id, member.consumer_id)
        self._desk.deadlines.clear((LEASE, group.group_id, member.consumer_id))
        answer = m.RegisterConsumerResponse(coordinator_epoch=self._desk.epoch, admission=member.admission)
        message = m.CoordinatorMessage(last_number=member.last_number, registered=answer)
        registered = Registered(
            group.group_id, member.consumer_id, event.connection, returned, members=len(group.members)
        )
        self._desk.out += [registered, Send(event.connection, message)]
        self._schedule(group, member)

    def _schedule(self, group: Group, member: Member) -> None:
        """Its first ping, at any time within the third, so that those of many members do not come in one moment."""
        member.failed_pings = 0
        key = MemberKey(group.group_id, member.consumer_id)
        self.pings.set(key, self._desk.now + self._desk.rand() * PING_SHARE * member.session_s)

    def _refuse(self, connection: ConnectionId, code: ErrorCode, text: str) -> None:
        """The consumer closes the stream when it reads this, not the coordinator (A12.05, A14.02)."""
        self._desk.refused("register", code)
        answer = m.RegisterConsumerResponse(
            error_code=code, error_message=text, coordinator_epoch=self._desk.epoch, admission=0
        )
        self._desk.out.append(Send(connection, m.CoordinatorMessage(last_number=0, registered=answer)))

    # -- pings ----------------------------------------------------------------------------------------------------------------

    def ping_due(self, key: MemberKey) -> None:
        group = self._desk.groups[key.group_id]
        member = group.members[key.consumer_id]
        member.ping_number += 1
        member.pings.append((member.ping_number, self._desk.now))
        self._desk.ping(group, member)
        self._desk.watch(Asked.PING, group, member, number=member.ping_number)
        self.pings.set(key, self._desk.now + PING_SHARE * member.session_s)

    def _pinged(self, group: Group, member: Member, number: int, response: m.PingResponse) -> None:
        """The answer clears the watchers of its consumer (A10.02, A13.16): it is alive now, whichever ping it answers."""
        if member.pings:
            self._desk.out.append(PingAnswered(self._desk.now - member.pings[0][1]))
        self._desk.unwatch_pings(group, member)
        member.failed_pings = 0
        if response.error_code is not ErrorCode.NONE:
            self._desk.refused("ping", response.error_code)
            self._rebalancer.fail(group, member.consumer_id)
            return
        if (response.coordinator_epoch, response.generation) == (self._desk.epoch, member.generation):
            self._commits.report(group, member, "ping", number, response.offset_info)
        elif response.offset_info:
            self._desk.refused("ping", ErrorCode.ILLEGAL_GENERATION)

    def expired(self, watcher: Watcher) -> None:
        group = self._desk.groups[watcher.member.group_id]
        member = group.members[watcher.member.consumer_id]
        misses = member.failed_pings + 1 if watcher.asked is Asked.PING else 1
        self._desk.out.append(Expired(*watcher.member, watcher.asked, misses))
        if watcher.asked is Asked.PING:
            self._ping_failed(group, member, watcher.number)
            return
        self._let_fall_silent(watcher.member, member)
        self._desk.unwatch_pings(group, member)
        self._desk.deadlines.set((LEASE, *watcher.member), member.dead_at)
        self._rebalancer.fail(group, member.consumer_id)

    def _let_fall_silent(self, key: MemberKey, member: Member) -> None:
        """A member that lives and does not do what it is told is not kept alive any longer (HOLE-47)."""
        member.silent = True
        self.pings.clear(key)

    def _ping_failed(self, group: Group, member: Member, number: int) -> None:
        member.failed_pings += 1
        while member.pings and member.pings[0][0] <= number:
            member.pings.popleft()
        if member.failed_pings > self._desk.limits.failed_pings_max:
            self._desk.deadlines.set((LEASE, group.group_id, member.consumer_id), member.dead_at)

    def lease_over(self, group: Group, member: Member) -> None:
        """Dead, unless it has been heard of since."""
        if member.present and member.failed_pings <= self._desk.limits.failed_pings_max:
            return
        if self._desk.now < member.dead_at:
            self._desk.deadlines.set((LEASE, group.group_id, member.consumer_id), member.dead_at)
        else:
            self.remove(group, member, "failure")

    # -- the end of a member --------------------------------------------------------------------------------------------------

    def remove(self, group: Group, member: Member, reason: str) -> None:
        """handleConsumerFailure (A15): whatever it owned is free, because its lease is out or it has said so."""
        key = MemberKey(group.group_id, member.consumer_id)
        connection = member.connection
        owned = len(group.owned_by(member.consumer_id))
        self._desk.out.append(Gone(*key, reason, owned, members=len(group.members) - 1))
        self._disconnect(group, member)
        self._desk.deadlines.clear((LEASE, *key))
        self._desk.deadlines.clear((UNBLOCK, *key))
        if connection is not None:
            self._connected.pop(connection, None)
            if reason != "leave":
                self._desk.close(connection)
        del group.members[member.consumer_id]
        # Where a request waits, the next attempt begins here, without it.
        self._rebalancer.fail(group, member.consumer_id)
        if group.members:
            if owned:
                if reason == "leave":
                    self._rebalancer.request(group, reason)
                else:
                    self._rebalancer.request_together(group, reason)
            self._rebalancer.returned(group)
            self.settle(group)
        else:
            self._emptied(group)

    def _emptied(self, group: Group) -> None:
        """What it has processed is stored with the time from which its retention counts. Owners stay: they are nobody."""
        self._desk.emptied(group)
        group.parsed.clear()
        self._desk.interests.note(group)
        self._commits.verify_reported(group, dict(group.reported), partial(self._store_empty, group))

    def _store_empty(self, group: Group, ok: Offsets, beyond: Offsets) -> None:
        if self._desk.groups.get(group.group_id) is not group:
            return
        self._commits.drop(group, beyond)
        head = group.head(group.last_generation, Phase.STABLE)
        self._commits.flush(group, self._commits.still_wanted(group, ok), head)

    def _leave(self, group: Group, member: Member, number: int, request: m.LeaveGroupRequest) -> None:
        """The answer comes when the last offsets are stored (HOLE-49); what it owned is free at once."""
        connection = member.connection
        assert connection is not None
        started = request.generation == member.generation
        # A Start may have crossed it on the way: what it says is of what it held until then, and still owns.
        crossed = request.generation > NEVER_STARTED and self._desk.waits_for_start(group.group_id, member)
        if request.coordinator_epoch == self._desk.epoch and (started or crossed):
            self._commits.report(group, member, "leave", number, request.offset_info)
        owned = group.owned_by(member.consumer_id)
        last = {tp: each for tp, each in group.reported.items() if tp in owned}
        self._commits.verify_reported(group, last, partial(self._store_last, group, connection, number))
        if member.static:
            member.released = True  # it comes back: only its lease is given up
            self.lost(connection)
        else:
            self.remove(group, member, "leave")
        self._departed.add(connection)

    def _store_last(self, group: Group, connection: ConnectionId, number: int, ok: Offsets, beyond: Offsets) -> None:
        if self._desk.groups.get(group.group_id) is not group:
            self._left(connection, number)  # deleted meanwhile, and its offsets with it
            return
        self._commits.drop(group, beyond)
        offsets = self._commits.still_wanted(group, ok)
        write_id = self._desk.next_write()
        self._leaving[write_id] = (group, connection, number, dict(offsets))
        self._desk.out.append(Write(write_id, group.group_id, offsets, {}, None))

    def leaving(self, group: Group) -> Iterator[Offsets]:
        """Last offsets of those who leave it, on their way to the store."""
        return (offsets for of, _, _, offsets in self._leaving.values() if of is group)

    def written(self, write_id: WriteId) -> bool:
        """False: it was none of these writes."""
        if write_id in self._admitting:
            self._admitted(*self._admitting.pop(write_id))
            return True
        left = self._leaving.pop(write_id, None)
        if left is None:
            return False
        group, connection, number, offsets = left
        if self._desk.groups.get(group.group_id) is group:
            self._commits.take_stored(group, offsets)
        self._left(connection, number)
        return True

    def _left(self, connection: ConnectionId, number: int) -> None:
        message = m.CoordinatorMessage(last_number=number, left=m.LeaveGroupResponse())
        self._desk.out += [Send(connection, message), Close(connection)]

    # -- this process itself --------------------------------------------------------------------------------------------------

    def paused(self, seconds: float) -> None:
        """Everybody may have answered meanwhile: each gets the time that the pause took, and has at least as much left, in which
        what came in it is read.

        That once after each of its messages: on a starved machine pauses come faster than sessions end, and the dead would stay
        for ever. Pings that are due go out at once: the leases of those who live ran on during the pause.
        """
        now = self._desk.now
        for group in self._desk.groups.values():
            for member in group.members.values():
                member.answered_at = min(now, member.answered_at + seconds)
                missing = seconds - (member.dead_at - now)
                if missing > 0 and not member.spared:
                    member.answered_at, member.spared = min(now, member.answered_at + missing), True
        self._desk.purgatory.postpone_all(seconds)
        self._desk.deadlines.postpone_all(seconds)


def _replaced(consumer_id: str) -> str:
    return f"a newer consumer has registered as {consumer_id!r}"


def _missed_its_first_rebalance(group: Group, member: Member) -> bool:
    """True if its stream was broken when the rebalance ran that it had joined for: nothing was planned for it."""
    return member.generation == NEVER_STARTED and not group.owned_by(member.consumer_id) and not group.reason
