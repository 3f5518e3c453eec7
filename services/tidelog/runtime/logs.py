"""The log: one line an event with named values, JSON in containers and readable on a terminal.

Everything goes to the standard error, so that the standard output is free for data; the standard library's loggers
(kazoo, grpc, asyncio) are routed through the same formatter.
"""

import logging
import sys
from typing import Any, Literal, TextIO

import structlog

LogFormat = Literal["auto", "json", "console"]

_STAMPS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure(process: str, log_format: LogFormat = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """`process` ("broker-1") is in every line. `auto` is console on a terminal, else JSON."""
    stream = stream or sys.stderr
    as_json = log_format == "json" or (log_format == "auto" and not stream.isatty())

    def add_process(_logger: Any, _method: str, event: Any) -> Any:
        event.setdefault("process", process)
        return event

    stamps = [*_STAMPS, add_process]
    if as_json:
        render: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        render = [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=stamps,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It repeats at info what the adapter says itself, a line for every request.
    logging.getLogger("kazoo").setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *stamps,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
