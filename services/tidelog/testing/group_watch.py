"""Watches the groups of a simulated cluster: its coordinators, its consumers and what is stored, after each step.

It sits behind the state machines of both sides and the store, as the observer of the replicas does.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from tidelog.client.member_events import Assign, Effect, Event, Lose, Send
from tidelog.client.membership import Membership
from tidelog.coordinator import effects as fx
from tidelog.coordinator import events as ev
from tidelog.coordinator.election import shard_of
from tidelog.coordinator.group import NEVER_STARTED
from tidelog.coordinator.machine import CoordinatorMachine
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.testing import goals
from tidelog.testing.group_invariants import GroupChecker, Seat
from tidelog.testing.invariants import Violation
from tidelog.testing.meta_tree import Change, Znode
from tidelog.testing.sim_node import SHARDS, World
from tidelog.wire import znodes

RENEWED: Final = "renewed"
"""A topic that is deleted and made anew while groups read it. Offsets of it begin again with each topic id."""

_ZOMBIES: Final = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class GroupWatch:
    def __init__(self, world: World, groups: Sequence[str], reached: Counter[str]) -> None:
        self.groups = groups
        self.checker = GroupChecker()
        self.repeated = self.checker.again
        """Records that a group has processed once more, by group."""
        self.read: dict[str, set[bytes]] = {group: set() for group in groups}
        """Values of `RENEWED` that each group has processed."""
        self._world = world
        self._reached = reached
        self._violation: Violation | None = None
        self._epochs = {znodes.coordinator_epoch_path(shard): shard for shard in range(SHARDS)}
        self._elected: dict[int, int] = {}
        """Shard -> session that has raised its epoch last."""
        self._failed: set[str] = set()
        """Groups whose last attempt has failed."""
        self._awaited: dict[tuple[CoordinatorMachine, str], int] = {}
        """Groups with members that a new coordinator has found -> their generation then."""
        self._others = world.zookeeper.on_commit
        world.zookeeper.on_commit = self._on_commit
        self._expired_before = world.zookeeper.on_expired
        world.zookeeper.on_expired = self._on_expired

    def processed_of(self, group: str) -> Mapping[TopicPartition, int]:
        """Returns the offset after the last record that the group has processed of each partition."""
        return self.checker.processed_of(group)

    def after_step(self) -> None:
        if self._violation is not None:
            raise self._violation

    def _judge(self, check: Callable[[], None]) -> None:
        """What is found in the middle of a step ends the run when the step is over: no code under test can catch it."""
        try:
            check()
        except Violation as error:
            self._violation = self._violation or error

    # -- what applications do ----------------------------------------------------------------------------------------

    def handed_out(self, group: str, consumer: str, tp: TopicPartition, offset: int, value: bytes) -> None:
        seat = Seat(group, consumer)
        if tp.topic != RENEWED:
            self._judge(lambda: self.checker.handed_out(seat, tp, offset))
        else:
            topic_id = bytes.fromhex(value.partition(b"-")[0].decode())
            self._judge(lambda: self.checker.handed_out_in_life(seat, tp, topic_id, offset))

    def processed(
        self, group: str, consumer: str, tp: TopicPartition, offset: int, value: bytes, *, asked: bool
    ) -> None:
        if tp.topic == RENEWED:
            self.read[group].add(value)
            return
        self._judge(lambda: self.checker.processed(Seat(group, consumer), tp, offset, asked=asked))

    # -- the two state machines --------------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        member_step, coordinator_step = Membership.step, CoordinatorMachine.step

        def step(membership: Membership, event: Event, now: float) -> list[Effect]:
            effects = member_step(membership, event, now)
            self._on_member(membership, effects)
            return effects

        def decide(machine: CoordinatorMachine, event: ev.Event, now: float, wall_ms: int) -> list[fx.Effect]:
            self._before(machine, event)
            effects = coordinator_step(machine, event, now, wall_ms)
            self._on_decision(machine, event, effects)
            return effects

        with patch.object(Membership, "step", step), patch.object(CoordinatorMachine, "step", decide):
            yield

    def _on_member(self, membership: Membership, effects: Sequence[Effect]) -> None:
        seat = Seat(membership.member.group_id, membership.member.consumer_id)
        for effect in effects:
            match effect:
                case Send(message) if (answer := message.stopped or message.started) is not None:
                    key = (answer.coordinator_epoch, answer.generation)
                    life = Seat(seat.group, f"{seat.consumer}/{membership.member.incarnation}")
                    self._judge(lambda life=life, key=key: self.checker.obeyed(life, key))  # type: ignore[misc]
                case Assign(anew):
                    key = membership.started or (0, 0)
                    for part in anew:
                        tp = TopicPartition(part.topic, part.partition)
                        if part.topic == RENEWED:
                            self.checker.given_anew(seat, tp)
                            continue
                        self._judge(
                            lambda tp=tp, at=part.offset, key=key: self.checker.given(seat, tp, at, key)  # type: ignore[misc]
                        )
                case Lose(partitions, "its lease has run out"):
                    owners = [self.checker.stage(seat.group, tp)[0] for tp in partitions]
                    self._reached[goals.LEASE_OUT] += seat.consumer in owners

    def _before(self, machine: CoordinatorMachine, event: ev.Event) -> None:
        if isinstance(event, ev.MessageArrived) and (request := event.message.register) is not None:
            group = machine.groups.get(request.group_id)
            known = None if group is None else group.members.get(request.consumer_id)
            if known is not None and known.incarnation == request.incarnation and known.generation != NEVER_STARTED:
                self._reached[goals.RETURNED] += 1

    def _on_decision(self, machine: CoordinatorMachine, event: ev.Event, effects: Sequence[fx.Effect]) -> None:
        if isinstance(event, ev.Loaded):
            for stored in event.groups:
                if stored.head.members:
                    self._awaited[machine, stored.group_id] = stored.head.generation
        for effect in effects:
            match effect:
                case fx.Refused("commit", code):
                    self._reached[goals.ZOMBIE_COMMIT] += code in _ZOMBIES
                case fx.Rebalanced(group_id, failed=True):
                    self._failed.add(group_id)
                case fx.Rebalanced(group_id, failed=False):
                    self._reached[goals.RETRIED] += group_id in self._failed
                    self._failed.discard(group_id)
        self._note_failover(machine)
        self._judge(lambda: check_handlers(machine))

    def _note_failover(self, machine: CoordinatorMachine) -> None:
        for who, generation in list(self._awaited.items()):
            of, group_id = who
            if of is not machine:
                continue
            group = machine.groups.get(group_id)
            if group is None or group.generation != generation or group.attempt is not None:
                del self._awaited[who]
            elif all(m.generation != NEVER_STARTED and m.present for m in group.members.values()):
                del self._awaited[who]
                self._reached[goals.QUIET_FAILOVER] += 1

    # -- the store ---------------------------------------------------------------------------------------------------

    def _on_commit(self, changes: Sequence[Change]) -> None:
        if self._others is not None:
            self._others(changes)
        for path, node in dict(changes).items():  # nobody sees what a transaction has in between
            if path in self._epochs and node is not None:
                self._elected[self._epochs[path]] = self._world.zookeeper.writer
            elif path.startswith(znodes.CONSUMERS + "/"):
                self._judge(lambda path=path, node=node: self._on_stored(path, node))  # type: ignore[misc]

    def _on_stored(self, path: str, node: Znode | None) -> None:
        names = path.removeprefix(znodes.CONSUMERS + "/").split("/")
        group = names[0]
        if group not in self.groups:
            return
        elected, writer = self._elected.get(shard_of(group, SHARDS)), self._world.zookeeper.writer
        if writer != elected:
            raise Violation(f"COORD-10: {path} is written by session {writer:#x}, elected is {elected or 0:#x}")
        match names[1:]:
            case ["offsets", topic, partition] if topic == RENEWED:
                if node is not None:
                    stored = znodes.decode_offset(path, node.data)
                    tp = TopicPartition(topic, int(partition))
                    self.checker.offset_of_life_stored(group, tp, stored.topic_id, stored.offset)
            case [_, topic, *_] if topic == RENEWED:
                pass
            case []:
                if node is not None and node.data:
                    self.checker.generation_stored(group, znodes.decode_head(group, node.data).generation)
            case ["owners", topic, partition]:
                owner = "" if node is None else znodes.decode_owner(path, node.data).consumer
                self.checker.owner_stored(group, TopicPartition(topic, int(partition)), owner)
            case ["offsets", topic, partition]:
                offset = 0 if node is None else znodes.decode_offset(path, node.data).offset
                self.checker.offset_stored(group, TopicPartition(topic, int(partition)), offset)

    def _on_expired(self, session_id: int) -> None:
        """FIND-7, of coordinators."""
        if self._expired_before is not None:
            self._expired_before(session_id)
        for node in self._world.brokers:
            found = node.broker.coordinators if node.running and node.broker is not None else None
            if found is None or node.coordinator_meta is None or node.coordinator_meta.session_id != session_id:
                continue
            for shard, term in found.terms.items():
                if term.acting and self._violation is None:
                    self._violation = Violation(
                        f"FIND-7: {node.name} coordinates shard {shard}, and its session has expired"
                    )


def check_handlers(machine: CoordinatorMachine) -> None:
    """N13: one handler for a group at a time, and one request in the queues."""
    handlers = machine.handlers
    current = [handler.current for handler in handlers if handler.current is not None]
    queued = [group for handler in handlers for group in handler.queue]
    if len(set(current)) < len(current) or len(set(queued)) < len(queued):
        raise Violation(f"N13: handlers work on {current}, in their queues are {queued}")
    for number, handler in enumerate(handlers):
        for group_id in handler.queue:
            group = machine.groups.get(group_id)
            if group is not None and group.current_rebalancer != number:
                raise Violation(f"N13: {group_id} waits for handler {number}, its own is {group.current_rebalancer}")
    busy = {group.group_id for group in machine.groups.values() if group.attempt is not None}
    if not busy <= set(current):
        raise Violation(f"N13: of {sorted(busy)} the attempts run, handlers work on {current}")
