"""Which release this is, and which others it works beside: the rule of a rolling upgrade.

Every broker, and the active controller, says in its registration which release it is, its feature level, and the oldest level
that it works beside; a registration that says nothing is 0.1.0's.

* A release that says or stores what an older one does not know has a higher level than that one.
* The controller uses such a feature only while every live broker has its level (`ClusterState.feature_level`): it is refused with
  UNSUPPORTED_VERSION until the last broker is upgraded, and again after one went back. What is stored so is read without harm
  by a process of a lower level, which ignores fields that it does not know.
* What an older level would misread is read by one release before the next one writes it, which then has a higher `oldest`.
* A process does not join while somebody is registered beside whom it does not work (`obstacle`), and a controller admits no such
  broker. So a cluster is upgraded one process at a time, in any order, and goes back the same way, unless a log was compacted.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

VERSION: Final = "0.2.0"
"""Of the package: pyproject.toml takes it from here, so that a tree that is run without being installed says so too."""


class Release(NamedTuple):
    """Of one process."""

    version: str
    """"": unknown."""
    level: int
    """Of its features."""
    oldest: int
    """Level beside which it works."""

    def works_beside(self, other: "Release") -> bool:
        return self.level >= other.oldest and other.level >= self.oldest


RELEASE: Final = Release(VERSION, level=2, oldest=1)
FIRST: Final = Release("", level=1, oldest=1)
"""Of whoever is registered without a level."""

REASSIGNMENT: Final = 2
"""Level from which replicas can be moved: an older broker counts a replica that comes as one that is there."""
TOPIC_SETTINGS: Final = 2
"""Level of the settings of topics that 0.1.0 does not have (`topic_config.newer`): it leaves out what it does not know, and takes
the gaps in a compacted log for damage."""


def obstacle(mine: Release, others: Iterable[tuple[str, Release]]) -> str:
    """Why a process may not join these, who are registered, with what to do about it; "" if it may."""
    for who, other in others:
        if mine.works_beside(other):
            continue
        this = f"this is release {mine.version} (feature level {mine.level})"
        that = f"release {other.version or 'unknown'} (feature level {other.level})"
        if mine.level < other.oldest:
            return f"{this}; {who} is {that}, which works beside level {other.oldest} and later: start a newer one here"
        return f"{this}, which works beside level {mine.oldest} and later; {who} is {that}: upgrade {who} first"
    return ""
