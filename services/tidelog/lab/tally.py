"""Counts of what a lab's producers have been told so far."""

from collections import Counter


class Tally:
    def __init__(self) -> None:
        self.acknowledged = 0
        """Records, those with acks 0 not counted, since their producer is told nothing."""
        self.sent_count = 0
        """Records, whatever became of them."""
        self.waiting: Counter[str] = Counter()
        """Records without an answer, by acks."""
        self._since: dict[int, float] = {}
        """Times at which the records that wait were sent, the oldest first, by id."""
        self._acked_at = 0.0
        self._longest_s = 0.0

    def sent(self, id_: int, acks: str, t: float) -> None:
        self.sent_count += 1
        if acks != "0":
            self.waiting[acks] += 1
            self._since[id_] = t

    def answered(self, id_: int, acks: str, t: float, *, acked: bool) -> None:
        if self._since.get(id_) is None:
            return
        if acked:
            self._longest_s = self.longest_wait(t)
            self._acked_at = t
            self.acknowledged += 1
        self.waiting[acks] -= 1
        del self._since[id_]

    def longest_wait(self, t: float) -> float:
        """Returns the longest time, in seconds, in which records waited and none was acknowledged."""
        oldest = next(iter(self._since.values()), t)
        return max(self._longest_s, t - max(oldest, self._acked_at))
