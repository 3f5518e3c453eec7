"""The files of a run's agents, written by the handler that they run, and their partitions as the history tells them."""

from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.agent.files import FileHandler
from tidelog.chaos.agents import FOLDER, AgentWatch, listed
from tidelog.chaos.checker.check import check
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.history import HistoryReader, Ownership, Polled, Processed, Stored
from tidelog.chaos.sources import numbered
from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.os_disk import OsDisk

pytestmark = pytest.mark.real_loop

VALUES = [b"text", b"\xff\x00", b"", "я".encode(), b'{"json": "\\n"}']
TP = TopicPartition("t", 0)


def record(number: int) -> ConsumerRecord:
    sent = numbered(number, b"k" if number % 3 else None, VALUES[number])
    return ConsumerRecord("t", 0, number, 1, 0, sent.key, sent.value, tuple(sent.headers), 0)


async def write(directory: Path, name: str, *numbers: int) -> None:
    (directory / FOLDER / name).mkdir(parents=True, exist_ok=True)
    handler = FileHandler(OsDisk(), str(directory / FOLDER / name), "jsonl", 1 << 20, name)
    await handler.handle([record(number) for number in numbers])
    await handler.flush()


def flushed(chronicle: Chronicle, directory: Path) -> Path:
    chronicle.phase("heal")
    return directory / "history"


class Groups:
    """The group as its coordinator tells of it; None: it tells nothing."""

    def __init__(self) -> None:
        self.owned: dict[str, Sequence[int]] | None = {}
        self.term = (1, 1)
        self.stored: dict[TopicPartition, int] = {}

    async def committed(self, group: str, partitions: Collection[TopicPartition]) -> Any:
        return {tp: SimpleNamespace(offset=self.stored[tp]) for tp in partitions if tp in self.stored}

    async def describe_one(self, group: str) -> Any:
        if self.owned is None:
            raise TidelogError("no coordinator")
        members = [
            SimpleNamespace(
                client_id="", consumer_id=f"{name}-1a2b", partitions=[TopicPartition("t", p) for p in owned]
            )
            for name, owned in self.owned.items()
        ]
        return SimpleNamespace(coordinator_epoch=self.term[0], generation=self.term[1], members=members)


class Watched:
    def __init__(self, directory: Path, chronicle: Chronicle) -> None:
        self.groups, self.processed, self.said = Groups(), dict[TopicPartition, int](), list[str]()
        admin: Any = SimpleNamespace(groups=self.groups)
        partitions = [TopicPartition("t", p) for p in range(2)]
        self.watch = AgentWatch(admin, 2, partitions, directory, chronicle, self.processed, self.said.append)


async def test_a_file_was_processed_by_the_agent_that_wrote_it(tmp_path: Path) -> None:
    with Chronicle(tmp_path / "history", SystemClock()) as chronicle:
        watched = Watched(tmp_path, chronicle)
        await write(tmp_path, "agent-1", 0, 1, 2)
        await write(tmp_path, "agent-2", 2, 4)
        await watched.watch.look()
        await watched.watch.look()  # each file once
    found = list(HistoryReader(tmp_path / "history"))
    reads = [(each.process, each.partitions) for each in found if isinstance(each, Polled)]
    names = [numbered(n, b"k" if n % 3 else None, VALUES[n]).name for n in range(5)]
    assert [process for process, _ in reads] == ["agent-1", "agent-2"]
    assert reads[0][1] == (("t", 0, tuple(zip(range(3), names, strict=False))),)
    spans = [(each.process, each.partitions) for each in found if isinstance(each, Processed)]
    assert spans == [("agent-1", (("t", 0, 0, 2),)), ("agent-2", (("t", 0, 2, 2), ("t", 0, 4, 4)))]
    assert watched.processed == {TP: 5}


