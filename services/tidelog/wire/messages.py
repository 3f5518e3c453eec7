"""The code of messages.pyi.

Generated from proto/ by `make proto`; do not edit.
"""

from tidelog.errors import ErrorCode
from tidelog.values import Message


class BrokerInfo(Message):
    __slots__ = ("id", "host", "port", "rack")
    id: int
    host: str
    port: int
    rack: str

    def __init__(self, *, id, host="", port, rack=""):
        self.id = id
        self.host = host
        self.port = port
        self.rack = rack

    def _values(self):
        return (
            self.id,
            self.host,
            self.port,
            self.rack,
        )


class Listener(Message):
    __slots__ = ("name", "host", "port")
    name: str
    host: str
    port: int

    def __init__(self, *, name="", host="", port):
        self.name = name
        self.host = host
        self.port = port

    def _values(self):
        return (
            self.name,
            self.host,
            self.port,
        )


class LiveBroker(Message):
    __slots__ = ("broker_id", "broker_epoch", "rack", "listeners", "shutting_down", "fetch_max_bytes")
    broker_id: int
    broker_epoch: int
    rack: str
    listeners: tuple[Listener, ...]
    shutting_down: bool
    fetch_max_bytes: int

    def __init__(self, *, broker_id, broker_epoch, rack="", listeners=(), shutting_down=False, fetch_max_bytes):
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.rack = rack
        self.listeners = listeners
        self.shutting_down = shutting_down
        self.fetch_max_bytes = fetch_max_bytes

    def _values(self):
        return (
            self.broker_id,
            self.broker_epoch,
            self.rack,
            self.listeners,
            self.shutting_down,
            self.fetch_max_bytes,
        )


class IsrMember(Message):
    __slots__ = ("broker_id", "broker_epoch")
    broker_id: int
    broker_epoch: int

    def __init__(self, *, broker_id, broker_epoch):
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch

    def _values(self):
        return (
            self.broker_id,
            self.broker_epoch,
        )


class ConfigEntry(Message):
    __slots__ = ("key", "value")
    key: str
    value: str

    def __init__(self, *, key="", value=""):
        self.key = key
        self.value = value

    def _values(self):
        return (
            self.key,
            self.value,
        )


class PartitionAssignment(Message):
    __slots__ = ("partition", "replicas")
    partition: int
    replicas: tuple[int, ...]

    def __init__(self, *, partition, replicas=()):
        self.partition = partition
        self.replicas = replicas

    def _values(self):
        return (
            self.partition,
            self.replicas,
        )


class NewTopic(Message):
    __slots__ = ("name", "num_partitions", "replication_factor", "assignments", "configs")
    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[PartitionAssignment, ...]
    configs: tuple[ConfigEntry, ...]

    def __init__(self, *, name="", num_partitions, replication_factor, assignments=(), configs=()):
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.assignments = assignments
        self.configs = configs

    def _values(self):
        return (
            self.name,
            self.num_partitions,
            self.replication_factor,
            self.assignments,
            self.configs,
        )


class CreateTopicsRequest(Message):
    __slots__ = ("topics", "timeout_ms", "validate_only")
    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool

    def __init__(self, *, topics=(), timeout_ms, validate_only=False):
        self.topics = topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only

    def _values(self):
        return (
            self.topics,
            self.timeout_ms,
            self.validate_only,
        )


class CreatedTopic(Message):
    __slots__ = ("name", "error_code", "error_message", "topic_id", "num_partitions", "replication_factor")
    name: str
    error_code: ErrorCode
    error_message: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int

    def __init__(
        self, *, name="", error_code=ErrorCode.NONE, error_message="", topic_id=b"", num_partitions, replication_factor
    ):
        self.name = name
        self.error_code = error_code
        self.error_message = error_message
        self.topic_id = topic_id
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor

    def _values(self):
        return (
            self.name,
            self.error_code,
            self.error_message,
            self.topic_id,
            self.num_partitions,
            self.replication_factor,
        )


class CreateTopicsResponse(Message):
    __slots__ = ("topics",)
    topics: tuple[CreatedTopic, ...]

    def __init__(self, *, topics=()):
        self.topics = topics

    def _values(self):
        return (self.topics,)


class DeleteTopicsRequest(Message):
    __slots__ = ("names", "timeout_ms")
    names: tuple[str, ...]
    timeout_ms: int

    def __init__(self, *, names=(), timeout_ms):
        self.names = names
        self.timeout_ms = timeout_ms

    def _values(self):
        return (
            self.names,
            self.timeout_ms,
        )


class DeletedTopic(Message):
    __slots__ = ("name", "error_code", "error_message")
    name: str
    error_code: ErrorCode
    error_message: str

    def __init__(self, *, name="", error_code=ErrorCode.NONE, error_message=""):
        self.name = name
        self.error_code = error_code
        self.error_message = error_message

    def _values(self):
        return (
            self.name,
            self.error_code,
            self.error_message,
        )


class DeleteTopicsResponse(Message):
    __slots__ = ("topics",)
    topics: tuple[DeletedTopic, ...]

    def __init__(self, *, topics=()):
        self.topics = topics

    def _values(self):
        return (self.topics,)


class DescribeTopicsRequest(Message):
    __slots__ = ("names",)
    names: tuple[str, ...]

    def __init__(self, *, names=()):
        self.names = names

    def _values(self):
        return (self.names,)


class PartitionDescription(Message):
    __slots__ = (
        "partition",
        "leader",
        "leader_epoch",
        "replicas",
        "isr",
        "partition_epoch",
        "vetoed",
        "recovering",
        "min_isr",
        "adding_replicas",
        "removing_replicas",
    )
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    vetoed: bool
    recovering: bool
    min_isr: int
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

    def __init__(
        self,
        *,
        partition,
        leader,
        leader_epoch,
        replicas=(),
        isr=(),
        partition_epoch,
        vetoed=False,
        recovering=False,
        min_isr,
        adding_replicas=(),
        removing_replicas=(),
    ):
        self.partition = partition
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.vetoed = vetoed
        self.recovering = recovering
        self.min_isr = min_isr
        self.adding_replicas = adding_replicas
        self.removing_replicas = removing_replicas

    def _values(self):
        return (
            self.partition,
            self.leader,
            self.leader_epoch,
            self.replicas,
            self.isr,
            self.partition_epoch,
            self.vetoed,
            self.recovering,
            self.min_isr,
            self.adding_replicas,
            self.removing_replicas,
        )


class TopicDescription(Message):
    __slots__ = ("name", "error_code", "topic_id", "configs", "partitions")
    name: str
    error_code: ErrorCode
    topic_id: bytes
    configs: tuple[ConfigEntry, ...]
    partitions: tuple[PartitionDescription, ...]

    def __init__(self, *, name="", error_code=ErrorCode.NONE, topic_id=b"", configs=(), partitions=()):
        self.name = name
        self.error_code = error_code
        self.topic_id = topic_id
        self.configs = configs
        self.partitions = partitions

    def _values(self):
        return (
            self.name,
            self.error_code,
            self.topic_id,
            self.configs,
            self.partitions,
        )


class DescribeTopicsResponse(Message):
    __slots__ = ("error_code", "topics")
    error_code: ErrorCode
    topics: tuple[TopicDescription, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, topics=()):
        self.error_code = error_code
        self.topics = topics

    def _values(self):
        return (
            self.error_code,
            self.topics,
        )


class DescribeClusterRequest(Message):
    __slots__ = ()


class ClusterBroker(Message):
    __slots__ = ("broker", "state", "leaders", "replicas", "software", "feature_level")
    broker: LiveBroker
    state: str
    leaders: int
    replicas: int
    software: str
    feature_level: int

    def __init__(self, *, broker, state="", leaders, replicas, software="", feature_level):
        self.broker = broker
        self.state = state
        self.leaders = leaders
        self.replicas = replicas
        self.software = software
        self.feature_level = feature_level

    def _values(self):
        return (
            self.broker,
            self.state,
            self.leaders,
            self.replicas,
            self.software,
            self.feature_level,
        )


class DrainingBroker(Message):
    __slots__ = ("broker_id", "replicas")
    broker_id: int
    replicas: int

    def __init__(self, *, broker_id, replicas):
        self.broker_id = broker_id
        self.replicas = replicas

    def _values(self):
        return (
            self.broker_id,
            self.replicas,
        )


class DescribeClusterResponse(Message):
    __slots__ = (
        "error_code",
        "cluster_id",
        "controller_id",
        "controller_epoch",
        "brokers",
        "topics",
        "partitions",
        "leaderless_partitions",
        "under_replicated_partitions",
        "under_min_isr_partitions",
        "draining",
        "feature_level",
        "controller_software",
        "cluster_name",
    )
    error_code: ErrorCode
    cluster_id: str
    controller_id: int
    controller_epoch: int
    brokers: tuple[ClusterBroker, ...]
    topics: int
    partitions: int
    leaderless_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int
    draining: tuple[DrainingBroker, ...]
    feature_level: int
    controller_software: str
    cluster_name: str

    def __init__(
        self,
        *,
        error_code=ErrorCode.NONE,
        cluster_id="",
        controller_id,
        controller_epoch,
        brokers=(),
        topics,
        partitions,
        leaderless_partitions,
        under_replicated_partitions,
        under_min_isr_partitions,
        draining=(),
        feature_level,
        controller_software="",
        cluster_name="",
    ):
        self.error_code = error_code
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.brokers = brokers
        self.topics = topics
        self.partitions = partitions
        self.leaderless_partitions = leaderless_partitions
        self.under_replicated_partitions = under_replicated_partitions
        self.under_min_isr_partitions = under_min_isr_partitions
        self.draining = draining
        self.feature_level = feature_level
        self.controller_software = controller_software
        self.cluster_name = cluster_name

    def _values(self):
        return (
            self.error_code,
            self.cluster_id,
            self.controller_id,
            self.controller_epoch,
            self.brokers,
            self.topics,
            self.partitions,
            self.leaderless_partitions,
            self.under_replicated_partitions,
            self.under_min_isr_partitions,
            self.draining,
            self.feature_level,
            self.controller_software,
            self.cluster_name,
        )


class NewPartitions(Message):
    __slots__ = ("name", "total_count", "assignments")
    name: str
    total_count: int
    assignments: tuple[PartitionAssignment, ...]

    def __init__(self, *, name="", total_count, assignments=()):
        self.name = name
        self.total_count = total_count
        self.assignments = assignments

    def _values(self):
        return (
            self.name,
            self.total_count,
            self.assignments,
        )


class CreatePartitionsRequest(Message):
    __slots__ = ("topics", "timeout_ms", "validate_only")
    topics: tuple[NewPartitions, ...]
    timeout_ms: int
    validate_only: bool

    def __init__(self, *, topics=(), timeout_ms, validate_only=False):
        self.topics = topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only

    def _values(self):
        return (
            self.topics,
            self.timeout_ms,
            self.validate_only,
        )


class PartitionsCreated(Message):
    __slots__ = ("name", "error_code", "error_message")
    name: str
    error_code: ErrorCode
    error_message: str

    def __init__(self, *, name="", error_code=ErrorCode.NONE, error_message=""):
        self.name = name
        self.error_code = error_code
        self.error_message = error_message

    def _values(self):
        return (
            self.name,
            self.error_code,
            self.error_message,
        )


class CreatePartitionsResponse(Message):
    __slots__ = ("topics",)
    topics: tuple[PartitionsCreated, ...]

    def __init__(self, *, topics=()):
        self.topics = topics

    def _values(self):
        return (self.topics,)


class TopicPartitions(Message):
    __slots__ = ("topic", "partitions")
    topic: str
    partitions: tuple[int, ...]

    def __init__(self, *, topic="", partitions=()):
        self.topic = topic
        self.partitions = partitions

    def _values(self):
        return (
            self.topic,
            self.partitions,
        )


class ElectLeadersRequest(Message):
    __slots__ = ("unclean", "topics", "timeout_ms", "candidates", "validate_only")
    unclean: bool
    topics: tuple[TopicPartitions, ...]
    timeout_ms: int
    candidates: tuple[int, ...]
    validate_only: bool

    def __init__(self, *, unclean=False, topics=(), timeout_ms, candidates=(), validate_only=False):
        self.unclean = unclean
        self.topics = topics
        self.timeout_ms = timeout_ms
        self.candidates = candidates
        self.validate_only = validate_only

    def _values(self):
        return (
            self.unclean,
            self.topics,
            self.timeout_ms,
            self.candidates,
            self.validate_only,
        )


class ReplicaLogEnd(Message):
    __slots__ = ("broker_id", "last_epoch", "end_offset")
    broker_id: int
    last_epoch: int
    end_offset: int

    def __init__(self, *, broker_id, last_epoch, end_offset):
        self.broker_id = broker_id
        self.last_epoch = last_epoch
        self.end_offset = end_offset

    def _values(self):
        return (
            self.broker_id,
            self.last_epoch,
            self.end_offset,
        )


class ElectionResult(Message):
    __slots__ = ("topic", "partition", "error_code", "error_message", "leader", "ends")
    topic: str
    partition: int
    error_code: ErrorCode
    error_message: str
    leader: int
    ends: tuple[ReplicaLogEnd, ...]

    def __init__(self, *, topic="", partition, error_code=ErrorCode.NONE, error_message="", leader, ends=()):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.leader = leader
        self.ends = ends

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.error_code,
            self.error_message,
            self.leader,
            self.ends,
        )


class ElectLeadersResponse(Message):
    __slots__ = ("error_code", "results")
    error_code: ErrorCode
    results: tuple[ElectionResult, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, results=()):
        self.error_code = error_code
        self.results = results

    def _values(self):
        return (
            self.error_code,
            self.results,
        )


