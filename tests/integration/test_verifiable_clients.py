"""`tidelog verifiable-producer` and `verifiable-consumer` as programs, with Kafka's flags and JSON events (ecosystem 1.2)."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import unique_topic
from tidelog.cluster.wait import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def command(servers: str, tool: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", "tidelog.cli.main", tool, *flags, "--bootstrap-server", servers]


def events(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(event["timestamp"], int) for event in found)
    return found


def run(servers: str, tool: str, *flags: str) -> list[dict[str, Any]]:
    done = subprocess.run(command(servers, tool, *flags), capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return events(done.stdout)


@pytest.fixture(scope="module")
def topic(shared_servers: str) -> str:
    name = unique_topic("verifiable")
    subprocess.run(
        [*command(shared_servers, "topics", "create", name), "--partitions", "2"],
        check=True,
        capture_output=True,
        timeout=90,
    )
    return name


def test_what_one_sends_the_other_reads(shared_servers: str, topic: str) -> None:
    flags = ("--max-messages", "40", "--throughput", "200", "--repeating-keys", "4", "--value-prefix", "7")
    sent = run(shared_servers, "verifiable-producer", "--topic", topic, *flags, "--acks", "-1")
    names = [event["name"] for event in sent]
    assert names == ["startup_complete", *["producer_send_success"] * 40, "tool_data", "shutdown_complete"]
    acked = sent[1:41]
    assert sorted(event["value"] for event in acked) == sorted(f"7.{n}" for n in range(40))
    assert all(event["key"] == str(int(event["value"][2:]) % 4) and event["topic"] == topic for event in acked)
    assert len({(event["partition"], event["offset"]) for event in acked}) == 40
    summary = sent[41]
    assert (summary["sent"], summary["acked"], summary["target_throughput"]) == (40, 40, 200)
    assert 0 < summary["avg_throughput"] <= 250

    flags = ("--group-id", unique_topic("g"), "--max-messages", "40", "--verbose")
    read = run(shared_servers, "verifiable-consumer", "--topic", topic, *flags)
    data = {event["value"]: event for event in read if event["name"] == "record_data"}
    for event in acked:
        same = ("key", "value", "topic", "partition", "offset")
        assert {key: data[event["value"]][key] for key in same} == {key: event[key] for key in same}
    count = Counter(event["name"] for event in read)
    assert (read[0]["name"], read[-1]["name"]) == ("startup_complete", "shutdown_complete")
    assert count["partitions_assigned"] >= 1 and count["partitions_revoked"] >= 1
    assert sum(event["count"] for event in read if event["name"] == "records_consumed") == 40
    committed = [event for event in read if event["name"] == "offsets_committed"]
    assert committed and all(event["success"] is True and "error" not in event for event in committed)
    ends = {(p["topic"], p["partition"]): p["offset"] for event in committed for p in event["offsets"]}
    assert sum(ends.values()) == 40


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_producer_in_order(
    shared_servers: str, topic: str, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            command(shared_servers, "verifiable-producer", "--topic", topic, "--throughput", "50", "--acks", "1"),
            stdout=file,
            env=os.environ,
            start_new_session=True,
        )
    try:
        until(lambda: b"producer_send_success" in out.read_bytes(), "an acknowledgement", timeout_s=60.0)
        process.send_signal(number)
        assert process.wait(60.0) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    told = events(out.read_text())
    *_, summary, last = told
    assert (summary["name"], last["name"]) == ("tool_data", "shutdown_complete")
    assert summary["acked"] == summary["sent"] == sum(event["name"] == "producer_send_success" for event in told)


def test_a_topic_that_does_not_exist_is_one_line(shared_servers: str) -> None:
    for tool, more in (("verifiable-producer", ()), ("verifiable-consumer", ("--group-id", "g"))):
        flags = ("--topic", unique_topic("absent"), *more)
        done = subprocess.run(
            command(shared_servers, tool, *flags, "--command-property", "request.timeout.ms=2000"),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("tidelog: ")
