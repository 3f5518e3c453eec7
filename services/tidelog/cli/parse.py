"""Option values as people type them. Each function raises a CommandError that names the option and what it takes."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Final

from tidelog.cli.errors import CommandError, bad_input
from tidelog.ids import Address, TopicPartition

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
INT64_MAX: Final = 2**63 - 1
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def pairs(option: str, items: Sequence[str]) -> dict[str, str]:
    """`key=value` items."""
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise bad_input(f"{option} {item!r} is not KEY=VALUE")
        found[key] = value
    return found


def one_topic(argument: str | None, option: str | None) -> str:
    """The topic that is named by position or by --topic."""
    name = option if option is not None else argument
    if name is None or (argument is not None and option is not None and argument != option):
        raise bad_input("name one topic, as an argument or with --topic")
    return name


def partition(option: str, text: str) -> TopicPartition:
    """`events-0`."""
    topic, _, digits = text.rpartition("-")
    if not topic or not digits.isascii() or not digits.isdecimal():
        raise bad_input(f"{option} {text!r} is not a partition like events-0")
    return TopicPartition(topic, int(digits))


def ids(option: str, text: str) -> list[int]:
    """`0,1,2`: numbers of brokers or partitions, each once."""
    numbers = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdecimal() for each in numbers):
        raise bad_input(f"{option} {text!r} is not a list of numbers like 0,1,2")
    found = [int(each) for each in numbers]
    if len(set(found)) != len(found):
        raise bad_input(f"{option} {text!r} names a number twice")
    return found


def pattern(option: str, text: str | None) -> re.Pattern[str]:
    """A regular expression for whole names; None fits all."""
    try:
        return re.compile(".*" if text is None else text)
    except re.error as error:
        raise bad_input(f"{option} {text!r} is no regular expression: {error}") from None


def address(option: str, text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise bad_input(f"{option}: {error}") from None


def seconds(option: str, text: str) -> float:
    """`500ms`, `10s`, `2m`."""
    found = _TIME.fullmatch(text.strip())
    if found is None or found[2] not in _UNITS_S or not isfinite(float(found[1])):
        raise bad_input(f"{option} {text!r} is not a time like 500ms, 10s or 2m")
    return float(found[1]) * _UNITS_S[found[2]]


def unix_ms(option: str, text: str) -> int:
    """A date, or a date and a time, of ISO 8601; UTC unless it says."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise bad_input(f"{option} {text!r} is not a time like 2026-02-03T04:05:06.789+01:00") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def moment(option: str, text: str, now_ms: int) -> int:
    """Unix milliseconds, a date as `unix_ms` takes it, or how long ago it was: `1h`. No moment is before 1970.

    An @ may stand before it.
    """
    when = text.removeprefix("@")
    if when.isascii() and when.isdigit():
        if int(when) > INT64_MAX:
            raise bad_input(f"{option} {text} is over 2^63 - 1")
        return int(when)
    ago = _TIME.fullmatch(when)
    if ago is not None and ago[2] in _UNITS_S:
        return max(0, now_ms - round(seconds(option, when) * 1000))
    try:
        return max(0, unix_ms(option, when))
    except CommandError:
        raise bad_input(
            f"{option} {text!r} is not Unix milliseconds, a date like 2026-02-03T04:05:06 or a time ago like 1h"
        ) from None


def escaped(text: str) -> bytes:
    """Text as it is typed in a shell: \\t, \\n and \\0 stand for what they do in C."""
    return text.encode().replace(b"\\t", b"\t").replace(b"\\n", b"\n").replace(b"\\0", b"\0")
