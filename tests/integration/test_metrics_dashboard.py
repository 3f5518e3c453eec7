"""A real Prometheus over a live cluster that loses a leader under load: every panel of the board shows something."""

import asyncio
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.cluster import MakeCluster
from helpers.prometheus import Prometheus, prometheus_server, why_not
from helpers.scripts import ROOT
from tidelog.client.admin import AdminClient
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.cluster.api import AGENT, BROKER, CONTROLLER, ZOOKEEPER, bootstrap_servers, broker_name
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.local import LocalCluster
from tidelog.ids import Address, TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BOARD = ROOT / "deploy" / "grafana" / "dashboards" / "tidelog.json"
TOPIC = "events"  # which the agents of a local cluster read, as members of the group
GROUP = "agents"
PARTITIONS = 6
TARGETS = 7
# So often that seconds of traffic show it.
SETTINGS = {BROKER: {"group_lag_interval_ms": "500"}, AGENT: {"commit_interval_ms": "500"}}
COMMITTED = f'sum(max by (partition) (tidelog_group_committed_offset{{group="{GROUP}"}}))'
# What Grafana puts in the place of its variables.
VARIABLES = {"$__rate_interval": "5s", "$topic": ".*", "$group": ".*"}


def metrics_addresses(cluster: LocalCluster, kind: str) -> list[Address]:
    return [row.addresses["METRICS"] for row in cluster.status() if row.kind == kind]


@contextmanager
def zookeeper_exporter(cluster: LocalCluster) -> Iterator[Address]:
    listen = Address("127.0.0.1", free_ports(1)[0])
    servers = ",".join(str(address) for address in cluster.endpoints(ZOOKEEPER).values())
    command = [sys.executable, "-m", "tidelog.exporter", "--zookeeper", servers, "--listen", str(listen)]
    process = subprocess.Popen(command)
    try:
        yield listen
    finally:
        process.terminate()
        process.wait(10)


async def traffic(cluster: LocalCluster) -> None:
    """Produces and reads for some seconds; half way the leader of partition 0 is killed, and started again."""
    servers = bootstrap_servers(cluster)
    async with AdminClient(servers) as admin, Producer(servers, acks="all") as producer, Consumer(servers) as consumer:
        await admin.create_topic(TOPIC, PARTITIONS, 3, configs={"flush": "sync"})
        topic = await admin.wait_until_led(TOPIC, in_sync=True)
        victim = broker_name(topic.partitions[0].leader)
        await consumer.assign([TopicPartition(TOPIC, p) for p in range(PARTITIONS)])
        begin = time.monotonic()
        killed = False
        while (passed := time.monotonic() - begin) < 8:
            for number in range(100):
                await producer.send(TOPIC, b"x" * 200, partition=number % PARTITIONS)
            await producer.flush()
            await consumer.poll(timeout_s=0.05)
            if passed > 4 and not killed:
                cluster.kill(victim)
                killed = True
        cluster.start(victim)
        await admin.wait_until_led(TOPIC, in_sync=True, timeout_s=30)


def queries() -> list[tuple[str, str]]:
    """(panel, query) of the whole board, with Grafana's variables filled in."""
    found = []
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for variable, value in VARIABLES.items():
                query = query.replace(variable, value)
            found.append((panel["title"], query))
    return found


def numbers(series: Sequence[Sequence[float]]) -> list[float]:
    return [value for values in series for value in values if not math.isnan(value)]


def wait_for(prometheus: Prometheus, query: str, value: float) -> None:
    """Until the newest sample says so: a scrape is a second behind."""
    deadline = time.monotonic() + 20
    while (found := numbers(prometheus.values(query, time.time(), time.time()))) != [value]:
        assert time.monotonic() < deadline, f"{query} is {found}"
        time.sleep(0.2)


def wait_all_up(prometheus: Prometheus, count: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        targets = prometheus.targets()
        if len(targets) == count and set(targets.values()) == {"up"}:
            return
        assert time.monotonic() < deadline, f"not every target is up: {targets}"
        time.sleep(0.2)


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_every_panel_of_the_board_shows_data_of_a_live_cluster(tmp_path: Path, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(agents=1, settings=SETTINGS)
    with zookeeper_exporter(cluster) as exporter:
        jobs = {kind: metrics_addresses(cluster, kind) for kind in (BROKER, CONTROLLER, AGENT)}
        jobs["zookeeper"] = [exporter]
        with prometheus_server(tmp_path, jobs) as prometheus:
            wait_all_up(prometheus, TARGETS)
            begin = time.time()
            asyncio.run(traffic(cluster))
            wait_all_up(prometheus, TARGETS)
            wait_for(prometheus, "min(tidelog_partition_isr_size)", 3)
            wait_for(prometheus, f'sum(tidelog_group_lag_records{{group="{GROUP}"}})', 0)
            # At least: what was handled and not committed yet is handled again by a new owner.
            wait_for(prometheus, f"sum(tidelog_agent_records_total) >= bool {COMMITTED}", 1)
            end = (
                time.time() + 1.0
            )  # the steps of a range query begin at `begin`: the last one may lie before this instant
            shown = {pair: numbers(prometheus.values(pair[1], begin, end)) for pair in queries()}
            assert [pair for pair, values in shown.items() if not values] == []
            assert prometheus.label_values("topic", "tidelog_partition_high_watermark") == [TOPIC]
            assert prometheus.label_values("group", "tidelog_group_members") == [GROUP]
            check_the_story(prometheus, begin, end)


def check_the_story(prometheus: Prometheus, begin: float, end: float) -> None:
    """A kill can be read off the metrics: an ISR that shrank and grew, and leaders elected for the reason."""

    def last(query: str) -> float:
        return numbers(prometheus.values(query, begin, end))[-1]

    sizes = numbers(prometheus.values("min(tidelog_partition_isr_size)", begin, end))
    assert min(sizes) == 2 and sizes[-1] == 3
    assert last('sum(tidelog_controller_leader_elections_total{reason=~"suspected|broker_down"})') >= 1
    assert last("sum(tidelog_controller_offline_partitions)") == 0
    assert last('sum(tidelog_zk_session_state{state="connected"})') == 5
    produced = last(f'sum(increase(tidelog_records_in_total{{topic="{TOPIC}"}}[{int(end - begin) + 5}s]))')
    assert produced > 100
    assert last(COMMITTED) > 100
    assert last("sum(tidelog_agent_owned_partitions)") == PARTITIONS
