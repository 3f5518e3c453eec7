"""Where a micro-batch ends: stream offsets, limits, and what between two batches is data loss. Pure.

A stream offset is `{topic: {partition: next offset}}`, the partition as text, as in Spark's Kafka source. Under `TOPIC_IDS` are
the ids of the topics in hexadecimal, since an offset means nothing in another topic of the name. 0.2.0 wrote none.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from tidelog.ids import TopicPartition
from tidelog.pipeline.offsets import OffsetRange

StreamOffset = dict[str, dict[str, Any]]
TOPIC_IDS: Final = "topic ids"
"""A key beside topics. No topic may have this name."""
TopicIds = Mapping[str, bytes]
"""The id of each topic, by its name."""
NO_IDS: Final[TopicIds] = MappingProxyType({})
Positions = Mapping[TopicPartition, int]
"""The next offset to read of each partition."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What the log of a partition holds: `start` to the high watermark `end`. `topic_id` tells two topics of one name apart."""

    topic_id: bytes
    start: int
    end: int


Extents = Mapping[TopicPartition, Extent]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a batch, in records over all partitions; None: as many as there are, however few."""

    at_most: int | None = None
    at_least: int | None = None
    max_delay_s: float = 0.0
    """After so long without a batch fewer than `at_least` will do."""


@dataclass(frozen=True, slots=True)
class History:
    """What is remembered from one batch to the next while a query runs; a restart begins with an empty one."""

    topic_ids: TopicIds = field(default_factory=dict)
    """For offsets that name no ids."""
    served: TopicPartition | None = None
    """The last in turn, where the limit was below the number of partitions."""
    batch_at: float | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    end: Positions
    losses: tuple[str, ...]
    """What is not in the log any more, one sentence a partition. `end` goes on behind it."""
    history: History
    topic_ids: TopicIds
    """Ids of the topics in which `end` counts."""


def to_stream_offset(positions: Positions, topic_ids: TopicIds = NO_IDS) -> StreamOffset:
    """In the one order that a set of positions has: Spark compares offsets as JSON text, and another order is another offset."""
    offset: StreamOffset = {}
    for tp in sorted(positions):
        offset.setdefault(tp.topic, {})[str(tp.partition)] = positions[tp]
    if ids := {topic: topic_ids[topic].hex() for topic in offset if topic in topic_ids}:
        offset[TOPIC_IDS] = ids
    return offset


def topic_ids_of(offset: Any) -> dict[str, bytes]:
    """The ids that a stream offset names; none of one that 0.2.0 wrote. ValueError as `from_stream_offset`."""
    ids = offset.get(TOPIC_IDS, {}) if isinstance(offset, dict) else {}
    try:
        return {topic: bytes.fromhex(topic_id) for topic, topic_id in ids.items()}
    except (AttributeError, TypeError, ValueError):
        text = f"{TOPIC_IDS!r} of the stream offset in the checkpoint must be like {{'topic': '0b1e'}}; it is {ids!r}"
        raise ValueError(text) from None


def from_stream_offset(offset: Any) -> dict[TopicPartition, int]:
    """As a checkpoint has it; ValueError names what no stream of this source has written."""
    shape = 'the stream offset in the checkpoint must be like {"topic":{"0":23}}'
    if not isinstance(offset, dict):
        raise ValueError(f"{shape}; it is {offset!r}")
    positions: dict[TopicPartition, int] = {}
    for topic, partitions in offset.items():
        if topic == TOPIC_IDS:
            continue
        if not isinstance(partitions, dict):
            raise ValueError(f"{shape}; {topic!r} has {partitions!r}")
        for partition, position in partitions.items():
            is_offset = isinstance(position, int) and not isinstance(position, bool) and position >= 0
            if not (partition.isascii() and partition.isdigit() and is_offset):
                raise ValueError(f"{shape}; {topic!r} has {partition!r}: {position!r}")
            positions[TopicPartition(topic, int(partition))] = position
    return positions


def initial_positions(
    starts: Positions, beginnings: Positions, ends: Positions
) -> tuple[dict[TopicPartition, int], tuple[str, ...]]:
    """Where a new query starts, of `starts` that its options name, and what of them is not in the log; same keys."""
    positions = {tp: min(max(start, beginnings[tp]), ends[tp]) for tp, start in starts.items()}
    losses = tuple(
        f"{tp}: the query is to start at offset {start}; the log holds offsets {beginnings[tp]} to {ends[tp]}"
        for tp, start in sorted(starts.items())
        if start != positions[tp]
    )
    return positions, losses


def held_at(extents: Extents, positions: Positions) -> dict[TopicPartition, Extent]:
    """As if nothing had been appended from these positions on."""
    return {tp: replace(e, end=min(e.end, positions.get(tp, e.end))) for tp, e in extents.items()}


def targets(fixed: Extents, extents: Extents, positions: Positions) -> dict[TopicPartition, Extent]:
    """What a new query reads up to, of all that is `fixed`: `positions`, at which it starts, were looked up after that, with
    `extents`, and may be above it."""
    return {tp: replace(e, end=max(positions[tp], fixed[tp].end if tp in fixed else 0)) for tp, e in extents.items()}


def batch_ranges(start: Positions, end: Positions) -> tuple[OffsetRange, ...]:
    """What a batch reads, in the order of the partitions, without empty ranges.

    A partition that `start` does not name was added and is read from its first record. An end below its start is a step
    back to a log that began anew: nothing is read in this batch, and the next one goes on there.
    """
    ranges = (OffsetRange(tp, start.get(tp, 0), end[tp]) for tp in sorted(end))
    return tuple(r for r in ranges if not r.empty)


def admit(
    start: Positions, extents: Extents, history: History, limits: Limits, now: float, known_ids: TopicIds = NO_IDS
) -> Admission:
    """The end of the batch that begins at `start`; equal to `start` when there is to be none.

    `extents` are of all partitions that the query now selects, `now` in monotonic seconds, `known_ids` of the topics in which
    `start` counts.
    """
    begins, losses = _begins(start, extents, {**history.topic_ids, **known_ids})
    topic_ids = {tp.topic: extent.topic_id for tp, extent in extents.items()}
    # A step back is a batch of its own, so that the checkpoint has it and a repeated batch reads the same records.
    lags = {tp: extents[tp].end - begin for tp, begin in begins.items() if extents[tp].end > begin >= start.get(tp, 0)}
    if not losses and _too_few(sum(lags.values()), history, limits, now):
        return Admission(dict(start), (), History(topic_ids, history.served, history.batch_at), known_ids)
    shares, served = split(lags, limits.at_most, history.served)
    end = {tp: begin + shares.get(tp, 0) for tp, begin in begins.items()}
    batch_at = now if end != start or history.batch_at is None else history.batch_at
    stays = end == start and all(known_ids.get(topic, each) == each for topic, each in topic_ids.items())
    return Admission(end, losses, History(topic_ids, served, batch_at), known_ids if stays else topic_ids)


def _too_few(waiting: int, history: History, limits: Limits, now: float) -> bool:
    """The first batch of a run never waits, and the next one counts its delay from then, as in Spark's Kafka source."""
    if limits.at_least is None or waiting >= limits.at_least or history.batch_at is None:
        return False
    return now - history.batch_at < limits.max_delay_s


