"""Every retry policy of the package, as data. Pure code knows no retries; a shell asks a policy.

A policy is a set of tenacity strategies. Two ways to use one: `retrying` gives tenacity's loop for a whole call;
`applies` and `pause_s` answer for one failure where the caller keeps its own queue (the producer retries batches).
Pauses are slept on the Clock port and jittered from the Rand port, so that a seed repeats a run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_base, retry_if_exception
from tenacity.stop import stop_base
from tenacity.wait import wait_base

from tidelog.errors import ErrorCode, TidelogError, is_transient
from tidelog.ports.clock import Clock
from tidelog.ports.rand import Rand


class _JitteredPause(wait_base):
    """first, first * growth, ... up to ceiling; each drawn from the upper half, so that a crowd spreads."""

    def __init__(self, policy: "Policy", rand: Rand) -> None:
        self._policy = policy
        self._rand = rand

    def __call__(self, retry_state: RetryCallState) -> float:
        policy = self._policy
        pause = policy.first_pause_s
        for _ in range(retry_state.attempt_number - 1):
            pause *= policy.growth
            if pause >= policy.ceiling_s:
                pause = policy.ceiling_s
                break
        return pause * (0.5 + self._rand.random() / 2)


class _ClockStop(stop_base):
    """tenacity's own stop_after_delay asks the system's clock; this one asks the port."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._deadline_at = clock.now() + limit_s

    def __call__(self, retry_state: RetryCallState) -> bool:
        return self._clock.now() + retry_state.upcoming_sleep >= self._deadline_at


@dataclass(frozen=True, slots=True)
class Policy:
    """When to try again, and after how long."""

    first_pause_s: float
    ceiling_s: float
    growth: float
    retry: retry_base

    def retrying(self, clock: Clock, rand: Rand, limit_s: float) -> AsyncRetrying:
        """tenacity's loop: gives up, raising the last error, when the next try would begin after `limit_s`."""
        return AsyncRetrying(
            sleep=clock.sleep,
            wait=_JitteredPause(self, rand),
            stop=_ClockStop(clock, limit_s),
            retry=self.retry,
            reraise=True,
        )

    def applies(self, error: BaseException) -> bool:
        """True if a request that ended with `error` is worth another try."""
        state = RetryCallState(AsyncRetrying(), None, (), {})
        state.set_exception((type(error), error, None))
        return bool(self.retry(state))

    def pause_s(self, rand: Rand, failures: int) -> float:
        """Pause before the next try after so many failures (from 1) in a row."""
        state = RetryCallState(AsyncRetrying(), None, (), {})
        state.attempt_number = failures
        return _JitteredPause(self, rand)(state)


def _on(predicate: Callable[[BaseException], bool]) -> retry_base:
    return retry_if_exception(predicate)


def _topic_may_appear(error: BaseException) -> bool:
    # A topic that was just created reaches one broker after the other.
    return is_transient(error) or (isinstance(error, TidelogError) and error.code is ErrorCode.LEADER_NOT_AVAILABLE)


PRODUCER: Final = Policy(first_pause_s=0.05, ceiling_s=1.0, growth=1.3, retry=_on(is_transient))
"""A failed leader must cost well under a second in all (KILL): start at 50 ms and grow slowly."""

FETCH: Final = Policy(first_pause_s=0.05, ceiling_s=1.0, growth=1.5, retry=_on(is_transient))

BOOTSTRAP: Final = Policy(first_pause_s=0.02, ceiling_s=1.0, growth=1.6, retry=_on(is_transient))
"""One round over all known brokers is one try; the pause is between rounds (D0's round robin)."""

METADATA: Final = Policy(first_pause_s=0.05, ceiling_s=0.5, growth=1.3, retry=_on(_topic_may_appear))

ADMIN: Final = Policy(first_pause_s=0.1, ceiling_s=1.0, growth=1.6, retry=_on(is_transient))

COORDINATOR: Final = Policy(first_pause_s=0.05, ceiling_s=1.0, growth=1.5, retry=_on(is_transient))
"""A group's coordinator is being elected, or reads its groups: both take a fraction of a second."""

ALTER_ISR: Final = Policy(first_pause_s=0.05, ceiling_s=1.0, growth=2.0, retry=_on(is_transient))
"""Resend after no answer or NOT_CONTROLLER; every other answer is the partition machine's business (HOLE-52)."""

ALTER_ISR_UNAUTHORIZED: Final = Policy(first_pause_s=5.0, ceiling_s=60.0, growth=2.0, retry=_on(is_transient))
"""After CLUSTER_AUTHORIZATION_FAILED: only an operator can help (section R), and must not have to restart the broker then."""
