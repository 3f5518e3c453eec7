"""Loads against real clusters whose every record is accounted for: a chaos run's producer, its history and its checker."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.chaos.checker.check import check
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.final_read import read_everything
from tidelog.chaos.history import HistoryReader, Send
from tidelog.chaos.sources import Checked
from tidelog.chaos.verifiable_producer import SendFailed, VerifiableProducer
from tidelog.chaos.workload import ProducerTries
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.runtime.clock import SystemClock

PREFIX: Final = "v-"
KEYS: Final = 60
VALUE_BYTES: Final = 100
READ_WITHIN_S: Final = 60.0
AGAIN_S: Final = 0.05
AGAIN: Final = ("duplicate", "duplicate (not idempotent)")
OUT_OF_ORDER: Final = ("nonmonotonic-send", "nonmonotonic-send (unknown)")
"""The checker tolerates the second of each, of producers that are not idempotent; these loads do not."""


@dataclass(frozen=True, slots=True)
class Found:
    """The judgement over everything that a load has left."""

    verdict: Verdict
    read: int

    @property
    def duplicated(self) -> int:
        return sum(self.verdict.anomalies[name].count for name in AGAIN)

    @property
    def sound(self) -> bool:
        return self.verdict.sound and not any(self.verdict.anomalies[name].count for name in (*AGAIN, *OUT_OF_ORDER))


class OwnRecords(Chronicle):
    """Records that a test writes beside the load have their places in the log, and are not counted."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        self._others: set[str] = set()

    def read_by(
        self,
        process: str,
        began: float,
        by_partition: Mapping[TopicPartition, Sequence[tuple[int, str]]],
        group: str | None,
        final: bool = False,
    ) -> None:
        others = {
            (tp, offset) for tp, rows in by_partition.items() for offset, name in rows if not name.startswith(PREFIX)
        }
        named = {
            tp: [(offset, self._other(tp, offset) if (tp, offset) in others else name) for offset, name in rows]
            for tp, rows in by_partition.items()
        }
        super().read_by(process, began, named, group, final)
        self.read -= len(others)

    def _other(self, tp: TopicPartition, offset: int) -> str:
        name = f"other-{tp.partition}-{offset}"
        if name not in self._others:
            self._others.add(name)
            self._ids += 1
            self.append(Send(self.now(), self._ids, "other", *tp, name, "0"))
        return name


class Load:
    """`records_per_s` over all partitions of one topic, until the context ends; then what became of them is known."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        acks: str,
        directory: Path,
        records_per_s: int = 300,
        request_timeout_ms: int = 15_000,
    ) -> None:
        self.topic = topic
        self.acks = acks
        self.records_per_s = records_per_s
        self.request_timeout_ms = request_timeout_ms
        self._partitions = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._history = directory / f"history-{topic}.jsonl"
        self._chronicle = OwnRecords(self._history, SystemClock())
        weakref.finalize(self, self._chronicle.close)  # not every test reads back what it has sent

    @property
    def sent(self) -> int:
        return self._chronicle.sent

    @property
    def acked(self) -> int:
        return self._chronicle.acked

    def acked_end(self, partition: int) -> int:
        """The offset behind the last record of a partition that was acknowledged."""
        return self._chronicle.highest[TopicPartition(self.topic, partition)] + 1

    @asynccontextmanager
    async def running(self, servers: str) -> AsyncIterator[None]:
        self._chronicle.phase("load")
        async with Producer(servers, acks=self.acks, request_timeout_ms=self.request_timeout_ms) as producer:
            tries = ProducerTries(self._chronicle, self.topic, self.acks)
            tries.process = "producer"
            sender = VerifiableProducer(
                producer,
                self.topic,
                self._chronicle.clock,
                tries,
                iter(Checked(PREFIX, KEYS, VALUE_BYTES, self._chronicle.clock.wall_ms)),
                per_s=self.records_per_s,
            )
            stopped = asyncio.Event()
            task = asyncio.create_task(self._send(sender, stopped))
            try:
                yield
            finally:
                stopped.set()
                sender.stop()
                await task
        self._chronicle.phase("heal")

    async def _send(self, sender: VerifiableProducer, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            try:
                await sender.run()
            except SendFailed:
                await self._chronicle.clock.sleep(AGAIN_S)

    async def read_back(self, servers: str) -> Found:
        chronicle = self._chronicle
        chronicle.phase("final")
        async with Consumer(servers) as consumer:
            ends = await consumer.end_offsets(self._partitions)
        await read_everything(servers, ends, chronicle, READ_WITHIN_S)
        chronicle.phase("end")
        verdict = check(HistoryReader(self._history), Promise(idempotent=self.acks == "all"))
        return Found(verdict, chronicle.read // verdict.stats["final_readers"])

    def longest_stall_s(self, partition: int | None = None) -> float:
        """The longest time in which records waited and their partition (None: any) acknowledged none."""
        gaps = check(HistoryReader(self._history)).gaps
        return max((gap.seconds for gap in gaps if partition in (None, gap.partition)), default=0.0)
