"""Watches a simulated cluster and checks every invariant after each step that changed a replica, a controller or the store.

It knows what changed because it sits behind the two state machines and the store, so a step that changed nothing costs
nothing, and of a partition only what changed is looked at again. What it finds in the middle of a step ends the run when
the step is over, so that no handler under test can catch it.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from tidelog.broker.partition_host import PartitionHost
from tidelog.controller.events import Suspected
from tidelog.controller.machine import ControllerMachine
from tidelog.controller.term import Term
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_LEADER, TopicPartition
from tidelog.ports.meta import Op
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica.isr import PendingExpand, PendingShrink
from tidelog.replica.leader import Progress
from tidelog.replica.partition import PartitionReplica, Role
from tidelog.testing import goals
from tidelog.testing.invariants import Checker, LogView, PartitionView, ReplicaView, StoredView, Violation
from tidelog.testing.meta import SimMeta
from tidelog.testing.meta_tree import Change, Znode
from tidelog.testing.sim_node import SimNode, World
from tidelog.testing.views import BatchReader, partition_of, replica_view, stored_state, vetoed
from tidelog.wire import messages as m
from tidelog.wire import znodes

LAG_SHARE: Final = 0.9
"""Of the lag limit: an append is noted with a grain of a twentieth of it, and clocks differ a little."""

APPENDS_S: Final = 60.0
"""For how long a leader's appends are told apart; longer than any lag limit."""

_REFUSALS: Final = (
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NOT_CONTROLLER,
)


@dataclass(slots=True)
class _Copy:
    """One replica of a running broker, and what it was like at the last look."""

    node: SimNode
    broker_id: int
    host: PartitionHost
    high_watermark: int = 0
    leads: bool = False
    leader_epoch: int = -1
    cuts: int = 0
    appends: list[tuple[int, float]] = field(default_factory=list)
    """Of a leader: where its log ended, and since when, in this epoch."""

    def lacking(self, offset: int) -> float | None:
        """Returns when the first record from `offset` on was appended; None where there is none."""
        place = bisect_right(self.appends, offset, key=lambda each: each[0])
        return self.appends[place][1] if place < len(self.appends) else None


@dataclass(slots=True)
class _Unknown:
    """A controller's state write whose answer was lost."""

    term: Term
    partitions: tuple[TopicPartition, ...]
    applied: bool


