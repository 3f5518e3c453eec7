"""`tidelog top` as a command, against brokers in memory."""

import asyncio
import json
import re
from contextlib import aclosing
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest

from helpers.batches import batch
from helpers.brokers import brokers
from helpers.driven_brokers import Driven
from tidelog.cli.commands.top import _views
from tidelog.cli.connection import Connection
from tidelog.cli.top_rows import View
from tidelog.client.observer import ClusterObserver
from tidelog.errors import TransportError
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from unit.cli.conftest import Tidelog

HASTE = ("--command-property", "request.timeout.ms=200")


@pytest.fixture
def events(cluster: Driven) -> Driven:
    cluster.create("events", partitions=3)
    cluster.create("other")
    cluster.append("events", 0, batch(b"a", b"b"))
    cluster.create_group("readers", {TopicPartition("events", 0): 0, TopicPartition("other", 0): 0})
    cluster.create_group("writers", {TopicPartition("other", 0): 0})
    cluster.join("readers", "c", "events", polls=False)
    return cluster


def test_once_prints_everything_and_ends(tidelog: Tidelog, events: Driven) -> None:
    result = tidelog("top", "--once")
    assert (result.exit_code, result.err) == (0, "")
    lines = result.text.splitlines()
    assert lines[1] == "controller 1 (epoch 1)  3 of 3 brokers up  2 topics  4 partitions"
    (row,) = (line.split() for line in lines if re.match(r"events +0 ", line))
    assert row == ["events", "0", "1", "0", "1,2,3", "3/3", "1,2,3", "2", "2", "0", "-", "-"]
    assert [line.split()[0] for line in lines if "Stable" in line or "Empty" in line] == ["readers", "writers"]
    assert "\x1b" not in result.text


def test_without_a_terminal_text_is_printed_once(tidelog: Tidelog, events: Driven) -> None:
    result = tidelog("top")
    assert (result.exit_code, result.err) == (0, "")
    assert result.text.count("tidelog top") == 1


def test_json_is_one_object_a_line(tidelog: Tidelog, events: Driven) -> None:
    result = tidelog("top", "--once", "--format", "json", "--topic", "ev.*", "--group", "re.*")
    assert result.text.count("\n") == 1
    found = json.loads(result.text)
    assert [(p["topic"], p["partition"]) for p in found["partitions"]] == [("events", 0), ("events", 1), ("events", 2)]
    assert [(g["group"], g["lag"]) for g in found["groups"]] == [("readers", 2)], "of the chosen topics"
    assert found["topics"] == 2, "of the whole cluster"


def test_a_broker_that_is_down_is_on_the_screen(tidelog: Tidelog, events: Driven) -> None:
    events.create("single", partitions=3, replicas=1)
    events.kill(3)
    events.wait(0.5)  # its session lasts, and its only replica has no other leader
    result = tidelog("top", "--once")
    assert result.exit_code == 0
    assert "no answer from broker 3\n" in result.text
    assert re.search(r"^ *3  broker-3:9092 +silent ", result.text, re.MULTILINE)
    assert re.search(r"^single +2 +3 .* leader silent$", result.text, re.MULTILINE)
    events.notice(3)
    result = tidelog("top", "--once")
    assert result.exit_code == 0
    assert "2 of 3 brokers up" in result.text
    assert re.search(r"^ *3  - +down ", result.text, re.MULTILINE)


def test_a_start_at_which_nothing_answers_is_one_line_after_the_timeout(tidelog: Tidelog, events: Driven) -> None:
    events.kill(*events.ids)
    for args in (("--once",), ()):
        result = tidelog("top", *args, *HASTE)
        assert result.exit_code == 1
        assert result.out == b""
        assert "nothing answers at broker-1:9092, broker-2:9092, broker-3:9092 (connection refused)" in result.error


def test_with_wait_it_waits_beyond_the_timeout(tidelog: Tidelog, events: Driven) -> None:
    left = 20

    async def not_yet(call: Call) -> object:
        nonlocal left
        left -= 1
        if left >= 0:
            raise TransportError("UNAVAILABLE")
        return NotImplemented

    async def slow(call: Call) -> object:
        if call.method == "ListOffsets" and events.brokers.broker_of(call) == 3:
            await events.clock.sleep(0.5)
        return NotImplemented

    events.faults.extend([not_yet, slow])
    result = tidelog("top", "--once", "--wait", "--interval", "0.1", *HASTE)
    assert (result.exit_code, left < 0) == (0, True)
    assert "3 of 3 brokers up" in result.text and "no answer" not in result.text


async def test_views_come_at_every_interval_with_a_silent_broker() -> None:
    cluster = await brokers(3)
    await cluster.create("events", partitions=3)
    observer, stop, seen = ClusterObserver(cluster.bootstrap, cluster.ports, 1.0), asyncio.Event(), list[View]()
    observer.start()
    on = cast(Connection, SimpleNamespace(ports=cluster.ports))
    async with aclosing(_views(observer, on, 1.0, stop, blank=False)) as views:
        async for view in views:
            seen.append(view)
            if len(seen) == 4:
                cluster.silent.add(3)
            if len(seen) == 12:
                stop.set()
            await cluster.append("events", 0, batch(b"a", b"b"))
    await observer.stop()
    times = [view.wall_ms for view in seen]
    assert [two - one for one, two in pairwise(times)] == [1000] * 11
    rates = [row.rate for view in seen for row in view.partitions if row.partition == 0]
    assert rates[:2] == [None, pytest.approx(2, rel=0.01)] and None not in rates[1:]
    assert [view.brokers[0].broker_id for view in seen if view.brokers[0].problem] == [3] * 7


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--interval", "0"), 2, "'--interval'"),
        (("--interval", "soon"), 2, "'--interval'"),
        (("--topic", "("), 2, "--topic '(' is no regular expression"),
        (("--group", "["), 2, "--group '[' is no regular expression"),
        (("--format", "xml"), 2, "'--format'"),
        (("--bootstrap-server", "nowhere"), 2, "'nowhere' is not host:port"),
    ],
)
def test_a_wrong_command_line_is_one_line(tidelog: Tidelog, args: tuple[str, ...], code: int, said: str) -> None:
    result = tidelog("top", *args)
    assert (result.exit_code, result.out) == (code, b"")
    assert said in result.error
