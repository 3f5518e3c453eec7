"""Options of the Spark source: those of Spark's Kafka source, by its names, with its defaults and precedence.

Where it keeps silent about a mistake, this refuses: options that it does not know, `endingTimestamp` of a stream.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tidelog.errors import TidelogError
from tidelog.ids import Address, TopicPartition
from tidelog.names import validate_topic_name
from tidelog.pipeline import options as o

EARLIEST: Final = -2
LATEST: Final = -1
"""Kafka's stand-ins for a position, in JSON and in requests."""

_WORDS: Final = {EARLIEST: "earliest", LATEST: "latest"}
SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""The first that is given counts."""

STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
KNOWN: Final = (
    *o.SERVERS,
    *SELECTIONS,
    *STARTING,
    "startingOffsetsByTimestampStrategy",
    *ENDING,
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    *STREAM_ONLY,
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)

_NO_GROUP: Final = "Spark keeps the positions of a query itself"
FORBIDDEN: Final = {
    "auto.offset.reset": "startingOffsets says where a query starts, and failOnDataLoss what happens if that is gone",
    "key.deserializer": "keys are read as bytes; cast the column",
    "value.deserializer": "values are read as bytes; cast the column",
    "enable.auto.commit": _NO_GROUP,
    "interceptor.classes": "interceptors could change the records",
}
"""Settings that Spark's Kafka source refuses as well, with the reason."""


def _any_text(name: str, text: str) -> None:
    if not text:
        raise ValueError(f"{name} is empty")


CLIENT_SETTINGS: Final[Mapping[str, o.Check]] = {
    "client.id": _any_text,
    "group.id": _any_text,
    "request.timeout.ms": o.whole(1, o.INT_MAX),
    "max.partition.fetch.bytes": o.whole(1, o.INT_MAX),
    "fetch.max.bytes": o.whole(1, o.INT_MAX),
    "metadata.max.age.ms": o.whole(1, o.INT_MAX),
    # There is one value that is true of every cluster here; whoever asks for another one must learn that he has not got it.
    "security.protocol": o.one_of("PLAINTEXT"),
    "isolation.level": o.one_of("read_uncommitted", "read_committed"),
}
"""What `kafka.*` may set. No transactions are written, so both levels of isolation read the same."""

Offsets = int | Mapping[TopicPartition, int]
"""EARLIEST or LATEST for every partition, or a position for each."""


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The first record at or after a time, in Unix ms: one for every partition, or one for each."""

    at_ms: int | Mapping[TopicPartition, int]


Limit = Offsets | Timestamps
"""Where a query starts, or a batch ends."""


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    pattern: re.Pattern[str]
    """Matches whole topic names."""

    def choose(self, topics: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(topic for topic in topics if self.pattern.fullmatch(topic)))


Selection = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Picklable: it travels to the tasks with its reader."""

    bootstrap: tuple[Address, ...]
    selection: Selection
    starting: Limit = EARLIEST
    ending: Limit = LATEST
    """Of a batch."""
    strategy: Literal["error", "latest"] = "error"
    """What becomes of a partition that has no record at or after the starting time."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    group_id_prefix: str = "spark-tidelog-source"
    poll_timeout_ms: int = 120_000
    """How long a task goes on without a byte, through elections and restarts, before it fails."""
    num_retries: int = 3
    """How often the driver asks for offsets before the query fails, the first time included (as Spark counts)."""
    retry_interval_ms: int = 1_000
    kafka: Mapping[str, str] = field(default_factory=dict)
    """CLIENT_SETTINGS that were given, checked."""
    warnings: tuple[str, ...] = ()
    """What was given and has no effect."""

    @property
    def client_id(self) -> str:
        """By which brokers know the query. It joins no group: a group's id only names it, and disturbs nobody."""
        return self.kafka.get("client.id") or self.kafka.get("group.id") or self.group_id_prefix

    @property
    def request_timeout_ms(self) -> int:
        """Of one look-up of the driver, through elections."""
        return int(self.kafka.get("request.timeout.ms", 10_000))

    @property
    def fetch_bytes(self) -> int:
        """A fetch is of one partition, so that both of Kafka's limits bound it."""
        partition = int(self.kafka.get("max.partition.fetch.bytes", 1 << 20))
        return min(partition, int(self.kafka.get("fetch.max.bytes", partition)))


