"""Mistakes of a group: partitions with two owners, records that it skips, commits that fall, run ahead or are lost."""

from collections.abc import Callable

from planted.anomalies import in_files, in_world
from planted.cluster import Fate, Member, Partition
from planted.plant_logs import anywhere, idempotent
from planted.run_directory import RunDirectory
from planted.world import GROUP, TOPIC, World
from tidelog.chaos.history import ASSIGNED, OK, REVOKED, Processed, Span, Stored

SKIPS = "a group skips an acknowledged record"
SKIPS_UNKNOWN = "a group skips a record of unknown outcome that is in the log"
HIDDEN = "a skip within a poll after a rebalance, hidden by what it says that it has processed"
TWO_OWNERS = "two owners in one generation"
OLD_OWNER = "an owner of an earlier generation processes and commits"
STRANGER = "a commit is accepted from a member that does not own the partition"
COMMITS = "a commit falls, runs ahead, or is not where the next owner begins"
LOST_COMMITS = "commits are refused for the whole run, or lost at its end"


def _owned(world: World) -> tuple[Member, Partition] | None:
    """A drawn partition with its owner, which has read something of it."""
    partition = world.partitions[anywhere(world)]
    owner = world.group.owner(partition.number)
    if owner is None or partition.hidden or owner.positions[partition.number] < 2:
        return None
    return owner, partition


def _once(world: World, plant: Callable[[Member, Partition], bool], start: float | None = None) -> None:
    """Tries it with drawn partitions and their owners, in a run in which no member dies."""
    world.steady_group = True
    world.sometime(lambda: (found := _owned(world)) is not None and plant(*found), start)


def _other(world: World, owner: Member) -> Member:
    return world.rand.choice([each for each in world.group.members if each.alive and each is not owner])


@in_world(SKIPS, "1 to 9", "group-skipped", "group-unprocessed")
def skips(world: World) -> None:
    def plant(owner: Member, partition: Partition) -> bool:
        at = owner.positions[partition.number]
        passed = world.rand.randint(1, 9)
        names = [name for _, name in partition.rows(at, passed)]
        if len(names) < passed or not any(name in world.acked for name in names):
            return False
        owner.positions[partition.number] = at + passed
        return True

    _once(world, plant)


@in_world(SKIPS_UNKNOWN, "a batch", "group-skipped", "group-unprocessed")
def skips_unknown(world: World) -> None:
    world.steady_group = True
    number, producer = anywhere(world), idempotent(world)
    sent = world.after_the_faults()
    batches = []
    world.at(sent, lambda: batches.append(world.send(producer, number, fate=Fate.ANSWER_LOST)))

    def plant() -> bool:
        (batch,) = batches
        owner, partition = world.group.owner(number), world.partitions[number]
        if owner is None or batch.base is None or batch.end > partition.high_watermark:
            return False
        at = owner.positions[number]
        assert at <= batch.base
        if rows := partition.rows(at, batch.base - at):
            world.polled(owner.process, {number: rows}, GROUP)
            world.processed(owner, {number: rows})
        owner.positions[number] = batch.end
        return True

    def hide() -> None:
        world.partitions[number].hidden = True

    def shown() -> bool:
        done = plant()
        world.partitions[number].hidden = not done
        return done

    world.at(sent - 0.001, hide)
    world.sometime(shown, sent + 0.05)


@in_world(HIDDEN, "a record, or several", "group-skipped")
def hidden_skip(world: World) -> None:
    def plant(owner: Member, partition: Partition) -> bool:
        number = partition.number
        rows = world.rows(number, world.group.committed.get(number, 0))
        fresh = [at for at, (offset, _) in enumerate(rows) if at and offset >= owner.positions[number]]
        if len(fresh) < 2:
            return False
        world.group.go_on()
        world.owns(owner, REVOKED, {number})
        world.owns(owner, ASSIGNED, owner.owned)
        skipped = fresh[0]
        world.polled(owner.process, {number: [*rows[:skipped], *rows[skipped + 1 :]]}, GROUP)
        span = Span(TOPIC, number, rows[0][0], rows[-1][0])
        world.write(Processed(world.now, owner.process, GROUP, (span,)))
        owner.positions[number] = rows[-1][0] + 1
        return True

    _once(world, plant)


