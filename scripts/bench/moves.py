"""MOVES, PLAN: replicas moved by the plan for more brokers, against the least that evens out the load; the time to plan it.

The least is counted here, from the definition: with the loads as even as can be, everybody holds the share or one more, and
who holds more than that has to lose it. It is least if those who hold most keep the one more. What moves is a replica; all
are taken to be of one size. The time is that of the processor: a plan waits for nothing, and a neighbour would count.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.harness import Bench, Figure, Line, Note, against_limit
from tidelog.controller.placement import spread
from tidelog.controller.planner import Assignments, rebalance
from tidelog.ids import BrokerId, TopicPartition

NAMES: Final = ("MOVES", "PLAN")
FACTOR: Final = 3
TOPICS: Final = 10
GROWTHS: Final = ((3, 5), (5, 6), (97, 100))
"""From so many brokers to so many."""
LIMIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Planned:
    replicas: int
    moved: int
    least: int
    took_s: float


def created(partitions: int, brokers: int) -> Assignments:
    """TOPICS topics of as many partitions each as when they were created, one after the other."""
    racks = {BrokerId(each): "" for each in range(brokers)}
    each = max(1, partitions // TOPICS)
    return {
        TopicPartition(f"topic-{number}", index): row
        for number in range(TOPICS)
        for index, row in enumerate(spread(racks, each, FACTOR, start=number * each % brokers))
    }


def loads(assignments: Assignments, brokers: int) -> list[int]:
    held = Counter(replica for row in assignments.values() for replica in row)
    return [held[BrokerId(each)] for each in range(brokers)]


def least_moves(held: Sequence[int]) -> int:
    share, more = divmod(sum(held), len(held))
    return sum(max(0, load - share - (at < more)) for at, load in enumerate(sorted(held, reverse=True)))


def grow(partitions: int, before: int, after: int) -> Planned:
    current = created(partitions, before)
    brokers = {BrokerId(each): "" for each in range(after)}
    started_at = time.thread_time()
    plan = rebalance(current, brokers)
    took_s = time.thread_time() - started_at
    grown = {**current, **plan}
    leaders = Counter(row[0] for row in grown.values())
    for even in (loads(grown, after), [leaders[each] for each in brokers]):
        assert max(even) - min(even) <= 1, f"{min(even)} to {max(even)}: moves towards another goal say nothing"
    moved = sum(len(set(grown[tp]) - set(row)) for tp, row in current.items())
    return Planned(sum(map(len, current.values())), moved, least_moves(loads(current, after)), took_s)


async def run(bench: Bench) -> list[Line]:
    scale = bench.scale
    lines: list[Line] = []
    found: list[Planned] = []
    largest: list[float] = []
    for partitions in (scale.few_partitions, scale.partitions, scale.many_partitions):
        for before, after in GROWTHS:
            bench.say(f"{partitions} partitions, {before} to {after} brokers")
            planned = [await asyncio.to_thread(grow, partitions, before, after) for _ in range(scale.rounds)]
            found += planned[:1]  # the others are the same plan
            took = sorted(each.took_s for each in planned)
            if partitions == scale.many_partitions:
                largest += took
            lines.append(
                Note(
                    f"{partitions} partitions, {before} to {after} brokers: {planned[0].moved} of {planned[0].replicas} replicas"
                    f" move, the least is {planned[0].least}; planned in {took[0] * 1000:.0f} to {took[-1] * 1000:.0f} ms"
                )
            )
    if "MOVES" in bench.wanted:
        ratios = sorted(each.moved / each.least for each in found)
        moved, least = (str(sum(counts)) for counts in zip(*((each.moved, each.least) for each in found), strict=True))
        lines.append(
            Figure(
                *("MOVES", statistics.median(ratios), f"{moved} replicas", f"{least} replicas", len(ratios)),
                *(ratios[0], ratios[-1], "1 (each of these growths)"),
            )
        )
    if "PLAN" in bench.wanted:
        target = f"at most 1 ({scale.many_partitions} partitions of {FACTOR} replicas)"
        lines.append(against_limit("PLAN", largest, limit=LIMIT_S, unit="s", target=target))
    return lines
