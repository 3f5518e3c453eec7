"""The CPU that a piece of work takes, apart from what else the machine and the process do."""

import gc
import sys
import time
from collections.abc import Callable


def seconds_of(work: Callable[[], object], runs: int = 3) -> float:
    """Seconds of CPU of the cheapest run.

    A neighbour on the core makes a run dearer and none cheaper. So does the collector of garbage, which walks through all
    that the tests before have left: it rests meanwhile.
    """

    def once() -> float:
        before = time.process_time()
        work()
        return time.process_time() - before

    gc.disable()
    try:
        return min(once() for _ in range(runs))
    finally:
        gc.enable()


def calls_of(work: Callable[[], object], *, with_c: bool = False) -> int:
    """Returns how many Python functions it calls, and with `with_c` those of C as well."""
    count, counted = 0, ("call", "c_call") if with_c else ("call",)

    def count_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in counted

    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