class ReleaseVetoRequest(Message):
    __slots__ = ("topics", "timeout_ms")
    topics: tuple[TopicPartitions, ...]
    timeout_ms: int

    def __init__(self, *, topics=(), timeout_ms):
        self.topics = topics
        self.timeout_ms = timeout_ms

    def _values(self):
        return (
            self.topics,
            self.timeout_ms,
        )


class ReleaseVetoResponse(Message):
    __slots__ = ("error_code", "results")
    error_code: ErrorCode
    results: tuple[ElectionResult, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, results=()):
        self.error_code = error_code
        self.results = results

    def _values(self):
        return (
            self.error_code,
            self.results,
        )


class TopicReassignment(Message):
    __slots__ = ("topic", "partitions", "cancelled")
    topic: str
    partitions: tuple[PartitionAssignment, ...]
    cancelled: tuple[int, ...]

    def __init__(self, *, topic="", partitions=(), cancelled=()):
        self.topic = topic
        self.partitions = partitions
        self.cancelled = cancelled

    def _values(self):
        return (
            self.topic,
            self.partitions,
            self.cancelled,
        )


class AlterPartitionReassignmentsRequest(Message):
    __slots__ = ("topics", "replace", "validate_only", "timeout_ms", "leader_throttle", "follower_throttle")
    topics: tuple[TopicReassignment, ...]
    replace: bool
    validate_only: bool
    timeout_ms: int
    leader_throttle: int
    follower_throttle: int

    def __init__(
        self, *, topics=(), replace=False, validate_only=False, timeout_ms, leader_throttle, follower_throttle
    ):
        self.topics = topics
        self.replace = replace
        self.validate_only = validate_only
        self.timeout_ms = timeout_ms
        self.leader_throttle = leader_throttle
        self.follower_throttle = follower_throttle

    def _values(self):
        return (
            self.topics,
            self.replace,
            self.validate_only,
            self.timeout_ms,
            self.leader_throttle,
            self.follower_throttle,
        )


class AlterPartitionReassignmentsResponse(Message):
    __slots__ = ("error_code", "error_message")
    error_code: ErrorCode
    error_message: str

    def __init__(self, *, error_code=ErrorCode.NONE, error_message=""):
        self.error_code = error_code
        self.error_message = error_message

    def _values(self):
        return (
            self.error_code,
            self.error_message,
        )


class ListPartitionReassignmentsRequest(Message):
    __slots__ = ("topics",)
    topics: tuple[TopicPartitions, ...]

    def __init__(self, *, topics=()):
        self.topics = topics

    def _values(self):
        return (self.topics,)


class OngoingReassignment(Message):
    __slots__ = (
        "topic",
        "partition",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        "target",
        "original",
        "isr",
        "leader",
        "cancelled",
    )
    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    target: tuple[int, ...]
    original: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    cancelled: bool

    def __init__(
        self,
        *,
        topic="",
        partition,
        replicas=(),
        adding_replicas=(),
        removing_replicas=(),
        target=(),
        original=(),
        isr=(),
        leader,
        cancelled=False,
    ):
        self.topic = topic
        self.partition = partition
        self.replicas = replicas
        self.adding_replicas = adding_replicas
        self.removing_replicas = removing_replicas
        self.target = target
        self.original = original
        self.isr = isr
        self.leader = leader
        self.cancelled = cancelled

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.replicas,
            self.adding_replicas,
            self.removing_replicas,
            self.target,
            self.original,
            self.isr,
            self.leader,
            self.cancelled,
        )


class ListPartitionReassignmentsResponse(Message):
    __slots__ = ("error_code", "reassignments", "leader_throttle", "follower_throttle")
    error_code: ErrorCode
    reassignments: tuple[OngoingReassignment, ...]
    leader_throttle: int
    follower_throttle: int

    def __init__(self, *, error_code=ErrorCode.NONE, reassignments=(), leader_throttle, follower_throttle):
        self.error_code = error_code
        self.reassignments = reassignments
        self.leader_throttle = leader_throttle
        self.follower_throttle = follower_throttle

    def _values(self):
        return (
            self.error_code,
            self.reassignments,
            self.leader_throttle,
            self.follower_throttle,
        )


class ConfigChange(Message):
    __slots__ = ("key", "remove", "value")
    key: str
    remove: bool
    value: str

    def __init__(self, *, key="", remove=False, value=""):
        self.key = key
        self.remove = remove
        self.value = value

    def _values(self):
        return (
            self.key,
            self.remove,
            self.value,
        )


class TopicConfigChanges(Message):
    __slots__ = ("name", "changes")
    name: str
    changes: tuple[ConfigChange, ...]

    def __init__(self, *, name="", changes=()):
        self.name = name
        self.changes = changes

    def _values(self):
        return (
            self.name,
            self.changes,
        )


class IncrementalAlterConfigsRequest(Message):
    __slots__ = ("topics", "timeout_ms", "validate_only")
    topics: tuple[TopicConfigChanges, ...]
    timeout_ms: int
    validate_only: bool

    def __init__(self, *, topics=(), timeout_ms, validate_only=False):
        self.topics = topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only

    def _values(self):
        return (
            self.topics,
            self.timeout_ms,
            self.validate_only,
        )


class ConfigsAltered(Message):
    __slots__ = ("name", "error_code", "error_message")
    name: str
    error_code: ErrorCode
    error_message: str

    def __init__(self, *, name="", error_code=ErrorCode.NONE, error_message=""):
        self.name = name
        self.error_code = error_code
        self.error_message = error_message

    def _values(self):
        return (
            self.name,
            self.error_code,
            self.error_message,
        )


class IncrementalAlterConfigsResponse(Message):
    __slots__ = ("topics",)
    topics: tuple[ConfigsAltered, ...]

    def __init__(self, *, topics=()):
        self.topics = topics

    def _values(self):
        return (self.topics,)


class DescribeConfigsRequest(Message):
    __slots__ = ("topics",)
    topics: tuple[str, ...]

    def __init__(self, *, topics=()):
        self.topics = topics

    def _values(self):
        return (self.topics,)


class ConfigSynonym(Message):
    __slots__ = ("key", "value", "source", "origin")
    key: str
    value: str
    source: str
    origin: str

    def __init__(self, *, key="", value="", source="", origin=""):
        self.key = key
        self.value = value
        self.source = source
        self.origin = origin

    def _values(self):
        return (
            self.key,
            self.value,
            self.source,
            self.origin,
        )


class DescribedConfig(Message):
    __slots__ = ("key", "value", "source", "read_only", "synonyms")
    key: str
    value: str
    source: str
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]

    def __init__(self, *, key="", value="", source="", read_only=False, synonyms=()):
        self.key = key
        self.value = value
        self.source = source
        self.read_only = read_only
        self.synonyms = synonyms

    def _values(self):
        return (
            self.key,
            self.value,
            self.source,
            self.read_only,
            self.synonyms,
        )


class TopicConfigs(Message):
    __slots__ = ("name", "error_code", "error_message", "configs")
    name: str
    error_code: ErrorCode
    error_message: str
    configs: tuple[DescribedConfig, ...]

    def __init__(self, *, name="", error_code=ErrorCode.NONE, error_message="", configs=()):
        self.name = name
        self.error_code = error_code
        self.error_message = error_message
        self.configs = configs

    def _values(self):
        return (
            self.name,
            self.error_code,
            self.error_message,
            self.configs,
        )


class DescribeConfigsResponse(Message):
    __slots__ = ("error_code", "topics")
    error_code: ErrorCode
    topics: tuple[TopicConfigs, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, topics=()):
        self.error_code = error_code
        self.topics = topics

    def _values(self):
        return (
            self.error_code,
            self.topics,
        )


class DescribeBrokerConfigsRequest(Message):
    __slots__ = ("broker_id",)
    broker_id: int

    def __init__(self, *, broker_id):
        self.broker_id = broker_id

    def _values(self):
        return (self.broker_id,)


class DescribeBrokerConfigsResponse(Message):
    __slots__ = ("error_code", "error_message", "configs")
    error_code: ErrorCode
    error_message: str
    configs: tuple[DescribedConfig, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", configs=()):
        self.error_code = error_code
        self.error_message = error_message
        self.configs = configs

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.configs,
        )


class DeleteRecordsPartition(Message):
    __slots__ = ("topic", "partition", "offset", "topic_id")
    topic: str
    partition: int
    offset: int
    topic_id: bytes

    def __init__(self, *, topic="", partition, offset, topic_id=b""):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.topic_id = topic_id

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.offset,
            self.topic_id,
        )


class DeleteRecordsRequest(Message):
    __slots__ = ("partitions", "timeout_ms")
    partitions: tuple[DeleteRecordsPartition, ...]
    timeout_ms: int

    def __init__(self, *, partitions=(), timeout_ms):
        self.partitions = partitions
        self.timeout_ms = timeout_ms

    def _values(self):
        return (
            self.partitions,
            self.timeout_ms,
        )


class DeleteRecordsResult(Message):
    __slots__ = ("topic", "partition", "low_watermark", "error_code", "error_message")
    topic: str
    partition: int
    low_watermark: int
    error_code: ErrorCode
    error_message: str

    def __init__(self, *, topic="", partition, low_watermark, error_code=ErrorCode.NONE, error_message=""):
        self.topic = topic
        self.partition = partition
        self.low_watermark = low_watermark
        self.error_code = error_code
        self.error_message = error_message

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.low_watermark,
            self.error_code,
            self.error_message,
        )


class DeleteRecordsResponse(Message):
    __slots__ = ("partitions",)
    partitions: tuple[DeleteRecordsResult, ...]

    def __init__(self, *, partitions=()):
        self.partitions = partitions

    def _values(self):
        return (self.partitions,)


class DescribeLogDirsRequest(Message):
    __slots__ = ("broker_id", "topics")
    broker_id: int
    topics: tuple[str, ...]

    def __init__(self, *, broker_id, topics=()):
        self.broker_id = broker_id
        self.topics = topics

    def _values(self):
        return (
            self.broker_id,
            self.topics,
        )


class LogDirPartition(Message):
    __slots__ = ("topic", "partition", "size_bytes", "offset_lag", "is_future", "error_code", "folder")
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool
    error_code: ErrorCode
    folder: str

    def __init__(
        self, *, topic="", partition, size_bytes, offset_lag, is_future=False, error_code=ErrorCode.NONE, folder=""
    ):
        self.topic = topic
        self.partition = partition
        self.size_bytes = size_bytes
        self.offset_lag = offset_lag
        self.is_future = is_future
        self.error_code = error_code
        self.folder = folder

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.size_bytes,
            self.offset_lag,
            self.is_future,
            self.error_code,
            self.folder,
        )


class LogDir(Message):
    __slots__ = ("path", "usable_bytes", "partitions", "strays", "another_past")
    path: str
    usable_bytes: int
    partitions: tuple[LogDirPartition, ...]
    strays: tuple[LogDirPartition, ...]
    another_past: str

    def __init__(self, *, path="", usable_bytes, partitions=(), strays=(), another_past=""):
        self.path = path
        self.usable_bytes = usable_bytes
        self.partitions = partitions
        self.strays = strays
        self.another_past = another_past

    def _values(self):
        return (
            self.path,
            self.usable_bytes,
            self.partitions,
            self.strays,
            self.another_past,
        )


class DescribeLogDirsResponse(Message):
    __slots__ = ("error_code", "error_message", "log_dirs")
    error_code: ErrorCode
    error_message: str
    log_dirs: tuple[LogDir, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", log_dirs=()):
        self.error_code = error_code
        self.error_message = error_message
        self.log_dirs = log_dirs

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.log_dirs,
        )


class DiscardDamageRequest(Message):
    __slots__ = ("broker_id", "topics", "execute")
    broker_id: int
    topics: tuple[TopicPartitions, ...]
    execute: bool

    def __init__(self, *, broker_id, topics=(), execute=False):
        self.broker_id = broker_id
        self.topics = topics
        self.execute = execute

    def _values(self):
        return (
            self.broker_id,
            self.topics,
            self.execute,
        )


class DamagedLog(Message):
    __slots__ = (
        "topic",
        "partition",
        "error_code",
        "error_message",
        "offset",
        "end_offset",
        "size_bytes",
        "reason",
        "leader",
    )
    topic: str
    partition: int
    error_code: ErrorCode
    error_message: str
    offset: int
    end_offset: int
    size_bytes: int
    reason: str
    leader: int

    def __init__(
        self,
        *,
        topic="",
        partition,
        error_code=ErrorCode.NONE,
        error_message="",
        offset,
        end_offset,
        size_bytes,
        reason="",
        leader,
    ):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.offset = offset
        self.end_offset = end_offset
        self.size_bytes = size_bytes
        self.reason = reason
        self.leader = leader

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.error_code,
            self.error_message,
            self.offset,
            self.end_offset,
            self.size_bytes,
            self.reason,
            self.leader,
        )


class DiscardDamageResponse(Message):
    __slots__ = ("error_code", "error_message", "logs")
    error_code: ErrorCode
    error_message: str
    logs: tuple[DamagedLog, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", logs=()):
        self.error_code = error_code
        self.error_message = error_message
        self.logs = logs

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.logs,
        )


