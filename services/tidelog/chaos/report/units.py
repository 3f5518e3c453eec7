"""Numbers as people say them."""

import math
from collections.abc import Sequence
from typing import Final

UNKNOWN: Final = "unknown"


def seconds(value: float) -> str:
    """`850 µs`, `12 ms`, `2.14 s`, `3 min 05 s`."""
    if math.isnan(value):
        return UNKNOWN
    if value < 0.0009995:
        return f"{value * 1e6:.0f} µs"
    if value < 0.0995:
        return f"{value * 1e3:.3g} ms"
    if value < 0.9995:
        return f"{value * 1e3:.0f} ms"
    if value < 59.95:
        return f"{value:.3g} s" if value < 9.995 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def at(t: float) -> str:
    """A time on the run's time line."""
    return f"{t:.2f} s"


def count(value: float) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:,.0f}"


def plural(number: int, thing: str) -> str:
    """`1 fault`, `2 faults`, `no faults`."""
    if number == 1:
        return f"1 {thing}"
    return f"{number:,} {thing}s" if number else f"no {thing}s"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
