"""Looks at the cluster while a run goes on and writes what it sees to samples.jsonl (chaos/samples.py states its lines).

Each source has a loop of its own, so that one that hangs delays nobody else's look: the states of the processes as the cluster
tells them, partitions and groups as a client is told of them, and from the metrics of each broker and controller what it
believes itself. Metrics are formatted beside a process's event loop, and only the few families used here are asked for.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Measured

from tidelog.chaos import samples as s
from tidelog.chaos.lines import Lines
from tidelog.client.admin import Admin
from tidelog.cluster.api import (
    BROKER,
    CONTROLLER,
    ZOOKEEPER,
    Cluster,
    ClusterError,
    ProcessStatus,
    bootstrap_servers,
    kind_of,
)
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_OFFSET, Address
from tidelog.ports.clock import Clock
from tidelog.runtime.tasks import Supervisor

PERIOD_S: Final = 0.4
"""Between two looks at one source: a failover of two seconds shows its steps."""
ANSWER_WITHIN_S: Final = 1.0
REPLICA_METRICS: Final = {
    "tidelog_partition_leader_epoch": "leader_epoch",
    "tidelog_partition_log_start_offset": "log_start",
    "tidelog_partition_high_watermark": "high_watermark",
    "tidelog_partition_log_end_offset": "log_end",
    "tidelog_partition_isr_size": "isr_size",
}
"""By the field of Replica that each fills."""
EXPIRATIONS: Final = "tidelog_zk_session_expirations_total"
ELECTIONS: Final = "tidelog_controller_leader_elections_total"
UNCLEAN: Final = "tidelog_controller_unclean_leader_elections_total"
ACTIVE: Final = "tidelog_controller_active"
EPOCH: Final = "tidelog_controller_epoch"

Ask = Callable[[], Awaitable[s.Sample]]
"""When it was asked, and how long it took, is added by who asks."""


class Observer:
    """Runs between `start` and `stop`; as a context manager too."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        began: float,
        path: Path,
        *,
        topics: Collection[str],
        groups: Collection[str] = (),
        period_s: float = PERIOD_S,
        on_sample: Callable[[s.Sample], None] = lambda sample: None,
    ) -> None:
        """`began`: what `clock` said at the run's 0. `on_sample` is called with each look right after it was written."""
        self._cluster = cluster
        self._clock = clock
        self._began = began
        self._path = path
        self._topics = tuple(topics)
        self._groups = tuple(groups)
        self._period_s = period_s
        self._on_sample = on_sample
        self._supervisor = Supervisor("observer")
        self._addresses: dict[str, Address] = {}
        """Where each process tells of itself; learnt again and again, since a container may come back elsewhere."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Truncates the file."""
        self._lines = Lines(self._path, buffered=False)
        self._admin = Admin(bootstrap_servers(self._cluster), request_timeout_ms=int(ANSWER_WITHIN_S * 1000))
        sources = list(self._sources(await asyncio.to_thread(self._cluster.names)))
        for number, (name, ask) in enumerate(sources):
            first = number * self._period_s / len(sources)  # spread, so that they do not all ask at once
            self._supervisor.start(name, self._watch(name, ask, first))

    async def stop(self) -> None:
        """TaskFailed when it has ended before by a mistake of its own, OSError of a full disk: then samples are missing."""
        await self._supervisor.stop()
        await self._admin.stop()
        self._lines.close()
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    def _sources(self, names: Sequence[str]) -> Iterator[tuple[str, Ask]]:
        yield s.PROCESSES, self._ask_processes
        yield s.CLUSTER, self._ask_partitions
        for group in self._groups:
            yield s.group_source(group), partial(self._ask_group, group)
        by_kind = {BROKER: self._ask_broker, CONTROLLER: self._ask_controller, ZOOKEEPER: self._ask_zookeeper}
        for name in names:
            if ask := by_kind.get(kind_of(name)):
                yield name, partial(ask, name)

    async def _watch(self, source: str, ask: Ask, first_s: float) -> None:
        await self._clock.sleep(first_s)
        while True:
            asked = self._clock.now()
            sample = await self._look(source, ask)
            answered = self._clock.now()
            sample = replace(sample, t=asked - self._began, took=answered - asked)
            self._lines.write(s.to_line(sample))
            self._on_sample(sample)
            await self._clock.sleep(max(0.0, asked + self._period_s - answered))

    async def _look(self, source: str, ask: Ask) -> s.Sample:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await ask()
        except TimeoutError:
            why = f"no answer within {ANSWER_WITHIN_S:g} s"
        except (OSError, ValueError, ClusterError, TidelogError, TransportError) as error:
            why = str(error) or type(error).__name__
        return s.Silent(source=source, why=why)

    async def _ask_processes(self) -> s.Sample:
        rows = await asyncio.to_thread(self._cluster.status)
        self._addresses = {row.name: address for row in rows if (address := _tells_at(row)) is not None}
        return s.ProcessStates(states={row.name: row.state.value for row in rows})

    async def _ask_partitions(self) -> s.Sample:
        topics = await self._admin.describe_topics(self._topics)
        known = (topic for topic in topics if topic.error_code is ErrorCode.NONE)
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
                for topic in known
                for p in topic.partitions
            ]
        )

    async def _ask_group(self, group_id: str) -> s.Sample:
        group = await self._admin.groups.describe_one(group_id)
        return s.GroupLook(
            group=group_id,
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

    async def _ask_broker(self, name: str) -> s.Sample:
        found = await self._metrics(name, (*REPLICA_METRICS, EXPIRATIONS))
        expirations, replicas = broker_state(found, self._topics)
        return s.BrokerLook(process=name, session_expirations=expirations, replicas=replicas)

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


def broker_state(found: Collection[Measured], topics: Collection[str]) -> tuple[int, list[s.Replica]]:
    """Sessions that expired, and the replicas; of these topics."""
    values: dict[tuple[str, int], dict[str, int]] = {}
    for each in found:
        field = REPLICA_METRICS.get(each.name)
        if field is not None and each.labels["topic"] in topics:
            replica = each.labels["topic"], int(each.labels["partition"])
            values.setdefault(replica, {})[field] = int(each.value)
    replicas = [s.Replica(topic=t, partition=p, **fields) for (t, p), fields in sorted(values.items())]
    return total(found, EXPIRATIONS), replicas


def zookeeper_role(answer: str) -> str:
    """What `srvr` says; empty while the server is in no quorum."""
    found = re.search(r"^Mode: (\w+)$", answer, re.MULTILINE)
    return found[1] if found else ""
