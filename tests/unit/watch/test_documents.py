"""Documents, sections and steps of protocol events, all of which docs/documents.md has."""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Final

import pytest

from helpers.scripts import ROOT
from tidelog.errors import ErrorCode
from tidelog.replica.effects import Rule
from tidelog.watch.documents import BY_FIELD, BY_KIND, CHANGES, ELECTIONS, Passage, document_of
from tidelog.watch.kinds import FAMILY_OF
from tidelog.wire import messages as m

NOT_DESCRIBED: Final = {
    m.BrokerSeen,
    m.BrokerCleared,
    m.ControllerResigned,
    m.OrderRefused,
    m.EpochStarted,
    m.LogReset,
    m.HighWatermarkFrozen,
    m.HighWatermarkFreed,
    m.RequestFenced,
    m.LeaderDeposed,
    m.MemberDisconnected,
}
"""Kinds that no document describes, or that belong to several sections. A new kind is either here or in the tables."""
PASSAGES: Final = sorted(
    {*BY_KIND.values(), *ELECTIONS.values(), *(each for _, by in BY_FIELD.values() for each in by.values())}
)
ELECTED: Final = m.LeaderChosen(
    leader_before=1, leader=2, leader_epoch=6, isr_before=(1, 2), isr=(2,), why="broker_down"
)


@cache
def page() -> Mapping[tuple[str, str], list[str]]:
    """Returns the lines of the tables of docs/documents.md, by document and section."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    document, sections = "", [""]
    for line in (ROOT / "docs/documents.md").read_text().replace("`", "").splitlines():
        cells = [each.strip() for each in line.strip("|").split("|")]
        if line.startswith("## "):
            document, sections = line[3:].partition(":")[0], []
        elif line.startswith("### "):
            sections = re.findall(r"section \d+", line)
        elif len(cells) == 3:
            for section in sections:
                found[document, section].append(cells[0])
        elif len(cells) == 4:
            found[document, cells[0]].append(cells[1])
    return found


def is_on_the_page(passage: Passage) -> bool:
    return any(passage.step in said for said in page().get((passage.document, passage.section), []))


@pytest.mark.parametrize("passage", PASSAGES, ids=str)
def test_the_page_has_the_section_and_the_step(passage: Passage) -> None:
    assert is_on_the_page(passage)


@pytest.mark.parametrize(
    "passage",
    [
        Passage("Controller with ZKQueue", "change_leaders", "a dead ISR member leads"),
        Passage("Controller with ZKQueue", "change_followers"),
        Passage("KIP-497", "change_leaders"),
        Passage("Consumer coordinator", "section 14"),
        Passage("Consumer coordinator", "section 9", "There are three purgatories"),
        Passage("KIP-500", "Goals"),
    ],
    ids=str,
)
def test_a_passage_that_the_page_lacks_is_found(passage: Passage) -> None:
    assert not is_on_the_page(passage)


def test_each_kind_is_described_or_known_not_to_be() -> None:
    described = [*BY_KIND, *BY_FIELD, m.LeaderChosen]
    assert len(described) == len(set(described))
    assert FAMILY_OF.keys() - set(described) == NOT_DESCRIBED
    assert set(described) <= FAMILY_OF.keys()


def test_fields_have_the_values_that_are_looked_up() -> None:
    folder = ROOT / "services/tidelog"
    files = [path for path in sorted(folder.rglob("*.py")) if path.parent != folder / "watch"]
    literals = set(re.findall(r'"([^"\n]*)"', "\n".join(path.read_text() for path in files)))
    values = {each for name, by in BY_FIELD.values() for each in by if isinstance(each, str)}
    joined = {"ownership and offsets"}
    assert (values - joined) | CHANGES | {"preferred", "reassigned", "ownership"} <= literals
    assert joined < values
    for kind, (name, _) in BY_FIELD.items():
        assert name in kind.__slots__
    assert {each.value for each in Rule} > BY_FIELD[m.LogTruncated][1].keys()


def test_an_election_is_told_by_its_fields() -> None:
    def said(**fields: object) -> str | None:
        values = {name: getattr(ELECTED, name) for name in ELECTED.__slots__}
        return document_of(m.LeaderChosen(**values | fields))

    assert said() == "Controller with ZKQueue, change_leaders: a live ISR member leads"
    assert said(leader=3, isr=(3,)) == "Controller with ZKQueue, change_leaders: otherwise any live replica leads"
    assert said(leader=-1) == "Controller with ZKQueue, change_leaders"
    assert said(isr_before=(), why="broker_up") == said(isr_before=(), why="new") == "Controller with ZKQueue, Topics"
    balanced = "Replication, detailed V1, checkLoadBalancing: a leader gives way to the preferred replica"
    assert said(why="preferred") == balanced
    assert said(why="reassigned") == "Controller with ZKQueue, Reassignment"
    assert said(why="again") is None


def test_other_kinds_are_told_by_one_field() -> None:
    published = "KIP-497, Goals: stale state is never sent"
    assert document_of(m.OrderSent(order="LeaderAndIsr", broker_id=1, partitions=2)) == published
    assert document_of(m.OrderSent(order="StopReplica", broker_id=1, partitions=2)) is None
    fenced = m.MemberFenced(consumer_id="c", code=ErrorCode.DUPLICATE_CONSUMER_ID, reason="")
    assert document_of(fenced) == (
        "Consumer coordinator, section 7: The consumer id is unique, and the session timeout is above the minimum"
    )
    assert document_of(m.StoreWritten(more=0, purpose="resignation")) is None
    ended = m.RebalanceEnded(generation=1, failed=True, stopped=0, took_ms=5)
    assert document_of(ended) == "Consumer coordinator, section 9: Back-off, retries"


def test_a_kind_that_is_not_described_has_no_text() -> None:
    assert document_of(m.BrokerCleared(broker_id=1)) is None
    assert document_of(m.BrokerLost(broker_id=1)) == (
        "Controller with ZKQueue, on_broker_change: find partitions whose leader is gone"
    )
