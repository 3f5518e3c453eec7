"""The types of settings: what a value may be, how it is read from text, and how it is described to a user.

A field is declared as a plain type, or as `Annotated` with a `Range`, an `Above` or a `Text`. Plain types are bool, int, float,
str, a Literal of strings, and each of them or None.
"""

import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin


class Range(NamedTuple):
    """The least and the greatest number, or the least and the greatest length of a text."""

    low: float
    high: float = math.inf

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int | float) and self.low <= number <= self.high

    def __str__(self) -> str:
        return f"of at least {self.low:g}" if self.high == math.inf else f"from {self.low} to {self.high}"


class Above(NamedTuple):
    """Numbers above `low`, up to `high`."""

    low: float
    high: float = math.inf

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int | float) and self.low < number <= self.high

    def __str__(self) -> str:
        return f"above {self.low}" + ("" if self.high == math.inf else f", at most {self.high}")


@dataclass(frozen=True, slots=True)
class Text:
    """A type that is no plain one: `parse` reads it from text, or raises ValueError; `form` says what it expects."""

    parse: Callable[[str], Any]
    form: str


_BOOLEANS: Final = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


def convert(hint: Any, value: object) -> Any:
    """`value`, which is text or of the type already, as the type `hint`; ValueError says what is expected."""
    plain, limit = _split(hint)
    if isinstance(limit, Text):
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = ",".join(value)
        if isinstance(value, str):
            return limit.parse(value)
        if not isinstance(value, _classes(plain)):
            raise _unexpected(hint, value)
        return value
    if optional := _optional(plain):
        return None if value is None or value == "" else convert(optional, value)
    try:
        found = _read(plain, value)
    except (ValueError, KeyError, OverflowError):
        raise _unexpected(hint, value) from None
    if limit is not None and (len(found) if plain is str else found) not in limit:
        raise _unexpected(hint, value)
    return found


def form(hint: Any) -> str:
    """The form of values of the type `hint`, to be read after "must be"."""
    plain, limit = _split(hint)
    if isinstance(limit, Text):
        return limit.form
    if optional := _optional(plain):
        return f"{form(optional)}, or empty"
    if get_origin(plain) is Literal:
        *others, last = (each for each in get_args(plain) if each)
        named = f"{', '.join(others)} or {last}" if others else str(last)
        return f"{named}, or empty" if "" in get_args(plain) else named
    if plain is str:
        return _text_form(limit)
    name = {bool: "true or false", int: "a whole number", float: "a number"}[plain]
    return name if limit is None else f"{name} {limit}"


def _text_form(limit: Range | None) -> str:
    if limit is None:
        return "text"
    at_most = "" if limit.high == math.inf else f" of at most {limit.high} characters"
    return f"text{at_most}" + (", not empty" if limit.low else "")


def _read(plain: Any, value: object) -> Any:
    if get_origin(plain) is Literal:
        if value not in get_args(plain):
            raise ValueError
        return value
    if plain is bool:
        return _BOOLEANS[value.strip().lower()] if isinstance(value, str) else _exactly(bool, value)
    if plain is int:
        return int(value) if isinstance(value, str) else _exactly(int, value)
    if plain is float:
        number = float(value if isinstance(value, str) else _exactly(int | float, value))
        if math.isnan(number):
            raise ValueError
        return number
    return _exactly(str, value)


def _exactly(kind: Any, value: object) -> Any:
    """A bool is an int to Python, but `true` is no number to a user."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError
    return value


def _unexpected(hint: Any, value: object) -> ValueError:
    return ValueError(f"must be {form(hint)}, not {value!r}")


def _split(hint: Any) -> tuple[Any, Any]:
    """The type itself, and what limits it."""
    return (get_args(hint)[0], get_args(hint)[1]) if get_origin(hint) is Annotated else (hint, None)


def _optional(plain: Any) -> Any:
    """T of `T | None`, otherwise None."""
    if get_origin(plain) not in (Union, types.UnionType):
        return None
    (found,) = (each for each in get_args(plain) if each is not types.NoneType)
    return found


def _classes(plain: Any) -> Any:
    if get_origin(plain) in (Union, types.UnionType):
        return plain
    return get_origin(plain) or plain
