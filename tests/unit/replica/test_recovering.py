"""A leader that was elected uncleanly reports back before anybody may join (HOLE-26, KIP-704)."""

from helpers.replica import ReplicaHarness, life, members
from helpers.requirements import requirement
from tidelog.errors import ErrorCode
from tidelog.replica import effects as fx
from tidelog.replica import events as ev


def elected() -> ReplicaHarness:
    """Broker 1, with a log of 10 records of which it knows 8 to be committed, told that it leads epoch 5 uncleanly."""
    return ReplicaHarness(1, leo=10, hw=8)


def told(harness: ReplicaHarness, *, partition_epoch: int = 50, recovering: bool = True) -> list[fx.Effect]:
    event = ev.LeaderAndIsr(
        leader=1,
        leader_epoch=5,
        partition_epoch=partition_epoch,
        isr=members(1),
        replicas=(1, 2, 3),
        min_isr=2,
        live={i: life(i) for i in (1, 2, 3)},
        at=0.0,
        recovering=recovering,
    )
    return list(harness.step(event))


BELOW_MIN_ISR = [fx.FailPending(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
REPORT = fx.ProposeIsr(5, 50, members(1))


@requirement("An uncleanly elected leader reports back before its ISR grows")
def test_it_settles_its_epoch_then_reports_with_the_isr_as_it_is() -> None:
    harness = elected()
    assert told(harness) == [fx.StartEpoch(5, 10), REPORT]


@requirement("An uncleanly elected leader reports back before its ISR grows")
def test_nobody_is_proposed_before_the_report_is_answered() -> None:
    harness = elected()
    told(harness)
    assert harness.fetched(2, 10) == [] and harness.tick(1.0) == []
    assert harness.answered(REPORT, partition_epoch=51) == [
        *BELOW_MIN_ISR,
        fx.ProposeIsr(5, 51, members(1, 2)),
    ]


@requirement("An ISR change of unknown outcome stays pending")
def test_the_report_goes_out_again_until_it_is_answered() -> None:
    harness = elected()
    told(harness)
    assert harness.answered(REPORT, ErrorCode.NOT_CONTROLLER, partition_epoch=-1) == [REPORT]
    assert told(harness) == []  # the same decision repeated: the report is under way
    # The next controller has it from the store and tells: no report is due any more.
    assert told(harness, partition_epoch=51, recovering=False) == BELOW_MIN_ISR
    assert harness.fetched(2, 10) == [fx.ProposeIsr(5, 51, members(1, 2))]


@requirement("The high watermark stands still below min.insync.replicas")
def test_the_high_watermark_stays_below_min_isr() -> None:
    harness = elected()
    told(harness)
    harness.answered(REPORT)
    assert harness.replica.high_watermark == 8
