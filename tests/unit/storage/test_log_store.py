"""The data directory: whose it is, what it lost, and its small files (reliability 8.1, design section 3 "Restart")."""

import errno

import pytest

from helpers.bad_names import BAD_NAMES, ODD_NAMES
from helpers.batches import batch, placed
from helpers.logs import ROOT, TOPIC_ID, TP, contents, follow, lead, open_store
from helpers.requirements import requirement
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.storage import checkpoint
from tidelog.storage.checkpoint import LogKey, OffsetCheckpoint, read_lines, replace_file, write_lines
from tidelog.storage.data_dir import intact_since_after_start
from tidelog.storage.epoch_journal import EpochJournal
from tidelog.storage.log_store import LogStore
from tidelog.testing.disk import Crash, PowerCut, SimDisk

A, B = batch(b"a" * 20), batch(b"b" * 20)
KEY = LogKey(TP.topic, TP.partition, TOPIC_ID)
OTHER = TopicPartition("events", 1)
HW_FILE = f"{ROOT}/replication-offset-checkpoint"
RP_FILE = f"{ROOT}/recovery-point-offset-checkpoint"
JOURNAL = f"{ROOT}/leader-epoch-journal"


def started(disk: SimDisk, *, epoch: int = 5, count: int = 2) -> LogStore:
    store = open_store(disk)
    store.registered(epoch)
    log = store.create(TP, TOPIC_ID)
    for _ in range(count):
        lead(log, A, 1)
    return store


# --- identity ---------------------------------------------------------------------------------------------------------


@requirement("A broker with a replaced disk rejoins an ISR only after catch-up")
def test_foreign_directories_are_refused_by_name() -> None:
    disk = SimDisk()
    started(disk).close({}, 5)
    for ids in ({"broker_id": 2}, {"cluster_id": "c2"}):
        with pytest.raises(TidelogError, match=r"belongs to broker 1 of cluster 'c1'.*move this one away") as caught:
            open_store(disk, **ids)  # type: ignore[arg-type]
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert contents(open_store(disk).logs[TP]), "the refused ones let go of the lock and changed nothing"


def test_damaged_identity_is_named() -> None:
    disk = SimDisk()
    started(disk).close({}, 5)
    disk.flip_bit(f"{ROOT}/identity", 8)
    with pytest.raises(TidelogError, match=f"{ROOT}/identity is damaged") as caught:
        open_store(disk)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.remove(f"{ROOT}/identity")
    with pytest.raises(TidelogError, match=r"has no identity file but holds 'events-0'.*move it away and start again"):
        open_store(disk)


def test_directory_id_is_new_when_the_directory_is() -> None:
    disk = SimDisk()
    first = open_store(disk).data_dir.identity
    disk.crash(Crash.PROCESS)
    assert open_store(disk).data_dir.identity == first
    assert len(first.directory_id) == 16


def test_a_file_in_place_of_the_directory() -> None:
    disk = SimDisk()
    disk.open("/data", create=True).close()
    with pytest.raises(TidelogError, match="/data is not a directory"):
        open_store(disk)


def test_a_folder_that_is_none_of_ours_is_not_looked_into() -> None:
    """Such as lost+found in the root of a volume, which root alone may list."""
    disk = SimDisk()
    assert started(disk).close({}, 5)
    disk.make_dir(f"{ROOT}/lost+found")
    disk.fail("list_dir", errno.EACCES, path="lost+found")
    store = open_store(disk)
    assert TP in store.logs and store.intact_since == 5
    assert f"{ROOT}/lost+found is not a partition of this broker; left alone" in store.notes


def test_a_folder_that_cannot_be_listed_takes_one_log_alone() -> None:
    disk = SimDisk()
    store = started(disk)
    store.create(OTHER, TOPIC_ID)
    store.close({TP: 2}, 5)
    disk.fail("list_dir", errno.EIO, path=f"{ROOT}/events-0", times=2)
    for _ in range(2):
        store = open_store(disk)
        assert OTHER in store.logs and store.stored_topic_id(TP) == TOPIC_ID
        assert "events-0 cannot be listed" in store.failed[TP].reason
        store.close({}, 5)
    assert contents(open_store(disk).logs[TP])


