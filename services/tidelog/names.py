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
    return _validate("topic name", name, ErrorCode.INVALID_TOPIC_EXCEPTION)


def check_lengths(field: str, topics: Iterable[str]) -> None:
    """TidelogError INVALID_TOPIC_EXCEPTION for a name that is longer than that of any topic.

    For requests whose answer has the name once for each partition: 10,000 times 4 MiB are more than a process has.
    """
    longest = max(map(len, topics), default=0)
    if longest > TOPIC_NAME_MAX:
        text = f"{field} has {longest} characters, at most {TOPIC_NAME_MAX} are allowed"
        raise TidelogError(text, ErrorCode.INVALID_TOPIC_EXCEPTION)


INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""What a client of Kafka expects to be the cluster's own. Tidelog keeps that state in ZooKeeper, and nobody may keep
something else under these names."""


def refuse_internal(name: str) -> None:
    """TidelogError INVALID_TOPIC_EXCEPTION if nobody may create or delete a topic of this name."""
    if name in INTERNAL_TOPICS:
        raise TidelogError(
            f"topic name {name!r} is that of an internal topic, which is neither created nor deleted by request",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )


def _validate(what: str, name: str, code: ErrorCode) -> str:
    if not name:
        raise TidelogError(f"{what} is empty", code)
    if len(name) > TOPIC_NAME_MAX:
        raise TidelogError(f"{what} has {len(name)} characters; at most {TOPIC_NAME_MAX}", code)
    if name in (".", ".."):
        raise TidelogError(f"{what} may not be {name!r}", code)
    if not _TOPIC_NAME.fullmatch(name):
        text = f"{what} {name!a} holds something else than ASCII letters, digits, '.', '_' and '-'"
        raise TidelogError(text, code)
    return name


GROUP_RESERVED: Final = ("coordinator", "coordinator_epoch", "groups", "shards")
"""What /consumers holds beside the groups."""


def validate_group_id(group_id: str) -> str:
    """The id itself; TidelogError INVALID_GROUP_ID says what is wrong with it. It is a znode's name, as a topic's is."""
    if group_id in GROUP_RESERVED:
        raise TidelogError(f"group_id may not be {group_id!r}", ErrorCode.INVALID_GROUP_ID)
    return _validate("group_id", group_id, ErrorCode.INVALID_GROUP_ID)


def validate_consumer_id(consumer_id: str) -> str:
    """The id itself; TidelogError INVALID_REQUEST says what is wrong with it."""
    return _validate("consumer_id", consumer_id, ErrorCode.INVALID_REQUEST)


SHOWN_MAX: Final = 60


def shown(text: str) -> str:
    """For a message to whoever sent it: quoted, and no longer than a line."""
    return ascii(text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}...")


def code_of_unknown(name: str) -> ErrorCode:
    """Why there is no topic of this name: it may not have one, or it has none yet."""
    try:
        validate_topic_name(name)
    except TidelogError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def suggestion(key: str, known: Iterable[str], most: int = 1) -> str:
    """`; did you mean 'x' or 'y'?`, with at most `most` of them; nothing if no known key is near."""
    near = difflib.get_close_matches(key, list(known), n=most)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
