"""Sizes that limit each other, related in one place.

A batch comes to its leader in a request (request_max_bytes) and goes on in answers, to followers and to readers
(fetch_max_bytes of both ends, where the other end is a broker). gRPC refuses a larger message and ends the stream that
carried it, with whatever else was on it. So a batch that cannot go on must not be appended, and one that is in a log
already must not be sent:

* A broker whose settings contradict each other does not start: `contradictions`.
* A topic gets no max.message.bytes that a live broker cannot carry: `check_topic`. Brokers register what they can.
* A leader appends nothing that a live replica cannot take: `Carriage.check`.
* What is stored already and too large for a follower or a reader is held back alone (`broker.follower_session`,
  `broker.fetch`).

segment.bytes is no such limit: a larger batch gets a segment of its own.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from tidelog.errors import ErrorCode, TidelogError

REQUEST_MAX_BYTES: Final = 4 << 20
"""Default of request_max_bytes."""
FETCH_MAX_BYTES: Final = 50 << 20
"""Default of fetch_max_bytes."""
RESPONSES_BYTES: Final = 256 << 20
"""Default of responses_max_bytes."""
CONNECTION_RESPONSES_BYTES: Final = 64 << 20
"""Default of connection_responses_max_bytes."""
SLACK_BYTES: Final = 64 << 10
"""Bytes that a message may hold beside the records that a limit speaks of."""
ITEM_BYTES: Final = 160
"""Most bytes that a partition takes in a message beside its topic's name and its records."""
PART_BYTES: Final = 1 << 20
"""Size of a request of a controller or a follower; what is longer is sent in parts."""

_NOT_ABOVE: Final = (
    ("message_max_bytes", "request_max_bytes"),
    ("message_max_bytes", "fetch_max_bytes"),
    ("message_max_bytes", "validate_inflated_bytes_max"),
    ("replica_fetch_chunk_bytes", "fetch_max_bytes"),
)
"""Settings of a broker: the first of each pair must not be above the second."""


class Carried(NamedTuple):
    """Sizes that a live broker can carry; the defaults are those of a release that does not register them."""

    request_max_bytes: int = REQUEST_MAX_BYTES
    fetch_max_bytes: int = FETCH_MAX_BYTES


UNREGISTERED: Final = Carried()


class BrokerSizes(Protocol):
    """The settings of a broker that are sizes of messages."""

    @property
    def message_max_bytes(self) -> int: ...

    @property
    def replica_fetch_chunk_bytes(self) -> int: ...

    @property
    def request_max_bytes(self) -> int: ...

    @property
    def fetch_max_bytes(self) -> int: ...

    @property
    def validate_inflated_bytes_max(self) -> int: ...


def contradictions(settings: BrokerSizes) -> Iterable[str]:
    """Problems between the sizes in a broker's settings, one line each, which names both."""
    for low, high in _NOT_ABOVE:
        if (value := getattr(settings, low)) > (limit := getattr(settings, high)):
            yield f"{low}: {value} is over {high}={limit}"
    if settings.request_max_bytes < PART_BYTES:
        yield (
            f"request_max_bytes: {settings.request_max_bytes} is below {PART_BYTES}, the size of requests of the controller and "
            "of followers"
        )


def check_topic(max_message_bytes: int, brokers: Mapping[int, Carried]) -> None:
    """INVALID_CONFIG when one of the live brokers cannot carry a batch that the topic would take."""
    for broker_id, carried in sorted(brokers.items()):
        for setting, limit in carried._asdict().items():
            if max_message_bytes > limit:
                raise TidelogError(
                    f"max.message.bytes={max_message_bytes} is above {setting}={limit} of broker {broker_id}",
                    ErrorCode.INVALID_CONFIG,
                )


class Carriage:
    """Limits of a batch that goes from this broker to others, or to a reader."""

    def __init__(self, fetch_max_bytes: int = FETCH_MAX_BYTES) -> None:
        """`fetch_max_bytes` of this broker."""
        self.own_bytes = fetch_max_bytes
        self.smallest_bytes = fetch_max_bytes
        """Largest batch that every live broker takes."""
        self._others: dict[int, int] = {}

    def set_live(self, fetch_max_bytes: Mapping[int, int]) -> None:
        """fetch_max_bytes of every live broker; 0 where it has not registered it."""
        self._others = {each: limit or FETCH_MAX_BYTES for each, limit in fetch_max_bytes.items()}
        self.smallest_bytes = min([self.own_bytes, *self._others.values()])

    def to(self, broker_id: int) -> int:
        """The largest batch that can be sent to a broker."""
        return min(self.own_bytes, self._others.get(broker_id, FETCH_MAX_BYTES))

    def check(self, size_bytes: int, max_message_bytes: int, replicas: Iterable[int]) -> None:
        """MESSAGE_TOO_LARGE when a batch that the topic takes is one that a live replica does not take. The caller has compared
        it with `smallest_bytes`."""
        limits = {each: self._others[each] for each in replicas if each in self._others}
        for broker_id, limit in sorted(limits.items()):
            if size_bytes > min(limit, self.own_bytes):
                raise _too_large(size_bytes, max_message_bytes, min(limit, self.own_bytes), f"broker {broker_id}")
        if size_bytes > self.own_bytes:
            raise _too_large(size_bytes, max_message_bytes, self.own_bytes, "its leader")


def _too_large(size_bytes: int, max_message_bytes: int, limit: int, whose: str) -> TidelogError:
    return TidelogError(
        f"records: a batch of {size_bytes} bytes, max.message.bytes is {max_message_bytes} and fetch_max_bytes of {whose} "
        f"is {limit}",
        ErrorCode.MESSAGE_TOO_LARGE,
    )
