"""How far a member of a group has got: what is in the application's hands, what it has processed, what is known to be told.

Pure. A record counts as processed when the application asks for more, or commits; an offset that is reported never covers
what it still has in its hands (COORD-3).
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.records import ConsumerRecord
from tidelog.ids import NO_EPOCH, TopicPartition
from tidelog.wire import messages as m


class Position(NamedTuple):
    """The next record to process, and the leader epoch of the one before it (COORD-18)."""

    offset: int
    leader_epoch: int = NO_EPOCH


Positions = dict[TopicPartition, Position]


class Progress:
    def __init__(self) -> None:
        self.in_hand: Positions = {}
        """Behind the last record that was handed out and may not be processed yet."""
        self.placed: dict[TopicPartition, int] = {}
        """Ends of logs at which the reset policy began, until an offset is committed there."""
        self._processed: Positions = {}
        self._told: Positions = {}
        """What has certainly arrived at the coordinator of this term. It stores that in its own time."""
        self._topic_ids: dict[TopicPartition, bytes] = {}
        """Ids of the topics that were assigned. A coordinator of 0.2.0 names none."""
        self._reports: deque[tuple[int, Positions]] = deque()
        """Sent on the stream as it is now, by message number; what arrives does so in order."""

    def hand_out(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            self.in_hand[tp] = Position(record.offset + 1, record.leader_epoch)

    def place(self, tp: TopicPartition, at: Position) -> None:
        """By a seek or the reset policy: whoever takes over begins there, too, and not where the policy would lead it then."""
        self.in_hand.pop(tp, None)
        self._processed[tp] = at

    def finish(self) -> None:
        """Everything that was handed out is processed."""
        self._processed.update(self.in_hand)
        self.in_hand.clear()

    def given(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Sets the topics that newly assigned partitions are of: offsets that are told of them count there."""
        self._topic_ids.update(topic_ids)

    def topic_id(self, tp: TopicPartition) -> bytes:
        return self._topic_ids.get(tp, b"")

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """They are no longer this member's, or begin anew: nothing that was before counts."""
        for tp in tps:
            self.placed.pop(tp, None)
            self._topic_ids.pop(tp, None)
            for positions in (self.in_hand, self._processed, self._told, *(sent for _, sent in self._reports)):
                positions.pop(tp, None)

    def processed(self, tps: Iterable[TopicPartition]) -> tuple[m.OffsetInfo, ...]:
        return tuple(self._info(tp, self._processed[tp]) for tp in tps if tp in self._processed)

    def untold(self) -> tuple[m.OffsetInfo, ...]:
        """What the coordinator may not know yet."""
        return tuple(self._info(tp, at) for tp, at in self._processed.items() if self._told.get(tp) != at)

    def reported(self, number: int, offsets: Iterable[m.OffsetInfo]) -> None:
        """They were sent with the stream's message `number`."""
        if sent := _positions(offsets):
            self._reports.append((number, sent))

    def arrived(self, number: int) -> None:
        """Of the stream, everything up to message `number`."""
        while self._reports and self._reports[0][0] <= number:
            self._told.update(self._reports.popleft()[1])

    def finish_up_to(self, offsets: Iterable[m.OffsetInfo]) -> None:
        """The application commits these by itself: what lies below them is processed."""
        for tp, at in _positions(offsets).items():
            if tp in self.in_hand and self.in_hand[tp].offset <= at.offset:
                self._processed[tp] = self.in_hand.pop(tp)

    def epoch_before(self, tp: TopicPartition, offset: int) -> int:
        """Leader epoch of the record before `offset`, where that was the last one that was handed out or processed."""
        known = (self.in_hand.get(tp), self._processed.get(tp))
        return next((at.leader_epoch for at in known if at is not None and at.offset == offset), NO_EPOCH)

    def committed(self, offsets: Iterable[m.OffsetInfo]) -> None:
        """By an active commit."""
        for each in offsets:
            self.placed.pop(TopicPartition(each.topic, each.partition), None)
        self._told.update((tp, at) for tp, at in _positions(offsets).items() if tp in self._processed)

    def term_began(self) -> None:
        """Another coordinator: what the one before had heard and not stored yet is gone with it."""
        self._told.clear()

    def _info(self, tp: TopicPartition, at: Position) -> m.OffsetInfo:
        return m.OffsetInfo(
            topic=tp.topic,
            partition=tp.partition,
            offset=at.offset,
            leader_epoch=at.leader_epoch,
            topic_id=self.topic_id(tp),
        )

    def stream_ended(self) -> None:
        """Nobody knows what of the reports has arrived: they are made again."""
        self._reports.clear()


def _positions(offsets: Iterable[m.OffsetInfo]) -> Positions:
    return {TopicPartition(o.topic, o.partition): Position(o.offset, o.leader_epoch) for o in offsets}
