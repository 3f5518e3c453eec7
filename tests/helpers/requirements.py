"""Requirements by name: a marker for tests, and the pages whose headings are the names."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from helpers.scripts import ROOT

PAGES: Final = (ROOT / "docs/rules.md", ROOT / "docs/verification/requirements.md")
REASONS: Final = ("No test", "Open")
"""Paragraphs of an item that no test holds."""

_HEADING: Final = re.compile(r"^### (.+)$", re.MULTILINE)
_PARAGRAPH: Final = re.compile(r"^(No test|Open|Partly): |^Number: (.+)\.$", re.MULTILINE)


def requirement(name: str) -> pytest.MarkDecorator:
    """Marks a test that fails when the requirement does not hold; `name` is a heading of one of PAGES."""
    return pytest.mark.requirement(name)


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    page: str
    numbers: tuple[str, ...]
    labels: frozenset[str]
    """The words No test, Open and Partly, if a paragraph begins with them."""


def items_of(page: Path) -> Iterator[Item]:
    parts = _HEADING.split(page.read_text())[1:]
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        found = list(_PARAGRAPH.finditer(text))
        numbers = tuple(number for each in found if each[2] for number in each[2].split(", "))
        yield Item(name, page.name, numbers, frozenset(each[1] for each in found if each[1]))


def names_of(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "requirement":
            yield ast.literal_eval(mark.args[0])


def marked(folder: Path) -> Mapping[str, list[str]]:
    """The tests below `folder`, as pytest ids, by the requirements that they hold."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for name in names_of(node):
                    found.setdefault(name, []).append(f"{file.relative_to(folder.parent)}::{node.name}")
    return found


def problems(items: list[Item], tests: Mapping[str, list[str]]) -> Iterator[str]:
    """A name without an item, an item with neither a test nor a reason, or with both."""
    known = [item.name for item in items]
    for name in sorted(set(known)):
        if known.count(name) > 1:
            yield f"{name!r} is a heading twice"
    for name, holders in tests.items():
        if name not in known:
            yield f"{holders[0]} names {name!r}, which is no heading of {' or '.join(page.name for page in PAGES)}"
    for item in items:
        reasons = item.labels & {*REASONS}
        if item.name in tests and reasons:
            yield f"{item.page}: {item.name!r} has a test, {tests[item.name][0]}, and the paragraph {min(reasons)}"
        elif item.name not in tests and not reasons:
            yield f"{item.page}: {item.name!r} has neither a test nor a paragraph {' or '.join(REASONS)}"
