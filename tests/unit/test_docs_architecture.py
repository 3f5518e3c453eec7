"""The table of folders in docs/internals/architecture.md is that of scripts/check.py, and of the tree."""

import re
from collections.abc import Mapping

import pytest

from helpers.scripts import ROOT, load_script

check = load_script("check")

PAGE = (ROOT / "docs/internals/architecture.md").read_text()
PACKAGE = ROOT / "services/tidelog"


def groups(page: str) -> dict[str, str]:
    """Names for several modules, which the page defines in a list: "* **plain**: `ids`, `errors`"."""
    found: dict[str, str] = {}
    for name, members in re.findall(r"^\* \*\*(\w+)\*\*: (.+)$", page, re.MULTILINE):
        found[name] = " ".join(found.get(each, each) for each in members.replace("`", "").split(", "))
    return found


def rows(page: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Module or folder -> its kind, and the modules that it may import."""
    named, found = groups(page), {}
    table = re.findall(r"^\| `([\w.]+)` \| ([\w /]+) \| (.+?) \| .+ \|$", page, re.MULTILINE)
    for module, kind, imports in table:
        words = [] if imports == "nothing" else imports.replace("`", "").split(", ")
        found[module] = kind, frozenset(" ".join(named.get(each, each) for each in words).split())
    return found


def kind_of(module: str) -> str:
    if module == "testing":
        return "test twin"
    if not check.within(module, check.PURE):
        return "I/O"
    return "pure with shells" if any(check.within(shell, [module]) for shell in check.SHELLS) else "pure"


@pytest.fixture(scope="module")
def table() -> Mapping[str, tuple[str, frozenset[str]]]:
    return rows(PAGE)


def test_the_page_lists_what_may_be_imported(table: Mapping[str, tuple[str, frozenset[str]]]) -> None:
    allowed = {module: frozenset(names.split()) for module, names in check.MAY_IMPORT.items() if module != "__init__"}
    assert {module: imports for module, (_, imports) in table.items()} == allowed


def test_the_page_says_what_is_pure(table: Mapping[str, tuple[str, frozenset[str]]]) -> None:
    assert {module: kind for module, (kind, _) in table.items()} == {module: kind_of(module) for module in table}


def test_the_page_has_a_row_for_every_folder(table: Mapping[str, tuple[str, frozenset[str]]]) -> None:
    tree = {each.stem for each in PACKAGE.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()}
    assert {module for module in table if "." not in module} == tree - {"__init__"}
    for module in table:
        path = PACKAGE / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), f"{module} is not in the tree"


def test_the_page_names_the_shells_that_check_knows() -> None:
    found = re.findall(r"may also import `(\w+)`, `(\w+)`, `(\w+)` and `(\w+)`", PAGE)
    assert found == [tuple(check.SHELL_ROW.split())]


def test_a_row_is_read() -> None:
    page = "* **plain**: `ids`, `errors`\n* **edges**: plain, `ports`\n\n| `broker` | I/O | edges, `storage` | text |\n"
    assert rows(page) == {"broker": ("I/O", frozenset({"ids", "errors", "ports", "storage"}))}
