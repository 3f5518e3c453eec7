"""Every message of proto/ as a frozen value; field comments are in proto/.

Generated from proto/ by `make proto`; do not edit.
"""

from tidelog.errors import ErrorCode
from tidelog.values import value


@value(kw_only=True)
class BrokerInfo:
    """A broker as a client of one listener reaches it (broker_struct of D0)."""

    id: int
    host: str = ""
    port: int
    rack: str = ""


@value(kw_only=True)
class Listener:
    """One door of a broker."""

    name: str = ""
    host: str = ""
    port: int


@value(kw_only=True)
class LiveBroker:
    """A live broker with all its doors, as the controller tells other brokers."""

    broker_id: int
    broker_epoch: int
    rack: str = ""
    listeners: tuple[Listener, ...] = ()
    shutting_down: bool = False


@value(kw_only=True)
class IsrMember:
    """A member of an ISR and the life of the broker in which it was admitted (KIP-903)."""

    broker_id: int
    broker_epoch: int


@value(kw_only=True)
class ConfigEntry:
    key: str = ""
    value: str = ""


@value(kw_only=True)
class PartitionAssignment:
    partition: int
    replicas: tuple[int, ...] = ()


@value(kw_only=True)
class NewTopic:
    name: str = ""
    num_partitions: int
    replication_factor: int
    assignments: tuple[PartitionAssignment, ...] = ()
    configs: tuple[ConfigEntry, ...] = ()


@value(kw_only=True)
class CreateTopicsRequest:
    topics: tuple[NewTopic, ...] = ()
    timeout_ms: int
    validate_only: bool = False


@value(kw_only=True)
class CreatedTopic:
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    topic_id: bytes = b""
    num_partitions: int
    replication_factor: int


@value(kw_only=True)
class CreateTopicsResponse:
    topics: tuple[CreatedTopic, ...] = ()


@value(kw_only=True)
class DeleteTopicsRequest:
    names: tuple[str, ...] = ()
    timeout_ms: int


@value(kw_only=True)
class DeletedTopic:
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


@value(kw_only=True)
class DeleteTopicsResponse:
    topics: tuple[DeletedTopic, ...] = ()


@value(kw_only=True)
class DescribeTopicsRequest:
    names: tuple[str, ...] = ()


@value(kw_only=True)
class PartitionDescription:
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
class TopicDescription:
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    topic_id: bytes = b""
    configs: tuple[ConfigEntry, ...] = ()
    partitions: tuple[PartitionDescription, ...] = ()


@value(kw_only=True)
class DescribeTopicsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[TopicDescription, ...] = ()


@value(kw_only=True)
class DescribeClusterRequest:
    pass


@value(kw_only=True)
class ClusterBroker:
    broker: LiveBroker
    state: str = ""
    leaders: int
    replicas: int
    software: str = ""
    feature_level: int


@value(kw_only=True)
class DrainingBroker:
    broker_id: int
    replicas: int


@value(kw_only=True)
class DescribeClusterResponse:
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
class NewPartitions:
    name: str = ""
    total_count: int
    assignments: tuple[PartitionAssignment, ...] = ()


@value(kw_only=True)
class CreatePartitionsRequest:
    topics: tuple[NewPartitions, ...] = ()
    timeout_ms: int
    validate_only: bool = False


@value(kw_only=True)
class PartitionsCreated:
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


@value(kw_only=True)
class CreatePartitionsResponse:
    topics: tuple[PartitionsCreated, ...] = ()


