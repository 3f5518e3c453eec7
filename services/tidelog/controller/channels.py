"""One ordered queue of control requests for each life of a broker. A slow broker delays nobody but itself."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from tidelog.controller.events import BrokerAnswered, FailedReplica
from tidelog.controller.merge import Request, merge
from tidelog.controller.model import Broker
from tidelog.controller.parts import parts
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.net import Channel
from tidelog.ports.recorder import CAUSE, SILENT, Cause, Origin, Recorder
from tidelog.wire import messages as m
from tidelog.wire import services
from tidelog.wire.limits import SEQUENCE_JUMP_MAX

log = logging.getLogger(__name__)

INTERNAL: Final = "INTERNAL"
RETRY_S: Final = 0.05
RETRY_MAX_S: Final = 0.8
"""A broker that has just died is sent what its death leads to until its session ends; each try costs what the living wait for."""

Answer = m.LeaderAndIsrResponse | m.StopReplicaResponse | m.UpdateMetadataResponse


def internal_address(broker: Broker) -> Address | None:
    """Where controllers and brokers reach it."""
    found = next((each for each in broker.listeners if each.name == INTERNAL), None)
    return None if found is None else Address(found.host, found.port)


class BrokerChannel:
    """Delivers in order, again and again until the broker has answered (HOLE-37); `run` ends only with its life.

    What comes while a request is under way is merged into the next one. A failed request goes back to the head of the
    queue and is merged with what came after it.
    """

    def __init__(
        self,
        broker: Broker,
        channel: Channel,
        clock: Clock,
        request_timeout_s: float,
        may_act: Callable[[], Awaitable[None]],
        answered: Callable[[BrokerAnswered], None],
        *,
        merges: bool = True,
        recorder: Recorder = SILENT,
    ) -> None:
        """Sends nothing before `may_act` returns, which it does while this controller's lease holds."""
        self._broker = broker
        self._channel = channel
        self._clock = clock
        self._request_timeout_s = request_timeout_s
        self._may_act = may_act
        self._answered = answered
        self._sequence = 0
        """That of the newest try."""
        self._merges = merges
        self._pending: list[Request] = []
        self._on_delivered: list[Callable[[], None]] = []
        self._news = asyncio.Event()
        self._pause_s = RETRY_S
        self._recorder = recorder
        self._cause: Origin | None = None
        """The event that led to the newest request."""
        self._tried: tuple[m.OrderSent, Origin | None] | None = None
        """The request that the broker has not answered, and what led to it: a further try is no event."""
        self._sent: Cause | None = None
        """The event of its first try."""

    def send(self, request: Request, delivered: Callable[[], None] | None = None) -> None:
        """`delivered` is called when the broker has answered this request or one that contains it."""
        self._pending.append(request)
        self._cause = CAUSE.get()
        if delivered is not None:
            self._on_delivered.append(delivered)
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._pending:
                await self._round()

    async def _round(self) -> None:
        requests = merge(self._pending) if self._merges else self._pending
        self._pending = []
        count = len(self._on_delivered)
        for position, request in enumerate(requests):
            await self._may_act()
            if not await self._deliver(request):
                self._pending = [*requests[position:], *self._pending]
                await self._clock.sleep(self._pause_s)
                self._pause_s = min(2 * self._pause_s, RETRY_MAX_S)
                return
            self._pause_s = RETRY_S
        waiting, self._on_delivered = self._on_delivered[:count], self._on_delivered[count:]
        for delivered in waiting:
            delivered()

    def gone(self) -> None:
        """This life is over, and `run` with it: nobody has to wait for its answers any more."""
        waiting, self._on_delivered = self._on_delivered, []
        for delivered in waiting:
            delivered()

    async def _deliver(self, request: Request) -> bool:
        """All of it or nothing: parts of an older list must not be mixed with those of a newer one."""
        for index, part in enumerate(parts(request)):
            if index > 0:
                await self._may_act()
            # Each try has a number of its own, so that an earlier one that is still on its way can do no harm.
            self._sequence += 1
            if not await self._deliver_part(replace(part, sequence=self._sequence)):
                return False
        return True

    async def _deliver_part(self, request: Request) -> bool:
        self._record(request)
        try:
            answer = await self._call(request)
        except TransportError as error:
            broker_id, order = self._broker.broker_id, type(request).__name__.removesuffix("Request")
            if error.status == "INVALID_ARGUMENT":
                # It will be refused again: until what it names is repaired, nothing else reaches this broker.
                log.error("broker %d refuses %s: %s; again", broker_id, order, error)
            else:
                log.debug("broker %d, %s: %s; again", broker_id, order, error)
            return False
        self._tried = None
        failed: tuple[FailedReplica, ...] = ()
        if not isinstance(answer, m.UpdateMetadataResponse):
            failed = self._failed(type(request).__name__, answer.partitions)
        self._answered(BrokerAnswered(self._broker.broker_id, self._broker.epoch, answer.error_code, failed))
        if answer.error_code is not ErrorCode.NONE:
            # STALE_BROKER_EPOCH too: this life may not know yet that it is registered; if it is over, our link ends.
            log.info(
                "broker %d answers %s to %s; again",
                self._broker.broker_id,
                answer.error_code.name,
                type(request).__name__,
            )
        if answer.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._skip()
        return answer.error_code is ErrorCode.NONE

    def _skip(self) -> None:
        """Goes on behind numbers that are not ours: until then the broker would refuse whatever it is told."""
        log.warning(
            "broker %d has heard a higher number in this controller's epoch than the %d of this controller: another process "
            "speaks in its name",
            self._broker.broker_id,
            self._sequence,
        )
        self._sequence += SEQUENCE_JUMP_MAX

    def _record(self, request: Request) -> None:
        """Records that the request is sent, which is the cause of what it leads to."""
        match request:
            case m.StopReplicaRequest():
                partitions, full = len(request.partitions), False
            case _:
                partitions, full = len(request.partition_states), request.full
        order, to = type(request).__name__.removesuffix("Request"), self._broker.broker_id
        tried = m.OrderSent(order=order, broker_id=to, partitions=partitions, full=full), self._cause
        if tried != self._tried:
            self._tried, self._sent = tried, self._recorder.record(to, *tried)
        CAUSE.set(self._sent)

    def _failed(self, request: str, results: tuple[m.PartitionResult, ...]) -> tuple[FailedReplica, ...]:
        failed = []
        for each in results:
            if each.error_code is not ErrorCode.NONE:
                tp = TopicPartition(each.topic, each.partition)
                log.warning("broker %d, %s of %s: %s", self._broker.broker_id, request, tp, each.error_code.name)
                if each.error_code is ErrorCode.KAFKA_STORAGE_ERROR:
                    failed.append(FailedReplica(tp, each.topic_id))
        return tuple(failed)

    async def _call(self, request: Request) -> Answer:
        match request:
            case m.LeaderAndIsrRequest():
                return await self._channel.call(
                    services.BROKER_CONTROL_LEADER_AND_ISR, request, self._request_timeout_s
                )
            case m.StopReplicaRequest():
                return await self._channel.call(services.BROKER_CONTROL_STOP_REPLICA, request, self._request_timeout_s)
            case m.UpdateMetadataRequest():
                return await self._channel.call(
                    services.BROKER_CONTROL_UPDATE_METADATA, request, self._request_timeout_s
                )
