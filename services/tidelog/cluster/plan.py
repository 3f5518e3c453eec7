"""What a local cluster consists of: every process with its addresses and settings. Written to `cluster.json` and read
again by whoever looks after the cluster later."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tidelog.cluster.api import AGENT, BROKER, CONTROLLER, KINDS, ZOOKEEPER, ClusterError, kind_of, process_name
from tidelog.ids import Address

FILE_NAME: Final = "cluster.json"
HOST: Final = "127.0.0.1"
LISTENERS: Final[Mapping[str, Sequence[str]]] = {
    ZOOKEEPER: ("CLIENT",),
    CONTROLLER: ("CONTROLLER", "METRICS"),
    BROKER: ("INTERNAL", "EXTERNAL", "METRICS"),
    AGENT: ("METRICS", "WATCH"),
}
"""Each gets a port; a process is dialled by others on the first."""
DIALLED: Final = {kind: names[0] for kind, names in LISTENERS.items()}
FOR_CLIENTS: Final = {ZOOKEEPER: "CLIENT", CONTROLLER: "CONTROLLER", BROKER: "EXTERNAL", AGENT: "METRICS"}
DIALS: Final[Mapping[str, Collection[str]]] = {
    ZOOKEEPER: (),
    CONTROLLER: (ZOOKEEPER, CONTROLLER, BROKER),
    BROKER: (ZOOKEEPER, CONTROLLER, BROKER),
    AGENT: (BROKER,),
}
"""Which kinds a process opens connections to."""
AMONG_SERVERS: Final = ("QUORUM", "ELECTION")
"""Further ports of a ZooKeeper server that is one of several, where none but these dial."""
DEFAULT_REPLICATION_FACTOR: Final = 3
"""The default of `ControllerSettings`."""
AGENT_DEFAULTS: Final[Mapping[str, str]] = {"group_id": "agents", "topics": "events"}


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    name: str
    addresses: Mapping[str, Address]
    """By listener name."""
    settings: Mapping[str, str]
    """As in a settings file: lower case, without prefix."""
    among_servers: Mapping[str, Address] = field(default_factory=dict)
    """By AMONG_SERVERS; empty for one that is no ZooKeeper server, or the only one."""

    @property
    def kind(self) -> str:
        return kind_of(self.name)

    @property
    def number(self) -> int:
        return int(self.name.rpartition("-")[2])

    @property
    def dialled(self) -> Address:
        return self.addresses[DIALLED[self.kind]]

    @property
    def for_clients(self) -> Address:
        return self.addresses[FOR_CLIENTS[self.kind]]


@dataclass(frozen=True, slots=True)
class Link:
    """`source` reaches `target` through the proxy at `listen`."""

    source: str
    target: str
    upstream: Address
    listen: Address


@dataclass(frozen=True, slots=True)
class Plan:
    processes: Sequence[PlannedProcess]
    links: Sequence[Link] = field(default=())
    """Empty unless the cluster's links run through the proxy."""

    def __getitem__(self, name: str) -> PlannedProcess:
        for process in self.processes:
            if process.name == name:
                return process
        raise ClusterError(f"no process {name} in this cluster, which has {', '.join(p.name for p in self.processes)}")

    def of_kind(self, kind: str) -> list[PlannedProcess]:
        return [process for process in self.processes if process.kind == kind]

    def with_client_ports(self, ports: Sequence[int]) -> "Plan":
        """The first brokers listen for clients at these ports."""
        brokers = [process.name for process in self.of_kind(BROKER)]
        at = {name: Address(HOST, port) for name, port in zip(brokers, ports, strict=False)}
        moved = [
            replace(process, addresses={**process.addresses, FOR_CLIENTS[BROKER]: at[process.name]})
            if process.name in at
            else process
            for process in self.processes
        ]
        return Plan(moved, self.links)

    def reached_by(self, source: str, target: PlannedProcess) -> Address:
        """Where `source` dials `target`."""
        return next((k.listen for k in self.links if (k.source, k.target) == (source, target.name)), target.dialled)

    def link_map(self, source: str) -> str:
        """The setting `link_map`: addresses that `source` learns, and where it has to dial instead."""
        return ",".join(f"{link.upstream}={link.listen}" for link in self.links if link.source == source)


def make_plan(
    brokers: Collection[int],
    controllers: int,
    zookeepers: int,
    ports: Iterator[int],
    *,
    agents: int = 0,
    links_through_proxy: bool = False,
    settings: Mapping[str, Mapping[str, str]] | None = None,
) -> Plan:
    """`settings` are extra ones by kind or by name of a process; the latter win. `ports` yields free ones."""
    if not brokers or controllers < 1 or zookeepers < 1:
        raise ClusterError("a cluster needs at least one broker, one controller and one ZooKeeper server")
    extra = dict(settings or {})
    if len(brokers) < DEFAULT_REPLICATION_FACTOR:  # a topic without a factor of its own could not be created
        extra[CONTROLLER] = {"default_replication_factor": str(len(brokers)), **extra.get(CONTROLLER, {})}
    names = [
        *(process_name(ZOOKEEPER, n + 1) for n in range(zookeepers)),
        *(process_name(CONTROLLER, n + 1) for n in range(controllers)),
        *(process_name(BROKER, n) for n in brokers),
        *(process_name(AGENT, n + 1) for n in range(agents)),
    ]
    unknown = [key for key in extra if key not in names and key not in KINDS]
    if unknown:
        raise ClusterError(f"settings for {', '.join(unknown)}, which is no process and no kind of this cluster")
    processes = [_planned(name, zookeepers, ports, extra) for name in names]
    links = [
        Link(source.name, target.name, target.dialled, Address(HOST, next(ports)))
        for source in (processes if links_through_proxy else ())
        for target in processes
        if source is not target and target.kind in DIALS[source.kind]
    ]
    return Plan(processes, links)


