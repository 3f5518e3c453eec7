"""Requests with more items than a server takes: refused by their count, with one error, before any item is made."""

import random
import typing
from dataclasses import replace
from typing import Any

import pytest

from helpers.cpu import calls_of
from helpers.memory import PeakMemory
from helpers.wide import LISTS, REQUESTS, field_bytes, wide
from tidelog import values
from tidelog.broker.control_plane import alter_isr
from tidelog.controller import parts
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.net import Bidi, Unary
from tidelog.runtime.rpc_options import Limits, status_of
from tidelog.sizes import ITEM_BYTES, PART_BYTES
from tidelog.wire import codec, limits, services
from tidelog.wire import messages as m
from tidelog.wire.codec import decode, encode
from tidelog.wire.outline import Outline

CALLS_MAX = 1_000
GROWTH_BYTES = 8 << 20
PADDING = field_bytes(1_000, bytes(PART_BYTES))
"""A field that is unknown. With it a request is large, and is counted before protobuf parses it."""
EMPTY_BYTES = 2  # of an empty item: a tag, and a length of 0


def test_every_list_of_every_request_has_a_limit() -> None:
    assert {(kind, path) for kind, found in limits.LIMITS.items() for path in found} == set(LISTS)


@pytest.mark.parametrize(("kind", "path"), LISTS, ids=lambda each: getattr(each, "__name__", each))
def test_a_request_full_of_empty_items_is_one_refusal(kind: type[Any], path: str) -> None:
    """A larger request is not received. No item is made: making one takes a call or more."""
    data = wide(kind, path, Limits().request_bytes // EMPTY_BYTES)
    refusals = []

    def refused() -> None:
        with pytest.raises(TidelogError) as caught:
            decode(kind, data)
        refusals.append(caught.value)

    codec.decoder(kind)
    memory = PeakMemory()
    assert calls_of(refused, with_c=True) < CALLS_MAX
    assert memory.growth_bytes < GROWTH_BYTES
    error = refusals[-1]
    assert status_of(error.code) == "INVALID_ARGUMENT" and len(error.message) < 200
    most = limits.LIMITS[kind][path]
    assert error.message.startswith(f"{path} holds ") and error.message.endswith(f", at most {most} are allowed")


@pytest.mark.parametrize(("kind", "path"), LISTS, ids=lambda each: getattr(each, "__name__", each))
def test_a_list_at_its_limit_is_taken(kind: type[Any], path: str) -> None:
    most = limits.LIMITS[kind][path]
    found = [decode(kind, wide(kind, path, most))]
    for name in path.split("."):
        inner = [getattr(each, name) for each in found]
        found = [item for items in inner for item in items] if isinstance(inner[0], tuple) else inner
    assert len(found) == most
    with pytest.raises(TidelogError, match=f"{path} holds {most + 1} entries, at most {most}") as caught:
        decode(kind, wide(kind, path, most + 1))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("kind", "path"), LISTS, ids=lambda each: getattr(each, "__name__", each))
