"""The panels of consumer groups, as their coordinators tell of them, and of agents."""

from typing import Final

from dashboards import rules
from dashboards.panels import GROUP, RATE, TOPIC, Panel, or_none, peak, quantile
from dashboards.proof import Fault, Proof, under_load

TOP: Final = 20


def top(query: str) -> str:
    """Clusters may have thousands of groups: a graph of all of them shows nothing."""
    return f"topk({TOP}, {query})"


def by_group(family: str) -> str:
    """While a shard changes hands two brokers may tell the same."""
    return top(f"max by (group) ({family}{{{GROUP}}})")


LAG: Final = Panel(
    "Group lag",
    {top(peak(f"{rules.GROUP_LAG.name}{{{GROUP},{TOPIC}}}")): "{{group}} {{topic}}"},
    "Records below the high watermark that are not committed as processed.",
    (under_load("last < 800"), Proof(Fault.KILL_AGENTS, "last < 800", "max > 1000", "last < 800")),
)
COMPLETED: Final = f"sum by (group, reason) (increase(tidelog_coordinator_rebalances_total{{{GROUP}}}{RATE})) > 0"
REBALANCES: Final = Panel(
    "Rebalances",
    {or_none(COMPLETED, "reason", "broker"): "{{reason}} {{group}}"},
    "Completed rebalances, by cause and by group.",
    (
        under_load("series == 1, max == 0"),
        Proof(Fault.KILL_AGENTS, "max == 0", "max{reason=failure} > 0, max{group=agents} > 0", "max == 0"),
    ),
    bars=True,
)
FAILED_ATTEMPTS: Final = f"sum by (reason) (increase(tidelog_coordinator_rebalance_attempts_failed_total{RATE}))"
EXPIRATIONS: Final = f"sum by (request) (increase(tidelog_coordinator_watcher_expirations_total{RATE}))"
REFUSED: Final = f"sum by (what, code) (increase(tidelog_coordinator_refused_total{RATE}))"
GROUPS: Final = (
    Panel(
        "Groups by state",
        {"sum by (state) (tidelog_coordinator_groups)": "{{state}}"},
        "Groups of all coordinators.",
        (
            under_load("series == 4, last{state=Stable} == 1, last{state=Empty} == 0"),
            Proof(Fault.KILL_AGENTS, "min{state=Stable} == 1", "max{state=Empty} == 1", "last{state=Stable} == 1"),
        ),
    ),
    Panel(
        "Members",
        {by_group("tidelog_group_members"): "{{group}}"},
        f"Members that are registered, or that a new coordinator waits for; the {TOP} largest groups.",
        (
            Proof(Fault.KILL_AGENTS, "min == 2, max == 2", "min == 0", "last == 2"),
            Proof(Fault.KILL_LEADER, during="fewest == 0, min >= 1", after="last == 2"),
        ),
    ),
    Panel(
        "Group generation",
        {by_group("tidelog_group_generation"): "{{group}}"},
        f"Each step is a rebalance attempt; the {TOP} groups with the highest generation.",
        (Proof(Fault.KILL_AGENTS, "changes == 0", "rise >= 1, drop == 0", "changes == 0"),),
    ),
    Panel(
        "Committed offsets",
        {top(f"{rules.COMMITTED.name}{{{GROUP},{TOPIC}}}"): "{{group}} {{topic}}"},
        "Sum over the partitions. It never falls, unless offsets are reset.",
        (
            under_load("series == 1, rise > 100, drop == 0"),
            Proof(Fault.KILL_AGENTS, "rise > 50", "drop == 0", "rise > 50, drop == 0"),
            Proof(Fault.KILL_LEADER, during="drop == 0", after="rise > 50, drop == 0"),
        ),
    ),
    LAG,
    Panel(
        "Group lag, worst partitions",
        {
            top(f"max by (group, topic, partition) (tidelog_group_lag_records{{{GROUP},{TOPIC}}})"): (
                "{{group}} {{topic}}-{{partition}}"
            )
        },
        f"The {TOP} partitions that are farthest behind.",
        (under_load("series == 6, last < 300"), Proof(Fault.KILL_AGENTS, "last < 300", "max > 150", "last < 300")),
    ),
    Panel(
        "Offset commits",
        {f"sum(rate(tidelog_coordinator_offset_commits_total{RATE}))": "offsets"},
        "Offsets per second that all coordinators hand to the store.",
        (under_load("last > 0"), Proof(Fault.KILL_AGENTS, "min > 0", "min == 0", "last > 0")),
    ),
    REBALANCES,
    Panel(
        "Members stopped for a rebalance",
        {f"sum(increase(tidelog_coordinator_rebalance_members_stopped_total{RATE}))": "members"},
        "A member whose partitions stay with it is not stopped.",
        (under_load("max == 0"),),
    ),
    Panel(
        "Failed attempts",
        {
            FAILED_ATTEMPTS: "{{reason}}",
            f"sum(increase(tidelog_coordinator_rebalance_alarms_total{RATE}))": "beyond the maximum",
        },
        "A member did not answer a stop or a start request, or died during the attempt. The next attempt leaves it out.",
        (under_load("series >= 1, max == 0"),),
    ),
    Panel(
        "Rebalance time",
        {quantile(q, "tidelog_coordinator_rebalance_duration_seconds"): f"p{q * 100:g}" for q in (0.5, 0.99)},
        "Time from the request until every member has started.",
        (Proof(Fault.KILL_AGENTS, "series == 0", "max > 0, max < 20"),),
        unit="s",
    ),
    Panel(
        "Ping round trip",
        {quantile(q, "tidelog_coordinator_ping_seconds"): f"p{q * 100:g}" for q in (0.5, 0.95, 0.99)},
        "Time from a ping to its answer.",
        (under_load("last > 0, last < 2"),),
        unit="s",
    ),
    Panel(
        "Expirations",
        {EXPIRATIONS: "{{request}}"},
        "Requests to members that were not answered in time. After too many missed pings, the partitions of a member go to "
        "others.",
        (under_load("series == 3, max == 0"), Proof(Fault.KILL_AGENTS, "max == 0", after="last == 0")),
    ),
    Panel(
        "Fenced and refused",
        {or_none(REFUSED, "code", "broker"): "{{what}} {{code}}"},
        "Messages and commits of another generation, incarnation or coordinator epoch, and registrations that are not "
        "allowed.",
        (under_load("max == 0"),),
    ),
    Panel(
        "Shards by broker",
        {"tidelog_coordinator_shards": "{{instance}}"},
        "Number of group shards that each broker coordinates. The sum falls while a coordinator is elected.",
        (under_load("fewest == 3, min >= 1"), Proof(Fault.KILL_LEADER, during="fewest <= 2, changes >= 1")),
    ),
    Panel(
        "Coordinator elections",
        {f"sum by (instance) (increase(tidelog_coordinator_elections_total{RATE}))": "{{instance}}"},
        "Shards that a broker took over.",
        (under_load("max == 0"), Proof(Fault.KILL_LEADER, "max == 0", "max > 0", "last == 0")),
    ),
    Panel(
        "Coordinator times",
        {
            quantile(0.99, "tidelog_coordinator_take_over_seconds"): "take-over, p99",
            "max(tidelog_coordinator_detection_seconds)": "detection bound",
        },
        "take-over: time from winning a shard until its groups are served. detection bound: time within which the death of "
        "any member is known.",
        (
            under_load("last >= 3, last < 10", of="detection bound"),
            Proof(Fault.KILL_LEADER, during="max > 0, max < 20", of="take-over, p99"),
            Proof(Fault.KILL_AGENTS, during="min == 0", of="detection bound"),
        ),
        unit="s",
    ),
)

