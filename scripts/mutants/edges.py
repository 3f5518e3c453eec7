"""Mistakes where the system meets what it does not control: callers that go away, disks that fail, clocks and clients."""

import asyncio
from typing import Any, Final

from mutants.patching import ByTest, Table, around
from tidelog.broker import pending

MUTANTS: Final = Table(__name__)

_PRODUCE: Final = "tests/unit/broker/test_produce.py::"


@MUTANTS.mutant("LATE-ANSWER", ByTest(f"{_PRODUCE}test_a_cancelled_request_takes_no_effect_with_it"))
@around(pending, "resolve")
def cancelled_request_is_answered(_: Any, answer: "asyncio.Future[Any]", result: Any) -> None:
    """A request whose caller has gone is answered all the same."""
    answer.set_result(result)
