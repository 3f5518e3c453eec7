"""The history of a run: every operation of every client, every fault and every phase, in the order of their times.

A file of JSON objects, one a line. `t` is in seconds since the start of the run, on one monotonic clock for all that write.
An operation has an attempt (`send`) and a completion (`sent`); what is never completed has an unknown outcome (reliability
1.2). One process is one client life: a client that was thrown away has a `crash`, and its successor another name, since the
rules about sessions lean on that (reliability 1.1). A value is unique in the whole run, so it identifies its send.

Sends, and polls, that belong to one operation carry the same `op`: a transaction, or the records of one batch, which are
appended all or none. Without it each is an operation by itself. An operation is over with its last completion.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tidelog.chaos.lines import Lines
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition

OK: Final = "ok"
FAIL: Final = "fail"
INFO: Final = "info"
OUTCOMES: Final = (OK, FAIL, INFO)
PHASES: Final = ("load", "heal", "final", "end")
ASSIGNED: Final = "assigned"
REVOKED: Final = "revoked"
LOST: Final = "lost"
FAULT_STEPS: Final = ("begin", "effect", "heal", "healed")


class Send(NamedTuple):
    """An attempt to append one record."""

    t: float
    id: int
    process: str
    topic: str
    partition: int
    value: str
    acks: str
    """`all`, `1` or `0`."""
    op: int | None = None


class Sent(NamedTuple):
    """What became of a send."""

    t: float
    id: int
    outcome: str
    offset: int | None = None
    leader_epoch: int | None = None
    """Of the leader that acknowledged, where it is known."""
    isr: int | None = None
    """Size of the ISR at the acknowledgement, where it is known (X3)."""
    error: str | None = None
    batch: int | None = None
    """Records of unknown outcome with the same number were one batch, which is written as a whole or not."""
    attempts: int | None = None
    """Number of times that it was sent, where it is known and each may have written it."""


class Read(NamedTuple):
    """What a poll brought of one partition, in its order."""

    topic: str
    partition: int
    records: tuple[tuple[int, str], ...]
    """Offset and value."""


class Polled(NamedTuple):
    """One poll that brought records."""

    t: float
    process: str
    id: int
    began: float
    partitions: tuple[Read, ...]
    group: str | None = None
    """None for a consumer with assigned partitions."""
    final: bool = False
    """Of a reader of the final phase, which reads every partition from its log start."""
    op: int | None = None


class Ownership(NamedTuple):
    """A change of what a consumer owns. `partitions` is the whole new set if it was assigned, else what was taken."""

    t: float
    kind: str
    process: str
    partitions: tuple[TopicPartition, ...]
    group: str | None = None
    generation: int | None = None
    coordinator_epoch: int | None = None
    final: bool = False
    """Of a reader of the final phase, which may find nothing to read."""


class Position(NamedTuple):
    topic: str
    partition: int
    offset: int
    """Of the next record to process, as a committed offset is."""


class Committed(NamedTuple):
    t: float
    process: str
    group: str
    generation: int
    coordinator_epoch: int
    offsets: tuple[Position, ...]
    outcome: str
    error: str | None = None


class Stored(NamedTuple):
    """The committed offsets of a group as its coordinator tells them in the final phase; 0: nothing."""

    t: float
    group: str
    offsets: tuple[Position, ...]


class Span(NamedTuple):
    topic: str
    partition: int
    first: int
    last: int
    """Both inclusive."""


class Processed(NamedTuple):
    """What a member of a group has processed since its last record of this kind."""

    t: float
    process: str
    group: str
    partitions: tuple[Span, ...]


class Crash(NamedTuple):
    """The client was thrown away."""

    t: float
    process: str


class FaultStep(NamedTuple):
    """A step of a fault's life (X6). `effect` says that it was seen to have taken effect."""

    t: float
    fault: str
    what: str
    target: tuple[str, ...]
    name: str
    id: int


