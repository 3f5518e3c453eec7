"""A line as a record: the properties of kafka-console-producer's LineMessageReader."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.cli import parse
from tidelog.cli.errors import bad_input
from tidelog.names import suggestion

Header = tuple[str, bytes | None]

_FLAGS: Final = ("parse.key", "parse.headers", "ignore.error")
_TEXTS: Final = ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator", "null.marker")
KNOWN: Final = (*_FLAGS, *_TEXTS)


@dataclass(slots=True)
class LineParser:
    """Headers, delimiter, key, separator and value, in this order, as far as they are asked for."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    """A line that lacks a key or headers is sent without them, instead of refused."""
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    """A key, a value or the value of a header that is null is written so. A null value is a tombstone."""
    headers: list[Header] = field(default_factory=list)
    """Headers of every record."""

    @classmethod
    def of(cls, properties: Sequence[str]) -> "LineParser":
        """CommandError for a property that is not known, or has a value that it cannot have."""
        found = cls()
        for key, value in parse.pairs("--property", properties).items():
            if key not in KNOWN:
                raise bad_input(f"--property {key!r} is not known{suggestion(key, KNOWN)}")
            if key in _FLAGS and value not in ("true", "false"):
                raise bad_input(f"--property {key}={value} is neither true nor false")
            if key in _TEXTS and not value:
                raise bad_input(f"--property {key} cannot be empty")
            setattr(found, key.replace(".", "_"), value == "true" if key in _FLAGS else parse.escaped(value))
        return found

    def record(self, line: bytes) -> tuple[bytes | None, bytes | None, list[Header]]:
        """Key, value and headers; ValueError says what the line lacks."""
        headers, key = self.headers, None
        if self.parse_headers:
            text, line = self._split(line, self.headers_delimiter, "headers delimiter")
            headers = [*headers, *map(self._header, text.split(self.headers_separator) if text else [])]
        if self.parse_key:
            key, line = self._split(line, self.key_separator, "key separator")
        return self._or_null(key), self._or_null(line), headers

    def _split(self, line: bytes, separator: bytes, name: str) -> tuple[bytes | None, bytes]:
        before, found, rest = line.partition(separator)
        if found:
            return before, rest
        if self.ignore_error:
            return None, line
        raise ValueError(f"no {name} {separator.decode(errors='backslashreplace')!r}")

    def _header(self, text: bytes) -> Header:
        name, found, value = text.partition(self.headers_key_separator)
        if not found:
            raise ValueError(f"header {text.decode(errors='backslashreplace')!r} is not name:value")
        return name.decode(), self._or_null(value)

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data == self.null_marker else data
