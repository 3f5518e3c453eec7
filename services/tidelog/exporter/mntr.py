"""What a ZooKeeper server says to `mntr`, as Prometheus metric families."""

import re
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidelog.ids import Address

PREFIX: Final = "tidelog_zookeeper"
FIELD: Final = re.compile(r"zk_([a-z0-9_]+)\t(\S+)", re.ASCII)

KEPT: Final = {
    "avg_latency": "Milliseconds of a request, on average since the server started.",
    "max_latency": "Milliseconds of the slowest request since the server started.",
    "outstanding_requests": "Requests that wait.",
    "num_alive_connections": "Connections of clients.",
    "packets_received": "Since the server started.",
    "packets_sent": "Since the server started.",
    "znode_count": "Nodes of the tree.",
    "ephemerals_count": "Of them, those that end with a session.",
    "watch_count": "Watches that clients have set.",
    "approximate_data_size": "Bytes of the tree.",
    "open_file_descriptor_count": "Files and connections that are open.",
    "max_file_descriptor_count": "How many may be open.",
    "cnt_fsynctime": "Syncs of the transaction log.",
    "sum_fsynctime": "Milliseconds that they took together.",
    "max_fsynctime": "Milliseconds of the slowest one.",
    "cnt_election_time": "Elections that this server has been through.",
    "sum_election_time": "Milliseconds that they took together.",
    "max_election_time": "Milliseconds of the longest one.",
    "synced_followers": "Followers that the leader counts for its quorum; told by the leader.",
    "pending_syncs": "Syncs of clients that wait for the leader; told by the leader.",
}
"""The fields that are exported. A server tells about five hundred; these are what boards and alerts ask for, and what tells an
operator whether its disk, its memory of the tree, its connections or its quorum are in trouble."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One server's answer. `up` is false when there was none; a server outside its quorum is up, without fields."""

    server: Address
    up: bool
    state: str = ""
    """leader, follower, observer, standalone; empty while it does not serve."""
    fields: dict[str, float] = field(default_factory=dict)


def parse(server: Address, text: str) -> Answer:
    """Fields that are not kept or no numbers are left out."""
    fields: dict[str, float] = {}
    state = ""
    for line in text.splitlines():
        found = FIELD.fullmatch(line)
        if found is None:
            continue
        name, value = found.groups()
        if name == "server_state":
            state = value
            continue
        if name in KEPT:
            try:
                fields[name] = float(value)
            except ValueError:
                continue
    return Answer(server, up=True, state=state, fields=fields)


def ask(server: Address, timeout_s: float) -> Answer:
    try:
        with socket.create_connection(server, timeout=timeout_s) as connection:
            connection.sendall(b"mntr")
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
    except OSError:
        return Answer(server, up=False)
    return parse(server, b"".join(parts).decode(errors="replace"))


class MntrCollector(Collector):
    """Asks all servers at once on every scrape; one that is silent costs `timeout_s`, and only its own fields."""

    def __init__(self, servers: Sequence[Address], timeout_s: float = 2.0) -> None:
        self._servers = servers
        self._timeout_s = timeout_s

    def collect(self) -> Iterator[Metric]:
        with ThreadPoolExecutor(len(self._servers), thread_name_prefix="mntr") as pool:
            answers = list(pool.map(lambda server: ask(server, self._timeout_s), self._servers))
        up = GaugeMetricFamily(f"{PREFIX}_up", "Whether the server answered.", labels=["server"])
        state = GaugeMetricFamily(f"{PREFIX}_server_state", "1 for the role it has.", labels=["server", "state"])
        families = {name: GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["server"]) for name, text in KEPT.items()}
        for answer in answers:
            up.add_metric([str(answer.server)], float(answer.up))
            if answer.state:
                state.add_metric([str(answer.server), answer.state], 1.0)
            for name, value in answer.fields.items():
                families[name].add_metric([str(answer.server)], value)
        yield up
        yield state
        yield from families.values()
