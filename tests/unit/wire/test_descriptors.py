"""The documents' messages against the descriptors of proto/.

`DOCUMENTED` is what sections A13, C3, E16, F-12 and F-14.3 of the requirements state, name and type as written there
(letter case apart). Everything must be in proto/ under that name with that type, or have a row in `REPLACED`, the one
table of deviations: what stands in its place, and why. A row whose replacement does not exist fails, and so does a row
that nothing needs.
"""

import re
from collections.abc import Iterator, Mapping

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor

from helpers.requirements import requirement
from tidelog.errors import ErrorCode
from tidelog.wire.pb import admin_pb2, common_pb2, control_pb2, controller_pb2, coordinator_pb2, replica_pb2

FILES = (common_pb2, replica_pb2, control_pb2, controller_pb2, admin_pb2, coordinator_pb2)

FRAME = "size:int32 request_type_id:int16"
DOCUMENTED: Mapping[str, str] = {
    # A13: the consumer coordinator
    "ClusterMetadataRequest": FRAME,
    "ClusterMetadataResponse": "size:int32 error_code:int16 coordinator_id:int32 num_brokers:int16"
    " brokers_info:[broker_struct]",
    "broker_struct": "id:int32 host:string port:int32",
    "ConnectConsumerRequest": "",
    "RegisterConsumerRequest": f"{FRAME} group_id:string consumer_id:string topic_count:string auto_commit:boolean"
    " auto_offset_rest:string session_timeout_ms:int32",
    "RegisterConsumerResponse": "size:int32 error_code:int16",
    "PingRequest": f"{FRAME} consumer_id:string num_retries:int32",
    "HeartbeatRequest": "",
    "HeartbeatResponse": "",
    "PingResponse": f"{FRAME} error_code:int16 consumer_id:string num_partition:int16 offset_info:[offset_struct]",
    "offset_struct": "topic:string partition:string offset:int64",
    "StopFetcherRequest": f"{FRAME} consumer_id:string",
    "StopFetcherResponse": f"{FRAME} error_code:int16 consumer_id:string num_partition:int16"
    " offset_info:[offset_struct]",
    "StartFetcherRequest": f"{FRAME} consumer_id:string num_threads:int16 ownership_info:[ownership_struct]"
    " num_brokers:int16 brokers_info:[broker_struct]",
    "ownership_struct": "consumer_thread_id:string num_partitions:int16 assigned_parts:[partition_struct]",
    "partition_struct": "topic:string partition:string offset:int64",
    "StartFetcherResponse": f"{FRAME} error_code:int16 consumer_id:string",
    # C3: AlterIsr; the levels that the text nests without a name have the names of proto/
    "AlterIsrRequest": "broker_id:int32 broker_epoch:int64 topics:[AlterIsrTopic]",
    "AlterIsrTopic": "topic:string partitions:[AlterIsrPartition]",
    "AlterIsrPartition": "partition_id:int32 leader_and_isr:LeaderAndIsr",
    "LeaderAndIsr": "leader:int32 leader_epoch:int32 isr:[int32] current_zk_version:int32",
    "AlterIsrResponse": "error_code:int16 topics:[AlterIsrTopicResult]",
    "AlterIsrTopicResult": "topic:string partitions:[AlterIsrPartitionResult]",
    "AlterIsrPartitionResult": "partition_id:int32 error_code:int16",
    # E16: the follower's fetch
    "ReplicaFetchRequest": "topic:String partition_id:Int replica_id:Int offset:Long",
    "ReplicaFetchResponse": "hw:Long messages:MessageSet",
    # F-12: controlled shutdown
    "ControlledShutdownRequest": "version:int16 correlation_id:int32 broker_id:int32 broker_epoch:int64",
    "ControlledShutdownResponse": "error_code:int16 partitions_remaining:[RemainingPartition]",
    "RemainingPartition": "topic:string partition:int32",
    # F-14.3: what the controller tells brokers
    "LeaderAndIsrRequest": "controller_id:int32 controller_epoch:int32 broker_epoch:int64 type:int8"
    " partition_states:[PartitionState] topic_ids:[TopicState] live_leaders:[LiveBroker]",
    "PartitionState": "topic:string partition:int32 controller_epoch:int32 leader:int32 leader_epoch:int32 isr:[int32]"
    " zk_version:int32 replicas:[int32] adding_replicas:[int32] removing_replicas:[int32] is_new:boolean",
    "StopReplicaRequest": "controller_id:int32 controller_epoch:int32 broker_epoch:int64"
    " partitions:[StopReplicaPartition]",
    "StopReplicaPartition": "topic:string partition:int32 leader_epoch:int32 delete:boolean",
    # the error register R and A13.18
    "ErrorMapping": "",
}

