"""One seeded run of a simulated cluster: a load, a reader and topics that come and go; faults for a while; then healing.

The cluster must converge within a bounded time, and a last read from the start must hold everything that was acknowledged
or ever read (X1), from replicas that are equal byte by byte (X2).
"""

import asyncio
import gc
import hashlib
import warnings
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Final, Protocol

from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClusterUnreachable, DeliveryError
from tidelog.client.producer import Producer
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing import loop as sim_loop
from tidelog.testing.invariants import Violation
from tidelog.testing.last_steps import add_last_steps
from tidelog.testing.older_copy import OlderCopy
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_faults import Faults
from tidelog.testing.sim_history import FINAL
from tidelog.testing.sim_suspicion import FalseSuspicions
from tidelog.testing.watchers import Watchers

TOPICS: Final = {"events": "2", "thin": "1"}
"""Topic -> min.insync.replicas: with 1 a leader may go on alone, which is where last replicas are lost."""
PARTITIONS: Final = 2
CHURN: Final = "churn"
LATE: Final = "late"
DELIVERED_MIN: Final = 5_000
FAULT_MAX_S: Final = 200.0
TEND_S: Final = 0.5
HEAL_S: Final = 90.0
WATCH_S: Final = 0.1
LOOK_EVERY: Final = 5
"""Turns of the watch from one note of what leaders say of themselves to the next."""
SEND_S: Final = 0.1
SENDS: Final = 4
"""At each instant of sending."""


@dataclass(frozen=True, slots=True)
class Result:
    """Of one seed that held."""

    acked: int
    read: int
    delivered: int
    faults: Counter[str]
    reached: Counter[str]
    vetoed: int
    """Partitions that rightly stayed offline: their last in-sync replica lost power (reliability 3.6 rule D)."""
    processed: int = 0
    """Records by groups."""


class Watch(Protocol):
    """Checks that stand behind the state machines of this Python process."""

    def watching(self) -> AbstractContextManager[None]:
        """While it lasts, state machines report to the checks."""
        ...

    def after_step(self) -> None:
        """Violation: something does not hold."""


