"""A group of agents, each a process of its own, that work off a topic under load while a test plays faults.

Inside `working_group` a test starts agents, kills and stops them; whatever it plays is checked behind it: every acknowledged
record was processed, and no committed offset ever went back.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from helpers import recorder
from helpers.cluster import unique_topic
from helpers.loads import Load
from helpers.metrics import metric
from helpers.stored import stored_by
from tidelog.client.admin import Admin
from tidelog.cluster.api import BROKER, State, bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.os_process import OsProcess, tail
from tidelog.coordinator.election import rank
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

T = TypeVar("T")

TESTS: Final = Path(__file__).parent.parent
WITHIN_S: Final = 60.0
"""How long anything may take that a fault does not keep from happening."""
POLL_S: Final = 0.1
DRIFT_S: Final = 0.05
"""How much longer than a session timeout a partition is kept for its owner: 1 % of the sessions here, and 20 ms."""
COMMIT_INTERVAL_S: Final = 0.3
RECORDS_PER_S: Final = 60
SHARDS: Final = 8
"""As brokers make them by default."""
STABLE: Final = "Stable"
LOG_LINES: Final = 2_000
STOOD_STILL: Final = "this process did not run for"
SPREAD: Final = ((0, 1, 2), (1, 2, 0), (2, 0, 1)) * 2
"""Six partitions; every broker leads two."""


class Handled(NamedTuple):
    """A record whose processing began."""

    at: float
    agent: str
    tp: TopicPartition
    offset: int


@dataclass
class WorkingGroup:
    cluster: LocalCluster
    servers: str
    admin: Admin
    group_id: str
    session_s: float
    load: Load
    partitions: dict[str, int]
    """Of each topic that its members subscribe to."""
    commit_interval_s: float = COMMIT_INTERVAL_S
    agents: dict[str, OsProcess] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest that was ever seen."""
    went_back: list[str] = field(default_factory=list)
    _handled: dict[str, list[Handled]] = field(default_factory=dict)
    _read_to: dict[str, int] = field(default_factory=dict)

    # agents

    @property
    def directory(self) -> Path:
        """The group's own, whose processes end with the cluster's owner, however that ends."""
        return self.cluster.base

    def start(self, *names: str, takes_s: float = 0.0, **settings: str) -> None:
        for name in names:
            process = self.agents.get(name) or OsProcess(name, self.directory / f"{self.group_id}-{name}")
            self.agents[name] = process
            process.home.mkdir(exist_ok=True)
            process.start([sys.executable, "-m", "tidelog.agent"], self._environment(name, takes_s, settings))

    def _environment(self, name: str, takes_s: float, settings: Mapping[str, str]) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDELOG_")}
        wanted = {
            "bootstrap_servers": self.servers,
            "group_id": self.group_id,
            "agent_id": name,
            "handler": "helpers.recorder:record",
            "session_timeout_ms": str(round(self.session_s * 1000)),
            "commit_interval_ms": str(round(self.commit_interval_s * 1000)),
            "chunk_records": "1",  # what it has begun when it is stopped or killed is one record
        }
        if "pattern" not in settings:
            wanted["topics"] = ",".join(self.partitions)
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        own = {recorder.FILE: str(self._file(name)), recorder.TAKES_S: str(takes_s), "PYTHONPATH": path}
        return inherited | own | {f"TIDELOG_{key.upper()}": value for key, value in {**wanted, **settings}.items()}

    def _file(self, name: str) -> Path:
        return self.agents[name].home / "handled"

    async def do(self, act: Callable[..., object], *arguments: object) -> None:
        """A fault, beside the load."""
        await asyncio.to_thread(act, *arguments)

    # what was processed

    def handled(self, *names: str) -> list[Handled]:
        """In order of time; of these agents, or of all."""
        for name in names or self.agents:
            self._read_on(name)
        return sorted(each for name in names or self.agents for each in self._handled[name])

    def _read_on(self, name: str) -> None:
        """What came since the last look."""
        known = self._handled.setdefault(name, [])
        if not self._file(name).exists():
            return
        with self._file(name).open("rb") as lines:
            lines.seek(self._read_to.get(name, 0))
            for line in lines:
                at, topic, partition, offset = line.decode().split()
                known.append(Handled(float(at), name, TopicPartition(topic, int(partition)), int(offset)))
            self._read_to[name] = lines.tell()

    def owners(self, since: float) -> dict[TopicPartition, list[str]]:
        """Who processed each partition, one after the other. Two at one time would take turns again and again."""
        by_partition: defaultdict[TopicPartition, list[str]] = defaultdict(list)
        for each in self.handled():
            if each.at > since:
                by_partition[each.tp].append(each.agent)
        return {tp: [name for name, _ in groupby(names)] for tp, names in by_partition.items()}

    def first_after(self, since: float, *names: str) -> dict[TopicPartition, Handled]:
        """Of each partition, by one of these."""
        found: dict[TopicPartition, Handled] = {}
        for each in self.handled(*names):
            if each.at > since:
                found.setdefault(each.tp, each)
        return found

    def duplicates(self) -> dict[TopicPartition, int]:
        times = Counter((each.tp, each.offset) for each in self.handled())
        found: Counter[TopicPartition] = Counter()
        for (tp, _), count in times.items():
            found[tp] += count - 1
        return +found

    def pause_s(self, since: float) -> float:
        """The longest time for which some partition was not worked on."""
        times = {tp: [since] for tp in self.all_partitions}
        for each in self.handled():
            if each.at > since:
                times[each.tp].append(each.at)
        return max(after - before for at in times.values() for before, after in pairwise(at))

    # the group

    @property
    def all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, each) for topic, count in self.partitions.items() for each in range(count)]

    async def described(self) -> m.DescribedGroup:
        return await self.admin.groups.describe_one(self.group_id)

    async def coordinator(self) -> str:
        return broker_name((await self.described()).coordinator_id)

    async def settled(self, *names: str, timeout_s: float = WITHIN_S) -> m.DescribedGroup:
        """Once agents of these names and no others are its members and own each partition once."""

        async def is_settled() -> m.DescribedGroup | None:
            found = await self.described()
            owned = [(each.topic, each.partition) for member in found.members for each in member.partitions]
            right = sorted(member.client_id for member in found.members) == sorted(names) and found.state == STABLE
            return found if right and sorted(owned) == sorted(self.all_partitions) else None

        return await self.until(f"{', '.join(names)} in {self.group_id}", is_settled, timeout_s)

    async def until(self, what: str, holds: Callable[[], Awaitable[T | None]], timeout_s: float = WITHIN_S) -> T:
        """What `holds` gives, as soon as it is true. A coordinator that is being replaced is waited for."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if found := await holds():
                    return found
            except (TidelogError, TransportError) as error:
                seen: object = error
            else:
                seen = await self._seen()
            assert time.monotonic() < deadline, f"{timeout_s:g} s without: {what}; {seen}"
            await asyncio.sleep(POLL_S)

    async def _seen(self) -> object:
        try:
            return await self.described()
        except (TidelogError, TransportError) as error:
            return error

    async def all_work(self, since: float, *names: str, timeout_s: float = WITHIN_S) -> None:
        """Each partition was processed after `since`, by one of these, or of any."""
        wanted = set(self.all_partitions)

        async def work() -> bool:
            return wanted <= {each.tp for each in self.handled(*names) if each.at > since}

        await self.until("work on every partition", work, timeout_s)

    async def offsets(self) -> dict[TopicPartition, int]:
        found = await self.admin.groups.committed(self.group_id)
        return {tp: each.offset for tp, each in found.items()}

    async def all_commit(self) -> None:
        """Every partition has a committed offset beyond what it is now."""
        before = dict(self.committed)

        async def grown() -> bool:
            return all(self.committed.get(tp, 0) > before.get(tp, 0) for tp in self.all_partitions)

        await self.until("commits for every partition", grown)

    async def watch_commits(self) -> None:
        while True:
            try:
                now = await self.offsets()
            except (TidelogError, TransportError):
                now = {}  # nobody coordinates it at this instant
            for tp, offset in now.items():
                if offset < self.committed.get(tp, 0):
                    self.went_back.append(f"{tp}: {self.committed[tp]} to {offset}")
                self.committed[tp] = max(offset, self.committed.get(tp, 0))
            await asyncio.sleep(POLL_S)

    async def processed_everything(self) -> None:
        """Each acknowledged record of the load at least once, and nothing else is in the log."""
        acked, topic = self.load.acked, self.load.topic
        assert acked == self.load.sent > 0, "whatever was refused for a while is acknowledged in the end"

        def seen() -> set[tuple[int, int]]:
            return {(each.tp.partition, each.offset) for each in self.handled() if each.tp.topic == topic}

        async def done() -> bool:
            return len(seen()) >= acked

        await self.until(f"{acked} processed records", done)
        count = Counter(partition for partition, _ in seen())
        assert seen() == {(p, offset) for p in count for offset in range(count[p])}, "a record was skipped"
        assert count.total() == acked

    def end(self) -> None:
        for process in self.agents.values():
            if process.find() is not None:
                process.kill()

    def last_words(self) -> str:
        return "\n".join(f"--- {name}\n{tail(process.log_file, 40)}" for name, process in self.agents.items())


@asynccontextmanager
async def working_group(
    cluster: LocalCluster,
    directory: Path,
    *agents: str,
    session_s: float,
    group_id: str = "",
    assignment: Sequence[Sequence[int]] = SPREAD,
    records_per_s: int = RECORDS_PER_S,
    commit_interval_s: float = COMMIT_INTERVAL_S,
    **settings: Any,
) -> AsyncIterator[WorkingGroup]:
    """The agents work on every partition when it begins. `settings`: as `WorkingGroup.start` takes them."""
    servers, topic = bootstrap_servers(cluster), unique_topic("worked")
    await shards_settled(cluster)
    load = Load(topic, len(assignment), "all", directory, records_per_s, request_timeout_ms=2_000)
    async with Admin(servers) as admin:
        await admin.create_topic(topic, assignment=assignment)
        await admin.wait_until_led(topic, in_sync=True, timeout_s=WITHIN_S)
        group_id = group_id or unique_topic("group")
        partitions = {topic: len(assignment)}
        group = WorkingGroup(cluster, servers, admin, group_id, session_s, load, partitions, commit_interval_s)
        watcher = asyncio.create_task(group.watch_commits())
        try:
            async with load.running(servers):
                if agents:
                    group.start(*agents, **settings)
                    await group.settled(*agents)
                    await group.all_work(time.monotonic())
                yield group
            await group.processed_everything()
            assert group.went_back == []  # committed offsets are kept
        except BaseException as error:
            error.add_note(group.last_words())
            raise
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])
            await asyncio.to_thread(group.end)


def owned_by(group: m.DescribedGroup, name: str) -> set[TopicPartition]:
    """By agents of that name."""
    members = [each for each in group.members if each.client_id == name]
    return {TopicPartition(each.topic, each.partition) for member in members for each in member.partitions}


def given_for_pauses_s(cluster: LocalCluster, since: float) -> float:
    """By how much leases may be longer, because a broker stood still since then: as a coordinator it gives twice the time that it
    lost, and writes down how much that was."""
    began = datetime.now(UTC) - timedelta(seconds=time.monotonic() - since)

    def lost_s(name: str) -> float:
        found = [json.loads(line) for line in cluster.logs(name, LOG_LINES).splitlines() if STOOD_STILL in line]
        return sum(
            float(each["event"].split()[-2]) for each in found if datetime.fromisoformat(each["timestamp"]) > began
        )

    return 2 * max(map(lost_s, cluster.names(BROKER)))


async def shards_settled(cluster: LocalCluster) -> None:
    """Until every shard is where it stays: after a restart they are given back, some ten seconds later."""
    live = range(len(cluster.names(BROKER)))
    deadline = time.monotonic() + WITHIN_S
    with stored_by(cluster) as stored:

        def held_by_its_first(shard: int) -> bool:
            held = stored.coordinator(shard)
            return held is not None and rank(shard, held[0], live) == 0

        while not all(map(held_by_its_first, range(SHARDS))):
            assert time.monotonic() < deadline, f"{WITHIN_S:g} s without every shard at its first broker"
            await asyncio.sleep(POLL_S)


async def groups_of_one_coordinator(cluster: LocalCluster, count: int) -> tuple[str, list[str]]:
    """A broker, and names of groups that it coordinates now."""
    brokers = {address: name for name, address in cluster.endpoints(BROKER).items()}
    found: defaultdict[str, list[str]] = defaultdict(list)
    await shards_settled(cluster)
    async with Admin(bootstrap_servers(cluster)) as admin:
        while True:
            group_id = unique_topic("group")
            try:
                broker = brokers[await admin.groups.coordinator(group_id)]
            except (TidelogError, TransportError):
                await asyncio.sleep(POLL_S)
                continue
            found[broker].append(group_id)
            if len(found[broker]) == count:
                return broker, found[broker]


def on_every_broker(cluster: LocalCluster, sample: str, **labels: str) -> float:
    """The sum over those that run."""
    running = [row.name for row in cluster.status() if row.kind == BROKER and row.state is State.RUNNING]
    return sum(metric(cluster, name, sample, **labels) for name in running)
