"""Jobs on the Spark cluster of Compose, which is theirs with one option more than on one machine."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster import unique_topic
from helpers.compose import ComposeProject
from helpers.compose_spark import JOB, MASTER, SERVICES, WITHIN_S, WORKERS, ComposeSpark, compose_spark
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.cluster.wait import until

PARTITIONS = 4
BEFORE = 100
"""Records that a run on one machine takes."""
RECORDS = 1_300
A_BATCH = 100
APP = "worker-killed"
OWN = "tidelog ingest"
Row = tuple[int, int, str]
"""Partition, offset, value."""

slow = pytest.mark.timeout(1800)  # the first test builds the image and starts the services


@pytest.fixture(scope="module")
def spark(project: ComposeProject) -> Iterator[ComposeSpark]:
    with compose_spark(project) as cluster:
        yield cluster


@slow
def test_its_services_serve_and_two_workers_work_for_the_job_of_the_profile(spark: ComposeSpark) -> None:
    for service in SERVICES:
        spark.project.wait_health(service)
    assert spark.workers() == set(WORKERS)
    (job,) = spark.master()["activeapps"]
    assert (job["name"], job["cores"], job["state"]) == (OWN, 2, "RUNNING")
    until(lambda: names(spark, completed=False) == {OWN}, "a running job at the history server", timeout_s=WITHIN_S)
    until(lambda: scraped(spark) == {"pipeline:9101": "up"}, "metrics of the job", timeout_s=WITHIN_S)


@slow
@pytest.mark.parametrize("service", SERVICES)
def test_a_container_has_no_rights(spark: ComposeSpark, service: str) -> None:
    spark.project.assert_without_rights(service)


@slow
def test_the_output_is_the_topic_begun_on_one_machine_and_ended_on_workers_of_which_one_is_killed(
    spark: ComposeSpark, tmp_path: Path
) -> None:
    servers, topic, said = spark.project.bootstrap_servers, unique_topic("spark"), tmp_path / "said"
    words = ["pipeline", "run", "ingest", "--topic", topic, "--output", f"data/{topic}", "--value-format", "string"]
    words += ["--once", "--max-offsets-per-trigger", str(A_BATCH)]
    asyncio.run(create(servers, topic))
    sent = asyncio.run(send(servers, topic, range(BEFORE)))
    assert spark.run(said, *words).wait(WITHIN_S) == 0, said.read_text()

    sent += asyncio.run(send(servers, topic, range(BEFORE, RECORDS)))
    victim = spark.project.container(WORKERS[0])
    job = spark.run(said, *words, "--conf", f"spark.app.name={APP}", "--master", MASTER)
    try:
        until(lambda: job.poll() is not None or batches(said) >= 2, "micro-batches", timeout_s=WITHIN_S, interval_s=0.1)
        victim.kill()
        assert job.poll() is None and batches(said) < RECORDS // A_BATCH - 3, said.read_text()
        spark.wait_workers(WORKERS[1])
        assert job.wait(WITHIN_S) == 0, said.read_text()
    finally:
        job.kill()
        victim.start()

    assert rows(spark, topic, tmp_path) == sorted(sent)
    until(lambda: APP in names(spark, completed=True), "the job at the history server", timeout_s=WITHIN_S)
    (app,) = [app["id"] for app in spark.history("?status=completed") if app["name"] == APP]
    executors = spark.history(f"/{app}/allexecutors")
    lost = [each for each in executors if each["hostPort"].startswith(WORKERS[0]) and not each["isActive"]]
    assert sum(each["completedTasks"] for each in lost) > 0, "it has done a part of the work"
    spark.wait_workers(*WORKERS)
    for service in SERVICES:
        spark.project.wait_health(service)  # the job of the profile too, which has lost the same worker


@slow
def test_a_master_that_is_not_there_is_one_line(spark: ComposeSpark, tmp_path: Path) -> None:
    said, where = tmp_path / "said", "data/nowhere"
    words = ["--topic", "events", "--output", where, "--once", "--master", "spark://nobody:7077"]
    assert spark.run(said, "pipeline", "run", "ingest", *words).wait(WITHIN_S) == 1
    errors = [line for line in said.read_text().splitlines() if not line.startswith("ingest: ")]
    assert len(errors) == 1 and errors[0].startswith("tidelog: no master of Spark listens at spark://nobody:7077 ("), (
        errors
    )
    assert spark.project.run_in(JOB, "test", "-e", where)[0] == 1


async def create(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topic(topic, PARTITIONS, 3)
        await admin.wait_until_led(topic, in_sync=True, timeout_s=60.0)


async def send(servers: str, topic: str, numbers: range) -> list[Row]:
    async with Producer(servers) as producer:
        told = [await producer.send(topic, f"value {n}".encode(), partition=n % PARTITIONS) for n in numbers]
        await producer.flush()
        return [(n % PARTITIONS, (await ack).offset, f"value {n}") for n, ack in zip(numbers, told, strict=True)]


def batches(said: Path) -> int:
    """Micro-batches that the job has told of."""
    return sum(line.startswith("ingest: batch ") for line in said.read_text().splitlines())


def rows(spark: ComposeSpark, topic: str, directory: Path) -> list[Row]:
    """What the job has written, in order."""
    said, answer = directory / "query", directory / "rows"
    query = ["pipeline", "query", f"data/{topic}", "SELECT partition, offset, value FROM records", "--format", "json"]
    asked = spark.run(said, *query, "--rows-max", str(10 * RECORDS), answer=answer)
    assert asked.wait(WITHIN_S) == 0, said.read_text()
    return sorted((row["partition"], row["offset"], row["value"]) for row in json.loads(answer.read_text()))


def scraped(spark: ComposeSpark) -> dict[str, str]:
    """Health by instance, as Prometheus sees the job of the profile."""
    found = spark.project.prometheus("/api/v1/targets", state="active")["activeTargets"]
    return {target["labels"]["instance"]: target["health"] for target in found if target["labels"]["job"] == JOB}


def names(spark: ComposeSpark, *, completed: bool) -> set[str]:
    """Of the applications that the history server shows."""
    return {app["name"] for app in spark.history(f"?status={'completed' if completed else 'running'}")}
