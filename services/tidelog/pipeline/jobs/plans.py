"""What the jobs are asked to do, checked before anything starts. Pure; every mistake is a ValueError that names the option."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.ids import Address
from tidelog.names import suggestion, validate_topic_name
from tidelog.pipeline.jobs.flags import Given

DEFAULT_TRIGGER_MS: Final = 10_000
DEFAULT_WATERMARK_MS: Final = 10_000
PARTITION_COLUMNS: Final = ("topic", "partition", "date", "hour")
VALUE_FORMATS: Final = ("binary", "string", "json")
OUTPUT_MODE: Final = "append"
"""Each window once, when it is over: Spark offers Python sinks no Update."""
DELIVERIES: Final = ("exactly-once", "at-least-once")
GROUP_COLUMNS: Final = ("key", "topic", "partition")
CHECKPOINT: Final = "_checkpoint"
"""In the output by default. Spark and pyarrow leave out what begins with an underscore when they read a folder."""

SOURCE_FLAGS: Final = {
    "subscribe": "topic",
    "subscribepattern": "include",
    "assign": "topic",
    "startingoffsets": "starting-offsets",
    "maxoffsetspertrigger": "max-offsets-per-trigger",
    "kafka.bootstrap.servers": "bootstrap-server",
}
"""Options of the source, in lower case, that a job knows by another name."""

WINDOWS_PER_RECORD_MAX: Final = 1_000
"""Spark makes a row for each window that a record falls into."""

_UNITS_MS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_DURATION: Final = re.compile(r"(\d{1,15})\s*([a-z]+)")
_FIELD: Final = re.compile(r"(\.[A-Za-z0-9_\- ]+)+")


@dataclass(frozen=True, slots=True)
class Field:
    """Of a JSON value, by the names that lead to it."""

    path: tuple[str, ...]

    @property
    def json_path(self) -> str:
        return "$" + "".join(f"['{name}']" for name in self.path)

    @property
    def name(self) -> str:
        return "_".join(self.path)

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.path)


@dataclass(frozen=True, slots=True)
class Input:
    topics: tuple[str, ...]
    """Or empty: those that `include` fits."""
    include: str | None
    starting_offsets: str
    max_offsets_per_trigger: int | None
    source_options: Mapping[str, str]

    def options(self) -> dict[str, str]:
        """Of the source, without the brokers."""
        found = dict(self.source_options)
        if self.include is None:
            found["subscribe"] = ",".join(self.topics)
        else:
            found["subscribePattern"] = self.include
        found["startingOffsets"] = self.starting_offsets
        if self.max_offsets_per_trigger is not None:
            found["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        return found


@dataclass(frozen=True, slots=True)
class Run:
    """How a job runs; may differ from one run to the next of the same checkpoint."""

    once: bool
    trigger_ms: int
    master: str | None
    """None: what spark-submit says, else all cores of this machine."""
    conf: Mapping[str, str]
    metrics_address: Address | None
    spark_log: str | None
    wait_ms: int = 0
    """For what the job needs and is not there yet."""


@dataclass(frozen=True, slots=True)
class IngestPlan:
    input: Input
    output: str
    checkpoint: str
    partition_by: tuple[str, ...]
    value_format: str
    schema: str | None
    include_headers: bool
    run: Run

    def identity(self) -> dict[str, Any]:
        """What a checkpoint belongs to: with any of it changed, the rows that are there would not fit those that come."""
        return {
            "job": "ingest",
            **_identity_of(self.input),
            "output": self.output,
            "partition-by": ",".join(self.partition_by),
            "value-format": self.value_format,
            "schema": self.schema or "",
            "include-headers": self.include_headers,
        }


@dataclass(frozen=True, slots=True)
class Measure:
    function: str
    """count, sum, min or max."""
    of: Field | None = None
    """None: the size of the value in bytes; nothing of count."""

    @property
    def name(self) -> str:
        """In the JSON of a result."""
        return self.function if self.function == "count" else f"{self.function}_{self.of.name if self.of else 'size'}"


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    input: Input
    to: str
    checkpoint: str
    window_ms: int
    slide_ms: int
    watermark_ms: int
    event_time: Field | None
    """None: the record's timestamp."""
    group_by: str | Field | None
    """One of GROUP_COLUMNS, or a field."""
    measures: tuple[Measure, ...]
    delivery: str
    run: Run

    def identity(self) -> dict[str, Any]:
        return {
            "job": "aggregate",
            **_identity_of(self.input),
            "to": self.to,
            "window": f"{self.window_ms} ms",
            "slide": f"{self.slide_ms} ms",
            "watermark": f"{self.watermark_ms} ms",
            "event-time": str(self.event_time or "timestamp"),
            "group-by": str(self.group_by or ""),
            "measures": ",".join(measure.name for measure in self.measures),
            "output-mode": OUTPUT_MODE,
            "delivery": self.delivery,
        }

    def group_name(self) -> str | None:
        """In the JSON of a result."""
        return self.group_by.name if isinstance(self.group_by, Field) else self.group_by


