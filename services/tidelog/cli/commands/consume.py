"""`tidelog consume`: records of a topic, or those that a group leaves to it, as they are or as JSON lines."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli import parse
from tidelog.cli.completion import TopicArgument, TopicOption
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError
from tidelog.cli.membership import ConsumerPropertyOption, GroupOption, IncludeOption, Membership, membership
from tidelog.cli.show import Format, FormatOption, note, text_or_base64
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer import Consumer
    from tidelog.client.records import ConsumerRecord

_FOREVER_S = 3600.0
_LOOK_S = 0.1
"""With --exit-at-end the end is looked for so often."""


PartitionOption = Annotated[
    list[int] | None, typer.Option("--partition", help="Only this one; may be repeated. Default: all.")
]
OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="earliest|latest|N|-N|@WHEN",
        help="Where to begin. N needs --partition; -N is so many before the end of each partition; @WHEN is a time: Unix "
        "milliseconds, a date like @2026-02-03T04:05:06 (UTC unless it says), or a time ago like @1h.",
    ),
]
FormatterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--formatter-property",
        "--property",
        metavar="KEY=VALUE",
        help="print.key, print.timestamp, print.partition, print.offset, print.headers, print.value (true or false), "
        "key.separator, line.separator, null.literal.",
    ),
]


@dataclass(slots=True)
class Formatter:
    """kafka-console-consumer's formatter properties."""

    print_key: bool = False
    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_headers: bool = False
    print_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    null_literal: bytes = b"null"

    @classmethod
    def of(cls, properties: Sequence[str]) -> "Formatter":
        found = cls()
        for key, value in parse.pairs("--formatter-property", properties).items():
            name = key.replace(".", "_")
            if name not in cls.__slots__:
                known = ", ".join(slot.replace("_", ".", 1) for slot in cls.__slots__)
                raise CommandError(f"--formatter-property {key!r} is not known; known are {known}", 2)
            if name.startswith("print_"):
                if value not in ("true", "false"):
                    raise CommandError(f"--formatter-property {key}={value} is neither true nor false", 2)
                setattr(found, name, value == "true")
            else:
                setattr(found, name, parse.escaped(value))
        return found

    def line(self, r: "ConsumerRecord") -> bytes:
        parts: list[bytes] = []
        if self.print_timestamp:
            parts.append(b"%s:%d" % (b"LogAppendTime" if r.timestamp_type else b"CreateTime", r.timestamp_ms))
        if self.print_partition:
            parts.append(b"Partition:%d" % r.partition)
        if self.print_offset:
            parts.append(b"Offset:%d" % r.offset)
        if self.print_headers:
            named = b",".join(k.encode() + b":" + self._bytes(v) for k, v in r.headers)
            parts.append(named or b"NO_HEADERS")
        if self.print_key:
            parts.append(self._bytes(r.key))
        if self.print_value:
            parts.append(self._bytes(r.value))
        return self.key_separator.join(parts) + self.line_separator

    def _bytes(self, data: bytes | None) -> bytes:
        return self.null_literal if data is None else data


app = typer.Typer(add_completion=False)


