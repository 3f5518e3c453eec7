"""An engine that loses the output of a command is asked again, and a command's own words and code are kept."""

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from tidelog.cluster.api import ClusterError
from tidelog.cluster.container_exec import TRIES, run_in


class Container:
    """Runs commands on this machine, and loses the output of the first `losing`, or always what is not on standard output."""

    name = "tidelog-broker-1"

    def __init__(self, losing: int = 0, errors: int = subprocess.STDOUT) -> None:
        self.losing = losing
        self.errors = errors
        self.runs = 0

    def exec_run(self, command: Sequence[str]) -> Any:
        self.runs += 1
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=self.errors, check=False)
        return done.returncode, b"" if self.runs <= self.losing else done.stdout


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["echo", "one  two", "$HOME"], 0, "one  two $HOME\n"),
        (["true"], 0, ""),
        (["sh", "-c", "printf cut; echo why >&2; exit 3"], 3, "cutwhy\n"),
    ],
)
def test_output_and_code_are_those_of_the_command(command: list[str], code: int, said: str) -> None:
    assert run_in(Container(), command) == (code, said)


def test_one_stream_is_not_lost_without_the_other() -> None:
    assert run_in(Container(errors=subprocess.DEVNULL), ["sh", "-c", "echo why >&2; exit 3"]) == (3, "why\n")


def test_a_lost_output_is_asked_for_again() -> None:
    container = Container(losing=TRIES - 1)
    assert run_in(container, ["echo", "there"]) == (0, "there\n")
    assert container.runs == TRIES


def test_an_engine_that_never_gives_output_back_is_named_with_the_command() -> None:
    with pytest.raises(ClusterError, match=rf"^id -u in tidelog-broker-1: {TRIES} runs"):
        run_in(Container(losing=TRIES), ["id", "-u"])
