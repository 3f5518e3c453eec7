"""Whether a leader's wish for another ISR is heard, and whether it is granted: two lists of checks, each in the order that
keeps it safe (design 3)."""

from collections.abc import Collection

from tidelog.controller.election import Brokers
from tidelog.controller.model import PartitionState
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId
from tidelog.wire import messages as m


class Hearing:
    """Which requests of one term are judged: each at most once, and none after a later one of the same broker life.

    A leader that hears INELIGIBLE_REPLICA takes its proposal back, and the reason may pass while its broker lives on. A late
    copy granted then would put a replica into the ISR for which that leader waits no longer, and no version stops it, since
    nothing was written in between (`make model ONLY=REPEATED`). A leader heeds the answer to its newest request alone, so
    whatever it may have taken back has a number that was judged here.

    A new controller knows no number, and needs none: it hears only those who name its own term, and whoever names it sent
    the request after this term began and to no other. Numbers judged in an earlier term cannot come back here. Nor can its
    controller still grant what this one refuses: its multis check the controller epoch, and what it wrote before that was
    raised has been read here, under a version that makes the copy too old (`make model ONLY=REPEATED-TERM`).
    """

    def __init__(self) -> None:
        self._newest: dict[BrokerId, tuple[int, int]] = {}
        """Of each broker: its latest life, and the highest number judged in it."""

    def refusal(self, request: m.AlterIsrRequest, controller_epoch: int, brokers: Brokers) -> ErrorCode:
        """NONE: the request is to be judged now, and neither it nor an earlier one ever again."""
        if request.controller_epoch > controller_epoch:
            return ErrorCode.NOT_CONTROLLER  # the asker has heard of a later one
        if request.controller_epoch < controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        asker = BrokerId(request.broker_id)
        broker = brokers.get(asker)
        if broker is None or broker.epoch != request.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        turn = request.broker_epoch, request.sequence
        if asker in self._newest and turn <= self._newest[asker]:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._newest[asker] = turn
        return ErrorCode.NONE


def judge(
    wanted: m.LeaderAndIsr,
    asker: BrokerId,
    state: PartitionState,
    replicas: Collection[BrokerId],
    brokers: Brokers,
    ineligible: Collection[BrokerId],
) -> ErrorCode | None:
    """The answer, or None: write it. NONE means that the wanted set is in force already."""
    if wanted.leader_epoch > state.leader_epoch or wanted.current_zk_version > state.partition_epoch:
        # The asker has seen a later state, so this controller is the stale one. Calling the asker fenced would make it
        # wait for ever (HOLE-18, KAFKA-14154).
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if asker != state.leader or wanted.leader != state.leader:
        return ErrorCode.INVALID_REQUEST
    same_set = frozenset(wanted.isr) == frozenset(state.isr)
    if same_set and not state.recovering:
        # Before the version: a repeated request whose first answer was lost has the old one (HOLE-17, KAFKA-14144).
        return ErrorCode.NONE
    if wanted.current_zk_version < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if state.recovering and not same_set:
        # First the leader of an unclean election reports back, with the set as it is; nothing else counts before (HOLE-26).
        return ErrorCode.INVALID_REQUEST
    members = [member.broker_id for member in wanted.isr]
    if state.leader not in members or len(set(members)) != len(members) or not set(members) <= set(replicas):
        # Empty, without its leader, a broker twice, or one that is no replica (HOLE-22, HOLE-32).
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(member, state, brokers, ineligible) for member in wanted.isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _eligible(member: m.IsrMember, state: PartitionState, brokers: Brokers, ineligible: Collection[BrokerId]) -> bool:
    """In the life that the leader saw fetching (HOLE-21), and neither suspected nor shutting down (HOLE-20).

    A suspected leader may still gain a follower: it leads only because nobody else could, and now somebody can.
    """
    broker = brokers.get(BrokerId(member.broker_id))
    if broker is None or broker.epoch != member.broker_epoch:
        return False
    return member.broker_id not in ineligible or member.broker_id == state.leader
