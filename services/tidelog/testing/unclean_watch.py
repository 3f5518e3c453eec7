"""Watches the unclean elections of one topic: which replica a controller chooses, and what its log holds then.

It sits behind the controllers' state machine and the store, as the observer of the replicas does.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from tidelog.client.records import decode_batch
from tidelog.controller import election
from tidelog.controller.effects import StateWrite, Write
from tidelog.controller.events import ReplicaEnd
from tidelog.controller.machine import ControllerMachine
from tidelog.controller.model import Partition, PartitionState
from tidelog.errors import TidelogError
from tidelog.ids import NO_LEADER, BrokerId, TopicPartition
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing import goals
from tidelog.testing.invariants import StoredView, Violation
from tidelog.testing.meta_tree import Change
from tidelog.testing.sim_node import World
from tidelog.testing.views import partition_of, stored_state
from tidelog.wire import znodes
from tidelog.wire.batch import iter_batches

_READ_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Unclean:
    """An unclean election that is stored."""

    at: float
    held: Mapping[int, bytes]
    """Values in the log of the elected replica, by offset."""

    def lacks(self, offset: int, value: bytes) -> bool:
        return self.held.get(offset) != value


class UncleanWatch:
    """Asserts that of the replicas whose ends the controller knows the largest log is chosen, unless an operator has named
    others, and that no replica is left out unasked."""

    def __init__(self, world: World, topic: str, reached: Counter[str]) -> None:
        self.elections: dict[TopicPartition, list[Unclean]] = {}
        self._world = world
        self._topic = topic
        self._reached = reached
        self._violation: Violation | None = None
        self._stored: dict[TopicPartition, StoredView] = {}
        self._others = world.zookeeper.on_commit
        world.zookeeper.on_commit = self._on_commit

    def after_step(self) -> None:
        if self._violation is not None:
            raise self._violation

    def explains(self, tp: TopicPartition, offset: int, value: bytes, since: float = 0.0) -> bool:
        """Returns whether an unclean election at or after `since` has taken a replica that lacked this record."""
        return any(each.at >= since and each.lacks(offset, value) for each in self.elections.get(tp, ()))

    # -- the choice ----------------------------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        machine_step = ControllerMachine.step

        def decide(machine: ControllerMachine, event: Any) -> Any:
            effects = machine_step(machine, event)
            groups = (group for effect in effects if isinstance(effect, Write) for group in effect.groups)
            for group in groups:
                if isinstance(group, StateWrite) and group.tp.topic == self._topic:
                    self._judge(machine, group)
            return effects

        with patch.object(ControllerMachine, "step", decide):
            yield

    def _judge(self, machine: ControllerMachine, write: StateWrite) -> None:
        partition = machine.state.partition(write.tp)
        before, state = None if partition is None else partition.state, write.state
        if partition is None or before is None or not _is_unclean(before, state):
            return
        live = election.alive(partition.replicas, machine.state.brokers, machine._ineligible(partition))
        wishes = machine._elections._wishes.get(partition, [])
        named = wishes[0].candidates if wishes and wishes[0].tried and wishes[0].kind == "unclean" else ()
        pool = [each for each in live if not named or each in named]
        try:
            self._check_choice(machine, partition, BrokerId(state.leader), live, pool)
        except Violation as error:
            self._violation = self._violation or error
        self._reached[goals.UNCLEAN] += 1
        self._reached[goals.NAMED] += bool(named)

    def _check_choice(
        self,
        machine: ControllerMachine,
        partition: Partition,
        chosen: BrokerId,
        live: Sequence[BrokerId],
        pool: Sequence[BrokerId],
    ) -> None:
        tp = partition.tp
        if chosen not in pool:
            raise Violation(f"unclean election: {tp}: {chosen} is chosen from {pool}")
        survey = machine._surveys._surveys.get(partition)
        answers = {} if survey is None else survey.answers
        told: dict[BrokerId, ReplicaEnd] = {}
        for each in live:
            life, end = answers.get(each, (-1, None))
            if len(live) > 1 and life != machine.state.brokers[each].epoch:
                raise Violation(f"unclean election: {tp}: {chosen} is chosen, and {each} was not asked in this life")
            if end is not None and each in pool:
                told[each] = end
        log = self._world.log_of(chosen, tp)
        largest = max(told.values(), default=None)
        if log is not None and largest is not None and (found := (log.last_record_epoch, log.log_end_offset)) < largest:
            raise Violation(
                f"unclean election: {tp}: {chosen} is chosen, its log ends at {found}, others end at {told}"
            )
        self._reached[goals.CHOSEN] += len(set(told.values())) > 1

    # -- the store -----------------------------------------------------------------------------------------------------

    def _on_commit(self, changes: Sequence[Change]) -> None:
        if self._others is not None:
            self._others(changes)
        for path, node in changes:
            tp = partition_of(path)
            if tp is None or tp.topic != self._topic or node is None:
                continue
            topic_node = self._world.zookeeper.find(znodes.topic_path(tp.topic))
            if topic_node is None:
                continue
            before, state = self._stored.get(tp), stored_state(tp.topic, tp.partition, node, topic_node)
            self._stored[tp] = state
            led_anew = before is not None and state.leader >= 0 and state.leader_epoch > before.leader_epoch
            if led_anew and state.recovering:
                log = self._world.log_of(state.leader, tp)
                held = {} if log is None else self._values(state.leader, tp, log)
                self.elections.setdefault(tp, []).append(Unclean(asyncio.get_running_loop().time(), held))

    def _values(self, broker: int, tp: TopicPartition, log: PartitionLog) -> dict[int, bytes]:
        disk = self._world.nodes[f"broker-{broker}"].disk
        disk.observed = True
        try:
            return log_values(tp, log)
        except TidelogError:
            return {}
        finally:
            disk.observed = False


def log_values(tp: TopicPartition, log: PartitionLog) -> dict[int, bytes]:
    """Values of its records by offset."""
    found, at = {}, log.log_start_offset
    while at < log.log_end_offset:
        records = memoryview(log.read(at, _READ_BYTES, log.log_end_offset))
        for position, header in iter_batches(records):
            for record in decode_batch(tp, records[position : position + header.size_bytes], header):
                found[record.offset] = record.value or b""
            at = header.end_offset
    return found


def _is_unclean(before: PartitionState, state: PartitionState) -> bool:
    """A leader from outside the ISR; not the one of the last such election, which has come back as it was."""
    if not state.recovering or state.leader == NO_LEADER or state.leader_epoch == before.leader_epoch:
        return False
    return not (before.recovering and state.leader in {each.broker_id for each in before.isr})
