"""A steady stream of records, so that a cluster that nobody uses has something to show."""

import json
from typing import Final

import structlog

from tidelog.client.admin import AdminClient
from tidelog.client.connections import ClientPorts
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.producer import Ack, Producer
from tidelog.config import TrafficSettings
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.runtime.agent_metrics import TrafficMetrics

log = structlog.get_logger(__name__)

TICK_S: Final = 0.05
AGAIN_S: Final = 1.0
UNANSWERED_MAX: Final = 10_000
"""Beyond it records are left out, not kept for later: the load is steady, and so is the memory that it takes."""
KEYS: Final = 1_000


class Traffic:
    def __init__(self, settings: TrafficSettings, ports: ClientPorts, metrics: TrafficMetrics) -> None:
        self._settings = settings
        self._ports = ports
        self._metrics = metrics
        self._producer = Producer(
            settings.bootstrap_servers,
            linger_ms=20,
            request_timeout_ms=settings.request_timeout_ms,
            client_id=settings.client_id,
            ports=ports,
        )
        self._number = 0
        self._unanswered = 0
        self._running = False

    async def run(self) -> None:
        """Until it is cancelled. Waits for brokers and for the topic, however long that takes."""
        while not await self._ready():
            await self._ports.clock.sleep(AGAIN_S)
        log.info("traffic begins", topic=self._settings.traffic_topic, per_s=self._settings.traffic_records_per_s)
        begin, asked = self._ports.clock.now(), 0
        while True:
            due = int((self._ports.clock.now() - begin) * self._settings.traffic_records_per_s)
            for _ in range(min(due - asked, UNANSWERED_MAX)):
                await self._send()
            asked = due
            await self._ports.clock.sleep(TICK_S)

    async def stop(self) -> None:
        if self._running:
            await self._producer.stop()

    async def _ready(self) -> bool:
        try:
            await self._make_topic()
            await self._producer.start()
            self._running = True
        except (TidelogError, TransportError) as error:
            if not _passes(error):
                raise
            log.warning("waiting for the cluster", error=str(error))
        return self._running

    async def _make_topic(self) -> None:
        settings = self._settings
        limit_ms = settings.request_timeout_ms
        async with AdminClient(settings.bootstrap_servers, request_timeout_ms=limit_ms, ports=self._ports) as admin:
            try:
                await admin.create_topic(
                    settings.traffic_topic, settings.traffic_partitions, settings.traffic_replication_factor
                )
            except TidelogError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    async def _send(self) -> None:
        if self._unanswered >= UNANSWERED_MAX:
            self._metrics.outcome("left_out")
            return
        self._number += 1
        body = json.dumps({"n": self._number, "at_ms": self._ports.clock.wall_ms()}).encode()
        value = body.ljust(self._settings.traffic_record_bytes)
        try:
            ack = await self._producer.send(self._settings.traffic_topic, value, b"key-%d" % (self._number % KEYS))
        except TidelogError as error:
            if not _passes(error):
                raise
            self._metrics.outcome("refused")
            return
        self._unanswered += 1
        ack.add_done_callback(self._answered)

    def _answered(self, ack: Ack) -> None:
        self._unanswered -= 1
        failed = ack.cancelled() or ack.exception() is not None
        self._metrics.outcome("failed" if failed else "acked")


def _passes(error: TidelogError | TransportError) -> bool:
    """What a cluster that starts, or is short of brokers, answers for a while."""
    waits = {ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if isinstance(error, TransportError | ClusterUnreachable):
        return True
    return error.retriable or error.code in waits
