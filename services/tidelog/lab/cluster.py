"""A simulated cluster with its clients, and everything that may be done to it. All of it runs in the simulated loop."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from typing import Final

from tidelog.chaos.checker.promise import Loss
from tidelog.chaos.history import ASSIGNED, Ownership, Record, Watermark
from tidelog.client.admin import Admin
from tidelog.client.offsets import LATEST
from tidelog.client.records import ConsumerRecord
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.lab.clients import FAILURES, Clients, Sends, polled
from tidelog.lab.groups import Groups
from tidelog.lab.peek import peek
from tidelog.lab.shown import Shown
from tidelog.lab.verdict import Verdict, judge
from tidelog.names import validate_group_id
from tidelog.runtime.tasks import Supervisor
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import Crash
from tidelog.testing.drive import Drive
from tidelog.testing.net_exchange import Faults as LinkFaults
from tidelog.testing.sim_agent import AgentNode
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import ZOOKEEPER, SimNode, Timing

START_S: Final = 30.0
PROBE_S: Final = 5.0
"""A partition whose leader does not answer for so long counts as not readable."""
FINAL_READERS: Final = 2
RESTART_S: Final = 60.0
LOOK_S: Final = 0.1
BURST_S: Final = 0.1
"""A steady load sends its records in bursts, at this distance."""
RECORDS_MAX: Final = 80_000
"""All records of a lab are kept in memory, more than a kilobyte for each; one that is left open for a day has 300 MB in all."""
FULL: Final = 0
ALIVE: Final = "alive"
"""State of a broker that the controller counts on."""
SLOW_OPS: Final = ("append", "sync")

TIMING: Final = Timing(
    session_ms=4_000,
    lag_ms=1_000,
    request_ms=2_000,
    suspect_hold_ms=10_000,
    keepalive_s=2.0,
    segment_bytes=1 << 20,
    rebalance_ms=300_000,
)
"""Timeouts that are short enough for a story of half a minute."""


class LabError(Exception):
    """The lab cannot do this; the text says what, and what it can do."""


class LabCluster(Shown):
    def __init__(
        self,
        seed: int,
        brokers: int,
        controllers: int,
        timing: Timing,
        drive: Drive,
        *,
        invariants: bool,
    ) -> None:
        sim = SimCluster(seed, brokers, controllers, timing=timing)
        self.groups = Groups(sim.world, sim.observer.reached)
        super().__init__(sim, self.groups, drive)
        self.clients = Clients(self.sim, self.now)
        self.tasks = Supervisor("lab")
        self.clock = SimClock()
        self.invariants = invariants
        self.loads: dict[str, asyncio.Task[None]] = {}
        self.rates: dict[str, tuple[float, str]] = {}
        """Records a second and acks of each load, by topic."""
        self._admin = Admin(self.sim.bootstrap, ports=self.sim.client_ports("admin"))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While it lasts, invariants are checked after each step of the loop."""
        with ExitStack() as stack:
            if self.invariants:
                stack.enter_context(self.sim.observer.watching())
                stack.enter_context(self.groups.watching())
            yield

    def after_step(self) -> None:
        self.sim.observer.after_step()
        self.groups.after_step()

    # -- the start, and processes that end by themselves -------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the brokers are registered and a controller acts."""
        self.sim.start()
        self.tasks.start("look", self._look())
        try:
            async with asyncio.timeout(START_S):
                await self._admin.start()
                while not await self._complete():
                    await self.clock.sleep(LOOK_S / 10)
        except TimeoutError:
            raise LabError(f"the cluster is not up after {START_S:g} s") from None

    async def _complete(self) -> bool:
        try:
            found = await self._admin.describe_cluster()
        except FAILURES:
            return False
        return len([each for each in found.brokers if each.state == ALIVE]) == len(self.sim.brokers)

    async def _look(self) -> None:
        while True:
            await self.clock.sleep(LOOK_S)
            for bug in self.sim.world.bugs:
                self.sim.observer.fail("a handler failed", bug)
            for node in self.sim.nodes.values():
                self._look_at(node)

    def _look_at(self, node: SimNode) -> None:
        if node.broker is not None and node.broker.manager is not None and node.broker.manager.bugs:
            self.sim.observer.fail("an order failed", node.name)
        failed = node.process is not None and node.process.supervisor.failures
        if node.running and failed and not node.terminating:
            assert node.process is not None
            failure = node.process.supervisor.failure
            self.say(f"{node.name} ends by itself: {failure and (failure.__cause__ or failure)}", node.name)
            if not node.excused:
                self.sim.observer.fail("ended by itself", node.name, failure)
            node.kill()

    # -- processes ---------------------------------------------------------------------------------------------------

    def node(self, name: str) -> SimNode:
        """LabError: there is no such process."""
        found = self.sim.nodes.get(name)
        if found is None:
            raise LabError(f"there is no process {name!r}; there are {', '.join([*self.sim.nodes, ZOOKEEPER])}")
        return found

    def _running(self, name: str) -> SimNode:
        node = self.node(name)
        if not node.running:
            raise LabError(f"{name} is down")
        return node

    def kill(self, name: str) -> None:
        if name == ZOOKEEPER:
            if not self.sim.zookeeper.running:
                raise LabError("zookeeper is down")
            self.say("zookeeper goes down", ZOOKEEPER)
            self.sim.zookeeper.stop()
            return
        self._end(name, Crash.PROCESS, f"{name} is killed")

    def kill_in_write(self, name: str, *, applied: bool) -> None:
        """Kills a process when it next changes something in ZooKeeper under a fence, before it hears the answer."""
        node = self._running(name)
        # A broker writes under a fence as a coordinator.
        meta, process = node.coordinator_meta or node.meta, node.process
        if meta is None:
            raise LabError(f"{name} has no session")

        def die() -> None:
            if node.process is process and node.running:
                self._end(
                    name, Crash.PROCESS, f"{name} is killed; its write {'was applied' if applied else 'did not arrive'}"
                )

        self.say(f"{name} will be killed during its next write to zookeeper", name)
        meta.lose_next_multi(applied=applied, then=die)

    def lose_power(self, name: str) -> None:
        self._end(
            name, Crash.DROP_UNSYNCED, f"the host of {name} loses power, and with it every write that was not synced"
        )

    def _end(self, name: str, crash: Crash, text: str) -> None:
        node = self._running(name)
        self.say(text, name)
        node.kill(crash)

    def stop(self, name: str) -> None:
        node = self._running(name)
        if node.terminating:
            raise LabError(f"{name} stops already")
        self.say(f"{name} is asked to stop (SIGTERM)", name)
        node.terminate()

    def start_process(self, name: str) -> None:
        if name == ZOOKEEPER:
            if self.sim.zookeeper.running:
                raise LabError("zookeeper is up")
            self.say("zookeeper comes up", ZOOKEEPER, mends=True)
            self.sim.zookeeper.start()
            return
        node = self.node(name)
        if not node.dead:
            raise LabError(f"{name} is {self.view.processes()[name]}")
        self.say(f"{name} starts", name, mends=True)
        node.start()

    def restart(self, name: str) -> None:
        """Starts the process again as soon as it has stopped."""
        self.stop(name)
        self.tasks.start("restart", self._started_again(self.node(name)))

    async def _started_again(self, node: SimNode) -> None:
        until = self.now() + RESTART_S
        while not node.dead:
            if self.now() > until:
                self.say(f"{node.name} has not stopped in {RESTART_S:g} s")
                return
            await self.clock.sleep(LOOK_S / 10)
        self.start_process(node.name)

    def pause(self, name: str) -> None:
        node = self._running(name)
        if node.process is None or node.process.paused:
            raise LabError(f"{name} is paused")
        self.say(f"{name} is paused (SIGSTOP)", name)
        node.pause()

    def resume(self, name: str) -> None:
        node = self._running(name)
        if node.process is None or not node.process.paused:
            raise LabError(f"{name} is not paused")
        self.say(f"{name} resumes (SIGCONT)", name, mends=True)
        node.resume()

    def expire(self, name: str) -> None:
        node = self._running(name)
        if node.meta is None or node.meta.session_id not in self.sim.zookeeper.live_sessions:
            raise LabError(f"{name} has no session")
        self.say(f"the ZooKeeper session of {name} expires", name)
        self.sim.zookeeper.expire(node.meta.session_id)

    # -- links -------------------------------------------------------------------------------------------------------

    def ends(self) -> list[str]:
        """Everything that a link may lead to: processes, ZooKeeper and clients."""
        return [*dict.fromkeys([*self.sim.nodes, ZOOKEEPER, "producer", *self.sim.network.nodes])]

    def _end_of_link(self, name: str) -> None:
        if name not in self.ends():
            raise LabError(f"there is no process or client {name!r}; there are {', '.join(self.ends())}")

    def cut(self, source: str, target: str, *, both: bool) -> None:
        self._end_of_link(source)
        self._end_of_link(target)
        if source == target:
            raise LabError(f"{source} has no link to itself")
        if ZOOKEEPER in (source, target):
            node = self.node(target if source == ZOOKEEPER else source)
            self.say(f"{node.name} is cut off from zookeeper", node.name)
            node.cut_zookeeper()
            return
        self.say(f"the link {source} {'<->' if both else '->'} {target} is cut", source, target)
        self.sim.network.cut(source, target)
        if both:
            self.sim.network.cut(target, source)

    def isolate(self, name: str) -> None:
        """Cuts a process off from all others, and from ZooKeeper."""
        node = self.node(name)
        self.say(f"{name} is cut off from everything", name)
        self.sim.network.isolate(name)
        node.cut_zookeeper()

    def heal(self, source: str | None, target: str | None) -> None:
        """Mends one link, or all: both ways."""
        if source is None or target is None:
            self.say("all links are mended", mends=True)
            self.sim.network.heal_all()
            self.sim.network.disturb(LinkFaults())
            for node in self.sim.nodes.values():
                if node.running:
                    node.heal_zookeeper()
            return
        self._end_of_link(source)
        self._end_of_link(target)
        self.say(f"the link {source} <-> {target} is mended", source, target, mends=True)
        if ZOOKEEPER in (source, target):
            self.node(target if source == ZOOKEEPER else source).heal_zookeeper()
            return
        for one, other in ((source, target), (target, source)):
            self.sim.network.heal(one, other)
            self.sim.network.link(one, other).faults = LinkFaults()

    def slow_link(self, source: str, target: str, seconds: float) -> None:
        self._end_of_link(source)
        self._end_of_link(target)
        self.say(f"messages {source} -> {target} take {seconds:g} s", source, target)
        self.sim.network.link(source, target).faults = LinkFaults(delay_s=(seconds, seconds))

    def lossy_link(self, source: str, target: str, share: float) -> None:
        """A lost message breaks what it belongs to, as a connection does that is retried for too long."""
        self._end_of_link(source)
        self._end_of_link(target)
        self.say(f"{share:.0%} of the messages {source} -> {target} are lost", source, target)
        self.sim.network.link(source, target).faults = LinkFaults(loss=share)

    # -- disks and clocks --------------------------------------------------------------------------------------------

    def fill_disk(self, name: str) -> None:
        node = self.node(name)
        node.excused = True
        self.say(f"the disk of {name} is full", name)
        node.disk.fill(FULL)

    def slow_disk(self, name: str, seconds: float) -> None:
        node = self.node(name)
        self.say(f"each write to the disk of {name} takes {seconds:g} s", name)
        for op in SLOW_OPS:
            node.disk.slow(op, seconds)

    def mend_disk(self, name: str) -> None:
        node = self.node(name)
        self.say(f"the disk of {name} is mended", name, mends=True)
        node.disk.mend()

    def jump_clock(self, name: str, seconds: float) -> None:
        node = self.node(name)
        self.say(f"the wall clock of {name} jumps by {seconds:+g} s", name)
        node.clock.wall_offset_ms += round(seconds * 1000)

    # -- administration ----------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        replicas: Sequence[Sequence[int]],
        settings: Mapping[str, str],
    ) -> None:
        """Returns when every replica is in sync."""
        self.say(f"topic {name} is created")
        if replicas:
            await self._admin.create_topic(name, assignment=replicas, configs=settings)
        else:
            await self._admin.create_topic(name, partitions, replication_factor, configs=settings)
        await self._admin.wait_until_led(name, in_sync=True)

    async def delete_topic(self, name: str) -> None:
        self.say(f"topic {name} is deleted")
        self.groups.excuse(name)
        await self._admin.delete_topic(name)

    async def alter_topic(self, name: str, settings: Mapping[str, str]) -> None:
        self.say(f"topic {name} gets {', '.join(f'{key}={value}' for key, value in settings.items())}")
        await self._admin.alter_configs(name, settings)

    async def reassign(self, tp: TopicPartition, replicas: Sequence[int]) -> None:
        self.say(f"{tp} will move to brokers {', '.join(map(str, replicas))}")
        await self._admin.reassignments.alter({tp: tuple(replicas)})

    async def elect(self, tp: TopicPartition, *, unclean: bool, broker: int | None) -> None:
        """TidelogError: nothing was elected, and the text says why."""
        kind = "an unclean leader" if unclean else "the preferred leader"
        self.say(f"an operator elects {kind} of {tp}" + ("" if broker is None else f": broker-{broker}"))
        if unclean:
            self.groups.excuse(tp.topic)
        candidates = () if broker is None else (broker,)
        (result,) = await self._admin.elect_leaders([tp], unclean=unclean, candidates=candidates)
        if result.error_code is not ErrorCode.NONE:
            raise TidelogError(f"{tp}: {result.error_message or result.error_code.name}", result.error_code)

    async def release_veto(self, tp: TopicPartition) -> None:
        self.say(f"an operator lets the last replica of {tp} lead although it may have lost records")
        self.groups.excuse(tp.topic)
        (result,) = await self._admin.release_veto([tp])
        if result.error_code is not ErrorCode.NONE:
            raise TidelogError(f"{tp}: {result.error_message or result.error_code.name}", result.error_code)

    # -- groups ------------------------------------------------------------------------------------------------------

    def join(self, group: str, topics: Sequence[str], members: int, session_s: float) -> list[str]:
        """Starts processes with a consumer each. Returns their names. TidelogError: InvalidGroupIdError."""
        validate_group_id(group)
        for topic in topics:
            self._numbers(topic, None)
        names = [self.groups.join(group, tuple(topics), session_s).name for _ in range(members)]
        self.say(f"{', '.join(names)} join{'s' if members == 1 else ''} group {group}")
        return names

    def take(self, name: str, seconds: float) -> None:
        node = self.node(name)
        if not isinstance(node, AgentNode):
            raise LabError(f"{name} is not a consumer")
        self.say(f"the application of {name} takes {seconds:g} s for each batch of records", name)
        node.take(seconds)

    # -- records -----------------------------------------------------------------------------------------------------

    def produce(self, topic: str, count: int, acks: str, partition: int | None) -> Sends:
        """Sends records in the background."""
        if self.clients.tally.sent_count + count > RECORDS_MAX:
            raise LabError(f"records: a lab keeps at most {RECORDS_MAX:,}, and has {self.clients.tally.sent_count:,}")
        numbers, sends = self._numbers(topic, partition), Sends(topic, acks)
        where = topic if partition is None else f"{topic}-{partition}"
        self.say(f"{count} records are produced to {where} with acks={acks}")
        sends.on_end = lambda: self.say(sends.outcome())
        places = [numbers[each % len(numbers)] for each in range(count)]
        self.tasks.start("produce", self.clients.send(sends, sends.expect(places)))
        return sends

    def _numbers(self, topic: str, partition: int | None) -> list[int]:
        try:
            count = self.view.count(topic)
        except KeyError as error:
            raise LabError(f"{error.args[0]}; there are {', '.join(self.view.topics()) or 'none'}") from None
        if partition is not None and not 0 <= partition < count:
            raise LabError(f"topic {topic!r} has {count} partitions, and no partition {partition}")
        return list(range(count)) if partition is None else [partition]

    async def answered(self, sends: Sends) -> None:
        """Returns when no record of `sends` waits."""
        while sends.waiting:
            await self.clock.sleep(LOOK_S / 100)

    def load(self, topic: str, rate: float, acks: str) -> Sends:
        """Sends `rate` records a second until `stop_load`, in bursts of one partition each, as a producer does without keys."""
        numbers, sends = self._numbers(topic, None), Sends(topic, acks)
        if topic in self.loads:
            raise LabError(f"a load of {topic} runs already")
        self.say(f"{rate:g} records a second are produced to {topic} with acks={acks}")
        self.loads[topic] = self.tasks.start("load", self._load(sends, numbers, rate))
        self.rates[topic] = (rate, acks)
        return sends

    async def _load(self, sends: Sends, numbers: Sequence[int], rate: float) -> None:
        owed = 0.0
        for number in cycle(numbers):
            if self.clients.tally.sent_count >= RECORDS_MAX:
                self.say(f"the load of {sends.topic} ends: a lab keeps at most {RECORDS_MAX:,} records")
                del self.loads[sends.topic], self.rates[sends.topic]
                return
            owed += rate * BURST_S
            burst, owed = int(owed), owed % 1
            await self.clients.send(sends, sends.expect([number] * burst))
            await self.clock.sleep(BURST_S)

    def stop_load(self, topic: str) -> None:
        if topic not in self.loads:
            raise LabError(f"there is no load of {topic}")
        self.say(f"the load of {topic} ends")
        self.loads.pop(topic).cancel()
        del self.rates[topic]

    async def read(self, topic: str, partition: int | None) -> list[ConsumerRecord]:
        places = [TopicPartition(topic, number) for number in self._numbers(topic, partition)]
        self.say(f"{topic if partition is None else places[0]} is read from its start")
        records, told = await self.clients.read(places)
        self.clients.history += told
        return records

    async def verdict(self, lost: Loss) -> Verdict:
        """Reads every partition twice, and judges all that clients have seen so far."""
        tps = self.partitions()
        readable = [tp for tp in tps if await self._readable(tp)]
        began, final, history = self.now(), [], [*self.clients.history, *self._watermarks()]
        for _ in range(FINAL_READERS if readable else 0):
            final += (await self.clients.read(readable, final=True))[1]
        unread = [tp for tp in tps if tp not in readable]
        return judge(history, final, unread, lost=lost, began=began, now=self.now())

    def verdict_so_far(self, lost: Loss) -> Verdict:
        """Judges by the logs as they are, of which nothing in the cluster is told. No time passes."""
        found = {
            (tp := TopicPartition(each.topic, each.number)): peek(self.sim.world, tp, each.leader)
            for each in self.view.partitions()
        }
        readable = {tp: records for tp, records in found.items() if records is not None}
        unread, now = [tp for tp in found if tp not in readable], self.now()
        records = [record for some in readable.values() for record in some]
        look = polled("", 0, now, now, records, final=True)
        final: list[Record] = []
        for number in range(FINAL_READERS if readable else 0):
            name = f"look-{number}"
            final.append(Ownership(now, ASSIGNED, name, tuple(readable), final=True))
            final.append(look._replace(process=name, id=-1 - number))
        history = [*self.clients.history, *self._watermarks()]
        return judge(history, final, unread, lost=lost, began=now, now=now)

    def _watermarks(self) -> Iterator[Watermark]:
        """Yields what leaders say now. The checker knows of a new leader only what clients were told, else."""
        for each in self.view.partitions():
            found = each.at.get(each.leader)
            if found is not None and found.leads:
                at = (self.now(), each.topic, each.number, each.leader)
                yield Watermark(*at, found.epoch, found.high_watermark, found.log_end, found.log_start)

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(name, number) for name in self.view.topics() for number in range(self.view.count(name))]

    async def _readable(self, tp: TopicPartition) -> bool:
        try:
            async with asyncio.timeout(PROBE_S):
                await self._admin.list_offsets({tp: LATEST})
        except FAILURES:
            return False
        return True

    async def end(self) -> None:
        await self.tasks.stop()
        await self.clients.stop()
        await self._admin.stop()
