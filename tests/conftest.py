"""Settings of every test run, and what no test may leave behind."""

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from helpers import spark_jvm
from helpers.scripts import ROOT

pytest_plugins = ["helpers.coroutine_tests"]

# A machine that also runs the cluster is slow at times; a deadline would then fail good code. Failures print the blob
# that repeats them.
settings.register_profile(
    "tidelog", deadline=None, max_examples=50, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("tidelog"), max_examples=1000)
settings.load_profile("tidelog")

os.environ.update(spark_jvm.EVERYWHERE)

if sys.dont_write_bytecode:
    # Images of containers often forbid it. Then each process of a test compiles everything anew, and pytest rewrites all tests.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "pycache")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.disable()  # until everything is collected: what is imported meanwhile stays

LEAK_GRACE_S = 2.0
RESULTS = os.environ.pop("TEST_RESULTS", None)
"""File that gets a line of JSON for each test (scripts/run_tests.py). A pytest that a test starts does not inherit it."""
WAS_THERE = pytest.StashKey[tuple[set[threading.Thread], set[str]]]()


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A background job of a shell ignores SIGINT, and so would all that it starts: tests of Ctrl-C would prove nothing."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def open_files() -> set[str]:
    """Regular files that this process has open. Sockets and pipes are left out: grpc and the loops keep some for ever."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:  # closed since the listing
            continue
        if target.startswith("/") and not target.startswith(("/dev/", "/proc/")) and not target.endswith("(deleted)"):
            found.add(target)
    return found


def lasting_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.daemon}


@pytest.fixture(autouse=True)
def _what_was_there(request: pytest.FixtureRequest) -> None:
    """Taken when the fixtures of wider scope are set up already, as theirs may stay."""
    request.node.stash[WAS_THERE] = lasting_threads(), open_files()


def pytest_collection_finish() -> None:
    """The collector need not go through modules and tests, which stay to the end, again and again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that have passed before the run was interrupted."""
    if RESULTS is None or not Path(RESULTS).exists():
        return
    lines = map(json.loads, Path(RESULTS).read_text().splitlines())
    passed = {line["test"] for line in lines if line["outcome"] == "passed"}
    if done := [item for item in items if item.nodeid in passed]:
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item.nodeid not in passed]


_RUNNING: dict[str, dict[str, Any]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if RESULTS is None:
        return
    result = _RUNNING.setdefault(report.nodeid, {"test": report.nodeid, "outcome": "passed", "seconds": 0.0, "why": ""})
    result["seconds"] = round(result["seconds"] + report.duration, 3)
    if report.skipped and isinstance(report.longrepr, tuple):
        result |= {"outcome": "skipped", "why": report.longrepr[2].removeprefix("Skipped: ")}
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = (crash.message if crash else str(report.longrepr)).partition("\n")[0]
        result |= {"outcome": "failed", "why": f"({report.when}) {why[:300]}"}
    if report.when == "teardown":
        with Path(RESULTS).open("a") as file:
            file.write(json.dumps(_RUNNING.pop(report.nodeid)) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Function) -> Generator[None, None, None]:
    """Fails a test that leaves a thread or an open file behind. Tasks are looked after by `helpers.aio.run`."""
    yield
    if WAS_THERE not in item.stash:
        return  # it was skipped, or its set-up failed
    threads, files = item.stash[WAS_THERE]
    deadline = time.monotonic() + LEAK_GRACE_S
    while (left := lasting_threads() - threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left, f"threads left behind: {left}"
    if open_files() - files:
        item.funcargs.clear()  # fixtures end here, and what nobody refers to any more is no leak
        gc.collect()
    assert not (opened := open_files() - files), f"files left open: {sorted(opened)}"