@value(kw_only=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = ""
    partitions: tuple[int, ...] = ()


@value(kw_only=True)
class ElectLeadersRequest:
    unclean: bool = False
    topics: tuple[TopicPartitions, ...] = ()
    timeout_ms: int


@value(kw_only=True)
class ElectionResult:
    """What became of one partition."""

    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


@value(kw_only=True)
class ElectLeadersResponse:
    error_code: ErrorCode = ErrorCode.NONE
    results: tuple[ElectionResult, ...] = ()


@value(kw_only=True)
class ReleaseVetoRequest:
    topics: tuple[TopicPartitions, ...] = ()
    timeout_ms: int


@value(kw_only=True)
class ReleaseVetoResponse:
    error_code: ErrorCode = ErrorCode.NONE
    results: tuple[ElectionResult, ...] = ()


@value(kw_only=True)
class TopicReassignment:
    topic: str = ""
    partitions: tuple[PartitionAssignment, ...] = ()
    cancelled: tuple[int, ...] = ()


@value(kw_only=True)
class AlterPartitionReassignmentsRequest:
    topics: tuple[TopicReassignment, ...] = ()
    replace: bool = False
    validate_only: bool = False
    timeout_ms: int
    leader_throttle: int
    follower_throttle: int


@value(kw_only=True)
class AlterPartitionReassignmentsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


@value(kw_only=True)
class ListPartitionReassignmentsRequest:
    topics: tuple[TopicPartitions, ...] = ()


@value(kw_only=True)
class OngoingReassignment:
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
class ListPartitionReassignmentsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    reassignments: tuple[OngoingReassignment, ...] = ()
    leader_throttle: int
    follower_throttle: int


@value(kw_only=True)
class ConfigChange:
    key: str = ""
    remove: bool = False
    value: str = ""


@value(kw_only=True)
class TopicConfigChanges:
    """Of one topic: all of them are stored, or none."""

    name: str = ""
    changes: tuple[ConfigChange, ...] = ()


@value(kw_only=True)
class IncrementalAlterConfigsRequest:
    topics: tuple[TopicConfigChanges, ...] = ()
    timeout_ms: int
    validate_only: bool = False


@value(kw_only=True)
class ConfigsAltered:
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


@value(kw_only=True)
class IncrementalAlterConfigsResponse:
    topics: tuple[ConfigsAltered, ...] = ()


@value(kw_only=True)
class DescribeConfigsRequest:
    topics: tuple[str, ...] = ()


@value(kw_only=True)
class ConfigSynonym:
    key: str = ""
    value: str = ""
    source: str = ""
    origin: str = ""


@value(kw_only=True)
class DescribedConfig:
    key: str = ""
    value: str = ""
    source: str = ""
    read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()


@value(kw_only=True)
class TopicConfigs:
    name: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    configs: tuple[DescribedConfig, ...] = ()


@value(kw_only=True)
class DescribeConfigsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[TopicConfigs, ...] = ()


@value(kw_only=True)
class DescribeBrokerConfigsRequest:
    broker_id: int


@value(kw_only=True)
class DescribeBrokerConfigsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    configs: tuple[DescribedConfig, ...] = ()


@value(kw_only=True)
class DeleteRecordsPartition:
    topic: str = ""
    partition: int
    offset: int
    topic_id: bytes = b""


@value(kw_only=True)
class DeleteRecordsRequest:
    partitions: tuple[DeleteRecordsPartition, ...] = ()
    timeout_ms: int


@value(kw_only=True)
class DeleteRecordsResult:
    topic: str = ""
    partition: int
    low_watermark: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


@value(kw_only=True)
class DeleteRecordsResponse:
    partitions: tuple[DeleteRecordsResult, ...] = ()


@value(kw_only=True)
class DescribeLogDirsRequest:
    broker_id: int
    topics: tuple[str, ...] = ()


@value(kw_only=True)
class LogDirPartition:
    topic: str = ""
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool = False
    error_code: ErrorCode = ErrorCode.NONE


@value(kw_only=True)
class LogDir:
    path: str = ""
    usable_bytes: int
    partitions: tuple[LogDirPartition, ...] = ()


@value(kw_only=True)
class DescribeLogDirsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    log_dirs: tuple[LogDir, ...] = ()


@value(kw_only=True)
class AddBrokersRequest:
    broker_ids: tuple[int, ...] = ()
    replace: bool = False
    validate_only: bool = False
    timeout_ms: int
    leader_throttle: int
    follower_throttle: int


@value(kw_only=True)
class AddBrokersResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    topics: tuple[TopicReassignment, ...] = ()


@value(kw_only=True)
class DrainBrokersRequest:
    broker_ids: tuple[int, ...] = ()
    undo: bool = False
    replace: bool = False
    validate_only: bool = False
    timeout_ms: int
    leader_throttle: int
    follower_throttle: int


@value(kw_only=True)
class DrainBrokersResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    topics: tuple[TopicReassignment, ...] = ()


@value(kw_only=True)
class PartitionState:
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
class TopicState:
    topic: str = ""
    topic_id: bytes = b""
    configs: tuple[ConfigEntry, ...] = ()


@value(kw_only=True)
class LeaderAndIsrRequest:
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
class PartitionResult:
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    topic_id: bytes = b""


@value(kw_only=True)
class LeaderAndIsrResponse:
    error_code: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()


@value(kw_only=True)
class StopReplicaPartition:
    topic: str = ""
    topic_id: bytes = b""
    partition: int
    leader_epoch: int
    delete_partition: bool = False


@value(kw_only=True)
class StopReplicaRequest:
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[StopReplicaPartition, ...] = ()
    sequence: int


@value(kw_only=True)
class StopReplicaResponse:
    error_code: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()


@value(kw_only=True)
class UpdateMetadataRequest:
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
class UpdateMetadataResponse:
    error_code: ErrorCode = ErrorCode.NONE


@value(kw_only=True)
class LivenessPing:
    controller_id: int
    controller_epoch: int


@value(kw_only=True)
class LivenessPong:
    broker_id: int
    broker_epoch: int
    failed: tuple[PartitionResult, ...] = ()


@value(kw_only=True)
class LeaderAndIsr:
    leader: int
    leader_epoch: int
    isr: tuple[IsrMember, ...] = ()
    current_zk_version: int


@value(kw_only=True)
class AlterIsrPartition:
    partition_id: int
    leader_and_isr: LeaderAndIsr


@value(kw_only=True)
class AlterIsrTopic:
    topic: str = ""
    topic_id: bytes = b""
    partitions: tuple[AlterIsrPartition, ...] = ()


@value(kw_only=True)
class AlterIsrRequest:
    """Each is judged at most once, and none after a later one of the same broker life."""

    broker_id: int
    broker_epoch: int
    topics: tuple[AlterIsrTopic, ...] = ()
    controller_epoch: int
    sequence: int


@value(kw_only=True)
class AlterIsrPartitionResult:
    partition_id: int
    error_code: ErrorCode = ErrorCode.NONE
    leader_and_isr: LeaderAndIsr


@value(kw_only=True)
class AlterIsrTopicResult:
    topic: str = ""
    partitions: tuple[AlterIsrPartitionResult, ...] = ()


@value(kw_only=True)
class AlterIsrResponse:
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[AlterIsrTopicResult, ...] = ()


@value(kw_only=True)
class ControlledShutdownRequest:
    """A broker asks to leave: the controller moves what it leads to other in-sync replicas and takes it out of every."""

    broker_id: int
    broker_epoch: int


@value(kw_only=True)
class RemainingPartition:
    topic: str = ""
    partition: int


@value(kw_only=True)
class ControlledShutdownResponse:
    error_code: ErrorCode = ErrorCode.NONE
    partitions_remaining: tuple[RemainingPartition, ...] = ()


@value(kw_only=True)
class AllocateProducerIdsRequest:
    broker_id: int
    broker_epoch: int


@value(kw_only=True)
class AllocateProducerIdsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    producer_id_start: int
    producer_id_len: int


@value(kw_only=True)
class ClusterMetadataRequest:
    """D0 gives it no body; the fields are additions (CONFLICT-29, CONFLICT-31)."""

    group_id: str = ""
    topics: tuple[str, ...] = ()
    all_topics: bool = False


@value(kw_only=True)
class PartitionMetadata:
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@value(kw_only=True)
class TopicMetadata:
    topic: str = ""
    topic_id: bytes = b""
    error_code: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionMetadata, ...] = ()


