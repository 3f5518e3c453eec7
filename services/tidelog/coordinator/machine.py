"""The coordinator of some groups as a pure state machine: an event in, effects out (D0 sections 4 to 12).

It knows no clock and no randomness but what it is given, and touches nothing: the broker's shell carries its effects out, and
the simulator runs the same code. What belongs together is in a part of its own: members, rebalances, offsets.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from tidelog.coordinator.commits import COMMIT, Commits
from tidelog.coordinator.desk import Desk
from tidelog.coordinator.effects import DeleteGroup, Due, Effect, Reply, Resign, Write
from tidelog.coordinator.events import (
    BrokersChanged,
    CommitRequested,
    ConnectionLost,
    DeleteRequested,
    EndsFound,
    Event,
    Loaded,
    MessageArrived,
    Outcome,
    Paused,
    Token,
    TopicsChanged,
    Woken,
    WriteDone,
    WriteId,
)
from tidelog.coordinator.group import Group, Member
from tidelog.coordinator.members import LEASE, UNBLOCK, Members
from tidelog.coordinator.model import Committed, GroupLimits, Phase, StoredGroup, TopicInfo
from tidelog.coordinator.rebalance import REBALANCE, START, Handler, Rebalancer
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

RETENTION: Final = ("retention",)
RETENTION_LOOK_S: Final = 60.0
SEEN_EMPTY_S: Final = 3600.0
"""A coordinator that has not seen for so long that a group is empty does not delete it, unless its retention is shorter."""


class CoordinatorMachine:
    def __init__(self, limits: GroupLimits, rand: Callable[[], float]) -> None:
        """`rand` is uniform in [0, 1)."""
        self._desk = Desk(limits, rand)
        self._commits = Commits(self._desk)
        self._rebalancer = Rebalancer(self._desk, self._commits)
        self._members = Members(self._desk, self._commits, self._rebalancer)
        self._deleting: dict[WriteId, Token | None] = {}
        self._deletions: dict[Token, tuple[int, list[m.DeletedGroup]]] = {}
        """Callers that wait: how many of their groups are not deleted yet, and the results of all."""

    # -- steps ----------------------------------------------------------------------------------------------------------------

    def step(self, event: Event, now: float, wall_ms: int) -> list[Effect]:
        """`now` in monotonic seconds; `wall_ms` for the retention of empty groups only, and not to jump ahead."""
        desk = self._desk
        desk.now, desk.wall_ms, desk.out = now, wall_ms, []
        match event:
            case MessageArrived():
                self._arrived(event)
            case Woken():
                pass
            case ConnectionLost(connection):
                self._members.lost(connection)
            case CommitRequested(token, request):
                self._commits.request(token, request)
            case WriteDone():
                self._written(event)
            case EndsFound():
                self._commits.ends_found(event)
            case TopicsChanged():
                self._topics_changed(event)
            case BrokersChanged(brokers):
                desk.brokers = brokers
            case DeleteRequested(token, request):
                self._delete(token, request.group_ids)
            case Paused(seconds):
                self._members.paused(seconds)
            case Loaded():
                self._loaded(event)
        self._run_timers()
        out, desk.out = desk.out, []
        return out

    def next_at(self) -> float | None:
        """When it wants a Woken at the latest."""
        times = (self._members.pings.next_at(), self._desk.purgatory.next_at(), self._desk.deadlines.next_at())
        return min((at for at in times if at is not None), default=None)

    def _run_timers(self) -> None:
        desk = self._desk
        while (key := self._members.pings.pop_due(desk.now)) is not None:
            self._members.ping_due(key)
        while (watcher := desk.purgatory.pop_due(desk.now)) is not None:
            self._members.expired(watcher)
        while (deadline := desk.deadlines.pop_due(desk.now)) is not None:
            effects = len(desk.out)
            self._due(deadline)
            if len(desk.out) > effects:
                desk.out.insert(effects, Due())

    def _due(self, deadline: tuple[str, ...]) -> None:
        if deadline == COMMIT:
            self._commits.interval_over()
        elif deadline == RETENTION:
            self._forget_old_groups()
        else:
            what, group_id, *consumer = deadline
            group = self._desk.groups.get(group_id)
            if group is None:
                return
            if what == REBALANCE:
                self._rebalancer.due(group)
            elif what == START:
                self._rebalancer.start_more(group)
            elif (member := group.members.get(consumer[0])) is not None:
                self._due_of(what, group, member)

    def _due_of(self, what: str, group: Group, member: Member) -> None:
        if what == LEASE:
            self._members.lease_over(group, member)
        elif what == UNBLOCK:
            self._members.admit(group, member)

    def _arrived(self, event: MessageArrived) -> None:
        self._members.arrived(event)
        request = event.message.register
        if request is not None and (group := self._desk.groups.get(request.group_id)) is not None:
            self._desk.interests.note(group)

    # -- the beginning of a term ----------------------------------------------------------------------------------------------

    def _loaded(self, event: Loaded) -> None:
        """Members are awaited for as long as their leases may hold, which an earlier coordinator kept alive until it was
        deposed (COORD-9); what they own is theirs until then, and they go on with it when they come."""
        desk = self._desk
        desk.coordinator_id, desk.epoch = event.coordinator_id, event.coordinator_epoch
        desk.topics = _believed(event.topics, _named_by(event.groups))
        for stored in event.groups:
            desk.groups[stored.group_id] = self._load(stored)
        desk.deadlines.set(RETENTION, desk.now + RETENTION_LOOK_S)

    def _load(self, stored: StoredGroup) -> Group:
        desk, head = self._desk, stored.head
        group = Group(stored.group_id, assignor=head.assignor, phase=head.phase, empty_since_ms=head.empty_since_ms)
        group.empty_at = desk.now
        newest = max((owner.generation for owner in stored.owners.values()), default=0)
        group.began = desk.newest_topic() if head.began is None and head.generation else head.began
        group.generation = group.used = max(head.generation, newest)
        group.incomplete = bool(head.members) and (head.phase is Phase.STARTING or newest > head.generation)
        for tp, owner in stored.owners.items():
            if desk.exists(tp):
                group.set_owner(tp, owner)
        group.offsets.update(stored.offsets)
        for name, each in head.members.items():
            session_s = each.session_timeout_ms / 1000
            member = Member(
                name, each.incarnation, session_s, each.static, answered_at=desk.now, admission=each.admission
            )
            group.members[name] = member
            desk.deadlines.set((LEASE, group.group_id, name), member.dead_at)
        self._forget_stale(group, {tp.topic for tp in (*group.offsets, *group.owners)})
        if gone := sorted(stored.owners.keys() - group.owners.keys()):
            # Or a later coordinator would take them for the owners in another topic of the name.
            self._erase(group, {}, gone)
        return group

    # -- topics ---------------------------------------------------------------------------------------------------------------

    def _topics_changed(self, event: TopicsChanged) -> None:
        """TopicChangeListener and TopicPartitionChangeListener (A11): what came, grew, went or was made anew."""
        desk, before = self._desk, self._desk.topics
        topics = desk.topics = _believed(event.topics, before)
        changed = {name for name, info in topics.items() if before.get(name) != info}
        gone = before.keys() - topics.keys()
        other = {name for name in changed & before.keys() if before[name].topic_id != topics[name].topic_id}
        if gone or other:
            self._forget_topics(gone | other, anew={name for name in other if before[name].topic_id})
        for group_id in sorted(self._desk.interests.concerned(changed | gone)):
            group = desk.groups.get(group_id)
            if group is not None and group.members and (other or self._rebalancer.interest(group) != group.seen):
                self._rebalancer.request(group, "topics")

    def _forget_topics(self, names: Collection[str], anew: Collection[str]) -> None:
        desk = self._desk
        for tp in [tp for tp in desk.ends if tp.topic in names]:
            del desk.ends[tp]
        for group in desk.groups.values():
            self._forget_stale(group, names, anew)

    def _forget_stale(self, group: Group, names: Collection[str], anew: Collection[str] = ()) -> None:
        """Offsets count within one life of a topic: of `names`, those of another life go, and all of those `anew`. A
        group that was in a topic that has been made anew begins at its start, and no member goes on where it was."""
        desk = self._desk
        known = [group.offsets, group.reported, *self._commits.pending(group), *self._members.leaving(group)]
        if group.attempt is not None:
            known.append(group.attempt.offsets)
        stale, remade = set[TopicPartition](), set(anew)
        for offsets in known:
            for tp, each in offsets.items():
                if tp.topic not in names:
                    continue
                if desk.is_foreign(tp.topic, each.topic_id):
                    remade.add(tp.topic)
                elif tp.topic not in remade and desk.exists(tp):
                    continue
                stale.add(tp)
        stale.update(tp for tp in group.owners if tp.topic in names and not self._may_go_on(group, tp, remade))
        if not stale:
            return
        for offsets in known:
            for tp in stale:
                offsets.pop(tp, None)
        starts = {
            tp: Committed(0, topic_id=desk.topic_id(tp.topic)) if desk.exists(tp) else None for tp in sorted(stale)
        }
        group.offsets.update((tp, start) for tp, start in starts.items() if start is not None)
        for member in group.members.values():
            held = member.assigned | group.owned_by(member.consumer_id)
            member.void |= stale & held - member.stopped
            member.assigned -= member.void
        self._erase(group, starts, ())

    def _erase(
        self, group: Group, starts: Mapping[TopicPartition, Committed | None], gone: Iterable[TopicPartition]
    ) -> None:
        """In the store, behind what is on its way there: offsets become `starts`, what is `gone` has no owner any more."""
        write_id = self._desk.next_write()
        self._deleting[write_id] = None
        self._desk.out.append(Write(write_id, group.group_id, starts, dict.fromkeys(gone), None))

    def _may_go_on(self, group: Group, tp: TopicPartition, remade: Collection[str]) -> bool:
        found = group.offsets.get(tp)
        current = found is not None and found.topic_id == self._desk.topic_id(tp.topic)
        return self._desk.exists(tp) and (tp.topic not in remade or current)

    # -- writes ---------------------------------------------------------------------------------------------------------------

    def _written(self, event: WriteDone) -> None:
        if event.outcome is Outcome.FENCED:
            self._desk.out.append(Resign("another coordinator has been elected"))
            return
        if event.outcome is Outcome.REFUSED:
            # Nothing that is checked at the door can become too large: the next coordinator reads what is there.
            self._desk.out.append(Resign(f"the store refuses write {event.write_id}"))
            return
        write_id = event.write_id
        if write_id in self._deleting:
            self._deleted(write_id)
        elif not self._rebalancer.written(write_id) and not self._commits.written(write_id):
            self._members.written(write_id)

    # -- deletion -------------------------------------------------------------------------------------------------------------

    def _delete(self, token: Token, group_ids: Iterable[str]) -> None:
        results = []
        waiting = 0
        for group_id in dict.fromkeys(group_ids):
            group = self._desk.groups.get(group_id)
            code, text = ErrorCode.NONE, ""
            if group is None:
                code, text = ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}"
            elif group.members:
                code = ErrorCode.NON_EMPTY_GROUP
                text = f"group {group_id!r} has {len(group.members)} members: stop them first"
            else:
                self._remove(group, token)
                waiting += 1
            results.append(m.DeletedGroup(group_id=group_id, error_code=code, error_message=text))
        if waiting:
            self._deletions[token] = (waiting, results)
        else:
            self._desk.out.append(Reply(token, m.DeleteGroupsResponse(results=tuple(results))))

    def _remove(self, group: Group, token: Token | None) -> None:
        self._rebalancer.forget(group)
        self._commits.forget(group)
        group.parsed.clear()
        self._desk.interests.note(group)
        del self._desk.groups[group.group_id]
        write_id = self._desk.next_write()
        self._deleting[write_id] = token
        self._desk.out.append(DeleteGroup(write_id, group.group_id))

    def _deleted(self, write_id: WriteId) -> None:
        token = self._deleting.pop(write_id)
        if token is None:
            return
        waiting, results = self._deletions.pop(token)
        if waiting > 1:
            self._deletions[token] = (waiting - 1, results)
        else:
            self._desk.out.append(Reply(token, m.DeleteGroupsResponse(results=tuple(results))))

    def _forget_old_groups(self) -> None:
        """KIP-211: from the day on which nobody was left, or offsets were set by hand.

        One clock told that day and another one tells today; either may be wrong by days.
        """
        desk = self._desk
        desk.deadlines.set(RETENTION, desk.now + RETENTION_LOOK_S)
        keep_s = desk.limits.retention_s
        seen_by = desk.now - min(keep_s, SEEN_EMPTY_S)
        for group in list(desk.groups.values()):
            old = desk.wall_ms - group.empty_since_ms >= keep_s * 1000
            if old and group.empty_at <= seen_by and not group.members:
                self._remove(group, None)

    # -- the end of a term ----------------------------------------------------------------------------------------------------

    def shutdown(self) -> list[Effect]:
        """The committer's last words (A8.04)."""
        self._desk.out = []
        self._commits.flush_all()
        out, self._desk.out = self._desk.out, []
        return out

    # -- questions ------------------------------------------------------------------------------------------------------------

    @property
    def groups(self) -> dict[str, Group]:
        """To look at, for metrics and tests."""
        return self._desk.groups

    @property
    def handlers(self) -> list[Handler]:
        return self._rebalancer.handlers

    def list_groups(self, states: Iterable[str] = ()) -> tuple[m.ListedGroup, ...]:
        wanted = frozenset(states)
        listed = (m.ListedGroup(group_id=each.group_id, state=each.state) for each in self._desk.groups.values())
        return tuple(each for each in listed if not wanted or each.state in wanted)

    def describe(self, group_id: str) -> m.DescribedGroup:
        """GROUP_ID_NOT_FOUND and state Dead for one that does not exist."""
        group, desk = self._desk.groups.get(group_id), self._desk
        if group is None:
            return m.DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"there is no group {group_id!r}",
                group_id=group_id,
                state="Dead",
                coordinator_id=desk.coordinator_id,
                coordinator_epoch=desk.epoch,
                generation=-1,
            )
        return m.DescribedGroup(
            group_id=group_id,
            state=group.state,
            assignor=group.assignor,
            coordinator_id=desk.coordinator_id,
            coordinator_epoch=desk.epoch,
            generation=group.generation,
            members=tuple(_described(group, group.members[name]) for name in sorted(group.members)),
            offsets=tuple(_offset(group, tp) for tp in sorted(group.offsets)),
        )

    def fetch_offsets(self, request: m.FetchOffsetsRequest) -> m.FetchOffsetsResponse:
        """As stored; -1 where nothing is."""
        group = self._desk.groups.get(request.group_id)
        asked = [TopicPartition(each.topic, each.partition) for each in request.partitions]
        if group is None:
            group = Group(request.group_id)
        return m.FetchOffsetsResponse(offsets=tuple(_offset(group, tp) for tp in asked or sorted(group.offsets)))


