"""What an agent does with records, as its worker sees it."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from tidelog.client.records import ConsumerRecord
from tidelog.ids import TopicPartition

Records = Sequence[ConsumerRecord]


class Handler(Protocol):
    async def start(self) -> None: ...

    async def handle(self, records: Records) -> None:
        """A few records of one partition, in order. Whatever it raises, they may be given again."""
        ...

    @property
    def full(self) -> bool:
        """It holds so much that it asks for a flush now."""
        ...

    async def flush(self) -> None:
        """Returns when everything that was handled is safe: only then are its offsets committed."""
        ...

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """They are another agent's, which begins at the committed offset: what was not flushed is not ours to write."""
        ...

    async def close(self) -> None: ...


class Immediate:
    """Of handlers that are done with a record when `handle` returns."""

    async def start(self) -> None:
        pass

    @property
    def full(self) -> bool:
        return False

    async def flush(self) -> None:
        pass

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        pass

    async def close(self) -> None:
        pass
