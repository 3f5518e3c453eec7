"""What can be set for a topic, under Kafka's names."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from tidelog.errors import ErrorCode, TidelogError
from tidelog.names import suggestion

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1

DELETE: Final = "delete"
COMPACT: Final = "compact"
PRODUCER: Final = "producer"
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
_CLEANERS: Final = (COMPACT, DELETE)
"""What cleanup.policy may name."""

Value = int | float | str | bool


@dataclasses.dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's settings in force. A field's Kafka name has dots for the underscores."""

    min_insync_replicas: int = 2
    """Writes with acks=all are refused while fewer replicas than this are in sync. A topic with fewer replicas needs
    all of them in sync. Kafka's default: 1."""
    flush: str = "none"
    """sync: a record counts as stored on a replica only when that replica has synced it to disk."""
    retention_ms: int = -1
    """A closed segment is deleted when its newest record is older than this. -1: never. Kafka's default: 7 days."""
    retention_bytes: int = -1
    """The oldest closed segment is deleted if the partition still holds at least this much without it. -1: no limit."""
    segment_bytes: int = 128 << 20
    """A segment is closed when it reaches this size. Kafka's default: 1 GiB."""
    segment_ms: int = 604_800_000
    """A segment is closed when it reaches this age, however small it is."""
    max_message_bytes: int = 1_048_588
    """Maximum size of a batch, including its header. It must not be above request_max_bytes or fetch_max_bytes of any live
    broker."""
    validate: str = "header"
    """header: the leader checks the header and the CRC of each batch. full: it also decodes the records."""
    compression_type: str = PRODUCER
    """producer: batches are stored as they were sent. Any other value: the leader stores every new batch with this
    codec."""
    unclean_leader_election_enable: bool = False
    """true: a replica outside the ISR is elected leader when no member of the ISR can lead. Records that it lacks are
    lost (KIP-106)."""
    cleanup_policy: str = DELETE
    """delete: delete segments by age and size. compact: keep the newest record of each key. compact,delete: do both."""
    delete_retention_ms: int = 86_400_000
    """Compaction keeps a tombstone for at least this long, so that a reader that started earlier sees the deletion."""
    min_cleanable_dirty_ratio: float = 0.5
    """A log is compacted when more than this share of its closed segments has not been compacted yet."""
    min_compaction_lag_ms: int = 0
    """Compaction does not remove a record before it reaches this age."""
    max_compaction_lag_ms: int = _INT64_MAX
    """A record is compacted at this age at the latest, regardless of min.cleanable.dirty.ratio."""
    message_timestamp_type: str = CREATE_TIME
    """CreateTime: records have the timestamps that producers give them. LogAppendTime: the leader gives all records of a
    batch the time at which it appends them. All brokers must run release 0.3.0 or later."""
    message_timestamp_before_max_ms: int = _INT64_MAX
    """With CreateTime, a batch whose newest record is older than this is refused with INVALID_TIMESTAMP."""
    message_timestamp_after_max_ms: int = 3_600_000
    """With CreateTime, a batch whose newest record is further ahead of the leader's clock than this is refused with
    INVALID_TIMESTAMP."""

    def __post_init__(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise _invalid(
                f"min.compaction.lag.ms={self.min_compaction_lag_ms} is above "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )

    @property
    def deletes(self) -> bool:
        """Whether records may go because of their age or the log's size, or because somebody asks for it."""
        return DELETE in self.cleanup_policy.split(",")

    @property
    def compacts(self) -> bool:
        return COMPACT in self.cleanup_policy.split(",")

    @property
    def examined(self) -> bool:
        """Whether a leader looks into the batches that it is sent, which costs it a decoding."""
        return self.validate == "full" or self.compacts or self.compression_type != PRODUCER


class Entry(Protocol):
    """One setting as a request carries it."""

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> str: ...


def parse(entries: Mapping[str, str] | Iterable[Entry], defaults: TopicConfig) -> TopicConfig:
    """`defaults` changed by `entries`; TidelogError INVALID_CONFIG names the key, the value and the limit."""
    pairs = list(entries.items()) if isinstance(entries, Mapping) else [(e.key, e.value) for e in entries]
    values: dict[str, Value] = {}
    for key, text in pairs:
        if key not in _PARSERS:
            raise _invalid(f"unknown topic setting {key!r}{suggestion(key, _PARSERS)}")
        field = key.replace(".", "_")
        if field in values:
            raise _invalid(f"{key} is given twice")
        values[field] = _PARSERS[key](key, text)
    return dataclasses.replace(defaults, **values)  # type: ignore[arg-type]  # each parser gives its field's type


class Change(Protocol):
    """One change of a topic's settings as a request carries it."""

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> str: ...

    @property
    def remove(self) -> bool: ...


def altered(stored: Mapping[str, str], changes: Iterable[Change]) -> dict[str, str]:
    """What a topic says for itself after `changes`; the `known` ones are to pass `parse` together.

    INVALID_CONFIG names the key and the limit. What a newer release has stored is carried over, and may be removed.
    """
    after, named = dict(stored), set[str]()
    for change in changes:
        if change.key in named:
            raise _invalid(f"{change.key} is named more than once")
        named.add(change.key)
        if change.key not in _PARSERS and not (change.remove and change.key in stored):
            raise _invalid(f"unknown topic setting {change.key!r}{suggestion(change.key, _PARSERS)}")
        if change.remove:
            if change.value:
                raise _invalid(f"{change.key} is to be removed, and has the value {change.value!r}")
            after.pop(change.key, None)
        else:
            _PARSERS[change.key](change.key, change.value)
            after[change.key] = change.value
    return after


def known(entries: Mapping[str, str]) -> dict[str, str]:
    """Without the keys of a newer release."""
    return {key: value for key, value in entries.items() if key in _PARSERS}


def to_entries(config: TopicConfig) -> dict[str, str]:
    """Every setting in force, as `parse` reads it."""
    return {key: _text(getattr(config, key.replace(".", "_"))) for key in _PARSERS}


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _invalid(message: str) -> TidelogError:
    return TidelogError(message, ErrorCode.INVALID_CONFIG)


def _number(low: int, high: int) -> Callable[[str, str], int]:
    def parse_number(key: str, text: str) -> int:
        # int() would accept spaces, underscores and other scripts' digits.
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise _invalid(f"{key}={text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse_number


def _choice(*choices: str) -> Callable[[str, str], str]:
    def parse_choice(key: str, text: str) -> str:
        if text not in choices:
            raise _invalid(f"{key}={text!r} is none of: {', '.join(choices)}")
        return text

    return parse_choice


def _ratio(key: str, text: str) -> float:
    # float() would accept spaces, underscores, "nan" and exponents.
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,17})?", text) or float(text) > 1:
        raise _invalid(f"{key}={text!r} is not a number from 0 to 1")
    return float(text)