class Watermark(NamedTuple):
    """What a leader says of its partition, in an answer or a sample (X4). A follower's lags, and has no place here."""

    t: float
    topic: str
    partition: int
    broker: int
    leader_epoch: int
    high_watermark: int
    log_end: int | None = None
    log_start: int | None = None
    began: float | None = None
    """When it was asked; what it says was true at some time from then to `t`. None: at `t`."""
    isr: int | None = None
    """Size of the ISR, where it is known."""


class Phase(NamedTuple):
    t: float
    phase: str


Record = Send | Sent | Polled | Ownership | Committed | Stored | Processed | Crash | FaultStep | Watermark | Phase

_KIND: Final[dict[type[Record], str]] = {
    Send: "send",
    Sent: "sent",
    Polled: "polled",
    Committed: "committed",
    Stored: "stored",
    Processed: "processed",
    Crash: "crash",
    FaultStep: "fault",
    Watermark: "watermark",
    Phase: "phase",
}
"""`Ownership` carries its kind itself."""
_TYPES: Final[dict[str, type[Record]]] = {
    **{kind: of for of, kind in _KIND.items()},
    **dict.fromkeys((ASSIGNED, REVOKED, LOST), Ownership),
}
_CHOICES: Final = {"outcome": OUTCOMES, "phase": PHASES, "what": FAULT_STEPS, "acks": ("all", "1", "0")}


class HistoryDamaged(TidelogError):
    """A line that is not at the end of the file makes no sense; there is no verdict over such a history."""

    def __init__(self, path: Path, line: int, why: str) -> None:
        super().__init__(f"{path}, line {line}: {why}")
        self.line = line


class HistoryWriter:
    """Appends records in the order of their times; `flush` and `close` raise the OSError of an append."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._last_t = 0.0

    def append(self, record: Record) -> None:
        """ValueError if `record` is older than the one before it."""
        t = round(record.t, 6)
        if t < self._last_t:
            raise ValueError(f"{record} is older than the record before it, of t = {self._last_t}")
        self._last_t = t
        self._lines.write(encode(record))

    def flush(self) -> None:
        self._lines.flush()

    def close(self) -> None:
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode


def kind_of(record: Record) -> str:
    return record.kind if isinstance(record, Ownership) else _KIND[type(record)]


def type_of(kind: str) -> type[Record]:
    return _TYPES[kind]


def encode(record: Record) -> str:
    """One line, without its end. What has its default value is left out."""
    fields: dict[str, Any] = {"t": round(record.t, 6), "kind": kind_of(record)}
    defaults = record._field_defaults
    named = zip(record._fields[1:], record[1:], strict=True)
    return _ENCODE(fields | {name: v for name, v in named if name not in defaults or v != defaults[name]})


class HistoryReader:
    """Iterates over a file's records. How it ended is known when all of them were taken.

    A file that was cut off (its writer was killed, the disk was full) is read up to the last whole line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines = 0
        """Whole lines that were read so far."""
        self.complete = False
        """All was read, and the last record is the end of the run."""

    def __iter__(self) -> Iterator[Record]:
        """HistoryDamaged, OSError."""
        record: Record | None = None
        last_t = 0.0
        with self._path.open("rb") as file:
            for line in file:
                try:
                    record = decode(line)
                except ValueError as error:
                    if not line.endswith(b"\n"):
                        return  # cut off in the middle of a line
                    raise HistoryDamaged(self._path, self.lines + 1, str(error)) from error
                if record.t < last_t:
                    raise HistoryDamaged(
                        self._path,
                        self.lines + 1,
                        f"t = {record.t} comes after t = {last_t}; records are in order of t",
                    )
                self.lines += 1
                last_t = record.t
                yield record
        self.complete = isinstance(record, Phase) and record.phase == "end"


