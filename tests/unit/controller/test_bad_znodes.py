"""Foreign writes into our tree (reliability 7.2, ZK): no controller dies of them or acts on what it cannot read, and all is
well again once the znode is repaired."""

import json
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.ports.meta import Create, Delete, SetData
from tidelog.testing.meta import SimMeta
from tidelog.wire import znodes
from unit.controller.test_shell import cluster
from unit.controller.world import SESSION_S, World

T0 = TopicPartition("t", 0)

GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"junk",
    "bytes": b"\xff\x00\xfe",
    "a list": b"[]",
    "half of it": b'{"version":1,"leader":1,"lead',
    "another layout": b'{"v":2}',
    "deep": b"[" * 50_000,
    "a number": b"7",
}


def changed(data: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(data), **fields}).encode()


async def foreigner(w: World) -> SimMeta:
    client = w.zookeeper.client()
    await client.start()
    return client


STATE, TOPIC, CONFIG = znodes.state_path("t", 0), znodes.topic_path("t"), znodes.topic_config_path("t")
DAMAGE: list[tuple[str, str, Any]] = [
    *((path, what, data) for path in (STATE, TOPIC) for what, data in GARBAGE.items()),
    # Right by its form, and nothing that a broker could be told or that could have been stored by us.
    (STATE, "leader epoch too large", {"leader_epoch": 2**40}),
    (STATE, "leader epoch below -1", {"leader_epoch": -5}),
    (STATE, "leader below -1", {"leader": -2}),
    (STATE, "broker epoch too large", {"isr": [[1, 2**70]]}),
    (STATE, "broker epoch is text", {"isr": [["1", "5"]]}),
    (STATE, "fractions", {"isr": [[1.5, 5]]}),
    (STATE, "a broker twice", {"isr": [[1, 5], [1, 6]]}),
    (STATE, "negative broker", {"isr": [[-1, 5]]}),
    (STATE, "controller epoch too large", {"controller_epoch": 2**31}),
    (TOPIC, "a replica twice", {"partitions": {"0": [1, 1, 2]}}),
    (TOPIC, "negative replica", {"partitions": {"0": [-1, 2]}}),
    (TOPIC, "replica too large", {"partitions": {"0": [2**40]}}),
    (TOPIC, "replica is text", {"partitions": {"0": ["1"]}}),
    (STATE, "leader outside the ISR", {"leader": 3, "isr": [[1, 5]]}),
    (STATE, "missing", None),
]


@requirement("One controller elects leaders for all partitions")
@pytest.mark.parametrize(("path", "what", "damage"), DAMAGE, ids=[f"{p.rpartition('/')[2]}: {w}" for p, w, _ in DAMAGE])
async def test_a_new_controller_does_not_act_on_what_it_cannot_read_and_does_once_it_is_repaired(
    w: World, path: str, what: str, damage: Any
) -> None:
    await cluster(w)
    await w.create("t", partitions=1)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    w.kill_controller(1)
    before = {number: len(each.said) for number, each in w.brokers.items()}
    good = w.zookeeper.dump()[path].data
    client = await foreigner(w)
    if damage is None:
        await client.multi([Delete(path)])
    else:
        await client.multi([SetData(path, damage if isinstance(damage, bytes) else changed(good, **damage))])
    controller = await w.controller(2)
    await w.clock.sleep(SESSION_S + 3.0)
    assert not controller.active
    assert {number: len(each.said) for number, each in w.brokers.items()} == before, "brokers were told something"
    await client.multi([Create(path, good) if damage is None else SetData(path, good)])
    await w.until(lambda: controller.active, "it acts")
    assert await w.create("u", number=2) == [ErrorCode.NONE]
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")


@requirement("Every controller write checks the controller epoch")
@pytest.mark.parametrize("data", [b"", b"seven", b"-3", b"1.5", b"\xff", b"99999999999"])
async def test_a_damaged_controller_epoch_elects_nobody_until_it_is_repaired(w: World, data: bytes) -> None:
    await cluster(w)
    w.kill_controller(1)
    client = await foreigner(w)
    await client.multi([SetData(znodes.CONTROLLER_EPOCH, data)])
    controller = await w.controller(2)
    await w.clock.sleep(SESSION_S + 3.0)
    assert not controller.active
    await client.multi([SetData(znodes.CONTROLLER_EPOCH, b"41")])
    await w.until(lambda: controller.active, "it acts")
    assert w.zookeeper.dump()[znodes.CONTROLLER_EPOCH].data == b"42"