class AddBrokersRequest(Message):
    __slots__ = ("broker_ids", "replace", "validate_only", "timeout_ms", "leader_throttle", "follower_throttle")
    broker_ids: tuple[int, ...]
    replace: bool
    validate_only: bool
    timeout_ms: int
    leader_throttle: int
    follower_throttle: int

    def __init__(
        self, *, broker_ids=(), replace=False, validate_only=False, timeout_ms, leader_throttle, follower_throttle
    ):
        self.broker_ids = broker_ids
        self.replace = replace
        self.validate_only = validate_only
        self.timeout_ms = timeout_ms
        self.leader_throttle = leader_throttle
        self.follower_throttle = follower_throttle

    def _values(self):
        return (
            self.broker_ids,
            self.replace,
            self.validate_only,
            self.timeout_ms,
            self.leader_throttle,
            self.follower_throttle,
        )


class AddBrokersResponse(Message):
    __slots__ = ("error_code", "error_message", "topics")
    error_code: ErrorCode
    error_message: str
    topics: tuple[TopicReassignment, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", topics=()):
        self.error_code = error_code
        self.error_message = error_message
        self.topics = topics

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.topics,
        )


class DrainBrokersRequest(Message):
    __slots__ = ("broker_ids", "undo", "replace", "validate_only", "timeout_ms", "leader_throttle", "follower_throttle")
    broker_ids: tuple[int, ...]
    undo: bool
    replace: bool
    validate_only: bool
    timeout_ms: int
    leader_throttle: int
    follower_throttle: int

    def __init__(
        self,
        *,
        broker_ids=(),
        undo=False,
        replace=False,
        validate_only=False,
        timeout_ms,
        leader_throttle,
        follower_throttle,
    ):
        self.broker_ids = broker_ids
        self.undo = undo
        self.replace = replace
        self.validate_only = validate_only
        self.timeout_ms = timeout_ms
        self.leader_throttle = leader_throttle
        self.follower_throttle = follower_throttle

    def _values(self):
        return (
            self.broker_ids,
            self.undo,
            self.replace,
            self.validate_only,
            self.timeout_ms,
            self.leader_throttle,
            self.follower_throttle,
        )


class DrainBrokersResponse(Message):
    __slots__ = ("error_code", "error_message", "topics")
    error_code: ErrorCode
    error_message: str
    topics: tuple[TopicReassignment, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", topics=()):
        self.error_code = error_code
        self.error_message = error_message
        self.topics = topics

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.topics,
        )


class PartitionState(Message):
    __slots__ = (
        "topic",
        "topic_id",
        "partition",
        "controller_epoch",
        "leader",
        "leader_epoch",
        "isr",
        "partition_epoch",
        "replicas",
        "is_new",
        "adding_replicas",
        "removing_replicas",
        "recovering",
        "offline_replicas",
    )
    topic: str
    topic_id: bytes
    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[IsrMember, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    is_new: bool
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    recovering: bool
    offline_replicas: tuple[int, ...]

    def __init__(
        self,
        *,
        topic="",
        topic_id=b"",
        partition,
        controller_epoch,
        leader,
        leader_epoch,
        isr=(),
        partition_epoch,
        replicas=(),
        is_new=False,
        adding_replicas=(),
        removing_replicas=(),
        recovering=False,
        offline_replicas=(),
    ):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.controller_epoch = controller_epoch
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.is_new = is_new
        self.adding_replicas = adding_replicas
        self.removing_replicas = removing_replicas
        self.recovering = recovering
        self.offline_replicas = offline_replicas

    def _values(self):
        return (
            self.topic,
            self.topic_id,
            self.partition,
            self.controller_epoch,
            self.leader,
            self.leader_epoch,
            self.isr,
            self.partition_epoch,
            self.replicas,
            self.is_new,
            self.adding_replicas,
            self.removing_replicas,
            self.recovering,
            self.offline_replicas,
        )


class TopicState(Message):
    __slots__ = ("topic", "topic_id", "configs")
    topic: str
    topic_id: bytes
    configs: tuple[ConfigEntry, ...]

    def __init__(self, *, topic="", topic_id=b"", configs=()):
        self.topic = topic
        self.topic_id = topic_id
        self.configs = configs

    def _values(self):
        return (
            self.topic,
            self.topic_id,
            self.configs,
        )


class LeaderAndIsrRequest(Message):
    __slots__ = (
        "controller_id",
        "controller_epoch",
        "broker_epoch",
        "full",
        "partition_states",
        "live_brokers",
        "topic_states",
        "sequence",
        "continued",
        "more",
        "leader_throttle",
        "follower_throttle",
    )
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    full: bool
    partition_states: tuple[PartitionState, ...]
    live_brokers: tuple[LiveBroker, ...]
    topic_states: tuple[TopicState, ...]
    sequence: int
    continued: bool
    more: bool
    leader_throttle: int
    follower_throttle: int

    def __init__(
        self,
        *,
        controller_id,
        controller_epoch,
        broker_epoch,
        full=False,
        partition_states=(),
        live_brokers=(),
        topic_states=(),
        sequence,
        continued=False,
        more=False,
        leader_throttle,
        follower_throttle,
    ):
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self.full = full
        self.partition_states = partition_states
        self.live_brokers = live_brokers
        self.topic_states = topic_states
        self.sequence = sequence
        self.continued = continued
        self.more = more
        self.leader_throttle = leader_throttle
        self.follower_throttle = follower_throttle

    def _values(self):
        return (
            self.controller_id,
            self.controller_epoch,
            self.broker_epoch,
            self.full,
            self.partition_states,
            self.live_brokers,
            self.topic_states,
            self.sequence,
            self.continued,
            self.more,
            self.leader_throttle,
            self.follower_throttle,
        )


class PartitionResult(Message):
    __slots__ = ("topic", "partition", "error_code", "topic_id")
    topic: str
    partition: int
    error_code: ErrorCode
    topic_id: bytes

    def __init__(self, *, topic="", partition, error_code=ErrorCode.NONE, topic_id=b""):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.topic_id = topic_id

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.error_code,
            self.topic_id,
        )


class LeaderAndIsrResponse(Message):
    __slots__ = ("error_code", "partitions")
    error_code: ErrorCode
    partitions: tuple[PartitionResult, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, partitions=()):
        self.error_code = error_code
        self.partitions = partitions

    def _values(self):
        return (
            self.error_code,
            self.partitions,
        )


class StopReplicaPartition(Message):
    __slots__ = ("topic", "topic_id", "partition", "leader_epoch", "delete_partition")
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    delete_partition: bool

    def __init__(self, *, topic="", topic_id=b"", partition, leader_epoch, delete_partition=False):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.delete_partition = delete_partition

    def _values(self):
        return (
            self.topic,
            self.topic_id,
            self.partition,
            self.leader_epoch,
            self.delete_partition,
        )


class StopReplicaRequest(Message):
    __slots__ = ("controller_id", "controller_epoch", "broker_epoch", "partitions", "sequence")
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[StopReplicaPartition, ...]
    sequence: int

    def __init__(self, *, controller_id, controller_epoch, broker_epoch, partitions=(), sequence):
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self.partitions = partitions
        self.sequence = sequence

    def _values(self):
        return (
            self.controller_id,
            self.controller_epoch,
            self.broker_epoch,
            self.partitions,
            self.sequence,
        )


class StopReplicaResponse(Message):
    __slots__ = ("error_code", "partitions")
    error_code: ErrorCode
    partitions: tuple[PartitionResult, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, partitions=()):
        self.error_code = error_code
        self.partitions = partitions

    def _values(self):
        return (
            self.error_code,
            self.partitions,
        )


class UpdateMetadataRequest(Message):
    __slots__ = (
        "controller_id",
        "controller_epoch",
        "broker_epoch",
        "full",
        "partition_states",
        "live_brokers",
        "deleted_topics",
        "sequence",
        "continued",
        "more",
        "leader_throttle",
        "follower_throttle",
    )
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    full: bool
    partition_states: tuple[PartitionState, ...]
    live_brokers: tuple[LiveBroker, ...]
    deleted_topics: tuple[str, ...]
    sequence: int
    continued: bool
    more: bool
    leader_throttle: int
    follower_throttle: int

    def __init__(
        self,
        *,
        controller_id,
        controller_epoch,
        broker_epoch,
        full=False,
        partition_states=(),
        live_brokers=(),
        deleted_topics=(),
        sequence,
        continued=False,
        more=False,
        leader_throttle,
        follower_throttle,
    ):
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self.full = full
        self.partition_states = partition_states
        self.live_brokers = live_brokers
        self.deleted_topics = deleted_topics
        self.sequence = sequence
        self.continued = continued
        self.more = more
        self.leader_throttle = leader_throttle
        self.follower_throttle = follower_throttle

    def _values(self):
        return (
            self.controller_id,
            self.controller_epoch,
            self.broker_epoch,
            self.full,
            self.partition_states,
            self.live_brokers,
            self.deleted_topics,
            self.sequence,
            self.continued,
            self.more,
            self.leader_throttle,
            self.follower_throttle,
        )


class UpdateMetadataResponse(Message):
    __slots__ = ("error_code",)
    error_code: ErrorCode

    def __init__(self, *, error_code=ErrorCode.NONE):
        self.error_code = error_code

    def _values(self):
        return (self.error_code,)


class ReplicaEndsPartition(Message):
    __slots__ = ("topic", "topic_id", "partition")
    topic: str
    topic_id: bytes
    partition: int

    def __init__(self, *, topic="", topic_id=b"", partition):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition

    def _values(self):
        return (
            self.topic,
            self.topic_id,
            self.partition,
        )


class ReplicaEndsRequest(Message):
    __slots__ = ("controller_id", "controller_epoch", "broker_epoch", "partitions")
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[ReplicaEndsPartition, ...]

    def __init__(self, *, controller_id, controller_epoch, broker_epoch, partitions=()):
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self.partitions = partitions

    def _values(self):
        return (
            self.controller_id,
            self.controller_epoch,
            self.broker_epoch,
            self.partitions,
        )


class ReplicaEnd(Message):
    __slots__ = ("topic", "partition", "error_code", "last_epoch", "end_offset")
    topic: str
    partition: int
    error_code: ErrorCode
    last_epoch: int
    end_offset: int

    def __init__(self, *, topic="", partition, error_code=ErrorCode.NONE, last_epoch, end_offset):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.last_epoch = last_epoch
        self.end_offset = end_offset

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.error_code,
            self.last_epoch,
            self.end_offset,
        )


class ReplicaEndsResponse(Message):
    __slots__ = ("error_code", "partitions")
    error_code: ErrorCode
    partitions: tuple[ReplicaEnd, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, partitions=()):
        self.error_code = error_code
        self.partitions = partitions

    def _values(self):
        return (
            self.error_code,
            self.partitions,
        )


class LivenessPing(Message):
    __slots__ = ("controller_id", "controller_epoch")
    controller_id: int
    controller_epoch: int

    def __init__(self, *, controller_id, controller_epoch):
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch

    def _values(self):
        return (
            self.controller_id,
            self.controller_epoch,
        )


class LivenessPong(Message):
    __slots__ = ("broker_id", "broker_epoch", "failed")
    broker_id: int
    broker_epoch: int
    failed: tuple[PartitionResult, ...]

    def __init__(self, *, broker_id, broker_epoch, failed=()):
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.failed = failed

    def _values(self):
        return (
            self.broker_id,
            self.broker_epoch,
            self.failed,
        )


class LeaderAndIsr(Message):
    __slots__ = ("leader", "leader_epoch", "isr", "current_zk_version")
    leader: int
    leader_epoch: int
    isr: tuple[IsrMember, ...]
    current_zk_version: int

    def __init__(self, *, leader, leader_epoch, isr=(), current_zk_version):
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.current_zk_version = current_zk_version

    def _values(self):
        return (
            self.leader,
            self.leader_epoch,
            self.isr,
            self.current_zk_version,
        )


class AlterIsrPartition(Message):
    __slots__ = ("partition_id", "leader_and_isr")
    partition_id: int
    leader_and_isr: LeaderAndIsr

    def __init__(self, *, partition_id, leader_and_isr):
        self.partition_id = partition_id
        self.leader_and_isr = leader_and_isr

    def _values(self):
        return (
            self.partition_id,
            self.leader_and_isr,
        )


class AlterIsrTopic(Message):
    __slots__ = ("topic", "topic_id", "partitions")
    topic: str
    topic_id: bytes
    partitions: tuple[AlterIsrPartition, ...]

    def __init__(self, *, topic="", topic_id=b"", partitions=()):
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions

    def _values(self):
        return (
            self.topic,
            self.topic_id,
            self.partitions,
        )


class AlterIsrRequest(Message):
    __slots__ = ("broker_id", "broker_epoch", "topics", "controller_epoch", "sequence")
    broker_id: int
    broker_epoch: int
    topics: tuple[AlterIsrTopic, ...]
    controller_epoch: int
    sequence: int

    def __init__(self, *, broker_id, broker_epoch, topics=(), controller_epoch, sequence):
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.topics = topics
        self.controller_epoch = controller_epoch
        self.sequence = sequence

    def _values(self):
        return (
            self.broker_id,
            self.broker_epoch,
            self.topics,
            self.controller_epoch,
            self.sequence,
        )


class AlterIsrPartitionResult(Message):
    __slots__ = ("partition_id", "error_code", "leader_and_isr")
    partition_id: int
    error_code: ErrorCode
    leader_and_isr: LeaderAndIsr

    def __init__(self, *, partition_id, error_code=ErrorCode.NONE, leader_and_isr):
        self.partition_id = partition_id
        self.error_code = error_code
        self.leader_and_isr = leader_and_isr

    def _values(self):
        return (
            self.partition_id,
            self.error_code,
            self.leader_and_isr,
        )


