"""`tidelog cluster add-brokers` and `tidelog brokers drain`: what a growing or shrinking cluster needs."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli import completion
from tidelog.cli.commands import reassign
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError
from tidelog.cli.plan_file import Plan
from tidelog.cli.show import Format, FormatOption, print_json

if TYPE_CHECKING:
    from tidelog.client.reassignments import ReassignmentAdmin
    from tidelog.ids import TopicPartition
    from tidelog.wire.messages import DescribeClusterResponse

BrokersArgument = Annotated[
    list[int], typer.Argument(metavar="BROKER...", help="Broker ids.", min=0, autocompletion=completion.brokers)
]
AdditionalOption = Annotated[
    bool, typer.Option("--additional", help="What moves already may get another target by this plan.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would move, change nothing.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Show how far it is until everything has moved, also what has begun before.")
]

NAMED_MAX = 50
"""Topics that are named in one line."""

Ask = Callable[["ReassignmentAdmin"], Awaitable[Mapping["TopicPartition", Sequence[int]]]]


@connected
async def add_brokers(
    on: Connection,
    ids: BrokersArgument,
    throttle: reassign.ThrottleOption = None,
    additional: AdditionalOption = False,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout_ms: reassign.TimeoutOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Give brokers that have just been started their share, by the least moves that even out the load.

    Example: tidelog cluster add-brokers 4 5 --wait
    """

    async def ask(admin: "ReassignmentAdmin") -> Mapping["TopicPartition", Sequence[int]]:
        limit = reassign.throttle_of(throttle)
        return await admin.add_brokers(ids, replace=additional, validate_only=dry_run, throttle=limit)

    plan = await _asked(ask, on)
    _report(plan, output, "would move" if dry_run else "begin to move")
    if wait and not dry_run:
        await _wait(plan, ids, on, timeout_ms, output)


@connected
async def drain(
    on: Connection,
    ids: BrokersArgument,
    undo: Annotated[
        bool, typer.Option("--undo", help="They may hold replicas again. What moves away goes on all the same.")
    ] = False,
    throttle: reassign.ThrottleOption = None,
    additional: AdditionalOption = False,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout_ms: reassign.TimeoutOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Move everything away from brokers, evenly, and place nothing there any more.

    `tidelog brokers list` says when one may be stopped.

    Example: tidelog brokers drain 5 --wait
    """
    if undo:
        if additional or dry_run or wait or throttle is not None:
            raise CommandError(
                "--undo moves nothing: --throttle, --additional, --dry-run and --wait do not go with it", 2
            )
        await _undo(ids, on, output)
        return

    async def ask(admin: "ReassignmentAdmin") -> Mapping["TopicPartition", Sequence[int]]:
        limit = reassign.throttle_of(throttle)
        return await admin.drain(ids, replace=additional, validate_only=dry_run, throttle=limit)

    plan = await _asked(ask, on)
    _report(plan, output, "would move" if dry_run else "begin to move")
    if dry_run:
        return
    if wait:
        await _wait(plan, ids, on, timeout_ms, output)
    if wait or not plan:
        async with on.admin() as admin:
            cluster = await admin.describe_cluster()
        if output is Format.TEXT:
            print("\n".join(draining(cluster, ids)))
        if wait and any(each.replicas for each in cluster.draining if each.broker_id in ids):
            # A move was cancelled meanwhile.
            raise CommandError("not everything has moved away: drain once more")


async def _asked(ask: Ask, on: Connection) -> Plan:
    async with on.admin() as admin:
        return {tp: tuple(row) for tp, row in (await ask(admin.reassignments)).items()}


async def _wait(plan: Plan, ids: Collection[int], on: Connection, timeout_ms: int | None, output: Format) -> None:
    """Waits for this plan, and for the moves of an earlier one to or from these brokers."""
    async with on.admin() as admin:
        moving = {
            tp
            for tp, each in (await admin.reassignments.list()).items()
            if not set(ids).isdisjoint((*each.adding_replicas, *each.removing_replicas))
        }
    if moving or plan:
        await reassign.wait({*plan, *moving}, on, timeout_ms, output)


async def _undo(ids: Sequence[int], on: Connection, output: Format) -> None:
    async with on.admin() as admin:
        await admin.reassignments.undrain(ids)
    if output is Format.JSON:
        print_json({"undone": list(ids)})
    else:
        print(f"Broker {', '.join(map(str, ids))} may hold replicas again.")


def _report(plan: Plan, output: Format, verb: str) -> None:
    if output is Format.JSON:
        print_json({"moves": reassign.rows_json(plan)})
    elif not plan:
        print("Nothing has to move.")
    else:
        topics = Counter(tp.topic for tp in plan)
        named = ", ".join(f"{name} ({count})" for name, count in sorted(topics.items())[:NAMED_MAX])
        if (more := len(topics) - NAMED_MAX) > 0:
            named += f" and {more} more topics"
        print(f"{len(plan)} partitions {verb}: {named}", flush=True)


def draining(cluster: "DescribeClusterResponse", ids: Sequence[int] | None = None) -> list[str]:
    """One sentence for each broker that is being drained, or of those that are named."""
    alive = {each.broker.broker_id for each in cluster.brokers}
    said = []
    for each in cluster.draining:
        if ids is not None and each.broker_id not in ids:
            continue
        name = f"Broker {each.broker_id}"
        if each.replicas:
            said.append(f"{name} is being drained and has {each.replicas} replicas still: do not stop it yet.")
        elif each.broker_id in alive:
            said.append(f"{name} is drained: it holds nothing and is safe to stop and to remove.")
        else:
            said.append(
                f"{name} is drained and stopped: it is removed. `brokers drain {each.broker_id} --undo` forgets it."
            )
    return said