@pytest.mark.parametrize("base_offset", [2, 30])
def test_an_empty_last_segment_begins_where_the_log_ends(base_offset: int) -> None:
    disk = SimDisk()
    started(disk).close({TP: 2}, 5)
    disk.open(f"{ROOT}/events-0/{base_offset:020d}.log", create=True).close()
    log = open_store(disk).logs[TP]
    assert (log.log_end_offset, log.damage) == (2, None)
    lead(log, A, 1)
    assert (log.log_end_offset, contents(log)) == (3, placed(A, 0, 1) + placed(A, 1, 1) + placed(A, 2, 1))


# --- intact_since -----------------------------------------------------------------------------------------------------


@requirement("A last ISR member that lost power is not elected automatically")
def test_intact_since_rule() -> None:
    def rule(previous: int | None, clean: bool, boot: bool, damaged: bool = False) -> int | None:
        return intact_since_after_start(previous, was_clean=clean, same_boot=boot, damaged=damaged)

    assert rule(7, clean=True, boot=True) == rule(7, clean=True, boot=False) == rule(7, clean=False, boot=True) == 7
    assert rule(7, clean=False, boot=False) is None
    assert rule(7, clean=True, boot=True, damaged=True) is None
    assert rule(None, clean=True, boot=True) is None


@requirement("A power loss of the only ISR member leaves its partition offline")
@requirement("Killing every broker at once loses no written record")
@pytest.mark.parametrize(
    ("clean", "crash", "kept"),
    [
        (True, Crash.PROCESS, 5),
        (True, Crash.DROP_UNSYNCED, 5),
        (False, Crash.PROCESS, 5),
        (False, Crash.DROP_UNSYNCED, None),
    ],
)
def test_intact_since_over_a_restart(clean: bool, crash: Crash, kept: int | None) -> None:
    disk = SimDisk()
    store = started(disk, epoch=5)
    if clean:
        assert store.close({TP: 2}, 5)
    disk.crash(crash)
    store = open_store(disk)
    assert (store.data_dir.was_clean, store.data_dir.same_boot) == (clean, crash is Crash.PROCESS)
    assert store.intact_since == kept
    store.registered(9)
    assert store.intact_since == (kept or 9)
    disk.crash(Crash.PROCESS)
    assert open_store(disk).intact_since == (kept or 9)


@requirement("A broker with a replaced disk rejoins an ISR only after catch-up")
def test_a_wiped_directory_is_intact_since_its_registration() -> None:
    store = open_store(SimDisk())
    assert (store.data_dir.fresh, store.intact_since) == (True, None)


@requirement("A last ISR member that lost power is not elected automatically")
def test_mut_22_kafka_10471_the_marker_is_gone_before_anything_is_loaded() -> None:
    disk = SimDisk()
    assert started(disk).close({TP: 2}, 5)
    begin = len(disk.trace)
    disk.fail("pread", errno.EIO, path=".log")
    store = open_store(disk)
    assert TP in store.failed
    disk.crash(Crash.DROP_UNSYNCED)
    assert not open_store(disk).data_dir.was_clean
    removed = next(i for i, op in enumerate(disk.trace[begin:]) if op == ("remove", f"{ROOT}/.clean-shutdown"))
    assert disk.trace[begin + removed + 1] == ("sync_dir", ROOT)


def test_mut_22_a_power_cut_at_any_call_of_the_start_never_passes_for_a_clean_stop_later() -> None:
    base = SimDisk()
    assert started(base).close({TP: 2}, 5)
    base.crash(Crash.PROCESS)
    calls = len(base.trace)
    open_store(base)
    for cut in range(len(base.trace) - calls + 1):
        disk = SimDisk()
        assert started(disk).close({TP: 2}, 5)
        disk.crash(Crash.PROCESS)
        disk.stop_after = len(disk.trace) + cut
        try:
            store = open_store(disk)
            lead(store.logs[TP], B, 2)  # one more batch than the marker knows of
        except PowerCut:
            continue
        disk.crash(Crash.DROP_UNSYNCED)
        assert not open_store(disk).data_dir.was_clean


