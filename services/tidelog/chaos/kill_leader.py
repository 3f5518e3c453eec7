"""Row 1 of the fault matrix (reliability 9): SIGKILL of a partition's leader under a load with acks=all and min ISR 2.

Promised: no record is duplicated, no acknowledged one lost or reordered, one new leader epoch, and the partition accepts
writes again within a session timeout and an election.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.chaos.faults.base import FaultMissed
from tidelog.chaos.ledger import SEQUENCE_HEADER, Findings, Ledger, Outcome
from tidelog.chaos.load import VerifiedSender
from tidelog.chaos.readback import read_back
from tidelog.client.admin import AdminClient
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import Cluster, ClusterError, State, bootstrap_servers, broker_name
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.rand import Rand
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m

PARTITIONS: Final = 3
REPLICATION_FACTOR: Final = 3
MIN_ISR: Final = 2
VALUE_BYTES: Final = 100
TICK_S: Final = 0.01
LED_WITHIN_S: Final = 30.0
FULL_WITHIN_S: Final = 90.0
UNAVAILABLE_MAX_S: Final = 8.0
"""The session timeout (6 s) and an election (2 s)."""


@dataclass(frozen=True, slots=True)
class Scenario:
    topic: str
    partition: int = 0
    records_per_s: int = 1_000
    before_s: float = 3.0
    down_s: float = 5.0
    after_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Verdict:
    victim: str
    sent: int
    acked: int
    refused: int
    unknown: int
    found: Findings
    elections: int
    """Leader epochs that the partition went through, the restart included."""
    longest_without_ack_s: float
    """Of the partition whose leader was killed."""
    full_isr_s: float

    def broken(self) -> list[str]:
        """The promises that were not kept."""
        names = ("lost", "duplicated", "out_of_order", "altered", "misplaced", "foreign")
        counts = [(getattr(self.found, name), name.replace("_", " ")) for name in names]
        problems = [f"{count} {name}" for count, name in counts if count]
        if self.longest_without_ack_s > UNAVAILABLE_MAX_S:
            problems.append(f"unavailable for {self.longest_without_ack_s:.1f} s, promised {UNAVAILABLE_MAX_S:g} s")
        return problems


@dataclass(slots=True)
class KillLeader:
    """One run; `ledger` is closed at its end."""

    cluster: Cluster
    scenario: Scenario
    ledger: Ledger
    clock: Clock
    rand: Rand
    say: Callable[[str], None]

    async def run(self) -> Verdict:
        """Leaves the cluster as it was, whatever happens. FaultMissed or ClusterError when there is no verdict."""
        scenario = self.scenario
        servers = bootstrap_servers(self.cluster)
        header = f"{SEQUENCE_HEADER}-{self.rand.randbytes(4).hex()}"  # tells this run's records from all others
        async with AdminClient(servers) as admin, Consumer(servers) as consumer:
            before = await self._topic(admin)
            partitions = [TopicPartition(scenario.topic, p.partition) for p in before.partitions]
            starts = await consumer.end_offsets(partitions)
            async with Producer(servers, acks="all") as producer:
                sender = VerifiedSender(producer, scenario.topic, self.ledger, self.clock, header)
                victim, full_isr_s = await self._under_load(admin, sender, len(partitions))
                await producer.flush()
            self.ledger.close()
            after = await admin.describe_topic(scenario.topic)
            self.say("reading everything back")
            found = await read_back(consumer, self.ledger, starts, header)
        epochs = [topic.partitions[scenario.partition].leader_epoch for topic in (before, after)]
        return Verdict(
            victim=victim,
            sent=len(self.ledger),
            acked=self.ledger.count(Outcome.ACKED),
            refused=self.ledger.count(Outcome.REFUSED),
            unknown=self.ledger.count(Outcome.PENDING),
            found=found,
            elections=epochs[1] - epochs[0],
            longest_without_ack_s=sender.stalls.worst_s([scenario.partition]),
            full_isr_s=full_isr_s,
        )

    async def _topic(self, admin: AdminClient) -> m.TopicDescription:
        """The topic, led and in sync; created if it is not there."""
        topic = self.scenario.topic
        try:
            await admin.describe_topic(topic)
        except TidelogError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            configs = {"min.insync.replicas": str(MIN_ISR)}
            await admin.create_topic(topic, PARTITIONS, REPLICATION_FACTOR, configs=configs)
            self.say(f"created topic {topic}")
        described = await admin.wait_until_led(topic, in_sync=True, timeout_s=LED_WITHIN_S)
        if self.scenario.partition >= len(described.partitions):
            raise ClusterError(f"topic {topic} has partitions 0 to {len(described.partitions) - 1}")
        return described

    async def _under_load(self, admin: AdminClient, sender: VerifiedSender, partitions: int) -> tuple[str, float]:
        supervisor = Supervisor("chaos")
        supervisor.start("load", self._load(sender, partitions))
        try:
            self.say(f"{self.scenario.records_per_s:,} records/s with acks=all")
            await self.clock.sleep(self.scenario.before_s)
            return await self._kill_and_restart(admin)
        finally:
            await supervisor.stop()

    async def _kill_and_restart(self, admin: AdminClient) -> tuple[str, float]:
        scenario = self.scenario
        led = (await admin.describe_topic(scenario.topic)).partitions[scenario.partition]
        victim = broker_name(led.leader)
        try:
            await asyncio.to_thread(self.cluster.kill, victim)
            self._check_gone(victim)
            self.say(f"killed {victim}, leader of {scenario.topic}-{scenario.partition}, with SIGKILL")
            await self.clock.sleep(scenario.down_s)
            now = (await admin.describe_topic(scenario.topic)).partitions[scenario.partition]
            self.say(f"leader is {now.leader} in epoch {now.leader_epoch} (was {led.leader} in {led.leader_epoch})")
        finally:
            if self._state(victim) is State.STOPPED:
                # Not in a thread: a second Ctrl-C must find it started, not about to be.
                self.cluster.start(victim)
                self.say(f"restarted {victim}")
        restarted_at = self.clock.now()
        await admin.wait_until_led(scenario.topic, in_sync=True, timeout_s=FULL_WITHIN_S)
        full_isr_s = self.clock.now() - restarted_at
        self.say(f"every ISR is full after {full_isr_s:.1f} s")
        await self.clock.sleep(scenario.after_s)
        return victim, full_isr_s

    def _check_gone(self, victim: str) -> None:
        row = next(row for row in self.cluster.status() if row.name == victim)
        if row.state is not State.STOPPED or row.pid is not None:
            raise FaultMissed(f"{victim} was killed and is {row.state.value} as process {row.pid}")

    def _state(self, name: str) -> State:
        return next(row.state for row in self.cluster.status() if row.name == name)

    async def _load(self, sender: VerifiedSender, partitions: int) -> None:
        """Evenly over the partitions, at the scenario's rate; the buffer's back-pressure slows it while nobody leads."""
        started = self.clock.now()
        sent = 0
        while True:
            due = int((self.clock.now() - started) * self.scenario.records_per_s)
            for number in range(sent, due):
                await sender.send(None, self.rand.randbytes(VALUE_BYTES), number % partitions)
            sent = max(sent, due)
            await self.clock.sleep(TICK_S)