def with_brokers(
    plan: Plan,
    brokers: Collection[int],
    ports: Iterator[int],
    *,
    settings: Mapping[str, Mapping[str, str]] | None = None,
) -> Plan:
    """`plan` with further brokers. What is there keeps its addresses and settings; `settings` are for the new ones."""
    if plan.links:
        raise ClusterError(
            "the cluster's links run through the proxy, and those of its processes are fixed: it cannot grow"
        )
    added = [_planned(process_name(BROKER, n), 1, ports, settings or {}) for n in brokers]
    before = [each for each in plan.processes if each.kind != AGENT]
    return Plan([*before, *added, *plan.of_kind(AGENT)])


def _planned(
    name: str, zookeepers: int, ports: Iterator[int], settings: Mapping[str, Mapping[str, str]]
) -> PlannedProcess:
    kind = kind_of(name)
    return PlannedProcess(
        name,
        {listener: Address(HOST, next(ports)) for listener in LISTENERS[kind]},
        {**settings.get(kind, {}), **settings.get(name, {})},
        {each: Address(HOST, next(ports)) for each in _among_servers(kind, zookeepers)},
    )


def ports_needed(brokers: int, controllers: int, zookeepers: int, *, agents: int = 0, links_through_proxy: bool) -> int:
    counts = {BROKER: brokers, CONTROLLER: controllers, ZOOKEEPER: zookeepers, AGENT: agents}
    listeners = sum(n * len((*LISTENERS[kind], *_among_servers(kind, zookeepers))) for kind, n in counts.items())
    return listeners + (sum(counts.values()) ** 2 if links_through_proxy else 0)


def _among_servers(kind: str, zookeepers: int) -> Sequence[str]:
    return AMONG_SERVERS if kind == ZOOKEEPER and zookeepers > 1 else ()


def ensemble(plan: Plan) -> Mapping[int, tuple[Address, Address]]:
    """Of each ZooKeeper server by number: where it listens to the others as their leader, and for votes."""
    servers = {server.number: server.among_servers for server in plan.of_kind(ZOOKEEPER)}
    return {number: (own["QUORUM"], own["ELECTION"]) for number, own in servers.items() if own}


def environment(plan: Plan, process: PlannedProcess, data_dir: Path) -> dict[str, str]:
    """The TIDELOG_ variables of a process of ours."""
    settings = {"metrics_address": str(process.addresses["METRICS"])}
    if ZOOKEEPER in DIALS[process.kind]:
        servers = plan.of_kind(ZOOKEEPER)
        settings["zookeeper"] = ",".join(str(plan.reached_by(process.name, server)) for server in servers)
    if link_map := plan.link_map(process.name):
        settings["link_map"] = link_map
    if process.kind == BROKER:
        listeners = ",".join(f"{name}://{process.addresses[name]}" for name in ("INTERNAL", "EXTERNAL"))
        settings |= {"broker_id": str(process.number), "listeners": listeners, "data_dir": str(data_dir)}
    elif process.kind == AGENT:
        brokers = ",".join(str(broker.dialled) for broker in plan.of_kind(BROKER))
        settings |= {"agent_id": process.name, "bootstrap_servers": brokers, **AGENT_DEFAULTS}
    else:
        settings |= {"controller_id": str(process.number), "listen": str(process.addresses["CONTROLLER"])}
    return {f"TIDELOG_{key.upper()}": value for key, value in {**settings, **process.settings}.items()}


def to_json(plan: Plan) -> str:
    return json.dumps(asdict(plan), indent=1)


def from_json(text: str) -> Plan:
    """ClusterError when it is not one of ours."""
    try:
        found = json.loads(text)
        return Plan(
            [
                PlannedProcess(
                    p["name"], _addresses(p["addresses"]), p["settings"], _addresses(p.get("among_servers", {}))
                )
                for p in found["processes"]
            ],
            [Link(k["source"], k["target"], _address(k["upstream"]), _address(k["listen"])) for k in found["links"]],
        )
    except (ValueError, KeyError, TypeError) as error:
        what = {KeyError: f"{error} is missing", TypeError: "a value is of the wrong kind"}.get(type(error), str(error))
        raise ClusterError(f"{FILE_NAME} does not describe a cluster: {what}") from error


def _addresses(found: Mapping[str, Any]) -> dict[str, Address]:
    return {name: _address(pair) for name, pair in found.items()}


def _address(pair: Any) -> Address:
    host, port = pair
    return Address(str(host), int(port))
