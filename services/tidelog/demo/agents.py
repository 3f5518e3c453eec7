"""Two agents of one group process what the run sends; one is killed, and the other takes over what it owned."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tidelog.chaos.ledger import SEQUENCE, SEQUENCE_HEADER, Findings, Ledger, PartitionCheck, digest
from tidelog.client.admin import AdminClient
from tidelog.client.offsets import LATEST
from tidelog.cluster.api import AGENT, Cluster, ClusterError
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.runtime.tasks import Supervisor

GROUP: Final = "demo-agents"
VICTIM: Final = "agent-1"
HEIR: Final = "agent-2"
AGENTS: Final = (VICTIM, HEIR)

SHARED_WITHIN_S: Final = 60.0
MOVED_WITHIN_S: Final = 60.0
PROCESSED_WITHIN_S: Final = 300.0
LOOK_AGAIN_S: Final = 0.1

PROCESSED: Final = np.dtype([("digest", "<u8"), ("offset", "<i8"), ("number", "<i8"), ("partition", "<i4")])

Owned = Mapping[str, Collection[int]]
"""Partitions of the topic, by agent."""


def settings(topic: str, folder: Path) -> dict[str, dict[str, str]]:
    """Of a cluster with these agents: each writes what it has processed to a directory of its own below `folder`."""
    common = {
        "group_id": GROUP,
        "topics": topic,
        "handler": "file",
        "chunk_records": "500",
        "commit_interval_ms": "1000",
    }
    own = {name: {"file_directory": str(folder / name)} for name in AGENTS}
    return {AGENT: common, **own}


@dataclass(frozen=True, slots=True)
class Takeover:
    before: Owned
    after: Owned
    seconds: float
    """From the kill until the survivor owned everything: the session of the dead one, and a rebalance."""


class Agents:
    """Kills one of the two once half is sent."""

    def __init__(
        self,
        cluster: Cluster,
        admin: AdminClient,
        topic: str,
        partitions: int,
        clock: Clock,
        say: Callable[[str], None],
        note: Callable[[str, str], None],
    ) -> None:
        """`note` is told each step of the fault and its target."""
        self._cluster = cluster
        self._note = note
        self._admin = admin
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._clock = clock
        self._say = say
        self._before: Owned = {}
        self._supervisor = Supervisor("demo agents")
        self._moving: asyncio.Task[Takeover | None] | None = None

    async def until_shared(self) -> None:
        """Each owns a part, and together they own everything."""
        shared = "the agents do not share the partitions"
        self._before = await self._until(lambda owned: all(owned.values()), SHARED_WITHIN_S, shared)
        for name in AGENTS:
            self._say(f"{name} owns partitions {listed(self._before[name])}")

    async def at(self, part: float, sent: int) -> None:
        """`part` of the source has been sent, from 0 to 1."""
        if part >= 0.5 and self._moving is None:
            self._note("begin", VICTIM)
            await asyncio.to_thread(self._cluster.kill, VICTIM)
            self._note("effect", VICTIM)
            owned = len(self._before[VICTIM])
            self._say(f"killed {VICTIM}, owner of {owned} partitions, with SIGKILL after {sent:,} records")
            self._moving = self._supervisor.start("takeover", self._take_over())

    async def takeover(self) -> Takeover:
        assert self._moving is not None
        found = await self._moving
        if found is None:
            await self._supervisor.wait()
        assert found is not None
        return found

    async def until_all_processed(self) -> None:
        """Committed is what is in the agents' files."""
        ends = await self._admin.list_offsets(dict.fromkeys(self._partitions, LATEST))
        deadline = self._clock.now() + PROCESSED_WITHIN_S
        while True:
            committed = await self._admin.groups.committed(GROUP, self._partitions)
            if all(
                end.offset == 0 or (tp in committed and committed[tp].offset >= end.offset) for tp, end in ends.items()
            ):
                return
            if self._clock.now() > deadline:
                raise ClusterError(f"{HEIR} has not processed everything within {PROCESSED_WITHIN_S:.0f} s")
            await self._clock.sleep(LOOK_AGAIN_S)

    async def close(self) -> None:
        await self._supervisor.stop()

    async def _take_over(self) -> Takeover:
        killed_at = self._clock.now()
        after = await self._until(
            lambda owned: not owned[VICTIM], MOVED_WITHIN_S, f"{HEIR} has not taken over what {VICTIM} owned"
        )
        seconds = self._clock.now() - killed_at
        self._say(f"{HEIR} owns partitions {listed(after[HEIR])}")
        return Takeover(self._before, after, seconds)

    async def _until(self, condition: Callable[[Owned], bool], limit_s: float, otherwise: str) -> Owned:
        """Until everything is owned, and so."""
        deadline = self._clock.now() + limit_s
        while True:
            owned = await self._owned()
            if sum(map(len, owned.values())) == len(self._partitions) and condition(owned):
                return owned
            if self._clock.now() > deadline:
                raise ClusterError(f"{otherwise} after {limit_s:.0f} s")
            await self._clock.sleep(LOOK_AGAIN_S)

    async def _owned(self) -> Owned:
        owned: dict[str, list[int]] = {name: [] for name in AGENTS}
        try:
            members = await self._admin.groups.members(GROUP)
        except TidelogError:
            return owned  # it is not there yet, or its coordinator is not
        for member in members:
            owned[member.client_id if member.client_id in owned else _agent_of(member.consumer_id)] += [
                each.partition for each in member.partitions
            ]
        return owned


def _agent_of(consumer_id: str) -> str:
    """A member that is not connected is known by its id only, which begins with the agent's."""
    return next(name for name in AGENTS if consumer_id == name or consumer_id.startswith(f"{name}-"))


def listed(partitions: Collection[int]) -> str:
    return " ".join(map(str, sorted(partitions))) or "none"


# -- what they have processed ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Processed:
    by_agent: Mapping[str, int]
    """Records, once for each time."""
    again: int
    """Records that were processed more than once: at least once is the promise."""
    found: Findings
    """The comparison of what was processed at all with what was sent."""


def compare(folder: Path, partitions: int, ledger: Path) -> Processed:
    """`ledger` is closed, and the agents have nothing left to do."""
    entries = Ledger.open(ledger).entries
    rows = {name: np.fromiter(_rows(folder / name), PROCESSED) for name in AGENTS}
    everything = np.concatenate(list(rows.values()))
    found = Findings()
    once = 0
    for partition in range(partitions):
        check = PartitionCheck(entries, partition)
        mine = _by_offset(everything[everything["partition"] == partition])
        once += len(mine)
        check.feed(mine["offset"], mine["number"], mine["digest"])
        found += check.finish()
    return Processed({name: len(each) for name, each in rows.items()}, len(everything) - once, found)


def _by_offset(rows: NDArray[Any]) -> NDArray[Any]:
    """Each once, but for copies that differ, of which one cannot be what was sent."""
    return np.unique(rows[["offset", "number", "digest"]])


def _rows(folder: Path) -> Iterator[tuple[int, int, int, int]]:
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                record = json.loads(line)
                numbers = [_bytes(value) or b"" for name, value in record["headers"] if name == SEQUENCE_HEADER]
                number = SEQUENCE.unpack(numbers[0])[0] if [len(each) for each in numbers] == [SEQUENCE.size] else -1
                found = digest(_bytes(record["key"]), _bytes(record["value"]))
                yield found, record["offset"], number, record["partition"]


def _bytes(field: Any) -> bytes | None:
    """As the handler `file` writes it: text, {"base64": ...} for what is none, or null."""
    if field is None or isinstance(field, str):
        return None if field is None else field.encode()
    return b64decode(field["base64"])
