"""Produce: validate, append, answer as acks says. Knows no gRPC: any front door may call it with the same bytes."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.broker.partition_host import SYNC, PartitionHost
from tidelog.broker.pending import Settle, resolve
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.broker.turns import Turns
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH, NO_LEADER, NO_OFFSET, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.runtime.metrics import Phase, RequestMetrics
from tidelog.runtime.tasks import to_its_end
from tidelog.wire import messages as m
from tidelog.wire.batch import Batches, Buffer, validate_produce
from tidelog.wire.records import to_append

API: Final = "Produce"
ACKS_ALL: Final = -1
_ACKS = (0, 1, ACKS_ALL)
TIMEOUT_MS_MAX: Final = 3_600_000

Answer = Callable[[m.ProduceResponse], None]
Found = Buffer | TidelogError
"""What is appended for the batches of one partition, or why nothing is."""
Examined = dict[TopicPartition, Found]
Background = Callable[[Callable[[], Found]], Awaitable[Found]]
"""Runs what would hold up the event loop beside it."""

_LEADER_HINTS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Waits(NamedTuple):
    """The reason for which a partition's answer waits."""

    host: PartitionHost
    wait: Callable[[Settle], None]


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
        in_background: Background,
        inflated_bytes_max: int,
    ) -> None:
        self._manager = manager
        self._in_background = in_background
        self._inflated_bytes_max = inflated_bytes_max
        self._turns = Turns()
        self.clock = clock
        self._may_ack_alone = may_ack_alone
        self._on_append = on_append
        self._on_refusal = on_refusal
        self.requests = requests
        self._local = requests.timing(API, Phase.LOCAL)
        self.remote = requests.timing(API, Phase.REMOTE)
        self.waiting = 0
        """Requests parked for acks=all."""

    async def __call__(self, request: m.ProduceRequest, peer: str = "") -> m.ProduceResponse:
        """`peer`: the connection that it came by."""
        examination = self.examine(request, peer)
        examined = None if examination is None else await examination
        answered: asyncio.Future[m.ProduceResponse] = asyncio.get_running_loop().create_future()
        parked = self.submit(request, functools.partial(resolve, answered), examined)
        try:
            return await answered
        finally:
            if parked is not None:
                parked.give_up()

    def examine(self, request: m.ProduceRequest, peer: str) -> Awaitable[Examined] | None:
        """For `submit`: what becomes of the batches for topics where their inside matters; None when none is named."""
        if not self._manager.examined:
            return None
        parts = [p for p in request.partitions if TopicPartition(p.topic, p.partition) in self._manager.examined]
        return self._examine(parts, peer) if parts and self._fault(request) is None else None

    async def _examine(self, parts: Sequence[m.ProducePartition], peer: str) -> Examined:
        """A connection's batches are looked at in the order in which they came, one after the other."""
        examined: Examined = {}
        for part in parts:
            host = self._manager.find_named(part.topic, part.partition)
            if host is not None:
                look = functools.partial(to_append, part.records, host.config, self._inflated_bytes_max)
                async with self._turns.turn(peer):
                    examined[TopicPartition(part.topic, part.partition)] = await to_its_end(self._in_background(look))
        return examined

    def submit(self, request: m.ProduceRequest, answer: Answer, examined: Examined | None = None) -> "Parked | None":
        """Appends at once and calls `answer` once: before it returns, or later when it returns a parked request.

        `examined`: what `examine` has made of `request`.
        """
        fault = self._fault(request)
        if fault is not None:
            answer(m.ProduceResponse(results=tuple([self._refusal(p, fault) for p in request.partitions])))
            return None
        results: list[m.ProduceResult] = []
        waiting: list[tuple[int, Waits]] = []
        began_at = self.clock.now()
        for part in request.partitions:
            try:
                found = examined.get(TopicPartition(part.topic, part.partition)) if examined else None
                result, waits = self._append(part, request.acks, found)
            except TidelogError as error:
                result = self._refusal(part, error)
            else:
                if waits is not None:
                    waiting.append((len(results), waits))
            results.append(result)
        self._local.observe(self.clock.now() - began_at)
        if not waiting:
            answer(m.ProduceResponse(results=tuple(results)))
            return None
        parked = Parked(self, results, {index: waits.host for index, waits in waiting}, request.timeout_ms, answer)
        for index, waits in waiting:
            waits.wait(functools.partial(parked.settle, index))
        return parked

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
        named = {(p.topic, p.partition) for p in request.partitions}
        if len(named) != len(request.partitions):
            return TidelogError("partitions names one partition twice", ErrorCode.INVALID_REQUEST)
        return None

    def _append(self, part: m.ProducePartition, acks: int, found: Found | None) -> tuple[m.ProduceResult, Waits | None]:
        """The answer for one partition if all goes well, and what it has to wait for."""
        host = self._manager.host(part.topic, part.partition, part.topic_id)
        records = part.records if found is None or isinstance(found, TidelogError) else found
        batches = validate_produce(records, batch_bytes_max=host.config.max_message_bytes, sent=part.records)
        if isinstance(found, TidelogError) and not host.repeats(batches):
            raise found
        if len(records) > self._manager.carriage.smallest_bytes:
            self._check_carriage(host, batches)
        if acks != ACKS_ALL and not self._may_ack_alone():
            raise TidelogError(
                "this leader's lease has run out and acks_without_lease is refuse", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        appended = host.append(batches, part.leader_epoch, acks)
        if appended.size_bytes:
            self._on_append(part.topic, appended.last_offset + 1 - appended.base_offset, appended.size_bytes)
        result = m.ProduceResult(
            topic=part.topic,
            partition=part.partition,
            base_offset=appended.base_offset,
            log_start_offset=host.log.log_start_offset,
            leader_id=host.replica.leader,
            leader_epoch=host.replica.leader_epoch,
            isr_size=host.in_sync,
        )
        end = appended.last_offset + 1
        if acks == ACKS_ALL:
            return result, Waits(host, functools.partial(host.wait_committed, end))
        if acks == 1 and host.config.flush == SYNC:
            return result, Waits(host, functools.partial(host.wait_synced, end))
        return result, None

    def _check_carriage(self, host: PartitionHost, batches: Batches) -> None:
        """MESSAGE_TOO_LARGE for what could never be replicated: it would end every acks=all of its partition."""
        largest = max(header.size_bytes for header in batches.headers)
        if not host.repeats(batches):
            self._manager.carriage.check(largest, host.config.max_message_bytes, (*host.assigned, *host.moving))

    def uncommitted(self, result: m.ProduceResult, code: ErrorCode, why: str) -> m.ProduceResult:
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
            isr_size=0,
        )

    def _refusal(self, part: m.ProducePartition, error: TidelogError) -> m.ProduceResult:
        self._on_refusal(error.code)
        host = None
        if error.code in _LEADER_HINTS:
            host = self._manager.find_named(part.topic, part.partition)
        if host is not None:
            host.fenced("Produce", part.leader_epoch, error.code)
        return m.ProduceResult(
            topic=part.topic,
            partition=part.partition,
            error_code=error.code,
            error_message=error.message,
            base_offset=NO_OFFSET,
            log_start_offset=NO_OFFSET,
            leader_id=NO_LEADER if host is None else host.replica.leader,
            leader_epoch=NO_EPOCH if host is None else host.replica.leader_epoch,
            isr_size=0,
        )


