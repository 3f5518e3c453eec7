"""Tests name the requirements that they hold; docs/rules.md and docs/verification/requirements.md list all of them."""

import re
from pathlib import Path

import pytest

from helpers.requirements import PAGES, Item, items_of, marked, problems
from helpers.scripts import ROOT
from mutants import __main__ as mutants
from mutants.patching import ByTest

RULES, REQUIREMENTS = PAGES
SCENARIO = re.compile(r"L\d\d|row \d+")


@pytest.fixture(scope="module")
def items() -> list[Item]:
    return [item for page in PAGES for item in items_of(page)]


@pytest.fixture(scope="module")
def tests() -> dict[str, list[str]]:
    return dict(marked(ROOT / "tests"))


def test_names_and_headings_are_the_same(items: list[Item], tests: dict[str, list[str]]) -> None:
    assert list(problems(items, tests)) == []


def test_every_item_has_a_number_of_its_own(items: list[Item]) -> None:
    numbers = [number for item in items for number in item.numbers]
    assert len(numbers) == len(set(numbers)) and all(item.numbers for item in items)


def test_a_scenario_without_processes_is_held_partly(items: list[Item], tests: dict[str, list[str]]) -> None:
    for item in items:
        holders = tests.get(item.name, [])
        if holders and any(map(SCENARIO.fullmatch, item.numbers)) and "Partly" not in item.labels:
            assert any(test.startswith(("tests/integration/", "tests/compose/")) for test in holders), item.name


def test_every_rule_has_a_mutant_that_its_tests_find(items: list[Item], tests: dict[str, list[str]]) -> None:
    planted = {mutant.name: mutant.must_fail for table in mutants.TABLES for mutant in table}
    for name in (item.name for item in items if item.page == RULES.name and item.name in tests):
        assert name in planted, f"no mutant breaks the rule {name!r}"
        judge = planted[name]
        assert isinstance(judge, ByTest) and judge.test in tests[name], f"{name}: {judge} is not among its tests"


PAGE = """# Page

## Section

### A leader acknowledges what it has

Text.

Number: A1.01.
Source: KIP-1.

### A member leaves

Number: A1.02, A1.03.
Source: KIP-2, section 3.4.

No test: Background.

### A broker sleeps

Number: A1.04.
Source: KIP-3.

Partly: on processes alone.
"""


@pytest.fixture
def page(tmp_path: Path) -> list[Item]:
    (tmp_path / "page.md").write_text(PAGE)
    return list(items_of(tmp_path / "page.md"))


def test_a_page_is_read(page: list[Item]) -> None:
    assert [(item.name, item.numbers, set(item.labels)) for item in page] == [
        ("A leader acknowledges what it has", ("A1.01",), set()),
        ("A member leaves", ("A1.02", "A1.03"), {"No test"}),
        ("A broker sleeps", ("A1.04",), {"Partly"}),
    ]


def test_what_is_wrong_is_named(page: list[Item]) -> None:
    tests = {"A leader acknowledges what it has": ["t.py::test_a"], "A broker sleeps": ["t.py::test_b"]}
    assert list(problems(page, tests)) == []
    assert list(problems(page, {**tests, "A member leaves": ["t.py::test_c"], "A stranger": ["t.py::test_d"]})) == [
        "t.py::test_d names 'A stranger', which is no heading of rules.md or requirements.md",
        "page.md: 'A member leaves' has a test, t.py::test_c, and the paragraph No test",
    ]
    assert list(problems([*page, page[0]], {"A broker sleeps": ["t.py::test_b"]})) == [
        "'A leader acknowledges what it has' is a heading twice",
        "page.md: 'A leader acknowledges what it has' has neither a test nor a paragraph No test or Open",
        "page.md: 'A leader acknowledges what it has' has neither a test nor a paragraph No test or Open",
    ]


def test_marked_tests_are_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(
        '@requirement("One")\n@requirement("Two")\nasync def test_a(): ...\n\n\n@requirement("One")\ndef test_b(): ...\n'
    )
    found = marked(tmp_path / "tests")
    assert found == {"One": ["tests/test_a.py::test_a", "tests/test_a.py::test_b"], "Two": ["tests/test_a.py::test_a"]}
