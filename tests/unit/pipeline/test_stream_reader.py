"""The stream reader between Spark, which calls it, and the cluster, which it asks; here a table stands for the cluster."""

import json
import logging
import pickle
from dataclasses import dataclass, field, replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.pipeline import lookups
from tidelog.pipeline.offsets import DataLossError, place
from tidelog.pipeline.source_options import parse_stream_options
from tidelog.pipeline.stream_reader import TidelogStreamReader

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ALL = ReadAllAvailable()


@dataclass
class Table:
    """Per partition: the id of its topic, where its log starts, and the high watermark."""

    logs: dict[TopicPartition, tuple[bytes, int, int]]
    looks: int = 0
    before_look: list = field(default_factory=list)
    """Called at each look in turn, and popped: what happens meanwhile."""

    def append(self, tp, count):
        topic_id, start, end = self.logs[tp]
        self.logs[tp] = (topic_id, start, end + count)


class TableLookUps:
    table: Table

    def __init__(self, options):
        self._options = options

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def partitions(self, *, missing_is_none=False):
        self.table.looks += 1
        if self.table.before_look:
            self.table.before_look.pop(0)()
        if not (self.table.logs or missing_is_none):
            raise TidelogError("subscribe: topic 't' does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {tp: log[0] for tp, log in sorted(self.table.logs.items())}

    async def beginnings(self, tps):
        return {tp: self.table.logs[tp][1] for tp in tps}

    async def ends(self, tps):
        return {tp: self.table.logs[tp][2] for tp in tps}

    async def starts(self, beginnings, ends):
        return place("startingOffsets", self._options.starting, beginnings, ends)


class Ticks:
    """Sleeps pass at once."""

    def __init__(self):
        self.at, self.slept = 1000.0, []

    def now(self):
        return self.at

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.at += seconds


MADE = []


@pytest.fixture
def table(monkeypatch):
    """Whoever asks it through a reader has an event loop, which `stop` closes."""
    monkeypatch.setattr(lookups, "LookUps", TableLookUps)
    TableLookUps.table = Table({T0: (b"id", 0, 100), T1: (b"id", 0, 50)})
    yield TableLookUps.table
    while MADE:
        MADE.pop().stop()


def reader(**options):
    parsed = parse_stream_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options})
    made = TidelogStreamReader(replace(parsed, retry_interval_ms=250))
    made._clock = Ticks()
    MADE.append(made)
    return made


def offset(t0=None, t1=None, t=b"id", **more):
    """`t` is the id of topic t."""
    partitions = {str(p): n for p, n in enumerate((t0, t1)) if n is not None}
    found = {**({"t": partitions} if partitions else {}), **more}
    return {**found, **({"topic ids": {topic: {"t": t, "u": b"u"}[topic].hex() for topic in found}} if found else {})}


def bare(*args):
    """Made by 0.2.0."""
    return {topic: each for topic, each in offset(*args).items() if topic != "topic ids"}


def ranges(partitions):
    return [(p.wanted.partition, p.wanted.start, p.wanted.end) for p in partitions]


# -- where a query starts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, offset(100, 50)),
        ({"startingOffsets": "earliest"}, offset(0, 0)),
        ({"startingOffsets": '{"t":{"1":7,"0":-1}}'}, offset(100, 7)),
    ],
)
def test_a_new_query_starts_where_its_options_say_and_by_default_at_the_end(table, options, expected):
    assert reader(**options).initialOffset() == expected


def test_the_start_of_a_query_is_looked_up_once(table):
    """Spark asks when it plans the first batch and again when it runs it: records between must not fall through."""
    query = reader()
    first = query.initialOffset()
    table.append(T0, 5)
    assert query.initialOffset() == first


@pytest.mark.parametrize("position, kept", [(101, 100), (5, 10)])
def test_a_start_outside_the_log_is_data_loss(table, caplog, position, kept):
    table.logs[T0] = (b"id", 10, 100)
    options = {"startingOffsets": json.dumps({"t": {"0": position, "1": 0}})}
    with pytest.raises(DataLossError, match=rf"t-0: .* start at offset {position}; the log holds offsets 10 to 100"):
        reader(**options).initialOffset()
    assert reader(**options, failOnDataLoss="false").initialOffset() == offset(kept, 0)
    assert f"start at offset {position}" in caplog.text and "reading what there is" in caplog.text