class AlterIsrTopicResult(Message):
    __slots__ = ("topic", "partitions")
    topic: str
    partitions: tuple[AlterIsrPartitionResult, ...]

    def __init__(self, *, topic="", partitions=()):
        self.topic = topic
        self.partitions = partitions

    def _values(self):
        return (
            self.topic,
            self.partitions,
        )


class AlterIsrResponse(Message):
    __slots__ = ("error_code", "topics")
    error_code: ErrorCode
    topics: tuple[AlterIsrTopicResult, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, topics=()):
        self.error_code = error_code
        self.topics = topics

    def _values(self):
        return (
            self.error_code,
            self.topics,
        )


class ControlledShutdownRequest(Message):
    __slots__ = ("broker_id", "broker_epoch")
    broker_id: int
    broker_epoch: int

    def __init__(self, *, broker_id, broker_epoch):
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch

    def _values(self):
        return (
            self.broker_id,
            self.broker_epoch,
        )


class RemainingPartition(Message):
    __slots__ = ("topic", "partition")
    topic: str
    partition: int

    def __init__(self, *, topic="", partition):
        self.topic = topic
        self.partition = partition

    def _values(self):
        return (
            self.topic,
            self.partition,
        )


class ControlledShutdownResponse(Message):
    __slots__ = ("error_code", "partitions_remaining")
    error_code: ErrorCode
    partitions_remaining: tuple[RemainingPartition, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, partitions_remaining=()):
        self.error_code = error_code
        self.partitions_remaining = partitions_remaining

    def _values(self):
        return (
            self.error_code,
            self.partitions_remaining,
        )


class AllocateProducerIdsRequest(Message):
    __slots__ = ("broker_id", "broker_epoch")
    broker_id: int
    broker_epoch: int

    def __init__(self, *, broker_id, broker_epoch):
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch

    def _values(self):
        return (
            self.broker_id,
            self.broker_epoch,
        )


class AllocateProducerIdsResponse(Message):
    __slots__ = ("error_code", "producer_id_start", "producer_id_len")
    error_code: ErrorCode
    producer_id_start: int
    producer_id_len: int

    def __init__(self, *, error_code=ErrorCode.NONE, producer_id_start, producer_id_len):
        self.error_code = error_code
        self.producer_id_start = producer_id_start
        self.producer_id_len = producer_id_len

    def _values(self):
        return (
            self.error_code,
            self.producer_id_start,
            self.producer_id_len,
        )


class ClusterMetadataRequest(Message):
    __slots__ = ("group_id", "topics", "all_topics")
    group_id: str
    topics: tuple[str, ...]
    all_topics: bool

    def __init__(self, *, group_id="", topics=(), all_topics=False):
        self.group_id = group_id
        self.topics = topics
        self.all_topics = all_topics

    def _values(self):
        return (
            self.group_id,
            self.topics,
            self.all_topics,
        )


class PartitionMetadata(Message):
    __slots__ = ("partition", "error_code", "leader", "leader_epoch", "replicas", "isr")
    partition: int
    error_code: ErrorCode
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    def __init__(self, *, partition, error_code=ErrorCode.NONE, leader, leader_epoch, replicas=(), isr=()):
        self.partition = partition
        self.error_code = error_code
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr

    def _values(self):
        return (
            self.partition,
            self.error_code,
            self.leader,
            self.leader_epoch,
            self.replicas,
            self.isr,
        )


class TopicMetadata(Message):
    __slots__ = ("topic", "topic_id", "error_code", "partitions")
    topic: str
    topic_id: bytes
    error_code: ErrorCode
    partitions: tuple[PartitionMetadata, ...]

    def __init__(self, *, topic="", topic_id=b"", error_code=ErrorCode.NONE, partitions=()):
        self.topic = topic
        self.topic_id = topic_id
        self.error_code = error_code
        self.partitions = partitions

    def _values(self):
        return (
            self.topic,
            self.topic_id,
            self.error_code,
            self.partitions,
        )


class ClusterMetadataResponse(Message):
    __slots__ = (
        "error_code",
        "coordinator_id",
        "brokers_info",
        "cluster_id",
        "controller_id",
        "topics",
        "cluster_name",
    )
    error_code: ErrorCode
    coordinator_id: int
    brokers_info: tuple[BrokerInfo, ...]
    cluster_id: str
    controller_id: int
    topics: tuple[TopicMetadata, ...]
    cluster_name: str

    def __init__(
        self,
        *,
        error_code=ErrorCode.NONE,
        coordinator_id,
        brokers_info=(),
        cluster_id="",
        controller_id,
        topics=(),
        cluster_name="",
    ):
        self.error_code = error_code
        self.coordinator_id = coordinator_id
        self.brokers_info = brokers_info
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.topics = topics
        self.cluster_name = cluster_name

    def _values(self):
        return (
            self.error_code,
            self.coordinator_id,
            self.brokers_info,
            self.cluster_id,
            self.controller_id,
            self.topics,
            self.cluster_name,
        )


class RegisterConsumerRequest(Message):
    __slots__ = (
        "group_id",
        "consumer_id",
        "topic_count",
        "auto_commit",
        "auto_offset_reset",
        "session_timeout_ms",
        "incarnation",
        "static_member",
        "max_processing_ms",
        "assignor",
        "rejoin",
        "client_id",
        "admission",
        "watch_port",
    )
    group_id: str
    consumer_id: str
    topic_count: str
    auto_commit: bool
    auto_offset_reset: str
    session_timeout_ms: int
    incarnation: int
    static_member: bool
    max_processing_ms: int
    assignor: str
    rejoin: bool
    client_id: str
    admission: int
    watch_port: int

    def __init__(
        self,
        *,
        group_id="",
        consumer_id="",
        topic_count="",
        auto_commit=False,
        auto_offset_reset="",
        session_timeout_ms,
        incarnation,
        static_member=False,
        max_processing_ms,
        assignor="",
        rejoin=False,
        client_id="",
        admission,
        watch_port,
    ):
        self.group_id = group_id
        self.consumer_id = consumer_id
        self.topic_count = topic_count
        self.auto_commit = auto_commit
        self.auto_offset_reset = auto_offset_reset
        self.session_timeout_ms = session_timeout_ms
        self.incarnation = incarnation
        self.static_member = static_member
        self.max_processing_ms = max_processing_ms
        self.assignor = assignor
        self.rejoin = rejoin
        self.client_id = client_id
        self.admission = admission
        self.watch_port = watch_port

    def _values(self):
        return (
            self.group_id,
            self.consumer_id,
            self.topic_count,
            self.auto_commit,
            self.auto_offset_reset,
            self.session_timeout_ms,
            self.incarnation,
            self.static_member,
            self.max_processing_ms,
            self.assignor,
            self.rejoin,
            self.client_id,
            self.admission,
            self.watch_port,
        )


class OffsetInfo(Message):
    __slots__ = ("topic", "partition", "offset", "leader_epoch", "metadata", "topic_id")
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes

    def __init__(self, *, topic="", partition, offset, leader_epoch, metadata="", topic_id=b""):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.topic_id = topic_id

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.topic_id,
        )


class PingResponse(Message):
    __slots__ = ("error_code", "consumer_id", "offset_info", "coordinator_epoch", "generation")
    error_code: ErrorCode
    consumer_id: str
    offset_info: tuple[OffsetInfo, ...]
    coordinator_epoch: int
    generation: int

    def __init__(self, *, error_code=ErrorCode.NONE, consumer_id="", offset_info=(), coordinator_epoch, generation):
        self.error_code = error_code
        self.consumer_id = consumer_id
        self.offset_info = offset_info
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation

    def _values(self):
        return (
            self.error_code,
            self.consumer_id,
            self.offset_info,
            self.coordinator_epoch,
            self.generation,
        )


class StopFetcherResponse(Message):
    __slots__ = (
        "error_code",
        "consumer_id",
        "offset_info",
        "coordinator_epoch",
        "generation",
        "started_generation",
        "finishing",
    )
    error_code: ErrorCode
    consumer_id: str
    offset_info: tuple[OffsetInfo, ...]
    coordinator_epoch: int
    generation: int
    started_generation: int
    finishing: bool

    def __init__(
        self,
        *,
        error_code=ErrorCode.NONE,
        consumer_id="",
        offset_info=(),
        coordinator_epoch,
        generation,
        started_generation,
        finishing=False,
    ):
        self.error_code = error_code
        self.consumer_id = consumer_id
        self.offset_info = offset_info
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation
        self.started_generation = started_generation
        self.finishing = finishing

    def _values(self):
        return (
            self.error_code,
            self.consumer_id,
            self.offset_info,
            self.coordinator_epoch,
            self.generation,
            self.started_generation,
            self.finishing,
        )


class StartFetcherResponse(Message):
    __slots__ = ("error_code", "consumer_id", "coordinator_epoch", "generation")
    error_code: ErrorCode
    consumer_id: str
    coordinator_epoch: int
    generation: int

    def __init__(self, *, error_code=ErrorCode.NONE, consumer_id="", coordinator_epoch, generation):
        self.error_code = error_code
        self.consumer_id = consumer_id
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation

    def _values(self):
        return (
            self.error_code,
            self.consumer_id,
            self.coordinator_epoch,
            self.generation,
        )


class LeaveGroupRequest(Message):
    __slots__ = ("consumer_id", "coordinator_epoch", "generation", "offset_info", "reason")
    consumer_id: str
    coordinator_epoch: int
    generation: int
    offset_info: tuple[OffsetInfo, ...]
    reason: str

    def __init__(self, *, consumer_id="", coordinator_epoch, generation, offset_info=(), reason=""):
        self.consumer_id = consumer_id
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation
        self.offset_info = offset_info
        self.reason = reason

    def _values(self):
        return (
            self.consumer_id,
            self.coordinator_epoch,
            self.generation,
            self.offset_info,
            self.reason,
        )


class ConsumerMessage(Message):
    __slots__ = ("number", "register", "ping", "stopped", "started", "leave", "cause")
    number: int
    register: RegisterConsumerRequest | None
    ping: PingResponse | None
    stopped: StopFetcherResponse | None
    started: StartFetcherResponse | None
    leave: LeaveGroupRequest | None
    cause: str

    def __init__(self, *, number, register=None, ping=None, stopped=None, started=None, leave=None, cause=""):
        self.number = number
        self.register = register
        self.ping = ping
        self.stopped = stopped
        self.started = started
        self.leave = leave
        self.cause = cause

    def _values(self):
        return (
            self.number,
            self.register,
            self.ping,
            self.stopped,
            self.started,
            self.leave,
            self.cause,
        )


class RegisterConsumerResponse(Message):
    __slots__ = ("error_code", "error_message", "coordinator_epoch", "admission")
    error_code: ErrorCode
    error_message: str
    coordinator_epoch: int
    admission: int

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", coordinator_epoch, admission):
        self.error_code = error_code
        self.error_message = error_message
        self.coordinator_epoch = coordinator_epoch
        self.admission = admission

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.coordinator_epoch,
            self.admission,
        )


class PingRequest(Message):
    __slots__ = ("consumer_id", "num_retries", "coordinator_epoch", "generation")
    consumer_id: str
    num_retries: int
    coordinator_epoch: int
    generation: int

    def __init__(self, *, consumer_id="", num_retries, coordinator_epoch, generation):
        self.consumer_id = consumer_id
        self.num_retries = num_retries
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation

    def _values(self):
        return (
            self.consumer_id,
            self.num_retries,
            self.coordinator_epoch,
            self.generation,
        )


class PartitionName(Message):
    __slots__ = ("topic", "partition")
    topic: str
    partition: int

    def __init__(self, *, topic="", partition):
        self.topic = topic
        self.partition = partition

    def _values(self):
        return (
            self.topic,
            self.partition,
        )


class StopFetcherRequest(Message):
    __slots__ = ("consumer_id", "coordinator_epoch", "generation", "revoked")
    consumer_id: str
    coordinator_epoch: int
    generation: int
    revoked: tuple[PartitionName, ...]

    def __init__(self, *, consumer_id="", coordinator_epoch, generation, revoked=()):
        self.consumer_id = consumer_id
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation
        self.revoked = revoked

    def _values(self):
        return (
            self.consumer_id,
            self.coordinator_epoch,
            self.generation,
            self.revoked,
        )


class AssignedPartition(Message):
    __slots__ = ("topic", "partition", "offset", "leader_epoch", "topic_id")
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    topic_id: bytes

    def __init__(self, *, topic="", partition, offset, leader_epoch, topic_id=b""):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.topic_id = topic_id

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.offset,
            self.leader_epoch,
            self.topic_id,
        )


class OwnershipInfo(Message):
    __slots__ = ("consumer_thread_id", "assigned_parts")
    consumer_thread_id: str
    assigned_parts: tuple[AssignedPartition, ...]

    def __init__(self, *, consumer_thread_id="", assigned_parts=()):
        self.consumer_thread_id = consumer_thread_id
        self.assigned_parts = assigned_parts

    def _values(self):
        return (
            self.consumer_thread_id,
            self.assigned_parts,
        )


class StartFetcherRequest(Message):
    __slots__ = ("consumer_id", "num_threads", "ownership_info", "brokers_info", "coordinator_epoch", "generation")
    consumer_id: str
    num_threads: int
    ownership_info: tuple[OwnershipInfo, ...]
    brokers_info: tuple[BrokerInfo, ...]
    coordinator_epoch: int
    generation: int

    def __init__(
        self, *, consumer_id="", num_threads, ownership_info=(), brokers_info=(), coordinator_epoch, generation
    ):
        self.consumer_id = consumer_id
        self.num_threads = num_threads
        self.ownership_info = ownership_info
        self.brokers_info = brokers_info
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation

    def _values(self):
        return (
            self.consumer_id,
            self.num_threads,
            self.ownership_info,
            self.brokers_info,
            self.coordinator_epoch,
            self.generation,
        )


