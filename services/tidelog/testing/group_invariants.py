"""What holds of consumer groups after every step (I16, N11 to N13, X5), judged by what consumers do and what is stored of them.

Pure: it is told of each act in the order in which they happen. What a consumer believes to own is of no interest here.

Of a topic that stays: a stored offset never falls and is never beyond what is processed; a consumer begins between the two, and
from there its application gets each record in turn, none twice and none left out. Of a topic that is made anew, the same holds
in each of its lives, which its topic id names: a stored offset never falls in one life, no offset of an earlier life is stored
after one of a later life, and between two assignments the position goes through a life in turn.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.ids import TopicPartition
from tidelog.testing.invariants import Violation

Key = tuple[int, int]
"""Coordinator epoch, generation."""


class Seat(NamedTuple):
    """A consumer of a group."""

    group: str
    consumer: str


@dataclass(slots=True)
class _Place:
    """Where a consumer is in a partition that it was given."""

    since: int
    next: int


@dataclass(slots=True)
class _Share:
    """One partition in one group."""

    owner: str = ""
    """As stored."""
    committed: int = 0
    """As stored."""
    done: int = 0
    """The first offset that nobody has processed."""
    actor: str = ""
    """Who acted last."""
    acted: int = 0
    places: dict[str, _Place] = field(default_factory=dict)
    given_in: dict[Key, str] = field(default_factory=dict)


class GroupChecker:
    """Each method raises Violation."""

    def __init__(self) -> None:
        self._acts = 0
        self._shares: dict[tuple[str, TopicPartition], _Share] = {}
        self._generations: dict[str, int] = {}
        self._obeyed: dict[Seat, Key] = {}
        self._lives: dict[tuple[str, TopicPartition], dict[bytes, int]] = {}
        """Stored offset in each life of a topic that is made anew, the last life last."""
        self._passages: dict[tuple[Seat, TopicPartition], tuple[bytes, int]] = {}
        """Life of a topic that is made anew, and the next offset of a consumer in it, since it was given the partition."""
        self.again: Counter[str] = Counter()
        """Records that were processed before, by group."""

    def _share(self, group: str, tp: TopicPartition) -> _Share:
        return self._shares.setdefault((group, tp), _Share())

    # -- what is stored ----------------------------------------------------------------------------------------------

    def owner_stored(self, group: str, tp: TopicPartition, consumer: str) -> None:
        self._share(group, tp).owner = consumer

    def offset_stored(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Nobody resets or seeks in a simulated run."""
        share = self._share(group, tp)
        _require(offset >= share.committed, "N12", group, tp, "offset fell from", share.committed, "to", offset)
        _require(offset <= share.done, "X5", group, tp, "offset", offset, "is stored; processed is up to", share.done)
        share.committed = offset

    def offset_of_life_stored(self, group: str, tp: TopicPartition, topic_id: bytes, offset: int) -> None:
        """The topic is made anew now and then."""
        lives = self._lives.setdefault((group, tp), {})
        if topic_id not in lives:
            lives[topic_id] = offset
            return
        last = next(reversed(lives))
        _require(
            last == topic_id,
            "offsets of a life",
            group,
            tp,
            "offset",
            offset,
            "of",
            topic_id.hex(),
            "after one of",
            last.hex(),
        )
        before = lives[topic_id]
        _require(
            offset >= before,
            "offsets of a life",
            group,
            tp,
            "offset fell from",
            before,
            "to",
            offset,
            "in",
            topic_id.hex(),
        )
        lives[topic_id] = offset

    def generation_stored(self, group: str, generation: int) -> None:
        before = self._generations.get(group, 0)
        _require(generation >= before, "I16", group, "generation fell from", before, "to", generation)
        self._generations[group] = generation

    # -- what consumers are told and do ------------------------------------------------------------------------------

    def obeyed(self, seat: Seat, key: Key) -> None:
        """It has done what a Stop or a Start with this number says."""
        before = self._obeyed.get(seat, key)
        _require(key >= before, "I16", *seat, "obeys", key, "after", before)
        self._obeyed[seat] = key

    def given(self, seat: Seat, tp: TopicPartition, offset: int, key: Key) -> None:
        """It begins with a partition; -1: nothing is committed, and it reads from the start.

        What is processed again is what its last owner had not committed: it begins where that ends (X5).
        """
        share, start = self._share(seat.group, tp), max(offset, 0)
        owner = share.given_in.setdefault(key, seat.consumer)
        _require(owner == seat.consumer, "I16", *seat, "and", owner, "are both given", tp, "in", key)
        fits = share.committed <= start <= share.done  # what the coordinator was told may not be stored yet
        _require(fits, "N12", *seat, "begins", tp, "at", start, "stored is", share.committed, "done", share.done)
        self._acts += 1
        share.places[seat.consumer] = _Place(self._acts, start)

    def given_anew(self, seat: Seat, tp: TopicPartition) -> None:
        """It begins with a partition of a topic that is made anew."""
        self._passages.pop((seat, tp), None)

    def handed_out_in_life(self, seat: Seat, tp: TopicPartition, topic_id: bytes, offset: int) -> None:
        """The application gets a record of a topic that is made anew: each one of a life in turn, and of the next life from 0."""
        life, following = self._passages.get((seat, tp), (topic_id, offset))
        due = following if life == topic_id else 0
        _require(
            offset == due,
            "position in a life",
            *seat,
            tp,
            "hands out",
            offset,
            "of",
            topic_id.hex(),
            "where",
            due,
            "is next",
        )
        self._passages[seat, tp] = (topic_id, offset + 1)

    def handed_out(self, seat: Seat, tp: TopicPartition, offset: int) -> None:
        """The application gets a record: each one in turn."""
        share = self._share(seat.group, tp)
        place = self._act(seat, tp, share, "hands out", offset)
        _require(place.next == offset, "X5", *seat, tp, "hands out", offset, "after", place.next - 1)
        place.next = offset + 1

    def processed(self, seat: Seat, tp: TopicPartition, offset: int, *, asked: bool) -> None:
        """`asked`: whether it still owns the partition. Who does not ask may still be at work when its lease is over."""
        share = self._share(seat.group, tp)
        if asked:
            self._act(seat, tp, share, "processes", offset)
        _require(offset <= share.done, "X5", *seat, "processes", tp, offset, "before", share.done)
        self.again[seat.group] += offset < share.done
        share.done = max(share.done, offset + 1)

    def _act(self, seat: Seat, tp: TopicPartition, share: _Share, what: str, offset: int) -> _Place:
        place = share.places.get(seat.consumer)
        if place is None:
            raise Violation(f"N11: {seat} {what} {tp} {offset}, which it was not given")
        _require(share.owner == seat.consumer, "N11", *seat, what, tp, offset, "owner is", share.owner)
        if share.actor != seat.consumer:
            _require(
                place.since > share.acted, "N11", *seat, what, tp, offset, "and so does", share.actor, "since it has it"
            )
        self._acts += 1
        share.actor, share.acted = seat.consumer, self._acts
        return place

    # -- at the end --------------------------------------------------------------------------------------------------

    def stage(self, group: str, tp: TopicPartition) -> tuple[str, int, int]:
        """Stored owner, committed offset, and the first offset that nobody has processed."""
        share = self._share(group, tp)
        return share.owner, share.committed, share.done

    def processed_of(self, group: str) -> dict[TopicPartition, int]:
        return {tp: share.done for (its, tp), share in sorted(self._shares.items()) if its == group and share.done}


def _require(holds: bool, number: str, *what: object) -> None:
    if not holds:
        raise Violation(f"{number}: " + " ".join(map(str, what)))
