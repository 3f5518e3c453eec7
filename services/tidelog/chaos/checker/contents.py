"""What is in the log, and what should be: the rules over values and offsets of 1.4, lost as in 1.5, X1 and X3."""

from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.tables import ACKED, FROM_ALL, NOBODY, REFUSED, FinalRead, Tables
from tidelog.chaos.checker.verdict import Example
from tidelog.chaos.checker.version_order import VersionOrder
from tidelog.ids import NO_OFFSET


def told_send(tables: Tables, v: int) -> str:
    """`'p1-17' (sent by producer-1 at 1.235 s)`."""
    if tables.send_id[v] == NOBODY:
        return f"{tables.values[v]!r}"
    return f"{tables.values[v]!r} (sent by {tables.processes[tables.process[v]]} at {tables.began[v]:.3f} s)"


def told_poll(tables: Tables, poll: int) -> str:
    return f"{tables.processes[tables.poll_process[poll]]} at {tables.poll_ended[poll]:.3f} s"


def example(
    tables: Tables, text: str, values: list[int], t: float | None = None, polls: tuple[int, ...] = ()
) -> Example:
    """It shows at `t`, by default when the last of `values` was sent or read for the first time."""
    readers = [tables.read_by[v] for v in values if tables.read_by[v] >= 0]
    sends = [tables.send_id[v] for v in values if tables.send_id[v] != NOBODY]
    if t is None:
        began = [tables.began[v] for v in values if tables.send_id[v] != NOBODY]
        t = max([*began, *(tables.poll_ended[poll] for poll in readers)], default=0.0)
    ids = [*sends, *(tables.poll_id[poll] for poll in (*readers, *polls))]
    return Example(f"{tables.tp}: {text}", t, *tables.tp, tuple(dict.fromkeys(ids)))


def check_offsets(tables: Tables, order: VersionOrder, found: Findings, *, idempotent: bool) -> None:
    found.judged("inconsistent-offsets", "duplicate", "duplicate (not idempotent)")
    for offset, values in order.conflicts():
        told = " and ".join(_told_at(tables, v) for v in values)
        found.add("inconsistent-offsets", example, tables, f"offset {offset} is {told}", values)
    for v, (first, last) in enumerate(zip(order.first, order.last, strict=True)):
        if first != last:
            once = idempotent and tables.acks[v] == FROM_ALL
            found.add("duplicate" if once else "duplicate (not idempotent)", _told_duplicate, tables, order, v)


def check_places(tables: Tables, order: VersionOrder, found: Findings) -> None:
    """A value that one replica acknowledged has its place, or was lost; of several attempts an earlier one may be in the log."""
    found.judged("wrong-offset")
    for v, alone in enumerate(order.alone):
        offset, acked_at = order.offset_of(v), tables.acked_at[v]
        if not alone or offset == NO_OFFSET or acked_at == NO_OFFSET:
            continue
        in_place = tables.log.get(acked_at) == v or v in tables.conflicts.get(acked_at, ())
        if not in_place and (tables.once[v] or offset > acked_at):
            text = f"{told_send(tables, v)} was acknowledged at offset {acked_at}, and is at offset {offset}"
            found.add("wrong-offset", example, tables, text, [v])


def _told_at(tables: Tables, v: int) -> str:
    reader = tables.read_by[v]
    how = f"read by {told_poll(tables, reader)}" if reader >= 0 else "acknowledged"
    return f"{tables.values[v]!r} ({how})"


def _told_duplicate(tables: Tables, order: VersionOrder, v: int) -> Example:
    places = ", ".join(map(str, order.places(v)))
    return example(tables, f"{told_send(tables, v)} is at offsets {places}", [v])


def check_reads(tables: Tables, found: Findings) -> None:
    found.judged("G1a", "never-sent")
    for v, reader in enumerate(tables.read_by):
        if reader < 0:
            continue
        if tables.outcome[v] == REFUSED:
            text = f"{told_send(tables, v)} failed, and was read by {told_poll(tables, reader)}"
            found.add("G1a", example, tables, text, [v])
        elif tables.send_id[v] == NOBODY:
            text = f"{tables.values[v]!r} was read by {told_poll(tables, reader)}, and never sent to this partition"
            found.add("never-sent", example, tables, text, [v])


def check_lost_writes(tables: Tables, order: VersionOrder, found: Findings) -> None:
    """Exactly as 1.5: whatever must have committed, ends at or below the highest value read, and was read by nobody.

    `bound` is the highest first rank of a value that was read; its reader is the witness.
    """
    found.judged("lost-write")
    bound, witness = -1, NOBODY
    for v, (reader, rank) in enumerate(zip(tables.read_by, order.first, strict=True)):
        if reader >= 0 and rank > bound:
            bound, witness = rank, v
    for v, (reader, rank) in enumerate(zip(tables.read_by, order.last, strict=True)):
        if reader >= 0 or rank < 0 or not order.committed[v] or order.excused[v]:
            continue
        if rank <= bound and not _expired(tables, order.offset_of(v)):
            found.add("lost-write", _told_lost, tables, order, v, witness)


def _told_lost(tables: Tables, order: VersionOrder, v: int, witness: int) -> Example:
    reader = tables.read_by[witness]
    text = (
        f"{told_send(tables, v)} is at offset {order.offset_of(v)} and was never read, although "
        f"{tables.values[witness]!r} at offset {order.offset_of(witness)} was, by {told_poll(tables, reader)}"
    )
    return example(tables, text, [v], tables.poll_ended[reader], (reader,))