def _believed(topics: Mapping[str, TopicInfo], before: Mapping[str, TopicInfo]) -> dict[str, TopicInfo]:
    """All `topics`, with what was known `before` of those that cannot be read."""
    return {name: info if info.partitions else before.get(name, info) for name, info in topics.items()}


def _named_by(groups: Iterable[StoredGroup]) -> dict[str, TopicInfo]:
    """Topics with as many partitions as something is stored of, and the id that all stored offsets name."""
    counts: dict[str, int] = {}
    ids: dict[str, set[bytes]] = {}
    for group in groups:
        for topic, partition in (*group.owners, *group.offsets):
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        for tp, each in group.offsets.items():
            ids.setdefault(tp.topic, set()).add(each.topic_id)
    only = {topic: found.pop() for topic, found in ids.items() if len(found) == 1}
    return {topic: TopicInfo(only.get(topic, b""), count) for topic, count in counts.items()}


def _offset(group: Group, tp: TopicPartition) -> m.OffsetInfo:
    found = group.offsets.get(tp)
    if found is None:
        return m.OffsetInfo(topic=tp.topic, partition=tp.partition, offset=-1, leader_epoch=-1)
    return m.OffsetInfo(
        topic=tp.topic,
        partition=tp.partition,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        topic_id=found.topic_id,
    )


def _described(group: Group, member: Member) -> m.DescribedMember:
    return m.DescribedMember(
        consumer_id=member.consumer_id,
        client_id="" if member.request is None else member.request.client_id,
        host=member.host if member.connection is not None else "",
        topic_count="" if member.request is None else member.request.topic_count,
        session_timeout_ms=round(member.session_s * 1000),
        static_member=member.static,
        partitions=tuple(
            m.PartitionName(topic=tp.topic, partition=tp.partition) for tp in sorted(group.owned_by(member.consumer_id))
        ),
        watch_port=0 if member.connection is None or member.request is None else member.request.watch_port,
    )
