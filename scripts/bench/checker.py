"""CHECK: the checker of chaos over a history of a million operations, against reading the same file with json alone.

The history is one that a run leaves: producers with acks=all and acks=1, an assigned consumer and a member of a group that
read everything, and two readers of the final phase. An operation is a send with its completion, a poll, or a commit. Each
measurement is a process of its own, which says its peak memory as well. The ratio is one of times: less is better.
"""

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.harness import Bench, CannotRun, Line, Note, compared
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checking import check_history
from tidelog.chaos.history import (
    Committed,
    HistoryWriter,
    Ownership,
    Phase,
    Polled,
    Position,
    Processed,
    Read,
    Record,
    Send,
    Sent,
    Span,
    Watermark,
)
from tidelog.ids import TopicPartition

NAMES: Final = ("CHECK",)
TOPIC: Final = "chaos"
PARTITIONS: Final = 3
RATE: Final = 3_000.0
IN_FLIGHT: Final = 20
POLL_RECORDS: Final = 40
GROUP: Final = "g"
LIMIT_S: Final = 60.0
RATIO_MAX: Final = 6.0
ROUNDS_MAX: Final = 3
"""A measurement takes its time from the size of the history, not from the scale."""


class Made:
    """A sound history, record by record; `operations` counts them."""

    def __init__(self, rand: random.Random) -> None:
        self.operations = 0
        self._rand = rand
        self._t = 0.0
        self._logs: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self._values = 0

    def records(self, operations: int) -> Iterator[Record]:
        for process in ("consumer-1", "member-1"):
            group = GROUP if process == "member-1" else None
            owned = tuple(TopicPartition(TOPIC, partition) for partition in range(PARTITIONS))
            yield Ownership(self._t, "assigned", process, owned, group, 1, 1)
        finals = 2 * PARTITIONS / POLL_RECORDS  # polls of the final phase for each value
        while self.operations + finals * self._values < operations:
            yield from self._sends()
            yield from self._polls()
        yield Phase(self._t, "final")
        for reader in ("final-1", "final-2"):
            for partition, log in enumerate(self._logs):
                for first in range(0, len(log), POLL_RECORDS // PARTITIONS):
                    rows = tuple(enumerate(log[first : first + POLL_RECORDS // PARTITIONS], first))
                    yield self._polled(reader, (Read(TOPIC, partition, rows),), final=True)
        yield Phase(self._t, "end")

    def _tick(self) -> float:
        self._t += 1 / RATE
        return self._t

    def _sends(self) -> Iterator[Record]:
        """As many as one poll reads, in flight at the same time."""
        for begin in range(0, POLL_RECORDS, IN_FLIGHT):
            sent: list[tuple[int, int]] = []
            for i in range(begin, min(begin + IN_FLIGHT, POLL_RECORDS)):
                self._values += 1
                self.operations += 1
                partition, value = i % PARTITIONS, f"p{i % 2 + 1}-{self._values}"
                acks = "all" if i % 2 else "1"
                yield Send(self._tick(), self.operations, f"producer-{i % 2 + 1}", TOPIC, partition, value, acks)
                sent.append((self.operations, len(self._logs[partition])))
                self._logs[partition].append(value)
            for number, offset in sent:
                doubtful = self._rand.random() < 0.01
                yield Sent(self._t, number, "info" if doubtful else "ok", None if doubtful else offset, 1, 3)

    def _polls(self) -> Iterator[Record]:
        fresh = [(log, -(-(POLL_RECORDS - partition) // PARTITIONS)) for partition, log in enumerate(self._logs)]
        reads = tuple(
            Read(TOPIC, partition, tuple(enumerate(log[-count:], len(log) - count)))
            for partition, (log, count) in enumerate(fresh)
        )
        yield self._polled("consumer-1", reads)
        yield self._polled("member-1", reads, GROUP)
        spans = tuple(Span(TOPIC, read.partition, read.records[0][0], read.records[-1][0]) for read in reads)
        yield Processed(self._t, "member-1", GROUP, spans)
        if self._rand.random() < 0.1:
            self.operations += 1
            positions = tuple(Position(TOPIC, span.partition, span.last + 1) for span in spans)
            yield Committed(self._tick(), "member-1", GROUP, 1, 1, positions, "ok")
            yield Watermark(self._t, TOPIC, 0, 1, 1, len(self._logs[0]))

    def _polled(
        self, process: str, reads: tuple[Read, ...], group: str | None = None, *, final: bool = False
    ) -> Polled:
        self.operations += 1
        began = self._t
        return Polled(self._tick(), process, self.operations, began, reads, group, final)


def write(path: Path, operations: int) -> int:
    """How many operations there are in it: the given number, or a few more or less."""
    made = Made(random.Random(7))
    with HistoryWriter(path) as writer:
        for record in made.records(operations):
            writer.append(record)
    return made.operations


def read_json(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def main(what: str, path: Path) -> None:
    """In a process of its own: prints seconds and the peak of memory in MiB."""
    begin = time.perf_counter()
    if what == "json":
        read_json(path)
    else:
        verdict = check_history(path, Promise(idempotent=True))
        if not (verdict.sound and verdict.complete):
            raise SystemExit(f"a sound history is not found sound: {verdict}")
    print(time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


async def measure(what: str, path: Path) -> tuple[float, float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.checker", what, str(path), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise CannotRun(f"{what} ended with {process.returncode}")
    seconds, peak = out.split()
    return float(seconds), float(peak)


async def run(bench: Bench) -> Sequence[Line]:
    path = bench.directory / "history.jsonl"
    operations = write(path, bench.scale.operations)
    bench.say(f"a history of {operations:,} operations, {path.stat().st_size >> 20} MiB")
    ours: list[float] = []
    reference: list[float] = []
    peaks: list[float] = []
    for number in range(1, min(bench.scale.rounds, ROUNDS_MAX) + 1):
        reference.append((await measure("json", path))[0])
        seconds, peak = await measure("check", path)
        ours.append(seconds)
        peaks.append(peak)
        bench.say(f"round {number}: json {reference[-1]:.1f} s, check {seconds:.1f} s, {peak:.0f} MiB")
    what = " to read the file with json alone"
    return [
        compared("CHECK", ours, reference, unit="s", target=f"at most {RATIO_MAX:g}", what=what),
        Note(f"CHECK {operations:,} operations, slowest {max(ours):.1f} s (limit {LIMIT_S:g} s), {max(peaks):.0f} MiB"),
    ]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
