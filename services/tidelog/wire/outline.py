"""Counts the items of a large request in its bytes: parsed, 4 MiB of empty items would take up to 240 MiB of memory.

The walk ends at the first list that holds too many, so it looks at no more items than a request may hold.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire import limits
from tidelog.wire.limits import Field

_FIELDS: Final = 1_000
"""Fields of a request that are no items of a list. Each may come again, and has no more than one value all the same."""
_FIELDS_OF_ITEM: Final = 40
"""Fields of one item that has lists inside, at most."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CONTINUED: Final = bytes(range(0x80, 0x100))
"""Every byte of a varint but its last."""

_Lists = dict[int, tuple[str, int | None, bool, "_Lists"]]
"""Path and limit of each list, whether its items may be packed, and the lists inside; by number of the field. No limit: it is a
message that has lists."""

_OTHER: Final[tuple[str, int | None, bool, _Lists]] = ("", None, False, {})
"""A field that is no list and has none."""


class Outline:
    """Knows where the lists are in the bytes of requests of one kind, if it has any."""

    def __init__(self, kind: type[Any], descriptor: Any) -> None:
        self._lists = _lists(limits.fields(kind), descriptor)
        self._paths = limits.LIMITS.get(kind, {}).keys()

    def check(self, data: bytes) -> None:
        """TidelogError INVALID_REQUEST names the first list that holds too many items. Bytes that are no message are let
        through: they are the parser's to refuse."""
        for _ in self.steps(data, len(data)):
            pass

    def steps(self, data: bytes, items: int) -> Iterator[None]:
        """The same with a pause after each so many items of a list."""
        try:
            yield from _Walk(data, self._paths, items).message(0, len(data), self._lists)
        except IndexError:
            pass  # it ends within a field


def _lists(fields: tuple[Field, ...], descriptor: Any) -> _Lists:
    found = {}
    for path, name, most, inner in fields:
        its = descriptor.fields_by_name[name]
        is_packed = its.message_type is None and its.is_packed
        found[its.number] = path, most, is_packed, _lists(inner, its.message_type)
    return found


class _Walk:
    def __init__(self, data: bytes, paths: Iterable[str], step: int) -> None:
        self._data = data
        self._step = step
        self._counts = dict.fromkeys(paths, 0)
        self._left = _FIELDS
        """Fields that may still come."""

    def message(self, at: int, end: int, lists: _Lists) -> Iterator[None]:
        """Counts what is between two places in the bytes. An item that has one byte for its length takes no call."""
        data, counts = self._data, self._counts
        while at < end:
            tag, at = self._varint(at) if data[at] & 0x80 else (data[at], at + 1)
            wire, size = tag & 7, 0
            if wire == _BYTES:
                size, at = self._varint(at) if data[at] & 0x80 else (data[at], at + 1)
            elif wire == _VARINT:
                size = self._varint(at)[1] - at if data[at] & 0x80 else 1
            elif wire in (_FIXED64, _FIXED32):
                size = 8 if wire == _FIXED64 else 4
            number = tag >> 3
            path, most, is_packed, inner = _OTHER
            if number in lists:
                path, most, is_packed, inner = lists[number]
            if most is None:
                self._left -= 1
                if self._left < 0:
                    raise TidelogError("the request repeats fields that are no lists", ErrorCode.INVALID_REQUEST)
            else:
                count = _varints(data[at : at + size]) if is_packed and wire == _BYTES else 1
                counts[path] += count
                self._left += count * _FIELDS_OF_ITEM
                if counts[path] > most:
                    raise limits.too_many(path, f"more than {most}", most)
                if not counts[path] % self._step:
                    yield
            if inner and size and wire == _BYTES:
                yield from self.message(at, min(at + size, end), inner)
            at += size

    def _varint(self, at: int) -> tuple[int, int]:
        """The number there, and the place behind it."""
        number, shift = 0, 0
        while True:
            byte = self._data[at]
            number |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80 or shift > 63:
                return number, at


def _varints(data: bytes) -> int:
    return len(data.translate(None, _CONTINUED))
