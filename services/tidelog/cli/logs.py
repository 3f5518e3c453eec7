"""`tidelog delete-records` and `tidelog log-dirs`, with the files and lines of kafka-delete-records and kafka-log-dirs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import common
from tidelog.cli.common import BootstrapOption, CommandError, ConfigFileOption, Format, FormatOption, PropertyOption
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.wire.messages import DeleteRecordsResult, LogDir

dirs_app = typer.Typer(help="Look into the brokers' data directories.", no_args_is_help=True)

_SHAPE: Final = '{"partitions": [{"topic": "events", "partition": 0, "offset": 100}], "version": 1}'


def delete_records(
    offset_json_file: Annotated[
        Path,
        typer.Option("--offset-json-file", metavar="FILE", help=f"{_SHAPE}; offset -1: all that is committed."),
    ],
    output: FormatOption = Format.TEXT,
    bootstrap: BootstrapOption = None,
    config_file: ConfigFileOption = None,
    properties: PropertyOption = None,
) -> None:
    """Delete the records before an offset of each partition. Who still wants to read them starts where the log starts then.

    Nothing is deleted if a partition is unknown or an offset is beyond what is committed.

    Example: tidelog delete-records --offset-json-file offsets.json
    """
    before = read_offsets(offset_json_file)

    async def main() -> dict[TopicPartition, "DeleteRecordsResult"]:
        async with common.admin(common.connect(bootstrap, config_file, properties, destroys=True)) as admin:
            return await admin.logs.delete_records(before)

    if output is Format.TEXT:
        print("Executing records delete operation")
    results = common.run(main())
    failed = [each for each in results.values() if each.error_code is not ErrorCode.NONE]
    if output is Format.JSON:
        common.print_json([_result_json(each) for each in results.values()])
    else:
        print("Records delete operation completed:")
        for tp, each in results.items():
            done = each.error_code is ErrorCode.NONE
            what = (
                f"low_watermark: {each.low_watermark}"
                if done
                else f"error: {each.error_code.name}: {each.error_message}"
            )
            print(f"partition: {tp.topic}-{tp.partition}\t{what}")
    if failed:
        raise CommandError(
            f"{len(failed)} of {len(results)} partitions: the records may not have been deleted everywhere"
        )


@dirs_app.command("describe")
def describe_log_dirs(
    broker_list: Annotated[
        str | None, typer.Option("--broker-list", metavar="ID,...", help="Default: all that are alive.")
    ] = None,
    topic_list: Annotated[str | None, typer.Option("--topic-list", metavar="NAME,...", help="Default: all.")] = None,
    output: FormatOption = Format.TEXT,
    bootstrap: BootstrapOption = None,
    config_file: ConfigFileOption = None,
    properties: PropertyOption = None,
) -> None:
    """Show how large each partition is in each broker's data directory, and how far it is behind its leader, as JSON.

    Example: tidelog log-dirs describe --broker-list 0,1 --topic-list events
    """
    brokers = None if broker_list is None else _ids(broker_list)
    topics = [] if topic_list is None else [name for name in topic_list.split(",") if name]

    async def main() -> dict[int, "LogDir"]:
        async with common.admin(common.connect(bootstrap, config_file, properties)) as admin:
            return await admin.logs.describe_log_dirs(brokers, topics)

    if output is Format.TEXT:
        print("Querying brokers for log directories information")
    found = common.run(main())
    report = {"version": 1, "brokers": [_dir_json(broker_id, each) for broker_id, each in found.items()]}
    if output is Format.JSON:
        common.print_json(report)
    else:
        print(f"Received log directory information from brokers {','.join(map(str, found))}")
        print(json.dumps(report, separators=(",", ":")))


def read_offsets(file: Path) -> dict[TopicPartition, int]:
    """CommandError says what is wrong with the file; nothing of it is used then."""
    try:
        whole = json.loads(file.read_text())
        version, rows = whole.get("version", 1), whole["partitions"]
        found = [(TopicPartition(row["topic"], row["partition"]), row["offset"]) for row in rows]
        numbers = [number for tp, offset in found for number in (tp.partition, offset)]
        if not all(type(tp.topic) is str for tp, _ in found) or not all(type(number) is int for number in numbers):
            raise ValueError
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", 2) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandError(f"{file} is not {_SHAPE}", 2) from None
    if version != 1:
        raise CommandError(f"{file}: version {version!r} is not known here, only 1", 2)
    if not found:
        raise CommandError(f"{file} names no partition", 2)
    before = dict(found)
    if len(before) != len(found):
        raise CommandError(f"{file} names a partition twice", 2)
    for tp, offset in found:
        if tp.partition < 0 or offset < -1:
            raise CommandError(
                f"{file}: {tp.topic}-{tp.partition}: offset {offset}: neither may be negative, but for -1", 2
            )
    return before


def _ids(text: str) -> list[int]:
    ids = text.split(",")
    if not all(each.isascii() and each.isdigit() for each in ids):
        raise CommandError(f"--broker-list {text!r} is not broker ids like 0,1,2", 2)
    return list(map(int, ids))


def _result_json(result: "DeleteRecordsResult") -> dict[str, Any]:
    named = {"topic": result.topic, "partition": result.partition}
    if result.error_code is ErrorCode.NONE:
        return {**named, "lowWatermark": result.low_watermark}
    return {**named, "error": result.error_code.name, "message": result.error_message}


def _dir_json(broker_id: int, log_dir: "LogDir") -> dict[str, Any]:
    partitions = [
        {
            "partition": f"{each.topic}-{each.partition}",
            "size": each.size_bytes,
            "offsetLag": each.offset_lag,
            "isFuture": each.is_future,
            **({} if each.error_code is ErrorCode.NONE else {"error": each.error_code.name}),
        }
        for each in log_dir.partitions
    ]
    return {"broker": broker_id, "logDirs": [{"partitions": partitions, "error": None, "logDir": log_dir.path}]}
