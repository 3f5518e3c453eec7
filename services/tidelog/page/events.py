"""Protocol events, and what was done to a cluster from outside, as the page is told of them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.ports.recorder import Cause, ProtocolEvent
from tidelog.watch.documents import document_of
from tidelog.watch.formats import subject_of
from tidelog.watch.kinds import FAMILY_OF
from tidelog.watch.text import sentence
from tidelog.wire import messages as m

FAULT: Final = "fault"
ELECTION: Final = "election"
STALL: Final = "stall"
CHANGE: Final = "change"
MEND: Final = "mend"
REGISTRATION: Final = "broker registration"
_MARKS: Final = {
    "ControllerElected": ELECTION,
    "CoordinatorElected": ELECTION,
    "LeaderChosen": ELECTION,
    "LagNoticed": STALL,
    "HighWatermarkFrozen": STALL,
    "IsrChosen": CHANGE,
    "RebalanceBegun": CHANGE,
    "LogTruncated": CHANGE,
    "LogReset": CHANGE,
}


class Events:
    """Numbers events, and finds the act that an event without a cause shows.

    A process that was killed records nothing of it, so what others read of its end names no cause.
    """

    def __init__(self) -> None:
        self.count = 0
        self._struck: dict[str, list[int]] = {}
        """Acts on each process, the newest last."""

    def act(
        self, t: float, text: str, struck: tuple[str, ...] = (), *, mends: bool = False, narrated: bool = False
    ) -> dict[str, Any]:
        """struck: the processes that it was done to. mends: it is the end of a fault. narrated: nothing was done."""
        number = self._next()
        for name in struck:
            self._struck.setdefault(name, []).append(number)
        kind = "say" if narrated else "act"
        mark = MEND if mends else FAULT if struck else None
        return {"n": number, "t": t, "process": "", "kind": kind, "text": text, "mark": mark, "struck": list(struck)}

    def event(self, t: float, process: str, life: int, event: ProtocolEvent) -> dict[str, Any]:
        fields = event.fields
        cause = event.cause if isinstance(event.cause, Cause) else None
        return {
            "n": self._next(),
            "t": t,
            "process": process,
            "life": life,
            "number": event.number,
            "kind": type(fields).__name__,
            "family": FAMILY_OF.get(type(fields)),
            "subject": subject_of(event.subject),
            "text": sentence(event),
            "cause": None if cause is None else list(cause),
            "fault": self._shown_by(process, type(fields).__name__, lambda name: getattr(fields, name))
            if cause is None
            else None,
            "mark": _mark(type(fields).__name__, lambda name: getattr(fields, name)),
            "document": document_of(fields),
        }

    def recorded(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """told: a line of a run's protocol.jsonl. KeyError, TypeError: it is none."""
        cause, kind, field = told["cause"], told["kind"], told["fields"].__getitem__
        named = None if cause is None else [cause["process"], cause["incarnation"], cause["number"]]
        return {
            "n": self._next(),
            "t": told["t"],
            "process": told["process"],
            "life": told["incarnation"],
            "number": told["number"],
            "kind": kind,
            "family": told["family"],
            "subject": told["subject"],
            "text": told["text"],
            "cause": named,
            "fault": self._shown_by(told["process"], kind, field) if named is None else None,
            "mark": _mark(kind, field),
            "document": None,
        }

    def cut(self, count: int) -> None:
        """Forgets all events but the first `count`, since they have not happened."""
        self.count = count
        for acts in self._struck.values():
            acts[:] = [number for number in acts if number < count]

    def _next(self) -> int:
        self.count += 1
        return self.count - 1

    def _shown_by(self, process: str, kind: str, field: Callable[[str], Any]) -> int | None:
        match kind:
            case "BrokerSuspected" | "BrokerCleared" | "BrokerLost" | "BrokerSeen" | "LagNoticed":
                names = [f"broker-{field('broker_id')}"]
            case "MemberDisconnected" | "PingMissed" | "AnswerMissed" | "MemberGone":
                names = [field("consumer_id")]
            case "ControllerElected":
                names = [name for name in self._struck if name.startswith("controller-")]
            case "CoordinatorElected" | "CoordinatorLost":
                names = [name for name in self._struck if name.startswith("broker-")]
            case "StoreWritten" if field("purpose") == REGISTRATION:
                names = [process]  # the first that a process which starts tells of itself
            case "SessionLost" | "BrokerRegistered" | "ControllerResigned" | "CoordinatorResigned":
                names = [process]
            case _:
                names = []
        return max((number for name in names for number in self._struck.get(name, ())[-1:]), default=None)


def _mark(kind: str, field: Callable[[str], Any]) -> str | None:
    """The first leader of a partition is no news, nor is a follower whose log is as the leader's."""
    if kind == m.LeaderChosen.__name__ and not field("isr_before"):
        return None
    if kind == m.LogTruncated.__name__ and field("from_offset") == field("to_offset"):
        return None
    return _MARKS.get(kind)