@in_world(TWO_OWNERS, "any", "group-two-owners")
def two_owners(world: World) -> None:
    def plant(owner: Member, partition: Partition) -> bool:
        other = _other(world, owner)
        world.group.go_on()
        world.owns(owner, ASSIGNED, owner.owned)
        world.owns(other, ASSIGNED, other.owned | {partition.number})
        return True

    _once(world, plant)


@in_world(OLD_OWNER, "any", "group-two-owners")
def old_owner(world: World) -> None:
    """It never learns that its partition has gone to another one."""

    def plant(owner: Member, partition: Partition) -> bool:
        other, number = _other(world, owner), partition.number
        world.group.go_on()
        other.owned = other.owned | {number}
        other.positions[number] = world.group.committed.get(number, 0)
        world.owns(other, ASSIGNED, other.owned)
        return True

    _once(world, plant, world.after_the_faults())


@in_world(STRANGER, "any", "group-two-owners")
def stranger(world: World) -> None:
    def plant(owner: Member, partition: Partition) -> bool:
        known = world.group.acknowledged.get(partition.number)
        if known is None:
            return False
        world.committed(_other(world, owner), {partition.number: known}, world.group.generation, OK)
        return True

    _once(world, plant)


def _commit_at(world: World, by: int, *, ahead: bool) -> None:
    """The owner commits so many records below what it had committed, or behind what the group had processed."""

    def plant(owner: Member, partition: Partition) -> bool:
        number = partition.number
        known, at = world.group.acknowledged.get(number, 0), owner.positions[number]
        if known < by or known != world.group.committed.get(number) or known != at:
            return False
        world.committed(owner, {number: at + by if ahead else known - by}, world.group.generation, OK)
        return True

    _once(world, plant)


@in_world(COMMITS, "falls", "group-commit-fell")
def falls(world: World) -> None:
    _commit_at(world, world.rand.randint(1, 9), ahead=False)


@in_world(COMMITS, "runs ahead", "group-commit-ahead")
def runs_ahead(world: World) -> None:
    _commit_at(world, world.rand.randint(1, 9), ahead=True)


def _moved(world: World, by: int) -> None:
    """The next owner begins so far from what is committed."""

    def plant(owner: Member, partition: Partition) -> bool:
        number = partition.number
        known = world.group.acknowledged.get(number, 0)
        if known + by < 0 or known != world.group.committed.get(number) or known + by > partition.high_watermark:
            return False
        if owner.positions[number] != known or (by > 0 and partition.log[known] not in world.acked):
            return False
        other = _other(world, owner)
        world.group.go_on()
        owner.owned = owner.owned - {number}
        world.owns(owner, REVOKED, {number})
        other.owned = other.owned | {number}
        other.positions[number] = known + by
        world.owns(other, ASSIGNED, other.owned)
        return True

    _once(world, plant)


@in_world(COMMITS, "resumed before it", "group-duplicates")
def resumed_before(world: World) -> None:
    _moved(world, -world.rand.randint(1, 9))


@in_world(COMMITS, "resumed behind it", "group-skipped", "group-unprocessed")
def resumed_behind(world: World) -> None:
    _moved(world, world.rand.randint(1, 3))


@in_world(LOST_COMMITS, "all are refused", "group-commit-lost")
def all_refused(world: World) -> None:
    world.commits_are_refused = True


@in_files(LOST_COMMITS, "lost at the end", "group-commit-lost")
def lost_at_the_end(run: RunDirectory) -> None:
    at = next(at for at, each in enumerate(run.records) if isinstance(each, Stored))
    stored = run.records[at]
    assert isinstance(stored, Stored)
    which = run.world.rand.choice([n for n, each in enumerate(stored.offsets) if each.offset > 0])
    offsets = list(stored.offsets)
    offsets[which] = offsets[which]._replace(offset=run.world.rand.randrange(offsets[which].offset))
    run.records[at] = stored._replace(offsets=tuple(offsets))
