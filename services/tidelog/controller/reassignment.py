"""Moving replicas to other brokers (B7, F-11, KIP-455).

A plan is one multi over the znodes of its topics: from then on each of its partitions has its old replicas and its targets,
and the targets fetch like any follower. A partition ends its move in one multi too, with a state whose ISR is within the
targets: nobody ever finds the one without the other, so a removed replica cannot come back in between (HOLE-32). What is
stored is all that there is to know, and a new controller goes on from it, whatever the one before it was doing.

The ISR does the waiting: its leader asks for each target by AlterIsr, and a move ends when all of them are in (OPEN-23).
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from tidelog.controller.effects import (
    Outcome,
    PartitionsWrite,
    PlacementWrite,
    ReassignmentWrite,
    Reply,
    StateWrite,
)
from tidelog.controller.events import ReassignmentRequested
from tidelog.controller.growth import ForeignAssignment
from tidelog.controller.model import ClusterState, IsrCause, Partition, PartitionState, Topic
from tidelog.controller.operations import can_be_ended, examined_path
from tidelog.controller.outbox import Outbox
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_LEADER, BrokerId, TopicPartition
from tidelog.names import validate_topic_name
from tidelog.wire import messages as m
from tidelog.wire import znodes
from tidelog.wire.znodes import Move, StoredPlacement

REASSIGNED: Final = "reassigned"
"""The cause of what is written to end a move."""

ENDS_MAX: Final = 100
"""Partitions of one topic whose moves end in one multi, as long as their states have room in it beside the topic's znode."""

TOO_LARGE: Final = "the plan is too large for one write: make several of it"

DRAINED: Final = "which brokers are being drained"
"""The content of the placement, in messages."""

NO_THROTTLE: Final = -1

Assigned = tuple[tuple[BrokerId, ...], Move | None]
"""All that have a copy of a partition, and its move."""


def ended(partition: Partition, ineligible: Collection[BrokerId], controller_epoch: int) -> PartitionState | None:
    """The state with which its move ends; None while it must go on.

    A move ends when every target is in the ISR. One that was cancelled ends sooner: when what goes can be spared, which is
    when the ISR stays as it is, or has its minimum without them. The leader epoch grows in any case: by it a replica that was
    removed tells this order from one that it had before (HOLE-09).
    """
    move, state = partition.move, partition.state
    if move is None or state is None or state.recovering:
        return None
    staying = tuple(member for member in state.isr if member.broker_id in move.target)
    led = state.leader != NO_LEADER
    if move.target == move.old:
        if len(staying) < len(state.isr) and (not led or len(staying) < max(1, partition.min_isr)):
            return None
    elif not led or len(staying) < len(move.target):
        return None
    return PartitionState(
        leader=_leader(move, state, staying, ineligible) if led else NO_LEADER,
        leader_epoch=state.leader_epoch + 1,
        isr=staying,
        controller_epoch=controller_epoch,
        partition_epoch=state.partition_epoch + 1,
    )


def _leader(
    move: Move, state: PartitionState, staying: tuple[m.IsrMember, ...], ineligible: Collection[BrokerId]
) -> BrokerId:
    """Who leads stays, unless it goes or the plan names another preferred leader: followers start anew in any case."""
    members = {member.broker_id for member in staying}
    candidates = [each for each in move.target if each in members]
    if state.leader in members and move.target[0] == move.old[0]:
        candidates.insert(0, state.leader)
    return next((each for each in candidates if each not in ineligible), candidates[0])