def decode(line: bytes) -> Record:
    """ValueError says what is wrong with it."""
    try:
        text = str(line, "utf-8")
        fields, end = _DECODE(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error}") from error
    if text[end:] not in _LINE_ENDS:
        raise ValueError(f"not JSON: something follows it: {text[end : end + 20]!r}")
    if type(fields) is not dict:
        raise ValueError("not a JSON object")
    kind = fields.get("kind")
    of = _TYPES.get(kind) if type(kind) is str else None
    if of is None:
        raise ValueError(f"unknown kind {kind!r}; there are {', '.join(sorted(_TYPES))}")
    if of is not Ownership:
        del fields["kind"]
    try:
        if (inner := _INNER.get(of)) is not None:
            name, make = inner
            fields[name] = make(fields[name])
        record: Record = of(**fields)
    except KeyError as error:
        raise ValueError(f"{kind} has no {error.args[0]}") from error
    except TypeError as error:
        raise ValueError(f"{kind}: {str(error).replace(f'{of.__name__}.__new__() ', '')}") from error
    chosen = _CHOSEN.get(of)
    signature = (of, None if chosen is None else record[chosen], *map(type, record))
    try:
        known = signature in _seen_valid
    except TypeError:  # a list where a word belongs
        known = False
    if not known:
        _check_fields(record, str(kind))
        _seen_valid.add(signature)
    return record


_DECODE: Final = json.JSONDecoder().raw_decode
_LINE_ENDS: Final = ("\n", "", "\r\n")
_seen_valid: set[tuple[object, ...]] = set()
"""Kind, chosen word and types of the fields of records that were found right: millions of lines have a handful of them."""
_ALLOWED: Final[dict[Any, tuple[type, ...]]] = {
    float: (float, int),
    int: (int,),
    str: (str,),
    bool: (bool,),
    int | None: (int, type(None)),
    float | None: (float, int, type(None)),
    str | None: (str, type(None)),
}
_CHOSEN: Final[dict[type[Record], int]] = {
    of: at for of in (Send, Sent, Committed, FaultStep, Phase) for at, name in enumerate(of._fields) if name in _CHOICES
}
"""Where the field is that holds one of a few words; no kind has two."""


def _check_fields(record: Record, kind: str) -> None:
    for name, annotation in type(record).__annotations__.items():
        allowed = _ALLOWED.get(annotation, (tuple,))
        if type(value := getattr(record, name)) not in allowed:
            raise ValueError(f"{kind}: {name} is {value!r}, not {' or '.join(each.__name__ for each in allowed)}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"{kind}: {name} is {value!r}, not one of {', '.join(_CHOICES[name])}")


def _rows(rows: object, types: tuple[type, ...]) -> Iterator[list[Any]]:
    if type(rows) is not list:
        raise TypeError(f"{rows!r} is not a list")
    for row in rows:
        if type(row) is not list or tuple(map(type, row)) != types:
            raise TypeError(f"{row!r} is not [{', '.join(each.__name__ for each in types)}]")
        yield row


def _reads(rows: object) -> tuple[Read, ...]:
    return tuple(
        Read(topic, partition, _records(records)) for topic, partition, records in _rows(rows, (str, int, list))
    )


def _records(rows: Sequence[Any]) -> tuple[tuple[int, str], ...]:
    """By columns, since millions of rows pass here."""
    if not rows:
        return ()
    try:
        offsets, values = zip(*rows, strict=True)
    except (TypeError, ValueError):
        offsets = values = ()
    if set(map(type, offsets)) != {int} or set(map(type, values)) != {str}:
        bad = next(row for row in rows if type(row) is not list or [type(each) for each in row] != [int, str])
        raise TypeError(f"{bad!r} is not [offset, value]")
    return tuple(zip(offsets, values, strict=True))


def _names(names: object) -> tuple[str, ...]:
    if type(names) is not list or any(type(name) is not str for name in names):
        raise TypeError(f"{names!r} is not a list of names")
    return tuple(names)


_INNER: Final[dict[type[Record], tuple[str, Any]]] = {
    Polled: ("partitions", _reads),
    Ownership: ("partitions", lambda rows: tuple(TopicPartition(*row) for row in _rows(rows, (str, int)))),
    Committed: ("offsets", lambda rows: tuple(Position(*row) for row in _rows(rows, (str, int, int)))),
    Stored: ("offsets", lambda rows: tuple(Position(*row) for row in _rows(rows, (str, int, int)))),
    Processed: ("partitions", lambda rows: tuple(Span(*row) for row in _rows(rows, (str, int, int, int)))),
    FaultStep: ("target", _names),
}
"""The field of each kind that holds a list, and what makes a value of it."""
