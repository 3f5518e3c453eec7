"""The PySpark data source `tidelog`: topics as DataFrames, in the schema and with the options of Spark's Kafka source.

`tidelog.pipeline.register(spark)` once a session, then
`spark.read.format("tidelog").option("kafka.bootstrap.servers", ...).option("subscribe", ...).load()`.

Spark pickles what these methods return and calls it in worker processes, and gRPC does not survive a fork: whatever opens
a connection is imported and made inside the methods. Each method hands over to the module of what it returns.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

NAME: Final = "tidelog"
SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
)
SCHEMA_WITH_HEADERS: Final = f"{SCHEMA}, headers array<struct<key:string,value:binary>>"
"""Here and not with the columns: a process of Spark that needs the schema alone imports no pandas."""


class TidelogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from tidelog.pipeline.source_options import wants_headers

        return SCHEMA_WITH_HEADERS if wants_headers(self.options) else SCHEMA

    def reader(self, schema: StructType) -> "DataSourceReader":
        from tidelog.pipeline.batch_reader import TidelogBatchReader
        from tidelog.pipeline.source_options import parse_batch_options

        return TidelogBatchReader(parse_batch_options(self.options))

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":
        from tidelog.pipeline.source_options import parse_stream_options
        from tidelog.pipeline.stream_reader import TidelogStreamReader

        return TidelogStreamReader(parse_stream_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        from tidelog.pipeline.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":
        from tidelog.pipeline.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)
