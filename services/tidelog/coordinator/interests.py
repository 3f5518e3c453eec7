"""Which groups a topic matters to: consumerGroupsPerTopic and groupsWithWildcardTopics of D0 (A7.03, A7.04)."""

from collections.abc import Iterable

from tidelog.coordinator.group import Group


class Interests:
    def __init__(self) -> None:
        self.groups_per_topic: dict[str, set[str]] = {}
        self.groups_with_wildcard_topics: set[str] = set()
        self._topics_of: dict[str, frozenset[str]] = {}

    def note(self, group: Group) -> None:
        """After its subscriptions have changed."""
        group_id = group.group_id
        named = frozenset(topic for each in group.parsed.values() if not each.wildcard for topic in each.topics)
        before = self._topics_of.get(group_id, frozenset())
        for topic in before - named:
            self.groups_per_topic[topic].discard(group_id)
            if not self.groups_per_topic[topic]:
                del self.groups_per_topic[topic]
        for topic in named - before:
            self.groups_per_topic.setdefault(topic, set()).add(group_id)
        self._topics_of[group_id] = named
        if any(each.wildcard for each in group.parsed.values()):
            self.groups_with_wildcard_topics.add(group_id)
        else:
            self.groups_with_wildcard_topics.discard(group_id)

    def concerned(self, topics: Iterable[str]) -> set[str]:
        """Groups to which a change of these topics may matter."""
        found = set(self.groups_with_wildcard_topics)
        for topic in topics:
            found |= self.groups_per_topic.get(topic, set())
        return found
