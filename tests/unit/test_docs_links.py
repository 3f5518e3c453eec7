"""Links between pages lead somewhere, and docs/README.md has a line for every page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dashboards.pages import anchor
from helpers.scripts import ROOT

DOCS: Final = ROOT / "docs"
PAGES: Final = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
_LINK: Final = re.compile(r"\]\(((?!https?:)[^)#\s]*)(?:#([^)\s]+))?\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Target and anchor ("" for none) of each link to a file of the repository."""
    for target, place in _LINK.findall(page.read_text()):
        yield (page.parent / target).resolve() if target else page, place


def broken(page: Path) -> Iterator[str]:
    for target, place in links(page):
        if not target.exists():
            yield f"{target.name} does not exist"
        elif place and place not in map(anchor, _HEADING.findall(target.read_text())):
            yield f"{target.name} has no heading #{place}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    assert list(broken(page)) == []


def test_the_map_has_a_line_for_every_page() -> None:
    listed = {target for target, _ in links(DOCS / "README.md")}
    assert {*DOCS.rglob("*.md")} - {DOCS / "README.md"} <= listed


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Top\n\n[b](b.md) [c](c.md#section-2) [self](#top) [out](https://example.org/x)\n")
    (tmp_path / "c.md").write_text("## Section 1\n")
    assert list(broken(tmp_path / "a.md")) == ["b.md does not exist", "c.md has no heading #section-2"]