class Parked:
    """A request that waits until its partitions are committed (or synced), and at most for its own timeout."""

    __slots__ = ("_answer", "_handler", "_open", "_parked_at", "_results", "_timeout_ms", "_timer")

    def __init__(
        self,
        handler: ProduceHandler,
        results: list[m.ProduceResult],
        waiting: Mapping[int, PartitionHost],
        timeout_ms: int,
        answer: Answer,
    ) -> None:
        """`waiting`: partitions by which of the results hold only if they are committed in time."""
        self._handler = handler
        self._results = results
        self._open = dict(waiting)
        self._timeout_ms = timeout_ms
        self._answer = answer
        self._parked_at = handler.clock.now()
        self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._expire)
        handler.waiting += 1

    def settle(self, index: int, code: ErrorCode) -> None:
        """A partition is committed, or never will be here. Late news of a request that is over are ignored."""
        if index not in self._open:
            return
        host = self._open.pop(index)
        if code is not ErrorCode.NONE:
            self._fail(index, code, "replication did not complete")
        else:
            self._results[index] = _acknowledged_by(host.in_sync, self._results[index])
        if not self._open:
            self._end()
            self._answer(m.ProduceResponse(results=tuple(self._results)))

    def give_up(self) -> None:
        """Its caller is gone; what was appended stays."""
        if self._open:
            self._open.clear()
            self._end()

    def _expire(self) -> None:
        self._handler.requests.parked_expired(API)
        why = f"not replicated within timeout_ms {self._timeout_ms}; it may be later"
        for index in self._open:
            self._fail(index, ErrorCode.REQUEST_TIMED_OUT, why)
        self._open.clear()
        self._end()
        self._answer(m.ProduceResponse(results=tuple(self._results)))

    def _fail(self, index: int, code: ErrorCode, why: str) -> None:
        self._results[index] = self._handler.uncommitted(self._results[index], code, why)

    def _end(self) -> None:
        self._timer.cancel()
        self._handler.waiting -= 1
        self._handler.remote.observe(self._handler.clock.now() - self._parked_at)


def _acknowledged_by(isr_size: int, result: m.ProduceResult) -> m.ProduceResult:
    """The ISR may have changed since the append."""
    if isr_size == result.isr_size:
        return result
    return m.ProduceResult(
        topic=result.topic,
        partition=result.partition,
        base_offset=result.base_offset,
        log_start_offset=result.log_start_offset,
        leader_id=result.leader_id,
        leader_epoch=result.leader_epoch,
        isr_size=isr_size,
    )
