"""Amounts as people write them in scenario files and on command lines: `1.5s`, `200ms`, `10%`, `64kB`."""

import re
from collections.abc import Mapping
from math import inf
from typing import Final

_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z%]*)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {"": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "KiB": 2.0**10, "MiB": 2.0**20}


def duration(text: str) -> float:
    """Seconds."""
    return _amount(text, _SECONDS, "a duration like 200ms, 5s or 2m")


def share(text: str) -> float:
    """Of one: `10%` is 0.1."""
    found = _amount(text, {"%": 0.01}, "a share like 10%")
    if found > 1:
        raise ValueError(f"{text!r} is more than 100%")
    return found


def size(text: str) -> int:
    """Bytes."""
    return int(_amount(text, _BYTES, "a size like 200, 64kB or 1MiB"))


def rate(text: str) -> float:
    """Bytes a second."""
    return _amount(text.removesuffix("/s"), _BYTES, "a rate like 64kB/s")


def count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _amount(text: str, units: Mapping[str, float], wanted: str) -> float:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or found[2] not in units:
        raise ValueError(f"{text!r} is not {wanted}")
    amount = float(found[1]) * units[found[2]]
    if amount == inf:
        raise ValueError(f"{text[:20]!r}... is too much")
    return amount
