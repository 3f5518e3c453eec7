"""`tidelog cluster add-brokers` and `tidelog brokers drain`: what a growing or shrinking cluster needs."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli import common, completion, reassign
from tidelog.cli.common import BootstrapOption, CommandError, ConfigFileOption, Format, FormatOption, PropertyOption
from tidelog.cli.plan_file import Plan

if TYPE_CHECKING:
    from tidelog.client.reassignments import ReassignmentAdmin
    from tidelog.config import ClientSettings
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

Ask = Callable[["ReassignmentAdmin"], Awaitable[Mapping["TopicPartition", Sequence[int]]]]


def add_brokers(
    ids: BrokersArgument,
    throttle: reassign.ThrottleOption = None,
    additional: AdditionalOption = False,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout_ms: reassign.TimeoutOption = None,
    output: FormatOption = Format.TEXT,
    bootstrap: BootstrapOption = None,
    config_file: ConfigFileOption = None,
    properties: PropertyOption = None,
) -> None:
    """Give brokers that have just been started their share, by the least moves that even out the load.

    Example: tidelog cluster add-brokers 4 5 --wait
    """

    async def ask(admin: "ReassignmentAdmin") -> Mapping["TopicPartition", Sequence[int]]:
        limit = reassign.throttle_of(throttle)
        return await admin.add_brokers(ids, replace=additional, validate_only=dry_run, throttle=limit)

    settings = common.connect(bootstrap, config_file, properties)
    plan = _asked(ask, settings)
    _report(plan, output, "would move" if dry_run else "begin to move")
    if wait and not dry_run:
        _wait(plan, ids, settings, timeout_ms, output)


def drain(
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
    bootstrap: BootstrapOption = None,
    config_file: ConfigFileOption = None,
    properties: PropertyOption = None,
) -> None:
    """Move everything away from brokers, evenly, and place nothing there any more.

    `tidelog brokers list` says when one may be stopped.

    Example: tidelog brokers drain 5 --wait
    """
    settings = common.connect(bootstrap, config_file, properties)
    if undo:
        if additional or dry_run or wait or throttle is not None:
            raise CommandError(
                "--undo moves nothing: --throttle, --additional, --dry-run and --wait do not go with it", 2
            )
        _undo(ids, settings, output)
        return

    async def ask(admin: "ReassignmentAdmin") -> Mapping["TopicPartition", Sequence[int]]:
        limit = reassign.throttle_of(throttle)
        return await admin.drain(ids, replace=additional, validate_only=dry_run, throttle=limit)

    plan = _asked(ask, settings)
    _report(plan, output, "would move" if dry_run else "begin to move")
    if dry_run:
        return
    if wait:
        _wait(plan, ids, settings, timeout_ms, output)
    if wait or not plan:
        cluster = _described(settings)
        if output is Format.TEXT:
            print("\n".join(draining(cluster, ids)))
        if wait and any(each.replicas for each in cluster.draining if each.broker_id in ids):
            # Somebody has cancelled a move meanwhile.
            raise CommandError("not everything has moved away: drain once more")


def _asked(ask: Ask, settings: "ClientSettings") -> Plan:
    async def main() -> Plan:
        async with common.admin(settings) as admin:
            return {tp: tuple(row) for tp, row in (await ask(admin.reassignments)).items()}

    return common.run(main())


def _wait(plan: Plan, ids: Collection[int], settings: "ClientSettings", timeout_ms: int | None, output: Format) -> None:
    """For this plan, and for what an earlier one moves to or from these brokers."""

    async def main() -> Collection["TopicPartition"]:
        async with common.admin(settings) as admin:
            moving = await admin.reassignments.list()
            return [
                tp
                for tp, each in moving.items()
                if not set(ids).isdisjoint((*each.adding_replicas, *each.removing_replicas))
            ]

    if moving := {*plan, *common.run(main())}:
        reassign.wait(moving, settings, timeout_ms, output)


def _undo(ids: Sequence[int], settings: "ClientSettings", output: Format) -> None:
    async def main() -> None:
        async with common.admin(settings) as admin:
            await admin.reassignments.undrain(ids)

    common.run(main())
    if output is Format.JSON:
        common.print_json({"undone": list(ids)})
    else:
        print(f"Broker {', '.join(map(str, ids))} may hold replicas again.")


def _described(settings: "ClientSettings") -> "DescribeClusterResponse":
    async def main() -> "DescribeClusterResponse":
        async with common.admin(settings) as admin:
            return await admin.describe_cluster()

    return common.run(main())


def _report(plan: Plan, output: Format, verb: str) -> None:
    if output is Format.JSON:
        common.print_json({"moves": reassign.rows_json(plan)})
    elif not plan:
        print("Nothing has to move.")
    else:
        topics = Counter(tp.topic for tp in plan)
        named = ", ".join(f"{name} ({count})" for name, count in sorted(topics.items()))
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