def test_a_large_request_has_the_same_limits(kind: type[Any], path: str) -> None:
    most = limits.LIMITS[kind][path]
    outline = Outline(kind, codec._pb_class(kind).DESCRIPTOR)
    outline.check(wide(kind, path, most) + PADDING)
    for large in (wide(kind, path, most + 1) + PADDING, PADDING + wide(kind, path, most + 1)):
        with pytest.raises(TidelogError, match=f"{path} holds more than {most} entries, at most {most}") as caught:
            decode(kind, large)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def in_steps(kind: type[Any], data: bytes) -> tuple[Any, int]:
    """The message, and the number of pauses."""
    decoder, pauses = codec.step_decoder(kind), 0
    assert decoder is not None
    steps = decoder(data)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@pytest.mark.parametrize(
    ("kind", "path"),
    [(kind, path) for kind, path in LISTS if codec.step_decoder(kind)],
    ids=lambda each: getattr(each, "__name__", each),
)
@pytest.mark.parametrize("padding", [b"", PADDING], ids=["small", "large"])
def test_what_is_decoded_in_steps_is_the_same(kind: type[Any], path: str, padding: bytes) -> None:
    most = limits.LIMITS[kind][path]
    data = wide(kind, path, most) + padding
    found, pauses = in_steps(kind, data)
    assert found == decode(kind, data)
    is_kept = not padding and kind in (m.LeaderAndIsrRequest, m.UpdateMetadataRequest)
    if isinstance(first_of(found, path), values.Message) and not is_kept:  # the numbers of a list are made by one call
        assert pauses >= (1 + bool(padding)) * (most // codec.STEP_ITEMS)
    with pytest.raises(TidelogError, match=f"{path} holds .*{most}"):
        in_steps(kind, wide(kind, path, most + 1) + padding)


def first_of(message: Any, path: str) -> Any:
    for name in path.split("."):
        held = getattr(message, name)
        message = held[0] if isinstance(held, tuple) else held
    return message


def test_a_large_request_of_all_kinds_of_fields_is_taken() -> None:
    topic = m.TopicPartitions(topic="t" * 200, partitions=(0, 127, 128, 2**31 - 1, -1))
    request = m.ElectLeadersRequest(topics=(topic,) * 1_000, timeout_ms=2**31 - 1, candidates=(1, 2**31 - 1))
    fixed = codec._varint(1_000 << 3 | 1) + bytes(8) + codec._varint(1_001 << 3 | 5) + bytes(4)
    assert decode(m.ElectLeadersRequest, fixed + PADDING + encode(request)) == request
    for cut in (PADDING[:-1], PADDING + b"\x0a", PADDING + b"\x0a\x80"):
        with pytest.raises(TidelogError, match="not a ElectLeadersRequest"):
            decode(m.ElectLeadersRequest, cut)


def test_a_large_request_without_lists_is_looked_at_too() -> None:
    for kind in set(REQUESTS) - limits.LIMITS.keys():
        with pytest.raises(TidelogError, match="fields that are no lists"):
            decode(kind, (codec._varint(1_000 << 3) + b"\x01") * (PART_BYTES // 2))


def test_bytes_that_are_no_message_are_refused_as_such() -> None:
    rand = random.Random(1)
    for kind in (m.LeaderAndIsrRequest, m.ConsumerMessage, m.AlterIsrRequest):
        outline = Outline(kind, codec._pb_class(kind).DESCRIPTOR)
        for _ in range(5_000):
            outline.check(rand.randbytes(40))
    for unit in (b"\x80", b"\x0a\xff", b"\xff"):
        with pytest.raises(TidelogError, match=r"not a FetchRequest|fields that are no lists") as caught:
            decode(m.FetchRequest, unit * PART_BYTES * 2)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("kind", limits.LIMITS, ids=lambda kind: kind.__name__)
def test_a_field_that_comes_again_and_again_is_refused(kind: type[Any]) -> None:
    again = codec._varint(1_000 << 3) + b"\x01"
    decode(kind, again * 100 + PADDING)
    with pytest.raises(TidelogError, match="fields that are no lists"):
        decode(kind, again * (PART_BYTES // 2))


def test_the_items_of_all_inner_lists_count_together() -> None:
    topic = m.TopicPartitions(topic="t", partitions=tuple(range(limits.PARTITIONS // 2 + 1)))
    request = m.ElectLeadersRequest(topics=(topic, topic), timeout_ms=0)
    with pytest.raises(TidelogError, match=r"topics.partitions holds 10002 entries, at most 10000"):
        decode(m.ElectLeadersRequest, encode(request))


STATE_LISTS = [
    name for name, hint in typing.get_type_hints(m.PartitionState).items() if typing.get_origin(hint) is tuple
]


@pytest.mark.parametrize("name", STATE_LISTS)
@pytest.mark.parametrize("kind", [m.LeaderAndIsrRequest, m.UpdateMetadataRequest], ids=lambda kind: kind.__name__)
def test_lists_of_known_states_have_limits(kind: type[Any], name: str) -> None:
    """A state is decoded by itself there, and what it holds is kept."""
    inner, path = 25, f"partition_states.{name}"
    most, state = limits.LIMITS[kind][path], wide(kind, path, inner)
    states = state * (most // inner)
    assert len(states) < PART_BYTES
    assert sum(len(getattr(each, name)) for each in decode(kind, states).partition_states) == most
    with pytest.raises(TidelogError, match=f"{path} holds {most + inner} entries, at most {most}"):
        decode(kind, states + state)


@pytest.mark.parametrize("name", STATE_LISTS)
def test_a_state_with_long_lists_is_not_kept(name: str) -> None:
    """Else many of them, none above a limit, would stay in memory."""
    for count, is_kept in ((codec.STATE_ITEMS, True), (codec.STATE_ITEMS + 1, False)):
        data = wide(m.UpdateMetadataRequest, f"partition_states.{name}", count)
        first, second = (decode(m.UpdateMetadataRequest, data).partition_states[0] for _ in range(2))
        assert first == second and (first is second) is is_kept


@pytest.mark.parametrize("kind", [m.LeaderAndIsrRequest, m.UpdateMetadataRequest], ids=lambda kind: kind.__name__)
def test_states_in_several_places_count_together(kind: type[Any]) -> None:
    states, between = wide(kind, "partition_states", limits.TOLD // 2), wide(kind, "live_brokers", 1)
    with pytest.raises(TidelogError, match="partition_states holds 20001 entries, at most 20000"):
        decode(kind, states + between + states + wide(kind, "partition_states", 1))


def test_members_of_known_states_are_counted_too() -> None:
    """A state is decoded by itself there, and what it holds is kept."""
    isr = (m.IsrMember(broker_id=0, broker_epoch=0),) * 400
    states = tuple(
        m.PartitionState(
            topic="t", topic_id=bytes(16), partition=n, controller_epoch=1, leader=1, leader_epoch=1, partition_epoch=1, isr=isr,
        )
        for n in range(limits.MEMBERS // 400 + 1)
    )  # fmt: skip
    request = m.UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1,
        sequence=1,
        leader_throttle=0,
        follower_throttle=0,
        partition_states=states,
    )
    data = encode(request)
    assert len(data) < PART_BYTES
    with pytest.raises(TidelogError, match=r"partition_states.isr holds 40400 entries, at most 40000"):
        decode(m.UpdateMetadataRequest, data)


def test_answers_are_not_limited() -> None:
    """A client trusts its server, and has said how much it wants."""
    assert not {each.response for each in vars(services).values() if isinstance(each, Unary | Bidi)} & set(
        limits.LIMITS
    )


def test_parts_of_a_request_and_of_its_receivers() -> None:
    most = limits.PARTITIONS
    asked = [(item % 2, item) for item in range(2 * most + 2)]
    found = list(limits.parts_by(m.FetchRequest, asked))
    assert [(receiver, len(part)) for receiver, part in found] == [(0, most), (0, 1), (1, most), (1, 1)]
    assert sorted(item for _, part in found for item in part) == list(range(2 * most + 2))
    assert list(limits.parts(m.FetchRequest, [])) == []
    assert list(limits.parts_or_all(m.FetchOffsetsRequest, [])) == [()], "which stands for everything"


LONGEST: dict[type[Any], Any] = {
    m.ListOffsetsRequest: m.ListOffsetsPartition,
    m.FetchRequest: m.FetchPartition,
    m.OffsetForLeaderEpochRequest: m.EpochPartition,
    m.DeleteRecordsRequest: m.DeleteRecordsPartition,
    m.CommitOffsetsRequest: m.OffsetInfo,
    m.FetchOffsetsRequest: m.PartitionName,
    m.ClusterMetadataRequest: None,
    m.DescribeTopicsRequest: None,
    m.DescribeLogDirsRequest: None,
}


@pytest.mark.parametrize("kind", LONGEST, ids=lambda kind: kind.__name__)
def test_the_largest_part_fits_in_a_request(kind: type[Any]) -> None:
    """Names of topics have 249 characters, and ids 16 bytes; an offset has no metadata."""
    item = LONGEST[kind]
    values_of: dict[Any, Any] = {int: 2**31 - 1, bool: True, str: "n" * 249, bytes: bytes(16)}
    values_of[m.SearchStart | None] = m.SearchStart(offset=2**63 - 1)
    size = 252
    if item is not None:
        filled = {name: values_of[hint] for name, hint in typing.get_type_hints(item).items() if name != "metadata"}
        size = len(encode(item(**filled))) + 4
    part = next(limits.parts(kind, range(limits.OFFSETS)))
    assert len(part) * size < Limits().request_bytes


def test_what_servers_tell_each_other_is_taken_whole() -> None:
    assert PART_BYTES // ITEM_BYTES < limits.POSITIONS
    assert alter_isr.REQUEST_BYTES // (len("t") + 16 + 9 * alter_isr._INT) < limits.PARTITIONS
    told: dict[str, Any] = {
        "controller_id": 1,
        "controller_epoch": 1,
        "broker_epoch": 1,
        "sequence": 1,
    }
    throttles = {"leader_throttle": 0, "follower_throttle": 0}
    member = m.IsrMember(broker_id=1, broker_epoch=1)
    states = tuple(
        m.PartitionState(
            topic="t", topic_id=bytes(16), partition=n, controller_epoch=0, leader=0, leader_epoch=0, partition_epoch=0,
            isr=(member,), replicas=(1,),
        )
        for n in range(2 * limits.TOLD)
    )  # fmt: skip
    states += (replace(states[0], isr=(member,) * 1_000), replace(states[0], replicas=(1,) * 1_000)) * 150
    stops = tuple(
        m.StopReplicaPartition(topic="t", topic_id=bytes(16), partition=n, leader_epoch=0)
        for n in range(2 * limits.TOLD)
    )
    names = tuple(f"{n:04x}" for n in range(1 << 16)) * 4
    for request in (
        m.LeaderAndIsrRequest(**told, **throttles, full=True, partition_states=states),
        m.UpdateMetadataRequest(**told, **throttles, partition_states=states, deleted_topics=names),
        m.StopReplicaRequest(**told, partitions=stops),
    ):
        cut = parts.parts(request)
        assert len(cut) > 1 and [decode(type(part), encode(part)) for part in cut] == cut
