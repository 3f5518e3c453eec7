"""Messages survive the wire, also wrong and unknown ones; and the codec is quick enough for the data plane."""

import dataclasses
import types
import typing
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.net import Bidi, Unary
from tidelog.wire import messages as m
from tidelog.wire import services
from tidelog.wire.codec import JOIN_BYTES, MESSAGE_TYPES, SERVICE_NAMES, decode, encode
from tidelog.wire.pb import common_pb2, control_pb2, replica_pb2

BATCH = bytes(range(256)) * 256


def values(hint: Any, int_bits: dict[str, int], name: str) -> st.SearchStrategy[Any]:
    if typing.get_origin(hint) is tuple:
        return st.lists(values(typing.get_args(hint)[0], int_bits, name), max_size=3).map(tuple)
    if dataclasses.is_dataclass(hint):
        return messages(hint)
    if hint is int:
        return st.integers(-(2 ** int_bits[name]), 2 ** int_bits[name] - 1)
    plain = {bool: st.booleans(), str: st.text(max_size=9), bytes: st.binary(max_size=9)}
    return st.sampled_from(ErrorCode) if hint is ErrorCode else plain[hint]


def messages(kind: Any) -> st.SearchStrategy[Any]:
    descriptor = next(
        f.message_types_by_name[kind.__name__] for f in files() if kind.__name__ in f.message_types_by_name
    )
    bits = {f.name: 63 if f.type == f.TYPE_INT64 else 31 for f in descriptor.fields}
    hints = typing.get_type_hints(kind)
    plain = {name: values(hint, bits, name) for name, hint in hints.items() if not isinstance(hint, types.UnionType)}

    def of_one(oneof: Any) -> st.SearchStrategy[dict[str, Any]]:
        """At most one of its fields."""
        bodies = {field.name: typing.get_args(hints[field.name])[0] for field in oneof.fields}
        chosen = [st.fixed_dictionaries({name: values(body, bits, name)}) for name, body in bodies.items()]
        return st.one_of(st.just({}), *chosen)

    def built(*parts: dict[str, Any]) -> Any:
        return kind(**{name: found for part in parts for name, found in part.items()})

    return st.builds(built, st.fixed_dictionaries(plain), *map(of_one, descriptor.oneofs))


def files() -> list[Any]:
    pool = common_pb2.DESCRIPTOR.pool
    names = ("admin", "common", "control", "controller", "coordinator", "replica", "watch")
    return [pool.FindFileByName(f"tidelog/v1/{name}.proto") for name in names]


def test_every_message_of_proto_has_a_codec() -> None:
    assert {k.__name__ for k in MESSAGE_TYPES} == {n for f in files() for n in f.message_types_by_name}
    assert len(MESSAGE_TYPES) > 50


@requirement("AlterIsr is answered as a whole and for each partition")
@requirement("AlterIsr carries the wanted state of each partition")
@requirement("Topic, partition and offset form one value")
@requirement("Version, correlation and client ids need no request header")
@pytest.mark.parametrize("kind", MESSAGE_TYPES, ids=lambda k: k.__name__)
def test_a_message_survives_the_wire(kind: Any) -> None:
    @settings(max_examples=20)
    @given(messages(kind))
    def check(message: Any) -> None:
        data = encode(message)
        assert decode(kind, data) == message
        pb = next(f for f in files() if kind.__name__ in f.message_types_by_name)
        generated = pb.pool.FindMessageTypeByName(f"tidelog.v1.{kind.__name__}")._concrete_class
        assert generated.FromString(data).SerializeToString() == data, "not the bytes of the .proto"

    check()


def test_an_unknown_error_number_is_an_unknown_error() -> None:
    data = replica_pb2.EpochEndOffset(error_code=4711).SerializeToString()
    assert decode(m.EpochEndOffset, data).error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_what_a_newer_process_added_is_dropped() -> None:
    data = encode(m.LivenessPong(broker_id=1, broker_epoch=2)) + b"\xfa\x3f\x03new"
    assert decode(m.LivenessPong, data) == m.LivenessPong(broker_id=1, broker_epoch=2)


def test_a_missing_inner_message_reads_as_zeros() -> None:
    found = decode(m.AlterIsrPartition, b"")
    assert found.leader_and_isr == m.LeaderAndIsr(leader=0, leader_epoch=0, current_zk_version=0)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe"])
def test_garbage_is_named(data: bytes) -> None:
    with pytest.raises(TidelogError, match="not a ProduceRequest") as caught:
        decode(m.ProduceRequest, data)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


METHODS = [method for name, method in vars(services).items() if name.isupper() and isinstance(method, Unary | Bidi)]


