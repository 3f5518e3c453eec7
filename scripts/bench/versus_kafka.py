"""B1: acks=all beside Apache Kafka on the same machine, three brokers and one. Those that are not measured stand still."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from bench.cluster import BATCH_BYTES, RECORD_BYTES, BenchCluster, batch_of
from bench.harness import SMOKE, Bench, CannotRun, Line, NoFigure, compared, take_turns
from bench.kafka import SESSION_MS, VERSION, Kafka, fetch_jars
from bench.throughput import MB, PARTITIONS, WINDOW
from tidelog.cluster.api import BROKER

NAMES: Final = ("B1",)
SIZES: Final = (3, 1)
ROUNDS: Final = 3
LONGER: Final = 3
"""Kafka is measured for so many times as long: its producer is a new Java process each time, which is slow at first."""
STANDS_STILL: Final = {BROKER: {"zookeeper_session_timeout_ms": str(SESSION_MS)}}


async def measure(bench: Bench, cluster: BenchCluster, kafka: Kafka, brokers: int) -> dict[str, list[float]]:
    batch, value = batch_of(BATCH_BYTES), os.urandom(RECORD_BYTES)

    async def alone(run: Callable[[], Awaitable[float]]) -> float:
        """Ours, while theirs is stopped."""
        kafka.signal(signal.SIGSTOP)
        try:
            return await run()
        finally:
            kafka.signal(signal.SIGCONT)

    async def theirs(seconds: float) -> float:
        names = cluster.local.names(BROKER)
        for name in names:
            await asyncio.to_thread(cluster.local.pause, name)
        try:
            return await kafka.rate(
                record_bytes=RECORD_BYTES,
                batch_bytes=BATCH_BYTES,
                partitions=PARTITIONS,
                in_flight=-(-WINDOW // brokers),
                seconds=LONGER * seconds,
            )
        finally:
            for name in names:
                await asyncio.to_thread(cluster.local.resume, name)

    return await take_turns(
        replace(bench, scale=replace(bench.scale, rounds=min(ROUNDS, bench.scale.rounds))),
        {
            "Kafka": theirs,
            "ours": lambda s: alone(lambda: cluster.rate(batch, WINDOW, PARTITIONS, s, replicas=brokers)),
            "producer": lambda s: alone(lambda: cluster.producer_rate(value, PARTITIONS, s, replicas=brokers)),
        },
        references=("Kafka",),
    )


async def run(bench: Bench) -> list[Line]:
    lines: list[Line] = []
    if bench.scale is SMOKE:
        lines.append(NoFigure("B1", "not run: three Kafka brokers are too much for a smoke test; here is one"))
    try:
        jars = await fetch_jars(download=bench.scale is not SMOKE)
    except CannotRun as reason:
        return [NoFigure("B1", str(reason))]
    for brokers in SIZES if bench.scale is not SMOKE else SIZES[-1:]:
        suffix = "" if brokers == SIZES[0] else f"-RF{brokers}"
        directory = bench.directory / f"of-{brokers}"
        async with BenchCluster(directory / "cluster", brokers=brokers, settings=STANDS_STILL) as cluster:
            try:
                async with Kafka(directory / "kafka", jars, brokers) as kafka:
                    taken = await measure(bench, cluster, kafka, brokers)
            except CannotRun as reason:
                lines.append(NoFigure(f"B1{suffix}", str(reason)))
                continue
        what = (
            f" of Apache Kafka {VERSION}, {brokers} broker(s), acks=all, RF={brokers}, {BATCH_BYTES >> 10} KiB batches"
        )
        for name, ours, target in (
            ("B1", "ours", "at least 0.3" if brokers == SIZES[0] else "reported"),
            ("B1-producer", "producer", "reported"),
        ):
            lines.append(
                compared(
                    *(f"{name}{suffix}", taken[ours], taken["Kafka"]), unit="MB/s", times=MB, target=target, what=what
                )
            )
    return lines
