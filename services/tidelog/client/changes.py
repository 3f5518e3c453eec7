"""Changes of topics, through any broker and the controller, repeated until it is known what became of them.

A try may end without an answer: its connection breaks, or its controller is deposed. The next try then finds what that one has
done, and says so with an error ("already exists"); an error of which that is the reason is none.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from tidelog.client.connections import ClientPorts
from tidelog.client.metadata import ClusterMetadata
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ports.net import Unary
from tidelog.runtime.retry import ADMIN
from tidelog.wire import messages as m
from tidelog.wire import services as s

DEFAULT: Final = -1
"""For partitions and replication factor: what the cluster's settings say."""
ANSWER_SLACK_S: Final = 1.0

Req = TypeVar("Req")
Describe = Callable[[Sequence[str]], Awaitable[Sequence[m.TopicDescription]]]
Topics = tuple[Any, ...]
"""An answer: one item for each topic, in the order of the request."""
_Judge = Callable[[Topics], Awaitable[Topics]]

_NOT_REACHED: Final = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE}
)
"""The controller was not reached, so nothing was done: ask again, by another broker."""
_UNSENT: Final = ("failed to connect", "onnection refused", f"{ErrorCode.NOT_CONTROLLER.name}:")
"""In the text of an error: nothing listens there, or a broker knew of no controller to which it could pass the request on."""


class TopicChanges:
    def __init__(self, ports: ClientPorts, metadata: ClusterMetadata, limit_s: float, describe: Describe) -> None:
        self._ports = ports
        self._metadata = metadata
        self._limit_s = limit_s
        self._describe = describe

    async def create(self, request: m.CreateTopicsRequest) -> Topics:
        wanted = {each.name: each for each in request.topics}

        async def judge(items: Topics) -> Topics:
            found = await self._found(each.name for each in items if each.error_code is ErrorCode.TOPIC_ALREADY_EXISTS)
            return tuple(_created(wanted[each.name], each, found.get(each.name)) for each in items)

        return await self._make(s.ADMIN_SERVICE_CREATE_TOPICS, request, None if request.validate_only else judge)

    async def delete(self, request: m.DeleteTopicsRequest) -> Topics:
        async def judge(items: Topics) -> Topics:
            return tuple(_done_if(each.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, each) for each in items)

        return await self._make(s.ADMIN_SERVICE_DELETE_TOPICS, request, judge)

    async def grow(self, request: m.CreatePartitionsRequest) -> Topics:
        totals = {each.name: each.total_count for each in request.topics}

        async def judge(items: Topics) -> Topics:
            found = await self._found(each.name for each in items if each.error_code is ErrorCode.INVALID_PARTITIONS)
            sizes = {name: len(topic.partitions) for name, topic in found.items()}
            return tuple(_done_if(sizes.get(each.name) == totals[each.name], each) for each in items)

        return await self._make(s.ADMIN_SERVICE_CREATE_PARTITIONS, request, None if request.validate_only else judge)

    async def alter(self, request: m.IncrementalAlterConfigsRequest) -> Topics:
        return await self._make(s.ADMIN_SERVICE_INCREMENTAL_ALTER_CONFIGS, request, None)  # done twice, it is the same

    async def _found(self, names: Any) -> dict[str, m.TopicDescription]:
        wanted = tuple(names)
        topics = await self._describe(wanted) if wanted else ()
        return {each.name: each for each in topics if each.error_code is ErrorCode.NONE}

    async def _make(self, method: Unary[Req, Any], request: Req, judge: _Judge | None) -> Topics:
        """`judge` looks at the answer to a try after one of which it is not known what became of it."""
        in_doubt, answer = False, Topics()
        try:
            async for attempt in ADMIN.retrying(self._ports.clock, self._ports.rand, self._limit_s):
                with attempt:
                    answer = ()
                    try:
                        answer = (await self._metadata.call_one(method, request, self._limit_s + ANSWER_SLACK_S)).topics
                    except TransportError as error:
                        in_doubt = in_doubt or not any(text in error.detail for text in _UNSENT)
                        raise
                    if in_doubt and judge is not None:
                        answer = await judge(answer)
                    busy, in_doubt = in_doubt, in_doubt or _has(answer, ErrorCode.REQUEST_TIMED_OUT)
                    _raise_to_repeat(answer, busy=busy)
        except (TransportError, TidelogError) as error:
            if answer and not _has(answer, *_NOT_REACHED):
                return answer  # the time is over, and this is how far it has come
            if in_doubt:
                raise _doubtful(method, error) from error
            raise
        return answer


def _raise_to_repeat(items: Topics, *, busy: bool) -> None:
    """With `busy` an earlier try may still be under way, so that this one is refused as a change beside another one."""
    repeated = {*_NOT_REACHED, ErrorCode.REQUEST_TIMED_OUT, *([ErrorCode.INVALID_REQUEST] if busy else [])}
    for each in items:
        if each.error_code in repeated:
            code = ErrorCode.REQUEST_TIMED_OUT if each.error_code is ErrorCode.INVALID_REQUEST else each.error_code
            raise TidelogError(each.error_message or f"topic {each.name!r}: {code.name}", code)


def _has(items: Topics, *codes: ErrorCode) -> bool:
    return any(each.error_code in codes for each in items)


def _doubtful(method: Unary[Any, Any], error: TransportError | TidelogError) -> TidelogError:
    said = f"no answer to {method.path.rpartition('/')[2]} ({error}): it may have been done; look with `tidelog topics list`"
    return TidelogError(said, ErrorCode.UNKNOWN_SERVER_ERROR)


def _done_if(is_done: bool, item: Any) -> Any:
    return replace(item, error_code=ErrorCode.NONE, error_message="") if is_done else item


def _created(wanted: m.NewTopic, item: m.CreatedTopic, found: m.TopicDescription | None) -> m.CreatedTopic:
    """`found` is the topic of the name, if it already exists."""
    if item.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        return item
    if found is None:  # it is not stored yet, or deleted by now
        return replace(item, error_code=ErrorCode.REQUEST_TIMED_OUT)
    rows = {each.partition: each.replicas for each in found.partitions}
    factor = len(rows[0])
    if wanted.assignments:
        is_same = rows == {each.partition: each.replicas for each in wanted.assignments}
    else:
        is_same = wanted.num_partitions in (DEFAULT, len(rows)) and wanted.replication_factor in (DEFAULT, factor)
    if not is_same or _values(wanted.configs) != _values(found.configs):
        return item
    return m.CreatedTopic(
        name=wanted.name, topic_id=found.topic_id, num_partitions=len(rows), replication_factor=factor
    )


def _values(configs: Sequence[m.ConfigEntry]) -> Mapping[str, str]:
    return {each.key: each.value for each in configs}
