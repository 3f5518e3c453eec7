"""Answers to questions about the cluster, from the controller's books alone."""

from tidelog.controller import election
from tidelog.controller.model import ClusterState, Partition, Topic
from tidelog.ids import NO_EPOCH, NO_LEADER, BrokerId, TopicPartition
from tidelog.names import code_of_unknown
from tidelog.release import RELEASE
from tidelog.wire import messages as m


def describe_topics(state: ClusterState, request: m.DescribeTopicsRequest) -> m.DescribeTopicsResponse:
    """A topic whose deletion has begun is gone. One answer a name, however often it is asked for: small requests get no
    huge answers."""
    names = dict.fromkeys(request.names) or tuple(sorted(state.topics))
    topics = []
    for name in names:
        topic = state.topics.get(name)
        if topic is not None and not topic.deleting:
            topics.append(_topic(state, topic))
        elif request.names:
            topics.append(m.TopicDescription(name=name, error_code=code_of_unknown(name)))
    return m.DescribeTopicsResponse(topics=tuple(topics))


def describe_cluster(
    state: ClusterState, cluster_id: str, controller_id: int, controller_epoch: int, suspects: frozenset[BrokerId]
) -> m.DescribeClusterResponse:
    health = state.health
    brokers = tuple(
        m.ClusterBroker(
            broker=broker.live(broker_id in state.shutting_down),
            state=_broker_state(broker_id, suspects, state.shutting_down),
            leaders=state.leaders[broker_id],
            replicas=len(state.partitions_on(broker_id)),
            software=broker.release.version,
            feature_level=broker.release.level,
        )
        for broker_id, broker in sorted(state.brokers.items())
    )
    return m.DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        brokers=brokers,
        topics=sum(not topic.deleting for topic in state.topics.values()),
        partitions=state.partition_count,
        leaderless_partitions=health.leaderless,
        under_replicated_partitions=health.under_replicated,
        under_min_isr_partitions=health.under_min_isr,
        draining=tuple(
            m.DrainingBroker(broker_id=each, replicas=len(state.partitions_on(each))) for each in sorted(state.draining)
        ),
        feature_level=state.feature_level,
        controller_software=RELEASE.version,
    )


def list_reassignments(
    state: ClusterState, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    asked = {TopicPartition(each.topic, index) for each in request.topics for index in each.partitions}
    return m.ListPartitionReassignmentsResponse(
        reassignments=tuple(
            _reassignment(each)
            for tp, each in state.moving.items()
            if not each.topic.deleting and (not request.topics or tp in asked)
        ),
        leader_throttle=state.placement.leader_throttle,
        follower_throttle=state.placement.follower_throttle,
    )


def _reassignment(partition: Partition) -> m.OngoingReassignment:
    state, move = partition.state, partition.move
    assert move is not None
    return m.OngoingReassignment(
        topic=partition.tp.topic,
        partition=partition.tp.partition,
        replicas=partition.replicas,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
        target=move.target,
        original=move.old,
        isr=() if state is None else tuple(member.broker_id for member in state.isr),
        leader=NO_LEADER if state is None else state.leader,
        cancelled=move.target == move.old,
    )


def _broker_state(broker_id: BrokerId, suspects: frozenset[BrokerId], shutting_down: frozenset[BrokerId]) -> str:
    if broker_id in suspects:
        return "suspected"
    return "shutting_down" if broker_id in shutting_down else "alive"


def is_vetoed(state: ClusterState, partition: Partition) -> bool:
    """It has no leader because the ISR member that is back may have lost records (reliability 3.6 rule D)."""
    barred = state.shutting_down | partition.failed_on
    found = partition.state
    return found is not None and election.vetoed(partition.replicas, found, state.brokers, barred) is not None


def _topic(state: ClusterState, topic: Topic) -> m.TopicDescription:
    return m.TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        configs=topic.published().configs,
        partitions=tuple(_partition(state, each) for each in topic.partitions),
    )


def _partition(cluster: ClusterState, partition: Partition) -> m.PartitionDescription:
    state = partition.state
    return m.PartitionDescription(
        partition=partition.tp.partition,
        leader=NO_LEADER if state is None else state.leader,
        leader_epoch=NO_EPOCH if state is None else state.leader_epoch,
        replicas=partition.replicas,
        isr=() if state is None else tuple(member.broker_id for member in state.isr),
        partition_epoch=NO_EPOCH if state is None else state.partition_epoch,
        vetoed=is_vetoed(cluster, partition),
        recovering=state is not None and state.recovering,
        min_isr=partition.min_isr,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
    )
