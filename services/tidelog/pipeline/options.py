"""Options of the Spark source: those of Spark's Kafka source, by its names. Every mistake is a ValueError that says what
is allowed."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from tidelog.ids import Address, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
"""Kafka's stand-ins for a position, in JSON and in requests."""

SERVERS: Final = ("kafka.bootstrap.servers", "bootstrap.servers")
SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
KNOWN: Final = (*SERVERS, *SELECTIONS, "startingOffsets", "endingOffsets", "failOnDataLoss", "includeHeaders")

Offsets = int | Mapping[TopicPartition, int]
"""EARLIEST or LATEST for every partition, or a position for each."""


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
    bootstrap: tuple[Address, ...]
    selection: Selection
    starting: Offsets = EARLIEST
    ending: Offsets = LATEST
    fail_on_data_loss: bool = True
    include_headers: bool = False


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Of a batch query. Names are case-insensitive, as everywhere in Spark."""
    given = {key.lower(): value for key, value in options.items()}
    _refuse_unknown(options)
    return SourceOptions(
        bootstrap=_servers(given),
        selection=_selection(given),
        starting=_offsets(given, "startingOffsets", EARLIEST, refused=LATEST),
        ending=_offsets(given, "endingOffsets", LATEST, refused=EARLIEST),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        include_headers=_flag(given, "includeHeaders", False),
    )


def _refuse_unknown(options: Iterable[str]) -> None:
    known = {name.lower(): name for name in KNOWN}
    for key in options:
        if key.lower() not in known:
            near = get_close_matches(key.lower(), known, 1)
            hint = f"did you mean {known[near[0]]}?" if near else f"known are {', '.join(KNOWN)}"
            raise ValueError(f"option {key!r} is not known to the tidelog source; {hint}")


def _servers(given: Mapping[str, str]) -> tuple[Address, ...]:
    found = [given[name] for name in SERVERS if name in given]
    if len(found) != 1:
        raise ValueError(f"exactly one of {' and '.join(SERVERS)} is needed, {len(found)} are given")
    parts = [part.strip() for part in found[0].split(",") if part.strip()]
    if not parts:
        raise ValueError(f"{SERVERS[0]} is empty: name at least one broker as host:port")
    try:
        return tuple(Address.parse(part) for part in parts)
    except ValueError as error:
        raise ValueError(f"{SERVERS[0]}: {error}") from None


def _selection(given: Mapping[str, str]) -> Selection:
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
        return Subscribe(topics)
    try:
        return SubscribePattern(re.compile(value))
    except re.error as error:
        raise ValueError(f"subscribePattern {value!r} is not a regular expression: {error}") from None


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    shape = 'assign must be JSON like {"topic":[0,1]}'
    found = _json_object(text, shape)
    partitions = []
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(_is_count(n) for n in numbers):
            raise ValueError(f"{shape}; {topic!r} has {numbers!r}")
        partitions += [TopicPartition(topic, n) for n in numbers]
    if not partitions:
        raise ValueError(f"{shape}; it names no partition")
    return tuple(sorted(set(partitions)))


def _offsets(given: Mapping[str, str], name: str, default: int, *, refused: int) -> Offsets:
    """`refused` is the stand-in that makes no sense at this end of a batch."""
    words = {EARLIEST: "earliest", LATEST: "latest"}
    text = given.get(name.lower())
    if text is None:
        return default
    shape = f'{name} must be {words[default]} or JSON like {{"topic":{{"0":23,"1":{default}}}}}'
    if text.strip().lower() == words[default]:
        return default
    if text.strip().lower() == words[refused]:
        raise ValueError(f"{shape}; a batch cannot have {name}={words[refused]}")
    positions: dict[TopicPartition, int] = {}
    for topic, by_partition in _json_object(text, shape).items():
        if not isinstance(by_partition, dict):
            raise ValueError(f"{shape}; {topic!r} has {by_partition!r}")
        for number, offset in by_partition.items():
            if not (number.isascii() and number.isdigit()) or not (_is_count(offset) or offset == default):
                raise ValueError(f"{shape}; {topic!r} has {number!r}: {offset!r}")
            positions[TopicPartition(topic, int(number))] = offset
    return positions


def _json_object(text: str, shape: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{shape}; it is {text!r}: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{shape}; it is {text!r}")
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{name} must be true or false, it is {text!r}")
    return text.lower() == "true"
