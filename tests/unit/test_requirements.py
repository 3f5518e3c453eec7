"""tests/requirements.toml says which test holds which requirement. It is complete, and what it names is there."""

import ast
import functools
import gc
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from mutants import __main__ as mutants
from mutants.patching import ROOT, ByTest

TABLE: Final[Mapping[str, Any]] = tomllib.loads((ROOT / "tests/requirements.toml").read_text())

_FAMILIES: Final = {"hole": "HOLE-{:02}", "holes": "HOLE-{:02}", "row": "row {}", "l": "L{:02}", "n": "N{:02}"}
_IN_NAME: Final = re.compile(
    r"_(holes?|row|[abce]\d+|hl\d+)_(\d+(?:_(?:to_)?\d+)*)(?=_|$)"  # hole_16_17, holes_04_to_11, row_8, c3_05_to_08
    r"|_([ln])(\d\d)(?=_|$)"  # l18, n08
)


def all_numbers() -> list[str]:
    return [number for section, last in TABLE["numbers"].items() for number in numbers_of(section, last)]


def numbers_of(section: str, last: int) -> list[str]:
    """Of "C1" these are C1.01 to C1.last, of "HOLE-" HOLE-01 to HOLE-last, of "row " row 1 to row last."""
    form = "{}{}" if section == "row " else "{}{:02}" if section in ("HOLE-", "L", "N") else "{}.{:02}"
    return [form.format(section, each) for each in range(1, last + 1)]


def expanded(entries: list[str], numbers: list[str]) -> Iterator[str]:
    """An entry is a number, or a range "C1.01 to C1.04" in the order of the table."""
    for entry in entries:
        first, _, last = entry.partition(" to ")
        yield from numbers[numbers.index(first) : numbers.index(last or first) + 1]


@functools.cache
def existing_tests() -> frozenset[str]:
    found = set()
    # What an earlier test left may be collected while a tree is built; a finalizer that prints a traceback parses too, and
    # CPython 3.11 then raises SystemError for the outer tree (gh-106905).
    gc.collect()
    gc.disable()
    try:
        for file in (ROOT / "tests").rglob("test_*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                    found.add(f"{file.relative_to(ROOT)}::{node.name}")
    finally:
        gc.enable()
    return frozenset(found)


def named_in(test: str) -> Iterator[str]:
    """The numbers that the name of a test carries."""
    for family, several, short, one in _IN_NAME.findall(test.partition("::test")[2]):
        form = _FAMILIES.get(family or short, f"{family.upper()}.{{:02}}")
        previous, to = 0, False
        for word in (several or one).split("_"):
            if word == "to":
                to = True
                continue
            yield from map(form.format, range(previous + 1 if to else int(word), int(word) + 1))
            previous, to = int(word), False


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("test_hole_21_a_life", ["HOLE-21"]),
        ("test_holes_04_to_06_37_39_to_40_a", ["HOLE-04", "HOLE-05", "HOLE-06", "HOLE-37", "HOLE-39", "HOLE-40"]),
        ("test_c3_05_to_06_these", ["C3.05", "C3.06"]),
        ("test_row_8_l32_a_leader", ["row 8", "L32"]),
        ("test_l18_l19_hl6_08_n08", ["L18", "L19", "HL6.08", "N08"]),
        ("test_hole_27_acks_0_waits_for_i14", ["HOLE-27"]),
    ],
)
def test_numbers_are_read_from_names(name: str, numbers: list[str]) -> None:
    assert list(named_in(f"file.py::{name}")) == numbers


def test_every_number_is_held_or_open_or_has_a_reason_and_only_one_of_them() -> None:
    numbers = all_numbers()
    listed = Counter([*TABLE["held"], *TABLE["open"]])
    for reason, entries in TABLE["without"].items():
        assert reason
        listed.update(expanded(entries, numbers))
    assert [each for each in numbers if listed[each] != 1] == []
    assert sorted(set(listed) - set(numbers)) == []
    assert [each for each, tests in TABLE["held"].items() if not tests] == []
    assert [each for each, missing in TABLE["open"].items() if not missing] == []


def test_a_scenario_that_no_processes_play_is_said_to_be_held_partly() -> None:
    held, partly = TABLE["held"], TABLE["partly"]
    assert sorted(set(partly) - set(held)) == [] and all(partly.values())
    scenarios = {each for each in held if re.fullmatch(r"L\d\d|row \d+", each)}
    played = {each for each in scenarios if any(test.startswith("tests/integration/") for test in held[each])}
    assert sorted(scenarios - played - set(partly)) == []


def test_every_test_that_is_named_exists() -> None:
    tests = existing_tests()
    gone = {(each, test) for each, named in TABLE["held"].items() for test in named if test not in tests}
    assert sorted(gone) == []


def test_a_test_with_a_number_in_its_name_is_listed_under_it() -> None:
    held = TABLE["held"]
    missing = {
        (number, test) for test in existing_tests() for number in named_in(test) if test not in held.get(number, [])
    }
    assert sorted(missing) == [], "add them to held in tests/requirements.toml"


def test_every_hole_that_is_held_has_a_patch_under_which_one_of_its_tests_fails_or_is_said_to_have_none() -> None:
    planted = {mutant.name: mutant.must_fail for table in mutants.TABLES for mutant in table}
    patches, unpatched = TABLE["patches"], TABLE["unpatched"]
    holes = {each for each in TABLE["held"] if each.startswith("HOLE-")}
    assert Counter([*patches, *unpatched]) == Counter(holes)
    for hole, name in patches.items():
        assert name in planted, f"{hole}: no such mutant: {name}"
        judge = planted[name]
        assert isinstance(judge, ByTest), f"{hole}: {name} is not found by a test"
        assert judge.test in TABLE["held"][hole], f"{hole}: {judge.test} is not among its tests"
    assert {each for each in planted if each.startswith("HOLE-")} <= set(patches.values())
