"""The bar of a command that takes a while: on the standard error, and only where that is a terminal."""

import os
import sys
from types import TracebackType
from typing import Any, Final, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn

WIDTH: Final = 12
"""The columns of the bar itself; the rest fits beside it into 80."""


class Bar:
    """Used as `with Bar("moving") as bar`. It disappears at the end."""

    def __init__(self, what: str, *columns: str | ProgressColumn, quiet: bool = False, **fields: Any) -> None:
        """`columns` stand behind the bar; text among them may name `fields`, as {task.fields[rate]}. `quiet`: nothing is
        shown at all, for programs."""
        self._terminal = _terminal()
        self.console = Console(stderr=True, file=self._terminal, quiet=quiet)
        self.moves = self.console.is_terminal and not quiet
        shown = (
            SpinnerColumn("line" if self.console.options.ascii_only else "dots"),
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(WIDTH),
            *columns,
        )
        self._progress = Progress(*shown, console=self.console, transient=True, disable=not self.moves)
        self._task = self._progress.add_task(what, total=None, **fields)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if self._terminal is not None:
            self._terminal.close()

    def advance(self, by: float) -> None:
        self._progress.advance(self._task, by)

    def show(self, **changes: Any) -> None:
        """Changes `description`, `completed`, `total` or fields."""
        self._progress.update(self._task, **changes)


def _terminal() -> TextIO | None:
    """The standard error where it is a terminal, on a descriptor of its own: while Spark starts, the other one is its log."""
    return os.fdopen(os.dup(2), "w") if sys.stderr is not None and sys.stderr.isatty() else None
