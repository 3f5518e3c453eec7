"""Elections that a person asks for: preferred, unclean, and the release of a veto (F-13, HOLE-25, reliability 3.6 rule D).

Each partition of a request has a wish. It is tried when no write of its partition is in flight, and answered when what it
wanted is in force or cannot be had.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tidelog.controller import election
from tidelog.controller.effects import Reply
from tidelog.controller.events import ElectionRequested, Token
from tidelog.controller.gather import Gather
from tidelog.controller.model import ClusterState, Partition, PartitionState
from tidelog.controller.outbox import Outbox
from tidelog.controller.survey import Ends, SurveyDesk, largest
from tidelog.errors import ErrorCode
from tidelog.ids import NO_LEADER, BrokerId, TopicPartition
from tidelog.names import code_of_unknown, shown
from tidelog.release import LEVEL_0_3
from tidelog.wire import messages as m

PREFERRED = "preferred"
UNCLEAN = "unclean"
RELEASED = "released"

_Refusal = tuple[ErrorCode, str]


@dataclass(slots=True)
class _Wish:
    token: Token
    slot: int
    kind: str
    candidates: tuple[int, ...] = ()
    """Replicas that an unclean election may choose from; all of them if empty."""
    validate_only: bool = False
    tried: bool = False
    """Its election has been written at least once, whether that was applied or not."""
    leader: BrokerId = NO_LEADER
    """The choice of an unclean election."""
    ends: Ends = field(default_factory=dict)
    """Ends of the live replicas when that was chosen."""


class ElectionDesk:
    def __init__(
        self,
        state: ClusterState,
        out: Outbox,
        surveys: SurveyDesk,
        ineligible: Callable[[Partition], Collection[BrokerId]],
        write: Callable[[Partition, PartitionState], None],
    ) -> None:
        self._state = state
        self._out = out
        self._surveys = surveys
        self._ineligible = ineligible
        self._write = write
        self._wishes: dict[Partition, list[_Wish]] = {}
        self._answers: dict[Token, tuple[str, Gather[m.ElectionResult]]] = {}

    def begin(self, event: ElectionRequested) -> None:
        request, token = event.request, event.token
        kind, validate_only = RELEASED, False
        candidates: tuple[int, ...] = ()
        if isinstance(request, m.ElectLeadersRequest):
            kind = UNCLEAN if request.unclean else PREFERRED
            candidates, validate_only = request.candidates, request.validate_only
        self._out.because(kind)
        asked = [TopicPartition(each.topic, index) for each in request.topics for index in each.partitions]
        if not request.topics:
            asked = [partition.tp for partition in self._state.partitions() if self._could_change(kind, partition)]
        self._answers[token] = kind, Gather(len(asked))
        for slot, tp in enumerate(asked):
            partition = self._state.partition(tp)
            wish = _Wish(token, slot, kind, candidates, validate_only)
            if partition is None or partition.topic.deleting:
                self._answer(wish, tp, *_unknown(tp, known_topic=tp.topic in self._state.topics))
                continue
            self._wishes.setdefault(partition, []).append(wish)
            self.resume(partition)
        self._close(token)

    def resume(self, partition: Partition) -> None:
        """Tries what waits for `partition`, if no write of it is in flight."""
        wishes = self._wishes.get(partition)
        while wishes and partition.writing is None:
            wish = wishes[0]
            found = self._decide(wish, partition)
            if found is None:
                return  # until the live replicas have said how far their logs go
            if isinstance(found, PartitionState):
                wish.tried = True
                self._write(partition, found)
                return
            code, message = found
            if wish.tried and code is ErrorCode.ELECTION_NOT_NEEDED:
                code, message = ErrorCode.NONE, ""
            self._next(partition, wishes, code, message)

    def gone(self, partition: Partition) -> None:
        """Its topic is being deleted."""
        while wishes := self._wishes.get(partition):
            self._next(partition, wishes, *_unknown(partition.tp, known_topic=False))

    def validate(self) -> None:
        """Asserts that nobody waits for nothing."""
        assert all(gather.complete() is None for _, gather in self._answers.values())
        for partition in self._wishes:
            waits = partition.writing is not None or self._surveys.pending(partition)
            assert waits, f"{partition.tp}: a wish without a write"

    def _could_change(self, kind: str, partition: Partition) -> bool:
        state = partition.state
        if state is None or partition.topic.deleting:
            return False
        if kind == PREFERRED:
            return state.leader != partition.replicas[0]
        if kind == UNCLEAN:
            return state.leader == NO_LEADER
        return self._vetoed(partition, state) is not None

    def _decide(self, wish: _Wish, partition: Partition) -> PartitionState | _Refusal | None:
        """None: the ends of the logs are not known yet."""
        state, brokers, ineligible = partition.state, self._state.brokers, self._ineligible(partition)
        kind, epoch = wish.kind, self._out.controller_epoch
        if (wish.candidates or wish.validate_only) and not (kind == UNCLEAN and self._surveys.possible):
            level = f"feature level {LEVEL_0_3} of every broker"
            return ErrorCode.UNSUPPORTED_VERSION, f"candidates, validate_only: only for an unclean election at {level}"
        if kind == PREFERRED:
            head = partition.replicas[0]
            if state is not None and state.leader == head:
                return ErrorCode.ELECTION_NOT_NEEDED, f"broker {head} leads and is the preferred leader"
            chosen = election.preferred(partition.replicas, state, brokers, ineligible, epoch) if state else None
            why = f"broker {head} is not alive, not in sync, suspected or shutting down"
            return chosen or (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
        if state is None:
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica has been alive yet"
        if state.leader != NO_LEADER:
            return ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads"
        if kind == UNCLEAN:
            return self._unclean(wish, partition, state)
        member = self._vetoed(partition, state)
        if member is None:
            return ErrorCode.ELECTION_NOT_NEEDED, "no veto holds it: no member of its ISR is alive"
        return election.released(state, brokers[member], epoch)

    def _unclean(self, wish: _Wish, partition: Partition, state: PartitionState) -> PartitionState | _Refusal | None:
        brokers, ineligible = self._state.brokers, self._ineligible(partition)
        live = election.alive(partition.replicas, brokers, ineligible)
        candidates = [each for each in live if not wish.candidates or each in wish.candidates]
        if not candidates:
            named = (
                f"of brokers {sorted(wish.candidates)} none is alive with"
                if wish.candidates
                else "no broker is alive with"
            )
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"{named} a replica that works"
        ends = self._surveys.ends(partition, live) if self._surveys.possible else {}
        if ends is None:
            self._surveys.begin(partition, live)
            return None
        chosen = largest(candidates, ends)
        assert chosen is not None
        wish.leader, wish.ends = chosen, ends
        if wish.validate_only:
            self._surveys.forget(partition)  # it may stay as it is for long
            return ErrorCode.NONE, ""
        return election.unclean((chosen,), state, brokers, ineligible, self._out.controller_epoch)

    def _vetoed(self, partition: Partition, state: PartitionState) -> BrokerId | None:
        return election.vetoed(partition.replicas, state, self._state.brokers, self._ineligible(partition))

    def _next(self, partition: Partition, wishes: list[_Wish], code: ErrorCode, message: str) -> None:
        """The first wish is over."""
        wish = wishes.pop(0)
        if not wishes:
            del self._wishes[partition]
        self._answer(wish, partition.tp, code, message)
        self._close(wish.token)

    def _answer(self, wish: _Wish, tp: TopicPartition, code: ErrorCode, message: str) -> None:
        result = m.ElectionResult(
            topic=tp.topic,
            partition=tp.partition,
            error_code=code,
            error_message=message,
            leader=wish.leader,
            ends=tuple(
                m.ReplicaLogEnd(broker_id=each, last_epoch=end.last_epoch, end_offset=end.end_offset)
                for each, end in wish.ends.items()
            ),
        )
        self._answers[wish.token][1].put(wish.slot, result)

    def _close(self, token: Token) -> None:
        if token not in self._answers:
            return
        kind, gather = self._answers[token]
        results = gather.complete()
        if results is not None:
            del self._answers[token]
            released = kind == RELEASED
            answer = m.ReleaseVetoResponse(results=results) if released else m.ElectLeadersResponse(results=results)
            self._out.reply(Reply(token, answer))


def _unknown(tp: TopicPartition, *, known_topic: bool) -> _Refusal:
    if known_topic:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {tp.topic!r} has no partition {tp.partition}"
    return code_of_unknown(tp.topic), f"topic {shown(tp.topic)} does not exist"
