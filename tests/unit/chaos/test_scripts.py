"""scripts/chaos/*.sh: one for each fault, and bad usage is refused before anything is looked for."""

import importlib
import os
import subprocess
import sys
from types import ModuleType

import pytest

from helpers.scripts import ROOT
from tidelog.chaos.faults.base import On
from tidelog.chaos.faults.registry import FAULTS

FOLDER = ROOT / "scripts" / "chaos"


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("inject")


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_a_script_that_anybody_can_run(name: str) -> None:
    script = FOLDER / f"{name.replace('-', '_')}.sh"
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert lines[-1] == f'exec "$(dirname "$0")/inject.sh" {name} "$@"'
    assert f"scripts/chaos/{script.name}" in lines[1], "how it is called"


@pytest.mark.parametrize("name", [*FAULTS, "kill-leader"])
def test_every_script_takes_its_own_options(name: str, inject: ModuleType) -> None:
    """A parameter of a fault may not have the name of an option of every script."""
    asked = inject.arguments([name])
    assert (asked.name, asked.options.load) == (name, 300.0)


@pytest.mark.parametrize("name", [*FAULTS, "kill-leader"])
def test_every_script_without_arguments_hits_containers(name: str, inject: ModuleType) -> None:
    asked = inject.arguments([name]).on(On.COMPOSE)
    assert asked.fault.why_not(On.COMPOSE) is None
    assert inject.arguments([name]).given == {}, "elsewhere the fault's own defaults hold"


def test_links_between_containers_slow_down_for_clients_only(inject: ModuleType) -> None:
    assert inject.arguments(["slow-link"]).on(On.COMPOSE).given == {"peers": "clients"}
    with pytest.raises(ValueError, match="peers can only be clients"):
        inject.arguments(["slow-link", "--peers", "all brokers"]).on(On.COMPOSE)


def test_no_script_is_left_of_a_fault_that_is_gone() -> None:
    scripts = {path.stem for path in FOLDER.glob("*.sh")}
    assert scripts == {name.replace("-", "_") for name in FAULTS} | {"inject", "kill_leader"}


def test_the_help_names_every_fault() -> None:
    argv = [sys.executable, str(FOLDER / "inject.py"), "--help"]
    general = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert general.returncode == 0 and all(name in general.stdout for name in FAULTS)


def test_the_help_of_a_fault_names_its_parameters(inject: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        inject.arguments(["isolate", "--help"])
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("--peers", "--direction", "--for", "--on"))


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["kil"], "no fault 'kil'; did you mean 'kill'?"),
        (["clock"], "played by the simulator only"),
        (["kill", "lead of 0"], "no target 'lead of 0'; did you mean 'leader of N'?"),
        (["kill", "clients"], "'kill' hits zookeepers, controllers, brokers, agents"),
        (["kill-leader", "clients"], "'kill' hits zookeepers, controllers, brokers, agents"),
        (["kill", "--load", "0"], "--load 0 is not from 0.1 to 20,000"),
        (["kill", "--for", "soon"], "'soon' is not a duration"),
        (["torn-tail", "--bytes", "many"], "bytes: 'many' is not a size"),
        (["packet-loss", "broker-1", "--on", "local"], "not with --on local: local links run through a proxy"),
    ],
)
def test_bad_usage_is_one_line_and_ends_with_2(
    words: list[str], complaint: str, inject: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        inject.arguments(words)
    printed = capsys.readouterr()
    assert not printed.out
    assert complaint in printed.err.splitlines()[-1]
