"""What Tab offers beside words that the program knows by itself: names of the live cluster, and of its local processes.

Somebody is in the middle of a line: whatever goes wrong, nothing is offered, nothing is printed, and it is over soon.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import connection
from tidelog.cli.connection import LOCAL_DIR, local_cluster
from tidelog.cli.errors import CommandError
from tidelog.errors import TidelogError, TransportError

if TYPE_CHECKING:
    from tidelog.client.admin import Admin

LIMIT_S: Final = 1.0
"""For connecting, asking and answering; a cluster that takes longer is of no help to whoever waits for Tab."""

Named = list[tuple[str, str]]
"""Words, each with what a shell may show beside it."""


def topics(ctx: typer.Context, incomplete: str) -> Named:
    async def ask(admin: "Admin") -> Named:
        return [(t.name, f"{len(t.partitions)} partitions") for t in await admin.describe_topics()]

    return _asked(ctx, ask, incomplete)


def groups(ctx: typer.Context, incomplete: str) -> Named:
    async def ask(admin: "Admin") -> Named:
        return [(g.group_id, g.state) for g in (await admin.groups.listing()).groups]

    return _asked(ctx, ask, incomplete)


def brokers(ctx: typer.Context, incomplete: str) -> Named:
    async def ask(admin: "Admin") -> Named:
        return [(str(b.broker.broker_id), b.state) for b in (await admin.describe_cluster()).brokers]

    return _asked(ctx, ask, incomplete)


def processes(ctx: typer.Context, incomplete: str) -> Named:
    """Of the cluster of `tidelog local up`."""
    from tidelog.cluster.api import ClusterError

    try:
        cluster = local_cluster(Path(ctx.params.get("base") or LOCAL_DIR))
        return _fitting([(each.name, each.state.value) for each in cluster.status()], incomplete)
    except (CommandError, ClusterError, OSError, ValueError):
        return []


def _asked(ctx: typer.Context, ask: Callable[["Admin"], Awaitable[Named]], incomplete: str) -> Named:
    params: dict[str, Any] = ctx.params
    file = params.get("config_file")  # as it is typed: nothing is converted while a line is completed
    properties = (*(params.get("properties") or ()), f"request_timeout_ms={LIMIT_S * 1000:.0f}")

    async def main(on: connection.Connection) -> Named:
        async with asyncio.timeout(LIMIT_S), on.admin() as admin:
            return await ask(admin)

    try:
        on = connection.Connection(params.get("bootstrap"), file and Path(file), properties)
        on.settings(quiet=True)
        return _fitting(connection.run(main(on)), incomplete)
    except (CommandError, TidelogError, TransportError, OSError, ValueError):
        return []


def _fitting(found: Named, incomplete: str) -> Named:
    return sorted(each for each in found if each[0].startswith(incomplete))


NamedTopicOption = Annotated[str, typer.Option("--topic", help="The topic's name.", autocompletion=topics)]
TopicArgument = Annotated[str | None, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=topics)]
TopicOption = Annotated[
    str | None, typer.Option("--topic", help="The same, as Kafka's own tools spell it.", autocompletion=topics)
]
TopicPatternOption = Annotated[
    str | None,
    typer.Option("--topic", help="A name, or a regular expression; default: all.", autocompletion=topics),
]
