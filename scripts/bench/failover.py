"""KILL: from SIGKILL of a leader until every partition that it led takes acks=all again."""

import asyncio
import statistics
import time
from typing import Final

from bench.cluster import BenchCluster, Probe, batch_of
from bench.harness import Bench, Line, Note, against_limit
from bench.scrape import failover_steps
from tidelog.cluster.api import broker_name

NAMES: Final = ("KILL",)
LIMIT_S: Final = 1.0
PARTITIONS: Final = 12
GIVE_UP_S: Final = 60.0
FULL_ISR_S: Final = 60.0


async def kill_once(bench: Bench, cluster: BenchCluster, topic: str, number: int) -> tuple[float, dict[str, float]]:
    """Seconds without writes, and the milliseconds of each step: the controller's, then the rest until the first acks."""
    batch = batch_of(100)
    before = failover_steps(cluster.local)
    async with Probe(topic, cluster.addresses) as probe:
        await probe.wait_known(PARTITIONS)
        victim = probe.leaders[number % PARTITIONS]
        led = [partition for partition, leader in probe.leaders.items() if leader == victim]
        others = [a for name, a in cluster.local.endpoints().items() if name != broker_name(victim)]
        probe.bootstrap = others
        await probe.until_acked(led, batch, step_s=0, timeout_s=GIVE_UP_S)
        killed_at = time.perf_counter()
        cluster.local.kill(broker_name(victim))
        acked = await probe.until_acked(led, batch, step_s=0.002, timeout_s=GIVE_UP_S)
        took = max(acked.values()) - killed_at
    for _ in range(40):
        # The log line comes when every broker has answered, which may be after the first acks.
        if (steps := failover_steps(cluster.local)) != before:
            break
        await asyncio.sleep(0.05)
    known = {} if steps == before else dict(steps[-1])
    known["first acks"] = max(0.0, took * 1000 - sum(known.values()))
    texts = ", ".join(f"{name} {ms:.0f}" for name, ms in known.items())
    bench.say(f"kill {number + 1}: {broker_name(victim)} led {len(led)}; {took * 1000:.0f} ms ({texts})")
    cluster.local.start(broker_name(victim))
    await cluster.admin.wait_until_led(topic, in_sync=True, timeout_s=FULL_ISR_S)
    return took, known


async def run(bench: Bench) -> list[Line]:
    async with BenchCluster(bench.directory / "cluster") as cluster:
        topic = await cluster.new_topic(PARTITIONS)
        kills = [await kill_once(bench, cluster, topic, number) for number in range(bench.scale.kills)]
    names = list(dict.fromkeys(name for _, steps in kills for name in steps))
    lines: list[Line] = []
    for name in names:
        values = [steps[name] for _, steps in kills if name in steps]
        lines.append(
            Note(f"KILL {name}: median {statistics.median(values):.1f} ms, worst {max(values):.1f} ms, n={len(values)}")
        )
    took = [seconds for seconds, _ in kills]
    lines.append(against_limit("KILL", took, limit=LIMIT_S, unit="s", target="at most 1 (session timeout 6 s)"))
    return lines
