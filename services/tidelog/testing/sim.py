"""Seeded runs of a simulated cluster: `python -m tidelog.testing.sim --seeds 50 --first 0`.

One run: a load with acks=all and a reader, faults for a while, then everything is healed; the cluster must converge within a
bounded time, and a last read from the start must hold everything that was acknowledged or ever read (X1).
"""

import argparse
import asyncio
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tidelog.client.admin import AdminClient
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClusterUnreachable, DeliveryError
from tidelog.client.producer import Producer
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.testing import loop as sim_loop
from tidelog.testing.invariants import Violation
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_faults import Faults

TOPIC: Final = "events"
PARTITIONS: Final = 3
FAULT_S: Final = 60.0
HEAL_S: Final = 90.0
CHECK_S: Final = 0.05
SEND_S: Final = 0.04


@dataclass(frozen=True, slots=True)
class Result:
    """Of one seed that held."""

    acked: int
    read: int
    faults: Counter[str]
    vetoed: int
    """Partitions that rightly stayed offline: their last in-sync replica lost power (reliability 3.6 rule D)."""


class Run:
    def __init__(self, seed: int) -> None:
        self.cluster = SimCluster(seed)
        self.faults = Faults(self.cluster)
        self._idle = asyncio.Event()
        """Set when the producer is to end."""
        self._stop = asyncio.Event()

    async def story(self) -> Result:
        self.cluster.start()
        admin = AdminClient(self.cluster.bootstrap, ports=self.cluster.client_ports("admin"))
        await self._until_created(admin)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            producer = group.create_task(self._produce())
            group.create_task(self._consume())
            await self.faults.run(FAULT_S)
            self.faults.heal()
            self._idle.set()
            await producer
            vetoed = await self._until_converged()
            self._stop.set()
        async with _within(HEAL_S, "the last read did not end"):
            read = await self._final_read(vetoed)
        return Result(self.cluster.checker.acked_count, read, self.faults.count, len(vetoed))

    async def _until_created(self, admin: AdminClient) -> None:
        async with admin, _within(HEAL_S, "no topic was created"):
            while True:
                try:
                    await admin.create_topic(TOPIC, PARTITIONS, 3)
                    await admin.wait_until_led(TOPIC, in_sync=True)
                    return
                except (TidelogError, ClusterUnreachable, TimeoutError):
                    await asyncio.sleep(0.2)

    async def _watch(self) -> None:
        while not self._stop.is_set():
            await asyncio.sleep(CHECK_S)
            self.cluster.check()
            if self.cluster.bugs:
                raise Violation(f"a handler of {self.cluster.bugs[0]} failed")
            for node in self.cluster.nodes.values():
                if node.running and node.process is not None and node.process.supervisor.failures:
                    raise Violation(f"{node.name} ended by itself")

    async def _produce(self) -> None:
        number = 0
        producer = Producer(
            self.cluster.bootstrap,
            ports=self.cluster.client_ports("producer"),
            batch_bytes=512,
            request_timeout_ms=3_000,
            delivery_timeout_ms=20_000,
        )
        async with producer, asyncio.TaskGroup() as sends:
            while not self._idle.is_set():
                number += 1
                sends.create_task(self._send(producer, number))
                await asyncio.sleep(SEND_S)

    async def _send(self, producer: Producer, number: int) -> None:
        value = b"value-%d" % number
        try:
            ack = await (await producer.send(TOPIC, value, partition=number % PARTITIONS))
        except (DeliveryError, TidelogError):
            return  # unknown or refused: nothing is promised
        self.cluster.checker.acked(TopicPartition(ack.topic, ack.partition), ack.offset, value)

    async def _consume(self) -> None:
        async with self._consumer("consumer") as consumer:
            await consumer.assign([TopicPartition(TOPIC, i) for i in range(PARTITIONS)])
            while not self._stop.is_set():
                for record in await consumer.poll(timeout_s=0.5):
                    tp = TopicPartition(record.topic, record.partition)
                    self.cluster.checker.read(tp, record.offset, record.value or b"")

    def _consumer(self, name: str) -> Consumer:
        return Consumer(self.cluster.bootstrap, ports=self.cluster.client_ports(name), request_timeout_ms=3_000)

    async def _until_converged(self) -> frozenset[TopicPartition]:
        now = asyncio.get_running_loop().time
        until = now() + HEAL_S
        while now() < until:
            await asyncio.sleep(0.5)
            vetoed = self.cluster.vetoed()
            if self.cluster.converged(except_for=vetoed):
                return vetoed
        raise Violation(f"LIVE-1 to 4: no convergence {HEAL_S:.0f} s after healing: {self.cluster.describe()}")

    async def _final_read(self, vetoed: frozenset[TopicPartition]) -> int:
        total = 0
        for partition in range(PARTITIONS):
            tp = TopicPartition(TOPIC, partition)
            if tp in vetoed:
                continue
            async with self._consumer(f"final-{partition}") as consumer:
                end = (await consumer.end_offsets([tp]))[tp]
                await consumer.assign([tp])
                records: dict[int, bytes] = {}
                while await consumer.position(tp) < end:
                    for record in await consumer.poll(timeout_s=0.5):
                        records[record.offset] = record.value or b""
                self.cluster.checker.final_read(tp, records)
                total += len(records)
        return total


@asynccontextmanager
async def _within(seconds: float, otherwise: str) -> AsyncIterator[None]:
    """LIVE-3: what is asked of a whole cluster is answered in bounded time."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Violation(f"LIVE-3: {otherwise} within {seconds:.0f} s") from None


def run_seed(seed: int) -> Result:
    """Raises whatever broke: a Violation, or a bug of the code under test."""
    with warnings.catch_warnings():
        # A killed process leaves coroutines that never ended: that is what a kill is.
        warnings.simplefilter("ignore")
        return sim_loop.run(_story(seed), seed)


async def _story(seed: int) -> Result:
    return await Run(seed).story()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--verbose", action="store_true", help="the log of every simulated process")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.CRITICAL, format="%(name)s %(message)s", stream=sys.stdout
    )
    started = time.perf_counter()
    totals: Counter[str] = Counter()
    failed = 0
    for done, seed in enumerate(range(arguments.first, arguments.first + arguments.seeds)):
        if sys.stderr.isatty():
            sys.stderr.write(f"\rseed {seed}: {done} of {arguments.seeds} done, {failed} failed ")
        try:
            result = run_seed(seed)
        except BaseExceptionGroup as group:
            failed += 1
            report(seed, group.exceptions[0])
        except (Violation, AssertionError, sim_loop.Deadlock) as error:
            failed += 1
            report(seed, error)
        else:
            totals += result.faults
            totals["acked"] += result.acked
            totals["read"] += result.read
            totals["vetoed"] += result.vetoed
    took = time.perf_counter() - started
    sys.stdout.write(", ".join(f"{name} {count:,}" for name, count in sorted(totals.items())) + "\n")
    sys.stdout.write(f"{arguments.seeds - failed} passed, {failed} failed\n{took:.1f} s\n")
    return 1 if failed else 0


def report(seed: int, error: BaseException) -> None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    sys.stdout.write(f"seed {seed}: {type(error).__name__}: {error}\n  again: make sim SEEDS=1 SEED={seed}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
