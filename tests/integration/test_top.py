"""`tidelog top` beside real faults: what it shows is what happens, and nothing that it showed goes from the screen."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import unique_topic
from helpers.loads import Load
from tidelog.client.admin import Admin
from tidelog.cluster.api import CONTROLLER, bootstrap_servers, broker_name, process_name
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.ready import wait_ready
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

WITHIN_S = 60.0
TOP = (sys.executable, "-m", "tidelog.cli.main", "top")
OTHER_SCREEN, BACK = b"\x1b[?1049h", b"\x1b[?1049l"


class Watched:
    """`tidelog top --format json` that looks at one topic with one partition; `seen` is the newest object."""

    def __init__(self, process: asyncio.subprocess.Process, topic: str) -> None:
        self.process = process
        self.topic = topic
        self.seen: dict[str, Any] = {}

    @property
    def partition(self) -> dict[str, Any]:
        (found,) = self.seen["partitions"]
        assert (found["topic"], found["partition"]) == (self.topic, 0)
        return dict(found)

    def broker(self, number: int) -> dict[str, Any]:
        return next(dict(each) for each in self.seen["brokers"] if each["id"] == number)

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Reads on. That the partition is in every object is part of every wait."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    line = await self.process.stdout.readline()
                    assert line, "it has ended"
                    self.seen = json.loads(line)
                    assert self.partition["replicas"] == [0, 1, 2]
                    if holds():
                        return
        except TimeoutError:
            raise AssertionError(f"{WITHIN_S:g} s without: {what}; {self.seen}") from None


@asynccontextmanager
async def watched(servers: str, topic: str) -> AsyncIterator[Watched]:
    process = await asyncio.create_subprocess_exec(
        *(*TOP, "--format", "json", "--interval", "0.3", "--topic", topic, "--bootstrap-server", servers),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield Watched(process, topic)
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
        assert (process.returncode, said) == (130, b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def make_topic(admin: Admin) -> str:
    topic = unique_topic("top")
    await admin.create_topic(topic, assignment=[[0, 1, 2]])
    await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
    return topic


async def made_group(admin: Admin, group: str, tp: TopicPartition) -> None:
    """Its coordinator hears of a new topic some time after the topic's leader."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            (result,) = await admin.groups.alter_offsets(group, {tp: 0})
            if result.error_code is ErrorCode.NONE:
                return
            assert result.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await asyncio.sleep(0.05)


