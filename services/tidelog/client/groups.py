"""The group's part of a consumer: membership and its session on one side, fetch positions and the application on the other."""

import asyncio
import inspect
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.coordinators import ELSEWHERE, Coordinators
from tidelog.client.fetch_state import FetchState
from tidelog.client.group_session import GroupSession
from tidelog.client.member_events import (
    Assign,
    CommitFenced,
    Effect,
    Fail,
    Join,
    Key,
    Leave,
    Left,
    Lose,
    Member,
    OutOfRange,
    Released,
    Revoke,
    Tick,
    Wait,
)
from tidelog.client.membership import FENCED, Counters, Membership, Standing
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.progress import Position
from tidelog.client.record import MemberRecorder
from tidelog.client.records import ConsumerRecord
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_EPOCH, NO_OFFSET, TopicPartition
from tidelog.ports.recorder import SILENT
from tidelog.runtime.retry import COORDINATOR
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire.limits import parts_or_all
from tidelog.wire.services import COORDINATOR_SERVICE_COMMIT_OFFSETS, COORDINATOR_SERVICE_FETCH_OFFSETS

_log = logging.getLogger(__name__)

Listener = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""A rebalance callback."""

_AGAIN: Final = ELSEWHERE | {ErrorCode.REBALANCE_IN_PROGRESS}
_ONE_COMMIT_S: Final = 5.0
_RESETS: Final = {"earliest": "smallest", "latest": "largest", "error": ""}


class CommittedOffset(NamedTuple):
    """The next record to process, as the coordinator has it."""

    offset: int
    leader_epoch: int
    metadata: str


class GroupMetadata(NamedTuple):
    """For an application that fences its own side effects (COORD-1): each pair (epoch, generation) is newer than the last."""

    group_id: str
    consumer_id: str
    coordinator_epoch: int
    generation: int


@dataclass(slots=True)
class ConsumerStats:
    """What an agent exports."""

    handed_out: int = 0
    """Records."""
    partitions_revoked: int = 0
    """Given back or lost."""
    last_loss: str = ""
    """Why partitions were lost without a Stop, the last time."""
    commits: int = 0
    membership: Counters = field(default_factory=Counters)
    owned: int = 0
    generation: int = 0
    coordinator_epoch: int = 0
    state: str = ""
    """A value of `Standing`, or unreachable: no broker answers (OPEN-06)."""
    last_heard_s: float | None = None
    """Since the coordinator was heard last; None before."""


@dataclass(frozen=True, slots=True)
class Listeners:
    on_assigned: Listener | None = None
    on_revoked: Listener | None = None
    on_lost: Listener | None = None


def topic_count(topics: Sequence[str], pattern: str | None, exclude_pattern: str | None) -> str:
    """The subscription as Kafka 0.8 stores it (F08.2); ValueError unless exactly one of the three is given."""
    if sum((bool(topics), pattern is not None, exclude_pattern is not None)) != 1:
        raise ValueError("a group needs exactly one of topics, pattern and exclude_pattern")
    if pattern is not None:
        return json.dumps({"pattern": "white_list", "subscription": {pattern: 1}})
    if exclude_pattern is not None:
        return json.dumps({"pattern": "black_list", "subscription": {exclude_pattern: 1}})
    return json.dumps({"pattern": "static", "subscription": dict.fromkeys(topics, 1)})


def reset_on_the_wire(auto_offset_reset: str) -> str:
    return _RESETS.get(auto_offset_reset, "")


class _Call(NamedTuple):
    """A rebalance callback that is due; `token` is to be released after it."""

    listener: Listener | None
    partitions: tuple[TopicPartition, ...]
    token: int | None = None


class _Refused(NamedTuple):
    """A commit that is not stored, or of which nobody knows."""

    error: TidelogError | TransportError
    whole: bool
    """Not for one of its partitions."""


class GroupMember:
    """Rebalance callbacks run one after the other in a task of their own, when the application has nothing in its hands;
    while one is due, nothing is handed out. So a callback may commit."""

    def __init__(
        self,
        member: Member,
        listeners: Listeners,
        ports: ClientPorts,
        connections: Connections,
        metadata: ClusterMetadata,
        state: FetchState,
        changed: Callable[[bool], None],
        limit_s: float,
    ) -> None:
        """`changed` is called when there may be something to fetch or to hand out; True: metadata is missing for it."""
        self.membership = Membership(member)
        self._listeners = listeners
        self._ports = ports
        self._connections = connections
        self._metadata = metadata
        self._state = state
        self._changed = changed
        self._limit_s = limit_s
        self._coordinators = Coordinators(ports, connections, metadata, limit_s)
        silent = ports.recorder is SILENT
        self._recorder = None if silent else MemberRecorder(ports.recorder, self.membership, self._position)
        self._session = GroupSession(
            ports, connections, self._coordinators, self.membership, self._effect, self._recorder
        )
        self._calls: deque[_Call] = deque()
        self._calls_news = asyncio.Event()
        self._hands_free = asyncio.Event()
        self._left = asyncio.Event()
        self._stopping = False
        self._callback_error: BaseException | None = None
        self._stats = ConsumerStats(membership=self.membership.counters)

    def start(self, supervisor: Supervisor) -> None:
        self.membership.working_since = self._ports.clock.now()
        self._session.start(supervisor).add_done_callback(lambda _: self._left.set())
        supervisor.start("group-callbacks", self._run_calls())

    async def stop(self) -> None:
        """Leaves the group; within a session timeout, whatever becomes of the coordinator (A18.01, HOLE-49), and also when
        `on_revoked` raises."""
        self._stopping = True
        held = [*self.membership.held]
        self._state.drop(held)
        try:
            if held:
                await _call(self._listeners.on_revoked, held)
        finally:
            if self.membership.wants_stream:
                self._session.feed(Leave("the consumer stops"))
                await self._left.wait()

    # -- the application ---------------------------------------------------------------------------------------------------------

    def begin_poll(self) -> None:
        """The application asks for more: what it had is processed. Raises what ends the membership."""
        membership = self.membership
        membership.working_since = self._ports.clock.now()  # on what is raised here
        if membership.failure is not None:
            raise membership.failure
        if self._callback_error is not None:
            error, self._callback_error = self._callback_error, None
            raise error
        membership.working_since = None
        self._finish()
        if not membership.wants_stream:
            self._join()

    def _join(self) -> None:
        if not self._stopping:
            self._left.clear()
            self._session.feed(Join())

    def end_poll(self) -> None:
        self.membership.working_since = self._ports.clock.now()

    def owns(self, tp: TopicPartition) -> bool:
        membership = self.membership
        return tp in membership.held and membership.lease.holds(self._ports.clock.now())

    def may_fetch(self) -> bool:
        return not self._stopping and self.membership.may_fetch(self._ports.clock.now())

    def may_hand_out(self) -> bool:
        """Asked at every hand-out: after a pause the lease is over before anything is handed out."""
        membership = self.membership
        if membership.failure is not None:
            raise membership.failure
        if self._calls or self._stopping:
            return False
        if membership.may_fetch(self._ports.clock.now()):
            return True
        self._session.feed(Tick())
        return False

    def handed_out(self, records: Sequence[ConsumerRecord]) -> None:
        self.membership.progress.hand_out(records)
        self._stats.handed_out += len(records)

    def sought(self, tp: TopicPartition, offset: int, last_epoch: int = NO_EPOCH) -> None:
        self.membership.progress.place(tp, Position(offset, last_epoch))

    def began(self, tp: TopicPartition, offset: int) -> None:
        """The reset policy has found where `tp` begins."""
        self.sought(tp, offset)
        if self._recorder is not None:
            self._recorder.started(tp, offset)
        if self.membership.member.auto_offset_reset == _RESETS["latest"]:
            self.membership.progress.placed[tp] = offset

    @property
    def placed(self) -> Mapping[TopicPartition, int]:
        return self.membership.progress.placed

    def _position(self, tp: TopicPartition) -> int:
        """The next offset to hand out; NO_OFFSET where nothing is fetched."""
        return self._state.position(tp) if tp in self._state else NO_OFFSET

    def left_log(self, tp: TopicPartition) -> bool:
        """An offset that is out of range makes the member stop and ask for a rebalance (A18.02)."""
        if tp not in self.membership.held:
            return False
        self._session.feed(OutOfRange(tp))
        return True

    def _finish(self) -> None:
        self.membership.progress.finish()
        self._hands_free.set()

    @property
    def metadata(self) -> GroupMetadata:
        member, started = self.membership.member, self.membership.started or (0, 0)
        return GroupMetadata(member.group_id, member.consumer_id, *started)

    @property
    def stats(self) -> ConsumerStats:
        membership, stats = self.membership, self._stats
        stats.owned = len(membership.held)
        stats.coordinator_epoch, stats.generation = membership.started or (0, 0)
        standing = membership.standing
        away = standing in (Standing.JOINING, Standing.RECONNECTING)
        stats.state = "unreachable" if away and self._session.unreachable else standing.value
        heard = membership.heard_at
        stats.last_heard_s = None if heard is None else self._ports.clock.now() - heard
        return stats

    # -- offsets -----------------------------------------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, int | tuple[int, str]] | None, limit_s: float | None = None
    ) -> None:
        """Returns when the offsets are stored."""
        if offsets is None:
            self._finish()
            wanted = self.membership.progress.untold()
        else:
            wanted = tuple(self._explicit(TopicPartition(*tp), given) for tp, given in offsets.items())
            self._refuse_lost(wanted)
            self.membership.progress.finish_up_to(wanted)
            self._hands_free.set()
        if wanted:
            await self._commit(wanted, self._limit_s if limit_s is None else limit_s)

    def _refuse_lost(self, offsets: Iterable[m.OffsetInfo]) -> None:
        """What the application has not heard of yet: a partition that was lost may have come back, from another member that got
        further, and one that was given back too late begins again where the offset was stored (N12)."""
        lost, given_back = set[TopicPartition](), set[TopicPartition]()
        for call in self._calls:
            if call.token is not None:
                given_back.update(call.partitions)
            elif call.listener is not None and call.listener == self._listeners.on_lost:
                lost.update(call.partitions)
        for tp in (TopicPartition(o.topic, o.partition) for o in offsets):
            if tp in lost:
                raise TidelogError(f"{tp} was lost, and on_lost is still to be called", ErrorCode.ILLEGAL_GENERATION)
            if tp in given_back and tp in self.membership.held:
                text = f"{tp} has been assigned anew since it was to be given back, and on_revoked has not ended"
                raise TidelogError(text, ErrorCode.ILLEGAL_GENERATION)

    def _explicit(self, tp: TopicPartition, given: int | tuple[int, str]) -> m.OffsetInfo:
        offset, text = given if isinstance(given, tuple) else (given, "")
        progress = self.membership.progress
        return m.OffsetInfo(
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
            leader_epoch=progress.epoch_before(tp, offset),
            metadata=text,
            topic_id=progress.topic_id(tp),
        )

    async def _commit(self, offsets: tuple[m.OffsetInfo, ...], limit_s: float) -> None:
        clock, rand = self._ports.clock, self._ports.rand
        give_up_at = clock.now() + limit_s
        failures, tenures = 0, self._tenures(offsets)
        while True:
            request = self.membership.commit_request(offsets, clock.now())
            refused = await self._try_commit(request, min(_ONE_COMMIT_S, give_up_at - clock.now()))
            if refused is None:
                self._stats.commits += 1
                self.membership.progress.committed(offsets)
                return
            failures += 1
            pause = COORDINATOR.pause_s(rand, failures)
            if not self._worth_repeating(request, refused) or clock.now() + pause >= give_up_at:
                raise refused.error
            await clock.sleep(pause)
            if self._tenures(offsets) != tenures:
                raise refused.error  # they have been somebody else's meanwhile, who may have got further

    def _tenures(self, offsets: Iterable[m.OffsetInfo]) -> list[Key | None]:
        return [self.membership.held.get(TopicPartition(o.topic, o.partition)) for o in offsets]

    async def _try_commit(self, request: m.CommitOffsetsRequest, limit_s: float) -> _Refused | None:
        group_id = request.group_id
        try:
            address = await self._coordinators.find(group_id, limit_s)
            channel = self._connections.to(address, "coordinator")
            with nullcontext() if self._recorder is None else self._recorder.committing():
                answer = await channel.call(COORDINATOR_SERVICE_COMMIT_OFFSETS, request, limit_s)
        except (TransportError, TidelogError) as error:
            self._coordinators.forget(group_id)
            return _Refused(error, whole=True)
        if answer.error_code in ELSEWHERE:
            self._coordinators.forget(group_id)
        whole = (answer.error_code, answer.error_message, True)
        for code, text, of_all in (whole, *((r.error_code, r.error_message, False) for r in answer.results)):
            if code is not ErrorCode.NONE:
                return _Refused(TidelogError(f"commit to group {group_id!r}: {text or code.name}", code), of_all)
        return None

    def _worth_repeating(self, request: m.CommitOffsetsRequest, refused: _Refused) -> bool:
        """A commit sets what it sets, so that one without an answer may be repeated (COORD-12)."""
        error = refused.error
        if isinstance(error, TransportError) or error.code in _AGAIN:
            return True
        if error.code not in FENCED or not refused.whole:
            return False  # of one partition, it says nothing of the membership: the application has named what it does not own
        sent_in = (request.coordinator_epoch, request.generation)
        # COORD-13: only an error for the generation that still counts says something of the membership; and a new coordinator
        # refuses what was sent in the name of the one before, until it has started this member (A17.03).
        if sent_in == self.membership.started and self.membership.standing is Standing.STABLE:
            self._session.feed(CommitFenced(sent_in))
            return False
        return True

    async def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        names = [TopicPartition(*tp) for tp in tps]
        group_id = self.membership.member.group_id
        found: dict[TopicPartition, m.OffsetInfo] = {}
        for part in parts_or_all(m.FetchOffsetsRequest, [m.PartitionName(topic=t, partition=p) for t, p in names]):
            request = m.FetchOffsetsRequest(group_id=group_id, partitions=part)
            answer = await self._coordinators.call(group_id, COORDINATOR_SERVICE_FETCH_OFFSETS, request)
            if answer.error_code is not ErrorCode.NONE:
                text = answer.error_message or answer.error_code.name
                raise TidelogError(f"offsets of group {group_id!r}: {text}", answer.error_code)
            found |= {TopicPartition(o.topic, o.partition): o for o in answer.offsets if o.offset >= 0}
        return {
            tp: CommittedOffset(o.offset, o.leader_epoch, o.metadata) if (o := found.get(tp)) else None for tp in names
        }

    # -- the membership ----------------------------------------------------------------------------------------------------------

    def _effect(self, effect: Effect) -> None:
        match effect:
            case Revoke(token, partitions):
                self._state.drop(partitions)
                self._stats.partitions_revoked += len(partitions)
                if self._stopping:
                    self._session.feed(Released(token))
                else:
                    self._due(_Call(self._listeners.on_revoked, partitions, token))
            case Assign():
                self._assign(effect)
            case Lose(partitions, reason):
                self._state.drop(partitions)
                self._stats.partitions_revoked += len(partitions)
                self._hands_free.set()
                if not self._stopping:
                    self._stats.last_loss = reason
                    self._due(_Call(self._listeners.on_lost, partitions))
            case Fail():
                pass  # each poll raises it
            case Wait(error):
                _log.warning("%s; it joins when the id is free", error)
            case Left():
                self._left.set()
                if self.membership.working_since is None:
                    self._join()  # the application has asked for more since it began to leave, and may not do so again for long
        self._changed(False)

    def _assign(self, assign: Assign) -> None:
        self._state.drop(assign.dropped)
        anew = []
        for part in assign.anew:
            tp = TopicPartition(part.topic, part.partition)
            anew.append(tp)
            self._state.add(tp, part.topic_id)
            if part.offset >= 0:
                self._state.seek(tp, part.offset, part.leader_epoch)
        self._metadata.learn(assign.brokers)
        if assign.dropped:
            self._due(_Call(self._listeners.on_lost, assign.dropped))
        if anew:
            self._due(_Call(self._listeners.on_assigned, tuple(anew)))
        if self._metadata.want(tp.topic for tp in anew):
            self._changed(True)

    def _due(self, call: _Call) -> None:
        if call.listener is not None or call.token is not None:
            self._calls.append(call)
            self._calls_news.set()

    async def _run_calls(self) -> None:
        while True:
            while self._calls:
                call = self._calls[0]
                while self._is_in_hand(call):
                    self._hands_free.clear()
                    await self._hands_free.wait()
                # What the application's callback raises is the application's: it gets it from its next poll.
                (error,) = await asyncio.gather(_call(call.listener, list(call.partitions)), return_exceptions=True)
                self._callback_error = error or self._callback_error
                self._calls.popleft()
                if call.token is not None:
                    self._session.feed(Released(call.token))
                self._changed(False)
            self._calls_news.clear()
            await self._calls_news.wait()

    def _is_in_hand(self, call: _Call) -> bool:
        """What a callback might commit, or what is given back, is still being processed."""
        hands = self.membership.progress.in_hand
        if call.listener is not None:
            return bool(hands)
        return any(tp in hands for tp in call.partitions)


async def _call(listener: Listener | None, partitions: list[TopicPartition]) -> None:
    if listener is not None:
        result = listener(partitions)
        if inspect.isawaitable(result):
            await result