def test_the_first_batch_reads_nothing_where_the_query_starts_at_the_end(table):
    """It puts the start into the checkpoint; looked up anew after a failure it would be further on, and records missed."""
    query = reader()
    start = query.initialOffset()
    table.append(T0, 5)
    assert query.latestOffset(start, ALL) == start
    assert query.latestOffset(start, ALL) == offset(105, 50)
    table.append(T0, 5)
    again = reader()
    moved = again.initialOffset()
    assert again.partitions(moved, start) == []  # the first batch, repeated after a restart
    assert ranges(again.partitions(start, again.latestOffset(start, ALL))) == [(T0, 100, 110)]


def test_the_first_batch_reads_where_the_query_starts_inside_the_log(table):
    query = reader(startingOffsets='{"t":{"0":90,"1":-1}}')
    start = query.initialOffset()
    table.append(T1, 3)
    assert query.latestOffset(start, ALL) == offset(100, 50)
    assert query.latestOffset(offset(100, 50), ALL) == offset(100, 53)


def test_a_checkpoint_overrules_the_starting_offsets(table):
    assert reader(startingOffsets='{"t":{"0":0,"1":999}}').latestOffset(offset(70, 50), ALL) == offset(100, 50)


def test_a_new_query_needs_its_topics_and_one_that_runs_may_lose_them(table):
    table.logs.clear()
    with pytest.raises(TidelogError, match="'t' does not exist"):
        reader().initialOffset()
    assert reader(failOnDataLoss="false").latestOffset(offset(100, 50), ALL) == {}


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, limit",
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "9"}, ReadMaxRows(9)),
        ({"minOffsetsPerTrigger": "4"}, ReadMinRows(4)),
        ({"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "9"}, ReadMaxRows(9)),
    ],
)
def test_the_limit_of_a_batch_is_in_its_options(table, options, limit):
    assert reader(**options).getDefaultReadLimit() == limit


def test_options_without_effect_are_told_once_a_query(table, caplog):
    query = reader(startingOffsets="earliest", startingTimestamp="7")
    query.getDefaultReadLimit()
    assert "startingOffsets has no effect beside startingTimestamp" in caplog.text


def test_a_batch_holds_no_more_than_its_limit(table):
    query = reader(maxOffsetsPerTrigger="30")
    assert query.latestOffset(offset(0, 0), query.getDefaultReadLimit()) == offset(20, 10)


@pytest.mark.parametrize("more", [{}, {"maxOffsetsPerTrigger": "500"}])
def test_a_batch_waits_for_its_least_number_until_the_delay_is_over(table, more):
    query = reader(minOffsetsPerTrigger="20", maxTriggerDelay="2m", **more)
    limit = query.getDefaultReadLimit()
    assert query.latestOffset(offset(100, 50), limit) == offset(100, 50)
    table.append(T0, 19)
    query._clock.at += 119.0
    assert query.latestOffset(offset(100, 50), limit) == offset(100, 50)
    query._clock.at += 1.0
    assert query.latestOffset(offset(100, 50), limit) == offset(119, 50)
    table.append(T0, 20)
    assert query.latestOffset(offset(119, 50), limit) == offset(139, 50)


def test_trigger_once_has_no_limits(table):
    query = reader(minOffsetsPerTrigger="200", maxOffsetsPerTrigger="300")
    query.latestOffset(offset(100, 50), ALL)
    table.append(T0, 5)
    assert query.latestOffset(offset(100, 50), ALL) == offset(105, 50)
    table.append(T0, 400)
    assert query.latestOffset(offset(105, 50), ALL) == offset(505, 50)


def test_a_limit_of_another_kind_is_refused(table):
    with pytest.raises(ValueError, match="ReadMaxBytes"):
        reader().latestOffset(offset(0, 0), ReadMaxBytes(5))


# -- Trigger.AvailableNow ---------------------------------------------------------------------------------------------


def run_to_the_end(query, start):
    ends = []
    while (end := query.latestOffset(start, query.getDefaultReadLimit())) != start:
        ends.append(end)
        start = end
    return ends


