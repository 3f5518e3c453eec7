"""A leader or follower under test: events by short names, literal effects, `validate()` after each step."""

import copy
from collections.abc import Sequence

from tidelog.errors import ErrorCode
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica.isr import Member
from tidelog.replica.partition import PartitionReplica

LAG_MAX_S = 10.0
LONG_AFTER_S = 1_000_000.0


def members(*ids: int, epoch: int = 1) -> frozenset[Member]:
    """Members in their first life; the broker epoch of broker n is n * 100 + `epoch`."""
    return frozenset(Member(i, life(i, epoch)) for i in ids)


def life(broker_id: int, epoch: int = 1) -> int:
    return broker_id * 100 + epoch


class ReplicaHarness:
    def __init__(self, me: int = 1, leo: int = 10, hw: int = 10) -> None:
        self.replica = PartitionReplica(me, leo, hw, LAG_MAX_S)
        self.me = me
        self.live = {i: life(i) for i in (1, 2, 3)}

    def step(self, event: ev.Event) -> Sequence[fx.Effect]:
        out = self.replica.step(event)
        self.replica.validate()
        if not self.replica.heeds_time:
            late = copy.deepcopy(self.replica).step(ev.Tick(LONG_AFTER_S))
            assert late == [], f"after {event} it heeds no time, and yet a tick brings {late}"
        return out

    def told(
        self,
        leader: int,
        leader_epoch: int = 5,
        partition_epoch: int = 50,
        isr: frozenset[Member] | None = None,
        at: float = 0.0,
        min_isr: int = 2,
        replicas: tuple[int, ...] = (1, 2, 3),
    ) -> Sequence[fx.Effect]:
        wanted = members(1, 2, 3) if isr is None else isr
        return self.step(
            ev.LeaderAndIsr(leader, leader_epoch, partition_epoch, wanted, replicas, min_isr, dict(self.live), at)
        )

    def appended(self, leo: int, at: float = 1.0) -> Sequence[fx.Effect]:
        return self.step(ev.Appended(leo, at))

    def fetched(
        self,
        replica: int,
        offset: int,
        at: float = 1.0,
        leader_epoch: int = 5,
        epoch: int = 1,
        last_epoch: int = 4,
        found: tuple[int, int] | None = None,
    ) -> list[fx.Effect]:
        """A position whose history agrees with the leader's, unless `found` says otherwise; SendRecords is left out."""
        found_epoch, found_end = found or (last_epoch, 1_000_000)
        out = self.step(
            ev.FollowerPosition(
                replica, life(replica, epoch), leader_epoch, offset, last_epoch, found_epoch, found_end, at
            )
        )
        return [e for e in out if not isinstance(e, fx.SendRecords)]

    def answered(
        self,
        proposal: fx.ProposeIsr,
        code: ErrorCode = ErrorCode.NONE,
        partition_epoch: int = 51,
        isr: frozenset[Member] | None = None,
        at: float = 2.0,
        leader_epoch: int = 5,
    ) -> Sequence[fx.Effect]:
        state = proposal.isr if isr is None else isr
        return self.step(ev.IsrAnswered(proposal, code, leader_epoch, partition_epoch, state, at))

    def tick(self, at: float) -> Sequence[fx.Effect]:
        return self.step(ev.Tick(at))


def leader(isr: frozenset[Member] | None = None, leo: int = 10, hw: int = 10, min_isr: int = 2) -> ReplicaHarness:
    """Broker 1 leads epoch 5 with partition epoch 50; followers of the ISR stand at `leo`."""
    harness = ReplicaHarness(1, leo, hw)
    harness.told(1, isr=isr, min_isr=min_isr)
    for member in sorted(members(2, 3) if isr is None else isr):
        if member.broker_id != 1:
            harness.fetched(member.broker_id, leo, at=0.0)
    return harness


def follower(of: int = 2, leo: int = 10, hw: int = 8, epoch: int = 5) -> ReplicaHarness:
    harness = ReplicaHarness(1, leo, hw)
    harness.told(of, leader_epoch=epoch)
    return harness
