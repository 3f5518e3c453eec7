"""A file of a run that many tasks write to, line by line."""

from contextlib import suppress
from pathlib import Path


class Lines:
    """A write never fails, so that a full disk ends no task in the middle of a fault: `flush` and `close` raise its OSError.

    What is written reaches the file with `flush` or when a buffer is full, so that thousands a second cost little.
    """

    BUFFER_BYTES = 1 << 16

    def __init__(self, path: Path, *, buffered: bool = True) -> None:
        """Truncates the file. OSError. Not `buffered`: each line reaches the file at once."""
        self._path = path
        self._file = path.open("w", encoding="utf-8", buffering=self.BUFFER_BYTES if buffered else 1)
        self._failure: OSError | None = None

    def write(self, line: str) -> None:
        if self._failure is None:
            try:
                self._file.write(line + "\n")
            except OSError as error:
                self._failure = self._named(error)

    def flush(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            self._file.flush()
        except OSError as error:
            self._failure = self._named(error)
            raise self._failure from None

    def close(self) -> None:
        try:
            self.flush()
        finally:
            with suppress(OSError):  # it writes what is left in the buffer once more
                self._file.close()

    def _named(self, error: OSError) -> OSError:
        return OSError(error.errno, error.strerror, str(self._path))