def _begins(
    start: Positions, extents: Extents, topic_ids: TopicIds
) -> tuple[dict[TopicPartition, int], tuple[str, ...]]:
    """From where each partition is read on, and what is lost where that is not where the last batch ended."""
    begins: dict[TopicPartition, int] = {}
    losses: list[str] = []
    for tp in sorted({*start, *extents}):
        if tp not in extents:
            losses.append(f"{tp}: it was read up to offset {start[tp]} and is gone, or no longer selected")
            continue
        begins[tp], loss = _begin(tp, start.get(tp), extents[tp], topic_ids.get(tp.topic))
        if loss:
            losses.append(loss)
    return begins, tuple(losses)


def _begin(tp: TopicPartition, reached: int | None, log: Extent, known_id: bytes | None) -> tuple[int, str]:
    holds = f"the log holds offsets {log.start} to {log.end}"
    if reached is None:
        return log.start, f"{tp}: it was added, and offsets 0 to {log.start} are gone; {holds}" if log.start else ""
    if known_id is not None and known_id != log.topic_id:
        return log.start, f"{tp}: its topic was deleted after offset {reached} was reached, and created anew; {holds}"
    if reached > log.end:
        # Where an offset of 0.2.0 names no id, a topic that was created anew is told by its smaller end alone. A log of the
        # same topic that became shorter is read on from its end: what is below was read.
        begin = log.start if known_id is None else log.end
        return begin, f"{tp}: it was read up to offset {reached}, and {holds}"
    if reached < log.start:
        return log.start, f"{tp}: offsets {reached} to {log.start} are gone before they were read; {holds}"
    return reached, ""


def split(
    lags: Mapping[TopicPartition, int], limit: int | None, served: TopicPartition | None
) -> tuple[dict[TopicPartition, int], TopicPartition | None]:
    """How many records each partition may give, and who was the last in turn. `lags` are above 0.

    Together they give exactly `limit` where there are so many: each one record, so that a small partition is not starved by
    large ones, and the rest in proportion to what then remains. A limit below the number of partitions goes round.
    """
    total = sum(lags.values())
    if limit is None or total <= limit:
        return dict(lags), served
    waiting = sorted(lags)
    if limit < len(waiting):
        first = 0 if served is None else bisect_right(waiting, served)
        turn = [*waiting[first:], *waiting[:first]][:limit]
        return dict.fromkeys(turn, 1), turn[-1]
    spare, remaining = limit - len(waiting), total - len(waiting)
    parts = {tp: divmod(spare * (lags[tp] - 1), remaining) for tp in waiting}
    shares = {tp: 1 + whole for tp, (whole, _) in parts.items()}
    by_rest = sorted(waiting, key=lambda tp: (-parts[tp][1], tp))
    for tp in by_rest[: limit - sum(shares.values())]:
        shares[tp] += 1
    return shares, served
