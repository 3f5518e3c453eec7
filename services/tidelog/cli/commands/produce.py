"""`tidelog produce`: one record a line, from standard input or a file."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from tidelog.cli import parse
from tidelog.cli.completion import TopicArgument, TopicOption
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import bad_input
from tidelog.cli.line_parser import KNOWN, LineParser
from tidelog.cli.show import Format, FormatOption, note, print_json
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client.producer import Ack, Producer

_REPORTED_MAX = 10
"""Refusals that are told one by one; more are only counted."""


class Tally:
    """Counts of lines: read, acknowledged, refused, failed."""

    def __init__(self) -> None:
        self.read = 0
        self.acked = 0
        self.refused = 0
        self.failed = 0
        self.unknown = 0

    def refuse(self, why: object) -> None:
        self.refused += 1
        if self.refused <= _REPORTED_MAX:
            note(f"tidelog: line {self.read}: {why}")

    def settle(self, number: int, ack: "Ack") -> None:
        error = None if ack.cancelled() else ack.exception()
        if error is None and not ack.cancelled():
            self.acked += 1
            return
        self.failed += 1
        self.unknown += not getattr(error, "outcome_known", False)
        if self.failed <= _REPORTED_MAX:
            note(f"tidelog: line {number}: {error}")

    @property
    def good(self) -> bool:
        return not self.refused and not self.failed

    def as_json(self) -> dict[str, int]:
        return {
            "read": self.read,
            "acked": self.acked,
            "refused": self.refused,
            "failed": self.failed,
            "outcomeUnknown": self.unknown,
        }


app = typer.Typer(add_completion=False)


@app.command("produce")
@connected
async def produce(
    on: Connection,
    name: TopicArgument = None,
    topic: TopicOption = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Lines of this file instead of the standard input.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", help="What is before it in a line is the key; \\t is a tab.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for every record.")
    ] = None,
    headers_separator: Annotated[
        str | None,
        typer.Option("--headers-separator", help="What is before it in a line are headers: name:value,name:value."),
    ] = None,
    line_properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "--reader-property", metavar="KEY=VALUE", help=f"How a line is read: {', '.join(KNOWN)}."
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", help="Instead of choosing one by key.")] = None,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    compression: Annotated[str, typer.Option("--compression", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    linger_ms: Annotated[float, typer.Option("--linger-ms", min=0, help="How long a batch may wait for more.")] = 5,
    batch_bytes: Annotated[int, typer.Option("--batch-size", min=1, help="Bytes of a full batch.")] = 65536,
    record_bytes_max: Annotated[
        int, typer.Option("--record-bytes-max", min=1, help="A longer line is refused, and the next one goes on.")
    ] = 1_048_588,
    timeout_ms: Annotated[
        int, typer.Option("--delivery-timeout-ms", min=1, help="When a record without an acknowledgement has failed.")
    ] = 30_000,
    output: FormatOption = Format.TEXT,
) -> None:
    """Send lines as records, bytes as they are. Exits 1 if a line was refused or not acknowledged.

    An empty line is a record with an empty value. --property null.marker=X makes X a null, which is a tombstone.

    Example: tidelog produce events --file orders.txt --key-separator : --acks all
    """
    topic_name = parse.one_topic(name, topic)
    parser = LineParser.of(
        [
            *_short("--key-separator", key_separator, "parse.key", "key.separator"),
            *_short("--headers-separator", headers_separator, "parse.headers", "headers.delimiter"),
            *(line_properties or ()),
        ]
    )
    parser.headers = [(k, v.encode()) for k, v in parse.pairs("--header", header or ()).items()]

    with ExitStack() as open_until_the_end:
        stream = _input(open_until_the_end, file)
        advance = _progress(open_until_the_end, file)
        producer = on.producer(
            acks=acks,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            compression=compression,
            record_bytes_max=record_bytes_max,
            delivery_timeout_ms=timeout_ms,
            max_block_ms=max(timeout_ms, 1),
        )
        async with producer:
            await producer.partitions_of(topic_name)  # a topic that does not exist is told before anything is read
            tally = await _send_lines(producer, topic_name, partition, stream, parser, record_bytes_max, advance)
    _report(tally, output)
    if not tally.good:
        raise typer.Exit(1)


def _short(option: str, text: str | None, *properties: str) -> list[str]:
    """The properties that an option of ours stands for."""
    if text is None:
        return []
    if not text:
        raise bad_input(f"{option} cannot be empty")
    parses, separator = properties
    return [f"{parses}=true", f"{separator}={text}"]


def _input(stack: ExitStack, file: Path | None) -> BinaryIO:
    if file is not None:
        try:
            return stack.enter_context(file.open("rb"))
        except OSError as error:
            raise bad_input(f"--file {file}: {error.strerror}") from None
    if sys.stdin is None:
        raise bad_input("the standard input is closed, and --file names no file")
    return sys.stdin.buffer


async def _send_lines(
    producer: "Producer",
    topic: str,
    partition: int | None,
    stream: BinaryIO,
    parser: LineParser,
    line_bytes_max: int,
    advance: Callable[[int], object],
) -> Tally:
    from functools import partial

    from tidelog.cli.lines import LineSplitter, TooLong, chunks_of

    tally = Tally()
    splitter = LineSplitter(line_bytes_max)

    async def send(line: bytes | TooLong) -> None:
        tally.read += 1
        if isinstance(line, TooLong):
            tally.refuse(f"{line.size_bytes} bytes; record_bytes_max is {line_bytes_max}")
            return
        try:
            key, value, headers = parser.record(line)
            ack = await producer.send(topic, value, key, headers, partition)
        except (TidelogError, ValueError) as error:
            tally.refuse(error)
        else:
            ack.add_done_callback(partial(tally.settle, tally.read))

    async for chunk in chunks_of(stream):
        for line in splitter.feed(chunk):
            await send(line)
        advance(len(chunk))
    for line in splitter.end():
        await send(line)
    await producer.flush()
    return tally


def _progress(stack: ExitStack, file: Path | None) -> Callable[[int], object]:
    """A bar for a file on a terminal; nothing elsewhere."""
    if file is None or not sys.stderr.isatty():
        return lambda size: None
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    from tidelog.cli.bar import Bar

    bar = stack.enter_context(Bar(file.name, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()))
    bar.show(total=os.stat(file).st_size)
    return bar.advance


def _report(tally: Tally, output: Format) -> None:
    if output is Format.JSON:
        print_json(tally.as_json())
        return
    parts: Sequence[Any] = [f"{tally.acked} records acknowledged"]
    if tally.refused:
        parts = [*parts, f"{tally.refused} refused"]
    if tally.failed:
        parts = [*parts, f"{tally.failed} failed ({tally.unknown} of them may have been written)"]
    note(", ".join(parts) + ".")