class LeaveGroupResponse(Message):
    __slots__ = ("error_code",)
    error_code: ErrorCode

    def __init__(self, *, error_code=ErrorCode.NONE):
        self.error_code = error_code

    def _values(self):
        return (self.error_code,)


class CoordinatorMessage(Message):
    __slots__ = ("last_number", "registered", "ping", "stop", "start", "left", "cause")
    last_number: int
    registered: RegisterConsumerResponse | None
    ping: PingRequest | None
    stop: StopFetcherRequest | None
    start: StartFetcherRequest | None
    left: LeaveGroupResponse | None
    cause: str

    def __init__(self, *, last_number, registered=None, ping=None, stop=None, start=None, left=None, cause=""):
        self.last_number = last_number
        self.registered = registered
        self.ping = ping
        self.stop = stop
        self.start = start
        self.left = left
        self.cause = cause

    def _values(self):
        return (
            self.last_number,
            self.registered,
            self.ping,
            self.stop,
            self.start,
            self.left,
            self.cause,
        )


class CommitOffsetsRequest(Message):
    __slots__ = ("group_id", "consumer_id", "incarnation", "coordinator_epoch", "generation", "number", "offsets")
    group_id: str
    consumer_id: str
    incarnation: int
    coordinator_epoch: int
    generation: int
    number: int
    offsets: tuple[OffsetInfo, ...]

    def __init__(self, *, group_id="", consumer_id="", incarnation, coordinator_epoch, generation, number, offsets=()):
        self.group_id = group_id
        self.consumer_id = consumer_id
        self.incarnation = incarnation
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation
        self.number = number
        self.offsets = offsets

    def _values(self):
        return (
            self.group_id,
            self.consumer_id,
            self.incarnation,
            self.coordinator_epoch,
            self.generation,
            self.number,
            self.offsets,
        )


class CommittedResult(Message):
    __slots__ = ("topic", "partition", "error_code", "error_message")
    topic: str
    partition: int
    error_code: ErrorCode
    error_message: str

    def __init__(self, *, topic="", partition, error_code=ErrorCode.NONE, error_message=""):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.error_code,
            self.error_message,
        )


class CommitOffsetsResponse(Message):
    __slots__ = ("error_code", "error_message", "results")
    error_code: ErrorCode
    error_message: str
    results: tuple[CommittedResult, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", results=()):
        self.error_code = error_code
        self.error_message = error_message
        self.results = results

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.results,
        )


class FetchOffsetsRequest(Message):
    __slots__ = ("group_id", "partitions")
    group_id: str
    partitions: tuple[PartitionName, ...]

    def __init__(self, *, group_id="", partitions=()):
        self.group_id = group_id
        self.partitions = partitions

    def _values(self):
        return (
            self.group_id,
            self.partitions,
        )


class FetchOffsetsResponse(Message):
    __slots__ = ("error_code", "error_message", "offsets")
    error_code: ErrorCode
    error_message: str
    offsets: tuple[OffsetInfo, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", offsets=()):
        self.error_code = error_code
        self.error_message = error_message
        self.offsets = offsets

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.offsets,
        )


class ListGroupsRequest(Message):
    __slots__ = ("states",)
    states: tuple[str, ...]

    def __init__(self, *, states=()):
        self.states = states

    def _values(self):
        return (self.states,)


class ListedGroup(Message):
    __slots__ = ("group_id", "state")
    group_id: str
    state: str

    def __init__(self, *, group_id="", state=""):
        self.group_id = group_id
        self.state = state

    def _values(self):
        return (
            self.group_id,
            self.state,
        )


class ListGroupsResponse(Message):
    __slots__ = ("error_code", "error_message", "groups", "shards", "shard_count")
    error_code: ErrorCode
    error_message: str
    groups: tuple[ListedGroup, ...]
    shards: tuple[int, ...]
    shard_count: int

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", groups=(), shards=(), shard_count):
        self.error_code = error_code
        self.error_message = error_message
        self.groups = groups
        self.shards = shards
        self.shard_count = shard_count

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.groups,
            self.shards,
            self.shard_count,
        )


class DescribeGroupsRequest(Message):
    __slots__ = ("group_ids",)
    group_ids: tuple[str, ...]

    def __init__(self, *, group_ids=()):
        self.group_ids = group_ids

    def _values(self):
        return (self.group_ids,)


class DescribedMember(Message):
    __slots__ = (
        "consumer_id",
        "client_id",
        "host",
        "topic_count",
        "session_timeout_ms",
        "static_member",
        "partitions",
        "watch_port",
    )
    consumer_id: str
    client_id: str
    host: str
    topic_count: str
    session_timeout_ms: int
    static_member: bool
    partitions: tuple[PartitionName, ...]
    watch_port: int

    def __init__(
        self,
        *,
        consumer_id="",
        client_id="",
        host="",
        topic_count="",
        session_timeout_ms,
        static_member=False,
        partitions=(),
        watch_port,
    ):
        self.consumer_id = consumer_id
        self.client_id = client_id
        self.host = host
        self.topic_count = topic_count
        self.session_timeout_ms = session_timeout_ms
        self.static_member = static_member
        self.partitions = partitions
        self.watch_port = watch_port

    def _values(self):
        return (
            self.consumer_id,
            self.client_id,
            self.host,
            self.topic_count,
            self.session_timeout_ms,
            self.static_member,
            self.partitions,
            self.watch_port,
        )


class DescribedGroup(Message):
    __slots__ = (
        "error_code",
        "error_message",
        "group_id",
        "state",
        "assignor",
        "coordinator_id",
        "coordinator_epoch",
        "generation",
        "members",
        "offsets",
    )
    error_code: ErrorCode
    error_message: str
    group_id: str
    state: str
    assignor: str
    coordinator_id: int
    coordinator_epoch: int
    generation: int
    members: tuple[DescribedMember, ...]
    offsets: tuple[OffsetInfo, ...]

    def __init__(
        self,
        *,
        error_code=ErrorCode.NONE,
        error_message="",
        group_id="",
        state="",
        assignor="",
        coordinator_id,
        coordinator_epoch,
        generation,
        members=(),
        offsets=(),
    ):
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.state = state
        self.assignor = assignor
        self.coordinator_id = coordinator_id
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation
        self.members = members
        self.offsets = offsets

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.group_id,
            self.state,
            self.assignor,
            self.coordinator_id,
            self.coordinator_epoch,
            self.generation,
            self.members,
            self.offsets,
        )


class DescribeGroupsResponse(Message):
    __slots__ = ("error_code", "error_message", "groups")
    error_code: ErrorCode
    error_message: str
    groups: tuple[DescribedGroup, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", groups=()):
        self.error_code = error_code
        self.error_message = error_message
        self.groups = groups

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.groups,
        )


class DeleteGroupsRequest(Message):
    __slots__ = ("group_ids",)
    group_ids: tuple[str, ...]

    def __init__(self, *, group_ids=()):
        self.group_ids = group_ids

    def _values(self):
        return (self.group_ids,)


class DeletedGroup(Message):
    __slots__ = ("group_id", "error_code", "error_message")
    group_id: str
    error_code: ErrorCode
    error_message: str

    def __init__(self, *, group_id="", error_code=ErrorCode.NONE, error_message=""):
        self.group_id = group_id
        self.error_code = error_code
        self.error_message = error_message

    def _values(self):
        return (
            self.group_id,
            self.error_code,
            self.error_message,
        )


class DeleteGroupsResponse(Message):
    __slots__ = ("error_code", "error_message", "results")
    error_code: ErrorCode
    error_message: str
    results: tuple[DeletedGroup, ...]

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", results=()):
        self.error_code = error_code
        self.error_message = error_message
        self.results = results

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.results,
        )


class ProducePartition(Message):
    __slots__ = ("topic", "topic_id", "partition", "leader_epoch", "records")
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    records: bytes

    def __init__(self, *, topic="", topic_id=b"", partition, leader_epoch, records=b""):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.records = records

    def _values(self):
        return (
            self.topic,
            self.topic_id,
            self.partition,
            self.leader_epoch,
            self.records,
        )


class ProduceRequest(Message):
    __slots__ = ("client_id", "acks", "timeout_ms", "partitions")
    client_id: str
    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]

    def __init__(self, *, client_id="", acks, timeout_ms, partitions=()):
        self.client_id = client_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.partitions = partitions

    def _values(self):
        return (
            self.client_id,
            self.acks,
            self.timeout_ms,
            self.partitions,
        )


class ProduceResult(Message):
    __slots__ = (
        "topic",
        "partition",
        "error_code",
        "error_message",
        "base_offset",
        "log_start_offset",
        "leader_id",
        "leader_epoch",
        "isr_size",
    )
    topic: str
    partition: int
    error_code: ErrorCode
    error_message: str
    base_offset: int
    log_start_offset: int
    leader_id: int
    leader_epoch: int
    isr_size: int

    def __init__(
        self,
        *,
        topic="",
        partition,
        error_code=ErrorCode.NONE,
        error_message="",
        base_offset,
        log_start_offset,
        leader_id,
        leader_epoch,
        isr_size,
    ):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.base_offset = base_offset
        self.log_start_offset = log_start_offset
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.isr_size = isr_size

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.error_code,
            self.error_message,
            self.base_offset,
            self.log_start_offset,
            self.leader_id,
            self.leader_epoch,
            self.isr_size,
        )


class ProduceResponse(Message):
    __slots__ = ("results",)
    results: tuple[ProduceResult, ...]

    def __init__(self, *, results=()):
        self.results = results

    def _values(self):
        return (self.results,)


class ProduceAnswer(Message):
    __slots__ = ("number", "response")
    number: int
    response: ProduceResponse

    def __init__(self, *, number, response):
        self.number = number
        self.response = response

    def _values(self):
        return (
            self.number,
            self.response,
        )


class ProduceAnswers(Message):
    __slots__ = ("answers",)
    answers: tuple[ProduceAnswer, ...]

    def __init__(self, *, answers=()):
        self.answers = answers

    def _values(self):
        return (self.answers,)


class FetchPartition(Message):
    __slots__ = ("topic", "topic_id", "partition", "leader_epoch", "offset", "last_fetched_epoch", "max_bytes")
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    max_bytes: int

    def __init__(self, *, topic="", topic_id=b"", partition, leader_epoch, offset, last_fetched_epoch, max_bytes):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.last_fetched_epoch = last_fetched_epoch
        self.max_bytes = max_bytes

    def _values(self):
        return (
            self.topic,
            self.topic_id,
            self.partition,
            self.leader_epoch,
            self.offset,
            self.last_fetched_epoch,
            self.max_bytes,
        )


class FetchRequest(Message):
    __slots__ = ("client_id", "max_wait_ms", "min_bytes", "max_bytes", "partitions")
    client_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchPartition, ...]

    def __init__(self, *, client_id="", max_wait_ms, min_bytes, max_bytes, partitions=()):
        self.client_id = client_id
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.partitions = partitions

    def _values(self):
        return (
            self.client_id,
            self.max_wait_ms,
            self.min_bytes,
            self.max_bytes,
            self.partitions,
        )


class FetchResult(Message):
    __slots__ = (
        "topic",
        "partition",
        "error_code",
        "error_message",
        "high_watermark",
        "log_start_offset",
        "diverging_epoch",
        "diverging_end_offset",
        "leader_id",
        "leader_epoch",
        "records",
    )
    topic: str
    partition: int
    error_code: ErrorCode
    error_message: str
    high_watermark: int
    log_start_offset: int
    diverging_epoch: int
    diverging_end_offset: int
    leader_id: int
    leader_epoch: int
    records: bytes

    def __init__(
        self,
        *,
        topic="",
        partition,
        error_code=ErrorCode.NONE,
        error_message="",
        high_watermark,
        log_start_offset,
        diverging_epoch,
        diverging_end_offset,
        leader_id,
        leader_epoch,
        records=b"",
    ):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.diverging_epoch = diverging_epoch
        self.diverging_end_offset = diverging_end_offset
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.records = records

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.error_code,
            self.error_message,
            self.high_watermark,
            self.log_start_offset,
            self.diverging_epoch,
            self.diverging_end_offset,
            self.leader_id,
            self.leader_epoch,
            self.records,
        )


class FetchResponse(Message):
    __slots__ = ("results",)
    results: tuple[FetchResult, ...]

    def __init__(self, *, results=()):
        self.results = results

    def _values(self):
        return (self.results,)


class SearchStart(Message):
    __slots__ = ("offset",)
    offset: int

    def __init__(self, *, offset):
        self.offset = offset

    def _values(self):
        return (self.offset,)


class ListOffsetsPartition(Message):
    __slots__ = ("topic", "partition", "leader_epoch", "timestamp", "topic_id", "own", "search_start")
    topic: str
    partition: int
    leader_epoch: int
    timestamp: int
    topic_id: bytes
    own: bool
    search_start: SearchStart | None

    def __init__(self, *, topic="", partition, leader_epoch, timestamp, topic_id=b"", own=False, search_start=None):
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.timestamp = timestamp
        self.topic_id = topic_id
        self.own = own
        self.search_start = search_start

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.leader_epoch,
            self.timestamp,
            self.topic_id,
            self.own,
            self.search_start,
        )


class ListOffsetsRequest(Message):
    __slots__ = ("partitions",)
    partitions: tuple[ListOffsetsPartition, ...]

    def __init__(self, *, partitions=()):
        self.partitions = partitions

    def _values(self):
        return (self.partitions,)


