"""`tidelog` on a narrow terminal and in a locale without UTF-8, and what help shows of values."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.driven_brokers import Driven
from tidelog.cli import table
from tidelog.cli.pipeline_screen import Screen
from unit.cli.conftest import Tidelog

PYTHON_TYPE = re.compile(r"<[a-z]+|\b(?:list|dict|tuple)\[|\b(?:str|bool|float|TEXT|INTEGER|FLOAT)\b")
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "60"}


def commands(above: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
    yield above
    for name, below in getattr(command, "commands", {}).items():
        yield from commands((*above, name), below)


COMMANDS = [path for row in table.TABLE for path in commands((row.name,), row.load())]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_names_no_type_of_python(tidelog: Tidelog, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("60", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        shown = tidelog(*path, "--help")
        assert shown.exit_code == 0 and f"tidelog {path[0]}" in shown.text
        assert PYTHON_TYPE.findall(shown.text) == []


def test_commands_come_in_the_order_of_their_use() -> None:
    loaded = {row.name: list(getattr(row.load(), "commands", ())) for row in table.TABLE}
    assert loaded["topics"] == ["create", "list", "describe", "alter", "delete", "offsets"]
    assert loaded["groups"] == ["list", "describe", "members", "delete", "reset-offsets"]
    assert loaded["brokers"] == ["list", "drain", "discard-damage", "release-veto"]
    assert loaded["cluster"] == ["describe", "health", "add-brokers"]


def plain(*args: str, **variables: str) -> str:
    """Output of a command in the locale C on 60 columns; it exits with 0 and has no errors."""
    tidelog = (sys.executable, "-m", "tidelog.cli.main")
    done = subprocess.run([*tidelog, *args], env=os.environ | PLAIN | variables, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode("ascii")


@pytest.mark.parametrize(
    "args",
    [("--help",), ("chaos", "list"), ("topics", "--help"), ("consume", "--help"), ("config", "show", "client")],
    ids=" ".join,
)
def test_a_locale_without_utf_8_ends_no_command(args: tuple[str, ...]) -> None:
    shown = plain(*args, TIDELOG_CLIENT_ID="Z\u00fcrich")
    assert shown
    if args[0] == "config":
        assert r"Z\udcc3\udcbcrich" in shown


def test_a_file_of_settings_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text('client_id = "Z\u00fcrich"\n', "utf-8")
    assert r"Z\xfcrich" in plain("config", "show", "client", "--config", str(file))


def test_records_are_bytes_in_any_locale(tidelog: Tidelog, cluster: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("t")
    value = "Z\u00fcrich".encode()
    assert tidelog("produce", "t", "--key-separator", ":", stdin=value + b":" + value).exit_code == 0
    reading = ("consume", "t", "--from-beginning", "--max-messages", "1", "--property", "print.key=true")
    monkeypatch.setenv("LC_ALL", "C")
    assert tidelog(*reading).out == value + b"\t" + value + b"\n"


def test_a_line_that_moves_is_plain_where_there_is_no_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(shown, "ascii", write_through=True))
    with Screen("ingest") as screen:
        screen.phase("starting")
    assert b"ingest: starting" in shown.getvalue()
