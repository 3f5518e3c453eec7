"""`tidelog delete-records`: the file and the lines of kafka-delete-records."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError
from tidelog.cli.show import Format, FormatOption, print_json
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.wire.messages import DeleteRecordsResult

app = typer.Typer(add_completion=False)

_SHAPE: Final = '{"partitions": [{"topic": "events", "partition": 0, "offset": 100}], "version": 1}'


@app.command("delete-records")
@connected
async def delete_records(
    on: Connection,
    offset_json_file: Annotated[
        Path,
        typer.Option("--offset-json-file", metavar="FILE", help=f"{_SHAPE}; offset -1: all that is committed."),
    ],
    output: FormatOption = Format.TEXT,
) -> None:
    """Delete the records before an offset of each partition. A reader that is behind goes on at the new start of the log.

    Nothing is deleted if a partition is unknown or an offset is beyond what is committed.

    Example: tidelog delete-records --offset-json-file offsets.json
    """
    before = read_offsets(offset_json_file)

    async with on.admin(destroys=True) as admin:
        if output is Format.TEXT:
            print("Executing records delete operation")
        results = await admin.logs.delete_records(before)
    failed = [each for each in results.values() if each.error_code is not ErrorCode.NONE]
    if output is Format.JSON:
        print_json([_result_json(each) for each in results.values()])
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


def read_offsets(file: Path) -> dict[TopicPartition, int]:
    """CommandError says what is wrong with the file; nothing of it is used then."""
    try:
        whole = json.loads(file.read_text("utf-8"))
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


def _result_json(result: "DeleteRecordsResult") -> dict[str, Any]:
    named = {"topic": result.topic, "partition": result.partition}
    if result.error_code is ErrorCode.NONE:
        return {**named, "lowWatermark": result.low_watermark}
    return {**named, "error": result.error_code.name, "message": result.error_message}
