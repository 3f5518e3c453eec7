"""Findings put into words: what the lookups brought of values and polls, to the sentences that the plain checker says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.chaos.checker.verdict import Example
from tidelog.ids import TopicPartition

TOLD_MAX: Final = 8
"""Nodes of a cycle."""


@dataclass(frozen=True, slots=True)
class PollFacts:
    id: int
    process: str
    t: float

    @property
    def told(self) -> str:
        return f"{self.process} at {self.t:.3f} s"


@dataclass(frozen=True, slots=True)
class ValueFacts:
    value: str
    place: int
    sent: bool
    id: int | None
    process: str | None
    began: float | None
    ended: float | None
    acked: bool
    acked_at: int | None
    offset: int | None
    """The lowest at which it is."""
    offsets: Sequence[int]
    read_seq: int | None

    @property
    def told(self) -> str:
        return f"{self.value!r} (sent by {self.process} at {self.began:.3f} s)" if self.sent else f"{self.value!r}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A row of the findings with what was looked up for it."""

    rule: str
    by2: int
    tp: TopicPartition | None
    t: float | None
    values: Sequence[ValueFacts]
    polls: Sequence[PollFacts]
    numbers: Sequence[Any]
    words: Sequence[Any]
    readers: Mapping[int, PollFacts]
    """By the number of their record."""

    def reader(self, value: ValueFacts) -> PollFacts | None:
        return None if value.read_seq is None else self.readers[value.read_seq]

    def read_by(self, value: ValueFacts) -> PollFacts:
        return self.readers[value.read_seq or 0]


def told(finding: Finding) -> Example:
    return _TELL[finding.rule](finding)


def told_cycle(nodes: Sequence[str], t: float, operations: Sequence[int]) -> Example:
    shown = [*nodes[:TOLD_MAX], *([f"{len(nodes) - TOLD_MAX} more"] if len(nodes) > TOLD_MAX else [])]
    return Example(" -> ".join([*shown, nodes[0]]), t, operations=tuple(operations))


def _example(
    finding: Finding,
    text: str,
    values: Sequence[ValueFacts],
    t: float | None = None,
    polls: Sequence[PollFacts] = (),
) -> Example:
    """It shows at `t`, by default when the last of the values was sent or read for the first time."""
    readers = [reader for value in values if (reader := finding.reader(value)) is not None]
    if t is None:
        began = [value.began for value in values if value.began is not None]
        t = max([*began, *(reader.t for reader in readers)], default=0.0)
    ids = [value.id for value in values if value.id is not None]
    ids += [poll.id for poll in (*readers, *polls)]
    assert finding.tp is not None
    return Example(f"{finding.tp}: {text}", t, *finding.tp, tuple(dict.fromkeys(ids)))


def _bare(finding: Finding, text: str, polls: Sequence[PollFacts] = ()) -> Example:
    assert finding.tp is not None and finding.t is not None
    return Example(text, finding.t, *finding.tp, tuple(poll.id for poll in polls))


def _inconsistent(finding: Finding) -> Example:
    values = sorted(finding.values, key=lambda value: value.place)
    each = []
    for value in values:
        reader = finding.reader(value)
        each.append(f"{value.value!r} ({'acknowledged' if reader is None else f'read by {reader.told}'})")
    return _example(finding, f"offset {finding.numbers[0]} is {' and '.join(each)}", values)


def _duplicate(finding: Finding) -> Example:
    (value,) = finding.values
    places = ", ".join(map(str, sorted(value.offsets)))
    return _example(finding, f"{value.told} is at offsets {places}", [value])


def _g1a(finding: Finding) -> Example:
    (value,) = finding.values
    text = f"{value.told} failed, and was read by {finding.read_by(value).told}"
    return _example(finding, text, [value])


def _never_sent(finding: Finding) -> Example:
    (value,) = finding.values
    text = f"{value.value!r} was read by {finding.read_by(value).told}, and never sent to this partition"
    return _example(finding, text, [value])


def _lost(finding: Finding) -> Example:
    value, witness = finding.values
    reader = finding.read_by(witness)
    text = (
        f"{value.told} is at offset {value.offset} and was never read, although "
        f"{witness.value!r} at offset {witness.offset} was, by {reader.told}"
    )
    return _example(finding, text, [value], reader.t, (reader,))


def _unseen(finding: Finding) -> Example:
    (value,) = finding.values
    at = -1 if value.acked_at is None else value.acked_at
    return _example(finding, f"{value.told} was acknowledged at offset {at} and never read", [value], value.ended)


def _allowed(finding: Finding) -> Example:
    (value,) = finding.values
    text = f"{value.told} was acknowledged by one replica, its leader changed, and it is gone"
    return _example(finding, text, [value], value.ended)


def _missing(finding: Finding) -> Example:
    (value,) = finding.values
    reader = finding.reader(value)
    known = [
        *([f"acknowledged at {value.ended:.3f} s"] if value.acked else []),
        *([f"read by {reader.told}"] if reader is not None else []),
    ]
    offset = -1 if value.offset is None else value.offset
    text = f"{value.told}, offset {offset}, {' and '.join(known)}, is not in the final read"
    return _example(finding, text, [value])


