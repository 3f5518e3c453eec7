"""Mistakes of a new user: each ends within two seconds with an exit code and one line that says what is wrong.

Commands run on the simulator's loop, so their time is virtual and a limit holds on any machine. What needs real processes,
files or brokers is in tests/integration/test_bad_command_line.py and test_bad_start.py.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from helpers.driven_brokers import Driven
from tidelog.runtime import loop
from unit.cli.conftest import SHARED, Tidelog

SOON_S: Final = 2.0
HINT: Final = ": is the cluster up? `tidelog local up` starts one"
DOWN: Final = f"nothing answers at broker-1:9092, broker-2:9092, broker-3:9092 (connection refused){HINT}"
NO_HOST: Final = f"nothing answers at nohost:9092 (no such host, or no route to it){HINT}"


NOTHING_ANSWERS: Final = [
    ("topics", "list"),
    ("topics", "describe", "events"),
    ("topics", "create", "new"),
    ("produce", "events"),
    ("consume", "events", "--from-beginning"),
    ("consume", "events", "--group", "g"),
    ("groups", "list"),
    ("brokers", "list"),
    ("get-offsets", "--topic", "events"),
    ("configs", "describe", "--topic", "events"),
    ("top", "--once"),
]


A_TOPIC: Final = "topic 'nosuch' does not exist; `tidelog topics list` shows those that do"
NOT_THERE: Final = "topic 'nosuch' does not exist; create it with `tidelog topics create`"
A_GROUP: Final = "group 'nosuch' does not exist; `tidelog groups list` shows those that do"
FAILED: Final = 1
WRONG: Final = 2

MISTAKES: Final[list[tuple[str, int, str]]] = [
    # A topic, partition, group or broker that does not exist.
    ("topics describe nosuch", FAILED, A_TOPIC),
    ("topics delete nosuch", FAILED, A_TOPIC),
    ("topics alter nosuch --partitions 3", FAILED, A_TOPIC),
    ("get-offsets --topic nosuch", FAILED, A_TOPIC),
    ("log-dirs describe --topic-list nosuch", FAILED, A_TOPIC),
    ("produce nosuch", FAILED, NOT_THERE),
    ("consume nosuch --from-beginning", FAILED, NOT_THERE),
    ("perf produce --topic nosuch --num-records 5 --record-size 10 --throughput -1", FAILED, NOT_THERE),
    ("delete-records --offset-json-file nosuch.json", FAILED, NOT_THERE),
    ("consume events --partition 9", FAILED, "topic 'events' has partitions 0 to 2, partition 9 does not exist"),
    (
        "get-offsets --topic events --partitions 9",
        FAILED,
        "no partition matches; `tidelog topics list` shows the topics",
    ),
    ("groups describe nosuch", FAILED, A_GROUP),
    ("groups delete nosuch", FAILED, A_GROUP),
    ("brokers discard-damage --broker 9", FAILED, "broker 9 is not alive; alive are 1, 2, 3"),
    ("brokers discard-damage --broker 1 --topic nosuch", FAILED, A_TOPIC),
    (
        "brokers discard-damage --broker 1 --topic events --partition 9",
        FAILED,
        "topic 'events' has partitions 0 to 2, partition 9 does not exist",
    ),
    (
        "brokers discard-damage --broker 1 --topic events --partition 0",
        FAILED,
        "broker 1: the log of events-0 is not damaged",
    ),
    ("brokers discard-damage --broker 1 --partition 0", WRONG, "--partition is only allowed with --topic"),
    ("brokers discard-damage --broker 1 --force", WRONG, "--force is only allowed with --execute"),
    ("log-dirs describe --broker-list 9", FAILED, "broker 9 is not alive; alive are 1, 2, 3"),
    ("local kill broker-1", FAILED, "there is no cluster in {here}/data/local; `tidelog local up` makes one"),
    # Something that exists already, or values that no cluster takes.
    ("topics create events", FAILED, "topic 'events' already exists"),
    ("topics create new --partitions 0", WRONG, "--partitions is 0; at least 1 is needed"),
    (
        "topics create bad/name",
        WRONG,
        "topic name 'bad/name' holds something else than ASCII letters, digits, '.', '_' and '-'",
    ),
    ("topics create new --config retention.ms", WRONG, "--config 'retention.ms' is not KEY=VALUE"),
    # Numbers, times and names of options.
    (
        "topics alter events --partitions x",
        WRONG,
        "Invalid value for '--partitions': 'x' is not a whole number. See `tidelog topics alter --help`.",
    ),
    (
        "topics list --format xml",
        WRONG,
        "Invalid value for '--format': 'xml' is not one of 'text', 'json'. See `tidelog topics list --help`.",
    ),
    ("topics list --timeout 5", WRONG, "--timeout '5' is not a time like 500ms, 10s or 2m"),
    (
        "topics list --bootstrap-server b1",
        WRONG,
        "--bootstrap-server: 'b1' is not host:port with a port from 0 to 65535",
    ),
    (
        "--bootstrap-server x:1 topics list",
        WRONG,
        "No such option: --bootstrap-server. Options of a command, such as --bootstrap-server, stand after its name. "
        "See `tidelog --help`.",
    ),
    ("topics lst", WRONG, "No such command 'lst'. Did you mean 'list'? See `tidelog topics --help`."),
    (
        "get-offsets --topic events --time yesterday",
        WRONG,
        "--time 'yesterday' is not Unix milliseconds, a date like 2026-02-03T04:05:06 or a time ago like 1h, "
        "nor latest (-1), earliest (-2), max-timestamp (-3)",
    ),
    (
        "consume events --offset nosuch",
        WRONG,
        "--offset 'nosuch' is not earliest, latest, a number or a time like @1h",
    ),
    (
        "consume events --offset 5",
        WRONG,
        "--offset with a number needs --partition: offsets count within one partition",
    ),
    (
        "consume events --max-messages -1",
        WRONG,
        "Invalid value for '--max-messages': must be at least 1, not -1. See `tidelog consume --help`.",
    ),
    ("consume events --include e.*", WRONG, "--include needs --group"),
    ("produce events --property parse.key=maybe", WRONG, "--property parse.key=maybe is neither true nor false"),
    ("produce events --property nosuch=1", WRONG, "--property 'nosuch' is not known"),
    ("produce events --command-property nosuch=2", WRONG, "nosuch: unknown setting on the command line"),
    (
        "produce events --compression rar",
        WRONG,
        "compression 'rar' is not known; known are none, gzip, snappy, lz4, zstd",
    ),
    ("top --topic [", WRONG, "--topic '[' is no regular expression: unterminated character set at position 0"),
    # Options that are missing.
    ("produce", WRONG, "name one topic, as an argument or with --topic"),
    ("configs describe", WRONG, "name one of --topic and --broker"),
    ("pipeline run ingest --topic events", WRONG, "--output is missing"),
    ("agent run", WRONG, "group_id: required; set --group, or TIDELOG_GROUP_ID, or group_id in the file"),
    # Files and directories.
    ("produce events --file /nope", WRONG, "--file /nope: No such file or directory"),
    ("delete-records --offset-json-file /nope", WRONG, "/nope: No such file or directory"),
    (
        "delete-records --offset-json-file bad.json",
        WRONG,
        'bad.json is not {{"partitions": [{{"topic": "events", "partition": 0, "offset": 100}}], "version": 1}}',
    ),
    (
        "log dump bad.json",
        WRONG,
        "bad.json is no segment file; those of a broker are named like 00000000000000000000.log",
    ),
    (
        "pipeline query /nope x",
        WRONG,
        "/nope does not exist or is empty; name the --output of a `tidelog pipeline run ingest`",
    ),
    ("pipeline query half x", FAILED, "half holds no finished batch: run the ingest again"),
    ("chaos run nosuch", WRONG, "no scenario nosuch (`tidelog chaos list` shows them all)"),
]


@pytest.fixture
def spent(cluster: Driven, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Virtual seconds of each coroutine that the command runs."""
    seconds: list[float] = []
    run = loop.run

    async def timed(main: Coroutine[Any, Any, Any]) -> Any:
        began = asyncio.get_running_loop().time()
        try:
            return await main
        finally:
            seconds.append(asyncio.get_running_loop().time() - began)

    monkeypatch.setattr(loop, "run", lambda main: run(timed(main)))
    return seconds


