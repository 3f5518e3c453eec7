"""The controller's decisions: events in, effects out, nothing else.

It has one writer and no clock. Every change is written before anybody is told (C2.02): a partition has at most one write in
flight, its state changes when the write is confirmed, and what arrived meanwhile is judged again then. Because each write
is conditional on the partition's version and on the controller epoch, a controller that has been deposed without knowing
it can decide what it likes (HOLE-11).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from tidelog import topic_config
from tidelog.controller import describe, election
from tidelog.controller.balance import Balance
from tidelog.controller.broker_desk import BrokerDesk
from tidelog.controller.configs import ConfigDesk, ForeignConfigs
from tidelog.controller.effects import (
    ConfigsWrite,
    DeletionMark,
    Effect,
    Outcome,
    PartitionRemoval,
    PartitionsWrite,
    ProducerIdsWrite,
    ReassignmentWrite,
    Reply,
    StateWrite,
    TopicRemoval,
    TopicWrite,
)
from tidelog.controller.elections import PREFERRED, ElectionDesk
from tidelog.controller.events import (
    BrokerAnswered,
    BrokersChanged,
    BrokersRequested,
    ConfigsAlterRequested,
    ControlledShutdownRequested,
    DescribeRequested,
    Elected,
    ElectionRequested,
    Event,
    Examined,
    IsrProposed,
    PartitionsCreateRequested,
    Planned,
    ProducerIdsRequested,
    ReassignmentRequested,
    ReplicaEndsTold,
    StreamBroken,
    StreamOpened,
    Suspected,
    Tick,
    TopicsCreateRequested,
    TopicsDeleteRequested,
    WritesDone,
)
from tidelog.controller.growth import ForeignAssignment, GrowthDesk
from tidelog.controller.isr_desk import IsrDesk
from tidelog.controller.model import Broker, ClusterState, IsrCause, Partition, PartitionState, Topic
from tidelog.controller.outbox import Outbox
from tidelog.controller.producer_ids import ProducerIdDesk
from tidelog.controller.reassignment import ReassignmentDesk
from tidelog.controller.shutdown import ShutdownDesk
from tidelog.controller.survey import SurveyDesk, largest
from tidelog.controller.suspicion import Suspicion
from tidelog.controller.topics import ParseConfig, TopicDesk
from tidelog.controller.turns import TopicTurns, Waiting
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH, NO_LEADER, BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire import znodes


@dataclass(frozen=True, slots=True)
class MachineSettings:
    controller_id: int
    cluster_id: str
    default_partitions: int
    default_replication_factor: int
    min_insync_replicas: int
    suspect_hold_s: float
    parse_config: ParseConfig
    rebalance_interval_s: float | None = None
    """Between two looks at who leads what; None: leaders return to preferred replicas by request only."""
    imbalance_percentage: int = 10


class ControllerMachine:
    """One term of office: built for one election, thrown away with it."""

    def __init__(self, settings: MachineSettings) -> None:
        self.state = ClusterState()
        self.controller_epoch = NO_EPOCH
        self._settings = settings
        self._suspicion = Suspicion(settings.suspect_hold_s)
        self._balance = Balance(settings.rebalance_interval_s, settings.imbalance_percentage)
        self._resigned = False
        self._out = Outbox(settings.controller_id, self.state)
        self._isr = IsrDesk(self.state, self._out, self._barred, settle=self._settle, write=self._write)
        self._disks_known: dict[BrokerId, int] = {}
        """The broker lives that have said in this term which of their replicas have failed."""
        self._shutdowns = ShutdownDesk(self.state, self._out)
        self._surveys = SurveyDesk(self.state, self._out)
        self._elections = ElectionDesk(self.state, self._out, self._surveys, self._ineligible, self._write)
        self._producer_ids = ProducerIdDesk(self.state, self._out)
        self._topics = TopicDesk(
            self.state,
            self._out,
            self._settle,
            settings.parse_config,
            settings.default_partitions,
            settings.default_replication_factor,
            lambda name: self._configs.is_writing(name),
        )
        self._configs = ConfigDesk(self.state, self._out, self._settle, self._topics, settings.parse_config)
        self._growth = GrowthDesk(self.state, self._out, self._settle, self._topics.is_deleting)
        self._turns = TopicTurns(self.state, self._topics, self._growth)
        self._moves = ReassignmentDesk(
            self.state,
            self._out,
            self._ineligible,
            self._topics.is_deleting,
            settle=self._settle,
            confirm=self._confirmed,
            unblock=self._unblock,
            done=lambda *answer: self._brokers.done(*answer),
        )
        self._brokers = BrokerDesk(self.state, self._out, self._topics.is_deleting, self._moves.checked)

    @property
    def suspects(self) -> frozenset[BrokerId]:
        return self._suspicion.brokers

    def step(self, event: Event) -> list[Effect]:
        """Effects in the order in which they must begin. Nothing follows a `Resign`."""
        if self._resigned:
            return []
        self._handle(event)
        self._brokers.go_on()
        while True:
            if (part := self._brokers.next_part()) is not None:
                self._in_turn(part)
            elif (waited := self._turns.next()) is not None:
                self._change_topics(waited)
            else:
                break
        if not self._turns:
            self._moves.end_moves()
        return self._out.drain()

    def _handle(self, event: Event) -> None:
        match event:
            case Elected():
                self._on_elected(event)
            case BrokersChanged():
                self._on_brokers_changed(event)
            case Suspected():
                self._on_suspected(event)
            case StreamOpened() | StreamBroken():
                self._on_stream(event)
            case Tick(now):
                self._on_stream(event)
                self._rebalance(now)
                self._moves.tick()
            case IsrProposed():
                self._isr.propose(event)
            case ProducerIdsRequested():
                self._out.because("producer_ids")
                self._producer_ids.requested(event)
            case ControlledShutdownRequested():
                self._on_shutdown_requested(event)
            case ElectionRequested():
                self._elections.begin(event)
            case TopicsCreateRequested():
                self._out.because("topics")
                self._topics.create(event)
            case TopicsDeleteRequested():
                self._out.because("topics")
                self._topics.delete(event)
            case PartitionsCreateRequested() | ReassignmentRequested():
                self._in_turn(event)
            case ConfigsAlterRequested():
                self._out.because("topics")
                self._configs.alter(event)
            case BrokersRequested():
                self._in_turn(self._brokers.request(event))
            case Planned():
                self._brokers.planned(event)
            case DescribeRequested():
                self._out.reply(Reply(event.token, self._describe(event.request)))
            case WritesDone():
                self._on_writes_done(event)
            case Examined():
                self._on_examined(event)
            case BrokerAnswered():
                self._on_broker_answered(event)
            case ReplicaEndsTold():
                self._out.because("unclean")
                self._settle_all(self._surveys.told(event))
            case _:
                assert_never(event)

    # brokers

    def _on_elected(self, event: Elected) -> None:
        """Takes over: everything is decided again and sent again, since nobody knows what was lost (B5.03)."""
        assert self.controller_epoch == NO_EPOCH, "a machine serves one term"
        self.controller_epoch = self._out.controller_epoch = event.controller_epoch
        self._out.because("elected")
        for broker in event.snapshot.brokers:
            self.state.brokers[broker.broker_id] = broker
            self._out.connect(broker)
        for stored in event.snapshot.topics:
            topic = Topic(
                stored.name,
                stored.topic_id,
                stored.configs,
                self._min_insync_replicas(stored.configs),
                has_config_node=stored.has_config_node,
                version=stored.version,
                config_version=stored.config_version,
                unread=stored.unread,
            )
            self.state.add_topic(topic, stored.replicas, stored.moves)
            for partition, state in zip(topic.partitions, stored.states, strict=True):
                self.state.set_state(partition, state)
        if event.snapshot.placement is not None:
            self.state.placement, self.state.placement_version = event.snapshot.placement
        self.state.unread.update(event.snapshot.unread)
        self._producer_ids.restored(event.snapshot.producer_ids)
        for name in event.snapshot.deletions:
            self._topics.marked(name)
        self._settle_all(self.state.partitions())

    def _min_insync_replicas(self, configs: Mapping[str, str]) -> int:
        try:
            # A newer version may have stored a key that this one does not know.
            return self._settings.parse_config(topic_config.known(configs)).min_insync_replicas
        except TidelogError:
            # Or a value; the brokers judge produces, not we.
            return self._settings.min_insync_replicas

    def _on_brokers_changed(self, event: BrokersChanged) -> None:
        old = dict(self.state.brokers)
        new = {broker.broker_id: broker for broker in event.brokers}
        ended = [broker for broker in old.values() if not _same_life(broker, new)]
        begun = [broker for broker in new.values() if not _same_life(broker, old)]
        self._out.because("broker_down" if ended else "broker_up")
        self.state.brokers.clear()
        self.state.brokers.update(new)
        for broker in ended:
            self._out.disconnect(broker)
            self._shutdowns.ended(broker)
            self._suspicion.ended(broker.broker_id)
        for broker in begun:
            self._out.connect(broker)
            for partition in self.state.partitions_on(broker.broker_id).values():
                partition.failed_on -= {broker.broker_id}
        for broker in ended:
            self._settle_all([*self.state.led_first(broker.broker_id), *self._surveys.ended(broker)])
        self._settle_leaderless()

    def _on_suspected(self, event: Suspected) -> None:
        if self._suspicion.begin(event, self.state.brokers):
            self._out.because("suspected")
            self._settle_all(self.state.led_first(event.broker_id))

    def _on_stream(self, event: StreamOpened | StreamBroken | Tick) -> None:
        if self._suspicion.heard(event):
            self._out.because("broker_up")
            self._settle_leaderless()

    def _rebalance(self, now: float) -> None:
        if not self._balance.due(now):
            return
        self._out.because(PREFERRED)
        for partition in self._balance.displaced(self.state):
            state = partition.state
            if state is None or partition.writing is not None or partition.topic.deleting:
                continue
            chosen = election.preferred(
                partition.replicas, state, self.state.brokers, self._ineligible(partition), self.controller_epoch
            )
            if chosen is not None:
                self._write(partition, chosen)

    def _on_broker_answered(self, event: BrokerAnswered) -> None:
        # Every other answer is the channel's business: it repeats the request, or the broker's life is over (F14.2).
        if event.code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._resign(f"broker {event.broker_id} has heard of a newer controller")
            return
        broker = self.state.brokers.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            return
        self._out.because("disk")
        here = self.state.partitions_on(event.broker_id)
        for tp, topic_id in event.failed:
            partition = here.get(tp)
            # A late answer may be about an earlier topic of the name, whose files are gone (HOLE-10).
            if partition is not None and topic_id == partition.topic.topic_id:
                self._set_failed(partition, partition.failed_on | {event.broker_id})
        if event.lists_all_failed:
            self._disks_known[event.broker_id] = event.broker_epoch
            failed = {(tp, topic_id) for tp, topic_id in event.failed}
            for partition in list(here.values()):
                if (partition.tp, partition.topic.topic_id) not in failed:
                    self._set_failed(partition, partition.failed_on - {event.broker_id})

    def _set_failed(self, partition: Partition, failed_on: frozenset[BrokerId]) -> None:
        """The replica itself is told that we know, and once it works again, what it is to do."""
        if failed_on != partition.failed_on:
            if partition.state is not None and partition.state.leader in failed_on - partition.failed_on:
                partition.failed_in_epoch = partition.state.leader_epoch
            partition.failed_on, partition.failed_changed = failed_on, True
            self._settle(partition)

    def _on_shutdown_requested(self, event: ControlledShutdownRequested) -> None:
        self._out.because("shutdown")
        self._settle_all(self._shutdowns.begin(event))
        self._shutdowns.answer(BrokerId(event.request.broker_id))

    def vetoed(self) -> list[TopicPartition]:
        """Partitions that wait for an operator, or for another member of their ISR."""
        return [each.tp for each in self.state.leaderless() if describe.is_vetoed(self.state, each)]

    # partitions

    def _in_turn(self, event: Waiting | None) -> None:
        if event is not None and not self._turns.must_wait(event):
            self._change_topics(event)

    def _change_topics(self, event: Waiting) -> None:
        """What it waited for is over."""
        self._out.because("topics")
        if isinstance(event, ReassignmentRequested):
            self._moves.request(event)
        elif isinstance(event, BrokersRequested):
            self._brokers.plan(event)
        else:
            self._growth.create(event)

    def _settle_all(self, partitions: Iterable[Partition]) -> None:
        for partition in list(partitions):
            self._settle(partition)

    def _settle_leaderless(self) -> None:
        """Also those whose end is not written yet: a replica in sync that is back leads without the answers of the others."""
        self._settle_all([*self.state.leaderless(), *self._surveys.asking()])

    def _settle(self, partition: Partition) -> None:
        """Brings a partition to what ought to be: first what broker lives demand, then what its leader asks for."""
        if partition.writing is not None or partition.topic.deleting:
            return  # judged again when that write is confirmed; never again when the topic goes
        ought = self._ought(partition)
        if ought is not None:
            self._write(partition, ought)
        elif partition.parked is not None:
            self._isr.judge(partition, partition.parked)
        self._elections.resume(partition)
        if partition.failed_changed and partition.writing is None and partition.state is not None:
            partition.failed_changed = False
            self._out.publish(partition)
        self._moves.consider(partition)

    def _ought(self, partition: Partition) -> PartitionState | None:
        ineligible = self._ineligible(partition)
        if partition.state is None:
            return election.initial(partition.replicas, self.state.brokers, ineligible, self.controller_epoch)
        ought = election.settle(
            partition.replicas,
            partition.state,
            self.state.brokers,
            ineligible,
            self.controller_epoch,
            allows_unclean=partition.topic.allows_unclean and not self._surveys.possible,
            factor=partition.factor,
        )
        if (ought or partition.state).leader == NO_LEADER and partition.topic.allows_unclean and self._surveys.possible:
            candidates = election.alive(partition.replicas, self.state.brokers, ineligible)
            ends = self._surveys.ends(partition, candidates) if len(candidates) > 1 else {}
            if ends is None:
                self._surveys.begin(partition, candidates)
                return None  # judged again with the last answer
            if (chosen := largest(candidates, ends)) is not None:
                brokers, epoch = self.state.brokers, self.controller_epoch
                return election.unclean((chosen,), partition.state, brokers, ineligible, epoch)
        works_again = partition.state.leader not in partition.failed_on
        if ought is None and works_again and partition.failed_in_epoch == partition.state.leader_epoch:
            return election.renewed(partition.state, self.controller_epoch)
        return ought

    def _ineligible(self, partition: Partition) -> frozenset[BrokerId]:
        """Alive perhaps, but not to lead while another can, and not to enter an ISR."""
        return self.suspects | self.state.shutting_down | partition.failed_on

    def _barred(self, partition: Partition, state: PartitionState) -> frozenset[BrokerId]:
        """Not to enter its ISR. Before their brokers have told this controller that the disk holds them: the one before it
        may have been told otherwise, and they throw records away on that (`broker/revival.py`)."""
        members = state.members()
        lives = {each: self.state.brokers[each].epoch for each in partition.replicas if each in self.state.brokers}
        unheard = {each for each, life in lives.items() if each not in members and self._disks_known.get(each) != life}
        return self._ineligible(partition) | unheard

    def _write(self, partition: Partition, state: PartitionState, cause: IsrCause | None = None) -> None:
        """`cause`, unless brokers and disks are why the ISR is another one."""
        assert partition.writing is None, f"{partition.tp}: {partition.writing} is in flight"
        old = partition.state
        partition.writing = state
        partition.isr_cause = cause or self._isr_cause(partition, state)
        elected = state.leader != NO_LEADER and (old is None or old.leader_epoch != state.leader_epoch)
        self._out.write_state(StateWrite(partition.tp, state), election=elected)

    def _isr_cause(self, partition: Partition, state: PartitionState) -> IsrCause:
        """The reason that brokers and disks of this moment give; of several the gravest counts."""
        if state.recovering:
            return IsrCause.UNCLEAN_ELECTION
        staying, before = state.members(), () if partition.state is None else partition.state.isr
        lost = [each for each in before if each.broker_id not in staying]
        if not all(
            election.same_life(each, self.state.brokers) and each.broker_id not in self.suspects for each in lost
        ):
            return IsrCause.BROKER_GONE
        return IsrCause.DISK if any(each.broker_id in partition.failed_on for each in lost) else IsrCause.SHUTDOWN

    def _confirmed(self, partition: Partition, state: PartitionState) -> None:
        """`state` is in force: tell everybody, then look what has come up meanwhile."""
        is_new = partition.state is None
        if state.leader != NO_LEADER:
            self._surveys.forget(partition)
        if partition.state != state:
            if partition.state is not None and partition.writing == state:
                self._out.count_isr_change(partition.state, state, partition.isr_cause)
            self.state.set_state(partition, state)
            self._out.publish(partition, is_new=is_new)
        self._unblock(partition)
        if is_new:
            self._topics.settled(partition.tp)
            self._growth.settled(partition.tp)

    def _unblock(self, partition: Partition) -> None:
        """Its write is over, one way or another."""
        partition.writing = None
        if partition.topic.deleting:
            self._isr.answer_parked(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._elections.gone(partition)
            self._surveys.forget(partition)
            self._topics.remove(partition)
        else:
            self._settle(partition)
        self._shutdowns.settled(partition)

    # the store

    def _on_writes_done(self, event: WritesDone) -> None:
        self._out.because("again")
        for group, outcome in event.results:
            if outcome is Outcome.FENCED:
                self._resign("another controller has raised /controller_epoch")
                return
            match group:
                case StateWrite(tp, state):
                    self._on_state_write(group, tp, state, outcome)
                case TopicWrite(name):
                    self._on_topic_write(group, name, outcome)
                case PartitionsWrite():
                    self._on_partitions_write(group, outcome)
                case ReassignmentWrite():
                    self._on_reassignment_write(group, outcome)
                case ConfigsWrite():
                    self._configs.written(group, outcome)
                case ProducerIdsWrite():
                    self._producer_ids.written(group, outcome)
                case DeletionMark(name) | TopicRemoval(name):
                    self._on_deletion_write(group, name, outcome)
                case PartitionRemoval(tp):
                    self._on_deletion_write(group, tp.topic, outcome)
                case _:
                    assert_never(group)

    def _on_state_write(self, group: StateWrite, tp: TopicPartition, state: PartitionState, outcome: Outcome) -> None:
        if outcome is Outcome.WRITTEN:
            self._confirmed(self._writer_of(tp), state)
        elif outcome is Outcome.REFUSED:
            self._resign(f"the store refuses the state of {tp}")
        else:
            self._out.examine(group)

    def _on_topic_write(self, group: TopicWrite, name: str, outcome: Outcome) -> None:
        if outcome is Outcome.WRITTEN:
            self._topics.stored(group)
        elif outcome is Outcome.REFUSED:
            self._topics.not_stored(group, ErrorCode.INVALID_REQUEST, f"the store refuses topic {name!r}: too large")
        elif outcome is Outcome.CONFLICT and not group.replaces_configs:
            # Perhaps settings are there without a topic. If it is the topic itself, that conflicts once more.
            self._out.write(replace(group, replaces_configs=True))
        else:
            self._out.examine(group)

    def _on_partitions_write(self, group: PartitionsWrite, outcome: Outcome) -> None:
        if outcome is Outcome.WRITTEN:
            self._growth.stored(group)
        elif outcome is Outcome.REFUSED:
            message = f"the store refuses the partitions of topic {group.name!r}: too many"
            self._growth.not_stored(group, ErrorCode.INVALID_PARTITIONS, message)
        else:
            self._out.examine(group)

    def _on_reassignment_write(self, group: ReassignmentWrite, outcome: Outcome) -> None:
        if outcome is Outcome.WRITTEN:
            self._moves.stored(group)
        elif outcome is Outcome.UNKNOWN:
            self._out.examine(group)
        else:
            try:
                self._moves.refused(group, outcome)
            except ForeignAssignment as error:
                self._resign(str(error))

    def _on_deletion_write(
        self, group: DeletionMark | PartitionRemoval | TopicRemoval, name: str, outcome: Outcome
    ) -> None:
        if outcome is Outcome.UNKNOWN:
            self._out.write(group)  # harmless twice: the second time there is nothing left to do
        elif outcome is Outcome.CONFLICT and isinstance(group, TopicRemoval):
            self._out.examine(group)
        elif outcome is Outcome.REFUSED:
            self._topics.not_removed(name, f"the store refuses to delete topic {name!r}: foreign znodes are in the way")
        else:
            match group:
                case DeletionMark():
                    topic = self.state.topics.get(name)
                    self._topics.marked(name)
                    for partition in topic.partitions if topic is not None else ():
                        if partition.writing is None:
                            self._elections.gone(partition)
                            self._surveys.forget(partition)
                case PartitionRemoval(tp):
                    self._topics.removed(tp)
                case TopicRemoval():
                    self._topic_gone(name)

    def _topic_gone(self, name: str) -> None:
        self._topics.gone(name)
        self._growth.gone(name)

    def _on_removal_examined(self, group: TopicRemoval, has_config_node: bool) -> None:
        """After a conflict: the settings of the topic have come or gone by hand, or its mark has gone."""
        if has_config_node == group.has_config_node:
            self._topic_gone(group.name)
        else:
            self._out.write(replace(group, has_config_node=has_config_node))

    def _on_examined(self, event: Examined) -> None:
        self._out.because("again")
        for group, found in event.found:
            try:
                match group:
                    case StateWrite(tp, state):
                        self._on_state_examined(tp, state, found)
                    case TopicWrite():
                        self._on_topic_examined(group, found)
                    case PartitionsWrite():
                        self._growth.examined(group, found)
                    case ReassignmentWrite():
                        self._moves.examined(group, found)
                    case ConfigsWrite():
                        self._configs.examined(group, found)
                    case ProducerIdsWrite():
                        self._producer_ids.examined(group, found)
                    case TopicRemoval():
                        self._on_removal_examined(group, found is not None)
                    case _:
                        raise AssertionError(f"nobody asked for {group}")
            except (znodes.BadZnode, ForeignAssignment, ForeignConfigs) as error:
                self._resign(str(error))
                return

    def _on_state_examined(self, tp: TopicPartition, sent: PartitionState, found: tuple[bytes, int] | None) -> None:
        """After a conflict or an unknown outcome: what is stored counts, whoever wrote it (HOLE-13)."""
        partition = self._writer_of(tp)
        if found is not None:
            data, version = found
            self._confirmed(partition, PartitionState.of(znodes.decode_state(tp.topic, tp.partition, data), version))
        elif sent.partition_epoch == 0:
            self._unblock(partition)
        else:
            # Somebody has deleted it by hand. To invent a state from memory could undo what he did on purpose.
            self._resign(f"the state znode of {tp} has disappeared")

    def _on_topic_examined(self, sent: TopicWrite, found: tuple[bytes, int] | None) -> None:
        if found is None:
            message = f"topic {sent.name!r} could not be stored, nothing was created"
            self._topics.not_stored(sent, ErrorCode.REQUEST_TIMED_OUT, message)
        elif znodes.decode_topic(sent.name, found[0]).topic_id == sent.topic_id:
            self._topics.stored(sent)
        else:
            self._topics.not_stored(sent, ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {sent.name!r} already exists")

    def _writer_of(self, tp: TopicPartition) -> Partition:
        partition = self.state.partition(tp)
        assert partition is not None and partition.writing is not None, f"no write of {tp} is in flight"
        return partition

    # the rest

    def _describe(
        self, request: m.DescribeTopicsRequest | m.DescribeClusterRequest | m.ListPartitionReassignmentsRequest
    ) -> m.DescribeTopicsResponse | m.DescribeClusterResponse | m.ListPartitionReassignmentsResponse:
        if isinstance(request, m.DescribeTopicsRequest):
            return describe.describe_topics(self.state, request)
        if isinstance(request, m.ListPartitionReassignmentsRequest):
            return describe.list_reassignments(self.state, request)
        return describe.describe_cluster(
            self.state,
            self._settings.cluster_id,
            self._settings.controller_id,
            self.controller_epoch,
            self.suspects,
        )

    def _resign(self, reason: str) -> None:
        self._resigned = True
        self._out.resign(reason)

    def validate(self) -> None:
        """Asserts what must hold between steps (I3, I7, N01, N09)."""
        self.state.validate()
        self._shutdowns.validate()
        self._elections.validate()
        self._suspicion.validate(self.state.brokers)
        for partition in self.state.partitions():
            assert partition.parked is None or partition.writing is not None, f"{partition.tp}: parked without a write"
            if not (partition.topic.deleting or partition.writing is not None or self._resigned):
                ought = self._ought(partition)
                assert ought is None, f"{partition.tp}: {partition.state} ought to be {ought}"
        self._isr.validate()
        if not (self._resigned or self._turns):
            self._moves.validate()


def _same_life(broker: Broker, among: dict[BrokerId, Broker]) -> bool:
    other = among.get(broker.broker_id)
    return other is not None and other.epoch == broker.epoch
