"""`tidelog agent run`: what it refuses, in one line each."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.config import AgentSettings
from tidelog.runtime import process
from tidelog.runtime.tasks import Supervisor
from unit.cli.conftest import Result, Tidelog


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GROUP_ID", "TOPICS", "HANDLER", "AGENT_ID"):
        monkeypatch.delenv(f"TIDELOG_{name}", raising=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[AgentSettings]:
    """Settings of agents that were started instead of running."""
    found: list[AgentSettings] = []

    def run(serve: Callable[[Supervisor], object], **_: str) -> int:
        found.append(serve.args[0])  # type: ignore[attr-defined]
        return 0

    monkeypatch.setattr(process, "run", run)
    return found


def test_options_win_over_settings_and_variables(
    tidelog: Tidelog, started: list[AgentSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_GROUP_ID", "variable")
    monkeypatch.setenv("TIDELOG_SESSION_TIMEOUT_MS", "7000")
    args = ("--group", "g", "--topic", "a", "--topic", "b", "--handler", "log", "--id", "me", "--set", "on_error=skip")
    assert tidelog("agent", "run", *args).exit_code == 0
    (settings,) = started
    assert (settings.group_id, settings.topics, settings.handler, settings.agent_id) == ("g", ("a", "b"), "log", "me")
    assert (settings.on_error, settings.session_timeout_ms) == ("skip", 7000)
    assert ",".join(map(str, settings.bootstrap_servers)) == os.environ["TIDELOG_BOOTSTRAP_SERVERS"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--topic", "t"), 2, "tidelog: group_id: required; set --group, or TIDELOG_GROUP_ID, or group_id in the file"),
        (("--group", "g"), 2, "tidelog: topics: name topics, or a pattern and no topics"),
        (("--group", "g", "--topic", "t", "--pattern", "t.*"), 2, "tidelog: topics: name topics, or a pattern and no topics"),
        (("--group", "g", "--topic", "t", "--set", "session"), 2, "tidelog: --set 'session' is not KEY=VALUE"),
        (
            ("--group", "g", "--topic", "t", "--set", "sesion_timeout_ms=5"),
            *(2, "tidelog: sesion_timeout_ms: unknown setting on the command line; did you mean 'session_timeout_ms'?"),
        ),
        (
            ("--group", "g", "--topic", "t", "--set", "session_timeout_ms=soon"),
            2,
            "tidelog: session_timeout_ms: must be a whole number from 1 to 2147483647, not 'soon' "
            "(command line)",
        ),
        (
            ("--group", "g", "--topic", "t", "--handler", "forward"),
            *(2, "tidelog: forward_topic: required by the handler forward"),
        ),
        (("--group", "g", "--topic", "t", "--config", "none.toml"), 2, "tidelog: none.toml: No such file or directory"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line(tidelog: Tidelog, args: tuple[str, ...], code: int, said: str) -> None:
    result: Result = tidelog("agent", "run", *args)
    assert (result.exit_code, result.error) == (code, said)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--handler", "cuont"), "handler: 'cuont' is no built-in handler and not package.module:function"),
        (("--handler", "mine:missing"), "handler: module 'mine' has no 'missing'"),
        (("--group", "a/b"), "group"),
        (("--topic", "a/b"), "topic name 'a/b'"),
    ],
)
def test_what_only_the_process_can_see_is_one_line_too(
    tidelog: Tidelog, tmp_path: Path, args: tuple[str, ...], said: str
) -> None:
    (tmp_path / "mine.py").write_text("def handle(batch): pass\n")
    result = tidelog("agent", "run", "--group", "g", "--topic", "t", *args)
    assert result.exit_code == process.EXIT_REFUSED
    assert result.err.splitlines()[-1].startswith(f"tidelog: {said}")
    assert "Traceback" not in result.err


def test_config_show_knows_agents_and_traffic(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_GROUP_ID", "g")
    monkeypatch.setenv("TIDELOG_TOPICS", "t")
    assert "on_error" in tidelog("config", "show", "agent").text
    assert "traffic_records_per_s" in tidelog("config", "show", "traffic").text
