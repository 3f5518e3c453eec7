"""Extra assertions: each predicate holds on what it describes, and fails on what it excludes."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tidelog.chaos import samples as s
from tidelog.chaos.expect import PREDICATES, Seen, check, judge
from tidelog.chaos.facts import Facts
from tidelog.chaos.history import (
    ASSIGNED,
    Crash,
    FaultStep,
    Ownership,
    Phase,
    Polled,
    Processed,
    Read,
    Record,
    Send,
    Sent,
    Span,
)
from tidelog.chaos.samples import Samples
from tidelog.ids import TopicPartition

TP = TopicPartition("t", 0)


def part(t: float, leader: int = 1, epoch: int = 3, isr: Sequence[int] = (0, 1, 2), version: int = 7) -> s.Partitions:
    state = s.PartitionState(
        topic="t", partition=0, leader=leader, leader_epoch=epoch, partition_epoch=version, replicas=(0, 1, 2), isr=isr
    )
    return s.Partitions(t=t, partitions=[state])


def ctl(
    t: float, epoch: int, expirations: int = 0, active: bool = True, name: str = "controller-1"
) -> s.ControllerLook:
    return s.ControllerLook(t=t, process=name, active=active, epoch=epoch, session_expirations=expirations)


def two(t: float, epoch: int) -> s.ControllerLook:
    return ctl(t, epoch, name="controller-2")


def running(t: float, *names: str) -> s.ProcessStates:
    return s.ProcessStates(t=t, states=dict.fromkeys(names, "running"))


def zk(t: float, role: str) -> s.ZooKeeperLook:
    return s.ZooKeeperLook(t=t, process="zookeeper-1", role=role)


def silent(t: float) -> s.Silent:
    return s.Silent(t=t, source="zookeeper-1", why="timeout")


def group(t: float, generation: int, coordinator_epoch: int = 1, done: int | None = None) -> s.GroupLook:
    return s.GroupLook(
        t=t,
        group="g",
        state="Stable",
        coordinator=1,
        coordinator_epoch=coordinator_epoch,
        generation=generation,
        members=2,
        committed=[] if done is None else [s.Committed(topic="t", partition=0, offset=done)],
    )


def met(t: float, expirations: int | None) -> s.BrokerLook:
    return s.BrokerLook(t=t, process="broker-1", session_expirations=expirations)


def leader(t: float, high_watermark: int, isr_size: int | None = 3) -> s.BrokerLook:
    replica = s.Replica(
        topic="t",
        partition=0,
        leader_epoch=3,
        log_start=0,
        high_watermark=high_watermark,
        log_end=99,
        isr_size=isr_size,
    )
    return s.BrokerLook(t=t, process="broker-1", replicas=[replica])


def deposed(*looks: s.Sample) -> list[s.Sample]:
    """Broker 1 leads in epoch 3, and broker 2 from 5 s on in epoch 4."""
    return sorted([part(1.0), part(5.0, leader=2, epoch=4), *looks], key=lambda each: each.t)


def fault(began: float = 4.0, effect: float = 4.5, heal: float = 9.0) -> list[Record]:
    times = {"begin": began, "effect": effect, "heal": heal, "healed": heal + 0.5}
    return [FaultStep(t, "kill", what, ("broker-1",), "kill leader of 0", 1) for what, t in times.items()]


def assigned(t: float, process: str) -> Ownership:
    return Ownership(t, ASSIGNED, process, (TP,), "g", 1, 1)


def processed(t: float, count: int) -> Processed:
    return Processed(t, "member-1", "g", (Span("t", 0, 0, count - 1),))


def works(*times: float) -> Sequence[Record]:
    return [processed(float(t), 1) for t in times]


def acks(*answers: tuple[float, int], acks: str = "all") -> list[Record]:
    """Records that are tried at a time and acknowledged a moment later in a leader epoch."""
    sends = [Send(t, i, "p", "t", 0, f"v{i}", acks) for i, (t, _) in enumerate(answers)]
    return [
        each
        for (t, epoch), send in zip(answers, sends, strict=True)
        for each in (send, Sent(t + 0.1, send.id, "ok", 0, epoch))
    ]


def read(t: float, offset: int) -> Polled:
    return Polled(t, "c", 900, t - 0.1, (Read("t", 0, ((offset, "v"),)),))


def rates(before: int, during: int) -> Sequence[Record]:
    return [processed(float(t), before) for t in range(4)] + [processed(4.0 + t, during) for t in range(5)]


def crash_loop(*rates: int, crashed: str = "m1") -> list[Record]:
    """`m1` has partition 0 and dies every five seconds, `m2` has partition 1; its rate before the first crash, and from each to
    the next."""
    crashes = [Crash(5.0 * n, crashed) for n in range(1, len(rates) + 1)]
    work = [
        Processed(5.0 * turn + t, "m2", "g", (Span("t", 1, 1, n),)) for turn, n in enumerate(rates) for t in range(5)
    ]
    return [*crashes, Processed(1.0, "m1", "g", (Span("t", 0, 1, 1_000),)), *work]


def moved(at: float = 0.0) -> list[Record]:
    return [assigned(1.0, "a"), Crash(5.0, "a"), assigned(at, "b")]


def refused(outcome: str) -> Sent:
    return Sent(5.0, 1, outcome, error="NOT_ENOUGH_REPLICAS")


STOPPED = {"broker-1": {"took_s": 1.0, "exit_code": 0, "clean": True}}


def seen(looks: Sequence[s.Sample] = (), more: Sequence[Record] = (), observed: Sequence[Any] = ()) -> Seen:
    history: list[Record] = [Phase(0.0, "load"), *fault(), *more, Phase(20.0, "final")]
    return Seen(Facts.of(history), Samples(looks), observed)


def look(*looks: s.Sample) -> Seen:
    return seen(looks)


def hist(*more: Record) -> Seen:
    return seen(more=more)


def told(*observed: Any) -> Seen:
    return seen(observed=observed)


CASES: Sequence[tuple[str, str, Seen, Seen]] = [
    # predicate, argument, seen where it holds, seen where it does not
    ("isr shrinks to", "2", look(part(1.0), part(5.0, isr=(0, 2))), look(part(5.0))),
    ("isr shrinks to", "2", look(part(5.0, isr=(0, 2))), look(part(5.0, isr=(0,)))),
    ("isr stays full", "", look(part(1.0, isr=(1,)), part(2.0), part(9.0)), look(part(2.0), part(5.0, isr=(0, 2)), part(9.0))),
    ("isr stays full", "", look(part(2.0), part(9.0, epoch=4, version=8)), look(part(2.0), part(9.0, version=9))),
    ("isr stays full", "", look(part(1.0), part(9.0)), look(part(1.0))),
    ("elections at most", "1", look(part(1.0, epoch=3), part(9.0, epoch=4)), look(part(1.0), part(9.0, epoch=5))),
    ("elections at most", "1", look(part(1.0), part(9.0)), look(part(1.0), part(5.0))),
    ("elections at most", "1", look(part(1.0), part(9.0)), look(part(4.1), part(9.0))),
    ("elections at least", "1", look(part(1.0), part(5.0, epoch=4)), look(part(1.0), part(5.0))),
    ("no elections", "", look(part(1.0), part(9.0)), look(part(1.0), part(9.0, epoch=4))),
    ("no elections", "", look(part(1.0), part(9.0)), look(part(1.0))),
    ("always a leader", "", look(part(1.0), part(9.0)), look(part(1.0), part(5.0, leader=-1), part(9.0))),
    ("always a leader", "", look(part(1.0), part(9.0)), look()),
    ("controller changes", "1", look(ctl(1.0, 1), ctl(9.0, 2)), look(ctl(1.0, 1), ctl(9.0, 1))),
    ("controller changes", "0", look(ctl(1.0, 1), ctl(5.0, 2, active=False), ctl(9.0, 1)), look(ctl(1.0, 1), ctl(9.0, 2))),
    ("controller changes", "0", look(ctl(1.0, 1), ctl(9.0, 1)), look(ctl(1.0, 1), ctl(9.0, 1, active=False))),
    ("one controller acts", "", look(ctl(1.0, 1), ctl(9.0, 2)), look(ctl(1.0, 2), ctl(9.0, 1))),
    ("one controller acts", "", look(ctl(9.0, 2), two(8.0, 1)), look(ctl(9.0, 1), two(9.1, 2))),
    ("one controller acts", "", look(ctl(9.0, 2)), look(ctl(5.0, 2))),
    ("sessions kept", "", look(ctl(1.0, 1, 4), ctl(9.0, 1, 4)), look(ctl(1.0, 1, 4), ctl(9.0, 1, 5))),
    ("sessions kept", "", look(ctl(1.0, 1), ctl(9.0, 1)), look(ctl(1.0, 1), ctl(9.0, 1), two(1.0, 1))),
    ("sessions kept", "", look(ctl(1.0, 1), ctl(9.0, 1)), look(running(1.0, "broker-2"), ctl(1.0, 1), ctl(9.0, 1))),
    ("sessions kept", "", look(met(1.0, 1), met(5.0, None), met(9.0, 1)), look(met(1.0, 1), met(5.0, None), met(9.0, 2))),
    ("sessions kept", "", look(met(1.0, 1), met(9.0, 1)), look(met(1.0, 1), met(9.0, None))),
    ("all zookeepers serve", "", look(zk(5.0, ""), zk(9.5, "follower")), look(zk(5.0, "leader"), zk(9.5, ""))),
    ("all zookeepers serve", "", look(zk(9.5, "leader")), look(zk(9.5, "leader"), silent(9.9))),
    ("all zookeepers serve", "", look(silent(9.4), zk(9.5, "leader")), look(zk(5.0, "leader"))),
    ("no rebalance", "", look(group(1.0, 1), group(3.0, 2), group(9.0, 2, 2)), look(group(3.0, 2), group(9.0, 3))),
    ("no rebalance", "", look(group(3.0, 2), group(9.0, 2)), look(group(5.0, 2), group(9.0, 2))),
    ("coordinator changes", "", look(group(1.0, 1), group(5.0, 1, 2)), look(group(1.0, 1), group(5.0, 2))),
    ("commits kept", "", look(group(1.0, 1, done=5), group(9.0, 1, done=5)), look(group(1.0, 1, done=5), group(9.0, 1, done=4))),
    ("commits kept", "", look(group(1.0, 1, done=5), group(9.0, 1, done=6)), look(group(1.0, 1), group(9.0, 1))),
    ("group stops at most", "3s", hist(*works(1, 4, 7, 10, 13, 16, 19)), hist(*works(1, 4, 7, 10, 13, 16))),
    ("group stops at most", "3s", hist(*works(*range(1, 20))), hist()),
    ("group moves within", "3s", hist(*moved(7.0)), hist(*moved(9.0))),
    ("group moves within", "3s", hist(*moved(7.0)), hist(*moved()[:2])),
    ("group works on", "50%", hist(*rates(10, 9)), hist(*rates(10, 3))),
    ("others work on", "50%", hist(*crash_loop(10, 20, 6)), hist(*crash_loop(10, 4, 20))),
    ("others work on", "50%", hist(*crash_loop(10, 6, 6, 6, 0)), hist(*crash_loop(10))),
    ("others work on", "50%", hist(*crash_loop(10, 6, 6)), hist(*crash_loop(10, 6, 6, crashed="m2"))),
    ("refused with", "NOT_ENOUGH_REPLICAS", hist(refused("fail")), hist(refused("info"))),
    ("effect within", "1s", hist(), hist(*fault(effect=6.0))),
    ("ends in order", "", told(STOPPED), told({"broker-1": {"exit_code": -9, "clean": False}})),
    ("ends in order", "", told(STOPPED), told()),
    ("deposed are silent", "", hist(*acks((1, 3), (5, 4))), hist(*acks((1, 3)))),
    ("deposed are silent", "", hist(*acks((1, 3), (5, 4), (6, 4))), hist(*acks((1, 3), (5, 4), (6, 3)))),
    ("deposed are silent", "", hist(*acks((1, 3), (5, 4), (6, 3), acks="1")), hist(*acks((1, 3), (5, 4), (6, 3)))),
    ("deposed watermark stands", "", look(*deposed(leader(4.9, 7), leader(5.5, 8), leader(6.0, 8))),
     look(*deposed(leader(5.5, 8), leader(6.0, 9)))),
    ("deposed watermark stands", "", look(*deposed(leader(5.5, 8, isr_size=None))), look(*deposed(leader(4.9, 8)))),
    ("nothing new is read", "0", seen([leader(5.5, 9)], [read(6.0, 8)]), seen([leader(5.5, 9)], [read(6.0, 9)])),
    ("nothing new is read", "0", seen([leader(5.5, 9)], [read(9.2, 20)]), seen([], [read(6.0, 8)])),
    ("watermark stands", "0", look(leader(4.2, 5), leader(5.5, 9), leader(8.0, 9)), look(leader(5.5, 9), leader(8.0, 10))),
    ("watermark stands", "0", look(leader(5.5, 9), leader(6.0, 9)), look(leader(3.0, 9))),
    ("watermark stands", "0", look(leader(5.5, 9), leader(6.0, 9)), look(leader(5.5, 9))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "argument", "good", "bad"), CASES, ids=[case[0] for case in CASES])
def test_it_holds_where_it_should_and_nowhere_else(name: str, argument: str, good: Seen, bad: Seen) -> None:
    expected = [check(name, argument)]
    (kept,) = judge(expected, good)
    assert kept.kept, kept
    (broken,) = judge(expected, bad)
    assert not broken.kept, broken
    assert (broken.text, broken.limit) == (kept.text, kept.limit)


def test_every_predicate_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(PREDICATES)


@pytest.mark.parametrize(
    "name, argument, text, limit",
    [
        ("watermark stands", "2", "under the fault the high watermark of partition 2 stands", "rises by 0"),
        ("elections at most", "1", "elections of any one partition", "at most 1"),
        ("group stops at most", "2m", "longest time in which the group processes nothing", "at most 120 s"),
        ("no elections", "", "no leader is elected", "0 elections"),
    ],
)
def test_a_judged_predicate_reads_as_a_sentence(name: str, argument: str, text: str, limit: str) -> None:
    (kept,) = judge([check(name, argument)], Seen(Facts(), Samples()))
    assert (kept.text, kept.limit) == (text, limit)


def test_every_limit_is_in_words_and_ends_no_phrase_in_mid_air() -> None:
    for predicate in PREDICATES.values():
        said = f"{predicate.about} {predicate.limit}"
        assert re.search(r"\w", predicate.limit) and ("{}" in said) == (predicate.parse is not None)
        assert not re.search(r"\b(of|at most|at least|within|with|for)$", predicate.about), predicate.about


def test_a_broken_expectation_says_when_it_was_first_seen() -> None:
    looks = [part(1.0), part(5.0, leader=-1, isr=(0,)), part(9.0)]
    without, shrunk = judge([check("always a leader", ""), check("isr stays full", "")], look(*looks))
    assert without.measured == "partitions [0], first at 5.00 s"
    assert shrunk.measured == "ISR [0] of partition 0 at 5.00 s"