def test_available_now_reads_in_limited_batches_to_the_ends_that_were_fixed(table):
    query = reader(maxOffsetsPerTrigger="60")
    query.prepareForTriggerAvailableNow()
    table.append(T0, 1000)
    table.logs[U0] = (b"u", 0, 10)
    looks = table.looks
    ends = run_to_the_end(query, offset(0, 0))
    assert ends[-1] == offset(100, 50)
    assert [sum(e["t"].values()) for e in ends] == [60, 120, 150]
    assert query.reportLatestOffset() == bare(100, 50)
    assert table.looks == looks


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "1000"}])
def test_available_now_never_waits_for_a_least_number(table, options):
    query = reader(minOffsetsPerTrigger="900", **options)
    query.prepareForTriggerAvailableNow()
    assert run_to_the_end(query, offset(99, 50)) == [offset(100, 50)]
    query._history = replace(query._history, batch_at=query._clock.now())
    assert run_to_the_end(query, offset(98, 50)) == [offset(100, 50)]


def test_available_now_of_a_new_query_may_start_above_the_ends_that_were_fixed(table):
    """Records, and partitions, that come between the two look-ups are no data loss, and nothing of them is read."""
    query = reader()
    query.prepareForTriggerAvailableNow()
    table.append(T0, 5)
    table.logs[TopicPartition("t", 2)] = (b"id", 0, 3)
    start = query.initialOffset()
    assert start == {"t": {"0": 105, "1": 50, "2": 3}, "topic ids": {"t": b"id".hex()}}
    assert run_to_the_end(query, start) == []


def test_available_now_of_a_new_query_reads_all_that_was_fixed(table):
    query = reader(startingOffsets="earliest")
    query.prepareForTriggerAvailableNow()
    table.append(T1, 5)
    assert run_to_the_end(query, query.initialOffset()) == [offset(100, 50)]


def test_available_now_finds_data_loss_in_what_was_fixed_without_a_second_look(table):
    query = reader()
    query.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="t-0: it was read up to offset 120, and the log holds offsets 0 to 100"):
        query.latestOffset(offset(120, 50), ALL)
    assert query._clock.slept == []


# -- between two batches ----------------------------------------------------------------------------------------------


def test_added_partitions_and_topics_are_read_from_their_first_record(table):
    query = reader()
    query.latestOffset(offset(100, 50), ALL)
    table.logs[U0] = (b"u", 0, 10)
    end = query.latestOffset(offset(100, 50), ALL)
    assert end == offset(100, 50, u={"0": 10})
    assert ranges(query.partitions(offset(100, 50), end)) == [(U0, 0, 10)]


def test_the_end_is_written_in_one_order_whatever_the_cluster_answers(table):
    table.logs = {TopicPartition("t", n): (b"id", 0, n) for n in (10, 9, 2)} | {U0: (b"u", 0, 1)}
    start = {"u": {"0": 0}, "t": {"9": 9, "10": 10, "2": 2}}
    text = '{"t": {"2": 2, "9": 9, "10": 10}, "u": {"0": 1}, "topic ids": {"t": "6964", "u": "75"}}'
    assert json.dumps(reader().latestOffset(start, ALL)) == text


def test_a_partition_that_is_gone_ends_the_query_after_a_second_look_and_a_third(table):
    query = reader()
    del table.logs[T1]
    with pytest.raises(DataLossError, match=r"t-1: it was read up to offset 50 and is gone.*failOnDataLoss=false"):
        query.latestOffset(offset(100, 50), ALL)
    assert table.looks == 3
    assert query._clock.slept == [0.25, 0.25]


def test_a_partition_that_is_gone_is_a_warning_where_data_may_be_lost(table, caplog):
    query = reader(failOnDataLoss="false")
    del table.logs[T1]
    with caplog.at_level(logging.WARNING):
        end = query.latestOffset(offset(90, 50), ALL)
    assert end == offset(100)
    assert "t-1: it was read up to offset 50 and is gone" in caplog.text
    assert query.latestOffset(end, ALL) == end