@pytest.mark.parametrize("args", NOTHING_ANSWERS, ids=" ".join)
def test_nothing_answers(tidelog: Tidelog, events: Driven, spent: list[float], args: tuple[str, ...]) -> None:
    events.kill(*events.ids)
    found = tidelog(*args, stdin=b"x\n")
    assert (found.exit_code, found.error, found.out) == (1, f"tidelog: {DOWN}", b"")
    assert sum(spent) <= SOON_S
    found = tidelog(*args, "--bootstrap-server", "nohost:9092", stdin=b"x\n")
    assert (found.exit_code, found.error) == (1, f"tidelog: {NO_HOST}")
    assert sum(spent) <= 2 * SOON_S


@SHARED
@pytest.mark.parametrize(("line", "exit_code", "said"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_a_mistake_is_one_line_at_once(
    tidelog: Tidelog, events: Driven, spent: list[float], tmp_path: Path, line: str, exit_code: int, said: str
) -> None:
    (tmp_path / "bad.json").write_text("{x")
    (tmp_path / "nosuch.json").write_text('{"partitions": [{"topic": "nosuch", "partition": 0, "offset": 1}]}')
    (tmp_path / "half/_checkpoint").mkdir(parents=True)
    found = tidelog(*line.split(), stdin=b"a\n")
    assert (found.exit_code, found.error) == (exit_code, f"tidelog: {said.format(here=tmp_path)}")
    assert sum(spent) <= SOON_S
