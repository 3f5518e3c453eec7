"""Waiting for something to become true, for a limited time."""

import time
from collections.abc import Callable

from tidelog.cluster.api import ClusterError


def until(condition: Callable[[], bool], what: str, *, timeout_s: float, interval_s: float = 0.05) -> None:
    """Asks `condition` until it is true. ClusterError says what was waited for, and how long."""
    deadline_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline_at:
            raise ClusterError(f"gave up after {timeout_s:g} s of waiting for {what}")
        time.sleep(interval_s)
