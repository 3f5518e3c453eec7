"""A member that commits after each poll never has more in hand than one poll gives, whatever its coordinator does."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from tidelog.chaos.outcomes import outcome
from tidelog.chaos.verifiable_consumer import POLL_RECORDS, VerifiableConsumer
from tidelog.client.groups import GroupMetadata
from tidelog.client.records import ConsumerRecord
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing import loop as sim
from tidelog.testing.clock import SimClock

FAILOVER_S = 20.0


class Log:
    """A consumer that always has records, and whose coordinator is away for FAILOVER_S; and who reads it."""

    def __init__(self) -> None:
        self.position = 0
        self.stored = 0
        self.most_in_hand = 0
        self.errors: list[BaseException | None] = []
        self.sent_in: list[int] = []
        self.generation = 1

    def owns(self, tp: TopicPartition) -> bool:
        return True

    @property
    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata("g", "a", 1, self.generation)

    async def poll(self, max_records: int, timeout_s: float) -> list[ConsumerRecord]:
        first, self.position = self.position, self.position + max_records
        return [ConsumerRecord("t", 0, o, 0, 0, None, b"", (), 0) for o in range(first, self.position)]

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float = 3.0) -> None:
        await asyncio.sleep(min(timeout_s, FAILOVER_S))
        if timeout_s < FAILOVER_S:
            raise TransportError("nobody knows")
        self.stored = offsets[TopicPartition("t", 0)]
        self.generation += 1

    def polled(self, began: float, records: Sequence[ConsumerRecord]) -> None:
        pass

    def processed(self, records: Sequence[ConsumerRecord]) -> None:
        self.most_in_hand = max(self.most_in_hand, records[-1].offset + 1 - self.stored)

    def committed(
        self, offsets: Mapping[TopicPartition, int], sent_in: GroupMetadata, error: BaseException | None
    ) -> None:
        self.errors.append(error)
        self.sent_in.append(sent_in.generation)


def test_x5_nothing_more_is_read_before_the_commit_is_known() -> None:
    log: Any = Log()
    sim.run(VerifiableConsumer(log, SimClock(), log, commits=True).run(most=3 * POLL_RECORDS))
    assert log.errors == [None] * 3
    assert log.most_in_hand == POLL_RECORDS


def test_x5_a_commit_counts_for_the_generation_that_it_was_sent_in() -> None:
    """A rebalance may come before the answer: named by what the member is then, an old commit seems to set a new one back."""
    log: Any = Log()
    sim.run(VerifiableConsumer(log, SimClock(), log, commits=True).run(most=3 * POLL_RECORDS))
    assert log.sent_in == [1, 2, 3]


async def test_a_commit_that_ends_with_its_member_is_in_doubt() -> None:
    log: Any = Log()
    with suppress(TimeoutError):
        async with asyncio.timeout(FAILOVER_S / 2):
            await VerifiableConsumer(log, SimClock(), log, commits=True).run()
    assert [outcome(error) for error in log.errors] == ["info"] and log.errors[0] is not None


class Quiet(Log):
    """A partition with three records. The first commit is refused; another member may have it meanwhile, up to offset 5."""

    def __init__(self, *, moves: bool) -> None:
        super().__init__()
        self.moves = moves
        self.polls = 0
        self.tried: list[int] = []
        self.consumer: Any = None

    async def poll(self, max_records: int, timeout_s: float) -> list[ConsumerRecord]:
        self.polls += 1
        if self.polls == 4:
            self.consumer.stop()
        await asyncio.sleep(timeout_s)
        return await super().poll(3, timeout_s) if self.polls == 1 else []

    async def position_of(self) -> int:
        return 5 if self.moves and self.polls > 1 else 3

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float = 3.0) -> None:
        self.tried.append(offsets[TopicPartition("t", 0)])
        if len(self.tried) == 1:
            raise TidelogError("not now", ErrorCode.ILLEGAL_GENERATION)


def played(log: Quiet) -> list[int]:
    consumer = SimpleNamespace(
        poll=log.poll,
        commit=log.commit,
        owns=log.owns,
        position=lambda tp: log.position_of(),
        group_metadata=log.group_metadata,
    )
    log.consumer = VerifiableConsumer(cast(Any, consumer), SimClock(), cast(Any, log), commits=True)
    sim.run(log.consumer.run())
    return log.tried


def test_a_commit_that_was_refused_is_tried_again_without_news() -> None:
    assert played(Quiet(moves=False)) == [3, 3]


def test_what_another_member_had_meanwhile_is_not_committed() -> None:
    assert played(Quiet(moves=True)) == [3]
