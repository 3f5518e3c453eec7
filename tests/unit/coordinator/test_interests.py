"""Which groups a topic matters to: consumerGroupsPerTopic and groupsWithWildcardTopics."""

from helpers.requirements import requirement
from tidelog.coordinator.group import Group
from tidelog.coordinator.interests import Interests
from tidelog.coordinator.subscription import parse
from unit.coordinator.scene import Scene, pattern, topic_count


def group(name: str, *texts: str) -> Group:
    found = Group(name)
    found.parsed = {text: parse(text) for text in texts}
    return found


@requirement("A registration starts pings, watches topics and rebalances")
@requirement("The coordinator knows the groups that subscribe to a topic")
def test_each_topic_has_the_groups_that_subscribe_to_it() -> None:
    interests = Interests()
    interests.note(group("g", topic_count("t", "u"), topic_count("v")))
    interests.note(group("h", topic_count("u")))
    assert interests.groups_per_topic == {"t": {"g"}, "u": {"g", "h"}, "v": {"g"}}
    assert interests.concerned(["t", "v"]) == {"g"} and interests.concerned(["u"]) == {"g", "h"}
    interests.note(group("g", topic_count("v")))
    interests.note(group("h"))
    assert interests.groups_per_topic == {"v": {"g"}}, "nothing is left of what nobody subscribes to any more"


@requirement("The coordinator knows the groups with wildcard subscriptions")
def test_groups_with_wildcards_are_concerned_by_every_topic() -> None:
    interests = Interests()
    interests.note(group("w", pattern("logs-.*"), topic_count("t")))
    interests.note(group("g", topic_count("t")))
    assert interests.groups_with_wildcard_topics == {"w"}
    assert interests.groups_per_topic == {"t": {"w", "g"}}
    assert interests.concerned(["new"]) == {"w"} and interests.concerned(["t"]) == {"w", "g"}
    interests.note(group("w", topic_count("t")))
    assert interests.concerned(["new"]) == set()


@requirement("The coordinator knows the groups that subscribe to a topic")
@requirement("The coordinator knows the groups with wildcard subscriptions")
def test_what_has_no_subscriber_any_more_is_forgotten() -> None:
    scene = Scene(topics={"t": 1, "u": 1})
    (last,) = scene.join("a")
    (named,) = scene.join("b", topic_count=topic_count("u"))
    (wild,) = scene.join("c", topic_count=pattern("u.*"))
    interests = scene.machine._desk.interests
    assert interests.groups_per_topic == {"t": {"g"}, "u": {"g"}} and interests.groups_with_wildcard_topics == {"g"}
    named.leave()
    wild.leave()
    scene.run(1.0)
    assert interests.groups_per_topic == {"t": {"g"}} and not interests.groups_with_wildcard_topics
    last.leave()
    scene.run(1.0)
    assert interests.groups_per_topic == {}


@requirement("A registration starts pings, watches topics and rebalances")
def test_a_registration_enters_its_group_where_its_topics_are_watched() -> None:
    scene = Scene(topics={"t": 1, "logs-a": 1})
    scene.consumer("a", "t").register()
    scene.consumer("b", group="w", topic_count=pattern("logs-.*")).register()
    interests = scene.machine._desk.interests
    assert interests.groups_per_topic == {"t": {"g"}} and interests.groups_with_wildcard_topics == {"w"}
    scene.run(1.0)
    (a,) = (each for each in scene.consumers.values() if each.name == "a")
    a.leave()
    scene.delete("g")
    assert interests.groups_per_topic == {}
