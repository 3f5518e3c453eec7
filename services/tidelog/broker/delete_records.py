"""DeleteRecords: the leader moves the start of its log, and answers when every live replica has followed (KIP-107) and
its own start is durable."""

import asyncio
from collections import Counter
from functools import partial
from typing import Final

from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.pending import Settle, resolve
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_OFFSET
from tidelog.wire import messages as m

TIMEOUT_MS_MAX: Final = 600_000


class DeleteRecordsHandler:
    def __init__(self, manager: ReplicaManager, default_timeout_ms: int) -> None:
        self._manager = manager
        self._default_timeout_ms = default_timeout_ms

    async def __call__(self, request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse:
        """Nothing is changed anywhere when one partition of the request is refused."""
        named = Counter((part.topic, part.partition) for part in request.partitions)
        checked: list[tuple[PartitionHost, int] | TidelogError] = []
        for part in request.partitions:
            try:
                _check_request(request, named[part.topic, part.partition])
                host = self._manager.host(part.topic, part.partition, part.topic_id)
                checked.append((host, host.deletable(part.offset)))
            except TidelogError as error:
                checked.append(error)
        if any(isinstance(each, TidelogError) for each in checked):
            return _refused(request, checked)
        hosts = [each for each in checked if not isinstance(each, TidelogError)]
        codes = await self._trim(hosts, request.timeout_ms or self._default_timeout_ms)
        results = zip(request.partitions, hosts, codes, strict=True)
        return m.DeleteRecordsResponse(partitions=tuple(_result(part, host, code) for part, (host, _), code in results))

    async def _trim(self, hosts: list[tuple[PartitionHost, int]], timeout_ms: int) -> list[ErrorCode]:
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[ErrorCode]] = [loop.create_future() for _ in hosts]
        for (host, offset), answer in zip(hosts, answers, strict=True):
            try:
                host.move_log_start(offset)
                host.wait_trimmed(offset, partial(self._trimmed, host, offset, partial(resolve, answer)))
            except TidelogError as error:
                resolve(answer, error.code)
        await asyncio.wait(answers, timeout=timeout_ms / 1000) if answers else None
        return [answer.result() if answer.done() else ErrorCode.REQUEST_TIMED_OUT for answer in answers]

    def _trimmed(self, host: PartitionHost, offset: int, settle: Settle, code: ErrorCode) -> None:
        """Waits for the disk of the leader before the answer, so that a deletion that was answered outlives its process."""
        if code is ErrorCode.NONE:
            self._manager.wait_start_durable(host, offset, settle)
        else:
            settle(code)


def _check_request(request: m.DeleteRecordsRequest, named: int) -> None:
    if not 0 <= request.timeout_ms <= TIMEOUT_MS_MAX:
        raise TidelogError(
            f"timeout_ms is {request.timeout_ms}, allowed are 0 to {TIMEOUT_MS_MAX}", ErrorCode.INVALID_REQUEST
        )
    if named > 1:
        raise TidelogError("partitions names one partition twice", ErrorCode.INVALID_REQUEST)


def _refused(
    request: m.DeleteRecordsRequest, checked: list[tuple[PartitionHost, int] | TidelogError]
) -> m.DeleteRecordsResponse:
    others = TidelogError(
        "another partition of this request is refused, nothing was deleted", ErrorCode.OPERATION_NOT_ATTEMPTED
    )
    results = []
    for part, each in zip(request.partitions, checked, strict=True):
        error = each if isinstance(each, TidelogError) else others
        results.append(_answer(part, NO_OFFSET, error.code, error.message))
    return m.DeleteRecordsResponse(partitions=tuple(results))


def _result(part: m.DeleteRecordsPartition, host: PartitionHost, code: ErrorCode) -> m.DeleteRecordsResult:
    if code is ErrorCode.NONE:
        return _answer(part, host.low_watermark(), code, "")
    message = {
        ErrorCode.REQUEST_TIMED_OUT: "deleted here; not every live replica has followed yet, it goes on",
        ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker leads now; it may have been done",
        ErrorCode.KAFKA_STORAGE_ERROR: "the new start of the log could not be made durable; the records may come back",
    }.get(code, code.name)
    return _answer(part, NO_OFFSET, code, message)


def _answer(part: m.DeleteRecordsPartition, low: int, code: ErrorCode, message: str) -> m.DeleteRecordsResult:
    return m.DeleteRecordsResult(
        topic=part.topic, partition=part.partition, low_watermark=low, error_code=code, error_message=message
    )
