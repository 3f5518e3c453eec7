"""Pages of docs/ name files and functions that exist: `folder/file.py` and `file.py:Class.method`, below root or package."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from helpers.scripts import ROOT

PAGES: Final = [*sorted((ROOT / "docs").rglob("*.md")), *sorted({*ROOT.glob("*.md")} - {ROOT / "CHANGELOG.md"})]
"""The changelog names files of earlier releases."""
BASES: Final = (ROOT, ROOT / "services/tidelog")
_FILE: Final = r"[\w.-]+\.(?:py|proto|sh)"
_SPAN: Final = re.compile(rf"`((?:[\w.-]+/)+{_FILE}|{_FILE}(?=:))(?::([\w.]+))?`")
"""A name without a folder or a function, `app.py`, may be a file of the reader's own."""


@cache
def names_in(path: Path) -> frozenset[str]:
    """Everything that a reader can look up in a file: "Class", "Class.method", "function", "CONSTANT", a message or a call."""
    text = path.read_text()
    if path.suffix == ".proto":
        return frozenset(re.findall(r"^\s*(?:message|service|enum|rpc) (\w+)", text, re.MULTILINE))
    return frozenset(defined(ast.parse(text).body, "")) if path.suffix == ".py" else frozenset()


def defined(body: list[ast.stmt], above: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                yield above + name
                yield from defined(node.body, f"{above}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield above + name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield above + name


def unknown(text: str) -> list[str]:
    """Names of a page that lead nowhere."""
    found = []
    for file, name in _SPAN.findall(text):
        paths = [base / file for base in BASES if (base / file).is_file()]
        if not paths or (name and name not in names_in(paths[0])):
            found.append(f"{file}:{name}" if name else file)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_what_exists(page: Path) -> None:
    assert unknown(page.read_text()) == []


def test_names_that_lead_nowhere_are_found() -> None:
    page = """`replica/isr.py`, `replica/isr.py:PendingExpand.maximal_isr`, `scripts/check.py:MAY_IMPORT`,
    `replica/isr.py:PendingExpand.nothing`, `replica/nothing.py`, `proto/tidelog/v1/control.proto:LeaderAndIsr`,
    `proto/tidelog/v1/control.proto:Nothing`, `records.json`, `handler.py`, `errors.py:ErrorCode`, `errors.py:Nothing`"""
    assert unknown(page) == [
        "replica/isr.py:PendingExpand.nothing",
        "replica/nothing.py",
        "proto/tidelog/v1/control.proto:Nothing",
        "errors.py:Nothing",
    ]


def test_the_page_of_documents_names_functions() -> None:
    spans = _SPAN.findall((ROOT / "docs/documents.md").read_text())
    assert sum(bool(name) for _, name in spans) > 100
