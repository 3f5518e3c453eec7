"""The Spark source with the same planning and fetching, but a tuple for each record; the reference of B13-tuples."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final
from unittest import mock

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.pipeline.batch_reader import TidelogBatchReader
from tidelog.pipeline.source import TidelogSource
from tidelog.pipeline.source_options import parse_batch_options

NAME: Final = "tidelog-tuples"
Row = tuple[Any, ...]


class TupleSource(TidelogSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(parse_batch_options(self.options))


class TupleReader(TidelogBatchReader):
    def read(self, partition: InputPartition) -> Iterator[Row]:
        from tidelog.pipeline import range_read

        # A worker process reads columns too, so this holds for one range only.
        with mock.patch.object(range_read, "ColumnReader", tuple_reader()):
            yield from super().read(partition)


def tuple_reader() -> type:
    from tidelog.client.records import decode_batch
    from tidelog.pipeline.columns import ColumnReader
    from tidelog.wire.batch import read_header

    class Tuples(ColumnReader):
        def decode(self, chunk: bytes) -> Iterator[Row]:
            view, at = memoryview(chunk), 0
            while at < len(chunk):
                header = read_header(chunk, at)
                for r in decode_batch(self._tp, view[at : at + header.size_bytes], header):
                    if self._start <= r.offset < self._end:
                        time = datetime.fromtimestamp(r.timestamp_ms / 1000, UTC)
                        yield r.key, r.value, r.topic, r.partition, r.offset, time, r.timestamp_type
                self.position = header.end_offset
                at += header.size_bytes

    return Tuples