@value(kw_only=True)
class ClusterMetadataResponse:
    error_code: ErrorCode = ErrorCode.NONE
    coordinator_id: int
    brokers_info: tuple[BrokerInfo, ...] = ()
    cluster_id: str = ""
    controller_id: int
    topics: tuple[TopicMetadata, ...] = ()
    cluster_name: str = ""


@value(kw_only=True)
class RegisterConsumerRequest:
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


@value(kw_only=True)
class OffsetInfo:
    """offset_struct of D0."""

    topic: str = ""
    partition: int
    offset: int
    leader_epoch: int
    metadata: str = ""


@value(kw_only=True)
class PingResponse:
    error_code: ErrorCode = ErrorCode.NONE
    consumer_id: str = ""
    offset_info: tuple[OffsetInfo, ...] = ()
    coordinator_epoch: int
    generation: int


@value(kw_only=True)
class StopFetcherResponse:
    error_code: ErrorCode = ErrorCode.NONE
    consumer_id: str = ""
    offset_info: tuple[OffsetInfo, ...] = ()
    coordinator_epoch: int
    generation: int
    started_generation: int
    finishing: bool = False


@value(kw_only=True)
class StartFetcherResponse:
    error_code: ErrorCode = ErrorCode.NONE
    consumer_id: str = ""
    coordinator_epoch: int
    generation: int


