"""Produce: validate, append, answer as acks says. Knows no gRPC: any front door may call it with the same bytes."""

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.broker.partition_host import SYNC
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH, NO_LEADER, NO_OFFSET
from tidelog.ports.clock import Clock
from tidelog.runtime.metrics import Phase, RequestMetrics
from tidelog.wire import messages as m
from tidelog.wire.batch import validate_produce

API: Final = "Produce"
ACKS_ALL: Final = -1
_ACKS = (0, 1, ACKS_ALL)
TIMEOUT_MS_MAX: Final = 3_600_000
PARTITIONS_MAX: Final = 10_000
"""In one request: a bound on what one caller makes this process hold."""

_LEADER_HINTS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ProduceHandler:
    """`may_ack_alone` says whether acks=0 and 1 may be answered now: the documented setting for a leader whose lease has run
    out (design section 3, rows 12 and 21)."""

    def __init__(
        self,
        manager: ReplicaManager,
        clock: Clock,
        may_ack_alone: Callable[[], bool],
        on_append: Callable[[str, int, int], None],
        on_refusal: Callable[[ErrorCode], None],
        requests: RequestMetrics,
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._may_ack_alone = may_ack_alone
        self._on_append = on_append
        self._on_refusal = on_refusal
        self._requests = requests
        self.waiting = 0
        """Requests parked for acks=all."""

    async def __call__(self, request: m.ProduceRequest) -> m.ProduceResponse:
        fault = self._fault(request)
        if fault is not None:
            return m.ProduceResponse(results=tuple(self._refusal(p, fault) for p in request.partitions))
        results: list[m.ProduceResult] = []
        waiting: list[tuple[int, asyncio.Future[ErrorCode]]] = []
        began_at = self._clock.now()
        for part in request.partitions:
            try:
                result, future = self._append(part, request.acks)
            except TidelogError as error:
                result, future = self._refusal(part, error), None
            if future is not None:
                waiting.append((len(results), future))
            results.append(result)
        appended_at = self._clock.now()
        self._requests.spent(API, Phase.LOCAL, appended_at - began_at)
        if waiting:
            self.waiting += 1
            try:
                await self._wait(results, waiting, request.timeout_ms)
            finally:
                self.waiting -= 1
            self._requests.spent(API, Phase.REMOTE, self._clock.now() - appended_at)
        return m.ProduceResponse(results=tuple(results))

    def _fault(self, request: m.ProduceRequest) -> TidelogError | None:
        """What is wrong with the request as a whole; nothing is appended then."""
        if request.acks not in _ACKS:
            return TidelogError(
                f"acks is {request.acks}, allowed are 0, 1 and -1 (all)", ErrorCode.INVALID_REQUIRED_ACKS
            )
        if not 0 <= request.timeout_ms <= TIMEOUT_MS_MAX:
            return TidelogError(
                f"timeout_ms is {request.timeout_ms}, allowed are 0 to {TIMEOUT_MS_MAX}", ErrorCode.INVALID_REQUEST
            )
        if len(request.partitions) > PARTITIONS_MAX:
            return TidelogError(
                f"partitions holds {len(request.partitions)} entries, at most {PARTITIONS_MAX} are allowed",
                ErrorCode.INVALID_REQUEST,
            )
        named = {(p.topic, p.partition) for p in request.partitions}
        if len(named) != len(request.partitions):
            return TidelogError("partitions names one partition twice", ErrorCode.INVALID_REQUEST)
        return None

    def _append(self, part: m.ProducePartition, acks: int) -> tuple[m.ProduceResult, asyncio.Future[ErrorCode] | None]:
        host = self._manager.host(part.topic, part.partition, part.topic_id)
        batches = validate_produce(part.records, batch_bytes_max=host.config.max_message_bytes)
        if acks != ACKS_ALL and not self._may_ack_alone():
            raise TidelogError(
                "this leader's lease has run out and acks_without_lease is refuse", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        appended = host.append(batches, part.leader_epoch, acks)
        if appended.size_bytes:
            self._on_append(part.topic, batches.record_count, appended.size_bytes)
        result = m.ProduceResult(
            topic=part.topic,
            partition=part.partition,
            base_offset=appended.base_offset,
            log_start_offset=host.log.log_start_offset,
            leader_id=host.replica.leader,
            leader_epoch=host.replica.leader_epoch,
        )
        if acks == ACKS_ALL:
            return result, host.wait_committed(appended.last_offset + 1)
        if acks == 1 and host.config.flush == SYNC:
            return result, host.wait_synced(appended.last_offset + 1)
        return result, None

    async def _wait(
        self,
        results: list[m.ProduceResult],
        waiting: list[tuple[int, asyncio.Future[ErrorCode]]],
        timeout_ms: int,
    ) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                for index, future in waiting:
                    code = await future
                    if code is not ErrorCode.NONE:
                        results[index] = self._uncommitted(results[index], code, "replication did not complete")
        except TimeoutError:
            self._requests.parked_expired(API)
            for index, future in waiting:
                # Not done, or cancelled under us by the timeout; what is done has its result already.
                if not future.done() or future.cancelled():
                    future.cancel()
                    results[index] = self._uncommitted(
                        results[index],
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"not replicated within timeout_ms {timeout_ms}; it may be later",
                    )

    def _uncommitted(self, result: m.ProduceResult, code: ErrorCode, why: str) -> m.ProduceResult:
        """The batch is in this log but the promise is not kept: the outcome is unknown to the caller."""
        self._on_refusal(code)
        return m.ProduceResult(
            topic=result.topic,
            partition=result.partition,
            error_code=code,
            error_message=why,
            base_offset=NO_OFFSET,
            log_start_offset=result.log_start_offset,
            leader_id=NO_LEADER,
            leader_epoch=NO_EPOCH,
        )

    def _refusal(self, part: m.ProducePartition, error: TidelogError) -> m.ProduceResult:
        self._on_refusal(error.code)
        host = None
        if error.code in _LEADER_HINTS:
            host = self._manager.find_named(part.topic, part.partition)
        return m.ProduceResult(
            topic=part.topic,
            partition=part.partition,
            error_code=error.code,
            error_message=error.message,
            base_offset=NO_OFFSET,
            log_start_offset=NO_OFFSET,
            leader_id=NO_LEADER if host is None else host.replica.leader,
            leader_epoch=NO_EPOCH if host is None else host.replica.leader_epoch,
        )
