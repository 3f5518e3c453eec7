"""`tidelog consume --group`: what it asks of the consumer, when it commits, and what it refuses."""

from typing import Any, Self

import pytest

from helpers.driven_brokers import Driven
from tidelog.client import consumer
from tidelog.client.records import ConsumerRecord
from tidelog.errors import ErrorCode, TidelogError
from unit.cli.conftest import SHARED, Tidelog


class StubMember:
    """A member of a group that is handed five records, and then none; `said` is what it was asked for, in order."""

    made: dict[str, Any]
    said: list[str]
    left = 5

    def __init__(self, bootstrap: str, **options: Any) -> None:
        type(self).made, type(self).said = options, []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.said.append("leave")

    async def poll(self, max_records: int, timeout_s: float) -> list[ConsumerRecord]:
        count = min(max_records, self.left, 2)
        self.left -= count
        self.said.append(f"poll {count}")
        return [ConsumerRecord("t", 0, i, 0, 0, None, b"v", (), 0) for i in range(count)]

    async def commit(self) -> None:
        self.said.append("commit")


@pytest.fixture(autouse=True)
def member(monkeypatch: pytest.MonkeyPatch, cluster: Driven) -> type[StubMember]:
    if "t" not in cluster.topics:
        cluster.create("t")

    class Member(StubMember):
        pass

    monkeypatch.setattr(consumer, "Consumer", Member)
    return Member


def test_what_was_printed_is_committed(tidelog: Tidelog, member: type[StubMember]) -> None:
    got = tidelog("consume", "t", "--group", "g", "--max-messages", "3")
    assert (got.exit_code, got.text, got.err) == (0, "v\nv\nv\n", "Processed a total of 3 messages\n")
    assert member.said == ["poll 2", "poll 1", "commit", "leave"]
    got = tidelog("consume", "t", "--group", "g", "--timeout-ms", "100")
    assert got.text.count("v") == 5
    assert member.said == ["poll 2", "poll 2", "poll 1", "poll 0", "commit", "leave"]
    tidelog("consume", "t", "--group", "g", "--max-messages", "1", "--consumer-property", "enable.auto.commit=false")
    assert (member.said, member.made["auto_commit"]) == (["poll 1", "leave"], False)


def test_options_are_those_of_the_consumer(tidelog: Tidelog, member: type[StubMember], cluster: Driven) -> None:
    tidelog("consume", "t", "--group", "g", "--max-messages", "1")
    assert (member.made["group"], member.made["topics"]) == ("g", ("t",))
    assert member.made["auto_offset_reset"] == "latest"
    assert "pattern" not in member.made
    tidelog("consume", "--include", "ev.*", "--group", "g", "--from-beginning", "--max-messages", "1")
    assert (member.made["pattern"], member.made["auto_offset_reset"]) == ("ev.*", "earliest")
    assert "topics" not in member.made
    properties = {
        "session.timeout.ms": "7000",
        "max_poll_interval_ms": "9000",
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "sticky",
        "group.instance.id": "reader-1",
    }
    given = [part for key, value in properties.items() for part in ("--consumer-property", f"{key}={value}")]
    assert tidelog("consume", "--topic", "t", "--group", "g", "--max-messages", "1", *given).exit_code == 0
    known = {"session_timeout_ms": 7000, "max_processing_ms": 9000, "auto_offset_reset": "earliest"}
    known |= {"assignor": "sticky", "consumer_id": "reader-1", "static": True}
    assert {key: member.made[key] for key in known} == known


GROUP = ("consume", "t", "--group", "g")


@SHARED
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((*GROUP, "--partition", "0"), 2, "--group excludes --partition and --offset"),
        ((*GROUP, "--offset", "earliest"), 2, "--group excludes --partition and --offset"),
        ((*GROUP, "--include", "t.*"), 2, "name one topic, as an argument or with --topic, or topics with --include"),
        (("consume", "--group", "g"), 2, "name one topic"),
        (("consume", "--include", "t"), 2, "--include needs --group"),
        (("consume", "t", "--consumer-property", "session.timeout.ms=9"), 2, "--consumer-property needs --group"),
        ((*GROUP, "--consumer-property", "sesion.timeout.ms=9"), 2, "is not known; did you mean 'session.timeout.ms'?"),
        ((*GROUP, "--consumer-property", "session.timeout.ms=0"), 2, "is not a number from 1 to 2147483647"),
        ((*GROUP, "--consumer-property", "session.timeout.ms=long"), 2, "is not a number from 1"),
        ((*GROUP, "--consumer-property", "auto.offset.reset=middle"), 2, "is not one of earliest, latest"),
        ((*GROUP, "--consumer-property", "session"), 2, "'session' is not KEY=VALUE"),
        (
            (*GROUP, "--from-beginning", "--consumer-property", "auto.offset.reset=latest"),
            2,
            "--from-beginning and auto.offset.reset=latest exclude each other",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_combinations_that_make_no_sense_are_one_line(
    tidelog: Tidelog, args: tuple[str, ...], code: int, said: str
) -> None:
    found = tidelog(*args)
    assert (found.exit_code, found.out) == (code, b"")
    assert said in found.error


def test_what_the_coordinator_refuses_is_one_line(
    tidelog: Tidelog, member: type[StubMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_: StubMember, max_records: int, timeout_s: float) -> list[ConsumerRecord]:
        raise TidelogError("topic_count: pattern of subscription '*' is not one of RE2", ErrorCode.INVALID_REQUEST)

    monkeypatch.setattr(member, "poll", refused)
    found = tidelog("consume", "--include", "*", "--group", "g")
    assert (found.exit_code, found.out) == (1, b"")
    assert found.error == "tidelog: topic_count: pattern of subscription '*' is not one of RE2"


def test_a_topic_that_does_not_exist_is_not_waited_for(tidelog: Tidelog, member: type[StubMember]) -> None:
    found = tidelog("consume", "nowhere", "--group", "g")
    assert found.exit_code == 1
    assert "tidelog: topic 'nowhere' does not exist; create it" in found.err
    assert not hasattr(member, "made"), "no member joined"
