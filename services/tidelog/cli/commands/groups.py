"""`tidelog groups`: kafka-consumer-groups' flags and columns."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from tidelog.cli.commands.reset_offsets import reset_offsets
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError
from tidelog.cli.group_choice import (
    AllGroupsOption,
    GroupArgument,
    GroupOption,
    chosen,
    complain,
    refuse_incomplete,
    resolve,
)
from tidelog.cli.show import Format, FormatOption, note, print_json, print_lines, print_table
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.wire.messages import DescribedGroup, DescribedMember, TopicDescription

app = typer.Typer(no_args_is_help=True, add_completion=False)

STATES: Final = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance")
UNKNOWN: Final = "-"
"""In a column for which there is no value, as Kafka has it."""


@app.command("list")
@connected
async def list_(
    on: Connection,
    state: Annotated[bool, typer.Option("--state", help="Show each group's state.")] = False,
    in_state: Annotated[
        str | None, typer.Option("--in-state", metavar="STATE,...", help=f"Only groups in one of {', '.join(STATES)}.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the ids of groups. Exits 1 if a broker did not say which groups it coordinates.

    Example: tidelog groups list --state --in-state Empty
    """
    states = _states(in_state)

    async with on.admin() as admin:
        listing = await admin.groups.listing(states)
    if output is Format.JSON:
        print_json([{"group": g.group_id, "state": g.state} for g in listing.groups])
    elif state:
        print_table(("GROUP", "STATE"), [(g.group_id, g.state) for g in listing.groups])
    else:
        print_lines(g.group_id for g in listing.groups)
    refuse_incomplete(listing)


