"""The messages of `tidelog.wire.messages` to protobuf bytes and back; the only importer of the generated classes.

For each message class two functions are compiled once from its type hints and its descriptor, the way `dataclasses` compiles
an `__init__`: a call then costs attribute reads and one pass of the C parser. Nested messages become nested code.
"""

import dataclasses
import functools
import importlib
import pkgutil
import types
import typing
from collections.abc import Callable, Collection, Generator, Iterator
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from tidelog import values
from tidelog.errors import ErrorCode, TidelogError
from tidelog.sizes import PART_BYTES
from tidelog.wire import limits, messages, pb
from tidelog.wire.outline import Outline

M = TypeVar("M")

_FILES: Final = [importlib.import_module(f"{pb.__name__}.{m.name}") for m in pkgutil.iter_modules(pb.__path__)]

SERVICE_NAMES: Final = tuple(sorted(s.full_name for file in _FILES for s in file.DESCRIPTOR.services_by_name.values()))
"""Every service of proto/. Importing this module has put their descriptors into protobuf's default pool."""

MESSAGE_TYPES: Final = tuple(
    each
    for each in vars(messages).values()
    if isinstance(each, type) and issubclass(each, values.Message) and each is not values.Message
)

JOIN_BYTES: Final = 16 << 10
"""From this many bytes of records a partition, they are joined to the message instead of built into it."""

STEP_ITEMS: Final = 20_000
"""Items that a server makes of a request in one turn of the event loop: some 15 ms. A request to append holds fewer, so those
of a connection stay in their order."""

_WITH_RECORDS: Final = (messages.ProduceRequest, messages.FetchResponse, messages.ReplicaFetchResponse)

_WITH_STATES: Final = (messages.LeaderAndIsrRequest, messages.UpdateMetadataRequest)
_STATES: Final = "partition_states"
_STATES_TAG: Final = 5 << 3 | 2
"""Of that field in both of them."""
STATES_KEPT: Final = 1 << 15
"""Partition states whose bytes are kept: a controller tells each to several brokers, and tells each broker twice."""
_STATE_BYTES: Final = 1 << 10
STATE_ITEMS: Final = 32
"""A state that is longer, or has more items in its lists, is not kept: a byte of it may be 36 of memory."""

_CODES: Final = {int(code): code for code in ErrorCode}
"""A number that only a newer process knows is an unknown error here, and still an error."""
_ENCODERS: Final[dict[type[Any], Callable[[Any], bytes]]] = {}
_DECODERS: Final[dict[type[Any], Callable[[bytes], Any]]] = {}


def encode(message: Any) -> bytes:
    """The bytes that the .proto describes. TidelogError if a value does not fit its field."""
    return encoder(type(message))(message)


def decode(kind: type[M], data: bytes) -> M:
    """TidelogError INVALID_REQUEST if `data` is not a message of this kind, or a request with too many items in a list
    (`wire.limits`). Fields that it does not know are dropped."""
    return decoder(kind)(data)


def encoder(kind: type[M]) -> Callable[[M], bytes]:
    found = _ENCODERS.get(kind)
    if found is None:
        found = _ENCODERS[kind] = _compiled_encoder(kind)
    return found


def decoder(kind: type[M]) -> Callable[[bytes], M]:
    found = _DECODERS.get(kind)
    if found is None:
        found = _DECODERS[kind] = _compiled_decoder(kind)
    return found


def step_decoder(kind: type[M]) -> Callable[[bytes], Generator[None, None, M]] | None:
    """A decoder that pauses after each STEP_ITEMS items of lists, and raises what `decode` does. None for a kind of which one
    step makes all that a request may hold."""
    if max(limits.LIMITS.get(kind, {"": 0}).values()) <= STEP_ITEMS:
        return None
    parser, build = _Parser(kind), _builder(kind, in_steps=True)

    def run(data: bytes) -> Generator[None, None, M]:
        if kind in _WITH_STATES and len(data) <= PART_BYTES:
            return decode(kind, data)  # states are kept
        parsed = yield from parser.steps(data)
        found: M = yield from build(parsed)
        return found

    return run


