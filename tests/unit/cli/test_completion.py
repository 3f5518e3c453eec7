"""Shell completion: names of the live cluster behind Tab, for each shell, and silence where there is none."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from helpers.driven_brokers import Driven
from tidelog.cli.main import run
from tidelog.cli.table import TABLE
from tidelog.ids import TopicPartition
from unit.cli.conftest import Tidelog

Tab = Callable[..., list[str]]
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def live(cluster: Driven) -> Driven:
    cluster.create("events", partitions=3)
    cluster.create("errors")
    cluster.create("orders")
    return cluster


@pytest.fixture
def tab(
    tidelog: Tidelog,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Tab:
    """What a shell is told at Tab behind `line`; nothing may go to the standard error."""

    def press(line: str, shell: str = "bash") -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_TIDELOG_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        with pytest.raises(SystemExit):
            run([])
        told, err = capfdbinary.readouterr()
        assert err == b""
        out = told.decode()
        return out.split("\n") if out.strip() else []

    return press


def words(found: list[str]) -> list[str]:
    return [line.strip() for line in found if line.strip()]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tidelog topics describe e", ["errors", "events"]),
        ("tidelog topics delete --topic or", ["orders"]),
        ("tidelog consume ev", ["events"]),
        ("tidelog perf produce --topic ", ["errors", "events", "orders"]),
        ("tidelog get-offsets --topic --x", []),
        ("tidelog brokers list ", ["1", "2", "3"]),
        ("tidelog brokers li", ["list"]),
        ("tidelog topics describe zzz", []),
    ],
)
def test_names_of_the_live_cluster_are_offered(tab: Tab, live: Driven, line: str, offered: list[str]) -> None:
    assert words(tab(line)) == offered


def test_groups_are_offered(tab: Tab, live: Driven) -> None:
    for name in ("readers", "writers"):
        live.create_group(name, {TopicPartition("events", 0): 0})
    assert words(tab("tidelog groups describe r")) == ["readers"]
    assert words(tab("tidelog consume --group ")) == ["readers", "writers"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_is_told_in_its_own_form(tab: Tab, live: Driven, shell: str) -> None:
    told = "\n".join(tab("tidelog topics describe ev", shell))
    assert "events" in told
    assert "orders" not in told


def test_the_line_itself_says_which_cluster(tab: Tab, live: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "nowhere:1")
    assert tab("tidelog topics describe e") == []
    assert words(tab("tidelog topics describe --bootstrap-server broker-1:9092 e")) == ["errors", "events"]


def test_without_a_cluster_nothing_is_offered_in_a_second_and_nothing_is_said(tab: Tab, live: Driven) -> None:
    live.silent.update(live.ids)
    assert tab("tidelog topics describe e") == []
    assert live.calls, "it was asked"
    assert tab("tidelog topics describe --command-config /no/such/file e") == []
    assert tab("tidelog local kill b") == []


def test_every_option_that_names_something_of_the_cluster_is_completed() -> None:
    def parameters(command: object, path: str) -> Iterator[tuple[str, typer.core.TyperOption]]:
        for name, below in getattr(command, "commands", {}).items():
            yield from parameters(below, f"{path} {name}")
        if not getattr(command, "commands", None):
            yield from ((path, each) for each in getattr(command, "params", ()))

    named = [
        (path, each)
        for row in TABLE
        for path, each in parameters(row.load(), f"tidelog {row.name}")
        if {"--topic", "--group", "--group-id"} & {*each.opts}
        or each.metavar in ("TOPIC", "GROUP...", "BROKER...", "PROCESS")
    ]
    assert len(named) > 25
    for path, each in named:
        assert each._custom_shell_complete is not None, f"{path}: {each.opts}"


def test_bash_completes_with_the_script_that_it_is_given(tmp_path: Path) -> None:
    program = tmp_path / "tidelog"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidelog.cli.main "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = (
        'eval "$(tidelog --show-completion bash)"; COMP_WORDS=(tidelog brokers li) COMP_CWORD=2; '
        "_tidelog_completion tidelog; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert (found.stdout, found.stderr) == ("list\n", "")
