"""Blocks of producer ids (KIP-730, HOLE-28): no id is given twice, whatever becomes of a write, an answer or a controller."""

import pytest

from helpers.requirements import requirement
from tidelog.controller.effects import ProducerIdsWrite, Resign
from tidelog.controller.events import Elected, ProducerIdsRequested, Snapshot
from tidelog.errors import ErrorCode
from tidelog.wire import messages as m
from tidelog.wire import znodes
from tidelog.wire.znodes import ProducerIdBlock
from unit.controller.harness import Harness, broker, writes


@pytest.fixture
def c() -> Harness:
    harness = Harness()
    harness.elected(brokers=[broker(1, 11), broker(2, 12)])
    return harness


def ask(c: Harness, broker_id: int = 1, broker_epoch: int | None = None) -> int:
    epoch = 10 + broker_id if broker_epoch is None else broker_epoch
    request = m.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
    return c._asked(lambda token: ProducerIdsRequested(request, token))[0]


def block(c: Harness, token: int) -> tuple[int, int]:
    answer = c.replies[token]
    assert answer.error_code is ErrorCode.NONE
    return answer.producer_id_start, answer.producer_id_len


@requirement("A producer batch that is sent again is stored once")
def test_blocks_follow_each_other_and_are_stored_before_they_are_given() -> None:
    c = Harness()
    c.elected(brokers=[broker(1, 11), broker(2, 12)])
    token = ask(c)
    assert c.in_flight == [ProducerIdsWrite(ProducerIdBlock(1, 0, 999), znodes.NO_VERSION)]
    assert token not in c.replies
    c.run()
    assert block(c, token) == (0, 1000)
    stored = znodes.decode_producer_ids(c.store.znodes[znodes.PRODUCER_IDS][0])
    assert stored == ProducerIdBlock(1, 0, 999)
    token = ask(c, 2)
    c.run()
    assert block(c, token) == (1000, 1000)


@requirement("A producer batch that is sent again is stored once")
def test_who_asks_during_a_write_gets_the_next_block(c: Harness) -> None:
    tokens = [ask(c, 1), ask(c, 2), ask(c, 1)]
    assert len(c.in_flight) == 1
    c.run()
    assert [block(c, token)[0] for token in tokens] == [0, 1000, 2000]


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize(("broker_id", "broker_epoch"), [(1, 10), (1, 12), (1, -1), (3, 13), (-1, 11)])
def test_a_broker_of_another_life_gets_none(c: Harness, broker_id: int, broker_epoch: int) -> None:
    token = ask(c, broker_id, broker_epoch)
    assert c.replies[token].error_code is ErrorCode.STALE_BROKER_EPOCH
    assert c.in_flight == []


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("applied", [True, False])
def test_a_block_of_unknown_outcome_is_given_to_nobody(c: Harness, applied: bool) -> None:
    token = ask(c)
    c.write(unknown=applied, lost=not applied)
    assert token not in c.replies
    c.run()
    assert block(c, token) == (1000, 1000)
    token = ask(c)
    c.run()
    assert block(c, token) == (2000, 1000)


@requirement("A producer batch that is sent again is stored once")
def test_a_block_that_somebody_else_stored_is_skipped(c: Harness) -> None:
    c.store.znodes[znodes.PRODUCER_IDS] = znodes.encode_producer_ids(ProducerIdBlock(9, 5000, 5999)), 4
    token = ask(c)
    c.run()
    assert block(c, token) == (6000, 1000)


@requirement("A producer batch that is sent again is stored once")
def test_the_next_controller_goes_on_behind_the_last_block(c: Harness) -> None:
    ask(c)
    c.run()
    data, version = c.store.znodes[znodes.PRODUCER_IDS]
    successor = Harness()
    successor.store = c.store
    successor.brokers = {1: broker(1, 11)}
    stored = (znodes.decode_producer_ids(data), version)
    successor.step(Elected(3, Snapshot((broker(1, 11),), (), (), stored)))
    token = ask(successor)
    successor.run()
    assert block(successor, token) == (1000, 1000)


def test_a_deposed_controller_gives_no_block(c: Harness) -> None:
    token = ask(c)
    c.store.fenced = True
    effects = c.write()
    assert any(isinstance(effect, Resign) for effect in effects)
    assert token not in c.replies


def test_ids_do_not_wrap(c: Harness) -> None:
    last = ProducerIdBlock(1, 2**63 - 1500, 2**63 - 501)
    c.store.znodes[znodes.PRODUCER_IDS] = znodes.encode_producer_ids(last), 0
    token = ask(c)
    c.run()
    assert c.replies[token].error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert writes(c.run()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"version":1,"broker":1,"block_start":"0"}',
        b'{"version":1,"broker":1,"block_start":0,"block_end":999}',
        b'{"version":1,"broker":1,"block_start":"9","block_end":"0"}',
        b'{"version":1,"broker":1,"block_start":"-5","block_end":"0"}',
        b'{"version":1,"broker":1,"block_start":"x","block_end":"0"}',
    ],
)
def test_a_damaged_block_znode_is_named(data: bytes) -> None:
    with pytest.raises(znodes.BadZnode, match="/latest_producer_id_block"):
        znodes.decode_producer_ids(data)
