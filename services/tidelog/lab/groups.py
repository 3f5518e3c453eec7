"""The consumer groups of a lab: members that process records, what they have processed, and the invariants of groups."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from tidelog.ids import TopicPartition
from tidelog.testing.group_watch import RENEWED, GroupWatch
from tidelog.testing.meta_tree import Znode
from tidelog.testing.sim_agent import AgentNode, Habits
from tidelog.testing.sim_node import World
from tidelog.wire import znodes

SESSION_S: Final = 3.0
PACE_S: Final = 0.02
"""An application takes so long over the records of a partition that it gets at once."""
CHUNK: Final = 100
MAX_PROCESSING_S: Final = 30.0


class Groups(GroupWatch):
    """Judges all topics, but for those that are excused: deleted ones, and ones that an unclean election has cut."""

    def __init__(self, world: World, reached: Counter[str]) -> None:
        self._names: list[str] = []
        super().__init__(world, self._names, reached)
        self._nodes_of = world
        self._excused = {RENEWED}
        self._done: dict[str, dict[TopicPartition, int]] = {}
        self.repeated = Counter()
        self._count = 0

    def join(self, group: str, topics: tuple[str, ...], session_s: float) -> AgentNode:
        """Starts a process with one consumer."""
        self._count += 1
        habits = Habits(
            group=group,
            topics=topics,
            session_ms=round(session_s * 1000),
            static=False,
            commits=False,
            slow_share=0.0,
            chunk=CHUNK,
            max_processing_ms=round(MAX_PROCESSING_S * 1000),
            named=True,
            pace_s=PACE_S,
        )
        if group not in self._names:
            self._names.append(group)
        node = AgentNode(self._nodes_of, f"agent-{self._count}", habits, self)
        self._nodes_of.nodes[node.name] = node
        node.start()
        return node

    def excuse(self, topic: str) -> None:
        """The records of a topic may go back, or begin anew."""
        self._excused.add(topic)

    def processed_of(self, group: str) -> Mapping[TopicPartition, int]:
        """Returns the offset after the last record that the group has processed of each partition."""
        return dict(sorted(self._done.get(group, {}).items()))

    def handed_out(self, group: str, consumer: str, tp: TopicPartition, offset: int, value: bytes) -> None:
        if tp.topic not in self._excused:
            super().handed_out(group, consumer, tp, offset, value)

    def processed(
        self, group: str, consumer: str, tp: TopicPartition, offset: int, value: bytes, *, asked: bool
    ) -> None:
        done = self._done.setdefault(group, {})
        self.repeated[group] += offset < done.get(tp, 0)
        done[tp] = max(done.get(tp, 0), offset + 1)
        if tp.topic not in self._excused:
            super().processed(group, consumer, tp, offset, value, asked=asked)

    def _on_stored(self, path: str, node: Znode | None) -> None:
        names = path.removeprefix(znodes.CONSUMERS + "/").split("/")
        if len(names) < 3 or names[2] not in self._excused:
            super()._on_stored(path, node)
