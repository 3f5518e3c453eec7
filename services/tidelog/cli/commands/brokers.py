"""`tidelog brokers`: a list of the brokers, and what an operator does to one."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import completion
from tidelog.cli.commands import moves
from tidelog.cli.commands.discard_damage import discard_damage
from tidelog.cli.commands.elect_leaders import release_veto
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError
from tidelog.cli.show import Format, FormatOption, print_json, print_table

if TYPE_CHECKING:
    from tidelog.wire.messages import ClusterBroker, DescribeClusterResponse

app = typer.Typer(no_args_is_help=True, add_completion=False)

_LISTENER: Final = "EXTERNAL"
"""The one that clients use."""


@app.command("list")
@connected
async def list_(
    on: Connection,
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="BROKER...", help="Only these; default: all.", autocompletion=completion.brokers),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the live brokers: address, rack, state, partitions that each leads and holds, release, and which are being drained.

    Example: tidelog brokers list
    """
    async with on.admin() as admin:
        found = await admin.describe_cluster()
    if ids:
        known = {b.broker.broker_id for b in found.brokers} | {each.broker_id for each in found.draining}
        missing = sorted(set(ids) - known)
        if missing:
            raise CommandError(f"no broker {', '.join(map(str, missing))} is registered")
        found = replace(
            found,
            brokers=tuple(b for b in found.brokers if b.broker.broker_id in ids),
            draining=tuple(each for each in found.draining if each.broker_id in ids),
        )
    if output is Format.JSON:
        print_json(as_json(found))
    else:
        print_brokers(found)


def print_brokers(cluster: "DescribeClusterResponse") -> None:
    rows = [
        (
            *(b.broker.broker_id, *_door(b), b.broker.rack or "-", b.state, b.leaders, b.replicas),
            *(b.software or "-", b.feature_level or "-"),
        )
        for b in _sorted(cluster)
    ]
    print_table(("ID", "HOST", "PORT", "RACK", "STATE", "LEADERS", "REPLICAS", "RELEASE", "FEATURE-LEVEL"), rows)
    for sentence in moves.draining(cluster):
        print(sentence)


def as_json(cluster: "DescribeClusterResponse") -> list[dict[str, Any]]:
    draining = {each.broker_id for each in cluster.draining}
    return [
        {
            "id": b.broker.broker_id,
            **({"epoch": b.broker.broker_epoch} if b.broker.broker_epoch >= 0 else {}),
            "rack": b.broker.rack,
            "state": b.state,
            "draining": b.broker.broker_id in draining,
            "leaders": b.leaders,
            "replicas": b.replicas,
            "release": b.software,
            "featureLevel": b.feature_level,
            "listeners": {door.name: f"{door.host}:{door.port}" for door in b.broker.listeners},
        }
        for b in _sorted(cluster)
    ]


def _sorted(cluster: "DescribeClusterResponse") -> list["ClusterBroker"]:
    return sorted(cluster.brokers, key=lambda b: b.broker.broker_id)


def _door(broker: "ClusterBroker") -> tuple[str, int]:
    for listener in sorted(broker.broker.listeners, key=lambda door: door.name != _LISTENER):
        return listener.host, listener.port
    return "-", 0


app.command("drain")(moves.drain)
app.command("discard-damage")(discard_damage)
app.command("release-veto")(release_veto)
