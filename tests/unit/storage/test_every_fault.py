"""Every call to the disk fails once, and every file is damaged before a start: nothing that was promised is lost in silence.

The stories are those of the crash test. What a single copy loses has to be said, so that the partition is led by another copy
or waits for an operator; no error is another one than those of the log.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from helpers.logs import ROOT, TP, contents, open_store
from tidelog.errors import ErrorCode, TidelogError
from tidelog.storage.log_store import LogStore
from tidelog.testing.disk import Crash, SimDisk
from tidelog.wire.batch import iter_batches
from unit.storage.test_crash import STORIES, Witness, batches, check, end_of, kept, promised, story_clean_stop, told

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(600)]

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EMFILE": errno.EMFILE}
SAID = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.LEADER_NOT_AVAILABLE}


class Struck:
    """Counts the calls to a disk, and lets one of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.at = -1
        self.error = 0
        self.struck = ""
        original = SimDisk.step

        def step(disk: SimDisk, op: str, path: str, *, changes: bool = True) -> None:
            self.calls += 1
            if self.calls - 1 == self.at and not disk.observed:
                self.struck = f"{op} {path}"
                raise OSError(self.error, "injected", path)
            original(disk, op, path, changes=changes)

        monkeypatch.setattr(SimDisk, "step", step)

    def next(self, at: int, error: int) -> None:
        self.calls, self.at, self.error, self.struck = 0, at, error, ""


def tell(story: Callable[[Witness], None], struck: Struck, at: int, error: int) -> tuple[SimDisk, Witness, bool]:
    """The story with a failing call; and whether it was told to its end."""
    disk, witness, _ = told(lambda _: None, None)
    witness.undisturbed = at < 0
    struck.next(at, error)
    try:
        story(witness)
    except TidelogError as refused:
        assert refused.code in SAID, refused
        return disk, witness, False
    except OSError as failed:
        assert failed.errno == error, "of a checkpoint, whose error the broker logs"
        return disk, witness, False
    finally:
        struck.at = -1
    return disk, witness, True


@contextmanager
def noted(when: str) -> Iterator[None]:
    """A failure says when it happened."""
    try:
        yield
    except (AssertionError, OSError, TidelogError) as problem:
        problem.add_note(when)
        raise


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("story_"))
def test_every_call_fails_once(story: Callable[[Witness], None], error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    struck = Struck(monkeypatch)
    tell(story, struck, -1, 0)
    calls = struck.calls
    for at in range(calls):
        disk, witness, ended = tell(story, struck, at, ERRORS[error])
        assert struck.struck
        if ended and witness.log.failure is None:
            witness.synced = end_of(witness.states[-1])
        disk.crash(Crash.PROCESS)
        with noted(f"after {error} at call {at} of {calls}: {struck.struck}; told to its end: {ended}"):
            check(disk, witness)
    assert calls > 5


def left(story: Callable[[Witness], None], clean: bool) -> tuple[SimDisk, Witness]:
    """The files that a process leaves which is killed, or stops in order, at the end of the story.

    All is promised after a stop, and what was flushed after a kill: the checkpoint tells the next process how far that is.
    """
    disk, witness, _ = told(story, None)
    if story is not story_clean_stop:
        marks = {TP: witness.log.log_end_offset}
        if clean:
            assert witness.store.close(marks, broker_epoch=77)
            witness.synced = end_of(witness.states[-1])
        else:
            witness.store.checkpoint(marks)
            witness.synced = witness.log.recovery_point
            witness.store.abandon()
    disk.crash(Crash.PROCESS)
    return disk, witness


STOPS = pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])


@STOPS
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("story_"))
def test_every_call_of_a_start_fails_once(
    story: Callable[[Witness], None], error: str, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, witness = left(story, clean)
    struck = Struck(monkeypatch)
    open_store(before.copied())
    calls, starts = struck.calls, witness.starts
    for at in range(calls):
        disk = before.copied()
        struck.next(at, ERRORS[error])
        try:
            store = open_store(disk)
        except (TidelogError, OSError) as refused:
            assert ROOT in str(refused), "the line that the process ends with names a file"
            assert may_end_a_start(struck.struck), struck.struck
        else:
            assert store.notes or TP not in store.failed, struck.struck
            store.abandon()
        struck.at = -1
        witness.knows_crcs = not struck.struck.endswith("/incarnation")
        witness.starts = starts
        if struck.struck.endswith("/log-start-offset-checkpoint"):
            witness.starts = [*range(starts[-1] + 1)]  # where the first segment begins, which may be below
        disk.crash(Crash.PROCESS)
        with noted(f"after {error} at call {at} of {calls}: {struck.struck}"):
            check(disk, witness)
    assert calls > 5


def may_end_a_start(call: str) -> bool:
    """The data directory itself cannot be used: whose it is, its lock, and what is in it."""
    path = call.partition(" ")[2]
    return path.removeprefix(ROOT).count("/") < 2 and "events-0" not in path


def damages(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    yield "removed", None
    if not data:
        yield "filled", b"x"
        return
    yield "emptied", b""
    yield "truncated by a byte", data[:-1]
    yield "truncated to a half", data[: len(data) // 2]
    for at in sorted({0, len(data) // 3, len(data) // 2, len(data) - 1}):
        yield f"flipped at {at}", data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :]


def damaged(before: SimDisk, path: str, data: bytes | None) -> SimDisk:
    disk = before.copied()
    if data is None:
        disk.remove(path)
        disk.crash(Crash.PROCESS)
    else:
        disk.overwrite(path, data)
    return disk


@STOPS
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("story_"))
def test_every_file_is_damaged_before_a_start(story: Callable[[Witness], None], clean: bool) -> None:
    before, witness = left(story, clean)
    files = {path: data for path, data in before.image().items() if data is not None}
    tried = 0
    for path, data in files.items():
        for how, changed in damages(data):
            disk = damaged(before, path, changed)
            with noted(f"{path} {how}, after a {'clean stop' if clean else 'kill'}"):
                opened_as_promised(disk, witness)
            tried += 1
    assert tried > 20


def opened_as_promised(disk: SimDisk, witness: Witness) -> None:
    """Either all that was promised is there, or it is said what is not; and whatever can be read was once written."""
    try:
        store = open_store(disk)
    except TidelogError as refused:
        assert f"{ROOT}/identity" in refused.message or "identity" in refused.message
        return
    log = store.logs.get(TP)
    if log is None or log.failure is not None:
        assert said(store), "a log that is not there without a word"
        return
    once = {data for state in witness.states for data in batches(state)}
    try:
        held = contents(log)
    except TidelogError as rotten:
        assert rotten.code in SAID | {ErrorCode.CORRUPT_MESSAGE}
        return
    assert {data for _, data in split(held)} <= once, "a batch that was never there"
    promise = kept(promised(witness), log.log_start_offset)
    assert held.startswith(promise) or said(store), "records are gone without a word"
    assert log.log_start_offset <= witness.starts[-1] or said(store)


def split(records: bytes) -> list[tuple[int, bytes]]:
    return [(at, records[at : at + header.size_bytes]) for at, header in iter_batches(records)]


def said(store: LogStore) -> bool:
    return bool(store.notes) and store.intact_since is None
