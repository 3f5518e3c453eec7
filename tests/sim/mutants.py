"""Mistakes planted in the real code, each a documented one: the simulator must find them (reliability 10).

They are those that random faults hit within some 20 seeds each. What needs one exact order of events (positions unfenced by
epoch, no epoch-start rule, no version check) is held by the tests of the machines.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from tidelog.broker.fetch import FetchHandler
from tidelog.broker.partition_host import PartitionHost
from tidelog.controller import election
from tidelog.controller.model import Partition
from tidelog.replica import events as ev
from tidelog.replica.isr import PendingExpand, PendingShrink
from tidelog.replica.partition import PartitionReplica
from tidelog.wire import messages as m

Patch = pytest.MonkeyPatch


def acks_all_like_acks_1(patch: Patch) -> None:
    """A produce is answered when the leader has appended it."""

    def wait_committed(self: PartitionHost, end: int) -> Any:
        future = self.pending.add(end)
        self.pending.complete_below(end)
        return future

    patch.setattr(PartitionHost, "wait_committed", wait_committed)


def reads_beyond_the_high_watermark(patch: Patch) -> None:
    """A consumer is shown whatever the leader has appended."""
    real = FetchHandler._read

    def read(self: FetchHandler, host: PartitionHost, *args: Any, **named: Any) -> m.FetchResult:
        kept, host.replica.high_watermark = host.replica.high_watermark, host.log.log_end_offset
        try:
            return real(self, host, *args, **named)
        finally:
            host.replica.high_watermark = kept

    patch.setattr(FetchHandler, "_read", read)


def mut_5_no_truncation(patch: Patch) -> None:
    """A follower's history is taken to agree with its leader's, whatever it is."""
    real = PartitionReplica._on_position

    def on_position(self: PartitionReplica, event: ev.FollowerPosition) -> Any:
        return real(self, replace(event, found_epoch=event.last_epoch, found_end=event.offset))

    patch.setattr(PartitionReplica, "_on_position", on_position)


def mut_6_expansion_not_counted(patch: Patch) -> None:
    """A leader holds itself to the ISR that it knows, although a larger one may be stored."""
    patch.setattr(PendingExpand, "maximal_isr", property(lambda self: self.committed.isr))


def mut_7_shrink_counted_early(patch: Patch) -> None:
    """A leader holds itself to the smaller ISR that it has asked for."""
    patch.setattr(PendingShrink, "maximal_isr", property(lambda self: self.proposed))


def mut_11_no_bounce_detection(patch: Patch) -> None:
    """A broker that comes back in another life is taken for the one that left."""
    patch.setattr(election, "_same_life", lambda member, brokers: member.broker_id in brokers)
    patch.setattr(Partition, "led_by_former_life_of", lambda self, broker: False)


def mut_13_no_veto(patch: Patch) -> None:
    """The last member of an ISR may lead again although its data directory has lost something."""

    def complete(replica: Any, replicas: Any, isr: Any, brokers: Any) -> bool:
        return replica in brokers and election._life(replica, isr) is not None

    patch.setattr(election, "_complete", complete)


def unclean_election(patch: Patch) -> None:
    """Whoever is alive may lead where nobody in sync is."""
    patch.setattr(election, "_complete", lambda replica, replicas, isr, brokers: replica in brokers)


FOUND_BY: Final[dict[Callable[[Patch], None], int]] = {
    acks_all_like_acks_1: 9,
    reads_beyond_the_high_watermark: 9,
    mut_5_no_truncation: 16,
    mut_6_expansion_not_counted: 17,
    mut_7_shrink_counted_early: 6,
    mut_11_no_bounce_detection: 1,
    mut_13_no_veto: 11,
    unclean_election: 3,
}
"""A seed that finds it."""
