"""Shows the protocol events of this process to its watchers. Without one it costs nothing."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.clock import Clock
from tidelog.ports.net import CallContext, Route, Stream
from tidelog.ports.recorder import ProtocolEvent, Recorder
from tidelog.watch.kinds import FAMILIES, FAMILY_OF
from tidelog.watch.ring import KEPT
from tidelog.watch.wire import to_message
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.znodes import CONSUMERS, PRODUCER_IDS, TOPICS

CONTROLLER: Final = "controller"
"""In a request: the active controller."""
WATCHERS: Final = 8
"""At once, of the events of this process."""
MEMBERS: Final = 64
"""Streams of members that a broker hands on at once."""
SENT: Final = 200
"""Events in one response."""
EVERY_S: Final = 0.05
"""Between two responses to all watchers together, so that the work is bounded however many there are."""
BEAT_S: Final = 1.0

Watching = Stream[m.WatchRequest, m.WatchResponse]
HandOn = Callable[[Watching, m.WatchRequest], Awaitable[None]]


async def _hands_nothing_on(stream: Watching, request: m.WatchRequest) -> None:
    raise TidelogError("process, member: only a broker hands on the events of others", ErrorCode.INVALID_REQUEST)


class WatchService:
    def __init__(self, recorder: Recorder, clock: Clock, hand_on: HandOn = _hands_nothing_on) -> None:
        """`hand_on` serves a request for the events of the controller or of a member."""
        self._recorder = recorder
        self._clock = clock
        self._hand_on = hand_on
        self._watchers = _Places(WATCHERS, f"{recorder.process} has {WATCHERS} watchers")
        self._ends = False
        self._of_controller = _Places(WATCHERS, f"{recorder.process} hands on {WATCHERS} streams of the controller")
        self._of_members = _Places(MEMBERS, f"{recorder.process} hands on {MEMBERS} streams of members")

    def route(self) -> Route:
        return Route(s.WATCH_SERVICE_WATCH_PROTOCOL, self._serve)

    def end(self) -> None:
        """Ends every stream: one of this process once it has told the last events, one of another process now."""
        self._ends = True
        for stream in self._of_controller.taken | self._of_members.taken:
            stream.cancel()

    async def _serve(self, stream: Watching, _: CallContext) -> None:
        request = await stream.read()
        if request is None:
            return
        _check(request)
        if request.process or request.member is not None:
            with (self._of_controller if request.process else self._of_members).of(stream):
                await self._hand_on(stream, request)
        else:
            with self._watchers.of(stream):
                await self._send(stream, request)

    async def _send(self, stream: Watching, request: m.WatchRequest) -> None:
        recorder, clock, wanted = self._recorder, self._clock, Wanted(request)
        recorder.settle()
        number, beat_at = self._begin(request), clock.now()
        while True:
            recorder.settle()
            found = recorder.after(number, SENT)
            lost = found[0].number - number - 1 if found else 0
            number = found[-1].number if found else number
            shown = tuple(to_message(event) for event in found if wanted.has(event))
            if found or clock.now() >= beat_at:
                beat_at = clock.now() + BEAT_S
                await stream.write(
                    m.WatchResponse(
                        process=recorder.process,
                        life=recorder.life,
                        events=shown,
                        lost=lost,
                        number=number,
                        newest=recorder.newest,
                    )
                )
            if self._ends and number == recorder.newest:
                return
            await clock.sleep(EVERY_S * len(self._watchers.taken))

    def _begin(self, request: m.WatchRequest) -> int:
        """Returns the number of the event behind which the watcher begins."""
        recorder, newest = self._recorder, self._recorder.newest
        if request.life:
            return min(request.number, newest) if request.life == recorder.life else 0
        begin = max(0, newest - request.last)
        if request.age_ms:
            since_ns = self._clock.wall_ns() - request.age_ms * 1_000_000
            young = (event.number - 1 for event in recorder.after(0, KEPT) if event.wall_ns >= since_ns)
            begin = min(begin, next(young, newest))
        return begin


def _check(request: m.WatchRequest) -> None:
    """TidelogError with the field and its limit."""

    def refuse(text: str) -> TidelogError:
        return TidelogError(text, ErrorCode.INVALID_REQUEST)

    if request.process not in ("", CONTROLLER):
        raise refuse(f"process: {request.process[:100]!r} is neither empty nor {CONTROLLER!r}")
    if request.process and request.member is not None:
        raise refuse("process and member: both are set; one stream shows one process")
    for family in request.families:
        if family not in FAMILIES:
            raise refuse(f"families: {family[:100]!r} is none of {', '.join(FAMILIES)}")
    if not 0 <= request.last <= KEPT:
        raise refuse(f"last: {request.last} is not between 0 and {KEPT}, the events that a process keeps")
    if min(request.life, request.number, request.age_ms) < 0:
        raise refuse("life, number and age_ms: one of them is negative")
    if request.partition >= 0 and len(request.topics) != 1:
        raise refuse(f"partition: {request.partition} of {len(request.topics)} topics; it needs exactly one")


class _Places:
    """Bounds how many streams of a sort are served at once."""

    def __init__(self, limit: int, refusal: str) -> None:
        self._limit = limit
        self._refusal = refusal
        self.taken: set[Watching] = set()

    @contextmanager
    def of(self, stream: Watching) -> Iterator[None]:
        if len(self.taken) >= self._limit:
            text = f"{self._refusal}, which is the limit: try again when one has gone"
            raise TidelogError(text, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.taken.add(stream)
        try:
            yield
        finally:
            self.taken.discard(stream)


class Wanted:
    """The filter of a request."""

    def __init__(self, request: m.WatchRequest) -> None:
        self._families = frozenset(request.families)
        self._topics = frozenset(request.topics)
        self._partition = request.partition
        self._groups = frozenset(request.groups)

    def has(self, event: ProtocolEvent) -> bool:
        """An event of the cluster or of a broker is of every partition, and one of a coordinator is of every group."""
        family = FAMILY_OF[type(event.fields)]
        if self._families and family not in self._families:
            return False
        subject = event.subject
        if subject is None and (self._topics or self._groups):
            if family == "coordinator":
                return bool(self._groups)
            if isinstance(event.fields, m.StoreWritten) and not event.fields.more:
                return any(map(self._is_of, event.fields.changes))
        if isinstance(subject, tuple):
            if getattr(event.fields, "group_id", None) in self._groups:
                return True
            if not self._topics:
                return not self._groups
            return subject.topic in self._topics and self._partition in (-1, subject.partition)
        if isinstance(subject, str):
            return subject in self._groups if self._groups else not self._topics
        return True

    def _is_of(self, change: m.ZnodeChange) -> bool:
        """Tells whether a znode is of one of the topics, or of the cluster. A write of a group has the group as its subject."""
        if change.path.startswith(f"{TOPICS}/"):
            topic, _, below = change.path.removeprefix(f"{TOPICS}/").partition("/")
            if self._groups and not below:
                return True  # its partitions, which lead to rebalances
            number = below.split("/")[1] if below.count("/") else ""
            return topic in self._topics and (self._partition < 0 or number in ("", str(self._partition)))
        return not change.path.startswith(PRODUCER_IDS if self._groups else (f"{CONSUMERS}/", PRODUCER_IDS))
