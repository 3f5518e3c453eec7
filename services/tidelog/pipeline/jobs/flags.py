"""The options of the jobs as a table, from which the command line and the programs for spark-submit are made. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

Given = Mapping[str, str | Sequence[str] | bool]
"""What was said, by identifier: text, texts of an option that may be repeated, True of a switch. What was not said is absent."""


class Takes(Enum):
    ONE = auto()
    MANY = auto()
    """May be repeated, and each text may hold several, separated by commas."""
    PAIRS = auto()
    """May be repeated; each is KEY=VALUE."""
    NOTHING = auto()
    """A switch."""


@dataclass(frozen=True, slots=True)
class Flag:
    name: str
    """As it is typed, without the dashes."""
    metavar: str
    about: str
    takes: Takes = Takes.ONE

    @property
    def identifier(self) -> str:
        return self.name.replace("-", "_")


INPUT: Final = (
    Flag("topic", "NAME", "A topic to read; may be repeated, or several with commas between.", Takes.MANY),
    Flag("include", "REGEX", "Instead of --topic: every topic whose whole name fits, later ones too."),
    Flag("starting-offsets", "earliest|latest|JSON", "Where a new checkpoint begins. Default: earliest."),
    Flag("max-offsets-per-trigger", "N", "At most so many records in one micro-batch. Default: all there are."),
    Flag("source-option", "KEY=VALUE", "Another option of the source, as failOnDataLoss=false.", Takes.PAIRS),
)
SESSION: Final = (
    Flag("master", "URL", "Where Spark runs, as spark://HOST:7077. Default: local[*], all cores of this machine."),
    Flag("conf", "KEY=VALUE", "A setting of Spark.", Takes.PAIRS),
    Flag("spark-log", "FILE", "Append what Spark logs to this file. Default: kept only when the job fails."),
)
RUN: Final = (
    Flag("once", "", "Take what is there now, in batches of the usual size, and end.", Takes.NOTHING),
    Flag("trigger", "TIME", "From one micro-batch to the next, like 500ms or '10 seconds'. Default: 10 seconds."),
    Flag("wait", "TIME", "For brokers, topics and Spark's master that are not there yet. Default: not at all."),
    Flag("metrics-address", "HOST:PORT", "Serve metrics to Prometheus there while the job runs."),
    *SESSION,
)
INGEST: Final = (
    *INPUT,
    Flag("output", "DIR", "Where the Parquet files go."),
    Flag("checkpoint", "DIR", "Where the job keeps how far it has got. Default: _checkpoint in the output."),
    Flag("partition-by", "COLUMN", "Folders: topic, partition, date, hour. Default: topic,date.", Takes.MANY),
    Flag("value-format", "binary|string|json", "What becomes of values. Default: binary, the bytes as they are."),
    Flag("schema", "DDL", "Of JSON values, as 'city STRING, amount DOUBLE'."),
    Flag("include-headers", "", "A column of the records' headers.", Takes.NOTHING),
    *RUN,
)
AGGREGATE: Final = (
    *INPUT,
    Flag("to", "TOPIC", "The topic of the results."),
    Flag("checkpoint", "DIR", "Where the job keeps how far it has got, and its windows."),
    Flag("window", "TIME", "Length of a window, like '1 minute'."),
    Flag("slide", "TIME", "From the start of a window to the next. Default: the window, so that none overlap."),
    Flag("watermark", "TIME", "How late a record may come. Default: 10 seconds."),
    Flag(
        "event-time",
        "timestamp|.FIELD",
        "When it happened: the timestamp, or a field (ms or ISO 8601). Default: timestamp.",
    ),
    Flag("group-by", "key|topic|partition|.FIELD", "One result for each value of it in a window. Default: none."),
    Flag("count", "", "Count records. Default, when nothing else is asked for.", Takes.NOTHING),
    Flag("sum", "size|.FIELD", "Add up a field of the JSON value, or the values' sizes in bytes.", Takes.MANY),
    Flag("min", "size|.FIELD", "The least of it.", Takes.MANY),
    Flag("max", "size|.FIELD", "The greatest of it.", Takes.MANY),
    Flag("delivery", "exactly-once|at-least-once", "Of results, when a batch is repeated. Default: exactly-once."),
    *RUN,
)
