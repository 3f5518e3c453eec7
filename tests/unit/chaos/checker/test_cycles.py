"""Cycles by their smallest name, and what is none."""

import random

import pytest

from helpers.histories import Story, found, rows
from tidelog.chaos.checker.graph import Graph, cyclic_parts, shortest_cycle, with_time
from tidelog.chaos.history import Polled


def two_writers(*offsets: int) -> Story:
    """Operations 1 and 2 send two values each, all at the same time."""
    story = Story()
    sends = [story.attempt(f"v{i}", process=f"t{i}", op=1 + i // 2) for i in range(4)]
    for number, offset in zip(sends, offsets, strict=True):
        story.answer(number, offset)
    return story


def test_g0_two_operations_write_between_each_other() -> None:
    verdict = two_writers(0, 2, 1, 3).check()
    assert found(verdict) == {"G0": 1} and verdict.sound, "writes are not isolated in Kafka"
    assert verdict.anomalies["G0"].examples[0].text == "operation 1 -> operation 2 -> operation 1"
    assert verdict.anomalies["G0"].examples[0].operations == (1, 2, 3, 4)


def test_g0_one_behind_the_other_is_none() -> None:
    assert found(two_writers(0, 1, 2, 3).check()) == {}


def two_operations(second: str) -> Story:
    """Operation 1 sends a and reads b; operation 2 sends b, which is before a, and reads `second`; all at the same time."""
    story = Story()
    first, other = story.attempt("a", "t1", op=1), story.attempt("b", "t2", op=2)
    story.attempt("c", "t3")
    story.poll((1, "b"), process="t1", op=1).poll(("cba".index(second), second), process="t2", op=2)
    return story.answer(first, 2).answer(other, 1)


def test_g1c_two_operations_read_from_each_other() -> None:
    verdict = two_operations("a").check()
    assert found(verdict) == {"G1c": 1} and not verdict.sound
    assert verdict.anomalies["G1c"].examples[0].text == "operation 1 -> operation 2 -> operation 1"


def test_g1c_one_that_reads_from_the_other_is_none() -> None:
    assert found(two_operations("c").check()) == {}


def test_g1c_with_a_write_in_it_is_tolerated() -> None:
    # 1 -ww-> 2, 2 -wr-> 1
    story = Story()
    ids = story.attempt("a", "t1", op=1), story.attempt("b", "t2", op=2)
    story.poll((1, "b"), process="t1", op=1).poll((0, "a"))
    verdict = story.answer(ids[0], 0).answer(ids[1], 1).check()
    assert found(verdict) == {"G1c (ww)": 1} and verdict.sound


def test_g0_process_a_producers_writes_are_in_reverse() -> None:
    verdict = Story().sent("a", 1, process="p").sent("b", 0, process="p").check()
    assert found(verdict) == {"nonmonotonic-send": 1, "G0-process": 1}


def test_g0_realtime_is_found_in_one_of_two_partitions() -> None:
    # p: a then b, q: c then d; in the logs d before a and b before c
    story = Story().sent("a", 1, process="p").sent("c", 1, process="q", partition=1)
    ids = story.attempt("b", "p", partition=1), story.attempt("d", "q")
    verdict = story.answer(ids[0], 0).answer(ids[1], 0).check()
    assert found(verdict) == {"G0-realtime": 2} and verdict.sound


def test_g0_realtime_a_later_write_is_before_one_that_was_over() -> None:
    verdict = Story().sent("a", 1, process="p").sent("b", 0, process="q").check()
    assert found(verdict) == {"G0-realtime": 1} and verdict.sound
    assert found(Story().sent("a", 0, process="p").sent("b", 1, process="q").check()) == {}


def test_g0_realtime_a_write_in_doubt_may_take_effect_at_any_time() -> None:
    story = Story().sent("a", None, "info", process="p").sent("b", 0, process="q").poll((0, "b"), (1, "a"))
    assert found(story.check()) == {}


def test_g1c_realtime_something_is_read_before_it_is_sent() -> None:
    verdict = Story().poll((0, "a")).sent("a", 0).check()
    assert found(verdict) == {"G1c-realtime": 1} and not verdict.sound
    assert verdict.anomalies["G1c-realtime"].examples[0].text == "send of 'a' -> poll 1 of c -> send of 'a'"


def test_g1c_realtime_what_is_read_before_it_is_acknowledged_is_well() -> None:
    story = Story()
    number = story.attempt("a")
    assert found(story.poll((0, "a")).answer(number, 0).check()) == {}


def test_g1c_process_a_client_reads_what_it_sends_later() -> None:
    verdict = Story().poll((0, "a"), process="t").sent("a", 0, process="t").check()
    assert found(verdict) == {"G1c-process": 1} and not verdict.sound


@pytest.mark.parametrize("later, expected", [("p", "G1c-process (ww)"), ("q", "G1c-realtime (ww)")])
def test_g1c_with_writes_and_an_order(later: str, expected: str) -> None:
    # b is in the log after a; the poll of b is over before a is sent
    story = Story()
    number = story.attempt("b", "r")
    story.poll((1, "b"), process="p")
    story.sent("a", 0, process=later).answer(number, 1)
    story.poll((0, "a"), process="other")
    verdict = story.check()
    assert found(verdict) == {expected: 1} and verdict.sound


def test_a_cycle_has_its_smallest_name_alone() -> None:
    names = [name for name in two_operations("a").check().anomalies if name.startswith("G")]
    assert names == [
        *("G1a", "G0", "G0-process", "G0-realtime", "G1c", "G1c-process", "G1c-realtime"),
        *("G1c (ww)", "G1c-process (ww)", "G1c-realtime (ww)"),
    ]


def test_a_long_cycle_is_cut_in_the_telling() -> None:
    story = Story()
    count = 10
    ids = [story.attempt(f"v{i}", f"t{i}", op=i) for i in range(count)]
    for i in range(count):
        other = (i + 1) % count
        story.poll((other, f"v{other}"), process=f"t{i}", op=i)
    for offset, number in enumerate(ids):
        story.answer(number, offset)
    verdict = story.check()
    assert found(verdict) == {"G1c": 1}
    assert ", ".join(verdict.anomalies["G1c"].examples[0].text.split(" -> ")[-2:]) == "2 more, operation 0"


@pytest.mark.parametrize("seed", range(200))
def test_peeling_leaves_something_exactly_when_there_is_a_cycle_of_edges_and_time(seed: int) -> None:
    rand = random.Random(seed)
    count = rand.randrange(1, 9)
    begins = [rand.randrange(12) for _ in range(count)]
    ends = [begin + rand.randrange(5) for begin in begins]
    edges = {node: sorted({rand.randrange(count) for _ in range(rand.randrange(2))} - {node}) for node in range(count)}
    graph = Graph(begins, ends)
    for node in range(count):
        graph.add(edges[node])
    every = {
        a: [*edges[a], *(b for b in range(count) if ends[a] < begins[b])] for a in range(count)
    }  # an edge for each pair
    expected = sorted(sorted(part) for part in cyclic_parts(every))
    left = graph.left_by_peeling()
    assert bool(left) is bool(expected)
    assert set(left) >= {node for part in expected for node in part}
    chained = with_time(edges, [range(count)], begins, ends)
    assert sorted(sorted(part) for part in cyclic_parts(chained)) == expected
    assert expected == strongly_connected(every)
    for part in expected:
        cycle = shortest_cycle(chained, part[0])
        assert set(cycle) <= set(part)
        assert all(b in every[a] for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))


def strongly_connected(edges: dict[int, list[int]]) -> list[list[int]]:
    """By reachability, in cubic time."""
    reach = {node: set(targets) for node, targets in edges.items()}
    for middle in edges:
        for node in edges:
            if middle in reach[node]:
                reach[node] |= reach[middle]
    parts = {tuple(sorted(b for b in edges if b in reach[a] and a in reach[b])) for a in edges}
    return sorted(list(part) for part in parts if len(part) > 1)


def test_a_poll_that_belongs_to_nothing_is_an_operation_by_itself() -> None:
    story = Story().log("a", "b").poll(*rows("a", "b"))
    assert isinstance(story.records[-1], Polled) and found(story.check()) == {}