class Run:
    FAULT_S: ClassVar[float] = 10.0
    """For how long there are faults, at least; a seed is cheap, and two short ones meet more than a long one."""

    RETURNS: ClassVar[bool] = True
    """ZooKeeper returns from an older copy at the end of some runs."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.cluster = self._made(seed)
        self.faults: FalseSuspicions | Faults = self._faults()
        older = OlderCopy(self.cluster)
        self._older_copy = older if self.RETURNS and older.drawn else None
        self._partitions = [TopicPartition(topic, i) for topic in TOPICS for i in range(PARTITIONS)]
        self._idle = asyncio.Event()
        """Set when the load is to end."""
        self._stop = asyncio.Event()
        self._healed_s = 0.0
        """When the faults were over, by the clock of the loop: LIVE-1 to 5 count from here."""
        self._reports = ExitStack()
        """Ends the reports of the state machines; closed for good once all is judged but an older copy."""
        self._judged = False

    def _made(self, seed: int) -> SimCluster:
        return SimCluster(seed)

    def _faults(self) -> FalseSuspicions | Faults:
        return FalseSuspicions(self.cluster) if FalseSuspicions.drawn(self.seed) else Faults(self.cluster)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While it lasts, state machines report to the checks of this run; the loop runs within it alone."""
        with ExitStack() as self._reports:
            for each in () if self._judged else self._watches():
                self._reports.enter_context(each.watching())
            yield

    async def story(self) -> Result:
        """Raises one of FAILURES."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, sim_loop.SimLoop)
        loop.after_step = _together(self._checks())
        try:
            result = await self._story()
        finally:
            loop.after_step = None
            self._judged = True
            self._reports.close()
        if isinstance(self.faults, Faults):
            self.faults.rot.end()
        if self._older_copy is not None:
            await self._last_act(self._older_copy)
        if result.delivered < DELIVERED_MIN:
            raise Violation(f"only {result.delivered} events were delivered")
        return result

    def _watches(self) -> tuple[Watch, ...]:
        return (self.cluster.observer,)

    def _checks(self) -> tuple[Callable[[], None], ...]:
        """Called after each step."""
        return tuple(watch.after_step for watch in self._watches())

    async def _story(self) -> Result:
        self.cluster.start()
        await self._until_created()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._consume())
            loads = [
                group.create_task(load)
                for load in (self._produce("producer", "all"), self._produce("hasty", 1), self._churn())
            ]
            await self._break_and_heal(loads)
            vetoed = await self._until_converged()
            self._stop.set()
        self._compare_replicas(vetoed)
        async with within(HEAL_S, "the last read did not end"):
            read = await self._final_read(vetoed)
        return Result(
            self.cluster.history.acked_count,
            read,
            self.cluster.delivered,
            self.faults.count,
            self.cluster.observer.reached,
            len(vetoed),
        )

    async def _break_and_heal(self, loads: "list[asyncio.Task[None]]") -> None:
        now = asyncio.get_running_loop().time
        begun = now()
        if self._older_copy is not None:
            self._older_copy.take_within(self.FAULT_S)
        await self.faults.run(
            lambda: (
                now() - begun > self.FAULT_S
                and (self.cluster.delivered >= DELIVERED_MIN or now() - begun > FAULT_MAX_S)
            )
        )
        self.faults.heal()
        self._healed_s = now()
        self._idle.set()
        async with within(HEAL_S, "a request was not answered"):
            while (await asyncio.wait(loads, timeout=TEND_S))[1]:
                self.cluster.start_ended()  # a broker may have been stopping when all was mended

    async def _until_created(self) -> None:
        topics = {topic: {"min.insync.replicas": min_isr} for topic, min_isr in TOPICS.items()}
        await self._create("admin", topics, PARTITIONS)

    async def _create(self, client: str, topics: Mapping[str, Mapping[str, str]], partitions: int) -> None:
        """Creates topics with these configurations, of three replicas in sync each."""
        admin = Admin(self.cluster.bootstrap, ports=self.cluster.client_ports(client))
        async with admin, within(HEAL_S, "no topic was created"):
            for topic, configs in topics.items():
                while True:
                    try:
                        await admin.create_topic(topic, partitions, 3, configs=configs)
                        await admin.wait_until_led(topic, in_sync=True)
                        break
                    except (TidelogError, TransportError, ClusterUnreachable, TimeoutError):
                        await asyncio.sleep(0.2)

    async def _churn(self) -> None:
        """A topic that is created, written to, deleted and created again under the same name (HOLE-10)."""
        admin = Admin(self.cluster.bootstrap, ports=self.cluster.client_ports("churn"))
        async with admin:
            while not self._idle.is_set():
                try:
                    await admin.create_topic(CHURN, 1, 3, configs={"min.insync.replicas": "1"})
                    await asyncio.sleep(1.5)
                    await admin.delete_topic(CHURN)
                except (TidelogError, TransportError, ClusterUnreachable, TimeoutError):
                    await asyncio.sleep(0.5)

    async def _watch(self) -> None:
        looks = count(1)
        while not self._stop.is_set():
            await asyncio.sleep(WATCH_S)
            if next(looks) % LOOK_EVERY == 0:
                self._tell_watermarks()
            if self.cluster.world.bugs:
                raise Violation(f"a handler of {self.cluster.world.bugs[0]} failed")
            for node in self.cluster.brokers:
                if node.broker is not None and node.broker.manager is not None and node.broker.manager.bugs:
                    raise Violation(f"an order of {node.name} failed")
            for node in self.cluster.nodes.values():
                failed = node.process is not None and node.process.supervisor.failures
                if node.running and failed and not node.terminating:
                    if not node.excused:
                        raise Violation(
                            f"{node.name} ended by itself: {node.process and node.process.supervisor.failure}"
                        )
                    node.kill()
                if node.stopper.failures and not node.excused:
                    raise Violation(f"{node.name} cannot stop")

    def _tell_watermarks(self) -> None:
        for node in self.cluster.brokers:
            for host in node.hosts():
                if host.tp in self._partitions and host.replica.leading is not None:
                    self.cluster.history.leads(node.number, host)

    async def _produce(self, name: str, acks: int | str) -> None:
        number, turns = 0, defaultdict[TopicPartition, asyncio.Lock](asyncio.Lock)
        request_ms = self.cluster.timing.request_ms
        producer = Producer(
            self.cluster.bootstrap,
            ports=self.cluster.client_ports(name),
            acks=acks,
            batch_bytes=256,
            request_timeout_ms=request_ms,
            delivery_timeout_ms=4 * request_ms,
        )
        async with producer, asyncio.TaskGroup() as sends:
            while not self._idle.is_set():
                for _ in range(SENDS if acks == "all" else 1):
                    number += 1
                    tp = self._partitions[number % len(self._partitions)]
                    sends.create_task(self._send(producer, turns[tp], tp, name, number, str(acks)))
                if acks != "all" and number % 40 == 0:
                    sends.create_task(self._send_to(producer, CHURN, 0, b"%d" % number))
                await asyncio.sleep(SEND_S)

    async def _send(
        self, producer: Producer, turn: asyncio.Lock, tp: TopicPartition, name: str, number: int, acks: str
    ) -> None:
        """A record of the load, as the history has it. In `turn`, since calls that wait beside each other promise no order."""
        history, value = self.cluster.history, f"{name}-{number}"
        async with turn:
            tried = history.tried(name, tp.topic, tp.partition, value, acks)
            try:
                ack = await producer.send(tp.topic, value.encode(), partition=tp.partition)
            except (DeliveryError, TidelogError) as error:
                history.ended(tried, acks, None, error)
                return
        try:
            metadata = await ack
        except (DeliveryError, TidelogError) as error:
            history.ended(tried, acks, None, error)
        else:
            history.ended(tried, acks, metadata, None)
            history.acknowledged(acks, value.encode(), metadata)

    @staticmethod
    async def _send_to(producer: Producer, topic: str, partition: int, value: bytes) -> int:
        """Its offset; -1 if it was refused or nobody knows: nothing is promised then."""
        try:
            return (await (await producer.send(topic, value, partition=partition))).offset
        except (DeliveryError, TidelogError):
            return -1

    async def _consume(self) -> None:
        history = self.cluster.history
        for life in count(1):
            if self._stop.is_set():
                return
            process = f"consumer-{life}"
            try:
                async with self._consumer("consumer") as consumer:
                    await consumer.assign(self._partitions)
                    history.assigned(process, self._partitions)
                    await self._read(consumer, process)
            except (TidelogError, TransportError, ClusterUnreachable, TimeoutError):
                await asyncio.sleep(0.2)  # a client that gave up; the next one reads from the start again
            finally:
                history.gone(process)

    async def _read(self, consumer: Consumer, process: str) -> None:
        history = self.cluster.history
        while not self._stop.is_set():
            began = history.now()
            history.polled(process, began, await consumer.poll(timeout_s=0.5))

    def _consumer(self, name: str) -> Consumer:
        return Consumer(
            self.cluster.bootstrap,
            ports=self.cluster.client_ports(name),
            request_timeout_ms=self.cluster.timing.request_ms,
        )

    async def _until_converged(self) -> frozenset[TopicPartition]:
        now = asyncio.get_running_loop().time
        while now() < self._healed_s + HEAL_S:
            await asyncio.sleep(TEND_S)
            self.cluster.tend()
            vetoed = self.cluster.vetoed()
            rotten = self._rotten(vetoed)
            if not rotten and self.cluster.converged(except_for=vetoed):
                return vetoed
        what = f"{rotten} are rotten; {self.cluster.describe()}" if rotten else self.cluster.describe()
        raise Violation(f"no convergence {HEAL_S:.0f} s after healing: {what}")

    def _rotten(self, vetoed: frozenset[TopicPartition]) -> list[str]:
        """Segments that are rotten still, but for those of partitions that rightly have no leader."""
        unhealed = self.faults.rot.unhealed() if isinstance(self.faults, Faults) else []
        return [path for path in unhealed if not any(f"/{tp.topic}-{tp.partition}/" in path for tp in vetoed)]

    def _compare_replicas(self, vetoed: frozenset[TopicPartition]) -> None:
        """X2."""
        self._compare(vetoed, self._partitions)

    def _compare(self, vetoed: frozenset[TopicPartition], partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            if tp not in vetoed and len(logs := self.cluster.logs(tp)) > 0:
                first, *others = logs.values()
                if any(log != first for log in others):
                    sizes = {broker: len(log) for broker, log in logs.items()}
                    raise Violation(f"X2: {tp}: replicas differ, their sizes are {sizes}")

    async def _final_read(self, vetoed: frozenset[TopicPartition]) -> int:
        """Reads everything once more, judges the history with it, and returns the number of records."""
        history, total = self.cluster.history, 0
        history.phase("final")
        self._tell_watermarks()
        readable = [tp for tp in self._partitions if tp not in vetoed]
        history.assigned(FINAL, readable, final=True)
        for tp in readable:
            records = await self._read_all(tp, FINAL)
            total += len(records)
        history.phase("end")
        history.judge(vetoed)
        return total

    async def _read_all(self, tp: TopicPartition, process: str | None = None) -> dict[int, bytes]:
        """Every record from the start to the end of this moment, by offset. The polls of `process` are in the history."""
        history = self.cluster.history
        async with self._consumer(f"final-{tp}") as consumer:
            end = (await consumer.end_offsets([tp]))[tp]
            await consumer.assign([tp])
            records: dict[int, bytes] = {}
            while await consumer.position(tp) < end:
                began = history.now()
                found = await consumer.poll(timeout_s=0.5)
                records.update((record.offset, record.value or b"") for record in found)
                if process is not None:
                    history.polled(process, began, found, final=True)
        return records

    async def _create_late(self) -> None:
        """A topic with records that no copy knows."""
        ports = self.cluster.client_ports("late")
        async with (
            Admin(self.cluster.bootstrap, ports=ports) as admin,
            Producer(self.cluster.bootstrap, ports=ports) as producer,
        ):
            await admin.create_topic(LATE, 1, 3)
            await admin.wait_until_led(LATE, in_sync=True)
            await self._send_to(producer, LATE, 0, b"late")

    async def _last_act(self, older: OlderCopy) -> None:
        self._stop.clear()
        async with within(HEAL_S, "no topic was created"):
            await self._create_late()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            promised = await older.play(HEAL_S)
            self._stop.set()
        self.faults.count.update(older.count)
        for tp, records in promised.items():
            async with within(HEAL_S, "the read after an older copy did not end"):
                older.check_read(tp, records, await self._read_all(tp))


def _together(checks: Sequence[Callable[[], None]]) -> Callable[[], None]:
    def after_step() -> None:
        for check in checks:
            check()

    return after_step


@asynccontextmanager
async def within(seconds: float, otherwise: str) -> AsyncIterator[None]:
    """LIVE-3: what is asked of a whole cluster is answered in bounded time."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Violation(f"LIVE-3: {otherwise} within {seconds:.0f} s") from None