async def test_a_leader_dies_and_comes_back_and_the_view_shows_every_step(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = bootstrap_servers(shared_cluster)

    async with Admin(servers) as admin:
        topic = await make_topic(admin)
        group = unique_topic("group")
        await made_group(admin, group, TopicPartition(topic, 0))
        load = Load(topic, 1, "all", tmp_path)
        async with load.running(servers), watched(servers, topic) as top:
            await top.until("a load", lambda: (top.partition["recordsPerS"] or 0) > 0)
            before = top.partition
            leader = before["leader"]
            assert (before["isr"], before["status"], top.broker(leader)["state"]) == ([0, 1, 2], None, "alive")
            await top.until(
                "the lag of the group",
                lambda: any(g["group"] == group and (g["lag"] or 0) > 0 for g in top.seen["groups"]),
            )

            await asyncio.to_thread(shared_cluster.kill, broker_name(leader))
            await top.until("another leader", lambda: top.partition["leader"] not in (leader, None))
            await top.until(
                "an ISR of two",
                lambda: (
                    top.partition["isr"] == sorted({0, 1, 2} - {leader})
                    and top.partition["status"] == "under-replicated"
                ),
            )
            assert top.partition["leaderEpoch"] == before["leaderEpoch"] + 1
            await top.until(
                "a dead broker, named",
                lambda: (
                    top.broker(leader)["state"] == "down" and f"no answer from broker {leader}" in top.seen["problems"]
                ),
            )
            assert (top.broker(leader)["answers"], top.broker(leader)["leaders"]) == (False, 0)
            await top.until("acks of the next one", lambda: (top.partition["recordsPerS"] or 0) > 0)
            await top.until("what the dead one lacks", lambda: top.partition["behind"].get(str(leader), 0) > 0)

            await asyncio.to_thread(shared_cluster.start, broker_name(leader))
            await top.until("its answer", lambda: top.broker(leader)["answers"] and not top.seen["problems"])
            await top.until("an ISR of three", lambda: top.partition["isr"] == [0, 1, 2])
            assert top.broker(leader)["state"] == "alive"
        await admin.delete_topic(topic)
    await asyncio.to_thread(wait_ready, shared_cluster, WITHIN_S)


@pytest.mark.smoke
async def test_the_controller_dies_and_what_is_known_stays_with_its_age(shared_cluster: LocalCluster) -> None:
    servers = bootstrap_servers(shared_cluster)

    async with Admin(servers) as admin:
        topic = await make_topic(admin)
    async with watched(servers, topic) as top:
        await top.until("a controller", lambda: top.seen["controllerId"] is not None)
        first, epoch = top.seen["controllerId"], top.seen["controllerEpoch"]
        await asyncio.to_thread(shared_cluster.kill, process_name(CONTROLLER, first))
        await top.until(
            "what is known, with its age, of brokers that answer",
            lambda: (
                f"leaders and ISRs are {top.seen['describedAgoS']:.0f} s old" in top.seen["problems"]
                and all(broker["answers"] for broker in top.seen["brokers"])
            ),
        )
        await top.until(
            "the next controller",
            lambda: top.seen["controllerId"] not in (first, None) and not top.seen["problems"],
        )
        assert top.seen["controllerEpoch"] > epoch
        await asyncio.to_thread(shared_cluster.start, process_name(CONTROLLER, first))
    async with Admin(servers) as admin:
        await admin.delete_topic(topic)
    await asyncio.to_thread(wait_ready, shared_cluster, WITHIN_S)


# -- on a terminal ----------------------------------------------------------------------------------------------------


class Terminal:
    """A pseudo-terminal of 80 by 24 with `tidelog top` on it; `shown` is every byte that came to it."""

    def __init__(self, servers: str) -> None:
        self.keyboard, inner = pty.openpty()
        termios.tcsetwinsize(inner, (24, 80))
        self.before = termios.tcgetattr(inner)
        self.inner = inner
        self.shown = b""
        command = [*TOP, "--interval", "0.2", "--bootstrap-server", servers]
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True, preexec_fn=_own
        )

    def until(self, wanted: bytes, times: int = 1) -> None:
        deadline = time.monotonic() + WITHIN_S
        while self.shown.count(wanted) < times:
            assert time.monotonic() < deadline, self.shown[-2000:]
            if select.select([self.keyboard], [], [], 0.1)[0]:
                self.shown += os.read(self.keyboard, 65536)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.keyboard)
        os.close(self.inner)


def _own() -> None:
    """The terminal is that of the new session, so that Ctrl-C on it is a signal."""
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize(("key", "exit_code"), [(b"q", 0), (b"\x03", 130), (None, 0)], ids=["q", "Ctrl-C", "SIGTERM"])
def test_on_a_terminal_it_draws_anew_and_leaves_it_as_it_was(
    shared_servers: str, key: bytes | None, exit_code: int
) -> None:
    terminal = Terminal(shared_servers)
    try:
        terminal.until(OTHER_SCREEN)
        terminal.until(b"3 of 3 brokers up", times=3)
        assert BACK not in terminal.shown
        if key is None:
            terminal.process.terminate()
        else:
            os.write(terminal.keyboard, key)
        terminal.until(BACK)
        assert terminal.process.wait(WITHIN_S) == exit_code
        assert termios.tcgetattr(terminal.inner) == terminal.before
        assert b"Traceback" not in terminal.shown
    finally:
        terminal.close()