def test_a_partition_that_was_away_for_one_look_is_not_lost(table, caplog):
    query = reader(failOnDataLoss="false")
    away = table.logs.pop(T1)
    table.before_look = [lambda: None, lambda: table.logs.update({T1: away})]
    assert query.latestOffset(offset(100, 50), ALL) == offset(100, 50)
    assert caplog.text == ""


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_was_created_anew_is_known_by_its_id(table, restarted):
    """Within a run also from an offset of 0.2.0, which has none."""
    start = offset(100, 50) if restarted else bare(100, 50)
    query, strict = reader(failOnDataLoss="false"), reader()
    if not restarted:
        assert query.latestOffset(start, ALL) == strict.latestOffset(start, ALL) == start
    table.logs = {T0: (b"other", 0, 300), T1: (b"other", 0, 300)}
    with pytest.raises(
        DataLossError, match="t-0: its topic was deleted after offset 100 was reached, and created anew"
    ):
        strict.latestOffset(start, ALL)
    end = query.latestOffset(start, ALL)
    assert end == offset(0, 0, t=b"other")
    assert query.partitions(start, end) == []
    assert query.latestOffset(end, ALL) == offset(300, 300, t=b"other")
    assert ranges(query.partitions(end, offset(300, 300, t=b"other"))) == [(T0, 0, 300), (T1, 0, 300)]


def test_the_offsets_of_0_2_0_get_ids_with_the_next_batch(table):
    query = reader()
    assert query.latestOffset(bare(100, 50), ALL) == bare(100, 50)
    table.append(T0, 1)
    assert query.latestOffset(bare(100, 50), ALL) == offset(101, 50)


def test_tasks_are_told_which_topic_is_meant(table):
    query = reader()
    end = query.latestOffset(offset(0, 50), ALL)
    assert [p.wanted.topic_id for p in query.partitions(offset(0, 50), end)] == [b"id"]
    assert [p.wanted.topic_id for p in reader().partitions(offset(0, 50), end)] == [b"id"], "of a repeated batch, too"
    assert [p.wanted.topic_id for p in reader().partitions(bare(0, 50), bare(100, 50))] == [b""]


def test_a_topic_that_is_deleted_while_it_is_looked_up_is_looked_up_again(table, monkeypatch):
    answers = [TidelogError("t-1 is unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None]
    asked = TableLookUps.ends

    async def ends(self, tps):
        if error := answers.pop(0):
            raise error
        return await asked(self, tps)

    monkeypatch.setattr(TableLookUps, "ends", ends)
    assert reader().latestOffset(offset(90, 50), ALL) == offset(100, 50)
    answers[:] = [TidelogError("not now", ErrorCode.NOT_CONTROLLER)]
    with pytest.raises(TidelogError, match="not now"):
        reader().latestOffset(offset(90, 50), ALL)


def test_progress_shows_the_high_watermarks_whatever_the_batch_holds(table):
    query = reader(maxOffsetsPerTrigger="3")
    assert query.reportLatestOffset() is None
    query.latestOffset(offset(0, 0), query.getDefaultReadLimit())
    assert query.reportLatestOffset() == bare(100, 50)


def test_progress_shows_the_high_watermarks_in_the_first_batch_too(table):
    query = reader()
    start = query.initialOffset()
    table.append(T0, 5)
    query.latestOffset(start, ALL)
    assert query.reportLatestOffset() == bare(105, 50)


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_a_batch_is_cut_into_tasks_as_the_options_say(table):
    query = reader(maxRecordsPerPartition="40")
    cut = ranges(query.partitions(offset(0, 0), offset(100, 50)))
    assert [(tp, end - start) for tp, start, end in cut] == [(T0, 33), (T0, 33), (T0, 34), (T1, 25), (T1, 25)]
    assert len(reader(minPartitions="6").partitions(offset(0, 0), offset(100, 50))) >= 6


def test_a_checkpoint_of_something_else_is_refused(table):
    for odd in ({"start": 7}, {"topic ids": 7}, {"topic ids": {"t": 7}}, {"topic ids": {"t": "x"}}):
        with pytest.raises(ValueError, match="stream offset in the checkpoint"):
            reader().latestOffset(odd, ALL)


def test_a_reader_can_be_pickled_before_it_has_begun():
    """As Spark does for the tasks."""
    options = parse_stream_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})
    assert pickle.loads(pickle.dumps(TidelogStreamReader(options)))._options == options
