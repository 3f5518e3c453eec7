"""Offsets: which reports count, the committer (A7.07), active commits (OPEN-01).

An offset counts from the owner of its partition, in the generation that this owner was last started in, unless a newer one of
its messages has said something of that partition (FIND-10, COORD-1, COORD-11). None is stored that lies beyond its log's end.
"""

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tidelog.coordinator.desk import Desk
from tidelog.coordinator.effects import FindEnds, Reply, Write
from tidelog.coordinator.events import EndsFound, Token, WriteId
from tidelog.coordinator.group import NEVER_STARTED, Group, Member
from tidelog.coordinator.model import NO_MEMBER_GENERATION, Committed, GroupHead, Phase
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH, TopicPartition
from tidelog.names import validate_consumer_id, validate_topic_name
from tidelog.wire import messages as m

METADATA_MAX: Final = 4096
"""Bytes beside a committed offset (Kafka's offset.metadata.max.bytes)."""

TOPIC_ID_MAX: Final = 16
"""Bytes."""

COMMIT: Final = ("commit",)
"""The committer's deadline."""

Offsets = dict[TopicPartition, Committed]
Verified = Callable[[Offsets, Offsets], None]
"""Gets the offsets that may be stored, and those beyond the ends of their logs."""

_NONE: Final = ErrorCode.NONE


@dataclass(slots=True)
class _Active:
    """A CommitOffsets on its way to the store."""

    token: Token
    offsets: Offsets
    results: tuple[m.CommittedResult, ...]


@dataclass(slots=True)
class _Writing:
    group: Group
    """Another one of its name may have come since."""
    offsets: Offsets
    commits: list[_Active]


@dataclass(slots=True)
class _Question:
    """Offsets that wait for the ends of their logs."""

    offsets: Offsets
    then: Verified
    group: Group | None
    """Whose reports they are; None: of a commit, which is fenced again."""


@dataclass(slots=True)
class _Book:
    """Of one group: active commits that the next write takes, and how many writes are under way."""

    next: list[_Active] = field(default_factory=list)
    writing: int = 0


