"""The checker of the invariants: of each one picture of the cluster that holds it, and the nearest one that does not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from helpers.requirements import requirement
from tidelog.ids import TopicPartition
from tidelog.testing.invariants import BatchView, Checker, LogView, PartitionView, ReplicaView, StoredView, Violation

TP = TopicPartition("events", 0)
Isr = frozenset[tuple[int, int]]


def isr(*brokers: int) -> Isr:
    """Each in its first life."""
    return frozenset((i, i * 100 + 1) for i in brokers)


def batch(base: int, epoch: int, crc: int | None = None, count: int = 1) -> BatchView:
    """`crc` stands for the content: by default it is what the leader of that epoch wrote there."""
    return BatchView(base, base + count, epoch, base * 1000 + epoch if crc is None else crc)


def written(*epochs: int) -> list[BatchView]:
    """One record in each of these epochs, from offset 0."""
    return [batch(base, epoch) for base, epoch in enumerate(epochs)]


@dataclass
class Copy:
    """One replica, as a test writes it down."""

    broker: int
    log: Sequence[BatchView] = ()
    hw: int = 0
    leads: bool = False
    epoch: int = 1
    life: int = 1
    maximal: Isr = field(default_factory=lambda: isr(1, 2, 3))
    starts: Sequence[tuple[int, int]] | None = None
    end: int | None = None

    def view(self) -> ReplicaView:
        log = LogView()
        log.extend(self.log)
        starts: list[tuple[int, int]] = []
        for each in self.log:
            if not starts or starts[-1][0] != each.leader_epoch:
                starts.append((each.leader_epoch, each.base_offset))
        end = self.log[-1].end_offset if self.log else 0
        if self.leads and starts and starts[-1][0] < self.epoch:
            starts.append((self.epoch, end))
        return ReplicaView(
            broker_id=self.broker,
            broker_epoch=self.broker * 100 + self.life,
            leads=self.leads,
            leader_epoch=self.epoch,
            high_watermark=self.hw,
            log_end_offset=end if self.end is None else self.end,
            log=log,
            maximal_isr=self.maximal if self.leads else frozenset(),
            epoch_starts=starts if self.starts is None else self.starts,
        )


def stored(
    leader: int = 1, epoch: int = 1, members: Isr | None = None, version: int = 1, controller: int = 1
) -> StoredView:
    return StoredView(leader, epoch, isr(1, 2, 3) if members is None else members, (1, 2, 3), version, controller)


def see(checker: Checker, *copies: Copy, znode: StoredView | None = None) -> None:
    checker.check(PartitionView(TP, stored() if znode is None else znode, {c.broker: c.view() for c in copies}))


Story = Callable[[Checker], None]


def leader(log: Sequence[BatchView], hw: int, broker: int = 1, epoch: int = 1, maximal: Isr | None = None) -> Copy:
    return Copy(broker, log, hw, leads=True, epoch=epoch, maximal=isr(1, 2, 3) if maximal is None else maximal)


def i1_holds(c: Checker) -> None:
    see(c, leader(written(1, 1, 1), 2), Copy(2, written(1, 1)), Copy(3, written(1, 1, 1)))
    # In a life that the ISR does not name it may lack everything, and a member that is down is not looked at.
    see(c, leader(written(1, 1, 1), 3), Copy(2, [], life=2, epoch=1))


def i1_broken(c: Checker) -> None:
    see(c, leader(written(1, 1, 1), 3), Copy(2, written(1, 1)), Copy(3, written(1, 1, 1)))


def i1_broken_by_other_content(c: Checker) -> None:
    see(c, leader(written(1, 1), 0), Copy(2, written(1, 1)))
    see(
        c,
        leader([batch(0, 1), batch(1, 3)], 2, epoch=3),
        Copy(2, written(1, 1), epoch=3),
        znode=stored(epoch=3),
    )


def i2_holds(c: Checker) -> None:
    see(c, leader(written(1, 1), 1), Copy(2, written(1, 1)), Copy(3, written(1)))
    # What was above every high watermark may go with its leader.
    see(c, leader(written(1), 1, broker=3, epoch=2), znode=stored(3, 2, isr(3)))


def i2_broken(c: Checker) -> None:
    see(c, leader(written(1, 1), 2), Copy(2, written(1, 1)), znode=stored(members=isr(1, 2)))
    see(c, leader(written(1), 1, broker=3, epoch=2), znode=stored(3, 2, isr(3)))


def i3_holds(c: Checker) -> None:
    see(c, znode=stored(leader=-1, members=isr(2)))
    see(c, znode=stored(leader=2, members=isr(2)))


def i3_broken_leader_outside(c: Checker) -> None:
    see(c, znode=stored(leader=1, members=isr(2, 3)))


def i3_broken_beyond_replicas(c: Checker) -> None:
    see(c, znode=stored(leader=1, members=isr(1, 4)))


def i3_broken_empty(c: Checker) -> None:
    see(c, znode=stored(leader=-1, members=frozenset()))


def i3_broken_one_broker_in_two_lives(c: Checker) -> None:
    see(c, znode=stored(members=frozenset({(1, 101), (1, 102)})))


def i4_holds(c: Checker) -> None:
    see(c, leader([], 0, maximal=isr(1, 2, 3)), znode=stored(members=isr(1, 2)))
    # A leader of before is not asked: whoever leads now counts.
    see(c, leader([], 0, maximal=isr(1)), znode=stored(leader=2, epoch=2))


def i4_broken(c: Checker) -> None:
    see(c, leader([], 0, maximal=isr(1, 2)), znode=stored(members=isr(1, 2, 3)))


def i4_broken_by_another_life(c: Checker) -> None:
    see(c, leader([], 0, maximal=isr(1, 2)), znode=stored(members=frozenset({(1, 101), (2, 202)})))


def i5_holds(c: Checker) -> None:
    # Other records at the same offset in another epoch are no contradiction as long as they are not committed.
    see(c, leader(written(1, 1), 1), Copy(2, [batch(0, 1), batch(1, 2)]))


def i5_broken_same_epoch_other_content(c: Checker) -> None:
    see(c, leader(written(1, 1), 1), Copy(2, [batch(0, 1), batch(1, 1, crc=7)]))


def i5_broken_other_past(c: Checker) -> None:
    """The batch at offset 1 is the same, and what lies before it is not."""
    see(
        c,
        leader([batch(0, 1), batch(1, 3)], 0, epoch=3),
        Copy(2, [batch(0, 2), batch(1, 3)], epoch=3),
        znode=stored(epoch=3),
    )


def i5_broken_committed_twice(c: Checker) -> None:
    see(c, Copy(2, [batch(0, 1)], hw=1))
    see(c, Copy(3, [batch(0, 2)], hw=1, epoch=2))


def i5_broken_after_it_was_cut(c: Checker) -> None:
    """No copy holds the first one any more; it was written in this epoch all the same."""
    see(c, Copy(2, written(1, 1)))
    see(c, Copy(2, [batch(0, 1), batch(1, 1, crc=9)]))


def i6_holds(c: Checker) -> None:
    see(c, Copy(1, written(1, 1), hw=2))


def i6_broken(c: Checker) -> None:
    see(c, Copy(1, written(1, 1), hw=3))


def i6_broken_negative(c: Checker) -> None:
    see(c, Copy(1, written(1), hw=-1))


def i7_holds(c: Checker) -> None:
    see(c, Copy(1, written(1, 2, 2, 4), epoch=4), znode=stored(epoch=4, version=5))
    see(c, Copy(1, written(1, 2, 2, 4), epoch=4), znode=stored(epoch=4, version=5))
    see(c, Copy(1, written(1, 2, 2, 4), epoch=3, life=2), znode=stored(epoch=5, version=6))  # another life begins anew


def i7_broken_leader_epoch(c: Checker) -> None:
    see(c, znode=stored(epoch=4))
    see(c, znode=stored(epoch=3, version=2))


def i7_broken_version(c: Checker) -> None:
    see(c, znode=stored(version=4))
    see(c, znode=stored(version=3))


def i7_broken_in_one_life(c: Checker) -> None:
    see(c, Copy(1, epoch=4))
    see(c, Copy(1, epoch=3))


def i7_broken_hole(c: Checker) -> None:
    see(c, Copy(1, [batch(0, 1), batch(2, 1)]))


def i7_broken_epoch_falls(c: Checker) -> None:
    see(c, Copy(1, [batch(0, 2), batch(1, 1)], starts=[(2, 0)]))


def i7_broken_history(c: Checker) -> None:
    see(c, Copy(1, written(1, 2), starts=[(1, 0)]))


def i7_broken_history_order(c: Checker) -> None:
    see(c, Copy(1, written(1, 2), starts=[(2, 0), (1, 1)]))


def i7_broken_history_offsets(c: Checker) -> None:
    see(c, Copy(1, [], starts=[(1, 5), (2, 4)]))


def i8_holds(c: Checker) -> None:
    see(c, leader([], 0), Copy(2, leads=True, epoch=2), znode=stored(2, 2))
    see(c, leader([], 0, epoch=3), Copy(2, leads=True, epoch=2), znode=stored(1, 3, version=2))


def i8_broken_at_once(c: Checker) -> None:
    see(c, leader([], 0), leader([], 0, broker=2))


def i8_broken_one_after_the_other(c: Checker) -> None:
    see(c, leader([], 0))
    see(c, leader([], 0, broker=2))


def i12_holds(c: Checker) -> None:
    see(c, znode=stored(controller=3))
    see(c, znode=stored(controller=4, version=2))


def i12_broken(c: Checker) -> None:
    see(c, znode=stored(controller=4))
    see(c, znode=stored(controller=3, version=2))


STORIES = {name: found for name, found in globals().items() if name[0] == "i" and "_" in name and name[1].isdigit()}
HOLDING = {name: story for name, story in STORIES.items() if name.endswith("_holds")}
BROKEN = {name: story for name, story in STORIES.items() if "_broken" in name}


@pytest.mark.parametrize("story", HOLDING.values(), ids=HOLDING.keys())
def test_what_holds_is_let_pass(story: Story) -> None:
    story(Checker())


@requirement("The leader is in the ISR and the ISR is among the replicas")
@requirement("ISR members agree below the HW of a presumed leader")
@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("Every ISR member reaches the high watermark of the leader")
@requirement("A committed record never disappears or changes")
@requirement("Epochs never decrease and one epoch has one leader")
@requirement("The exposed high watermark never moves back")
@pytest.mark.parametrize(("name", "story"), BROKEN.items(), ids=BROKEN.keys())
def test_what_is_broken_is_named_by_its_number(name: str, story: Story) -> None:
    with pytest.raises(Violation) as found:
        story(Checker())
    number = name.partition("_")[0].upper()
    assert str(found.value).startswith(f"{number}: "), found.value
    assert "events-0" in str(found.value)


def test_every_invariant_of_the_checker_is_here_in_both_ways() -> None:
    numbers = {f"i{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 12)}
    assert {name.partition("_")[0] for name in HOLDING} == numbers
    assert {name.partition("_")[0] for name in BROKEN} == numbers


def test_a_log_that_grows_is_looked_at_where_it_has_grown() -> None:
    """What was checked is not checked again, and what comes after it is."""
    checker, copy = Checker(), Copy(1, written(1, 1)).view()
    for _ in range(2):
        checker.check(PartitionView(TP, None, {1: copy}))
    assert copy.log.checked == 2
    copy.log.extend([batch(2, 1, crc=5)])
    checker.check(PartitionView(TP, None, {1: copy}))
    other = Copy(2, [*written(1, 1), batch(2, 1, crc=6)]).view()
    with pytest.raises(Violation, match=r"^I5: "):
        checker.check(PartitionView(TP, None, {1: copy, 2: other}))


def test_partitions_are_looked_at_one_by_one() -> None:
    checker = Checker()
    see(checker, Copy(2, written(1, 1)))
    other = PartitionView(TopicPartition("events", 1), None, {2: Copy(2, [batch(0, 1, crc=3)]).view()})
    checker.check(other)


def unclean(leader: int, epoch: int) -> StoredView:
    return replace(stored(leader, epoch, isr(leader)), recovering=True)


@requirement("The exposed high watermark never moves back")
def test_i6_a_recorded_unclean_election_takes_back_what_its_leader_lacks_and_no_more() -> None:
    c = Checker()
    see(c, leader(written(1, 1), 2), Copy(2, written(1, 1)), znode=stored(members=isr(1, 2)))
    see(c, leader(written(1), 1, broker=3, epoch=2, maximal=isr(3)), znode=unclean(3, 2))
    assert c.unclean_elections == 1
    # It has reported back; an old member that was not told yet shows what it had.
    after = stored(3, 2, isr(3), version=2)
    told = leader([batch(0, 1), batch(1, 2)], 2, broker=3, epoch=2, maximal=isr(3))
    see(c, told, Copy(2, written(1, 1), hw=2, epoch=1), znode=after)
    # What is committed since then may not be lost again.
    with pytest.raises(Violation, match="I2"):
        see(c, leader(written(1), 1, broker=2, epoch=3, maximal=isr(2)), znode=stored(2, 3, isr(2), version=3))