@value(kw_only=True)
class LeaveGroupRequest:
    """The consumer has stopped for good: no session timeout needs to be waited for (HOLE-49)."""

    consumer_id: str = ""
    coordinator_epoch: int
    generation: int
    offset_info: tuple[OffsetInfo, ...] = ()
    reason: str = ""


@value(kw_only=True)
class ConsumerMessage:
    """What a consumer sends; exactly one field is set."""

    number: int
    register: RegisterConsumerRequest | None = None
    ping: PingResponse | None = None
    stopped: StopFetcherResponse | None = None
    started: StartFetcherResponse | None = None
    leave: LeaveGroupRequest | None = None


@value(kw_only=True)
class RegisterConsumerResponse:
    """Ownership does not come with it: that is StartFetcherRequest's (CONFLICT-02)."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    coordinator_epoch: int


@value(kw_only=True)
class PingRequest:
    """Coordinator to consumer, every third of the session timeout (HeartbeatRequest in D0's implementation)."""

    consumer_id: str = ""
    num_retries: int
    coordinator_epoch: int
    generation: int


@value(kw_only=True)
class PartitionName:
    topic: str = ""
    partition: int


@value(kw_only=True)
class StopFetcherRequest:
    """Coordinator to consumer: stop, tell where you are."""

    consumer_id: str = ""
    coordinator_epoch: int
    generation: int
    revoked: tuple[PartitionName, ...] = ()


@value(kw_only=True)
class AssignedPartition:
    """partition_struct of D0."""

    topic: str = ""
    partition: int
    offset: int
    leader_epoch: int


@value(kw_only=True)
class OwnershipInfo:
    """ownership_struct of D0: what one thread of the consumer reads."""

    consumer_thread_id: str = ""
    assigned_parts: tuple[AssignedPartition, ...] = ()


@value(kw_only=True)
class StartFetcherRequest:
    """Coordinator to consumer: own this, from here."""

    consumer_id: str = ""
    num_threads: int
    ownership_info: tuple[OwnershipInfo, ...] = ()
    brokers_info: tuple[BrokerInfo, ...] = ()
    coordinator_epoch: int
    generation: int


@value(kw_only=True)
class LeaveGroupResponse:
    """Its last offsets are stored; the coordinator ends the stream after it."""

    error_code: ErrorCode = ErrorCode.NONE


@value(kw_only=True)
class CoordinatorMessage:
    """What a coordinator sends; exactly one field is set."""

    last_number: int
    registered: RegisterConsumerResponse | None = None
    ping: PingRequest | None = None
    stop: StopFetcherRequest | None = None
    start: StartFetcherRequest | None = None
    left: LeaveGroupResponse | None = None


@value(kw_only=True)
class CommitOffsetsRequest:
    """An active commit (OPEN-01), of a member, or of nobody (consumer_id empty, generation -1) while the group has n."""

    group_id: str = ""
    consumer_id: str = ""
    incarnation: int
    coordinator_epoch: int
    generation: int
    number: int
    offsets: tuple[OffsetInfo, ...] = ()


@value(kw_only=True)
class CommittedResult:
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


@value(kw_only=True)
class CommitOffsetsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    results: tuple[CommittedResult, ...] = ()


@value(kw_only=True)
class FetchOffsetsRequest:
    group_id: str = ""
    partitions: tuple[PartitionName, ...] = ()


@value(kw_only=True)
class FetchOffsetsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    offsets: tuple[OffsetInfo, ...] = ()


@value(kw_only=True)
class ListGroupsRequest:
    """Of the groups that the asked broker coordinates; a client asks all brokers."""

    states: tuple[str, ...] = ()


@value(kw_only=True)
class ListedGroup:
    group_id: str = ""
    state: str = ""


@value(kw_only=True)
class ListGroupsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    groups: tuple[ListedGroup, ...] = ()
    shards: tuple[int, ...] = ()
    shard_count: int


@value(kw_only=True)
class DescribeGroupsRequest:
    group_ids: tuple[str, ...] = ()


@value(kw_only=True)
class DescribedMember:
    consumer_id: str = ""
    client_id: str = ""
    host: str = ""
    topic_count: str = ""
    session_timeout_ms: int
    static_member: bool = False
    partitions: tuple[PartitionName, ...] = ()


@value(kw_only=True)
class DescribedGroup:
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
class DescribeGroupsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    groups: tuple[DescribedGroup, ...] = ()


@value(kw_only=True)
class DeleteGroupsRequest:
    """Only groups without members: NON_EMPTY_GROUP otherwise."""

    group_ids: tuple[str, ...] = ()


@value(kw_only=True)
class DeletedGroup:
    group_id: str = ""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


@value(kw_only=True)
class DeleteGroupsResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    results: tuple[DeletedGroup, ...] = ()


@value(kw_only=True)
class ProducePartition:
    topic: str = ""
    topic_id: bytes = b""
    partition: int
    leader_epoch: int
    records: bytes = b""


@value(kw_only=True)
class ProduceRequest:
    client_id: str = ""
    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...] = ()


