"""Topic names that are safe as file and znode names, and no others."""

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.names import suggestion, validate_topic_name


@pytest.mark.parametrize("name", ["a", "...", "a.b", "a_b", "-", "topic-0", "__consumer_offsets", "CON", "0" * 249])
def test_a_good_name_passes(name: str) -> None:
    assert validate_topic_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "../x",
        "/etc/passwd",
        "a\x00b",
        "a\n",
        "тема",
        "a\u202eb",
        "%2e%2e",
        "a ",
        "\u0661",
        "x" * 250,
    ],
)
def test_the_fuzz_list_of_names_is_refused(name: str) -> None:
    with pytest.raises(TidelogError, match="topic name") as caught:
        validate_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert caught.value.message.isascii() and caught.value.message.isprintable(), "it ends up in a log"


def test_a_suggestion_is_made_only_for_a_near_name() -> None:
    assert suggestion("segmnt.bytes", ["flush", "segment.bytes"]) == "; did you mean 'segment.bytes'?"
    assert suggestion("zzz", ["flush", "segment.bytes"]) == ""
