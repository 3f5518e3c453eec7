"""What the replicas of a run held: the digests that the run has noted, or the segments themselves where it kept its cluster."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.chaos.checking import REPLICAS, CannotCheck
from tidelog.cluster.api import BROKER
from tidelog.pipeline.jobs.audit.paths import by_path, location, plain
from tidelog.pipeline.jobs.audit.replicas import REPLICAS_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa

CLUSTER: Final = "cluster"
"""Where a run keeps its cluster, if it was told to."""
_SEGMENT: Final = "run int, topic string, partition int, broker int, base bigint, stretches array<array<string>>"
_MAKES_NO_SENSE: Final = (
    "topic is null or partition is null or high_watermark is null or replicas is null or exists(replicas, r -> "
    "r.broker is null or r.log_start is null or r.stretches is null or exists(r.stretches, s -> size(s) <> 3))"
)


def replicas_of(spark: SparkSession, directories: Mapping[int, Path]) -> DataFrame | None:
    """In REPLICAS_SCHEMA, with `run` and the `number` of the partition; None if no run has asked its replicas. CannotCheck."""
    noted = {run: directory for run, directory in directories.items() if (directory / REPLICAS).is_file()}
    if not noted:
        return None
    digests = _noted(spark, noted)
    segments = _segments(spark, {run: directory / CLUSTER for run, directory in noted.items()})
    if segments is None:
        return digests
    kept = segments.select("run").distinct().withColumn("kept", F.lit(True))
    told = digests.join(F.broadcast(kept), "run", "left")
    read = told.filter("kept").drop("replicas", "kept").join(_by_partition(segments), ["run", "topic", "partition"])
    return told.filter("kept is null").drop("kept").unionByName(read)


def _noted(spark: SparkSession, directories: Mapping[int, Path]) -> DataFrame:
    paths = {run: (directory / REPLICAS).resolve() for run, directory in directories.items()}
    lines = spark.read.text([location(path) for path in paths.values()], wholetext=True)
    whole = f"array<struct<{_fields(REPLICAS_SCHEMA)}>>"
    named = by_path(lines, paths, "value").select("run", F.from_json("value", whole).alias("all"))
    found = named.select("run", F.posexplode_outer("all").alias("number", "each")).select("run", "number", "each.*")
    wrong = found.filter(f"number is not null and ({_MAKES_NO_SENSE})").select("run")
    unread = named.filter("all is null").select("run")
    for row in wrong.unionAll(unread).distinct().limit(1).collect():
        raise CannotCheck(f"{paths[row.run]}: it is no list of what replicas hold")
    return found.filter("number is not null")


def _fields(schema: str) -> str:
    """`a int, b array<...>` as the inside of a struct: `a: int, b: array<...>`."""
    topic, partition, high_watermark, replicas = schema.split(", ", 3)
    return ", ".join(each.replace(" ", ": ", 1) for each in (topic, partition, high_watermark, replicas))


def _segments(spark: SparkSession, clusters: Mapping[int, Path]) -> DataFrame | None:
    """A row a segment, with the batches in it; None if no run kept its cluster."""
    folders: list[tuple[int, int, str, int, Path]] = []
    for run, cluster in clusters.items():
        for home in sorted(cluster.glob(f"{BROKER}-*")):
            for folder in sorted((home / "data").glob("*-*")):
                topic, _, partition = folder.name.rpartition("-")
                broker = home.name.rpartition("-")[2]
                if partition.isdecimal() and broker.isdecimal() and folder.is_dir():
                    folders.append((run, int(broker), topic, int(partition), folder.resolve()))
    if not folders:
        return None
    named = {str(folder): each for *each, folder in folders}
    places = [location(Path(folder)) for folder in named]
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*.log").load(places)

    def parse(tables: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        yield from _parsed(tables, named)

    return files.select("path", "content").mapInArrow(parse, _SEGMENT)


def _parsed(batches: "Iterator[pa.RecordBatch]", named: Mapping[str, list[object]]) -> "Iterator[pa.RecordBatch]":
    """In _SEGMENT. Bytes have to be cut into batches by the format's own reader; that is done by segment, not by record."""
    import pyarrow as pa

    from tidelog.chaos.replicas import replica_log
    from tidelog.storage.segment import parse_segment_name

    for batch in batches:
        for path, content in zip(batch.column("path").to_pylist(), batch.column("content"), strict=True):
            folder, _, name = plain(path).rpartition("/")
            if (base := parse_segment_name(name)) is None or folder not in named:
                continue
            run, broker, topic, partition = named[folder]
            stretches = replica_log(0, {name: content.as_py()}).stretches
            row = {
                **{"run": run, "topic": topic, "partition": partition, "broker": broker, "base": base},
                "stretches": [[str(part) for part in stretch] for stretch in stretches],
            }
            yield pa.RecordBatch.from_pylist([row], schema=_arrow())


def _arrow() -> "pa.Schema":
    import pyarrow as pa

    numbers = [("run", pa.int32()), ("topic", pa.string()), ("partition", pa.int32()), ("broker", pa.int32())]
    return pa.schema([*numbers, ("base", pa.int64()), ("stretches", pa.list_(pa.list_(pa.string())))])


def _by_partition(segments: DataFrame) -> DataFrame:
    """As the digests are: by replica its stretches in their order."""
    replica = segments.groupBy("run", "topic", "partition", "broker").agg(
        F.min("base").alias("log_start"), F.array_sort(F.collect_list(F.struct("base", "stretches"))).alias("parts")
    )
    whole = replica.select(
        *("run", "topic", "partition"),
        F.struct(
            "broker",
            "log_start",
            F.lit(None).cast("bigint").alias("log_end"),
            F.flatten(F.transform("parts", lambda part: part.stretches)).alias("stretches"),
        ).alias("replica"),
    )
    return whole.groupBy("run", "topic", "partition").agg(F.array_sort(F.collect_list("replica")).alias("replicas"))