class OwnEpoch(Message):
    __slots__ = ("leader_epoch", "start")
    leader_epoch: int
    start: int

    def __init__(self, *, leader_epoch, start):
        self.leader_epoch = leader_epoch
        self.start = start

    def _values(self):
        return (
            self.leader_epoch,
            self.start,
        )


class OwnLog(Message):
    __slots__ = ("log_start", "high_watermark", "epochs", "isr_size")
    log_start: int
    high_watermark: int
    epochs: tuple[OwnEpoch, ...]
    isr_size: int

    def __init__(self, *, log_start, high_watermark, epochs=(), isr_size):
        self.log_start = log_start
        self.high_watermark = high_watermark
        self.epochs = epochs
        self.isr_size = isr_size

    def _values(self):
        return (
            self.log_start,
            self.high_watermark,
            self.epochs,
            self.isr_size,
        )


class ListOffsetsResult(Message):
    __slots__ = ("topic", "partition", "error_code", "error_message", "timestamp", "offset", "leader_epoch", "own_log")
    topic: str
    partition: int
    error_code: ErrorCode
    error_message: str
    timestamp: int
    offset: int
    leader_epoch: int
    own_log: OwnLog | None

    def __init__(
        self,
        *,
        topic="",
        partition,
        error_code=ErrorCode.NONE,
        error_message="",
        timestamp,
        offset,
        leader_epoch,
        own_log=None,
    ):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.own_log = own_log

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.error_code,
            self.error_message,
            self.timestamp,
            self.offset,
            self.leader_epoch,
            self.own_log,
        )


class ListOffsetsResponse(Message):
    __slots__ = ("results",)
    results: tuple[ListOffsetsResult, ...]

    def __init__(self, *, results=()):
        self.results = results

    def _values(self):
        return (self.results,)


class EpochPartition(Message):
    __slots__ = ("topic", "partition", "current_leader_epoch", "leader_epoch", "topic_id")
    topic: str
    partition: int
    current_leader_epoch: int
    leader_epoch: int
    topic_id: bytes

    def __init__(self, *, topic="", partition, current_leader_epoch, leader_epoch, topic_id=b""):
        self.topic = topic
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.leader_epoch = leader_epoch
        self.topic_id = topic_id

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.current_leader_epoch,
            self.leader_epoch,
            self.topic_id,
        )


class OffsetForLeaderEpochRequest(Message):
    __slots__ = ("partitions",)
    partitions: tuple[EpochPartition, ...]

    def __init__(self, *, partitions=()):
        self.partitions = partitions

    def _values(self):
        return (self.partitions,)


class EpochEndOffset(Message):
    __slots__ = ("topic", "partition", "error_code", "leader_epoch", "end_offset", "error_message")
    topic: str
    partition: int
    error_code: ErrorCode
    leader_epoch: int
    end_offset: int
    error_message: str

    def __init__(self, *, topic="", partition, error_code=ErrorCode.NONE, leader_epoch, end_offset, error_message=""):
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset
        self.error_message = error_message

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.error_code,
            self.leader_epoch,
            self.end_offset,
            self.error_message,
        )


class OffsetForLeaderEpochResponse(Message):
    __slots__ = ("results",)
    results: tuple[EpochEndOffset, ...]

    def __init__(self, *, results=()):
        self.results = results

    def _values(self):
        return (self.results,)


class ReplicaPosition(Message):
    __slots__ = (
        "topic",
        "topic_id",
        "partition",
        "leader_epoch",
        "offset",
        "last_fetched_epoch",
        "error_code",
        "leaving",
        "log_start_offset",
    )
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    error_code: ErrorCode
    leaving: bool
    log_start_offset: int

    def __init__(
        self,
        *,
        topic="",
        topic_id=b"",
        partition,
        leader_epoch,
        offset,
        last_fetched_epoch,
        error_code=ErrorCode.NONE,
        leaving=False,
        log_start_offset,
    ):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.last_fetched_epoch = last_fetched_epoch
        self.error_code = error_code
        self.leaving = leaving
        self.log_start_offset = log_start_offset

    def _values(self):
        return (
            self.topic,
            self.topic_id,
            self.partition,
            self.leader_epoch,
            self.offset,
            self.last_fetched_epoch,
            self.error_code,
            self.leaving,
            self.log_start_offset,
        )


class ReplicaFetchRequest(Message):
    __slots__ = ("replica_id", "broker_epoch", "acked_chunk", "partitions")
    replica_id: int
    broker_epoch: int
    acked_chunk: int
    partitions: tuple[ReplicaPosition, ...]

    def __init__(self, *, replica_id, broker_epoch, acked_chunk, partitions=()):
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.acked_chunk = acked_chunk
        self.partitions = partitions

    def _values(self):
        return (
            self.replica_id,
            self.broker_epoch,
            self.acked_chunk,
            self.partitions,
        )


class SentBatch(Message):
    __slots__ = ("base_offset", "crc")
    base_offset: int
    crc: int

    def __init__(self, *, base_offset, crc):
        self.base_offset = base_offset
        self.crc = crc

    def _values(self):
        return (
            self.base_offset,
            self.crc,
        )


class ReplicaChunk(Message):
    __slots__ = (
        "topic",
        "partition",
        "leader_epoch",
        "error_code",
        "high_watermark",
        "log_start_offset",
        "diverging_epoch",
        "diverging_end_offset",
        "offset",
        "topic_id",
        "dropped_to",
        "marked",
        "sent",
        "records",
    )
    topic: str
    partition: int
    leader_epoch: int
    error_code: ErrorCode
    high_watermark: int
    log_start_offset: int
    diverging_epoch: int
    diverging_end_offset: int
    offset: int
    topic_id: bytes
    dropped_to: int
    marked: bool
    sent: tuple[SentBatch, ...]
    records: bytes

    def __init__(
        self,
        *,
        topic="",
        partition,
        leader_epoch,
        error_code=ErrorCode.NONE,
        high_watermark,
        log_start_offset,
        diverging_epoch,
        diverging_end_offset,
        offset,
        topic_id=b"",
        dropped_to,
        marked=False,
        sent=(),
        records=b"",
    ):
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.diverging_epoch = diverging_epoch
        self.diverging_end_offset = diverging_end_offset
        self.offset = offset
        self.topic_id = topic_id
        self.dropped_to = dropped_to
        self.marked = marked
        self.sent = sent
        self.records = records

    def _values(self):
        return (
            self.topic,
            self.partition,
            self.leader_epoch,
            self.error_code,
            self.high_watermark,
            self.log_start_offset,
            self.diverging_epoch,
            self.diverging_end_offset,
            self.offset,
            self.topic_id,
            self.dropped_to,
            self.marked,
            self.sent,
            self.records,
        )


class ReplicaFetchResponse(Message):
    __slots__ = ("chunk", "partitions")
    chunk: int
    partitions: tuple[ReplicaChunk, ...]

    def __init__(self, *, chunk, partitions=()):
        self.chunk = chunk
        self.partitions = partitions

    def _values(self):
        return (
            self.chunk,
            self.partitions,
        )


class InitProducerIdRequest(Message):
    __slots__ = ("client_id", "producer_id", "producer_epoch")
    client_id: str
    producer_id: int
    producer_epoch: int

    def __init__(self, *, client_id="", producer_id, producer_epoch):
        self.client_id = client_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch

    def _values(self):
        return (
            self.client_id,
            self.producer_id,
            self.producer_epoch,
        )


class InitProducerIdResponse(Message):
    __slots__ = ("error_code", "error_message", "producer_id", "producer_epoch")
    error_code: ErrorCode
    error_message: str
    producer_id: int
    producer_epoch: int

    def __init__(self, *, error_code=ErrorCode.NONE, error_message="", producer_id, producer_epoch):
        self.error_code = error_code
        self.error_message = error_message
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch

    def _values(self):
        return (
            self.error_code,
            self.error_message,
            self.producer_id,
            self.producer_epoch,
        )


class WatchedMember(Message):
    __slots__ = ("group_id", "consumer_id")
    group_id: str
    consumer_id: str

    def __init__(self, *, group_id="", consumer_id=""):
        self.group_id = group_id
        self.consumer_id = consumer_id

    def _values(self):
        return (
            self.group_id,
            self.consumer_id,
        )


class WatchRequest(Message):
    __slots__ = ("process", "families", "topics", "partition", "groups", "life", "number", "last", "age_ms", "member")
    process: str
    families: tuple[str, ...]
    topics: tuple[str, ...]
    partition: int
    groups: tuple[str, ...]
    life: int
    number: int
    last: int
    age_ms: int
    member: WatchedMember | None

    def __init__(
        self, *, process="", families=(), topics=(), partition, groups=(), life, number, last, age_ms, member=None
    ):
        self.process = process
        self.families = families
        self.topics = topics
        self.partition = partition
        self.groups = groups
        self.life = life
        self.number = number
        self.last = last
        self.age_ms = age_ms
        self.member = member

    def _values(self):
        return (
            self.process,
            self.families,
            self.topics,
            self.partition,
            self.groups,
            self.life,
            self.number,
            self.last,
            self.age_ms,
            self.member,
        )


class WatchedPartition(Message):
    __slots__ = ("topic", "partition")
    topic: str
    partition: int

    def __init__(self, *, topic="", partition):
        self.topic = topic
        self.partition = partition

    def _values(self):
        return (
            self.topic,
            self.partition,
        )


class EventName(Message):
    __slots__ = ("process", "life", "number")
    process: str
    life: int
    number: int

    def __init__(self, *, process="", life, number):
        self.process = process
        self.life = life
        self.number = number

    def _values(self):
        return (
            self.process,
            self.life,
            self.number,
        )


class ZnodeName(Message):
    __slots__ = ("path", "version")
    path: str
    version: int

    def __init__(self, *, path="", version):
        self.path = path
        self.version = version

    def _values(self):
        return (
            self.path,
            self.version,
        )


class BrokerSeen(Message):
    __slots__ = ("broker_id",)
    broker_id: int

    def __init__(self, *, broker_id):
        self.broker_id = broker_id

    def _values(self):
        return (self.broker_id,)


class BrokerLost(Message):
    __slots__ = ("broker_id",)
    broker_id: int

    def __init__(self, *, broker_id):
        self.broker_id = broker_id

    def _values(self):
        return (self.broker_id,)


class BrokerSuspected(Message):
    __slots__ = ("broker_id",)
    broker_id: int

    def __init__(self, *, broker_id):
        self.broker_id = broker_id

    def _values(self):
        return (self.broker_id,)


class BrokerCleared(Message):
    __slots__ = ("broker_id",)
    broker_id: int

    def __init__(self, *, broker_id):
        self.broker_id = broker_id

    def _values(self):
        return (self.broker_id,)


class ControllerElected(Message):
    __slots__ = ("controller_epoch",)
    controller_epoch: int

    def __init__(self, *, controller_epoch):
        self.controller_epoch = controller_epoch

    def _values(self):
        return (self.controller_epoch,)


class ControllerLoaded(Message):
    __slots__ = ("controller_epoch", "topics", "brokers")
    controller_epoch: int
    topics: int
    brokers: int

    def __init__(self, *, controller_epoch, topics, brokers):
        self.controller_epoch = controller_epoch
        self.topics = topics
        self.brokers = brokers

    def _values(self):
        return (
            self.controller_epoch,
            self.topics,
            self.brokers,
        )


class ControllerResigned(Message):
    __slots__ = ("controller_epoch", "reason")
    controller_epoch: int
    reason: str

    def __init__(self, *, controller_epoch, reason=""):
        self.controller_epoch = controller_epoch
        self.reason = reason

    def _values(self):
        return (
            self.controller_epoch,
            self.reason,
        )


class LeaderChosen(Message):
    __slots__ = ("leader_before", "leader", "leader_epoch", "isr_before", "isr", "why")
    leader_before: int
    leader: int
    leader_epoch: int
    isr_before: tuple[int, ...]
    isr: tuple[int, ...]
    why: str

    def __init__(self, *, leader_before, leader, leader_epoch, isr_before=(), isr=(), why=""):
        self.leader_before = leader_before
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr_before = isr_before
        self.isr = isr
        self.why = why

    def _values(self):
        return (
            self.leader_before,
            self.leader,
            self.leader_epoch,
            self.isr_before,
            self.isr,
            self.why,
        )


class IsrChosen(Message):
    __slots__ = ("isr_before", "isr", "why")
    isr_before: tuple[int, ...]
    isr: tuple[int, ...]
    why: str

    def __init__(self, *, isr_before=(), isr=(), why=""):
        self.isr_before = isr_before
        self.isr = isr
        self.why = why

    def _values(self):
        return (
            self.isr_before,
            self.isr,
            self.why,
        )


class OrderSent(Message):
    __slots__ = ("order", "broker_id", "partitions", "full")
    order: str
    broker_id: int
    partitions: int
    full: bool

    def __init__(self, *, order="", broker_id, partitions, full=False):
        self.order = order
        self.broker_id = broker_id
        self.partitions = partitions
        self.full = full

    def _values(self):
        return (
            self.order,
            self.broker_id,
            self.partitions,
            self.full,
        )


class OrderReceived(Message):
    __slots__ = ("order", "controller_id", "controller_epoch", "partitions", "full")
    order: str
    controller_id: int
    controller_epoch: int
    partitions: int
    full: bool

    def __init__(self, *, order="", controller_id, controller_epoch, partitions, full=False):
        self.order = order
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.partitions = partitions
        self.full = full

    def _values(self):
        return (
            self.order,
            self.controller_id,
            self.controller_epoch,
            self.partitions,
            self.full,
        )