NO_FRAME = "gRPC frames messages and dispatches by method"
NO_COUNT = "a protobuf list knows its length"
REPLACED: Mapping[str, tuple[str, str]] = {
    # documented name ("*" for every message, ":type" for a type) -> (what stands in its place, "" for nothing; why)
    "*.size": ("", NO_FRAME),
    "*.request_type_id": ("", NO_FRAME),
    "*.version": ("", "the package name carries it: tidelog.v1 (A13.17)"),
    "*.correlation_id": ("", "a gRPC stream belongs to one call (A13.17)"),
    "*.num_brokers": ("", NO_COUNT),
    "*.num_partition": ("", NO_COUNT),
    "*.num_partitions": ("", NO_COUNT),
    ":error_code:int16": ("ErrorCode", "an enum says what the number means; protobuf has no 16-bit integer"),
    ":int16": ("int32", "protobuf has no 16-bit integer"),
    "broker_struct": ("BrokerInfo", "message names are nouns in capitals; broker_struct is cited in its comment"),
    "offset_struct": ("OffsetInfo", "as broker_struct"),
    "ownership_struct": ("OwnershipInfo", "as broker_struct"),
    "partition_struct": ("AssignedPartition", "as broker_struct; PartitionMetadata and PartitionState are near by"),
    "ConnectConsumerRequest": ("RegisterConsumerRequest", "A13.05: one message that D0 calls by two names"),
    "HeartbeatRequest": ("PingRequest", "A19.12: the implementation's name of Ping"),
    "HeartbeatResponse": ("PingResponse", "A19.12: the implementation's name of Ping"),
    "ErrorMapping": ("ErrorCode", "A13.18 names a table of codes; it is an enum here"),
    "RegisterConsumerRequest.auto_offset_rest": ("RegisterConsumerRequest.auto_offset_reset", "misspelt (sic)"),
    "offset_struct.partition": ("OffsetInfo.partition", "CONFLICT-27: int32 everywhere"),
    "partition_struct.partition": ("AssignedPartition.partition", "CONFLICT-27: int32 everywhere"),
    "LeaderAndIsr.isr": ("LeaderAndIsr.isr", "KIP-903: a member is named with the broker epoch of its admission"),
    "ReplicaFetchRequest.topic": ("ReplicaPosition.topic", "one stream carries all partitions of a leader (HL6.02)"),
    "ReplicaFetchRequest.partition_id": ("ReplicaPosition.partition", "as topic; one name for it on the data plane"),
    "ReplicaFetchRequest.offset": ("ReplicaPosition.offset", "as topic"),
    "ReplicaFetchResponse.hw": ("ReplicaChunk.high_watermark", "as topic; an exclusive end here (CONFLICT-25)"),
    "ReplicaFetchResponse.messages": ("ReplicaChunk.records", "as topic; batches of format v2, not 0.7 MessageSets"),
    "LeaderAndIsrRequest.type": ("LeaderAndIsrRequest.full", "full or incremental: two values"),
    "LeaderAndIsrRequest.topic_ids": ("LeaderAndIsrRequest.topic_states", "the topic's settings ride along"),
    "LeaderAndIsrRequest.live_leaders": ("LeaderAndIsrRequest.live_brokers", "a leader needs its followers as well"),
    "PartitionState.zk_version": ("PartitionState.partition_epoch", "the glossary's word for the znode version"),
    "PartitionState.isr": ("PartitionState.isr", "KIP-903: a member is named with the broker epoch of its admission"),
    "StopReplicaPartition.delete": ("StopReplicaPartition.delete_partition", "delete alone does not say what"),
}

