"""The jobs of the pipeline as a user runs them: against real brokers, with a real Spark."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from helpers.cluster import unique_topic
from tidelog.cli.main import run
from tidelog.client.admin import AdminClient
from tidelog.client.producer import Producer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 2
BEGIN_MS = 1_700_000_000_000 - 1_700_000_000_000 % 60_000
SPARK = ("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2")
SCHEMA = "city STRING, amount INT"
BAD = (b"", b"null", b"[]", b'{"amount":1', b'{"amount":1} {"amount":2}', b'{"amount":"many"}', b'{"city":"\xff"}')


def value_of(n: int) -> bytes:
    return json.dumps({"city": ("oslo", "paris", "rome")[n % 3], "amount": n}).encode()


def make_topic(servers: str, *values: Sequence[bytes | None]) -> str:
    """Of PARTITIONS partitions; `values` one a second from BEGIN_MS on, in turns."""
    name = unique_topic("jobs")

    async def create() -> None:
        async with AdminClient(servers) as admin:
            await admin.create_topic(name, PARTITIONS, 3)
            await admin.wait_until_led(name, in_sync=True)

    asyncio.run(create())
    for each in values:
        send(servers, name, each)
    return name


def send(servers: str, topic: str, values: Sequence[bytes | None], first: int = 0) -> None:
    async def produce() -> None:
        async with Producer(servers) as producer:
            for n, value in enumerate(values, first):
                key = b"%d" % (n % 5)
                await producer.send(topic, value, key, [], partition=n % PARTITIONS, timestamp_ms=BEGIN_MS + 1000 * n)

    asyncio.run(produce())


def named_files(output: Path) -> set[Path]:
    """Those that the log of Spark's file sink names: of finished micro-batches."""
    entries = (
        json.loads(line)
        for log in (output / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()[1:]
    )
    return {Path(entry["path"].removeprefix("file://")) for entry in entries}


def rows_of(output: Path) -> list[dict[str, Any]]:
    return [row for path in named_files(output) for row in pq.ParquetFile(path).read().to_pylist()]


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
