"""A steady stream of records, so that a cluster that nobody uses has something to show; and whether they can be read back."""

import asyncio
import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.connections import ClientPorts
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.producer import Ack, Producer
from tidelog.client.records import ConsumerRecord
from tidelog.config import TrafficSettings
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.runtime.traffic_metrics import TrafficMetrics
from tidelog.traffic.ack_gaps import AckGaps
from tidelog.traffic.probe import Arrival, Probe

log = logging.getLogger(__name__)

TICK_S: Final = 0.05
SILENT_S: Final = 5.0
"""Without an acknowledgement of any record for so long, the log says so."""
AGAIN_S: Final = 1.0
UNANSWERED_MAX: Final = 10_000
"""Beyond it records are left out, not kept for later: the load is steady, and so is the memory that it takes."""
KEYS: Final = 1_000
ACKS_WITHIN_S: Final = 30.0
"""A process without an acknowledgement for so long is unwell: a failover takes less."""


class Traffic:
    def __init__(self, settings: TrafficSettings, ports: ClientPorts, metrics: TrafficMetrics) -> None:
        self._settings = settings
        self._ports = ports
        self._metrics = metrics
        self._producer = Producer(
            settings.bootstrap_servers,
            linger_ms=0,  # it measures the brokers, not its own patience
            request_timeout_ms=settings.request_timeout_ms,
            client_id=settings.client_id,
            ports=ports,
        )
        self._probe = Probe()
        self._gaps = AckGaps()
        self._acked_at = 0.0
        """The newest acknowledgement, or the beginning."""
        self._acked_once = False
        self._silent = False
        self._run = ports.rand.randbytes(8).hex()
        """Records of an earlier process, or of another one, are none of its own."""
        self._number = 0
        self._unanswered = 0
        self._running = False
        self._began = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled. Waits for brokers and for the topic, however long that takes."""
        while not await self._ready():
            await self._ports.clock.sleep(AGAIN_S)
        begin, asked = self._ports.clock.now(), 0
        self._acked_at = begin
        self._began.set()
        log.info(
            "traffic begins",
            extra={"topic": self._settings.traffic_topic, "per_s": self._settings.traffic_records_per_s},
        )
        while True:
            due = int((self._ports.clock.now() - begin) * self._settings.traffic_records_per_s)
            for _ in range(min(due - asked, UNANSWERED_MAX)):
                await self._send()
            asked = due
            await self._ports.clock.sleep(TICK_S)

    async def read_back(self) -> None:
        """Until it is cancelled: reads what `run` sends."""
        await self._began.wait()
        settings = self._settings
        while True:
            try:
                async with Consumer(
                    settings.bootstrap_servers,
                    auto_offset_reset="error",
                    request_timeout_ms=settings.request_timeout_ms,
                    client_id=f"{settings.client_id}-reader",
                    ports=self._ports,
                ) as reader:
                    await reader.assign_topics(settings.traffic_topic)
                    await reader.seek_to_end()
                    self._probe.reading()
                    while True:
                        self._take(await reader.poll())
            except (TidelogError, TransportError) as error:
                log.warning("the reader begins anew", extra={"error": str(error)})
            await self._ports.clock.sleep(AGAIN_S)

    async def watch_acks(self) -> None:
        """Until it is cancelled: logs that nothing is acknowledged, and that it is again, once each."""
        await self._began.wait()
        while True:
            await self._ports.clock.sleep(TICK_S)
            if not self._silent and self._ports.clock.now() - self._acked_at >= SILENT_S:
                self._silent = True
                log.warning("no acknowledgement", extra={"for_s": SILENT_S, "unanswered": self._unanswered})

    def longest_ack_gaps(self) -> dict[int, float]:
        """The longest time without an acknowledgement of each partition, in seconds since the last call."""
        return self._gaps.take_longest_s(self._ports.clock.now())

    async def stop(self) -> None:
        if self._running:
            await self._producer.stop()

    def unwell(self) -> str:
        """The reason for which this process does no work; "": its records are acknowledged."""
        if not self._acked_once:
            return "no record was acknowledged yet"
        waits = self._ports.clock.now() - self._acked_at > ACKS_WITHIN_S
        return f"no record was acknowledged for {ACKS_WITHIN_S:g} s" if waits else ""

    async def _ready(self) -> bool:
        try:
            await self._make_topic()
            await self._producer.start()
            self._running = True
        except (TidelogError, TransportError) as error:
            if not _passes(error):
                raise
            log.warning("waiting for the cluster", extra={"error": str(error)})
        return self._running

    async def _make_topic(self) -> None:
        settings = self._settings
        limit_ms = settings.request_timeout_ms
        async with Admin(settings.bootstrap_servers, request_timeout_ms=limit_ms, ports=self._ports) as admin:
            try:
                await admin.create_topic(
                    settings.traffic_topic, settings.traffic_partitions, settings.traffic_replication_factor
                )
            except TidelogError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    async def _send(self) -> None:
        if self._unanswered >= UNANSWERED_MAX:
            self._metrics.not_sent("left_out")
            return
        self._number += 1
        now = self._ports.clock.now()
        body = json.dumps({"n": self._number, "run": self._run, "at_ms": self._ports.clock.wall_ms()}).encode()
        value = body.ljust(self._settings.traffic_record_bytes)
        try:
            ack = await self._producer.send(self._settings.traffic_topic, value, b"key-%d" % (self._number % KEYS))
        except TidelogError as error:
            if not _passes(error):
                raise
            self._metrics.not_sent("refused")
            return
        self._unanswered += 1
        self._metrics.produced.inc()
        self._probe.sent(self._number, now)
        ack.add_done_callback(partial(self._answered, self._number, now))

    def _answered(self, number: int, sent_at: float, ack: Ack) -> None:
        self._unanswered -= 1
        if ack.cancelled() or ack.exception() is not None:
            self._metrics.failed.inc()
            return
        clock, stored = self._ports.clock, ack.result()
        now = clock.now()
        if self._silent:
            self._silent = False
            log.info("acknowledged again", extra={"after_s": round(now - self._acked_at, 1)})
        self._acked_at, self._acked_once = now, True
        self._gaps.acked(stored.partition, now)
        self._metrics.acked(stored.partition, now - sent_at, clock.wall_ms() / 1000)
        self._metrics.lost.inc(self._probe.acked(number, stored.partition, stored.offset))

    def _take(self, records: Sequence[ConsumerRecord]) -> None:
        now = self._ports.clock.now()
        for record in records:
            number = self._number_of(record)
            if number is not None:
                arrival, sent_at = self._probe.read(number, record.partition)
                self._arrived(arrival, now - sent_at)
            self._metrics.lost.inc(self._probe.passed(record.partition, record.offset + 1))

    def _arrived(self, arrival: Arrival, took_s: float) -> None:
        match arrival:
            case Arrival.FIRST | Arrival.OUT_OF_ORDER:
                self._metrics.read_back(took_s)
                self._metrics.out_of_order.inc(arrival is Arrival.OUT_OF_ORDER)
            case Arrival.AGAIN:
                self._metrics.duplicated.inc()

    def _number_of(self, record: ConsumerRecord) -> int | None:
        """None: somebody else's."""
        try:
            body = json.loads(record.value or b"")
        except ValueError:
            return None
        ours = isinstance(body, dict) and body.get("run") == self._run and isinstance(body.get("n"), int)
        return int(body["n"]) if ours else None


def _passes(error: TidelogError | TransportError) -> bool:
    """What a cluster that starts, or is short of brokers, answers for a while."""
    waits = {ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if isinstance(error, TransportError | ClusterUnreachable):
        return True
    return error.retriable or error.code in waits
