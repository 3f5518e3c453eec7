"""`tidelog perf`: the words and columns of Kafka's two tools, on a clock that the test owns."""

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.driven_brokers import Driven
from tidelog.cli.perf_payload import POOL_BYTES, random_values
from tidelog.cli.perf_stats import Latencies, ReadStats, SendStats
from tidelog.client.records import Record, encode_batch
from tidelog.errors import TransportError
from unit.cli.conftest import SHARED, Tidelog

SEND = ("perf", "produce", "--topic", "t")
READ = ("perf", "consume", "--topic", "t")
NUMBER = r"\d+(\.\d+)?"
WINDOW = re.compile(
    r"\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d ms avg latency, \d+\.\d ms max latency\."
)
TOTAL = re.compile(
    r"(\d+) (steady state )?records sent, (\d+\.\d{6}) records/sec \((\d+\.\d\d) MB/sec\), (\d+\.\d\d) ms avg latency, "
    r"(\d+\.\d\d) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th\."
)
COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, "
    "fetch.MB.sec, fetch.nMsg.sec"
)
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"


@pytest.fixture
def t(cluster: Driven) -> Driven:
    cluster.create("t", partitions=2)
    return cluster


def stored(cluster: Driven, partition: int) -> list[bytes]:
    return [value or b"" for value in cluster.values("t", partition)]


def test_totals_in_kafkas_words(tidelog: Tidelog, t: Driven) -> None:
    t.delay(0.125)
    (line,) = tidelog(*SEND, "--num-records", "1000", "--record-size", "1024").text.splitlines()
    found = TOTAL.fullmatch(line)
    assert found is not None, line
    assert found[1] == "1000"
    values = stored(t, 0) + stored(t, 1)
    assert len(values) == 1000
    assert {len(value) for value in values} == {1024}
    assert all(re.fullmatch(b"[A-Z]+", value) for value in values)
    assert float(found[5]) >= 250.0
    assert int(found[7]) <= int(found[8]) <= int(found[9]) <= int(found[10]) <= round(float(found[6]))


def test_a_throughput_is_kept_and_progress_is_told_as_it_goes(tidelog: Tidelog, t: Driven) -> None:
    flags = ("--num-records", "1000", "--record-size", "100", "--throughput", "100", "--reporting-interval", "2000")
    *windows, total = tidelog(*SEND, *flags).text.splitlines()
    assert len(windows) == 4
    assert all(WINDOW.fullmatch(line) for line in windows), windows
    assert all(190 <= int(line.split()[0]) <= 210 for line in windows), windows
    found = TOTAL.fullmatch(total)
    assert found is not None
    assert 99 <= float(found[3]) <= 101


def test_the_steady_state_leaves_the_warm_up_out(tidelog: Tidelog, t: Driven) -> None:
    flags = ("--num-records", "100", "--payload-monotonic", "--throughput", "10", "--warmup-records", "60")
    first, *_, total, steady = tidelog(*SEND, *flags).text.splitlines()
    assert first == "Warmup first 60 records. Steady state results will print after the complete test summary."
    assert (TOTAL.fullmatch(total) or [""])[1] == "100"
    found = TOTAL.fullmatch(steady)
    assert found is not None
    assert (found[1], found[2]) == ("40", "steady state ")
    assert sorted(stored(t, 0) + stored(t, 1), key=int) == [b"%d" % n for n in range(100)]


def test_json_is_one_document_and_the_progress_goes_elsewhere(tidelog: Tidelog, t: Driven) -> None:
    flags = ("--num-records", "100", "--record-size", "10", "--throughput", "10", "--print-metrics", "--format", "json")
    result = tidelog(*SEND, *flags)
    found = json.loads(result.text)
    assert WINDOW.fullmatch(result.err.splitlines()[0])
    assert (found["topic"], found["records"], found["failed"]) == ("t", 100, 0)
    assert set(found["latencyMs"]) == {"50th", "95th", "99th", "99.9th"}
    assert found["metrics"]["record-send-total"] == 100
    assert found["metrics"]["record-retry-total"] == 0
    assert "steadyState" not in found


def test_the_producers_counts_are_printed_under_kafkas_names(tidelog: Tidelog, t: Driven) -> None:
    props = ("--producer-props", "acks=1 linger.ms=5", "--producer-props", "batch.size=1000")

    async def broken(call: object) -> None:
        raise TransportError("UNAVAILABLE", "down for a moment")

    t.once("Produce", broken)
    text = tidelog(*SEND, "--num-records", "50", "--record-size", "100", *props, "--print-metrics").text
    rows = dict(line.split() for line in text.splitlines()[3:])
    assert float(rows["producer-metrics:record-send-total"]) == 50 + float(rows["producer-metrics:record-retry-total"])
    assert float(rows["producer-metrics:record-retry-total"]) > 0
    assert 0 < float(rows["producer-metrics:batch-size-avg"]) <= 1000
    assert {call.request.acks for call in t.of("Produce")} == {1}


def test_what_fails_is_counted_and_the_exit_code_says_so(tidelog: Tidelog, t: Driven) -> None:
    t.configure("t", max_message_bytes="500")
    result = tidelog(*SEND, "--num-records", "20", "--record-size", "600")
    assert result.exit_code == 1
    assert (TOTAL.fullmatch(result.text.strip()) or [""])[1] == "0"
    assert result.err.splitlines()[-1] == "tidelog: 20 of 20 records failed"
    assert len(result.err.splitlines()) == 11


def test_values_from_a_file(tidelog: Tidelog, t: Driven, tmp_path: Path) -> None:
    (tmp_path / "values").write_bytes(b"one;two;three;")
    flags = ("--num-records", "60", "--payload-file", str(tmp_path / "values"), "--payload-delimiter", ";")
    assert tidelog(*SEND, *flags).exit_code == 0
    assert set(stored(t, 0) + stored(t, 1)) == {b"one", b"two", b"three"}


