"""The table from method to operation, and what a caller without permission is told: the code, and nothing has changed."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

import pytest

from helpers.requirements import requirement
from tidelog.controller.service import ControllerRoutes
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.authorizer import ANONYMOUS, CLUSTER, AllowEverything, Operation, Resource, ResourceType
from tidelog.ports.net import Bidi, KnownCaller, Route, Unary
from tidelog.runtime.authorization import RULES, OnCluster, OnTopics, Shown, guarded
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.codec import decode, encode

METHODS: list[Unary[Any, Any] | Bidi[Any, Any]] = [each for each in vars(s).values() if isinstance(each, Unary | Bidi)]
UNARY = [each for each in METHODS if isinstance(each, Unary)]
CALLER = KnownCaller("test")
SECRET = "secret"


@dataclass
class Denying:
    """Denies what `denied` says and keeps what it was asked."""

    denied: Callable[[Operation, Resource], bool] = lambda operation, resource: True
    asked: list[tuple[str, Operation, Resource]] = field(default_factory=list)

    def allows(self, principal: str, operation: Operation, resource: Resource) -> bool:
        self.asked.append((principal, operation, resource))
        return not self.denied(operation, resource)


def sample(kind: Any, topic: str) -> Any:
    """A message in which every topic has the name `topic`, every list one item, every number is 3."""
    values: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        kind_of_item = get_args(each.type)[0] if get_args(each.type) else each.type  # of a list, or of an optional one
        value: Any = 3
        if dataclasses.is_dataclass(kind_of_item):
            value = sample(kind_of_item, topic)
        elif kind_of_item is str:
            value = topic
        elif kind_of_item is bytes:
            value = b"x"
        elif kind_of_item is bool:
            value = False
        elif kind_of_item is ErrorCode:
            value = ErrorCode.NONE
        values[each.name] = (value,) if get_origin(each.type) is tuple else value
    return kind(**values)


@dataclass
class Handler:
    """Answers each item with a success of its own."""

    rule: Any
    response: Any
    got: list[Any] = field(default_factory=list)

    async def __call__(self, request: Any, _: Any) -> Any:
        self.got.append(request)
        answer = sample(self.response, "unused")
        if not isinstance(self.rule, OnTopics):
            return answer
        (one,) = getattr(answer, self.rule.results)
        named = [_named(one, topic) for topic in map(_topic, getattr(request, self.rule.items))]
        return dataclasses.replace(answer, **{self.rule.results: tuple(named)})


def _named(item: Any, topic: str) -> Any:
    return dataclasses.replace(item, **{"topic" if hasattr(item, "topic") else "name": topic})


def _topic(item: Any) -> str:
    return item if isinstance(item, str) else getattr(item, "topic", None) or item.name


def behind(method: Any, authorizer: Any) -> tuple[Any, Any, list[str]]:
    """The guarded handler, the handler behind it, and what was counted."""
    inner, counted = Handler(RULES[method.path], method.response), list[str]()
    (route,) = guarded([Route(method, inner)], authorizer, counted.append)
    return route.handler, inner, counted


def short(method: Any) -> str:
    return str(method.path).rpartition("/")[2]


@requirement("AlterIsr needs the CLUSTER_ACTION permission")
def test_every_method_has_a_row_and_no_row_is_left_over() -> None:
    assert {method.path for method in METHODS} == set(RULES)


@requirement("AlterIsr needs the CLUSTER_ACTION permission")
def test_what_servers_do_to_each_other_is_a_cluster_action() -> None:
    actions = {path.rpartition("/")[2] for path, rule in RULES.items() if rule == OnCluster(Operation.CLUSTER_ACTION)}
    assert actions == {
        *("ReplicaFetch", "LeaderAndIsr", "StopReplica", "UpdateMetadata", "Liveness"),
        *("AlterIsr", "ControlledShutdown", "AllocateProducerIds", "ReplicaEnds"),
    }


def test_a_method_without_a_row_is_not_served() -> None:
    strange = Unary("/tidelog.v1.ReplicaService/Strange", m.FetchRequest, m.FetchResponse)
    with pytest.raises(KeyError):
        guarded([Route(strange, Handler(None, None))], Denying(), lambda api: None)


def test_where_everything_is_allowed_the_routes_stay_as_they_are() -> None:
    routes = [Route(method, Handler(RULES[method.path], method.response)) for method in METHODS]
    kept = guarded(routes, AllowEverything(), lambda api: None)
    assert all(a is b for a, b in zip(routes, kept, strict=True))


@requirement("AlterIsr needs the CLUSTER_ACTION permission")
@pytest.mark.parametrize("method", [each for each in UNARY if isinstance(RULES[each.path], OnCluster)], ids=short)
async def test_r_31_a_request_as_a_whole_is_refused_in_its_own_error_field(method: Any) -> None:
    authorizer = Denying()
    handler, inner, counted = behind(method, authorizer)
    answer = await handler(sample(method.request, "t"), CALLER)
    assert answer.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert getattr(answer, "error_message", "Kafka-cluster").lower().find("cluster") >= 0
    assert inner.got == [] and counted == [short(method)]
    assert authorizer.asked == [(ANONYMOUS, RULES[method.path].operation, CLUSTER)]
    assert decode(method.response, encode(answer)) == answer


@requirement("AlterIsr needs the CLUSTER_ACTION permission")
@pytest.mark.parametrize(
    "method",
    [each for each in METHODS if isinstance(each, Bidi) and isinstance(RULES[each.path], OnCluster)],
    ids=short,
)
async def test_r_31_a_stream_ends_with_the_error(method: Any) -> None:
    handler, inner, counted = behind(method, Denying())
    with pytest.raises(TidelogError, match=f"{RULES[method.path].operation.value} on the cluster") as caught:
        await handler(object(), CALLER)
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert inner.got == [] and counted == [short(method)]


ON_TOPICS = [each for each in UNARY if isinstance(RULES[each.path], OnTopics)]


@pytest.mark.parametrize("method", ON_TOPICS, ids=short)
async def test_r_29_each_item_of_a_denied_topic_is_refused_and_the_others_are_done_in_order(method: Any) -> None:
    rule: Any = RULES[method.path]
    authorizer = Denying(lambda _, resource: resource.name == SECRET)
    handler, inner, counted = behind(method, authorizer)
    names = (SECRET, "a", SECRET, "b")
    (one,) = getattr(sample(method.request, "t"), rule.items)
    items = tuple(name if isinstance(one, str) else _named(one, name) for name in names)
    request = dataclasses.replace(sample(method.request, "t"), **{rule.items: items})
    answer = await handler(request, CALLER)
    results = getattr(answer, rule.results)
    denied, fine = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE
    assert [(_topic(each), each.error_code) for each in results] == list(
        zip(names, (denied, fine, denied, fine), strict=True)
    )
    assert SECRET in getattr(results[0], "error_message", SECRET)
    assert getattr(results[0], "partition", 3) in (3, -1)
    assert [tuple(map(_topic, getattr(got, rule.items))) for got in inner.got] == [("a", "b")]
    assert counted == [short(method)]
    assert set(authorizer.asked) == {
        (ANONYMOUS, rule.operation, Resource(ResourceType.TOPIC, name)) for name in (SECRET, "a", "b")
    }
    assert decode(method.response, encode(answer)) == answer


@pytest.mark.parametrize("method", ON_TOPICS, ids=short)
async def test_r_29_where_nothing_is_allowed_nobody_is_asked_to_do_anything(method: Any) -> None:
    rule: Any = RULES[method.path]
    handler, inner, _ = behind(method, Denying())
    answer = await handler(sample(method.request, "t"), CALLER)
    codes = [each.error_code for each in getattr(answer, rule.results)]
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] and inner.got == []


@pytest.mark.parametrize("method", [each for each in UNARY if isinstance(RULES[each.path], Shown)], ids=short)
async def test_r_29_a_denied_topic_is_not_shown_and_who_names_it_is_told(method: Any) -> None:
    rule: Any = RULES[method.path]
    counted: list[str] = []
    (one,) = getattr(sample(method.response, "t"), rule.results)
    full = dataclasses.replace(
        sample(method.response, "t"), **{rule.results: tuple(_named(one, name) for name in ("a", SECRET, "b"))}
    )

    async def everything(request: Any, _: Any) -> Any:
        return full

    (route,) = guarded([Route(method, everything)], Denying(lambda _, r: r.name == SECRET), counted.append)
    everything_asked = dataclasses.replace(sample(method.request, "t"), **{rule.asked: ()})
    answer: Any = await route.handler(everything_asked, CALLER)  # type: ignore[arg-type]
    assert [_topic(each) for each in getattr(answer, rule.results)] == ["a", "b"]
    named = dataclasses.replace(sample(method.request, "t"), **{rule.asked: ("a", SECRET, "b")})
    answer = await route.handler(named, CALLER)  # type: ignore[arg-type]
    shown = {_topic(each): each for each in getattr(answer, rule.results)}
    assert shown[SECRET].error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    told = {name: getattr(shown[SECRET], name, None) for name in ("topic_id", "partitions", "configs")}
    assert not any(told.values()), told
    assert shown["a"].error_code is shown["b"].error_code is ErrorCode.NONE
    assert counted == [short(method)] * 2


def test_every_route_of_a_controller_can_be_guarded() -> None:
    routes = ControllerRoutes(lambda: None, *([None] * 4)).routes()  # type: ignore[arg-type]
    assert len(guarded(routes, Denying(), lambda api: None)) == len(routes)


async def test_r_29_a_produce_stream_answers_denied_topics_request_by_request() -> None:
    def asked(*topics: str) -> m.ProduceRequest:
        parts = [m.ProducePartition(topic=t, partition=i, leader_epoch=-1) for i, t in enumerate(topics)]
        return m.ProduceRequest(acks=-1, timeout_ms=1, partitions=tuple(parts))

    requests = [asked("a", SECRET), asked("b"), asked(SECRET, SECRET), None]
    written: list[m.ProduceAnswers] = []
    seen: list[list[str]] = []

    class Wire:
        async def read(self) -> Any:
            return requests.pop(0)

        async def write(self, message: Any) -> None:
            written.append(message)

    def done(request: m.ProduceRequest) -> m.ProduceResponse:
        one = sample(m.ProduceResult, "t")
        return m.ProduceResponse(
            results=tuple(dataclasses.replace(one, topic=p.topic, partition=p.partition) for p in request.partitions)
        )

    async def inner(stream: Any, _: Any) -> None:
        answers = []
        while (request := await stream.read()) is not None:
            seen.append([part.topic for part in request.partitions])
            answers.append(m.ProduceAnswer(number=len(seen), response=done(request)))
        await stream.write(m.ProduceAnswers(answers=tuple(answers)))

    counted: list[str] = []
    denying = Denying(lambda _, resource: resource.name == SECRET)
    (route,) = guarded([Route(s.REPLICA_SERVICE_PRODUCE_STREAM, inner)], denying, counted.append)
    handler: Any = route.handler
    await handler(Wire(), CALLER)
    assert seen == [["a"], ["b"], []] and counted == ["ProduceStream"] * 2
    denied, fine = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE
    results = [[(r.topic, r.partition, r.error_code) for r in a.response.results] for a in written[0].answers]
    assert results == [
        [("a", 0, fine), (SECRET, 1, denied)],
        [("b", 0, fine)],
        [(SECRET, 0, denied), (SECRET, 1, denied)],
    ]
