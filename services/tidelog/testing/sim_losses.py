"""A seeded run in which the last replicas in sync of a topic die or lose their disks, and unclean elections bring it back.

It is the story of the cluster and more. One topic takes records while a single replica is in sync. Either its configuration
allows unclean elections, or an operator asks for them, and now and then names the only brokers that may lead. Two numbered
producers write to it, and one consumer that lives through the whole run reads it. Its promises:

* The elected replica has the largest log of those that the controller knows, unless the operator has named others.
* Nothing that the elected log held is lost, and only an unclean election loses an acknowledged record.
* In the log the numbers of one producer rise, and the replicas are equal in the end.
* The consumer goes back only where an unclean election has cut the log. It comes to the end, and unless its policy is `latest`
  it has then read every record of the log as it is.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.errors import LogTruncationError, PositionOutOfRangeError
from tidelog.client.producer import Ack, Producer
from tidelog.client.records import ConsumerRecord
from tidelog.errors import TidelogError
from tidelog.ids import NO_EPOCH, NO_LEADER, TopicPartition
from tidelog.testing import goals
from tidelog.testing.disk import Crash
from tidelog.testing.invariants import Violation
from tidelog.testing.rand import seeded
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_edges import LOST, PRODUCERS, check_order
from tidelog.testing.sim_faults import Faults
from tidelog.testing.sim_node import SimNode, Timing
from tidelog.testing.sim_story import HEAL_S, Run, Watch, within
from tidelog.testing.unclean_watch import UncleanWatch
from tidelog.wire import znodes

FRAIL: Final = (TopicPartition("frail", 0), TopicPartition("frail", 1))
PACE_S: Final = 0.15
DISKS_MAX: Final = 4
"""Disks that are replaced, each with all that it held."""
LAG_MAX_MS: Final = 1_000
"""Longer ones leave time for one loss of a last replica."""
TRIES: Final = 12
"""Looks at whether a leader is alone in the ISR, once its followers are out of reach for as long as a lag is borne."""
STEP_S: Final = 0.3
RESETS: Final = ("earliest", "latest", "error")


class LossFaults(Faults):
    """All kinds of faults, and losses of the last replica in sync."""

    ROT_SHARE = 0.0

    def __init__(self, cluster: SimCluster) -> None:
        self._disks = 0
        self._busy_until = 0.0
        super().__init__(cluster)

    def _breaking(self) -> dict[str, Callable[[], bool]]:
        return {**super()._breaking(), "last replica": self._last_replica}

    def _drawn(self, kinds: Sequence[str]) -> Sequence[str]:
        """In half of the runs hardly anything else."""
        return ["last replica", *([self._one_of(kinds)] if self._maybe() else super()._drawn(kinds))]

    # What mends is held back while a replica is to become the last one, and while it is lost.

    def _busy(self) -> bool:
        return not self._over and asyncio.get_running_loop().time() < self._busy_until

    def _mend(self) -> None:
        if not self._busy():
            super()._mend()

    def _start(self) -> bool:
        return not self._busy() and super()._start()

    def _heal_links(self) -> bool:
        return not self._busy() and super()._heal_links()

    # -- the last replica ----------------------------------------------------------------------------------------------

    def _last_replica(self) -> bool:
        """A leader loses its followers for longer than a lag is borne, takes records alone, and is then lost itself."""
        if self._busy():
            return False
        tp = self._one_of(FRAIL)
        number = self._cluster.leader(tp)
        if number == NO_LEADER or not (leader := self._cluster.nodes[f"broker-{number}"]).running:
            return False
        lag_s, since_s = self._cluster.timing.lag_ms / 1000, 0.0
        for other in self._shuffled([node for node in self._cluster.brokers if node is not leader]):
            # One after the other, so that their logs differ.
            links = (leader.name, other.name), (other.name, leader.name)
            self._later(since_s, partial(self._cut_for, lag_s + TRIES * STEP_S, *links))
            since_s += self._between(0.2, 1.5)
        self._hold(since_s + lag_s + TRIES * STEP_S)
        how = self._one_of((self._depose, self._crash_alone, self._kill_alone, self._lose_disk, self._lose_disk))
        self._later(since_s + lag_s, partial(self._once_alone, tp, leader, TRIES, how))
        return self._say(f"{leader.name} is to be the last replica of {tp}")

    def _once_alone(self, tp: TopicPartition, leader: SimNode, tries: int, how: Callable[[SimNode], None]) -> None:
        """Some records later, so that only this replica has them."""
        node = self._cluster.zookeeper.find(znodes.state_path(tp.topic, tp.partition))
        if node is None or not leader.running or leader.terminating:
            return
        isr = [each.broker_id for each in znodes.decode_state(tp.topic, tp.partition, node.data).isr]
        if isr == [leader.number]:
            self._later(self._between(0.2, 1.0), partial(how, leader))
        elif tries:
            self._later(STEP_S, partial(self._once_alone, tp, leader, tries - 1, how))

    def _hold(self, seconds: float) -> float:
        self._busy_until = asyncio.get_running_loop().time() + seconds
        return seconds

    def _away_s(self) -> float:
        return self._hold(self._between(0.2, 3.0) * self._cluster.timing.session_ms / 1000)

    def _depose(self, node: SimNode) -> None:
        """It lives on, cut off from ZooKeeper."""
        node.cut_zookeeper()
        self._later(self._away_s(), node.heal_zookeeper)

    def _crash_alone(self, node: SimNode) -> None:
        self._end(node, self._crash())

    def _kill_alone(self, node: SimNode) -> None:
        self._end(node, Crash.PROCESS)

    def _lose_disk(self, node: SimNode) -> None:
        if self._end(node, Crash.PROCESS) and self._disks < DISKS_MAX:
            self._disks += 1
            node.replace_disk()

    def _end(self, node: SimNode, crash: Crash) -> bool:
        if not node.running or node.terminating:
            return False
        node.kill(crash)
        self._later(self._away_s(), partial(self._start_one, node))
        return True


class LossRun(Run):
    FAULT_S = 30.0
    """A last replica is lost some seconds after its followers, and missed some seconds later; so there are several losses."""

    RETURNS = False
    """Since the copy, an unclean election may have lost what had been acknowledged before it."""

    def __init__(self, seed: int) -> None:
        self._rand = seeded(seed, "losses")
        super().__init__(seed)
        self.watch = UncleanWatch(self.cluster.world, FRAIL[0].topic, self.cluster.observer.reached)
        self._consents = self._rand.random() < 0.3
        self._reset = RESETS[self._rand.randrange(len(RESETS))]
        self._numbers = dict.fromkeys(PRODUCERS, 0)
        self._acked: list[tuple[TopicPartition, int, bytes, float]] = []
        """Partition, offset and value of each acknowledged record, and when it was sent."""
        self._seen: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in FRAIL}
        """Records that the consumer read, without those that it was set back before."""
        self._epochs: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in FRAIL}
        """Their leader epochs."""
        self._next = dict.fromkeys(FRAIL, 0)
        self._positions = dict.fromkeys(FRAIL, 0)
        self._set_back = dict.fromkeys(FRAIL, 0)
        """The number of times that the consumer went back."""

    def _made(self, seed: int) -> SimCluster:
        timing = Timing.drawn(seed)
        return SimCluster(seed, timing=replace(timing, lag_ms=min(timing.lag_ms, LAG_MAX_MS)))

    def _faults(self) -> LossFaults:
        return LossFaults(self.cluster)

    def _watches(self) -> tuple[Watch, ...]:
        return *super()._watches(), self.watch

    async def _until_created(self) -> None:
        await super()._until_created()
        consent = {"unclean.leader.election.enable": "true"} if self._consents else {}
        await self._create("frail-admin", {FRAIL[0].topic: {"min.insync.replicas": "1", **consent}}, len(FRAIL))

    async def _churn(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._churn())
            for name in PRODUCERS:
                tasks.create_task(self._write(name))

    async def _consume(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._consume())
            tasks.create_task(self._follow())
            tasks.create_task(self._operate())

    # -- the load ------------------------------------------------------------------------------------------------------

    async def _write(self, name: str) -> None:
        request_ms = self.cluster.timing.request_ms
        producer = Producer(
            self.cluster.bootstrap,
            ports=self.cluster.client_ports(f"frail-{name}"),
            batch_bytes=256,
            request_timeout_ms=request_ms,
            delivery_timeout_ms=4 * request_ms,
        )
        now = asyncio.get_running_loop().time
        async with producer, asyncio.TaskGroup() as waits:
            while not self._idle.is_set():
                for tp in FRAIL:
                    self._numbers[name] += 1
                    value, sent_at = b"%s %d" % (name.encode(), self._numbers[name]), now()
                    try:
                        ack = await producer.send(tp.topic, value, partition=tp.partition)
                    except TidelogError:
                        continue
                    waits.create_task(self._confirm(ack, tp, value, sent_at))
                await asyncio.sleep(PACE_S * (0.5 + self._rand.random()))

    async def _confirm(self, ack: Ack, tp: TopicPartition, value: bytes, sent_at: float) -> None:
        try:
            offset = (await ack).offset
        except LOST:
            return  # nothing is promised, and it may be there
        if offset >= 0:
            self._acked.append((tp, offset, value, sent_at))

    async def _operate(self) -> None:
        """Brings partitions back that have no leader, also when all else is healed."""
        admin = Admin(self.cluster.bootstrap, ports=self.cluster.client_ports("frail-operator"))
        async with admin:
            while not self._stop.is_set():
                await asyncio.sleep(0.2 + self._rand.random())
                if self._consents:
                    continue
                try:
                    await self._elect(admin)
                except LOST:
                    continue

    async def _elect(self, admin: Admin) -> None:
        topic = await admin.describe_topic(FRAIL[0].topic)
        lost = [TopicPartition(topic.name, each.partition) for each in topic.partitions if each.leader == NO_LEADER]
        drawn, broker = self._rand.random(), self._rand.randrange(3)
        if not lost:
            return
        if drawn < 0.2:
            await admin.elect_leaders(lost, unclean=True, validate_only=True)
        named = [broker] if drawn > 0.35 else []
        await admin.elect_leaders(lost, unclean=True, candidates=named)

    # -- the consumer --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """One consumer for the whole run."""
        consumer = Consumer(
            self.cluster.bootstrap,
            ports=self.cluster.client_ports("frail-consumer"),
            auto_offset_reset=self._reset,
            request_timeout_ms=self.cluster.timing.request_ms,
        )
        async with consumer:
            assigned = False
            while not self._stop.is_set():
                try:
                    if not assigned:
                        await consumer.assign(list(FRAIL))
                        for tp in FRAIL:
                            consumer.seek(tp, 0)
                        assigned = True
                    for record in await consumer.poll(timeout_s=0.5):
                        self._take(record)
                    for tp in FRAIL:
                        self._positions[tp] = await consumer.position(tp)
                except LogTruncationError as error:
                    at = error.diverging_offset
                    consumer.seek(error.partition, at, self._epochs[error.partition].get(at - 1, NO_EPOCH))
                except PositionOutOfRangeError as error:
                    consumer.seek(error.partition, 0)
                except LOST:
                    await asyncio.sleep(0.2)

    def _take(self, record: ConsumerRecord) -> None:
        tp = TopicPartition(record.topic, record.partition)
        if record.offset < self._next[tp]:
            self._go_back(tp, record.offset)
        self._next[tp] = record.offset + 1
        self._seen[tp][record.offset] = record.value or b""
        self._epochs[tp][record.offset] = record.leader_epoch

    def _go_back(self, tp: TopicPartition, offset: int) -> None:
        gone = {at: self._seen[tp].pop(at) for at in sorted(self._seen[tp]) if at >= offset}
        self._set_back[tp] += 1
        lost = any(self.watch.explains(tp, at, value) for at, value in gone.items())
        if not lost or self._set_back[tp] > len(self.watch.elections.get(tp, ())):
            raise Violation(f"frail: {tp}: the consumer went back from {self._next[tp]} to {offset}")
        self.cluster.observer.reached[goals.SET_BACK] += 1

    # -- judgement -----------------------------------------------------------------------------------------------------

    async def _until_converged(self) -> frozenset[TopicPartition]:
        vetoed = await super()._until_converged()
        while led := vetoed & set(FRAIL):  # an operator brings them back
            if asyncio.get_running_loop().time() > self._healed_s + HEAL_S:
                raise Violation(f"frail: {sorted(led)} have no leader {HEAL_S:.0f} s after healing")
            await asyncio.sleep(0.5)
            vetoed = await super()._until_converged()
        async with within(HEAL_S, "the consumer did not come to the end"):
            while any(self._positions[tp] != self.cluster.end(tp) for tp in FRAIL):  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.5)
        return vetoed

    def _compare_replicas(self, vetoed: frozenset[TopicPartition]) -> None:
        super()._compare_replicas(vetoed)
        self._compare(vetoed, FRAIL)

    async def _final_read(self, vetoed: frozenset[TopicPartition]) -> int:
        total = await super()._final_read(vetoed)
        for tp in FRAIL:
            records = await self._read_all(tp)
            check_order(f"frail: the log of {tp}", records)
            self._check_acked(tp, records)
            self._check_reader(tp, records)
            total += len(records)
        return total

    def _check_acked(self, tp: TopicPartition, records: dict[int, bytes]) -> None:
        reached = self.cluster.observer.reached
        # A leader whose session is ended by force goes on until its lease is over, while another is elected.
        by_force = any(self.faults.count[kind] for kind in ("expire", "elections", "controller moved"))
        late_s = self.cluster.timing.session_ms / 1000 if by_force else 0.0
        for at, offset, value, sent_at in self._acked:
            if at == tp and records.get(offset) != value:
                if not self.watch.explains(tp, offset, value, sent_at - late_s):
                    raise Violation(
                        f"frail: {tp}: {offset} was acknowledged as {value!r} and is {records.get(offset)!r}"
                    )
                reached[goals.UNCLEAN_LOSS] += 1

    def _check_reader(self, tp: TopicPartition, records: dict[int, bytes]) -> None:
        if self._reset == "latest" and self.watch.elections.get(tp):
            return  # it goes on at the end of a log that has lost its position
        seen = {offset: value for offset, value in self._seen[tp].items() if offset in records}
        if seen != records:
            wrong = sorted(offset for offset, value in records.items() if seen.get(offset) != value)
            what = [(offset, seen.get(offset), records[offset]) for offset in wrong[:3]]
            raise Violation(
                f"frail: {tp}: the consumer is at the end and has not read {len(wrong)} records, like {what}"
            )
