"""Looks at the cluster while a run goes on and writes what it sees to samples.jsonl (chaos/samples.py states its lines).

Partitions, replicas and groups come from the ClusterObserver. What no broker tells a client is asked here, each source in a loop
of its own: the states of processes, what ZooKeeper servers do, and from metrics what controllers and ZooKeeper sessions do.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Measured

from tidelog.chaos import samples as s
from tidelog.chaos.lines import Lines
from tidelog.client.connections import ClientPorts
from tidelog.client.observer import ANSWER_S, ClusterObserver, repeat
from tidelog.client.overview import ClusterLook, GroupsLook, Look, ReplicasLook
from tidelog.cluster.api import (
    BROKER,
    CONTROLLER,
    ZOOKEEPER,
    Cluster,
    ClusterError,
    ProcessStatus,
    bootstrap_servers,
    broker_name,
    kind_of,
)
from tidelog.ids import NO_OFFSET, Address
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m

T = TypeVar("T")

PERIOD_S: Final = 0.4
"""Between two looks at one source: a failover of two seconds shows its steps."""
EXPIRATIONS: Final = "tidelog_zk_session_expirations_total"
ELECTIONS: Final = "tidelog_controller_leader_elections_total"
UNCLEAN: Final = "tidelog_controller_unclean_leader_elections_total"
ACTIVE: Final = "tidelog_controller_active"
EPOCH: Final = "tidelog_controller_epoch"


class Observer:
    """Runs between `start` and `stop`; as a context manager too."""

    def __init__(
        self,
        cluster: Cluster,
        ports: ClientPorts,
        began: float,
        path: Path,
        *,
        topics: Collection[str],
        groups: Collection[str] = (),
        period_s: float = PERIOD_S,
        on_sample: Callable[[s.Sample], None] = lambda sample: None,
    ) -> None:
        """`began`: what the clock said at the run's 0. `on_sample` is called with each look right after it was written."""
        self._cluster = cluster
        self._clock = ports.clock
        self._began = began
        self._path = path
        self._groups = tuple(groups)
        self._period_s = period_s
        self._on_sample = on_sample
        self._brokers = ClusterObserver(
            bootstrap_servers(cluster),
            ports,
            period_s,
            topics=frozenset(topics).__contains__,
            groups=self._groups.__contains__,
            on_look=self._looked,
        )
        self._supervisor = Supervisor("observer")
        self._expirations: dict[str, int | None] = {}
        """Session expirations that the metrics of each broker count; None while they give no answer."""
        self._addresses: Mapping[str, Address] = {}
        """Where each process tells of itself; learnt again and again, since a container may come back elsewhere."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Truncates the file."""
        self._lines = Lines(self._path, buffered=False)
        await self._look(s.PROCESSES, self._ask_processes)  # the others need addresses
        sources = list(self._sources(await asyncio.to_thread(self._cluster.names)))
        for number, (name, look) in enumerate(sources):
            first = number * self._period_s / len(sources)  # spread, so that they do not all ask at once
            self._supervisor.start(name, self._watch(look, first))
        self._brokers.start()

    async def stop(self) -> None:
        """TaskFailed when it has ended before by a mistake of its own, OSError of a full disk: then samples are missing."""
        await self._supervisor.stop()
        try:
            await self._brokers.stop()
        finally:
            self._lines.close()
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    def _sources(self, names: Iterable[str]) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        asks = {CONTROLLER: self._ask_controller, ZOOKEEPER: self._ask_zookeeper}
        for name in names:
            if kind_of(name) == BROKER:
                yield name, partial(self._look_at_session, name)
            elif ask := asks.get(kind_of(name)):
                yield name, partial(self._look, name, partial(ask, name))
        yield s.PROCESSES, partial(self._look, s.PROCESSES, self._ask_processes)

    async def _watch(self, look: Callable[[], Awaitable[None]], first_s: float) -> None:
        await self._clock.sleep(first_s)
        await repeat(self._clock, self._period_s, look)

    async def _look(self, source: str, ask: Callable[[], Awaitable[s.Sample]]) -> None:
        asked = self._clock.now()
        answer = await _answer(ask())
        sample = s.Silent(source=source, why=answer) if isinstance(answer, str) else answer
        self._write(sample, asked, self._clock.now() - asked)

    def _write(self, sample: s.Sample, asked: float, took: float) -> None:
        sample = replace(sample, t=asked - self._began, took=took)
        self._lines.write(s.to_line(sample))
        self._on_sample(sample)

    # -- what a client is told ----------------------------------------------------------------------------------------

    def _looked(self, look: Look) -> None:
        for sample in self._samples(look):
            self._write(sample, look.asked, look.took)

    def _samples(self, look: Look) -> Iterator[s.Sample]:
        match look:
            case ClusterLook(problem=""):
                yield _partitions(look.topics)
            case ClusterLook():
                yield s.Silent(source=s.CLUSTER, why=look.problem)
            case ReplicasLook(problem=""):
                name = broker_name(look.broker)
                expirations = self._expirations.get(name)
                yield s.BrokerLook(process=name, session_expirations=expirations, replicas=_replicas(look))
            case ReplicasLook():
                yield s.Silent(source=broker_name(look.broker), why=look.problem)
            case GroupsLook():
                yield from self._group_samples(look)

    def _group_samples(self, look: GroupsLook) -> Iterator[s.Sample]:
        """Yields a sample of each group of which this broker was the last to tell, or none has told."""
        known = self._brokers.overview.groups
        for name in self._groups:
            seen = known.get(name)
            if seen is not None and seen.group.coordinator_id != look.broker:
                continue
            if seen is not None and seen.at == look.answered:
                yield _group(seen.group)
            else:
                yield s.Silent(source=s.group_source(name), why=look.problem or "no coordinator tells of it")

    # -- what no client is told ---------------------------------------------------------------------------------------

    async def _ask_processes(self) -> s.Sample:
        rows = await asyncio.to_thread(self._cluster.status)
        self._addresses = {row.name: address for row in rows if (address := _tells_at(row)) is not None}
        return s.ProcessStates(states={row.name: row.state.value for row in rows})

    async def _look_at_session(self, broker: str) -> None:
        answer = await _answer(self._metrics(broker, (EXPIRATIONS,)))
        self._expirations[broker] = None if isinstance(answer, str) else total(answer, EXPIRATIONS)

    async def _ask_controller(self, name: str) -> s.Sample:
        found = await self._metrics(name, (ACTIVE, EPOCH, ELECTIONS, UNCLEAN, EXPIRATIONS))
        return s.ControllerLook(
            process=name,
            active=total(found, ACTIVE) == 1,
            epoch=total(found, EPOCH),
            session_expirations=total(found, EXPIRATIONS),
            elections={each.labels["reason"]: int(each.value) for each in found if each.name == ELECTIONS},
            unclean_elections=total(found, UNCLEAN),
        )

    async def _ask_zookeeper(self, name: str) -> s.Sample:
        answer = await talk(self._address(name), b"srvr")
        return s.ZooKeeperLook(process=name, role=zookeeper_role(answer.decode(errors="replace")))

    async def _metrics(self, name: str, families: Collection[str]) -> list[Measured]:
        query = urlencode([("name[]", family) for family in families])
        answer = await talk(self._address(name), f"GET /metrics?{query} HTTP/1.0\r\n\r\n".encode())
        return measured(answer)

    def _address(self, name: str) -> Address:
        address = self._addresses.get(name)
        if address is None:
            raise ClusterError(f"{name} tells no address")
        return address


