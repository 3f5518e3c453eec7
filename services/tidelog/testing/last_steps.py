"""The protocol events before a failure, of the partition or the group that it names."""

import re
from collections.abc import Sequence
from typing import Final

from tidelog.ids import TopicPartition
from tidelog.watch.order import Told
from tidelog.watch.ring import Ring
from tidelog.watch.text import lines, merged, of_group, of_partition

SHOWN: Final = 40
_NAMES: Final = re.compile(r"[\w.-]+")


def add_last_steps(error: BaseException, rings: Sequence[Ring]) -> None:
    """Adds them to `error` as a note; of a group of errors, to the first one."""
    first = first_error(error)
    events = merged(rings)
    named = _named(str(first), events)
    shown = _of(named, events)[-SHOWN:]
    if shown:
        title = f"The last {len(shown)} steps" + ("" if named is None else f" of {named}")
        first.add_note("\n".join([f"{title}:", *lines(shown)]))


def first_error(error: BaseException) -> BaseException:
    """Returns the error at the bottom of groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _of(named: TopicPartition | str | None, events: Sequence[Told]) -> Sequence[Told]:
    if isinstance(named, TopicPartition):
        return of_partition(events, named)
    return events if named is None else of_group(events, named)


def _named(text: str, events: Sequence[Told]) -> TopicPartition | str | None:
    """The partition or the group that a failure names first."""
    subjects = (told.event.subject for told in events)
    known = {str(subject): subject for subject in subjects if isinstance(subject, TopicPartition | str)}
    return next((known[name] for name in _NAMES.findall(text) if name in known), None)
