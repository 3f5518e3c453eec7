"""The plugin that runs coroutine tests, on tests of its own in another pytest."""

import pytest

from helpers.scripts import ROOT

pytest_plugins = ["pytester"]

TESTS = """
import asyncio
import pytest
from helpers import aio
from hypothesis import given, strategies
from tidelog.testing.loop import SimLoop

aio.TASKS_END_S = 0.1

@pytest.fixture
async def begun():
    seen = [type(asyncio.get_running_loop()).__name__]
    yield seen
    print("ended in", seen)

@pytest.fixture
async def twice(begun):
    begun.append("twice")
    yield begun

async def test_virtual(begun, twice):
    await asyncio.sleep(3600)
    assert begun is twice and begun == ["SimLoop", "twice"]

@pytest.mark.real_loop
async def test_real(begun):
    assert begun != ["SimLoop"]

@given(strategies.integers(0, 3))
async def test_examples(number):
    assert isinstance(asyncio.get_running_loop(), SimLoop)

async def test_fails():
    await asyncio.sleep(1)
    assert False, "on purpose"

@given(strategies.integers(0, 3))
async def test_example_fails(number):
    assert number < 2, "an example"

async def test_deadlock():
    await asyncio.Event().wait()

@pytest.mark.timeout(5.05)
@pytest.mark.real_loop
async def test_late():
    await asyncio.sleep(5)

@pytest.mark.real_loop
async def test_leaves_a_task():
    global task
    task = asyncio.create_task(asyncio.Event().wait(), name="left")
"""


def test_coroutine_tests_pass_and_fail(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    monkeypatch.setenv("COLUMNS", "200")
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers = real_loop: real\ntimeout = 60")
    result = pytester.runpytest_subprocess("-p", "helpers.coroutine_tests", "-p", "no:cacheprovider", "-rf")
    result.assert_outcomes(passed=3, failed=5)
    result.stdout.fnmatch_lines(
        [
            "*test_fails - AssertionError: on purpose*",
            "*test_example_fails - AssertionError: an example*",
            "*test_deadlock - *Deadlock*nothing can go on*",
            "*test_late - TimeoutError*",
            "*test_leaves_a_task - AssertionError: the end of every task*",
        ]
    )
