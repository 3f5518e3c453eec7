"""The step of a design document that a protocol event carries out, as far as docs/documents.md knows it.

A kind is absent if no document describes it, or if its fields do not tell which of several sections it belongs to.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tidelog.errors import ErrorCode
from tidelog.ids import NO_LEADER
from tidelog.values import Message
from tidelog.wire import messages as m

COORDINATOR: Final = "Consumer coordinator"
CONTROLLER: Final = "Controller with ZKQueue"
ALTER_ISR: Final = "KIP-497"
HIGH_LEVEL: Final = "Replication, high level"
DETAILED: Final = "Replication, detailed V1"


class Passage(NamedTuple):
    """A place in docs/documents.md, in its own words. What Tidelog does differently there is said on that page alone."""

    document: str
    section: str
    step: str = ""
    """Part of a line of the section; empty where no line of it holds for every event."""

    def __str__(self) -> str:
        place = f"{self.document}, {self.section}"
        return f"{place}: {self.step}" if self.step else place


_REGISTRATION: Final = Passage(DETAILED, "Paths", "/brokers/ids is ephemeral")
_BROKER_GONE: Final = Passage(CONTROLLER, "on_broker_change", "find partitions whose leader is gone")
_CONTROLLER_ELECTION: Final = Passage(CONTROLLER, "Controller failover", "/controller is ephemeral")
_DECISION: Final = Passage(CONTROLLER, "on_leader_assignment_change")
_ROLE: Final = Passage(CONTROLLER, "on_leader_assignment_change", "stop fetching, then lead or follow")
_TOPICS: Final = Passage(CONTROLLER, "Topics", "create and delete topics")
_REASSIGNMENT: Final = Passage(CONTROLLER, "Reassignment")
_STATE_SENT: Final = Passage(ALTER_ISR, "Goals", "stale state is never sent")
_TRUNCATION: Final = Passage(DETAILED, "becomeFollower")
_COORDINATOR_ELECTION: Final = Passage(COORDINATOR, "section 5", "Every broker runs an elector")
_SESSION_EXPIRED: Final = Passage(COORDINATOR, "section 10", "A coordinator whose session expires clears its memory")
_REGISTERS: Final = Passage(COORDINATOR, "section 7", "A consumer registers")
_REFUSED: Final = Passage(
    COORDINATOR, "section 7", "The consumer id is unique, and the session timeout is above the minimum"
)
_STOP: Final = Passage(COORDINATOR, "section 11", "StopFetcher")
_START: Final = Passage(COORDINATOR, "section 11", "StartFetcher")
_SHUTDOWN: Final = Passage(COORDINATOR, "section 11", "Shutdown")

BY_KIND: Final[Mapping[type[Any], Passage]] = {
    m.BrokerRegistered: _REGISTRATION,
    m.SessionLost: _REGISTRATION,
    m.BrokerLost: _BROKER_GONE,
    m.BrokerSuspected: _BROKER_GONE,
    m.ControllerElected: _CONTROLLER_ELECTION,
    m.ControllerLoaded: Passage(CONTROLLER, "Controller failover"),
    m.FailoverStep: Passage(CONTROLLER, "Roles and latency", "a failover has six steps"),
    m.BecameLeader: _ROLE,
    m.BecameFollower: _ROLE,
    m.HighWatermarkAdvanced: Passage(HIGH_LEVEL, "Writes"),
    m.LagNoticed: Passage(HIGH_LEVEL, "Follower failure", "a follower is dropped after a timeout"),
    m.IsrChosen: Passage(ALTER_ISR, "Goals", "the controller is the only writer"),
    m.IsrProposed: Passage(ALTER_ISR, "Leader", "the leader asks and continues; one change at a time"),
    m.IsrAnswered: Passage(ALTER_ISR, "API", "request, response, errors"),
    m.CoordinatorElected: _COORDINATOR_ELECTION,
    m.CoordinatorLoaded: Passage(COORDINATOR, "section 5", "Startup sequence"),
    m.MemberRegistered: _REGISTERS,
    m.PingMissed: Passage(COORDINATOR, "section 8", "A consumer fails when it has more failed pings than allowed"),
    m.AnswerMissed: Passage(COORDINATOR, "section 5", "There are three purgatories"),
    m.RebalanceBegun: Passage(COORDINATOR, "section 9", "The coordinator checks whether a rebalance is necessary"),
    m.StopFetcherSent: Passage(COORDINATOR, "section 9", "StopFetcher"),
    m.StopFetcherAnswered: Passage(COORDINATOR, "section 9", "the coordinator waits"),
    # A member that comes back is started outside a rebalance, too.
    m.StartFetcherSent: _START,
    m.StartFetcherAnswered: _START,
    m.MemberJoined: _REGISTERS,
    m.CoordinatorLost: Passage(COORDINATOR, "section 10", "looks for the coordinator again"),
    m.StopFetcherReceived: _STOP,
    m.StopFetcherObeyed: _STOP,
    m.StartFetcherReceived: _START,
    m.StartFetcherObeyed: _START,
    m.FetchingStarted: Passage(COORDINATOR, "section 11", "the consumer takes partitions and offsets, and starts"),
    m.MemberLeaving: _SHUTDOWN,
    m.MemberLeft: _SHUTDOWN,
}
"""Passages that hold for every event of a kind."""

BY_FIELD: Final[Mapping[type[Any], tuple[str, Mapping[Any, Passage]]]] = {
    m.OrderSent: ("order", {"LeaderAndIsr": _STATE_SENT, "UpdateMetadata": _STATE_SENT}),
    m.OrderReceived: ("order", {"LeaderAndIsr": _DECISION}),
    m.OrderApplied: ("order", {"LeaderAndIsr": _DECISION}),
    m.LogTruncated: ("rule", {"leader epoch": _TRUNCATION, "common epoch": _TRUNCATION}),
    m.CoordinatorResigned: (
        "reason",
        {
            "this broker stops": Passage(COORDINATOR, "section 5", "Shutdown stops the elector first"),
            "the ZooKeeper session expired": _SESSION_EXPIRED,
            "its lease is lost": _SESSION_EXPIRED,
        },
    ),
    m.MemberGone: (
        "reason",
        {
            "failure": Passage(
                COORDINATOR, "section 8", "The coordinator forgets the consumer and rebalances its group"
            ),
            "leave": _SHUTDOWN,
        },
    ),
    m.RebalanceEnded: (
        "failed",
        {
            False: Passage(COORDINATOR, "section 9"),
            True: Passage(COORDINATOR, "section 9", "Back-off, retries"),
        },
    ),
    m.FetchingStopped: (
        "why",
        {"StopFetcher": Passage(COORDINATOR, "section 11", "the consumer stops, clears its queues")},
    ),
    m.MemberFenced: (
        "code",
        {ErrorCode.DUPLICATE_CONSUMER_ID: _REFUSED, ErrorCode.INVALID_SESSION_TIMEOUT: _REFUSED},
    ),
    m.StoreWritten: (
        "purpose",
        {
            "broker registration": _REGISTRATION,
            "controller epoch": _CONTROLLER_ELECTION,
            "coordinator epoch": _COORDINATOR_ELECTION,
            "leader and ISR": Passage(
                ALTER_ISR, "State", "leader, ISR and epochs are in one znode, protected by its version"
            ),
            "topic created": _TOPICS,
            "topic to be deleted": _TOPICS,
            "topic deleted": _TOPICS,
            "reassignment": _REASSIGNMENT,
            "ownership": Passage(COORDINATOR, "section 4", "Owner znodes are persistent"),
            "offsets": Passage(COORDINATOR, "section 4", "Offsets are stored in ZooKeeper"),
            "ownership and offsets": Passage(COORDINATOR, "section 4"),
            "group deleted": Passage(COORDINATOR, "section 13", "Empty groups (open)"),
        },
    ),
}
"""Passages that hold for events of a kind with one value of a field; the other values have none."""

ELECTIONS: Final[Mapping[str, Passage]] = {
    "first": Passage(CONTROLLER, "Topics"),
    "preferred": Passage(DETAILED, "checkLoadBalancing", "a leader gives way to the preferred replica"),
    "reassigned": _REASSIGNMENT,
    "in sync": Passage(CONTROLLER, "change_leaders", "a live ISR member leads"),
    "not in sync": Passage(CONTROLLER, "change_leaders", "otherwise any live replica leads"),
    "none": Passage(CONTROLLER, "change_leaders"),
}
"""Passages by what a LeaderChosen says."""

CHANGES: Final = frozenset({"broker_down", "broker_up", "suspected", "elected", "shutdown", "disk", "unclean"})
"""Reasons for elections among the replicas that are alive. A choice that had to wait for a write names none of them."""


def document_of(fields: Message) -> str | None:
    """Returns the document, section and step that an event carries out, for a reader; None if none is known."""
    found = passage_of(fields)
    return None if found is None else str(found)


def passage_of(fields: Message) -> Passage | None:
    kind = type(fields)
    if isinstance(fields, m.LeaderChosen):
        return ELECTIONS.get(_election(fields))
    if kind in BY_FIELD:
        name, passages = BY_FIELD[kind]
        return passages.get(getattr(fields, name))
    return BY_KIND.get(kind)


def _election(it: m.LeaderChosen) -> str:
    if not it.isr_before:
        return "first"
    if it.why not in CHANGES:
        return it.why
    if it.leader == NO_LEADER:
        return "none"
    return "in sync" if it.leader in it.isr_before else "not in sync"