@pytest.mark.parametrize("garbage", [b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x0f", b"\x08" + b"\x80" * 12, b"\x22\x05ab"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_garbage_is_no_request_of_any_method(method: Unary[Any, Any] | Bidi[Any, Any], garbage: bytes) -> None:
    with pytest.raises(TidelogError, match=f"not a {method.request.__name__}") as caught:
        decode(method.request, garbage)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_number_that_does_not_fit_is_named() -> None:
    with pytest.raises(TidelogError, match=r"LivenessPong.*range.*9223372036854775808") as caught:
        encode(m.LivenessPong(broker_id=1, broker_epoch=2**63))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def state(partition: int, replicas: int = 3) -> m.PartitionState:
    return m.PartitionState(
        topic="t", topic_id=b"i" * 16, partition=partition, controller_epoch=1, leader=2, leader_epoch=3, partition_epoch=4,
        isr=tuple(m.IsrMember(broker_id=n, broker_epoch=100 + n) for n in range(replicas)), replicas=tuple(range(replicas)),
    )  # fmt: skip


def told(*states: m.PartitionState) -> m.LeaderAndIsrRequest:
    return m.LeaderAndIsrRequest(
        leader_throttle=0,
        follower_throttle=0,
        controller_id=1,
        controller_epoch=300,
        broker_epoch=2**40,
        full=True,
        partition_states=states,
        sequence=7,
        more=True,
    )


def test_a_state_in_several_requests_is_decoded_once() -> None:
    first = decode(m.LeaderAndIsrRequest, encode(told(state(0), state(1))))
    news = m.UpdateMetadataRequest(
        leader_throttle=0,
        follower_throttle=0,
        controller_id=1,
        controller_epoch=1,
        broker_epoch=5,
        sequence=8,
        partition_states=(state(1), state(2)),
    )
    again = decode(m.UpdateMetadataRequest, encode(news))
    assert again == news and again.partition_states[0] is first.partition_states[1]


@pytest.mark.parametrize("replicas", [0, 1, 8, 40, 2000], ids=lambda n: f"{n} replicas")
def test_states_of_any_length_are_found(replicas: int) -> None:
    """Lengths of one, two and three bytes."""
    message = told(state(0), state(1, replicas), state(2))
    assert decode(m.LeaderAndIsrRequest, encode(message)) == message


def test_states_that_lie_apart_are_all_read_and_in_order() -> None:
    """As protobuf reads it: a message behind a message is merged with it, and fields may come in any order."""
    unknown = b"\x80\x08\x2a"  # number 128, with the states' tag for a value
    for data in (encode(told(state(0))) + unknown + encode(told(state(1))), unknown + encode(told(state(0), state(1)))):
        assert decode(m.LeaderAndIsrRequest, data) == told(state(0), state(1))


def test_a_request_that_is_cut_off_is_read_as_protobuf_reads_it() -> None:
    data = encode(told(state(0), state(1, 40)))
    generated = control_pb2.DESCRIPTOR.message_types_by_name["LeaderAndIsrRequest"]._concrete_class
    for end in range(len(data)):
        try:
            count = len(generated.FromString(data[:end]).partition_states)
        except DecodeError:
            with pytest.raises(TidelogError, match="not a"):
                decode(m.LeaderAndIsrRequest, data[:end])
        else:
            assert len(decode(m.LeaderAndIsrRequest, data[:end]).partition_states) == count


SIZES = st.lists(st.sampled_from([0, 1, 127, 128, JOIN_BYTES, 5 * JOIN_BYTES, 3 << 20]), max_size=4)


@given(sizes=SIZES, offset=st.integers(-(2**63), 2**63 - 1), topic=st.text(max_size=200))
def test_large_records_take_another_way_to_the_same_bytes(sizes: list[int], offset: int, topic: str) -> None:
    parts = [
        m.ReplicaChunk(
            topic=topic, partition=i, leader_epoch=-1, high_watermark=offset, log_start_offset=0, diverging_epoch=-1,
            diverging_end_offset=-1, offset=offset, dropped_to=0, error_code=ErrorCode.FENCED_LEADER_EPOCH, records=b"r" * size,
        )
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    message = m.ReplicaFetchResponse(chunk=offset, partitions=tuple(parts))
    data = encode(message)
    assert replica_pb2.ReplicaFetchResponse.FromString(data).SerializeToString() == data
    assert decode(m.ReplicaFetchResponse, data) == message
    with pytest.raises(TidelogError, match=r"range"):
        encode(dataclasses.replace(message, chunk=2**63))


def test_the_services_are_those_of_the_method_table() -> None:
    methods = [v for v in vars(services).values() if isinstance(v, Unary | Bidi)]
    assert {v.path.split("/")[1] for v in methods} == set(SERVICE_NAMES)
