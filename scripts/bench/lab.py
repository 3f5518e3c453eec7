"""LAB-START and LAB-SPEED: processor time of `tidelog lab run` of the first lesson, and speed of a lab's virtual time under load.

The load of LAB-SPEED is 200 records a second with acks=all over 12 partitions of three brokers, and the simulator checks its
invariants after each step. Both are measured against limits; of the speed more is better.
"""

import asyncio
import sys
import time
from typing import Final

from bench.commands import cpu_s
from bench.harness import Bench, Line, against_limit
from tidelog.lab import Lab

NAMES: Final = ("LAB-START", "LAB-SPEED")
COMMAND: Final = (sys.executable, "-m", "tidelog.cli.main", "lab", "run", "1")
START_LIMIT_S: Final = 2.0
SPEED_LIMIT: Final = 20.0
PARTITIONS: Final = 12
RATE: Final = 200
SLICE_S: Final = 5.0
"""Virtual time that passes between two looks at the clock."""


def speed(seconds: float) -> float:
    """Virtual seconds a second, measured for about `seconds`."""
    with Lab(partitions=PARTITIONS) as lab:
        lab.load("events", RATE)
        lab.run(SLICE_S)  # until producers and followers are in their stride
        virtual, began = lab.time, time.perf_counter()
        while time.perf_counter() < began + seconds:
            lab.run(SLICE_S)
        return (lab.time - virtual) / (time.perf_counter() - began)


async def run(bench: Bench) -> list[Line]:
    rounds, lines = bench.scale.rounds, list[Line]()
    if "LAB-START" in bench.wanted:
        await asyncio.to_thread(cpu_s, COMMAND, bench.directory)  # compiles what is not compiled
        starts = [await asyncio.to_thread(cpu_s, COMMAND, bench.directory) for _ in range(rounds)]
        bench.say(f"LAB-START: {', '.join(f'{each:.2f} s' for each in starts)}")
        lines.append(
            against_limit("LAB-START", starts, limit=START_LIMIT_S, unit="s of processor time", target="at most 1")
        )
    if "LAB-SPEED" in bench.wanted:
        speeds = [speed(bench.scale.seconds) for _ in range(rounds)]
        bench.say(f"LAB-SPEED: {', '.join(f'{each:.1f}' for each in speeds)}")
        lines.append(against_limit("LAB-SPEED", speeds, limit=SPEED_LIMIT, unit="virtual s per s", target="at least 1"))
    return lines
