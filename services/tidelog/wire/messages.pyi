"""Every message of proto/ as a frozen value; field comments are in proto/.

Generated from proto/ by `make proto`; do not edit.
"""

from tidelog.errors import ErrorCode
from tidelog.values import Message, value

@value(kw_only=True)
class BrokerInfo(Message):
    """A broker as a client of one listener reaches it (broker_struct of D0)."""

    id: int
    host: str = ""
    port: int
    rack: str = ""

@value(kw_only=True)
class Listener(Message):
    """One door of a broker."""

    name: str = ""
    host: str = ""
    port: int

@value(kw_only=True)
class LiveBroker(Message):
    """A live broker with all its doors, as the controller tells other brokers."""

    broker_id: int
    broker_epoch: int
    rack: str = ""
    listeners: tuple[Listener, ...] = ()
    shutting_down: bool = False
    fetch_max_bytes: int

@value(kw_only=True)
class IsrMember(Message):
    """A member of an ISR and the life of the broker in which it was admitted (KIP-903)."""

    broker_id: int
    broker_epoch: int

@value(kw_only=True)
class ConfigEntry(Message):
    key: str = ""
    value: str = ""

@value(kw_only=True)
class PartitionAssignment(Message):
    partition: int
    replicas: tuple[int, ...] = ()

@value(kw_only=True)
class NewTopic(Message):
    name: str = ""
    num_partitions: int
    replication_factor: int
    assignments: tuple[PartitionAssignment, ...] = ()
    configs: tuple[ConfigEntry, ...] = ()

@value(kw_only=True)
class CreateTopicsRequest(Message):
    topics: tuple[NewTopic, ...] = ()
    timeout_ms: int
    validate_only: bool = False

@value(kw_only=True)
class CreatedTopic(Message):
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    topic_id: bytes = b""
    num_partitions: int
    replication_factor: int

@value(kw_only=True)
class CreateTopicsResponse(Message):
    topics: tuple[CreatedTopic, ...] = ()

@value(kw_only=True)
class DeleteTopicsRequest(Message):
    names: tuple[str, ...] = ()
    timeout_ms: int

@value(kw_only=True)
class DeletedTopic(Message):
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""

@value(kw_only=True)
class DeleteTopicsResponse(Message):
    topics: tuple[DeletedTopic, ...] = ()

@value(kw_only=True)
class DescribeTopicsRequest(Message):
    names: tuple[str, ...] = ()

@value(kw_only=True)
class PartitionDescription(Message):
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    partition_epoch: int
    vetoed: bool = False
    recovering: bool = False
    min_isr: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

@value(kw_only=True)
class TopicDescription(Message):
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    topic_id: bytes = b""
    configs: tuple[ConfigEntry, ...] = ()
    partitions: tuple[PartitionDescription, ...] = ()

@value(kw_only=True)
class DescribeTopicsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[TopicDescription, ...] = ()

@value(kw_only=True)
class DescribeClusterRequest(Message):
    pass

@value(kw_only=True)
class ClusterBroker(Message):
    broker: LiveBroker
    state: str = ""
    leaders: int
    replicas: int
    software: str = ""
    feature_level: int

@value(kw_only=True)
class DrainingBroker(Message):
    broker_id: int
    replicas: int

@value(kw_only=True)
class DescribeClusterResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    cluster_id: str = ""
    controller_id: int
    controller_epoch: int
    brokers: tuple[ClusterBroker, ...] = ()
    topics: int
    partitions: int
    leaderless_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int
    draining: tuple[DrainingBroker, ...] = ()
    feature_level: int
    controller_software: str = ""
    cluster_name: str = ""

@value(kw_only=True)
class NewPartitions(Message):
    name: str = ""
    total_count: int
    assignments: tuple[PartitionAssignment, ...] = ()

@value(kw_only=True)
class CreatePartitionsRequest(Message):
    topics: tuple[NewPartitions, ...] = ()
    timeout_ms: int
    validate_only: bool = False

@value(kw_only=True)
class PartitionsCreated(Message):
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""

@value(kw_only=True)
class CreatePartitionsResponse(Message):
    topics: tuple[PartitionsCreated, ...] = ()

@value(kw_only=True)
class TopicPartitions(Message):
    """Partitions of one topic."""

    topic: str = ""
    partitions: tuple[int, ...] = ()

@value(kw_only=True)
class ElectLeadersRequest(Message):
    unclean: bool = False
    topics: tuple[TopicPartitions, ...] = ()
    timeout_ms: int
    candidates: tuple[int, ...] = ()
    validate_only: bool = False

@value(kw_only=True)
class ReplicaLogEnd(Message):
    broker_id: int
    last_epoch: int
    end_offset: int

@value(kw_only=True)
class ElectionResult(Message):
    """What became of one partition."""

    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    leader: int
    ends: tuple[ReplicaLogEnd, ...] = ()