def ingest_plan(given: Given) -> IngestPlan:
    output = _directory(given, "output", None)
    value_format = _choice(given, "value-format", VALUE_FORMATS, "binary")
    schema = _text(given, "schema")
    if value_format == "json" and schema is None:
        raise ValueError("--value-format json needs --schema, as 'city STRING, amount DOUBLE'")
    if value_format != "json" and schema is not None:
        raise ValueError(f"--schema is for --value-format json, not for {value_format}")
    partition_by = _list(given, "partition-by") or ("topic", "date")
    for column in partition_by:
        if column not in PARTITION_COLUMNS:
            known = ", ".join(PARTITION_COLUMNS)
            raise ValueError(f"--partition-by {column!r} is none of {known}{suggestion(column, PARTITION_COLUMNS)}")
    if len(set(partition_by)) != len(partition_by):
        raise ValueError(f"--partition-by {','.join(partition_by)}: each column once")
    checkpoint = _directory(given, "checkpoint", f"{output.rstrip('/')}/{CHECKPOINT}")
    if checkpoint == output:
        raise ValueError(f"--checkpoint and --output are both {output}; the checkpoint needs a directory of its own")
    return IngestPlan(
        input=_input(given, {**SOURCE_FLAGS, "includeheaders": "include-headers"}),
        output=output,
        checkpoint=checkpoint,
        partition_by=partition_by,
        value_format=value_format,
        schema=schema,
        include_headers=bool(given.get("include_headers")),
        run=run_of(given),
    )


def aggregate_plan(given: Given) -> AggregatePlan:
    read = _input(given, SOURCE_FLAGS)
    window_ms = _duration(given, "window", None)
    slide_ms = _duration(given, "slide", window_ms)
    _check_windows(window_ms, slide_ms)
    event_time = _text(given, "event-time") or "timestamp"
    plan = AggregatePlan(
        input=read,
        to=_target(given, read),
        checkpoint=_directory(given, "checkpoint", None),
        window_ms=window_ms,
        slide_ms=slide_ms,
        watermark_ms=_duration(given, "watermark", DEFAULT_WATERMARK_MS, least_ms=0),
        event_time=None if event_time == "timestamp" else _field("event-time", event_time, "timestamp"),
        group_by=_group(_text(given, "group-by")),
        measures=_measures(given),
        delivery=_choice(given, "delivery", DELIVERIES, "exactly-once"),
        run=run_of(given),
    )
    _check_names(plan)
    return plan


def run_of(given: Given) -> Run:
    once = bool(given.get("once"))
    if once and "trigger" in given:
        raise ValueError("--once ends when everything is read, --trigger goes on; give one of them")
    address = _text(given, "metrics-address")
    try:
        metrics = None if address is None else Address.parse(address)
    except ValueError as error:
        raise ValueError(f"--metrics-address: {error}") from None
    return Run(
        once=once,
        trigger_ms=_duration(given, "trigger", DEFAULT_TRIGGER_MS, least_ms=0),
        master=_text(given, "master"),
        conf=_pairs(given, "conf", {"spark.master": "master"}),
        metrics_address=metrics,
        spark_log=_text(given, "spark-log"),
        wait_ms=_duration(given, "wait", 0, least_ms=0),
    )


