"""What the `__main__` of every process shares: the loop, the signals, the exit code, and errors in one line.

def main() -> None:
    sys.exit(process.run(serve))

async def serve(supervisor: Supervisor) -> None:
    broker = Broker(load_settings(), ports, supervisor, metrics)
    await broker.start()
    try:
        await supervisor.wait()
    finally:
        await broker.stop()
"""

import asyncio
import errno
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.errors import TidelogError
from tidelog.runtime import loop
from tidelog.runtime.tasks import MustEnd, Supervisor, TaskFailed

log = logging.getLogger(__name__)

EXIT_STOPPED: Final = 0
EXIT_FAILED: Final = 1
"""A bug: the log has the trace."""
EXIT_REFUSED: Final = 2
"""Settings, a port, the data directory or another process; one line on the standard error says which and what to do."""

Serve = Callable[[Supervisor], Awaitable[None]]


def run(serve: Serve, *, prefix: str = "") -> int:
    """Runs `serve` until it ends, or until SIGTERM or SIGINT cancels it, so that its `finally` can stop in order.

    A second signal ends the process at once. Returns the exit code. Each line about a refusal begins with `prefix`.
    """
    try:
        return loop.run(_serve(serve))
    except (TidelogError, OSError) as error:
        sys.stderr.write("".join(f"{prefix}{line}\n" for line in explain(error).splitlines()))
        return EXIT_REFUSED


async def _serve(serve: Serve) -> int:
    running = asyncio.get_running_loop()
    main = asyncio.current_task()
    assert main is not None
    received: list[signal.Signals] = []

    def failed(_task: str) -> None:
        if not received and supervisor.failures == 1:
            main.cancel()  # it may wait for something that now never comes

    supervisor = Supervisor("process", on_failure=failed)

    def stop(number: signal.Signals) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)
        log.info("stopping", extra={"signal": number.name})
        main.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop, number)
    try:
        await serve(supervisor)
    except asyncio.CancelledError:
        if not received and not supervisor.failures:
            raise
    except TaskFailed:
        pass  # the supervisor has logged it with its trace
    finally:
        await supervisor.stop()
        for number in (signal.SIGTERM, signal.SIGINT):
            running.remove_signal_handler(number)
    if supervisor.failure is not None and isinstance(supervisor.failure.__cause__, MustEnd):
        raise supervisor.failure.__cause__
    return EXIT_FAILED if supervisor.failures else EXIT_STOPPED


def explain(error: TidelogError | OSError) -> str:
    """One line (settings: one a problem) that names what is wrong and what to do."""
    if isinstance(error, TidelogError):
        return error.message
    if error.errno == errno.EADDRINUSE:
        return f"{error.strerror or error}: stop the process that listens there, or set another port"
    if error.errno == errno.ELOOP:
        return f"{error.filename} is a symbolic link, which is not followed here; put the file itself there"
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"
