"""Hostile requests, made from the descriptors of proto/, and the steps of the event loop counted while they are served.

They go as bytes through the handlers that gRPC would call, so that the decoder, the handler and the answer are the real ones.
"""

import asyncio
import dataclasses
import sys
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from google.protobuf.descriptor import FieldDescriptor

from helpers.wide import lists, wide
from tidelog import values
from tidelog.errors import ErrorCode
from tidelog.ports.net import Bidi, Unary
from tidelog.runtime.responses import ResponseBudget
from tidelog.runtime.rpc_options import Limits
from tidelog.runtime.rpc_server import _bidi_handler, _unary_handler
from tidelog.testing.loop import SimLoop
from tidelog.testing.net import SimServer
from tidelog.wire import codec, limits, services

Method = Unary[Any, Any] | Bidi[Any, Any]
METHODS: Final[list[Method]] = [each for each in vars(services).values() if isinstance(each, Unary | Bidi)]
FLOOR_CALLS: Final = 10_000
"""Calls that each step may make: some milliseconds."""
TIMES: Final = 10
"""A step may make so many times the calls that the largest request of its method needs."""
BASELINE_CALLS: Final = 300_000
"""A step that serves the largest request itself is ended after so many calls."""
PATIENCE_S: Final = 1.0
"""Virtual time after which a caller leaves."""
STREAM_S: Final = 0.05
"""The same of one that has a stream, which has no answer that ends it."""
LONG: Final = 40_000
"""Bytes of a long string: more than a string of Kafka's protocol can have."""
MANY: Final = 100
"""Items of a list whose number alone is no reason to refuse it."""
SMALL_BYTES: Final = 64 << 10
"""Most bytes of an answer to a hostile request."""
REASON_BYTES: Final = 4 << 10
"""Most bytes of the reason of a refusal: gRPC sends it as metadata, and takes 16 KiB of that, up to three for one byte."""
GROWTH_BYTES: Final = 64 << 20
"""Most memory that one request may take while it is served."""
LARGEST_GROWTH_BYTES: Final = 96 << 20
"""The same of the largest that is taken."""
_STRINGS: Final = ("", "x" * LONG, "\U0001f600" * (LONG // 4), "\0\r\n\x1b[2J/..")
_BYTES: Final = (b"", b"\xff" * LONG)
_BITS: Final = {
    FieldDescriptor.CPPTYPE_INT32: 32,
    FieldDescriptor.CPPTYPE_INT64: 64,
    FieldDescriptor.CPPTYPE_ENUM: 32,
}


class Request(NamedTuple):
    """A hostile request. `field` and `value` name what is hostile in it."""

    field: str
    value: str
    data: bytes


def empty(kind: type[Any]) -> Request:
    return Request("-", "empty", b"")


def extremes(kind: type[Any], around: "Fill") -> Iterator[Request]:
    """Requests with one field at one of its extremes; what is around it is filled so."""
    for path, message, value in _extreme_messages(kind, around):
        yield Request(path, f"{value} {around.told}", codec.encode(message))


def garbage() -> Iterator[Request]:
    """Bytes that are a message of no kind."""
    most = Limits().request_bytes
    yield Request("-", "bytes of endless numbers", b"\x80" * most)
    yield Request("-", "the beginnings of groups", b"\x0b" * most)
    yield Request("-", "one field again and again", b"\xf8\x07\x01" * (most // 3))
    yield Request("-", "a field that goes on behind the end", b"\x0a\xff\xff\xff\xff\x07")
    yield Request("-", "text that is none", b"\x0a\x02\xc3\x28\x12\x02\xc3\x28")


def full_lists(kind: type[Any]) -> Iterator[Request]:
    """The largest requests that are received, with one list full of empty items."""
    most = Limits().request_bytes
    for path in lists(kind):
        data = wide(kind, path, most // 2)
        yield Request(path, "4 MiB of empty items", data if len(data) >= most else wide(kind, path, most))


def at_limits(kind: type[Any]) -> Iterator[Request]:
    """Requests with one list at its limit."""
    for path in lists(kind):
        most = limits.LIMITS[kind][path]
        yield Request(path, f"{most} empty items", wide(kind, path, most))


class Fill(NamedTuple):
    """The values of fields that are not at an extreme."""

    told: str
    text: str
    items: int
    """Items of each list; with 0 what may be absent is absent."""

    def message(self, kind: type[Any]) -> Any:
        fields = {name: self._value(name, hint) for name, hint in typing.get_type_hints(kind).items()}
        return kind(**fields)

    def _value(self, name: str, hint: Any) -> Any:
        held = _held(hint)
        if typing.get_origin(hint) is tuple:
            return tuple(self._one(name, held) for _ in range(self.items))
        if hint is not held and not self.items:
            return None
        return self._one(name, held)

    def _one(self, name: str, held: Any) -> Any:
        if _is_message(held):
            return self.message(held)
        return self.text if held is str and name in _TOPICS else _DEFAULTS[held]


LEAST: Final = Fill("in an empty request", "", 0)
"""Every field has the value that is not sent."""
_TOPICS: Final = ("topic", "topics", "name", "names")
_DEFAULTS: Final[dict[Any, Any]] = {int: 0, bool: False, str: "", bytes: b"", ErrorCode: ErrorCode.NONE}


def about(topic: str) -> Fill:
    """Everything is about partition 0 of a topic, and nothing is absent."""
    return Fill(f"about topic {topic}", topic, 1)


def long_names(kind: type[Any]) -> Iterator[Request]:
    """Requests with many items in one list, and long strings in the messages around it: no answer repeats them for each item."""
    for path in lists(kind):
        message = _long(kind, path.split("."), min(limits.LIMITS[kind][path], MANY))
        yield Request(path, "many items, and long strings around them", codec.encode(message))


def _long(kind: type[Any], path: Sequence[str], count: int) -> Any:
    hints = typing.get_type_hints(kind)
    texts = [name for name, hint in hints.items() if hint is str]
    name, held = path[0], _held(hints[path[0]])
    if len(path) > 1:
        inner = _long(held, path[1:], count)
        value = (inner,) if typing.get_origin(hints[name]) is tuple else inner
    else:
        value = (LEAST._one("", held),) * count
    return dataclasses.replace(LEAST.message(kind), **dict.fromkeys(texts, "x" * LONG), **{name: value})


def _held(hint: Any) -> Any:
    """The type of one value of a field."""
    (held,) = set(typing.get_args(hint) or (hint,)) - {..., type(None)}
    return held


def _extreme_messages(kind: type[Any], around: Fill) -> Iterator[tuple[str, Any, str]]:
    base = around.message(kind)
    descriptor: Any = codec._pb_class(kind).DESCRIPTOR
    for name, hint in typing.get_type_hints(kind).items():
        many = typing.get_origin(hint) is tuple
        for path, value, text in _extreme_values(_held(hint), descriptor.fields_by_name[name], around):
            yield f"{name}{path}", dataclasses.replace(base, **{name: (value,) if many else value}), text


def _extreme_values(held: type[Any], field: FieldDescriptor, around: Fill) -> Iterator[tuple[str, Any, str]]:
    if _is_message(held):
        yield "", around.message(held), "one"
        for path, message, text in _extreme_messages(held, around):
            yield f".{path}", message, text
        return
    found: tuple[Any, ...]
    if held is str:
        found = _STRINGS
    elif held is bytes:
        found = _BYTES
    elif held is bool:
        found = (False, True)
    else:
        bits = _BITS[field.cpp_type]
        found = (-(1 << bits - 1), -1, 0, (1 << bits - 1) - 1)
    value: Any
    for value in found:
        text = repr(value)
        yield "", value, text if len(text) < 40 else f"{len(value)} times {value[:1]!r}"


def _is_message(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, values.Message)


class LoopIsHeld(BaseException):
    """Ends a step that calls functions without end. No handler catches it."""


class StepCounter:
    """Counts the calls of functions, of Python and of C, in each step of a loop, and ends a step that makes too many."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self._loop = loop
        self._calls = 0
        self.limit = BASELINE_CALLS
        self.most = 0
        """Calls of the longest step since it was set to 0."""
        self.held: str | None = None
        """The function in which a step was ended."""

    def __enter__(self) -> "StepCounter":
        self._loop.after_step = self._step_ended
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._loop.after_step = None

    def _count(self, frame: Any, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self._calls += 1
            if self._calls > self.limit:
                self.held = self.held or frame.f_code.co_qualname
                self._calls = 0
                raise LoopIsHeld

    def _step_ended(self) -> None:
        self.most = max(self.most, self._calls)
        self._calls = 0
        if sys.getprofile() is None:  # it has raised
            sys.setprofile(self._count)


class _Aborted(Exception):
    """Raised by `abort`, as gRPC does."""


class Caller:
    """The context that gRPC gives to a handler. The caller sends `messages` on a stream, and reads all that is written."""

    def __init__(self, messages: Sequence[bytes] = ()) -> None:
        self._messages = list(messages)
        self._gone = asyncio.get_running_loop().create_future()
        self.answers: list[int] = []
        """Bytes of each answer."""
        self.refusal: tuple[str, str] | None = None
        """Status and reason."""

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def set_trailing_metadata(self, metadata: object) -> None: ...

    def add_done_callback(self, done: Any) -> None:
        done(None)

    def peer(self) -> str:
        return "ipv4:192.0.2.1:1"

    def time_remaining(self) -> float:
        return PATIENCE_S

    async def read(self) -> bytes:
        """Waits for ever behind the last message: this caller never says that it has ended."""
        if self._messages:
            return self._messages.pop(0)
        await self._gone
        raise AssertionError

    async def write(self, data: bytes) -> None:
        self.answers.append(len(data))

    async def abort(self, status: Any, reason: str) -> NoReturn:
        self.refusal = status.name, reason
        raise _Aborted


async def send(server: SimServer, method: Method, messages: Sequence[bytes]) -> Caller:
    """Calls the handler of a method as gRPC does, and leaves when it is answered or after PATIENCE_S."""
    node = server.node
    route = server.route(method)
    assert route is not None and node.process is not None
    loop = asyncio.get_running_loop()
    budget = ResponseBudget(loop.time, lambda peer: False)
    caller = Caller(messages)

    async def run() -> None:
        try:
            if isinstance(method, Bidi):
                await _bidi_handler(route, node.on_bug, budget)(None, caller)
            else:
                handler = _unary_handler(route, Limits().sent_bytes, node.on_bug, budget)
                caller.answers.append(len(await handler(messages[0], caller)))
        except (_Aborted, LoopIsHeld):
            pass

    task = loop.create_task(run(), context=node.process.context.copy())
    await asyncio.wait([task], timeout=STREAM_S if isinstance(method, Bidi) else PATIENCE_S)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_S)
    assert task.done(), "a handler whose caller has left goes on"
    if not task.cancelled():
        task.result()
    return caller
