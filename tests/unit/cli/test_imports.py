"""Modules that a command imports: each costs every command of every user its milliseconds of processor time.

When a test fails, import the new module in the function that uses it. If every command needs it, measure its price with
`make bench ONLY=CLI`, then add it here.
"""

import subprocess
import sys
from collections.abc import Sequence

import pytest

START = {"annotated_doc", "shellingham", "tidelog", "typer"}
HELP = START | {"markdown_it", "mdurl", "pygments", "rich"}
CLIENT = START | {"google", "grpc", "uvloop"}
OF_CLIENT = {
    "tidelog": {
        "cli",
        "client",
        "config",
        "errors",
        "ids",
        "names",
        "ports",
        "release",
        "runtime",
        "setting_types",
        "sizes",
        "values",
        "wire",
    },
    "tidelog.cli": {"commands", "completion", "connection", "errors", "main", "parse", "show", "table"},
    "tidelog.cli.commands": {"configs", "get_offsets", "topics"},
    "tidelog.client": {
        "admin",
        "changes",
        "connections",
        "coordinators",
        "errors",
        "gate",
        "group_admin",
        "log_admin",
        "metadata",
        "offsets",
        "produce_link",
        "reassignments",
        "snapshot",
    },
    "tidelog.runtime": {
        "bell",
        "clock",
        "loop",
        "retry",
        "rpc_cause",
        "rpc_channel",
        "rpc_net",
        "rpc_options",
        "tasks",
    },
}
"""Modules and packages of Tidelog that `topics list` may import, by the package that holds them."""


def imported(args: Sequence[str]) -> tuple[str, set[str]]:
    """Exit code of a command, and every module that its process had at the end."""
    code = 'import sys; from tidelog.cli.main import run; print("|", run(sys.argv[1:]), *sys.modules)'
    ran = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    exit_code, *modules = ran.stdout.rpartition("| ")[2].split()
    return exit_code, set(modules)


def packages(modules: set[str]) -> set[str]:
    """Packages that were installed. Cython leaves modules of its own, and grpc imports its own tools if they are there."""
    tops = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"__main__"}
    return {top for top in tops if not top.startswith(("_", "cython_runtime", "grpc_"))}


@pytest.mark.parametrize("args", [["--help"], ["topics", "list", "--help"], ["topics"]], ids=" ".join)
def test_help_imports_no_client(args: list[str]) -> None:
    _, modules = imported(args)
    assert packages(modules) - HELP == set()
    assert "tidelog.client" not in modules


def test_version_imports_the_start_alone() -> None:
    exit_code, modules = imported(["--version"])
    assert (exit_code, packages(modules) - START) == ("0", set())


def test_topics_list_imports_what_it_needs_and_no_more() -> None:
    exit_code, modules = imported(["topics", "list", "--bootstrap-server", "127.0.0.1:1"])
    assert exit_code == "1"  # refused; an answer imports nothing more
    assert packages(modules) - CLIENT == set()
    for package, allowed in OF_CLIENT.items():
        below = {
            name.removeprefix(f"{package}.").partition(".")[0] for name in modules if name.startswith(f"{package}.")
        }
        assert below - allowed == set(), package
