"""Waiting for something to become true, with an end to the patience."""

from collections.abc import Callable

from tenacity import RetryError, Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from tidelog.cluster.api import ClusterError


def until(condition: Callable[[], bool], what: str, *, timeout_s: float, interval_s: float = 0.05) -> None:
    """Asks `condition` until it is true; ClusterError says `what` did not come."""
    retrying = Retrying(
        retry=retry_if_not_result(bool), stop=stop_after_delay(timeout_s), wait=wait_fixed(interval_s), reraise=False
    )
    try:
        retrying(condition)
    except RetryError as error:
        raise ClusterError(f"waited {timeout_s:g} s in vain: {what}") from error
