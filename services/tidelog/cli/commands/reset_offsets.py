"""`tidelog groups reset-offsets`: kafka-consumer-groups' options. Nothing is changed without --execute."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli import completion, parse
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError
from tidelog.cli.group_choice import AllGroupsOption, GroupArgument, GroupOption, chosen, complain, resolve
from tidelog.cli.show import Format, FormatOption, note, print_json, print_table
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin import Admin

Offsets = dict[TopicPartition, int]

_OFFSET_MAX: Final = 2**63 - 1
_DURATION: Final = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
_COLUMNS: Final = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")


TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="T[:P,P]", help="All partitions of a topic, or these.", autocompletion=completion.topics
    ),
]
DatetimeOption = Annotated[
    str | None,
    typer.Option(
        "--to-datetime", metavar="YYYY-MM-DDThh:mm:ss", help="The first record at or after it; UTC unless it says."
    ),
]
DurationOption = Annotated[
    str | None, typer.Option("--by-duration", metavar="PnDTnHnMnS", help="The first record not older than this.")
]
FileOption = Annotated[
    Path | None, typer.Option("--from-file", metavar="FILE", help="CSV as --export writes it: topic,partition,offset.")
]


class _To(Enum):
    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    OFFSET = auto()
    SHIFT = auto()
    TIME = auto()
    AGO = auto()
    FILE = auto()


@dataclass(frozen=True, slots=True)
class _Target:
    to: _To
    number: int = 0
    """An offset, a distance, Unix milliseconds, or milliseconds back from now."""
    file: Path | None = None


@connected
async def reset_offsets(
    on: Connection,
    names: GroupArgument = None,
    group: GroupOption = None,
    all_groups: AllGroupsOption = False,
    topic: TopicOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition for which the group has committed an offset.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="The first record that there still is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="The log's end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="What is committed; the log's end where nothing is.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, max=_OFFSET_MAX, help="This offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="So many records on, or back if N is negative.")
    ] = None,
    to_datetime: DatetimeOption = None,
    by_duration: DurationOption = None,
    from_file: FileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it only; so it is without --execute.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print CSV for --from-file.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Set the committed offsets of groups that have no members. Shows what would be; --execute does it.

    Example: tidelog groups reset-offsets readers --topic events --to-earliest --execute
    """
    target = _target(
        {
            "--to-earliest": _Target(_To.EARLIEST) if to_earliest else None,
            "--to-latest": _Target(_To.LATEST) if to_latest else None,
            "--to-current": _Target(_To.CURRENT) if to_current else None,
            "--to-offset": None if to_offset is None else _Target(_To.OFFSET, to_offset),
            "--shift-by": None if shift_by is None else _Target(_To.SHIFT, shift_by),
            "--to-datetime": None
            if to_datetime is None
            else _Target(_To.TIME, parse.unix_ms("--to-datetime", to_datetime)),
            "--by-duration": None if by_duration is None else _Target(_To.AGO, _milliseconds(by_duration)),
            "--from-file": None if from_file is None else _Target(_To.FILE, file=from_file),
        }
    )
    if execute and dry_run:
        raise CommandError("--dry-run and --execute exclude each other", 2)
    if export and output is Format.JSON:
        raise CommandError("--export prints CSV: it excludes --format json", 2)
    if (target.to is _To.FILE) + all_topics + bool(topic) != 1:
        raise CommandError("say which partitions: --topic, --all-topics or --from-file, one of them", 2)
    scope = None if topic is None else [_topic_part(each) for each in topic]
    wanted = chosen(names, group, all_groups)

    plans = {}
    async with on.admin(destroys=execute) as admin:
        for group_id in await resolve(admin, wanted):
            plans[group_id] = await _Plan(admin, group_id, target, on.ports.clock.wall_ms()).offsets(scope)
        if execute:
            for group_id, plan in plans.items():
                await _commit(admin, group_id, plan)
    _report(plans, output, export, executed=execute)
    if not execute and not dry_run and not export:
        note("Nothing was changed: this was a dry run; say --execute to do it.")


