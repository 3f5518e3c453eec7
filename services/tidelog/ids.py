"""Names and tiny frozen values that every layer speaks about."""

from typing import Final, NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
"""A broker's number; a broker has at most one replica of a partition, so it is the replica's number too."""

NO_LEADER: Final = BrokerId(-1)
"""Stored and published instead of a leader when none may be elected (HOLE-50)."""

NO_EPOCH: Final = -1
"""In a request: the sender claims no epoch. In an answer: undefined."""

NO_OFFSET: Final = -1

TOPIC_ID_BYTES: Final = 16
"""Length of a drawn id. None is longer, since it names a file."""

DELETED_TOPIC_EPOCH: Final = -2
"""In StopReplica: overrides any leader epoch, because the topic itself is deleted (F-14.3)."""


class TopicPartition(NamedTuple):
    """One partition of a topic; `partition` counts from 0."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Address(NamedTuple):
    """Where a process listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """`host:port`; ValueError names what is wrong."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
            raise ValueError(f"{text!r} is not host:port with a port from 0 to 65535")
        return cls(host, int(port))


CLIENT_PORTS: Final = (19_092, 29_092, 39_092)
"""Ports of the first three brokers for clients on the same machine: of a local cluster where they are free, and of containers."""

WATCH_PORTS: Final = range(1024, 65_536)
"""Ports at which a consumer may show its protocol events. Brokers connect to them; lower ones are for the system's services."""

LOCALHOST: Final = tuple(Address("localhost", port) for port in CLIENT_PORTS)
"""Brokers that a client asks when it is told of none."""
