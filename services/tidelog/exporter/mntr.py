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


@dataclass(frozen=True, slots=True)
class Answer:
    """One server's answer. `up` is false when there was none; a server outside its quorum is up, without fields."""

    server: Address
    up: bool
    state: str = ""
    """leader, follower, observer, standalone; empty while it does not serve."""
    fields: dict[str, float] = field(default_factory=dict)


def parse(server: Address, text: str) -> Answer:
    """Fields that are no numbers (version, per-namespace lines with labels) are left out."""
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
        families = {
            name: GaugeMetricFamily(f"{PREFIX}_{name}", f"mntr's zk_{name}.", labels=["server"])
            for answer in answers
            for name in answer.fields
        }
        for answer in answers:
            up.add_metric([str(answer.server)], float(answer.up))
            if answer.state:
                state.add_metric([str(answer.server), answer.state], 1.0)
            for name, value in answer.fields.items():
                families[name].add_metric([str(answer.server)], value)
        yield up
        yield state
        yield from (families[name] for name in sorted(families))
