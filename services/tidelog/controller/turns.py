"""Requests that want to change a znode while it is being written wait until that is over, in order.

So does a drain before it is planned: what is being placed on its brokers would be in no plan.
"""

from collections import deque

from tidelog.controller.events import BrokersRequested, PartitionsCreateRequested, ReassignmentRequested
from tidelog.controller.growth import GrowthDesk
from tidelog.controller.model import ClusterState
from tidelog.controller.topics import TopicDesk

Waiting = PartitionsCreateRequested | ReassignmentRequested | BrokersRequested


class TopicTurns:
    def __init__(self, state: ClusterState, topics: TopicDesk, growth: GrowthDesk) -> None:
        self._state = state
        self._topics = topics
        self._growth = growth
        self._waiting: deque[Waiting] = deque()

    def __bool__(self) -> bool:
        """Whether anybody waits: no move ends before he had his turn, or one after the other would keep him waiting."""
        return bool(self._waiting)

    def must_wait(self, event: Waiting) -> bool:
        """Remembers it, if so."""
        if self._waiting or self._busy(event):
            self._waiting.append(event)
            return True
        return False

    def next(self) -> Waiting | None:
        """The first, if its topics are free now."""
        if self._waiting and not self._busy(self._waiting[0]):
            return self._waiting.popleft()
        return None

    def _busy(self, event: Waiting) -> bool:
        if isinstance(event, BrokersRequested):
            written = any(topic.being_written for topic in self._state.topics.values())
            return written or self._topics.is_placing_on(self._state.emptying[event.token])
        if isinstance(event, ReassignmentRequested):
            if event.changes_placement and self._state.placement_being_written:
                return True
            names = [each.topic for each in event.request.topics]
        else:
            # Two growths of one topic do not wait for each other, the second is refused.
            names = [each.name for each in event.request.topics if not self._growth.is_growing(each.name)]
        topics = (self._state.topics.get(name) for name in names)
        return any(topic is not None and topic.being_written for topic in topics)