async def test_a_takeover_is_told_and_seen(tmp_path: Path) -> None:
    with Chronicle(tmp_path / "history", SystemClock()) as chronicle:
        watched = Watched(tmp_path, chronicle)
        watched.groups.owned = {"agent-1": [0], "agent-2": [1]}
        await watched.watch.until_shared()
        assert not watched.watch.moved(["agent-1"])
        watched.groups.owned = None
        await watched.watch.look()
        watched.groups.owned, watched.groups.term = {"agent-2": [0, 1]}, (1, 2)
        await watched.watch.look()
        assert watched.watch.moved(["agent-1"]) and not watched.watch.moved(["agent-2"])
    assert watched.said[-2:] == ["agent-1 owns partitions none", "agent-2 owns partitions 0 1"]


async def test_what_is_committed_is_told_after_its_files(tmp_path: Path) -> None:
    """A file that comes between the listing and the question was written before its records were committed."""
    with Chronicle(tmp_path / "history", SystemClock()) as chronicle:
        watched = Watched(tmp_path, chronicle)
        watched.groups.stored = {TP: 2}
        await watched.watch.look()
        await write(tmp_path, "agent-1", 0, 1)
        await watched.watch.look()
        await watched.watch.look()
    found = [type(each) for each in HistoryReader(tmp_path / "history")]
    assert found == [Polled, Processed, Stored]


async def test_an_agent_that_repeats_itself_in_a_term_is_found(tmp_path: Path) -> None:
    """It begins again once a term at most, and not in the first one."""
    counts = []
    with Chronicle(tmp_path / "history", SystemClock()) as chronicle:
        watched = Watched(tmp_path, chronicle)
        watched.groups.owned = {"agent-1": [0]}
        for last, term in ((1, (1, 1)), (2, (1, 1)), (3, (1, 2)), (4, (1, 2))):
            watched.groups.term = term
            await watched.watch.look()
            await write(tmp_path, "agent-1", *range(last + 1))
            await watched.watch.look()
            found = check(list(HistoryReader(flushed(chronicle, tmp_path)))).anomalies["group-duplicates"]
            counts.append(found.count)
    assert counts == [0, 1, 1, 2]


async def test_an_agent_may_begin_again_but_not_before_a_commit(tmp_path: Path) -> None:
    """Several terms may pass between two looks, and files of each be there; what was committed in an earlier one is done."""
    with Chronicle(tmp_path / "history", SystemClock()) as chronicle:
        watched = Watched(tmp_path, chronicle)
        watched.groups.owned = {"agent-1": [0]}
        await watched.watch.look()
        await write(tmp_path, "agent-1", 0, 1)
        await write(tmp_path, "agent-1", 0, 1, 2)
        await write(tmp_path, "agent-1", 0, 1, 2, 3)
        watched.groups.term, watched.groups.stored = (2, 2), {TP: 2}  # two terms have passed
        await watched.watch.look()
        watched.groups.term = (3, 1)
        await watched.watch.look()
        await write(tmp_path, "agent-1", 2, 3, 4)
        await watched.watch.look()
        before = check(list(HistoryReader(flushed(chronicle, tmp_path)))).anomalies["group-duplicates"].count
        await write(tmp_path, "agent-1", 1)
        await watched.watch.look()
    found = check(HistoryReader(tmp_path / "history")).anomalies["group-duplicates"]
    assert before == 0 and found.count == 1
    assert "agent-1 processed offset 1 again, although 2 was committed before" in found.examples[0].text


async def test_in_a_new_term_a_member_begins_anew(tmp_path: Path) -> None:
    """A member that loses its coordinator may begin again at its committed offset, which is no double processing."""
    with Chronicle(tmp_path / "history", SystemClock()) as chronicle:
        watched = Watched(tmp_path, chronicle)
        watched.groups.owned = {"agent-1": [0], "agent-2": [1]}
        await watched.watch.look()
        watched.groups.term = (2, 1)
        await watched.watch.look()
        await watched.watch.look()
    found = [each.kind for each in HistoryReader(tmp_path / "history") if isinstance(each, Ownership)]
    assert found == ["assigned", "assigned", "lost", "assigned", "lost", "assigned"]
    assert len(watched.said) == 2


def test_partitions_are_listed_in_order() -> None:
    assert listed([TopicPartition("t", p) for p in (10, 2, 0)]) == "0 2 10" and listed([]) == "none"