@value(kw_only=True)
class ElectLeadersResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    results: tuple[ElectionResult, ...] = ()

@value(kw_only=True)
class ReleaseVetoRequest(Message):
    topics: tuple[TopicPartitions, ...] = ()
    timeout_ms: int

@value(kw_only=True)
class ReleaseVetoResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    results: tuple[ElectionResult, ...] = ()

@value(kw_only=True)
class TopicReassignment(Message):
    topic: str = ""
    partitions: tuple[PartitionAssignment, ...] = ()
    cancelled: tuple[int, ...] = ()

@value(kw_only=True)
class AlterPartitionReassignmentsRequest(Message):
    topics: tuple[TopicReassignment, ...] = ()
    replace: bool = False
    validate_only: bool = False
    timeout_ms: int
    leader_throttle: int
    follower_throttle: int

@value(kw_only=True)
class AlterPartitionReassignmentsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""

@value(kw_only=True)
class ListPartitionReassignmentsRequest(Message):
    topics: tuple[TopicPartitions, ...] = ()

@value(kw_only=True)
class OngoingReassignment(Message):
    topic: str = ""
    partition: int
    replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    target: tuple[int, ...] = ()
    original: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    leader: int
    cancelled: bool = False

@value(kw_only=True)
class ListPartitionReassignmentsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    reassignments: tuple[OngoingReassignment, ...] = ()
    leader_throttle: int
    follower_throttle: int

@value(kw_only=True)
class ConfigChange(Message):
    key: str = ""
    remove: bool = False
    value: str = ""

@value(kw_only=True)
class TopicConfigChanges(Message):
    """Of one topic: all of them are stored, or none."""

    name: str = ""
    changes: tuple[ConfigChange, ...] = ()

@value(kw_only=True)
class IncrementalAlterConfigsRequest(Message):
    topics: tuple[TopicConfigChanges, ...] = ()
    timeout_ms: int
    validate_only: bool = False

@value(kw_only=True)
class ConfigsAltered(Message):
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""

@value(kw_only=True)
class IncrementalAlterConfigsResponse(Message):
    topics: tuple[ConfigsAltered, ...] = ()

@value(kw_only=True)
class DescribeConfigsRequest(Message):
    topics: tuple[str, ...] = ()

@value(kw_only=True)
class ConfigSynonym(Message):
    key: str = ""
    value: str = ""
    source: str = ""
    origin: str = ""

@value(kw_only=True)
class DescribedConfig(Message):
    key: str = ""
    value: str = ""
    source: str = ""
    read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()

@value(kw_only=True)
class TopicConfigs(Message):
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    configs: tuple[DescribedConfig, ...] = ()

@value(kw_only=True)
class DescribeConfigsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[TopicConfigs, ...] = ()

@value(kw_only=True)
class DescribeBrokerConfigsRequest(Message):
    broker_id: int

@value(kw_only=True)
class DescribeBrokerConfigsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    configs: tuple[DescribedConfig, ...] = ()

@value(kw_only=True)
class DeleteRecordsPartition(Message):
    topic: str = ""
    partition: int
    offset: int
    topic_id: bytes = b""

@value(kw_only=True)
class DeleteRecordsRequest(Message):
    partitions: tuple[DeleteRecordsPartition, ...] = ()
    timeout_ms: int

@value(kw_only=True)
class DeleteRecordsResult(Message):
    topic: str = ""
    partition: int
    low_watermark: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""

@value(kw_only=True)
class DeleteRecordsResponse(Message):
    partitions: tuple[DeleteRecordsResult, ...] = ()

@value(kw_only=True)
class DescribeLogDirsRequest(Message):
    broker_id: int
    topics: tuple[str, ...] = ()

@value(kw_only=True)
class LogDirPartition(Message):
    topic: str = ""
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool = False
    error_code: ErrorCode = ErrorCode.NONE
    folder: str = ""

@value(kw_only=True)
class LogDir(Message):
    path: str = ""
    usable_bytes: int
    partitions: tuple[LogDirPartition, ...] = ()
    strays: tuple[LogDirPartition, ...] = ()
    another_past: str = ""

@value(kw_only=True)
class DescribeLogDirsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    log_dirs: tuple[LogDir, ...] = ()

@value(kw_only=True)
class DiscardDamageRequest(Message):
    broker_id: int
    topics: tuple[TopicPartitions, ...] = ()
    execute: bool = False

@value(kw_only=True)
class DamagedLog(Message):
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    offset: int
    end_offset: int
    size_bytes: int
    reason: str = ""
    leader: int

@value(kw_only=True)
class DiscardDamageResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    logs: tuple[DamagedLog, ...] = ()

@value(kw_only=True)
class AddBrokersRequest(Message):
    broker_ids: tuple[int, ...] = ()
    replace: bool = False
    validate_only: bool = False
    timeout_ms: int
    leader_throttle: int
    follower_throttle: int

