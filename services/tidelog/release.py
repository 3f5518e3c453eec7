"""The release of this process, and the releases that it works beside: the rule of a rolling upgrade.

Every broker, and the active controller, registers with its release, its feature level and the oldest level that it works
beside. A registration without a level is that of 0.1.0.

* A release that sends or stores something new has a higher level than the release before it.
* The controller uses a new feature only while every live broker has its level (`ClusterState.check_level`). A request that needs
  it is refused with UNSUPPORTED_VERSION until the last broker is upgraded, and again after a broker went back. A process of a
  lower level reads what is stored without harm: it ignores fields that it does not know.
* A format that an older level would misread is read by one release before the next one writes it; that one has a higher `oldest`.
* A process refuses to join beside a registered process that it does not work with (`obstacle`), and a controller admits no such
  broker. So a cluster is upgraded one process at a time, in any order, and goes back the same way.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

VERSION: Final = "0.3.0.dev0"
"""Version of the package. pyproject.toml takes it from here, so that a tree that runs without being installed names it too."""


class Release(NamedTuple):
    """The release of one process."""

    version: str
    """Empty when unknown."""
    level: int
    """Level of its features."""
    oldest: int
    """Lowest level that it works beside."""

    def works_beside(self, other: "Release") -> bool:
        return self.level >= other.oldest and other.level >= self.oldest


LEVEL_0_3: Final = 3
"""Level of the features of 0.3.0: unclean elections that compare logs, LogAppendTime."""
RELEASE: Final = Release(VERSION, level=LEVEL_0_3, oldest=2)
UNLEVELLED: Final = Release("", level=1, oldest=1)
"""Release that a registration without a level stands for."""


def obstacle(mine: Release, others: Iterable[tuple[str, Release]]) -> str:
    """The reason why this process may not join the registered ones, with what to do about it; "" if it may."""
    for name, other in others:
        if mine.works_beside(other):
            continue
        this = f"this is release {mine.version} (feature level {mine.level})"
        that = f"release {other.version or 'unknown'} (feature level {other.level})"
        if mine.level < other.oldest:
            return (
                f"{this}; {name} is {that}, which works beside level {other.oldest} and later: start a newer one here"
            )
        return f"{this}, which works beside level {mine.oldest} and later; {name} is {that}: upgrade {name} first"
    return ""
