"""Groups from the command line, on real processes: read together, looked at, set back and deleted."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from helpers.cluster import unique_topic

pytestmark = pytest.mark.integration

WAIT_S = 40.0
SESSION = ("--consumer-property", "session.timeout.ms=6000")


class Tidelog:
    def __init__(self, servers: str) -> None:
        self._servers = servers

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "tidelog.cli.main", *args, "--bootstrap-server", self._servers]

    def __call__(self, *args: str, stdin: bytes = b"", exit_code: int = 0) -> str:
        """What it printed, or for another exit code what it complained of."""
        found = subprocess.run(self.command(*args), input=stdin, capture_output=True, timeout=90, check=False)
        assert found.returncode == exit_code, (args, found.stdout.decode(), found.stderr.decode())
        assert b"Traceback" not in found.stderr
        return (found.stderr if exit_code else found.stdout).decode()

    def described(self, group: str, view: str = "--offsets") -> dict[str, object]:
        (described,) = json.loads(self("groups", "describe", group, view, "--format", "json"))
        assert isinstance(described, dict)
        return described

    def members(self, group: str) -> list[list[int]]:
        """The partitions of each member; all of them run here."""
        (described,) = json.loads(self("groups", "members", group, "--format", "json"))
        assert {member["host"] for member in described["members"]} <= {"/127.0.0.1", None}, "None: away for now"
        return sorted(sorted(p["partition"] for p in member["partitions"]) for member in described["members"])

    @contextmanager
    def reader(self, topic: str, group: str) -> Iterator["subprocess.Popen[bytes]"]:
        command = self.command("consume", topic, "--group", group, "--from-beginning", *SESSION)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=10)


@pytest.fixture
def tidelog(shared_servers: str) -> Tidelog:
    return Tidelog(shared_servers)


@pytest.fixture
def topic(tidelog: Tidelog) -> str:
    """Three partitions with ten records each."""
    name = unique_topic("grouped")
    tidelog("topics", "create", name, "--partitions", "3")
    for partition in range(3):
        lines = b"".join(b"%d-%d\n" % (partition, n) for n in range(10))
        tidelog("produce", name, "--partition", str(partition), stdin=lines)
    return name


def eventually(tidelog: Tidelog, group: str, wanted: list[list[int]]) -> None:
    deadline = time.monotonic() + WAIT_S
    while (found := tidelog.members(group)) != wanted:
        assert time.monotonic() < deadline, f"members own {found}, not {wanted}"


def test_a_group_reads_once_and_again_from_where_it_is_set(tidelog: Tidelog, topic: str) -> None:
    group = unique_topic("readers")
    read = ("consume", topic, "--group", group, "--from-beginning")
    every = sorted(f"{partition}-{n}" for partition in range(3) for n in range(10))
    assert sorted(tidelog(*read, "--max-messages", "30").split()) == every
    assert group in tidelog("groups", "list").split()
    places = tidelog.described(group)["partitions"]
    assert isinstance(places, list)
    assert [(p["currentOffset"], p["logEndOffset"], p["lag"], p["consumerId"]) for p in places] == [
        (10, 10, 0, None)
    ] * 3
    reset = ("groups", "reset-offsets", group, "--topic", f"{topic}:1", "--shift-by=-4")
    assert tidelog(*reset).split()[-4:] == [group, topic, "1", "6"]
    assert tidelog.described(group)["partitions"] == places, "a dry run changes nothing"
    tidelog(*reset, "--execute")
    assert tidelog(*read, "--max-messages", "4").split() == ["1-6", "1-7", "1-8", "1-9"]


def test_members_share_the_partitions_and_take_over(tidelog: Tidelog, topic: str) -> None:
    group = unique_topic("shared")
    with tidelog.reader(topic, group) as first:
        deadline = time.monotonic() + WAIT_S
        while f"{group}\n" not in tidelog("groups", "list"):
            assert time.monotonic() < deadline, "nobody has joined"
        eventually(tidelog, group, [[0, 1, 2]])
        with tidelog.reader(topic, group):
            eventually(tidelog, group, [[0, 1], [2]])
            # Owners are told as soon as they are stored; the group is stable when they have answered that they began.
            deadline = time.monotonic() + WAIT_S
            while (state := tidelog.described(group, "--state"))["state"] != "Stable":
                assert time.monotonic() < deadline, state
            assert state["members"] == 2
            said = tidelog("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute", exit_code=1)
            assert said.count("\n") == 1 and "has members: stop its consumers first" in said
            assert "has members: stop its consumers first" in tidelog("groups", "delete", group, exit_code=1)
            first.send_signal(signal.SIGINT)
            assert first.wait(30) == 130
            eventually(tidelog, group, [[0, 1, 2]])