class ReassignmentDesk:
    """Works on partitions through the machine's own rules: `settle` and `confirm` one, or `unblock` what was not written."""

    def __init__(
        self,
        state: ClusterState,
        out: Outbox,
        ineligible: Callable[[Partition], Collection[BrokerId]],
        is_deleting: Callable[[str], bool],
        *,
        settle: Callable[[Partition], None],
        confirm: Callable[[Partition, PartitionState], None],
        unblock: Callable[[Partition], None],
        done: Callable[[ReassignmentRequested, ErrorCode, str], None],
    ) -> None:
        """`done`: called with what became of what was not asked for as a plan."""
        self._done = done
        self._state = state
        self._out = out
        self._ineligible = ineligible
        self._is_deleting = is_deleting
        self._settle = settle
        self._confirm = confirm
        self._unblock = unblock
        self._asked: dict[str, ReassignmentRequested] = {}
        """The plans that are being written, by the znode that tells what became of them."""
        self._candidates: dict[Partition, None] = {}
        """Moves that may have come to their end."""
        self._ends_max: dict[str, int] = {}
        """Of topics for which ENDS_MAX was too large."""
        self._next_tick: set[str] = set()
        """Topics whose ends are tried again then."""

    # the plan

    def request(self, event: ReassignmentRequested) -> None:
        """None of the znodes that it may change is being written."""
        try:
            names_none = not any(t.partitions or t.cancelled for t in event.request.topics)
            if names_none and not (event.made_here or event.changes_placement):
                raise TidelogError("topics name no partition", ErrorCode.INVALID_REQUEST)
            plan = self.checked(event.request)
            placement = self._placement(event)
            throttled = placement is not None and (placement.leader_throttle or placement.follower_throttle)
            if throttled and not (plan or self._state.moving or event.made_here):
                raise TidelogError(
                    "leader_throttle, follower_throttle: nothing is being moved", ErrorCode.INVALID_REQUEST
                )
        except TidelogError as error:
            self._answer(event, error.code, error.message)
            return
        if event.request.validate_only or not (plan or placement):
            self._answer(event, ErrorCode.NONE, "")
            return
        topics = {name: self._state.topics[name] for name in plan}
        writes = tuple(_assignment(topic, plan[name]) for name, topic in topics.items())
        if not can_be_ended(ReassignmentWrite(writes)):
            self._answer(event, ErrorCode.INVALID_REQUEST, TOO_LARGE)
            return
        for topic in topics.values():
            topic.being_written = True
        write = ReassignmentWrite(writes, placement=None if placement is None else self._written(placement))
        self._asked[examined_path(write)] = event
        self._out.write(write)

    def _placement(self, event: ReassignmentRequested) -> StoredPlacement | None:
        """What changes of it; None: nothing."""
        if event.changes_placement:
            self._state.check_read(znodes.PLACEMENT, DRAINED)
        now, request = self._state.placement, event.request
        wanted = StoredPlacement(
            tuple(sorted({*now.draining, *event.drains} - event.undrains)),
            _throttle("leader_throttle", request.leader_throttle, now.leader_throttle),
            _throttle("follower_throttle", request.follower_throttle, now.follower_throttle),
            now.planning if event.planning is None else event.planning,
        )
        return None if wanted == now else wanted

    def _written(self, placement: StoredPlacement) -> PlacementWrite:
        self._state.placement_being_written = True
        return PlacementWrite(placement, self._state.placement_version)

    def checked(self, request: m.AlterPartitionReassignmentsRequest) -> dict[str, dict[int, Assigned]]:
        """What changes, by topic and partition. TidelogError: the whole plan is refused, with the field and the reason."""
        wanted: list[tuple[TopicPartition, tuple[int, ...] | None]] = []
        for topic in request.topics:
            wanted += [(TopicPartition(topic.topic, each.partition), each.replicas) for each in topic.partitions]
            wanted += [(TopicPartition(topic.topic, each), None) for each in topic.cancelled]
        for tp, times in Counter(tp for tp, _ in wanted).most_common(1):
            if times > 1:
                raise TidelogError(f"topics name {tp} more than once", ErrorCode.INVALID_REQUEST)
        plan: dict[str, dict[int, Assigned]] = {}
        for tp, replicas in wanted:
            partition = self._find(tp)
            if replicas is None:
                assigned = _back(partition)
            else:
                assigned = self._moved(partition, tuple(map(BrokerId, replicas)), replace=request.replace)
            if assigned is not None:
                plan.setdefault(tp.topic, {})[tp.partition] = assigned
        return plan

    def _find(self, tp: TopicPartition) -> Partition:
        topic = self._state.topics.get(tp.topic)
        if topic is None:
            validate_topic_name(tp.topic)
            raise TidelogError(f"topic {tp.topic!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.deleting or self._is_deleting(tp.topic):
            raise TidelogError(f"topic {tp.topic!r} is being deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = self._state.partition(tp)
        if partition is None:
            raise TidelogError(
                f"topic {tp.topic!r} has no partition {tp.partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return partition

    def _moved(self, partition: Partition, target: tuple[BrokerId, ...], *, replace: bool) -> Assigned | None:
        """None: it is there already, or on its way."""
        old = partition.replicas if partition.move is None else partition.move.old
        self._check_row(partition.tp, old, target)
        if target == partition.target:
            return None
        if partition.move is not None and not replace:
            raise TidelogError(
                f"{partition.tp} is being moved to {list(partition.move.target)} already, and the plan says {list(target)}",
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
            )
        # Nobody leaves before the end: a copy that an earlier plan has begun may be in the ISR by now.
        return _targets_first(target, partition.replicas), Move(old, target)

    def _check_row(self, tp: TopicPartition, old: Collection[BrokerId], target: tuple[BrokerId, ...]) -> None:
        problem = ""
        # A dead broker that has a copy may stay: the move ends when it is back in sync.
        coming = [each for each in target if each not in old]
        dead = [each for each in coming if each not in self._state.brokers]
        draining = [each for each in coming if each in self._state.barred]
        if not target:
            problem = "are empty"
        elif len(set(target)) != len(target):
            problem = f"{list(target)} name a broker twice"
        elif dead:
            problem = f"{list(target)} name brokers {dead}, which are not alive"
        elif draining:
            problem = f"{list(target)} name brokers {draining}, which are being drained"
        if problem:
            raise TidelogError(f"replicas of {tp} {problem}", ErrorCode.INVALID_REPLICA_ASSIGNMENT)

    def _answer(self, event: ReassignmentRequested, code: ErrorCode, message: str) -> None:
        if event.made_here:
            self._done(event, code, message)
            return
        response = m.AlterPartitionReassignmentsResponse(error_code=code, error_message=message)
        self._out.reply(Reply(event.token, response))

    # the end of a move

    def consider(self, partition: Partition) -> None:
        """Something about it has changed."""
        if partition.move is not None:
            self._candidates[partition] = None

    def tick(self) -> None:
        """What no event tells: a setting has changed that a move waited for, or a throttle has nothing left to hold up."""
        self._next_tick.clear()
        for partition in self._state.moving.values():
            self.consider(partition)
        now = self._state.placement
        throttled = bool(now.leader_throttle or now.follower_throttle) and not now.planning
        if throttled and not self._state.moving and not self._state.placement_being_written:
            self._out.because(REASSIGNED)
            self._out.write(ReassignmentWrite((), placement=self._written(StoredPlacement(now.draining))))

    def end_moves(self) -> None:
        """Writes the end of every move that has come to it, where the topic's znode is free."""
        due: dict[str, dict[Partition, PartitionState | None]] = {}
        for partition in list(self._candidates):
            topic = partition.topic
            # Whether it is deleted is not known before the mark is stored.
            marked = self._is_deleting(topic.name) and not topic.deleting
            if topic.being_written or partition.writing is not None or marked or topic.name in self._next_tick:
                continue  # asked again when that is over
            chosen = due.setdefault(topic.name, {})
            if len(chosen) >= self._ends_max.get(topic.name, ENDS_MAX):
                continue
            del self._candidates[partition]
            if partition.move is None or topic.deleting:
                continue
            state = self._ended(partition)
            if state is not None or _never_led(partition):
                chosen[partition] = state
        for name, chosen in due.items():
            if chosen:
                self._end(self._state.topics[name], chosen)

    def _ended(self, partition: Partition) -> PartitionState | None:
        return ended(partition, self._ineligible(partition), self._out.controller_epoch)

    def _end(self, topic: Topic, chosen: dict[Partition, PartitionState | None]) -> None:
        self._out.because(REASSIGNED)
        states = []
        for partition, state in chosen.items():
            if state is not None:
                partition.writing, partition.isr_cause = state, IsrCause.REASSIGNMENT
                states.append(StateWrite(partition.tp, state))
        topic.being_written = True
        assigned: dict[int, Assigned] = {each.tp.partition: (each.target, None) for each in chosen}
        elections = sum(each.state.leader != NO_LEADER for each in states)
        write = ReassignmentWrite((_assignment(topic, assigned),), tuple(states))
        self._out.write_reassignment(write, elections=elections)

    # what became of a write

    def stored(self, write: ReassignmentWrite) -> None:
        """The assignments are in force, and the states with them."""
        self._out.because(REASSIGNED)
        if write.placement is not None:
            self._state.placement_being_written = False
            self._state.placement_version = write.placement.version + 1
            self._state.placement = write.placement.placement
            self._out.brokers_changed()
        settled = []
        for each in write.topics:
            topic = self._topic_of(each)
            if topic is None:
                continue
            topic.version, topic.being_written = each.version, False
            if not topic.deleting:
                settled += self._adopt(topic, each)
        for group in write.states:
            partition = self._state.partition(group.tp)
            assert partition is not None and partition.writing is not None, group
            self._confirm(partition, group.state)
        for partition in settled:
            if partition.state is not None:
                self._out.publish(partition)
            self._settle(partition)
        self._over(write, ErrorCode.NONE, "")

    def _adopt(self, topic: Topic, write: PartitionsWrite) -> list[Partition]:
        """Those that have other replicas or another move now, and no state that goes with that."""
        changed = []
        for partition, replicas in zip(topic.partitions, write.replicas, strict=True):
            move = write.moves.get(partition.tp.partition)
            if (replicas, move) == (partition.replicas, partition.move):
                continue
            removed = [each for each in partition.replicas if each not in replicas]
            self._state.assign(partition, replicas, move)
            self._out.stop(partition, removed)
            if partition.writing is None or move is not None:
                changed.append(partition)
        return changed

    def not_stored(self, write: ReassignmentWrite, code: ErrorCode, message: str) -> None:
        """Everything is as it was."""
        if write.placement is not None:
            self._state.placement_being_written = False
        for each in write.topics:
            topic = self._topic_of(each)
            if topic is not None:
                topic.being_written = False
        for group in write.states:
            partition = self._state.partition(group.tp)
            assert partition is not None, group
            self._unblock(partition)
        self._over(write, code, message)

    def examined(self, write: ReassignmentWrite, found: tuple[bytes, int] | None) -> None:
        """After an unknown outcome: what is stored in one znode tells of all. BadZnode, ForeignAssignment: resign."""
        if not write.topics:
            self._examined_placement(write, found)
            return
        name = write.topics[0].name
        topic = self._topic_of(write.topics[0])
        if topic is None or found is None:
            # Deleted meanwhile, and it cannot tell of the others any more: what is stored is read anew.
            raise ForeignAssignment(f"topic {name!r} is gone, and with it what became of a reassignment")
        stored = znodes.decode_topic(name, found[0])
        before = znodes.TopicAssignment(topic.topic_id, tuple(each.replicas for each in topic.partitions), topic.moves)
        if stored == write.topics[0].stored() and found[1] == write.topics[0].version:
            self.stored(write)
        elif stored == before and found[1] == topic.version:
            message = "the plan could not be stored, nothing was changed"
            self.not_stored(write, ErrorCode.REQUEST_TIMED_OUT, message)
        else:
            raise ForeignAssignment(f"somebody else has changed the partitions of topic {name!r}")

    def _examined_placement(self, write: ReassignmentWrite, found: tuple[bytes, int] | None) -> None:
        assert write.placement is not None
        version = znodes.NO_VERSION if found is None else found[1]
        if version == write.placement.version:
            self.not_stored(write, ErrorCode.REQUEST_TIMED_OUT, "the plan could not be stored, nothing was changed")
        elif found is not None and znodes.decode_placement(found[0]) == write.placement.placement:
            self.stored(write)
        else:
            raise ForeignAssignment(f"somebody else has changed {znodes.PLACEMENT}")

    def refused(self, write: ReassignmentWrite, outcome: Outcome) -> None:
        """Not applied: it is too large for one multi, or one of its topics has just been deleted. ForeignAssignment: there is no
        such reason, so what is stored is not what this controller believes."""
        gone = [each.name for each in write.topics if self._is_gone(each)]
        if write.states and outcome is Outcome.REFUSED:
            (topic,) = write.topics
            self._ends_max[topic.name] = max(1, len(write.states) // 2)
            self._next_tick.add(topic.name)
            self.not_stored(write, ErrorCode.INVALID_REQUEST, "")
        elif write.states or (outcome is Outcome.CONFLICT and not gone):
            raise ForeignAssignment(
                f"somebody else has changed {examined_path(write)} or what was to be written with it"
            )
        elif gone:
            self.not_stored(write, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {gone[0]!r} is being deleted")
        else:
            self.not_stored(write, ErrorCode.INVALID_REQUEST, TOO_LARGE)

    def _is_gone(self, write: PartitionsWrite) -> bool:
        topic = self._topic_of(write)
        return topic is None or topic.deleting or self._is_deleting(write.name)

    def validate(self) -> None:
        """Asserts that no move is forgotten at its end."""
        for partition in self._state.moving.values():
            busy = partition.topic.being_written or partition.topic.deleting or partition.writing is not None
            if not busy and partition not in self._candidates:
                assert self._ended(partition) is None, f"{partition.tp}: {partition.move} has come to its end"

    def _over(self, write: ReassignmentWrite, code: ErrorCode, message: str) -> None:
        event = self._asked.pop(examined_path(write), None)
        if event is not None:
            self._answer(event, code, message)

    def _topic_of(self, write: PartitionsWrite) -> Topic | None:
        topic = self._state.topics.get(write.name)
        return topic if topic is not None and topic.topic_id == write.topic_id else None


def _throttle(field: str, wanted: int, now: int) -> int:
    """0 leaves it as it is, NO_THROTTLE takes it away."""
    if wanted < NO_THROTTLE:
        raise TidelogError(f"{field} {wanted} is below {NO_THROTTLE}, which is no limit", ErrorCode.INVALID_REQUEST)
    return now if wanted == 0 else max(wanted, 0)


def _assignment(topic: Topic, changed: Mapping[int, Assigned]) -> PartitionsWrite:
    replicas = [each.replicas for each in topic.partitions]
    moves = topic.moves
    for index, (row, move) in changed.items():
        replicas[index] = row
        if move is None:
            del moves[index]
        else:
            moves[index] = move
    return PartitionsWrite(topic.name, topic.topic_id, tuple(replicas), topic.version + 1, moves)


def _targets_first(target: tuple[BrokerId, ...], replicas: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """Where the leader dies one that stays is chosen before one that goes."""
    return target + tuple(each for each in replicas if each not in target)


def _back(partition: Partition) -> Assigned | None:
    """None: it goes back already."""
    move = partition.move
    if move is None:
        raise TidelogError(f"{partition.tp} is not being moved", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if move.target == move.old:
        return None
    return _targets_first(move.old, partition.replicas), Move(move.old, move.old)


def _never_led(partition: Partition) -> bool:
    """Cancelled before any replica was alive: there is no state to change."""
    return partition.state is None and partition.move is not None and partition.move.target == partition.move.old