def _report(plans: Mapping[str, Offsets], output: Format, export: bool, *, executed: bool) -> None:
    rows = [(group_id, *tp, offset) for group_id, plan in plans.items() for tp, offset in sorted(plan.items())]
    if export:
        for row in rows:
            print(*(row if len(plans) > 1 else row[1:]), sep=",")
    elif output is Format.JSON:
        keys = ("group", "topic", "partition", "newOffset")
        print_json({"executed": executed, "offsets": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        print_table(_COLUMNS, rows)


async def _commit(admin: "Admin", group_id: str, plan: Offsets) -> None:
    results = await admin.groups.alter_offsets(group_id, plan) if plan else []
    complain(
        [
            TidelogError(
                f"group {group_id!r}: {r.topic}-{r.partition}: {r.error_message or r.error_code.name}", r.error_code
            )
            for r in results
            if r.error_code is not ErrorCode.NONE
        ]
    )


class _Plan:
    """The new offsets of one group."""

    def __init__(self, admin: "Admin", group_id: str, target: _Target, now_ms: int) -> None:
        self._admin = admin
        self._group_id = group_id
        self._target = target
        self._now_ms = now_ms

    async def offsets(self, scope: "Sequence[tuple[str, list[int] | None]] | None") -> Offsets:
        """`scope` names topics and partitions of them; None: what is committed, or what the file names."""
        committed = await self._committed()
        target = self._target
        if target.to is _To.FILE:
            assert target.file is not None
            wanted = _read(target.file, self._group_id)
            await self._existing([(tp.topic, [tp.partition]) for tp in wanted])
            return await self._within(wanted)
        if scope is not None:
            tps = await self._existing(scope)
        elif committed:
            tps = await self._still_there(committed)
        else:
            raise CommandError(f"group {self._group_id!r} has committed nothing: name topics with --topic")
        return await self._targeted(tps, committed)

    async def _targeted(self, tps: Sequence[TopicPartition], committed: Offsets) -> Offsets:
        target = self._target
        match target.to:
            case _To.EARLIEST | _To.LATEST:
                return await self._at(tps, _edge(target.to))
            case _To.TIME:
                return await self._at_time(tps, target.number)
            case _To.AGO:
                return await self._at_time(tps, self._now_ms - target.number)
            case _To.OFFSET:
                return await self._within(dict.fromkeys(tps, target.number))
            case _To.SHIFT:
                if missing := [tp for tp in tps if tp not in committed]:
                    raise CommandError(f"{missing[0]}: nothing is committed that could be shifted")
                return await self._within({tp: committed[tp] + target.number for tp in tps})
            case _:
                there = {tp: committed[tp] for tp in tps if tp in committed}
                return there | await self._at([tp for tp in tps if tp not in there], _edge(_To.LATEST))

    async def _committed(self) -> Offsets:
        """Refuses a group with members: they would go on from where they are, and commit over it."""
        (group,) = await self._admin.groups.describe([self._group_id])
        if group.error_code is ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        if group.error_code is not ErrorCode.NONE:
            raise CommandError(f"group {self._group_id!r}: {group.error_message or group.error_code.name}")
        if group.members:
            raise CommandError(
                f"group {self._group_id!r} has members: stop its consumers first; "
                f"`tidelog groups members {self._group_id}` shows them"
            )
        return {TopicPartition(o.topic, o.partition): o.offset for o in group.offsets if o.offset >= 0}

    async def _existing(self, scope: Iterable[tuple[str, list[int] | None]]) -> list[TopicPartition]:
        counts: dict[str, int] = {}
        tps: dict[TopicPartition, None] = {}
        for topic, partitions in scope:
            if topic not in counts:
                counts[topic] = len((await self._admin.describe_topic(topic)).partitions)
            for p in range(counts[topic]) if partitions is None else partitions:
                if p >= counts[topic]:
                    raise CommandError(
                        f"topic {topic!r} has partitions 0 to {counts[topic] - 1}, partition {p} does not exist"
                    )
                tps[TopicPartition(topic, p)] = None
        return sorted(tps)

    async def _still_there(self, committed: Offsets) -> list[TopicPartition]:
        topics = await self._admin.describe_topics(sorted({tp.topic for tp in committed}))
        gone = {topic.name for topic in topics if topic.error_code is not ErrorCode.NONE}
        for name in sorted(gone):
            note(f"Warning: topic {name!r} does not exist any more; it is left out.")
        return sorted(tp for tp in committed if tp.topic not in gone)

    async def _at(self, tps: Sequence[TopicPartition], when: int) -> Offsets:
        found = await self._admin.list_offsets(dict.fromkeys(tps, when))
        return {tp: found[tp].offset for tp in tps}

    async def _at_time(self, tps: Sequence[TopicPartition], unix_ms: int) -> Offsets:
        """Negative numbers mean something else on the wire: no record is older than 1970."""
        found = await self._at(tps, max(unix_ms, 0))
        late = [tp for tp, offset in found.items() if offset < 0]
        for tp in late:
            note(f"Warning: {tp} has no record so late; the log's end is taken.")
        return found | await self._at(late, _edge(_To.LATEST))

    async def _within(self, wanted: Offsets) -> Offsets:
        """An offset outside the log would make the reset policy choose: the nearest one is taken, as Kafka does."""
        first = await self._at(list(wanted), _edge(_To.EARLIEST))
        end = await self._at(list(wanted), _edge(_To.LATEST))
        found = {}
        for tp, offset in wanted.items():
            found[tp] = max(min(offset, end[tp]), first[tp])
            if found[tp] != offset:
                where = "lower than the first" if offset < found[tp] else "higher than the last"
                note(f"Warning: {tp}: offset {offset} is {where} of the log; {found[tp]} is taken.")
        return found


def _edge(to: _To) -> int:
    from tidelog.client.offsets import EARLIEST, LATEST

    return EARLIEST if to is _To.EARLIEST else LATEST


def _target(given: Mapping[str, _Target | None]) -> _Target:
    found = [each for each in given.values() if each is not None]
    if len(found) != 1:
        raise CommandError(f"say where to, with one of {', '.join(given)}", 2)
    return found[0]


def _milliseconds(text: str) -> int:
    """ISO 8601; months and years have no fixed length, so Kafka does not take them either."""
    found = _DURATION.fullmatch(text)
    given = {unit: float(number) for unit, number in found.groupdict().items() if number} if found else {}
    try:
        if not given:
            raise ValueError
        return timedelta(**given) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise CommandError(f"--by-duration {text!r} is not a duration like P1DT2H or PT30S", 2) from None


def _topic_part(text: str) -> tuple[str, list[int] | None]:
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    partitions = numbers.split(",")
    if not all(each.isascii() and each.isdigit() for each in partitions):
        raise CommandError(f"--topic {text!r} is not a topic, or a topic and partitions like events:0,3", 2)
    return topic, [int(each) for each in partitions]


def _read(file: Path, group_id: str) -> Offsets:
    """Rows of three columns are any group's, those of four are of the group in the first."""
    found: Offsets = {}
    with file.open(newline="", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            row = [each.strip() for each in line.split(",")]
            if row == [""] or (len(row) == 4 and row[0] != group_id):
                continue
            if len(row) not in (3, 4) or not all(each.isascii() and each.isdigit() for each in row[-2:]):
                raise CommandError(f"{file}: line {number} is not topic,partition,offset", 2)
            tp = TopicPartition(row[-3], int(row[-2]))
            if tp in found:
                raise CommandError(f"{file}: line {number} names {tp} again", 2)
            found[tp] = int(row[-1])
    if not found:
        raise CommandError(f"{file} names no partition for group {group_id!r}", 2)
    return found
