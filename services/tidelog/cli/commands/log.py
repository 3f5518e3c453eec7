"""`tidelog log`: what is on a broker's disk."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.errors import BAD_INPUT, CommandError
from tidelog.cli.show import Format, FormatOption

if TYPE_CHECKING:
    from tidelog.storage.dump import BatchLine

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def log() -> None:
    """Keeps `dump` a command of its own."""


@app.command()
def dump(
    file: Annotated[Path, typer.Argument(help="A segment file (*.log).")],
    output: FormatOption = Format.TEXT,
) -> None:
    """Print the header of every batch in a segment file, and where the file stops making sense. Exits 1 if it does.

    Example: tidelog log dump data/local/broker-1/data/events-0/00000000000000000000.log
    """
    import json

    from tidelog.runtime.os_disk import OsDisk
    from tidelog.storage.dump import dump_segment

    if not file.is_file():
        raise CommandError(
            f"{file}: {'a directory, name a *.log file in it' if file.is_dir() else 'no such file'}", BAD_INPUT
        )
    problem = None
    if output is Format.TEXT:
        print(f"Dumping {file}")
    for line in dump_segment(OsDisk(), str(file.resolve())):
        problem = line.problem
        print(json.dumps(_line_json(line)) if output is Format.JSON else _line_text(line))
    if problem is not None:
        raise CommandError(f"{file}: damaged: {problem}")


def _line_json(line: "BatchLine") -> dict[str, Any]:
    found: dict[str, Any] = {"position": line.position, "valid": line.problem is None}
    if line.problem is not None:
        found["problem"] = line.problem
    h = line.header
    if h is not None:
        found |= {
            "baseOffset": h.base_offset,
            "lastOffset": h.last_offset,
            "count": h.record_count,
            "partitionLeaderEpoch": h.leader_epoch,
            "magic": h.magic,
            "compresscodec": _codec(h.codec),
            "crc": h.crc,
            "baseTimestamp": h.base_timestamp,
            "maxTimestamp": h.max_timestamp,
            "producerId": h.producer_id,
            "producerEpoch": h.producer_epoch,
            "baseSequence": h.base_sequence,
            "size": h.size_bytes,
        }
    return found


def _line_text(line: "BatchLine") -> str:
    """The words of kafka-dump-log."""
    h = line.header
    valid = f"isvalid: {'true' if line.problem is None else 'false'}"
    if h is None:
        return f"position: {line.position} {valid}"
    return (
        f"baseOffset: {h.base_offset} lastOffset: {h.last_offset} count: {h.record_count} "
        f"baseSequence: {h.base_sequence} producerId: {h.producer_id} producerEpoch: {h.producer_epoch} "
        f"partitionLeaderEpoch: {h.leader_epoch} position: {line.position} CreateTime: {h.max_timestamp} "
        f"size: {h.size_bytes} magic: {h.magic} compresscodec: {_codec(h.codec)} crc: {h.crc} {valid}"
    )


def _codec(number: int) -> str:
    from tidelog.wire.batch import Codec

    return Codec(number).name.lower() if number in Codec._value2member_map_ else str(number)