@value(kw_only=True)
class AddBrokersResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    topics: tuple[TopicReassignment, ...] = ()

@value(kw_only=True)
class DrainBrokersRequest(Message):
    broker_ids: tuple[int, ...] = ()
    undo: bool = False
    replace: bool = False
    validate_only: bool = False
    timeout_ms: int
    leader_throttle: int
    follower_throttle: int

@value(kw_only=True)
class DrainBrokersResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    topics: tuple[TopicReassignment, ...] = ()

@value(kw_only=True)
class PartitionState(Message):
    topic: str = ""
    topic_id: bytes = b""
    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[IsrMember, ...] = ()
    partition_epoch: int
    replicas: tuple[int, ...] = ()
    is_new: bool = False
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    recovering: bool = False
    offline_replicas: tuple[int, ...] = ()

@value(kw_only=True)
class TopicState(Message):
    topic: str = ""
    topic_id: bytes = b""
    configs: tuple[ConfigEntry, ...] = ()

@value(kw_only=True)
class LeaderAndIsrRequest(Message):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    full: bool = False
    partition_states: tuple[PartitionState, ...] = ()
    live_brokers: tuple[LiveBroker, ...] = ()
    topic_states: tuple[TopicState, ...] = ()
    sequence: int
    continued: bool = False
    more: bool = False
    leader_throttle: int
    follower_throttle: int

@value(kw_only=True)
class PartitionResult(Message):
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    topic_id: bytes = b""

@value(kw_only=True)
class LeaderAndIsrResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()

@value(kw_only=True)
class StopReplicaPartition(Message):
    topic: str = ""
    topic_id: bytes = b""
    partition: int
    leader_epoch: int
    delete_partition: bool = False

@value(kw_only=True)
class StopReplicaRequest(Message):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[StopReplicaPartition, ...] = ()
    sequence: int

@value(kw_only=True)
class StopReplicaResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()

@value(kw_only=True)
class UpdateMetadataRequest(Message):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    full: bool = False
    partition_states: tuple[PartitionState, ...] = ()
    live_brokers: tuple[LiveBroker, ...] = ()
    deleted_topics: tuple[str, ...] = ()
    sequence: int
    continued: bool = False
    more: bool = False
    leader_throttle: int
    follower_throttle: int

@value(kw_only=True)
class UpdateMetadataResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE

@value(kw_only=True)
class ReplicaEndsPartition(Message):
    topic: str = ""
    topic_id: bytes = b""
    partition: int

@value(kw_only=True)
class ReplicaEndsRequest(Message):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[ReplicaEndsPartition, ...] = ()

@value(kw_only=True)
class ReplicaEnd(Message):
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    last_epoch: int
    end_offset: int

@value(kw_only=True)
class ReplicaEndsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    partitions: tuple[ReplicaEnd, ...] = ()

@value(kw_only=True)
class LivenessPing(Message):
    controller_id: int
    controller_epoch: int

@value(kw_only=True)
class LivenessPong(Message):
    broker_id: int
    broker_epoch: int
    failed: tuple[PartitionResult, ...] = ()

@value(kw_only=True)
class LeaderAndIsr(Message):
    leader: int
    leader_epoch: int
    isr: tuple[IsrMember, ...] = ()
    current_zk_version: int

@value(kw_only=True)
class AlterIsrPartition(Message):
    partition_id: int
    leader_and_isr: LeaderAndIsr

@value(kw_only=True)
class AlterIsrTopic(Message):
    topic: str = ""
    topic_id: bytes = b""
    partitions: tuple[AlterIsrPartition, ...] = ()

@value(kw_only=True)
class AlterIsrRequest(Message):
    """Each is judged at most once, and none after a later one of the same broker life."""

    broker_id: int
    broker_epoch: int
    topics: tuple[AlterIsrTopic, ...] = ()
    controller_epoch: int
    sequence: int

@value(kw_only=True)
class AlterIsrPartitionResult(Message):
    partition_id: int
    error_code: ErrorCode = ErrorCode.NONE
    leader_and_isr: LeaderAndIsr

@value(kw_only=True)
class AlterIsrTopicResult(Message):
    topic: str = ""
    partitions: tuple[AlterIsrPartitionResult, ...] = ()

@value(kw_only=True)
class AlterIsrResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[AlterIsrTopicResult, ...] = ()

@value(kw_only=True)
class ControlledShutdownRequest(Message):
    """A broker asks to leave: the controller moves what it leads to other in-sync replicas and takes it out of every."""

    broker_id: int
    broker_epoch: int

@value(kw_only=True)
class RemainingPartition(Message):
    topic: str = ""
    partition: int

@value(kw_only=True)
class ControlledShutdownResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    partitions_remaining: tuple[RemainingPartition, ...] = ()

