"""Mistakes in the eyes of clients: acknowledgements, polls, the final read, and what leaders tell of themselves."""

from collections.abc import Callable
from typing import Any

from planted.anomalies import NeverHappened, in_files, in_world
from planted.cluster import Reader
from planted.plant_logs import anywhere, idempotent
from planted.run_directory import RunDirectory
from planted.world import POLL_RECORDS, Rows, World
from tidelog.chaos.history import OK, Ownership, Polled, Record, Send, Sent, Watermark

OFFSET = "an acknowledgement names a wrong offset"
POLL = "a poll reads what is not sent yet, reads again, goes back or skips"
HEAD = "a consumer misses the beginning of a log"
STARVED = "a consumer reads nothing more"
FINAL = "the final read is short, alone, missing, or differs"
FELL = "a high watermark falls, or is below what was read"
AHEAD = "a high watermark is behind the log's end, or none was told"


# -- acknowledgements --------------------------------------------------------------------------------------------------


def _wrong_offset(run: RunDirectory, fits: Callable[[Send, Sent], bool], *, behind: bool = False) -> None:
    sends = {each.id: each for each in run.records if isinstance(each, Send)}
    found = [
        at
        for at, each in enumerate(run.records)
        if isinstance(each, Sent) and each.outcome == OK and each.offset is not None and fits(sends[each.id], each)
    ]
    if not found:
        raise NeverHappened
    at = run.world.rand.choice(found)
    wrong: Any = run.records[at]
    off = run.world.rand.randint(1, 9)
    run.records[at] = wrong._replace(
        offset=wrong.offset - off if wrong.offset >= off and not behind else wrong.offset + off
    )


@in_files(OFFSET, "acks=all", "inconsistent-offsets", "duplicate")
def wrong_offset(run: RunDirectory) -> None:
    _wrong_offset(run, lambda send, _: send.acks == "all")


def _survived(run: RunDirectory, send: Send, sent: Sent) -> bool:
    """An acks=1 record that is in the log although its leader is another one now."""
    partition = run.world.partitions[send.partition]
    changed = sent.leader_epoch is not None and sent.leader_epoch < partition.epoch
    return send.acks == "1" and sent.attempts == 1 and changed and send.value in partition.log


@in_files(OFFSET, "acks=1, and the leader changed", "inconsistent-offsets", "duplicate", "wrong-offset")
def wrong_offset_alone(run: RunDirectory) -> None:
    _wrong_offset(run, lambda send, sent: _survived(run, send, sent))


@in_files(OFFSET, "acks=1, the leader changed, and no other replica was known to have it", "wrong-offset")
def wrong_offset_untold(run: RunDirectory) -> None:
    told: dict[tuple[int, int], int] = {}
    for each in run.records:
        if isinstance(each, Watermark):
            key = each.partition, each.leader_epoch
            told[key] = max(told.get(key, 0), each.high_watermark)

    def fits(send: Send, sent: Sent) -> bool:
        known = told.get((send.partition, sent.leader_epoch or 0), 0)
        return _survived(run, send, sent) and sent.offset is not None and sent.offset >= known

    _wrong_offset(run, fits, behind=True)


# -- polls -------------------------------------------------------------------------------------------------------------


@in_world(POLL, "before it is sent", "G1c-realtime")
def read_before_it_is_sent(world: World) -> None:
    def plant() -> bool:
        producer, partition = idempotent(world), world.partitions[anywhere(world)]
        reader = world.rand.choice(world.readers)
        if reader.positions[partition.number] != partition.high_watermark or partition.tail:
            return False
        (name,) = world.next_names(producer, 1)
        world.polled(reader.process, {partition.number: [(len(partition.log), name)]})
        reader.positions[partition.number] += 1
        world.now += 0.001
        world.send(producer, partition.number, size=1)
        return True

    world.sometime(plant, world.after_the_faults())


