"""The agents of a run: which partitions each of them owns, and what each of them has written to its files.

An agent is a process that knows nothing of the run. Its handler writes the records to a directory of its own, one file for each
stretch of a partition, and then commits their offsets. The watch reads each file as soon as it appears.
"""

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidelog.chaos.checker.intervals import runs
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.faults.base import to_the_end
from tidelog.chaos.history import ASSIGNED, LOST, Ownership, Position, Processed, Span, Stored
from tidelog.chaos.sources import name_of
from tidelog.client.admin import Admin
from tidelog.cluster.api import AGENT, ClusterError, process_name
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import NO_EPOCH, TopicPartition
from tidelog.wire import messages as m

GROUP: Final = "chaos-agents"
FOLDER: Final = "processed"
"""Below the run's directory: a directory for each agent."""
SHARED_WITHIN_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.1
PATTERN: Final = "*.jsonl"

Rows = Sequence[tuple[int, str]]
"""Offset and name of each record."""


def names(count: int) -> list[str]:
    return [process_name(AGENT, n) for n in range(1, count + 1)]


def settings(topic: str, directory: Path, count: int) -> dict[str, dict[str, str]]:
    """Settings of a cluster whose agents process `topic`; `directory` is the run's."""
    common = {
        "group_id": GROUP,
        "topics": topic,
        "handler": "file",
        "chunk_records": "500",
        "commit_interval_ms": "1000",
    }
    folder = (directory / FOLDER).resolve()
    return {AGENT: common, **{name: {"file_directory": str(folder / name)} for name in names(count)}}


