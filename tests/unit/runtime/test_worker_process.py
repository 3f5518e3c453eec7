"""The worker process: work in another process, results one by one, and nothing left of it when its parent is gone."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from tidelog.runtime.worker_process import WorkerProcess
from tidelog.storage.compaction import Progress, Source
from tidelog.storage.scrub import Scrub


def scrub_of(folder: Path, size: int) -> Scrub:
    return Scrub(str(folder), Source(0, 1, size))


@pytest.mark.real_loop
async def test_results_come_one_by_one_and_errors_as_what_they_are(tmp_path: Path) -> None:
    worker = WorkerProcess()
    try:
        with pytest.raises(FileNotFoundError):
            async with aclosing(worker.run(scrub_of(tmp_path, 10))) as steps:
                async for _ in steps:
                    pass
        (tmp_path / f"{0:020d}.log").write_bytes(b"no batch at all")
        async with aclosing(worker.run(scrub_of(tmp_path, 15))) as steps:
            found = [step async for step in steps]
        assert "batch_length" in str(found[0]) and found[1] == Progress(0)
    finally:
        worker.close()


@pytest.mark.real_loop
async def test_a_worker_that_dies_is_an_error_and_the_next_work_has_another(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"no batch at all")
    worker = WorkerProcess()
    try:
        async with aclosing(worker.run(scrub_of(tmp_path, 15))) as steps:
            assert await anext(steps)
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            with pytest.raises(OSError, match="the worker process has died"):
                await anext(steps)
        async with aclosing(worker.run(scrub_of(tmp_path, 15))) as steps:
            assert len([step async for step in steps]) == 2
    finally:
        pid = worker.pid
        worker.close()
    assert pid is not None and not psutil.pid_exists(pid)


@pytest.mark.real_loop
async def test_work_takes_turns_and_what_is_closed_early_is_taken_back(tmp_path: Path) -> None:
    worker = WorkerProcess()
    (tmp_path / f"{0:020d}.log").write_bytes(b"no batch at all")
    try:
        async with aclosing(worker.run(scrub_of(tmp_path, 15))) as one:
            await anext(one)
            async with aclosing(worker.run(scrub_of(tmp_path, 15))) as other:
                await anext(other)
            assert await anext(one) == Progress(0)
    finally:
        worker.close()


@pytest.mark.real_loop
async def test_who_is_cancelled_does_not_wait_for_an_answer(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"no batch at all")
    worker = WorkerProcess()
    try:
        async with aclosing(worker.run(scrub_of(tmp_path, 15))) as steps:
            await anext(steps)
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGSTOP)
            asked = asyncio.ensure_future(anext(steps))
            await asyncio.wait([asked], timeout=0.1)
            asked.cancel()
            async with asyncio.timeout(30.0):
                await asyncio.wait([asked])
            assert asked.cancelled()
    finally:
        worker.close()


PARENT = """
import asyncio, sys
from contextlib import aclosing
from tidelog.runtime.worker_process import WorkerProcess
from tidelog.storage.compaction import Source
from tidelog.storage.scrub import Scrub

async def main():
    worker = WorkerProcess()
    async with aclosing(worker.run(Scrub(sys.argv[1], Source(0, 1, 15)))) as steps:
        await anext(steps)
        print(worker.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_killed_parent_leaves_no_orphan(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"no batch at all")
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.nice() == 19
        parent.kill()
    child.wait(30.0)
