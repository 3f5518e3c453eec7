"""InitProducerId: ids for idempotent producers, out of blocks that the controller gives to this broker (KIP-730, HOLE-28)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from tidelog.broker.controller_link import ControllerLink
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ports.clock import Clock
from tidelog.ports.net import CallContext
from tidelog.ports.rand import Rand
from tidelog.runtime.retry import ADMIN
from tidelog.wire import messages as m
from tidelog.wire.batch import NO_PRODUCER_ID
from tidelog.wire.services import CONTROLLER_SERVICE_ALLOCATE_PRODUCER_IDS

_log = logging.getLogger(__name__)

NO_PRODUCER_EPOCH: Final = -1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
"""A batch has 16 bits for it."""

PREFETCH_SHARE: Final = 0.1
"""Of a block: when no more than this is left, the next one is asked for (KIP-730)."""


class ProducerIds:
    """Never gives an id twice: what is left of a block at the end of this process is given to nobody."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        link: ControllerLink,
        clock: Clock,
        rand: Rand,
        timeout_s: float,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._link = link
        self._clock = clock
        self._rand = rand
        self._timeout_s = timeout_s
        self._block = range(0)
        self._next_block = range(0)
        self._reserve = 0
        self._wanted = asyncio.Event()
        self._arrived = asyncio.Event()

    async def run(self) -> None:
        """Keeps a block in reserve from the first request on; one allocation at a time, again until it is granted."""
        failures = 0
        while True:
            await self._wanted.wait()
            try:
                self._next_block = await self._allocate()
            except (TransportError, TidelogError) as error:
                failures += 1
                _log.info("no block of producer ids yet: %s", error)
                await self._clock.sleep(ADMIN.pause_s(self._rand, failures))
                continue
            failures = 0
            self._wanted.clear()
            self._arrived.set()

    async def _allocate(self) -> range:
        request = m.AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        answer = await self._link.call(CONTROLLER_SERVICE_ALLOCATE_PRODUCER_IDS, request, self._timeout_s)
        if answer.error_code is not ErrorCode.NONE:
            raise TidelogError(f"the controller answers {answer.error_code.name}", answer.error_code)
        start = answer.producer_id_start
        if start < 0 or answer.producer_id_len < 1:
            raise TidelogError(f"a block of {answer.producer_id_len} ids from {start} is none")
        return range(start, start + answer.producer_id_len)

    async def init_producer_id(
        self, request: m.InitProducerIdRequest, context: CallContext
    ) -> m.InitProducerIdResponse:
        """A new id with epoch 0, or the one that the caller holds with the next epoch (KIP-360); a repetition of that raises
        it once. After the last epoch comes a new id."""
        try:
            producer_id, epoch = request.producer_id, request.producer_epoch
            if _check(request) and epoch < PRODUCER_EPOCH_MAX:
                return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch + 1)
            left = context.remaining_s
            async with asyncio.timeout(self._timeout_s if left is None else min(left, self._timeout_s)):
                return m.InitProducerIdResponse(producer_id=await self._take(), producer_epoch=0)
        except TimeoutError:
            return _refusal(ErrorCode.REQUEST_TIMED_OUT, "the controller has not given this broker producer ids yet")
        except TidelogError as error:
            return _refusal(error.code, error.message)

    async def _take(self) -> int:
        while not self._block:
            if self._next_block:
                self._block, self._next_block = self._next_block, range(0)
                self._reserve = int(len(self._block) * PREFETCH_SHARE)
                break
            self._arrived.clear()
            self._wanted.set()
            await self._arrived.wait()
        producer_id, self._block = self._block[0], self._block[1:]
        if not self._next_block and len(self._block) <= self._reserve:
            self._wanted.set()
        return producer_id


def _check(request: m.InitProducerIdRequest) -> bool:
    """Whether the caller holds an id; INVALID_REQUEST when it says neither that nor the contrary."""
    producer_id, epoch = request.producer_id, request.producer_epoch
    if (producer_id, epoch) == (NO_PRODUCER_ID, NO_PRODUCER_EPOCH):
        return False
    if producer_id < 0:
        raise TidelogError(
            f"producer_id: {producer_id} with producer_epoch {epoch}; a new id is asked for with -1 and -1",
            ErrorCode.INVALID_REQUEST,
        )
    if not 0 <= epoch <= PRODUCER_EPOCH_MAX:
        raise TidelogError(
            f"producer_epoch: {epoch} of producer {producer_id}, allowed are 0 to {PRODUCER_EPOCH_MAX}",
            ErrorCode.INVALID_REQUEST,
        )
    return True


def _refusal(code: ErrorCode, message: str) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(
        error_code=code, error_message=message, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
