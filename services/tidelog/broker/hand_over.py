"""Controlled shutdown, the broker's side (F-12, row 8): first the tail of every log it leads, then the leadership, then it
may go. Whatever does not answer in time does not keep it: what is left then is a failover like any other."""

import logging
from collections.abc import Callable
from typing import Final

from tidelog.broker.controller_link import RETRY_S, ControllerLink
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import NO_EPOCH
from tidelog.ports.clock import Clock
from tidelog.wire import messages as m
from tidelog.wire.services import CONTROLLER_SERVICE_CONTROLLED_SHUTDOWN

_log = logging.getLogger(__name__)

TAIL_LIMIT_S: Final = 5.0
"""How long followers may take to fetch the tail. A replica that is slower keeps every other partition waiting."""


class HandOver:
    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        link: ControllerLink,
        manager: ReplicaManager,
        clock: Clock,
        *,
        limit_s: float,
        backoff_s: float,
    ) -> None:
        """`limit_s` bounds how long the controller is asked; `backoff_s` is the pause while partitions remain."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._link = link
        self._manager = manager
        self._clock = clock
        self._limit_s = limit_s
        self._backoff_s = backoff_s

    async def run(self) -> bool:
        """Whether somebody else leads, or can lead, all that this broker led. Returns in time either way."""
        if self._broker_epoch() == NO_EPOCH:
            return True  # it has never registered: nobody waits for it
        began_at = self._clock.now()
        behind = await self._manager.hand_over(TAIL_LIMIT_S)
        if behind:
            _log.warning("%d partitions have a tail that an in-sync replica has not fetched in time", behind)
        done = await self._ask()
        _log.info("controlled shutdown %s in %.3f s", "done" if done else "given up", self._clock.now() - began_at)
        return done

    async def _ask(self) -> bool:
        deadline = self._clock.now() + self._limit_s
        while (left := deadline - self._clock.now()) > 0:
            # Read anew each time: a session may be lost and another won while it asks.
            request = m.ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
            try:
                answer = await self._link.call(CONTROLLER_SERVICE_CONTROLLED_SHUTDOWN, request, left)
            except (TransportError, TidelogError) as error:
                _log.info("ControlledShutdown is asked again: %s", error)
                await self._clock.sleep(min(left, RETRY_S))
                continue
            match answer.error_code:
                case ErrorCode.NONE if not answer.partitions_remaining:
                    return True
                case ErrorCode.NONE:
                    _log.info("%d partitions wait for a replica to come into sync", len(answer.partitions_remaining))
                    await self._clock.sleep(min(left, self._backoff_s))
                case ErrorCode.NOT_CONTROLLER:
                    await self._clock.sleep(min(left, RETRY_S))  # /controller will name the new one
                case code:
                    _log.warning("the controller refuses the controlled shutdown: %s", code.name)
                    return False
        return False
