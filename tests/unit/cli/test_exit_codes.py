"""`tidelog` as a program: exit codes, and what it says when it ends early."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli import errors
from tidelog.cli.main import run
from unit.cli.conftest import Tidelog

TIDELOG = (sys.executable, "-m", "tidelog.cli.main")


def test_version(tidelog: Tidelog) -> None:
    result = tidelog("--version")
    assert re.fullmatch(r"tidelog \d+\.\d+\.\d+\S*\n", result.text)
    assert result.exit_code == 0


@pytest.mark.parametrize("args", [(), ("topics",), ("topics", "list"), ("produce",), ("pipeline", "run", "ingest")])
def test_h_is_help(tidelog: Tidelog, args: tuple[str, ...]) -> None:
    short, long = tidelog(*args, "-h"), tidelog(*args, "--help")
    assert (short.exit_code, short.text) == (0, long.text)
    assert f"tidelog {' '.join(args)}".strip() in short.text


def test_a_group_without_a_command_prints_its_help(tidelog: Tidelog) -> None:
    result = tidelog("topics")
    assert (result.exit_code, result.err) == (errors.BAD_INPUT, "")
    assert "Create a topic." in result.text


def test_a_bug_is_one_line_and_a_file(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tidelog.cli.connection.Connection.admin", lambda on: 1 / 0)
    result = tidelog("topics", "list")
    assert result.exit_code == errors.BUG
    said = re.fullmatch(
        r"tidelog: this is a bug of tidelog: ZeroDivisionError: division by zero; (\S+) has the traceback", result.error
    )
    assert said is not None, result.error
    told = Path(said[1]).read_text()
    assert said[1].startswith(str(tmp_path / "state" / "tidelog"))
    assert told.startswith("$ tidelog topics list\nTraceback") and "1 / 0" in told


def test_a_bug_where_no_state_can_be_kept(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tidelog.cli.connection.Connection.admin", lambda on: 1 / 0)
    assert f"{tmp_path}/bug-" in tidelog("topics", "list").error


@pytest.mark.parametrize("args", [("topics", "--help"), ("config", "show", "traffic"), ("chaos", "list")], ids=" ".join)
def test_a_closed_pipe_ends_it_as_a_signal_would(args: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as closed:
        done = subprocess.run([*TIDELOG, *args], stdout=closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (errors.CLOSED_PIPE, b"")


def test_a_full_device_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*TIDELOG, "config", "show"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"tidelog: No space left on device\n")


def test_a_closed_standard_input_is_one_line(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert run(["produce", "t"]) == errors.BAD_INPUT


def test_ctrl_c_while_it_starts_prints_nothing() -> None:
    """The signal arrives at the first import that takes time."""
    program = (
        "import signal, sys\n"
        "from tidelog.cli import main\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'typer': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "sys.argv = ['tidelog', 'topics', 'list']\n"
        "main.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, b"", b"")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("consume", "t", "--max-messages", "-1"), "'--max-messages': must be at least 1, not -1. See `tidelog consume --help`."),
        (("groups", "reset-offsets", "g", "--to-offset", str(2**63)), f"must be from 0 to {2**63 - 1}, not {2**63}."),
        (("top", "--interval", "0"), "'--interval' / '-d': must be from 0.1 to 3600"),
        (
            ("--bootstrap-server", "x:1", "topics", "list"),
            "No such option: --bootstrap-server. Options of a command, such as --bootstrap-server, stand after its name. "
            "See `tidelog --help`.",
        ),
        (("topics", "--timeout", "1s", "list"), "No such option: --timeout. Options of a command"),
        (("topics", "list", "--nope"), "(Possible options: --topic). See `tidelog topics list --help`."),
        (("topics", "list", "--bootstrap-server", "b1"), "tidelog: --bootstrap-server: 'b1' is not host:port"),
        (("topics", "list", "--timeout", "9999h"), "tidelog: --timeout: must be"),
        (("agent", "run", "--group", "g", "--topic", "t", "--bootstrap-server", "b1"), "tidelog: --bootstrap-server: 'b1'"),
        (("topics", "list", "--command-property", "bootstrap_servers=b1"), "bootstrap_servers: 'b1' is not host:port"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named_with_what_it_takes(tidelog: Tidelog, args: tuple[str, ...], said: str) -> None:
    refused = tidelog(*args)
    assert said in refused.error
    assert refused.exit_code == errors.BAD_INPUT
