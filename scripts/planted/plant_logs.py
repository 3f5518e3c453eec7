"""Mistakes in the log: records that are lost, twice, out of order, altered, elsewhere, or should not be there."""

from collections.abc import Callable
from typing import Any

from planted.anomalies import SOUND, in_world
from planted.cluster import Batch, Fate, Partition
from planted.world import World
from tidelog.chaos.history import Sent
from tidelog.chaos.sources import checked, name_of

LOST = "a record is lost"
LOST_UNKNOWN = "a record of unknown outcome is lost after it was read"
LOST_ALONE = "a record that one replica acknowledged is lost without an excuse"
LOST_REPLICATED = "an acks=1 record is lost that was below the high watermark before its leader changed"
TWICE = "a record of an idempotent producer is in the log twice"
ORDER = "records of one producer are out of order"
ZOMBIE = "a record of a producer's former life is behind its next life's"
REFUSED = "a refused record is in the log"
PHANTOM = "a record that was never sent"
ALTERED = "a value is altered"
DAMAGED = "a payload is cut or padded, or its key, header or time altered"
ELSEWHERE = "a record is moved or copied to another partition"
HOLE = "offsets without a record"
HALF = "half a batch of unknown outcome"
NOT_YET = "a record is read above the high watermark and then gone"


def settled(
    world: World, *, acks: str | None = None, seen: bool | None = None, among: list[Partition] | None = None
) -> tuple[Partition, int, str] | None:
    """A drawn record that is acknowledged and below the high watermark, with others behind it: (where, offset, name)."""
    found = [
        (partition, offset, name)
        for partition in (world.partitions if among is None else among)
        for offset, name in partition.rows(0, len(partition.log), max(0, partition.high_watermark - 1))
        if name in world.acked
        and acks in (None, world.acked[name])
        and seen in (None, name in world.seen)
        and partition.log.count(name) == 1
    ]
    return world.rand.choice(found) if found else None


def _once_settled(
    world: World, plant: Callable[[Partition, int, str], None], *, start: float | None = None, **which: Any
) -> None:
    """Does it to a drawn record, as soon as there is one: see `settled`."""

    def attempt() -> bool:
        if (found := settled(world, **which)) is None:
            return False
        plant(*found)
        return True

    world.sometime(attempt, start)


def unknown(world: World, *, seen: bool | None = None) -> tuple[Partition, Batch] | None:
    """A drawn acks=all batch below the high watermark whose answer was lost."""
    found = [
        (world.partitions[batch.partition], batch)
        for batch in world.batches
        if batch.fate is Fate.ANSWER_LOST
        and batch.acks == "all"
        and batch.ended
        and batch.base is not None
        and batch.end <= world.partitions[batch.partition].high_watermark
        and seen in (None, batch.names[0] in world.seen)
    ]
    return world.rand.choice(found) if found else None


def idempotent(world: World) -> str:
    return world.rand.choice(world.producers[:-1])


def anywhere(world: World) -> int:
    return world.rand.randrange(len(world.partitions))


def with_unknown(world: World) -> None:
    """A batch of unknown outcome early in the load."""

    def send() -> None:
        world.send(idempotent(world), anywhere(world), fate=Fate.ANSWER_LOST)

    world.at(2.0, send)


# -- lost --------------------------------------------------------------------------------------------------------------


@in_world(LOST, "a hole is left", "lost-acked")
def lost_with_a_hole(world: World) -> None:
    def plant(partition: Partition, offset: int, name: str) -> None:
        partition.log[offset] = None

    _once_settled(world, plant)


@in_world(LOST, "the rest moves up", "lost-acked")
def lost_without_a_hole(world: World) -> None:
    def plant(partition: Partition, offset: int, name: str) -> None:
        partition.remove(offset)

    _once_settled(world, plant)


@in_world(LOST, "the last of the log", "lost-acked")
def last_of_the_log(world: World) -> None:
    def plant() -> None:
        partition = max(world.partitions, key=lambda each: len(each.log))
        number = world.rand.randint(1, 9)
        while not any(name in world.acked for name in partition.log[-number:]):
            number += 1
        partition.remove(len(partition.log) - number, number)

    world.before_the_end(plant)


@in_world(LOST, "the last, whose acknowledgement named no offset", "lost-acked", "unseen")
def tail_without_an_offset(world: World) -> None:
    partition = world.partitions[anywhere(world)]

    def hide() -> None:
        partition.hidden = True
        world.send(idempotent(world), partition.number, fate=Fate.FINE)

    def plant() -> None:
        partition.hidden = False
        gone = set(partition.log[partition.read :])
        ids = {i for b in world.batches for i, name in zip(b.ids, b.names, strict=True) if name in gone}
        partition.remove(partition.read, len(gone))
        world.records[:] = [
            each._replace(offset=None) if isinstance(each, Sent) and each.id in ids else each for each in world.records
        ]

    world.at(world.load_s + 0.2, hide)
    world.before_the_end(plant)