ADDED: Mapping[str, str] = {
    # fields of ours that the documents do not have, or have with another type
    "ClusterMetadataRequest": "group_id:string topics:[string] all_topics:bool",
    "RegisterConsumerRequest": "incarnation:int64 static_member:bool max_processing_ms:int32 assignor:string"
    " rejoin:bool client_id:string admission:int64 watch_port:int32 auto_offset_reset:string",
    "RegisterConsumerResponse": "error_message:string coordinator_epoch:int32 admission:int64",
    "PingResponse": "coordinator_epoch:int32 generation:int32",
    "OffsetInfo": "partition:int32 leader_epoch:int32 metadata:string topic_id:bytes",
    "StopFetcherResponse": "coordinator_epoch:int32 generation:int32 started_generation:int32 finishing:bool",
    "StartFetcherRequest": "coordinator_epoch:int32 generation:int32",
    "AssignedPartition": "partition:int32 leader_epoch:int32 topic_id:bytes",
    "StartFetcherResponse": "coordinator_epoch:int32 generation:int32",
}

# Section R: the calls that the documents name. Each is a method or a message on a stream, or comes later as said here.
CALLS: Mapping[str, str] = {
    "ClusterMetadata": "CoordinatorService.ClusterMetadata",
    "RegisterConsumer": "RegisterConsumerRequest",
    "Ping": "PingRequest",
    "StopFetcher": "StopFetcherRequest",
    "StartFetcher": "StartFetcherRequest",
    "ReplicaFetch": "ReplicaService.ReplicaFetch",
    "Produce": "ReplicaService.Produce",
    "consumer Fetch": "ReplicaService.Fetch",
    "AlterIsr": "ControllerService.AlterIsr",
    "LeaderAndIsr": "BrokerControl.LeaderAndIsr",
    "StopReplica": "BrokerControl.StopReplica",
    "UpdateMetadata": "BrokerControl.UpdateMetadata",
    "controlled shutdown": "ControlledShutdownRequest",
    "create topic": "AdminService.CreateTopics",
    "delete topic": "AdminService.DeleteTopics",
    "OffsetForLeaderEpoch": "ReplicaService.OffsetForLeaderEpoch",
}

# Section R: name and number of every error; those "to be assigned" have the numbers that R suggests.
REGISTER: Mapping[str, int] = {
    "NOT_LEADER_OR_FOLLOWER": 6,
    "CLUSTER_AUTHORIZATION_FAILED": 31,
    "STALE_BROKER_EPOCH": 77,
    "NOT_CONTROLLER": 41,
    "FENCED_LEADER_EPOCH": 74,
    "UNKNOWN_LEADER_EPOCH": 75,
    "INVALID_REQUEST": 42,
    "INVALID_UPDATE_VERSION": 95,
    "UNKNOWN_TOPIC_OR_PARTITION": 3,
    "INELIGIBLE_REPLICA": 107,
    "OPERATION_NOT_ATTEMPTED": 55,
    "NEW_LEADER_ELECTED": 108,
    "STALE_CONTROLLER_EPOCH": 11,
    "NOT_ENOUGH_REPLICAS": 19,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": 20,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
    "INVALID_PRODUCER_EPOCH": 47,
    "OFFSET_OUT_OF_RANGE": 1,
    "DUPLICATE_CONSUMER_ID": 82,
    "INVALID_SESSION_TIMEOUT": 26,
    "UNKNOWN_MEMBER_ID": 25,
    "COORDINATOR_NOT_AVAILABLE": 15,
    "NOT_COORDINATOR": 16,
    "ILLEGAL_GENERATION": 22,
}

TYPES = {"boolean": "bool", "String": "string", "Int": "int32", "Long": "int64"}
"""The documents' words for what protobuf calls otherwise; no deviation."""


