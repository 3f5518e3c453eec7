"""The runbook and the page of faults: a section for each alert and each fault, links that lead there, predicates in words."""

import re

import pytest

from dashboards import pages
from dashboards.alerts import ALERTS
from dashboards.boards import BOARDS
from dashboards.panels import Kind, Panel
from dashboards.proof import Fault, under_load
from helpers.scripts import ROOT, load_script

SECONDS = Panel("t", {"q": "l"}, "w.", (under_load("max == 0"),), unit="s")
STATES = Panel("t", {"q": "l"}, "w.", (under_load("max == 0"),), Kind.TIMELINE, names={0: "down", 1: "up"})


def headings(path: str) -> list[str]:
    return re.findall(r"^## (.+)$", (ROOT / path).read_text(), re.MULTILINE)


def test_each_alert_names_its_section_of_the_runbook() -> None:
    assert headings(pages.RUNBOOK) == [alert.name for alert in ALERTS]
    anchors = {pages.anchor(title) for title in headings(pages.RUNBOOK)}
    for alert in ALERTS:
        path, _, anchor = load_script("generate").alerting(alert)["annotations"]["runbook_url"].partition("#")
        assert path == pages.RUNBOOK and anchor in anchors


def test_links_between_the_pages_lead_to_headings() -> None:
    for path in (pages.RUNBOOK, pages.FAULTS):
        for name, anchor in re.findall(r"\]\((\w+\.md)(?:#([\w-]+))?\)", (ROOT / path).read_text()):
            assert not anchor or anchor in {pages.anchor(title) for title in headings(f"docs/{name}")}


def test_a_section_of_the_runbook_has_no_template() -> None:
    assert "{{" not in pages.runbook()


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: str(fault.value))
def test_the_table_of_a_fault_has_every_proof(fault: Fault) -> None:
    panels = {panel.title: panel for board in BOARDS for panel in board.panels}
    proofs = [proof for each in (*panels.values(), *ALERTS) for proof in each.proofs if proof.fault is fault]
    (section,) = re.findall(
        rf"^## {fault.value.capitalize()}\n(.*?)(?=^## |\Z)", pages.faults(), re.MULTILINE | re.DOTALL
    )
    assert fault.about in section.replace("\n", " ") and proofs
    assert len(re.findall(r"^\| (?!panel or alert|---)", section, re.MULTILINE)) == len(proofs)


@pytest.mark.parametrize(
    ("predicate", "panel", "words"),
    [
        ("max == 0", SECONDS, "0 throughout"),
        ("max > 2, last < 0.5", SECONDS, "highest value above 2 s; last value below 0.5 s"),
        ("min{job=broker} == 0", STATES, "job broker: lowest value 0 (down)"),
        ("series == 0", STATES, "no series"),
        ("fewest == 3", STATES, "never fewer than 3 series"),
        ("fewest <= 2", STATES, "at most 2 series for a moment"),
        ("min > 10000000", STATES, "lowest value above 10,000,000"),
        ("series == 0", None, "silent"),
        ("series{job=controller} == 1", None, "job controller: its condition holds"),
    ],
)
def test_a_predicate_in_words(predicate: str, panel: Panel | None, words: str) -> None:
    assert pages.in_words(predicate, panel) == words
