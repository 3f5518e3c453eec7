"""Who owns which partition of a group: pure functions from subscriptions to threads (F08.1, KIP-54).

A thread is one stream of a consumer, `consumer-index` (F08.2). Members with equal subscriptions, and topics with equal
audiences, are looked at once, so that the work is O(n log n) in members and partitions. The order in which members are
given changes nothing.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final

from tidelog.coordinator.subscription import Subscription
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition

Threads = Sequence[str]
"""Sorted thread ids."""

PASSES_MAX: Final = 100
"""Of sticky over audiences that overlap; load that must travel through more of them stays uneven by more than it might."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Topics that are read by the same threads, and their partitions."""

    threads: Threads
    partitions: Sequence[TopicPartition]
    """Sorted."""


Assignor = Callable[[Sequence[Audience], Mapping[TopicPartition, str]], dict[TopicPartition, str]]


def assign(
    kind: str,
    members: Mapping[str, Subscription],
    partitions: Mapping[str, int],
    current: Mapping[TopicPartition, str],
    held: Collection[TopicPartition] = (),
) -> dict[TopicPartition, str]:
    """Each partition's thread. Left out: `held` ones, as if they were not there, and those that nobody reads.

    `partitions` is how many each topic has, `current` whose they were; only `sticky` asks for it.
    """
    assignor = ASSIGNORS.get(kind)
    if assignor is None:
        raise TidelogError(f"assignor {kind!r} is none of {', '.join(ASSIGNORS)}", ErrorCode.INVALID_REQUEST)
    return assignor(_audiences(members, partitions, frozenset(held)), current)


def _audiences(
    members: Mapping[str, Subscription], partitions: Mapping[str, int], held: Collection[TopicPartition]
) -> list[Audience]:
    alike: dict[Subscription, list[str]] = defaultdict(list)
    for consumer, subscription in members.items():
        alike[subscription].append(consumer)
    streams_max = sum(partitions.values())  # more streams than partitions are idle whatever happens
    readers: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, subscription in enumerate(alike):
        for topic in partitions if subscription.wildcard else subscription.topics:
            if topic in partitions and (streams := subscription.threads_for(topic)):
                readers[topic].append((number, min(streams, streams_max)))
    shared: dict[tuple[tuple[int, int], ...], list[str]] = defaultdict(list)
    for topic in sorted(readers):
        shared[tuple(readers[topic])].append(topic)
    consumers = list(alike.values())
    found = []
    for key, topics in shared.items():
        threads = sorted(f"{name}-{i}" for number, streams in key for name in consumers[number] for i in range(streams))
        every = (TopicPartition(topic, i) for topic in topics for i in range(partitions[topic]))
        found.append(Audience(threads, [each for each in every if each not in held]))
    return found


def _range(audiences: Sequence[Audience], _: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """Per topic: size / n consecutive ones for each thread, one more for the first size mod n, none for surplus threads."""
    owners: dict[TopicPartition, str] = {}
    for audience in audiences:
        by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
        for each in audience.partitions:
            by_topic[each.topic].append(each)
        for of_topic in by_topic.values():
            share, more = divmod(len(of_topic), len(audience.threads))
            begin = 0
            for number, thread in enumerate(audience.threads):
                end = begin + share + (number < more)
                if begin == end:
                    break
                owners.update(dict.fromkeys(of_topic[begin:end], thread))
                begin = end
    return owners


def _roundrobin(audiences: Sequence[Audience], _: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """All partitions in turn to all threads in turn; who does not read a topic is passed over."""
    readers = sorted((each, audience.threads) for audience in audiences for each in audience.partitions)
    owners: dict[TopicPartition, str] = {}
    last = ""
    for each, threads in readers:
        last = threads[bisect_right(threads, last) % len(threads)]
        owners[each] = last
    return owners


def _sticky(audiences: Sequence[Audience], current: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """Keeps what it can: first nobody loses anything, then only who has two more than another one gives one away.

    In one audience that moves as little as balance allows: a move is from a thread above its share or to one below.
    """
    load: Counter[str] = Counter()
    holdings: list[dict[str, list[TopicPartition]]] = []
    orphans: list[list[TopicPartition]] = []
    for audience in audiences:
        readers = frozenset(audience.threads)
        holds: dict[str, list[TopicPartition]] = defaultdict(list)
        free = []
        for each in audience.partitions:
            owner = current.get(each)
            if owner in readers:
                holds[owner].append(each)
                load[owner] += 1
            else:
                free.append(each)
        holdings.append(holds)
        orphans.append(free)
    for audience, holds, free in zip(audiences, holdings, orphans, strict=True):
        _place(free, audience.threads, holds, load)
    for _ in range(PASSES_MAX):
        if not sum(
            [_level(audience.threads, holds, load) for audience, holds in zip(audiences, holdings, strict=True)]
        ):
            break
    return {each: thread for holds in holdings for thread, own in holds.items() for each in own}


def _place(
    free: Iterable[TopicPartition], threads: Threads, holds: dict[str, list[TopicPartition]], load: Counter[str]
) -> None:
    """Each to the thread with the least."""
    heap = [(load[thread], thread) for thread in threads]
    heapify(heap)
    for each in free:
        least, thread = heap[0]
        holds[thread].append(each)
        load[thread] = least + 1
        heapreplace(heap, (least + 1, thread))


def _level(threads: Threads, holds: dict[str, list[TopicPartition]], load: Counter[str]) -> int:
    """From the thread with the most to the one with the least, until they differ by one at most. Returns the moves.

    Neither becomes the other in one pass: the least only grows, the most only shrinks. What was placed last goes first: it is
    no one's yet.
    """
    givers = [(-load[thread], thread) for thread in threads if holds.get(thread)]
    takers = [(load[thread], thread) for thread in threads]
    heapify(givers)
    heapify(takers)
    moves = 0
    while givers and -givers[0][0] - takers[0][0] >= 2:
        giver, taker = givers[0][1], takers[0][1]
        holds[taker].append(holds[giver].pop())
        load[giver] -= 1
        load[taker] += 1
        heapreplace(givers, (-load[giver] if holds[giver] else 0, giver))
        heapreplace(takers, (load[taker], taker))
        moves += 1
    return moves


ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": _range, "roundrobin": _roundrobin, "sticky": _sticky}
