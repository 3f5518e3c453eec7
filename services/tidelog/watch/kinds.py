"""The kinds of protocol events, by family."""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.wire import messages as m

FAMILIES: Final[Mapping[str, tuple[type[Any], ...]]] = {
    "liveness": (m.BrokerRegistered, m.SessionLost, m.BrokerSeen, m.BrokerLost, m.BrokerSuspected, m.BrokerCleared),
    "controller": (m.ControllerElected, m.ControllerLoaded, m.ControllerResigned, m.FailoverStep, m.LeaderChosen),
    "orders": (m.OrderSent, m.OrderReceived, m.OrderApplied, m.OrderRefused),
    "replica": (
        m.BecameLeader,
        m.BecameFollower,
        m.EpochStarted,
        m.LogTruncated,
        m.LogReset,
        m.HighWatermarkAdvanced,
        m.HighWatermarkFrozen,
        m.HighWatermarkFreed,
        m.RequestFenced,
        m.LeaderDeposed,
    ),
    "isr": (m.LagNoticed, m.IsrChosen, m.IsrProposed, m.IsrAnswered),
    "coordinator": (
        m.CoordinatorElected,
        m.CoordinatorLoaded,
        m.CoordinatorResigned,
        m.MemberRegistered,
        m.MemberDisconnected,
        m.PingMissed,
        m.AnswerMissed,
        m.MemberGone,
        m.RebalanceBegun,
        m.StopFetcherSent,
        m.StopFetcherAnswered,
        m.StartFetcherSent,
        m.StartFetcherAnswered,
        m.RebalanceEnded,
    ),
    "member": (
        m.MemberJoined,
        m.CoordinatorLost,
        m.StopFetcherReceived,
        m.StopFetcherObeyed,
        m.StartFetcherReceived,
        m.StartFetcherObeyed,
        m.FetchingStarted,
        m.FetchingStopped,
        m.MemberFenced,
        m.MemberLeaving,
        m.MemberLeft,
    ),
    "zookeeper": (m.StoreWritten,),
}

FAMILY_OF: Final[Mapping[type[Any], str]] = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}

LOGGED: Final[frozenset[type[Any]]] = frozenset(
    {
        m.BrokerRegistered,
        m.SessionLost,
        m.BrokerSeen,
        m.BrokerLost,
        m.BrokerSuspected,
        m.BrokerCleared,
        m.ControllerElected,
        m.ControllerLoaded,
        m.ControllerResigned,
        m.OrderRefused,
        m.LogTruncated,
        m.LogReset,
        m.CoordinatorElected,
        m.CoordinatorLoaded,
        m.CoordinatorResigned,
        m.RebalanceBegun,
        m.RebalanceEnded,
        m.MemberJoined,
        m.CoordinatorLost,
        m.MemberFenced,
        m.MemberLeft,
    }
)
"""Kinds that are worth a line in a log. They are rare, and their fields are made when they are recorded."""

ALARMING: Final[frozenset[type[Any]]] = frozenset({m.SessionLost, m.LogReset})
"""Kinds that are a warning in a log."""