@in_world(LOST_UNKNOWN, "any", "final-incomplete")
def lost_after_it_was_read(world: World) -> None:
    with_unknown(world)

    def plant() -> bool:
        if (found := unknown(world, seen=True)) is None:
            return False
        partition, batch = found
        offset = partition.log.index(batch.names[0])
        partition.remove(offset, len(batch.names))
        batch.base = None
        return True

    world.sometime(plant)


@in_world(LOST_ALONE, "its leader does not change", "lost-acked", "unseen")
def lost_with_its_leader_alive(world: World) -> None:
    partition = world.partitions[anywhere(world)]
    partition.spared = True

    def plant() -> bool:
        for batch in partition.tail:
            if batch.acks == "1" and batch.ended and batch.names[0] in world.acked and batch.base is not None:
                partition.tail.remove(batch)
                partition.remove(batch.base, len(batch.names))
                batch.base = None
                return True
        return False

    world.sometime(plant)


@in_world(LOST_ALONE, "it was read", "lost-acked")
def lost_after_it_was_acknowledged_and_read(world: World) -> None:
    def plant(partition: Partition, offset: int, name: str) -> None:
        partition.remove(offset)

    _once_settled(world, plant, start=world.kills[0].at - 0.05, acks="1", seen=True, among=world.partitions[:1])


@in_world(LOST_ALONE, "it was sent with acks=all", "lost-acked", "unseen")
def lost_although_all_acknowledged_it(world: World) -> None:
    _lose_unread(world, "all", told=False)


@in_world(LOST_REPLICATED, "any", "lost-acked", "unseen")
def lost_although_replicated(world: World) -> None:
    _lose_unread(world, "1", told=True)


def _lose_unread(world: World, acks: str, *, told: bool) -> None:
    """Loses a record that is not read yet, just before the leader of partition 0 dies."""
    (partition, *_), kill = world.partitions, world.kills[0]
    producer = world.producers[-1] if acks == "1" else idempotent(world)

    def hide() -> None:
        partition.hidden = True
        world.send(producer, 0, fate=Fate.FINE)

    def plant() -> bool:
        partition.hidden = False
        for batch in world.batches:
            at = batch.base if batch.partition == 0 and batch.epoch == partition.epoch and batch.acks == acks else None
            if at is None or at < partition.read or batch.names[0] not in world.acked or batch.fate is not Fate.FINE:
                continue
            if batch.end <= (partition.told if told else partition.high_watermark):
                partition.remove(at, len(batch.names))
                batch.base = None
                return True
        return False

    world.at(kill.at - 2.0, hide)
    world.sometime(plant, kill.at - 0.01)


# -- twice, out of order -----------------------------------------------------------------------------------------------


@in_world(TWICE, "one behind the other", "duplicate")
def twice_near(world: World) -> None:
    def plant(partition: Partition, offset: int, name: str) -> None:
        partition.insert(offset + 1, [name])

    _once_settled(world, plant, acks="all")


@in_world(TWICE, "far from each other", "duplicate")
def twice_far(world: World) -> None:
    def plant(partition: Partition, offset: int, name: str) -> None:
        partition.insert(partition.high_watermark, [name])

    _once_settled(world, plant, acks="all")


@in_world(TWICE, "of unknown outcome", "duplicate")
def twice_unknown(world: World) -> None:
    with_unknown(world)

    def plant() -> bool:
        if (found := unknown(world)) is None:
            return False
        partition, batch = found
        partition.insert(partition.high_watermark, batch.names)
        return True

    world.sometime(plant)


def _reversed(world: World, producer: str) -> None:
    def plant() -> bool:
        batch = world.send(producer, anywhere(world), size=world.rand.randint(2, 5), fate=Fate.FINE)
        batch.names.reverse()
        batch.ids.reverse()
        return True

    world.sometime(plant, world.after_the_faults())


@in_world(ORDER, "acks=all", "nonmonotonic-send")
def out_of_order(world: World) -> None:
    _reversed(world, idempotent(world))


@in_world(ORDER, "acks=1", "nonmonotonic-send")
def out_of_order_alone(world: World) -> None:
    _reversed(world, world.producers[-1])


def overtaken(world: World, between: str | None) -> None:
    """A batch that seemed lost comes after the next one; `between`: this producer's life ends before the next one."""

    def plant() -> bool:
        producer, number = between or idempotent(world), anywhere(world)
        late = world.send(producer, number, fate=Fate.NEVER_CAME)
        if between is not None:
            world.crash_producer(producer)
        world.send(producer, number, fate=Fate.FINE)

        def comes() -> None:
            late.fate = Fate.ANSWER_LOST
            world.append(world.partitions[number], late)

        world.after(0.2, comes)
        return True

    world.sometime(plant, world.after_the_faults())


@in_world(ORDER, "the first is of unknown outcome", "nonmonotonic-send")
def out_of_order_unknown(world: World) -> None:
    overtaken(world, None)


@in_world(ZOMBIE, "any", exit_code=SOUND)
def zombie(world: World) -> None:
    overtaken(world, idempotent(world))


# -- what should not be there ------------------------------------------------------------------------------------------