def parse_batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Of `spark.read`. What only streams have is checked and ignored with a warning, so that one set of options does for both."""
    given = _checked(options)
    ignored = tuple(f"option {name} has no effect on a batch" for name in STREAM_ONLY if name.lower() in given)
    return _parse(
        given,
        starting=_limit(given, STARTING, default=EARLIEST, allowed=(EARLIEST,), where="a batch cannot start at"),
        ending=_limit(given, ENDING, default=LATEST, allowed=(LATEST,), where="a batch cannot end at"),
        warnings=(*ignored, *_overruled(given, STARTING), *_overruled(given, ENDING)),
    )


def parse_stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Of `spark.readStream`. Where it starts counts for a new query only; a checkpoint overrules it."""
    given = _checked(options)
    for name in ENDING:
        if name.lower() in given:
            raise ValueError(f"option {name} is not allowed: a stream has no end; a batch has")
    both = (LATEST, EARLIEST)
    return _parse(
        given,
        starting=_limit(given, STARTING, default=LATEST, allowed=both, where=""),
        ending=LATEST,
        warnings=_overruled(given, STARTING),
    )


def wants_headers(options: Mapping[str, str]) -> bool:
    """Checked when a frame is made, before anybody knows whether it is a batch or a stream: so is what holds for both."""
    given = _checked(options)
    return _parse(given, starting=EARLIEST, ending=LATEST, warnings=()).include_headers


def _checked(options: Mapping[str, str]) -> o.Given:
    o.refuse_unknown(options, KNOWN, "the tidelog source")
    return o.by_lower_name(options)


def _parse(given: o.Given, *, starting: Limit, ending: Limit, warnings: tuple[str, ...]) -> SourceOptions:
    kafka = o.kafka_settings(given, CLIENT_SETTINGS, FORBIDDEN, "the tidelog source")
    strategy = o.one_of("error", "latest")("startingOffsetsByTimestampStrategy", _strategy_text(given))
    at_least = o.number_or_none(given, "minOffsetsPerTrigger", 1)
    at_most = o.number_or_none(given, "maxOffsetsPerTrigger", 1)
    if at_least is not None and at_most is not None and at_least > at_most:
        raise ValueError(f"minOffsetsPerTrigger {at_least} is above maxOffsetsPerTrigger {at_most}")
    prefix = given.get("groupidprefix")
    if prefix is not None:
        _any_text("groupIdPrefix", prefix)
        if "group.id" in kafka:
            warnings = (*warnings, "option groupIdPrefix has no effect beside kafka.group.id")
    return SourceOptions(
        bootstrap=o.servers(given),
        selection=_selection(given),
        starting=starting,
        ending=ending,
        strategy="latest" if strategy == "latest" else "error",
        fail_on_data_loss=o.flag(given, "failOnDataLoss", True),
        include_headers=o.flag(given, "includeHeaders", False),
        min_partitions=o.number_or_none(given, "minPartitions", 1, o.INT_MAX),
        max_records_per_partition=o.number_or_none(given, "maxRecordsPerPartition", 1),
        max_offsets_per_trigger=at_most,
        min_offsets_per_trigger=at_least,
        max_trigger_delay_ms=o.duration_ms(given, "maxTriggerDelay", 15 * 60_000),
        group_id_prefix=prefix or "spark-tidelog-source",
        poll_timeout_ms=o.number(given, "kafkaConsumer.pollTimeoutMs", 120_000, 1, o.INT_MAX),
        num_retries=o.number(given, "fetchOffset.numRetries", 3, 1, o.INT_MAX),
        retry_interval_ms=o.number(given, "fetchOffset.retryIntervalMs", 1_000, 0, o.INT_MAX),
        kafka=kafka,
        warnings=warnings,
    )


