"""Znode codecs: what is written is read back, unknown fields are ignored, garbage is named."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.ids import BrokerId
from tidelog.release import Release
from tidelog.sizes import UNREGISTERED, Carried
from tidelog.wire import znodes
from tidelog.wire.messages import IsrMember, Listener

INT32_MAX = 2**31 - 1
members = st.builds(IsrMember, broker_id=st.integers(0, INT32_MAX), broker_epoch=st.integers(0, 2**63 - 1))


@st.composite
def drawn_states(draw: st.DrawFn) -> znodes.StoredState:
    isr = draw(st.lists(members, min_size=1, max_size=5, unique_by=lambda member: member.broker_id))
    return znodes.StoredState(
        leader=BrokerId(draw(st.sampled_from([-1, *(member.broker_id for member in isr)]))),
        leader_epoch=draw(st.integers(0, INT32_MAX - 1)),
        isr=tuple(isr),
        controller_epoch=draw(st.integers(0, INT32_MAX)),
        recovering=draw(st.booleans()),
    )


states = drawn_states()


@requirement("One state znode holds leader, ISR and epochs of a partition")
@requirement("ZooKeeper stores the current leader and ISR")
@requirement("Leader and ISR and epoch live in one znode")
@given(states)
def test_leader_isr_and_epoch_live_in_one_znode(state: znodes.StoredState) -> None:
    data = znodes.encode_state(state)
    assert znodes.decode_state("t", 0, data) == state
    # Hand-made JSON is JSON: what json.dumps would have written.
    found = json.loads(data)
    assert found["isr"] == [[m.broker_id, m.broker_epoch] for m in state.isr]
    epochs = state.leader_epoch, state.controller_epoch
    assert (found["leader"], found["leader_epoch"], found["controller_epoch"]) == (state.leader, *epochs)


@requirement("A broker registers its address in an ephemeral znode")
@requirement("ZooKeeper lists brokers, topics and their partitions")
def test_a_registration_comes_back() -> None:
    registration = znodes.BrokerRegistration(
        carried=Carried(5_000_000, 60_000_000),
        broker_id=BrokerId(3),
        listeners=(Listener(name="INTERNAL", host="b3", port=9092), Listener(name="EXTERNAL", host="::1", port=1)),
        rack="r1",
        intact_since=znodes.INTACT_SINCE_NOW,
        attempt="abc",
        release=Release("0.3.0", 3, 2),
    )
    data = znodes.encode_broker(registration)
    assert znodes.decode_broker(3, data) == registration
    old = {key: value for key, value in json.loads(data).items() if key not in Carried._fields}
    assert znodes.decode_broker(3, json.dumps(old).encode()).carried == UNREGISTERED, "of release 0.2.0"


@requirement("The controller znode is ephemeral and names the controller")
def test_a_controller_registration_comes_back_and_names_its_address() -> None:
    registration = znodes.ControllerRegistration(1, "c1", 9090, "x", Release("0.3.0", 3, 2))
    back = znodes.decode_controller(znodes.encode_controller(registration))
    assert back == registration
    assert str(back.address) == "c1:9090"


@requirement("The topic znode holds the replicas of every partition")
@requirement("ZooKeeper lists brokers, topics and their partitions")
@requirement("The replicas of each partition are stored in ZooKeeper")
def test_a_topic_comes_back_in_partition_order() -> None:
    replicas = tuple((BrokerId(p % 3), BrokerId((p + 1) % 3)) for p in range(12))
    assignment = znodes.TopicAssignment(topic_id=b"0123456789abcdef", partitions=replicas)
    assert znodes.decode_topic("t", znodes.encode_topic(assignment)) == assignment


@requirement("The topic znode holds the replicas of every partition")
def test_moves_come_back_and_an_older_reader_takes_all_copies_for_replicas() -> None:
    one, two, three = BrokerId(1), BrokerId(2), BrokerId(3)
    moves = {1: znodes.Move((one, two), (three, one)), 0: znodes.Move((one,), (one,))}
    assignment = znodes.TopicAssignment(b"0123456789abcdef", ((one, two), (three, one, two)), moves)
    data = znodes.encode_topic(assignment)
    assert znodes.decode_topic("t", data) == assignment
    assert json.loads(data)["partitions"] == {"0": [1, 2], "1": [3, 1, 2]}
    assert b"moves" not in znodes.encode_topic(replace(assignment, moves={}))


def test_small_ones_come_back() -> None:
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("c-1")) == "c-1"
    assert znodes.decode_controller_epoch(znodes.encode_controller_epoch(7)) == 7
    assert znodes.decode_topic_config("t", znodes.encode_topic_config({"a.b": "c"})) == {"a.b": "c"}


def test_fields_of_a_newer_version_are_ignored() -> None:
    data = b'{"version":9,"leader":1,"leader_epoch":2,"isr":[[1,5]],"controller_epoch":3,"recovering":true}'
    assert znodes.decode_state("t", 0, data).leader_epoch == 2


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "Expecting value"),
        (b"[]", "not a JSON object"),
        (b'{"\xff', "decode"),
        (b'{"leader":1}', "'leader_epoch' is missing"),
        (b'{"leader":"1"}', "'leader' is not an integer"),
        (b'{"leader":true}', "'leader' is not an integer"),
        (b'{"leader":1,"leader_epoch":2,"isr":[],"controller_epoch":3}', "'isr' is empty"),
        (b'{"leader":1,"leader_epoch":2,"isr":[1],"controller_epoch":3}', "unpack"),
        (b'{"leader":1,"leader_epoch":2,"isr":7,"controller_epoch":3}', "'isr' is not a list"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_garbage_is_named_with_its_path(data: bytes, problem: str) -> None:
    with pytest.raises(znodes.BadZnode, match=problem) as caught:
        znodes.decode_state("t", 4, data)
    assert caught.value.path == "/brokers/topics/t/partitions/4/state"


@pytest.mark.parametrize(
    "data",
    [
        b'{"topic_id":"zz","partitions":{"0":[1]}}',
        b'{"topic_id":"00","partitions":{}}',
        b'{"topic_id":"00","partitions":{"0":[]}}',
        b'{"topic_id":"00","partitions":{"1":[1]}}',
        b'{"topic_id":"00","partitions":[1]}',
        b'{"topic_id":"00","partitions":{"0":[1]},"moves":[]}',
        b'{"topic_id":"00","partitions":{"0":[1]},"moves":{"0":[[1]]}}',
        b'{"topic_id":"00","partitions":{"0":[1]},"moves":{"0":[[1],[2]]}}',
        b'{"topic_id":"00","partitions":{"0":[1]},"moves":{"0":[[],[1]]}}',
        b'{"topic_id":"00","partitions":{"0":[1]},"moves":{"1":[[1],[1]]}}',
        b'{"topic_id":"00","partitions":{"0":[1]},"moves":{"-1":[[1],[1]]}}',
        b'{"topic_id":"00","partitions":{"0":[1,2]},"moves":{"0":[[1,1],[2]]}}',
    ],
)
def test_a_damaged_topic_is_named(data: bytes) -> None:
    with pytest.raises(znodes.BadZnode, match="/brokers/topics/t"):
        znodes.decode_topic("t", data)


@pytest.mark.parametrize("throttles", [(0, 0), (5, 0), (0, 2**63 - 1)])
def test_a_placement_is_read_as_it_was_written(throttles: tuple[int, int]) -> None:
    for planning in (False, True):
        placement = znodes.StoredPlacement((BrokerId(3),), *throttles, planning)
        assert znodes.decode_placement(znodes.encode_placement(placement)) == placement


def test_a_placement_of_whoever_knows_no_throttle_has_none() -> None:
    assert znodes.decode_placement(b'{"version":1,"draining":[2]}') == znodes.StoredPlacement((BrokerId(2),), 0, 0)


@pytest.mark.parametrize("key", ["leader_throttle", "follower_throttle"])
@pytest.mark.parametrize("value", ["-1", "9223372036854775808", '"1"', "true"])
def test_a_damaged_throttle_is_named(key: str, value: str) -> None:
    with pytest.raises(znodes.BadZnode, match=f"/admin/placement: '{key}' is"):
        znodes.decode_placement(b'{"version":1,"draining":[],"%b":%b}' % (key.encode(), value.encode()))


def test_a_damaged_epoch_is_named() -> None:
    with pytest.raises(znodes.BadZnode, match="/controller_epoch"):
        znodes.decode_controller_epoch(b"seven")


def test_parents_come_before_children() -> None:
    seen = {""}
    for path in znodes.PERSISTENT_PARENTS:
        assert path.rpartition("/")[0] in seen
        seen.add(path)


@requirement("ZooKeeper lists brokers, topics and their partitions")
@requirement("The controller znode is ephemeral and names the controller")
@requirement("One state znode holds leader, ISR and epochs of a partition")
@requirement("A broker registers its address in an ephemeral znode")
def test_znodes_are_where_the_documents_have_them() -> None:
    assert znodes.state_path("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert (znodes.CONTROLLER, znodes.CONTROLLER_EPOCH) == ("/controller", "/controller_epoch")
    assert (znodes.broker_path(7), znodes.topic_path("t")) == ("/brokers/ids/7", "/brokers/topics/t")


stored_heads = st.builds(
    znodes.StoredHead,
    generation=st.integers(0, INT32_MAX - 1),
    phase=st.sampled_from(["starting", "stable"]),
    members=st.dictionaries(
        st.text(max_size=20),
        st.builds(
            znodes.StoredMember,
            st.integers(1, INT32_MAX),
            st.integers(-(2**63), 2**63 - 1),
            st.booleans(),
            st.integers(0, 2**63 - 1),
        ),
        max_size=4,
    ),
    assignor=st.text(max_size=10),
    empty_since_ms=st.integers(-1, 2**63 - 1),
    began=st.none() | st.integers(0, 2**63 - 1),
)


def test_a_head_that_0_2_stored_is_read_and_kept() -> None:
    data = b'{"version":1,"generation":1,"phase":"stable","members":{"c":[6000,7,1]},"assignor":"","empty_since_ms":-1}'
    head = znodes.decode_head("g", data)
    assert head.members == {"c": znodes.StoredMember(6000, 7, static=True, admission=0)}
    assert json.loads(znodes.encode_head(head)) == json.loads(data) and head.began is None


@requirement("Consumer ids are stored with their group and not as znodes")
@given(stored_heads)
def test_a_group_comes_back(head: znodes.StoredHead) -> None:
    assert znodes.decode_head("g", znodes.encode_head(head)) == head


@requirement("Partition owners of a group are stored in persistent znodes")
@requirement("Committed offsets of a group are stored in ZooKeeper")
def test_an_owner_and_an_offset_come_back_from_the_documented_paths() -> None:
    owner = znodes.StoredOwner("c-0", "c", 7)
    assert znodes.decode_owner(znodes.owner_path("g", "t", 3), znodes.encode_owner(owner)) == owner
    offset = znodes.StoredOffset(2**62, -1, 'what "I" did', b"\x00" * 16)
    assert b"topic_id" not in znodes.encode_offset(offset._replace(topic_id=b"")), "as 0.2.0 writes it"
    assert znodes.decode_offset(znodes.offset_path("g", "t", 3), znodes.encode_offset(offset)) == offset
    assert znodes.owner_path("g", "t", 3) == "/consumers/g/owners/t/3"
    assert znodes.offset_path("g", "t", 3) == "/consumers/g/offsets/t/3"


@requirement("The coordinator znode is ephemeral and names its broker")
def test_the_coordinator_znode_names_its_broker() -> None:
    registration = znodes.CoordinatorRegistration(BrokerId(3), "x")
    data = znodes.encode_coordinator(registration)
    assert znodes.decode_coordinator(data) == registration
    assert json.loads(data)["broker_id"] == 3
    assert (znodes.coordinator_path(0), znodes.coordinator_epoch_path(0)) == (
        "/consumers/coordinator",
        "/consumers/coordinator_epoch",
    )
    assert (znodes.coordinator_path(2), znodes.coordinator_epoch_path(2)) == (
        "/consumers/shards/2/coordinator",
        "/consumers/shards/2/epoch",
    )
    assert znodes.decode_shards(znodes.encode_shards(8)) == 8


@pytest.mark.parametrize(
    ("damaged", "field"),
    [
        (b'{"generation":1,"phase":"stable","assignor":"","empty_since_ms":-1}', "members"),
        (b'{"generation":1,"phase":"stable","members":{"c":3},"assignor":"","empty_since_ms":-1}', "c"),
        (b'{"generation":2147483647,"phase":"stable","members":{},"assignor":"","empty_since_ms":-1}', "generation"),
        (b'{"generation":1,"phase":2,"members":{},"assignor":"","empty_since_ms":-1}', "phase"),
    ],
)
def test_a_damaged_group_is_named(damaged: bytes, field: str) -> None:
    with pytest.raises(znodes.BadZnode, match=rf"/consumers/g: '{field}'"):
        znodes.decode_head("g", damaged)


@pytest.mark.parametrize("damaged", [b"", b"[]", b'{"offset":-1,"leader_epoch":0,"metadata":""}', b'{"offset":1}'])
def test_a_damaged_offset_is_named(damaged: bytes) -> None:
    path = znodes.offset_path("g", "t", 0)
    with pytest.raises(znodes.BadZnode, match=path):
        znodes.decode_offset(path, damaged)


@pytest.mark.parametrize("shards", [0, znodes.SHARDS_MAX + 1])
def test_a_number_of_shards_that_no_broker_stores_is_refused(shards: int) -> None:
    with pytest.raises(znodes.BadZnode, match="shards"):
        znodes.decode_shards(znodes.encode_shards(shards))
