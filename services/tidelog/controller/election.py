"""Who leads: arithmetic on the assigned replicas, the ISR and the broker lives of this moment.

`settle` is the one rule for everything that happens to brokers: a death, a bounce, a suspicion and a return differ only in
what is alive. It treats a broker epoch that differs from the one in the ISR as failure plus start (HOLE-07, reliability
3.6 rule D), whoever was controller when it happened.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tidelog.controller.model import Broker, PartitionState
from tidelog.ids import NO_LEADER, BrokerId
from tidelog.wire.messages import IsrMember

Brokers = Mapping[BrokerId, Broker]


def elect_offline(replicas: Sequence[BrokerId], candidates: Collection[BrokerId]) -> BrokerId:
    """First assigned replica among `candidates` (F13.1); there is one."""
    return next(replica for replica in replicas if replica in candidates)


def initial(
    replicas: Sequence[BrokerId], brokers: Brokers, ineligible: Collection[BrokerId], controller_epoch: int
) -> PartitionState | None:
    """First state of a new partition: the live replicas are its ISR (F01.2). None while no replica is alive (F01.3)."""
    live = [replica for replica in replicas if replica in brokers]
    members = [replica for replica in live if replica not in ineligible] or live
    if not members:
        return None
    return PartitionState(
        leader=members[0],
        leader_epoch=0,
        isr=tuple(_member(brokers[replica]) for replica in members),
        controller_epoch=controller_epoch,
        partition_epoch=0,
    )


def settle(
    replicas: Sequence[BrokerId],
    state: PartitionState,
    brokers: Brokers,
    ineligible: Collection[BrokerId],
    controller_epoch: int,
    *,
    allows_unclean: bool = False,
    factor: int | None = None,
) -> PartitionState | None:
    """The state that ought to follow `state`; None if it may stand. `factor`: how many of `replicas` ought to have a copy,
    without those that a reassignment is just adding; all of them unless given.

    Only a change of leader raises the leader epoch: a smaller ISR leaves the leader's maximal ISR a superset (I4), and
    followers need not truncate again (F05.10, KAFKA-15021).
    """
    unbroken = [member for member in state.isr if same_life(member, brokers)]
    # The last member stays even under suspicion: without it nobody could lead, and its session decides soon enough.
    isr = [member for member in unbroken if member.broker_id not in ineligible] or unbroken
    if isr:
        names = [BrokerId(member.broker_id) for member in isr]
        leader = state.leader if state.leader in names else elect_offline(replicas, names)
        return _next(state, leader, tuple(isr), controller_epoch)
    only_copy = (len(replicas) if factor is None else factor) == len(state.isr) == 1
    returned = next((r for r in replicas if r not in ineligible and _complete(r, state.isr, brokers, only_copy)), None)
    if returned is None and allows_unclean:
        chosen = unclean(replicas, state, brokers, ineligible, controller_epoch)
        if chosen is not None:
            return chosen
    if returned is None:
        # Leader none, ISR kept: whoever is in it may lead when it comes back (HOLE-50), nobody else may (HOLE-25).
        return _next(state, NO_LEADER, state.isr, controller_epoch)
    return _next(state, returned, (_member(brokers[returned]),), controller_epoch)


def preferred(
    replicas: Sequence[BrokerId],
    state: PartitionState,
    brokers: Brokers,
    ineligible: Collection[BrokerId],
    controller_epoch: int,
) -> PartitionState | None:
    """The first assigned replica leads; None if it may not: not in the ISR in its present life, or about to leave it (F13.1,
    HOLE-33). `state` has another leader, or none."""
    head = replicas[0]
    member = next((member for member in state.isr if member.broker_id == head), None)
    if state.leader == NO_LEADER or head in ineligible or member is None or not same_life(member, brokers):
        return None
    return _next(state, head, state.isr, controller_epoch)


def alive(replicas: Sequence[BrokerId], brokers: Brokers, ineligible: Collection[BrokerId]) -> list[BrokerId]:
    """Replicas that an unclean election may choose from, in the assigned order."""
    return [each for each in replicas if each in brokers and each not in ineligible]


def unclean(
    replicas: Sequence[BrokerId],
    state: PartitionState,
    brokers: Brokers,
    ineligible: Collection[BrokerId],
    controller_epoch: int,
) -> PartitionState | None:
    """The first live replica leads a partition without a leader, with what it has; None if none is alive (F13.1, HOLE-25)."""
    assert state.leader == NO_LEADER or not any(same_life(member, brokers) for member in state.isr), state
    candidates = alive(replicas, brokers, ineligible)
    return _alone(state, brokers[candidates[0]], controller_epoch) if candidates else None


def vetoed(
    replicas: Sequence[BrokerId], state: PartitionState, brokers: Brokers, ineligible: Collection[BrokerId]
) -> BrokerId | None:
    """The ISR member that is back and may not lead because it may have lost records; None where that is not why the
    partition has no leader (reliability 3.6 rule D)."""
    if state.leader != NO_LEADER:
        return None
    returned = (each for each in replicas if each in brokers and each not in ineligible)
    return next((each for each in returned if _life(each, state.isr) is not None), None)


def renewed(state: PartitionState, controller_epoch: int) -> PartitionState:
    """The same leader in a new epoch: its disk has failed in this one and works again, and it has forgotten what it proposed.
    The epoch fences that."""
    return replace(
        state,
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller_epoch,
        partition_epoch=state.partition_epoch + 1,
    )


def released(state: PartitionState, broker: Broker, controller_epoch: int) -> PartitionState:
    """An operator lets the vetoed member lead. What it has lost is lost, so it recovers like one elected uncleanly."""
    return _alone(state, broker, controller_epoch)


def _alone(state: PartitionState, broker: Broker, controller_epoch: int) -> PartitionState:
    return PartitionState(
        leader=broker.broker_id,
        leader_epoch=state.leader_epoch + 1,
        isr=(_member(broker),),
        controller_epoch=controller_epoch,
        partition_epoch=state.partition_epoch + 1,
        recovering=True,
    )


def _next(
    state: PartitionState, leader: BrokerId, isr: tuple[IsrMember, ...], controller_epoch: int
) -> PartitionState | None:
    # A leader in another life is another leader: its followers must compare logs with it again.
    same_leader = leader == state.leader and (leader == NO_LEADER or _life(leader, isr) == _life(leader, state.isr))
    if same_leader and isr == state.isr:
        return None
    return PartitionState(
        leader=leader,
        leader_epoch=state.leader_epoch if same_leader else state.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        partition_epoch=state.partition_epoch + 1,
        recovering=state.recovering,  # until somebody reports back
    )


def _complete(replica: BrokerId, isr: Sequence[IsrMember], brokers: Brokers, only_copy: bool) -> bool:
    """A broker that returned in another life still holds everything committed, or there is no other copy to wait for.

    An ISR member that has lost nothing since the life in which it was admitted still has what it had then. One with another
    data directory has none of it, even as the only copy: the directory of that life may come back.
    """
    broker = brokers.get(replica)
    if broker is None:
        return False
    epoch = _life(replica, isr)
    return epoch is not None and broker.had(epoch) and (broker.intact_since <= epoch or only_copy)


def same_life(member: IsrMember, brokers: Brokers) -> bool:
    broker = brokers.get(BrokerId(member.broker_id))
    return broker is not None and broker.epoch == member.broker_epoch


def _life(replica: BrokerId, isr: Sequence[IsrMember]) -> int | None:
    return next((member.broker_epoch for member in isr if member.broker_id == replica), None)


def _member(broker: Broker) -> IsrMember:
    return IsrMember(broker_id=broker.broker_id, broker_epoch=broker.epoch)