class Observer:
    def __init__(self, world: World, checker: Checker) -> None:
        self.reached: Counter[str] = Counter()
        """Goals, and how often."""
        self._world = world
        self._checker = checker
        self._lag_max_s = world.timing.lag_ms / 1000
        self._reader = BatchReader()
        self._violation: Violation | None = None
        self._copies: dict[PartitionReplica, _Copy] = {}
        self._views: dict[TopicPartition, dict[int, ReplicaView]] = {}
        self._stored: dict[TopicPartition, StoredView] = {}
        self._controller_epoch = 0
        self._told: dict[object, int] = {}
        """Process of a broker -> highest controller epoch that it has obeyed."""
        self._unknown: list[_Unknown] = []
        self._stepped: dict[PartitionReplica, None] = {}
        self._proposed: dict[PartitionReplica, Mapping[int, Progress]] = {}
        """Leaders that ask for another ISR, and what they knew of their followers then: the same step may tell them more."""
        self._machines: dict[ControllerMachine, None] = {}
        self._rewritten: dict[TopicPartition, None] = {}
        self._lives_changed = False
        self._registered: dict[int, int] = {}
        """Broker -> the epoch of its last registration."""
        self._lost: dict[int, int] = {}
        """Broker -> the epoch in which it lost bytes of a log, whatever it knows of that."""
        self._vetoed: frozenset[TopicPartition] = frozenset()
        zookeeper = world.zookeeper
        zookeeper.on_commit, zookeeper.on_expired = self._on_commit, self._on_expired
        zookeeper.on_unanswered = self._on_unanswered
        world.network.on_answer = self._on_answer
        world.on_gone = self._gone

    def fail(self, number: str, *what: object) -> None:
        if self._violation is None:
            self._violation = Violation(f"{number}: " + " ".join(str(x) for x in what))

    # -- what happened in this step ----------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While it lasts, every machine in this process reports to this observer."""
        replica_step, machine_step = PartitionReplica.step, ControllerMachine.step

        def step(replica: PartitionReplica, event: ev.Event) -> Sequence[fx.Effect]:
            epoch, end = replica.leader_epoch, replica.log_end_offset
            effects = replica_step(replica, event)
            self._stepped[replica] = None
            if not effects:
                return effects
            if isinstance(event, ev.ChunkArrived | ev.FollowerPosition | ev.IsrAnswered):
                self._check_step(replica, event, effects, epoch, end)
            if any(isinstance(effect, fx.ProposeIsr) for effect in effects) and not isinstance(event, ev.IsrAnswered):
                self._note_proposal(replica)
            return effects

        def decide(machine: ControllerMachine, event: Any) -> Any:
            self._machines[machine] = None
            effects = machine_step(machine, event)
            if isinstance(event, Suspected):
                self._on_suspected(machine, event)
            return effects

        with patch.object(PartitionReplica, "step", step), patch.object(ControllerMachine, "step", decide):
            yield

    def _check_step(
        self, replica: PartitionReplica, event: ev.Event, effects: Sequence[fx.Effect], epoch: int, end: int
    ) -> None:
        """I15 at both ends of a stream: what is sent, taken and cut belongs to this epoch and this position."""
        match event:
            case ev.ChunkArrived():
                if any(isinstance(effect, fx.AppendChunk | fx.TruncateTo) for effect in effects):
                    fits = (event.leader_epoch, event.offset) == (epoch, end)
                    if not fits:
                        self.fail("I15", f"in epoch {epoch} with end {end} took", event)
            case ev.FollowerPosition():
                served = any(isinstance(effect, fx.SendRecords | fx.SendDivergence) for effect in effects)
                if served and event.leader_epoch != epoch:
                    self.fail("I15", f"a leader of epoch {epoch} serves", event)
            case ev.IsrAnswered():
                # The same one again was judged when it was new.
                if any(isinstance(effect, fx.ProposeIsr) and effect != event.proposal for effect in effects):
                    self._note_proposal(replica)

    def _note_proposal(self, replica: PartitionReplica) -> None:
        assert replica.leading is not None
        self._proposed[replica] = dict(replica.leading.progress)

    def _on_suspected(self, machine: ControllerMachine, event: Suspected) -> None:
        broker = self._world.nodes[f"broker-{event.broker_id}"].broker
        registration = broker.registration if broker is not None else None
        lives = registration is not None and registration.broker_epoch == event.broker_epoch
        self.reached[goals.MISLED] += lives and event.broker_id in machine.suspects

    def _on_commit(self, changes: Sequence[Change]) -> None:
        tree = self._world.zookeeper
        for path, node in changes:
            tp = partition_of(path)
            if tp is not None and tp.topic != self._world.compacted:
                topic_node = tree.find(znodes.topic_path(tp.topic))
                if node is None or topic_node is None:
                    self._forget(tp)
                    continue
                state = self._stored[tp] = stored_state(tp.topic, tp.partition, node, topic_node)
                self._rewritten[tp] = None
                if state.controller_epoch != self._controller_epoch:
                    # Every write of a state is fenced, so it can only be of the controller of this moment.
                    self.fail(
                        "I12", tp, "written in controller epoch", state.controller_epoch, "not", self._controller_epoch
                    )
            elif path == znodes.CONTROLLER_EPOCH and node is not None:
                self._controller_epoch = int(node.data)
            elif path.startswith(znodes.BROKER_IDS + "/"):
                self._lives_changed = True
                if node is not None and node.stat.version == 0:
                    self._on_registered(int(path.rpartition("/")[2]), node)

    def _on_registered(self, broker: int, node: Znode) -> None:
        """Reliability 3.6 rule D rests on what a broker says of its own disk."""
        intact_since, lost = znodes.decode_broker(broker, node.data).intact_since, self._lost.get(broker, -1)
        if 0 <= intact_since <= lost:
            self.fail("I14", "broker", broker, "says it is intact since", intact_since, "and lost records in", lost)
        self._registered[broker] = node.stat.czxid

    def _forget(self, tp: TopicPartition) -> None:
        self._stored.pop(tp, None)
        self._views.pop(tp, None)
        self._rewritten.pop(tp, None)
        self._checker.forget(tp)

    def _on_expired(self, session_id: int) -> None:
        """FIND-7: whoever holds a lease stops acting before the server can end its session."""
        for node in self._world.nodes.values():
            if not node.running or node.meta is None or node.meta.session_id != session_id:
                continue
            term = node.controller.term if node.controller is not None else None
            if term is not None and term.acting:
                self.fail("FIND-7", node.name, "acts as controller, and its session has expired")
            registration = node.broker.registration if node.broker is not None else None
            if registration is not None and registration.holds_lease():
                self.fail("FIND-7", node.name, "counts on its lease, and its session has expired")

    def _on_unanswered(self, client: SimMeta, ops: tuple[Op, ...], applied: bool) -> None:
        partitions = tuple(tp for op in ops if (tp := partition_of(op.path)) is not None)
        for node in self._world.controllers:
            if partitions and node.meta is client and node.controller is not None and node.controller.term is not None:
                self._unknown.append(_Unknown(node.controller.term, partitions, applied))

    def _on_answer(self, name: str, path: str, request: Any, answer: Any) -> None:
        node = self._world.nodes.get(name)
        if node is None:
            return
        match answer:
            case m.ProduceResponse():
                self._on_produced(node, request, answer)
            case m.AlterIsrResponse():
                codes = [part.error_code for topic in answer.topics for part in topic.partitions]
                self.reached[goals.REFUSED] += sum(code in _REFUSALS for code in codes)
            case m.LeaderAndIsrResponse() | m.StopReplicaResponse() | m.UpdateMetadataResponse():
                if answer.error_code is ErrorCode.NONE:
                    self._on_obeyed(node, request)

    def _on_produced(self, node: SimNode, request: m.ProduceRequest, answer: m.ProduceResponse) -> None:
        manager = node.broker.manager if node.broker is not None else None
        if request.acks != -1 or manager is None:
            return
        try:
            self.settle()
            for result in answer.results:
                tp = TopicPartition(result.topic, result.partition)
                host = manager.find(tp)
                if host is None or host.offline is not None or host.log.failure is not None:
                    continue  # its disk failed in the step in which the high watermark rose: nobody can look any more
                if result.error_code is ErrorCode.NONE and tp in self._stored:
                    self._checker.check_ack(tp, result.base_offset)
        except Violation as error:
            self._violation = self._violation or error

    def _on_obeyed(self, node: SimNode, request: Any) -> None:
        assert node.broker is not None and node.broker.registration is not None
        mine = node.broker.registration.broker_epoch
        if request.broker_epoch != mine:
            self.fail("I13", node.name, "with broker epoch", mine, "obeys a command for", request.broker_epoch)
        known = self._told.get(node.process, -1)
        if request.controller_epoch < known:
            self.fail("I7", node.name, "obeys controller epoch", request.controller_epoch, "after", known)
        self._told[node.process] = request.controller_epoch

    def _gone(self, node: SimNode) -> None:
        """Its process has ended."""
        if node.lost_records:
            self._lost[node.number] = self._registered.get(node.number, -1)
        for replica in [r for r, copy in self._copies.items() if copy.node is node]:
            copy = self._copies.pop(replica)
            self._views.get(copy.host.tp, {}).pop(copy.broker_id, None)

    # -- after the step ----------------------------------------------------------------------------------------------

    def after_step(self) -> None:
        if self._stepped or self._rewritten or self._machines or self._lives_changed:
            self.settle()
        if self._violation is not None:
            raise self._violation

    def settle(self) -> None:
        """Checks everything that changed since the last call. Violation."""
        machines, self._machines = self._machines, {}
        for machine in machines:
            self._check_machine(machine)
        stepped, self._stepped = self._stepped, {}
        proposed, self._proposed = self._proposed, {}
        rewritten, self._rewritten = self._rewritten, {}
        changed: dict[TopicPartition, set[int]] = {tp: set() for tp in rewritten}
        advanced: list[tuple[_Copy, ReplicaView]] = []
        for replica in stepped:
            copy = self._copy_of(replica)
            if copy is None:
                continue
            stored = self._stored.get(copy.host.tp)
            if stored is None or stored.topic_id != copy.host.topic_id:
                continue  # of a topic that is deleted, which may have been created again since
            before = self._views.get(copy.host.tp, {}).get(copy.broker_id)
            view = self._look(copy)
            if view is None:
                continue
            if view != before or view.log.has_news:
                changed.setdefault(copy.host.tp, set()).add(copy.broker_id)
            if view.leads and view.high_watermark > copy.high_watermark:
                advanced.append((copy, view))
            self._note(copy, view, stored)
        for tp, ids in changed.items():
            if tp in self._stored:
                self._checker.check(self._picture(tp), ids)
        for copy, view in advanced:
            self._checker.check_advance(self._picture(copy.host.tp), view)
        for replica, progress in proposed.items():
            self._check_proposal(replica, progress)
        if rewritten or self._lives_changed:
            self._lives_changed = False
            now = vetoed(self._stored, self._world.zookeeper)
            for tp in now - self._vetoed:
                self._check_veto(tp, self._stored[tp])
            self.reached[goals.VETO] += len(now - self._vetoed)
            self._vetoed = now
        for node in self._world.nodes.values():
            if node.disk.blind_appends:
                raise Violation(f"KAFKA-10778: {node.name} appends to {node.disk.blind_appends[0]} after a failure")

    def _check_veto(self, tp: TopicPartition, stored: StoredView) -> None:
        """Brokers say themselves that they have lost something; something must have happened to their disks."""
        for broker, epoch in stored.isr:
            node = self._world.nodes[f"broker-{broker}"]
            if node.harmed_at < epoch and not node.excused and node is not self._world.rotting:
                what = f"{node.name}, in the ISR in its life {epoch}, says that it has lost something since"
                raise Violation(f"veto: {tp} has no leader: {what}, and nothing has happened to its disk")

    def _picture(self, tp: TopicPartition) -> PartitionView:
        stored, views = self._stored.get(tp), self._views.get(tp, {})
        elected = None
        if stored is not None and stored.recovering and stored.leader != NO_LEADER and stored.leader not in views:
            elected = self._log_of(tp, stored)
        return PartitionView(tp, stored, views, elected)

    def _log_of(self, tp: TopicPartition, stored: StoredView) -> LogView | None:
        """Log of its leader, which has not been told yet that it leads."""
        log = self._world.log_of(stored.leader, tp)
        if log is None or log.key.topic_id != stored.topic_id:
            return None
        disk = self._world.nodes[f"broker-{stored.leader}"].disk
        disk.observed = True
        try:
            return self._reader.log(log)
        except TidelogError:
            return None
        finally:
            disk.observed = False

    def _copy_of(self, replica: PartitionReplica) -> _Copy | None:
        copy = self._copies.get(replica)
        if copy is None:
            for node in self._world.brokers:
                manager = node.broker.manager if node.running and node.broker is not None else None
                for host in manager or ():
                    if host.replica is replica:
                        copy = _Copy(node, node.number, host, replica.high_watermark, cuts=host.log.cuts)
                        self._copies[replica] = copy
        return copy if copy is None or copy.node.running else None

    def _look(self, copy: _Copy) -> ReplicaView | None:
        node, host = copy.node, copy.host
        assert node.broker is not None and node.broker.registration is not None
        views = self._views.setdefault(host.tp, {})
        node.disk.observed = True
        try:
            view = replica_view(host, copy.broker_id, node.broker.registration.broker_epoch, self._reader)
        except TidelogError:
            view = None
        finally:
            node.disk.observed = False
        if view is None:
            views.pop(copy.broker_id, None)
        else:
            views[copy.broker_id] = view
            host.replica.validate()
        return view

    def _note(self, copy: _Copy, view: ReplicaView, stored: StoredView) -> None:
        """Compares a replica with what it was, counts what was reached, and remembers what it is."""
        cut = copy.host.log.cuts > copy.cuts
        taken_back = cut and not view.leads and self._checker.takes_back(copy.host.tp, view.leader_epoch)
        if view.high_watermark < copy.high_watermark and not taken_back:
            raise Violation(
                f"I6: {copy.host.tp} broker {copy.broker_id}: HW fell from {copy.high_watermark} to {view.high_watermark}"
            )
        if cut and not view.leads:
            self.reached[goals.TRUNCATION] += 1
        if copy.leads and not view.leads and stored.leader_epoch > copy.leader_epoch:
            others = self._views.get(copy.host.tp, {}).values()
            if any(o.leads and o.leader_epoch > copy.leader_epoch for o in others):
                self.reached[goals.ZOMBIE] += 1
        frozen = view.leads and view.committed_isr_size < view.min_isr and view.log_end_offset > view.high_watermark
        self.reached[goals.FROZEN] += frozen
        if view.leads:
            self._note_append(copy, view)
        copy.leads, copy.leader_epoch = view.leads, view.leader_epoch
        copy.high_watermark, copy.cuts = view.high_watermark, copy.host.log.cuts

    def _note_append(self, copy: _Copy, view: ReplicaView) -> None:
        now = asyncio.get_running_loop().time()
        if not copy.leads or copy.leader_epoch != view.leader_epoch:
            copy.appends = [(view.epoch_start, now)]
        if view.log_end_offset > copy.appends[-1][0]:
            copy.appends.append((view.log_end_offset, now))
        while len(copy.appends) > 2 and copy.appends[2][1] < now - APPENDS_S:
            del copy.appends[1]  # the next one says of the same records that they are older than any limit

    def behind_since(self, replica: PartitionReplica) -> float | None:
        """Returns when a leader appended the first record above its high watermark; None where there is none."""
        copy = self._copies.get(replica)
        if copy is None or not copy.leads:
            return None
        return copy.lacking(replica.high_watermark)

    def _check_proposal(self, replica: PartitionReplica, then: Mapping[int, Progress]) -> None:
        copy, leading = self._copies.get(replica), replica.leading
        if copy is None or leading is None or replica.role is not Role.LEADER:
            return
        view = self._views.get(copy.host.tp, {}).get(copy.broker_id)
        if view is None:
            return
        match leading.isr:
            case PendingExpand(joining=joining):
                tp = copy.host.tp
                named = [(x.broker_id, x.broker_epoch) for x in joining if not self._counts_as_failed(x.broker_id, tp)]
                self._checker.check_join(self._picture(tp), view, named)
            case PendingShrink(leaving=leaving):
                for member in leaving:
                    progress = then.get(member.broker_id)
                    offset = progress.offset if progress is not None and progress.member == member else -1
                    self._check_lag(copy, member.broker_id, offset)

    def _counts_as_failed(self, broker: int, tp: TopicPartition) -> bool:
        """A copy that has thrown its records away counts as failed until it holds what its leader has committed.

        A leader that has not heard of it may propose it, and the controller refuses. A stored ISR has no such exception.
        """
        node = self._world.nodes[f"broker-{broker}"]
        manager = node.broker.manager if node.running and node.broker is not None else None
        return manager is not None and any((each.topic, each.partition) == tp for each in manager.failed())

    def _check_lag(self, copy: _Copy, follower: int, offset: int) -> None:
        """Row 34: no member leaves the ISR sooner than the lag limit after the first append that it lacks."""
        now = asyncio.get_running_loop().time()
        since = copy.lacking(offset)
        if since is None or now - since < LAG_SHARE * self._lag_max_s:
            raise Violation(
                f"row 34: {copy.host.tp} leader {copy.broker_id} drops {follower} at {offset}, which it lacks since {since}, "
                f"now is {now:.3f} and the limit {self._lag_max_s} s"
            )

    def _check_machine(self, machine: ControllerMachine) -> None:
        try:
            machine.validate()
        except AssertionError as error:
            raise Violation(f"N01, N09: {error}") from error
        for unknown in list(self._unknown):
            if unknown.term._machine is not machine:
                continue
            found = [machine.state.partition(tp) for tp in unknown.partitions]
            if all(partition is None or partition.writing is None for partition in found):
                self._unknown.remove(unknown)
                self.reached[goals.UNKNOWN_APPLIED if unknown.applied else goals.UNKNOWN_LOST] += 1