class OrderApplied(Message):
    __slots__ = ("order", "failed")
    order: str
    failed: int

    def __init__(self, *, order="", failed):
        self.order = order
        self.failed = failed

    def _values(self):
        return (
            self.order,
            self.failed,
        )


class OrderRefused(Message):
    __slots__ = ("order", "code")
    order: str
    code: ErrorCode

    def __init__(self, *, order="", code=ErrorCode.NONE):
        self.order = order
        self.code = code

    def _values(self):
        return (
            self.order,
            self.code,
        )


class BecameLeader(Message):
    __slots__ = ("leader_epoch", "log_end", "high_watermark")
    leader_epoch: int
    log_end: int
    high_watermark: int

    def __init__(self, *, leader_epoch, log_end, high_watermark):
        self.leader_epoch = leader_epoch
        self.log_end = log_end
        self.high_watermark = high_watermark

    def _values(self):
        return (
            self.leader_epoch,
            self.log_end,
            self.high_watermark,
        )


class BecameFollower(Message):
    __slots__ = ("leader", "leader_epoch", "log_end", "high_watermark")
    leader: int
    leader_epoch: int
    log_end: int
    high_watermark: int

    def __init__(self, *, leader, leader_epoch, log_end, high_watermark):
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.log_end = log_end
        self.high_watermark = high_watermark

    def _values(self):
        return (
            self.leader,
            self.leader_epoch,
            self.log_end,
            self.high_watermark,
        )


class EpochStarted(Message):
    __slots__ = ("leader_epoch", "start")
    leader_epoch: int
    start: int

    def __init__(self, *, leader_epoch, start):
        self.leader_epoch = leader_epoch
        self.start = start

    def _values(self):
        return (
            self.leader_epoch,
            self.start,
        )


class LogTruncated(Message):
    __slots__ = ("from_offset", "to_offset", "rule", "epoch")
    from_offset: int
    to_offset: int
    rule: str
    epoch: int

    def __init__(self, *, from_offset, to_offset, rule="", epoch):
        self.from_offset = from_offset
        self.to_offset = to_offset
        self.rule = rule
        self.epoch = epoch

    def _values(self):
        return (
            self.from_offset,
            self.to_offset,
            self.rule,
            self.epoch,
        )


class LogReset(Message):
    __slots__ = ("from_offset", "to_offset")
    from_offset: int
    to_offset: int

    def __init__(self, *, from_offset, to_offset):
        self.from_offset = from_offset
        self.to_offset = to_offset

    def _values(self):
        return (
            self.from_offset,
            self.to_offset,
        )


class HighWatermarkAdvanced(Message):
    __slots__ = ("from_offset", "to_offset", "count")
    from_offset: int
    to_offset: int
    count: int

    def __init__(self, *, from_offset, to_offset, count):
        self.from_offset = from_offset
        self.to_offset = to_offset
        self.count = count

    def _values(self):
        return (
            self.from_offset,
            self.to_offset,
            self.count,
        )


class IsrProposed(Message):
    __slots__ = ("isr_before", "isr", "partition_epoch")
    isr_before: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int

    def __init__(self, *, isr_before=(), isr=(), partition_epoch):
        self.isr_before = isr_before
        self.isr = isr
        self.partition_epoch = partition_epoch

    def _values(self):
        return (
            self.isr_before,
            self.isr,
            self.partition_epoch,
        )


class IsrAnswered(Message):
    __slots__ = ("code", "isr", "partition_epoch")
    code: ErrorCode
    isr: tuple[int, ...]
    partition_epoch: int

    def __init__(self, *, code=ErrorCode.NONE, isr=(), partition_epoch):
        self.code = code
        self.isr = isr
        self.partition_epoch = partition_epoch

    def _values(self):
        return (
            self.code,
            self.isr,
            self.partition_epoch,
        )


class ZnodeChange(Message):
    __slots__ = ("path", "version_before", "version")
    path: str
    version_before: int
    version: int

    def __init__(self, *, path="", version_before, version):
        self.path = path
        self.version_before = version_before
        self.version = version

    def _values(self):
        return (
            self.path,
            self.version_before,
            self.version,
        )


class StoreWritten(Message):
    __slots__ = ("changes", "more", "result", "purpose")
    changes: tuple[ZnodeChange, ...]
    more: int
    result: str
    purpose: str

    def __init__(self, *, changes=(), more, result="", purpose=""):
        self.changes = changes
        self.more = more
        self.result = result
        self.purpose = purpose

    def _values(self):
        return (
            self.changes,
            self.more,
            self.result,
            self.purpose,
        )


class CoordinatorElected(Message):
    __slots__ = ("shard", "coordinator_epoch")
    shard: int
    coordinator_epoch: int

    def __init__(self, *, shard, coordinator_epoch):
        self.shard = shard
        self.coordinator_epoch = coordinator_epoch

    def _values(self):
        return (
            self.shard,
            self.coordinator_epoch,
        )


class CoordinatorLoaded(Message):
    __slots__ = ("shard", "coordinator_epoch", "groups", "offsets", "took_ms")
    shard: int
    coordinator_epoch: int
    groups: int
    offsets: int
    took_ms: int

    def __init__(self, *, shard, coordinator_epoch, groups, offsets, took_ms):
        self.shard = shard
        self.coordinator_epoch = coordinator_epoch
        self.groups = groups
        self.offsets = offsets
        self.took_ms = took_ms

    def _values(self):
        return (
            self.shard,
            self.coordinator_epoch,
            self.groups,
            self.offsets,
            self.took_ms,
        )


class CoordinatorResigned(Message):
    __slots__ = ("shard", "coordinator_epoch", "reason")
    shard: int
    coordinator_epoch: int
    reason: str

    def __init__(self, *, shard, coordinator_epoch, reason=""):
        self.shard = shard
        self.coordinator_epoch = coordinator_epoch
        self.reason = reason

    def _values(self):
        return (
            self.shard,
            self.coordinator_epoch,
            self.reason,
        )


class MemberRegistered(Message):
    __slots__ = ("consumer_id", "returned", "members")
    consumer_id: str
    returned: bool
    members: int

    def __init__(self, *, consumer_id="", returned=False, members):
        self.consumer_id = consumer_id
        self.returned = returned
        self.members = members

    def _values(self):
        return (
            self.consumer_id,
            self.returned,
            self.members,
        )


class MemberDisconnected(Message):
    __slots__ = ("consumer_id",)
    consumer_id: str

    def __init__(self, *, consumer_id=""):
        self.consumer_id = consumer_id

    def _values(self):
        return (self.consumer_id,)


class PingMissed(Message):
    __slots__ = ("consumer_id", "misses")
    consumer_id: str
    misses: int

    def __init__(self, *, consumer_id="", misses):
        self.consumer_id = consumer_id
        self.misses = misses

    def _values(self):
        return (
            self.consumer_id,
            self.misses,
        )


class AnswerMissed(Message):
    __slots__ = ("consumer_id", "request")
    consumer_id: str
    request: str

    def __init__(self, *, consumer_id="", request=""):
        self.consumer_id = consumer_id
        self.request = request

    def _values(self):
        return (
            self.consumer_id,
            self.request,
        )


class MemberGone(Message):
    __slots__ = ("consumer_id", "reason", "owned", "members")
    consumer_id: str
    reason: str
    owned: int
    members: int

    def __init__(self, *, consumer_id="", reason="", owned, members):
        self.consumer_id = consumer_id
        self.reason = reason
        self.owned = owned
        self.members = members

    def _values(self):
        return (
            self.consumer_id,
            self.reason,
            self.owned,
            self.members,
        )


class RebalanceBegun(Message):
    __slots__ = ("generation", "reason", "members", "stopped")
    generation: int
    reason: str
    members: int
    stopped: int

    def __init__(self, *, generation, reason="", members, stopped):
        self.generation = generation
        self.reason = reason
        self.members = members
        self.stopped = stopped

    def _values(self):
        return (
            self.generation,
            self.reason,
            self.members,
            self.stopped,
        )


class StopFetcherSent(Message):
    __slots__ = ("consumer_id", "generation", "partitions")
    consumer_id: str
    generation: int
    partitions: int

    def __init__(self, *, consumer_id="", generation, partitions):
        self.consumer_id = consumer_id
        self.generation = generation
        self.partitions = partitions

    def _values(self):
        return (
            self.consumer_id,
            self.generation,
            self.partitions,
        )


class StopFetcherAnswered(Message):
    __slots__ = ("consumer_id", "generation", "finishing")
    consumer_id: str
    generation: int
    finishing: bool

    def __init__(self, *, consumer_id="", generation, finishing=False):
        self.consumer_id = consumer_id
        self.generation = generation
        self.finishing = finishing

    def _values(self):
        return (
            self.consumer_id,
            self.generation,
            self.finishing,
        )


class StartFetcherSent(Message):
    __slots__ = ("consumer_id", "generation", "partitions")
    consumer_id: str
    generation: int
    partitions: int

    def __init__(self, *, consumer_id="", generation, partitions):
        self.consumer_id = consumer_id
        self.generation = generation
        self.partitions = partitions

    def _values(self):
        return (
            self.consumer_id,
            self.generation,
            self.partitions,
        )


class StartFetcherAnswered(Message):
    __slots__ = ("consumer_id", "generation")
    consumer_id: str
    generation: int

    def __init__(self, *, consumer_id="", generation):
        self.consumer_id = consumer_id
        self.generation = generation

    def _values(self):
        return (
            self.consumer_id,
            self.generation,
        )


class RebalanceEnded(Message):
    __slots__ = ("generation", "reason", "failed", "stopped", "took_ms")
    generation: int
    reason: str
    failed: bool
    stopped: int
    took_ms: int

    def __init__(self, *, generation, reason="", failed=False, stopped, took_ms):
        self.generation = generation
        self.reason = reason
        self.failed = failed
        self.stopped = stopped
        self.took_ms = took_ms

    def _values(self):
        return (
            self.generation,
            self.reason,
            self.failed,
            self.stopped,
            self.took_ms,
        )


class MemberJoined(Message):
    __slots__ = ("consumer_id", "returned")
    consumer_id: str
    returned: bool

    def __init__(self, *, consumer_id="", returned=False):
        self.consumer_id = consumer_id
        self.returned = returned

    def _values(self):
        return (
            self.consumer_id,
            self.returned,
        )


class CoordinatorLost(Message):
    __slots__ = ("consumer_id",)
    consumer_id: str

    def __init__(self, *, consumer_id=""):
        self.consumer_id = consumer_id

    def _values(self):
        return (self.consumer_id,)


class StopFetcherReceived(Message):
    __slots__ = ("coordinator_epoch", "generation", "partitions")
    coordinator_epoch: int
    generation: int
    partitions: int

    def __init__(self, *, coordinator_epoch, generation, partitions):
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation
        self.partitions = partitions

    def _values(self):
        return (
            self.coordinator_epoch,
            self.generation,
            self.partitions,
        )


class StopFetcherObeyed(Message):
    __slots__ = ("generation", "finishing")
    generation: int
    finishing: bool

    def __init__(self, *, generation, finishing=False):
        self.generation = generation
        self.finishing = finishing

    def _values(self):
        return (
            self.generation,
            self.finishing,
        )


class StartFetcherReceived(Message):
    __slots__ = ("coordinator_epoch", "generation", "partitions")
    coordinator_epoch: int
    generation: int
    partitions: int

    def __init__(self, *, coordinator_epoch, generation, partitions):
        self.coordinator_epoch = coordinator_epoch
        self.generation = generation
        self.partitions = partitions

    def _values(self):
        return (
            self.coordinator_epoch,
            self.generation,
            self.partitions,
        )


class StartFetcherObeyed(Message):
    __slots__ = ("generation",)
    generation: int

    def __init__(self, *, generation):
        self.generation = generation

    def _values(self):
        return (self.generation,)


class FetchingStarted(Message):
    __slots__ = ("group_id", "offset")
    group_id: str
    offset: int

    def __init__(self, *, group_id="", offset):
        self.group_id = group_id
        self.offset = offset

    def _values(self):
        return (
            self.group_id,
            self.offset,
        )


class FetchingStopped(Message):
    __slots__ = ("group_id", "offset", "why")
    group_id: str
    offset: int
    why: str

    def __init__(self, *, group_id="", offset, why=""):
        self.group_id = group_id
        self.offset = offset
        self.why = why

    def _values(self):
        return (
            self.group_id,
            self.offset,
            self.why,
        )


class MemberFenced(Message):
    __slots__ = ("consumer_id", "code", "reason")
    consumer_id: str
    code: ErrorCode
    reason: str

    def __init__(self, *, consumer_id="", code=ErrorCode.NONE, reason=""):
        self.consumer_id = consumer_id
        self.code = code
        self.reason = reason

    def _values(self):
        return (
            self.consumer_id,
            self.code,
            self.reason,
        )


class MemberLeaving(Message):
    __slots__ = ("consumer_id", "reason")
    consumer_id: str
    reason: str

    def __init__(self, *, consumer_id="", reason=""):
        self.consumer_id = consumer_id
        self.reason = reason

    def _values(self):
        return (
            self.consumer_id,
            self.reason,
        )


class MemberLeft(Message):
    __slots__ = ("consumer_id", "stored")
    consumer_id: str
    stored: bool

    def __init__(self, *, consumer_id="", stored=False):
        self.consumer_id = consumer_id
        self.stored = stored

    def _values(self):
        return (
            self.consumer_id,
            self.stored,
        )