@value(kw_only=True)
class AllocateProducerIdsRequest(Message):
    broker_id: int
    broker_epoch: int

@value(kw_only=True)
class AllocateProducerIdsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    producer_id_start: int
    producer_id_len: int

@value(kw_only=True)
class ClusterMetadataRequest(Message):
    """D0 gives it no body; the fields are additions (CONFLICT-29, CONFLICT-31)."""

    group_id: str = ""
    topics: tuple[str, ...] = ()
    all_topics: bool = False

@value(kw_only=True)
class PartitionMetadata(Message):
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()

@value(kw_only=True)
class TopicMetadata(Message):
    topic: str = ""
    topic_id: bytes = b""
    error_code: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionMetadata, ...] = ()

@value(kw_only=True)
class ClusterMetadataResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    coordinator_id: int
    brokers_info: tuple[BrokerInfo, ...] = ()
    cluster_id: str = ""
    controller_id: int
    topics: tuple[TopicMetadata, ...] = ()
    cluster_name: str = ""

@value(kw_only=True)
class RegisterConsumerRequest(Message):
    """The first message of a consumer."""

    group_id: str = ""
    consumer_id: str = ""
    topic_count: str = ""
    auto_commit: bool = False
    auto_offset_reset: str = ""
    session_timeout_ms: int
    incarnation: int
    static_member: bool = False
    max_processing_ms: int
    assignor: str = ""
    rejoin: bool = False
    client_id: str = ""
    admission: int
    watch_port: int

@value(kw_only=True)
class OffsetInfo(Message):
    """offset_struct of D0."""

    topic: str = ""
    partition: int
    offset: int
    leader_epoch: int
    metadata: str = ""
    topic_id: bytes = b""

@value(kw_only=True)
class PingResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    consumer_id: str = ""
    offset_info: tuple[OffsetInfo, ...] = ()
    coordinator_epoch: int
    generation: int

@value(kw_only=True)
class StopFetcherResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    consumer_id: str = ""
    offset_info: tuple[OffsetInfo, ...] = ()
    coordinator_epoch: int
    generation: int
    started_generation: int
    finishing: bool = False

@value(kw_only=True)
class StartFetcherResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    consumer_id: str = ""
    coordinator_epoch: int
    generation: int

@value(kw_only=True)
class LeaveGroupRequest(Message):
    """The consumer has stopped for good: no session timeout needs to be waited for (HOLE-49)."""

    consumer_id: str = ""
    coordinator_epoch: int
    generation: int
    offset_info: tuple[OffsetInfo, ...] = ()
    reason: str = ""

@value(kw_only=True)
class ConsumerMessage(Message):
    """What a consumer sends; exactly one field is set."""

    number: int
    register: RegisterConsumerRequest | None = None
    ping: PingResponse | None = None
    stopped: StopFetcherResponse | None = None
    started: StartFetcherResponse | None = None
    leave: LeaveGroupRequest | None = None
    cause: str = ""

