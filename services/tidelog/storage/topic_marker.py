"""The marker in a log's folder: a file without bytes whose name is the id of the topic that the records belong to."""

from typing import Final

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.disk import Disk
from tidelog.storage.producer_snapshot import SNAPSHOT_SUFFIX
from tidelog.storage.segment import ASIDE_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, parse_segment_name

SUFFIX: Final = ".topic"
_LOG_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, SNAPSHOT_SUFFIX, ASIDE_SUFFIX)


def topic_id_in(disk: Disk, folder: str) -> bytes | None:
    """None unless there is exactly one marker, with a topic id as its name."""
    names = _markers(disk, folder)
    try:
        return bytes.fromhex(names[0].removesuffix(SUFFIX)) if len(names) == 1 else None
    except ValueError:
        return None


def is_missing(disk: Disk, folder: str) -> bool:
    return not _markers(disk, folder)


def has_records(disk: Disk, folder: str) -> bool:
    return any(_size_bytes(disk, f"{folder}/{entry.name}") for entry in disk.list_dir(folder))


def write(disk: Disk, folder: str, topic_id: bytes) -> None:
    """Durable once the folder is synced."""
    disk.open(f"{folder}/{topic_id.hex()}{SUFFIX}", create=True).close()


def clear_unmarked(disk: Disk, folder: str, *, power_lost: bool) -> None:
    """Empties a folder of ours whose marker was lost with the power: the marker is synced before any record is.

    KAFKA_STORAGE_ERROR, and nothing is removed, if the folder holds foreign files, or records that no loss of power explains.
    """
    names = [entry.name for entry in disk.list_dir(folder)]
    ours = [n for n in names if any(parse_segment_name(n, suffix) is not None for suffix in _LOG_SUFFIXES)]
    if ours != names:
        raise TidelogError(f"{folder} is in the way and not ours; move it away", ErrorCode.KAFKA_STORAGE_ERROR)
    if not power_lost and has_records(disk, folder):
        raise TidelogError(
            f"{folder} holds records, but no file names their topic; move it away", ErrorCode.KAFKA_STORAGE_ERROR
        )
    for name in reversed(names):
        disk.remove(f"{folder}/{name}")
    disk.sync_dir(folder)


def _markers(disk: Disk, folder: str) -> list[str]:
    return [entry.name for entry in disk.list_dir(folder) if entry.name.endswith(SUFFIX)]


def _size_bytes(disk: Disk, path: str) -> int:
    file = disk.open(path, read_only=True)
    try:
        return file.size()
    finally:
        file.close()
