"""The interfaces of the cluster behind a page: it tells a hub what is to be seen, and may take commands."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol


class Refused(Exception):
    """A command that cannot be done; the text is one line."""


class File(NamedTuple):
    name: str
    media_type: str
    content: str


class Source(Protocol):
    """A cluster that is shown."""

    async def run(self) -> None:
        """Runs beside the web server until it is cancelled."""


class Commanded(Protocol):
    """Carries out what a reader does to the cluster. The futures may fail with `Refused`."""

    def do(self, command: Mapping[str, Any]) -> Future[None]: ...

    def save(self, kind: str) -> Future[File]:
        """kind: `page` or `story`."""
        ...