@value(kw_only=True)
class RegisterConsumerResponse(Message):
    """Ownership does not come with it: that is StartFetcherRequest's (CONFLICT-02)."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    coordinator_epoch: int
    admission: int

@value(kw_only=True)
class PingRequest(Message):
    """Coordinator to consumer, every third of the session timeout (HeartbeatRequest in D0's implementation)."""

    consumer_id: str = ""
    num_retries: int
    coordinator_epoch: int
    generation: int

@value(kw_only=True)
class PartitionName(Message):
    topic: str = ""
    partition: int

@value(kw_only=True)
class StopFetcherRequest(Message):
    """Coordinator to consumer: stop, tell where you are."""

    consumer_id: str = ""
    coordinator_epoch: int
    generation: int
    revoked: tuple[PartitionName, ...] = ()

@value(kw_only=True)
class AssignedPartition(Message):
    """partition_struct of D0."""

    topic: str = ""
    partition: int
    offset: int
    leader_epoch: int
    topic_id: bytes = b""

@value(kw_only=True)
class OwnershipInfo(Message):
    """ownership_struct of D0: what one thread of the consumer reads."""

    consumer_thread_id: str = ""
    assigned_parts: tuple[AssignedPartition, ...] = ()

@value(kw_only=True)
class StartFetcherRequest(Message):
    """Coordinator to consumer: own this, from here."""

    consumer_id: str = ""
    num_threads: int
    ownership_info: tuple[OwnershipInfo, ...] = ()
    brokers_info: tuple[BrokerInfo, ...] = ()
    coordinator_epoch: int
    generation: int

@value(kw_only=True)
class LeaveGroupResponse(Message):
    """Its last offsets are stored; the coordinator ends the stream after it."""

    error_code: ErrorCode = ErrorCode.NONE

@value(kw_only=True)
class CoordinatorMessage(Message):
    """What a coordinator sends; exactly one field is set."""

    last_number: int
    registered: RegisterConsumerResponse | None = None
    ping: PingRequest | None = None
    stop: StopFetcherRequest | None = None
    start: StartFetcherRequest | None = None
    left: LeaveGroupResponse | None = None
    cause: str = ""

@value(kw_only=True)
class CommitOffsetsRequest(Message):
    """An active commit (OPEN-01), of a member, or of nobody (consumer_id empty, generation -1) while the group has n."""

    group_id: str = ""
    consumer_id: str = ""
    incarnation: int
    coordinator_epoch: int
    generation: int
    number: int
    offsets: tuple[OffsetInfo, ...] = ()

@value(kw_only=True)
class CommittedResult(Message):
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""

@value(kw_only=True)
class CommitOffsetsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    results: tuple[CommittedResult, ...] = ()

@value(kw_only=True)
class FetchOffsetsRequest(Message):
    group_id: str = ""
    partitions: tuple[PartitionName, ...] = ()

@value(kw_only=True)
class FetchOffsetsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    offsets: tuple[OffsetInfo, ...] = ()

@value(kw_only=True)
class ListGroupsRequest(Message):
    """Of the groups that the asked broker coordinates; a client asks all brokers."""

    states: tuple[str, ...] = ()

@value(kw_only=True)
class ListedGroup(Message):
    group_id: str = ""
    state: str = ""

@value(kw_only=True)
class ListGroupsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    groups: tuple[ListedGroup, ...] = ()
    shards: tuple[int, ...] = ()
    shard_count: int

@value(kw_only=True)
class DescribeGroupsRequest(Message):
    group_ids: tuple[str, ...] = ()

@value(kw_only=True)
class DescribedMember(Message):
    consumer_id: str = ""
    client_id: str = ""
    host: str = ""
    topic_count: str = ""
    session_timeout_ms: int
    static_member: bool = False
    partitions: tuple[PartitionName, ...] = ()
    watch_port: int

@value(kw_only=True)
class DescribedGroup(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    group_id: str = ""
    state: str = ""
    assignor: str = ""
    coordinator_id: int
    coordinator_epoch: int
    generation: int
    members: tuple[DescribedMember, ...] = ()
    offsets: tuple[OffsetInfo, ...] = ()

@value(kw_only=True)
class DescribeGroupsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    groups: tuple[DescribedGroup, ...] = ()

@value(kw_only=True)
class DeleteGroupsRequest(Message):
    """Only groups without members: NON_EMPTY_GROUP otherwise."""

    group_ids: tuple[str, ...] = ()

@value(kw_only=True)
class DeletedGroup(Message):
    group_id: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""

@value(kw_only=True)
class DeleteGroupsResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    results: tuple[DeletedGroup, ...] = ()

@value(kw_only=True)
class ProducePartition(Message):
    topic: str = ""
    topic_id: bytes = b""
    partition: int
    leader_epoch: int
    records: bytes = b""

@value(kw_only=True)
class ProduceRequest(Message):
    client_id: str = ""
    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...] = ()

@value(kw_only=True)
class ProduceResult(Message):
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    base_offset: int
    log_start_offset: int
    leader_id: int
    leader_epoch: int
    isr_size: int

@value(kw_only=True)
class ProduceResponse(Message):
    results: tuple[ProduceResult, ...] = ()

@value(kw_only=True)
class ProduceAnswer(Message):
    number: int
    response: ProduceResponse

@value(kw_only=True)
class ProduceAnswers(Message):
    """What has been decided since the last message."""

    answers: tuple[ProduceAnswer, ...] = ()

@value(kw_only=True)
class FetchPartition(Message):
    topic: str = ""
    topic_id: bytes = b""
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    max_bytes: int

@value(kw_only=True)
class FetchRequest(Message):
    client_id: str = ""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchPartition, ...] = ()

@value(kw_only=True)
class FetchResult(Message):
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    high_watermark: int
    log_start_offset: int
    diverging_epoch: int
    diverging_end_offset: int
    leader_id: int
    leader_epoch: int
    records: bytes = b""

@value(kw_only=True)
class FetchResponse(Message):
    results: tuple[FetchResult, ...] = ()

@value(kw_only=True)
class SearchStart(Message):
    """A lookup considers only batches with an offset from here on."""

    offset: int

@value(kw_only=True)
class ListOffsetsPartition(Message):
    topic: str = ""
    partition: int
    leader_epoch: int
    timestamp: int
    topic_id: bytes = b""
    own: bool = False
    search_start: SearchStart | None = None

@value(kw_only=True)
class ListOffsetsRequest(Message):
    partitions: tuple[ListOffsetsPartition, ...] = ()

@value(kw_only=True)
class OwnEpoch(Message):
    leader_epoch: int
    start: int

@value(kw_only=True)
class OwnLog(Message):
    """A replica, beside the end of its log."""

    log_start: int
    high_watermark: int
    epochs: tuple[OwnEpoch, ...] = ()
    isr_size: int

