"""Rebalances (A16): handlers with a queue each, and attempts that stop, store and start.

An attempt works on the members that were present when it began. What absent ones own stays theirs until they are dead, so
that nobody waits for them. With `incremental` only members that lose something are stopped, and only for that; without it
everybody stops everything, as documented.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tidelog.coordinator.assignors import assign
from tidelog.coordinator.commits import Commits, Offsets
from tidelog.coordinator.desk import Desk
from tidelog.coordinator.effects import Alarm, Answered, RebalanceBegun, Rebalanced, RebalanceWanted, Write
from tidelog.coordinator.events import WriteId
from tidelog.coordinator.group import NEVER_STARTED, Attempt, Group, Member, Step
from tidelog.coordinator.model import Committed, Owner, Phase
from tidelog.coordinator.schedule import Asked
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

REBALANCE: Final = "rebalance"
"""A group's deadline: its request has waited long enough for others, or its back-off is over."""

START: Final = "start"
"""A group's deadline: other members are to be started."""

STARTS_MAX: Final = 5_000
"""Partitions that members are given in one step; one member may be given more."""

PAUSE_S: Final = 0.001
"""Between two of these steps."""

JOIN: Final = "join"
LARGEST: Final = "largest"


@dataclass(slots=True)
class Handler:
    """RebalanceRequestHandler of D0 (A7.05, A20.04): one group at a time, in the order of the requests."""

    queue: deque[str] = field(default_factory=deque)
    current: str | None = None
    taking: bool = False
    """It is at its queue already: groups that need nothing are done one after the other, not one inside the other."""


