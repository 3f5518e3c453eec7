"""What a broker may find in its data directory when it starts (reliability 7.2, "Files at start"), on the disk of this machine.

Each thing found is refused by name with what to do, repaired, left alone, or costs one partition, which goes offline with its
files as they are. Whatever it is, the other partition serves.
"""

import os
import random
import shutil
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from crc32c import crc32c

from helpers.batches import batch
from helpers.logs import SMALL, TOPIC_ID, contents, lead
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.runtime.os_disk import OsDisk
from tidelog.runtime.process import explain
from tidelog.storage.checkpoint import encode_lines
from tidelog.storage.log_store import LogStore

TP, OTHER = TopicPartition("events", 0), TopicPartition("events", 1)
RECORDS: Final = 10
MARKS: Final = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
JOURNAL: Final = "leader-epoch-journal"
NOISE: Final = random.Random(5).randbytes(300)


class Outcome(Enum):
    REFUSED = "the process says why and does not start"
    REPAIRED = "as if nothing had happened"
    ALONE = "it stays as it is, named, and nobody reads it"
    OFFLINE = "the partition is not served, its files stay as they are"


class Case(NamedTuple):
    item: str
    """Of the list."""
    what: str
    change: Callable[[Path], None]
    outcome: Outcome
    words: str = ""
    """Of the note or the refusal; none where nothing is worth a note."""

    def __str__(self) -> str:
        return f"{self.item}: {self.what}"


