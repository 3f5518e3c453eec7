"""Brokers that get their share, and brokers that are drained (HL3.02, F-10): from the request to a plan of moves.

Both leave the load even: those that stay share what there is (`planner.rebalance`), also what a drained broker never held.

The plan is worked out beside the event loop, and the cluster goes on meanwhile. So it is judged again before it is written:
when the partitions or those that are drained are not any more what it was made for, another one is made.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.controller.effects import MakePlan, Reply
from tidelog.controller.events import BrokersRequested, Planned, ReassignmentRequested, Token
from tidelog.controller.model import ClusterState
from tidelog.controller.outbox import Outbox
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m

TRIES: Final = 5
"""Plans that are made for one request before it is given up."""

Current = dict[TopicPartition, tuple[BrokerId, ...]]


@dataclass(slots=True)
class _Asked:
    request: m.AddBrokersRequest | m.DrainBrokersRequest
    current: Current
    leaving: frozenset[BrokerId] = frozenset()
    """Those that have to be empty after the plan, whoever asked for it."""
    tries: int = 0

    @property
    def drained(self) -> frozenset[BrokerId]:
        """Those that this request empties."""
        return _ids(self.request) if isinstance(self.request, m.DrainBrokersRequest) else frozenset()


class BrokerDesk:
    def __init__(self, state: ClusterState, out: Outbox, is_deleting: Callable[[str], bool]) -> None:
        self._state = state
        self._out = out
        self._is_deleting = is_deleting
        self._asked: dict[Token, _Asked] = {}

    def request(self, event: BrokersRequested) -> ReassignmentRequested | BrokersRequested | None:
        """What is to have its turn: a drain, to be planned then, or what needs no plan. None: refused, or a plan is made."""
        request, token = event.request, event.token
        try:
            self._check(request)
        except TidelogError as error:
            self._refuse(token, request, error.code, error.message)
            return None
        if isinstance(request, m.DrainBrokersRequest) and request.undo:
            return _change(request, token, {}, undrains=_ids(request))
        if isinstance(request, m.DrainBrokersRequest) and not request.validate_only:
            self._state.emptying[token] = _ids(request)
            return event
        self.plan(event)
        return None

    def plan(self, event: BrokersRequested) -> None:
        self._asked[event.token] = _Asked(event.request, {})
        self._plan(event.token)

    def _plan(self, token: Token) -> None:
        asked = self._asked[token]
        asked.tries += 1
        asked.current = self._current()
        asked.leaving = self._state.barred | asked.drained
        brokers = {each: broker.rack for each, broker in self._state.brokers.items() if each not in asked.leaving}
        self._out.make_plan(MakePlan(token, asked.current, brokers, asked.leaving))

    def _current(self) -> Current:
        """What moves counts as moved."""
        return {
            each.tp: each.target
            for each in self._state.partitions()
            if not each.topic.deleting and not self._is_deleting(each.tp.topic)
        }

    def planned(self, event: Planned) -> ReassignmentRequested | None:
        """The plan, to be judged like anybody's; None: it is refused, or made once more."""
        asked = self._asked[event.token]
        if event.code is not ErrorCode.NONE:
            del self._asked[event.token]
            self._refuse(event.token, asked.request, event.code, event.message)
            return None
        if (self._current(), self._state.barred | asked.drained) != (asked.current, asked.leaving):
            if asked.tries < TRIES:
                self._plan(event.token)
                return None
            del self._asked[event.token]
            message = f"the partitions or the drained brokers have changed while {TRIES} plans were made for them"
            self._refuse(event.token, asked.request, ErrorCode.REQUEST_TIMED_OUT, message)
            return None
        del self._asked[event.token]
        return _change(asked.request, event.token, event.rows, drains=asked.drained)

    def _check(self, request: m.AddBrokersRequest | m.DrainBrokersRequest) -> None:
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

    def _refuse(
        self, token: Token, request: m.AddBrokersRequest | m.DrainBrokersRequest, code: ErrorCode, message: str
    ) -> None:
        self._state.emptying.pop(token, None)
        kind = m.AddBrokersResponse if isinstance(request, m.AddBrokersRequest) else m.DrainBrokersResponse
        self._out.reply(Reply(token, kind(error_code=code, error_message=message)))


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))


def _ids(request: m.AddBrokersRequest | m.DrainBrokersRequest) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, request.broker_ids))


def _change(
    request: m.AddBrokersRequest | m.DrainBrokersRequest,
    token: Token,
    rows: Mapping[TopicPartition, tuple[BrokerId, ...]],
    drains: frozenset[BrokerId] = frozenset(),
    undrains: frozenset[BrokerId] = frozenset(),
) -> ReassignmentRequested:
    by_topic: dict[str, list[m.PartitionAssignment]] = {}
    for tp, row in rows.items():
        by_topic.setdefault(tp.topic, []).append(m.PartitionAssignment(partition=tp.partition, replicas=row))
    plan = m.AlterPartitionReassignmentsRequest(
        topics=tuple(m.TopicReassignment(topic=name, partitions=tuple(each)) for name, each in by_topic.items()),
        replace=request.replace,
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
        leader_throttle=request.leader_throttle,
        follower_throttle=request.follower_throttle,
    )
    adds = isinstance(request, m.AddBrokersRequest)
    answer = m.AddBrokersResponse if adds else m.DrainBrokersResponse
    return ReassignmentRequested(plan, token, drains, undrains, answer)
