"""Brokers that get their share, and brokers that are drained: from the request over a plan to moves.

Both leave the load even: those that stay share what there is (`planner.rebalance`), also what a drained broker never held.

One request at a time. Its plan is worked out beside the event loop, and written in parts, of which the first one also marks the
brokers that are drained. The cluster goes on meanwhile: what does not fit any more is left out of its part, and planned anew
after the last one. While parts are missing, the store says so (`StoredPlacement.planning`), and another controller goes on from
what is stored.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.controller.effects import MakePlan, Reply
from tidelog.controller.events import BrokersRequested, Planned, ReassignmentRequested, Token
from tidelog.controller.model import ClusterState, Partition
from tidelog.controller.outbox import Outbox
from tidelog.controller.reassignment import DRAINED, TOO_LARGE
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire import znodes

TRIES: Final = 5
"""Plans that are made for one request before it is given up."""

PART: Final = 500
"""Partitions that move in one part, and those of its topics if it has several: a step, and a multi, that keep nothing waiting."""

GOING_ON: Final = Token(0)
"""No request has it: the job completes the plan of an earlier controller."""

Current = dict[TopicPartition, tuple[BrokerId, ...]]

_CHANGED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
)
"""A part was refused because the cluster has changed since it was put together: it is put together again."""


@dataclass(slots=True)
class _Job:
    token: Token
    request: m.AddBrokersRequest | m.DrainBrokersRequest
    current: Current = field(default_factory=dict)
    """The replicas that the plan begins with."""
    leaving: frozenset[BrokerId] = frozenset()
    """Those that have to be empty after the plan, whoever asked for it."""
    rows: Current = field(default_factory=dict)
    """The plan, as far as it is not written."""
    part: Current = field(default_factory=dict)
    """The part of it that is being written."""
    written: Current = field(default_factory=dict)
    begun: bool = False
    """A part is stored, and with it the mark of the brokers that are drained."""
    skipped: bool = False
    """Something of the plan did not fit any more."""
    full: str = ""
    """A topic whose znode holds no more moves."""
    tries: int = 0

    @property
    def drained(self) -> frozenset[BrokerId]:
        """Those that this request empties."""
        return _ids(self.request) if isinstance(self.request, m.DrainBrokersRequest) else frozenset()

    @property
    def is_planned_anew(self) -> bool:
        """After the last part."""
        return self.skipped and self.tries < TRIES


class BrokerDesk:
    def __init__(
        self,
        state: ClusterState,
        out: Outbox,
        is_deleting: Callable[[str], bool],
        check: Callable[[m.AlterPartitionReassignmentsRequest], object],
    ) -> None:
        """`check` raises TidelogError for a plan that is refused whole."""
        self._state = state
        self._out = out
        self._is_deleting = is_deleting
        self._check_plan = check
        self._job: _Job | None = None
        self._waiting: deque[_Job] = deque()
        self._due: ReassignmentRequested | None = None
        self._failed_with: object = None
        """Brokers with which the plan of an earlier controller could not be completed."""

    def request(self, event: BrokersRequested) -> ReassignmentRequested | BrokersRequested | None:
        """What is to have its turn: a drain, to be planned then, or what needs no plan. None: refused, or a plan is made."""
        request, token = event.request, event.token
        try:
            self._check(request)
        except TidelogError as error:
            self._reply(token, request, error.code, error.message)
            return None
        if isinstance(request, m.DrainBrokersRequest) and request.undo:
            return ReassignmentRequested(
                _plan_of(request, {}), token, undrains=_ids(request), answer=m.DrainBrokersResponse
            )
        if isinstance(request, m.DrainBrokersRequest) and not request.validate_only:
            self._state.emptying[token] = _ids(request)
            return event
        self.plan(event)
        return None

    def plan(self, event: BrokersRequested) -> None:
        self._waiting.append(_Job(event.token, event.request))
        self._begin()

    def go_on(self) -> None:
        """Completes the plan of an earlier controller, if nothing else is being planned."""
        if self._job is None and self._state.placement.planning and self._failed_with != self._brokers():
            request = m.AddBrokersRequest(
                replace=False, validate_only=False, timeout_ms=0, leader_throttle=0, follower_throttle=0
            )
            self._waiting.append(_Job(GOING_ON, request))
            self._begin()

    def _begin(self) -> None:
        if self._job is None and self._waiting:
            self._job = self._waiting.popleft()
            self._plan(self._job)

    def _brokers(self) -> tuple[frozenset[BrokerId], frozenset[BrokerId]]:
        return frozenset(self._state.brokers), self._state.barred

    # the plan

    def _plan(self, job: _Job) -> None:
        job.tries += 1
        job.skipped = False
        job.current = {each.tp: each.target for each in self._state.partitions() if not self._is_going(each)}
        job.leaving = self._state.barred | job.drained
        brokers = {each: broker.rack for each, broker in self._state.brokers.items() if each not in job.leaving}
        self._out.make_plan(MakePlan(job.token, job.current, brokers, job.leaving))

    def _is_going(self, partition: Partition) -> bool:
        return partition.topic.deleting or self._is_deleting(partition.tp.topic)

    def planned(self, event: Planned) -> None:
        job = self._job
        assert job is not None and job.token == event.token, event.token
        if event.code is not ErrorCode.NONE:
            self._end(event.code, event.message)
            return
        job.rows = dict(event.rows)
        try:
            if not job.begun:
                self._check_plan(
                    _plan_of(job.request, {tp: row for tp, row in job.rows.items() if self._fits(job, tp, row)})
                )
        except TidelogError as error:
            self._end(error.code, error.message)
            return
        if job.request.validate_only:
            job.written = job.rows
            self._end(ErrorCode.NONE, "")
        else:
            self._next_part(job)

    # its parts

    def next_part(self) -> ReassignmentRequested | None:
        """The next part that is to have its turn; None: there is none now."""
        due, self._due = self._due, None
        return due

    def _next_part(self, job: _Job) -> None:
        job.part, topics = {}, dict[str, int]()
        for tp in sorted(job.rows):
            partition = self._state.partition(tp)
            if partition is not None and tp.topic not in topics:
                if topics and sum(topics.values()) + len(partition.topic.partitions) > PART:
                    break
                topics[tp.topic] = len(partition.topic.partitions)
            if len(job.part) == PART:
                break
            row = job.rows.pop(tp)
            if self._can_move(job, tp, row):
                job.part[tp] = row
        self._due = ReassignmentRequested(
            _plan_of(job.request, job.part, replace=job.request.replace or job.token == GOING_ON),
            job.token,
            job.drained,
            answer=_kind(job.request),
            planning=bool(job.rows) or job.is_planned_anew,
        )

    def _fits(self, job: _Job, tp: TopicPartition, row: tuple[BrokerId, ...]) -> bool:
        """Its replicas are those that the plan was made for, and all that come may still come."""
        partition = self._state.partition(tp)
        if partition is None or self._is_going(partition) or partition.target != job.current[tp]:
            return False
        coming = {each for each in row if each not in partition.replicas}
        return coming <= self._state.brokers.keys() - self._state.barred

    def _can_move(self, job: _Job, tp: TopicPartition, row: tuple[BrokerId, ...]) -> bool:
        partition = self._state.partition(tp)
        if partition is None or self._is_going(partition):
            return False
        must = not job.leaving.isdisjoint(partition.target)
        is_free = partition.move is None or job.request.replace or (must and job.token == GOING_ON)
        if not (is_free or must):
            return False  # it moves to a broker that stays: only less evenly than it might
        can = is_free and self._fits(job, tp, row)
        job.skipped = job.skipped or not can
        return can

    def done(self, event: ReassignmentRequested, code: ErrorCode, message: str) -> None:
        """Tells what became of a part, or of brokers that are not drained any more."""
        job = self._job
        if job is None or job.token != event.token:
            self._out.reply(Reply(event.token, event.answer(error_code=code, error_message=message)))
            return
        part, job.part = job.part, {}
        if code is ErrorCode.NONE:
            job.written.update(part)
            job.begun = True
        elif message == TOO_LARGE:
            job.full = next(iter(part)).topic
        elif code in _CHANGED or (job.begun and code is ErrorCode.REQUEST_TIMED_OUT):
            job.rows.update(part)
        else:
            self._end(code, message)
            return
        if job.rows or code is not ErrorCode.NONE:
            self._next_part(job)
        elif job.is_planned_anew:
            self._plan(job)
        elif job.full:
            message = (
                f"topic {job.full!r} has as many moves under way as its znode holds: repeat this when they have ended"
            )
            self._end(ErrorCode.INVALID_REQUEST, message)
        elif job.skipped:
            message = f"the partitions or the drained brokers have changed while {TRIES} plans were made for them"
            self._end(ErrorCode.REQUEST_TIMED_OUT, message)
        else:
            self._end(ErrorCode.NONE, "")

    def _end(self, code: ErrorCode, message: str) -> None:
        job, self._job = self._job, None
        assert job is not None
        if code is not ErrorCode.NONE and self._state.placement.planning:
            self._failed_with = self._brokers()
        if job.token != GOING_ON:
            self._reply(job.token, job.request, code, message, job.written if code is ErrorCode.NONE else {})
        self._begin()

    def _reply(
        self,
        token: Token,
        request: m.AddBrokersRequest | m.DrainBrokersRequest,
        code: ErrorCode,
        message: str,
        moved: Mapping[TopicPartition, tuple[BrokerId, ...]] | None = None,
    ) -> None:
        self._state.emptying.pop(token, None)
        topics = _plan_of(request, moved or {}).topics
        self._out.reply(Reply(token, _kind(request)(error_code=code, error_message=message, topics=topics)))

    def _check(self, request: m.AddBrokersRequest | m.DrainBrokersRequest) -> None:
        self._state.check_read(znodes.PLACEMENT, DRAINED)
        ids = _ids(request)
        if not ids:
            raise TidelogError("no broker is named", ErrorCode.INVALID_REQUEST)
        if len(ids) != len(request.broker_ids):
            raise TidelogError(f"{_listed(request.broker_ids)} name a broker twice", ErrorCode.INVALID_REQUEST)
        if isinstance(request, m.AddBrokersRequest):
            dead, barred = ids - self._state.brokers.keys(), ids & self._state.barred
        elif request.undo:
            if spare := sorted(ids - self._state.draining):
                raise TidelogError(f"{_listed(spare)} not being drained", ErrorCode.INVALID_REQUEST)
            return
        else:
            # Who is dead for good is drained too, to make up for the copies that are lost with it.
            held = {each for each in ids if self._state.partitions_on(each)}
            dead, barred = ids - self._state.brokers.keys() - held - self._state.draining, frozenset()
        if dead:
            alive = _listed(sorted(self._state.brokers))
            raise TidelogError(f"{_listed(sorted(dead))} not alive (alive: {alive})", ErrorCode.INVALID_REQUEST)
        if barred:
            raise TidelogError(f"{_listed(sorted(barred))} being drained", ErrorCode.INVALID_REQUEST)


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))


def _ids(request: m.AddBrokersRequest | m.DrainBrokersRequest) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, request.broker_ids))


def _kind(
    request: m.AddBrokersRequest | m.DrainBrokersRequest,
) -> type[m.AddBrokersResponse | m.DrainBrokersResponse]:
    return m.AddBrokersResponse if isinstance(request, m.AddBrokersRequest) else m.DrainBrokersResponse


def _plan_of(
    request: m.AddBrokersRequest | m.DrainBrokersRequest,
    rows: Mapping[TopicPartition, tuple[BrokerId, ...]],
    *,
    replace: bool | None = None,
) -> m.AlterPartitionReassignmentsRequest:
    by_topic: dict[str, list[m.PartitionAssignment]] = {}
    for tp, row in rows.items():
        by_topic.setdefault(tp.topic, []).append(m.PartitionAssignment(partition=tp.partition, replicas=row))
    return m.AlterPartitionReassignmentsRequest(
        topics=tuple(m.TopicReassignment(topic=name, partitions=tuple(each)) for name, each in by_topic.items()),
        replace=request.replace if replace is None else replace,
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
        leader_throttle=request.leader_throttle,
        follower_throttle=request.follower_throttle,
    )
