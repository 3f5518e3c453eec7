"""CoordinatorService at one broker: consumers' streams, offsets, and what administrators ask (section 5 of the design)."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from tidelog.coordinator.events import CommitRequested, ConnectionId, DeleteRequested
from tidelog.coordinator.shards import Coordinators
from tidelog.coordinator.term import Term
from tidelog.coordinator.turns import Turns
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address
from tidelog.names import validate_group_id
from tidelog.ports.net import CallContext, Stream
from tidelog.ports.recorder import CAUSE, Origin
from tidelog.runtime.group_metrics import GroupMetrics
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import messages as m
from tidelog.wire.limits import too_many

log = logging.getLogger(__name__)

REGISTER_S: Final = 10.0
"""A stream that says nothing for so long is ended."""

UNREGISTERED_MAX: Final = 1_000
"""Streams that have said nothing yet. One more ends the oldest: whoever means it has registered long since."""

OUTBOX_MAX: Final = 256
"""Messages to one consumer that its transport has not taken: it does not read, so its stream is ended."""

WRITES_MAX: Final = 64
"""Messages at a time on their way to the transport; a rebalance has one for each of thousands."""

WRITE_S: Final = 0.1
"""A write that takes longer counts no more: the consumer does not read, and its window is full."""

TOPIC_COUNT_MAX: Final = 64 << 10

Session = Stream[m.ConsumerMessage, m.CoordinatorMessage]
First = tuple[m.ConsumerMessage | None, Origin | None]
"""The first message of a stream, and what led to it."""


def host_of(peer: str) -> str:
    """The address in gRPC's name of a peer, as Kafka's HOST column has it; a peer without one (a Unix socket) by its name.

    gRPC: ipv4:127.0.0.1:33698, ipv6:%5B::1%5D:33698, unix:/run/socket.
    """
    family, _, where = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return peer
    return f"/{unquote(where.rpartition(':')[0]).strip('[]')}"


class ConsumerStream:
    """The sending side of one consumer's stream: a queue in front of the transport."""

    def __init__(self, stream: Session, listener: str, turns: Turns) -> None:
        self._stream = stream
        self._listener = listener
        self._turns = turns
        self._outbox: deque[tuple[m.CoordinatorMessage, Origin | None]] = deque()
        self._news = asyncio.Event()
        self._closed = False
        self._refused = False
        self.fault: TidelogError | None = None
        """Why it is ended, if for what its consumer said."""

    @property
    def listener(self) -> str:
        return self._listener

    def send(self, message: m.CoordinatorMessage) -> None:
        if self._closed:
            return
        if len(self._outbox) >= OUTBOX_MAX:
            self._stream.cancel()
            self._closed = True
        else:
            self._outbox.append((message, CAUSE.get()))
            self._refused = message.registered is not None and message.registered.error_code is not ErrorCode.NONE
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    async def write(self) -> None:
        """Until it is closed and everything is handed to the transport, or the stream is broken.

        A consumer that is refused closes its stream (A12.05); not for ever is it waited for.
        """
        try:
            while True:
                while self._outbox:
                    turn = await self._turns.take()
                    try:
                        message, cause = self._outbox.popleft()
                        CAUSE.set(cause)
                        await self._stream.write(message)
                    finally:
                        self._turns.give_back(turn)
                if self._closed:
                    return
                self._news.clear()
                async with asyncio.timeout(REGISTER_S if self._refused else None):
                    await self._news.wait()
        except (TimeoutError, TransportError):
            return


