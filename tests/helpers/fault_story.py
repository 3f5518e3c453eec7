"""The faults of dashboards.proof, played one after the other on a local cluster under load, and when each of them was.

Whatever has to come is waited for in what Prometheus says, since that is what panels and alerts go by; what is slept for are
the windows in which they are looked at.
"""

import asyncio
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from dashboards.proof import Fault
from helpers.metrics import metric
from helpers.prometheus import Prometheus
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.client.reassignments import Throttle
from tidelog.cluster.api import AGENT, BROKER, CONTROLLER, ZOOKEEPER, bootstrap_servers, broker_id_of, broker_name
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.local import LocalCluster
from tidelog.coordinator.shards import GIVE_BACK_S
from tidelog.ids import Address, TopicPartition
from tidelog.runtime.metrics import LATE_KEPT_S
from tidelog.wire import messages as m

GROUP: Final = "agents"
TOPIC: Final = "events"
EVENTS: Final = ((0, 1, 2), (1, 2, 0), (2, 0, 1)) * 2
FRAIL: Final = ((1, 2),)
PARTITIONS: Final = len(EVENTS) + len(FRAIL) + 1
SETTINGS: Final = {
    # A follower is missed before the session of its broker ends; lag and flushes show in seconds of traffic.
    BROKER: {
        "replica_lag_time_max_ms": "1500",
        "group_lag_interval_ms": "500",
        "log_flush_interval_ms": "500",
        # A pass lasts longer than the time between two scrapes.
        "log_cleaner_backoff_ms": "200",
        "log_cleaner_io_max_bytes_per_second": "250000",
        "log_scrub_interval_ms": "1000",
    },
    AGENT: {"commit_interval_ms": "500", "session_timeout_ms": "3000"},
}
MOVED: Final = "moved"
MOVED_BYTES: Final = 3_000_000
"""More than a chunk of replication, by much: the first one may be sent before a broker has heard of the throttle."""
MOVES_BYTES_PER_S: Final = 400_000
COMPACTED: Final = "compacted"
DIRTY_RATIO: Final = 0.3
COMPACTS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": str(DIRTY_RATIO),
}
VALUE_BYTES: Final = 1000
KEYS: Final = 50
"""More than one closed segment is left of them."""
RECORDS_PER_S: Final = 200
PAUSE_S: Final = 3.5
"""Longer than replica.lag.time.max; a session that was renewed just before lives for 4 s."""
RATE_S: Final = 5
"""What Grafana would choose as $__rate_interval for scrapes of a second."""
WINDOW_S: Final = 3
SETTLED_S: Final = max(RATE_S, LATE_KEPT_S) + 3
"""An alert can outlast its fault by this much: rates and the worst lag of an event loop remember the fault, and a scrape, an
evaluation of the rules and the rounding to whole seconds add up to one second each."""
WITHIN_S: Final = 90.0
SHIM: Final = Path(__file__).resolve().parent / "disk_faults"


class Window(NamedTuple):
    """Whole seconds, so that steps of a range query fall on them."""

    begin: int
    end: int

    @property
    def instants(self) -> list[float]:
        return [float(at) for at in range(self.begin, self.end + 1)]


Windows = Mapping[tuple[Fault, str], Window]
"""By fault and before, during or after."""


