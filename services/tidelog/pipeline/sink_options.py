"""Options of the Spark sink: those of Spark's Kafka sink, by its names and with its defaults, and `delivery`.

Where it keeps silent about a mistake, this refuses: options and settings that it does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tidelog.errors import TidelogError
from tidelog.ids import Address
from tidelog.names import validate_topic_name
from tidelog.pipeline import options as o
from tidelog.wire.batch import Codec

Delivery = Literal["at-least-once", "exactly-once"]
AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"

STREAM_ONLY: Final = ("sinkId",)
SPARKS_OWN: Final = ("checkpointLocation", "queryName")
"""Options of the query, which Spark shows to its sink."""
KNOWN: Final = (*o.SERVERS, "topic", "includeHeaders", "delivery", *SPARKS_OWN, *STREAM_ONLY)

BATCH_BYTES: Final = 256 * 1024
BUFFER_BYTES: Final = 32 * 1024 * 1024
REQUEST_BYTES: Final = 1_048_576
_ACKS: Final = {"0": "0", "1": "1", "all": "all", "-1": "all"}

FORBIDDEN: Final = {
    "key.serializer": "keys are written as bytes; cast the column",
    "value.serializer": "values are written as bytes; cast the column",
    "interceptor.classes": "interceptors could change the records",
    "transactional.id": "there are no transactions; delivery=exactly-once is what a stream can have",
    "retries": "kafka.delivery.timeout.ms says for how long a batch is tried again",
    "partitioner.class": "keys go where every Kafka client puts them; column partition says otherwise",
}
"""Settings that are refused, with the reason; the first three by Spark's Kafka sink as well."""


def _any_text(name: str, text: str) -> None:
    if not text:
        raise ValueError(f"{name} is empty")


_WHOLE: Final = o.whole(1, o.INT_MAX)
SETTINGS: Final[Mapping[str, o.Check]] = {
    "acks": o.one_of(*_ACKS),
    "enable.idempotence": o.one_of("true", "false"),
    "compression.type": o.one_of(*(codec.name.lower() for codec in Codec)),
    "batch.size": _WHOLE,
    "linger.ms": o.whole(0, o.INT_MAX),
    "buffer.memory": _WHOLE,
    "max.request.size": _WHOLE,
    "max.in.flight.requests.per.connection": _WHOLE,
    "request.timeout.ms": _WHOLE,
    "delivery.timeout.ms": _WHOLE,
    "max.block.ms": _WHOLE,
    "metadata.max.age.ms": _WHOLE,
    "client.id": _any_text,
    "security.protocol": o.one_of("PLAINTEXT"),
}
"""What `kafka.*` may set."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Picklable: it travels to the tasks with its writer."""

    bootstrap: tuple[Address, ...]
    topic: str | None = None
    """For every row; None takes the column of that name."""
    delivery: Delivery = AT_LEAST_ONCE
    checkpoint: str | None = None
    """The query's, where exactly-once keeps its state."""
    sink_id: str | None = None
    """In place of the query's own id in header `tidelog-sink`."""
    acks: str = "all"
    idempotent: bool = True
    compression: str = "none"
    batch_bytes: int = BATCH_BYTES
    """Of one record batch, unless one row is larger. Rows wait for a full one at most until their task ends."""
    buffer_bytes: int = BUFFER_BYTES
    """Of batches that are on their way; the task reads no further while they fill it."""
    record_bytes_max: int = REQUEST_BYTES
    max_in_flight: int = 5
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    metadata_max_age_ms: int = 300_000
    client_id: str = "tidelog-spark-sink"

    @property
    def exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE

    def producer(self) -> dict[str, Any]:
        """Arguments of `client.producer.Producer`. Exactly-once numbers its batches itself, so that a repetition has the
        same numbers."""
        return {
            "bootstrap": self.bootstrap,
            "acks": self.acks,
            "enable_idempotence": self.idempotent and not self.exactly_once,
            "batch_bytes": self.batch_bytes,
            "buffer_bytes": self.buffer_bytes,
            "max_in_flight": self.max_in_flight,
            "request_timeout_ms": self.request_timeout_ms,
            "delivery_timeout_ms": self.delivery_timeout_ms,
            "max_block_ms": self.max_block_ms,
            "metadata_max_age_ms": self.metadata_max_age_ms,
            "client_id": self.client_id,
        }


