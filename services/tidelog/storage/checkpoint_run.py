"""One checkpoint of all logs of a broker, from its files beside the old ones until they take their place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from tidelog.ports.disk import Disk
from tidelog.storage.checkpoint import LogKey, write_beside
from tidelog.storage.epoch_journal import EpochJournal
from tidelog.storage.reserve import Reserve

NEXT_SUFFIX: Final = ".next"


class Replaced(Protocol):
    """A small file that a checkpoint replaces."""

    @property
    def path(self) -> str: ...

    def installed(self) -> None:
        """The new content is in place."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on its way: `begin_checkpoint`, `run` (any thread), `end_checkpoint`."""

    disk: Disk
    root: str
    journal: EpochJournal
    reserve: Reserve
    files: Sequence[tuple[Replaced, Callable[[], bytes]]]
    lowerings: int
    deleted: Sequence[str]
    log_starts: Mapping[LogKey, int]
    """Of the last checkpoint: durable with this one."""

    def run(self) -> None:
        """The slow part: epoch lines first, since recovery trusts them below the recovery points.

        The names of the last checkpoint become durable with this one.
        """
        self.journal.sync()
        self.disk.sync_dir(self.root)
        for marks, content in self.files:
            self.reserve.lend(partial(write_beside, self.disk, marks.path + NEXT_SUFFIX, content()))
