"""`tidelog brokers discard-damage`: what an operator decides about a damaged log that no other replica replaces."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import completion
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError, bad_input, no_topic
from tidelog.cli.show import Format, FormatOption, print_json, print_table
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.wire.messages import DamagedLog

_ONLINE: Final = "online"
Copies = dict[int, str]
"""State of each other replica, by broker."""


@connected
async def discard_damage(
    on: Connection,
    broker: Annotated[
        int, typer.Option("--broker", min=0, help="Broker with the damaged logs.", autocompletion=completion.brokers)
    ],
    topic: completion.TopicOption = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="One partition of --topic.")] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Cut the logs. Without it nothing changes, and what would go is shown.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --execute: also where another broker has a copy that could lead.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Cut damaged logs of a broker where their damage begins, so that a last copy can lead again. The rest is lost.

    Where another replica leads, a broker does this by itself and fetches the rest again.

    Example: tidelog brokers discard-damage --broker 1 --topic events --partition 0 --execute
    """
    if partition is not None and topic is None:
        raise bad_input("--partition is only allowed with --topic")
    if force and not execute:
        raise bad_input("--force is only allowed with --execute")
    async with on.admin(destroys=execute) as admin:
        found = await _damaged(admin, broker, topic, partition)
        copies = await _copies(admin, broker, found)
        cut, problems = [], []
        for each, others in zip(found, copies, strict=True) if execute else ():
            if _ONLINE in others.values() and not force:
                problems.append(_held_back(each, others))
                continue
            (result,) = await admin.logs.discard_damage(broker, {each.topic: [each.partition]}, execute=True)
            if result.error_code is ErrorCode.NONE:
                cut.append((result, others))
            else:
                problems.append(result.error_message)
    if output is Format.JSON:
        gone = {(each.topic, each.partition) for each, _ in cut}
        print_json([_json(*row, (row[0].topic, row[0].partition) in gone) for row in zip(found, copies, strict=True)])
    else:
        _print(found, copies, broker, execute)
        for each, others in cut:
            print(_sentence(each, others, broker))
    if problems:
        raise CommandError("\n".join(problems))


async def _damaged(admin: "Admin", broker: int, topic: str | None, partition: int | None) -> list["DamagedLog"]:
    """CommandError for a topic or partition that does not exist, and for a partition that is not damaged."""
    if topic is None:
        return await admin.logs.discard_damage(broker)
    (described,) = await admin.describe_topics([topic])
    if described.error_code is not ErrorCode.NONE:
        raise no_topic(topic)
    numbers = [each.partition for each in described.partitions]
    if partition is None:
        found = await admin.logs.discard_damage(broker)
        return [each for each in found if each.topic == topic]
    if partition not in numbers:
        known = f"topic {topic!r} has partitions 0 to {len(numbers) - 1}"
        raise CommandError(f"{known}, partition {partition} does not exist")
    (found_one,) = await admin.logs.discard_damage(broker, {topic: [partition]})
    if found_one.error_code is not ErrorCode.NONE:
        raise CommandError(f"broker {broker}: {found_one.error_message}")
    return [found_one]


async def _copies(admin: "Admin", broker: int, found: Sequence["DamagedLog"]) -> list[Copies]:
    """State of the other replicas of each partition, by their brokers."""
    if not found:
        return []
    names = sorted({each.topic for each in found})
    described = await admin.describe_topics(names)
    replicas = {(t.name, p.partition): p.replicas for t in described for p in t.partitions}
    alive = {each.broker.broker_id for each in (await admin.describe_cluster()).brokers}
    asked = {b for each in found for b in replicas.get((each.topic, each.partition), ()) if b != broker} & alive
    dirs = await admin.logs.describe_log_dirs(sorted(asked), names) if asked else {}
    held = {
        (broker_id, each.topic, each.partition): _ONLINE if each.error_code is ErrorCode.NONE else "offline"
        for broker_id, log_dir in dirs.items()
        for each in log_dir.partitions
    }
    return [
        {
            b: held.get((b, each.topic, each.partition), "none") if b in alive else "down"
            for b in replicas.get((each.topic, each.partition), ())
            if b != broker
        }
        for each in found
    ]


def _print(found: Sequence["DamagedLog"], copies: Sequence[Copies], broker: int, execute: bool) -> None:
    if not found:
        print(f"Broker {broker} has no damaged log.")
        return
    rows = [
        (
            *(f"{each.topic}-{each.partition}", each.offset, each.end_offset - each.offset, each.size_bytes),
            "none" if each.leader < 0 else each.leader,
            ", ".join(f"{b} ({state})" for b, state in others.items()) or "none",
            each.reason,
        )
        for each, others in zip(found, copies, strict=True)
    ]
    print_table(("PARTITION", "FROM-OFFSET", "RECORDS", "BYTES", "LEADER", "OTHER-COPIES", "DAMAGE"), rows)
    if not execute:
        print("Nothing was changed. --execute cuts each log at FROM-OFFSET; RECORDS and BYTES behind it are lost.")


def _sentence(log: "DamagedLog", others: Copies, broker: int) -> str:
    name = f"{log.topic}-{log.partition}"
    said = (
        f"{name}: cut at offset {log.offset}; {log.end_offset - log.offset} records, {log.size_bytes} bytes are gone."
    )
    if not others:
        return said
    release = f"tidelog brokers release-veto --topic {log.topic} --partition {log.partition}"
    return f"{said} If no other replica of it comes back, `{release}` lets broker {broker} lead."


def _held_back(log: "DamagedLog", others: Copies) -> str:
    online = next(b for b, state in others.items() if state == _ONLINE)
    return (
        f"{log.topic}-{log.partition}: nothing was cut, broker {online} has a copy that could lead (`tidelog elect-leaders`); "
        "--force cuts all the same"
    )


def _json(log: "DamagedLog", others: Copies, cut: bool) -> dict[str, Any]:
    return {
        "topic": log.topic,
        "partition": log.partition,
        "fromOffset": log.offset,
        "records": log.end_offset - log.offset,
        "bytes": log.size_bytes,
        "leader": None if log.leader < 0 else log.leader,
        "otherCopies": [{"broker": b, "state": state} for b, state in others.items()],
        "damage": log.reason,
        "discarded": cut,
    }
