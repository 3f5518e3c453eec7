"""Regions over every graph: the faults of chaos runs, and processes that were seen to be down, whatever stopped them."""

from dataclasses import dataclass
from typing import Final

from dashboards.panels import ORANGE, RED
from dashboards.proof import Fault, Proof, under_load


@dataclass(frozen=True, slots=True)
class Mark:
    """`query`: 1 while something is marked. `title` and `text` may name its labels, as a legend does."""

    name: str
    query: str
    color: str
    title: str
    text: str
    proofs: tuple[Proof, ...]


def named(query: str, label: str, text: str = "$1") -> str:
    """The process that `label` names, without its port where it has a name of its own."""
    whole = f'label_replace({query}, "process", "{text}", "{label}", "(.*)")'
    return f'label_replace({whole}, "process", "{text}", "{label}", "([a-z][^:]*):.*")'


FAULT_ACTIVE: Final = "max by (fault, target) (tidelog_chaos_fault_active) > 0"
DOWN: Final = " or ".join(
    f"max by (process) ({named(f'1 - {family} == 1', label)})"
    for family, label in (('up{job!="chaos"}', "instance"), ("tidelog_zookeeper_up", "server"))
)
"""A process that a planned step removes is no target any more, so it is not marked."""
NOTICED: Final = " or ".join(
    f"max by (process) ({named(query, label, text)})"
    for query, label, text in (
        ('tidelog_controller_broker_state{state="suspected"} == 1', "broker", "broker $1 is suspected"),
        ('1 - tidelog_zk_session_state{state="connected"} == 1', "instance", "$1 has no session"),
        (
            'sum by (group) (increase(tidelog_coordinator_rebalances_total{reason="failure"}[10s])) > bool 0 == 1',
            "group",
            "a member of $1 died",
        ),
    )
)
MARKS: Final = (
    Mark(
        "Faults",
        FAULT_ACTIVE,
        RED,
        "{{fault}}",
        "{{target}}",
        (under_load("series == 0"), Proof(Fault.PAUSE_FOLLOWER, during="max{fault=pause} == 1", after="series == 0")),
    ),
    Mark(
        "Down",
        DOWN,
        ORANGE,
        "{{process}} is down",
        "It does not answer a scrape.",
        (
            under_load("series == 0"),
            Proof(Fault.KILL_LEADER, "series == 0", "series >= 1, max == 1", "series == 0"),
            Proof(Fault.KILL_ZOOKEEPER, "series == 0", "series >= 1, max == 1", "series == 0"),
        ),
    ),
    Mark(
        "Noticed",
        NOTICED,
        "yellow",
        "{{process}}",
        "By the controller, a coordinator of groups, or the process itself.",
        (
            under_load("series == 0"),
            Proof(Fault.KILL_LEADER, "series == 0", "series >= 1, max == 1", "series == 0"),
            Proof(Fault.KILL_AGENTS, "series == 0", "series{process=a member of agents died} == 1", "series == 0"),
            Proof(Fault.KILL_ZOOKEEPER, "series == 0", "series >= 5"),
        ),
    ),
)
