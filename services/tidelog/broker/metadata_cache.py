"""What the controller last told this broker about the whole cluster; what clients are told when they ask."""

from collections.abc import Callable, Iterable

from tidelog.errors import ErrorCode
from tidelog.ids import NO_LEADER, Address, TopicPartition
from tidelog.names import code_of_unknown
from tidelog.sizes import Carriage
from tidelog.wire import messages as m

INTERNAL = "INTERNAL"
"""Name of the listener on which brokers and controllers reach a broker."""


class MetadataCache:
    def __init__(self) -> None:
        self._topics: dict[str, dict[int, m.PartitionState]] = {}
        self._brokers: dict[int, m.LiveBroker] = {}
        self.cluster_id = ""
        self.cluster_name = ""
        self.controller_id = -1
        self.leader_throttle = self.follower_throttle = 0
        """Bytes a second of what moves copy; 0: no limit."""
        self.carriage = Carriage()
        """Limits of what goes from this broker to the others."""
        self.on_deleted: Callable[[str], None] = lambda topic: None
        """Called when the controller has deleted a topic."""

    def update(self, request: m.UpdateMetadataRequest) -> None:
        deleted = set(request.deleted_topics)
        if request.full:
            deleted = self._topics.keys() - {state.topic for state in request.partition_states}
            self._topics.clear()
        for topic in deleted:
            self._topics.pop(topic, None)
            self.on_deleted(topic)
        for state in request.partition_states:
            known = self._topics.setdefault(state.topic, {})
            if known and next(iter(known.values())).topic_id != state.topic_id:
                known.clear()  # another topic of this name: nothing of the old one may be mixed in (HOLE-10)
            known[state.partition] = state
        self.controller_id = request.controller_id
        self.set_throttles(request.leader_throttle, request.follower_throttle)
        self.set_live(request.live_brokers)

    def set_live(self, brokers: Iterable[m.LiveBroker]) -> None:
        """From LeaderAndIsr too: a follower must find its new leader before UpdateMetadata arrives."""
        self._brokers = {b.broker_id: b for b in brokers}
        self.carriage.set_live({b.broker_id: b.fetch_max_bytes for b in self._brokers.values()})

    def set_throttles(self, leader: int, follower: int) -> None:
        """From LeaderAndIsr too: a move begins with it, before UpdateMetadata arrives."""
        self.leader_throttle, self.follower_throttle = leader, follower

    @property
    def live(self) -> dict[int, int]:
        """Broker id -> broker epoch of those that may be proposed for an ISR: one that is shutting down still serves and
        is reached, but the controller would refuse it (HOLE-20)."""
        return {b.broker_id: b.broker_epoch for b in self._brokers.values() if not b.shutting_down}

    def leader_of(self, tp: TopicPartition) -> m.PartitionState | None:
        return self._topics.get(tp.topic, {}).get(tp.partition)

    def all_in_sync(self, tp: TopicPartition) -> bool:
        """Whether every replica that the partition has or is to have is in its ISR, as far as this broker has heard."""
        state = self.leader_of(tp)
        return state is not None and {member.broker_id for member in state.isr} == set(state.replicas)

    def address_of(self, broker_id: int, listener: str = INTERNAL) -> Address | None:
        broker = self._brokers.get(broker_id)
        found = next((x for x in broker.listeners if x.name == listener), None) if broker is not None else None
        return None if found is None else Address(found.host, found.port)

    def answer(
        self, request: m.ClusterMetadataRequest, listener: str, coordinator_id: int = NO_LEADER
    ) -> m.ClusterMetadataResponse:
        """Addresses are those of the listener that was asked: a client outside cannot use the inner ones."""
        # Once each: a name of a few bytes, repeated, would make an answer of gigabytes.
        names = sorted(self._topics) if request.all_topics else dict.fromkeys(request.topics)
        return m.ClusterMetadataResponse(
            coordinator_id=coordinator_id,
            brokers_info=tuple(
                m.BrokerInfo(id=broker_id, host=address.host, port=address.port, rack=self._brokers[broker_id].rack)
                for broker_id in sorted(self._brokers)
                if (address := self.address_of(broker_id, listener)) is not None
            ),
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            topics=tuple(self._topic(name) for name in names),
            cluster_name=self.cluster_name,
        )

    def _topic(self, name: str) -> m.TopicMetadata:
        partitions = self._topics.get(name)
        if not partitions:
            return m.TopicMetadata(topic=name, error_code=code_of_unknown(name))
        return m.TopicMetadata(
            topic=name,
            topic_id=next(iter(partitions.values())).topic_id,
            partitions=tuple(
                m.PartitionMetadata(
                    partition=p.partition,
                    error_code=ErrorCode.NONE if p.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                    leader=p.leader,
                    leader_epoch=p.leader_epoch,
                    replicas=p.replicas,
                    isr=tuple(sorted(x.broker_id for x in p.isr)),
                )
                for p in (partitions[i] for i in sorted(partitions))
            ),
        )
