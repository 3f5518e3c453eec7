"""A cause as text, which travels beside a message."""

import pytest

from tidelog.ports.recorder import TEXT_MAX, Cause


def test_a_cause_survives_as_text() -> None:
    cause = Cause("controller-1", 1_700_000_000_000, 17)
    assert Cause.parse(str(cause)) == cause


@pytest.mark.parametrize(
    "text",
    [
        "",
        "broker-1",
        "broker-1 1",
        "broker-1 x 2",
        "broker-1 1 -2",
        " 1 2",
        "b 1 2 3",
        "b \u0661 2",
        "b" * TEXT_MAX + " 1 2",
    ],
)
def test_another_text_is_no_cause(text: str) -> None:
    assert Cause.parse(text) is None
