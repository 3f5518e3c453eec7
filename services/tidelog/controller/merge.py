"""What waits for one broker, as few requests as possible: at most a StopReplica, a LeaderAndIsr and an UpdateMetadata.

Of two states of a partition the later one counts, so that a broker that was slow or away is told what is, not what was.
"""

from collections.abc import Iterable
from dataclasses import replace

from tidelog.wire import messages as m

Told = m.LeaderAndIsrRequest | m.UpdateMetadataRequest
"""Each says in full who lives and how fast moves may copy: the newest counts for both."""
Request = m.StopReplicaRequest | Told


def merge(requests: Iterable[Request]) -> list[Request]:
    """`requests` in the order they were made; the result in the order to send: what stops goes before what starts."""
    stops = _Stops()
    roles = _Roles()
    metadata = _Metadata()
    newest: Told | None = None
    for request in requests:
        match request:
            case m.StopReplicaRequest():
                stops.add(request)
                roles.stop(request)
            case m.LeaderAndIsrRequest():
                roles.add(request)
                newest = request
            case m.UpdateMetadataRequest():
                metadata.add(request)
                newest = request
    merged: list[Request] = []
    if stops.last is not None:
        merged.append(replace(stops.last, partitions=tuple(stops.partitions.values())))
    if newest is not None and (roles.full or roles.states):
        merged.append(roles.request(newest))
    if newest is not None and metadata.last is not None:
        merged.append(metadata.request(newest))
    return merged


class _Stops:
    def __init__(self) -> None:
        self.last: m.StopReplicaRequest | None = None
        self.partitions: dict[tuple[str, int, bytes], m.StopReplicaPartition] = {}

    def add(self, request: m.StopReplicaRequest) -> None:
        self.last = request
        for each in request.partitions:
            self.partitions[each.topic, each.partition, each.topic_id] = each


class _Roles:
    def __init__(self) -> None:
        self.last: m.LeaderAndIsrRequest | None = None
        self.full = False
        self.states: dict[tuple[str, int], m.PartitionState] = {}
        self._topics: dict[str, m.TopicState] = {}

    def add(self, request: m.LeaderAndIsrRequest) -> None:
        self.last = request
        if request.full:
            self.full = True
            self.states.clear()
        for state in request.partition_states:
            older = self.states.get((state.topic, state.partition))
            # That it is new is news until the broker has heard it.
            same = older is not None and older.is_new and older.topic_id == state.topic_id
            self.states[state.topic, state.partition] = replace(state, is_new=True) if same else state
        self._topics.update((each.topic, each) for each in request.topic_states)

    def stop(self, request: m.StopReplicaRequest) -> None:
        """What is stopped after it was started, and never told, need not be started. Another id is another topic."""
        for each in request.partitions:
            state = self.states.get((each.topic, each.partition))
            if state is not None and state.topic_id == each.topic_id:
                del self.states[each.topic, each.partition]

    def request(self, newest: Told) -> m.LeaderAndIsrRequest:
        assert self.last is not None
        named = {state.topic for state in self.states.values()}
        return replace(
            self.last,
            full=self.full,
            partition_states=tuple(self.states.values()),
            live_brokers=newest.live_brokers,
            leader_throttle=newest.leader_throttle,
            follower_throttle=newest.follower_throttle,
            topic_states=tuple(topic for name, topic in self._topics.items() if name in named),
        )


class _Metadata:
    def __init__(self) -> None:
        self.last: m.UpdateMetadataRequest | None = None
        self._full = False
        self._states: dict[tuple[str, int], m.PartitionState] = {}
        self._deleted: dict[str, None] = {}

    def add(self, request: m.UpdateMetadataRequest) -> None:
        self.last = request
        if request.full:
            self._full = True
            self._states.clear()
            self._deleted.clear()
        if request.deleted_topics:
            gone = frozenset(request.deleted_topics)
            self._states = {key: state for key, state in self._states.items() if key[0] not in gone}
            self._deleted.update(dict.fromkeys(request.deleted_topics))
        self._states.update(((state.topic, state.partition), state) for state in request.partition_states)

    def request(self, newest: Told) -> m.UpdateMetadataRequest:
        assert self.last is not None
        return replace(
            self.last,
            full=self._full,
            partition_states=tuple(self._states.values()),
            live_brokers=newest.live_brokers,
            leader_throttle=newest.leader_throttle,
            follower_throttle=newest.follower_throttle,
            deleted_topics=tuple(self._deleted),
        )