def parse_batch_sink(options: Mapping[str, str]) -> SinkOptions:
    """Of a batch query, which is at-least-once: a batch query that is run again writes again."""
    given = o.by_lower_name(options)
    for name in STREAM_ONLY:
        if name.lower() in given:
            raise ValueError(f"option {name} is for streams")
    found = _parse(given)
    if found.exactly_once:
        raise ValueError(f"delivery={EXACTLY_ONCE} is for streams; a batch query has no checkpoint to go on from")
    return found


def parse_stream_sink(options: Mapping[str, str]) -> SinkOptions:
    """Of a stream."""
    found = _parse(o.by_lower_name(options))
    if found.exactly_once:
        _check_exactly_once(found)
    elif found.sink_id is not None:
        raise ValueError(f"option sinkId is for delivery={EXACTLY_ONCE}")
    return found


def _check_exactly_once(found: SinkOptions) -> None:
    if not found.checkpoint:
        raise ValueError(
            f"delivery={EXACTLY_ONCE} needs option checkpointLocation on the query itself: the sink keeps its state "
            "there (spark.sql.streaming.checkpointLocation is not shown to sinks)"
        )
    if found.acks != "all":
        raise ValueError(f"delivery={EXACTLY_ONCE} needs kafka.acks=all, it is {found.acks}")
    if not found.idempotent:
        raise ValueError(f"delivery={EXACTLY_ONCE} needs kafka.enable.idempotence=true")


def _parse(given: o.Given) -> SinkOptions:
    o.refuse_unknown(given, KNOWN, "the tidelog sink")
    # Its value changes nothing here nor in Spark's Kafka sink: rows have headers if they have the column.
    o.flag(given, "includeHeaders", False)
    settings = o.kafka_settings(given, SETTINGS, FORBIDDEN, "the tidelog sink")
    acks = _ACKS[settings.get("acks", "all").lower()]
    idempotent = settings.get("enable.idempotence", "true" if acks == "all" else "false").lower() == "true"
    if idempotent and acks != "all":
        raise ValueError(f"kafka.enable.idempotence=true needs kafka.acks=all, it is {acks}")
    delivery = o.one_of(AT_LEAST_ONCE, EXACTLY_ONCE)("delivery", given.get("delivery", AT_LEAST_ONCE))

    def number(name: str, default: int) -> int:
        return int(settings.get(name, default))

    return SinkOptions(
        bootstrap=o.servers(given),
        topic=_topic(given),
        delivery=EXACTLY_ONCE if delivery == EXACTLY_ONCE else AT_LEAST_ONCE,
        checkpoint=given.get("checkpointlocation"),
        sink_id=_sink_id(given),
        acks=acks,
        idempotent=idempotent,
        compression=settings.get("compression.type", "none").lower(),
        batch_bytes=number("batch.size", BATCH_BYTES),
        buffer_bytes=number("buffer.memory", BUFFER_BYTES),
        record_bytes_max=number("max.request.size", REQUEST_BYTES),
        max_in_flight=number("max.in.flight.requests.per.connection", 5),
        request_timeout_ms=number("request.timeout.ms", 30_000),
        delivery_timeout_ms=number("delivery.timeout.ms", 120_000),
        max_block_ms=number("max.block.ms", 60_000),
        metadata_max_age_ms=number("metadata.max.age.ms", 300_000),
        client_id=settings.get("client.id", "tidelog-spark-sink"),
    )


def _topic(given: o.Given) -> str | None:
    topic = given.get("topic")
    if topic is None:
        return None
    try:
        validate_topic_name(topic)
    except TidelogError as error:
        raise ValueError(f"option topic: {error.message}") from None
    return topic


def _sink_id(given: o.Given) -> str | None:
    found = given.get("sinkid")
    if found is not None and (not found or ":" in found or len(found) > 200):
        raise ValueError(f"sinkId must have 1 to 200 characters and no colon, it is {found!r}")
    return found