@value(kw_only=True)
class ListOffsetsResult(Message):
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    timestamp: int
    offset: int
    leader_epoch: int
    own_log: OwnLog | None = None

@value(kw_only=True)
class ListOffsetsResponse(Message):
    results: tuple[ListOffsetsResult, ...] = ()

@value(kw_only=True)
class EpochPartition(Message):
    topic: str = ""
    partition: int
    current_leader_epoch: int
    leader_epoch: int
    topic_id: bytes = b""

@value(kw_only=True)
class OffsetForLeaderEpochRequest(Message):
    partitions: tuple[EpochPartition, ...] = ()

@value(kw_only=True)
class EpochEndOffset(Message):
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    leader_epoch: int
    end_offset: int
    error_message: str = ""

@value(kw_only=True)
class OffsetForLeaderEpochResponse(Message):
    results: tuple[EpochEndOffset, ...] = ()

@value(kw_only=True)
class ReplicaPosition(Message):
    topic: str = ""
    topic_id: bytes = b""
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    error_code: ErrorCode = ErrorCode.NONE
    leaving: bool = False
    log_start_offset: int

@value(kw_only=True)
class ReplicaFetchRequest(Message):
    """Follower to leader: where it stands."""

    replica_id: int
    broker_epoch: int
    acked_chunk: int
    partitions: tuple[ReplicaPosition, ...] = ()

@value(kw_only=True)
class SentBatch(Message):
    """The batch at this offset as its producer sent it."""

    base_offset: int
    crc: int

@value(kw_only=True)
class ReplicaChunk(Message):
    topic: str = ""
    partition: int
    leader_epoch: int
    error_code: ErrorCode = ErrorCode.NONE
    high_watermark: int
    log_start_offset: int
    diverging_epoch: int
    diverging_end_offset: int
    offset: int
    topic_id: bytes = b""
    dropped_to: int
    marked: bool = False
    sent: tuple[SentBatch, ...] = ()
    records: bytes = b""

@value(kw_only=True)
class ReplicaFetchResponse(Message):
    """Leader to follower: everything with news, partitions in rotation, at most 1 MiB of records (or one larger batc."""

    chunk: int
    partitions: tuple[ReplicaChunk, ...] = ()

@value(kw_only=True)
class InitProducerIdRequest(Message):
    client_id: str = ""
    producer_id: int
    producer_epoch: int

@value(kw_only=True)
class InitProducerIdResponse(Message):
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    producer_id: int
    producer_epoch: int

@value(kw_only=True)
class WatchedMember(Message):
    group_id: str = ""
    consumer_id: str = ""

@value(kw_only=True)
class WatchRequest(Message):
    process: str = ""
    families: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    partition: int
    groups: tuple[str, ...] = ()
    life: int
    number: int
    last: int
    age_ms: int
    member: WatchedMember | None = None

@value(kw_only=True)
class WatchedPartition(Message):
    topic: str = ""
    partition: int

@value(kw_only=True)
class EventName(Message):
    process: str = ""
    life: int
    number: int

@value(kw_only=True)
class ZnodeName(Message):
    """Names the event of the process that left a znode like this."""

    path: str = ""
    version: int

@value(kw_only=True)
class BrokerSeen(Message):
    """The controller sees a broker in a new life."""

    broker_id: int

@value(kw_only=True)
class BrokerLost(Message):
    """Its registration is gone: its session has ended, or it left."""

    broker_id: int

@value(kw_only=True)
class BrokerSuspected(Message):
    """Its stream broke and its port refuses connections."""

    broker_id: int

@value(kw_only=True)
class BrokerCleared(Message):
    """It answers again."""

    broker_id: int

@value(kw_only=True)
class ControllerElected(Message):
    controller_epoch: int

@value(kw_only=True)
class ControllerLoaded(Message):
    """It has read what its predecessors stored."""

    controller_epoch: int
    topics: int
    brokers: int

@value(kw_only=True)
class ControllerResigned(Message):
    controller_epoch: int
    reason: str = ""

@value(kw_only=True)
class LeaderChosen(Message):
    leader_before: int
    leader: int
    leader_epoch: int
    isr_before: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    why: str = ""

@value(kw_only=True)
class IsrChosen(Message):
    """The leader stays."""

    isr_before: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    why: str = ""

@value(kw_only=True)
class OrderSent(Message):
    order: str = ""
    broker_id: int
    partitions: int
    full: bool = False

@value(kw_only=True)
class OrderReceived(Message):
    order: str = ""
    controller_id: int
    controller_epoch: int
    partitions: int
    full: bool = False

@value(kw_only=True)
class OrderApplied(Message):
    order: str = ""
    failed: int

@value(kw_only=True)
class OrderRefused(Message):
    order: str = ""
    code: ErrorCode = ErrorCode.NONE