def _expired(tables: Tables, offset: int) -> bool:
    """Below the log start: retention took it."""
    return NO_OFFSET < offset < tables.log_start


def check_unseen(tables: Tables, order: VersionOrder, found: Findings) -> None:
    """At the end of the final phase: what was acknowledged and nobody has read is lost, or its consumers are stuck."""
    found.judged("unseen", "allowed-loss")
    for v, reader in enumerate(tables.read_by):
        if reader >= 0 or tables.outcome[v] != ACKED or _expired(tables, tables.acked_at[v]):
            continue
        if order.excused[v]:
            text = f"{told_send(tables, v)} was acknowledged by one replica, its leader changed, and it is gone"
            found.add("allowed-loss", example, tables, text, [v], tables.ended[v])
        else:
            text = f"{told_send(tables, v)} was acknowledged at offset {tables.acked_at[v]} and never read"
            found.add("unseen", example, tables, text, [v], tables.ended[v])


def in_the_end(tables: Tables) -> bytearray:
    """Values that the final read has: that of the reader which came furthest."""
    present = bytearray(len(tables.values))
    for v in max(tables.final.values(), key=lambda read: len(read.values)).values if tables.final else ():
        present[v] = True
    return present


def check_final(tables: Tables, order: VersionOrder, present: bytearray, found: Findings) -> None:
    """X1: all readers of the final phase saw the same, and in it everything that was acknowledged or read before.

    `present` is what `in_the_end` says.
    """
    found.judged("lost-acked", "final-incomplete", "final-differs", "hole")
    if not tables.final:
        return  # nothing was ever sent
    reads = tables.final
    longest = max(reads, key=lambda process: len(reads[process].offsets))
    for process in sorted(reads.keys() - {longest}):
        _compare(tables, (longest, reads[longest]), (process, reads[process]), found)
    _check_holes(tables, longest, reads[longest], found)
    for v, there in enumerate(present):
        if there or order.excused[v] or not (tables.outcome[v] == ACKED or tables.read_by[v] >= 0):
            continue
        offset = order.offset_of(v)
        if _expired(tables, offset):
            continue
        name = "lost-acked" if tables.outcome[v] == ACKED else "final-incomplete"
        found.add(name, _told_missing, tables, v, offset)


def _check_holes(tables: Tables, process: str, read: FinalRead, found: Findings) -> None:
    """Without compaction every offset has a record, from the log start on."""
    expected = read.offsets[0] if tables.records_expire and read.offsets else 0
    for offset in read.offsets:
        if offset > expected:
            text = f"{tables.tp}: {process} found nothing at offset {expected}, and then offset {offset}"
            found.add("hole", Example, text, max(tables.poll_ended), *tables.tp)
        expected = offset + 1


def check_batches(tables: Tables, order: VersionOrder, present: bytearray, found: Findings) -> None:
    """A batch is in the log as a whole, in the order of its records and with nothing between them, or not at all."""
    found.judged("torn-batch")
    for ended in tables.batches.values():
        batch = sorted(ended)  # as they were sent: their errors may have come in another order
        there = [v for v in batch if present[v]]
        if not there:
            continue
        first = order.offset_of(there[0])
        if len(there) < len(batch) or [order.offset_of(v) for v in batch] != list(range(first, first + len(batch))):
            found.add("torn-batch", _told_batch, tables, order, batch, there)


def _told_batch(tables: Tables, order: VersionOrder, batch: list[int], there: list[int]) -> Example:
    offsets = ", ".join(str(order.offset_of(v)) for v in there)
    first = told_send(tables, batch[0])
    text = f"of a batch of {len(batch)} records, the first of them {first}, {len(there)} are in the log, at {offsets}"
    return example(tables, text, batch)


def _told_missing(tables: Tables, v: int, offset: int) -> Example:
    reader = tables.read_by[v]
    known = [
        *([f"acknowledged at {tables.ended[v]:.3f} s"] if tables.outcome[v] == ACKED else []),
        *([f"read by {told_poll(tables, reader)}"] if reader >= 0 else []),
    ]
    return example(
        tables, f"{told_send(tables, v)}, offset {offset}, {' and '.join(known)}, is not in the final read", [v]
    )


def _compare(tables: Tables, longest: tuple[str, FinalRead], other: tuple[str, FinalRead], found: Findings) -> None:
    """A reader that was thrown away may have stopped early; as far as it came it must agree."""
    (process, whole), (other_process, part) = longest, other
    size = len(part.offsets)
    if (len(whole.offsets) == size or other_process in tables.crashed) and (
        whole.offsets[:size] == part.offsets and whole.values[:size] == part.values
    ):
        return
    seen = zip(whole.offsets, whole.values, part.offsets, part.values, strict=False)
    at = next((i for i, (a, b, c, d) in enumerate(seen) if (a, b) != (c, d)), size)
    told = " and ".join(
        f"{who} saw {_told_record(tables, read, at)}" for who, read in ((process, whole), (other_process, part))
    )
    t = max(tables.poll_ended, default=0.0)
    found.add("final-differs", Example, f"{tables.tp}: as record number {at} {told}", t, *tables.tp)


def _told_record(tables: Tables, read: FinalRead, at: int) -> str:
    if at >= len(read.offsets):
        return "nothing"
    return f"{tables.values[read.values[at]]!r} at offset {read.offsets[at]}"
