"""Exit codes of `tidelog`, and the error that is one line for the person at the terminal."""

import errno
import os
import re
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog.errors import ErrorCode, TidelogError

FAILED: Final = 1
BAD_INPUT: Final = 2
"""Options, files, settings and names that no cluster can use."""
BUG: Final = 70
"""EX_SOFTWARE of sysexits.h."""
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141
"""The code that a shell gives for SIGPIPE."""


_INVALID: Final = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Answers to what was asked, whatever the state of the cluster."""
_NO_FILE: Final = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR})
"""A path that was named leads to no file."""
_NO_TOPIC: Final = re.compile(r"topic '[^']*' does not exist")
_LISTED: Final = "; `tidelog topics list` shows those that do"


class CommandError(Exception):
    """Ends the command with `exit_code`; `message` is printed on the standard error, one line each."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def bad_input(message: str) -> CommandError:
    return CommandError(message, BAD_INPUT)


def exit_code_of(error: TidelogError | OSError) -> int:
    known: frozenset[int] = _INVALID if isinstance(error, TidelogError) else _NO_FILE
    return BAD_INPUT if (error.code if isinstance(error, TidelogError) else error.errno) in known else FAILED


def told(error: TidelogError) -> str:
    """The error's message, and what to do where the library cannot know."""
    from tidelog.client.errors import ClusterUnreachable

    if isinstance(error, ClusterUnreachable):
        return f"{error.message}: is the cluster up? `tidelog local up` starts one"
    return error.message + (_LISTED if _NO_TOPIC.fullmatch(error.message) else "")


def no_topic(name: str) -> CommandError:
    return CommandError(f"topic {name!r} does not exist{_LISTED}")


def bug(error: BaseException, args: Sequence[str]) -> str:
    """A line about an error that nothing handles. Its traceback goes to a file that the line names."""
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    told = f"$ tidelog {' '.join(args)}\n{''.join(traceback.format_exception(error))}"
    for directory in (state_dir(), Path(tempfile.gettempdir())):
        file = directory / f"bug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            file.write_text(told, errors="backslashreplace")
        except OSError:
            continue
        return f"this is a bug of tidelog: {what}; {file} has the traceback"
    return f"this is a bug of tidelog: {what}; no directory takes a file with the traceback"


def state_dir() -> Path:
    """Directory for what a program leaves for later (XDG Base Directory Specification)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "tidelog"


@contextmanager
def as_bad_input(kind: type[Exception] = ValueError) -> Iterator[None]:
    """Turns an error of a parser into bad input; its text names what is wrong."""
    try:
        yield
    except kind as error:
        raise bad_input(str(error)) from None
