"""`tidelog top` as lines of a terminal: what does not fit in width loses its least important columns, in height its best rows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from tidelog.cli.top_rows import DOWN, BrokerRow, GroupRow, Level, PartitionRow, Status, View

_GAP: Final = 2
_UNKNOWN: Final = "-"
_STYLES: Final = {Level.FINE: "", Level.UNEASY: "yellow", Level.BAD: "bold red"}
_HEADING: Final = "bold"
_QUIET: Final = "dim"
_NARROWEST: Final = 4
_LEAST_ROWS: Final = 3
"""Of brokers and groups, where there is little room: partitions take the rest."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    cell: Callable[[Any], str]
    to_the_right: bool = True
    rank: int = 0
    """Where there is little room the highest goes first; 0 stays."""
    least: int | None = None
    """To how many characters it may shrink before others go."""


def lines_of(
    view: View, width: int | None = None, height: int | None = None, first: int = 0, *, ascii_only: bool = False
) -> list[Text]:
    """At most `height` lines of at most `width` characters; None: as many as there are. `first` partitions are left out."""
    lines = _head(view)
    rooms = _rooms(height, len(lines), (len(view.brokers), len(view.partitions), len(view.groups)))
    sections: tuple[tuple[Sequence[Column], Sequence[Any]], ...] = (
        (_BROKERS, view.brokers),
        (_PARTITIONS, view.partitions),
        (_GROUPS, view.groups),
    )
    for (columns, rows), room in zip(sections, rooms, strict=True):
        if rows and room != 0:
            lines += [Text(""), *_table(columns, rows, room, width, first if columns is _PARTITIONS else 0)]
    for line in lines:
        line.no_wrap = True
        if width is not None:
            line.truncate(width, overflow="ellipsis")
        if ascii_only:
            line.plain = line.plain.replace("…", "~")
    return lines[:height]


# -- the head ---------------------------------------------------------------------------------------------------------


def _head(view: View) -> list[Text]:
    up = sum(broker.state != DOWN for broker in view.brokers)
    clock = time.strftime("%H:%M:%S", time.localtime(view.wall_ms / 1000))
    office = f"controller {view.controller} (epoch {view.controller_epoch})"
    lines = [
        Text.assemble(("tidelog top", _HEADING), f"  {clock}  cluster {view.cluster_id or _UNKNOWN}"),
        Text.assemble(
            (office, "") if view.controller is not None else ("no controller known", _STYLES[Level.BAD]),
            (f"  {up} of {len(view.brokers)} brokers up", _STYLES[Level.BAD if up < len(view.brokers) else Level.FINE]),
            f"  {_counted(view.topics, 'topic')}  {_counted(view.partition_count, 'partition')}",
        ),
        Text.assemble(
            *_count("offline", view.offline, Level.BAD),
            *_count("under min ISR", view.under_min_isr, Level.BAD),
            *_count("under-replicated", view.under_replicated, Level.UNEASY),
            f"{_number(view.rate)} records/s",
        ),
    ]
    return [*lines, *(Text(problem, _STYLES[Level.BAD]) for problem in view.problems)]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _count(what: str, count: int, level: Level) -> tuple[tuple[str, str], ...]:
    return ((f"{what} {count:,}", _STYLES[level if count else Level.FINE]), ("  ", ""))


# -- columns ----------------------------------------------------------------------------------------------------------


def _number(number: float | None) -> str:
    return _UNKNOWN if number is None else f"{number:,.0f}"


def _offset(offset: int | None) -> str:
    return _UNKNOWN if offset is None else str(offset)


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or _UNKNOWN


def _state(row: BrokerRow) -> str:
    if row.state == DOWN or not row.problem:
        return row.state
    return "silent" if row.silent_s is None else f"silent {row.silent_s:.0f} s"


def _group_state(row: GroupRow) -> str:
    return row.state if row.silent_s is None else f"{row.state}, {row.silent_s:.0f} s ago"


def _isr(row: PartitionRow) -> str:
    return f"{len(row.isr)}/{len(row.replicas)} {_ids(row.isr)}"


def _behind(row: PartitionRow) -> str:
    return " ".join(f"{replica}:{lag}" for replica, lag in row.behind.items() if lag) or _UNKNOWN


