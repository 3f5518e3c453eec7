"""A simulated store's client that remembers the multis of what is tested, and can fail them."""

from collections.abc import Sequence
from typing import Any

from tidelog.ports.meta import MetaError, Op, OutcomeUnknown, Stat, TooLarge
from tidelog.testing.meta import SimMeta


class SpyMeta:
    def __init__(self, twin: SimMeta) -> None:
        self.twin = twin
        self.multis: list[Sequence[Op]] = []
        self.running = 0
        self.running_max = 0
        self.limit_ops = 10_000
        self.fail: list[MetaError] = []
        """Errors of the next multis, the last one first."""
        self.unanswered: list[bool] = []
        """An item for each of the next multis: its answer is lost, and whether it was applied."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.twin, name)

    async def multi(self, ops: Sequence[Op]) -> list[Stat | None]:
        self.multis.append(ops)
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            if len(ops) > self.limit_ops:
                raise TooLarge(ops[0].path)
            if self.fail:
                raise self.fail.pop()
            if not self.unanswered:
                return await self.twin.multi(ops)
            if self.unanswered.pop(0):
                await self.twin.multi(ops)
            raise OutcomeUnknown(ops[0].path)
        finally:
            self.running -= 1
