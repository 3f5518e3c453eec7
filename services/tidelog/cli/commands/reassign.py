"""`tidelog reassign`: kafka-reassign-partitions, with a subcommand for each of its actions, and its files and sentences."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import plan_file
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError, no_topic
from tidelog.cli.plan_file import Plan
from tidelog.cli.show import Format, FormatOption, print_json
from tidelog.ids import BrokerId, TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.move_progress import Copied
    from tidelog.client.reassignments import Throttle
    from tidelog.wire.messages import OngoingReassignment

app = typer.Typer(no_args_is_help=True, add_completion=False)

SIZES_S: Final = 2.0
"""Time that a broker has to say how large its logs are."""

PlanOption = Annotated[
    Path,
    typer.Option(
        "--reassignment-json-file",
        metavar="FILE",
        help='The plan: {"version": 1, "partitions": [{"topic": "events", "partition": 0, "replicas": [1, 2, 3]}]}.',
    ),
]
TimeoutOption = Annotated[
    int | None, typer.Option("--timeout-ms", min=1, help="Give up to wait after this, with 1. What moves goes on.")
]


ThrottleOption = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        metavar="BYTES",
        min=-1,
        max=2**63 - 1,
        help="Limit what each broker sends and takes of these copies to so many bytes a second; -1: no limit. Copies that are in "
        "sync are never held up. It ends with the last move; with --additional and the same plan it changes on the way.",
    ),
]


@app.command()
@connected
async def generate(
    on: Connection,
    topics_file: Annotated[
        Path,
        typer.Option(
            "--topics-to-move-json-file",
            metavar="FILE",
            help='The topics: {"version": 1, "topics": [{"topic": "events"}]}.',
        ),
    ],
    broker_list: Annotated[
        str, typer.Option("--broker-list", metavar="ID,ID,...", help="The brokers that are to hold them.")
    ],
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Replicas of a partition may share a rack.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Propose a plan that places topics anew over brokers. Nothing is moved: save it, look at it, execute it.

    Example: tidelog reassign generate --topics-to-move-json-file topics.json --broker-list 1,2,3,4
    """
    names, brokers = plan_file.read_topics(topics_file), _ids(broker_list)

    from tidelog.controller.planner import generate as propose

    async with on.admin() as admin:
        current = await _assigned(admin, names)
        live = {BrokerId(b.broker.broker_id): b.broker.rack for b in (await admin.describe_cluster()).brokers}
    if missing := [each for each in brokers if each not in live]:
        raise CommandError(f"--broker-list names {missing}, which are not alive; alive are {sorted(live)}", 2)
    racks = {each: "" if disable_rack_aware else live[each] for each in brokers}
    rows = {tp: tuple(map(BrokerId, row)) for tp, row in current.items()}
    proposed = {**current, **propose(rows, racks)}
    if output is Format.JSON:
        print_json({"current": rows_json(current), "proposed": rows_json(proposed)})
        return
    print(f"Current partition replica assignment\n{plan_file.written(current)}\n")
    print(f"Proposed partition reassignment configuration\n{plan_file.written(proposed)}")