_BROKERS: Final = (
    Column("BROKER", lambda row: str(row.broker_id)),
    Column("ADDRESS", lambda row: row.address or _UNKNOWN, to_the_right=False, rank=2, least=12),
    Column("STATE", _state, to_the_right=False),
    Column("LEADERS", lambda row: str(row.leaders)),
    Column("REPLICAS", lambda row: str(row.replicas)),
    Column("OUT", lambda row: str(row.out_of_sync)),
    Column("BEHIND", lambda row: _number(row.behind)),
    Column("REC/S", lambda row: _number(row.rate)),
    Column("GROUPS", lambda row: str(row.groups), rank=1),
)
_PARTITIONS: Final = (
    Column("TOPIC", lambda row: row.topic, to_the_right=False, least=12),
    Column("PART", lambda row: str(row.partition)),
    Column("LEADER", lambda row: "none" if row.leader is None else str(row.leader)),
    Column("EPOCH", lambda row: str(row.leader_epoch), rank=3),
    Column("REPLICAS", lambda row: _ids(row.replicas), to_the_right=False, rank=4),
    Column("ISR", _isr, to_the_right=False),
    Column("HW", lambda row: _offset(row.high_watermark)),
    Column("LEO", lambda row: _offset(row.log_end), rank=1),
    Column("LAG", lambda row: _number(row.lag)),
    Column("BEHIND", _behind, to_the_right=False, rank=5),
    Column("REC/S", lambda row: _number(row.rate), rank=2),
    Column("STATUS", lambda row: row.status.text, to_the_right=False),
)
_GROUPS: Final = (
    Column("GROUP", lambda row: row.group_id, to_the_right=False, least=24),
    Column("STATE", _group_state, to_the_right=False),
    Column("COORDINATOR", lambda row: str(row.coordinator), rank=1),
    Column("GENERATION", lambda row: str(row.generation), rank=2),
    Column("MEMBERS", lambda row: str(row.members)),
    Column("PARTITIONS", lambda row: str(row.partitions), rank=3),
    Column("LAG", lambda row: _number(row.lag)),
    Column("COMMITS/S", lambda row: _number(row.rate)),
)


# -- tables -----------------------------------------------------------------------------------------------------------


def partitions_shown(view: View, height: int) -> int:
    """A page of this height has so many partitions."""
    counts = (len(view.brokers), len(view.partitions), len(view.groups))
    room = _rooms(height, len(_head(view)), counts)[1] or 0
    return max(1, room if room >= len(view.partitions) else room - 1)


def _table(
    columns: Sequence[Column], rows: Sequence[Any], room: int | None, width: int | None, first: int = 0
) -> list[Text]:
    """`room` lines below the heading; the last one says how many rows are not shown, if any."""
    first = min(first, len(rows) - 1)
    whole = first == 0 and (room is None or len(rows) <= room)
    shown = rows if whole else rows[first : None if room is None else first + room - 1]
    cells = [[column.cell(row) for column in columns] for row in shown]
    widths = _widths(columns, cells, width)
    lines = [Text(_line(columns, [column.title for column in columns], widths), _HEADING)]
    for row, texts in zip(shown, cells, strict=True):
        quiet = isinstance(row, PartitionRow) and row.status is Status.NOT_PREFERRED
        lines.append(Text(_line(columns, texts, widths), _QUIET if quiet else _STYLES[row.level]))
    if not whole:
        below = len(rows) - len(shown) - first
        said = [f"{first:,} above"] * bool(first) + [f"{below:,} more"] * bool(below)
        lines.append(Text(f"... {', '.join(said)}", _QUIET))
    return lines


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Of each column, 0 for one that is left out."""
    widths = [max([len(column.title), *(len(row[i]) for row in cells)]) for i, column in enumerate(columns)]
    if width is None:
        return widths
    going = sorted((i for i, column in enumerate(columns) if column.rank), key=lambda i: -columns[i].rank)
    while (excess := sum(widths) + _GAP * (sum(map(bool, widths)) - 1) - width) > 0:
        if (shrinking := _shrinking(columns, widths, excess, at_any_price=not going)) is not None:
            widths[shrinking] -= excess
        elif going:
            widths[going.pop(0)] = 0
        else:
            break  # the lines are cut
    return widths


def _shrinking(columns: Sequence[Column], widths: Sequence[int], excess: int, *, at_any_price: bool) -> int | None:
    """The column that can do with `excess` characters less."""
    for i, column in enumerate(columns):
        if column.least is not None and widths[i] - excess >= (_NARROWEST if at_any_price else column.least):
            return i
    return None


def _line(columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, text, width in zip(columns, texts, widths, strict=True):
        if width:
            cut = text if len(text) <= width else text[: width - 1] + "…"
            parts.append(cut.rjust(width) if column.to_the_right else cut.ljust(width))
    return (" " * _GAP).join(parts).rstrip()


def _rooms(height: int | None, head: int, counts: tuple[int, int, int]) -> tuple[int | None, int | None, int | None]:
    """How many lines brokers, partitions and groups get below their headings."""
    if height is None:
        return None, None, None
    brokers, partitions, groups = counts
    left = max(0, height - head - 2 * sum(map(bool, counts)))  # a blank line and a heading each
    of_brokers = min(brokers, max(_LEAST_ROWS, left // 4))
    of_groups = min(groups, max(_LEAST_ROWS, left // 4))
    of_partitions = min(partitions, max(0, left - of_brokers - of_groups))
    spare = max(0, left - of_brokers - of_partitions - of_groups)
    of_brokers, spare = min(brokers, of_brokers + spare), max(0, spare - (brokers - of_brokers))
    return of_brokers, of_partitions, min(groups, of_groups + spare)
