"""`check`: a history, a promise and what the replicas hold, to a verdict: partition by partition, then the whole of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from tidelog.chaos.checker.availability import check_available
from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.kept import check_contents
from tidelog.chaos.checker.names import RULES, tolerated
from tidelog.chaos.checker.partition import Part, PartitionChecker
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.replicas import PartitionReplicas, check_replicas
from tidelog.chaos.checker.routing import Router
from tidelog.chaos.checker.tables import SAMPLE_S
from tidelog.chaos.checker.verdict import Gap, Verdict
from tidelog.chaos.history import Phase, Polled, Record
from tidelog.ids import TopicPartition

FINAL_READERS_MIN: Final = 2
OF_THE_FINAL_READ: Final = ("lost-acked", "final-incomplete", "final-differs", "hole", "torn-batch")
_NO_PARTITION: Final = TopicPartition("", 0)


@dataclass(slots=True)
class Whole:
    """The facts of a history that are about no partition."""

    lines: int = 0
    polls: int = 0
    last_t: float = 0.0
    ended: bool = False
    """The last record is the end of the run."""

    def counted(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            self.lines += 1
            self.last_t = record.t
            self.polls += isinstance(record, Polled)
            self.ended = isinstance(record, Phase) and record.phase == "end"
            yield record


class Checker:
    """Takes the records of one history in their order."""

    def __init__(self, promise: Promise) -> None:
        self._promise = promise
        self._router = Router()
        self._whole = Whole()
        self._partitions: dict[TopicPartition, PartitionChecker] = {}
        self._about_all: list[Record] = []
        """Kept for partitions that the history comes to later."""

    def take(self, records: Iterable[Record]) -> None:
        """Nonsense."""
        partitions = self._partitions
        for tp, record in self._router.routed(self._whole.counted(records)):
            if tp is None:
                self._about_all.append(record)
                for each in partitions.values():
                    each.take(record)
                continue
            found = partitions.get(tp)
            if found is None:
                found = partitions[tp] = PartitionChecker(tp, self._promise)
                found.take_all(self._about_all)
            found.take(record)

    def verdict(self, replicas: Sequence[PartitionReplicas] | None, history: str | None = None) -> Verdict:
        parts = [each.part(ended=self._whole.ended) for each in self._partitions.values()]
        return verdict(parts, self._whole, self._promise, replicas, history)


def verdict(
    parts: Sequence[Part],
    whole: Whole,
    promise: Promise,
    replicas: Sequence[PartitionReplicas] | None,
    history: str | None = None,
) -> Verdict:
    """The verdict on a history, from those on its partitions.

    `replicas` None: they were not read. `history`: the file's name, where a note is to say how far it reaches.
    """
    parts = sorted(parts, key=lambda part: part.tp)
    found = Findings()
    of_nothing = PartitionChecker(_NO_PARTITION, promise).part(ended=whole.ended)
    for part in (of_nothing, *parts):  # a history without a partition was judged by the same rules
        found.take(part.found)
    final_read = any(part.final_readers for part in parts)
    if whole.ended and (final_read or not any(part.values for part in parts)):
        found.judged(*OF_THE_FINAL_READ)
    if history is not None and not whole.ended:
        found.notes.append(f"{history} was cut off after line {whole.lines}, at {whole.last_t:.3f} s")
    readers = {*()}.union(*(part.final_readers - part.crashed for part in parts))
    found.notes.extend(_about_the_end(parts, whole, len(readers)))
    if parts and not found.was_judged("watermark-fell"):
        found.notes.append("no leader told its high watermark: that it never falls is not judged")
    if replicas is None:
        found.notes.append("replicas were not compared (X2)")
    else:
        check_replicas(replicas, found, whole.last_t, records_expire=promise.records_expire)
    gaps = tuple(gap for part in parts for gap in part.gaps)
    acked = sum(part.acked for part in parts)
    promises = [*check_contents(acked, promise, found), *check_available(gaps, promise, found, ended=whole.ended)]
    anomalies = found.anomalies(RULES, lambda name: tolerated(name, promise))
    stats = _stats(parts, whole, gaps, len(readers))
    return Verdict(anomalies, gaps, tuple(promises), stats, whole.ended, tuple(found.notes))


def _about_the_end(parts: Sequence[Part], whole: Whole, readers: int) -> Iterator[str]:
    if not whole.ended:
        yield (
            f"the history does not reach to the end of the run, but to {whole.last_t:.3f} s: it is checked up to there, "
            "and what only the final read can show is not judged (X1, X3, unseen)"
        )
        return
    if readers < FINAL_READERS_MIN:
        yield f"X1 wants {FINAL_READERS_MIN} readers of the final phase that are not thrown away; there is {readers}"
    if any(part.values for part in parts) and not any(part.final_readers for part in parts):
        yield "there was no final read: what is in the log at last is not judged (X1)"


def _stats(parts: Sequence[Part], whole: Whole, gaps: Iterable[Gap], readers: int) -> dict[str, Any]:
    sends, acked, refused = (sum(getattr(part, of) for part in parts) for of in ("sends", "acked", "refused"))
    return {
        "seconds": round(whole.last_t, 6),
        "sends": sends,
        "ok": acked,
        "fail": refused,
        "info": sends - acked - refused,
        "polls": whole.polls,
        "records_read": sum(part.records_read for part in parts),
        "final_readers": readers,
        "partitions": len(parts),
        "worst_lag_s": round(max((part.worst_lag_s for part in parts), default=0.0), 6),
        "longest_gap_s": round(max((gap.seconds for gap in gaps), default=0.0), 6),
        "unseen_over_time": _unseen_over_time(parts),
    }


def _unseen_over_time(parts: Iterable[Part]) -> list[list[float]]:
    """(second, how many) at the end of each second in which that changed."""
    more: dict[int, int] = {}
    for part in parts:
        for second, count in part.unseen.items():
            more[second] = more.get(second, 0) + count
    seconds = sorted(more)
    return [[(s + 1) * SAMPLE_S, count] for s, count in zip(seconds, accumulate(more[s] for s in seconds), strict=True)]


def check(
    records: Iterable[Record], promise: Promise | None = None, replicas: Sequence[PartitionReplicas] | None = None
) -> Verdict:
    """`replicas` None: they were not read. Nonsense: the history is impossible."""
    checker = Checker(Promise() if promise is None else promise)
    checker.take(records)
    return checker.verdict(replicas)