class CoordinatorService:
    def __init__(self, coordinators: Coordinators, metrics: GroupMetrics, partitions_max: int) -> None:
        """`partitions_max`: in one message of a consumer."""
        self._coordinators = coordinators
        self._metrics = metrics
        self._partitions_max = partitions_max
        self._unregistered: dict[asyncio.Timeout, None] = {}
        """Their limits, oldest first."""
        self._turns = Turns(WRITES_MAX, WRITE_S)

    # streams

    async def session(self, stream: Session, context: CallContext, listener: str) -> None:
        """`listener`: the door by which the consumer came."""
        try:
            await self._serve(stream, context, listener)
        except TransportError:
            return  # the consumer is gone; it opens another stream when it can

    async def _serve(self, stream: Session, context: CallContext, listener: str) -> None:
        first, cause = await self._first(stream, context.peer)
        if first is None:
            return
        code, text, term = self._judge(first)
        if term is None:
            self._metrics.refused("register", code)
            refusal = m.RegisterConsumerResponse(error_code=code, error_message=text, coordinator_epoch=-1, admission=0)
            await stream.write(m.CoordinatorMessage(last_number=0, registered=refusal))
            return
        consumer = ConsumerStream(stream, listener, self._turns)
        connection = term.connect(consumer)
        # The reader is not cancelled when the stream is to end: that would break it, and drop what was said last.
        reader = Supervisor(f"consumer at {context.peer}", self._metrics.failed)
        reader.start("consumer stream", self._read(stream, term, connection, context.peer, (first, cause), consumer))
        try:
            await consumer.write()
        finally:
            term.disconnect(connection)
        if consumer.fault is not None:
            raise consumer.fault

    async def _first(self, stream: Session, peer: str) -> First:
        if len(self._unregistered) >= UNREGISTERED_MAX:
            oldest = next(iter(self._unregistered))
            del self._unregistered[oldest]
            oldest.reschedule(0.0)
        found: asyncio.Future[First] = asyncio.get_running_loop().create_future()
        reader = Supervisor(f"new consumer at {peer}", self._metrics.failed)
        reader.start("first message", _read_first(stream, found))  # not cancelled either
        limit = asyncio.timeout(REGISTER_S)
        try:
            async with limit:
                self._unregistered[limit] = None
                return await found
        except TimeoutError:
            if limit in self._unregistered:
                text = f"nothing was said within {REGISTER_S:.0f} s: register first"
                raise TidelogError(text, ErrorCode.INVALID_REQUEST) from None
            text = f"over {UNREGISTERED_MAX} streams have not registered yet, and this is the oldest"
            raise TidelogError(text, ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        finally:
            self._unregistered.pop(limit, None)

    def _judge(self, first: m.ConsumerMessage) -> tuple[ErrorCode, str, Term | None]:
        """The term that the consumer belongs to; None, and why."""
        request = first.register
        if request is None:
            return ErrorCode.INVALID_REQUEST, "the first message of a stream is register", None
        try:
            term = self._term(request.group_id)
            self._check_sizes(first)
        except TidelogError as error:
            return error.code, error.message, None
        return ErrorCode.NONE, "", term

    async def _read(
        self,
        stream: Session,
        term: Term,
        connection: ConnectionId,
        peer: str,
        first: First,
        consumer: ConsumerStream,
    ) -> None:
        message, cause = first
        CAUSE.set(cause)
        host = host_of(peer)
        leaves = False
        try:
            while message is not None:
                self._check_sizes(message)
                term.arrived(connection, host, message)
                leaves |= message.leave is not None
                await term.room()
                message = await stream.read()
        except TransportError:
            return
        except TidelogError as error:
            log.warning("consumer at %s: %s; its stream is ended", peer, error.message)
            self._metrics.refused("message", error.code)
            consumer.fault = error
        finally:
            if not leaves or consumer.fault is not None:  # the answer to its last words ends the stream
                consumer.close()

    def _check_sizes(self, message: m.ConsumerMessage) -> None:
        """What costs more than it may before anybody looks at it; the rest the state machine checks."""
        for answer in (message.ping, message.stopped, message.leave):
            if answer is not None:
                _check_count("offset_info", answer.offset_info, self._partitions_max)
        if message.register is not None and len(message.register.topic_count) > TOPIC_COUNT_MAX:
            text = f"topic_count has {len(message.register.topic_count)} characters; at most {TOPIC_COUNT_MAX}"
            raise TidelogError(text, ErrorCode.INVALID_REQUEST)

    # requests

    async def commit_offsets(self, request: m.CommitOffsetsRequest, _: CallContext) -> m.CommitOffsetsResponse:
        try:
            term = self._term(request.group_id)
            _check_count("offsets", request.offsets, self._partitions_max)
            answer: m.CommitOffsetsResponse = await term.ask(lambda token: CommitRequested(token, request))
        except TidelogError as error:
            self._metrics.refused("commit", error.code)
            return m.CommitOffsetsResponse(error_code=error.code, error_message=error.message)
        return answer

    async def fetch_offsets(self, request: m.FetchOffsetsRequest, _: CallContext) -> m.FetchOffsetsResponse:
        try:
            term = self._term(request.group_id)
            _check_count("partitions", request.partitions, self._partitions_max)
        except TidelogError as error:
            return m.FetchOffsetsResponse(error_code=error.code, error_message=error.message)
        return term.machine.fetch_offsets(request)

    async def list_groups(self, request: m.ListGroupsRequest, _: CallContext) -> m.ListGroupsResponse:
        """Of the shards that this broker coordinates; while it reads one of them the list would have a hole."""
        code, text = ErrorCode.NONE, ""
        if not self._coordinators.shards:
            code, text = (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "the broker does not know yet how many shards there are",
            )
        groups: list[m.ListedGroup] = []
        shards: list[int] = []
        for shard, term in sorted(self._coordinators.terms.items()):
            if term.acting:
                groups += term.machine.list_groups(request.states)
                shards.append(shard)
            else:
                code, text = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator still reads its groups"
        groups.sort(key=lambda each: each.group_id)
        return m.ListGroupsResponse(
            error_code=code,
            error_message=text,
            groups=tuple(groups),
            shards=tuple(shards),
            shard_count=self._coordinators.shards,
        )

    async def describe_groups(self, request: m.DescribeGroupsRequest, _: CallContext) -> m.DescribeGroupsResponse:
        return m.DescribeGroupsResponse(groups=tuple(map(self._described, dict.fromkeys(request.group_ids))))

    def _described(self, group_id: str) -> m.DescribedGroup:
        try:
            return self._term(group_id).machine.describe(group_id)
        except TidelogError as error:
            return m.DescribedGroup(
                error_code=error.code,
                error_message=error.message,
                group_id=group_id,
                coordinator_id=self._coordinators.coordinator_of(group_id),
                coordinator_epoch=-1,
                generation=-1,
            )

    async def delete_groups(self, request: m.DeleteGroupsRequest, _: CallContext) -> m.DeleteGroupsResponse:
        """Each at its shard's term; the others are refused one by one."""
        results: dict[str, m.DeletedGroup] = {}
        by_term: dict[Term, list[str]] = {}
        for group_id in dict.fromkeys(request.group_ids):
            try:
                by_term.setdefault(self._term(group_id), []).append(group_id)
            except TidelogError as error:
                results[group_id] = _not_deleted(group_id, error)
        for term, group_ids in by_term.items():
            results.update(await _delete(term, group_ids))
        return m.DeleteGroupsResponse(results=tuple(results[each] for each in dict.fromkeys(request.group_ids)))

    def watch_address(self, group_id: str, consumer_id: str) -> Address:
        """Returns where a member shows its protocol events: always at its own host, as its connection to this broker shows it.
        TidelogError says why there is none."""
        for member in self._term(group_id).machine.describe(group_id).members:
            if member.consumer_id == consumer_id and member.watch_port and member.host.startswith("/"):
                return Address(member.host.removeprefix("/"), member.watch_port)
        text = f"group {group_id} has no member {consumer_id[:100]!r} that is connected and shows protocol events"
        raise TidelogError(text, ErrorCode.UNKNOWN_MEMBER_ID)

    def coordinator_of(self, group_id: str) -> int:
        """For ClusterMetadata: the broker to go to; -1: none is known."""
        return self._coordinators.coordinator_of(group_id)

    def _term(self, group_id: str) -> Term:
        """TidelogError says why this broker cannot answer for the group."""
        validate_group_id(group_id)
        term = self._coordinators.term_of(group_id)
        if term is None:
            raise TidelogError("this broker does not coordinate the group", ErrorCode.NOT_COORDINATOR)
        code, text = term.refusal(group_id)
        if code is not ErrorCode.NONE:
            raise TidelogError(text, code)
        return term


async def _read_first(stream: Session, found: "asyncio.Future[First]") -> None:
    try:
        message = await stream.read()
    except (TidelogError, TransportError) as error:
        if not found.done():
            found.set_exception(error)
    else:
        if not found.done():
            found.set_result((message, CAUSE.get()))


def _check_count(field: str, items: Sequence[object], most: int) -> None:
    if len(items) > most:
        raise too_many(field, len(items), most)


def _not_deleted(group_id: str, error: TidelogError) -> m.DeletedGroup:
    return m.DeletedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


async def _delete(term: Term, group_ids: Sequence[str]) -> dict[str, m.DeletedGroup]:
    request = m.DeleteGroupsRequest(group_ids=tuple(group_ids))
    try:
        answer: m.DeleteGroupsResponse = await term.ask(lambda token: DeleteRequested(token, request), repeatable=False)
    except TidelogError as error:
        return {group_id: _not_deleted(group_id, error) for group_id in group_ids}
    return {each.group_id: each for each in answer.results}
