"""Work that would hold up the event loop beside which it runs, as a port: it is done in another process.

Work is a plain value that can be sent there, and gives its results one by one; it goes no further than to the next one
before that is asked for, so that whoever asks sets the pace.
"""

from collections.abc import AsyncGenerator, Generator
from typing import Protocol, TypeVar

from tidelog.ports.disk import Disk

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Work(Protocol[R_co]):
    """A frozen value of plain fields. It takes back what it has begun when its generator is closed."""

    def run(self, disk: Disk) -> Generator[R_co, None, None]: ...


class Worker(Protocol):
    def run(self, work: Work[R]) -> AsyncGenerator[R, None]:
        """Close it (`contextlib.aclosing`). Raises the OSError of the work; OSError too when the worker has died.

        Several may be under way; they take turns.
        """
        ...

    def close(self) -> None:
        """Ends the worker with all that is under way. Harmless when there is none."""
        ...