def _poll_of(world: World, least: int, change: Callable[[Rows], Rows]) -> None:
    def plant() -> bool:
        reader, number = world.rand.choice(world.readers), anywhere(world)
        rows = world.rows(number, reader.positions[number])
        if len(rows) < least:
            return False
        reader.positions[number] = rows[-1][0] + 1
        world.polled(reader.process, {number: change(rows)})
        return True

    world.sometime(plant)


@in_world(POLL, "again in one poll", "int-nonmonotonic-poll")
def read_again_in_a_poll(world: World) -> None:
    def again(rows: Rows) -> Rows:
        at = world.rand.randrange(len(rows))
        return [*rows[: at + 1], *rows[at:]]

    _poll_of(world, 1, again)


@in_world(POLL, "skips in one poll", "int-poll-skip")
def skips_in_a_poll(world: World) -> None:
    def skip(rows: Rows) -> Rows:
        at = world.rand.randrange(1, len(rows) - 1)
        return [*rows[:at], *rows[at + 1 :]]

    _poll_of(world, 3, skip)


@in_world(POLL, "skips between two polls", "poll-skip")
def skips_between_polls(world: World) -> None:
    def plant() -> bool:
        reader, number = world.rand.choice(world.readers), anywhere(world)
        waiting = world.rows(number, reader.positions[number])
        if len(waiting) < 2 or reader.positions[number] == 0:
            return False
        reader.positions[number] += world.rand.randrange(1, len(waiting))
        return True

    world.sometime(plant)


@in_world(POLL, "goes back between two polls", "nonmonotonic-poll")
def goes_back(world: World) -> None:
    def plant() -> bool:
        reader, number = world.rand.choice(world.readers), anywhere(world)
        if reader.positions[number] < 2 or reader.process not in _polled(world.records, number):
            return False
        reader.positions[number] -= world.rand.randint(1, min(50, reader.positions[number]))
        return True

    world.sometime(plant)


def _polled(records: list[Record], number: int) -> set[str]:
    """Processes that have read something of a partition."""
    polls = (each for each in records if isinstance(each, Polled))
    return {each.process for each in polls if any(read.partition == number for read in each.partitions)}


@in_world(HEAD, "the first 1 to 50", "consumer-unread")
def misses_the_head(world: World) -> None:
    def plant() -> bool:
        partition = world.partitions[anywhere(world)]
        missed = world.rand.randint(1, 50)
        if partition.high_watermark <= missed:
            return False
        late = Reader(f"late-{world.id()}")
        world.readers.append(late)
        world.start(late)
        late.positions[partition.number] = missed
        world.keep_reading(late)
        return True

    world.sometime(plant)


@in_world(STARVED, "of one partition, or all of them", "consumer-unread")
def starves(world: World) -> None:
    def plant() -> bool:
        reader, every = world.rand.choice(world.readers), range(len(world.partitions))
        reader.stuck.update(every if world.rand.random() < 0.5 else [anywhere(world)])
        return True

    world.sometime(plant)


# -- the final read ----------------------------------------------------------------------------------------------------


READERS = ("reader-1", "reader-2")


def _is_of(record: Record, process: str) -> bool:
    """`process`, or the life that took its place."""
    return isinstance(record, Polled | Ownership) and record.final and record.process.startswith(process)


def _final_rows(run: RunDirectory, processes: list[str], number: int, change: Callable[[Rows], Rows]) -> None:
    """Everything that they found in a partition comes in one poll, changed."""
    for process in processes:
        living = f"{process}.2" if any(_is_of(each, f"{process}.2") for each in run.records) else process
        polls = [
            (at, each)
            for at, each in enumerate(run.records)
            if isinstance(each, Polled) and each.process == living and each.partitions[0].partition == number
        ]
        rows = change([row for _, each in polls for row in each.partitions[0].records])
        (at, last) = polls[-1]
        read = last.partitions[0]
        more = [last._replace(partitions=(read._replace(records=tuple(rows)),))] if rows else []
        run.records[at : at + 1] = more
        for earlier, _ in reversed(polls[:-1]):
            del run.records[earlier]


