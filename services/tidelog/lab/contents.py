"""Counts of what the logs of leaders hold. They are made again and again, so only new records are read."""

from dataclasses import dataclass, field

from tidelog.ids import NO_LEADER, TopicPartition
from tidelog.lab.peek import peek
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.sim_node import World


@dataclass(slots=True)
class _Partition:
    log: PartitionLog | None = None
    cuts: int = -1
    read_to: int = 0
    held: set[int] = field(default_factory=set)
    """Numbers of records."""
    newest: dict[str, int] = field(default_factory=dict)
    """The highest number of each producer, by its name."""
    duplicated: int = 0
    reordered: int = 0
    acked: list[tuple[int, int]] = field(default_factory=list)
    """Number and offset of each acknowledged record."""
    checked: int = 0
    """The number of acknowledged records that were looked for in this log."""
    lost: int = 0


class Contents:
    """`acked` is told of each acknowledgement that has an offset; `look` counts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._partitions: dict[TopicPartition, _Partition] = {}

    def acked(self, tp: TopicPartition, number: int, offset: int) -> None:
        self._partitions.setdefault(tp, _Partition()).acked.append((number, offset))

    def look(self, leaders: dict[TopicPartition, int]) -> tuple[int, int, int]:
        """Returns how many records are lost, duplicated and reordered. Of a partition without a leader the last look counts.

        leaders: the leader of each partition that there is, or -1.
        """
        for gone in self._partitions.keys() - leaders.keys():
            del self._partitions[gone]
        for tp, leader in leaders.items():
            log = self._world.log_of(leader, tp) if leader != NO_LEADER else None
            if log is not None:
                self._read(self._partitions.setdefault(tp, _Partition()), tp, leader, log)
        found = self._partitions.values()
        return sum(p.lost for p in found), sum(p.duplicated for p in found), sum(p.reordered for p in found)

    def _read(self, it: _Partition, tp: TopicPartition, leader: int, log: PartitionLog) -> None:
        if log is not it.log or log.cuts != it.cuts:
            it.log, it.cuts, it.read_to = log, log.cuts, log.log_start_offset
            it.held, it.newest = set(), {}
            it.duplicated = it.reordered = it.checked = it.lost = 0
        if it.read_to < log.log_end_offset:
            for record in peek(self._world, tp, leader, it.read_to) or ():
                producer, number = _producer_and_number(record.value)
                it.duplicated += number in it.held
                it.held.add(number)
                it.reordered += number < it.newest.get(producer, 0)
                it.newest[producer] = max(number, it.newest.get(producer, 0))
            it.read_to = log.log_end_offset
        for number, offset in it.acked[it.checked :]:
            it.lost += number not in it.held and offset >= log.log_start_offset
        it.checked = len(it.acked)


def _producer_and_number(value: bytes | None) -> tuple[str, int]:
    """Values of the lab's producers are their name, and a number that counts the records of all of them."""
    producer, _, number = (value or b"").decode().rpartition("-")
    return producer, int(number)
