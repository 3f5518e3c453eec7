"""The jobs of the pipeline as a user runs them: against real brokers, with a real Spark, killed, stopped and run again."""

import asyncio
import json
import signal
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from helpers.cluster import unique_topic
from helpers.scene import WITHIN_S, left_as_found
from helpers.spark_jobs import START_S, JobProcess, run_job, standalone, submit_job
from tidelog.cli.main import run
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import BROKER
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.cluster.wait import until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 2
BEGIN_MS = 1_700_000_000_000 - 1_700_000_000_000 % 60_000
CONF = ("--conf", "spark.sql.shuffle.partitions=2")
SPARK = ("--master", "local[2]", *CONF)
SCHEMA = "city STRING, amount INT"
BAD = (b"", b"null", b"[]", b'{"amount":1', b'{"amount":1} {"amount":2}', b'{"amount":"many"}', b'{"city":"\xff"}')


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of its master."""
    with standalone(tmp_path_factory.mktemp("standalone")) as address:
        yield address


def value_of(n: int) -> bytes:
    return json.dumps({"city": ("oslo", "paris", "rome")[n % 3], "amount": n}).encode()


def make_topic(servers: str, *values: Sequence[bytes | None]) -> str:
    """Of PARTITIONS partitions; `values` one a second from BEGIN_MS on, in turns."""
    name = unique_topic("jobs")

    async def create() -> None:
        async with Admin(servers) as admin:
            await admin.create_topic(name, PARTITIONS, 3)
        await led(servers, name)

    asyncio.run(create())
    for each in values:
        send(servers, name, each)
    return name


async def led(servers: str, topic: str) -> None:
    """Returns when every replica is in sync."""
    async with Admin(servers) as admin:
        await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)


def send(servers: str, topic: str, values: Sequence[bytes | None], first: int = 0) -> None:
    async def produce() -> None:
        async with Producer(servers) as producer:
            for n, value in enumerate(values, first):
                key = b"%d" % (n % 5)
                await producer.send(topic, value, key, [], partition=n % PARTITIONS, timestamp_ms=BEGIN_MS + 1000 * n)

    asyncio.run(produce())


def read_topic(servers: str, topic: str) -> list[tuple[bytes | None, dict[str, Any]]]:
    """Key and JSON of every record."""

    async def read() -> list[tuple[bytes | None, dict[str, Any]]]:
        async with Consumer(servers) as consumer:
            await consumer.assign_topics(topic)
            ends = await consumer.end_offsets(list(consumer.assignment))
            await consumer.seek_to_beginning()
            found: list[Any] = []
            while len(found) < sum(ends.values()):
                found += await consumer.poll(500, 5.0)
            return [(record.key, json.loads(record.value)) for record in found]

    return asyncio.run(read())


def named_files(output: Path) -> set[Path]:
    """Those that the log of Spark's file sink names: of finished micro-batches."""
    entries = (
        json.loads(line)
        for log in (output / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()[1:]
    )
    return {Path(entry["path"].removeprefix("file://")) for entry in entries}


def all_files(output: Path) -> set[Path]:
    return {path for path in output.rglob("*.parquet") if "_checkpoint" not in path.parts}


def rows_of(output: Path) -> list[dict[str, Any]]:
    return [row for path in named_files(output) for row in pq.ParquetFile(path).read().to_pylist()]


def test_rows_are_the_records_exactly_once_though_the_job_is_killed_in_a_batch(
    shared_servers: str, spark_cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic(shared_servers, [value_of(n) for n in range(3_000)])
    output = tmp_path / "lake"
    words = ["--bootstrap-server", shared_servers, "--topic", topic, "--output", str(output)]
    a_little = ["--trigger", "0s", "--max-offsets-per-trigger", "50"]
    with run_job(tmp_path / "said", "ingest", *words, *a_little, *SPARK) as job:
        job.wait_for(lambda: (output / "_spark_metadata" / "1").exists(), "the second micro-batch")
        killed_within_a_batch(job, output)
    left = all_files(output) - named_files(output)
    assert left and 0 < len(rows_of(output)) < 3_000

    assert run(["pipeline", "run", "ingest", *words, "--once", "--format", "json", *SPARK]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["partitions"] == [
        {"topic": topic, "partition": p, "currentOffset": 1_500, "lag": 0} for p in range(PARTITIONS)
    ]
    assert rows_are(output, 3_000)
    assert left <= all_files(output) - named_files(output), "what a killed run left is named by no later one"
    assert not list((output / "_checkpoint").glob("*.new"))
    assert {path.parent.relative_to(output) for path in named_files(output)} == {Path(f"topic={topic}/date=2023-11-14")}

    send(shared_servers, topic, [value_of(n) for n in range(3_000, 3_500)], first=3_000)
    with submit_job(tmp_path / "submitted", spark_cluster, "ingest", *words, "--once", *CONF) as job:
        assert job.wait() == 0, job.said
    assert "ingest: 500 records in 1 batch," in job.said and "Exception" not in job.said
    assert rows_are(output, 3_500)


def rows_are(output: Path, count: int) -> bool:
    """The first `count` records of `send`, each once."""
    rows = rows_of(output)
    places = Counter((row["partition"], row["offset"]) for row in rows)
    assert places == Counter((n % PARTITIONS, n // PARTITIONS) for n in range(count))
    for row in rows:
        n = row["offset"] * PARTITIONS + row["partition"]
        assert (row["key"], row["value"]) == (b"%d" % (n % 5), value_of(n))
        assert row["timestamp"].timestamp() == BEGIN_MS / 1000 + n
    return True


def killed_within_a_batch(job: JobProcess, output: Path) -> None:
    """When files are there that no finished batch names; the JVM stands still while that is looked at."""
    jvm = job.jvm()

    def caught() -> bool:
        jvm.suspend()
        if all_files(output) - named_files(output):
            return True
        jvm.resume()
        return False

    until(caught, "a micro-batch that is writing", timeout_s=START_S)
    job.kill()


def test_json_that_is_none_goes_to_a_column_of_its_own(
    shared_servers: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic(shared_servers, [value_of(n) for n in range(40)], [*BAD, None, b'{"other":1}'])
    output = tmp_path / "lake"
    words = ["--topic", topic, "--bootstrap-server", shared_servers, "--output", str(output), "--include-headers"]
    words += ["--value-format", "json", "--schema", SCHEMA, "--partition-by", "topic,partition,hour", "--once"]
    assert run(["pipeline", "run", "ingest", *words, *SPARK]) == 0
    said = capfd.readouterr()
    assert f"{len(BAD)} corrupt" in said.err and topic in said.out
    assert "WARN" not in said.err and "Exception" not in said.err
    rows = rows_of(output)
    assert Counter(row["_corrupt"] for row in rows if row["_corrupt"] is not None) == Counter(BAD)
    good = [row["value"] for row in rows if row["_corrupt"] is None]
    assert good.count(None) == 1 and good.count({"city": None, "amount": None}) == 1
    assert sorted(v["amount"] for v in good if v and v["city"]) == list(range(40))
    assert all(row["headers"] is not None for row in rows if row["_corrupt"] is None and row["value"])
    assert {p.parent.name for p in named_files(output)} == {"hour=22"}


def test_fields_that_cannot_be_read_are_counted_and_those_that_are_absent_are_not() -> None:
    from tidelog.pipeline.jobs.aggregate import columns
    from tidelog.pipeline.jobs.plans import aggregate_plan
    from tidelog.pipeline.session import spark_session

    given: dict[str, Any] = {"topic": ["a"], "to": "b", "checkpoint": "c", "window": "1m", "event_time": ".at"}
    plan = aggregate_plan({**given, "group_by": ".user.id", "sum": [".n"], "max": ["size"]})
    cases: list[tuple[bytes | None, Any]] = [
        (b'{"at":1000,"user":{"id":7},"n":1.5}', (1_000, b"7", 1.5, False)),
        (b'{"at":"1970-01-01T01:00:00+01:00","user":{"id":"x"},"n":"2"}', (0, b"x", 2.0, False)),
        (b'{"at":"1970-01-01T00:00:01"}', (1_000, None, None, False)),
        (b'{"at":1,"n":1e18}', (1, None, 1e18, False)),
        (b'{"at":1,"n":1e19}', (1, None, None, True)),
        (b'{"at":1,"n":"many"}', (1, None, None, True)),
        (b'{"at":1,"n":NaN}', (None, None, None, True)),
        (b'{"at":"soon","n":1}', (None, None, 1.0, True)),
        (b'{"n":1}', (None, None, 1.0, True)),
        (b"{} {}", (None, None, None, True)),
        (None, (None, None, None, True)),
    ]
    spark = spark_session("columns", "local[1]")
    try:
        rows = [(None if value is None else bytearray(value), None, n) for n, (value, _) in enumerate(cases)]
        records = spark.createDataFrame(rows, "value binary, key binary, n int").selectExpr("*", "now() timestamp")
        found = columns(records.coalesce(1), plan).selectExpr(
            "unix_millis(at)", "group", "cast(sum_n as double)", "max_size", "corrupt"
        )
        for (value, wanted), row in zip(cases, found.collect(), strict=True):
            at, group, number, size, corrupt = row
            assert (at, None if group is None else bytes(group), number, corrupt) == wanted, value
            assert size == (None if value is None else len(value))
    finally:
        spark.stop()


def test_a_job_that_is_terminated_ends_in_order_and_goes_on(shared_servers: str, tmp_path: Path) -> None:
    topic = make_topic(shared_servers, [value_of(n) for n in range(1_000)])
    output = tmp_path / "lake"
    words = ["--bootstrap-server", shared_servers, "--topic", topic, "--output", str(output), *SPARK]
    with run_job(tmp_path / "starting", "ingest", *words) as job:
        job.wait_for(lambda: "starting Spark" in job.said and bool(job.children()), "the JVM")
        assert job.interrupt(signal.SIGTERM) == 0, job.said
    assert job.said.splitlines()[2:] == ["0 records in 0 batches."], job.said

    a_little = ["--trigger", "0s", "--max-offsets-per-trigger", "50"]
    with run_job(tmp_path / "running", "ingest", *words, *a_little) as job:
        job.wait_for(lambda: (output / "_spark_metadata" / "1").exists(), "the second micro-batch")
        assert job.interrupt(signal.SIGTERM) == 0, job.said
    assert "ingest: SIGTERM, stopping Spark ..." in job.said and "Traceback" not in job.said, job.said
    assert 0 < len(rows_of(output)) < 1_000

    with run_job(tmp_path / "again", "ingest", *words, "--once") as job:
        assert job.wait() == 0, job.said
    assert rows_are(output, 1_000)


def windows_of(records: Sequence[int], length_s: int, slide_s: int, delay_s: int) -> dict[tuple[int, str], Any]:
    """(start, city) -> (count, sum, greatest size) of every window that is over: the plain computation. Record n is at n."""
    over = max(records) - delay_s
    found: dict[tuple[int, str], list[int]] = {}
    for n in records:
        for start in range(n - n % slide_s, n - length_s, -slide_s):
            if start + length_s <= over:
                found.setdefault((start, json.loads(value_of(n))["city"]), []).append(n)
    return {
        window: (len(members), float(sum(members)), max(len(value_of(n)) for n in members))
        for window, members in found.items()
    }


def test_windows_are_what_a_plain_computation_finds_through_a_stop_another_start_and_late_records(
    shared_servers: str, tmp_path: Path
) -> None:
    topic, to = make_topic(shared_servers, [value_of(n) for n in range(200)]), make_topic(shared_servers)
    (port,) = free_ports(1)
    words = ["--topic", topic, "--to", to, "--checkpoint", str(tmp_path / "state"), "--trigger", "200ms", *CONF]
    words += ["--bootstrap-server", shared_servers, "--metrics-address", f"127.0.0.1:{port}", "--watermark", "5s"]
    words += ["--window", "1m", "--slide", "20s", "--group-by", ".city", "--count", "--sum", ".amount", "--max", "size"]

    first = windows_of(range(200), 60, 20, 5)
    with run_job(tmp_path / "said", "aggregate", *words, "--master", "local[2]") as job:
        job.wait_for(lambda: count_of(shared_servers, to) >= len(first), "the first windows")
        job.wait_for(lambda: f"tidelog_pipeline_open_windows {3 * 3}.0" in scrape(port), "the metrics")
        metrics = scrape(port)
        assert job.interrupt() == 0, job.said
    assert "tidelog_pipeline_rows_total 200.0" in metrics
    assert f'tidelog_pipeline_partition_lag_records{{partition="1",topic="{topic}"}} 0.0' in metrics
    assert "aggregate: batch 0: 200 records in" in job.said and "records/s" in job.said
    assert job.said.splitlines()[-1].endswith("9 windows still open.") and "Traceback" not in job.said
    assert found_in(shared_servers, to) == first

    late = [value_of(n) for n in range(40)]
    send(shared_servers, topic, late)
    send(shared_servers, topic, [value_of(n) for n in range(200, 500)], first=200)
    everything = windows_of(range(500), 60, 20, 5)
    with submit_job(tmp_path / "submitted", "local[2]", "aggregate", *words) as job:
        job.wait_for(lambda: count_of(shared_servers, to) >= len(everything), "the other windows")
        job.wait_for(lambda: "tidelog_pipeline_rows_total 340.0" in scrape(port), "the metrics")
        assert "tidelog_pipeline_late_rows_total 0.0" not in scrape(port)
        assert job.interrupt() == 0, job.said
    assert job.said.splitlines()[-1].startswith("aggregate: 340 records in ") and "rows too late" in job.said
    assert "Traceback" not in job.said and "Exception" not in job.said
    assert found_in(shared_servers, to) == everything


def found_in(servers: str, topic: str) -> dict[tuple[int, str], Any]:
    """The results as `windows_of` has them; each window is there once."""
    found: dict[tuple[int, str], Any] = {}
    for key, result in read_topic(servers, topic):
        start_ms, end_ms = _ms(result["window_start"]), _ms(result["window_end"])
        assert (end_ms - start_ms, key) == (60_000, result["city"].encode())
        window = ((start_ms - BEGIN_MS) // 1000, result["city"])
        assert window not in found
        found[window] = (result["count"], result["sum_amount"], result["max_size"])
    return found


def count_of(servers: str, topic: str) -> int:
    async def ask() -> int:
        async with Consumer(servers) as consumer:
            await consumer.assign_topics(topic)
            return sum((await consumer.end_offsets(consumer.assignment)).values())

    return asyncio.run(ask())


def scrape(port: int) -> str:
    """Nothing when nobody serves there yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_a_job_whose_brokers_are_gone_says_so_in_one_line_and_goes_on_when_they_are_back(
    shared_cluster: LocalCluster, shared_servers: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic(shared_servers, [value_of(n) for n in range(100)])
    output = tmp_path / "lake"
    words = ["--topic", topic, "--bootstrap-server", shared_servers, "--output", str(output)]

    def kill_brokers() -> None:
        until(lambda: (output / "_spark_metadata" / "0").exists(), "the first micro-batch", timeout_s=START_S)
        for name in shared_cluster.names(BROKER):
            shared_cluster.kill(name)

    with left_as_found(shared_cluster):
        killer = threading.Thread(target=kill_brokers)
        killer.start()
        assert run(["pipeline", "run", "ingest", *words, "--trigger", "200ms", *SPARK]) == 1
        killer.join()
    told = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("ingest: ")]
    assert len(told) == 1 and told[0].startswith("tidelog: nothing answers at 127.0.0.1:"), told

    wait_ready(shared_cluster, WITHIN_S)
    asyncio.run(led(shared_servers, topic))
    send(shared_servers, topic, [value_of(n) for n in range(100, 120)], first=100)
    assert run(["pipeline", "run", "ingest", *words, "--once", *SPARK]) == 0
    assert rows_are(output, 120)


@pytest.fixture(scope="module")
def used(shared_servers: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A topic and where it was ingested."""
    topic, output = make_topic(shared_servers, [b"x"]), tmp_path_factory.mktemp("used") / "lake"
    words = ["--topic", topic, "--bootstrap-server", shared_servers, "--output", str(output), "--once"]
    assert run(["pipeline", "run", "ingest", *words, *SPARK]) == 0
    return topic, output


@pytest.mark.parametrize(
    "words, complaint",
    [
        ("ingest --topic no-such-topic --output {new}", "topic 'no-such-topic' does not exist"),
        ("aggregate --topic {topic} --to nowhere --window 1m --checkpoint {new}", "topic 'nowhere' does not exist"),
        (
            "ingest --topic {topic} --output {used} --value-format string",
            "its value-format is binary, here it is string",
        ),
        ("ingest --topic {topic} --output {used} --checkpoint {new}", "is not empty (it holds "),
        ("ingest --topic {topic} --output {new} --checkpoint {used}/_spark_metadata", "is not of such a job"),
        ("ingest --topic {topic} --output {new} --value-format json --schema a.b", "--schema 'a.b': Syntax error"),
        (
            "ingest --topic {topic} --output {new} --master spark://127.0.0.1:1",
            "no master of Spark listens at spark://",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    shared_servers: str,
    used: tuple[str, Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    words: str,
    complaint: str,
) -> None:
    topic, output = used
    before = set(output.rglob("*"))
    filled = [word.format(topic=topic, used=output, new=tmp_path / "new") for word in words.split()]
    code = run(["pipeline", "run", filled[0], *SPARK, *filled[1:], "--bootstrap-server", shared_servers, "--once"])
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("tidelog: ")]
    assert code in (1, 2) and len(told) == 1 and complaint in told[0], told
    assert not (tmp_path / "new").exists() and set(output.rglob("*")) == before
