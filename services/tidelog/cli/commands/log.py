"""`tidelog log`: what is on a broker's disk."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.errors import CommandError, bad_input
from tidelog.cli.show import Format, FormatOption, print_lines, text_or_base64

if TYPE_CHECKING:
    from tidelog.client.records import ConsumerRecord
    from tidelog.storage.dump import BatchLine

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def log() -> None:
    """Keeps `dump` a command of its own."""


@app.command()
def dump(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A segment file (*.log).")] = None,
    files: Annotated[
        str | None, typer.Option("--files", metavar="FILE,...", help="Several of them, as Kafka's own tool takes them.")
    ] = None,
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", "--deep-iteration", help="Also every record of each batch.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Print the header of every batch in a segment file, and where the file stops making sense. Exits 1 if it does.

    Example: tidelog log dump data/local/broker-1/data/events-0/00000000000000000000.log
    """
    from tidelog.runtime.os_disk import OsDisk
    from tidelog.storage.dump import dump_segment

    named = [*([] if file is None else [file]), *map(Path, files.split(",") if files else ())]
    if not named:
        raise bad_input("name a segment file, as an argument or with --files")
    for each in named:
        if not each.is_file():
            other = "no regular file" if each.exists() else "no such file"
            raise bad_input(f"{each}: {'a directory, name a *.log file in it' if each.is_dir() else other}")
        _refuse_no_segment(each)
    for each in named:
        problem = None
        if output is Format.TEXT:
            print(f"Dumping {each}")
        for line in dump_segment(OsDisk(), str(each.resolve())):
            problem = line.problem
            records = list(_records(each, line)) if print_data_log and problem is None else []
            if output is Format.JSON:
                found = _line_json(line)
                print(json.dumps({**found, "records": [_record_json(r) for r in records]} if print_data_log else found))
            else:
                print(_line_text(line))
                print_lines(_record_text(line, r) for r in records)
        if problem is not None:
            raise CommandError(f"{each}: damaged: {problem}")


def _refuse_no_segment(file: Path) -> None:
    """A file without a segment's name may be a copy of one: then it begins with a batch, though a damaged one."""
    from tidelog.runtime.os_disk import OsDisk
    from tidelog.storage.dump import dump_segment
    from tidelog.storage.segment import parse_segment_name
    from tidelog.wire.batch import MAGIC

    first = next(dump_segment(OsDisk(), str(file.resolve())), None)
    damaged = first is not None and first.problem is not None and (first.header is None or first.header.magic != MAGIC)
    if damaged and parse_segment_name(file.name) is None:
        raise bad_input(f"{file} is no segment file; those of a broker are named like 00000000000000000000.log")


def _records(file: Path, line: "BatchLine") -> "Iterator[ConsumerRecord]":
    """The records of a batch whose header and CRC are right; CommandError where its inside contradicts them."""
    from tidelog.client.errors import BadBatchError
    from tidelog.client.records import decode_batch
    from tidelog.ids import TopicPartition

    assert line.header is not None
    with file.open("rb") as segment:
        segment.seek(line.position)
        batch = segment.read(line.header.size_bytes)
    try:
        yield from decode_batch(TopicPartition(file.parent.name, 0), batch, line.header)
    except BadBatchError as error:
        raise CommandError(f"{file}, position {line.position}: {error.message}") from None


def _record_json(r: "ConsumerRecord") -> dict[str, Any]:
    return {
        "offset": r.offset,
        "timestamp": r.timestamp_ms,
        **text_or_base64("key", r.key),
        **text_or_base64("value", r.value),
        "headers": [{"name": k, **text_or_base64("value", v)} for k, v in r.headers],
    }


def _record_text(line: "BatchLine", r: "ConsumerRecord") -> str:
    """The words of kafka-dump-log."""
    assert line.header is not None
    first = line.header.base_sequence
    sequence = -1 if first < 0 else first + r.offset - line.header.base_offset
    sizes = [-1 if data is None else len(data) for data in (r.key, r.value)]
    key = "" if r.key is None else f" key: {_shown(r.key)}"
    return (
        f"| offset: {r.offset} {'LogAppendTime' if r.timestamp_type else 'CreateTime'}: {r.timestamp_ms} keySize: {sizes[0]} "
        f"valueSize: {sizes[1]} sequence: {sequence} headerKeys: [{','.join(name for name, _ in r.headers)}]{key}"
        f"{'' if r.value is None else f' payload: {_shown(r.value)}'}"
    )


def _shown(data: bytes) -> str:
    """Text on one line, whatever the bytes are."""
    return data.decode(errors="backslashreplace").translate({10: "\\n", 13: "\\r"})


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
