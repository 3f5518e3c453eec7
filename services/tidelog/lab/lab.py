"""The class for teachers, notebooks and tests: a cluster that does what its methods say, in virtual time."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from tidelog.chaos.checker.promise import Loss
from tidelog.client.records import ConsumerRecord
from tidelog.ids import TopicPartition
from tidelog.lab.clients import ACKS, Sends
from tidelog.lab.cluster import TIMING, LabCluster, LabError
from tidelog.lab.engine import Engine
from tidelog.lab.groups import SESSION_S
from tidelog.lab.picture import html
from tidelog.lab.steps import Act, Step, kinds_of
from tidelog.lab.verdict import Verdict
from tidelog.lab.view import Group, Partition, View
from tidelog.testing.invariants import Violation
from tidelog.testing.sim_node import Timing

__all__ = ("Lab", "LabError", "Violation")

TOPIC: Final = "events"
BROKERS_MAX: Final = 9
CONTROLLERS_MAX: Final = 5
PARTITIONS_MAX: Final = 100
RUN_MAX_S: Final = 24 * 3600.0
UNTIL_S: Final = 60.0
GRAIN_S: Final = 0.01
"""`until` looks at this distance."""


class Lab:
    """A whole cluster of the real controllers, brokers, coordinators and clients in this Python process.

    Time is virtual: it passes only in the calls that say so, much faster than a clock, and the seed determines everything, so the
    same calls give the same events. Networks, disks and ZooKeeper are the simulator's, and its invariants are checked after
    each step. The first one that does not hold raises `Violation`, and time goes no further.

    Use it in one thread, as a context manager or with `close`. It needs no asyncio, and works where an event loop runs.

    seed: what determines all that is drawn, such as delays of messages.
    brokers: from 1 to 9, named broker-0 and so on.
    controllers: from 1 to 5, named controller-1 and so on.
    partitions: of the topic `events`, which is there from the start; 0: no topic.
    timing: timeouts of all processes.
    invariants: False does not check them, for a cluster whose code is broken on purpose.

    Every method raises LabError for what cannot be done, and where the lab is closed or belongs to another thread.
    """

    def __init__(
        self,
        seed: int = 0,
        brokers: int = 3,
        controllers: int = 2,
        partitions: int = 6,
        *,
        timing: Timing = TIMING,
        invariants: bool = True,
    ) -> None:
        _within("brokers", brokers, 1, BROKERS_MAX)
        _within("controllers", controllers, 1, CONTROLLERS_MAX)
        _within("partitions", partitions, 0, PARTITIONS_MAX)
        self.seed = seed
        self._engine = Engine(seed, brokers, controllers, timing, invariants=invariants)
        self._engine.start()
        if partitions:
            self.create_topic(TOPIC, partitions)

    @property
    def _cluster(self) -> LabCluster:
        return self._engine.cluster

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Seconds of virtual time since the lab began."""
        return self._engine.time

    def run(self, seconds: float) -> None:
        """Lets `seconds` pass, at most a day."""
        if not 0 <= seconds <= RUN_MAX_S:
            raise LabError(f"run: {seconds} seconds are not from 0 to {RUN_MAX_S:g}")
        self._engine.run(seconds)

    def until(self, holds: Callable[[View], bool], limit: float = UNTIL_S) -> float:
        """Lets time pass until `holds` is true of the cluster, which is looked at every 10 ms.

        Returns the time then, in seconds. LabError: it is not true within `limit` seconds.
        """

        async def waiting() -> float:
            end = self.time + limit
            while not holds(self._cluster.view):
                if self.time >= end:
                    raise LabError(f"until: it is not so within {limit:g} s")
                await self._cluster.clock.sleep(GRAIN_S)
            return self.time

        return self._engine.do(waiting())

    # -- processes ---------------------------------------------------------------------------------------------------

    def kill(self, process: str) -> None:
        """Kills a process (SIGKILL). `zookeeper` is the whole ensemble: it is away until `start`, and no session expires."""
        self._engine.act(lambda: self._cluster.kill(process))

    def kill_in_write(self, process: str, *, applied: bool) -> None:
        """Kills a process when it next changes something in ZooKeeper; `applied` says whether the write arrives there."""
        self._engine.act(lambda: self._cluster.kill_in_write(process, applied=applied))

    def stop(self, process: str) -> None:
        """Asks a process to stop (SIGTERM). A broker hands over its leaders first, which takes time."""
        self._engine.act(lambda: self._cluster.stop(process))

    def start(self, process: str) -> None:
        """Starts a process that is down, on the disk that it left."""
        self._engine.act(lambda: self._cluster.start_process(process))

    def restart(self, process: str) -> None:
        """Asks a process to stop, and starts it again as soon as it has."""
        self._engine.act(lambda: self._cluster.restart(process))

    def pause(self, process: str) -> None:
        """Stops a process where it is (SIGSTOP): it does nothing until `resume`, and is not told what happens."""
        self._engine.act(lambda: self._cluster.pause(process))

    def resume(self, process: str) -> None:
        """Lets a paused process go on (SIGCONT)."""
        self._engine.act(lambda: self._cluster.resume(process))

    def expire(self, process: str) -> None:
        """Ends the ZooKeeper session of a process, as if the server had not heard of it for too long."""
        self._engine.act(lambda: self._cluster.expire(process))

    def lose_power(self, process: str) -> None:
        """The host of a process loses power: the process is gone, and everything that was not synced to its disk."""
        self._engine.act(lambda: self._cluster.lose_power(process))

    # -- links, disks, clocks ----------------------------------------------------------------------------------------

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        """Cuts the link between two processes, or a process and a client. What is sent waits, and breaks off after 2 s.

        With `both` False only what `source` sends is held up. `zookeeper` may be one of the two. The producers are
        `producer`, `producer-acks-1` and `producer-acks-0`.
        """
        self._engine.act(lambda: self._cluster.cut(source, target, both=both))

    def isolate(self, process: str) -> None:
        """Cuts a process off from everything else, ZooKeeper and clients too."""
        self._engine.act(lambda: self._cluster.isolate(process))

    def slow_link(self, source: str, target: str, seconds: float) -> None:
        """Every message from `source` to `target` takes this long, until `heal`."""
        self._engine.act(lambda: self._cluster.slow_link(source, target, seconds))

    def lossy_link(self, source: str, target: str, share: float) -> None:
        """Loses this share of the messages from `source` to `target`, from 0 to 1, until `heal`."""
        if not 0 <= share <= 1:
            raise LabError(f"share {share} is not from 0 to 1")
        self._engine.act(lambda: self._cluster.lossy_link(source, target, share))

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Mends the link between two, or all links."""
        self._engine.act(lambda: self._cluster.heal(source, target))

    def fill_disk(self, process: str) -> None:
        """The disk of a process takes no further byte, until `mend_disk`."""
        self._engine.act(lambda: self._cluster.fill_disk(process))

    def slow_disk(self, process: str, seconds: float) -> None:
        """Each write and sync in the background takes this long, until `mend_disk`."""
        self._engine.act(lambda: self._cluster.slow_disk(process, seconds))

    def mend_disk(self, process: str) -> None:
        """Ends what is wrong with a disk. A process that ended because of it must be started again."""
        self._engine.act(lambda: self._cluster.mend_disk(process))

    def jump_clock(self, process: str, seconds: float) -> None:
        """The calendar of a host jumps forwards, or backwards."""
        self._engine.act(lambda: self._cluster.jump_clock(process, seconds))

    # -- topics ------------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        *,
        replicas: Sequence[Sequence[int]] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic, and returns when every replica is in sync.

        replication_factor: None is 3, or the number of brokers if that is less.
        replicas: the brokers of each partition, the preferred leader first; then the two numbers do not count.
        settings: of the topic, by Kafka's names. min.insync.replicas is 2 unless given, or 1 where there is one replica.

        Raises TidelogError, like InvalidConfigError.
        """
        factor = min(3, len(self._cluster.sim.brokers)) if replication_factor is None else replication_factor
        copies = min(map(len, replicas)) if replicas else factor
        wanted = {"min.insync.replicas": str(min(2, copies)), **(settings or {})}
        self._engine.do(self._cluster.create_topic(name, partitions, factor, replicas, wanted))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records. Raises TidelogError."""
        self._engine.do(self._cluster.delete_topic(name))

    def alter_topic(self, name: str, settings: Mapping[str, str]) -> None:
        """Sets settings of a topic. Raises TidelogError."""
        self._engine.do(self._cluster.alter_topic(name, settings))

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Asks the controller to move a partition to these brokers, and does not wait for the end. Raises TidelogError."""
        self._engine.do(self._cluster.reassign(TopicPartition(topic, partition), replicas))

    def elect(self, topic: str, partition: int, *, unclean: bool = False, broker: int | None = None) -> None:
        """Elects the preferred leader; with `unclean` the replica with the largest log, or the one of `broker`.

        Raises TidelogError: nothing was elected, and the text says why.
        """
        self._engine.do(self._cluster.elect(TopicPartition(topic, partition), unclean=unclean, broker=broker))

    def release_veto(self, topic: str, partition: int) -> None:
        """Lets the last ISR member lead although it lost power. Raises TidelogError."""
        self._engine.do(self._cluster.release_veto(TopicPartition(topic, partition)))

    # -- records -----------------------------------------------------------------------------------------------------

    def produce(
        self, topic: str, count: int = 1, *, acks: str | int = "all", partition: int | None = None, wait: bool = True
    ) -> Sends:
        """Produces records, to all partitions in turn or to one, with acks `all`, 1 or 0. With acks `all` it is idempotent.

        With `wait` it returns when each of them is acknowledged or has failed; a record fails after 8 s. Without, no time
        passes: what becomes of the records is in the result later.
        """
        if str(acks) not in ACKS:
            raise LabError(f"acks {acks!r} is not all, 1 or 0")
        sends = self._engine.act(lambda: self._cluster.produce(topic, count, str(acks), partition))
        if wait:
            self._engine.do(self._cluster.answered(sends))
        return sends

    def load(self, topic: str, rate: float, *, acks: str | int = "all") -> Sends:
        """Begins to produce `rate` records a second, until `stop_load`. The result counts them."""
        if str(acks) not in ACKS:
            raise LabError(f"acks {acks!r} is not all, 1 or 0")
        return self._engine.act(lambda: self._cluster.load(topic, rate, str(acks)))

    def stop_load(self, topic: str) -> None:
        """Ends the load of a topic."""
        self._engine.act(lambda: self._cluster.stop_load(topic))

    def consume(self, topic: str, partition: int | None = None) -> list[ConsumerRecord]:
        """Reads a topic, or one partition, from its start to the end of this moment.

        Raises TidelogError or TransportError when it comes to no end, as where a partition has no leader.
        """
        return self._engine.do(self._cluster.read(topic, partition))

    # -- groups ------------------------------------------------------------------------------------------------------

    def join(self, group: str, *topics: str, members: int = 1, session: float = SESSION_S) -> list[str]:
        """Starts processes with one consumer each, which process records until they are stopped. Returns their names.

        They are processes as brokers are: `kill`, `stop`, `pause` and the rest work on them. `session`: after so many seconds
        of silence the group goes on without a member.
        """
        return self._engine.act(lambda: self._cluster.join(group, topics, members, session))

    def take(self, process: str, seconds: float) -> None:
        """The application of a consumer takes so long over the records that it gets of a partition at once."""
        self._engine.act(lambda: self._cluster.take(process, seconds))

    # -- what there is to see ----------------------------------------------------------------------------------------

    @property
    def cluster(self) -> View:
        """Pictures of the cluster, as `until` gets them."""
        return self._cluster.view

    def partition(self, topic: str, number: int) -> Partition:
        """Returns a partition as it is now. KeyError: there is none."""
        return self.cluster.partition(topic, number)

    def group(self, name: str) -> Group:
        """Returns a consumer group as it is stored now. KeyError: there is none."""
        return self.cluster.group(name)

    def events(
        self,
        kind: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        process: str | None = None,
        since: float = 0.0,
    ) -> list[Step]:
        """Returns protocol events in the order in which they happened, the newest 200,000 at most.

        kind: a class like `LeaderChosen`, or a family: liveness, controller, election, orders, replica, isr, coordinator,
            member, zookeeper.
        topic, partition: whose events; without a partition those of all partitions of the topic.
        process: which process recorded them.
        since: seconds of virtual time.
        """
        try:
            kinds = None if kind is None else kinds_of(kind)
        except ValueError as error:
            raise LabError(str(error)) from None

        def wanted(step: Step) -> bool:
            tp = step.subject
            return (
                (kinds is None or step.kind in kinds)
                and (topic is None or (isinstance(tp, TopicPartition) and tp.topic == topic))
                and (partition is None or (isinstance(tp, TopicPartition) and tp.partition == partition))
                and (process is None or step.process == process)
                and step.t >= since
            )

        return [step for step in self._cluster.steps.events() if wanted(step)]

    def story(self) -> list[Step | Act]:
        """Returns the events, and between them what was done to the cluster from outside."""
        return list(self._cluster.steps)

    @property
    def violation(self) -> str:
        """The invariant that did not hold; "" as long as all do."""
        return self._engine.violation

    def verdict(self, *, lost: Loss = "none") -> Verdict:
        """Reads every partition twice from the start, which takes virtual time, and judges all that clients have seen.

        lost: which acknowledged records may be gone: `none`, `one-copy` (those that one replica alone had), or `allowed`.
        """
        if self.violation:
            return Verdict(0, 0, 0, 0, violation=self.violation)
        return self._engine.do(self._cluster.verdict(lost))

    def _repr_html_(self) -> str:
        return html(self.cluster)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends every process. Further calls do nothing."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _within(name: str, value: int, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise LabError(f"{name}: {value!r} is not a whole number from {least} to {most}")