def _final_differs(finding: Finding) -> Example:
    at, *offsets = finding.numbers
    longest, process, *values = finding.words
    saw = [
        "nothing" if offset is None else f"{value!r} at offset {offset}"
        for offset, value in zip(offsets, values, strict=True)
    ]
    text = f"{finding.tp}: as record number {at} {longest} saw {saw[0]} and {process} saw {saw[1]}"
    return _bare(finding, text)


def _replicas(finding: Finding) -> Example:
    partition, first, one, other, high_watermark, one_end, other_end = finding.numbers
    topic, one_digest, other_digest = finding.words
    held = [
        f"broker {broker} has nothing there" if end is None else f"broker {broker} has {digest} up to {end}"
        for broker, digest, end in ((one, one_digest, one_end), (other, other_digest, other_end))
    ]
    text = (
        f"{topic}-{partition}: from offset {first} on replicas differ: {' and '.join(held)}; "
        f"the high watermark is {high_watermark}"
    )
    assert finding.t is not None
    return Example(text, finding.t, topic, partition)


def _watermark(finding: Finding) -> Example:
    broker, epoch, high_watermark, before = finding.numbers
    why = (
        f"a consumer had read up to offset {before - 1} before"
        if finding.by2
        else f"in the same epoch it was {before} before"
    )
    text = (
        f"{finding.tp}: broker {broker}, leader of epoch {epoch}, says at {finding.t:.3f} s that its high watermark is "
        f"{high_watermark}; {why}"
    )
    return _bare(finding, text)


def _poll(finding: Finding) -> Example:
    offset, before, distance = finding.numbers
    (poll,) = finding.polls
    how = f"passing over {distance - 1} values" if distance > 1 else "which is no later value"
    text = f"{finding.tp}: {poll.process} read offset {offset} after offset {before}, {how}, at {poll.t:.3f} s"
    return _bare(finding, text, [poll])


def _send(finding: Finding) -> Example:
    earlier, later = finding.values
    text = f"{later.told} is at offset {later.offset}; {earlier.told}, the one before it, is at offset {earlier.offset}"
    return _example(finding, text, [earlier, later], finding.t)


def _precommitted(finding: Finding) -> Example:
    (value,), (poll,) = finding.values, finding.polls
    text = f"operation {finding.numbers[0]} read its own {value.value!r} at {poll.t:.3f} s"
    return _example(finding, text, [value], None, (poll,))


def _of_group(finding: Finding, text: str) -> Example:
    return _bare(finding, f"group {finding.words[0]}, {finding.tp}: {text} at {finding.t:.3f} s")


def _two_owners(finding: Finding) -> Example:
    generation, epoch = finding.numbers
    _, process, owner = finding.words
    text = f"{process} got it, which {owner} has in generation {generation} of coordinator epoch {epoch}"
    return _of_group(finding, text)


def _fell(finding: Finding) -> Example:
    offset, highest, generation = finding.numbers
    _, process, by = finding.words
    text = f"{process} committed offset {offset} after {by} had committed {highest}, in generation {generation},"
    return _of_group(finding, text)


def _ahead(finding: Finding) -> Example:
    offset, done = finding.numbers
    text = f"{finding.words[1]} committed offset {offset}, while the group had processed up to {done}"
    return _of_group(finding, text)


def _again(finding: Finding) -> Example:
    first, second = finding.numbers
    process = finding.words[1]
    match finding.by2:
        case 0:
            text = f"{process} processed offset {first} again, after {second}, with no rebalance between,"
        case 1:
            text = f"{process} processed offset {first} again, although {second} was committed before,"
        case _:
            text = f"{process} processed {first} records again, and no member has more than {second} in hand,"
    return _of_group(finding, text)


def _skipped(finding: Finding) -> Example:
    position, offset = finding.numbers
    (value,) = finding.values
    text = f"group {finding.words[0]} is at offset {position} and never processed {value.told}, offset {offset}"
    return _example(finding, text, [value])


_TELL: Final[Mapping[str, Callable[[Finding], Example]]] = {
    "inconsistent-offsets": _inconsistent,
    **dict.fromkeys(("duplicate", "duplicate (not idempotent)"), _duplicate),
    "G1a": _g1a,
    "never-sent": _never_sent,
    "lost-write": _lost,
    "unseen": _unseen,
    "allowed-loss": _allowed,
    **dict.fromkeys(("lost-acked", "final-incomplete"), _missing),
    "final-differs": _final_differs,
    "replicas-differ": _replicas,
    "watermark-fell": _watermark,
    **dict.fromkeys(("poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll"), _poll),
    **dict.fromkeys(("poll-skip (subscribed)", "nonmonotonic-poll (subscribed)"), _poll),
    **dict.fromkeys(("nonmonotonic-send", "nonmonotonic-send (unknown)"), _send),
    **dict.fromkeys(("int-nonmonotonic-send", "int-send-skip"), _send),
    "precommitted-read": _precommitted,
    "group-two-owners": _two_owners,
    "group-commit-fell": _fell,
    "group-commit-ahead": _ahead,
    "group-duplicates": _again,
    **dict.fromkeys(("group-skipped", "group-unprocessed"), _skipped),
}