@value(kw_only=True)
class BecameLeader(Message):
    leader_epoch: int
    log_end: int
    high_watermark: int

@value(kw_only=True)
class BecameFollower(Message):
    leader: int
    leader_epoch: int
    log_end: int
    high_watermark: int

@value(kw_only=True)
class EpochStarted(Message):
    leader_epoch: int
    start: int

@value(kw_only=True)
class LogTruncated(Message):
    from_offset: int
    to_offset: int
    rule: str = ""
    epoch: int

@value(kw_only=True)
class LogReset(Message):
    """The leader keeps nothing that follows this log, so it begins anew."""

    from_offset: int
    to_offset: int

@value(kw_only=True)
class HighWatermarkAdvanced(Message):
    from_offset: int
    to_offset: int
    count: int

@value(kw_only=True)
class IsrProposed(Message):
    isr_before: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    partition_epoch: int

@value(kw_only=True)
class IsrAnswered(Message):
    code: ErrorCode = ErrorCode.NONE
    isr: tuple[int, ...] = ()
    partition_epoch: int

@value(kw_only=True)
class ZnodeChange(Message):
    path: str = ""
    version_before: int
    version: int

@value(kw_only=True)
class StoreWritten(Message):
    """A multi of an elected role."""

    changes: tuple[ZnodeChange, ...] = ()
    more: int
    result: str = ""
    purpose: str = ""

@value(kw_only=True)
class CoordinatorElected(Message):
    shard: int
    coordinator_epoch: int

@value(kw_only=True)
class CoordinatorLoaded(Message):
    """It has read what its predecessors stored."""

    shard: int
    coordinator_epoch: int
    groups: int
    offsets: int
    took_ms: int

@value(kw_only=True)
class CoordinatorResigned(Message):
    shard: int
    coordinator_epoch: int
    reason: str = ""

@value(kw_only=True)
class MemberRegistered(Message):
    """The subject of all that follows is the group."""

    consumer_id: str = ""
    returned: bool = False
    members: int

@value(kw_only=True)
class MemberDisconnected(Message):
    """Its stream has ended."""

    consumer_id: str = ""

@value(kw_only=True)
class PingMissed(Message):
    consumer_id: str = ""
    misses: int

@value(kw_only=True)
class AnswerMissed(Message):
    """It has not done in time what it was asked."""

    consumer_id: str = ""
    request: str = ""

@value(kw_only=True)
class MemberGone(Message):
    """It is dead, or has left."""

    consumer_id: str = ""
    reason: str = ""
    owned: int
    members: int

@value(kw_only=True)
class RebalanceBegun(Message):
    generation: int
    reason: str = ""
    members: int
    stopped: int

@value(kw_only=True)
class StopFetcherSent(Message):
    consumer_id: str = ""
    generation: int
    partitions: int

@value(kw_only=True)
class StopFetcherAnswered(Message):
    consumer_id: str = ""
    generation: int
    finishing: bool = False

@value(kw_only=True)
class StartFetcherSent(Message):
    consumer_id: str = ""
    generation: int
    partitions: int

@value(kw_only=True)
class StartFetcherAnswered(Message):
    consumer_id: str = ""
    generation: int

@value(kw_only=True)
class RebalanceEnded(Message):
    generation: int
    reason: str = ""
    failed: bool = False
    stopped: int
    took_ms: int

@value(kw_only=True)
class MemberJoined(Message):
    """The coordinator has taken it as a member, or as back."""

    consumer_id: str = ""
    returned: bool = False

@value(kw_only=True)
class CoordinatorLost(Message):
    """Its stream to the coordinator has ended."""

    consumer_id: str = ""

@value(kw_only=True)
class StopFetcherReceived(Message):
    coordinator_epoch: int
    generation: int
    partitions: int

@value(kw_only=True)
class StopFetcherObeyed(Message):
    """It has answered."""

    generation: int
    finishing: bool = False

@value(kw_only=True)
class StartFetcherReceived(Message):
    coordinator_epoch: int
    generation: int
    partitions: int

@value(kw_only=True)
class StartFetcherObeyed(Message):
    """It has answered."""

    generation: int

@value(kw_only=True)
class FetchingStarted(Message):
    """The subject is the partition."""

    group_id: str = ""
    offset: int

@value(kw_only=True)
class FetchingStopped(Message):
    """The subject is the partition."""

    group_id: str = ""
    offset: int
    why: str = ""

@value(kw_only=True)
class MemberFenced(Message):
    """The coordinator does not know it, or not as what it says it is."""

    consumer_id: str = ""
    code: ErrorCode = ErrorCode.NONE
    reason: str = ""

@value(kw_only=True)
class MemberLeaving(Message):
    consumer_id: str = ""
    reason: str = ""

@value(kw_only=True)
class MemberLeft(Message):
    consumer_id: str = ""
    stored: bool = False

