"""What each method of proto/ does, in the authorizer's terms, and the guard that stands where requests come in.

A refusal is an answer like any other: TOPIC_AUTHORIZATION_FAILED (29) for each item of a topic, CLUSTER_AUTHORIZATION_FAILED
(31) for a request as a whole, in the message's own error field. A stream has no such field for itself: it ends with the
error in its status. ProduceStream carries requests that are answered each by itself, like those of Produce.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.authorizer import (
    ANONYMOUS,
    CLUSTER,
    AllowEverything,
    Authorizer,
    Operation,
    Resource,
    ResourceType,
)
from tidelog.ports.net import Bidi, BidiHandler, CallContext, Route, Stream, Unary, UnaryHandler
from tidelog.wire import messages as m
from tidelog.wire import services as s


@dataclass(frozen=True, slots=True)
class OnCluster:
    """The request as a whole."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class OnTopics:
    """Each item of the request by itself: those that are allowed are carried out."""

    operation: Operation
    items: str
    """Field of the request."""
    results: str
    """Field of the answer."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Topics that an answer shows. Whoever asked for all of them does not see the others; who named one is told."""

    operation: Operation
    asked: str
    results: str


Rule = OnCluster | OnTopics | Shown
_ACTION: Final = OnCluster(Operation.CLUSTER_ACTION)
_ALTER_CLUSTER: Final = OnCluster(Operation.ALTER)

_ROWS: Final[tuple[tuple[Unary[Any, Any] | Bidi[Any, Any], Rule], ...]] = (
    (s.REPLICA_SERVICE_PRODUCE, OnTopics(Operation.WRITE, "partitions", "results")),
    (s.REPLICA_SERVICE_PRODUCE_STREAM, OnTopics(Operation.WRITE, "partitions", "results")),
    (s.REPLICA_SERVICE_FETCH, OnTopics(Operation.READ, "partitions", "results")),
    (s.REPLICA_SERVICE_LIST_OFFSETS, OnTopics(Operation.DESCRIBE, "partitions", "results")),
    (s.REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH, OnTopics(Operation.DESCRIBE, "partitions", "results")),
    (s.REPLICA_SERVICE_INIT_PRODUCER_ID, OnCluster(Operation.IDEMPOTENT_WRITE)),
    (s.REPLICA_SERVICE_REPLICA_FETCH, _ACTION),
    (s.BROKER_CONTROL_LEADER_AND_ISR, _ACTION),
    (s.BROKER_CONTROL_STOP_REPLICA, _ACTION),
    (s.BROKER_CONTROL_UPDATE_METADATA, _ACTION),
    (s.BROKER_CONTROL_REPLICA_ENDS, _ACTION),
    (s.BROKER_CONTROL_LIVENESS, _ACTION),
    (s.CONTROLLER_SERVICE_ALTER_ISR, _ACTION),
    (s.CONTROLLER_SERVICE_CONTROLLED_SHUTDOWN, _ACTION),
    (s.CONTROLLER_SERVICE_ALLOCATE_PRODUCER_IDS, _ACTION),
    (s.ADMIN_SERVICE_CREATE_TOPICS, OnTopics(Operation.CREATE, "topics", "topics")),
    (s.ADMIN_SERVICE_DELETE_TOPICS, OnTopics(Operation.DELETE, "names", "topics")),
    (s.ADMIN_SERVICE_CREATE_PARTITIONS, OnTopics(Operation.ALTER, "topics", "topics")),
    (s.ADMIN_SERVICE_DESCRIBE_TOPICS, Shown(Operation.DESCRIBE, "names", "topics")),
    (s.ADMIN_SERVICE_DESCRIBE_CLUSTER, OnCluster(Operation.DESCRIBE)),
    (s.ADMIN_SERVICE_INCREMENTAL_ALTER_CONFIGS, OnTopics(Operation.ALTER, "topics", "topics")),
    (s.ADMIN_SERVICE_DESCRIBE_CONFIGS, Shown(Operation.DESCRIBE, "topics", "topics")),
    (s.ADMIN_SERVICE_DESCRIBE_BROKER_CONFIGS, OnCluster(Operation.DESCRIBE)),
    (s.ADMIN_SERVICE_DELETE_RECORDS, OnTopics(Operation.DELETE, "partitions", "partitions")),
    (s.ADMIN_SERVICE_DESCRIBE_LOG_DIRS, OnCluster(Operation.DESCRIBE)),
    (s.ADMIN_SERVICE_DISCARD_DAMAGE, _ALTER_CLUSTER),
    (s.ADMIN_SERVICE_ELECT_LEADERS, _ALTER_CLUSTER),
    (s.ADMIN_SERVICE_RELEASE_VETO, _ALTER_CLUSTER),
    (s.ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS, _ALTER_CLUSTER),
    (s.ADMIN_SERVICE_ADD_BROKERS, _ALTER_CLUSTER),
    (s.ADMIN_SERVICE_DRAIN_BROKERS, _ALTER_CLUSTER),
    (s.ADMIN_SERVICE_LIST_PARTITION_REASSIGNMENTS, OnCluster(Operation.DESCRIBE)),
    (s.COORDINATOR_SERVICE_CLUSTER_METADATA, Shown(Operation.DESCRIBE, "topics", "topics")),
    (s.COORDINATOR_SERVICE_SESSION, OnCluster(Operation.READ)),
    (s.COORDINATOR_SERVICE_COMMIT_OFFSETS, OnCluster(Operation.READ)),
    (s.COORDINATOR_SERVICE_FETCH_OFFSETS, OnCluster(Operation.DESCRIBE)),
    (s.COORDINATOR_SERVICE_LIST_GROUPS, OnCluster(Operation.DESCRIBE)),
    (s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, OnCluster(Operation.DESCRIBE)),
    (s.COORDINATOR_SERVICE_DELETE_GROUPS, OnCluster(Operation.DELETE)),
    (s.WATCH_SERVICE_WATCH_PROTOCOL, OnCluster(Operation.DESCRIBE)),
)

