"""The mistakes of the fault model in coordinators and consumers of groups.

Two of them are masked in a simulated run, and have a test instead. MUT-19: a consumer reads one stream, which keeps its order,
and two coordinators of one group do not act at once, since the lease of the old one ends before its session can; so nothing
older than what was heard arrives. MUT-20: what a former coordinator has on its way to the store belongs to a session that is
over, which the store refuses, or goes over one connection with its resignation, and before that. Only a coordinator's znode
that is deleted by hand makes two of them. MUT-17 has one too: no seed has noticed it so far.
"""

from dataclasses import replace
from typing import Any, Final

from mutants import rules
from mutants.altering import altered
from mutants.patching import ByTest, Code, Table, around
from tidelog.client.membership import Membership
from tidelog.client.progress import Progress
from tidelog.coordinator.commits import Commits
from tidelog.errors import ErrorCode

MUTANTS: Final = Table(__name__)

MUTANTS.mutant("MUT-20", ByTest("tests/unit/coordinator/test_store.py::test_a_deposed_coordinator_writes_nothing"))(
    rules.coordinator_epoch_is_not_checked
)


@MUTANTS.mutant("MUT-17", ByTest("tests/unit/coordinator/test_commits.py"))
def every_commit_counts(code: Code) -> None:
    """A commit counts, whichever member and generation it is of."""
    fences = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)

    def fault_of(original: Any, self: Any, request: Any) -> Any:
        code, text = original(self, request)
        return (ErrorCode.NONE, "") if code in fences else (code, text)

    code.wrap(Commits, "_fault_of", fault_of)
    code.replace(Commits, "_fence", lambda self, group, member, tp, each: self._fault_of_offset(tp, each))


@MUTANTS.mutant("MUT-18")
def reports_what_is_in_hand(code: Code) -> None:
    """A consumer reports what it has handed out, processed or not."""

    def reported(original: Any, self: Any, *what: Any) -> Any:
        with altered(self, _processed={**self._processed, **self.in_hand}):
            return original(self, *what)

    code.wrap(Progress, "processed", reported)
    code.wrap(Progress, "untold", reported)


@MUTANTS.mutant("OFFSETS-GO-BACK")
@around(Commits, "_committed")
def offsets_go_back(original: Any, self: Any, each: Any) -> Any:
    """A coordinator stores some offsets three lower than they were reported."""
    found = original(self, each)
    return replace(found, offset=found.offset - 3) if found.offset % 5 == 4 else found


@MUTANTS.mutant(
    "MUT-19",
    ByTest(
        "tests/unit/client/test_membership.py"
        "::test_find_10_coord_04_mut_19_a_late_start_after_a_newer_stop_changes_nothing"
    ),
)
def order_does_not_count(code: Code) -> None:
    """A consumer does not compare coordinator epoch and generation of what it is told."""

    def received(original: Any, self: Any, message: Any, now: float) -> None:
        self.heard = (0, 0)
        original(self, message, now)

    def start(original: Any, self: Any, request: Any, key: Any, now: float) -> None:
        if key == self.started:
            self.started = None
        original(self, request, key, now)

    code.wrap(Membership, "_received", received)
    code.wrap(Membership, "_start", start)