@app.command("consume")
@connected
async def consume(
    on: Connection,
    name: TopicArgument = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    offset: OffsetOption = None,
    from_beginning: Annotated[
        bool,
        typer.Option("--from-beginning", help="As --offset earliest; of a group: where it has committed nothing."),
    ] = False,
    group: GroupOption = None,
    include: IncludeOption = None,
    consumer_property: ConsumerPropertyOption = None,
    max_messages: Annotated[int | None, typer.Option("--max-messages", min=1, help="End after so many.")] = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, help="End when nothing came for so long.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", help="End where the log ended when this began.")
    ] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Report a damaged batch and go on behind it; exits 1 in the end.")
    ] = False,
    formatter_property: FormatterOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Print records: values as they are, or with --format json one object a line. Ends with a count on standard error.

    JSON has key and value where they are UTF-8 text; other bytes are in keyBase64 and valueBase64 instead.

    Example: tidelog consume events --from-beginning --max-messages 5 --formatter-property print.key=true
    """
    placed = bool(partition) or offset is not None
    several = include is not None and name is None and topic is None
    topic_name = None if several else parse.one_topic(name, topic)
    member = membership(group, topic_name, include, consumer_property, from_beginning=from_beginning, placed=placed)
    if exit_at_end and member is not None:
        raise CommandError("--exit-at-end excludes --group: the members of a group reach its end together", 2)
    start = _start(offset, from_beginning, partition, on.ports.clock.wall_ms())
    formatter = Formatter.of(formatter_property or ())
    run = _Run(formatter, output, max_messages, timeout_ms, skip_damaged)

    try:
        if member is not None:
            await _as_member(member, on, run)
        else:
            assert topic_name is not None, "--include needs --group"
            tps = [TopicPartition(topic_name, p) for p in partition or ()]
            async with on.consumer(auto_offset_reset="error") as consumer:
                await (consumer.assign(tps) if tps else consumer.assign_topics(topic_name))
                ends = await consumer.end_offsets(consumer.assignment) if exit_at_end else None
                await _place(consumer, start)
                await run.until_done(consumer, ends)
    finally:
        sys.stdout.flush()
        if run.count or sys.exception() is None:  # an error before the first record is one line
            note(f"Processed a total of {run.count} messages")
    if run.damaged:
        raise typer.Exit(1)


async def _as_member(member: Membership, on: Connection, run: "_Run") -> None:
    await on.reach(member.options.get("topics", ()))
    async with on.consumer(group=member.group, **member.options) as consumer:
        await run.until_done(consumer)
        if member.commits and run.count:
            await consumer.commit()  # the last ones are printed too; no further poll says so


class _Run:
    """One reading; `count` is right however it ends."""

    def __init__(
        self, formatter: Formatter, output: Format, max_messages: int | None, timeout_ms: int | None, skip_damaged: bool
    ) -> None:
        self._formatter = formatter
        self._output = output
        self._max = max_messages
        self._timeout_s = _FOREVER_S if timeout_ms is None else timeout_ms / 1000
        self._for_ever = timeout_ms is None
        self._skip_damaged = skip_damaged
        self.count = 0
        self.damaged = 0

    async def until_done(self, consumer: "Consumer", ends: "Mapping[TopicPartition, int] | None" = None) -> None:
        """Ends also where each partition has reached its place in `ends`."""
        from tidelog.client.errors import BadBatchError

        wait_s = self._timeout_s if ends is None else min(self._timeout_s, _LOOK_S)
        silent_s = 0.0
        while self._max is None or self.count < self._max:
            if ends is not None and await _reached(consumer, ends):
                return
            limit = 500 if self._max is None else min(500, self._max - self.count)
            try:
                records = await consumer.poll(limit, wait_s)
            except BadBatchError as error:
                if not self._skip_damaged:
                    raise
                self.damaged += 1
                note(f"tidelog: {error.message}")
                consumer.seek(error.partition, error.next_offset)
                continue
            silent_s = 0.0 if records else silent_s + wait_s
            if silent_s >= self._timeout_s and not self._for_ever:
                return
            self._write(
                records
                if ends is None
                else [r for r in records if r.offset < ends[TopicPartition(r.topic, r.partition)]]
            )

    def _write(self, records: "Sequence[ConsumerRecord]") -> None:
        line = self._formatter.line if self._output is Format.TEXT else _json_line
        sys.stdout.buffer.write(b"".join(map(line, records)))
        sys.stdout.buffer.flush()
        self.count += len(records)


async def _reached(consumer: "Consumer", ends: "Mapping[TopicPartition, int]") -> bool:
    for tp, end in ends.items():
        if await consumer.position(tp) < end:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _BeforeEnd:
    """So many records before the end of each partition."""

    records: int


@dataclass(frozen=True, slots=True)
class _At:
    """A time in Unix milliseconds."""

    timestamp_ms: int


async def _place(consumer: "Consumer", start: "str | int | _At | _BeforeEnd") -> None:
    if isinstance(start, _At):
        found = await consumer.offsets_for_times(dict.fromkeys(consumer.assignment, start.timestamp_ms))
        await consumer.seek_to_end()
        for tp, each in found.items():
            if each.offset >= 0:
                consumer.seek(tp, each.offset)
    elif isinstance(start, _BeforeEnd):
        begins = await consumer.beginning_offsets(consumer.assignment)
        for tp, end in (await consumer.end_offsets(consumer.assignment)).items():
            consumer.seek(tp, max(begins[tp], end - start.records))
    elif isinstance(start, int):
        for tp in consumer.assignment:
            consumer.seek(tp, start)
    elif start == "earliest":
        await consumer.seek_to_beginning()
    else:
        await consumer.seek_to_end()


def _start(
    offset: str | None, from_beginning: bool, partition: list[int] | None, now_ms: int
) -> str | int | _At | _BeforeEnd:
    if offset is None:
        return "earliest" if from_beginning else "latest"
    if from_beginning and offset != "earliest":
        raise CommandError("--from-beginning and --offset exclude each other", 2)
    if offset in ("earliest", "latest"):
        return offset
    if offset.startswith("@"):
        return _At(parse.moment("--offset", offset, now_ms))
    number = offset.removeprefix("-")
    if not (number.isascii() and number.isdigit()):
        raise CommandError(f"--offset {offset!r} is not earliest, latest, a number or a time like @1h", 2)
    if int(number) > parse.INT64_MAX:
        raise CommandError(f"--offset {offset} is over 2^63 - 1", 2)
    if offset.startswith("-"):
        return _BeforeEnd(int(number))
    if not partition:
        raise CommandError("--offset with a number needs --partition: offsets count within one partition", 2)
    return int(offset)


def _json_line(r: "ConsumerRecord") -> bytes:
    found: dict[str, Any] = {
        "topic": r.topic,
        "partition": r.partition,
        "offset": r.offset,
        "timestamp": r.timestamp_ms,
        "timestampType": "LogAppendTime" if r.timestamp_type else "CreateTime",
        **text_or_base64("key", r.key),
        **text_or_base64("value", r.value),
        "headers": [{"name": k, **text_or_base64("value", v)} for k, v in r.headers],
    }
    return json.dumps(found).encode() + b"\n"
