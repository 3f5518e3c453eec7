"""`tidelog perf consume`: kafka-consumer-perf-test's flags and columns."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import completion
from tidelog.cli.completion import NamedTopicOption
from tidelog.cli.connection import Connection, connected, stopped_by_signals
from tidelog.cli.errors import CommandError
from tidelog.cli.perf_stats import READ_COLUMNS, ReadStats, read_line
from tidelog.cli.show import Format, FormatOption, print_json

if TYPE_CHECKING:
    from tidelog.client.consumer import Consumer
    from tidelog.ports.clock import Clock

_POLL_RECORDS: Final = 2000
_POLL_S: Final = 0.1
_SPANS: Final = ("start.time", "end.time")
_MOMENTS: Final = ("time", "threadId")
_THREAD: Final = "0"
"""Of the only one there is."""

GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="As a member of this group; default: all partitions, without a group.",
        autocompletion=completion.groups,
    ),
]


@connected
async def consume(
    on: Connection,
    topic: NamedTopicOption,
    num_records: Annotated[
        int, typer.Option("--num-records", "--messages", min=1, help="How many are read, and then the end.")
    ],
    group: GroupOption = None,
    from_latest: Annotated[
        bool,
        typer.Option("--from-latest", help="From the end on, where nothing is committed; default: from the start."),
    ] = False,
    fetch_size: Annotated[int, typer.Option("--fetch-size", min=1, help="Bytes of a partition in one answer.")] = 1024
    * 1024,
    timeout_ms: Annotated[
        int, typer.Option("--timeout", metavar="MS", min=1, help="Without a record for so long it ends, with 1.")
    ] = 10_000,
    reporting_interval_ms: Annotated[
        int, typer.Option("--reporting-interval", metavar="MS", min=1, help="Between two lines of detail.")
    ] = 5000,
    show_detailed_stats: Annotated[
        bool, typer.Option("--show-detailed-stats", help="A line each interval instead of one at the end.")
    ] = False,
    hide_header: Annotated[bool, typer.Option("--hide-header", help="Without the names of the columns.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Read records and tell how many a second came. Exits 1 if there were fewer than asked for.

    Example: tidelog perf consume --topic events --messages 100000 --show-detailed-stats
    """

    ports = on.ports
    reading = _Reading(ports.clock, num_records, timeout_ms / 1000)

    def detail(wall_ms: int, rates: dict[str, float]) -> None:
        print(f"{_date(wall_ms)}, {_THREAD}, {read_line(rates)}", flush=True)

    detailed = show_detailed_stats and output is Format.TEXT
    if output is Format.TEXT and not hide_header:
        print(", ".join((*(_MOMENTS if detailed else _SPANS), *READ_COLUMNS)), flush=True)
    await on.reach([topic])
    async with on.consumer(
        max_bytes=max(on.settings().fetch_max_bytes, fetch_size),
        partition_bytes=fetch_size,
        **({} if group is None else reading.as_member(group, topic, from_latest)),
    ) as consumer:
        if group is None:
            await consumer.assign_topics(topic)
            await (consumer.seek_to_end() if from_latest else consumer.seek_to_beginning())
        with stopped_by_signals(reading.stop), ExitStack() as stack:
            advance = _progress(stack, topic, num_records) if not detailed else lambda records: None
            await reading.run(consumer, reporting_interval_ms / 1000, detail if detailed else None, advance)
    reading.report(topic, output, in_detail=detailed)
    if reading.timed_out:
        raise CommandError(f"fewer records than asked for: timeout ({timeout_ms} ms) exceeded; --timeout allows more")


class _Reading:
    """Polls, and counts what comes."""

    def __init__(self, clock: "Clock", records: int, timeout_s: float) -> None:
        self._clock = clock
        self._wanted = records
        self._timeout_s = timeout_s
        self._stopped = False
        self._waiting_since: float | None = None
        """For partitions; None: there are some, or there is no group."""
        self._stats = ReadStats(0.0)
        self._ended_at = 0.0
        self._began_ms = self._ended_ms = 0
        self.timed_out = False

    def as_member(self, group: str, topic: str, from_latest: bool) -> dict[str, Any]:
        """Options of a Consumer that joins a group, and tells how long it is without partitions."""
        return {
            "group": group,
            "topics": (topic,),
            "auto_offset_reset": "latest" if from_latest else "earliest",
            "on_assigned": self.assigned,
            "on_revoked": self.revoked,
            "on_lost": self.revoked,
        }

    def stop(self) -> None:
        self._stopped = True

    def assigned(self, partitions: object) -> None:
        if self._waiting_since is not None:
            self._stats.rebalance_s += self._clock.now() - self._waiting_since
            self._waiting_since = None

    def revoked(self, partitions: object) -> None:
        if self._waiting_since is None:
            self._waiting_since = self._clock.now()

    async def run(
        self,
        consumer: "Consumer",
        interval_s: float,
        detail: Callable[[int, dict[str, float]], None] | None,
        advance: Callable[[int], object],
    ) -> None:
        began = last_record_at = self._clock.now()
        self._began_ms = self._clock.wall_ms()
        stats = self._stats = ReadStats(began)
        shown = replace(stats)
        self._waiting_since = began if not consumer.assignment else None
        while stats.records < self._wanted and not self._stopped and not self.timed_out:
            records = await consumer.poll(min(_POLL_RECORDS, self._wanted - stats.records), _POLL_S)
            now = self._clock.now()
            stats.records += len(records)
            stats.size_bytes += sum(len(r.key or b"") + len(r.value or b"") for r in records)
            advance(len(records))
            if records:
                last_record_at = now
            self.timed_out = not records and now - last_record_at >= self._timeout_s
            if detail is not None and (now - shown.began >= interval_s or stats.records >= self._wanted):
                detail(self._clock.wall_ms(), stats.rates(shown, now))
                shown = replace(stats, began=now)
        self._ended_at = self._clock.now()
        self._ended_ms = self._clock.wall_ms()

    def report(self, topic: str, output: Format, *, in_detail: bool) -> None:
        """What it came to, unless the lines of detail have told it."""
        rates = self._stats.rates(ReadStats(self._stats.began), self._ended_at)
        if output is Format.JSON:
            print_json({"topic": topic, "startTimeMs": self._began_ms, "endTimeMs": self._ended_ms, **rates})
        elif not in_detail:
            print(f"{_date(self._began_ms)}, {_date(self._ended_ms)}, {read_line(rates)}")


def _date(wall_ms: int) -> str:
    """As Kafka's tool has it by default: yyyy-MM-dd HH:mm:ss:SSS, local time."""
    local = datetime.fromtimestamp(wall_ms / 1000, UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}:{wall_ms % 1000:03d}"


def _progress(stack: ExitStack, topic: str, total: int) -> Callable[[int], object]:
    """A bar on a terminal; nothing where nobody watches."""
    if not sys.stderr.isatty():
        return lambda records: None
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    from tidelog.cli.bar import Bar

    bar = stack.enter_context(Bar(topic, MofNCompleteColumn(), TimeRemainingColumn()))
    bar.show(total=total)
    return bar.advance
