"""`tidelog get-offsets` and `tidelog topics offsets`: kafka-get-offsets' flags and lines."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import typer

from tidelog.cli import parse
from tidelog.cli.completion import TopicPatternOption
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError, no_topic
from tidelog.cli.show import Format, FormatOption, print_json
from tidelog.ids import NO_LEADER, TopicPartition
from tidelog.names import INTERNAL_TOPICS

_NAMED_TIMES: Final = {"latest": -1, "earliest": -2, "max-timestamp": -3}
_PATTERN: Final = re.compile(r"([^:,]*)(?::(?:([0-9]+)|([0-9]*)-([0-9]*)))?")

app = typer.Typer(add_completion=False)

Chooses = Callable[[TopicPartition], bool]


class _Row(NamedTuple):
    tp: TopicPartition
    offset: int
    timestamp_ms: int
    leader_epoch: int


@app.command("get-offsets")
@connected
async def get_offsets(
    on: Connection,
    pattern: TopicPatternOption = None,
    partitions: Annotated[
        str | None, typer.Option("--partitions", metavar="N,N", help="Only these; default: all.")
    ] = None,
    topic_partitions: Annotated[
        str | None,
        typer.Option(
            "--topic-partitions",
            metavar="TOPIC:N,TOPIC:N-M,...",
            help="Instead of the two above: topics (regular expressions), each with a partition, or a range whose end is "
            "not part of it (2-5, 2-, -5). One without a topic (:0) is of all topics.",
        ),
    ] = None,
    exclude_internal: Annotated[
        bool,
        typer.Option("--exclude-internal-topics", help="Leave out internal topics (Tidelog keeps none of its own)."),
    ] = False,
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="MS|DATE|TIME|latest|earliest|max-timestamp",
            help="Unix milliseconds, a date like 2026-02-03T04:05:06 (UTC unless it says), or a time ago like 1h: the first "
            "record at or after it; -1, -2 and -3 are the three words.",
        ),
    ] = "latest",
    output: FormatOption = Format.TEXT,
) -> None:
    """Print offsets as TOPIC:PARTITION:OFFSET; the last part is empty where no record is so late.

    A partition without a leader is named on the standard error and left out; the exit code is 1 then.

    Example: tidelog get-offsets --topic events --time earliest (tidelog topics offsets is the same)
    """
    at = _time("--time", time, on.ports.clock.wall_ms())
    if topic_partitions is None:
        chosen = _by_topic(pattern, partitions)
    elif pattern is None and partitions is None:
        chosen = _by_patterns(topic_partitions)
    else:
        raise CommandError("--topic-partitions excludes --topic and --partitions", 2)
    everything = topic_partitions is None and pattern is None and partitions is None

    async with on.admin() as admin:
        leaders = {
            TopicPartition(t.name, p.partition): p.leader
            for t in await admin.describe_topics()
            if not (exclude_internal and t.name in INTERNAL_TOPICS)
            for p in t.partitions
        }
        tps = sorted(filter(chosen, leaders))
        if pattern is not None and not any(re.fullmatch(pattern, tp.topic) for tp in leaders):
            raise no_topic(pattern)
        if not tps and not everything:
            raise CommandError("no partition matches; `tidelog topics list` shows the topics")
        led = [tp for tp in tps if leaders[tp] != NO_LEADER]
        found = await admin.list_offsets(dict.fromkeys(led, at))
    rows = [_Row(tp, *found[tp]) for tp in led]
    if output is Format.JSON:
        print_json([_json(*row) for row in rows])
    else:
        for row in rows:
            print(f"{row.tp.topic}:{row.tp.partition}:{'' if row.offset < 0 else row.offset}")
    if leaderless := [tp for tp in tps if tp not in found]:
        raise CommandError("no leader, so no offset: " + ", ".join(map(str, leaderless)))


def _by_topic(pattern: str | None, partitions: str | None) -> Chooses:
    matches, numbers = (
        parse.pattern("--topic", pattern),
        None if partitions is None else parse.ids("--partitions", partitions),
    )
    return lambda tp: bool(matches.fullmatch(tp.topic)) and (numbers is None or tp.partition in numbers)


def _by_patterns(text: str) -> Chooses:
    """Kafka's TopicPartitionFilter."""
    chooses = [_by_pattern(each) for each in text.split(",")]
    return lambda tp: any(each(tp) for each in chooses)


def _by_pattern(text: str) -> Chooses:
    found = _PATTERN.fullmatch(text)
    if found is None or not text:
        raise CommandError(f"--topic-partitions {text!r} is not TOPIC, TOPIC:N, TOPIC:N-M, TOPIC:N- or TOPIC:-M", 2)
    topic, one, first, end = found.groups()
    matches = parse.pattern("--topic-partitions", topic or None)
    if one is not None:
        first, end = one, str(int(one) + 1)
    low = int(first) if first else 0
    high = int(end) if end else parse.INT64_MAX
    return lambda tp: bool(matches.fullmatch(tp.topic)) and low <= tp.partition < high


def _json(tp: TopicPartition, offset: int, timestamp: int, epoch: int) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": None if offset < 0 else offset,
        "timestamp": None if timestamp < 0 else timestamp,
        "leaderEpoch": None if epoch < 0 else epoch,
    }


def _time(option: str, text: str, now_ms: int) -> int:
    """A word, or a number of the same meaning, or a moment."""
    if text in _NAMED_TIMES:
        return _NAMED_TIMES[text]
    if text in map(str, _NAMED_TIMES.values()):
        return int(text)
    try:
        return parse.moment(option, text, now_ms)
    except CommandError as error:
        words = ", ".join(f"{word} ({number})" for word, number in _NAMED_TIMES.items())
        raise CommandError(f"{error}, nor {words}", error.exit_code) from None