@in_world(REFUSED, "any", "G1a")
def refused_and_there(world: World) -> None:
    def plant() -> bool:
        batch = world.send(world.rand.choice(world.producers), anywhere(world), fate=Fate.REFUSED)
        world.after(0.1, lambda: world.append(world.partitions[batch.partition], batch))
        return True

    world.sometime(plant, world.after_the_faults())


@in_world(PHANTOM, "in the log", "never-sent")
def phantom(world: World) -> None:
    def plant() -> bool:
        partition = world.partitions[anywhere(world)]
        partition.insert(partition.high_watermark, [f"ghost-{world.rand.randrange(1000)}"])
        return True

    world.sometime(plant)


@in_world(PHANTOM, "in the eyes of one reader", "never-sent", "inconsistent-offsets")
def phantom_of_one(world: World) -> None:
    def plant() -> bool:
        reader, number = world.rand.choice(world.readers), anywhere(world)
        rows = world.rows(number, reader.positions[number])
        if not rows:
            return False
        at = world.rand.randrange(len(rows))
        rows[at] = (rows[at][0], "ghost")
        reader.positions[number] = rows[-1][0] + 1
        world.polled(reader.process, {number: rows})
        return True

    world.sometime(plant)


@in_world(ALTERED, "any", "never-sent", "lost-acked")
def altered(world: World) -> None:
    def plant(partition: Partition, offset: int, name: str) -> None:
        at = world.rand.randrange(len(name))
        partition.log[offset] = f"{name[:at]}#{name[at + 1 :]}"

    _once_settled(world, plant)


def _damage(case: str, key: bytes = b"k", time: int = 1, size: int = 0, header: bytes | None = None) -> None:
    """The value is that of a load; `size` bytes more or fewer come back, and the rest as it is given."""

    @in_world(DAMAGED, case, "never-sent")
    def damaged(world: World) -> None:
        def plant() -> bool:
            if (found := settled(world)) is None:
                return False
            partition, offset, name = found
            value = checked(name, world.rand.randint(60, 200), b"k", (("h", b"1"),), 1)
            value = value[:size] if size < 0 else value + b"." * size
            headers = () if header == b"" else (("h", header or b"1"),)
            partition.log[offset] = name_of(key, value, headers, time)
            return True

        world.sometime(plant)


_damage("cut short", size=-1)
_damage("cut to its head", size=-30)
_damage("padded", size=17)
_damage("another key", key=b"K")
_damage("another header", header=b"2")
_damage("no header", header=b"")
_damage("another time", time=2)


def _elsewhere(world: World, *, leave: bool, in_doubt: bool = False) -> None:
    if in_doubt:
        with_unknown(world)

    def plant() -> bool:
        if in_doubt:
            of = unknown(world)
            found = None if of is None else (of[0], of[0].log.index(of[1].names[0]), of[1].names[0])
        else:
            found = settled(world)
        if found is None:
            return False
        partition, offset, name = found
        other = world.rand.choice([each for each in world.partitions if each is not partition])
        other.insert(other.high_watermark, [name])
        if not leave:
            partition.remove(offset)
        return True

    world.sometime(plant)


@in_world(ELSEWHERE, "moved", "never-sent")
def moved(world: World) -> None:
    _elsewhere(world, leave=False)


@in_world(ELSEWHERE, "copied", "never-sent")
def copied(world: World) -> None:
    _elsewhere(world, leave=True)


@in_world(ELSEWHERE, "copied, of unknown outcome", "never-sent")
def copied_unknown(world: World) -> None:
    _elsewhere(world, leave=True, in_doubt=True)


def _hole(world: World, size: int) -> None:
    def plant() -> bool:
        partition = world.partitions[anywhere(world)]
        partition.insert(partition.high_watermark, [None] * size)
        return True

    world.sometime(plant)


@in_world(HOLE, "one", "hole")
def hole_of_one(world: World) -> None:
    _hole(world, 1)


@in_world(HOLE, "three", "hole")
def hole_of_three(world: World) -> None:
    _hole(world, 3)


@in_world(HALF, "its beginning, or all but one record", "torn-batch")
def half_a_batch(world: World) -> None:
    def plant() -> bool:
        size = world.rand.randint(2, 5)
        batch = world.send(world.rand.choice(world.producers), anywhere(world), size, Fate.ANSWER_LOST)
        if world.rand.random() < 0.5:
            batch.names = batch.names[: world.rand.randrange(1, size)]
        else:
            batch.names = [name for at, name in enumerate(batch.names) if at != size // 2]
        return True

    world.sometime(plant, world.after_the_faults())


@in_world(NOT_YET, "gone, or overwritten", "final-incomplete", "inconsistent-offsets", "lost-acked")
def read_too_early(world: World) -> None:
    def plant() -> bool:
        partition = world.partitions[anywhere(world)]
        reader = world.rand.choice(world.readers)
        rows = partition.rows(reader.positions[partition.number], 100, len(partition.log))
        if not partition.led or not partition.tail or not rows or rows[-1][0] < partition.high_watermark:
            return False
        world.polled(reader.process, {partition.number: rows})
        reader.positions[partition.number] = rows[-1][0] + 1
        for batch in partition.tail:
            world.give_up(batch)
        world.fail_over(partition)
        return True

    world.sometime(plant)
