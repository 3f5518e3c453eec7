"""Story files: everything that is wrong in one is told in one line, with file, line and field."""

from pathlib import Path
from typing import Final

import pytest

from tidelog.chaos.yaml_nodes import TEXT_MAX, ScenarioError, parse
from tidelog.lab import story_file
from tidelog.lab.story import VERSION, Story

GOOD: Final = """\
version: 1
title: a story
topics: [{name: events, partitions: 2}]
duration: 5s
actions:
  - {at: 1s, do: produce, topic: events, records: 3, as: first}
  - {at: 2s, do: kill, process: leader of events-0, as: old leader}
  - {at: 3s, do: start, process: old leader}
expect:
  - {sends: first, acked: 3}
"""


def read(text: str) -> Story:
    return story_file.story(parse(text, "f"))


def complaint(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_story_is_read() -> None:
    story = read(GOOD)
    assert (story.title, story.duration_s, len(story.beats), len(story.expectations)) == ("a story", 5.0, 3, 1)
    assert story.topics[0].count == 2 and story.topics[0].settings == {"min.insync.replicas": "2"}
    assert [beat.at_s for beat in story.beats] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("lines", range(len(GOOD.splitlines())))
def test_a_file_that_was_cut_off_is_refused(lines: int) -> None:
    assert complaint("".join(GOOD.splitlines(keepends=True)[:lines])).startswith("f:")


def test_a_file_that_was_cut_within_a_line_is_refused_or_whole() -> None:
    for end in range(len(GOOD)):
        try:
            read(GOOD[:end])
        except ScenarioError as error:
            assert str(error).startswith("f:") and "\n" not in str(error)
        else:
            assert GOOD[end:].strip() == ""


@pytest.mark.parametrize(
    "old, new, told",
    [
        (
            "version: 1",
            f"version: {VERSION + 1}",
            f"f:1: version: the story has version {VERSION + 1}, this tidelog knows 1",
        ),
        ("version: 1\n", "", "f:1: version is missing"),
        ("duration: 5s", "duration: 25h", "f:4: duration: above 0 and at most 86400 s"),
        ("duration: 5s", "duration: soon", "f:4: duration: 'soon' is not a duration like 200ms, 5s or 2m"),
        ("duration: 5s", "durations: 5s", "f:4: 'durations' is not known here; did you mean 'duration'?"),
        ("do: kill", "do: kil", "f:7: actions[1].do: 'kil' is none of kill, kill in write, stop,"),
        ("leader of events-0", "broker-3", "f:7: actions[1].process: there is no process 'broker-3'; did you mean"),
        (
            "leader of events-0",
            "leader of events-2",
            "f:7: actions[1].process: there is no partition events-2 (there are",
        ),
        ("leader of events-0", "coordinator of g", "f:7: actions[1].process: there is no group 'g' so far"),
        ("process: old leader", "process: older leader", "f:8: actions[2].process: there is no process 'older leader'"),
        ("at: 3s", "at: 1s", "f:8: actions[2].at: 1 s is before the action above it, at 2 s"),
        ("at: 3s", "at: 6s", "f:8: actions[2].at: 6 s is after the end of the story, at 5 s"),
        ("at: 3s, ", "", "f:8: actions[2]: at is missing"),
        ("do: start", "say: hm, do: start", "f:8: actions[2]: either do or say is needed"),
        ("topic: events, records", "topic: orders, records", "f:6: actions[0].topic: there is no topic 'orders'"),
        ("records: 3", "records: 10001", "f:6: actions[0].records: '10001' is not a whole number from 1 to 10000"),
        ("records: 3", "record: 3", "f:6: actions[0]: 'record' is not known here; did you mean 'records'?"),
        ("topic: events, ", "", "f:6: actions[0]: topic is missing"),
        ("as: old leader", "as: first", "f:7: actions[1].as: 'first' is a name already"),
        ("as: old leader", "as: broker-1", "f:7: actions[1].as: 'broker-1' is a name already"),
        ("sends: first", "sends: second", "f:10: expect[0].sends: 'second' is no label of an action (there are first)"),
        ("sends: first, acked: 3", "acked: 3", "f:10: expect[0]: exactly one of partition, process, group, sends,"),
        ("acked: 3", "failed: {NOPE: 1}", "f:10: expect[0].failed.NOPE: there is no error 'NOPE'"),
        (
            "sends: first, acked: 3",
            "events: [{kind: Nope}]",
            "f:10: expect[0].events[0].kind: 'Nope' is none of ",
        ),
        (
            "sends: first, acked: 3",
            "events: [{kind: BrokerLost, leader: 1}]",
            "f:10: expect[0].events[0]: 'leader' is not",
        ),
        (
            "sends: first, acked: 3",
            "at: 9s, partition: events-0, leader: 1",
            "f:10: expect[0].at: 9 s is after the end",
        ),
        ("sends: first, acked: 3", "at: 3s, partition: events, leader: 1", "f:10: expect[0].partition: 'events' is no"),
        ("partitions: 2", "replicas: [[0, 7]]", "f:3: topics[0].replicas[0][1]: '7' is not a whole number from 0 to 2"),
        ("partitions: 2", "min isr: 4", "f:3: topics[0].min isr: '4' is not a whole number from 1 to 3"),
    ],
)
def test_a_mistake_is_told_with_its_line(old: str, new: str, told: str) -> None:
    assert old in GOOD
    assert complaint(GOOD.replace(old, new, 1)).startswith(told)


def test_a_million_actions_are_too_many() -> None:
    action = "  - {at: 1s, do: heal}\n"
    many = GOOD.replace("expect:", action * (story_file.ACTIONS_MAX + 1) + "expect:")
    assert complaint(many).startswith(f"f:5: actions: {story_file.ACTIONS_MAX + 4}; a story has at most 500")
    million = GOOD.replace("expect:", action * 1_000_000 + "expect:")
    assert complaint(million) == f"f:1: {len(million)} characters; the limit is {TEXT_MAX}"


def test_no_yaml_is_refused() -> None:
    assert complaint(GOOD.replace("[{name", "[{{name")).startswith("f:3: ")
    assert complaint("\x00").startswith("f:1: ")


def test_a_lesson_is_found_by_number_and_name_or_its_file(tmp_path: Path) -> None:
    first = story_file.lessons()[0]
    assert story_file.find("1") == story_file.find("01-acks-all") == story_file.find("acks-all") == first
    mine = tmp_path / "mine.yaml"
    mine.write_text(GOOD)
    assert story_file.load(story_file.find(str(mine))).title == "a story"
    with pytest.raises(ScenarioError, match=r"no lesson and no file acks-al; did you mean 'acks-all'\?"):
        story_file.find("acks-al")
    with pytest.raises(ScenarioError, match=r"no lesson and no file 99 .`tidelog lab lessons`"):
        story_file.find("99")
    with pytest.raises(ScenarioError, match=r"no file nowhere.yaml"):
        story_file.find("nowhere.yaml")
    mine.write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match=r"mine.yaml:1: not UTF-8 text"):
        story_file.load(mine)