class FailoverStep(Message):
    __slots__ = ("step", "took_us", "partitions")
    step: int
    took_us: int
    partitions: int

    def __init__(self, *, step, took_us, partitions):
        self.step = step
        self.took_us = took_us
        self.partitions = partitions

    def _values(self):
        return (
            self.step,
            self.took_us,
            self.partitions,
        )


class HighWatermarkFrozen(Message):
    __slots__ = ("high_watermark", "log_end", "isr_size", "min_isr")
    high_watermark: int
    log_end: int
    isr_size: int
    min_isr: int

    def __init__(self, *, high_watermark, log_end, isr_size, min_isr):
        self.high_watermark = high_watermark
        self.log_end = log_end
        self.isr_size = isr_size
        self.min_isr = min_isr

    def _values(self):
        return (
            self.high_watermark,
            self.log_end,
            self.isr_size,
            self.min_isr,
        )


class HighWatermarkFreed(Message):
    __slots__ = ("high_watermark", "log_end", "isr_size", "min_isr")
    high_watermark: int
    log_end: int
    isr_size: int
    min_isr: int

    def __init__(self, *, high_watermark, log_end, isr_size, min_isr):
        self.high_watermark = high_watermark
        self.log_end = log_end
        self.isr_size = isr_size
        self.min_isr = min_isr

    def _values(self):
        return (
            self.high_watermark,
            self.log_end,
            self.isr_size,
            self.min_isr,
        )


class RequestFenced(Message):
    __slots__ = ("request", "claimed_epoch", "leader_epoch", "code")
    request: str
    claimed_epoch: int
    leader_epoch: int
    code: ErrorCode

    def __init__(self, *, request="", claimed_epoch, leader_epoch, code=ErrorCode.NONE):
        self.request = request
        self.claimed_epoch = claimed_epoch
        self.leader_epoch = leader_epoch
        self.code = code

    def _values(self):
        return (
            self.request,
            self.claimed_epoch,
            self.leader_epoch,
            self.code,
        )


class LeaderDeposed(Message):
    __slots__ = ("leader_epoch", "newer_epoch")
    leader_epoch: int
    newer_epoch: int

    def __init__(self, *, leader_epoch, newer_epoch):
        self.leader_epoch = leader_epoch
        self.newer_epoch = newer_epoch

    def _values(self):
        return (
            self.leader_epoch,
            self.newer_epoch,
        )


class LagNoticed(Message):
    __slots__ = ("broker_id", "offset", "log_end", "behind_ms")
    broker_id: int
    offset: int
    log_end: int
    behind_ms: int

    def __init__(self, *, broker_id, offset, log_end, behind_ms):
        self.broker_id = broker_id
        self.offset = offset
        self.log_end = log_end
        self.behind_ms = behind_ms

    def _values(self):
        return (
            self.broker_id,
            self.offset,
            self.log_end,
            self.behind_ms,
        )


class BrokerRegistered(Message):
    __slots__ = ("broker_id",)
    broker_id: int

    def __init__(self, *, broker_id):
        self.broker_id = broker_id

    def _values(self):
        return (self.broker_id,)


class SessionLost(Message):
    __slots__ = ("path",)
    path: str

    def __init__(self, *, path=""):
        self.path = path

    def _values(self):
        return (self.path,)


class WatchedEvent(Message):
    __slots__ = (
        "number",
        "time_ns",
        "partition",
        "broker_id",
        "group_id",
        "cause",
        "znode",
        "broker_seen",
        "broker_lost",
        "broker_suspected",
        "broker_cleared",
        "controller_elected",
        "controller_loaded",
        "controller_resigned",
        "leader_chosen",
        "isr_chosen",
        "order_sent",
        "order_received",
        "order_applied",
        "order_refused",
        "became_leader",
        "became_follower",
        "epoch_started",
        "log_truncated",
        "log_reset",
        "high_watermark_advanced",
        "isr_proposed",
        "isr_answered",
        "store_written",
        "coordinator_elected",
        "coordinator_loaded",
        "coordinator_resigned",
        "member_registered",
        "member_disconnected",
        "ping_missed",
        "answer_missed",
        "member_gone",
        "rebalance_begun",
        "stop_fetcher_sent",
        "stop_fetcher_answered",
        "start_fetcher_sent",
        "start_fetcher_answered",
        "rebalance_ended",
        "member_joined",
        "coordinator_lost",
        "stop_fetcher_received",
        "stop_fetcher_obeyed",
        "start_fetcher_received",
        "start_fetcher_obeyed",
        "fetching_started",
        "fetching_stopped",
        "member_fenced",
        "member_leaving",
        "member_left",
        "failover_step",
        "high_watermark_frozen",
        "high_watermark_freed",
        "request_fenced",
        "leader_deposed",
        "lag_noticed",
        "broker_registered",
        "session_lost",
    )
    number: int
    time_ns: int
    partition: WatchedPartition | None
    broker_id: int | None
    group_id: str | None
    cause: EventName | None
    znode: ZnodeName | None
    broker_seen: BrokerSeen | None
    broker_lost: BrokerLost | None
    broker_suspected: BrokerSuspected | None
    broker_cleared: BrokerCleared | None
    controller_elected: ControllerElected | None
    controller_loaded: ControllerLoaded | None
    controller_resigned: ControllerResigned | None
    leader_chosen: LeaderChosen | None
    isr_chosen: IsrChosen | None
    order_sent: OrderSent | None
    order_received: OrderReceived | None
    order_applied: OrderApplied | None
    order_refused: OrderRefused | None
    became_leader: BecameLeader | None
    became_follower: BecameFollower | None
    epoch_started: EpochStarted | None
    log_truncated: LogTruncated | None
    log_reset: LogReset | None
    high_watermark_advanced: HighWatermarkAdvanced | None
    isr_proposed: IsrProposed | None
    isr_answered: IsrAnswered | None
    store_written: StoreWritten | None
    coordinator_elected: CoordinatorElected | None
    coordinator_loaded: CoordinatorLoaded | None
    coordinator_resigned: CoordinatorResigned | None
    member_registered: MemberRegistered | None
    member_disconnected: MemberDisconnected | None
    ping_missed: PingMissed | None
    answer_missed: AnswerMissed | None
    member_gone: MemberGone | None
    rebalance_begun: RebalanceBegun | None
    stop_fetcher_sent: StopFetcherSent | None
    stop_fetcher_answered: StopFetcherAnswered | None
    start_fetcher_sent: StartFetcherSent | None
    start_fetcher_answered: StartFetcherAnswered | None
    rebalance_ended: RebalanceEnded | None
    member_joined: MemberJoined | None
    coordinator_lost: CoordinatorLost | None
    stop_fetcher_received: StopFetcherReceived | None
    stop_fetcher_obeyed: StopFetcherObeyed | None
    start_fetcher_received: StartFetcherReceived | None
    start_fetcher_obeyed: StartFetcherObeyed | None
    fetching_started: FetchingStarted | None
    fetching_stopped: FetchingStopped | None
    member_fenced: MemberFenced | None
    member_leaving: MemberLeaving | None
    member_left: MemberLeft | None
    failover_step: FailoverStep | None
    high_watermark_frozen: HighWatermarkFrozen | None
    high_watermark_freed: HighWatermarkFreed | None
    request_fenced: RequestFenced | None
    leader_deposed: LeaderDeposed | None
    lag_noticed: LagNoticed | None
    broker_registered: BrokerRegistered | None
    session_lost: SessionLost | None

    def __init__(
        self,
        *,
        number,
        time_ns,
        partition=None,
        broker_id=None,
        group_id=None,
        cause=None,
        znode=None,
        broker_seen=None,
        broker_lost=None,
        broker_suspected=None,
        broker_cleared=None,
        controller_elected=None,
        controller_loaded=None,
        controller_resigned=None,
        leader_chosen=None,
        isr_chosen=None,
        order_sent=None,
        order_received=None,
        order_applied=None,
        order_refused=None,
        became_leader=None,
        became_follower=None,
        epoch_started=None,
        log_truncated=None,
        log_reset=None,
        high_watermark_advanced=None,
        isr_proposed=None,
        isr_answered=None,
        store_written=None,
        coordinator_elected=None,
        coordinator_loaded=None,
        coordinator_resigned=None,
        member_registered=None,
        member_disconnected=None,
        ping_missed=None,
        answer_missed=None,
        member_gone=None,
        rebalance_begun=None,
        stop_fetcher_sent=None,
        stop_fetcher_answered=None,
        start_fetcher_sent=None,
        start_fetcher_answered=None,
        rebalance_ended=None,
        member_joined=None,
        coordinator_lost=None,
        stop_fetcher_received=None,
        stop_fetcher_obeyed=None,
        start_fetcher_received=None,
        start_fetcher_obeyed=None,
        fetching_started=None,
        fetching_stopped=None,
        member_fenced=None,
        member_leaving=None,
        member_left=None,
        failover_step=None,
        high_watermark_frozen=None,
        high_watermark_freed=None,
        request_fenced=None,
        leader_deposed=None,
        lag_noticed=None,
        broker_registered=None,
        session_lost=None,
    ):
        self.number = number
        self.time_ns = time_ns
        self.partition = partition
        self.broker_id = broker_id
        self.group_id = group_id
        self.cause = cause
        self.znode = znode
        self.broker_seen = broker_seen
        self.broker_lost = broker_lost
        self.broker_suspected = broker_suspected
        self.broker_cleared = broker_cleared
        self.controller_elected = controller_elected
        self.controller_loaded = controller_loaded
        self.controller_resigned = controller_resigned
        self.leader_chosen = leader_chosen
        self.isr_chosen = isr_chosen
        self.order_sent = order_sent
        self.order_received = order_received
        self.order_applied = order_applied
        self.order_refused = order_refused
        self.became_leader = became_leader
        self.became_follower = became_follower
        self.epoch_started = epoch_started
        self.log_truncated = log_truncated
        self.log_reset = log_reset
        self.high_watermark_advanced = high_watermark_advanced
        self.isr_proposed = isr_proposed
        self.isr_answered = isr_answered
        self.store_written = store_written
        self.coordinator_elected = coordinator_elected
        self.coordinator_loaded = coordinator_loaded
        self.coordinator_resigned = coordinator_resigned
        self.member_registered = member_registered
        self.member_disconnected = member_disconnected
        self.ping_missed = ping_missed
        self.answer_missed = answer_missed
        self.member_gone = member_gone
        self.rebalance_begun = rebalance_begun
        self.stop_fetcher_sent = stop_fetcher_sent
        self.stop_fetcher_answered = stop_fetcher_answered
        self.start_fetcher_sent = start_fetcher_sent
        self.start_fetcher_answered = start_fetcher_answered
        self.rebalance_ended = rebalance_ended
        self.member_joined = member_joined
        self.coordinator_lost = coordinator_lost
        self.stop_fetcher_received = stop_fetcher_received
        self.stop_fetcher_obeyed = stop_fetcher_obeyed
        self.start_fetcher_received = start_fetcher_received
        self.start_fetcher_obeyed = start_fetcher_obeyed
        self.fetching_started = fetching_started
        self.fetching_stopped = fetching_stopped
        self.member_fenced = member_fenced
        self.member_leaving = member_leaving
        self.member_left = member_left
        self.failover_step = failover_step
        self.high_watermark_frozen = high_watermark_frozen
        self.high_watermark_freed = high_watermark_freed
        self.request_fenced = request_fenced
        self.leader_deposed = leader_deposed
        self.lag_noticed = lag_noticed
        self.broker_registered = broker_registered
        self.session_lost = session_lost

    def _values(self):
        return (
            self.number,
            self.time_ns,
            self.partition,
            self.broker_id,
            self.group_id,
            self.cause,
            self.znode,
            self.broker_seen,
            self.broker_lost,
            self.broker_suspected,
            self.broker_cleared,
            self.controller_elected,
            self.controller_loaded,
            self.controller_resigned,
            self.leader_chosen,
            self.isr_chosen,
            self.order_sent,
            self.order_received,
            self.order_applied,
            self.order_refused,
            self.became_leader,
            self.became_follower,
            self.epoch_started,
            self.log_truncated,
            self.log_reset,
            self.high_watermark_advanced,
            self.isr_proposed,
            self.isr_answered,
            self.store_written,
            self.coordinator_elected,
            self.coordinator_loaded,
            self.coordinator_resigned,
            self.member_registered,
            self.member_disconnected,
            self.ping_missed,
            self.answer_missed,
            self.member_gone,
            self.rebalance_begun,
            self.stop_fetcher_sent,
            self.stop_fetcher_answered,
            self.start_fetcher_sent,
            self.start_fetcher_answered,
            self.rebalance_ended,
            self.member_joined,
            self.coordinator_lost,
            self.stop_fetcher_received,
            self.stop_fetcher_obeyed,
            self.start_fetcher_received,
            self.start_fetcher_obeyed,
            self.fetching_started,
            self.fetching_stopped,
            self.member_fenced,
            self.member_leaving,
            self.member_left,
            self.failover_step,
            self.high_watermark_frozen,
            self.high_watermark_freed,
            self.request_fenced,
            self.leader_deposed,
            self.lag_noticed,
            self.broker_registered,
            self.session_lost,
        )


class WatchResponse(Message):
    __slots__ = ("process", "life", "events", "lost", "number", "newest")
    process: str
    life: int
    events: tuple[WatchedEvent, ...]
    lost: int
    number: int
    newest: int

    def __init__(self, *, process="", life, events=(), lost, number, newest):
        self.process = process
        self.life = life
        self.events = events
        self.lost = lost
        self.number = number
        self.newest = newest

    def _values(self):
        return (
            self.process,
            self.life,
            self.events,
            self.lost,
            self.number,
            self.newest,
        )