def _strategy_text(given: o.Given) -> str:
    return given.get("startingoffsetsbytimestampstrategy", "error")


def _overruled(given: o.Given, names: tuple[str, ...]) -> tuple[str, ...]:
    winner, *others = [name for name in names if name.lower() in given] or [""]
    return tuple(f"option {name} has no effect beside {winner}" for name in others)


def _selection(given: o.Given) -> Selection:
    found = [name for name in SELECTIONS if name.lower() in given]
    if len(found) != 1:
        raise ValueError(f"exactly one of {', '.join(SELECTIONS)} is needed, given: {', '.join(found) or 'none'}")
    (name,) = found
    value = given[name.lower()]
    if name == "assign":
        return Assign(_partitions(value))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not topics:
            raise ValueError("subscribe is empty: name topics, separated by commas")
        return Subscribe(tuple(_topic(name, topic) for topic in topics))
    if not value.strip():
        raise ValueError("subscribePattern is empty: .* matches every topic")
    try:
        return SubscribePattern(re.compile(value.strip()))
    except re.error as error:
        raise ValueError(f"subscribePattern {value!r} is not a regular expression: {error}") from None


def _topic(option: str, name: str) -> str:
    try:
        return validate_topic_name(name)
    except TidelogError as error:
        raise ValueError(f"{option}: {error}") from None


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    shape = 'assign must be JSON like {"topic":[0,1]}'
    partitions: list[TopicPartition] = []
    for topic, numbers in o.json_object(text, shape).items():
        if not isinstance(numbers, list) or not all(o.is_count(n) and n <= o.INT_MAX for n in numbers):
            raise ValueError(f"{shape}; {topic!r} has {numbers!r}")
        partitions += [TopicPartition(_topic("assign", topic), n) for n in numbers]
    if not partitions:
        raise ValueError(f"{shape}; it names no partition")
    return tuple(sorted(set(partitions)))


def _limit(given: o.Given, names: tuple[str, ...], *, default: int, allowed: tuple[int, ...], where: str) -> Limit:
    """`allowed` are the stand-ins that make sense at this end of the query; `where` begins the refusal of the others."""
    by_time, by_times, by_offsets = names
    if (text := given.get(by_time.lower())) is not None:
        return Timestamps(o.whole(0)(by_time, text))
    if (text := given.get(by_times.lower())) is not None:
        shape = f'{by_times} must be JSON like {{"topic":{{"0":1700000000000}}}}'
        return Timestamps(_by_partition(by_times, text, shape, o.is_count))
    text = given.get(by_offsets.lower())
    if text is None:
        return default
    shape = (
        f"{by_offsets} must be {' or '.join(_WORDS[s] for s in allowed)} or JSON like "
        f'{{"topic":{{"0":23,"1":{allowed[0]}}}}}'
    )
    for stand_in, word in _WORDS.items():
        if text.strip().lower() == word:
            if stand_in not in allowed:
                raise ValueError(f"{shape}; {where} {word}")
            return stand_in
    return _by_partition(by_offsets, text, shape, lambda offset: o.is_count(offset) or offset in allowed)


def _by_partition(name: str, text: str, shape: str, fits: Callable[[object], bool]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, by_partition in o.json_object(text, shape).items():
        if not isinstance(by_partition, dict):
            raise ValueError(f"{shape}; {topic!r} has {by_partition!r}")
        for number, position in by_partition.items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,9}", number) or type(position) is not int or not fits(position):
                raise ValueError(f"{shape}; {topic!r} has {number!r}: {position!r}")
            found[TopicPartition(_topic(name, topic), int(number))] = int(position)
    return found