RULES: Final[Mapping[str, Rule]] = {method.path: rule for method, rule in _ROWS}
"""Every method of proto/ (a test compares the two): method path -> what it does to what."""


def guarded(routes: Sequence[Route], authorizer: Authorizer, on_denied: Callable[[str], None]) -> list[Route]:
    """The same routes behind `authorizer`; `on_denied` counts, by method. KeyError for a method without a rule.

    Where everything is allowed they stay as they are: a produce request pays nothing for what nobody uses.
    """
    if isinstance(authorizer, AllowEverything):
        return list(routes)
    return [Route(route.method, _Guard(route, authorizer, on_denied).handler()) for route in routes]


class _Guard:
    def __init__(self, route: Route, authorizer: Authorizer, on_denied: Callable[[str], None]) -> None:
        self._route = route
        self._inner: Any = route.handler
        self._rule = RULES[route.method.path]
        streamed = route.method is s.REPLICA_SERVICE_PRODUCE_STREAM
        self._response: type[Any] = m.ProduceResponse if streamed else route.method.response
        self._authorizer = authorizer
        self._on_denied = on_denied

    def handler(self) -> UnaryHandler | BidiHandler:
        match self._rule:
            case OnCluster():
                return self._stream if isinstance(self._route.method, Bidi) else self._whole
            case OnTopics():
                return self._each_of_stream if isinstance(self._route.method, Bidi) else self._each
            case Shown():
                return self._filtered

    def may(self, topic: str | None = None) -> bool:
        resource = CLUSTER if topic is None else Resource(ResourceType.TOPIC, topic)
        return self._authorizer.allows(ANONYMOUS, self._rule.operation, resource)

    def deny(self) -> None:
        self._on_denied(self._route.method.path.rpartition("/")[2])

    def _message(self, topic: str | None = None) -> str:
        what = "the cluster" if topic is None else f"topic {topic!r}"
        return f"{ANONYMOUS} has no permission {self._rule.operation.value} on {what}"

    async def _stream(self, stream: Stream[Any, Any], context: CallContext) -> None:
        if not self.may():
            self.deny()
            raise TidelogError(self._message(), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        await self._inner(stream, context)

    async def _whole(self, request: Any, context: CallContext) -> Any:
        if self.may():
            return await self._inner(request, context)
        self.deny()
        return _built(self._response, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, self._message())

    async def _each(self, request: Any, context: CallContext) -> Any:
        rule = self._rule
        assert isinstance(rule, OnTopics)
        items: tuple[Any, ...] = getattr(request, rule.items)
        may = {topic: self.may(topic) for topic in dict.fromkeys(map(_topic, items))}
        if all(may.values()):
            return await self._inner(request, context)
        self.deny()
        kept = tuple(item for item in items if may[_topic(item)])
        answer = self._response()
        if kept:
            answer = await self._inner(replace(request, **{rule.items: kept}), context)
        return self.completed(items, may, answer)

    async def _each_of_stream(self, stream: Stream[Any, Any], context: CallContext) -> None:
        await self._inner(_GuardedStream(self, stream), context)

    def completed(self, items: tuple[Any, ...], may: Mapping[str, bool], answer: Any) -> Any:
        """The answer for those that were carried out, with a refusal for each of the others."""
        rule = self._rule
        assert isinstance(rule, OnTopics)
        carried_out = list(getattr(answer, rule.results))
        if len(carried_out) != sum(may[_topic(item)] for item in items):
            refused = [self._refused(rule, item) for item in items if not may[_topic(item)]]
            return replace(answer, **{rule.results: (*carried_out, *refused)})
        in_order = iter(carried_out)
        merged = tuple(next(in_order) if may[_topic(item)] else self._refused(rule, item) for item in items)
        return replace(answer, **{rule.results: merged})

    def _refused(self, rule: OnTopics, item: Any) -> Any:
        topic = _topic(item)
        given = {"name": topic, "topic": topic, "partition": getattr(item, "partition", -1)}
        return _built(
            _item_type(self._response, rule.results), ErrorCode.TOPIC_AUTHORIZATION_FAILED, self._message(topic), given
        )

    async def _filtered(self, request: Any, context: CallContext) -> Any:
        rule = self._rule
        assert isinstance(rule, Shown)
        answer = await self._inner(request, context)
        named = frozenset(getattr(request, rule.asked))
        shown = []
        for each in getattr(answer, rule.results):
            topic = _topic(each)
            if self.may(topic):
                shown.append(each)
            elif topic in named:
                given = {"name": topic, "topic": topic}
                shown.append(_built(type(each), ErrorCode.TOPIC_AUTHORIZATION_FAILED, self._message(topic), given))
        if len(shown) < len(getattr(answer, rule.results)) or any(map(_was_refused, shown)):
            self.deny()
        return replace(answer, **{rule.results: tuple(shown)})


class _GuardedStream:
    """ProduceStream: what may not be written is taken out of the requests and put into their answers."""

    def __init__(self, guard: _Guard, stream: Stream[Any, Any]) -> None:
        self._guard = guard
        self._stream = stream
        self._number = 0
        self._asked: dict[int, tuple[tuple[Any, ...], Mapping[str, bool]]] = {}

    async def read(self) -> Any:
        request = await self._stream.read()
        if request is None:
            return None
        self._number += 1
        may = {topic: self._guard.may(topic) for topic in dict.fromkeys(map(_topic, request.partitions))}
        if all(may.values()):
            return request
        self._guard.deny()
        self._asked[self._number] = request.partitions, may
        return replace(request, partitions=tuple(part for part in request.partitions if may[part.topic]))

    async def write(self, message: Any) -> None:
        answers = tuple(map(self._completed, message.answers))
        await self._stream.write(replace(message, answers=answers))

    def _completed(self, answer: Any) -> Any:
        found = self._asked.pop(answer.number, None)
        if found is None:
            return answer
        return replace(answer, response=self._guard.completed(*found, answer.response))

    def cancel(self) -> None:
        self._stream.cancel()


def _item_type(message: type[Any], repeated: str) -> type[Any]:
    annotation: Any = next(field.type for field in fields(message) if field.name == repeated)
    found: type[Any] = annotation.__args__[0]  # of tuple[X, ...]
    return found


def _topic(item: Any) -> str:
    """Of an item of a request or of an answer."""
    if isinstance(item, str):
        return item
    found: str = item.topic if hasattr(item, "topic") else item.name
    return found


def _was_refused(item: Any) -> bool:
    return bool(item.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _built(kind: type[Any], code: ErrorCode, message: str, given: Mapping[str, Any] | None = None) -> Any:
    """A message that says no: -1 for every number that has no meaning then."""
    known = {"error_code": code, "error_message": message, **(given or {})}
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in known:
            values[field.name] = known[field.name]
        elif field.default is MISSING and field.default_factory is MISSING:
            values[field.name] = -1
    return kind(**values)