@app.command()
@connected
async def execute(
    on: Connection,
    file: PlanOption,
    throttle: ThrottleOption = None,
    additional: Annotated[
        bool,
        typer.Option("--additional", help="Also while others are under way; what moves already gets its new target."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the plan only, change nothing.")] = False,
    waits: Annotated[bool, typer.Option("--wait", help="Show how far it is until everything has moved.")] = False,
    timeout_ms: TimeoutOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Begin to move partitions as a plan says: all of it, or nothing where any of it is wrong. It goes on by itself.

    Example: tidelog reassign execute --reassignment-json-file plan.json --wait
    """
    plan = plan_file.read_plan(file)
    async with on.admin(destroys=not dry_run) as admin:
        if not additional and await admin.reassignments.list():
            raise CommandError(
                "Cannot execute because there is an existing partition assignment. Use --additional to override this and "
                "create a new partition assignment in addition to the existing one."
            )
        current = await _assigned(admin, dict.fromkeys(tp.topic for tp in plan))
        limit = throttle_of(throttle)
        await admin.reassignments.alter(plan, replace=additional, validate_only=dry_run, throttle=limit)
    before = {tp: row for tp, row in current.items() if tp in plan}
    if output is Format.JSON:
        print_json({"rollback": rows_json(before), "started": rows_json(plan), "dryRun": dry_run})
    elif dry_run:
        print(f"The plan is valid for {_named(plan)}")
    else:
        print(f"Current partition replica assignment\n\n{plan_file.written(before)}\n")
        print("Save this to use as the --reassignment-json-file option during rollback")
        if throttle is not None:
            print(throttle_sentence(throttle))
        print(f"Successfully started partition reassignments for {_named(plan)}", flush=True)
    if waits and not dry_run:
        await wait(plan, on, timeout_ms, output)


@app.command()
@connected
async def verify(
    on: Connection,
    file: PlanOption,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show how far it is until everything has moved.")
    ] = False,
    timeout_ms: TimeoutOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Say of each partition of a plan whether it has moved, and how much of the rest is copied. Exits 1 unless all have.

    Example: tidelog reassign verify --reassignment-json-file plan.json --watch
    """
    plan = plan_file.read_plan(file)
    if watch:
        await wait(plan, on, timeout_ms, output)
    async with on.admin() as admin:
        moving = {tp: each for tp, each in (await admin.reassignments.list()).items() if tp in plan}
        current = await _assigned(admin, dict.fromkeys(tp.topic for tp in plan), deleted_too=True)
        copies = await _copied(admin, moving)
    said = {tp: _verdict(tp, row, moving.get(tp), current.get(tp)) for tp, row in plan.items()}
    if output is Format.JSON:
        print_json(
            [
                {"topic": tp.topic, "partition": tp.partition, "status": status, **_copied_json(copies.get(tp))}
                for tp, (status, _) in said.items()
            ]
        )
    else:
        print("Status of partition reassignment:")
        for _, sentence in said.values():
            print(sentence)
        _print_total(copies)
    if any(status != "completed" for status, _ in said.values()):
        raise typer.Exit(1)


def _verdict(
    tp: TopicPartition,
    wanted: Sequence[int],
    moving: "OngoingReassignment | None",
    current: Sequence[int] | None,
) -> tuple[str, str]:
    if moving is not None and tuple(moving.target) == tuple(wanted):
        return "inProgress", f"Reassignment of partition {tp} is still in progress."
    if current is None:
        return "missing", f"There is no active reassignment of partition {tp}, and it does not exist."
    if moving is None and tuple(current) == tuple(wanted):
        return "completed", f"Reassignment of partition {tp} is completed."
    active = "There is no active reassignment" if moving is None else "There is another reassignment"
    shown, meant = ",".join(map(str, current)), ",".join(map(str, wanted))
    return "other", f"{active} of partition {tp}, but replica set is {shown} rather than {meant}."


@app.command()
@connected
async def cancel(
    on: Connection,
    file: PlanOption,
    output: FormatOption = Format.TEXT,
) -> None:
    """Take the partitions of a plan that still move back to the replicas of before.

    Example: tidelog reassign cancel --reassignment-json-file plan.json
    """
    plan = plan_file.read_plan(file)

    async with on.admin() as admin:
        moving = await admin.reassignments.list()
        cancelled = [tp for tp in plan if tp in moving and not moving[tp].cancelled]
        if cancelled:
            await admin.reassignments.cancel(cancelled)
    if output is Format.JSON:
        print_json([{"topic": tp.topic, "partition": tp.partition} for tp in cancelled])
    elif cancelled:
        print(f"Successfully cancelled partition reassignments for: {_named(cancelled)}")
    else:
        print("None of the specified partition moves are active.")


@app.command("list")
@connected
async def list_(
    on: Connection,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the partitions that are being moved, how much of each is copied, and the throttle.

    Example: tidelog reassign list
    """
    async with on.admin() as admin:
        moving = dict(sorted((await admin.reassignments.list()).items()))
        copies = await _copied(admin, moving)
        throttle = await admin.reassignments.throttles()
    if output is Format.JSON:
        print_json([{**_move_json(each), **_copied_json(copies[tp])} for tp, each in moving.items()])
    elif not moving:
        print("No partition reassignments found.")
    else:
        print("Current partition reassignments:")
        for tp, each in moving.items():
            parts = [
                ("replicas", each.replicas),
                ("adding", each.adding_replicas),
                ("removing", each.removing_replicas),
            ]
            text = " ".join(f"{name}: {','.join(map(str, ids))}." for name, ids in parts if ids)
            copied = copies[tp]
            progress = f" copied: {_share(copied)}." if copied is not None and each.adding_replicas else ""
            print(f"{tp}: {text}{progress}{' cancelled.' if each.cancelled else ''}")
        _print_total(copies)
        limits = [f"{name}s {each} B/s" for name, each in throttle._asdict().items() if each]
        if limits:
            print(f"Throttle of each broker: {', '.join(limits)}")


async def _copied(
    admin: "Admin", moving: Mapping[TopicPartition, "OngoingReassignment"]
) -> dict[TopicPartition, "Copied | None"]:
    """None: no broker says how large it is."""
    from tidelog.client.move_progress import copied, holders

    sizes = await admin.logs.sizes(holders(moving.values()), SIZES_S)
    return {tp: copied(each, sizes) for tp, each in moving.items()}


def _share(copied: "Copied") -> str:
    from rich.filesize import decimal

    return f"{decimal(copied.have)} of {decimal(copied.need)}"


def _print_total(copies: Mapping[TopicPartition, "Copied | None"]) -> None:
    from rich.filesize import decimal

    from tidelog.client.move_progress import total

    everything = total(copies.values())
    if everything.need:
        print(f"Copied: {_share(everything)}, {decimal(everything.need - everything.have)} left")


def _copied_json(copied: "Copied | None") -> dict[str, Any]:
    return {} if copied is None else {"copiedBytes": copied.have, "totalBytes": copied.need}


def throttle_of(bytes_per_s: int | None) -> "Throttle | None":
    from tidelog.client.reassignments import Throttle

    if bytes_per_s == 0:
        raise CommandError("--throttle 0 would never end; -1 is no limit", 2)
    return None if bytes_per_s is None else Throttle(bytes_per_s, bytes_per_s)


def throttle_sentence(bytes_per_s: int) -> str:
    if bytes_per_s < 0:
        return "The inter-broker throttle limit was removed"
    return f"The inter-broker throttle limit was set to {bytes_per_s} B/s"


async def wait(plan: Iterable[TopicPartition], on: Connection, timeout_ms: int | None, output: Format) -> None:
    """Until all of these have moved; shows how far it is. CommandError: not within the time."""
    from tidelog.cli.reassign_screen import follow

    done = await follow(on, plan, timeout_ms=timeout_ms, quiet=output is Format.JSON)
    if not done:
        raise CommandError(f"not everything has moved within {timeout_ms} ms; it goes on")


async def _assigned(admin: "Admin", topics: Iterable[str], *, deleted_too: bool = False) -> Plan:
    """The replicas of every partition of these topics, of one that moves those of before.

    CommandError for an unknown topic. With `deleted_too` it has no partitions.
    """
    from tidelog.errors import ErrorCode

    names = list(topics)
    found: Plan = {}
    moving = await admin.reassignments.list()
    for topic in await admin.describe_topics(names):
        if topic.error_code is not ErrorCode.NONE and not deleted_too:
            raise no_topic(topic.name)
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition)
            found[tp] = tuple(moving[tp].original) if tp in moving else tuple(p.replicas)
    return found


def _ids(text: str) -> list[BrokerId]:
    found = []
    for part in text.split(","):
        if not (part.strip().isascii() and part.strip().isdecimal()):
            raise CommandError(f"--broker-list {text!r}: {part!r} is no broker id", 2)
        found.append(BrokerId(int(part)))
    if len(set(found)) != len(found):
        raise CommandError(f"--broker-list {text!r} names a broker twice", 2)
    return found


def _named(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))


def rows_json(plan: Mapping[TopicPartition, Sequence[int]]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition, "replicas": list(row)} for tp, row in sorted(plan.items())]


def _move_json(each: "OngoingReassignment") -> dict[str, Any]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "replicas": list(each.replicas),
        "addingReplicas": list(each.adding_replicas),
        "removingReplicas": list(each.removing_replicas),
        "target": list(each.target),
        "original": list(each.original),
        "isr": list(each.isr),
        "leader": each.leader,
        "cancelled": each.cancelled,
    }
