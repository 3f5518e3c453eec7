"""Both disks keep the same promises; what only the simulated one can show, power loss, follows below."""

import asyncio
import errno
import os
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tidelog.ports.disk import Disk, EntryKind
from tidelog.runtime.os_disk import OsDisk, os_disk
from tidelog.testing.disk import SECTOR_BYTES, Crash, PowerCut, SimDisk


@pytest.fixture(params=["os", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    if request.param == "os":
        yield os_disk(), str(tmp_path)
    else:
        disk = SimDisk()
        disk.make_dir("/data")
        yield disk, "/data"


def test_append_read_truncate(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.append([b"hello ", memoryview(b"wide world")[4:], b""])
    assert file.pread(100, 0) == b"hello  world"
    assert (file.size(), file.pread(3, 7), file.pread(5, 50)) == (12, b"wor", b"")
    file.truncate(6)
    file.append([b"again"])
    assert file.pread(100, 0) == b"hello again"
    file.sync()
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.pread(1, 0)
    assert disk.read(f"{root}/a") == b"hello again"


def test_more_buffers_than_one_call_takes(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    parts = [bytes([i % 251]) * (i % 7) for i in range(5_000)]
    file.append(parts)
    assert file.pread(1 << 20, 0) == b"".join(parts)
    file.close()


def test_a_write_that_is_short_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = os.writev, [1, 4, 5, 0, 2]

    def short(fd: int, buffers: Sequence[bytes]) -> int:
        return real(fd, [b"".join(buffers)[: sizes.pop(0)]])

    monkeypatch.setattr(os, "writev", short)
    file = os_disk().open(f"{tmp_path}/a", create=True)
    file.append([b"", b"abc", memoryview(b"de"), b"", b"fghij"])
    assert file.pread(100, 0) == b"abcdefghij"
    with pytest.raises(OSError, match="wrote nothing"):
        file.append([b"more"])
    file.append([b"kl"])
    assert (file.pread(100, 0), sizes) == (b"abcdefghijkl", [])
    file.close()


def test_open_modes(place: tuple[Disk, str]) -> None:
    disk, root = place
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/a")
    disk.open(f"{root}/a", create=True).close()
    with pytest.raises(FileExistsError):
        disk.open(f"{root}/a", create=True)
    reader = disk.open(f"{root}/a", read_only=True)
    with pytest.raises(OSError) as caught:
        reader.append([b"x"])
    assert caught.value.errno == errno.EBADF
    reader.close()
    with pytest.raises(FileNotFoundError):
        disk.read(f"{root}/nothing")


def test_names(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_dir(f"{root}/b")
    with pytest.raises(FileExistsError):
        disk.make_dir(f"{root}/b")
    file = disk.open(f"{root}/b/x", create=True)
    file.append([b"x"])
    disk.open(f"{root}/a", create=True).close()
    assert [(e.name, e.kind) for e in disk.list_dir(root)] == [("a", EntryKind.FILE), ("b", EntryKind.DIRECTORY)]
    assert [disk.kind(f"{root}/{n}") for n in ("a", "b", "c", "a/b")] == [
        EntryKind.FILE,
        EntryKind.DIRECTORY,
        None,
        None,
    ]
    with pytest.raises(OSError) as caught:
        disk.remove_dir(f"{root}/b")
    assert caught.value.errno == errno.ENOTEMPTY
    disk.rename(f"{root}/b", f"{root}/c")
    disk.rename(f"{root}/c/x", f"{root}/c/y")
    file.append([b"y"])  # an open file follows its name
    assert disk.read(f"{root}/c/y") == b"xy"
    disk.sync_dir(f"{root}/c")
    disk.remove(f"{root}/c/y")
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{root}/c/y")
    disk.remove_dir(f"{root}/c")
    assert [e.name for e in disk.list_dir(root)] == ["a"]
    with pytest.raises(FileNotFoundError):
        disk.list_dir(f"{root}/c")
    with pytest.raises(OSError) as caught:
        disk.make_dir(f"{root}/{'n' * 256}")
    assert caught.value.errno == errno.ENAMETOOLONG
    file.close()


def test_rename_replaces(place: tuple[Disk, str]) -> None:
    disk, root = place
    for name, data in (("a", b"old"), ("b", b"new")):
        file = disk.open(f"{root}/{name}", create=True)
        file.append([data])
        file.close()
    disk.rename(f"{root}/b", f"{root}/a")
    assert disk.read(f"{root}/a") == b"new"
    assert disk.kind(f"{root}/b") is None
    disk.make_dir(f"{root}/d")
    disk.rename(f"{root}/a", f"{root}/d/a")
    assert disk.read(f"{root}/d/a") == b"new" and disk.kind(f"{root}/a") is None


def test_lock_has_one_holder(place: tuple[Disk, str]) -> None:
    disk, root = place
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    disk.lock(f"{root}/.lock").release()


def test_boot_and_space(place: tuple[Disk, str]) -> None:
    disk, root = place
    assert disk.boot_id() and disk.boot_id() == disk.boot_id()
    assert 0 < disk.free_bytes(root) <= disk.total_bytes(root)


def test_a_symbolic_link_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    disk = OsDisk()
    assert disk.kind(str(tmp_path / "link")) is EntryKind.OTHER
    assert [e.kind for e in disk.list_dir(str(tmp_path))] == [EntryKind.OTHER, EntryKind.FILE]
    with pytest.raises(OSError):
        disk.open(str(tmp_path / "link"))
    with pytest.raises(OSError):
        disk.read(str(tmp_path / "link"))


# --- the simulated disk alone -----------------------------------------------------------------------------------------


def sim(*parts: bytes, synced: int = 0, names_synced: bool = True) -> SimDisk:
    """A disk with file /a, made of appends of which the first `synced` were synced."""
    disk = SimDisk()
    file = disk.open("/a", create=True)
    for i, part in enumerate(parts):
        file.append([part])
        if i + 1 == synced:
            file.sync()
    if names_synced:
        disk.sync_dir("/")
    return disk


def test_a_killed_process_loses_nothing_but_its_handles_and_locks() -> None:
    disk = sim(b"abc", names_synced=False)
    file, boot = disk.open("/a"), disk.boot_id()
    disk.lock("/l")
    disk.crash(Crash.PROCESS)
    with pytest.raises(OSError):
        file.append([b"from the grave"])
    disk.lock("/l").release()
    assert (disk.read("/a"), disk.boot_id()) == (b"abc", boot)


def test_power_loss_takes_unsynced_bytes_and_names() -> None:
    disk = sim(b"abc", b"def", synced=1)
    boot = disk.boot_id()
    disk.crash(Crash.DROP_UNSYNCED)
    assert disk.read("/a") == b"abc" and disk.boot_id() != boot
    disk = sim(b"abc", synced=1, names_synced=False)
    disk.crash(Crash.DROP_UNSYNCED)
    assert disk.kind("/a") is None, "the bytes were synced, the name was not"


def test_power_loss_may_keep_any_torn_prefix() -> None:
    seen = set()
    for seed in range(200):
        disk = sim(b"ab", b"cde", b"fg", synced=1)
        disk.crash(Crash.KEEP_SOME, random.Random(seed))
        seen.add(disk.read("/a"))
    assert seen >= {b"ab", b"abc", b"abcd", b"abcde", b"abcdef"}
    exhaustive = {sim_after.read("/a") for sim_after in _all_after(sim(b"ab", b"cde", b"fg", synced=1))}
    assert exhaustive == {b"abcdefg"[:n] for n in range(2, 8)}


def test_power_loss_may_take_an_earlier_write() -> None:
    disk = sim(b"ab", b"cde", b"fg", synced=1)
    seen = {disk.after(loss).read("/a") for loss in disk.losses(lambda _size: (), holes=True)}
    assert seen == {b"ab", b"abcde", b"abcdefg", b"ab\0\0\0fg"}


def _all_after(disk: SimDisk) -> list[SimDisk]:
    return [disk.after(loss) for loss in disk.losses(range)]


def test_power_loss_keeps_names_one_by_one() -> None:
    disk = SimDisk()
    disk.make_dir("/d")
    disk.sync_dir("/")
    disk.open("/d/a", create=True).close()
    disk.rename("/d/a", "/d/b")
    outcomes = {tuple(e.name for e in other.list_dir("/d")) for other in _all_after(disk)}
    assert outcomes == {(), ("a",), ("b",)}
    disk.sync_dir("/d")
    disk.make_dir("/e")
    disk.sync_dir("/")
    disk.rename("/d/b", "/e/b")
    across = {(bool(other.list_dir("/d")), bool(other.list_dir("/e"))) for other in _all_after(disk)}
    assert across == {(True, False), (True, True), (False, False), (False, True)}, "each directory for itself"
    disk.rename("/e/b", "/d/b")
    assert disk.kind("/d/b") is EntryKind.FILE, "looking at outcomes changes nothing"


def test_distinct_losses_leave_all_that_any_loss_leaves() -> None:
    disk = SimDisk()
    disk.make_dir("/d")
    disk.make_dir("/e")
    disk.sync_dir("/")
    for name in ("a", "b"):
        file = disk.open(f"/d/{name}", create=True)
        file.append([b"abc"])
        file.append([b"de"])
    file.truncate(0)
    file.append([b"abc"])
    disk.rename("/d/a", "/e/a")
    disk.remove("/d/b")
    every, distinct = (list(disk.losses(range, holes=True, distinct=distinct)) for distinct in (False, True))
    assert all(disk.image(loss) == disk.after(loss).image() for loss in every)
    left = [{frozenset(disk.image(loss).items()) for loss in losses} for losses in (every, distinct)]
    assert left[0] == left[1]
    assert len(distinct) < len(every) // 2


def test_after_a_failed_sync_the_bytes_are_gone_and_a_second_sync_does_not_help() -> None:
    disk = sim(b"abc")
    disk.fail("sync", errno.EIO)
    file = disk.open("/a")
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    assert disk.read("/a") == b"abc"
    disk.crash(Crash.DROP_UNSYNCED)
    assert disk.read("/a") == b""


def test_full_disk_writes_a_part() -> None:
    disk = sim(b"abc")
    disk.capacity_bytes = 5
    with pytest.raises(OSError) as caught:
        disk.open("/a").append([b"defgh"])
    assert caught.value.errno == errno.ENOSPC
    assert disk.read("/a") == b"abcde"
    assert disk.free_bytes("/") == 0
    assert disk.total_bytes("/") == 5


def test_injected_faults_hit_what_they_name() -> None:
    disk = sim(b"abc")
    disk.fail("pread", errno.EIO, path="b")
    assert disk.open("/a").pread(3, 0) == b"abc"
    disk.fail("append", errno.EIO, path="a", kept_bytes=2)
    with pytest.raises(OSError):
        disk.open("/a").append([b"def"])
    assert disk.read("/a") == b"abcde"


def test_flipped_bit_survives() -> None:
    disk = sim(b"abc", b"def", synced=1)
    disk.flip_bit("/a", 1)
    disk.flip_bit("/a", 4, bit=5)
    assert disk.read("/a") == b"accdEf"
    assert b"accdEf" in {other.read("/a") for other in _all_after(disk)}


def test_no_read_of_an_unreadable_sector_succeeds() -> None:
    disk = sim(b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES, synced=2)
    disk.lose_sector("/a", 1)
    file = disk.open("/a")
    assert file.pread(SECTOR_BYTES, 0) == b"a" * SECTOR_BYTES
    for size_bytes, position in [(1, SECTOR_BYTES), (2, SECTOR_BYTES - 1), (2 * SECTOR_BYTES, 0)]:
        with pytest.raises(OSError) as raised:
            file.pread(size_bytes, position)
        assert raised.value.errno == errno.EIO
    assert disk.rotten() == ["/a"]
    disk.crash(Crash.DROP_UNSYNCED)
    with pytest.raises(OSError):
        disk.read("/a")


@pytest.mark.parametrize("cure", ["cut", "overwritten", "restored"])
def test_what_is_cut_or_replaced_is_not_rotten(cure: str) -> None:
    disk = sim(b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES)
    disk.lose_sector("/a", 1)
    disk.flip_bit("/a", SECTOR_BYTES + 3)
    match cure:
        case "cut":
            disk.open("/a").truncate(SECTOR_BYTES)
        case "overwritten":
            disk.overwrite("/a", b"a" * SECTOR_BYTES)
        case _:
            disk.restore()
    assert disk.rotten() == [] and disk.read("/a")[:SECTOR_BYTES] == b"a" * SECTOR_BYTES


def test_power_cut_stops_at_a_call() -> None:
    disk = sim(b"abc")
    disk.stop_after = len(disk.trace) + 1
    file = disk.open("/a")
    file.append([b"d"])
    with pytest.raises(PowerCut):
        file.sync()
    with pytest.raises(PowerCut):
        file.append([b"e"])
    assert disk.read("/a") == b"abcd"
    assert [op.name for op in disk.trace] == ["create", "append", "sync_dir", "append"]


# --- beside the event loop --------------------------------------------------------------------------------------------


async def test_work_in_the_background_answers_raises_and_lets_the_loop_go_on(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.append([b"abc"])

    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await disk.in_background(file.sync)
    assert turns > 0
    assert await disk.in_background(lambda: disk.read(f"{root}/a")) == b"abc"
    with pytest.raises(FileNotFoundError):
        await disk.in_background(lambda: disk.read(f"{root}/nothing"))
    # An error that is an answer is not raised.
    error = OSError(errno.EIO, "x")
    assert await disk.in_background(lambda: error) is error
    counting.cancel()

    file.close()


@pytest.mark.real_loop
async def test_one_that_waits_keeps_no_other_waiting(tmp_path: Path) -> None:
    disk, gate = OsDisk(), threading.Event()

    waiting = asyncio.ensure_future(disk.in_background(gate.wait))
    async with asyncio.timeout(10.0):
        for _ in range(50):
            assert await disk.in_background(lambda: disk.kind(str(tmp_path))) is EntryKind.DIRECTORY
    assert not waiting.done()
    gate.set()
    assert await waiting


async def test_a_slow_sync_takes_virtual_time_and_covers_only_what_was_there_before() -> None:
    disk = sim(b"abc")
    disk.slow("sync", 30.0, path="/a")
    file = disk.open("/a")

    loop = asyncio.get_running_loop()
    began = loop.time()
    syncing = asyncio.ensure_future(disk.in_background(file.sync))
    await asyncio.sleep(1.0)
    file.append([b"later"])
    await syncing
    assert loop.time() - began == 30.0

    assert disk.stalled_s == 0.0
    disk.crash(Crash.DROP_UNSYNCED)
    assert disk.read("/a") == b"abc"
    disk.open("/a").sync()
    assert disk.stalled_s == 30.0, "on the event loop it would have held up everything"
    disk.mend()
    disk.open("/a").sync()
    assert disk.stalled_s == 30.0