@value(kw_only=True)
class FailoverStep(Message):
    """The steps of "Controller with ZKQueue", section "Roles and latency": 1 a broker is down, 2 the controller deci."""

    step: int
    took_us: int
    partitions: int

@value(kw_only=True)
class HighWatermarkFrozen(Message):
    """It waits, whatever the followers hold, because the ISR is below min.insync.replicas."""

    high_watermark: int
    log_end: int
    isr_size: int
    min_isr: int

@value(kw_only=True)
class HighWatermarkFreed(Message):
    high_watermark: int
    log_end: int
    isr_size: int
    min_isr: int

@value(kw_only=True)
class RequestFenced(Message):
    """A request, an order or a follower's position names an older epoch."""

    request: str = ""
    claimed_epoch: int
    leader_epoch: int
    code: ErrorCode = ErrorCode.NONE

@value(kw_only=True)
class LeaderDeposed(Message):
    """A follower has left this leader for the leader of a newer epoch."""

    leader_epoch: int
    newer_epoch: int

@value(kw_only=True)
class LagNoticed(Message):
    """A member of the ISR is behind for longer than replica.lag.time.max.ms."""

    broker_id: int
    offset: int
    log_end: int
    behind_ms: int

@value(kw_only=True)
class BrokerRegistered(Message):
    """The broker has made its ephemeral, which begins a life."""

    broker_id: int

@value(kw_only=True)
class SessionLost(Message):
    """Its ZooKeeper session has ended, and its ephemeral with it."""

    path: str = ""

@value(kw_only=True)
class WatchedEvent(Message):
    number: int
    time_ns: int
    partition: WatchedPartition | None = None
    broker_id: int | None = None
    group_id: str | None = None
    cause: EventName | None = None
    znode: ZnodeName | None = None
    broker_seen: BrokerSeen | None = None
    broker_lost: BrokerLost | None = None
    broker_suspected: BrokerSuspected | None = None
    broker_cleared: BrokerCleared | None = None
    controller_elected: ControllerElected | None = None
    controller_loaded: ControllerLoaded | None = None
    controller_resigned: ControllerResigned | None = None
    leader_chosen: LeaderChosen | None = None
    isr_chosen: IsrChosen | None = None
    order_sent: OrderSent | None = None
    order_received: OrderReceived | None = None
    order_applied: OrderApplied | None = None
    order_refused: OrderRefused | None = None
    became_leader: BecameLeader | None = None
    became_follower: BecameFollower | None = None
    epoch_started: EpochStarted | None = None
    log_truncated: LogTruncated | None = None
    log_reset: LogReset | None = None
    high_watermark_advanced: HighWatermarkAdvanced | None = None
    isr_proposed: IsrProposed | None = None
    isr_answered: IsrAnswered | None = None
    store_written: StoreWritten | None = None
    coordinator_elected: CoordinatorElected | None = None
    coordinator_loaded: CoordinatorLoaded | None = None
    coordinator_resigned: CoordinatorResigned | None = None
    member_registered: MemberRegistered | None = None
    member_disconnected: MemberDisconnected | None = None
    ping_missed: PingMissed | None = None
    answer_missed: AnswerMissed | None = None
    member_gone: MemberGone | None = None
    rebalance_begun: RebalanceBegun | None = None
    stop_fetcher_sent: StopFetcherSent | None = None
    stop_fetcher_answered: StopFetcherAnswered | None = None
    start_fetcher_sent: StartFetcherSent | None = None
    start_fetcher_answered: StartFetcherAnswered | None = None
    rebalance_ended: RebalanceEnded | None = None
    member_joined: MemberJoined | None = None
    coordinator_lost: CoordinatorLost | None = None
    stop_fetcher_received: StopFetcherReceived | None = None
    stop_fetcher_obeyed: StopFetcherObeyed | None = None
    start_fetcher_received: StartFetcherReceived | None = None
    start_fetcher_obeyed: StartFetcherObeyed | None = None
    fetching_started: FetchingStarted | None = None
    fetching_stopped: FetchingStopped | None = None
    member_fenced: MemberFenced | None = None
    member_leaving: MemberLeaving | None = None
    member_left: MemberLeft | None = None
    failover_step: FailoverStep | None = None
    high_watermark_frozen: HighWatermarkFrozen | None = None
    high_watermark_freed: HighWatermarkFreed | None = None
    request_fenced: RequestFenced | None = None
    leader_deposed: LeaderDeposed | None = None
    lag_noticed: LagNoticed | None = None
    broker_registered: BrokerRegistered | None = None
    session_lost: SessionLost | None = None

@value(kw_only=True)
class WatchResponse(Message):
    """Sent when there are new events, also if none of them is wanted, and at least once a second."""

    process: str = ""
    life: int
    events: tuple[WatchedEvent, ...] = ()
    lost: int
    number: int
    newest: int
