"""Every method of proto/, as the Net port wants it.

Generated from proto/ by `make proto`; do not edit.
"""

from tidelog.ports.net import Bidi, Unary
from tidelog.wire import messages as m

# tidelog.v1.AdminService
ADMIN_SERVICE_CREATE_TOPICS = Unary(
    "/tidelog.v1.AdminService/CreateTopics", m.CreateTopicsRequest, m.CreateTopicsResponse
)
ADMIN_SERVICE_DELETE_TOPICS = Unary(
    "/tidelog.v1.AdminService/DeleteTopics", m.DeleteTopicsRequest, m.DeleteTopicsResponse
)
ADMIN_SERVICE_DESCRIBE_TOPICS = Unary(
    "/tidelog.v1.AdminService/DescribeTopics", m.DescribeTopicsRequest, m.DescribeTopicsResponse
)
ADMIN_SERVICE_DESCRIBE_CLUSTER = Unary(
    "/tidelog.v1.AdminService/DescribeCluster", m.DescribeClusterRequest, m.DescribeClusterResponse
)
ADMIN_SERVICE_CREATE_PARTITIONS = Unary(
    "/tidelog.v1.AdminService/CreatePartitions", m.CreatePartitionsRequest, m.CreatePartitionsResponse
)
ADMIN_SERVICE_ELECT_LEADERS = Unary(
    "/tidelog.v1.AdminService/ElectLeaders", m.ElectLeadersRequest, m.ElectLeadersResponse
)
ADMIN_SERVICE_RELEASE_VETO = Unary("/tidelog.v1.AdminService/ReleaseVeto", m.ReleaseVetoRequest, m.ReleaseVetoResponse)
ADMIN_SERVICE_ALTER_PARTITION_REASSIGNMENTS = Unary(
    "/tidelog.v1.AdminService/AlterPartitionReassignments",
    m.AlterPartitionReassignmentsRequest,
    m.AlterPartitionReassignmentsResponse,
)
ADMIN_SERVICE_LIST_PARTITION_REASSIGNMENTS = Unary(
    "/tidelog.v1.AdminService/ListPartitionReassignments",
    m.ListPartitionReassignmentsRequest,
    m.ListPartitionReassignmentsResponse,
)
ADMIN_SERVICE_INCREMENTAL_ALTER_CONFIGS = Unary(
    "/tidelog.v1.AdminService/IncrementalAlterConfigs",
    m.IncrementalAlterConfigsRequest,
    m.IncrementalAlterConfigsResponse,
)
ADMIN_SERVICE_DESCRIBE_CONFIGS = Unary(
    "/tidelog.v1.AdminService/DescribeConfigs", m.DescribeConfigsRequest, m.DescribeConfigsResponse
)
ADMIN_SERVICE_DESCRIBE_BROKER_CONFIGS = Unary(
    "/tidelog.v1.AdminService/DescribeBrokerConfigs", m.DescribeBrokerConfigsRequest, m.DescribeBrokerConfigsResponse
)
ADMIN_SERVICE_DELETE_RECORDS = Unary(
    "/tidelog.v1.AdminService/DeleteRecords", m.DeleteRecordsRequest, m.DeleteRecordsResponse
)
ADMIN_SERVICE_DESCRIBE_LOG_DIRS = Unary(
    "/tidelog.v1.AdminService/DescribeLogDirs", m.DescribeLogDirsRequest, m.DescribeLogDirsResponse
)
ADMIN_SERVICE_DISCARD_DAMAGE = Unary(
    "/tidelog.v1.AdminService/DiscardDamage", m.DiscardDamageRequest, m.DiscardDamageResponse
)
ADMIN_SERVICE_ADD_BROKERS = Unary("/tidelog.v1.AdminService/AddBrokers", m.AddBrokersRequest, m.AddBrokersResponse)
ADMIN_SERVICE_DRAIN_BROKERS = Unary(
    "/tidelog.v1.AdminService/DrainBrokers", m.DrainBrokersRequest, m.DrainBrokersResponse
)
# tidelog.v1.BrokerControl
BROKER_CONTROL_LEADER_AND_ISR = Unary(
    "/tidelog.v1.BrokerControl/LeaderAndIsr", m.LeaderAndIsrRequest, m.LeaderAndIsrResponse
)
BROKER_CONTROL_STOP_REPLICA = Unary(
    "/tidelog.v1.BrokerControl/StopReplica", m.StopReplicaRequest, m.StopReplicaResponse
)
BROKER_CONTROL_UPDATE_METADATA = Unary(
    "/tidelog.v1.BrokerControl/UpdateMetadata", m.UpdateMetadataRequest, m.UpdateMetadataResponse
)
BROKER_CONTROL_REPLICA_ENDS = Unary(
    "/tidelog.v1.BrokerControl/ReplicaEnds", m.ReplicaEndsRequest, m.ReplicaEndsResponse
)
BROKER_CONTROL_LIVENESS = Bidi("/tidelog.v1.BrokerControl/Liveness", m.LivenessPing, m.LivenessPong)
# tidelog.v1.ControllerService
CONTROLLER_SERVICE_ALTER_ISR = Unary("/tidelog.v1.ControllerService/AlterIsr", m.AlterIsrRequest, m.AlterIsrResponse)
CONTROLLER_SERVICE_CONTROLLED_SHUTDOWN = Unary(
    "/tidelog.v1.ControllerService/ControlledShutdown", m.ControlledShutdownRequest, m.ControlledShutdownResponse
)
CONTROLLER_SERVICE_ALLOCATE_PRODUCER_IDS = Unary(
    "/tidelog.v1.ControllerService/AllocateProducerIds", m.AllocateProducerIdsRequest, m.AllocateProducerIdsResponse
)
# tidelog.v1.CoordinatorService
COORDINATOR_SERVICE_CLUSTER_METADATA = Unary(
    "/tidelog.v1.CoordinatorService/ClusterMetadata", m.ClusterMetadataRequest, m.ClusterMetadataResponse
)
COORDINATOR_SERVICE_SESSION = Bidi("/tidelog.v1.CoordinatorService/Session", m.ConsumerMessage, m.CoordinatorMessage)
COORDINATOR_SERVICE_COMMIT_OFFSETS = Unary(
    "/tidelog.v1.CoordinatorService/CommitOffsets", m.CommitOffsetsRequest, m.CommitOffsetsResponse
)
COORDINATOR_SERVICE_FETCH_OFFSETS = Unary(
    "/tidelog.v1.CoordinatorService/FetchOffsets", m.FetchOffsetsRequest, m.FetchOffsetsResponse
)
COORDINATOR_SERVICE_LIST_GROUPS = Unary(
    "/tidelog.v1.CoordinatorService/ListGroups", m.ListGroupsRequest, m.ListGroupsResponse
)
COORDINATOR_SERVICE_DESCRIBE_GROUPS = Unary(
    "/tidelog.v1.CoordinatorService/DescribeGroups", m.DescribeGroupsRequest, m.DescribeGroupsResponse
)
COORDINATOR_SERVICE_DELETE_GROUPS = Unary(
    "/tidelog.v1.CoordinatorService/DeleteGroups", m.DeleteGroupsRequest, m.DeleteGroupsResponse
)
# tidelog.v1.ReplicaService
REPLICA_SERVICE_PRODUCE = Unary("/tidelog.v1.ReplicaService/Produce", m.ProduceRequest, m.ProduceResponse)
REPLICA_SERVICE_PRODUCE_STREAM = Bidi("/tidelog.v1.ReplicaService/ProduceStream", m.ProduceRequest, m.ProduceAnswers)
REPLICA_SERVICE_FETCH = Unary("/tidelog.v1.ReplicaService/Fetch", m.FetchRequest, m.FetchResponse)
REPLICA_SERVICE_LIST_OFFSETS = Unary(
    "/tidelog.v1.ReplicaService/ListOffsets", m.ListOffsetsRequest, m.ListOffsetsResponse
)
REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH = Unary(
    "/tidelog.v1.ReplicaService/OffsetForLeaderEpoch", m.OffsetForLeaderEpochRequest, m.OffsetForLeaderEpochResponse
)
REPLICA_SERVICE_INIT_PRODUCER_ID = Unary(
    "/tidelog.v1.ReplicaService/InitProducerId", m.InitProducerIdRequest, m.InitProducerIdResponse
)
REPLICA_SERVICE_REPLICA_FETCH = Bidi(
    "/tidelog.v1.ReplicaService/ReplicaFetch", m.ReplicaFetchRequest, m.ReplicaFetchResponse
)
# tidelog.v1.WatchService
WATCH_SERVICE_WATCH_PROTOCOL = Bidi("/tidelog.v1.WatchService/WatchProtocol", m.WatchRequest, m.WatchResponse)
