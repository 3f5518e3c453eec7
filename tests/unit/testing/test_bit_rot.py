"""A disk of the simulator rots where what is lost can be fetched again, and nowhere else."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from helpers.batches import batch, placed
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.testing.bit_rot import EPOCH, BitRot
from tidelog.testing.disk import SECTOR_BYTES
from tidelog.testing.invariants import StoredView
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_story import run_story
from tidelog.testing.stories import story_of
from tidelog.wire import messages as m

SEGMENT = f"/data/events-0/{0:020d}.log"
RECORDS = [placed(batch(b"%d" % number * 300), number, 0) for number in range(5)]

PROPOSED = 672
"""A seed in which a follower's copy rots while its leader does not hear of it."""


def a_rotting_disk(mine: bytes, others: bytes) -> BitRot:
    """Returns the fault of a cluster whose brokers hold these bytes of one segment."""
    rot = BitRot(SimCluster(0, brokers=3, controllers=1), share=1.0)
    for node in rot._cluster.brokers:
        folder = SEGMENT.rpartition("/")[0]
        for outer, inner in [("/", "/data"), ("/data", folder)]:
            node.disk.make_dir(inner)
            node.disk.sync_dir(outer)
        node.disk.overwrite(SEGMENT, mine if node is rot._node else others)
    return rot


def struck(rot: BitRot, times: int = 400) -> list[int]:
    """Returns the positions of the bytes that cannot be trusted after so many strikes."""
    for _ in range(times):
        rot.strike()
    disk = rot._node.disk
    written = disk.image()[SEGMENT]
    assert written is not None
    found = []
    for position in range(len(written)):
        try:
            seen = disk.open(SEGMENT).pread(1, position)
        except OSError:
            seen = b""
        if seen != written[position : position + 1]:
            found.append(position)
    return found


def test_what_another_disk_holds_may_rot() -> None:
    whole = b"".join(RECORDS)
    positions = struck(a_rotting_disk(whole, whole))
    assert positions and len(positions) > SECTOR_BYTES


@pytest.mark.parametrize("others", [b"", b"".join(RECORDS[:2])], ids=["nothing", "two of five"])
def test_a_sole_copy_does_not_rot(others: bytes) -> None:
    positions = struck(a_rotting_disk(b"".join(RECORDS), others))
    assert all(position < len(others) for position in positions)


def test_a_leader_epoch_is_not_flipped() -> None:
    """No checksum covers it, so a flip would not be found."""
    rot = a_rotting_disk(RECORDS[0], RECORDS[0])
    assert len(RECORDS[0]) < SECTOR_BYTES, "no sector of it is lost"
    positions = struck(rot, 5_000)
    assert len(positions) > 100 and not set(positions) & set(EPOCH)


@pytest.mark.parametrize(
    ("isr", "reported", "waits"),
    [((0,), True, True), ((0, 1), True, False), ((0,), False, False)],
    ids=["the last copy", "another copy in sync", "not reported"],
)
def test_a_rotten_last_copy_waits_for_an_operator(isr: tuple[int, ...], reported: bool, waits: bool) -> None:
    rot = a_rotting_disk(RECORDS[0], RECORDS[0])
    node, tp = rot._node, TopicPartition("events", 0)
    failed = (
        (m.PartitionResult(topic="events", partition=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR),) if reported else ()
    )
    node.broker = cast(Any, SimpleNamespace(manager=SimpleNamespace(failed=lambda: failed)))
    members = frozenset(((node.number + broker) % 3, 7) for broker in isr)
    stored = StoredView(node.number, 0, members, (0, 1, 2), 0, 0)
    find = rot._cluster._rotten_last_copies
    assert not find({tp: stored}), "its disk is whole"
    node.disk.flip_bit(SEGMENT, 3, 0)
    assert (tp in find({tp: stored})) == waits


def test_a_leader_may_propose_a_copy_that_counts_as_failed() -> None:
    """It has not heard yet that the copy has thrown its records away, and the controller refuses."""
    assert run_story(story_of(PROPOSED), PROPOSED).acked > 0