def _policy(key: str, text: str) -> str:
    """In one spelling, whatever the order in which the cleaners are named."""
    cleaners = text.split(",")
    if not set(cleaners) <= set(_CLEANERS) or len(set(cleaners)) < len(cleaners):
        raise _invalid(f"{key}={text!r} is none of: {'; '.join((*_CLEANERS, ','.join(_CLEANERS)))}")
    return ",".join(sorted(cleaners))


def _boolean(key: str, text: str) -> bool:
    return _choice("false", "true")(key, text) == "true"


_PARSERS: Final[Mapping[str, Callable[[str, str], Value]]] = {
    "min.insync.replicas": _number(1, 32_767),
    "flush": _choice("none", "sync"),
    "retention.ms": _number(-1, _INT64_MAX),
    "retention.bytes": _number(-1, _INT64_MAX),
    "segment.bytes": _number(1024, _INT32_MAX),
    "segment.ms": _number(1, _INT64_MAX),
    MAX_MESSAGE_BYTES: _number(128, _INT32_MAX),
    "validate": _choice("header", "full"),
    "compression.type": _choice(PRODUCER, "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    UNCLEAN_ELECTION: _boolean,
    "cleanup.policy": _policy,
    "delete.retention.ms": _number(0, _INT64_MAX),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _number(0, _INT64_MAX),
    "max.compaction.lag.ms": _number(1, _INT64_MAX),
    "message.timestamp.type": _choice(CREATE_TIME, LOG_APPEND_TIME),
    "message.timestamp.before.max.ms": _number(0, _INT64_MAX),
    "message.timestamp.after.max.ms": _number(0, _INT64_MAX),
}