@app.command()
@connected
async def describe(
    on: Connection,
    names: GroupArgument = None,
    group: GroupOption = None,
    all_groups: AllGroupsOption = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Where each partition is; the default.")] = False,
    members: Annotated[bool, typer.Option("--members", help="The members, and what each owns.")] = False,
    state: Annotated[bool, typer.Option("--state", help="One line for each group.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Describe groups: committed offsets and lag of each partition, or members, or state.

    Example: tidelog groups describe readers --members
    """
    if offsets + members + state > 1:
        raise CommandError("--offsets, --members and --state exclude each other", 2)
    view = _MembersView() if members else _StateView() if state else _OffsetsView()
    await _show(view, chosen(names, group, all_groups), output, on)


@app.command("members")
@connected
async def members_(
    on: Connection,
    names: GroupArgument = None,
    group: GroupOption = None,
    all_groups: AllGroupsOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """The members of groups and what they own: the same as describe --members.

    Example: tidelog groups members readers
    """
    await _show(_MembersView(), chosen(names, group, all_groups), output, on)


@app.command()
@connected
async def delete(
    on: Connection,
    names: GroupArgument = None,
    group: GroupOption = None,
    all_groups: AllGroupsOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Delete groups that have no members, with their offsets. Exits 1 if one could not be deleted.

    Example: tidelog groups delete readers
    """
    wanted = chosen(names, group, all_groups)

    results: dict[str, TidelogError | None] = {}
    async with on.admin(destroys=True) as admin:
        for group_id in await resolve(admin, wanted):
            try:
                await admin.groups.delete(group_id)
                results[group_id] = None
            except TidelogError as error:
                results[group_id] = error
    deleted = [group_id for group_id, error in results.items() if error is None]
    if output is Format.JSON:
        print_json(
            [
                {"group": group_id, "deleted": error is None, "error": error and error.code.name}
                for group_id, error in results.items()
            ]
        )
    elif deleted:
        print(f"Deletion of requested consumer groups ({', '.join(map(repr, deleted))}) was successful.")
    complain([error for error in results.values() if error is not None])


def _states(text: str | None) -> list[str]:
    known = {each.lower(): each for each in STATES}
    names = [] if text is None else text.split(",")
    if unknown := [each for each in names if each.strip().lower() not in known]:
        raise CommandError(f"--in-state {unknown[0]!r} is not one of {', '.join(STATES)}", 2)
    return [known[each.strip().lower()] for each in names]


# -- what describe shows ----------------------------------------------------------------------------------------------


class _Seen(NamedTuple):
    """A group, and what is known from elsewhere about it."""

    group: "DescribedGroup"
    coordinator: str
    ends: Mapping[TopicPartition, int]


class _OffsetsView:
    columns: Final = (
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    needs_ends: Final = True

    def rows(self, seen: _Seen) -> list[tuple[Any, ...]]:
        return [
            (seen.group.group_id, *tp, _or_dash(at.current), _or_dash(at.end), _or_dash(at.lag), *_named(at.owner))
            for tp, at in _places(seen).items()
        ]

    def json(self, seen: _Seen) -> dict[str, Any]:
        return {
            "generation": seen.group.generation,
            "partitions": [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "currentOffset": at.current,
                    "logEndOffset": at.end,
                    "lag": at.lag,
                    "topicId": at.topic_id or None,
                    "consumerId": at.owner and at.owner.consumer_id,
                    "host": at.owner and (at.owner.host or None),
                    "clientId": at.owner and at.owner.client_id,
                }
                for tp, at in _places(seen).items()
            ],
        }


class _MembersView:
    columns: Final = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
    needs_ends: Final = False

    def rows(self, seen: _Seen) -> list[tuple[Any, ...]]:
        return [
            (seen.group.group_id, *_named(member), len(member.partitions), _assignment(member))
            for member in seen.group.members
        ]

    def json(self, seen: _Seen) -> dict[str, Any]:
        return {
            "generation": seen.group.generation,
            "members": [
                {
                    "consumerId": member.consumer_id,
                    "host": member.host or None,
                    "clientId": member.client_id,
                    "sessionTimeoutMs": member.session_timeout_ms,
                    "static": member.static_member,
                    "partitions": [{"topic": p.topic, "partition": p.partition} for p in member.partitions],
                }
                for member in seen.group.members
            ],
        }


class _StateView:
    columns: Final = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    needs_ends: Final = False

    def rows(self, seen: _Seen) -> list[tuple[Any, ...]]:
        group = seen.group
        where = f"{seen.coordinator} ({group.coordinator_id})"
        return [(group.group_id, where, group.assignor or UNKNOWN, group.state, len(group.members))]

    def json(self, seen: _Seen) -> dict[str, Any]:
        return {
            "generation": seen.group.generation,
            "coordinator": {"id": seen.group.coordinator_id, "address": seen.coordinator},
            "coordinatorEpoch": seen.group.coordinator_epoch,
            "assignor": seen.group.assignor or None,
            "members": len(seen.group.members),
        }


_View = _OffsetsView | _MembersView | _StateView


async def _show(view: _View, wanted: list[str] | None, output: Format, on: Connection) -> None:
    seen, missing = [], []
    async with on.admin() as admin:
        for group_id in await resolve(admin, wanted):
            try:
                group = await admin.groups.describe_one(group_id)
                ends = await _ends(admin, group) if view.needs_ends else {}
                seen.append(_Seen(group, str(await admin.groups.coordinator(group_id)), ends))
            except TidelogError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                missing.append(error)
    if output is Format.JSON:
        print_json([{"group": s.group.group_id, "state": s.group.state, **view.json(s)} for s in seen])
    else:
        for each in seen:
            if not each.group.members and not isinstance(view, _StateView):
                note(f"Consumer group {each.group.group_id!r} has no active members.")
        if rows := [row for each in seen for row in view.rows(each)]:
            print_table(view.columns, rows)
    complain(missing)


async def _ends(admin: "Admin", group: "DescribedGroup") -> dict[TopicPartition, int]:
    """Log ends of what the group has to do with; without topics that are gone and partitions without a leader."""
    from tidelog.client.offsets import LATEST

    wanted = _partitions_of(group)
    if not wanted:
        return {}
    led = _led(await admin.describe_topics(sorted({tp.topic for tp in wanted})))
    found = await admin.list_offsets({tp: LATEST for tp in wanted if tp in led})
    return {tp: each.offset for tp, each in found.items()}


def _led(topics: Sequence["TopicDescription"]) -> set[TopicPartition]:
    return {
        TopicPartition(topic.name, p.partition)
        for topic in topics  # one that is gone has no partitions
        for p in topic.partitions
        if p.leader >= 0
    }


def _partitions_of(group: "DescribedGroup") -> list[TopicPartition]:
    owned = {TopicPartition(p.topic, p.partition) for member in group.members for p in member.partitions}
    return sorted(owned | {TopicPartition(o.topic, o.partition) for o in group.offsets if o.offset >= 0})


class _Place(NamedTuple):
    """A group's place in one partition; None: not known."""

    current: int | None
    end: int | None
    owner: "DescribedMember | None"
    topic_id: str
    """Hexadecimal, of the topic in which `current` counts; empty: not known."""

    @property
    def lag(self) -> int | None:
        return None if self.current is None or self.end is None else max(self.end - self.current, 0)


def _places(seen: _Seen) -> dict[TopicPartition, _Place]:
    owners = {TopicPartition(p.topic, p.partition): each for each in seen.group.members for p in each.partitions}
    found = {TopicPartition(o.topic, o.partition): o for o in seen.group.offsets if o.offset >= 0}
    current = {tp: o.offset for tp, o in found.items()}
    topic_ids = {tp: o.topic_id.hex() for tp, o in found.items()}
    return {
        tp: _Place(current.get(tp), seen.ends.get(tp), owners.get(tp), topic_ids.get(tp, ""))
        for tp in _partitions_of(seen.group)
    }


def _or_dash(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _named(member: "DescribedMember | None") -> tuple[str, str, str]:
    if member is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    return member.consumer_id, member.host or UNKNOWN, member.client_id or UNKNOWN


def _assignment(member: "DescribedMember") -> str:
    """The partitions as Kafka writes them: topic(0,1), other(2)."""
    by_topic: dict[str, list[int]] = {}
    for p in member.partitions:
        by_topic.setdefault(p.topic, []).append(p.partition)
    parts = (f"{topic}({','.join(map(str, sorted(ps)))})" for topic, ps in sorted(by_topic.items()))
    return ", ".join(parts) or UNKNOWN


app.command("reset-offsets")(reset_offsets)
