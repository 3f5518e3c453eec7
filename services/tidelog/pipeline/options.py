"""What the options of source and sink have in common: names, numbers, durations, JSON, servers and `kafka.*`.

Every mistake is a ValueError that names the option and says what is allowed. Spark hands options over as strings.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from tidelog.ids import Address

SERVERS: Final = ("kafka.bootstrap.servers", "bootstrap.servers")
KAFKA: Final = "kafka."
"""Before the settings of the client."""

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)

Given = Mapping[str, str]
"""Options by their names in lower case."""

Check = Callable[[str, str], object]
"""Of a setting's name and text; ValueError says what is allowed."""


def by_lower_name(options: Mapping[str, str]) -> Given:
    """Names are case-insensitive, as everywhere in Spark. ValueError if two differ in case alone."""
    given: dict[str, str] = {}
    for name, value in options.items():
        if given.setdefault(name.lower(), value) != value:
            raise ValueError(f"option {name!r} is given twice, with different values")
    return given


def refuse_unknown(options: Iterable[str], known: Iterable[str], what: str) -> None:
    """`what` is whose options they are; `kafka.*` is `kafka_settings`'s business."""
    names = {name.lower(): name for name in known}
    for key in options:
        name = key.lower()
        if name in names or (name.startswith(KAFKA) and name != KAFKA):
            continue
        near = get_close_matches(name, names, 1)
        hint = f"did you mean {names[near[0]]}?" if near else f"known are {', '.join(names.values())}"
        raise ValueError(f"option {key!r} is not known to {what}; {hint}")


def kafka_settings(given: Given, known: Mapping[str, Check], forbidden: Mapping[str, str], what: str) -> dict[str, str]:
    """Settings of the client without their prefix; servers are left out. `forbidden` says why, and what to use instead."""
    settings = {}
    for key, value in given.items():
        if not key.startswith(KAFKA) or key in SERVERS:
            continue
        name = key.removeprefix(KAFKA)
        if name in forbidden:
            raise ValueError(f"option {key} is not allowed: {forbidden[name]}")
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {KAFKA}{near[0]}?" if near else f"known are {', '.join(KAFKA + n for n in known)}"
            raise ValueError(f"option {key!r} is not known to {what}; {hint}")
        known[name](key, value.strip())
        settings[name] = value.strip()
    return settings


def servers(given: Given) -> tuple[Address, ...]:
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


def flag(given: Given, name: str, default: bool) -> bool:
    text = given.get(name.lower())
    return default if text is None else one_of("true", "false")(name, text) == "true"


def one_of(*allowed: str) -> Callable[[str, str], str]:
    """A check for words, which are case-insensitive; it returns the word as it is in `allowed`."""

    def check(name: str, text: str) -> str:
        for word in allowed:
            if text.strip().lower() == word.lower():
                return word
        raise ValueError(f"{name} must be {' or '.join(allowed)}, it is {text!r}")

    return check


def whole(least: int, most: int = LONG_MAX) -> Callable[[str, str], int]:
    """A check for whole numbers."""

    def check(name: str, text: str) -> int:
        digits = text.strip()
        # Nothing longer is in any range, and int() refuses what is very long in words of its own.
        if re.fullmatch(r"-?[0-9]{1,19}", digits) and least <= int(digits) <= most:
            return int(digits)
        raise ValueError(f"{name} must be a whole number from {least} to {most}, it is {text!r}")

    return check


def number(given: Given, name: str, default: int, least: int, most: int = LONG_MAX) -> int:
    text = given.get(name.lower())
    return default if text is None else whole(least, most)(name, text)


def number_or_none(given: Given, name: str, least: int, most: int = LONG_MAX) -> int | None:
    text = given.get(name.lower())
    return None if text is None else whole(least, most)(name, text)


def duration_ms(given: Given, name: str, default: int) -> int:
    """Spark's durations: 500ms, 30s, 15m (or min), 1h, 1d; a bare number is milliseconds."""
    text = given.get(name.lower())
    if text is None:
        return default
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_MS or len(found[1]) > 12:
        raise ValueError(f"{name} must be a duration such as 500ms, 30s, 15m, 1h or 1d, it is {text!r}")
    return int(found[1]) * _UNITS_MS[found[2]]


def json_object(text: str, shape: str) -> dict[str, Any]:
    """`shape` is how the option should look; it opens every complaint. A name that comes twice is refused."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name comes twice")
        return found

    try:
        found = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shape}; it is {text!r}: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{shape}; it is {text!r}")
    return found


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LONG_MAX
