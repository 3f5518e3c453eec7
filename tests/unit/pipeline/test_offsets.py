"""Which offsets a batch reads, and when that is data loss."""

import pytest

from tidelog.ids import Address, TopicPartition
from tidelog.pipeline.offsets import DataLossError, OffsetRange, plan_batch
from tidelog.pipeline.options import EARLIEST, LATEST, SourceOptions, Subscribe

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEGINNINGS = {T1: 0, T0: 10}
ENDS = {T1: 7, T0: 20}


def options(starting=EARLIEST, ending=LATEST, fail=True):
    return SourceOptions((Address("a", 1),), Subscribe(("t",)), starting, ending, fail_on_data_loss=fail)


def test_a_whole_topic_has_one_range_for_each_partition_in_order():
    batch = plan_batch(options(), BEGINNINGS, ENDS)
    assert batch.ranges == (OffsetRange(T0, 10, 20), OffsetRange(T1, 0, 7))
    assert batch.warnings == ()


def test_positions_and_their_stand_ins():
    batch = plan_batch(options({T0: 12, T1: EARLIEST}, {T0: LATEST, T1: 5}), BEGINNINGS, ENDS)
    assert batch.ranges == (OffsetRange(T0, 12, 20), OffsetRange(T1, 0, 5))


def test_empty_ranges_are_left_out():
    assert plan_batch(options({T0: 20, T1: 0}), BEGINNINGS, ENDS).ranges == (OffsetRange(T1, 0, 7),)
    assert plan_batch(options(), {T0: 5}, {T0: 5}).ranges == ()


@pytest.mark.parametrize(
    "starting, ending, kept",
    [({T0: 9, T1: 0}, LATEST, OffsetRange(T0, 10, 20)), (EARLIEST, {T0: 21, T1: 7}, OffsetRange(T0, 10, 20))],
)
def test_a_position_outside_the_log_is_data_loss(starting, ending, kept):
    with pytest.raises(DataLossError, match=r"t-0: offsets .* the log holds 10 to 20.*failOnDataLoss=false"):
        plan_batch(options(starting, ending), BEGINNINGS, ENDS)
    batch = plan_batch(options(starting, ending, fail=False), BEGINNINGS, ENDS)
    assert batch.ranges[0] == kept
    assert len(batch.warnings) == 1


def test_a_range_that_is_gone_altogether_is_empty_without_fail_on_data_loss():
    batch = plan_batch(options({T0: 0, T1: 7}, {T0: 5, T1: 7}, fail=False), BEGINNINGS, ENDS)
    assert batch.ranges == ()


@pytest.mark.parametrize(
    "starting, ending, complaint",
    [
        ({T0: 10}, LATEST, "startingOffsets must name every partition that is read; it does not name t-1"),
        ({T0: 10, T1: 0, TopicPartition("u", 3): 1}, LATEST, "names u-3, which is not read"),
        (EARLIEST, {T0: 20}, "endingOffsets must name every partition"),
        ({T0: 15, T1: 0}, {T0: 12, T1: 7}, "t-0: startingOffsets 15 is after endingOffsets 12"),
    ],
)
def test_positions_that_do_not_fit_are_named(starting, ending, complaint):
    with pytest.raises(ValueError, match=complaint):
        plan_batch(options(starting, ending), BEGINNINGS, ENDS)
