"""Reads a closed segment again and says whether it is what was written: every header and CRC, offsets without a gap, epochs
that never fall (reliability 8.1, row 32). Made to run in another process, at the pace of whoever asks for its results.
"""

from collections.abc import Generator
from dataclasses import dataclass

from tidelog.ports.disk import Disk
from tidelog.storage.compaction import STEP_BYTES, Progress, Source, batches_of
from tidelog.storage.recovery import Damage, RottenError
from tidelog.storage.segment import segment_name


@dataclass(frozen=True, slots=True)
class Scrub:
    folder: str
    source: Source

    def run(self, disk: Disk) -> Generator[Progress | Damage, None, None]:
        """Damage last, if there is any."""
        unread, latest = 0, 0
        try:
            for batch in batches_of(disk, self.folder, self.source):
                header = batch.header
                if header.leader_epoch < latest:
                    path = f"{self.folder}/{segment_name(self.source.base_offset)}"
                    reason = f"partition_leader_epoch: {header.leader_epoch} after {latest}"
                    raise RottenError(Damage(path, batch.position, header.base_offset, reason))
                latest = header.leader_epoch
                unread += len(batch.data)
                if unread >= STEP_BYTES:
                    yield Progress(unread)
                    unread = 0
        except RottenError as rotten:
            yield rotten.damage
        yield Progress(unread)
