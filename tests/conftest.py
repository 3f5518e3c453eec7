"""Settings of every test run, and what no test may leave behind."""

import gc
import os
import signal
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from helpers import spark_jvm

pytest_plugins = ["helpers.coroutine_tests"]

# A machine that also runs the cluster is slow at times; a deadline would then fail good code. Failures print the blob
# that repeats them.
settings.register_profile(
    "tidelog", deadline=None, max_examples=50, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("tidelog"), max_examples=1000)
settings.load_profile("tidelog")

os.environ.update(spark_jvm.EVERYWHERE)

LEAK_GRACE_S = 2.0
FAILED_TESTS = os.environ.pop("FAILED_TESTS", None)
"""The file that gets a line for each test that failed. Not for what tests start: they may run pytest themselves."""
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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What scripts/test.sh repeats at its very end, below the thousands of lines of several runs."""
    if report.failed and FAILED_TESTS is not None:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = (crash.message if crash else str(report.longrepr)).partition("\n")[0]
        with Path(FAILED_TESTS).open("a") as file:
            file.write(f"{report.nodeid} ({report.when}): {why[:300]}\n")


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
