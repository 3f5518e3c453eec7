"""What the processes of a cluster say of themselves: their metrics, their memory, their log lines."""

import asyncio
import json
import re
import urllib.request
from collections.abc import Mapping
from typing import Final

import psutil
from prometheus_client.parser import text_string_to_metric_families

from tidelog.cluster.api import CONTROLLER, ZOOKEEPER
from tidelog.cluster.local import LocalCluster
from tidelog.cluster.zookeeper import four_letter_word
from tidelog.ids import Address

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
TIMEOUT_S: Final = 20.0
# What the active controller logs when everybody has been told: "suspected: 4 leaders elected; detect 51.3 ms, ..."
ROUND: Final = re.compile(r"^([a-z_-]+): (\d+) leaders elected; (.*)")
STEP: Final = re.compile(r"(\w+) ([0-9.]+) ms")
ZXID: Final = re.compile(r"^Zxid: (0x[0-9a-f]+)", re.MULTILINE)
LOG_LINES: Final = 400
FAILOVERS: Final = ("suspected", "broker_down")


def _read(address: Address) -> Samples:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def metrics(cluster: LocalCluster, name: str) -> Samples:
    """Of one process, by (name, labels)."""
    return await asyncio.to_thread(_read, cluster.plan[name].addresses["METRICS"])


def value(samples: Samples, name: str, **labels: str) -> float:
    """0.0 where there is no such sample."""
    return samples.get((name, frozenset(labels.items())), 0.0)


def zxid(cluster: LocalCluster) -> int:
    """The number of ZooKeeper's newest transaction: one for each write that it has executed, whatever it was."""
    (server,) = cluster.endpoints(ZOOKEEPER).values()
    found = ZXID.search(four_letter_word(server, "srvr", timeout_s=TIMEOUT_S))
    assert found is not None, "srvr names no Zxid"
    return int(found[1], 16)


def rss_bytes(cluster: LocalCluster, name: str) -> int:
    """Resident memory of a process that runs."""
    (row,) = (row for row in cluster.status() if row.name == name)
    assert row.pid is not None, f"{name} does not run"
    return int(psutil.Process(row.pid).memory_info().rss)


def rounds(cluster: LocalCluster) -> list[tuple[str, int, dict[str, float]]]:
    """What controllers have logged, the oldest first: (cause, leaders elected, milliseconds of each step)."""
    found: list[tuple[str, str, int, dict[str, float]]] = []
    for name in cluster.names(CONTROLLER):
        for line in cluster.logs(name, LOG_LINES).splitlines():
            try:
                said = json.loads(line)
                matched = ROUND.match(said["event"])
            except (ValueError, KeyError, TypeError):
                continue
            if matched:
                steps = {step: float(ms) for step, ms in STEP.findall(matched[3])}
                found.append((said["timestamp"], matched[1], int(matched[2]), steps))
    return [(cause, elections, steps) for _, cause, elections, steps in sorted(found, key=lambda each: each[0])]


def steps_of(cluster: LocalCluster, cause: str) -> list[dict[str, float]]:
    """Milliseconds of each step, for each round of that cause."""
    return [steps for each, _, steps in rounds(cluster) if each == cause]


def failover_steps(cluster: LocalCluster) -> list[dict[str, float]]:
    """Milliseconds of each step, for each failover of a broker that moved a leader."""
    return [steps for cause, elections, steps in rounds(cluster) if cause in FAILOVERS and elections]
