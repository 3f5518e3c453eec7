"""Every retry policy of the package, as data. Pure code knows no retries; a shell asks a policy.

Two ways to use a policy: `retrying` is a loop around a whole call; `applies` and `pause_s` answer for one failure where the
caller keeps a queue of its own (the producer retries batches). Pauses are slept on the Clock port and drawn from the Rand
port, so that a seed repeats a run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from tidelog.errors import ErrorCode, TidelogError, is_transient
from tidelog.ports.clock import Clock
from tidelog.ports.rand import Rand


@dataclass(frozen=True, slots=True)
class Policy:
    """When to try again, and after how long."""

    first_pause_s: float
    ceiling_s: float
    growth: float
    applies: Callable[[BaseException], bool]
    """True if a request that ended with this error is worth another try."""

    def retrying(self, clock: Clock, rand: Rand, limit_s: float) -> "Attempts":
        """A loop of attempts that raises the last error when the next attempt would begin after `limit_s`.

        async for attempt in policy.retrying(clock, rand, limit_s):
            with attempt:
                answer = await ask()
        """
        return Attempts(self, clock, rand, clock.now() + limit_s)

    def pause_s(self, rand: Rand, failures: int) -> float:
        """Pause before the next try after so many failures (from 1) in a row.

        Pauses grow from the first by `growth` up to the ceiling. Each is drawn from the upper half, so that a crowd spreads.
        """
        pause = self.first_pause_s
        for _ in range(failures - 1):
            pause *= self.growth
            if pause >= self.ceiling_s:
                pause = self.ceiling_s
                break
        return pause * (0.5 + rand.random() / 2)


class Attempts:
    """The attempts of one call, one after the other, each also the context of its body."""

    def __init__(self, policy: Policy, clock: Clock, rand: Rand, deadline_at: float) -> None:
        self._policy = policy
        self._clock = clock
        self._rand = rand
        self._deadline_at = deadline_at
        self._error: BaseException | None = None
        self.number = 0
        """The number of the attempt that runs, from 1."""

    def __aiter__(self) -> "Attempts":
        return self

    async def __anext__(self) -> "Attempts":
        error, self._error = self._error, None
        if error is not None:
            pause_s = self._policy.pause_s(self._rand, self.number)
            if self._clock.now() + pause_s >= self._deadline_at:
                raise error
            await self._clock.sleep(pause_s)
        elif self.number:
            raise StopAsyncIteration
        self.number += 1
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> bool:
        if error is None or not self._policy.applies(error):
            return False
        self._error = error
        return True


def _topic_may_appear(error: BaseException) -> bool:
    # A topic that was just created reaches one broker after the other.
    return is_transient(error) or (isinstance(error, TidelogError) and error.code is ErrorCode.LEADER_NOT_AVAILABLE)


PRODUCER: Final = Policy(first_pause_s=0.05, ceiling_s=1.0, growth=1.3, applies=is_transient)
"""A failed leader must cost well under a second in all (KILL): start at 50 ms and grow slowly."""

FETCH: Final = Policy(first_pause_s=0.05, ceiling_s=1.0, growth=1.5, applies=is_transient)

BOOTSTRAP: Final = Policy(first_pause_s=0.02, ceiling_s=1.0, growth=1.6, applies=is_transient)
"""One round over all known brokers is one try; the pause is between rounds (D0's round robin)."""

METADATA: Final = Policy(first_pause_s=0.05, ceiling_s=0.5, growth=1.3, applies=_topic_may_appear)

ADMIN: Final = Policy(first_pause_s=0.1, ceiling_s=1.0, growth=1.6, applies=is_transient)

COORDINATOR: Final = Policy(first_pause_s=0.05, ceiling_s=1.0, growth=1.5, applies=is_transient)
"""A group's coordinator is being elected, or reads its groups: both take a fraction of a second."""

ALTER_ISR: Final = Policy(first_pause_s=0.05, ceiling_s=1.0, growth=2.0, applies=is_transient)
"""Resend after no answer or NOT_CONTROLLER; every other answer is the partition machine's business (HOLE-52)."""

ALTER_ISR_UNAUTHORIZED: Final = Policy(first_pause_s=5.0, ceiling_s=60.0, growth=2.0, applies=is_transient)
"""After CLUSTER_AUTHORIZATION_FAILED: only an operator can help (section R), and must not have to restart the broker then."""
