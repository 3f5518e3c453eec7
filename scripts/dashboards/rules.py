"""Recorded queries: what a panel would else compute over every partition, or every bucket of every process, at each redraw."""

from dataclasses import dataclass
from typing import Final

WINDOW: Final = "20s"
"""Ten scrapes of the Compose cluster, so that one that is missed shows nothing."""


@dataclass(frozen=True, slots=True)
class Recording:
    """`name`: the labels that are left, the metric, what was done (Prometheus' own convention)."""

    name: str
    query: str


ON_LEADER: Final = "and on (instance, topic, partition) tidelog_partition_leader"
NOT_COMMITTED: Final = Recording(
    "topic_partition:tidelog_partition_not_committed_records:max",
    "max by (topic, partition) ((tidelog_partition_log_end_offset - tidelog_partition_high_watermark) "
    + ON_LEADER
    + ")",
)
FOLLOWER_RECORDS: Final = Recording(
    "topic_follower:tidelog_replica_lag_records:max", "max by (topic, follower) (tidelog_replica_lag_records)"
)
FOLLOWER_SECONDS: Final = Recording(
    "topic_follower:tidelog_replica_lag_seconds:max", "max by (topic, follower) (tidelog_replica_lag_seconds)"
)
GROUP_LAG: Final = Recording(
    "group_topic:tidelog_group_lag_records:sum",
    # While a shard changes hands two brokers may tell the same.
    "sum by (group, topic) (max by (group, topic, partition) (tidelog_group_lag_records))",
)
COMMITTED: Final = Recording(
    "group_topic:tidelog_group_committed_offset:sum",
    "sum by (group, topic) (max by (group, topic, partition) (tidelog_group_committed_offset))",
)
REQUEST_SECONDS: Final = Recording(
    f"api_phase_le:tidelog_request_duration_seconds_bucket:rate{WINDOW}",
    f"sum by (api, phase, le) (rate(tidelog_request_duration_seconds_bucket[{WINDOW}]))",
)
RECORDINGS: Final = (NOT_COMMITTED, FOLLOWER_RECORDS, FOLLOWER_SECONDS, GROUP_LAG, COMMITTED, REQUEST_SECONDS)


def of_active(family: str) -> str:
    """The value of the active controller, and none where none acts: a standby shows 0."""
    return f"sum({family} and on (instance) tidelog_controller_active == 1)"


def request_quantile(q: float, labels: str, by: str = "") -> str:
    groups = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({groups}) ({REQUEST_SECONDS.name}{{{labels}}}))"
