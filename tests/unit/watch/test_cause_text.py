"""A cause as text, which travels beside a message."""

import pytest

from tidelog.ports.recorder import TEXT_MAX, Cause, ProtocolEvent
from tidelog.watch.wire import from_message, to_message
from tidelog.wire import messages as m
from tidelog.wire.codec import decoder, encoder


@pytest.mark.parametrize(
    "cause", [Cause("controller-1", 1_700_000_000_000, 17), Cause("b", (1 << 63) - 1, (1 << 63) - 1)]
)
def test_a_cause_survives_as_text_and_in_a_message(cause: Cause) -> None:
    found = Cause.parse(str(cause))
    assert found == cause
    event = ProtocolEvent(0, 1, None, m.BrokerLost(broker_id=1), found)
    data = encoder(m.WatchedEvent)(to_message(event))
    assert from_message(decoder(m.WatchedEvent)(data)) == event


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
        f"b {1 << 63} 2",
        f"b 1 {1 << 63}",
    ],
)
def test_another_text_is_no_cause(text: str) -> None:
    assert Cause.parse(text) is None
