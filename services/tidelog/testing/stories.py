"""Which story a seed plays: one, so that a set of seeds is as many different runs."""

from collections.abc import Mapping
from typing import Final

from tidelog.testing.sim_compaction import CompactRun
from tidelog.testing.sim_edges import EdgeRun
from tidelog.testing.sim_groups import GroupRun
from tidelog.testing.sim_losses import LossRun
from tidelog.testing.sim_moves import MoveRun
from tidelog.testing.sim_story import Run
from tidelog.testing.sim_twins import TwinRun

_USUAL: Final[tuple[type[Run], ...]] = (Run, Run, Run, Run, GroupRun, CompactRun, MoveRun)
_IN_TURN: Final[tuple[type[Run], ...]] = (*_USUAL, EdgeRun, Run, Run, TwinRun, *_USUAL[3:], LossRun)


NAMES: Final[Mapping[str, type[Run]]] = {
    "cluster": Run,
    "groups": GroupRun,
    "compaction": CompactRun,
    "moves": MoveRun,
    "edges": EdgeRun,
    "twins": TwinRun,
    "losses": LossRun,
}


def name_of(kind: type[Run]) -> str:
    return next(name for name, each in NAMES.items() if each is kind)


def story_of(seed: int) -> type[Run]:
    """Sixteen seeds in a row play seven stories: two have groups, two a compacted topic, two partitions that move, one faults at
    the edges, one unclean elections, one second processes of brokers, and seven have the cluster alone."""
    return _IN_TURN[seed % len(_IN_TURN)]
