"""The observer against real metrics servers and brokers in memory: what it writes, and that it goes on when they are silent."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from helpers.aio import eventually
from helpers.batches import batch
from helpers.driven_brokers import serve_over_grpc
from tidelog.chaos import samples as s
from tidelog.chaos.observe import Observer, measured, zookeeper_role
from tidelog.client.connections import real_ports
from tidelog.client.observer import ANSWER_S
from tidelog.cluster.api import BROKER, ClusterError, ProcessStatus, State, kind_of
from tidelog.ids import Address, TopicPartition
from tidelog.ports.meta import SessionState
from tidelog.runtime.metrics import BrokerMetrics, ControllerMetrics
from tidelog.runtime.metrics_server import MetricsServer
from tidelog.runtime.tasks import TaskFailed

ANYWHERE = Address("127.0.0.1", 0)


class Processes:
    """As much of a cluster as the observer asks."""

    def __init__(self, addresses):
        self.addresses = addresses
        self.states = dict.fromkeys(addresses, State.RUNNING)
        self.broken = False
        self.brokers = {}

    def names(self, kind=None):
        return list(self.addresses)

    def endpoints(self, kind=BROKER):
        return self.brokers

    def status(self):
        if self.broken:
            raise ClusterError("the engine is gone")
        return [
            ProcessStatus(name, kind_of(name), state, 1, self.addresses[name], "")
            for name, state in self.states.items()
        ]


@asynccontextmanager
async def observed(tmp_path, on_sample=None):
    """(processes, brokers in memory, what was seen, servers by name)"""
    async with AsyncExitStack() as ends:
        registry = CollectorRegistry()
        metrics = BrokerMetrics(registry)
        metrics.zk.session(SessionState.LOST)
        controllers = CollectorRegistry()
        acting = ControllerMetrics(controllers)
        acting._active.set(1)
        acting._epoch.set(3)
        acting._elections.labels("broker_down").inc(2)
        acting._elections.labels("preferred").inc()
        servers = {
            name: MetricsServer(ANYWHERE, r) for name, r in (("broker-1", registry), ("controller-1", controllers))
        }
        for server in servers.values():
            ends.callback(server.close)
        zookeeper = await asyncio.start_server(answer_srvr, *ANYWHERE)
        ends.callback(zookeeper.close)
        processes = Processes(
            {
                "zookeeper-1": {"CLIENT": Address("127.0.0.1", zookeeper.sockets[0].getsockname()[1])},
                **{name: {"METRICS": server.address} for name, server in servers.items()},
                "agent-1": {"METRICS": ANYWHERE},
            }
        )
        brokers = await serve_over_grpc(2)
        ends.push_async_callback(brokers.stop)
        await brokers.create("chaos", 2)
        await brokers.create("other")
        await brokers.append("chaos", 0, batch(*[b"v"] * 7))
        await brokers.create_group("g", {TopicPartition("chaos", 0): 7})
        processes.brokers = {f"broker-{n}": address for n, address in brokers.addresses.items()}
        seen = []
        ports = real_ports()
        async with Observer(
            processes,
            ports,
            ports.clock.now(),
            tmp_path / s.FILE_NAME,
            topics=["chaos"],
            groups=["g"],
            period_s=0.05,
            on_sample=on_sample or seen.append,
        ):
            yield processes, brokers, seen, servers


async def answer_srvr(reader, writer):
    assert await reader.readexactly(4) == b"srvr"
    writer.write(b"Zookeeper version: 3.9\nMode: follower\nNode count: 5\n")
    await writer.drain()
    writer.close()


def last(seen, kind):
    return next(each for each in reversed(seen) if isinstance(each, kind))


def last_of(seen, process):
    """None before the first."""
    return next((each for each in reversed(seen) if getattr(each, "process", "") == process), None)


def silent(seen):
    return {each.source: each.why for each in seen if isinstance(each, s.Silent)}


def kinds(seen):
    return {type(each) for each in seen}


@pytest.mark.real_loop
async def test_every_source_is_asked_and_what_it_says_is_written(tmp_path):
    async with observed(tmp_path) as (_, _, seen, _):
        await eventually(lambda: kinds(seen) >= set(s.KINDS.values()) - {s.Silent}, "a look at every source")
        await eventually(lambda: last_of(seen, "broker-1").session_expirations is not None, "its metrics too")
        await eventually(
            lambda: [type(each) for each in seen].count(s.GroupLook) > 3, "looks at all brokers in between"
        )

    assert last(seen, s.ProcessStates).states["broker-1"] == "running"
    look = last_of(seen, "broker-1")
    assert look.session_expirations == 1
    assert list(look.replicas) == [
        s.Replica(topic="chaos", partition=0, leader_epoch=0, log_start=0, high_watermark=7, log_end=7, isr_size=2),
        s.Replica(topic="chaos", partition=1, leader_epoch=0, log_start=0, high_watermark=0, log_end=0),
    ]
    assert [replica.leads for replica in look.replicas] == [True, False]
    controller = last(seen, s.ControllerLook)
    assert (controller.process, controller.active, controller.epoch) == ("controller-1", True, 3)
    counted = {reason: count for reason, count in controller.elections.items() if count}
    assert counted == {"broker_down": 2, "preferred": 1}
    assert last(seen, s.ZooKeeperLook).role == "follower"
    assert [(p.topic, p.partition, p.leader) for p in last(seen, s.Partitions).partitions] == [
        ("chaos", 0, 1),
        ("chaos", 1, 2),
    ]
    told = next(number for number, each in enumerate(seen) if isinstance(each, s.GroupLook))
    assert silent(seen[told:]) == {}, "of a group its coordinator tells"
    group = last(seen, s.GroupLook)
    assert group.state == "Empty" and list(group.committed) == [s.Committed(topic="chaos", partition=0, offset=7)]
    written = s.read_samples(tmp_path / s.FILE_NAME)
    assert written.complete and len(written.looks) == len(seen)
    assert all(look.t >= 0 and 0 <= look.took < ANSWER_S for look in written.looks)


@pytest.mark.real_loop
async def test_who_is_dead_or_stands_still_is_a_gap_and_the_rest_goes_on(tmp_path):
    async def hang(reader, writer):
        await reader.read()  # until the observer gives up
        writer.close()

    async with observed(tmp_path) as (processes, brokers, seen, servers):
        await eventually(lambda: s.BrokerLook in kinds(seen), "a first look")
        servers["controller-1"].close()
        zookeeper = processes.addresses["zookeeper-1"]
        stopped = await asyncio.start_server(hang, *ANYWHERE)
        processes.addresses["broker-1"] = {"METRICS": Address("127.0.0.1", stopped.sockets[0].getsockname()[1])}
        await eventually(lambda: last_of(seen, "broker-1").session_expirations is None, "no metrics")
        assert "broker-1" not in silent(seen)
        processes.addresses["zookeeper-1"] = {"CLIENT": processes.addresses["broker-1"]["METRICS"]}
        brokers.refuse("client")
        await eventually(
            lambda: {"controller-1", "zookeeper-1", "broker-1", s.CLUSTER, "group g"} <= silent(seen).keys(),
            "a gap of each",
        )
        processes.addresses["zookeeper-1"] = zookeeper
        others = len([each for each in seen if isinstance(each, s.ZooKeeperLook)])
        await eventually(
            lambda: len([e for e in seen if isinstance(e, s.ZooKeeperLook)]) > others + 3,
            "more looks at the living",
        )
        processes.addresses["broker-1"] = {"METRICS": servers["broker-1"].address}
        brokers.heal()
        count = len(seen)
        await eventually(lambda: {s.BrokerLook, s.Partitions, s.GroupLook} <= kinds(seen[count:]), "looks again")
        processes.broken = True
        await eventually(lambda: s.PROCESSES in silent(seen), "no engine")
        stopped.close()

    why = silent(seen)
    assert (why["zookeeper-1"], why["broker-1"]) == ("no answer within 1 s", "not reached")
    assert why[s.PROCESSES] == "the engine is gone"


@pytest.mark.real_loop
async def test_a_group_without_a_word_of_its_coordinator_is_a_gap(tmp_path):
    async with observed(tmp_path) as (_, brokers, seen, _):
        await eventually(lambda: s.GroupLook in kinds(seen), "a first look")
        coordinator = last(seen, s.GroupLook).coordinator
        brokers.silent.add(coordinator)
        source = s.group_source("g")
        await eventually(lambda: silent(seen).get(source) == "no answer", "a gap")
        assert silent(seen)[f"broker-{coordinator}"] == "no answer"
        brokers.silent.clear()
        count = len(seen)
        await eventually(lambda: s.GroupLook in kinds(seen[count:]), "a look again")


@pytest.mark.real_loop
async def test_a_look_that_cannot_be_written_comes_out_at_the_end(tmp_path):
    refused = []

    def full(sample):
        if isinstance(sample, s.BrokerLook):
            refused.append(sample)
            raise OSError("disk full")

    with pytest.raises(TaskFailed, match="disk full"):
        async with observed(tmp_path, full):
            await eventually(lambda: refused, "a look at a broker")
    assert len(refused) == 1


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 500 Oops\r\n\r\n", b"imok"])
def test_what_is_no_page_of_metrics_is_refused(answer):
    with pytest.raises(ValueError, match="no metrics"):
        measured(answer)


def test_a_server_outside_of_its_quorum_has_no_role():
    assert zookeeper_role("This ZooKeeper instance is not currently serving requests\n") == ""
    assert zookeeper_role("Zookeeper version: 3.9\nMode: leader\n") == "leader"
