"""steps.html: the page of a recorded run, which draws the cluster at each look and every protocol event between two looks."""

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tidelog.chaos import samples as s
from tidelog.chaos.checking import HISTORY, RUN, CannotCheck
from tidelog.chaos.history import FaultStep, HistoryReader
from tidelog.chaos.protocol_log import PROTOCOL
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.page import files
from tidelog.page.events import Events
from tidelog.page.messages import VERSION, hello, shown

FILE_NAME: Final = "steps.html"
NO_EVENTS: Final = "The run has kept no protocol events: `tidelog chaos run` keeps them since release 0.3.0."
EVENTS_MAX: Final = 20_000
"""If a run has more, the advances of high watermarks are left out, and then the first events."""
PICTURES_MAX: Final = 2_000
_STATES: Final = {"running": "up", "paused": "paused", "stopped": "down"}
_BEGINS: Final = "begin"
_ENDS: Final = "heal"


def write_steps(directory: Path) -> Path:
    """Returns the path of the page. CannotCheck: the directory holds no run, or no events of it, or a damaged line."""
    if not (directory / RUN).exists():
        raise CannotCheck(f"{directory} holds no run: there is no {RUN} in it")
    told = list(_lines(directory / PROTOCOL))
    if not told:
        raise CannotCheck(f"{directory}: {NO_EVENTS}")
    events = _events(directory, told)
    pictures = list(_Pictures(events, told).all(s.read_samples(directory / s.FILE_NAME)))
    thinned = pictures[:: max(1, -(-len(pictures) // PICTURES_MAX))]
    first = thinned[0] if thinned else {"t": 0.0, "n": 0}
    moment = {"t": first["t"], "n": first["n"]}
    last = {"t": max(events[-1]["t"], first["t"]), "n": len(events)}
    messages: list[dict[str, Any]] = [
        {"hello": hello("run", "Tidelog run", _about(json.loads((directory / RUN).read_text())), "recorded")},
        {"events": events},
        *({"picture": each} for each in thinned),
        {"time": {**moment, "playing": False, "speed": 1.0, "end": last, "busy": None}},
    ]
    page = directory / FILE_NAME
    page.write_text(files.saved([{"v": VERSION, **each} for each in messages]), encoding="utf-8")
    return page


def _about(run: Mapping[str, Any]) -> str:
    return f"{run.get('title', '')} (seed {run.get('seed', '?')}, on {run.get('on', '?')})"


def _events(directory: Path, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Numbers events and faults in one order."""
    if len(told) > EVENTS_MAX:
        told = [each for each in told if each["kind"] != "HighWatermarkAdvanced"][-EVENTS_MAX:]
    faults = [each for each in _faults(directory) if each.what in (_BEGINS, _ENDS)]
    numbering, found = Events(), list[dict[str, Any]]()
    try:
        for each in told:
            while faults and faults[0].t <= each["t"]:
                found.append(_act(numbering, faults.pop(0)))
            found.append(numbering.recorded(each))
    except (KeyError, TypeError) as error:
        raise CannotCheck(f"{directory / PROTOCOL}, event {numbering.count}: not a protocol event ({error})") from None
    return [*found, *(_act(numbering, each) for each in faults)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
                found["t"] = float(found["t"])
            except (KeyError, TypeError, ValueError):
                raise CannotCheck(f"{path}, line {number}: not a protocol event") from None
            yield found


def _faults(directory: Path) -> list[FaultStep]:
    history = directory / HISTORY
    records = HistoryReader(history) if history.exists() else ()
    return [record for record in records if isinstance(record, FaultStep)]


def _act(numbering: Events, step: FaultStep) -> dict[str, Any]:
    ends = step.what == _ENDS
    text = f"{step.name} {'ends' if ends else 'begins'}: {', '.join(step.target)}"
    return numbering.act(round(step.t, 6), text, step.target, mends=ends)


class _Pictures:
    """Puts together what each source was seen to say last."""

    def __init__(self, events: list[dict[str, Any]], told: list[dict[str, Any]]) -> None:
        self._times = [each["t"] for each in events]
        self._starts = deque(each for each in told if each["kind"] == "EpochStarted")
        self._epochs: dict[TopicPartition, dict[int, int]] = {}
        """The first offset of each leader epoch, as its leader has told."""
        self._states: Mapping[str, str] = {}
        self._controllers: dict[str, s.ControllerLook] = {}
        self._replicas: dict[tuple[int, TopicPartition], s.Replica] = {}
        self._groups: dict[str, s.GroupLook] = {}

    def all(self, samples: s.Samples) -> Iterator[dict[str, Any]]:
        """Yields a picture for each look at the partitions."""
        for look in samples.looks:
            match look:
                case s.ProcessStates(states=states):
                    self._states = states
                case s.ControllerLook():
                    self._controllers[look.process] = look
                case s.BrokerLook():
                    broker = int(look.process.rpartition("-")[2])
                    self._replicas |= {(broker, TopicPartition(r.topic, r.partition)): r for r in look.replicas}
                case s.GroupLook():
                    self._groups[look.group] = look
                case s.Partitions():
                    yield self._picture(look)

    def _picture(self, look: s.Partitions) -> dict[str, Any]:
        t = round(look.t + look.took, 6)
        while self._starts and self._starts[0]["t"] <= t:
            self._note_epoch(self._starts.popleft())
        return {
            "t": t,
            "n": bisect_right(self._times, t),
            "processes": [*self._processes()],
            **shown([self._partition(each) for each in look.partitions]),
            "groups": [_group(each) for each in self._groups.values()],
            "faults": [],
            "verdict": None,
        }

    def _note_epoch(self, told: Mapping[str, Any]) -> None:
        tp = TopicPartition(told["subject"]["topic"], told["subject"]["partition"])
        self._epochs.setdefault(tp, {})[told["fields"]["leader_epoch"]] = told["fields"]["start"]

    def _processes(self) -> Iterator[dict[str, Any]]:
        for name, state in self._states.items():
            controller = self._controllers.get(name)
            note = f"active, epoch {controller.epoch}" if controller is not None and controller.active else ""
            shown = _STATES.get(state, "unknown")
            kind = name.partition("-")[0]
            yield {"name": name, "kind": kind, "state": shown, "note": note if shown == "up" else "", "faults": []}

    def _partition(self, it: s.PartitionState) -> dict[str, Any]:
        return {
            "topic": it.topic,
            "number": it.partition,
            "leader": it.leader,
            "epoch": it.leader_epoch,
            "isr": sorted(it.isr),
            "pending": None,
            "stands": None,
            "replicas": [self._replica(broker, TopicPartition(it.topic, it.partition)) for broker in it.replicas],
        }

    def _replica(self, broker: int, tp: TopicPartition) -> dict[str, Any]:
        found = self._replicas.get((broker, tp))
        state = _STATES.get(self._states.get(f"broker-{broker}", ""), "unknown")
        if found is None:
            offsets: dict[str, Any] = {"start": NO_OFFSET, "end": NO_OFFSET, "high": NO_OFFSET, "epochs": []}
        else:
            known = sorted(self._epochs.get(tp, {}).items())
            epochs = [[epoch, start] for epoch, start in known if epoch <= found.leader_epoch and start < found.log_end]
            offsets = {"start": found.log_start, "end": found.log_end, "high": found.high_watermark, "epochs": epochs}
        return {
            "broker": broker,
            "state": "unknown" if state == "paused" else state,
            "leads": found is not None and found.leads and state == "up",
            **offsets,
        }


def _group(look: s.GroupLook) -> dict[str, Any]:
    return {
        "name": look.group,
        "generation": look.generation,
        "phase": look.state,
        "coordinator": f"broker-{look.coordinator}" if look.coordinator >= 0 else "",
        "members": [],
        "partitions": [
            {"topic": c.topic, "number": c.partition, "owner": "", "committed": c.offset, "processed": NO_OFFSET}
            for c in look.committed
        ],
    }
