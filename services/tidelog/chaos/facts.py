"""What the extra assertions and the premises of a run ask of its history, in one pass."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.chaos.history import (
    OK,
    Crash,
    FaultStep,
    Ownership,
    Phase,
    Polled,
    Processed,
    Record,
    Send,
    Sent,
    Watermark,
)
from tidelog.chaos.notes import ACKS_ALL
from tidelog.ids import TopicPartition


@dataclass(slots=True)
class Window:
    """A fault, from its beginning to its end."""

    fault: str
    name: str
    targets: Sequence[str]
    began: float
    effect: float | None = None
    heal: float | None = None
    healed: float | None = None


class LastRead(NamedTuple):
    """What a consumer that belongs to the load came to with one poll."""

    began: float
    ended: float
    tp: TopicPartition
    offset: int


@dataclass(slots=True)
class Facts:
    windows: dict[int, Window] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    """Sends that have failed for certain, by error."""
    phases: dict[str, float] = field(default_factory=dict)
    assigned: list[Ownership] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    processed: list[tuple[float, int]] = field(default_factory=list)
    work: list[Processed] = field(default_factory=list)
    """The same with who and where."""
    """(when, how many records) by members of the group."""
    first_acked: dict[str, float] = field(default_factory=dict)
    """By ack level: when a record was acknowledged first."""
    last_acked: dict[str, float] = field(default_factory=dict)
    """Ack level to when one was acknowledged last."""
    pauses: dict[str, float] = field(default_factory=dict)
    """Ack level to the longest time in the load without a send."""
    last_tried: dict[str, float] = field(default_factory=dict)
    """Ack level to when a record was sent last."""
    watermarks: int = 0
    """Reports of leaders."""
    slowest_s: dict[str, float] = field(default_factory=dict)
    """By ack level: the longest from a send to its completion, whatever that was."""
    open: dict[int, Send] = field(default_factory=dict)
    """Sends without a completion, of clients that live."""
    first_read: float | None = None
    """When a consumer without a group read something first."""
    last_read: float | None = None
    """When one read something last."""
    reads: list[LastRead] = field(default_factory=list)
    takeovers: int = 0
    """Leader epochs that acknowledged something after an older one had."""
    deposed_acks: list[tuple[float, str]] = field(default_factory=list)
    """(when, value) of acks=all records that an older leader acknowledged although they were tried after a newer one had
    acknowledged something: those in sync had left it by then."""
    _newest: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)
    """The newest leader epoch that has acknowledged, and since when."""

    @classmethod
    def of(cls, history: Iterable[Record]) -> "Facts":
        facts = cls()
        for record in history:
            facts._note(record)
        return facts

    def _note(self, record: Record) -> None:
        match record:
            case Send():
                self.open[record.id] = record
                self._paused(record.acks, record.t)
            case Sent():
                self._sent(record)
            case Polled(final=False):
                self._polled(record)
            case FaultStep(what="begin"):
                self.windows[record.id] = Window(record.fault, record.name, record.target, record.t)
            case FaultStep() if record.id in self.windows:
                setattr(self.windows[record.id], record.what, record.t)
            case Phase():
                self.phases.setdefault(record.phase, record.t)
                for acks in self.last_tried if record.phase == "heal" else ():
                    self._paused(acks, record.t)
            case Ownership(kind="assigned", group=str()):
                self.assigned.append(record)
            case Watermark():
                self.watermarks += 1
            case Crash():
                self.crashes.append(record)
                self.open = {i: send for i, send in self.open.items() if send.process != record.process}
            case Processed():
                self.work.append(record)
                self.processed.append((record.t, sum(span.last - span.first + 1 for span in record.partitions)))
            case _:
                pass

    def _sent(self, record: Sent) -> None:
        if record.outcome == "fail":
            self.refused[record.error or "?"] += 1
        send = self.open.pop(record.id, None)
        if send is None:
            return
        self.slowest_s[send.acks] = max(self.slowest_s.get(send.acks, 0.0), record.t - send.t)
        if record.outcome != OK:
            return
        self.first_acked.setdefault(send.acks, record.t)
        self.last_acked[send.acks] = record.t
        if record.leader_epoch is not None:
            self._acked_in(TopicPartition(send.topic, send.partition), record.leader_epoch, send, record.t)

    def _paused(self, acks: str, t: float) -> None:
        if "heal" not in self.phases or self.phases["heal"] == t:
            self.pauses[acks] = max(self.pauses.get(acks, 0.0), t - self.last_tried.get(acks, t))
        self.last_tried[acks] = t

    def _acked_in(self, tp: TopicPartition, epoch: int, send: Send, t: float) -> None:
        newest, since = self._newest.get(tp, (epoch, t))
        if epoch >= newest:
            self.takeovers += epoch > newest
            self._newest[tp] = (epoch, since if epoch == newest else t)
        elif send.acks == ACKS_ALL and send.t > since:
            self.deposed_acks.append((t, send.value))

    def _polled(self, record: Polled) -> None:
        if record.group is None:
            self.first_read = record.t if self.first_read is None else self.first_read
            self.last_read = record.t
        self.reads.extend(
            LastRead(record.began, record.t, TopicPartition(read.topic, read.partition), read.records[-1][0])
            for read in record.partitions
            if read.records
        )

    @property
    def first_fault(self) -> float:
        """Everything, when there was none."""
        return min((window.began for window in self.windows.values()), default=0.0)

    @property
    def healed(self) -> float:
        """When the last fault was; the beginning, when there was none."""
        return max((window.healed or window.began for window in self.windows.values()), default=0.0)

    @property
    def faults_until(self) -> float:
        """When the last fault was healed, or the load was over; the beginning, when there was none."""
        last = max((window.heal or window.effect or window.began for window in self.windows.values()), default=0.0)
        return min(last, self.phases.get("heal", last))
