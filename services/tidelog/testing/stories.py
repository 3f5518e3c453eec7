"""Which story a seed plays: one, so that a set of seeds is as many different runs."""

from typing import Final

from tidelog.testing.sim_compaction import CompactRun
from tidelog.testing.sim_edges import EdgeRun
from tidelog.testing.sim_groups import GroupRun
from tidelog.testing.sim_moves import MoveRun
from tidelog.testing.sim_story import Run

_IN_TURN: Final[tuple[type[Run], ...]] = (Run, Run, Run, Run, GroupRun, CompactRun, MoveRun, EdgeRun)


def story_of(seed: int) -> type[Run]:
    """Eight seeds in a row play five stories: one has groups, one a compacted topic, one partitions that move, one faults at the
    edges, and four have the cluster alone."""
    return _IN_TURN[seed % len(_IN_TURN)]
