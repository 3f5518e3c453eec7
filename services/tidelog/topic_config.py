"""What can be set for a topic, under Kafka's names."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from tidelog.errors import ErrorCode, TidelogError
from tidelog.names import suggestion

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"

_INT32_MAX: Final = 2**31 - 1

Value = int | str | bool


@dataclasses.dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's settings in force. A field's Kafka name has dots for the underscores."""

    min_insync_replicas: int = 2
    flush: str = "none"
    """sync: fsync before a record counts as held by a replica."""
    retention_ms: int = -1
    """-1: for ever, which is all that this version does; so with the size below."""
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    """Of one batch, its header included."""
    validate: str = "header"
    """header: what the batch headers show is checked, the records inside are the reader's business; full: they are too."""
    compression_type: str = "producer"
    unclean_leader_election_enable: bool = False
    """true: rather lose records than wait. A replica outside the ISR leads when no member can (HOLE-25)."""
    cleanup_policy: str = "delete"


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


def _boolean(key: str, text: str) -> bool:
    return _choice("false", "true")(key, text) == "true"


def _forever(key: str, text: str) -> int:
    """What a version does not do it refuses: a limit that nobody enforces would only look like one."""
    return int(_choice("-1")(key, text))


_PARSERS: Final[Mapping[str, Callable[[str, str], Value]]] = {
    "min.insync.replicas": _number(1, 32_767),
    "flush": _choice("none", "sync"),
    "retention.ms": _forever,
    "retention.bytes": _forever,
    "max.message.bytes": _number(128, _INT32_MAX),
    "validate": _choice("header", "full"),
    "compression.type": _choice("producer"),
    UNCLEAN_ELECTION: _boolean,
    "cleanup.policy": _choice("delete"),
}
