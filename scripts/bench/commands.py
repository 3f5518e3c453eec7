"""CLI: processor time of `tidelog topics list`, against that of a Python that imports grpc and nothing else.

Each runs in a process of its own, with compiled modules. The command of the figure names its brokers; a note gives the ratio of a
command that looks for the cluster itself. The ratio is one of times: less is better.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Final

from bench.cluster import BenchCluster
from bench.harness import Bench, Line, Note, compared, take_turns

NAMES: Final = ("CLI",)
RATIO_MAX: Final = 3.0
TIDELOG: Final = (sys.executable, "-m", "tidelog.cli.main", "topics", "list")
GRPC: Final = (sys.executable, "-c", "import grpc")
LEFT_OUT: Final = frozenset({"PYTHONDONTWRITEBYTECODE", "TIDELOG_BOOTSTRAP_SERVERS"})


def cpu_s(command: tuple[str, ...], directory: Path) -> float:
    """Processor seconds of one run, user and system time."""
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    process = subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process.stderr as said:
        told = said.read().strip()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {told}")
    return used.ru_utime + used.ru_stime


async def run(bench: Bench) -> list[Line]:
    async def measured(command: tuple[str, ...], seconds: float) -> float:
        """The median of as many runs as begin within `seconds`."""
        loop = asyncio.get_running_loop()
        taken: list[float] = []
        end = loop.time() + seconds
        while not taken or loop.time() < end:
            taken.append(await asyncio.to_thread(cpu_s, command, bench.directory))
        return median(taken)

    async with BenchCluster(bench.directory / "data" / "local") as cluster:
        named = (*TIDELOG, "--bootstrap-server", cluster.bootstrap)
        taken = await take_turns(
            bench,
            {
                "import grpc": lambda seconds: measured(GRPC, seconds),
                "topics list": lambda seconds: measured(named, seconds),
                "topics list, looking": lambda seconds: measured(TIDELOG, seconds),
            },
            references=("import grpc",),
        )
    looking = median(a / b for a, b in zip(taken["topics list, looking"], taken["import grpc"], strict=True))
    return [
        Note(f"CLI when the command looks for the cluster of its directory: {looking:.3g}"),
        compared(
            "CLI",
            taken["topics list"],
            taken["import grpc"],
            unit="ms of processor time",
            times=1000,
            target=f"at most {RATIO_MAX:g}",
            what=" for `import grpc`",
        ),
    ]
