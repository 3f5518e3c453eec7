"""`tidelog topics offsets`: kafka-get-offsets' flags and lines."""

import re
from typing import Annotated, Any, Final

import typer

from tidelog.cli import common
from tidelog.cli.common import BootstrapOption, CommandError, ConfigFileOption, Format, FormatOption, PropertyOption
from tidelog.ids import TopicPartition

_NAMED_TIMES: Final = {"latest": -1, "earliest": -2, "max-timestamp": -3}
_TIME_MAX: Final = 2**63 - 1


def offsets(
    pattern: Annotated[
        str | None, typer.Option("--topic", help="A name, or a regular expression; default: all.")
    ] = None,
    partitions: Annotated[
        str | None, typer.Option("--partitions", metavar="N,N", help="Only these; default: all.")
    ] = None,
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="MS|latest|earliest|max-timestamp",
            help="Unix milliseconds: the first record at or after it; -1, -2 and -3 are the three words.",
        ),
    ] = "latest",
    output: FormatOption = Format.TEXT,
    bootstrap: BootstrapOption = None,
    config_file: ConfigFileOption = None,
    properties: PropertyOption = None,
) -> None:
    """Print offsets as TOPIC:PARTITION:OFFSET; the last part is empty where no record is so late.

    Example: tidelog topics offsets --topic events --time earliest
    """
    at, chosen = _time("--time", time), _partitions(partitions)
    try:
        matches = re.compile(".*" if pattern is None else pattern)
    except re.error as error:
        raise CommandError(f"--topic {pattern!r} is no regular expression: {error}", 2) from None
    settings = common.connect(bootstrap, config_file, properties).settings()

    async def main() -> list[tuple[TopicPartition, int, int, int]]:
        from tidelog.client.admin import AdminClient
        from tidelog.client.consumer import Consumer

        timeout_ms = settings.request_timeout_ms
        async with AdminClient(
            settings.bootstrap_servers, request_timeout_ms=timeout_ms, ports=common.ports()
        ) as admin:
            topics = [t for t in await admin.describe_topics() if matches.fullmatch(t.name)]
        tps = [
            TopicPartition(t.name, p.partition)
            for t in topics
            for p in t.partitions
            if chosen is None or p.partition in chosen
        ]
        if not tps and (pattern is not None or chosen is not None):
            raise CommandError("no partition matches --topic and --partitions; `tidelog topics list` shows the topics")
        async with Consumer(
            settings.bootstrap_servers,
            request_timeout_ms=timeout_ms,
            client_id=settings.client_id,
            ports=common.ports(),
        ) as consumer:
            found = await consumer.offsets_for_times(dict.fromkeys(tps, at))
        return [(tp, found[tp].offset, found[tp].timestamp_ms, found[tp].leader_epoch) for tp in sorted(tps)]

    rows = common.run(main())
    if output is Format.JSON:
        common.print_json([_json(*row) for row in rows])
        return
    for tp, offset, _, _ in rows:
        print(f"{tp.topic}:{tp.partition}:{'' if offset < 0 else offset}")


def _json(tp: TopicPartition, offset: int, timestamp: int, epoch: int) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": None if offset < 0 else offset,
        "timestamp": None if timestamp < 0 else timestamp,
        "leaderEpoch": None if epoch < 0 else epoch,
    }


def _time(option: str, text: str) -> int:
    """A word, or a number of the same meaning, or Unix milliseconds."""
    if text in _NAMED_TIMES:
        return _NAMED_TIMES[text]
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and min(_NAMED_TIMES.values()) <= int(text) <= _TIME_MAX:
        return int(text)
    words = ", ".join(f"{word} ({number})" for word, number in _NAMED_TIMES.items())
    raise CommandError(f"{option} {text!r} is not Unix milliseconds up to 2^63 - 1, nor {words}", 2)


def _partitions(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    numbers = text.split(",")
    if not all(each.isascii() and each.isdigit() for each in numbers):
        raise CommandError(f"--partitions {text!r} is not numbers from 0 on, like 0,3", 2)
    return frozenset(map(int, numbers))
