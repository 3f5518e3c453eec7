"""`tidelog` as a program with wrong input: one line on the standard error that says what is wrong, no traceback, not 0.

What needs no real process is held in tests/unit/cli; here are the real files, pipes, sockets and brokers.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from helpers.cluster import unique_topic
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.local import LocalCluster

pytestmark = pytest.mark.integration

QUICK = ("--command-property", "request.timeout.ms=400")
Tidelog = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def tidelog(tmp_path: Path, shared_servers: str) -> Tidelog:
    """Runs a command line in an empty directory, against the shared cluster unless `env` says otherwise."""

    def call(
        *args: str | bytes, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDELOG_")}
        found = subprocess.run(
            [sys.executable, "-m", "tidelog.cli.main", *args],
            input=stdin,
            env={**inherited, "TIDELOG_BOOTSTRAP_SERVERS": shared_servers, **(env or {})},
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert b"Traceback" not in found.stderr, found.stderr.decode()
        return found

    return call


@pytest.fixture(scope="module")
def topic(shared_servers: str) -> str:
    name = unique_topic("bad-line")
    command = [sys.executable, "-m", "tidelog.cli.main", "topics", "create", name, "--partitions", "1"]
    subprocess.run([*command, "--bootstrap-server", shared_servers], check=True, capture_output=True, timeout=60)
    return name


def complaint(found: "subprocess.CompletedProcess[bytes]", exit_code: int) -> str:
    lines = found.stderr.decode().splitlines()
    assert (found.returncode, len(lines)) == (exit_code, 1), (found.returncode, found.stderr.decode())
    assert lines[0].startswith("tidelog: ")
    assert found.stdout == b""
    return lines[0]


# --- brokers --------------------------------------------------------------------------------------------------------

READERS = [
    ("topics", "list"),
    ("topics", "describe", "t"),
    ("topics", "create", "t"),
    ("produce", "t", "--delivery-timeout-ms", "400"),
    ("consume", "t", "--timeout-ms", "300"),
    ("top", "--once"),
    ("cluster", "describe"),
    ("groups", "list"),
    ("groups", "describe", "g"),
    ("groups", "reset-offsets", "g", "--topic", "t", "--to-latest"),
]


@pytest.mark.parametrize("args", READERS, ids=" ".join)
def test_nothing_answers(tidelog: Tidelog, args: tuple[str, ...]) -> None:
    (port,) = free_ports(1)
    said = complaint(tidelog(*args, *QUICK, "--bootstrap-server", f"127.0.0.1:{port}", stdin=b"x\n"), 1)
    assert f"127.0.0.1:{port}" in said
    assert "`tidelog local up` starts one" in said


def test_something_else_answers(tidelog: Tidelog, shared_cluster: LocalCluster) -> None:
    """ZooKeeper closes the connection, a socket that nobody reads says nothing, a controller knows no metadata."""
    zookeeper = str(shared_cluster.plan["zookeeper-1"].for_clients)
    controller = str(shared_cluster.plan["controller-1"].for_clients)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mute = f"127.0.0.1:{silent.getsockname()[1]}"
        for server in (zookeeper, mute, "nohost.invalid:1"):
            said = complaint(tidelog("topics", "list", *QUICK, "--bootstrap-server", server), 1)
            assert f"nothing answers at {server}" in said
    said = complaint(tidelog("topics", "list", "--bootstrap-server", controller), 1)  # its answer ends it, no time does
    assert f"nothing answers at {controller} (unimplemented)" in said


@pytest.mark.smoke
@pytest.mark.parametrize("command", ["produce", "consume"])
def test_an_unknown_topic(tidelog: Tidelog, command: str) -> None:
    extra = ("--delivery-timeout-ms", "300") if command == "produce" else ()
    said = complaint(tidelog(command, "nowhere", *extra, *QUICK, stdin=b"x\n"), 1)
    assert said == "tidelog: topic 'nowhere' does not exist; create it with `tidelog topics create`"


def test_a_topic_name_that_is_no_text(tidelog: Tidelog) -> None:
    for args in (("topics", "create"), ("topics", "delete"), ("produce",)):
        assert "topic name" in complaint(tidelog(*args, b"\xff\xfe"), 2)
    assert "does not exist" in complaint(tidelog("topics", "describe", b"\xff\xfe"), 1)  # it takes patterns too


@pytest.mark.smoke
def test_places_that_are_not_there(tidelog: Tidelog, topic: str) -> None:
    said = complaint(tidelog("consume", topic, "--partition", "9"), 1)
    assert "partition 9 does not exist" in said
    said = complaint(tidelog("consume", topic, "--partition", "0", "--offset", "999999"), 1)
    assert "offset 999999 is not in the log" in said
    sent = tidelog("produce", topic, "--partition", "9", stdin=b"x\n")
    assert sent.returncode == 1
    first, last = sent.stderr.decode().splitlines()
    assert first.startswith("tidelog: line 1: ") and "partition 9" in first
    assert last == "0 records acknowledged, 1 refused."


def test_a_line_over_the_limit_is_refused_here_or_by_the_broker(tidelog: Tidelog, topic: str) -> None:
    lines = b"before\n" + b"x" * 1_500_000 + b"\nafter\n"
    for extra, said in (((), "record_bytes_max is 1048588"), (("--record-bytes-max", "2000000"), "max.message.bytes")):
        sent = tidelog("produce", topic, *extra, "--format", "json", stdin=lines)
        (line,) = sent.stderr.decode().splitlines()
        assert sent.returncode == 1
        assert line.startswith("tidelog: line 2: ") and said in line
        told = json.loads(sent.stdout)
        assert (told["read"], told["acked"], told["refused"] + told["failed"], told["outcomeUnknown"]) == (3, 2, 1, 0)


# --- files and options ----------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_settings_files(tidelog: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "broken.toml").write_text("client_id = \n")
    (tmp_path / "unknown.toml").write_text('bootstrap_server = "h:1"\n')
    (tmp_path / "bad.toml").write_text('bootstrap_servers = ["h:1"]\n')
    for name, said in (
        ("nope.toml", "nope.toml: No such file or directory"),
        (".", ".: Is a directory"),
        ("binary", "binary: not TOML"),
        ("broken.toml", "broken.toml: not TOML"),
        ("unknown.toml", "bootstrap_server: unknown setting in unknown.toml; did you mean 'bootstrap_servers'?"),
    ):
        assert said in complaint(tidelog("topics", "list", "--command-config", name), 2)
    # The environment would win over the file.
    said = complaint(tidelog("topics", "list", "--command-config", "bad.toml", env={"TIDELOG_CLIENT_ID": "x" * 300}), 2)
    assert said.startswith("tidelog: client_id: ")


def test_the_description_of_a_local_cluster_that_is_none(tidelog: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "data/local").mkdir(parents=True)
    (tmp_path / "data/local/cluster.json").write_text('{"processes": 7}')
    for args in (("local", "status"), ("local", "down"), ("local", "up")):
        assert "data/local: cluster.json does not describe a cluster" in complaint(tidelog(*args), 2)
    # Without another address a client would ask that cluster.
    command = [sys.executable, "-m", "tidelog.cli.main", "topics", "list"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("TIDELOG_")}
    found = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert "data/local: cluster.json does not describe a cluster" in complaint(found, 2)


@pytest.mark.smoke
def test_a_reader_that_has_had_enough(tidelog: Tidelog, shared_servers: str) -> None:
    """`tidelog consume | head -1`: the pipe breaks, and no traceback tells of it."""
    topic = unique_topic()
    tidelog("topics", "create", topic, "--partitions", "1")
    tidelog("produce", topic, stdin=b"line of some length\n" * 20_000)
    consumer = subprocess.Popen(
        [sys.executable, "-m", "tidelog.cli.main", "consume", topic, "--from-beginning"],
        env={**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": shared_servers},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with consumer:
        assert consumer.stdout is not None and consumer.stderr is not None
        assert consumer.stdout.readline() == b"line of some length\n"
        consumer.stdout.close()
        assert consumer.wait(30) == 141
        assert b"Traceback" not in consumer.stderr.read()
