"""Predicates on windows of series: what holds, what does not, and that nothing is no proof of anything."""

import pytest

from dashboards.proof import MEASURES, Fault, Proof, Series, broken, parse, under_load

INSTANTS = [0.0, 1.0, 2.0, 3.0]


def series(*values: float | None, **labels: str) -> Series:
    """One value an instant; None: no sample."""
    points = [(at, v) for at, v in zip(INSTANTS, values, strict=True) if v is not None]
    return Series(labels, points)


WINDOW = [
    series(3, 3, 2, 3, topic="events"),
    series(1, None, None, 1, topic="single"),
    series(None, 0, 5, 9, topic="frail"),
]


@pytest.mark.parametrize(
    "text",
    [
        *("max == 9", "max{topic=events} == 3", "max > 8.5"),
        *("min == 0", "min{topic=events} == 2", "min >= 0"),
        *("last >= 1", "last{topic=single} == 1"),
        *("series == 3", "series{topic=single} == 1", "series{topic=none} == 0"),
        *("fewest == 2", "fewest{topic=single} == 0", "fewest{topic=events} == 1"),
        *("rise == 9", "rise{topic=events} == 0"),
        *("drop == 1", "drop{topic=frail} == 0"),
        *("changes == 2", "changes{topic=single} == 0"),
        "max == 9, min == 0, series == 3",
    ],
)
def test_a_predicate_that_holds(text: str) -> None:
    assert broken(text, WINDOW, INSTANTS) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("max < 9", "found 9"),
        ("last == 1", "found 3, 1, 9"),
        ("fewest == 3", "found 2"),
        ("min{topic=events} > 2", "found 2"),
        ("max{topic=none} >= 0", "found nothing"),
        ("last{topic=none} == 0", "found nothing"),
        ("changes{topic=none} == 0", "found nothing"),
        ("rise{topic=none} == 0", "found nothing"),
        ("drop{topic=none} == 0", "found nothing"),
    ],
)
def test_a_predicate_that_does_not_hold_says_what_is_there(text: str, found: str) -> None:
    assert broken(text, WINDOW, INSTANTS) == [f"{text}: {found}"]


def test_each_condition_of_several_has_to_hold() -> None:
    assert broken("max == 9, min == 1, series == 4", WINDOW, INSTANTS) == ["min == 1: found 0", "series == 4: found 3"]


def test_a_series_without_a_sample_in_the_window_is_none() -> None:
    assert broken("series == 0", [series(None, None, None, None)], INSTANTS) == []
    assert broken("max == 0", [series(None, None, None, None)], INSTANTS) == ["max == 0: found nothing"]


@pytest.mark.parametrize(
    "text", ["", "max", "most > 0", "max > x", "max>0", "max{a} > 0", "max > 0,min > 0", "max ~ 0"]
)
def test_what_is_no_predicate_is_refused_when_it_is_declared(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)
    with pytest.raises(ValueError):
        Proof(Fault.KILL_LEADER, during=text)


def test_a_proof_says_something() -> None:
    with pytest.raises(ValueError, match="says nothing"):
        Proof(Fault.KILL_LEADER)
    with pytest.raises(ValueError, match="no before"):
        Proof(Fault.LOAD, before="max > 0")
    assert under_load("max > 0").during == "max > 0"
    assert all(what for _, what in MEASURES.values())
