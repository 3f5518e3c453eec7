"""What a consumer says that it wants to read (A13.05, F08.2), and what a coordinator refuses to hear."""

import json

import pytest

from helpers.cpu import seconds_of
from helpers.requirements import requirement
from tidelog.coordinator.subscription import PATTERN_MAX, STREAMS_MAX, TEXT_MAX, TOPICS_MAX, parse
from tidelog.errors import ErrorCode, TidelogError


def text(pattern: object, subscription: object) -> str:
    return json.dumps({"pattern": pattern, "subscription": subscription})


def refusal(topic_count: str) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        parse(topic_count)
    return caught.value


@requirement("RegisterConsumerRequest says everything about a consumer")
def test_f08_2_static_topics_have_a_number_of_streams_each() -> None:
    found = parse('{"pattern": "static", "subscription": {"events": 1, "clicks": 3}}')
    assert not found.wildcard
    assert sorted(found.topics) == ["clicks", "events"]
    assert [found.threads_for(topic) for topic in ("events", "clicks", "other")] == [1, 3, 0]
    assert [found.matches(topic) for topic in ("events", "clicks", "other", "event")] == [True, True, False, False]


@requirement("RegisterConsumerRequest says everything about a consumer")
def test_f08_2_a_white_list_takes_topics_whose_whole_name_fits() -> None:
    found = parse(text("white_list", {"ev.*|clicks": 2}))
    assert found.wildcard
    assert found.topics == ()
    topics = ("events", "clicks", "clicks2", "my-events")
    assert [found.threads_for(topic) for topic in topics] == [2, 2, 0, 0]


def test_f08_2_a_black_list_takes_all_others() -> None:
    found = parse(text("black_list", {"ev.*": 1}))
    assert found.wildcard
    assert [found.matches(topic) for topic in ("events", "clicks")] == [False, True]
    assert [found.threads_for(topic) for topic in ("events", "clicks")] == [0, 1]


def test_equal_subscriptions_are_equal_however_they_are_spelt() -> None:
    one = parse('{"pattern":"static","subscription":{"a":1,"b":2}}')
    other = parse('{ "subscription": {"b": 2, "a": 1}, "pattern": "static" }')
    assert one == other
    assert hash(one) == hash(other)
    assert one != parse(text("static", {"a": 1, "b": 3}))
    assert parse(text("white_list", {"a": 1})) != parse(text("black_list", {"a": 1}))
    assert parse(text("white_list", {"a": 1})) != parse(text("static", {"a": 1}))


@requirement("RegisterConsumerRequest says everything about a consumer")
@pytest.mark.parametrize(
    ("topic_count", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"pattern": "static", "subscription": {"a": 1, "a": 2}}', "twice"),
        ("1" * 10_000, "not JSON"),
        ("[]", "not an object"),
        ("null", "not an object"),
        ('{"pattern": "static"}', "fields pattern and subscription"),
        ('{"pattern": "static", "subscription": {"a": 1}, "version": 1}', "fields pattern and subscription"),
        (text("topics", {"a": 1}), "static, white_list and black_list"),
        (text(["static"], {"a": 1}), "static, white_list and black_list"),
        (text("static", {}), "names and stream counts"),
        (text("static", ["a"]), "names and stream counts"),
        (text("static", {"a": 0}), "from 1 to 100"),
        (text("static", {"a": 101}), "from 1 to 100"),
        (text("static", {"a": True}), "from 1 to 100"),
        (text("static", {"a": 1.5}), "from 1 to 100"),
        (text("static", {"a": "1"}), "from 1 to 100"),
        (text("static", {"a": float("nan")}), "from 1 to 100"),
        (text("static", {str(i): 1 for i in range(TOPICS_MAX + 1)}), "at most 10000"),
        (text("static", {"a" * TEXT_MAX: 1}), "at most 262144"),
        (text("white_list", {"a": 1, "b": 1}), "exactly 1"),
        (text("white_list", {"a" * (PATTERN_MAX + 1): 1}), "at most 1024"),
    ],
)
def test_f08_2_what_is_no_topic_count_is_refused(topic_count: str, said: str) -> None:
    error = refusal(topic_count)
    assert error.code is ErrorCode.INVALID_REQUEST
    assert error.message.startswith("topic_count ")
    assert said in error.message
    assert len(error.message) < 500, "what a stranger sent is not sent back at length"


@pytest.mark.parametrize("topic", ["", "..", "a/b", "ümlaut", "a" * 250])
def test_a_name_that_no_topic_may_have_is_refused(topic: str) -> None:
    assert refusal(text("static", {topic: 1})).code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_limits_themselves_are_accepted() -> None:
    assert len(parse(text("static", {f"topic-{i}": STREAMS_MAX for i in range(TOPICS_MAX)})).topics) == TOPICS_MAX
    assert parse(text("white_list", {"a" * PATTERN_MAX: 1})).wildcard


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", "[a", "*a", "a{2,1}", "\\", "(?P<n", "[[:nothing:]]"),
        *("(?=x)", "(?!x)y", "(?<=x)y", r"(a)\1", "(?P<n>a)(?P=n)"),  # what needs backtracking
        *("(a{1000}){1000}", "((a{100}){100}){100}", "a{1001}", ".{900}" * 10, "\ud800"),
        *("a{1000}{1000}", "((a{0,100}){0,100}){0,100}"),
    ],
)
@pytest.mark.parametrize("kind", ["white_list", "black_list"])
def test_a_bad_pattern_is_refused(kind: str, pattern: str) -> None:
    error = refusal(text(kind, {pattern: 1}))
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "pattern of subscription" in error.message


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+$", "(a|a)*b", "(a|a?)+b", "(a*)*(a*)*(a*)*b", "(.*a){25}b", "a?" * 200 + "a" * 200 + "b"),
        "(.*)(.*)(.*)(.*)(.*)(.*)[^a]",
    ],
)
def test_a_pattern_that_explodes_elsewhere_takes_linear_time(pattern: str) -> None:
    # With a backtracking engine one of these runs for longer than the universe has.
    found = parse(text("white_list", {pattern: 1}))
    matched = [found.matches("a" * 248 + "!") for _ in range(100)]
    assert seconds_of(lambda: [found.matches("a" * 248 + "!") for _ in range(100)]) < 1
    assert matched == [pattern.endswith("[^a]")] * 100