def test_kafka_13773_no_marker_when_the_stop_failed() -> None:
    for op, path in (("sync", ".log"), ("append", "replication-offset"), ("sync", "leader-epoch"), ("append", "clean")):
        disk = SimDisk()
        store = started(disk)
        disk.fail(op, errno.EIO, path=path)
        assert not store.close({TP: 2}, 5), (op, path)
        disk.crash(Crash.PROCESS)
        assert not open_store(disk).data_dir.was_clean
        disk.crash(Crash.PROCESS)
        assert contents(open_store(disk).logs[TP]) == placed(A + A, 0, 1)


def test_marker_names_the_broker_epoch() -> None:
    disk = SimDisk()
    assert started(disk).close({TP: 2}, 41)
    assert open_store(disk).data_dir.clean_broker_epoch == 41


# --- checkpoints ------------------------------------------------------------------------------------------------------


@requirement("A checkpoint keeps the entries that an update does not name")
def test_entries_that_are_not_named_are_carried_over() -> None:
    disk = SimDisk()
    store = started(disk)
    lead(store.create(OTHER, TOPIC_ID), A, 1)
    store.checkpoint({TP: 2, OTHER: 1})
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    store.checkpoint({TP: 1})
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    assert (store.logs[TP].recorded_high_watermark, store.logs[OTHER].recorded_high_watermark) == (1, 1)


@requirement("A log opens with its checkpointed high watermark")
def test_a_missing_high_watermark_is_zero() -> None:
    disk = SimDisk()
    started(disk)
    disk.crash(Crash.PROCESS)
    log = open_store(disk).logs[TP]
    assert (log.log_end_offset, log.recorded_high_watermark) == (2, 0)


LINE = f"events 0 {TOPIC_ID.hex()} 2"


@requirement("A flipped bit is never served or replicated")
def test_every_flipped_bit_of_a_checkpoint_is_seen() -> None:
    disk = SimDisk()
    write_lines(disk, "/c", [LINE])
    good = disk.read("/c")
    for at in range(len(good) - 1):
        disk.overwrite("/c", good)
        disk.flip_bit("/c", at, bit=at % 8)
        assert read_lines(disk, "/c").problem, at


def test_mut_21_a_checkpoint_is_the_old_one_or_the_new_one() -> None:
    def written(calls: int | None) -> tuple[SimDisk, int]:
        disk = SimDisk()
        replace_file(disk, "/c", b"old")
        before = len(disk.trace)
        disk.stop_after = None if calls is None else before + calls
        try:
            replace_file(disk, "/c", b"new content")
        except PowerCut:
            pass
        return disk, len(disk.trace) - before

    calls = written(None)[1]
    for cut in range(calls + 1):
        disk, _ = written(cut)
        seen = {disk.after(loss).read("/c") for loss in disk.losses(range)}
        assert seen <= {b"old", b"new content"}
        assert cut < calls or seen == {b"new content"}, "durable when it returns"


def test_mut_21_background_checkpoints_too() -> None:
    disk = SimDisk()
    store = started(disk)
    store.logs[TP].flush()
    store.checkpoint({TP: 1})
    for hw in (1, 2):
        disk.sync_dir(ROOT)
        before = {path: disk.read(path) for path in (HW_FILE, RP_FILE)}
        store.checkpoint({TP: hw})
        after = {path: disk.read(path) for path in (HW_FILE, RP_FILE)}
        for loss in disk.losses(range):
            lost = disk.after(loss)
            for path in before:
                assert lost.read(path) in (before[path], after[path])


