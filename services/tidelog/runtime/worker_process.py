"""The Worker port: a child process at the lowest priority, started when it is first needed.

Parent and child speak over the child's standard input and output, one question and one answer at a time: a length of four
bytes and a pickled tuple. The child ends with its input, so with its parent, however that goes; signals to the parent's group
do not reach it. `python -m tidelog.runtime.worker_process` is the child.
"""

import asyncio
import ctypes
import errno
import itertools
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from tidelog.ports.disk import Disk
from tidelog.ports.worker import Work, Worker
from tidelog.runtime.os_disk import OsDisk

R = TypeVar("R")

_NICE: Final = 19
_AUTOGROUP: Final = Path("/proc/self/autogroup")
"""sched(7): where the kernel groups processes by session, their priorities count among themselves only. So the child has a
session of its own with a priority of its own; measured: without that the child takes as much as a busy broker."""
_SESSION_NICE: Final = 10
"""A tenth of what another busy session gets: it goes on beside them, if slowly."""
_PR_SET_PDEATHSIG: Final = 1
"""prctl(2). The parent is the thread that starts the child, and that one lives as long as its process."""
_LENGTH_BYTES: Final = 4
_GO_ON: Final = "go on"
_STOP: Final = "stop"
_RESULT: Final = "result"
_END: Final = "end"
_FAILED: Final = "failed"


class WorkerProcess:
    """The parent's side."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        # Its one thread keeps questions and answers in order.
        self._thread = ThreadPoolExecutor(1, "worker")

    async def run(self, work: Work[R]) -> AsyncGenerator[R, None]:
        number = next(self._numbers)
        question: Work[R] | str = work
        over = False
        try:
            while True:
                try:
                    what, value = await self._ask(number, question)
                except asyncio.CancelledError:
                    # Its broker stops, and must not wait for what may take long at this priority. A start tidies up.
                    over = True
                    self._kill()
                    raise
                over = what != _RESULT
                if what == _FAILED:
                    raise value
                if over:
                    return
                yield value
                question = _GO_ON
        finally:
            if not over and self._child is not None:
                await self._ask(number, _STOP)

    async def _ask(self, number: int, question: Any) -> tuple[str, Any]:
        running = asyncio.get_running_loop()
        return await running.run_in_executor(self._thread, self._exchange, (number, question))

    def _exchange(self, question: tuple[int, Any]) -> tuple[str, Any]:
        child = self._child
        if child is None:
            if question[1] == _STOP:
                return _END, None
            child = self._child = self._start()
        assert child.stdin is not None and child.stdout is not None
        try:
            _send(child.stdin, question)
            answer: tuple[str, Any] | None = _receive(child.stdout)
        except (BrokenPipeError, ValueError):
            answer = None
        if answer is None:
            self._child = None
            _reap(child)
            return _FAILED, OSError(errno.EPIPE, "the worker process has died")
        return answer

    @staticmethod
    def _start() -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "tidelog.runtime.worker_process"]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def _kill(self) -> None:
        child = self._child
        if child is not None:
            child.kill()  # its answer does not come: the thread takes note, and waits for its end

    def close(self) -> None:
        self._kill()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if (left := self._child) is not None:
            self._child = None
            _reap(left)


def _reap(child: "subprocess.Popen[bytes]") -> None:
    assert child.stdin is not None and child.stdout is not None
    child.kill()
    child.stdout.close()
    try:
        child.stdin.close()
    except BrokenPipeError:
        pass  # a question that it did not read
    child.wait()


def _send(pipe: Any, message: tuple[Any, Any]) -> None:
    data = pickle.dumps(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    pipe.flush()


def _receive(pipe: Any) -> tuple[Any, Any] | None:
    """None when the other side is gone."""
    head = pipe.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    size = int.from_bytes(head, "big")
    data = pipe.read(size)
    message: tuple[Any, Any] | None = pickle.loads(data) if len(data) == size else None
    return message


def serve(disk: Disk, questions: BinaryIO, answers: BinaryIO) -> None:
    """The child's side, until its parent is gone. A bug in a piece of work ends it, with a trace on the standard error."""
    begun: dict[int, Generator[Any, None, None]] = {}
    while (message := _receive(questions)) is not None:
        number, question = message
        if question not in (_GO_ON, _STOP):
            begun[number] = question.run(disk)
        try:
            answer = _answer(begun, number, question)
        except OSError as error:
            answer = _FAILED, error
        if answer[0] != _RESULT:
            begun.pop(number, None)
        _send(answers, answer)


def _answer(begun: dict[int, Generator[Any, None, None]], number: int, question: Any) -> tuple[str, Any]:
    work = begun.get(number)
    if work is None:
        return _FAILED, OSError(errno.ESRCH, "the worker process that had begun this has died")
    if question == _STOP:
        work.close()
        return _END, None
    for result in work:
        return _RESULT, result
    return _END, None


def _die_with_parent() -> None:
    """Not only when it looks at its input again: what it removes then could be a file of its parent's next life."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def main() -> int:
    if sys.platform == "linux":
        _die_with_parent()
    os.nice(_NICE)
    with suppress(OSError):  # no Linux, or a kernel that does not group
        _AUTOGROUP.write_text(str(_SESSION_NICE))
    serve(OsDisk(), sys.stdin.buffer, sys.stdout.buffer)
    return 0


def worker_process() -> Worker:
    """The real worker, typed as the port so that a drift between them is a type error here."""
    return WorkerProcess()


if __name__ == "__main__":
    sys.exit(main())
