"""The history of a simulated run: what its judge finds, and what it leaves out."""

from collections.abc import Callable

import pytest

from helpers.requirements import requirement
from tidelog.chaos.history import ASSIGNED, OK, Ownership, Phase, Polled, Read, Record, Send, Sent, Watermark
from tidelog.ids import TopicPartition
from tidelog.testing.invariants import Violation
from tidelog.testing.sim_history import FINAL, SimHistory, without

TP = TopicPartition("events", 0)
OTHER = TopicPartition("events", 1)


class Told:
    """A run of one partition in which everything is well, unless a test adds something."""

    def __init__(self, *names: str, acks: str = "all") -> None:
        self.history = SimHistory()
        self.number = 0
        for name in names:
            self.sent(name, acks)

    def add(self, *records: Record) -> "Told":
        for record in records:
            self.history.append(record)
        return self

    def sent(self, name: str, acks: str = "all", tp: TopicPartition = TP) -> "Told":
        self.number += 1
        self.add(Send(1.0, self.number, "producer", *tp, name, acks))
        return self.add(Sent(1.0, self.number, OK, self.number - 1, 1))

    def read(self, *rows: tuple[int, str], process: str = "consumer-1", final: bool = False) -> "Told":
        self.number += 1
        return self.add(Polled(2.0, process, self.number, 2.0, (Read(*TP, rows),), final=final))

    def judge(self, *rows: tuple[int, str], vetoed: frozenset[TopicPartition] = frozenset()) -> None:
        self.add(Phase(3.0, "final"), Ownership(3.0, ASSIGNED, FINAL, (TP,), final=True))
        if rows:
            self.add(Polled(3.0, FINAL, 99, 3.0, (Read(*TP, rows),), final=True))
        self.add(Phase(3.0, "end"))
        self.history.judge(vetoed)


def test_a_run_in_which_all_is_well_is_let_pass() -> None:
    Told("a", "b").read((0, "a"), (1, "b")).judge((0, "a"), (1, "b"))


Case = tuple[Callable[[], None], str]


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize(
    ("judge", "rule"),
    [
        (lambda: Told("a", "b").judge((0, "a")), "lost-acked"),
        (lambda: Told("a").read((0, "a"), (1, "x")).judge((0, "a"), (1, "x")), "never-sent"),
        (lambda: Told("a", "b").judge((0, "a"), (1, "b"), (2, "a")), "duplicate"),
        (lambda: Told("a", "b").read((0, "a"), (1, "b")).judge((0, "b"), (1, "a")), "inconsistent-offsets"),
        (lambda: Told("a").read((0, "a")).judge(), "lost-acked"),
        (lambda: Told("a", "b", "c").read((0, "a")).read((2, "c")).judge((0, "a"), (1, "b"), (2, "c")), "poll-skip"),
        (lambda: Told("a", "b").read((0, "a"), (1, "b")).read((0, "a")).judge((0, "a"), (1, "b")), "nonmonotonic-poll"),
        (lambda: Told("a", acks="1").judge(), "lost-acked"),
    ],
)
def test_an_anomaly_ends_the_run_with_its_name(judge: Callable[[], None], rule: str) -> None:
    with pytest.raises(Violation, match=f"history: .*{rule}: events-0"):
        judge()


def test_partitions_without_a_leader_are_not_judged() -> None:
    told = Told("a").sent("b", tp=OTHER).add(Watermark(1.0, *OTHER, 0, 1, 5, 1))
    with pytest.raises(Violation, match=r"events-1"):
        told.judge((0, "a"))
    again = Told("a").sent("b", tp=OTHER).add(Watermark(1.0, *OTHER, 0, 1, 5, 1))
    again.judge((0, "a"), vetoed=frozenset({OTHER}))


def test_what_is_about_other_partitions_stays() -> None:
    history = Told("a").sent("b", tp=OTHER).read((0, "a")).history
    kept = without(history.records, {OTHER})
    assert [type(each) for each in kept] == [Send, Sent, Polled]