FAILURES: Final = (
    AssertionError,
    sim_loop.Deadlock,
    sim_loop.Livelock,
    TidelogError,
    TransportError,
    BaseExceptionGroup,
)
"""Errors that end a run, but for bugs of the simulator."""


def run_traced(kind: type[Run], seed: int, *, watched: bool = False) -> tuple[str, Result]:
    """The result, and a digest of everything that crossed the network, and when."""
    digest = hashlib.sha256()
    result = run_story(kind, seed, digest.update, watched=watched)
    return digest.hexdigest(), result


def run_twice(kind: type[Run], seed: int) -> Result:
    """Runs without watchers, then with them. Violation: they have changed something."""
    alone, watched = run_traced(kind, seed), run_traced(kind, seed, watched=True)
    if watched != alone:
        digests = f"{alone[0]} without them, {watched[0]} with them"
        raise Violation(
            f"watchers change the run: {digests}; {alone[1].delivered} and {watched[1].delivered} deliveries"
        )
    return alone[1]


def run_story(
    kind: type[Run], seed: int, trace: Callable[[bytes], None] | None = None, *, watched: bool = False
) -> Result:
    """Raises whatever broke: a Violation, or a bug of the code under test; its notes are the last steps of the protocol."""
    runs: list[Run] = []

    async def story() -> Result:
        run = kind(seed)
        runs.append(run)
        if trace is not None:
            run.cluster.network.trace = lambda line: trace(line.encode())
        watchers = Watchers(run.cluster.world) if watched else None
        with run.watching():
            result = await run.story()
        assert watchers is None or watchers.events, "the watchers have seen nothing"
        return result

    collects = gc.isenabled()
    gc.disable()  # a run is short, and everything of it goes at once
    try:
        with warnings.catch_warnings():
            # A killed process leaves coroutines that never ended: that is what a kill is.
            warnings.simplefilter("ignore")
            return sim_loop.run(story(), seed)
    except FAILURES as error:
        for run in runs:
            add_last_steps(error, run.cluster.world.rings)
        raise
    finally:
        if collects:
            gc.enable()