AGENT_ERRORS: Final = f"sum by (instance, action) (increase(tidelog_agent_handler_errors_total{RATE}))"
AGENTS: Final = (
    Panel(
        "Agents by state",
        {"sum by (state) (tidelog_agent_state)": "{{state}}"},
        "State of the agents' membership. Unreachable: no broker answers. Reconnecting: the agent looks for its coordinator.",
        (
            under_load("last{state=stable} == 2"),
            Proof(Fault.KILL_AGENTS, "min{state=stable} == 2", "fewest == 0", "last{state=stable} == 2"),
        ),
    ),
    Panel(
        "Records processed",
        {f"sum by (instance) (rate(tidelog_agent_records_total{{{TOPIC}}}{RATE}))": "{{instance}}"},
        "Records per second that the handler accepted.",
        (under_load("series == 2, last > 20"), Proof(Fault.KILL_AGENTS, "min > 20", "fewest == 0", "last > 20")),
    ),
    Panel(
        "Owned partitions",
        {f"sum by (instance) (tidelog_agent_owned_partitions{{{TOPIC}}})": "{{instance}}"},
        "A gap: the agent owns none.",
        (
            under_load("min == 3, max == 3, fewest == 2"),
            Proof(Fault.KILL_AGENTS, during="fewest == 0", after="last == 3"),
        ),
    ),
    Panel(
        "Agent lag",
        {f"sum by (instance) (tidelog_agent_lag_records{{{TOPIC}}})": "{{instance}}"},
        "Records below the high watermark, in the partitions that the agent owns, that its handler has not accepted.",
        (under_load("series == 2, last < 200"), Proof(Fault.KILL_AGENTS, during="fewest == 0", after="last < 200")),
    ),
    Panel(
        "Time since the last ping",
        {"tidelog_agent_since_ping_seconds >= 0": "{{instance}}"},
        "Time since the agent heard from its coordinator. Past its session timeout, the agent drops everything.",
        (under_load("series == 2, max < 3"), Proof(Fault.KILL_LEADER, "max < 3", "max > 1.5", "last < 3")),
        unit="s",
    ),
    Panel(
        "Agent generation",
        {"tidelog_agent_generation": "{{instance}}"},
        "Generation of the last start. An agent that a rebalance did not touch keeps its generation.",
        (under_load("series == 2, min >= 1, changes == 0"), Proof(Fault.KILL_AGENTS, "changes == 0", "changes >= 1")),
    ),
    Panel(
        "Stops and starts",
        {
            f"sum by (instance) (increase(tidelog_agent_stops_total{RATE}))": "{{instance}} stops",
            f"sum by (instance) (increase(tidelog_agent_starts_total{RATE}))": "{{instance}} starts",
            f"sum by (instance) (increase(tidelog_agent_losses_total{RATE}))": "{{instance}} losses",
        },
        "Stops and starts of the agent's fetchers by the coordinator. A loss: the lease ran out, or the agent was fenced.",
        (
            under_load("series == 2, max == 0"),
            Proof(Fault.KILL_LEADER, "max == 0", "max > 0", "last == 0", of="{{instance}} starts"),
        ),
    ),
    Panel(
        "Handler time, p99",
        {quantile(0.99, "tidelog_agent_handler_duration_seconds", by="instance"): "{{instance}}"},
        "Time for one chunk of records.",
        (
            under_load("series == 2, last > 0, last < 2"),
            Proof(Fault.KILL_AGENTS, during="fewest == 0", after="series == 2"),
        ),
        unit="s",
    ),
    Panel(
        "Handler errors",
        {
            or_none(AGENT_ERRORS, "action", "agent"): "{{instance}} {{action}}",
            f"sum by (instance) (increase(tidelog_agent_dropped_records_total{RATE}))": "{{instance}} dropped records",
        },
        "Chunks that failed, by the action taken, and records that came too late, when their partition may already have "
        "another owner.",
        (
            under_load("max == 0"),
            under_load("series == 2", of="{{instance}} dropped records"),
        ),
    ),
)