async def _answer(asked: Awaitable[T]) -> T | str:
    """The answer of a source, or the reason for which there is none."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asked
    except TimeoutError:
        return f"no answer within {ANSWER_S:g} s"
    except (OSError, ValueError, ClusterError) as error:
        return str(error) or type(error).__name__


def _tells_at(row: ProcessStatus) -> Address | None:
    return row.addresses.get("CLIENT" if row.kind == ZOOKEEPER else "METRICS")


async def talk(address: Address, request: bytes) -> bytes:
    """Everything that is said in answer, up to the end of the connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.transport.abort()  # a process that stands still would not take part in an orderly end


def measured(answer: bytes) -> list[Measured]:
    """The samples in an HTTP answer; ValueError when it is none, or a refusal."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].decode(errors="replace")
    if " 200 " not in f"{status} ":
        raise ValueError(f"no metrics: {status or 'an empty answer'}")
    families = text_string_to_metric_families(body.decode())
    return [sample for family in families for sample in family.samples]


def total(found: Iterable[Measured], name: str) -> int:
    return int(sum(each.value for each in found if each.name == name))


def _partitions(topics: Iterable[m.TopicDescription]) -> s.Partitions:
    return s.Partitions(
        partitions=[
            s.PartitionState(
                topic=topic.name,
                partition=p.partition,
                leader=p.leader,
                leader_epoch=p.leader_epoch,
                partition_epoch=p.partition_epoch,
                replicas=p.replicas,
                isr=p.isr,
                vetoed=p.vetoed,
            )
            for topic in topics
            for p in topic.partitions
        ]
    )


def _replicas(look: ReplicasLook) -> list[s.Replica]:
    return [
        s.Replica(
            topic=tp.topic,
            partition=tp.partition,
            leader_epoch=told.leader_epoch,
            log_start=told.own_log.log_start,
            high_watermark=told.own_log.high_watermark,
            log_end=told.offset,
            isr_size=told.own_log.isr_size or None,
        )
        for tp, told in sorted(look.replicas.items())
        if told.own_log is not None
    ]


def _group(group: m.DescribedGroup) -> s.GroupLook:
    return s.GroupLook(
        group=group.group_id,
        state=group.state,
        coordinator=group.coordinator_id,
        coordinator_epoch=group.coordinator_epoch,
        generation=group.generation,
        members=len(group.members),
        committed=[
            s.Committed(topic=o.topic, partition=o.partition, offset=o.offset)
            for o in group.offsets
            if o.offset != NO_OFFSET
        ],
    )


def zookeeper_role(answer: str) -> str:
    """What `srvr` says; empty while the server is in no quorum."""
    found = re.search(r"^Mode: (\w+)$", answer, re.MULTILINE)
    return found[1] if found else ""
