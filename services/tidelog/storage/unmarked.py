"""Folders of partitions that lack the marker of their topic when a broker starts.

The marker is synced before any record. So a loss of power explains a folder with records and without a marker, unless records of
it had been synced: then something else has taken the marker, and the records are kept.
"""

from itertools import count
from typing import Final, NamedTuple

from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.disk import Disk
from tidelog.storage import topic_marker
from tidelog.storage.checkpoint import OffsetCheckpoint

SUFFIX: Final = "-unmarked"


class Settled(NamedTuple):
    """Outcome for such a folder."""

    topic_id: bytes | None
    """Id of the topic, where its marker was made again."""
    notes: list[str]


def settle(disk: Disk, tp: TopicPartition, folder: str, synced: OffsetCheckpoint, *, power_lost: bool) -> Settled:
    """Makes the marker again, or after a loss of power empties or renames the folder; else leaves it alone.

    `synced` are the recovery points. After a loss of power they may name a topic that was deleted, and the folder may belong to
    the next one of the name. The start after this one will not know of the loss of power, and an order may come only then.
    """
    if not topic_marker.is_missing(disk, folder):
        return Settled(None, [])
    ids = {key.topic_id for key in synced.logs() if (key.topic, key.partition) == tp and synced.get(key)}
    try:
        if power_lost:
            return Settled(None, _after_power_loss(disk, folder, was_synced=bool(ids)))
        if len(ids) == 1:
            (topic_id,) = ids
            return Settled(topic_id, _made_again(disk, folder, topic_id))
    except (OSError, TidelogError) as error:
        return Settled(None, [f"{folder} is in the way: {error}"])
    return Settled(None, [])


def _after_power_loss(disk: Disk, folder: str, *, was_synced: bool) -> list[str]:
    if not was_synced or not topic_marker.has_records(disk, folder):
        topic_marker.clear_unmarked(disk, folder, power_lost=True)
        return []
    path = next(path for turn in count() if disk.kind(path := f"{folder}.{turn}{SUFFIX}") is None)
    disk.rename(folder, path)
    disk.sync_dir(folder.rpartition("/")[0])
    return [f"{folder} holds records, but no file names their topic; kept as {path}"]


def _made_again(disk: Disk, folder: str, topic_id: bytes) -> list[str]:
    try:
        topic_marker.write(disk, folder, topic_id)
        disk.sync_dir(folder)
    except OSError as error:  # the log can be opened all the same, and the next start tries again
        return [f"{folder}: the marker of topic {topic_id.hex()} is gone and cannot be made: {error}"]
    return [f"{folder}: the marker of topic {topic_id.hex()} was gone; made again"]
