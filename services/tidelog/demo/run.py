"""The run: stream, kill the leader of partition 0 and an agent half way, restart the leader, wait until every ISR is full and
everything is processed, read back, compare."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from tidelog.chaos.ledger import Ledger, Outcome
from tidelog.chaos.load import VerifiedSender
from tidelog.client.admin import AdminClient
from tidelog.client.producer import Producer
from tidelog.cluster.api import Cluster, bootstrap_servers, broker_name
from tidelog.demo.agents import GROUP, VICTIM, Agents
from tidelog.demo.page import Recording
from tidelog.demo.records import Outgoing
from tidelog.demo.verdict import Streamed
from tidelog.ids import NO_EPOCH
from tidelog.ports.clock import Clock
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m

TOPIC: Final = "events"
PARTITIONS: Final = 12
REPLICATION_FACTOR: Final = 3
MIN_ISR: Final = 2
LED_WITHIN_S: Final = 30.0
FULL_WITHIN_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.1
LINGER_MS: Final = 5
BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Small, so that sending does not run far ahead of the log and half way is half way."""


class Watcher(Protocol):
    """Whoever looks on."""

    def progress(self, done: int) -> None:
        """In the unit of the source's total."""
        ...

    def say(self, what: str) -> None: ...


class Fault:
    """Kills the leader of partition 0 once half is sent, and starts it again after three quarters."""

    def __init__(
        self,
        cluster: Cluster,
        admin: AdminClient,
        clock: Clock,
        say: Callable[[str], None],
        note: Callable[[str, str], None],
    ) -> None:
        """`note` is told each step of the fault and its target."""
        self._cluster = cluster
        self._note = note
        self._admin = admin
        self._clock = clock
        self._say = say
        self._victim: str | None = None
        self._life = 0
        """Broker epoch of the victim before it was killed."""
        self._supervisor = Supervisor("demo")
        self._full: asyncio.Task[float | None] | None = None

    async def at(self, part: float, sent: int) -> None:
        """`part` of the source has been sent, from 0 to 1."""
        if part >= 0.5 and self._victim is None:
            leader = (await self._admin.describe_topic(TOPIC)).partitions[0].leader
            self._victim = broker_name(leader)
            self._life = await self._broker_epoch()
            self._note("begin", self._victim)
            await asyncio.to_thread(self._cluster.kill, self._victim)
            self._note("effect", self._victim)
            self._say(f"killed {self._victim}, leader of {TOPIC}-0, with SIGKILL after {sent:,} records")
        if part >= 0.75 and self._victim is not None and self._full is None:
            self._note("heal", self._victim)
            await asyncio.to_thread(self._cluster.start, self._victim)
            self._note("healed", self._victim)
            self._say(f"restarted {self._victim} after {sent:,} records")
            self._full = self._supervisor.start("until-full", self._until_full())

    async def full_isr_s(self) -> float:
        """Seconds from the restart until every ISR was full; TimeoutError when that takes over FULL_WITHIN_S."""
        assert self._full is not None
        took = await self._full
        if took is None:
            await self._supervisor.wait()
        assert took is not None
        return took

    async def close(self) -> None:
        await self._supervisor.stop()

    async def _until_full(self) -> float:
        """Counts only what is seen after the victim's new life has begun: until then its old place may look taken."""
        restarted_at = self._clock.now()
        async with asyncio.timeout(FULL_WITHIN_S):
            while await self._broker_epoch() in (NO_EPOCH, self._life) or not _full(
                await self._admin.describe_topic(TOPIC)
            ):
                await self._clock.sleep(LOOK_AGAIN_S)
        self._say("every ISR is full again")
        return self._clock.now() - restarted_at

    async def _broker_epoch(self) -> int:
        members = (await self._admin.describe_cluster()).brokers
        return next(
            (x.broker.broker_epoch for x in members if broker_name(x.broker.broker_id) == self._victim), NO_EPOCH
        )


async def stream(
    cluster: Cluster,
    records: Iterable[Outgoing],
    total: int,
    ledger: Ledger,
    clock: Clock,
    watcher: Watcher,
    recording: Recording,
) -> Streamed:
    """`total` is what `done` of the last record will be; `ledger` is closed at the end."""
    servers = bootstrap_servers(cluster)
    async with AdminClient(servers) as admin:
        configs = {"min.insync.replicas": str(MIN_ISR)}
        await admin.create_topic(TOPIC, PARTITIONS, REPLICATION_FACTOR, configs=configs)
        before = await admin.wait_until_led(TOPIC, in_sync=True, timeout_s=LED_WITHIN_S)
        watcher.say(f"created topic {TOPIC}: {PARTITIONS} partitions, {REPLICATION_FACTOR} replicas, min ISR {MIN_ISR}")
        fault = Fault(cluster, admin, clock, watcher.say, partial(recording.fault, 1, f"kill leader of {TOPIC}-0"))
        agents = Agents(
            cluster, admin, TOPIC, PARTITIONS, clock, watcher.say, partial(recording.fault, 2, f"kill {VICTIM}")
        )
        try:
            async with recording.observer(cluster, TOPIC, GROUP):
                recording.phase("set up")
                await agents.until_shared()
                recording.phase("send")
                started = clock.now()
                async with Producer(servers, acks="all", linger_ms=LINGER_MS, buffer_bytes=BUFFER_BYTES) as producer:
                    sender = VerifiedSender(producer, TOPIC, ledger, clock, on_outcome=recording.outcome)
                    await _send_all(records, total, sender, ledger, watcher, (agents, fault))
                    await producer.flush()
                    seconds = clock.now() - started
                recording.phase("recover")
                full_isr_s = await fault.full_isr_s()
                takeover = await agents.takeover()
                await agents.until_all_processed()
                recording.end()
            watcher.say("everything is processed")
        finally:
            await fault.close()
            await agents.close()
        ledger.close()
        after = await admin.describe_topic(TOPIC)
    return Streamed(
        sent=len(ledger),
        acked=ledger.count(Outcome.ACKED),
        refused=ledger.count(Outcome.REFUSED),
        unknown=ledger.count(Outcome.PENDING),
        elections=_epochs(after) - _epochs(before),
        longest_without_ack_s=sender.stalls.worst_s(),
        full_isr_s=full_isr_s,
        seconds=seconds,
        takeover=takeover,
        stalls=sender.stalls.longest,
    )


async def _send_all(
    records: Iterable[Outgoing],
    total: int,
    sender: VerifiedSender,
    ledger: Ledger,
    watcher: Watcher,
    faults: Sequence[Agents | Fault],
) -> None:
    for record in records:
        if record.too_long_bytes:
            sender.refuse()
        else:
            await sender.send(record.key, record.value)
        watcher.progress(record.done)
        for fault in faults:
            await fault.at(record.done / total, len(ledger))
    for fault in faults:
        await fault.at(1.0, len(ledger))


def _full(topic: m.TopicDescription) -> bool:
    return all(set(partition.isr) == set(partition.replicas) for partition in topic.partitions)


def _epochs(topic: m.TopicDescription) -> int:
    """A leader epoch counts the elections of its partition."""
    return sum(partition.leader_epoch for partition in topic.partitions)
