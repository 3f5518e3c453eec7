"""Captures the events that are logged in a block, each with its values, and restores the settings of the log after a block."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidelog.runtime.logs import values_of


@contextmanager
def captured_logs() -> Iterator[list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            events.append(
                {"event": record.getMessage(), "level": record.levelname, "error": error, **values_of(record)}
            )

    root, keeps = logging.getLogger(), Keeps()
    level = root.level
    root.addHandler(keeps)
    root.setLevel(logging.INFO)
    try:
        yield events
    finally:
        root.removeHandler(keeps)
        root.setLevel(level)


@contextmanager
def log_of_its_own() -> Iterator[None]:
    """Restores levels and handlers of the log after the block."""
    loggers = [(each, each.level) for each in (logging.getLogger(), logging.getLogger("kazoo"))]
    handlers = logging.getLogger().handlers[:]
    try:
        yield
    finally:
        logging.getLogger().handlers[:] = handlers
        for logger, level in loggers:
            logger.setLevel(level)
