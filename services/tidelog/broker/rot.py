"""What becomes of a log with a batch that is not what it was (reliability 8.1, row 32). Such a batch is served to nobody.

A follower's copy goes offline at once: the controller takes it out of the ISR, and what cannot be trusted is thrown away and
fetched again (`revival`). A leader with others in sync does the same, as soon as they hold its tail: one of them leads then,
and nothing that a producer was told is lost. A leader without others keeps what there is: all but the bad batch is served,
and its readers are told CORRUPT_MESSAGE. It is asked again and again whether another replica has come into sync.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.broker.partition_host import PartitionHost
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.runtime.metrics import CleanerMetrics
from tidelog.storage.checkpoint import LogKey
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.recovery import Damage

_log = logging.getLogger(__name__)

POLL_S: Final = 1.0
TAIL_POLL_S: Final = 0.01
TAIL_LIMIT_S: Final = 5.0
"""How long followers may take to fetch the tail before the leader goes without."""


class _Place(NamedTuple):
    path: str
    position: int


class RottenLogs:
    def __init__(self, clock: Clock, metrics: CleanerMetrics, on_lost: Callable[[LogKey, str], None]) -> None:
        """`on_lost`: the data directory is not intact any more (design section 3)."""
        self._clock = clock
        self._metrics = metrics
        self._on_lost = on_lost
        self._known: dict[PartitionLog, set[_Place]] = {}
        self._kept: dict[TopicPartition, tuple[PartitionHost, PartitionLog, Damage]] = {}
        """Leaders that go on for now."""

    def found(self, host: PartitionHost, damage: Damage) -> TidelogError:
        """Somebody has read it; returns what to tell him."""
        log, place = host.log, _Place(damage.path, damage.position)
        if place not in self._known.setdefault(log, set()):
            self._known[log].add(place)
            _log.error(
                "corrupt batch: %s",
                damage,
                extra={"partition": str(host.tp), "segment": damage.path, "offset": damage.offset},
            )
            self._metrics.rotten_found()
            self._on_lost(log.key, str(damage))
        self._count()
        if not host.is_leader:
            host.condemn(damage)
            return TidelogError(str(damage), ErrorCode.KAFKA_STORAGE_ERROR)
        known = self._kept.get(host.tp)
        if known is None or known[1] is not log or damage.offset < known[2].offset:
            self._kept[host.tp] = host, log, damage  # all from the first one on is fetched again
        code = ErrorCode.CORRUPT_MESSAGE if host.is_sole else ErrorCode.KAFKA_STORAGE_ERROR
        return TidelogError(str(damage), code)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(POLL_S)
            for tp, (host, log, damage) in list(self._kept.items()):
                if host.log is not log or host.offline is not None:
                    del self._kept[tp]
                elif not host.is_sole:
                    await self._until_replicated(host)
                    if host.offline is None and not host.is_sole:
                        host.condemn(damage)
            self._count()

    async def _until_replicated(self, host: PartitionHost) -> None:
        deadline = self._clock.now() + TAIL_LIMIT_S
        while host.offline is None and not host.replica.tail_is_replicated and self._clock.now() < deadline:
            await self._clock.sleep(TAIL_POLL_S)

    def _count(self) -> None:
        self._known = {log: places for log, places in self._known.items() if log.failure is None}
        self._metrics.rotten(sum(map(len, self._known.values())))
