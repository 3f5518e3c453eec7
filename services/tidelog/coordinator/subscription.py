"""What a consumer wants to read: the `topic_count` of its registration (F08.2).

It comes from a stranger: everything in it is bounded, and patterns are RE2's (linear time in the topic's name, bounded
memory, no backtracking), so that no expression can stall the coordinator. A pattern must fit the whole name of a topic.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import re2

from tidelog.errors import ErrorCode, TidelogError
from tidelog.names import validate_topic_name

TEXT_MAX: Final = 256 * 1024
TOPICS_MAX: Final = 10_000
STREAMS_MAX: Final = 100
"""Of one consumer for one topic: threads of one process. An assignor names each of them, also those that get nothing, so with
5,000 members a thousand of each would hold the coordinator up for seconds."""
PATTERN_MAX: Final = 1_024
PATTERN_MEMORY: Final = 256 * 1024
"""Bytes that one compiled pattern may take, with what it remembers while it matches."""

STATIC: Final = "static"
WHITE_LIST: Final = "white_list"
BLACK_LIST: Final = "black_list"
_FIELDS: Final = frozenset({"pattern", "subscription"})


class _Pattern(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


@dataclass(frozen=True, slots=True)
class Subscription:
    """Equal if it asks for the same: `text` is the same for every spelling of it."""

    text: str
    kind: str = field(compare=False)
    streams: Mapping[str, int] = field(compare=False)
    """By topic, or by the one pattern."""
    _pattern: _Pattern | None = field(compare=False, repr=False)

    @property
    def wildcard(self) -> bool:
        return self._pattern is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that are named, whether they exist or not; none for a wildcard."""
        return () if self.wildcard else tuple(self.streams)

    def matches(self, topic: str) -> bool:
        if self._pattern is None:
            return topic in self.streams
        return (self._pattern.fullmatch(topic) is not None) == (self.kind == WHITE_LIST)

    def threads_for(self, topic: str) -> int:
        """How many streams of the consumer read the topic; 0 if it is not subscribed."""
        if self._pattern is None:
            return self.streams.get(topic, 0)
        return next(iter(self.streams.values())) if self.matches(topic) else 0


def parse(text: str) -> Subscription:
    """TidelogError INVALID_REQUEST or INVALID_TOPIC_EXCEPTION says which field breaks which limit."""
    if len(text) > TEXT_MAX:
        raise _refused(f"has {len(text)} characters; at most {TEXT_MAX}")
    try:
        document = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise _refused(f"is not JSON: {error}") from error
    if not isinstance(document, dict) or document.keys() != _FIELDS:
        raise _refused("is not an object with the fields pattern and subscription")
    kind = document["pattern"]
    if kind not in (STATIC, WHITE_LIST, BLACK_LIST):
        raise _refused(f"pattern is none of {STATIC}, {WHITE_LIST} and {BLACK_LIST}")
    streams = document["subscription"]
    if not isinstance(streams, dict) or not streams:
        raise _refused("subscription is not an object of names and stream counts")
    if len(streams) > TOPICS_MAX:
        raise _refused(f"subscription has {len(streams)} topics; at most {TOPICS_MAX}")
    for count in streams.values():
        if type(count) is not int or not 1 <= count <= STREAMS_MAX:  # a bool is an int too
            raise _refused(f"a stream count of subscription is not a number from 1 to {STREAMS_MAX}")
    if kind == STATIC:
        for topic in streams:
            validate_topic_name(topic)
    pattern = None if kind == STATIC else _compiled(streams)
    ordered = dict(sorted(streams.items()))
    return Subscription(json.dumps({"pattern": kind, "subscription": ordered}), kind, ordered, pattern)


def _compiled(streams: Mapping[str, int]) -> _Pattern:
    if len(streams) != 1:
        raise _refused(f"subscription has {len(streams)} patterns; exactly 1")
    (pattern,) = streams
    if len(pattern) > PATTERN_MAX:
        raise _refused(f"a pattern of subscription has {len(pattern)} characters; at most {PATTERN_MAX}")
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY
    options.never_capture = True  # groups are for precedence only; what they hold is never asked for
    options.log_errors = False
    try:
        compiled: _Pattern = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:  # half of a surrogate pair is JSON, and no text
        raise _refused(
            f"the pattern of subscription is not one of RE2 below {PATTERN_MEMORY} bytes: {error}"
        ) from error
    return compiled


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice in an object")
    return found


def _refused(what: str) -> TidelogError:
    return TidelogError(f"topic_count {what}", ErrorCode.INVALID_REQUEST)
