"""The expectations of a story file: each is known by the key that no other kind has."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.chaos.yaml_nodes import Node
from tidelog.errors import ErrorCode
from tidelog.lab.cast import Cast
from tidelog.lab.expectations import (
    COUNTS,
    GROUP_STATES,
    REPLICA_STATES,
    STATES,
    EventsAre,
    Expectation,
    GroupIs,
    NoEvent,
    PartitionIs,
    ProcessIs,
    ResultIs,
    SendsAre,
    Stands,
    VerdictIs,
)
from tidelog.lab.matching import Pattern
from tidelog.lab.steps import KINDS
from tidelog.lab.view import DOWN, PAUSED, STOPPING, UP
from tidelog.wire import messages as m

COUNT_MAX: Final = 1_000_000_000
NO_ERROR: Final = "none"
PATTERN_KEYS: Final = ("kind", "process", "subject", "caused")


def expectation(node: Node, cast: Cast, end_s: float) -> Expectation:
    """ScenarioError."""
    keys = node.mapping()
    kinds = [kind for kind in _READERS if kind in keys]
    if len(kinds) != 1:
        raise node.error(f"{node.what}: exactly one of {', '.join(_READERS)} is needed")
    return _READERS[kinds[0]](node, cast, end_s)


def _time(node: Node, end_s: float) -> float:
    found = node.seconds()
    if found > end_s:
        raise node.error(f"{node.what}: {found:g} s is after the end of the story, at {end_s:g} s")
    return found


def _span(node: Node, found: Mapping[str, Node], end_s: float) -> tuple[float, float]:
    begin = _time(found["from"], end_s) if "from" in found else 0.0
    end = _time(found["to"], end_s) if "to" in found else end_s
    if begin > end:
        raise node.error(f"{node.what}: from {begin:g} s is after to, {end:g} s")
    return begin, end


def _plain(node: Node) -> Any:
    """A value as YAML has it."""
    if isinstance(node.value, list):
        return [_plain(each) for each in node.value]
    if isinstance(node.value, dict):
        return {key: _plain(each) for key, each in node.value.items()}
    return node.value


def _partition(node: Node, cast: Cast, end_s: float) -> Expectation:
    if "stands" in node.mapping():
        found = node.fields(("from", "to", "partition", "stands"), needed=("from", "to"))
        name = found["stands"].choice((*STATES, *REPLICA_STATES))
        return Stands(node.line, *_span(node, found, end_s), cast.partition(found["partition"]), name)
    found = node.fields(("at", "partition", *STATES, *REPLICA_STATES), needed=("at",))
    wanted: dict[str, Any] = {}
    for name in STATES:
        if name in found:
            wanted[name] = _state(found[name], name)
    for name in REPLICA_STATES:
        if name in found:
            wanted[name] = {
                _broker(each, key): each.whole(-1, COUNT_MAX) for key, each in found[name].mapping().items()
            }
    if not wanted:
        raise node.error(f"{node.what}: at least one of {', '.join((*STATES, *REPLICA_STATES))} is needed")
    return PartitionIs(node.line, _time(found["at"], end_s), cast.partition(found["partition"]), wanted)


def _state(node: Node, name: str) -> Any:
    if name in ("isr", "replicas"):
        ids = [each.whole(0, 99) for each in node.items()]
        return sorted(ids) if name == "isr" else ids
    if name == "leader" and node.written == NO_ERROR:
        return -1
    return node.whole(-1, COUNT_MAX)


def _broker(node: Node, key: str) -> int:
    if not (key.isascii() and key.isdigit()):
        raise node.error(f"{node.what}: {key!r} is no number of a broker")
    return int(key)


def _process(node: Node, cast: Cast, end_s: float) -> Expectation:
    found = node.fields(("at", "process", "is"), needed=("at", "is"))
    state = found["is"].choice((UP, DOWN, PAUSED, STOPPING, "controller"))
    return ProcessIs(node.line, _time(found["at"], end_s), cast.any_process(found["process"]), state)


def _group(node: Node, cast: Cast, end_s: float) -> Expectation:
    found = node.fields(("at", "group", *GROUP_STATES), needed=("at",))
    wanted = {name: _plain(found[name]) for name in GROUP_STATES if name in found}
    if not wanted:
        raise node.error(f"{node.what}: at least one of {', '.join(GROUP_STATES)} is needed")
    if found["group"].text() not in cast.groups:
        raise found["group"].error(f"{found['group'].what}: there is no group {found['group'].text()!r}")
    return GroupIs(node.line, _time(found["at"], end_s), found["group"].text(), wanted)


def _sends(node: Node, cast: Cast, end_s: float) -> Expectation:
    found = node.fields(("sends", "at", "acked", "waiting", "failed"))
    if not {"acked", "waiting", "failed"} & set(found):
        raise node.error(f"{node.what}: at least one of acked, waiting, failed is needed")
    failed = {}
    if "failed" in found:
        for code, each in found["failed"].mapping().items():
            if code not in ErrorCode.__members__:
                raise each.error(f"{each.what}: there is no error {code!r}")
            failed[code] = each.whole(1, COUNT_MAX)
    return SendsAre(
        node.line,
        cast.labelled(found["sends"], "sends"),
        _time(found["at"], end_s) if "at" in found else end_s,
        found["acked"].whole(0, COUNT_MAX) if "acked" in found else None,
        found["waiting"].whole(0, COUNT_MAX) if "waiting" in found else None,
        failed,
    )


def _result(node: Node, cast: Cast, end_s: float) -> Expectation:
    found = node.fields(("result", "error"), needed=("error",))
    error = (
        found["error"].choice((NO_ERROR, *ErrorCode.__members__)) if found["error"].written != NO_ERROR else NO_ERROR
    )
    return ResultIs(node.line, cast.labelled(found["result"], "result"), error)


def _events(node: Node, cast: Cast, end_s: float) -> Expectation:
    found = node.fields(("from", "to", "events"))
    patterns = tuple(_pattern(each, cast) for each in found["events"].items())
    if not patterns:
        raise found["events"].error(f"{found['events'].what}: at least one event is needed")
    return EventsAre(node.line, *_span(node, found, end_s), patterns)


def _no_event(node: Node, cast: Cast, end_s: float) -> Expectation:
    found = node.fields(("from", "to", "no event"))
    return NoEvent(node.line, *_span(node, found, end_s), _pattern(found["no event"], cast))


def _pattern(node: Node, cast: Cast) -> Pattern:
    keys = node.mapping()
    if "kind" not in keys:
        raise node.error(f"{node.what}: kind is missing")
    kind = keys["kind"].choice(KINDS)
    names = tuple(getattr(m, kind).__dataclass_fields__)
    found = node.fields((*PATTERN_KEYS, *names))
    return Pattern(
        kind,
        cast.any_process(found["process"]) if "process" in found else "",
        found["subject"].written if "subject" in found else "",
        {name: _plain(found[name]) for name in names if name in found},
        found["caused"].flag() if "caused" in found else False,
    )


def _verdict(node: Node, cast: Cast, end_s: float) -> Expectation:
    counts = node.fields(("verdict",))["verdict"].fields(COUNTS)
    if not counts:
        raise node.error(f"{node.what}: at least one of {', '.join(COUNTS)} is needed")
    return VerdictIs(node.line, {name: each.whole(0, COUNT_MAX) for name, each in counts.items()})


_READERS: Final[Mapping[str, Callable[[Node, Cast, float], Expectation]]] = {
    "partition": _partition,
    "process": _process,
    "group": _group,
    "sends": _sends,
    "result": _result,
    "events": _events,
    "no event": _no_event,
    "verdict": _verdict,
}
