"""Names that come from outside: which topic names are safe as a file and a znode name, and what a misspelt key meant."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

from tidelog.errors import ErrorCode, TidelogError

TOPIC_NAME_MAX: Final = 249
"""With '-' and five digits of a partition it still fits a file name of 255 bytes."""

# fullmatch and explicit ASCII: `$` lets a trailing newline pass, and \w other alphabets (reliability 7.1).
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> str:
    """The name itself; TidelogError INVALID_TOPIC_EXCEPTION says what is wrong with it."""
    if not name:
        raise TidelogError("topic name is empty", ErrorCode.INVALID_TOPIC_EXCEPTION)
    if len(name) > TOPIC_NAME_MAX:
        text = f"topic name has {len(name)} characters; at most {TOPIC_NAME_MAX}"
        raise TidelogError(text, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if name in (".", ".."):
        raise TidelogError(f"topic name may not be {name!r}", ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not _TOPIC_NAME.fullmatch(name):
        text = f"topic name {name!a} holds something else than ASCII letters, digits, '.', '_' and '-'"
        raise TidelogError(text, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return name


def code_of_unknown(name: str) -> ErrorCode:
    """Why there is no topic of this name: it may not have one, or it has none yet."""
    try:
        validate_topic_name(name)
    except TidelogError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def suggestion(key: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing if no known key is near."""
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