@value(kw_only=True)
class ProduceResult:
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    base_offset: int
    log_start_offset: int
    leader_id: int
    leader_epoch: int


@value(kw_only=True)
class ProduceResponse:
    results: tuple[ProduceResult, ...] = ()


@value(kw_only=True)
class ProduceAnswer:
    number: int
    response: ProduceResponse


@value(kw_only=True)
class ProduceAnswers:
    """What has been decided since the last message."""

    answers: tuple[ProduceAnswer, ...] = ()


@value(kw_only=True)
class FetchPartition:
    topic: str = ""
    topic_id: bytes = b""
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    max_bytes: int


@value(kw_only=True)
class FetchRequest:
    client_id: str = ""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchPartition, ...] = ()


@value(kw_only=True)
class FetchResult:
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
class FetchResponse:
    results: tuple[FetchResult, ...] = ()


@value(kw_only=True)
class ListOffsetsPartition:
    topic: str = ""
    partition: int
    leader_epoch: int
    timestamp: int
    topic_id: bytes = b""
    own: bool = False


@value(kw_only=True)
class ListOffsetsRequest:
    partitions: tuple[ListOffsetsPartition, ...] = ()


@value(kw_only=True)
class ListOffsetsResult:
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    timestamp: int
    offset: int
    leader_epoch: int


@value(kw_only=True)
class ListOffsetsResponse:
    results: tuple[ListOffsetsResult, ...] = ()


@value(kw_only=True)
class EpochPartition:
    topic: str = ""
    partition: int
    current_leader_epoch: int
    leader_epoch: int
    topic_id: bytes = b""


@value(kw_only=True)
class OffsetForLeaderEpochRequest:
    partitions: tuple[EpochPartition, ...] = ()


@value(kw_only=True)
class EpochEndOffset:
    topic: str = ""
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    leader_epoch: int
    end_offset: int
    error_message: str = ""


@value(kw_only=True)
class OffsetForLeaderEpochResponse:
    results: tuple[EpochEndOffset, ...] = ()


@value(kw_only=True)
class ReplicaPosition:
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
class ReplicaFetchRequest:
    """Follower to leader: where it stands."""

    replica_id: int
    broker_epoch: int
    acked_chunk: int
    partitions: tuple[ReplicaPosition, ...] = ()


@value(kw_only=True)
class ReplicaChunk:
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
    records: bytes = b""


@value(kw_only=True)
class ReplicaFetchResponse:
    """Leader to follower: everything with news, partitions in rotation, at most 1 MiB of records (or one larger batc."""

    chunk: int
    partitions: tuple[ReplicaChunk, ...] = ()


@value(kw_only=True)
class InitProducerIdRequest:
    client_id: str = ""
    producer_id: int
    producer_epoch: int


@value(kw_only=True)
class InitProducerIdResponse:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    producer_id: int
    producer_epoch: int
