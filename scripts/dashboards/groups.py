"""The panels of consumer groups, as their coordinators tell of them, and of agents."""

from typing import Final

from dashboards.panels import RATE, TOPIC, Panel, quantile

GROUP: Final = 'group=~"$group"'
TOP: Final = 20


def top(query: str) -> str:
    """Clusters may have thousands of groups: a graph of all of them shows nothing."""
    return f"topk({TOP}, {query})"


def by_group(family: str) -> str:
    return top(f"max by (group) ({family}{{{GROUP}}})")


def by_group_partition(family: str) -> str:
    """While a shard changes hands two brokers may tell the same."""
    return f"max by (group, topic, partition) ({family}{{{GROUP},{TOPIC}}})"


FAILED_ATTEMPTS: Final = f"sum by (reason) (increase(tidelog_coordinator_rebalance_attempts_failed_total{RATE}))"
EXPIRATIONS: Final = f"sum by (request) (increase(tidelog_coordinator_watcher_expirations_total{RATE}))"
REFUSED: Final = f"sum by (what, code) (increase(tidelog_coordinator_refused_total{RATE}))"
GROUPS: Final = (
    Panel(
        "Groups by state",
        {"sum by (state) (tidelog_coordinator_groups)": "{{state}}"},
        "Of all coordinators.",
    ),
    Panel(
        "Members",
        {by_group("tidelog_group_members"): "{{group}}"},
        f"Registered, or awaited by a new coordinator; the {TOP} largest groups.",
    ),
    Panel(
        "Group generation",
        {by_group("tidelog_group_generation"): "{{group}}"},
        f"A step is a rebalance attempt; the {TOP} groups with the most.",
    ),
    Panel(
        "Committed offsets",
        {top(f"sum by (group, topic) ({by_group_partition('tidelog_group_committed_offset')})"): "{{group}} {{topic}}"},
        "Sum over the partitions. It never falls, unless somebody sets it back.",
    ),
    Panel(
        "Group lag",
        {top(f"sum by (group, topic) ({by_group_partition('tidelog_group_lag_records')})"): "{{group}} {{topic}}"},
        "Records below the high watermark that are not committed as processed.",
    ),
    Panel(
        "Group lag, worst partitions",
        {top(by_group_partition("tidelog_group_lag_records")): "{{group}} {{topic}}-{{partition}}"},
        f"The {TOP} that are farthest behind.",
    ),
    Panel(
        "Rebalances",
        {
            f"sum by (reason) (increase(tidelog_coordinator_rebalances_total{RATE}))": "{{reason}}",
            f"sum(increase(tidelog_coordinator_rebalance_members_stopped_total{RATE}))": "members stopped",
        },
        "Completed, by what asked for them, and how many members had to stop something for it.",
    ),
    Panel(
        "Failed attempts",
        {
            f"{FAILED_ATTEMPTS} or vector(0)": "{{reason}}",
            f"sum(increase(tidelog_coordinator_rebalance_alarms_total{RATE}))": "beyond the maximum",
        },
        "A member did not answer a stop or a start, or died meanwhile: the next attempt goes without it.",
    ),
    Panel(
        "Rebalance time",
        {quantile(q, "tidelog_coordinator_rebalance_duration_seconds"): f"p{q * 100:g}" for q in (0.5, 0.99)},
        "From the request until every member has started.",
        unit="s",
    ),
    Panel(
        "Ping round trip",
        {quantile(q, "tidelog_coordinator_ping_seconds"): f"p{q * 100:g}" for q in (0.5, 0.95, 0.99)},
        "From a ping to its answer.",
        unit="s",
    ),
    Panel(
        "Expirations",
        {f"{EXPIRATIONS} or vector(0)": "{{request}}"},
        "Requests to members without an answer in time; too many pings of one and its partitions go to others.",
    ),
    Panel(
        "Fenced and refused",
        {f"{REFUSED} or vector(0)": "{{what}} {{code}}"},
        "Messages and commits of another generation, incarnation or coordinator epoch, and registrations that cannot be.",
    ),
    Panel(
        "Shards by broker",
        {"tidelog_coordinator_shards": "{{instance}}"},
        "How many shards of the groups each broker coordinates; the sum falls while a coordinator is elected.",
    ),
    Panel(
        "Coordinator elections",
        {f"sum by (instance) (increase(tidelog_coordinator_elections_total{RATE}))": "{{instance}}"},
        "Shards that a broker took over.",
    ),
    Panel(
        "Coordinator times",
        {
            quantile(0.99, "tidelog_coordinator_take_over_seconds"): "take-over, p99",
            "max(tidelog_coordinator_detection_seconds)": "detection bound",
        },
        "From winning a shard until its groups are served; and within which the death of any member is known.",
        unit="s",
    ),
)

AGENT_ERRORS: Final = f"sum by (instance, action) (increase(tidelog_agent_handler_errors_total{RATE}))"
AGENTS: Final = (
    Panel(
        "Agents by state",
        {"sum by (state) (tidelog_agent_state)": "{{state}}"},
        "Of their membership. Unreachable: no broker answers; reconnecting: it looks for its coordinator.",
    ),
    Panel(
        "Records processed",
        {f"sum by (instance) (rate(tidelog_agent_records_total{{{TOPIC}}}{RATE}))": "{{instance}}"},
        "Given to the handler, which took them; a second.",
    ),
    Panel(
        "Owned partitions",
        {f"sum by (instance) (tidelog_agent_owned_partitions{{{TOPIC}}})": "{{instance}}"},
        "A gap: it owns none.",
    ),
    Panel(
        "Agent lag",
        {f"sum by (instance) (tidelog_agent_lag_records{{{TOPIC}}})": "{{instance}}"},
        "Records below the high watermark, of the partitions that it owns, that its handler has not taken.",
    ),
    Panel(
        "Time since the last ping",
        {"tidelog_agent_since_ping_seconds >= 0": "{{instance}}"},
        "Since the agent heard its coordinator; past its session timeout it drops everything.",
        unit="s",
    ),
    Panel(
        "Agent generation",
        {"tidelog_agent_generation": "{{instance}}"},
        "Of the last start; an agent that a rebalance did not touch keeps its own.",
    ),
    Panel(
        "Stops and starts",
        {
            f"sum by (instance) (increase(tidelog_agent_stops_total{RATE}))": "{{instance}} stops",
            f"sum by (instance) (increase(tidelog_agent_starts_total{RATE}))": "{{instance}} starts",
            f"sum by (instance) (increase(tidelog_agent_losses_total{RATE}))": "{{instance}} losses",
        },
        "Of its fetchers, by the coordinator. A loss: the lease ran out, or the agent was fenced.",
    ),
    Panel(
        "Handler time, p99",
        {quantile(0.99, "tidelog_agent_handler_duration_seconds", by="instance"): "{{instance}}"},
        "Of one chunk of records.",
        unit="s",
    ),
    Panel(
        "Handler errors",
        {
            f"{AGENT_ERRORS} or vector(0)": "{{instance}} {{action}}",
            f"sum by (instance) (increase(tidelog_agent_dropped_records_total{RATE}))": "{{instance}} dropped records",
        },
        "Chunks that failed, by what was done then; and records that came too late, when their partition may be another's.",
    ),
)