class AgentWatch:
    """`watch` runs beside the load. A member that has died owns its partitions until its session is over."""

    def __init__(
        self,
        admin: Admin,
        count: int,
        partitions: Collection[TopicPartition],
        directory: Path,
        chronicle: Chronicle,
        processed: dict[TopicPartition, int],
        say: Callable[[str], None],
    ) -> None:
        """`processed` is told the offset behind the last record of each partition that is in a file."""
        self.owned: dict[str, frozenset[TopicPartition]] = dict.fromkeys(names(count), frozenset())
        self._admin = admin
        self._partitions = frozenset(partitions)
        self._directory = directory / FOLDER
        self._chronicle = chronicle
        self._processed = processed
        self._say = say
        self._read: set[Path] = set()
        self._term = (NO_EPOCH, NO_EPOCH)
        """Coordinator epoch and generation."""
        self._terms = 0
        """Number of terms after the first, also of those that passed between two looks."""
        self._ends: dict[tuple[str, TopicPartition], int] = {}
        """Agent and partition, to the offset behind all that is in its files."""
        self._begun: Counter[tuple[str, TopicPartition]] = Counter()
        """Times that an agent has begun again with a partition."""
        self._committed: dict[TopicPartition, int] = {}
        """The offsets that the coordinator told after the last look."""
        self._noted: dict[TopicPartition, int] = {}
        """The offsets that the history has."""

    def moved(self, targets: Sequence[str]) -> bool:
        """True if others own everything."""
        others = [owned for name, owned in self.owned.items() if name not in targets]
        return frozenset().union(*others) == self._partitions

    async def until_shared(self) -> None:
        """Waits until each owns a part, and together they own everything. ClusterError."""
        clock = self._chronicle.clock
        give_up_at = clock.now() + SHARED_WITHIN_S
        while True:
            await self.look()
            if all(self.owned.values()) and frozenset().union(*self.owned.values()) == self._partitions:
                return
            if clock.now() > give_up_at:
                raise ClusterError(f"the agents do not share the partitions after {SHARED_WITHIN_S:g} s")
            await clock.sleep(LOOK_AGAIN_S)

    async def watch(self) -> None:
        while True:
            await self.look()
            await self._chronicle.clock.sleep(LOOK_AGAIN_S)

    async def look(self) -> None:
        """Asks for the members after it has listed the files, so that the term of each file is known. Without a coordinator
        they wait."""
        files = await to_the_end(self._new_files)
        try:
            group = await self._admin.groups.describe_one(GROUP)
        except (TidelogError, TransportError):
            return  # its coordinator is away, or it has no member yet
        term = (group.coordinator_epoch, group.generation)
        if term != self._term and self._term[0] != NO_EPOCH:
            self._terms += max(1, term[1] - self._term[1]) + (term[0] != self._term[0])
        for path in files:
            await self._take(path)
        self._note_committed()
        self._note(term, self._owners(group))
        try:
            found = await self._admin.groups.committed(GROUP, self._partitions)
            self._committed = {tp: each.offset for tp, each in found.items()}
        except (TidelogError, TransportError):
            pass

    def _note_committed(self) -> None:
        """An agent writes a file before it commits, so that all files with records that were committed at the last look have been
        taken by now. An owner that begins from here on begins behind them."""
        if self._committed != self._noted:
            self._noted = self._committed
            positions = tuple(Position(*tp, offset) for tp, offset in sorted(self._committed.items()))
            self._chronicle.append(Stored(self._chronicle.now(), GROUP, positions))

    def _owners(self, group: m.DescribedGroup) -> Mapping[str, frozenset[TopicPartition]]:
        owned: dict[str, frozenset[TopicPartition]] = dict.fromkeys(self.owned, frozenset())
        for member in group.members:
            for name in owned:
                # A member that is not connected is known by its id alone, which begins with the agent's.
                if name in (member.client_id, member.consumer_id) or member.consumer_id.startswith(f"{name}-"):
                    owned[name] |= {TopicPartition(each.topic, each.partition) for each in member.partitions}
        return owned

    def _note(self, term: tuple[int, int], owned: Mapping[str, frozenset[TopicPartition]]) -> None:
        """In a new term a member may begin again at the committed offsets, whether or not its partitions are the same."""
        began = term != self._term
        self._term = term
        for name, before in self.owned.items():
            after = owned[name]
            if lost := before if began else before - after:
                self._tell(LOST, name, lost)
            if after and (began or after - before):
                self._tell(ASSIGNED, name, after)
            if after != before:
                self._say(f"{name} owns partitions {listed(after)}")
        self.owned.update(owned)

    def _begin_again(self, name: str, tp: TopicPartition, offset: int) -> None:
        """An agent that has lost its coordinator begins again at what is committed, at most once a term."""
        key = name, tp
        if offset < self._ends.get(key, 0) and self._begun[key] < self._terms:
            self._begun[key] += 1
            self._tell(LOST, name, frozenset({tp}))
            self._tell(ASSIGNED, name, self.owned[name] | {tp})

    def _tell(self, kind: str, name: str, partitions: frozenset[TopicPartition]) -> None:
        self._chronicle.append(Ownership(self._chronicle.now(), kind, name, tuple(sorted(partitions)), GROUP))

    def _new_files(self) -> list[Path]:
        found = [path for name in self.owned for path in (self._directory / name).glob(PATTERN)]
        new = [path for path in found if path not in self._read]
        return sorted(new, key=lambda path: path.stat().st_mtime_ns)

    async def _take(self, path: Path) -> None:
        began = self._chronicle.clock.now()
        tp, rows = await to_the_end(read_file, path)
        self._read.add(path)
        name = path.parent.name
        self._begin_again(name, tp, rows[0][0])
        self._ends[name, tp] = max(self._ends.get((name, tp), 0), rows[-1][0] + 1)
        self._chronicle.read_by(name, began, {tp: rows}, GROUP)
        spans = tuple(Span(*tp, start, end - 1) for start, end in runs([offset for offset, _ in rows]))
        self._chronicle.append(Processed(self._chronicle.now(), name, GROUP, spans))
        self._processed[tp] = max(self._processed.get(tp, 0), rows[-1][0] + 1)


def read_file(path: Path) -> tuple[TopicPartition, Rows]:
    """A file of the handler `file`: records of one partition, in their order, at least one."""
    rows: list[tuple[int, str]] = []
    record: dict[str, Any] = {}
    with path.open("rb") as file:
        for line in file:
            record = json.loads(line)
            headers = [(name, _bytes(value)) for name, value in record["headers"]]
            name = name_of(_bytes(record["key"]), _bytes(record["value"]), headers, record["timestamp_ms"])
            rows.append((record["offset"], name))
    return TopicPartition(record["topic"], record["partition"]), rows


def _bytes(field: Any) -> bytes | None:
    """A field is text, {"base64": ...} if its bytes are no text, or null."""
    if field is None or isinstance(field, str):
        return None if field is None else field.encode()
    return b64decode(field["base64"])


def listed(partitions: Collection[TopicPartition]) -> str:
    return " ".join(str(tp.partition) for tp in sorted(partitions)) or "none"