STRANGERS = {
    "01": None,
    "-1": None,
    "x": b"{}",
    "\u0661": None,
    "1e1": None,
    "99999999999": None,
    "7": b"junk",
    "8": b'{"version":1}',
}
"""Children of /brokers/ids that are no brokers; None: with the registration of broker 1 in it."""


@pytest.mark.parametrize("name", STRANGERS, ids=ascii)
@pytest.mark.parametrize("when", ["while it acts", "before it acts"])
async def test_a_foreign_registration_is_no_broker_and_harms_none(w: World, name: str, when: str) -> None:
    await cluster(w)
    await w.create("t", partitions=1)
    data = STRANGERS[name]
    client = await foreigner(w)
    registered = w.zookeeper.dump()[znodes.broker_path(1)].data
    acting = 1
    if when == "before it acts":
        w.kill_controller(1)
    await client.multi([Create(f"{znodes.BROKER_IDS}/{name}", registered if data is None else data)])
    if when == "before it acts":
        acting = 2
        await w.active(2)
    lives = {number: each.epoch for number, each in w.brokers.items()}
    assert await w.create("u", number=acting) == [ErrorCode.NONE]
    await w.clock.sleep(1.0)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    for each in w.brokers.values():
        assert {b.broker_id: b.broker_epoch for b in each.said[-1].live_brokers} == lives  # type: ignore[union-attr]


async def test_thousands_of_foreign_registrations_are_no_brokers(w: World) -> None:
    """A list of children of 900 KB: it is read, and who is no broker is left out."""

    await cluster(w)
    client = await foreigner(w)
    paths = [f"{znodes.BROKER_IDS}/{f'{number:04}'.ljust(240, 'x')}" for number in range(3_700)]
    for at in range(0, len(paths), 740):
        await client.multi([Create(path, b"junk") for path in paths[at : at + 740]])
    assert await w.create("t", partitions=1) == [ErrorCode.NONE]
    w.kill_controller(1)
    await w.active(2)
    assert await w.create("u", number=2) == [ErrorCode.NONE]
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")


@requirement("One state znode holds leader, ISR and epochs of a partition")
@requirement("A deposed leader writes no ISR")
@requirement("A write of unknown outcome is read back before it is judged")
@pytest.mark.parametrize("what", GARBAGE)
async def test_a_state_that_somebody_else_has_written_ends_the_term_when_it_is_met(w: World, what: str) -> None:
    await cluster(w)
    await w.create("t", partitions=1)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    client = await foreigner(w)
    good = w.zookeeper.dump()[STATE].data
    await client.multi([SetData(STATE, GARBAGE[what])])
    leader = w.brokers[2].states[T0].leader
    w.kill_broker(leader)
    await w.until(lambda: not w.controllers[1].active, "the term is over")
    await client.multi([SetData(STATE, good)])
    await w.until(lambda: w.states()[T0].leader not in (leader, -1), "another leads")


async def test_foreign_znodes_beside_ours_are_left_alone(w: World) -> None:
    """Below a topic, a partition and the root: not ours, and in nobody's way until the topic is to go."""

    await cluster(w)
    await w.create("t", partitions=1)
    client = await foreigner(w)
    strange = ["/strange", f"{TOPIC}/strange", f"{znodes.partition_path('t', 0)}/strange", f"{STATE}/strange"]
    for path in strange:
        await client.multi([Create(path, b"junk")])
    w.kill_controller(1)
    await w.active(2)
    assert await w.create("u", number=2) == [ErrorCode.NONE]
    assert await w.delete("t", number=2) != [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await w.clock.sleep(1.0)
    assert w.controllers[2].active and "/strange" in w.zookeeper.dump()


async def test_a_topic_without_its_config_node_has_the_defaults(w: World) -> None:
    await cluster(w)
    await w.create("t", partitions=1)
    w.kill_controller(1)
    client = await foreigner(w)
    await client.multi([Delete(CONFIG)])
    await w.active(2)
    await w.until(lambda: w.everybody_knows(alive={1, 2, 3}), "everybody knows")
    assert await w.create("u", number=2) == [ErrorCode.NONE]


async def test_settings_that_belong_to_no_topic_are_replaced(w: World) -> None:
    await cluster(w)
    client = await foreigner(w)
    await client.multi([Create(CONFIG, b"junk")])
    assert await w.create("t", partitions=1) == [ErrorCode.NONE]
    assert znodes.decode_topic_config("t", w.zookeeper.dump()[CONFIG].data) == {}
