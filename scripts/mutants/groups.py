"""The mistakes of reliability 10 in coordinators and consumers of groups; MUT-n is M-n there.

Two of them are masked in a simulated run, and have a test instead. MUT-19: a consumer reads one stream, which keeps its order,
and two coordinators of one group do not act at once, since the lease of the old one ends before its session can; so nothing
older than what was heard arrives. MUT-20: what a former coordinator has on its way to the store belongs to a session that is
over, which the store refuses, or goes over one connection with its resignation, and before that. Only who deletes the
coordinator's znode by hand makes two of them. MUT-17 has one too: no seed has noticed it so far.
"""

from typing import Final

from mutants.patching import ByTest, Mutant, Patch

_COMMITS: Final = "coordinator/commits.py"
_MEMBERSHIP: Final = "client/membership.py"
_STORE: Final = "coordinator/store.py"
_PROGRESS: Final = "client/progress.py"

MUTANTS: Final = (
    Mutant(
        "MUT-17",
        "a commit counts whoever it is from, and of whichever generation",
        (
            Patch(
                _COMMITS,
                """        if member is None or member.incarnation != request.incarnation:
""",
                """        if member is None:
            return _NONE, ""
        if member.incarnation != request.incarnation:
""",
            ),
            Patch(_COMMITS, "        if request.coordinator_epoch != self._desk.epoch:\n", "        if False:\n"),
            Patch(
                _COMMITS,
                "        if member.generation == NEVER_STARTED or request.generation != member.generation:\n",
                "        if False:\n",
            ),
            Patch(
                _COMMITS,
                "        if owner is None or owner.consumer_id != member.consumer_id or tp not in member.assigned:\n",
                "        if False:\n",
            ),
            Patch(_COMMITS, "        if tp in member.stopped:\n", "        if False:\n"),
        ),
        ByTest("tests/unit/coordinator/test_commits.py"),
    ),
    Mutant(
        "MUT-18",
        "a consumer reports what it has handed out, processed or not",
        (
            Patch(
                _PROGRESS,
                "        return tuple(_info(tp, self._processed[tp]) for tp in tps if tp in self._processed)\n",
                """        got = {**self._processed, **self.in_hand}
        return tuple(_info(tp, got[tp]) for tp in tps if tp in got)
""",
            ),
            Patch(
                _PROGRESS,
                "        return tuple(_info(tp, at) for tp, at in self._processed.items() if self._told.get(tp) != at)\n",
                """        got = {**self._processed, **self.in_hand}
        return tuple(_info(tp, at) for tp, at in got.items() if self._told.get(tp) != at)
""",
            ),
        ),
    ),
    Mutant(
        "MUT-19",
        "a consumer does not compare coordinator epoch and generation of what it is told",
        (
            Patch(_MEMBERSHIP, "            if key < self.heard:\n", "            if False:\n"),
            Patch(_MEMBERSHIP, "        elif answer.coordinator_epoch < self.heard[0]:\n", "        elif False:\n"),
            Patch(_MEMBERSHIP, "        if key != self.started:\n", "        if True:\n"),
        ),
        ByTest(
            "tests/unit/client/test_membership.py"
            "::test_find_10_coord_04_mut_19_a_late_start_after_a_newer_stop_changes_nothing"
        ),
    ),
    Mutant(
        "MUT-20",
        "a coordinator stores offsets whatever its epoch",
        (
            Patch(_STORE, "        return [self._fence]\n", "        return []\n"),
            Patch(_STORE, "            if error.index != 0:\n", "            if True:\n"),
            Patch(_STORE, "if not count and len(ops) == 1:", "if not count and not ops:"),
        ),
        ByTest("tests/unit/coordinator/test_store.py::test_a_deposed_coordinator_writes_nothing"),
    ),
)