def written(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda root: (root / name).write_bytes(data) and None


def of_version(version: int, *lines: str) -> bytes:
    body = "".join(f"{line}\n" for line in (str(version), str(len(lines)), *lines)).encode()
    return body + f"{crc32c(body):08x}\n".encode()


def mark(offset: object, partition: int = 0) -> str:
    return f"events {partition} {TOPIC_ID.hex()} {offset}"


def folder(name: str, *files: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / name).mkdir()
        for file in files:
            (root / name / file).write_bytes(b"mine")

    return change


def elsewhere(name: str) -> Callable[[Path], None]:
    """Moved out of the directory, with a symbolic link in its place."""

    def change(root: Path) -> None:
        moved = root.parent / "elsewhere"
        shutil.move(root / name, moved)
        (root / name).symlink_to(moved)

    return change


def each(pattern: str, data: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        found = list((root / "events-0").glob(pattern))
        assert found, pattern
        for file in found:
            file.write_bytes(data(file.read_bytes()))

    return change


def without_epoch_2(root: Path) -> None:
    lines = (root / JOURNAL).read_bytes().splitlines(keepends=True)
    left = [line for line in lines if not line.endswith(b" 2 5\n")]
    assert len(left) < len(lines)
    (root / JOURNAL).write_bytes(b"".join(left))


def link(name: str, target: str) -> Callable[[Path], None]:
    return lambda root: (root / name).symlink_to(target)


REFUSED, REPAIRED, ALONE, OFFLINE = Outcome.REFUSED, Outcome.REPAIRED, Outcome.ALONE, Outcome.OFFLINE
SEGMENT = "events-0/00000000000000000000.log"
EMPTY = "read as empty"
CASES: Final = (
    Case("unknown file", "beside the logs", written("notes.txt", b"mine"), ALONE, "notes.txt is not ours"),
    Case("unknown file", "with the name of a partition", written("events-2", b"mine"), ALONE, "events-2 is not ours"),
    Case("unknown file", "in a log", written("events-0/notes.txt", b"mine"), REPAIRED),
    Case("unknown file", "nearly a segment", written("events-0/7.log", b"mine"), REPAIRED),
    Case("unknown file", "what a replacement left", written("identity.tmp", b"half"), REPAIRED),
    Case("symlink", "to nowhere", link("events-2", "/nowhere"), ALONE, "events-2 is not ours"),
    Case("symlink", "to the directory itself", link("loop-0", "."), ALONE, "loop-0 is not ours"),
    Case("symlink", "in place of a log", elsewhere("events-0"), OFFLINE, "events-0 is not ours"),
    Case("symlink", "in place of a segment", elsewhere(SEGMENT), OFFLINE, "symbolic links"),
    Case("symlink", "in place of the identity", elsewhere("identity"), REFUSED, "put the file itself there"),
    Case("symlink", "in place of a checkpoint", elsewhere(MARKS[0]), REFUSED, "put the file itself there"),
    Case("foreign directory", "with foreign files", folder("events-2", "x"), ALONE, "events-2 is not a partition"),
    Case("foreign directory", "empty", folder("events-2"), ALONE, "events-2 is not a partition"),
    Case("foreign directory", "of no topic", folder("lost+found"), ALONE, "lost+found is not a partition"),
    Case("foreign directory", "of a date", folder("photos-2024", "x"), ALONE, "photos-2024 is not a partition"),
    Case("foreign directory", "of a negative partition", folder("events--1"), ALONE, "events--1 is not a partition"),
    Case("foreign directory", "of a huge partition", folder(f"events-{10**20}"), ALONE, "is not a partition"),
    Case("foreign directory", "of foreign digits", folder("events-\u0661"), ALONE, "is not a partition"),
    Case("foreign directory", "two topics", written(f"events-0/{'ff' * 16}.topic", b""), OFFLINE, "events-0"),
    *(
        case
        for name in MARKS
        for case in (
            Case("negative number", name, written(name, encode_lines([mark(-1)])), REPAIRED, EMPTY),
            Case("too large number", f"{name}, 2^63", written(name, encode_lines([mark(2**63)])), REPAIRED, EMPTY),
            Case(
                "too large number", f"{name}, digits", written(name, encode_lines([mark("9" * 5_000)])), REPAIRED, EMPTY
            ),
            Case(
                "too large number",
                f"{name}, beyond the log",
                written(name, encode_lines([mark(2**62)])),
                OFFLINE,
                str(2**62),
            ),
            Case("duplicate lines", name, written(name, encode_lines([mark(3), mark(3)])), REPAIRED, EMPTY),
            Case("empty file", name, written(name, b""), REPAIRED, EMPTY),
            Case("noise", name, written(name, NOISE), REPAIRED, EMPTY),
            Case("noise", f"{name}, no checksum", written(name, b"1\n0\n"), REPAIRED, EMPTY),
            Case("noise", f"{name}, foreign digits", written(name, encode_lines([mark("\u00b2")])), REPAIRED, EMPTY),
            Case("noise", f"{name}, no topic id", written(name, encode_lines(["events 0 zz 2"])), REPAIRED, EMPTY),
            Case("noise", f"{name}, three fields", written(name, encode_lines(["events 0 2"])), REPAIRED, EMPTY),
            Case(
                "noise",
                f"{name}, a count that lies",
                written(name, of_version(1, mark(3)).replace(b"\n1\n", b"\n9\n")),
                REPAIRED,
                EMPTY,
            ),
            Case("wrong version", name, written(name, of_version(2, mark(3))), REFUSED, "version 2 is not known here"),
        )
    ),
    Case("empty file", "identity", written("identity", b""), REFUSED, "move it away and start again"),
    Case("noise", "identity", written("identity", NOISE), REFUSED, "move it away and start again"),
    Case("noise", "identity, zeros", written("identity", bytes(100)), REFUSED, "move it away and start again"),
    Case("noise", "identity, text", written("identity", b"garbage\n"), REFUSED, "move it away and start again"),
    Case(
        "noise",
        "identity, no checksum",
        written("identity", b"cluster c1\nbroker 1\n"),
        REFUSED,
        "move it away and start again",
    ),
    Case(
        "duplicate lines",
        "identity",
        written("identity", encode_lines(["cluster c1", "cluster c2"])),
        REFUSED,
        "move it away",
    ),
    Case("wrong version", "identity", written("identity", of_version(2)), REFUSED, "start the release that wrote it"),
    Case("empty file", "incarnation", written("incarnation", b""), REPAIRED, EMPTY),
    Case(
        "wrong version",
        "incarnation",
        written("incarnation", of_version(2)),
        REFUSED,
        "start the release that wrote it",
    ),
    Case("empty file", "clean marker", written(".clean-shutdown", b""), REPAIRED, EMPTY),
    Case("wrong version", "clean marker", written(".clean-shutdown", of_version(2)), REFUSED, "start the release that"),
    Case("negative number", "clean marker", written(".clean-shutdown", encode_lines(["broker_epoch -7"])), REPAIRED),
    Case("empty file", JOURNAL, written(JOURNAL, b""), REPAIRED, "journal has lost epochs"),
    Case("noise", JOURNAL, written(JOURNAL, NOISE), REPAIRED, "journal has lost epochs"),
    Case("missing lines", JOURNAL, without_epoch_2, REPAIRED, "journal has lost epochs"),
    Case("missing file", JOURNAL, lambda root: (root / JOURNAL).unlink(), REPAIRED, "journal has lost epochs"),
    Case("empty file", "segment", written(SEGMENT, b""), OFFLINE, SEGMENT),
    Case("empty file", "index", each("*.index", lambda data: b""), REPAIRED),
    Case("index longer than log", "the same again", each("*.index", lambda data: data * 50), REPAIRED),
    Case("index longer than log", "noise", each("*.index", lambda data: NOISE * 20), REPAIRED),
    Case("wrong version", "index", each("*.index", lambda data: b"\x09" * 4 + data[4:]), REPAIRED),
    Case("empty file", "producer snapshot", each("*.snapshot", lambda data: b""), REPAIRED),
    Case("noise", "producer snapshot", each("*.snapshot", lambda data: NOISE), REPAIRED),
)


def opened(root: Path) -> LogStore:
    rand = random.Random(1)
    store = LogStore.open(OsDisk(), str(root), cluster_id="c1", broker_id=1, rand=rand, config=SMALL)
    try:
        store.load()
    except (TidelogError, OSError):
        store.abandon()
        raise
    return store


@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_in_place_of_the_directory_or_above_it(tmp_path: Path, below: str) -> None:
    file = tmp_path / "data"
    file.write_text("not a directory")
    with pytest.raises((TidelogError, OSError)) as caught:
        opened(file / below)
    said = f"data directory {file} is not a directory; set another one, or move the file away"
    assert explain(caught.value) == said and file.read_text() == "not a directory"


def prepared(root: Path, *, clean: bool) -> bytes:
    """Two logs of the same records, in several segments and two epochs; returns the records."""
    store = opened(root)
    store.registered(5)
    for tp in (TP, OTHER):
        log = store.create(tp, TOPIC_ID)
        for number in range(RECORDS):
            lead(log, batch(b"x" * 20), 1 + (number >= 5))
        log.flush()
    held = contents(store.logs[TP])
    assert len(store.logs[TP].segments) > 2
    if clean:
        assert store.close({TP: RECORDS, OTHER: RECORDS}, 5)
    else:
        store.checkpoint({TP: RECORDS, OTHER: RECORDS})
        store.abandon()
    return held


def tree(root: Path) -> dict[str, bytes | str]:
    """Everything that lies in it, links as what they point to."""
    found: dict[str, bytes | str] = {}
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(place, name)
            key = str(path.relative_to(root))
            found[key] = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
    return found


def kept(found: dict[str, bytes | str]) -> dict[str, bytes | str]:
    """The partition's part, without what is made anew from its records."""
    made = (".index", ".snapshot")
    return {name: data for name, data in found.items() if name.startswith("events-0") and not name.endswith(made)}


def served(store: LogStore, tp: TopicPartition, held: bytes) -> None:
    log = store.create(tp, TOPIC_ID)
    assert contents(log).startswith(held)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (2, 5)]
    end = log.log_end_offset
    lead(log, batch(b"new"), 2)
    assert log.log_end_offset == end + 1 and batch(b"new")[16:] in contents(log)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_found_at_start_has_one_of_four_outcomes(case: Case, clean: bool, tmp_path: Path) -> None:
    root = tmp_path / "data"
    held = prepared(root, clean=clean)
    ours = tree(root)
    case.change(root)
    before = tree(root)
    strange = {name: data for name, data in before.items() if name not in ours}
    if case.outcome is REFUSED:
        for _ in range(2):
            with pytest.raises((TidelogError, OSError)) as caught:
                opened(root)
            message = explain(caught.value)
            assert message.startswith(str(root)) and case.words in message
        assert tree(root) == before
        return
    for start in range(2):
        store = opened(root)
        named = [note for note in store.notes if case.words and case.words in note]
        served(store, OTHER, held)
        match case.outcome:
            case Outcome.REPAIRED:
                served(store, TP, held)
                assert bool(named) == (bool(case.words) and start == 0), store.notes
            case Outcome.ALONE:
                served(store, TP, held)
                assert len(named) == 1 and str(root) in named[0], store.notes
            case Outcome.OFFLINE:
                assert named and str(root) in named[0], store.notes
                with pytest.raises(TidelogError) as caught:
                    lead(store.create(TP, TOPIC_ID), batch(b"new"), 2)
                assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
                assert kept(tree(root)) == kept(before)
        if case.outcome is ALONE:
            assert strange.items() <= tree(root).items()
        store.close({}, 6)


def test_two_processes_on_one_directory(tmp_path: Path) -> None:
    root = tmp_path / "data"
    prepared(root, clean=True)
    store = opened(root)
    before = tree(root)
    with pytest.raises(
        TidelogError, match=f"data directory {root} is in use by another process; stop it, or give"
    ) as caught:
        opened(root)
    assert caught.value.code is ErrorCode.INVALID_CONFIG and tree(root) == before
    lead(store.logs[TP], batch(b"new"), 2)
    store.abandon()
    opened(root).abandon()


def test_every_item_of_the_list_is_in_the_table() -> None:
    """Reliability 7.2, "Files at start", as it stands there; the lock file has a test of its own."""
    listed = {
        "unknown file",
        "symlink",
        "foreign directory",
        "negative number",
        "too large number",
        "duplicate lines",
        "empty file",
        "wrong version",
        "index longer than log",
    }
    assert listed <= {case.item for case in CASES}
    assert len({str(case) for case in CASES}) == len(CASES)
