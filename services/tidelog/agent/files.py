"""Handler `file`: JSON lines or Parquet, a file for each stretch of a partition.

A file is named by what is in it, `topic-partition-first-end.jsonl`, end exclusive. It is written under another name, synced
and renamed, so that it is there whole or not at all, and only then are its offsets committed. An agent that dies between the
two leaves a file whose records come again: files of one partition may overlap, and each record tells its offset.

No file is replaced. Where the name is taken by other records, of a topic that has since been deleted and created again for
instance, a number comes before the ending: `topic-partition-first-end.1.jsonl`.
"""

import itertools
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tidelog.agent.handler import Records
from tidelog.client.records import ConsumerRecord
from tidelog.config import ConfigError
from tidelog.ids import TopicPartition
from tidelog.ports.disk import Disk, EntryKind

Encode = Callable[[Sequence[ConsumerRecord]], bytes]
RECORD_OVERHEAD: Final = 200
"""Bytes that a record takes in memory beside key and value, about."""


class FileHandler:
    """Holds records in memory until a flush; asks for one when they take more than `bytes_max`."""

    def __init__(self, disk: Disk, folder: str, kind: str, bytes_max: int, writer: str) -> None:
        """`writer` is this agent's id, of which no other lives: it marks the files that are not complete."""
        self._encode = encoder(kind)
        self._disk = disk
        self._folder = folder
        self._suffix = kind
        self._bytes_max = bytes_max
        self._part = f".{writer}.part"
        self._held: dict[TopicPartition, list[ConsumerRecord]] = {}
        self._bytes = 0

    async def start(self) -> None:
        if self._disk.kind(self._folder) is not EntryKind.DIRECTORY:
            self._disk.make_dir(self._folder)
        for entry in self._disk.list_dir(self._folder):
            if entry.name.endswith(self._part):
                self._disk.remove(f"{self._folder}/{entry.name}")

    async def handle(self, records: Records) -> None:
        for record in records:
            self._held.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
            self._bytes += _size(record)

    @property
    def full(self) -> bool:
        return self._bytes >= self._bytes_max

    async def flush(self) -> None:
        for tp, records in list(self._held.items()):
            await self._disk.in_background(lambda tp=tp, records=records: self._write(tp, records))  # type: ignore[misc]
            self.lose([tp])

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._bytes -= sum(map(_size, self._held.pop(tp, ())))

    async def close(self) -> None:
        pass

    def _write(self, tp: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        content = self._encode(records)
        name = self._free_name(f"{self._folder}/{tp}-{records[0].offset}-{records[-1].offset + 1}", content)
        part = name + self._part
        if self._disk.kind(part) is not None:
            self._disk.remove(part)  # of a flush that failed
        file = self._disk.open(part, create=True)
        try:
            file.append([content])
            file.sync()
        finally:
            file.close()
        self._disk.rename(part, name)
        self._disk.sync_dir(self._folder)

    def _free_name(self, stem: str, content: bytes) -> str:
        """A name that no file has, or one with this content."""
        for number in itertools.count():
            name = f"{stem}.{number}.{self._suffix}" if number else f"{stem}.{self._suffix}"
            if self._disk.kind(name) is None or self._disk.read(name) == content:
                return name
        raise AssertionError("numbers do not end")


def encoder(kind: str) -> Encode:
    if kind == "jsonl":
        return _json_lines
    try:
        from tidelog.agent.parquet import encode
    except ImportError as error:
        raise ConfigError(f"file_format: parquet needs PyArrow, which the extra `spark` installs ({error})") from error
    return encode


def _json_lines(records: Sequence[ConsumerRecord]) -> bytes:
    return b"".join(json.dumps(_line(record), ensure_ascii=False).encode() + b"\n" for record in records)


def _line(record: ConsumerRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(data: bytes | None) -> Any:
    """Text as it is; what is none as {"base64": ...}."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _size(record: ConsumerRecord) -> int:
    return RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
