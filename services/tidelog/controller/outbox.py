"""The effects of one step, merged: one write, at most one request of each kind for each broker, in a fixed order."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.controller.effects import (
    AskEnds,
    Connect,
    Disconnect,
    Effect,
    Examinable,
    Examine,
    IsrsChanged,
    MakePlan,
    ReassignmentWrite,
    Reply,
    Resign,
    Send,
    StateWrite,
    Write,
    WriteGroup,
)
from tidelog.controller.model import Broker, ClusterState, IsrCause, Partition, PartitionState, Topic
from tidelog.ids import DELETED_TOPIC_EPOCH, NO_EPOCH, BrokerId, TopicPartition
from tidelog.wire import messages as m

UNNUMBERED: Final = 0
"""The sequence of a control request until it is sent: only then is its order known."""


class Outbox:
    """Filled while a step runs and drained at its end, so that what brokers are told is the state after the step."""

    def __init__(self, controller_id: int, state: ClusterState) -> None:
        self.controller_epoch = NO_EPOCH
        self.roles_due: set[BrokerId] = set()
        """Brokers whose first LeaderAndIsr, the full one, has not been sent yet: nothing partial may go before it (HOLE-08)."""
        self._controller_id = controller_id
        self._state = state
        self._clear()

    def _clear(self) -> None:
        self._cause = ""
        self._elections = 0
        self._unclean: list[TopicPartition] = []
        self._groups: list[WriteGroup] = []
        self._examine: list[Examinable] = []
        self._links: list[Connect | Disconnect] = []
        self._came: set[BrokerId] = set()
        self._brokers_changed = False
        self._changed: dict[Partition, bool] = {}
        self._reconfigured: dict[Topic, None] = {}
        self._deleted: list[Topic] = []
        self._removed: dict[BrokerId, list[Partition]] = {}
        self._asked: dict[BrokerId, tuple[Broker, list[Partition]]] = {}
        self._replies: list[Reply] = []
        self._plans: list[MakePlan] = []
        self._shrinks: Counter[str] = Counter()
        self._expansions: Counter[str] = Counter()
        self._resign: Resign | None = None

    def because(self, cause: str) -> None:
        """Why what follows is written; the label of an election."""
        self._cause = cause

    def write(self, group: WriteGroup) -> None:
        self._groups.append(group)

    def write_reassignment(self, group: ReassignmentWrite, *, elections: int) -> None:
        self._groups.append(group)
        self._elections += elections

    def write_state(self, group: StateWrite, *, election: bool = False) -> None:
        self._groups.append(group)
        self._elections += election
        if election and group.state.recovering:
            self._unclean.append(group.tp)

    def examine(self, group: Examinable) -> None:
        self._examine.append(group)

    def connect(self, broker: Broker) -> None:
        """A new life: it gets everything, and everybody else hears of it."""
        self._links.append(Connect(broker))
        self._came.add(broker.broker_id)
        self.roles_due.add(broker.broker_id)
        self._brokers_changed = True

    def disconnect(self, broker: Broker) -> None:
        self._links.append(Disconnect(broker.broker_id, broker.epoch))
        self.roles_due.discard(broker.broker_id)
        self._brokers_changed = True

    def brokers_changed(self) -> None:
        """Everybody hears of the brokers, even if nothing else is to be told."""
        self._brokers_changed = True

    def publish(self, partition: Partition, *, is_new: bool = False) -> None:
        """Tell its replicas and everybody's metadata."""
        self._changed[partition] = is_new or self._changed.get(partition, False)

    def reconfigure(self, topic: Topic) -> None:
        """Tell its replicas its settings; everybody else has no use for them."""
        self._reconfigured[topic] = None

    def delete(self, topic: Topic) -> None:
        """Tell its replicas to drop their logs, and everybody that it is gone."""
        self._deleted.append(topic)

    def stop(self, partition: Partition, brokers: Iterable[BrokerId]) -> None:
        """Tell these to drop their copies: they are no replicas of `partition` any more."""
        for broker_id in brokers:
            self._removed.setdefault(broker_id, []).append(partition)

    def reply(self, reply: Reply) -> None:
        self._replies.append(reply)

    def ask_end(self, broker: Broker, partition: Partition) -> None:
        """Ask this life of a broker how far its log of `partition` goes."""
        self._asked.setdefault(broker.broker_id, (broker, []))[1].append(partition)

    def make_plan(self, plan: MakePlan) -> None:
        self._plans.append(plan)

    def count_isr_change(self, old: PartitionState, new: PartitionState, cause: IsrCause) -> None:
        """A partition's ISR was `old`, and `new` is written."""
        before, after = old.members(), new.members()
        if before - after:
            self._shrinks[cause] += 1
        if after - before:
            self._expansions[cause] += 1

    def resign(self, reason: str) -> None:
        self._resign = Resign(reason)

    def drain(self) -> list[Effect]:
        """Writes first: what brokers are told now has been written in an earlier step."""
        effects: list[Effect] = [*self._links]
        if self._groups:
            effects.append(Write(tuple(self._groups), self._cause, self._elections, tuple(self._unclean)))
        if self._examine:
            effects.append(Examine(tuple(self._examine)))
        effects += self._sends()
        effects += [
            AskEnds(each.broker_id, each.epoch, tuple((p.tp, p.topic.topic_id) for p in asked))
            for each, asked in self._asked.values()
        ]
        effects += self._replies
        effects += self._plans
        if self._shrinks or self._expansions:
            effects.append(IsrsChanged(self._shrinks, self._expansions))
        if self._resign is not None:
            effects.append(self._resign)
        self._clear()
        return effects

    def _sends(self) -> list[Effect]:
        news = self._changed or self._reconfigured or self._deleted or self._removed or self._brokers_changed
        if not (self.roles_due or news):
            return []
        live = self._state.live_brokers()
        changed = [partition for partition in self._changed if not partition.topic.deleting]
        told = tuple(partition.published() for partition in changed)
        for topic in self._reconfigured:
            if not topic.deleting:
                changed += [each for each in topic.partitions if each.state is not None and each not in self._changed]
        effects: list[Effect] = []
        for broker in self._state.brokers.values():
            effects += self._stop_replica(broker)
            effects += self._roles(broker, changed, live)
            effects += self._metadata(broker, told, live)
        return effects

    def _stop_replica(self, broker: Broker) -> Iterable[Effect]:
        doomed = tuple(
            _stop(partition, DELETED_TOPIC_EPOCH)
            for topic in self._deleted
            for partition in topic.partitions
            if broker.broker_id in partition.replicas
        )
        # By the epoch that began without it the broker knows the order from a late one of an earlier removal (HOLE-09).
        doomed += tuple(
            _stop(partition, NO_EPOCH if partition.state is None else partition.state.leader_epoch)
            for partition in self._removed.get(broker.broker_id, ())
        )
        # A broker that still awaits its full LeaderAndIsr learns of it by what that does not list.
        if doomed and broker.broker_id not in self.roles_due:
            yield Send(
                broker.broker_id,
                m.StopReplicaRequest(
                    controller_id=self._controller_id,
                    controller_epoch=self.controller_epoch,
                    broker_epoch=broker.epoch,
                    sequence=UNNUMBERED,
                    partitions=doomed,
                ),
            )

    def _roles(self, broker: Broker, changed: Sequence[Partition], live: tuple[m.LiveBroker, ...]) -> Iterable[Effect]:
        full = broker.broker_id in self.roles_due
        if full:
            here = self._all_on(broker)
            if here is None:
                return
            self.roles_due.discard(broker.broker_id)
        else:
            here = [partition for partition in changed if broker.broker_id in partition.replicas]
        if not here and not full:
            return
        topics = {partition.topic.name: partition.topic for partition in here}
        yield Send(
            broker.broker_id,
            m.LeaderAndIsrRequest(
                controller_id=self._controller_id,
                controller_epoch=self.controller_epoch,
                broker_epoch=broker.epoch,
                sequence=UNNUMBERED,
                full=full,
                partition_states=tuple(self._published(partition) for partition in here),
                live_brokers=live,
                topic_states=tuple(filter(None, (topic.published_to(broker) for topic in topics.values()))),
                leader_throttle=self._state.placement.leader_throttle,
                follower_throttle=self._state.placement.follower_throttle,
            ),
        )

    def _published(self, partition: Partition) -> m.PartitionState:
        if self._changed.get(partition, False):
            return partition.published_as_new()
        return partition.published()

    def _all_on(self, broker: Broker) -> list[Partition] | None:
        """What a full LeaderAndIsr lists; None while a decision that it must not see the state before is being written.

        That is also a first state: what is not listed is deleted by the broker, and it may hold a replica of a partition
        whose state somebody has removed by hand.
        """
        here = []
        for partition in self._state.partitions_on(broker.broker_id).values():
            if partition.topic.deleting or (partition.state is None and partition.writing is None):
                continue
            if partition.state is None or partition.led_by_former_life_of(broker):
                return None
            here.append(partition)
        return here

    def _metadata(
        self, broker: Broker, told: tuple[m.PartitionState, ...], live: tuple[m.LiveBroker, ...]
    ) -> Iterable[Effect]:
        full = broker.broker_id in self._came
        if not (full or told or self._deleted or self._brokers_changed):
            return
        if full:
            told = tuple(
                partition.published()
                for partition in self._state.partitions()
                if partition.state is not None and not partition.topic.deleting
            )
        yield Send(
            broker.broker_id,
            m.UpdateMetadataRequest(
                controller_id=self._controller_id,
                controller_epoch=self.controller_epoch,
                broker_epoch=broker.epoch,
                sequence=UNNUMBERED,
                full=full,
                partition_states=told,
                live_brokers=live,
                deleted_topics=() if full else tuple(topic.name for topic in self._deleted),
                leader_throttle=self._state.placement.leader_throttle,
                follower_throttle=self._state.placement.follower_throttle,
            ),
        )


def _stop(partition: Partition, leader_epoch: int) -> m.StopReplicaPartition:
    return m.StopReplicaPartition(
        topic=partition.tp.topic,
        topic_id=partition.topic.topic_id,
        partition=partition.tp.partition,
        leader_epoch=leader_epoch,
        delete_partition=True,
    )