class Commits:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._dirty: dict[str, None] = {}
        """Groups with reported offsets to be stored."""
        self._books: dict[str, _Book] = {}
        self._writes: dict[WriteId, _Writing] = {}
        self._asked: list[_Question] | None = None
        """Who waits for the log ends that are being asked for; None: nobody asks."""
        self._asked_for: frozenset[TopicPartition] = frozenset()
        self._to_ask: list[_Question] = []

    # -- what members report --------------------------------------------------------------------------------------------------

    def report(self, group: Group, member: Member, what: str, number: int, offsets: Iterable[m.OffsetInfo]) -> None:
        """Of a ping, a stop or a leave, whose generation has been compared."""
        offsets = tuple(offsets)
        if offsets and member.request is not None and not member.request.auto_commit:
            self._desk.refused(what, ErrorCode.INVALID_REQUEST)
            return
        for each in offsets:
            tp = TopicPartition(each.topic, each.partition)
            code, _ = self._fence(group, member, tp, each)
            if code is _NONE:
                self._count(group, member, tp, each, number)
            else:
                self._desk.refused(what, code)

    def _fence(self, group: Group, member: Member, tp: TopicPartition, each: m.OffsetInfo) -> tuple[ErrorCode, str]:
        if not self._desk.exists(tp) or self._desk.is_foreign(tp.topic, each.topic_id):
            return self._fault_of_offset(tp, each)
        owner = group.owners.get(tp)
        if owner is None or owner.consumer_id != member.consumer_id or tp not in member.assigned:
            return ErrorCode.ILLEGAL_GENERATION, f"{tp} is not owned by {member.consumer_id!r}"
        if tp in member.stopped:
            return ErrorCode.REBALANCE_IN_PROGRESS, f"{tp} has been stopped; commit again after the start"
        return self._fault_of_offset(tp, each)

    def _fault_of_offset(self, tp: TopicPartition, each: m.OffsetInfo) -> tuple[ErrorCode, str]:
        if not self._desk.exists(tp):
            try:
                validate_topic_name(tp.topic)
            except TidelogError as error:
                return error.code, error.message
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}"
        if len(each.topic_id) > TOPIC_ID_MAX:
            return ErrorCode.INVALID_REQUEST, f"topic_id of {tp} has {len(each.topic_id)} bytes; at most {TOPIC_ID_MAX}"
        if self._desk.is_foreign(tp.topic, each.topic_id):
            text = f"topic_id {each.topic_id.hex()} of {tp.topic} is not {self._desk.topic_id(tp.topic).hex()}"
            return ErrorCode.INCONSISTENT_TOPIC_ID, f"{text}: the topic was deleted and created again"
        if each.offset < 0:
            return ErrorCode.INVALID_REQUEST, f"offset {each.offset} of {tp} is negative"
        if each.leader_epoch < NO_EPOCH:
            return ErrorCode.INVALID_REQUEST, f"leader_epoch {each.leader_epoch} of {tp} is below {NO_EPOCH}"
        if (size := len(each.metadata.encode())) > METADATA_MAX:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE, f"metadata of {tp} has {size} bytes; at most {METADATA_MAX}"
        return _NONE, ""

    def _committed(self, each: m.OffsetInfo) -> Committed:
        """An offset without a topic id counts in the topic that its member was given last (`Member.void`)."""
        topic_id = self._desk.topic_id(each.topic) or each.topic_id
        return Committed(each.offset, each.leader_epoch, each.metadata, topic_id)

    def _count(self, group: Group, member: Member, tp: TopicPartition, each: m.OffsetInfo, number: int) -> None:
        if number <= member.numbers.get(tp, 0):
            return  # overtaken by what the same consumer has said later
        member.numbers[tp] = number
        for commit in self._book(group).next:
            commit.offsets.pop(tp, None)
        committed = self._committed(each)
        if group.offsets.get(tp) == committed and not self._book(group).writing and group.attempt is None:
            group.reported.pop(tp, None)
            return  # and no other one is on its way to the store
        group.reported[tp] = committed
        self._dirty[group.group_id] = None
        if COMMIT not in self._desk.deadlines:
            self._desk.deadlines.set(COMMIT, self._desk.now + self._desk.limits.commit_interval_s)

    def _book(self, group: Group) -> _Book:
        return self._books.setdefault(group.group_id, _Book())

    # -- log ends -------------------------------------------------------------------------------------------------------------

    def verify_reported(self, group: Group, offsets: Offsets, then: Verified) -> None:
        """Of what members of `group` have reported: `then` gets no offset that a commit has replaced meanwhile."""
        self._verify(_Question(offsets, then, group))

    def _verify(self, question: _Question) -> None:
        """Calls `then` now, or when the leaders of the partitions have been asked; one question at a time, for everybody."""
        if not self._beyond(question.offsets):
            question.then(question.offsets, {})
            return
        self._to_ask.append(question)
        if self._asked is None:
            self._ask()

    def _beyond(self, offsets: Offsets, unknown: Collection[TopicPartition] = ()) -> Offsets:
        ends = self._desk.ends
        return {tp: each for tp, each in offsets.items() if each.offset > ends.get(tp, 0) and tp not in unknown}

    def _ask(self) -> None:
        self._asked, self._to_ask = self._to_ask, []
        partitions = dict.fromkeys(tp for each in self._asked for tp in self._beyond(each.offsets))
        self._asked_for = frozenset(partitions)
        self._desk.out.append(FindEnds(tuple(partitions)))

    def ends_found(self, event: EndsFound) -> None:
        self._desk.ends.update((tp, end) for tp, end in event.ends.items() if end is not None)
        if self._asked is None or not self._asked_for <= event.ends.keys():
            return  # the answer to another question: what is not in it is not unknown, and not beyond
        # A leader that cannot be asked hinders nobody: a consumer has read no further than the leader let it.
        unknown = frozenset(tp for tp, end in event.ends.items() if end is None)
        asked, self._asked = self._asked, None
        for question in asked:
            beyond = self._beyond(question.offsets, unknown)
            question.then({tp: each for tp, each in question.offsets.items() if tp not in beyond}, beyond)
        if self._to_ask and self._asked is None:
            self._ask()

    # -- the committer --------------------------------------------------------------------------------------------------------

    def interval_over(self) -> None:
        for group_id in [*self._dirty]:
            group = self._desk.groups.get(group_id)
            if group is None or not group.reported:
                del self._dirty[group_id]
            elif not self._book(group).writing:
                self.verify_reported(group, dict(group.reported), partial(self._store, group))
        if self._dirty:
            self._desk.deadlines.set(COMMIT, self._desk.now + self._desk.limits.commit_interval_s)

    def _store(self, group: Group, ok: Offsets, beyond: Offsets) -> None:
        if self._desk.groups.get(group.group_id) is not group:
            return
        self.drop(group, beyond)
        self.flush(group, self.still_wanted(group, ok))

    def drop(self, group: Group, beyond: Mapping[TopicPartition, Committed]) -> None:
        for tp, each in beyond.items():
            if group.reported.get(tp) == each:
                del group.reported[tp]
                self._desk.refused("offset", ErrorCode.OFFSET_OUT_OF_RANGE)

    def still_wanted(self, group: Group, offsets: Offsets) -> Offsets:
        """Without what an active commit has replaced meanwhile."""
        return {tp: each for tp, each in offsets.items() if tp in group.reported}

    def flush(self, group: Group, reported: Offsets, head: GroupHead | None = None) -> None:
        """Writes these and every active commit that waits."""
        book = self._book(group)
        commits, book.next = book.next, []
        offsets = dict(reported)
        for commit in commits:
            offsets.update(commit.offsets)
        if not (offsets or commits or head):
            return
        if head is None and not (group.members or group.generation):
            head = group.head(0, Phase.STABLE)  # nobody has joined it yet; when it may be forgotten counts from now
        write_id = self._desk.next_write()
        book.writing += 1
        self._writes[write_id] = _Writing(group, dict(offsets), commits)
        self._desk.out.append(Write(write_id, group.group_id, offsets, {}, head))

    def newest(self, group: Group) -> Mapping[TopicPartition, Committed]:
        """What is stored, or is on its way there: what a member that begins anew in the middle of a term goes on with. What it
        said itself before its lease ended would else be stored behind its back, and its offsets would fall (N12).

        A view, for this step: a copy for each member of a large group would keep the broker from its other work.
        """
        writing = [each.offsets for each in self._writes.values() if each.group is group]
        layers = [group.offsets, *writing, group.reported, *(each.offsets for each in self._book(group).next)]
        known = [each for each in layers if each]
        return known[0] if len(known) == 1 else ChainMap(*reversed(known))

    def flush_all(self) -> None:
        """At an orderly end, without a question to anybody: what is not verified is not stored."""
        for group_id in [*self._dirty]:
            if (group := self._desk.groups.get(group_id)) is not None:
                beyond = self._beyond(group.reported)
                self.flush(group, {tp: each for tp, each in group.reported.items() if tp not in beyond})

    def take_stored(self, group: Group, offsets: Mapping[TopicPartition, Committed]) -> None:
        group.offsets.update(offsets)
        for tp, each in offsets.items():
            if group.reported.get(tp) == each:
                del group.reported[tp]

    def written(self, write_id: WriteId) -> bool:
        """False: it was none of these writes."""
        writing = self._writes.pop(write_id, None)
        if writing is None:
            return False
        for commit in writing.commits:
            self._desk.out.append(Reply(commit.token, m.CommitOffsetsResponse(results=commit.results)))
        group = writing.group
        if self._desk.groups.get(group.group_id) is group:
            book = self._book(group)
            book.writing -= 1
            self.take_stored(group, writing.offsets)
            if book.next and not book.writing:
                self.flush(group, {})
        return True

    def pending(self, group: Group) -> Iterator[Offsets]:
        """Those that are on their way to the store, or wait for it, or for the ends of their logs."""
        yield from (writing.offsets for writing in self._writes.values() if writing.group is group)
        yield from (commit.offsets for commit in self._book(group).next)
        yield from self._questioned(group)

    def _questioned(self, group: Group) -> Iterator[Offsets]:
        return (each.offsets for each in (*(self._asked or ()), *self._to_ask) if each.group is group)

    def forget(self, group: Group) -> None:
        """It is being deleted, and what waits for its next write with it."""
        self._dirty.pop(group.group_id, None)
        book = self._books.pop(group.group_id, _Book())
        for commit in book.next:
            self._refuse(commit.token, ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id!r} has been deleted")

    # -- active commits -------------------------------------------------------------------------------------------------------

    def request(self, token: Token, request: m.CommitOffsetsRequest) -> None:
        """Answered when it is stored or refused. Fenced twice: its owner may be stopped while log ends are asked for."""
        code, text = self._fault_of(request)
        if code is not _NONE:
            self._refuse(token, code, text)
            return
        accepted, results = self._each(request, {})
        if accepted:
            self._verify(_Question(accepted, lambda _, beyond: self._commit(token, request, beyond), None))
        else:
            self._answer(token, results)

    def _fault_of(self, request: m.CommitOffsetsRequest) -> tuple[ErrorCode, str]:
        group = self._desk.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.consumer_id)
        if len({(each.topic, each.partition) for each in request.offsets}) < len(request.offsets):
            return ErrorCode.INVALID_REQUEST, "offsets: a partition is named twice"
        if not request.consumer_id and request.generation == NO_MEMBER_GENERATION:
            if group is not None and group.members:
                text = f"group {request.group_id!r} has {len(group.members)} members: stop them first"
                return ErrorCode.NON_EMPTY_GROUP, text
            return _NONE, ""
        if request.consumer_id:
            try:
                validate_consumer_id(request.consumer_id)
            except TidelogError as error:
                return error.code, error.message
        if member is None or member.incarnation != request.incarnation:
            return ErrorCode.UNKNOWN_MEMBER_ID, f"{request.consumer_id!r} is no member of group {request.group_id!r}"
        waits = member.generation == NEVER_STARTED or self._desk.waits_for_start(request.group_id, member)
        if request.coordinator_epoch != self._desk.epoch:
            text = f"coordinator epoch {request.coordinator_epoch} is not {self._desk.epoch}: register anew"
            # After a failover its commit may come before itself, and it keeps what it has (COORD-9): again after the Start.
            unheard = request.coordinator_epoch < self._desk.epoch and waits
            return (ErrorCode.REBALANCE_IN_PROGRESS if unheard else ErrorCode.ILLEGAL_GENERATION), text
        if member.generation == NEVER_STARTED or request.generation != member.generation:
            text = (
                f"generation {request.generation} is not {member.generation}, in which {member.consumer_id!r} started"
            )
            # A Start that is on its way to it may be overtaken by this answer.
            unheard = request.generation < member.generation and waits
            return (ErrorCode.REBALANCE_IN_PROGRESS if unheard else ErrorCode.ILLEGAL_GENERATION), text
        if request.number < 1:  # older than anything: it would be taken for overtaken
            return ErrorCode.INVALID_REQUEST, f"number {request.number} is not at least 1"
        return _NONE, ""

    def _each(self, request: m.CommitOffsetsRequest, beyond: Offsets) -> tuple[Offsets, tuple[m.CommittedResult, ...]]:
        group = self._desk.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.consumer_id)
        accepted: Offsets = {}
        results = []
        for each in request.offsets:
            tp = TopicPartition(each.topic, each.partition)
            if group is None or member is None:
                code, text = self._fault_of_offset(tp, each)
            else:
                code, text = self._fence(group, member, tp, each)
            if code is _NONE and tp in beyond:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
                text = f"offset {each.offset} of {tp} is beyond the log's end {self._desk.ends[tp]}"
            if code is _NONE:
                accepted[tp] = self._committed(each)
            results.append(
                m.CommittedResult(topic=tp.topic, partition=tp.partition, error_code=code, error_message=text)
            )
        return accepted, tuple(results)

    def _commit(self, token: Token, request: m.CommitOffsetsRequest, beyond: Offsets) -> None:
        code, text = self._fault_of(request)
        if code is not _NONE:
            self._refuse(token, code, text)
            return
        accepted, results = self._each(request, beyond)
        if not accepted:
            self._answer(token, results)
            return
        self._count_refused(results)
        group = self._desk.groups.get(request.group_id)
        if group is None:
            group = self._desk.groups[request.group_id] = Group(request.group_id)
        member = group.members.get(request.consumer_id)
        if member is None:
            self._desk.emptied(group)
        else:
            accepted = self._newest(group, member, request.number, accepted)
        for older in (group.reported, *self._questioned(group), *(each.offsets for each in self._book(group).next)):
            for tp in accepted:
                older.pop(tp, None)  # what was reported before it must not be stored behind it (N12)
        book = self._book(group)
        book.next.append(_Active(token, accepted, results))
        if not book.writing:
            self.flush(group, {})
        # else the write that is under way takes it along when it is done: one at a time, so that they share the next one

    def _newest(self, group: Group, member: Member, number: int, accepted: Offsets) -> Offsets:
        """Without those of which the same consumer has said something newer."""
        newest = {tp: each for tp, each in accepted.items() if number > member.numbers.get(tp, 0)}
        member.numbers.update(dict.fromkeys(newest, number))
        return newest

    def _answer(self, token: Token, results: tuple[m.CommittedResult, ...]) -> None:
        """Nothing of it is to be stored."""
        self._count_refused(results)
        self._desk.out.append(Reply(token, m.CommitOffsetsResponse(results=results)))

    def _count_refused(self, results: tuple[m.CommittedResult, ...]) -> None:
        for each in results:
            if each.error_code is not _NONE:
                self._desk.refused("commit", each.error_code)

    def _refuse(self, token: Token, code: ErrorCode, text: str) -> None:
        self._desk.refused("commit", code)
        self._desk.out.append(Reply(token, m.CommitOffsetsResponse(error_code=code, error_message=text)))
