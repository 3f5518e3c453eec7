"""`tidelog cluster`: what the controller knows, and whether all is well (rpk's fields)."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli.commands import brokers, moves
from tidelog.cli.connection import Connection, connected
from tidelog.cli.show import Format, FormatOption, print_json
from tidelog.errors import TidelogError, TransportError

if TYPE_CHECKING:
    from tidelog.wire.messages import DescribeClusterResponse, TopicDescription

app = typer.Typer(no_args_is_help=True, add_completion=False)

_POLL_S: Final = 0.5
_WATCH_MS: Final = 2_000
"""Longest that a cluster that is watched may take to answer."""


@app.command()
@connected
async def describe(
    on: Connection,
    output: FormatOption = Format.TEXT,
) -> None:
    """Describe the cluster: id, active controller, brokers with their addresses, epochs and shares.

    Example: tidelog cluster describe --format json
    """
    async with on.admin() as admin:
        c = await admin.describe_cluster()
    if output is Format.JSON:
        print_json(_cluster_json(c))
        return
    print(f"Cluster ID:        {c.cluster_id}")
    print(f"Name:              {c.cluster_name or '-'}")
    print(f"Controller:        {c.controller_id} (epoch {c.controller_epoch})")
    print(f"Release:           {c.controller_software or '-'} (feature level in use {c.feature_level or '-'})")
    print(f"Topics:            {c.topics}")
    print(f"Partitions:        {c.partitions}")
    print(f"Leaderless:        {c.leaderless_partitions}")
    print(f"Under-replicated:  {c.under_replicated_partitions}")
    print(f"Under min ISR:     {c.under_min_isr_partitions}")
    print()
    brokers.print_brokers(c)


@dataclass(frozen=True, slots=True)
class Health:
    controller_id: int
    all_nodes: list[int]
    nodes_down: list[int]
    leaderless: list[str]
    under_replicated: list[str]
    vetoed: list[str]
    """Leaderless partitions whose last in-sync replica is back and may lack records."""
    unreachable: str = ""

    @property
    def reasons(self) -> list[str]:
        found = [
            (self.unreachable != "", self.unreachable),
            (self.unreachable == "" and self.controller_id < 0, "no active controller"),
            (bool(self.nodes_down), "nodes down"),
            (bool(self.leaderless), "leaderless partitions"),
            (bool(self.under_replicated), "under-replicated partitions"),
            (bool(self.vetoed), "vetoed partitions (see tidelog brokers release-veto --help)"),
        ]
        return [reason for is_so, reason in found if is_so]

    @property
    def line(self) -> str:
        """The state in a line, without the names of partitions."""
        if self.unreachable:
            return f"unhealthy: {self.unreachable}"
        counted = {
            "leaderless partitions": self.leaderless,
            "under-replicated partitions": self.under_replicated,
            "vetoed partitions": self.vetoed,
        }
        parts = ["no active controller" if self.controller_id < 0 else f"controller {self.controller_id}"]
        parts += [f"nodes down {_bracketed(self.nodes_down)}"] if self.nodes_down else []
        parts += [f"{name} {len(found)}" for name, found in counted.items() if found]
        return f"{'unhealthy' if self.reasons else 'healthy'}: {', '.join(parts)}"


def health_of(cluster: "DescribeClusterResponse", topics: list["TopicDescription"]) -> Health:
    """A node is down if partitions name it and it is not alive; a suspect is down until it has proved itself."""
    alive = {b.broker.broker_id for b in cluster.brokers if b.state == "alive"}
    known = {b.broker.broker_id for b in cluster.brokers} | {
        r for t in topics for p in t.partitions for r in p.replicas
    }
    partitions = [(f"{t.name}/{p.partition}", p) for t in topics for p in t.partitions]
    return Health(
        controller_id=cluster.controller_id,
        all_nodes=sorted(known),
        nodes_down=sorted(known - alive),
        leaderless=[name for name, p in partitions if p.leader < 0],
        under_replicated=[name for name, p in partitions if len(p.isr) < len(p.replicas) - len(p.adding_replicas)],
        vetoed=[name for name, p in partitions if p.vetoed],
    )


@app.command()
@connected
async def health(
    on: Connection,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, and print each change.")] = False,
    exit_when_healthy: Annotated[
        bool, typer.Option("--exit-when-healthy", "-e", help="With --watch: end, with 0, once all is well.")
    ] = False,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", help="With --watch: give up after this, with 1.", min=1)
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Say whether the cluster is healthy: every node up, every partition led, every ISR full. Exits 1 if it is not.

    With --watch each change is one line; --format json prints each state whole.

    Example: tidelog cluster health --watch --exit-when-healthy --timeout-ms 60000
    """
    clock = on.ports.clock
    deadline = clock.now() + timeout_ms / 1000 if timeout_ms is not None else None
    shown: Health | None = None
    while True:
        found = await _health(on, _WATCH_MS if watch else None)
        if shown is None or (found != shown and output is Format.JSON):
            _print_health(found, output)
        elif found.line != shown.line:
            print(f"{time.strftime('%H:%M:%S', time.localtime(clock.wall_ms() / 1000))}  {found.line}", flush=True)
        shown = found
        healthy = not found.reasons
        if healthy and (exit_when_healthy or not watch):
            return
        if not watch or (deadline is not None and clock.now() >= deadline):
            raise typer.Exit(1)
        await clock.sleep(_POLL_S)


