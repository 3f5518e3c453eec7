"""What a set of simulated runs must have seen at least once: a fault that never bites proves nothing (reliability 4.4)."""

from collections import Counter
from typing import Final

TRUNCATION: Final = "a follower truncated its log"
REFUSED: Final = "an AlterIsr was refused"
ZOMBIE: Final = "a zombie leader was fenced"
VETO: Final = "a lossy last replica was vetoed"
UNKNOWN_APPLIED: Final = "an unknown outcome turned out applied"
UNKNOWN_LOST: Final = "an unknown outcome turned out not applied"
FROZEN: Final = "a high watermark was frozen below min ISR"
FAILOVER: Final = "a controller failed over inside a multi"
MISLED: Final = "a broker that lives was suspected"
QUIET_FAILOVER: Final = "a coordinator failed over without a rebalance"
ZOMBIE_COMMIT: Final = "a zombie consumer's commit was fenced"
LEASE_OUT: Final = "a consumer's lease ran out before its eviction"
RETRIED: Final = "a rebalance attempt failed and was retried"
RETURNED: Final = "a member returned over a new stream"
RENEWED: Final = "a topic that groups read was made anew"
MOVED: Final = "a partition moved to other brokers"
MOVE_OUTLIVED: Final = "a move outlived its controller"
COMPACTED: Final = "half of a topic was compacted away"
DELETED: Final = "records were deleted by offset"
NO_TAKE_OVER: Final = "no controller acted while a znode was damaged"
UNREADABLE: Final = "a coordinator held on to a topic that it could not read"
SESSION_LEFT: Final = "a registration was deleted while its session lived"
SET_ASIDE: Final = "a log that an older copy of ZooKeeper lacks was kept"
FELL: Final = "a leader epoch of an older copy was refused"
MOVED_AWAY: Final = "an in-sync set of an older copy named a replica whose log was deleted"
UNCLEAN: Final = "a leader was elected uncleanly"
CHOSEN: Final = "an unclean election had logs of different lengths to choose from"
NAMED: Final = "an operator named an unclean leader"
UNCLEAN_LOSS: Final = "an unclean election lost acknowledged records"
SET_BACK: Final = "a reader was set back by an unclean election"
SECOND_ENDED: Final = "a second process with one broker id ended and named the first"
SECOND_WAITED: Final = "a second process waited for a first that was paused or out of reach"
ROTTEN: Final = "a log that had rotted was made whole again"
JUMPED: Final = "the calendar of a coordinator jumped"

GOALS: Final = (
    TRUNCATION,
    REFUSED,
    ZOMBIE,
    VETO,
    UNKNOWN_APPLIED,
    UNKNOWN_LOST,
    FROZEN,
    FAILOVER,
    MISLED,
    QUIET_FAILOVER,
    ZOMBIE_COMMIT,
    LEASE_OUT,
    RETRIED,
    RETURNED,
    RENEWED,
    MOVED,
    MOVE_OUTLIVED,
    COMPACTED,
    DELETED,
    NO_TAKE_OVER,
    UNREADABLE,
    SESSION_LEFT,
    SET_ASIDE,
    FELL,
    MOVED_AWAY,
    UNCLEAN,
    CHOSEN,
    NAMED,
    UNCLEAN_LOSS,
    SET_BACK,
    SECOND_ENDED,
    SECOND_WAITED,
    ROTTEN,
    JUMPED,
)

JUDGED_SEEDS: Final = 200
"""A set smaller than this may miss one by chance, so it is not judged: a few of 25 runs with groups reach the rarest."""


def missed(reached: Counter[str]) -> list[str]:
    return [goal for goal in GOALS if not reached[goal]]


def table(reached: Counter[str], seeds: Counter[str]) -> str:
    """One line a goal: how often, and in how many runs."""
    width = max(map(len, GOALS))
    return "".join(f"{goal:<{width}}  {reached[goal]:>8,}  in {seeds[goal]:>6,} seeds\n" for goal in GOALS)