def _short(run: RunDirectory, processes: list[str]) -> None:
    fullest = max(run.world.partitions, key=lambda each: len(each.log))
    number = run.world.rand.randint(1, 60)
    _final_rows(run, processes, fullest.number, lambda rows: rows[:-number])


@in_files(FINAL, "both are short", "lost-acked", "final-incomplete")
def both_short(run: RunDirectory) -> None:
    _short(run, [*READERS])


@in_files(FINAL, "one is short", "final-differs")
def one_short(run: RunDirectory) -> None:
    _short(run, [run.world.rand.choice([*READERS])])


@in_files(FINAL, "both lack a partition", "lost-acked", "final-incomplete")
def both_lack_a_partition(run: RunDirectory) -> None:
    _final_rows(run, [*READERS], anywhere(run.world), lambda rows: [])


@in_files(FINAL, "one lacks a partition", "final-differs")
def one_lacks_a_partition(run: RunDirectory) -> None:
    _final_rows(run, [run.world.rand.choice([*READERS])], anywhere(run.world), lambda rows: [])


@in_files(FINAL, "they differ in a value", "final-differs")
def finals_differ(run: RunDirectory) -> None:
    def change(rows: Rows) -> Rows:
        at = run.world.rand.randrange(len(rows))
        return [*rows[:at], (rows[at][0], f"{rows[at][1]}#"), *rows[at + 1 :]]

    _final_rows(run, [run.world.rand.choice([*READERS])], anywhere(run.world), change)


def _without(run: RunDirectory, processes: list[str]) -> None:
    run.records[:] = [each for each in run.records if not any(_is_of(each, process) for process in processes)]


@in_files(FINAL, "there is one reader", "readers that read the whole log at the end", hides=True)
def one_reader(run: RunDirectory) -> None:
    _without(run, [run.world.rand.choice([*READERS])])


@in_files(FINAL, "there is no reader", "readers that read the whole log at the end", hides=True)
def no_reader(run: RunDirectory) -> None:
    _without(run, [*READERS])


# -- what leaders tell -------------------------------------------------------------------------------------------------


def _marks(run: RunDirectory) -> list[int]:
    return [at for at, each in enumerate(run.records) if isinstance(each, Watermark) and each.high_watermark > 0]


def _last_mark(run: RunDirectory) -> tuple[int, Watermark]:
    """One that was told in the final phase."""
    at = run.world.rand.choice(_marks(run)[-len(run.world.partitions) :])
    found = run.records[at]
    assert isinstance(found, Watermark)
    return at, found


@in_files(FELL, "in its epoch", "watermark-fell")
def falls_in_its_epoch(run: RunDirectory) -> None:
    marks = [(at, each) for at in _marks(run) if isinstance(each := run.records[at], Watermark)]
    pairs = [
        (at, later, earlier)
        for at, later in marks
        for before, earlier in marks
        if before < at and (later.partition, later.leader_epoch) == (earlier.partition, earlier.leader_epoch)
    ]
    at, later, earlier = run.world.rand.choice(pairs)
    run.records[at] = later._replace(high_watermark=run.world.rand.randrange(earlier.high_watermark))


@in_files(FELL, "below what was read", "watermark-fell")
def below_what_was_read(run: RunDirectory) -> None:
    at, mark = _last_mark(run)
    low = run.world.rand.randrange(run.world.partitions[mark.partition].read)
    run.records[at] = mark._replace(leader_epoch=mark.leader_epoch + 1, high_watermark=low)


@in_files(AHEAD, "behind the end of its log", "watermark-ahead")
def ahead_of_its_log(run: RunDirectory) -> None:
    at, mark = _last_mark(run)
    assert mark.log_end is not None
    run.records[at] = mark._replace(high_watermark=mark.log_end + run.world.rand.randint(1, POLL_RECORDS))


@in_files(AHEAD, "none was told", "leaders told their high watermarks")
def never_told(run: RunDirectory) -> None:
    run.records[:] = [each for each in run.records if not isinstance(each, Watermark)]