def duration_ms(text: str) -> int:
    """`500ms`, `10s`, `5 minutes`; ValueError says what is allowed."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise ValueError(f"{text!r} is not a time like 500ms, '10 seconds', 5m, '1 hour' or 1d")
    return int(found[1]) * _UNITS_MS[found[2]]


def _identity_of(read: Input) -> dict[str, Any]:
    return {"topic": ",".join(sorted(read.topics)), "include": read.include or ""}


def _input(given: Given, known: Mapping[str, str]) -> Input:
    topics, include = _list(given, "topic"), _text(given, "include")
    if bool(topics) == (include is not None):
        raise ValueError("name what is to be read, with --topic or with --include, and not with both")
    for topic in topics:
        validate_topic_name(topic)
    if include is not None:
        _pattern(include)
    return Input(
        topics=tuple(dict.fromkeys(topics)),
        include=include,
        starting_offsets=_text(given, "starting-offsets") or "earliest",
        max_offsets_per_trigger=_count(given, "max-offsets-per-trigger"),
        source_options=_pairs(given, "source-option", known),
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"--include {text!r} is not a regular expression: {error}") from None


def _target(given: Given, read: Input) -> str:
    """A job that reads what it writes would never end."""
    to = _needed(given, "to")
    validate_topic_name(to)
    if to in read.topics or (read.include is not None and _pattern(read.include).fullmatch(to)):
        raise ValueError(f"--to {to} is among the topics that are read; results go to another one")
    return to


def _check_windows(window_ms: int, slide_ms: int) -> None:
    if slide_ms > window_ms:
        raise ValueError(f"--slide of {slide_ms} ms is over --window of {window_ms} ms: records between would be lost")
    if -(-window_ms // slide_ms) > WINDOWS_PER_RECORD_MAX:
        raise ValueError(
            f"--slide of {slide_ms} ms puts a record into {-(-window_ms // slide_ms)} windows of {window_ms} ms; "
            f"at most {WINDOWS_PER_RECORD_MAX}"
        )


def _group(text: str | None) -> str | Field | None:
    if text is None or text in GROUP_COLUMNS:
        return text
    return _field("group-by", text, ", ".join(GROUP_COLUMNS))


def _measures(given: Given) -> tuple[Measure, ...]:
    found = [
        Measure(function, None if text == "size" else _field(function, text, "size"))
        for function in ("sum", "min", "max")
        for text in _list(given, function)
    ]
    if given.get("count") or not found:
        found.insert(0, Measure("count"))
    return tuple(found)


def _check_names(plan: AggregatePlan) -> None:
    group = plan.group_name()
    names = ["window_start", "window_end", *([] if group is None else [group]), *(each.name for each in plan.measures)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"a result would hold two fields of the name {twice}")


def _field(option: str, text: str, others: str) -> Field:
    if not _FIELD.fullmatch(text):
        hint = f"; did you mean .{text}?" if _FIELD.fullmatch(f".{text}") else ""
        raise ValueError(
            f"--{option} {text!r} is neither {others} nor a field of JSON values like .amount or .user.id{hint}"
        )
    return Field(tuple(text.removeprefix(".").split(".")))


def _text(given: Given, name: str) -> str | None:
    value = given.get(name.replace("-", "_"))
    if value is None:
        return None
    assert isinstance(value, str), name
    if not value.strip():
        raise ValueError(f"--{name} is empty")
    return value


def _needed(given: Given, name: str) -> str:
    value = _text(given, name)
    if value is None:
        raise ValueError(f"--{name} is missing")
    return value


def _texts(given: Given, name: str) -> Sequence[str]:
    value = given.get(name.replace("-", "_"), ())
    assert not isinstance(value, str | bool), name
    return value


def _list(given: Given, name: str) -> tuple[str, ...]:
    parts = [part.strip() for text in _texts(given, name) for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"--{name} {','.join(_texts(given, name))!r} holds an empty name")
    return tuple(parts)


def _pairs(given: Given, name: str, known: Mapping[str, str]) -> dict[str, str]:
    """`known`: keys, in lower case, that are options of their own; said here as well they would contradict them."""
    found = {}
    for text in _texts(given, name):
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"--{name} {text!r} is not KEY=VALUE")
        if (flag := known.get(key.lower())) is not None:
            raise ValueError(f"--{name} {text!r}: {key} has an option of its own, --{flag}")
        found[key] = value
    return found


def _choice(given: Given, name: str, known: Sequence[str], default: str) -> str:
    value = _text(given, name) or default
    if value not in known:
        raise ValueError(f"--{name} {value!r} is none of {', '.join(known)}{suggestion(value, known)}")
    return value


def _count(given: Given, name: str) -> int | None:
    text = _text(given, name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 2**63:
        raise ValueError(f"--{name} {text!r} is not a number from 1 on")
    return int(text)


def _duration(given: Given, name: str, default: int | None, least_ms: int = 1) -> int:
    text = _text(given, name)
    if text is None:
        if default is None:
            raise ValueError(f"--{name} is missing")
        return default
    try:
        found = duration_ms(text)
    except ValueError as error:
        raise ValueError(f"--{name} {error}") from None
    if found < least_ms:
        raise ValueError(f"--{name} {text!r} is no time at all")
    return found


def _directory(given: Given, name: str, default: str | None) -> str:
    """As Spark takes it: a path or an address of a file system."""
    text = _text(given, name) or default
    if text is None:
        raise ValueError(f"--{name} is missing")
    return text.rstrip("/") or "/"
