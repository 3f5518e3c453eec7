"""The exactly-once sink's state, one JSON file in the query's checkpoint, and how it comes to be. Used beside the driver."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.pipeline.exactly_once import SinkState, StateError, state_from_json
from tidelog.pipeline.sink_options import SinkOptions

if TYPE_CHECKING:
    from tidelog.wire import messages as m

FILE: Final = "tidelog-sink.json"
_METADATA: Final = "metadata"
"""Spark's own file with the query's id, written before its first micro-batch."""


class Checkpoint:
    """A path or any URI that pyarrow's file systems know (file, hdfs, s3, gs, abfs)."""

    def __init__(self, location: str) -> None:
        from pyarrow import fs

        self.location = location
        try:
            if urlsplit(location).scheme:
                self._fs, path = fs.FileSystem.from_uri(_standard(location))
            else:
                self._fs, path = fs.LocalFileSystem(), location
        except (OSError, ValueError) as error:
            raise StateError(f"option checkpointLocation: {location!r} cannot be opened here: {error}") from None
        self._root = path.rstrip("/")

    def query_id(self) -> str:
        """StateError when Spark has no checkpoint there: then a restart would not find our state either."""
        text = self._read(_METADATA)
        if text is None:
            raise StateError(
                f"option checkpointLocation: Spark has no checkpoint at {self.location!r} as seen from the driver's Python "
                "process; give it as a full URI (file:, hdfs:, s3:) that both understand alike"
            )
        found: dict[str, Any] = json.loads(text)
        return str(found["id"])

    def load(self) -> SinkState | None:
        text = self._read(FILE)
        return None if text is None else state_from_json(text, f"{self.location}/{FILE}")

    def save(self, state: SinkState) -> None:
        """Whole or not at all. What is lost with the machine's power is no worse than an older state, which costs time."""
        new = f"{self._root}/.{FILE}.new"
        try:
            with self._fs.open_output_stream(new) as out:
                out.write(state.to_json().encode())
            self._fs.move(new, f"{self._root}/{FILE}")
        except OSError as error:
            raise StateError(f"option checkpointLocation: {self.location!r} cannot be written: {error}") from error

    def _read(self, name: str) -> str | None:
        path = f"{self._root}/{name}"
        try:
            with self._fs.open_input_stream(path) as file:
                return bytes(file.read()).decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"option checkpointLocation: {path} cannot be read: {error}") from error


def _standard(uri: str) -> str:
    """Hadoop's names for what pyarrow calls otherwise."""
    scheme, rest = uri.split(":", 1)
    if scheme in ("s3a", "s3n"):
        return f"s3:{rest}"
    if scheme == "file" and not rest.startswith("//"):
        return f"file://{rest}"
    return uri


def begin(options: SinkOptions) -> SinkState:
    """A micro-batch begins: its state, after this was noted in the checkpoint."""
    assert options.checkpoint is not None
    checkpoint = Checkpoint(options.checkpoint)
    query_id = options.sink_id or checkpoint.query_id()
    state = checkpoint.load()
    if state is None:
        import asyncio

        state = SinkState(query_id, asyncio.run(ends_now(options)))
    if state.query_id != query_id:
        raise StateError(
            f"{checkpoint.location}/{FILE} belongs to query {state.query_id}, this is query {query_id}: "
            "a checkpoint serves one query, and sinkId must stay what it was"
        )
    state = state.begun()
    checkpoint.save(state)
    return state


def finish(options: SinkOptions, state: SinkState) -> None:
    assert options.checkpoint is not None
    Checkpoint(options.checkpoint).save(state)


async def ends_now(options: SinkOptions) -> dict[TopicPartition, int]:
    """High watermarks of all partitions that the query may write to, of topics that exist now.

    UNKNOWN_TOPIC_OR_PARTITION for option topic: none is created by writing to it.
    """
    from tidelog.client.admin import Admin
    from tidelog.client.offsets import LATEST

    async with Admin(options.bootstrap, request_timeout_ms=options.request_timeout_ms) as admin:
        if options.topic is None:
            topics = await admin.describe_topics()
        else:
            topics = await admin.describe_topics([options.topic])
            check_exists(topics)
        wanted = {tp: LATEST for topic in topics for tp in _partitions(topic)}
        found = await admin.list_offsets(wanted) if wanted else {}
    return {tp: found[tp].offset for tp in wanted}


def check_exists(topics: "Iterable[m.TopicDescription]") -> None:
    for topic in topics:
        if topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise TidelogError(
                f"option topic: topic {topic.name!r} does not exist; create it with `tidelog topics create`",
                topic.error_code,
            )
        if topic.error_code is not ErrorCode.NONE:
            raise TidelogError(f"option topic: {topic.name!r}: {topic.error_code.name}", topic.error_code)


async def check_topic(options: SinkOptions) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION when the topic of option topic is not there."""
    from tidelog.client.admin import Admin

    if options.topic is not None:
        async with Admin(options.bootstrap, request_timeout_ms=options.request_timeout_ms) as admin:
            check_exists(await admin.describe_topics([options.topic]))


def _partitions(topic: "m.TopicDescription") -> list[TopicPartition]:
    return [TopicPartition(topic.name, p.partition) for p in topic.partitions]
