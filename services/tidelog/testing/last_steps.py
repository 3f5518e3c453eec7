"""The protocol events before a failure, of the partition that it names."""

from collections.abc import Sequence
from typing import Final

from tidelog.ids import TopicPartition
from tidelog.watch.order import Told
from tidelog.watch.ring import Ring
from tidelog.watch.text import lines, merged, of_partition

SHOWN: Final = 40


def add_last_steps(error: BaseException, rings: Sequence[Ring]) -> None:
    """Adds them to `error` as a note; of a group, to the first error that broke it."""
    first = first_error(error)
    events = merged(rings)
    tp = _named(str(first), events)
    shown = (events if tp is None else of_partition(events, tp))[-SHOWN:]
    if shown:
        title = f"The last {len(shown)} steps" + ("" if tp is None else f" of {tp}")
        first.add_note("\n".join([f"{title}:", *lines(shown)]))


def first_error(error: BaseException) -> BaseException:
    """Returns the error at the bottom of groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _named(text: str, events: Sequence[Told]) -> TopicPartition | None:
    """The partition that a failure names first."""
    words = text.replace(":", " ").split()
    known = {str(told.event.subject): told.event.subject for told in events}
    found = (known.get(word) for word in words)
    return next((subject for subject in found if isinstance(subject, TopicPartition)), None)
