"""`tidelog` as a program, against real processes: what goes in by the standard input comes out by the standard output."""

import json
import subprocess
import sys

import pytest

from helpers.cluster import unique_topic

pytestmark = pytest.mark.integration

BYTES = b"\n".join([b"", b"text", bytes(b for b in range(256) if b != 10), b"\r\t", "tide ≈ log".encode()])


def tidelog(servers: str, *args: str, stdin: bytes = b"", exit_code: int = 0) -> subprocess.CompletedProcess[bytes]:
    found = subprocess.run(
        [sys.executable, "-m", "tidelog.cli.main", *args, "--bootstrap-server", servers],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == exit_code, found.stderr.decode()
    assert b"Traceback" not in found.stderr
    return found


@pytest.mark.smoke
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_records_make_the_round_trip(shared_servers: str, compression: str) -> None:
    topic = unique_topic()
    tidelog(shared_servers, "topics", "create", topic, "--partitions", "1")
    lines = BYTES + b"\n" + b"\n".join(b"%d" % i for i in range(20_000))
    sent = tidelog(shared_servers, "produce", topic, "--compression", compression, stdin=lines)
    assert sent.stderr == b"20005 records acknowledged.\n"
    got = tidelog(shared_servers, "consume", topic, "--from-beginning", "--max-messages", "20005")
    assert got.stdout == lines + b"\n"
    assert got.stderr == b"Processed a total of 20005 messages\n"
    last = tidelog(shared_servers, "consume", topic, "--partition", "0", "--offset", "20004", "--max-messages", "1")
    assert last.stdout == b"19999\n"
    tidelog(shared_servers, "topics", "delete", topic)
    gone = tidelog(shared_servers, "topics", "describe", topic, exit_code=1)
    assert gone.stderr.decode().startswith(f"tidelog: topic '{topic}' does not exist")


@pytest.mark.smoke
def test_the_cluster_is_described_and_judged(shared_servers: str) -> None:
    topic = unique_topic()
    tidelog(shared_servers, "topics", "create", topic, "--partitions", "3", "--config", "flush=sync")
    healthy = tidelog(
        shared_servers, "cluster", "health", "-w", "-e", "--timeout-ms", "30000", "--format", "json"
    ).stdout.decode()
    assert json.loads("{" + healthy.rpartition("\n{")[2].removeprefix("{"))["healthy"] is True
    described = json.loads(tidelog(shared_servers, "cluster", "describe", "--format", "json").stdout)
    assert [b["state"] for b in described["brokers"]] == ["alive"] * 3
    (found,) = json.loads(tidelog(shared_servers, "topics", "describe", topic, "--format", "json").stdout)
    assert found["configs"] == {"flush": "sync"}
    assert [sorted(p["isr"]) for p in found["partitions"]] == [[0, 1, 2]] * 3


@pytest.mark.smoke
def test_bad_input_is_refused_with_its_limit(shared_servers: str) -> None:
    for args, code, said in (
        (("topics", "create", "a/b"), 2, "topic name"),
        (("topics", "create", "x" * 250), 2, "249"),
        (("topics", "create", unique_topic(), "--replication-factor", "9"), 1, "replication factor 9"),
        (("topics", "create", unique_topic(), "--config", "flushh=sync"), 2, "did you mean 'flush'?"),
        (("topics", "delete", unique_topic()), 1, "does not exist; `tidelog topics list` shows"),
    ):
        refused = tidelog(shared_servers, *args, exit_code=code).stderr.decode()
        assert said in refused
        assert refused.count("\n") == 1