async def _health(on: Connection, most_ms: int | None) -> Health:
    """`most_ms` bounds how long the cluster may take to answer."""
    limit_ms = on.settings().request_timeout_ms
    try:
        async with on.admin(request_timeout_ms=min(limit_ms, most_ms or limit_ms)) as admin:
            return health_of(await admin.describe_cluster(), await admin.describe_topics())
    except (TidelogError, TransportError) as error:
        return Health(-1, [], [], [], [], [], unreachable=str(error))


def _print_health(h: Health, output: Format) -> None:
    if output is Format.JSON:
        print_json(
            {
                "healthy": not h.reasons,
                "unhealthyReasons": h.reasons,
                "controllerId": h.controller_id,
                "allNodes": h.all_nodes,
                "nodesDown": h.nodes_down,
                "leaderlessPartitions": h.leaderless,
                "underReplicatedPartitions": h.under_replicated,
                "vetoedPartitions": h.vetoed,
            }
        )
        return
    rows: list[tuple[str, Any]] = [
        ("Healthy:", "true" if not h.reasons else "false"),
        ("Unhealthy reasons:", _bracketed(h.reasons)),
        ("Controller ID:", h.controller_id),
        ("All nodes:", _bracketed(h.all_nodes)),
        ("Nodes down:", _bracketed(h.nodes_down)),
        (f"Leaderless partitions ({len(h.leaderless)}):", _bracketed(h.leaderless)),
        (f"Under-replicated partitions ({len(h.under_replicated)}):", _bracketed(h.under_replicated)),
        (f"Vetoed partitions ({len(h.vetoed)}):", _bracketed(h.vetoed)),
    ]
    width = max(len(label) for label, _ in rows) + 2
    print("CLUSTER HEALTH OVERVIEW\n=======================")
    for label, value in rows:
        print(f"{label.ljust(width)}{value}")
    print(flush=True)


def _bracketed(items: list[Any]) -> str:
    return f"[{', '.join(map(str, items))}]"


def _cluster_json(c: "DescribeClusterResponse") -> dict[str, Any]:
    return {
        "clusterId": c.cluster_id,
        "clusterName": c.cluster_name,
        "controllerId": c.controller_id,
        "controllerEpoch": c.controller_epoch,
        "controllerRelease": c.controller_software,
        "featureLevel": c.feature_level,
        "topics": c.topics,
        "partitions": c.partitions,
        "leaderlessPartitions": c.leaderless_partitions,
        "underReplicatedPartitions": c.under_replicated_partitions,
        "underMinIsrPartitions": c.under_min_isr_partitions,
        "brokers": brokers.as_json(c),
    }


app.command("add-brokers")(moves.add_brokers)