class Rebalancer:
    def __init__(self, desk: Desk, commits: Commits) -> None:
        self._desk = desk
        self._commits = commits
        self.handlers = [Handler() for _ in range(desk.limits.handlers)]
        self._next_handler = 0
        self._writes: dict[WriteId, str] = {}

    # -- requests -------------------------------------------------------------------------------------------------------------

    def request(self, group: Group, reason: str, delay_s: float = 0.0) -> None:
        """addRebalanceRequest. A delayed one waits for others, which take it along; one without delay takes all along."""
        if group.rebalance_initiated:
            return
        desk, key = self._desk, (REBALANCE, group.group_id)
        desk.out.append(RebalanceWanted(group.group_id))
        if delay_s <= 0:
            group.reason = group.reason or reason
            desk.deadlines.clear(key)
            self._push(group)
            return
        if not group.reason:
            group.reason, group.asked_at = reason, desk.now
        desk.deadlines.set(key, min(desk.now + delay_s, group.asked_at + desk.limits.join_delay_max_s))

    def request_together(self, group: Group, reason: str) -> None:
        """At the end of this step, without delay: thousands may die in one step, and it is one rebalance that follows."""
        if not group.rebalance_initiated:
            group.reason = reason
            self._desk.out.append(RebalanceWanted(group.group_id))
            self._desk.deadlines.set((REBALANCE, group.group_id), self._desk.now)

    def due(self, group: Group) -> None:
        if group.rebalance_initiated:
            return
        leases = [each.dead_at for each in group.absent() if each.consumer_id in group.owned]
        if group.reason == JOIN and leases and self._desk.now < min(leases):
            # A consumer that crashes and comes again under another name is to cost the others one rebalance, not two, and a
            # crash loop is to take nothing from them in each round (row 23).
            self._desk.deadlines.set((REBALANCE, group.group_id), min(leases))
            group.awaits_lease = True
        else:
            self._push(group)

    def returned(self, group: Group) -> None:
        """A member is back: what waited for its lease need not wait any more."""
        if group.awaits_lease:
            self.due(group)

    def _push(self, group: Group) -> None:
        if group.current_rebalancer is None:
            group.current_rebalancer = self._next_handler
            self._next_handler = (self._next_handler + 1) % len(self.handlers)
        group.rebalance_initiated = True
        group.awaits_lease = False
        self.handlers[group.current_rebalancer].queue.append(group.group_id)
        for number in (group.current_rebalancer, *range(len(self.handlers))):
            self._run(number)

    def _run(self, number: int) -> None:
        handler = self.handlers[number]
        if handler.taking:
            return
        handler.taking = True
        while handler.current is None and (handler.queue or self._relieve(handler)):
            group = self._desk.groups.get(handler.queue.popleft())
            if group is None:
                continue
            handler.current = group.group_id
            group.current_rebalancer = number
            group.rebalance_initiated = False
            self._begin(group)
        handler.taking = False

    def _relieve(self, idle: Handler) -> bool:
        """Takes a group over that waits behind another one, which an application may hold up for minutes, but none whose own
        attempt runs there: one handler works on a group at a time (N13)."""
        for other in self.handlers:
            for group_id in other.queue:
                if group_id != other.current:
                    other.queue.remove(group_id)
                    idle.queue.append(group_id)
                    return True
        return False

    # -- an attempt: stop -----------------------------------------------------------------------------------------------------

    def _begin(self, group: Group) -> None:
        desk = self._desk
        reason, group.reason = group.reason, ""
        group.prune()
        desk.interests.note(group)
        attempt = self._plan(group, reason)
        if attempt is None:
            self._finish(group)
            return
        group.attempt = attempt
        desk.out.append(
            RebalanceBegun(
                group.group_id, attempt.generation, reason, members=len(attempt.members), stopped=len(attempt.revoked)
            )
        )
        for consumer_id, revoked in attempt.revoked.items():
            attempt.waiting.add(consumer_id)
            everything = () if not desk.limits.incremental else tuple(sorted(revoked))
            desk.stop(group, group.members[consumer_id], attempt.generation, everything)
        self._go_on(group)

    def interest(self, group: Group) -> dict[str, int]:
        """Topics that a member subscribes to, with their partitions; those that do not exist yet count nothing (A3.08)."""
        topics: dict[str, int] = {}
        for subscription in group.parsed.values():
            for topic in self._desk.topics_of(subscription):
                topics[topic] = self._desk.partitions(topic)
        return topics

    def is_outdated(self, group: Group) -> bool:
        """Topics have grown or gone while nobody coordinated the group, or gone while who owned some of them was away and kept
        it: no news of it comes any more. Nor of an owner that an earlier coordinator knew to be no member: it died before it
        gave the partitions to others."""
        if not group.generation:
            return False
        if any(not self._desk.exists(tp) for tp in group.owners):
            return True
        if group.seen:
            return False
        if not group.owned.keys() <= group.members.keys():
            return True
        interest = self.interest(group)
        everything = {TopicPartition(topic, p) for topic, count in interest.items() for p in range(count)}
        if everything != group.owners.keys():
            return True
        group.seen = interest
        return False

    def _plan(self, group: Group, reason: str) -> Attempt | None:
        """isRebalanceNecessary (A16.02, A16.04): None when everything is as it should be, or nobody is there to be told."""
        desk = self._desk
        present = {each.consumer_id: each for each in group.members.values() if each.may_start(desk.now)}
        if not present:
            group.seen = {}  # whoever returns is to be given what has come by then (`is_outdated`)
            return None
        group.seen = interest = self.interest(group)
        # Of those that are dead nothing is left in `members`, so that what they owned is free.
        held = {tp for tp, owner in group.owners.items() if self._is_held(group, owner, present)}
        current = {tp: owner.thread_id for tp, owner in group.owners.items() if tp not in held and desk.exists(tp)}
        subscriptions = {name: each.subscription for name, each in present.items() if each.subscription is not None}
        target = assign(group.assignor, subscriptions, interest, current, held)
        wanted: dict[str, set[TopicPartition]] = {name: set() for name in present}
        for tp, thread in target.items():
            wanted[_consumer_of(thread)].add(tp)
        frozen = {name: frozenset(tps) for name, tps in wanted.items()}
        changed = any(current.get(tp) != thread for tp, thread in target.items()) or any(
            tp not in target and tp not in held for tp in group.owners
        )
        untold = [each for each in present.values() if _is_untold(each, frozen[each.consumer_id])]
        if not (changed or untold or group.incomplete or group.phase is Phase.STARTING):
            return None
        revoked = {}
        for name, each in present.items():
            lost = group.owned_by(name) & each.assigned - frozen[name] | each.void
            if lost or (not desk.limits.incremental and each.generation != NEVER_STARTED):
                revoked[name] = lost if desk.limits.incremental else each.assigned | each.void
        return Attempt(group.next_generation(), reason, desk.now, tuple(present), target, frozen, revoked)

    def _is_held(self, group: Group, owner: Owner, present: dict[str, Member]) -> bool:
        return owner.consumer_id not in present and owner.consumer_id in group.members

    def stopped(self, group: Group, member: Member, response: m.StopFetcherResponse, number: int) -> None:
        """A StopFetcherResponse of the attempt that runs; others are dropped (COORD-13)."""
        attempt = group.attempt
        if attempt is None or response.generation != attempt.generation or member.consumer_id not in attempt.waiting:
            return
        if attempt.step is not Step.STOPPING:
            return
        if response.finishing:
            if member.consumer_id in attempt.finishing:
                return  # once: it could go on saying so
            attempt.finishing.add(member.consumer_id)
            self._answered(group, member, Asked.STOP, attempt.generation, finishing=True)
            seconds = 0 if member.request is None else member.request.max_processing_ms / 1000
            self._desk.watch(Asked.STOP, group, member, max(seconds, member.session_s))
            return
        if response.error_code is not ErrorCode.NONE:
            self._refused(group, member, Asked.STOP, response.error_code)
            return
        self._answered(group, member, Asked.STOP, attempt.generation)
        self._desk.unwatch(Asked.STOP, group, member)
        if response.started_generation == member.generation:
            self._commits.report(group, member, "stop", number, response.offset_info)
        member.stopped |= attempt.revoked[member.consumer_id]
        member.void -= attempt.revoked[member.consumer_id]
        attempt.waiting.discard(member.consumer_id)
        self._go_on(group)

    def _answered(
        self, group: Group, member: Member, asked: Asked, generation: int, *, finishing: bool = False
    ) -> None:
        self._desk.out.append(Answered(group.group_id, member.consumer_id, asked, generation, finishing))

    # -- store ----------------------------------------------------------------------------------------------------------------

    def _go_on(self, group: Group) -> None:
        attempt = group.attempt
        assert attempt is not None
        if attempt.waiting or attempt.to_start:
            return
        if attempt.step is Step.STOPPING:
            attempt.step = Step.CHECKING
            self._commits.verify_reported(group, dict(group.reported), partial(self._store, group, attempt))
        elif attempt.step is Step.STARTING:
            attempt.step = Step.CONFIRMING
            attempt.write_id = self._write(group, {}, {}, attempt.generation, Phase.STABLE)

    def _store(self, group: Group, attempt: Attempt, ok: Offsets, beyond: Offsets) -> None:
        """Offsets first, then the owners, then the generation that they are of, before anybody is started (HOLE-46)."""
        self._commits.drop(group, beyond)
        if group.attempt is not attempt or attempt.failed:
            return
        self._commits.flush(group, {})  # what was committed before goes before
        attempt.owners = {
            tp: Owner(thread, _consumer_of(thread), attempt.generation)
            for tp, thread in attempt.target.items()
            if (owner := group.owners.get(tp)) is None or owner.thread_id != thread
        }
        gone = (tp for tp, owner in group.owners.items() if tp not in attempt.target and self._is_free(group, owner))
        attempt.owners.update(dict.fromkeys(gone))
        attempt.step = Step.STORING
        offsets = self._commits.still_wanted(group, ok) | self._first_records(group, attempt)
        attempt.write_id = self._write(group, offsets, attempt.owners, attempt.generation, Phase.STARTING)
        attempt.offsets = dict(offsets)

    def _first_records(self, group: Group, attempt: Attempt) -> Offsets:
        """The start of each partition that is newer than the group, for owners with the reset policy `largest`, which would
        leave out what it has by now. It is stored, so that every later owner begins there."""
        if group.began is None:
            group.began = self._desk.newest_topic()
            return {}
        new = {tp for tp in attempt.target if self._is_newer(group, tp)}
        known = self._commits.newest(group)
        owners = {tp: group.members[_consumer_of(attempt.target[tp])].request for tp in new - known.keys()}
        return {
            tp: Committed(0, topic_id=self._desk.topic_id(tp.topic))
            for tp, each in owners.items()
            if each and each.auto_offset_reset == LARGEST
        }

    def _is_newer(self, group: Group, tp: TopicPartition) -> bool:
        """Its topic was created after the group began, or had fewer partitions in every generation before this one."""
        if not self._desk.exists(tp):
            return False
        has_grown = tp not in group.owners and TopicPartition(tp.topic, 0) in group.owners
        return has_grown or self._desk.topics[tp.topic].created > (group.began or 0)

    def _is_free(self, group: Group, owner: Owner) -> bool:
        attempt = group.attempt
        return owner.consumer_id not in group.members or (attempt is not None and owner.consumer_id in attempt.members)

    def _write(
        self,
        group: Group,
        offsets: Offsets,
        owners: dict[TopicPartition, Owner | None],
        generation: int,
        phase: Phase,
    ) -> WriteId:
        write_id = self._desk.next_write()
        self._writes[write_id] = group.group_id
        self._desk.out.append(Write(write_id, group.group_id, offsets, owners, group.head(generation, phase)))
        return write_id

    def written(self, write_id: WriteId) -> bool:
        """False: it was none of these writes."""
        group_id = self._writes.pop(write_id, None)
        if group_id is None:
            return False
        group = self._desk.groups.get(group_id)
        attempt = None if group is None else group.attempt
        if group is None or attempt is None or attempt.write_id != write_id:
            return True
        attempt.write_id = None
        if attempt.step is Step.CONFIRMING:
            group.phase = Phase.STABLE
            self._complete(group)
            return True
        # It is stored, whatever has become of the attempt meanwhile.
        for tp, owner in attempt.owners.items():
            group.set_owner(tp, owner)
        self._commits.take_stored(group, attempt.offsets)
        group.generation = attempt.generation
        group.phase = Phase.STARTING
        if attempt.failed:
            self._retry(group)
        else:
            self._start(group, attempt)
        return True

    # -- start ----------------------------------------------------------------------------------------------------------------

    def _start(self, group: Group, attempt: Attempt) -> None:
        attempt.step = Step.STARTING
        attempt.to_start.extend(attempt.members)
        self.start_more(group)

    def start_more(self, group: Group) -> None:
        """Starts the next members of an attempt, so many that the broker's other work does not wait for all of them."""
        attempt = group.attempt
        if attempt is None or not attempt.to_start:
            return
        # A commit may be in the same transaction as the owners, and not be taken note of yet.
        newest = self._commits.newest(group)
        room = STARTS_MAX
        while attempt.to_start and room > 0:
            member = group.members[attempt.to_start.popleft()]
            if not member.may_start(self._desk.now) or member.told > attempt.generation:
                continue  # another incarnation, or back from a break in which nothing of its own was changed
            if not self._desk.limits.incremental or _is_untold(member, group.owned_by(member.consumer_id)):
                attempt.waiting.add(member.consumer_id)
                self._desk.start(group, member, attempt.generation, newest)
                room -= 1 + len(member.assigned)
        if attempt.to_start:
            self._desk.deadlines.set((START, group.group_id), self._desk.now + PAUSE_S)
        self._go_on(group)

    def started(self, group: Group, member: Member, response: m.StartFetcherResponse) -> None:
        if response.generation != member.generation:
            return
        self._answered(group, member, Asked.START, response.generation)
        if response.error_code is not ErrorCode.NONE:
            member.assigned = frozenset()  # so that it is started again
            self._refused(group, member, Asked.START, response.error_code)
            return
        self._desk.unwatch(Asked.START, group, member)
        attempt = group.attempt
        if attempt is not None and attempt.step is Step.STARTING and response.generation == attempt.generation:
            attempt.waiting.discard(member.consumer_id)
            self._go_on(group)

    def _refused(self, group: Group, member: Member, asked: Asked, code: ErrorCode) -> None:
        """It lives, and cannot do what it is told: not now, perhaps after a back-off."""
        self._desk.refused(asked.value, code)
        self._desk.unwatch(asked, group, member)
        if group.attempt is not None:
            self.fail(group, member.consumer_id)
        else:
            self.request(group, "returned")

    # -- the end of an attempt ------------------------------------------------------------------------------------------------

    def is_storing(self, group: Group) -> bool:
        """New owners are on their way to the store."""
        return group.attempt is not None and group.attempt.step is Step.STORING

    def concerns(self, group: Group, member: Member) -> bool:
        """The attempt that runs wants something of it."""
        attempt, name = group.attempt, member.consumer_id
        return attempt is not None and (
            name in attempt.waiting
            or name in attempt.revoked
            or attempt.wanted.get(name, member.assigned) != member.assigned
        )

    def fail(self, group: Group, consumer_id: str) -> None:
        """A member of the attempt that runs is dead, gone, or has not answered (A15.02, A16.06, A20.08)."""
        attempt = group.attempt
        if attempt is None or attempt.failed or consumer_id not in attempt.members:
            return
        attempt.failed = True
        if attempt.write_id is None:
            self._retry(group)
        # else what is on its way to the store counts: it goes on when that is known

    def _retry(self, group: Group) -> None:
        """A new attempt after a back-off that doubles. However often it fails it is tried again (HOLE-47)."""
        attempt, limits = group.attempt, self._desk.limits
        assert attempt is not None
        self._report(group, attempt, failed=True)
        for name in attempt.waiting:
            if (member := group.members.get(name)) is not None:
                self._desk.unwatch(Asked.STOP, group, member)
                self._desk.unwatch(Asked.START, group, member)
        group.attempt = None
        group.failures += 1
        if group.failures > limits.rebalance_retries_max:
            text = (
                f"ConsumerRebalanceFailedException: {group.failures} attempts in a row have failed ({attempt.reason})"
            )
            self._desk.out.append(Alarm(group.group_id, text))
        pause_s = min(limits.backoff_s * 2 ** min(group.failures - 1, 30), limits.backoff_max_s)
        group.reason, group.asked_at = group.reason or attempt.reason, self._desk.now
        if not group.rebalance_initiated:
            self._desk.deadlines.set(
                (REBALANCE, group.group_id), self._desk.now + pause_s * (1 + self._desk.rand()) / 2
            )
        # The handler does something else during the back-off; the group comes back to it (A11.03).
        assert group.current_rebalancer is not None
        self._release(group.current_rebalancer)

    def _complete(self, group: Group) -> None:
        attempt = group.attempt
        assert attempt is not None
        group.attempt = None
        group.failures = 0
        group.incomplete = False
        self._report(group, attempt, failed=False)
        self._finish(group)

    def _finish(self, group: Group) -> None:
        group.failures = 0
        number = group.current_rebalancer
        if not group.rebalance_initiated:
            group.current_rebalancer = None
        if number is not None:
            self._release(number)

    def _release(self, number: int) -> None:
        self.handlers[number].current = None
        self._run(number)

    def _report(self, group: Group, attempt: Attempt, *, failed: bool) -> None:
        seconds = self._desk.now - attempt.began_at
        self._desk.out.append(
            Rebalanced(
                group.group_id, attempt.generation, attempt.reason, seconds, failed, stopped=len(attempt.revoked)
            )
        )

    def forget(self, group: Group) -> None:
        """The group is being deleted; it has no members. What an attempt has on its way to the store goes before that."""
        self._desk.deadlines.clear((REBALANCE, group.group_id))
        group.attempt = None
        for number, handler in enumerate(self.handlers):
            if group.group_id in handler.queue:
                handler.queue.remove(group.group_id)
            if handler.current == group.group_id:
                self._release(number)


def _is_untold(member: Member, wanted: Iterable[TopicPartition]) -> bool:
    """It does not know that it is to fetch this."""
    return (
        member.generation == NEVER_STARTED
        or member.told > member.generation
        or bool(member.stopped)
        or member.assigned != wanted
    )


def _consumer_of(thread_id: str) -> str:
    return thread_id.rpartition("-")[0]
