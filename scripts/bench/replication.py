"""B3 and B4: what one copy costs beside the disk, and what three copies cost beside one."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.cluster import BATCH_BYTES, REPLICAS, BenchCluster, batch_of
from bench.harness import Bench, Line, compared, take_turns
from bench.throughput import MB, PARTITIONS, WINDOW

NAMES: Final = ("B3", "B4")
LARGE_BYTES: Final = 256 * 1024
LEADER_ONLY: Final = 1
FILE_BYTES: Final = 128 << 20
"""As a segment of the log."""
AT_ONCE: Final = 4
"""Buffers that one writev takes, as a broker that appends what a few requests brought."""


def write_rate(directory: Path, batch: bytes, seconds: float) -> float:
    """Bytes a second that writev takes for the same buffers, one file of the size of a segment after the other."""
    written, begin = 0, time.perf_counter()
    buffers = [batch] * AT_ONCE
    path = directory / "written"
    while time.perf_counter() - begin < seconds:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            in_file = 0
            while in_file < FILE_BYTES and time.perf_counter() - begin < seconds:
                in_file += os.writev(file, buffers)
        finally:
            os.close(file)
            path.unlink()
        written += in_file
    return written / (time.perf_counter() - begin)


async def sized(bench: Bench, cluster: BenchCluster, name: str, batch: bytes) -> dict[str, list[float]]:
    window = max(1, WINDOW * BATCH_BYTES // len(batch))
    bench.say(f"{name}: batches of {len(batch) >> 10} KiB, window {window}")
    return await take_turns(
        bench,
        {
            "writev": lambda s: asyncio.to_thread(write_rate, bench.directory, batch, s),
            "one copy": lambda s: cluster.rate(batch, window, PARTITIONS, s, replicas=1, acks=LEADER_ONLY),
            "three copies": lambda s: cluster.rate(batch, window, PARTITIONS, s),
        },
        references=("writev", "one copy"),
    )


def lines_of(taken: dict[str, Sequence[float]], names: Sequence[str], size: int, wanted: frozenset[str]) -> list[Line]:
    b3, b4, b3_target, b4_target = names
    found: list[Line] = []
    kib = size >> 10
    if "B3" in wanted:
        what = f" of writev, the same {kib} KiB buffers; ours: acks=1, one replica"
        found.append(
            compared(*(b3, taken["one copy"], taken["writev"]), unit="MB/s", times=MB, target=b3_target, what=what)
        )
    if "B4" in wanted:
        what = f" with acks=1 and one replica; ours: acks=all, {REPLICAS} replicas, {kib} KiB batches"
        found.append(
            compared(
                *(b4, taken["three copies"], taken["one copy"]), unit="MB/s", times=MB, target=b4_target, what=what
            )
        )
    return found


async def run(bench: Bench) -> list[Line]:
    lines: list[Line] = []
    async with BenchCluster(bench.directory / "cluster") as cluster:
        large, usual = batch_of(LARGE_BYTES), batch_of(BATCH_BYTES)
        taken = await sized(bench, cluster, "B3, B4", large)
        lines += lines_of({**taken}, ("B3", "B4", "at least 0.15", "at least 0.25"), len(large), bench.wanted)
        taken = await sized(bench, cluster, "B3-64K, B4-64K", usual)
        lines += lines_of({**taken}, ("B3-64K", "B4-64K", "reported", "reported"), len(usual), bench.wanted)
    return lines
