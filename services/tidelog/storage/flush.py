"""Making a log's unsynced bytes durable without holding up its owner: a slow device must not stop the event loop."""

from collections.abc import Sequence

from tidelog.ports.disk import Disk, DiskFile


class Flush:
    """Makes what was appended before it began durable: `begin_flush`, `run` (any thread), `end_flush`."""

    __slots__ = ("_directories", "_disk", "_files", "cuts", "paths", "target")

    def __init__(
        self,
        disk: Disk,
        files: Sequence[DiskFile],
        paths: Sequence[str],
        directories: Sequence[str],
        target: int,
        cuts: int,
    ) -> None:
        self._disk = disk
        self._files = files
        self._directories = directories
        self.paths = paths
        self.target = target
        """Log end when it began: the recovery point when it has succeeded."""
        self.cuts = cuts

    def run(self) -> None:
        """OSError: nothing may be assumed, and it must not be tried again."""
        for file in self._files:
            file.sync()
        for directory in self._directories:
            self._disk.sync_dir(directory)

    def outcome(self) -> OSError | None:
        """`run`, with its error as a value for `end_flush`."""
        try:
            self.run()
        except OSError as error:
            return error
        return None
