"""Where a micro-batch ends, and what between two of them is data loss."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.ids import TopicPartition
from tidelog.pipeline.admission import (
    Extent,
    History,
    Limits,
    admit,
    batch_ranges,
    from_stream_offset,
    split,
    to_stream_offset,
)
from tidelog.pipeline.offsets import OffsetRange

T0, T1, T2, T10 = (TopicPartition("t", n) for n in (0, 1, 2, 10))
U0 = TopicPartition("u", 0)
ID, OTHER_ID = b"one", b"other"
NO_LIMITS = Limits()
KNOWN = History(topic_ids={"t": ID})

partitions = st.builds(TopicPartition, st.sampled_from("tu"), st.integers(0, 11))
lags = st.dictionaries(partitions, st.integers(1, 10**12), min_size=1, max_size=12)


def logs(**ends):
    """`t0=7` is partition 0 of topic t with offsets 0 to 7; a tuple gives both."""
    found = {}
    for name, held in ends.items():
        first, end = held if isinstance(held, tuple) else (0, held)
        found[TopicPartition(name[0], int(name[1:]))] = Extent(ID, first, end)
    return found


def admitted(start, extents, history=KNOWN, limits=NO_LIMITS, now=100.0):
    found = admit(start, extents, history, limits, now)
    assert found.losses == ()
    return found


# -- offsets ----------------------------------------------------------------------------------------------------------


def test_a_stream_offset_has_one_text_whatever_the_order_it_was_made_in():
    one = to_stream_offset({U0: 1, T10: 2, T2: 3, T0: 4})
    assert json.dumps(one) == '{"t": {"0": 4, "2": 3, "10": 2}, "u": {"0": 1}}'
    assert json.dumps(to_stream_offset({T0: 4, T2: 3, T10: 2, U0: 1})) == json.dumps(one)


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1)))
def test_a_stream_offset_comes_back_from_its_text(positions):
    assert from_stream_offset(json.loads(json.dumps(to_stream_offset(positions)))) == positions


@pytest.mark.parametrize(
    "offset",
    [None, [], {"t": 3}, {"t": {"x": 1}}, {"t": {"0": "1"}}, {"t": {"0": -1}}, {"t": {"0": True}}, {"t": {"0": 1.0}}],
)
def test_an_offset_of_something_else_is_refused_by_its_shape(offset):
    with pytest.raises(ValueError, match="stream offset in the checkpoint must be like"):
        from_stream_offset(offset)


# -- the split --------------------------------------------------------------------------------------------------------


@given(lags, st.integers(1, 10**12), st.none() | partitions)
def test_a_split_gives_the_limit_or_all_there_is_and_nobody_more_than_it_has(lags, limit, served):
    shares, _ = split(lags, limit, served)
    assert sum(shares.values()) == min(limit, sum(lags.values()))
    assert all(1 <= share <= lags[tp] for tp, share in shares.items())


@given(lags, st.integers(1, 10**12))
def test_a_split_is_in_proportion_to_the_lag_but_for_the_first_record_of_each(lags, limit):
    shares, _ = split(lags, limit, None)
    total = sum(lags.values())
    if len(lags) <= limit < total:
        assert shares.keys() == lags.keys()
        for tp, lag in lags.items():
            assert abs(shares[tp] * total - limit * lag) <= (len(lags) + 1) * total


@given(st.data())
def test_no_partition_starves_while_others_are_refilled(data):
    """However the lags of the others change: with a limit for one in k partitions it has its turn in k batches."""
    everyone = [TopicPartition("t", n) for n in range(data.draw(st.integers(1, 9)))]
    limit = data.draw(st.integers(1, 9))
    patient = data.draw(st.sampled_from(everyone))
    served = data.draw(st.none() | st.sampled_from(everyone))
    for _ in range(-(-len(everyone) // limit)):
        waiting = data.draw(st.sets(st.sampled_from(everyone))) | {patient}
        shares, served = split(dict.fromkeys(waiting, 1000), limit, served)
        if patient in shares:
            return
    pytest.fail(f"{patient} got nothing")


def test_a_drained_partition_leaves_the_batch_full():
    """Equal parts shrink it instead (ecosystem 3.2)."""
    assert split({T0: 1000, T1: 10}, 400, None)[0] == {T0: 395, T1: 5}
    assert split({T0: 1000}, 400, None)[0] == {T0: 400}


def test_a_small_partition_has_a_record_in_every_batch():
    assert split({T0: 10**9, T1: 1, T2: 1}, 4, None)[0] == {T0: 2, T1: 1, T2: 1}


def test_a_limit_below_the_number_of_partitions_goes_round():
    lags = {T0: 9, T1: 9, T2: 9}
    shares, served = split(lags, 2, None)
    assert (shares, served) == ({T0: 1, T1: 1}, T1)
    shares, served = split(lags, 2, served)
    assert (shares, served) == ({T2: 1, T0: 1}, T0)
    assert split(lags, 2, served) == ({T1: 1, T2: 1}, T2)


def test_no_limit_gives_everything():
    assert split({T0: 5, T1: 7}, None, T0) == ({T0: 5, T1: 7}, T0)


# -- one batch after the other ----------------------------------------------------------------------------------------


def test_a_batch_ends_at_the_high_watermarks():
    found = admitted({T0: 2, T1: 5}, logs(t0=7, t1=5))
    assert found.end == {T0: 7, T1: 5}


def test_nothing_new_ends_where_it_began():
    found = admitted({T0: 7}, logs(t0=7), replace(KNOWN, batch_at=1.0))
    assert found.end == {T0: 7}
    assert found.history.batch_at == 1.0


@given(lags, st.integers(1, 10**9))
def test_limited_batches_reach_exactly_the_ends_that_were_fixed(lags, limit):
    """Trigger.AvailableNow: whole batches, then one with the rest, then the same offset again."""
    ends = {tp: Extent(ID, 0, lag) for tp, lag in lags.items()}
    limit = max(limit, sum(lags.values()) // 50 or 1)
    start, history, counts = dict.fromkeys(lags, 0), History(), []
    while (found := admitted(start, ends, history, Limits(at_most=limit))).end != start:
        ranges = batch_ranges(start, found.end)
        counts.append(sum(r.end - r.start for r in ranges))
        start, history = dict(found.end), found.history
    assert start == lags
    assert all(count == limit for count in counts[:-1]) and 0 < counts[-1] <= limit


def test_an_added_partition_is_read_from_its_first_record_and_within_the_limit():
    found = admitted({T0: 100}, logs(t0=200, t1=100, u0=0), limits=Limits(at_most=100))
    assert found.end == {T0: 150, T1: 50, U0: 0}
    assert batch_ranges({T0: 100}, found.end) == (OffsetRange(T0, 100, 150), OffsetRange(T1, 0, 50))


def test_an_added_partition_whose_first_records_are_gone_is_data_loss():
    found = admit({T0: 0}, logs(t0=0, t1=(40, 100)), KNOWN, Limits(at_most=10), 0.0)
    assert found.losses == ("t-1: it was added, and offsets 0 to 40 are gone; the log holds offsets 40 to 100",)
    assert found.end == {T0: 0, T1: 50}


def test_a_partition_that_is_gone_is_data_loss_and_leaves_the_offset():
    found = admit({T0: 3, T1: 12}, logs(t0=5), KNOWN, NO_LIMITS, 0.0)
    assert found.losses == ("t-1: it was read up to offset 12 and is gone, or no longer selected",)
    assert found.end == {T0: 5}
    assert batch_ranges({T0: 3, T1: 12}, found.end) == (OffsetRange(T0, 3, 5),)


@pytest.mark.parametrize("end", [2, 12, 30])
def test_a_topic_that_was_created_anew_is_data_loss_and_is_read_from_its_start_in_the_batch_after(end):
    """Also where it has grown beyond the offset that was reached: its id tells."""
    start, extents = {T0: 12}, {T0: Extent(OTHER_ID, 0, end)}
    found = admit(start, extents, KNOWN, NO_LIMITS, 0.0)
    assert found.losses == (
        f"t-0: its topic was deleted after offset 12 was reached, and created anew; the log holds offsets 0 to {end}",
    )
    assert found.end == {T0: 0}
    assert batch_ranges(start, found.end) == ()
    assert admitted(found.end, extents, found.history).end == {T0: end}


def test_after_a_restart_a_smaller_end_is_a_log_that_began_anew():
    found = admit({T0: 12}, logs(t0=5), History(), NO_LIMITS, 0.0)
    assert found.losses == ("t-0: it was read up to offset 12, and the log holds offsets 0 to 5",)
    assert found.end == {T0: 0}


def test_a_log_of_the_same_topic_that_became_shorter_is_read_on_from_its_end():
    found = admit({T0: 12}, logs(t0=5), KNOWN, NO_LIMITS, 0.0)
    assert len(found.losses) == 1
    assert found.end == {T0: 5}
    assert batch_ranges({T0: 12}, found.end) == ()
    assert admitted(found.end, logs(t0=8), found.history).end == {T0: 8}


def test_records_that_were_deleted_before_they_were_read_are_data_loss_and_do_not_count_in_the_limit():
    found = admit({T0: 10, T1: 0}, logs(t0=(60, 100), t1=0), KNOWN, Limits(at_most=20), 0.0)
    assert found.losses == ("t-0: offsets 10 to 60 are gone before they were read; the log holds offsets 60 to 100",)
    assert found.end == {T0: 80, T1: 0}


def test_each_loss_is_named():
    found = admit({T0: 10, T1: 5, U0: 1}, logs(t0=(20, 30), t1=2), KNOWN, NO_LIMITS, 0.0)
    assert [loss.partition(":")[0] for loss in found.losses] == ["t-0", "t-1", "u-0"]


# -- at least so many -------------------------------------------------------------------------------------------------

PATIENT = Limits(at_least=10, max_delay_s=60.0)


def test_the_first_batch_of_a_run_never_waits():
    found = admitted({T0: 0}, logs(t0=1), limits=PATIENT)
    assert found.end == {T0: 1}
    assert found.history.batch_at == 100.0


def test_a_batch_waits_until_there_are_enough_over_all_partitions():
    history = replace(KNOWN, batch_at=99.0)
    assert admitted({T0: 0, T1: 0}, logs(t0=5, t1=4), history, PATIENT).end == {T0: 0, T1: 0}
    assert admitted({T0: 0, T1: 0}, logs(t0=5, t1=5), history, PATIENT).end == {T0: 5, T1: 5}


def test_a_batch_waits_no_longer_than_the_delay():
    history = replace(KNOWN, batch_at=50.0)
    held = admitted({T0: 0}, logs(t0=5), history, PATIENT, now=109.9)
    assert held.end == {T0: 0} and held.history.batch_at == 50.0
    sent = admitted({T0: 0}, logs(t0=5), held.history, PATIENT, now=110.0)
    assert sent.end == {T0: 5} and sent.history.batch_at == 110.0


def test_the_delay_runs_from_the_last_batch_that_had_records():
    history = replace(KNOWN, batch_at=50.0)
    quiet = admitted({T0: 5}, logs(t0=5), history, PATIENT, now=200.0)
    assert admitted({T0: 5}, logs(t0=6), quiet.history, PATIENT, now=201.0).end == {T0: 6}


def test_at_least_and_at_most_hold_together():
    both = Limits(at_most=20, at_least=10, max_delay_s=60.0)
    history = replace(KNOWN, batch_at=99.0)
    assert admitted({T0: 0}, logs(t0=9), history, both).end == {T0: 0}
    assert admitted({T0: 0}, logs(t0=90), history, both).end == {T0: 20}


def test_a_batch_that_waits_does_not_forget_the_turn_and_learns_the_ids():
    history = History(served=T1, batch_at=99.0)
    assert admitted({T0: 0}, logs(t0=5), history, PATIENT).history == History({"t": ID}, T1, 99.0)


def test_data_loss_does_not_wait():
    found = admit({T0: 0, T1: 3}, logs(t0=5), replace(KNOWN, batch_at=99.0), PATIENT, 100.0)
    assert found.end == {T0: 5} and len(found.losses) == 1
