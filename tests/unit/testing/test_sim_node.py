"""What the simulator takes for lost records after a loss of power: I14 judges by it what a broker says of its own disk."""

from helpers.batches import batch, placed
from helpers.logs import ROOT, TOPIC_ID, TP, contents, lead, open_store
from tidelog.ids import TopicPartition
from tidelog.storage.log_store import LogStore
from tidelog.testing.disk import Crash, SimDisk
from tidelog.testing.sim_node import lost_records

A = batch(b"a" * 20)
OTHER = TopicPartition("events", 1)
SEGMENT = "00000000000000000000.log"


def with_two_logs(disk: SimDisk) -> LogStore:
    """Each with one record that nobody has flushed."""
    store = open_store(disk)
    store.registered(5)
    for tp in (TP, OTHER):
        lead(store.create(tp, TOPIC_ID), A, 1)
    return store


def power_loss(disk: SimDisk) -> bool:
    before = disk.image()
    disk.crash(Crash.DROP_UNSYNCED)
    return lost_records(before, disk.image())


def test_i14_a_deleted_log_that_goes_with_the_power_is_no_loss() -> None:
    """Seed 890: a clean stop, and power lost in the next start, before the directory's new life was written down."""
    disk = SimDisk()
    store = with_two_logs(disk)
    store.delete(OTHER)
    assert store.close({TP: 1}, 5)
    deleted = f"{ROOT}/events-1.{TOPIC_ID.hex()}-delete/{SEGMENT}"
    assert deleted in disk.image()
    assert not power_loss(disk)
    assert deleted not in disk.image(), "it was lost"
    store = open_store(disk)
    assert (store.intact_since, contents(store.logs[TP])) == (5, placed(A, 0, 1)), "the directory keeps its word"


def test_i14_a_log_that_was_not_flushed_is_a_loss() -> None:
    disk = SimDisk()
    store = with_two_logs(disk)
    store.logs[TP].flush()
    assert power_loss(disk), "the other one's name was synced with the first one's, its bytes were not"


def test_i14_a_deletion_that_is_undone_brings_back_a_log_with_a_loss() -> None:
    disk = SimDisk()
    store = with_two_logs(disk)
    store.logs[TP].flush()
    store.delete(OTHER)
    assert power_loss(disk)
    assert f"{ROOT}/events-1" in disk.image(), "it is back"
    assert open_store(disk).intact_since is None
