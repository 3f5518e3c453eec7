"""Requests that hold far more items than a server takes, as bytes: no client of ours would make them."""

import typing
from collections.abc import Iterator
from typing import Any, Final

from tidelog import values
from tidelog.ports.net import Bidi, Unary
from tidelog.wire import codec, services

REQUESTS: Final = sorted(
    {each.request for each in vars(services).values() if isinstance(each, Unary | Bidi)}, key=lambda kind: kind.__name__
)


def lists(kind: type[Any], path: str = "") -> Iterator[str]:
    """Paths of the lists of a message, those inside their items too."""
    for name, hint in typing.get_type_hints(kind).items():
        (held,) = set(typing.get_args(hint) or (hint,)) - {..., type(None)}
        if typing.get_origin(hint) is tuple:
            yield path + name
        if isinstance(held, type) and issubclass(held, values.Message):
            yield from lists(held, f"{path}{name}.")


LISTS: Final = [(kind, path) for kind in REQUESTS for path in lists(kind)]


def field_bytes(number: int, data: bytes) -> bytes:
    return codec._varint(number << 3 | 2) + codec._varint(len(data)) + data


def wide(kind: type[Any], path: str, count: int) -> bytes:
    """A request whose list at `path` has so many empty items; outer lists have one item."""
    descriptor: Any = codec._pb_class(kind).DESCRIPTOR
    numbers, packed = [], False
    for name in path.split("."):
        field = descriptor.fields_by_name[name]
        numbers.append(field.number)
        packed = field.is_packed
        descriptor = field.message_type
    last = numbers.pop()
    data = field_bytes(last, bytes(count)) if packed else field_bytes(last, b"") * count
    for number in reversed(numbers):
        data = field_bytes(number, data)
    return data
