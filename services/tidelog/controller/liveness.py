"""The fast half of failure detection: a stream that breaks, and a port that refuses (design 3, Failure detection).

The ZooKeeper session stays the authority. A suspicion only moves leaders away sooner, so it must be right most of the
time and harmless when it is not: silence, an open port or our own troubles never make a suspect.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.controller.channels import internal_address
from tidelog.controller.events import BrokerAnswered, FailedReplica, StreamBroken, StreamOpened, Suspected
from tidelog.controller.model import Broker
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.net import Channel, Net, Probe
from tidelog.wire import messages as m
from tidelog.wire import services

log = logging.getLogger(__name__)

PROBES: Final = 2
PROBE_TIMEOUT_S: Final = 0.5
REOPEN_S: Final = 0.2
FRESH_S: Final = 2.0
"""How long ago the first probe may have begun."""
_DEAD: Final = frozenset({Probe.REFUSED, Probe.GONE})

News = StreamOpened | StreamBroken | Suspected | BrokerAnswered
Report = Callable[[News, float], None]
"""The event, and the seconds since the stream broke (0 where none did)."""


class LivenessWatch:
    """Holds the stream to one life of a broker, for as long as it runs."""

    def __init__(
        self,
        broker: Broker,
        channel: Channel,
        net: Net,
        clock: Clock,
        ping: m.LivenessPing,
        probe_interval_s: float,
        may_act: Callable[[], Awaitable[None]],
        report: Report,
    ) -> None:
        self._broker = broker
        self._channel = channel
        self._net = net
        self._clock = clock
        self._ping = ping
        self._probe_interval_s = probe_interval_s
        self._may_act = may_act
        self._report = report

    async def run(self) -> None:
        address = internal_address(self._broker)
        if address is None:
            log.error("broker %d is registered without an INTERNAL listener", self._broker.broker_id)
            return
        broke_at: float | None = None
        while True:
            if await self._hold() or broke_at is None:
                broke_at = self._clock.now()
            await self._may_act()
            probing_at = self._clock.now()
            if await self._refuses(address):
                await self._may_act()
                now = self._clock.now()
                # Whoever has slept in between decides on old news (reliability 6.2): look again.
                if now - probing_at <= FRESH_S:
                    self._report(Suspected(self._broker.broker_id, self._broker.epoch), now - broke_at)
            await self._clock.sleep(REOPEN_S)

    async def _hold(self) -> bool:
        """Holds the stream until it breaks, cannot be opened, or another life answers on it. Returns whether it was there."""
        opened = False
        stream = None
        try:
            stream = self._channel.open(services.BROKER_CONTROL_LIVENESS)
            await stream.write(self._ping)
            pong = await stream.read()
            while pong is not None and pong.broker_epoch == self._broker.epoch:
                if not opened:
                    opened = True
                    event = StreamOpened(self._broker.broker_id, self._broker.epoch, self._clock.now())
                    self._report(event, 0.0)
                self._report(self._failed(pong), 0.0)
                pong = await stream.read()
        except TransportError as error:
            log.debug("liveness of broker %d: %s", self._broker.broker_id, error)
        finally:
            if stream is not None:
                stream.cancel()
        if opened:
            self._report(StreamBroken(self._broker.broker_id, self._broker.epoch), 0.0)
        return opened

    def _failed(self, pong: m.LivenessPong) -> BrokerAnswered:
        failed = tuple(FailedReplica(TopicPartition(each.topic, each.partition), each.topic_id) for each in pong.failed)
        return BrokerAnswered(self._broker.broker_id, self._broker.epoch, ErrorCode.NONE, failed, lists_all_failed=True)

    async def _refuses(self, address: Address) -> bool:
        for attempt in range(PROBES):
            if attempt > 0:
                await self._clock.sleep(self._probe_interval_s)
            found = await self._net.probe(address, PROBE_TIMEOUT_S)
            log.debug("probe of broker %d at %s: %s", self._broker.broker_id, address, found.value)
            if found not in _DEAD:
                return False
        return True
