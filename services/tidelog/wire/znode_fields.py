"""How the JSON of a znode is written and read: each field has its type and its range, and what is out of them has a name."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tidelog.ids import BrokerId

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

T = TypeVar("T")


class BadZnode(Exception):
    """A znode holds what no process of this project writes."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def decode(path: str, data: bytes, build: Callable[[Mapping[str, Any]], T]) -> T:
    try:
        fields = json.loads(data)
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        return build(fields)
    except KeyError as error:
        raise BadZnode(path, f"{error.args[0]!r} is missing") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise BadZnode(path, f"{error}; it holds {data[:80]!r}") from error


def field(fields: Mapping[str, Any], key: str, kind: type) -> Any:
    value = fields[key]
    if not isinstance(value, kind):
        raise ValueError(f"{key!r} is not a {kind.__name__}")
    return value


def integer(fields: Mapping[str, Any], key: str, low: int = 0, high: int = INT32_MAX) -> int:
    return number(fields[key], key, low, high)


def number(value: Any, key: str, low: int, high: int) -> int:
    """What is out of range cannot be told to a broker, so nobody of ours has written it."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key!r} is not an integer")
    if not low <= value <= high:
        raise ValueError(f"{key!r} is {value}, which is not within {low}..{high}")
    return value


def distinct(ids: tuple[BrokerId, ...], key: str) -> tuple[BrokerId, ...]:
    if len(set(ids)) != len(ids):
        raise ValueError(f"{key!r} names a broker twice: {list(ids)}")
    return ids


def flag(fields: Mapping[str, Any], key: str) -> bool:
    value = fields.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key!r} is not true or false")
    return value


def text(fields: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = fields[key] if default is None else fields.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key!r} is not a string")
    return value