def messages() -> dict[str, Descriptor]:
    return {name: m for file in FILES for name, m in file.DESCRIPTOR.message_types_by_name.items()}


def services() -> dict[str, ServiceDescriptor]:
    return {name: s for file in FILES for name, s in file.DESCRIPTOR.services_by_name.items()}


def type_of(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    kind = (
        named.name if named else {v: k for k, v in vars(FieldDescriptor).items() if k.startswith("TYPE_")}[field.type]
    )
    kind = kind.removeprefix("TYPE_").lower() if named is None else kind
    return f"[{kind}]" if field.is_repeated else kind


def exists(place: str) -> bool:
    """`Message`, `Message.field`, `Service.Method` or the enum."""
    head, _, tail = place.partition(".")
    if head in services():
        return tail in services()[head].methods_by_name
    if head in messages():
        return not tail or tail in messages()[head].fields_by_name
    return head in common_pb2.DESCRIPTOR.enum_types_by_name


def rows_for(message: str, field: str, kind: str) -> Iterator[str]:
    """Keys of REPLACED that speak of this field, the most special first."""
    keys = (f"{message}.{field}", f"*.{field}", f":{field}:{kind}", f":{kind}")
    return (key for key in keys if key in REPLACED)


def documented_fields() -> list[tuple[str, str, str]]:
    found = [(m, *f.split(":", 1)) for m, fields in DOCUMENTED.items() for f in fields.split()]
    return [(message, field, kind) for message, field, kind in found]


def expected_type(field: str, kind: str) -> str:
    inner = kind.strip("[]")
    inner = TYPES.get(inner, inner)
    for key in (f":{field}:{inner}", f":{inner}", inner):
        if key in REPLACED:
            inner = REPLACED[key][0]
            break
    return f"[{inner}]" if kind.startswith("[") else inner


@requirement("Ownership is listed by consumer thread")
def test_an_ownership_needs_no_count_of_its_partitions() -> None:
    assert "num_partitions" not in coordinator_pb2.OwnershipInfo.DESCRIPTOR.fields_by_name


@requirement("ClusterMetadataResponse names coordinator and live brokers")
@requirement("A broker is described by id, host and port")
@requirement("PingRequest counts the failed pings before it")
@requirement("StopFetcherRequest names the consumer that is to stop")
@requirement("StartFetcherRequest carries ownership and live brokers")
@requirement("StopFetcherResponse has the fields of PingResponse")
@requirement("A reported offset names topic, partition and offset")
@requirement("PingResponse carries offsets only with auto commit")
@requirement("RegisterConsumerResponse has an error code and no partitions")
@requirement("RegisterConsumerRequest says everything about a consumer")
@requirement("ClusterMetadataRequest may name a group and topics")
@requirement("Message frames are left to gRPC")
@requirement("Ownership is listed by consumer thread")
@requirement("An assigned partition comes with its start offset")
@requirement("StartFetcherResponse confirms a start")
@requirement("Topic, partition and offset form one value")
@requirement("Heartbeat is another name of Ping")
@requirement("AlterIsr carries the wanted state of each partition")
@requirement("AlterIsr is answered as a whole and for each partition")
@pytest.mark.parametrize("message", sorted(DOCUMENTED))
def test_a_documented_message_exists_or_its_replacement_is_named(message: str) -> None:
    assert message in messages() or message in REPLACED


@requirement("Message frames are left to gRPC")
@requirement("ClusterMetadataResponse names coordinator and live brokers")
@requirement("A broker is described by id, host and port")
@requirement("RegisterConsumerRequest says everything about a consumer")
@requirement("RegisterConsumerResponse has an error code and no partitions")
@requirement("PingRequest counts the failed pings before it")
@requirement("PingResponse carries offsets only with auto commit")
@requirement("A reported offset names topic, partition and offset")
@requirement("StopFetcherRequest names the consumer that is to stop")
@requirement("StopFetcherResponse has the fields of PingResponse")
@requirement("StartFetcherRequest carries ownership and live brokers")
@requirement("Ownership is listed by consumer thread")
@requirement("An assigned partition comes with its start offset")
@requirement("StartFetcherResponse confirms a start")
@requirement("Topic, partition and offset form one value")
@requirement("Heartbeat is another name of Ping")
@requirement("AlterIsr carries the wanted state of each partition")
@requirement("AlterIsr is answered as a whole and for each partition")
@requirement("A replica fetch names topic, partition, replica and offset")
@requirement("A replica fetch returns messages and the high watermark")
@pytest.mark.parametrize(("message", "field", "kind"), documented_fields())
def test_a_documented_field_has_its_name_and_type_or_its_replacement_is_named(
    message: str, field: str, kind: str
) -> None:
    key = next(rows_for(message, field, kind), "")
    if key and not key.startswith(":"):
        return
    ours = messages()[REPLACED[message][0] if message in REPLACED else message]
    assert field in ours.fields_by_name, f"{message}.{field} of the documents is neither in proto/ nor in REPLACED"
    assert type_of(ours.fields_by_name[field]) == expected_type(field, kind)


@requirement("A replica fetch names topic, partition, replica and offset")
@requirement("Message frames are left to gRPC")
@requirement("ClusterMetadataResponse names coordinator and live brokers")
@requirement("A broker is described by id, host and port")
@requirement("RegisterConsumerRequest says everything about a consumer")
@requirement("PingRequest counts the failed pings before it")
@requirement("A reported offset names topic, partition and offset")
@requirement("StopFetcherRequest names the consumer that is to stop")
@requirement("Ownership is listed by consumer thread")
@requirement("An assigned partition comes with its start offset")
@requirement("Version, correlation and client ids need no request header")
@requirement("Heartbeat is another name of Ping")
def test_every_row_of_replaced_is_needed_and_names_what_exists() -> None:
    used = {key for field in documented_fields() for key in rows_for(*field)} | (set(DOCUMENTED) & set(REPLACED))
    assert set(REPLACED) - used == set(), "rows that nothing needs"
    scalar = {"int32"}
    for key, (place, why) in REPLACED.items():
        assert why, f"{key}: no reason"
        assert not place or place in scalar or exists(place), f"{key}: {place} does not exist"
    for message, field, _ in documented_fields():
        if f"{message}.{field}" in REPLACED and message in messages():
            same = REPLACED[f"{message}.{field}"][0] == f"{message}.{field}"
            assert same or field not in messages()[message].fields_by_name, f"{message}.{field} exists after all"


@requirement("Heartbeat is another name of Ping")
def test_a_replaced_message_is_not_there_beside_its_replacement() -> None:
    replaced = DOCUMENTED.keys() & REPLACED.keys()
    assert {"HeartbeatRequest", "HeartbeatResponse"} <= replaced
    assert not replaced & messages().keys()
    assert all(exists(REPLACED[name][0]) for name in replaced)


@requirement("AlterIsr carries the wanted state of each partition")
def test_an_alter_isr_names_lives_its_topic_and_its_place() -> None:
    request, topic = messages()["AlterIsrRequest"], messages()["AlterIsrTopic"]
    assert type_of(messages()["LeaderAndIsr"].fields_by_name["isr"]) == "[IsrMember]"
    member = {name: type_of(field) for name, field in messages()["IsrMember"].fields_by_name.items()}
    assert member == {"broker_id": "int32", "broker_epoch": "int64"}
    assert "topic_id" in topic.fields_by_name
    assert "controller_epoch" in request.fields_by_name and "sequence" in request.fields_by_name


@requirement("AlterIsr is answered as a whole and for each partition")
def test_an_answer_to_alter_isr_carries_the_current_state() -> None:
    result = messages()["AlterIsrPartitionResult"].fields_by_name
    assert (type_of(result["leader_and_isr"]), type_of(result["error_code"])) == ("LeaderAndIsr", "ErrorCode")


@requirement("Message frames are left to gRPC")
@requirement("PingResponse carries offsets only with auto commit")
@requirement("StopFetcherResponse has the fields of PingResponse")
@requirement("StartFetcherRequest carries ownership and live brokers")
@pytest.mark.parametrize("message", sorted(DOCUMENTED))
def test_what_grpc_and_protobuf_do_has_no_field(message: str) -> None:
    needless = {key.removeprefix("*.") for key, (place, _) in REPLACED.items() if key.startswith("*.") and not place}
    assert {"size", "request_type_id", "num_brokers", "num_partition"} <= needless
    ours = messages().get(REPLACED.get(message, (message,))[0])
    assert ours is None or not needless & set(ours.fields_by_name)


@requirement("ClusterMetadataRequest may name a group and topics")
@requirement("RegisterConsumerRequest says everything about a consumer")
@requirement("RegisterConsumerResponse has an error code and no partitions")
@requirement("PingResponse carries offsets only with auto commit")
@requirement("A reported offset names topic, partition and offset")
@requirement("StopFetcherResponse has the fields of PingResponse")
@requirement("StartFetcherRequest carries ownership and live brokers")
@requirement("An assigned partition comes with its start offset")
@requirement("StartFetcherResponse confirms a start")
@pytest.mark.parametrize("message", sorted(ADDED))
def test_a_field_that_is_added_has_its_type(message: str) -> None:
    ours = messages()[message].fields_by_name
    for name, kind in (field.split(":") for field in ADDED[message].split()):
        assert type_of(ours[name]) == kind, name


@requirement("RegisterConsumerResponse has an error code and no partitions")
def test_the_answer_to_a_registration_assigns_nothing() -> None:
    fields = coordinator_pb2.RegisterConsumerResponse.DESCRIPTOR.fields
    assert not any(field.message_type for field in fields)


@requirement("Message frames are left to gRPC")
@pytest.mark.parametrize("call", sorted(CALLS))
def test_every_call_of_the_register_is_a_method_or_a_message(call: str) -> None:
    assert exists(CALLS[call])


@requirement("The coordinator has a ZooKeeper session of its own")
@requirement("Coordinator requests arrive on the stream of the consumer")
def test_coord_16_open_03_the_coordinator_speaks_over_the_stream_that_the_consumer_has_opened_and_dials_nobody() -> (
    None
):
    session = services()["CoordinatorService"].methods_by_name["Session"]
    assert session.client_streaming and session.server_streaming
    down, up = session.output_type.fields_by_name, session.input_type.fields_by_name
    asked = {"PingRequest", "StopFetcherRequest", "StartFetcherRequest"}
    answered = {"PingResponse", "StopFetcherResponse", "StartFetcherResponse"}
    assert asked <= {field.message_type.name for field in down.values() if field.message_type}
    assert answered <= {field.message_type.name for field in up.values() if field.message_type}
    inputs = {method.input_type.name for service in services().values() for method in service.methods}
    assert not asked & inputs, "no consumer serves these"
    assert not {"host", "port", "address"} & set(messages()["RegisterConsumerRequest"].fields_by_name)


@requirement("An ISR proposal on an outdated version is refused")
@requirement("Every coordinator error has a code and a consumer reaction")
def test_error_numbers_are_the_same_in_code_on_the_wire_and_in_the_register() -> None:
    wire = {v.name: v.number for v in common_pb2.DESCRIPTOR.enum_types_by_name["ErrorCode"].values}
    assert wire == {code.name: code.value for code in ErrorCode}
    assert {name: wire.get(name) for name in REGISTER} == REGISTER
    assert wire["COORDINATOR_LOAD_IN_PROGRESS"] == 14


def test_every_field_of_ours_is_snake_case_and_every_epoch_and_offset_is_signed() -> None:
    for message in messages().values():
        for field in message.fields:
            assert re.fullmatch(r"[a-z][a-z0-9_]*", field.name), f"{message.name}.{field.name}"
            # -1 is "none": an unsigned integer could not say it
            assert not type_of(field).strip("[]").startswith(("uint", "fixed")), f"{message.name}.{field.name}"
