"""The bytes of a multi and of many reads, beside what kazoo makes of the same operations."""

import struct

import pytest
from kazoo.protocol import serialization as jute
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from tidelog.ports.meta import Check, Create, Delete, Op, SetData, Stat
from tidelog.runtime import zk_jute

STAT = ZnodeStat(11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)
OURS = Stat(version=15, czxid=11, mzxid=12, ephemeral_owner=18)
NO_NODE = -101


def of_kazoo(op: Op) -> tuple[object, ...]:
    match op:
        case Create(path, data, ephemeral):
            return jute.Create2(path, data, OPEN_ACL_UNSAFE, int(ephemeral))
        case SetData(path, data, version):
            return jute.SetData(path, data, version)
        case Delete(path, version):
            return jute.Delete(path, version)
        case Check(path, version):
            return jute.CheckVersion(path, version)


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [Check("/controller_epoch", 7), SetData("/t/ä", b"x" * 300, 4)],
        [Create("/t"), Create("/t/one", b"data"), Create("/t/mine", b"", ephemeral=True)],
        [Delete("/t/one"), Delete("/t", 3), SetData("/u", b"")],
    ],
)
def test_a_multi_is_what_kazoo_sends(ops: list[Op]) -> None:
    assert zk_jute.encode_multi(ops) == jute.Transaction([of_kazoo(op) for op in ops]).serialize()


def test_a_multis_answer_gives_stats_in_order_and_errors_as_numbers() -> None:
    header, stat = jute.multiheader_struct, jute.stat_struct.pack(*STAT)
    answer = b"".join(
        [
            b"before",
            header.pack(zk_jute.CREATE_2, False, 0) + jute.write_string("/t/one") + stat,
            header.pack(zk_jute.SET_DATA, False, 0) + stat,
            header.pack(zk_jute.CHECK, False, 0),
            header.pack(zk_jute.DELETE, False, 0),
            header.pack(zk_jute.ERROR, False, NO_NODE) + struct.pack("!i", NO_NODE),
            header.pack(-1, True, -1),
        ]
    )
    assert zk_jute.decode_multi(answer, len(b"before")) == [OURS, OURS, None, None, NO_NODE]
    with pytest.raises(struct.error):
        zk_jute.decode_multi(answer[:-9], len(b"before"))


def test_many_reads_are_one_request_and_each_has_its_own_answer() -> None:
    header, stat = jute.multiheader_struct, jute.stat_struct.pack(*STAT)
    one = header.pack(zk_jute.GET_DATA, False, -1) + jute.GetData("/t/ä", None).serialize()
    assert zk_jute.encode_reads(["/t/ä"]) == one + header.pack(-1, True, -1)
    answer = b"".join(
        [
            header.pack(zk_jute.GET_DATA, False, 0) + jute.write_buffer(b"data") + stat,
            header.pack(zk_jute.ERROR, False, NO_NODE) + struct.pack("!i", NO_NODE),
            header.pack(zk_jute.GET_DATA, False, 0) + jute.write_buffer(None) + stat,
            header.pack(-1, True, -1),
        ]
    )
    assert zk_jute.decode_reads(answer, 0) == [(b"data", OURS), NO_NODE, (b"", OURS)]