def _compiled_encoder(kind: type[Any]) -> Callable[[Any], bytes]:
    to_bytes = build = _part_encoder(kind)
    if kind in _WITH_RECORDS:
        to_bytes = _joining(kind, build)
    elif kind in _WITH_STATES:
        to_bytes = _sharing(kind)

    def run(message: Any) -> bytes:
        try:
            data: bytes = to_bytes(message)
        except (ValueError, TypeError) as error:
            # A number out of its type's range comes from outside (an offset of 2**63); protobuf names it.
            raise TidelogError(f"{kind.__name__}: {error}", ErrorCode.INVALID_REQUEST) from error
        return data

    return run


def _joining(kind: type[Any], build: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Encodes large records past protobuf, which copies them three times; the bytes are the same (performance 4.2).

    They are if the records come last in a partition, and the partitions last in the message.
    """
    list_name = dataclasses.fields(kind)[-1].name
    part = typing.get_args(typing.get_type_hints(kind)[list_name])[0]
    pb_kind, pb_part = _pb_class(kind), _pb_class(part)
    list_tag, records_tag = _tag_of_last_bytes(pb_kind, list_name), _tag_of_last_bytes(pb_part, "records")
    head = _part_encoder(kind, {list_name})
    part_head = _part_encoder(part, {"records"})

    def run(message: Any) -> bytes:
        parts = getattr(message, list_name)
        size = len(parts[0].records) if len(parts) == 1 else sum([len(p.records) for p in parts])
        if size < JOIN_BYTES * max(len(parts), 1):
            return build(message)
        pieces = [head(message)]
        for each in parts:
            fields, records = part_head(each), each.records
            tail = records_tag + _varint(len(records)) if records else b""
            pieces += (list_tag + _varint(len(fields) + len(tail) + len(records)), fields, tail, records)
        return b"".join(pieces)

    return run


def _part_encoder(kind: type[Any], without: Collection[str] = ()) -> Callable[[Any], bytes]:
    names: dict[str, Any] = {"P": _pb_class(kind)}
    lines = ["def build(v0):", " p0 = P()", *_filling(kind, 0, " ", without), " return p0.SerializeToString()"]
    exec("\n".join(lines), names)
    found: Callable[[Any], bytes] = names["build"]
    return found


def _sharing(kind: type[Any]) -> Callable[[Any], bytes]:
    """Encodes a PartitionState once, however many requests carry it; the bytes are the same."""
    names = [field.name for field in dataclasses.fields(kind)]
    at = names.index(_STATES)
    before, after = _part_encoder(kind, names[at:]), _part_encoder(kind, names[: at + 1])
    assert _pb_class(kind).DESCRIPTOR.fields_by_name[_STATES].number == _STATES_TAG >> 3, (
        f"{_STATES} of {kind.__name__}"
    )

    def run(message: Any) -> bytes:
        return b"".join([before(message), *map(_framed_state, message.partition_states), after(message)])

    return run


class _NotKept(Exception):
    """Raised for a partition state that is decoded with its request."""


@functools.lru_cache(STATES_KEPT)
def _framed_state(state: messages.PartitionState) -> bytes:
    """With its tag and length."""
    data = encode(state)
    return bytes([_STATES_TAG]) + _varint(len(data)) + data


@functools.lru_cache(STATES_KEPT)
def _known_state(data: bytes) -> tuple[messages.PartitionState, int, int]:
    """The state, the members of its ISR, and the items of its other lists. _NotKept if there are many."""
    state = decode(messages.PartitionState, data)
    lists = (state.replicas, state.adding_replicas, state.removing_replicas, state.offline_replicas)
    members, others = len(state.isr), sum(map(len, lists))
    if members + others > STATE_ITEMS:
        raise _NotKept  # the cache keeps no exceptions
    return state, members, others


def _split_states(data: bytes) -> tuple[list[messages.PartitionState], bytes]:
    """The first run of states and the bytes around it.

    No states where what comes first is not as we write it, or is more than a request may hold: then all of it is counted.
    """
    states: list[messages.PartitionState] = []
    at, end, members, others = 0, len(data), 0, 0
    try:
        while at < end and data[at] != _STATES_TAG:
            if data[at] & 0x87:  # no integer, or a tag of several bytes
                return [], data
            at += 2
            while data[at - 1] & 0x80:
                at += 1
        begin = at
        while at < end and data[at] == _STATES_TAG:
            size, at = data[at + 1], at + 2
            if size & 0x80:
                size, at = size & 0x7F | data[at] << 7, at + 1
            if size >= _STATE_BYTES or at + size > end:
                return [], data
            state, isr, held = _known_state(data[at : at + size])
            states.append(state)
            members, others = members + isr, others + held
            if len(states) > limits.TOLD or members > limits.MEMBERS or others > limits.REPLICAS:
                return [], data
            at += size
    except (IndexError, _NotKept):
        return [], data
    return states, data[:begin] + data[at:]


def _tag_of_last_bytes(kind: type[Message], name: str) -> bytes:
    """The tag of a length-delimited field; protobuf writes fields by number, so it must have the largest."""
    numbers = {f.name: f.number for f in kind.DESCRIPTOR.fields}
    assert numbers[name] == max(numbers.values()) < 16, f"{name} must be the last field of {kind.__name__}"
    return bytes([numbers[name] << 3 | 2])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _compiled_decoder(kind: type[M]) -> Callable[[bytes], M]:
    parse, build = _Parser(kind).parse, _builder(kind, in_steps=False)

    def run(data: bytes) -> M:
        found: M = build(parse(data))
        return found

    return _recognising(run) if kind in _WITH_STATES else run


class _Parser:
    """Bytes to a message of protobuf whose lists are no longer than they may be."""

    def __init__(self, kind: type[Any]) -> None:
        self._name = kind.__name__
        pb_class = _pb_class(kind)
        self._parse = pb_class.FromString
        self._counter = limits.ListCounter(kind) if kind in limits.LIMITS else None
        # The lists of answers have no limits. What has no list at all is refused if it repeats its fields again and again.
        is_limited = kind in limits.LIMITS or not limits.has_lists(kind)
        self._outline = Outline(kind, pb_class.DESCRIPTOR) if is_limited else None

    def parse(self, data: bytes) -> Message:
        if len(data) > PART_BYTES and self._outline is not None:
            self._outline.check(data)
        return self._parsed(data)

    def steps(self, data: bytes) -> Generator[None, None, Message]:
        """The same with pauses."""
        if len(data) > PART_BYTES and self._outline is not None:
            yield from self._outline.steps(data, STEP_ITEMS)
        return self._parsed(data)

    def _parsed(self, data: bytes) -> Message:
        try:
            found = self._parse(data)
        except DecodeError as error:
            raise TidelogError(f"not a {self._name}: {error}", ErrorCode.INVALID_REQUEST) from error
        if self._counter is not None:
            self._counter.check(found, len(data))
        return found


def _builder(kind: type[Any], *, in_steps: bool) -> Callable[[Message], Any]:
    """A message of protobuf to one of ours. In steps: a generator that returns it."""
    names: dict[str, Any] = {"code": _CODES.get, "unknown": ErrorCode.UNKNOWN_SERVER_ERROR}
    lines = [
        "def build(p0):",
        *([" n = 0"] if in_steps else ()),
        *_reading(kind, 0, " ", names, in_steps),
        " return v0",
    ]
    exec("\n".join(lines), names)
    build: Callable[[Message], Any] = names["build"]
    return build


def _recognising(decode_all: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Decodes a PartitionState once, however many requests carry it: the later ones get the same object."""

    def run(data: bytes) -> Any:
        if len(data) > PART_BYTES:
            return decode_all(data)
        states, rest = _split_states(data)
        message = decode_all(rest)
        if states and message.partition_states:  # of all together, too many may be here
            return decode_all(data)
        return dataclasses.replace(message, partition_states=(*states, *message.partition_states))

    return run


def _pb_class(kind: type[Any]) -> type[Message]:
    found: type[Message] = next(c for c in (getattr(f, kind.__name__, None) for f in _FILES) if c is not None)
    ours, theirs = [f.name for f in dataclasses.fields(kind)], [f.name for f in found.DESCRIPTOR.fields]
    assert ours == theirs, f"{kind.__name__}: {ours} in messages.py, {theirs} in proto/; run make proto"
    return found


def _filling(kind: type[Any], depth: int, indent: str, without: Collection[str] = ()) -> Iterator[str]:
    """Statements that set the fields of protobuf's p{depth} to those of v{depth}; what is set already is the default.

    A third faster than a dict given to the constructor, which converts the defaults too.
    """
    hints = typing.get_type_hints(kind)
    value, target, inner_value, inner_target = f"v{depth}", f"p{depth}", f"v{depth + 1}", f"p{depth + 1}"
    for field in dataclasses.fields(kind):
        name, hint = field.name, hints[field.name]
        if name in without:
            continue
        if typing.get_origin(hint) is tuple:
            (hint,) = set(typing.get_args(hint)) - {...}
            if _is_message(hint):
                yield f"{indent}for {inner_value} in {value}.{name}:"
                yield f"{indent} {inner_target} = {target}.{name}.add()"
                yield from _filling(hint, depth + 1, indent + " ")
            else:
                yield f"{indent}if x := {value}.{name}: {target}.{name}.extend(x)"
        elif (inner := _optional(hint)) is not None and not _is_message(inner):
            yield f"{indent}if (x := {value}.{name}) is not None: {target}.{name} = x"
        elif inner is not None:
            yield f"{indent}if ({inner_value} := {value}.{name}) is not None:"
            yield f"{indent} {inner_target} = {target}.{name}"
            yield f"{indent} {inner_target}.SetInParent()"
            yield from _filling(inner, depth + 1, indent + " ")
        elif _is_message(hint):
            yield f"{indent}{inner_value}, {inner_target} = {value}.{name}, {target}.{name}"
            yield f"{indent}{inner_target}.SetInParent()"
            yield from _filling(hint, depth + 1, indent)
        else:
            yield f"{indent}if x := {value}.{name}: {target}.{name} = x"


def _reading(kind: type[Any], depth: int, indent: str, names: dict[str, Any], in_steps: bool) -> Iterator[str]:
    """Statements that make v{depth} a `kind` with the fields of protobuf's p{depth}; fills in `names`. In steps: they count the
    items of lists in `n`, and yield after each STEP_ITEMS.

    It is made without its constructor, which takes as long as reading the fields: a message has no other duty than to hold
    them (`values.value`).
    """
    assert not hasattr(kind, "__post_init__"), f"{kind.__name__} is not made of its fields alone"
    hints = typing.get_type_hints(kind)
    names[kind.__name__], names["new"] = kind, object.__new__
    value, source, inner_value, inner_source = f"v{depth}", f"p{depth}", f"v{depth + 1}", f"p{depth + 1}"
    yield f"{indent}{value} = new({kind.__name__})"
    for field in dataclasses.fields(kind):
        name, hint = field.name, hints[field.name]
        if typing.get_origin(hint) is tuple:
            (hint,) = set(typing.get_args(hint)) - {...}
            if _is_message(hint):
                yield f"{indent}many{depth} = []"
                yield f"{indent}for {inner_source} in {source}.{name}:"
                if in_steps:
                    yield f"{indent} n += 1"
                    yield f"{indent} if not n % {STEP_ITEMS}: yield"
                yield from _reading(hint, depth + 1, indent + " ", names, in_steps)
                yield f"{indent} many{depth}.append({inner_value})"
                yield f"{indent}{value}.{name} = tuple(many{depth})"
            elif hint is ErrorCode:
                yield f"{indent}{value}.{name} = tuple([code(x, unknown) for x in {source}.{name}])"
            else:
                yield f"{indent}{value}.{name} = tuple({source}.{name})"
        elif (inner := _optional(hint)) is not None and not _is_message(inner):
            yield f"{indent}{value}.{name} = {source}.{name} if {source}.HasField({name!r}) else None"
        elif inner is not None:
            yield f"{indent}{inner_value} = None"
            yield f"{indent}if {source}.HasField({name!r}):"
            yield f"{indent} {inner_source} = {source}.{name}"
            yield from _reading(inner, depth + 1, indent + " ", names, in_steps)
            yield f"{indent}{value}.{name} = {inner_value}"
        elif _is_message(hint):
            yield f"{indent}{inner_source} = {source}.{name}"
            yield from _reading(hint, depth + 1, indent, names, in_steps)
            yield f"{indent}{value}.{name} = {inner_value}"
        elif hint is ErrorCode:
            yield f"{indent}{value}.{name} = code({source}.{name}, unknown)"
        else:
            yield f"{indent}{value}.{name} = {source}.{name}"


def _optional(hint: Any) -> type[Any] | None:
    """Returns the type that a field holds at most once; None for every other field."""
    if not isinstance(hint, types.UnionType):
        return None
    (inner,) = set(typing.get_args(hint)) - {type(None)}
    return typing.cast(type[Any], inner)


def _is_message(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, values.Message)
