"""Handlers for whoever wants to see records go by: `count` and `log`."""

import logging
from collections import Counter
from typing import Final

from tidelog.agent.handler import Immediate, Records

log = logging.getLogger(__name__)

SHOWN_BYTES: Final = 200
"""Of a key or a value in a line of the log."""


class CountHandler(Immediate):
    """Counts the records of each topic; says so at the end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    async def handle(self, records: Records) -> None:
        for record in records:
            self.counts[record.topic] += 1

    async def close(self) -> None:
        log.info("records counted", extra={"total": self.counts.total(), "topics": dict(self.counts)})


class LogHandler(Immediate):
    """One line of the log for each record."""

    async def handle(self, records: Records) -> None:
        for record in records:
            log.info(
                "record",
                extra={
                    "topic": record.topic,
                    "partition": record.partition,
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "key": _shown(record.key),
                    "value": _shown(record.value),
                },
            )


def _shown(data: bytes | None) -> str | None:
    return None if data is None else data[:SHOWN_BYTES].decode(errors="replace")
