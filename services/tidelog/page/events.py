"""Protocol events, and what was done to a cluster from outside, as the page is told of them."""

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
_MARKS: Final[dict[type, str]] = {
    m.ControllerElected: ELECTION,
    m.CoordinatorElected: ELECTION,
    m.LeaderChosen: ELECTION,
    m.LagNoticed: STALL,
    m.HighWatermarkFrozen: STALL,
    m.IsrChosen: CHANGE,
    m.RebalanceBegun: CHANGE,
    m.LogTruncated: CHANGE,
    m.LogReset: CHANGE,
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
        mark = (MEND if mends else FAULT) if struck else None
        return {"n": number, "t": t, "process": "", "kind": kind, "text": text, "mark": mark, "struck": list(struck)}

    def event(self, t: float, process: str, life: int, event: ProtocolEvent) -> dict[str, Any]:
        kind = type(event.fields)
        cause = event.cause if isinstance(event.cause, Cause) else None
        return {
            "n": self._next(),
            "t": t,
            "process": process,
            "life": life,
            "number": event.number,
            "kind": kind.__name__,
            "family": FAMILY_OF.get(kind),
            "subject": subject_of(event.subject),
            "text": sentence(event),
            "cause": None if cause is None else list(cause),
            "fault": self._shown_by(process, event.fields) if cause is None else None,
            "mark": None if _is_no_news(event.fields) else _MARKS.get(kind),
            "document": document_of(event.fields),
        }

    def cut(self, count: int) -> None:
        """Forgets all events but the first `count`, since they have not happened."""
        self.count = count
        for acts in self._struck.values():
            acts[:] = [number for number in acts if number < count]

    def _next(self) -> int:
        self.count += 1
        return self.count - 1

    def _shown_by(self, process: str, fields: Any) -> int | None:
        match fields:
            case m.BrokerSuspected() | m.BrokerCleared() | m.BrokerLost() | m.BrokerSeen() | m.LagNoticed():
                names = [f"broker-{fields.broker_id}"]
            case m.MemberDisconnected() | m.PingMissed() | m.AnswerMissed() | m.MemberGone():
                names = [fields.consumer_id]
            case m.ControllerElected():
                names = [name for name in self._struck if name.startswith("controller-")]
            case m.CoordinatorElected() | m.CoordinatorLost():
                names = [name for name in self._struck if name.startswith("broker-")]
            case m.SessionLost() | m.BrokerRegistered() | m.ControllerResigned() | m.CoordinatorResigned():
                names = [process]
            case _:
                names = []
        return max((number for name in names for number in self._struck.get(name, ())[-1:]), default=None)


def _is_no_news(fields: object) -> bool:
    """The first leader of a partition, and a follower whose log is as the leader's."""
    match fields:
        case m.LeaderChosen(isr_before=before):
            return not before
        case m.LogTruncated(from_offset=before, to_offset=after):
            return before == after
    return False
