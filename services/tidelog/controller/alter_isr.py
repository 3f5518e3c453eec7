"""Whether a leader's wish for another ISR is granted: one list of checks in the order that keeps it safe (design 3)."""

from collections.abc import Collection

from tidelog.controller.election import Brokers
from tidelog.controller.model import PartitionState
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId
from tidelog.wire import messages as m


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
