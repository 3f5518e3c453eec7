"""The log: one line an event with named values, JSON in containers and readable on a terminal.

Every logger is one of the standard library, and the values of an event are its `extra`. Everything goes to the standard
error, so that the standard output is free for data.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

LogFormat = Literal["auto", "json", "console"]

_OWN: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
"""Attributes of every record, beside the values of its event."""


def configure(process: str, log_format: LogFormat = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """`process` ("broker-1") is in every line. `auto` is console on a terminal, else JSON."""
    stream = stream or sys.stderr
    as_json = log_format == "json" or (log_format == "auto" and not stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonLine(process) if as_json else _ConsoleLine(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It repeats at info what the adapter says itself, a line for every request.
    logging.getLogger("kazoo").setLevel(max(logging.WARNING, root.level))
    logging.getLogger("grpc._cython.cygrpc").addFilter(_says_more)


def _says_more(record: logging.LogRecord) -> bool:
    """False for gRPC's trace of a call whose caller had gone before it read its response: any caller could fill the log."""
    return record.exc_info is None or record.exc_info[0] is None or record.exc_info[0].__name__ != "ExecuteBatchError"


class _JsonLine(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "timestamp": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": self._process,
            "event": record.getMessage(),
            **values_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _ConsoleLine(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Values are written as Python writes them, so that no name from outside begins a line."""
        at = datetime.fromtimestamp(record.created, UTC)
        event = record.getMessage().replace("\n", "\\n")
        values = "".join(f" {name}={value!r}" for name, value in values_of(record).items())
        line = (
            f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}Z {record.levelname.lower():<7} {self._process} {event}{values}"
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def values_of(record: logging.LogRecord) -> dict[str, Any]:
    """The values of an event, by name."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}