def test_random_values_do_not_repeat_within_a_batch() -> None:
    value = random_values(100, random.Random(1))
    values = [value(n) for n in range(POOL_BYTES // 100)]
    assert {len(each) for each in values} == {100}
    assert all(len(set(values[at : at + 1000])) == 1000 for at in range(0, len(values) - 1000, 1000))


def fill(cluster: Driven, count: int) -> None:
    for n in range(count):
        cluster.append("t", n % 2, encode_batch([Record(b"key", b"x" * 97, (), n)]))


def test_reading_in_kafkas_columns(tidelog: Tidelog, t: Driven) -> None:
    fill(t, 300)
    head, row = tidelog(*READ, "--messages", "250").text.splitlines()
    assert head == f"start.time, end.time, {COLUMNS}"
    values = row.split(", ")
    assert re.fullmatch(DATE, values[0])
    assert re.fullmatch(DATE, values[1])
    assert values[2] == f"{250 * 100 / 1024 / 1024:.4f}"
    assert (values[4], values[6]) == ("250", "0")
    assert len(values) == 10
    (row,) = tidelog(*READ, "--num-records", "250", "--hide-header").text.splitlines()
    assert row.count(", ") == 9


def test_too_few_records_end_it_after_the_timeout(tidelog: Tidelog, t: Driven) -> None:
    fill(t, 10)
    result = tidelog(*READ, "--messages", "11", "--timeout", "3000")
    assert result.exit_code == 1
    assert "timeout (3000 ms) exceeded" in result.error
    assert result.text.splitlines()[1].split(", ")[4] == "10"


def test_detail_is_a_line_an_interval(tidelog: Tidelog, t: Driven) -> None:
    fill(t, 10)
    flags = ("--messages", "11", "--timeout", "5000", "--show-detailed-stats", "--reporting-interval", "1000")
    head, *rows = tidelog(*READ, *flags).text.splitlines()
    assert head == f"time, threadId, {COLUMNS}"
    assert len(rows) in (4, 5)
    assert [row.split(", ")[4] for row in rows] == ["10"] * len(rows)
    assert all(re.fullmatch(DATE, row.split(", ")[0]) and row.split(", ")[1] == "0" for row in rows)
    assert float(rows[-1].split(", ")[5]) == 0.0, "a rate of its own interval"


def test_a_member_of_a_group_tells_how_long_it_waited_for_partitions(tidelog: Tidelog, t: Driven) -> None:
    fill(t, 30)
    found = json.loads(tidelog(*READ, "--messages", "30", "--group", "g", "--format", "json").text)
    assert found["data.consumed.in.nMsg"] == 30
    assert found["rebalance.time.ms"] > 0
    assert found["fetch.time.ms"] == pytest.approx(
        found["endTimeMs"] - found["startTimeMs"] - found["rebalance.time.ms"], abs=2
    )


@SHARED
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((*SEND, "--num-records", "1"), 2, "one and only one of these is required: --record-size"),
        ((*SEND, "--num-records", "1", "--record-size", "1", "--payload-monotonic"), 2, "one and only one"),
        ((*SEND, "--num-records", "0", "--record-size", "1"), 2, "--num-records"),
        ((*SEND, "--num-records", "1", "--record-size", "1", "--throughput", "0"), 2, "--throughput is a number above"),
        ((*SEND, "--num-records", "5", "--record-size", "1", "--warmup-records", "5"), 2, "--warmup-records is 5"),
        ((*SEND, "--num-records", "1", "--payload-file", "none"), 2, "none: No such file"),
        ((*SEND, "--num-records", "1", "--record-size", "1", "--producer-props", "ack=1"), 2, "did you mean 'acks'"),
        ((*SEND, "--num-records", "1", "--record-size", "1", "--producer-props", "acks"), 2, "is not KEY=VALUE"),
        ((*SEND, "--num-records", "1", "--record-size", "1", "--producer-props", "acks=7"), 2, "acks '7'"),
        ((*SEND, "--num-records", "1", "--record-size", "1", "--producer-props", "linger.ms=x"), 2, "is not a number"),
        (("perf", "produce", "--topic", "no", "--num-records", "1", "--record-size", "1"), 1, "no"),
        (("perf", "consume", "--topic", "no", "--messages", "1"), 1, "no"),
        ((*READ, "--messages", "0"), 2, "--messages"),
    ],
)
def test_bad_input_is_one_line(tidelog: Tidelog, args: tuple[str, ...], code: int, said: str) -> None:
    result = tidelog(*args)
    assert result.exit_code == code
    assert said in result.error


@given(st.lists(st.floats(0, 30), min_size=1, max_size=300))
def test_percentiles_are_those_of_all_records(took: list[float]) -> None:
    latencies = Latencies()
    for each in took:
        latencies.add(each)
    ordered = sorted(took)
    for share, (name, found_ms) in zip((0.5, 0.95, 0.99, 0.999), latencies.percentiles_ms().items(), strict=True):
        expected_ms = 1000 * ordered[int(share * len(took))]
        assert expected_ms - 0.101 <= found_ms <= expected_ms + 1e-6, name


def test_nothing_is_divided_by_zero() -> None:
    stats = SendStats(5.0)
    assert stats.window_line(5.0).startswith("0 records sent, 0.0 records/sec")
    assert TOTAL.fullmatch(stats.total_line(5.0))
    reading = ReadStats(5.0, rebalance_s=3.0)
    assert set(reading.rates(ReadStats(5.0), 5.0).values()) <= {0, 3000}