@contextmanager
def child(module: str, settings: Mapping[str, str], *arguments: str) -> Iterator[None]:
    """A process of ours beside the cluster."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDELOG_")}
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], env={**inherited, **settings})
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def zookeeper_exporter(cluster: LocalCluster) -> Iterator[Address]:
    listen = Address("127.0.0.1", free_ports(1)[0])
    servers = ",".join(str(address) for address in cluster.endpoints(ZOOKEEPER).values())
    with child("tidelog.exporter", {}, "--zookeeper", servers, "--listen", str(listen), "--timeout", "0.8"):
        yield listen


@contextmanager
def traffic(cluster: LocalCluster) -> Iterator[Address]:
    listen = Address("127.0.0.1", free_ports(1)[0])
    settings = {
        "TIDELOG_BOOTSTRAP_SERVERS": bootstrap_servers(cluster),
        "TIDELOG_METRICS_ADDRESS": str(listen),
        "TIDELOG_TRAFFIC_TOPIC": TOPIC,
        "TIDELOG_TRAFFIC_RECORDS_PER_S": str(RECORDS_PER_S),
    }
    with child("tidelog.traffic", settings):
        yield listen


async def make_topics(cluster: LocalCluster) -> None:
    async with Admin(bootstrap_servers(cluster)) as admin:
        await admin.create_topic(TOPIC, assignment=EVENTS)
        await admin.create_topic("frail", assignment=FRAIL, configs={"min.insync.replicas": "1"})


async def make_single(cluster: LocalCluster, broker: str) -> None:
    async with Admin(bootstrap_servers(cluster)) as admin:
        assignment = [[broker_id_of(broker)]]
        await admin.create_topic("single", assignment=assignment, configs={"min.insync.replicas": "1"})


@dataclass
class Story:
    cluster: LocalCluster
    prometheus: Prometheus
    chaos: ChaosMetrics
    shards: dict[str, float] = field(default_factory=dict)
    """How many of the groups' shards each broker coordinates when all brokers run. One that returns gets its own back."""
    victim: str = ""
    """Leads `single`, coordinates the group."""

    def play(self) -> Windows:
        plays: Mapping[Fault, Callable[[], None]] = {
            Fault.MOVE: self.move,
            Fault.COMPACT: self.compact,
            Fault.KILL_LEADER: self.kill_leader,
            Fault.PAUSE_FOLLOWER: self.pause_follower,
            Fault.RESTART: self.restart,
            Fault.KILL_CONTROLLER: self.kill_controller,
            Fault.KILL_AGENTS: self.kill_agents,
            Fault.KILL_ZOOKEEPER: self.kill_zookeeper,
            Fault.DISK_ERROR: self.disk_error,
            Fault.LOSE_TWO: self.lose_two,
            Fault.KILL_BROKERS: self.kill_brokers,
            Fault.CRASH_LOOP: self.crash_loop,
        }
        self.set_up()
        windows = {(Fault.LOAD, "during"): (quiet := self.quiet())}
        for fault, play in plays.items():
            windows[fault, "before"] = quiet
            began = int(time.time())
            play()
            self.wait_whole()
            ended = int(time.time())
            windows[fault, "during"] = Window(began, ended + 2)  # not all are scraped at the same instant
            windows[fault, "after"] = quiet = self.quiet()
        return windows

    def quiet(self) -> Window:
        """Some seconds in which nothing happens, and all that Prometheus asks for comes in time, however busy the machine is."""
        time.sleep(SETTLED_S + WINDOW_S)
        for answers in ("up", "tidelog_zookeeper_up"):
            self.wait(f"min(min_over_time({answers}[{WINDOW_S + 2}s]))", lambda now: now == [1])
        now = int(time.time())
        return Window(now - WINDOW_S, now - 1)

    def set_up(self) -> None:
        self.wait_spread()
        generation = "tidelog_group_generation"
        self.wait(f'count({generation}{{group="{GROUP}"}})', lambda now: now == [1])
        brokers = self.cluster.names(BROKER)
        (self.victim,) = (name for name in brokers if metric(self.cluster, name, generation, group=GROUP))
        asyncio.run(make_single(self.cluster, self.victim))
        self.wait_whole()

    # what an operator does without breaking anything; each returns when it has ended

    def move(self) -> None:
        asyncio.run(self.begin_move())
        self.wait("sum(tidelog_controller_reassigning_partitions)", lambda now: now == [1])
        self.wait("sum(tidelog_controller_reassigning_partitions)", lambda now: now == [0])
        asyncio.run(self.delete(MOVED))

    def compact(self) -> None:
        removed = "tidelog_log_cleaner_removed_records_total"
        asyncio.run(self.make_compacted())
        self.wait(removed, lambda now: len(now) == 3 and min(now) > 0)
        self.wait("tidelog_log_cleaner_max_dirty_ratio", lambda now: max(now) <= DIRTY_RATIO)
        self.flip_a_bit()
        self.wait("sum(tidelog_log_corrupt_batches_found_total)", lambda now: now >= [1])
        self.wait("sum(tidelog_broker_under_replicated_partitions)", lambda now: now == [0])
        asyncio.run(self.delete(COMPACTED))

    # faults; each returns when it has ended

    def kill_leader(self) -> None:
        with self.marked("kill", [self.victim]):
            self.cluster.kill(self.victim)
            self.wait(f'count(tidelog_group_generation{{group="{GROUP}"}}) or vector(0)', lambda now: now == [0])
            self.wait(f'count(tidelog_group_generation{{group="{GROUP}"}})', lambda now: now == [1])
            self.wait("count(tidelog_controller_broker_state)", lambda now: now == [2])
            self.cluster.start(self.victim)
        self.wait_spread_as_before()

    def pause_follower(self) -> None:
        """Of every partition of `events`: it was away a moment ago."""
        with self.marked("pause", [self.victim]):
            self.cluster.pause(self.victim)
            time.sleep(PAUSE_S)
            self.cluster.resume(self.victim)

    def restart(self) -> None:
        names = self.cluster.names()
        with ThreadPoolExecutor(len(names)) as threads:
            list(threads.map(self.cluster.stop, names))
            self.wait('max(up{job=~"broker|controller|agent"})', lambda now: now == [0])
            list(threads.map(self.cluster.start, names))
        self.wait_whole()
        self.wait_spread_as_before()

    def kill_controller(self) -> None:
        with self.marked("kill", self.controllers(active=True)) as (name,):
            self.cluster.kill(name)
            self.wait("sum(tidelog_controller_active)", lambda now: now == [0])
            self.wait("sum(tidelog_controller_active)", lambda now: now == [1])
            self.cluster.start(name)

    def kill_agents(self) -> None:
        with self.marked("kill", self.cluster.names(AGENT)) as names:
            first, second = names
            self.cluster.kill(first)
            self.wait(f'max(tidelog_group_members{{group="{GROUP}"}})', lambda now: now == [1])
            self.wait("sum(tidelog_agent_owned_partitions)", lambda now: now == [len(EVENTS)])
            self.cluster.kill(second)
            self.wait(f'sum(tidelog_group_lag_records{{group="{GROUP}"}})', lambda now: now > [1200])
            self.wait(f'tidelog_group_state{{group="{GROUP}",state="Empty"}}', lambda now: now == [1])
            for name in names:
                self.cluster.start(name)

    def kill_zookeeper(self) -> None:
        with self.marked("kill", self.cluster.names(ZOOKEEPER)) as (name,):
            self.cluster.kill(name)
            self.wait("sum(tidelog_zookeeper_up)", lambda now: now == [0])
            self.cluster.start(name)

    def disk_error(self) -> None:
        sick = broker_name(asyncio.run(self.describe(TOPIC)).partitions[0].leader)
        file = self.cluster.home(sick) / "disk-faults.json"
        with self.marked("disk error", [sick]):
            file.write_text(json.dumps({"call": "writev", "path": f"/{TOPIC}-0/", "errno": errno.EIO}))
            self.wait("sum(tidelog_broker_offline_replicas)", lambda now: now == [1])
            file.unlink()

    def lose_two(self) -> None:
        (partition,) = asyncio.run(self.describe("frail")).partitions
        leader = broker_name(partition.leader)
        (follower,) = (broker_name(broker) for broker in partition.replicas if broker != partition.leader)
        with self.marked("kill", [leader, follower]):
            asyncio.run(self.configure("frail", {"unclean.leader.election.enable": "true"}))
            self.cluster.kill(follower)
            self.wait('tidelog_partition_isr_size{topic="frail"}', lambda now: now == [1])
            asyncio.run(self.write_behind_its_back())
            self.cluster.kill(leader)
            self.wait("sum(tidelog_broker_under_min_isr_partitions)", lambda now: now == [len(EVENTS)])
            time.sleep(10.0 + WINDOW_S)  # the window of the alert NoAcknowledgements
            self.cluster.start(follower)
            self.wait('max(tidelog_partition_leader{topic="frail"})', lambda now: now == [broker_id_of(follower)])
            self.cluster.start(leader)

    def kill_brokers(self) -> None:
        with self.marked("kill", self.cluster.names(BROKER)) as names:
            for name in names:
                self.cluster.kill(name)
            self.wait("sum(tidelog_controller_offline_partitions)", lambda now: now == [PARTITIONS])
            self.wait("count(tidelog_controller_broker_state) or vector(0)", lambda now: now == [0])
            for name in reversed(names):
                self.cluster.start(name)

    def crash_loop(self) -> None:
        (name,) = self.controllers(active=False)
        instance = self.cluster.plan[name].addresses["METRICS"]
        began = f'process_start_time_seconds{{instance="{instance}"}}'
        with self.marked("kill", [name]):
            for _ in range(3):
                (before,) = self.prometheus.newest(began)
                self.cluster.bounce(name)
                self.wait(f"{began} > {before!r}", lambda now: len(now) == 1)

    # what they are made of

    def controllers(self, *, active: bool) -> list[str]:
        names = self.cluster.names(CONTROLLER)
        return [name for name in names if metric(self.cluster, name, "tidelog_controller_active") == active]

    @contextmanager
    def marked(self, fault: str, targets: Collection[str]) -> Iterator[list[str]]:
        names = list(targets)
        assert names, f"no process to {fault}"
        self.chaos.began(fault, names)
        yield names
        self.chaos.ended(fault, names)
        ended = time.monotonic()
        self.wait_whole()
        self.chaos.recovered(fault, time.monotonic() - ended)

    async def begin_move(self) -> None:
        async with Admin(bootstrap_servers(self.cluster)) as admin:
            await admin.create_topic(MOVED, assignment=[[0]], configs={"min.insync.replicas": "1"})
            await self.fill(MOVED, MOVED_BYTES // VALUE_BYTES)
            throttle = Throttle(MOVES_BYTES_PER_S, MOVES_BYTES_PER_S)
            await admin.reassignments.alter({TopicPartition(MOVED, 0): [1]}, throttle=throttle)

    async def make_compacted(self) -> None:
        async with Admin(bootstrap_servers(self.cluster)) as admin:
            await admin.create_topic(COMPACTED, assignment=[[0, 1, 2]], configs=COMPACTS)
        await self.fill(COMPACTED, 20 * KEYS)

    async def fill(self, topic: str, records: int) -> None:
        async with Producer(bootstrap_servers(self.cluster), batch_bytes=4 * VALUE_BYTES) as producer:
            for number in range(records):
                await producer.send(topic, os.urandom(VALUE_BYTES), b"%d" % (number % KEYS))
            await producer.flush()

    async def delete(self, topic: str) -> None:
        async with Admin(bootstrap_servers(self.cluster)) as admin:
            await admin.delete_topic(topic)

    def flip_a_bit(self) -> None:
        """In the middle of the oldest segment of a follower."""
        segment = min((self.cluster.data_dir(broker_name(2)) / f"{COMPACTED}-0").glob("*.log"))
        with segment.open("r+b") as file:
            middle = segment.stat().st_size // 2
            file.seek(middle)
            (byte,) = file.read(1)
            file.seek(middle)
            file.write(bytes([byte ^ 1]))

    async def configure(self, topic: str, configs: Mapping[str, str]) -> None:
        async with Admin(bootstrap_servers(self.cluster)) as admin:
            await admin.alter_configs(topic, configs)

    async def describe(self, topic: str) -> m.TopicDescription:
        async with Admin(bootstrap_servers(self.cluster)) as admin:
            return await admin.describe_topic(topic)

    async def write_behind_its_back(self) -> None:
        async with Producer(bootstrap_servers(self.cluster), acks="1") as producer:
            for number in range(50):
                await producer.send("frail", b"%d" % number)
            await producer.flush()

    # waiting

    def wait(self, query: str, condition: Callable[[list[float]], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition(found := self.prometheus.newest(query)):
            assert time.monotonic() < deadline, f"after {WITHIN_S} s {query} is {found}"
            time.sleep(0.2)

    def of_brokers(self, family: str) -> dict[str, float]:
        return {name: metric(self.cluster, name, family) for name in self.cluster.names(BROKER)}

    def wait_spread(self) -> None:
        """Until no shard of the groups changes hands any more; brokers come one by one at the start of a cluster."""
        began = since = time.monotonic()
        elections = self.of_brokers("tidelog_coordinator_elections_total")
        while time.monotonic() - since < GIVE_BACK_S + 3.0:
            assert time.monotonic() - began < WITHIN_S, "shards of the groups go on changing hands"
            time.sleep(0.5)
            if (now := self.of_brokers("tidelog_coordinator_elections_total")) != elections:
                elections, since = now, time.monotonic()
        self.shards = self.of_brokers("tidelog_coordinator_shards")

    def wait_spread_as_before(self) -> None:
        deadline = time.monotonic() + WITHIN_S
        while (now := self.of_brokers("tidelog_coordinator_shards")) != self.shards:
            assert time.monotonic() < deadline, f"shards are spread {now}, and were {self.shards}"
            time.sleep(0.2)

    def wait_whole(self) -> None:
        """Every process is up, every replica in sync, every log led, both agents work, and the group has caught up."""
        self.wait("min(up)", lambda now: now == [1])
        self.wait(
            'sum(tidelog_controller_brokers{state="alive"})', lambda now: now == [len(self.cluster.names(BROKER))]
        )
        self.wait("sum(tidelog_controller_offline_partitions)", lambda now: now == [0])
        self.wait("sum(tidelog_broker_under_replicated_partitions)", lambda now: now == [0])
        self.wait("sum(tidelog_broker_leaders)", lambda now: now == [PARTITIONS])
        self.wait('sum(tidelog_zk_session_state{state="connected"})', lambda now: now == [5])
        self.wait('sum(tidelog_agent_state{state="stable"})', lambda now: now == [len(self.cluster.names(AGENT))])
        self.wait("sum(tidelog_agent_owned_partitions)", lambda now: now == [len(EVENTS)])
        self.wait(f'tidelog_group_state{{group="{GROUP}",state="Stable"}}', lambda now: now == [1])
        self.wait(f'sum(tidelog_group_lag_records{{group="{GROUP}"}}) < bool 600', lambda now: now == [1])
        self.wait(f"sum(increase(tidelog_e2e_received_total[{RATE_S}s])) > bool 100", lambda now: now == [1])