def test_a_checkpoint_is_encoded_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand lines take 15 ms a file. What changes meanwhile is in the next one."""
    disk = SimDisk()
    store = started(disk)

    def encoded_too_soon(lines: list[str]) -> bytes:
        raise AssertionError(lines)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "encode_lines", encoded_too_soon)
        begun = store.begin_checkpoint({TP: 1})
        store.logs[TP].recorded_high_watermark = 2
        store.logs[TP].marked = None
        store.marks.take(store.logs[TP])
    begun.run()
    store.end_checkpoint(begun)
    assert OffsetCheckpoint(disk, HW_FILE).get(KEY) == 1
    store.checkpoint({TP: 2})
    assert OffsetCheckpoint(disk, HW_FILE).get(KEY) == 2


def test_a_cut_during_a_checkpoint_wins() -> None:
    disk = SimDisk()
    store = started(disk)
    log = store.logs[TP]
    log.flush()
    store.checkpoint({TP: 1})
    checkpoint = store.begin_checkpoint({TP: 2})
    checkpoint.run()
    log.truncate_to(1)
    follow(log, B, 3)
    store.end_checkpoint(checkpoint)
    disk.crash(Crash.DROP_UNSYNCED)
    log = open_store(disk).logs[TP]
    assert log.failure is None, "a recovery point above the end would have been damage"
    assert log.log_end_offset in (1, 2)


def test_a_cut_takes_the_cleaners_mark_with_it_when_that_is_the_highest() -> None:
    """Else the records that come in the place of those that were cut would pass for clean, and be in no map of keys."""
    disk = SimDisk()
    store = started(disk)
    log = store.logs[TP]
    log.flush()
    store.checkpoint({TP: 2})
    for _ in range(6):
        lead(log, A, 1)
    store.marks.cleaner_offsets.update({KEY: 6})
    store.marks.cleaner_offsets.write()  # the marks of before are beside it when the process dies now
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    log = store.logs[TP]
    assert (log.recovery_point, log.recorded_high_watermark, log.log_end_offset) == (2, 2, 8)
    log.truncate_to(4)
    assert store.marks.cleaner_offsets.get(KEY) == 4
    disk.crash(Crash.PROCESS)
    assert open_store(disk).marks.cleaner_offsets.get(KEY) == 4


def test_a_cut_above_every_mark_writes_none() -> None:
    """After a failover every partition may cut the tail that its new leader lacks, and each write waits for the device."""
    disk = SimDisk()
    store = started(disk)
    store.checkpoint({TP: 1})
    store.marks.cleaner_offsets.update({store.create(OTHER, TOPIC_ID).key: 1})
    disk.fail("rename", errno.EIO, path="checkpoint")
    assert store.logs[TP].truncate_to(1) == 1


def test_lowered_marks_are_written_even_if_they_equal_an_older_file() -> None:
    disk = SimDisk()
    checkpoint = OffsetCheckpoint(disk, "/c")
    checkpoint.update({KEY: 50})
    checkpoint.write()
    checkpoint.update({KEY: 100})
    content = checkpoint.next_file()
    assert content is not None
    replace_file(disk, "/c", content())
    checkpoint.installed()
    checkpoint.update({KEY: 50})
    checkpoint.write()
    assert OffsetCheckpoint(disk, "/c").get(KEY) == 50


# --- the epoch journal ------------------------------------------------------------------------------------------------


def test_a_group_of_epochs_costs_one_write_and_one_sync() -> None:
    disk = SimDisk()
    store = open_store(disk)
    logs = [store.create(TopicPartition("t", p), TOPIC_ID) for p in range(300)]
    begin = len(disk.trace)
    for log in logs:
        log.assign_epoch(3, 0)
    store.write_epochs()
    store.sync_epochs()
    store.sync_epochs()  # nothing new: nothing to wait for
    assert [op.name for op in disk.trace[begin:]] == ["append", "sync"]
    disk.crash(Crash.PROCESS)
    assert all(log.latest_epoch == 3 for log in open_store(disk).logs.values())


def test_journal_replays_every_change() -> None:
    disk = SimDisk()
    other = KEY._replace(partition=1)
    journal = EpochJournal(disk, "")
    for epoch, start in ((1, 0), (4, 10), (6, 20)):
        journal.assign(KEY, epoch, start)
    journal.truncate_from(KEY, 20)
    journal.assign(other, 2, 5)
    journal.forget(other)
    journal.commit()
    again = EpochJournal(disk, "")
    assert again.history(KEY).entries == ((1, 0), (4, 10))
    assert again.logs() == [KEY]


def test_a_torn_journal_line_is_cut_and_the_next_one_holds() -> None:
    disk = SimDisk()
    journal = EpochJournal(disk, "")
    journal.assign(KEY, 1, 0)
    journal.assign(KEY, 2, 10)
    journal.commit()
    whole = disk.read("/leader-epoch-journal")
    for size in range(whole.index(b"\n") + 1, len(whole)):
        disk.overwrite("/leader-epoch-journal", whole[:size])
        journal = EpochJournal(disk, "")
        assert (journal.problem, journal.history(KEY).entries) == (None, ((1, 0),))
        journal.assign(KEY, 3, 10)
        journal.settle()
        assert EpochJournal(disk, "").history(KEY).entries == ((1, 0), (3, 10))


@requirement("A flipped bit is never served or replicated")
def test_a_bad_line_in_the_middle_makes_every_log_be_read_from_its_start() -> None:
    disk = SimDisk()
    store = started(disk)
    log = store.logs[TP]
    lead(log, A, 3)
    lead(log, A, 4)
    assert store.close({TP: 4}, 5)
    disk.flip_bit(JOURNAL, 12)
    begin = len(disk.trace)
    store = open_store(disk)
    assert any("line 1 is damaged" in note for note in store.notes)
    assert store.logs[TP].epochs.entries == ((1, 0), (3, 2), (4, 3))
    assert store.intact_since == 5, "the batches told everything"
    assert ("rename", f"{JOURNAL}.tmp") in disk.trace[begin:]
    disk.crash(Crash.PROCESS)
    assert EpochJournal(disk, ROOT).problem is None


@pytest.mark.parametrize(
    "name",
    [
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "leader-epoch-journal",
        "incarnation",
    ],
)
def test_a_small_file_that_cannot_be_read_ends_no_start(name: str) -> None:
    disk = SimDisk()
    store = started(disk)
    lead(store.logs[TP], A, 3)
    assert store.close({TP: 3}, 5)
    disk.fail("read", errno.EIO, path=f"{ROOT}/{name}", times=3)
    store = open_store(disk)
    assert any(f"{ROOT}/{name}: it cannot be read" in note for note in store.notes)
    assert (store.logs[TP].log_end_offset, store.logs[TP].damage) == (3, None)
    disk.mend()
    assert store.close({TP: 3}, 6)
    assert open_store(disk).notes == []


def test_after_a_failed_write_the_journal_is_closed_for_good() -> None:
    disk = SimDisk()
    journal = EpochJournal(disk, "")
    journal.assign(KEY, 1, 0)
    disk.fail("append", errno.EIO, kept_bytes=3)
    with pytest.raises(OSError):
        journal.commit()
    journal.assign(KEY, 2, 5)
    with pytest.raises(OSError, match="earlier"):
        journal.commit()
    assert len(disk.read("/leader-epoch-journal")) == 3


def test_a_long_journal_is_compacted_at_start() -> None:
    disk = SimDisk()
    journal = EpochJournal(disk, "")
    for n in range(1200):
        journal.assign(KEY, n, 0)
    journal.commit()
    journal = EpochJournal(disk, "")
    journal.settle()
    assert disk.read("/leader-epoch-journal").count(b"\n") == 1
    journal.assign(KEY, 5000, 7)
    journal.commit()
    assert EpochJournal(disk, "").history(KEY).entries == ((1199, 0), (5000, 7))


# --- topics -----------------------------------------------------------------------------------------------------------


@requirement("A topic id separates topics that share a name")
def test_a_recreated_topic_does_not_get_the_old_records() -> None:
    disk = SimDisk()
    store = started(disk)
    store.checkpoint({TP: 2})
    new_id = bytes(16)
    with pytest.raises(TidelogError) as caught:
        store.create(TP, new_id)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert store.create(TP, TOPIC_ID) is store.logs[TP]
    store.delete(TP)
    log = store.create(TP, new_id)
    assert (log.log_end_offset, log.latest_epoch) == (0, -1)
    lead(log, B, 0)
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    assert (store.logs[TP].key.topic_id, contents(store.logs[TP])) == (new_id, placed(B, 0, 0))
    assert store.intact_since == 5, "the deleted log is no loss"


@requirement("A topic id separates topics that share a name")
@pytest.mark.parametrize(("op", "path"), [("pread", ".log"), ("rename", "events-0")])
def test_a_log_that_cannot_be_deleted_is_kept_for_the_repetition_and_no_stop_is_clean(op: str, path: str) -> None:
    """Its folder keeps its name, and nobody has flushed it: a marker would promise records that go with the power."""
    disk = SimDisk()
    store = started(disk)
    disk.fail(op, errno.EIO, path=path)
    with pytest.raises(TidelogError) as caught:
        store.delete(TP)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert store.stored_topic_id(TP) == TOPIC_ID, "a topic of the same name must find that it is in the way"
    assert not store.close({}, 5)
    disk.crash(Crash.DROP_UNSYNCED)
    assert open_store(disk).intact_since is None


@requirement("A topic id separates topics that share a name")
def test_a_deletion_that_failed_succeeds_when_it_is_repeated() -> None:
    disk = SimDisk()
    store = started(disk)
    disk.fail("rename", errno.EIO, path="events-0")
    with pytest.raises(TidelogError):
        store.delete(TP)
    store.delete(TP)
    assert store.create(TP, bytes(16)).log_end_offset == 0
    assert store.close({TP: 0}, 5), "the deleted log needs no flush"


def test_a_deleted_log_that_cannot_be_removed_keeps_no_other() -> None:
    disk = SimDisk()
    store = started(disk)
    store.create(OTHER, TOPIC_ID)
    store.delete(TP)
    store.delete(OTHER)
    first, second = (f"{ROOT}/events-{each}.{TOPIC_ID.hex()}-delete" for each in (0, 1))
    disk.make_dir(f"{first}/foreign")
    store.checkpoint({})
    with pytest.raises(OSError):
        store.purge()
    assert disk.kind(first) is not None and disk.kind(second) is None
    disk.remove_dir(f"{first}/foreign")
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    store.checkpoint({})
    store.purge()
    assert disk.kind(first) is None, "the next start tries it again"


def test_delete_renames_and_purge_removes_what_a_checkpoint_no_longer_names() -> None:
    disk = SimDisk()
    store = started(disk)
    store.delete(TP)
    store.delete(OTHER)
    gone = f"{ROOT}/events-0.{TOPIC_ID.hex()}-delete"
    store.purge()
    assert disk.kind(gone) is not None, "its marks are still on disk"
    store.checkpoint({})
    store.purge()
    assert disk.kind(gone) is None and disk.kind(f"{ROOT}/events-0") is None
    assert store.get(TP) is None


@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
@pytest.mark.parametrize("in_flight", [False, True])
def test_a_log_made_anew_has_no_marks_of_a_deleted_one(in_flight: bool, crash: Crash) -> None:
    """The same topic may be placed here again before the next checkpoint has forgotten its log."""
    disk = SimDisk()
    store = started(disk)
    store.logs[TP].flush()
    store.logs[TP].move_log_start(1)
    store.checkpoint({TP: 1} if in_flight else {TP: 2})
    checkpoint = store.begin_checkpoint({TP: 2})
    checkpoint.run()
    if not in_flight:
        store.end_checkpoint(checkpoint)
    store.delete(TP)
    log = store.create(TP, TOPIC_ID)
    if in_flight:
        store.end_checkpoint(checkpoint)
    follow(log, A, 3)
    log.flush()
    disk.crash(crash)
    log = open_store(disk).logs[TP]
    assert (log.failure, log.log_start_offset, log.log_end_offset) == (None, 0, 1)


def test_a_log_made_anew_waits_for_no_device() -> None:
    """Unless it has marks: a topic of a thousand partitions is made in one turn, also while a checkpoint is under way."""
    disk = SimDisk()
    store = started(disk)
    checkpoint = store.begin_checkpoint({TP: 2})
    checkpoint.run()
    before = len(disk.trace)
    store.create(OTHER, TOPIC_ID)
    assert {op.name for op in disk.trace[before:]} == {"make_dir", "create"}
    store.end_checkpoint(checkpoint)
    disk.crash(Crash.PROCESS)
    assert open_store(disk).logs[TP].recorded_high_watermark == 2, "the checkpoint was put in place"


def test_a_loss_of_power_brings_back_marks_that_were_replaced() -> None:
    """The names of a checkpoint become durable with the next one."""
    disk = SimDisk()
    store = started(disk)
    log = store.logs[TP]
    log.flush()
    store.checkpoint({TP: 2})
    disk.sync_dir(ROOT)
    store.checkpoint({TP: 1})
    log.recovery_point = 1
    store.checkpoint({TP: 1})
    log.truncate_to(1)
    log.flush()
    disk.crash(Crash.DROP_UNSYNCED)
    log = open_store(disk).logs[TP]
    assert (log.failure, log.log_end_offset) == (None, 1)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_that_comes_back_and_is_deleted_again_before_the_purge(restarts: bool) -> None:
    """Moved away and back in a few seconds: the same topic id, and the first remains are still there."""
    disk = SimDisk()
    store = started(disk)
    store.checkpoint({TP: 2})
    for turn in range(3):
        store.delete(TP)
        if restarts:
            disk.crash(Crash.PROCESS)
            store = open_store(disk)
            assert store.intact_since == 5, "what was deleted is no loss"
        if turn < 2:
            log = store.create(TP, TOPIC_ID)
            assert (log.log_end_offset, log.latest_epoch) == (0, -1)
            lead(log, A, turn)
            store.checkpoint({TP: 1})
    store.checkpoint({})
    store.purge()
    assert not [e.name for e in disk.list_dir(ROOT) if e.name.endswith("-delete")]
    assert store.get(TP) is None


def test_of_two_remains_of_one_log_the_later_also_says_that_it_was_deleted() -> None:
    disk = SimDisk()
    store = started(disk)
    store.delete(TP)
    store.checkpoint({})
    lead(store.create(TP, TOPIC_ID), A, 1)
    store.checkpoint({TP: 1})
    store.delete(TP)
    store.purge()  # of the first; the second's marks are still on disk
    assert [e.name for e in disk.list_dir(ROOT) if e.name.endswith("-delete")] == [
        f"events-0.{TOPIC_ID.hex()}-1-delete"
    ]
    disk.crash(Crash.PROCESS)
    assert open_store(disk).intact_since == 5


def test_leftovers_of_a_deletion_are_removed_at_start() -> None:
    disk = SimDisk()
    store = started(disk)
    store.delete(TP)
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    assert (dict(store.logs), store.intact_since) == ({}, 5)
    store.purge()
    assert not [e for e in disk.list_dir(ROOT) if e.name.endswith("-delete")]


def test_longest_topic_name_can_be_made_and_deleted() -> None:
    disk = SimDisk()
    store = open_store(disk)
    tp = TopicPartition("n" * 249, 99_999)
    lead(store.create(tp, TOPIC_ID), A, 0)
    store.delete(tp)
    with pytest.raises(TidelogError, match="too long"):
        store.create(tp._replace(partition=1_000_000), TOPIC_ID)


def test_what_is_not_ours_is_left_alone_and_named() -> None:
    disk = SimDisk()
    started(disk).close({TP: 2}, 5)
    for name in ("notes.txt", "events-0x"):
        disk.overwrite(f"{ROOT}/{name}", b"mine")
    for name in ("lost+found", "photos-2024", "events-1"):
        disk.make_dir(f"{ROOT}/{name}")
        disk.overwrite(f"{ROOT}/{name}/x", b"mine")
    disk.overwrite(f"{ROOT}/events-0/notes", b"mine")
    store = open_store(disk)
    assert list(store.logs) == [TP]
    assert len(store.notes) == 5
    with pytest.raises(TidelogError, match="events-1 is in the way and not ours"):
        store.create(OTHER, TOPIC_ID)
    assert disk.read(f"{ROOT}/photos-2024/x") == b"mine"


def test_folder_whose_topic_id_was_lost_with_the_power_is_started_anew() -> None:
    """Nothing in it was synced, or the name would have been."""
    disk = SimDisk()
    lead(open_store(disk).create(TP, TOPIC_ID), B, 0)
    disk.sync_dir(ROOT)
    disk.crash(Crash.DROP_UNSYNCED)
    store = open_store(disk)
    assert TP not in store.logs and disk.kind(f"{ROOT}/events-0") is not None
    assert store.create(TP, TOPIC_ID).log_end_offset == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_marker_of_a_topic_is_made_again(clean: bool) -> None:
    """The checkpoints name the topic of what was synced."""
    disk = SimDisk()
    store = started(disk)
    held = contents(store.logs[TP])
    store.logs[TP].flush()
    store.checkpoint({TP: 2})
    if clean:
        assert store.close({TP: 2}, 5)
    disk.crash(Crash.PROCESS)
    disk.remove(f"{ROOT}/events-0/{TOPIC_ID.hex()}.topic")
    for _ in range(2):
        store = open_store(disk)
        assert store.create(TP, TOPIC_ID) is store.logs[TP] and contents(store.logs[TP]) == held
        assert store.intact_since == 5
        disk.crash(Crash.PROCESS)


def test_a_marker_that_cannot_be_made_again_stops_no_start() -> None:
    disk = SimDisk()
    store = started(disk)
    store.logs[TP].flush()
    store.checkpoint({TP: 2})
    disk.crash(Crash.PROCESS)
    disk.remove(f"{ROOT}/events-0/{TOPIC_ID.hex()}.topic")
    disk.fail("create", errno.ENOSPC, path=".topic")
    store = open_store(disk)
    assert store.logs[TP].log_end_offset == 2 and any("cannot be made" in note for note in store.notes)


def test_a_stale_recovery_point_marks_no_folder() -> None:
    """The checkpoints still name a deleted topic; the folder is that of the next one of its name."""
    disk = SimDisk()
    store = started(disk)
    store.logs[TP].flush()
    store.checkpoint({TP: 2})
    store.delete(TP)
    store.create(TP, bytes(16))
    disk.sync_dir(ROOT)
    disk.crash(Crash.DROP_UNSYNCED)
    store = open_store(disk)
    assert TP not in store.logs and disk.kind(f"{ROOT}/events-0") is not None
    assert store.create(TP, bytes(16)).log_end_offset == 0


def test_records_without_a_marker_are_not_deleted() -> None:
    disk = SimDisk()
    lead(open_store(disk).create(TP, TOPIC_ID), B, 0)
    disk.crash(Crash.PROCESS)
    disk.remove(f"{ROOT}/events-0/{TOPIC_ID.hex()}.topic")
    store = open_store(disk)
    with pytest.raises(TidelogError, match="holds records, but no file names their topic") as caught:
        store.create(TP, TOPIC_ID)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.read(f"{ROOT}/events-0/00000000000000000000.log") == placed(B, 0, 0)
    assert store.failed[TP].topic_id == TOPIC_ID, "the controller hears of it"


def test_records_whose_marker_went_with_the_power_go_too() -> None:
    """An order for them may come in a later life, which knows nothing of the loss of power."""
    disk = SimDisk()
    store = open_store(disk)
    lead(store.create(TP, TOPIC_ID), B, 0)
    store.logs[TP].flush()
    disk.crash(Crash.DROP_UNSYNCED)
    disk.remove(f"{ROOT}/events-0/{TOPIC_ID.hex()}.topic")
    open_store(disk)
    disk.crash(Crash.PROCESS)
    assert open_store(disk).create(TP, TOPIC_ID).log_end_offset == 0


def test_synced_records_without_a_marker_are_kept() -> None:
    """A marker that was synced before them is not lost with the power: something else has taken it."""
    disk = SimDisk()
    store = started(disk)
    held = disk.read(f"{ROOT}/events-0/00000000000000000000.log")
    store.logs[TP].flush()
    store.checkpoint({TP: 2})
    disk.sync_dir(ROOT)
    disk.crash(Crash.DROP_UNSYNCED)
    disk.remove(f"{ROOT}/events-0/{TOPIC_ID.hex()}.topic")
    for _ in range(2):
        assert open_store(disk).create(TP, TOPIC_ID).log_end_offset == 0
        assert disk.read(f"{ROOT}/events-0.0-unmarked/00000000000000000000.log") == held
        disk.crash(Crash.PROCESS)


def test_thousand_partitions_cost_few_calls_each() -> None:
    disk = SimDisk()
    store = open_store(disk)
    begin = len(disk.trace)
    for p in range(1000):
        store.create(TopicPartition("t", p), TOPIC_ID)
    assert {op.name for op in disk.trace[begin:]} == {"make_dir", "create"}
    assert len(disk.trace) - begin == 2000
    assert store.close({}, 5)


@pytest.mark.parametrize("name", [*(name for name, _ in BAD_NAMES.values()), "../../broker-1/data/t1"], ids=ascii)
def test_no_log_lies_outside_the_data_directory(name: str) -> None:
    disk = SimDisk()
    store = open_store(disk)
    before = disk.image()
    with pytest.raises(TidelogError):
        store.create(TopicPartition(name, 0), TOPIC_ID)
    with pytest.raises(TidelogError):
        store.create(TopicPartition("t", -1), TOPIC_ID)
    assert disk.image() == before


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_is_a_folder_of_the_data_directory(name: str) -> None:
    disk = SimDisk()
    log = open_store(disk).create(TopicPartition(name, 7), TOPIC_ID)
    assert log.folder.rpartition("/") == (ROOT, "/", f"{name}-7")
