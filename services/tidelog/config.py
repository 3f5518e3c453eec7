"""Typed settings of every process, from a TOML file and from TIDELOG_* variables; the variables win.

An unknown key is refused with the nearest known one, and every problem is told at once, one line each. Building a settings
object directly (tests, the simulator) reads neither.
"""

import dataclasses
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar, get_type_hints

from tidelog.errors import InvalidConfigError
from tidelog.ids import LOCALHOST, WATCH_PORTS, Address
from tidelog.names import suggestion
from tidelog.setting_types import Above, Range, Text, convert
from tidelog.sizes import (
    CONNECTION_RESPONSES_BYTES,
    FETCH_MAX_BYTES,
    REQUEST_MAX_BYTES,
    RESPONSES_BYTES,
    contradictions,
)

PREFIX = "TIDELOG_"
CONFIG_FILE_VARIABLE = "TIDELOG_CONFIG_FILE"

_OF_SCRIPTS = frozenset({"BASE", "CA_BUNDLE", "CONFIG_FILE", "DOCKER_LOG", "PULL_SECONDS", "REVISION"})
"""TIDELOG_ variables that are no settings of a process."""

_WILDCARDS = frozenset({"0.0.0.0", "::", ""})
INTERNAL = "INTERNAL"
EXTERNAL = "EXTERNAL"


class ConfigError(InvalidConfigError):
    """`message` holds one line for each problem."""


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _addresses(text: str) -> tuple[Address, ...]:
    if not (found := tuple(map(Address.parse, _items(text)))):
        raise ValueError("must not be empty")
    return found


def _listeners(text: str) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for item in _items(text):
        name, separator, address = item.partition("://")
        if not separator or name not in (INTERNAL, EXTERNAL):
            raise ValueError(f"{item!r} is not {INTERNAL}://host:port or {EXTERNAL}://host:port")
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = Address.parse(address)
    return found


def _directory(text: str) -> Path:
    if not text:
        raise ValueError("must not be empty")  # it would be the directory in which the process happens to start
    return Path(text)


def _link_map(text: str) -> dict[Address, Address]:
    pairs = [item.partition("=") for item in _items(text)]
    return {Address.parse(dialled): Address.parse(link) for dialled, _, link in pairs}


_LISTENERS = f"{INTERNAL}://host:port,{EXTERNAL}://host:port"
OptionalAddress = Annotated[Address | None, Text(lambda text: Address.parse(text) if text else None, "host:port")]
OneAddress = Annotated[Address, Text(Address.parse, "host:port")]
Addresses = Annotated[tuple[Address, ...], Text(_addresses, "host:port,host:port,...")]
Listeners = Annotated[Mapping[str, Address], Text(_listeners, _LISTENERS)]
Names = Annotated[tuple[str, ...], Text(lambda text: tuple(_items(text)), "names, separated by commas")]
Directory = Annotated[Path, Text(_directory, "a directory")]
LinkMap = Annotated[Mapping[Address, Address], Text(_link_map, "host:port=host:port,...")]
Milliseconds = Annotated[int, Range(1, 2**31 - 1)]
Bytes = Annotated[int, Range(1, 2**31 - 1)]
NodeId = Annotated[int, Range(0, 2**31 - 1)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that all processes have."""

    log_format: Literal["auto", "json", "console"] = "auto"
    """Format of log lines. auto: plain text if standard error is a terminal, otherwise JSON."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest severity of log lines that are written."""
    request_timeout_ms: Milliseconds = 15_000
    """Time limit for a request to another process, including retries."""
    link_map: LinkMap = field(default_factory=dict)
    """Addresses, each with the address to connect to in its place, so that connections can run through a proxy. For
    tests."""

    _sources: ClassVar[Mapping[str, str]] = {}
    """The source of each value that was set. A key that is missing has its default."""

    def problems(self) -> Iterable[str]:
        """Problems between fields that are right by themselves, one line each."""
        return ()

    def __post_init__(self) -> None:
        if found := list(self.problems()):
            raise ConfigError("\n".join(found))


@dataclass(frozen=True, kw_only=True)
class ServerSettings(Settings):
    """Settings that brokers and controllers share."""

    zookeeper: Addresses
    """Addresses of the ZooKeeper servers."""
    zookeeper_session_timeout_ms: Annotated[int, Range(500, 600_000)] = 6_000
    """ZooKeeper declares a process dead after this time without a heartbeat."""
    cluster_id: str = ""
    """ID of the cluster. Empty: the ID stored in ZooKeeper, or a new one. A process refuses to join any other
    cluster."""
    metrics_address: OptionalAddress = None
    """Address of the HTTP server for /metrics and /health. Empty: no server."""
    request_max_bytes: Bytes = REQUEST_MAX_BYTES
    """Maximum size of a request."""
    responses_max_bytes: Annotated[int, Range(16 << 20)] = RESPONSES_BYTES
    """Maximum amount of memory that responses take until their readers have read them. Fetches wait while it is used up,
    and other requests fail with THROTTLING_QUOTA_EXCEEDED. A connection that has not read a response for 10 s is then
    closed."""
    connection_responses_max_bytes: Annotated[int, Range(4 << 20)] = CONNECTION_RESPONSES_BYTES
    """Maximum amount of memory that the responses of one connection take until they have been read, a quarter of it for
    fetches. The process does not start if it is larger than responses_max_bytes."""
    min_insync_replicas: Annotated[int, Range(1, 32_767)] = 2
    """Value of min.insync.replicas for topics that do not set it."""

    def problems(self) -> Iterable[str]:
        if self.connection_responses_max_bytes > self.responses_max_bytes:
            yield (
                f"connection_responses_max_bytes: {self.connection_responses_max_bytes} is over "
                f"responses_max_bytes={self.responses_max_bytes}"
            )


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(ServerSettings):
    """Settings of a broker."""

    broker_id: NodeId
    """Number of the broker, unique in the cluster."""
    listeners: Listeners
    """Addresses to listen on: INTERNAL for brokers and controllers, EXTERNAL for outside clients."""
    advertised_listeners: Listeners = field(default_factory=dict)
    """Addresses at which other processes reach the listeners. A listener that is not named here is advertised at the
    address it listens on."""
    data_dir: Directory
    """Directory of the partition logs. It belongs to one broker of one cluster."""
    cluster_name: Annotated[str, Range(0, 249)] = ""
    """Name by which scripts recognise the cluster: its kind (compose or local), and its project or directory, as in
    compose/tidelog. DescribeCluster returns it."""
    rack: Annotated[str, Range(0, 249)] = ""
    """Rack of the broker. Replicas of a partition are spread over racks where possible. Set it on all brokers or on
    none."""
    replica_lag_time_max_ms: Milliseconds = 10_000
    """A follower leaves the ISR when it has not caught up with its leader for this long."""
    isr_expand_linger_ms: Annotated[int, Range(0, 10_000)] = 100
    """Maximum time that an ISR expansion waits for other expansions, so that they share one request to the controller.
    The wait adapts: a single expansion waits a quarter of this time. Requests that shrink an ISR, or bring it back to
    min.insync.replicas, never wait."""
    message_max_bytes: Bytes = 1_048_588
    """Maximum size of a batch in topics that do not set max.message.bytes."""
    validate_inflated_bytes_max: Bytes = 64 << 20
    """Maximum size of a batch after decompression. It applies where the broker decompresses batches: in compacted
    topics and in topics with validate=full or a compression.type other than producer. The broker does not start if
    message_max_bytes is larger."""
    fetch_max_bytes: Bytes = FETCH_MAX_BYTES
    """Maximum size of one response to a consumer, and of one batch that the broker replicates. A response of several
    batches also holds at most 1/32 of connection_responses_max_bytes. The broker does not start if message_max_bytes
    or replica_fetch_chunk_bytes is larger."""
    replica_fetch_chunk_bytes: Bytes = 1 << 20
    """Maximum size of one message in a replica fetch stream. A larger batch is sent alone."""
    segment_bytes: Annotated[int, Range(1024, 2**31 - 1)] = 128 << 20
    """Segment size of topics that do not set segment.bytes."""
    log_roll_ms: Annotated[int, Range(1, 2**63 - 1)] = 604_800_000
    """Age at which a segment is closed, for topics that do not set segment.ms."""
    log_retention_ms: Annotated[int, Range(-1, 2**63 - 1)] = -1
    """Age at which records are deleted, for topics that do not set retention.ms. -1: never."""
    log_retention_bytes: Annotated[int, Range(-1, 2**63 - 1)] = -1
    """Size of a partition above which its oldest segments are deleted, for topics that do not set retention.bytes. -1:
    no limit."""
    log_retention_check_interval_ms: Milliseconds = 300_000
    """Interval at which retention is applied, and at which active segments that have reached their maximum age are
    closed."""
    index_interval_bytes: Bytes = 4096
    """Number of bytes of log per entry of the offset index."""
    log_cleaner_enable: bool = True
    """true: the broker compacts topics with cleanup.policy=compact."""
    log_cleaner_backoff_ms: Milliseconds = 15_000
    """Interval at which the cleaner looks for a log that is worth compacting."""
    log_cleaner_keys_max: Annotated[int, Range(1)] = 500_000
    """Maximum number of keys in one compaction, at about 200 bytes of memory each. A log with more keys takes several
    compactions."""
    log_cleaner_io_max_bytes_per_second: Annotated[float, Above(0)] = float("inf")
    """Maximum number of bytes per second that compaction reads, over all logs."""
    log_scrub_interval_ms: Milliseconds = 86_400_000
    """Interval at which the flushed part of each log is read again to find damage."""
    log_scrub_io_max_bytes_per_second: Annotated[float, Above(0)] = 16 << 20
    """Maximum number of bytes per second that scrubbing reads, over all logs. A round of scrubbing that takes longer
    than log_scrub_interval_ms still runs to its end."""
    high_watermark_checkpoint_interval_ms: Milliseconds = 5_000
    """Interval at which high watermarks are written to disk."""
    log_flush_interval_ms: Milliseconds = 60_000
    """Interval at which each log is synced to disk in the background, so that recovery reads only records written since
    the last sync."""
    metadata_reserve_bytes: Annotated[int, Range(0, 2**31 - 1)] = 4 << 20
    """Disk space set aside in the data directory, so that checkpoints can be written on a full disk."""
    log_flush_stall_limit_ms: Milliseconds = 10_000
    """If a sync of a replica with flush=sync takes longer than this, the replica goes offline until the sync ends, and
    another replica can become leader."""
    max_open_segments: Annotated[int, Range(1)] = 2_000
    """Maximum number of segment files that are open at the same time."""
    metrics_partitions_max: Annotated[int, Range(0)] = 2_000
    """Maximum number of partitions with metrics of their own. The others are included only in totals."""
    producer_id_expiration_ms: Milliseconds = 86_400_000
    """An idempotent producer is forgotten when it has sent no batch for this long. A batch that it repeats later may be
    stored twice."""
    producer_ids_max: Annotated[int, Range(1)] = 50_000
    """Maximum number of idempotent producers that the broker remembers, over all partitions, at about 1 KB each."""
    protocol_generation: Literal["alter-isr"] = "alter-isr"
    """Variant of the replication protocol."""
    acks_without_lease: Literal["serve", "refuse"] = "serve"
    """Treatment of writes with acks=0 and acks=1 by a leader that cannot confirm its ZooKeeper session: serve accepts
    them, refuse rejects them. acks=all is safe either way."""

    controlled_shutdown_enable: bool = True
    """true: on SIGTERM the broker first moves the leadership of its partitions to other replicas. false: new leaders
    are elected as after a crash, but without waiting for the session to expire."""
    controlled_shutdown_max_retries: Annotated[int, Range(1, 1_000)] = 10
    """In a controlled shutdown, the broker asks the controller to move its leadership for at most this number times
    controlled_shutdown_retry_backoff_ms."""
    controlled_shutdown_retry_backoff_ms: Milliseconds = 1_000
    """Pause between two requests of a controlled shutdown while partitions remain to be moved."""

    coordinator_mode: Literal["sharded", "single"] = "sharded"
    """sharded: coordination of the groups is spread over the brokers. single: one broker coordinates all groups, as in
    the design document of the consumer coordinator."""
    coordinator_shards: Annotated[int, Range(1, 1024)] = 8
    """Number of shards in sharded mode. The first broker of a cluster stores it in ZooKeeper, and from then on the
    stored number applies."""
    coordinator_election_delay_ms: Annotated[int, Range(0, 10_000)] = 100
    """The brokers have an order for each shard. Before it stands for election, each broker waits this much longer than
    the one before it, so that shards spread over the brokers."""
    coordinator_rebalance_handlers: Annotated[int, Range(1, 1_000)] = 4
    """Maximum number of groups of one shard that rebalance at the same time."""
    group_min_session_timeout_ms: Milliseconds = 1_000
    """A consumer's session timeout must be longer than this."""
    group_max_session_timeout_ms: Milliseconds = 1_800_000
    """Maximum session timeout of a consumer."""
    group_failed_pings_max: Annotated[int, Range(0, 100)] = 0
    """A consumer that misses more consecutive pings than this is removed when its session expires."""
    offset_commit_interval_ms: Milliseconds = 1_000
    """Interval at which the offsets reported by consumers are written to ZooKeeper."""
    rebalance_retries_max: Annotated[int, Range(0, 1_000)] = 4
    """After this many consecutive failed attempts at a rebalance, each further failure raises an alarm. The coordinator
    keeps trying."""
    rebalance_backoff_ms: Milliseconds = 200
    """Pause after a failed attempt at a rebalance. It doubles with each further failure."""
    rebalance_backoff_max_ms: Milliseconds = 10_000
    """Maximum pause after a failed attempt at a rebalance."""
    group_join_delay_ms: Annotated[int, Range(0, 600_000)] = 100
    """A rebalance for a new member waits this long for another new member. Each further member restarts the wait."""
    group_join_delay_max_ms: Annotated[int, Range(0, 600_000)] = 2_000
    """Maximum total time that a rebalance waits for new members."""
    group_initial_rebalance_delay_ms: Annotated[int, Range(0, 600_000)] = 500
    """The first rebalance of an empty group waits this long for other members (KIP-134)."""
    group_rebalance: Literal["incremental", "eager"] = "incremental"
    """incremental: members stop only the partitions that move. eager: every member stops all of its partitions, as in
    the design document."""
    group_max_size: Annotated[int, Range(1, 1_000_000)] = 10_000
    """Maximum number of members in a group (KIP-389)."""
    group_max_partitions: Annotated[int, Range(1)] = 200_000
    """Maximum number of partitions in the topics of one subscription, and in one message from a consumer, which holds 200,000 at
    most."""
    group_assignor: Literal["range", "roundrobin", "sticky"] = "sticky"
    """Assignment strategy for groups whose members do not name one."""
    offsets_retention_minutes: Annotated[int, Range(1, 2**31 - 1)] = 10_080
    """A group without members is deleted, together with its offsets, after this time (KIP-211)."""
    metrics_groups_max: Annotated[int, Range(0)] = 1_000
    """Maximum number of groups with metrics of their own."""
    group_lag_interval_ms: Milliseconds = 5_000
    """Interval at which the coordinator asks leaders for their high watermarks to compute lag."""

    def problems(self) -> Iterable[str]:
        if self.group_min_session_timeout_ms >= self.group_max_session_timeout_ms:
            yield (
                f"group_min_session_timeout_ms: {self.group_min_session_timeout_ms} is not below "
                f"group_max_session_timeout_ms={self.group_max_session_timeout_ms}"
            )
        if INTERNAL not in self.listeners:
            yield f"listeners: there is no {INTERNAL} listener, which brokers and controllers use"
        for name in self.advertised_listeners.keys() - self.listeners.keys():
            yield f"advertised_listeners: {name} is no listener"
        for address, count in Counter(self.listeners.values()).items():
            if count > 1 and address.port:
                yield f"listeners: two of them listen at {address}; each needs a port of its own"
        for name, address in self.advertised_addresses.items():
            if address.host in _WILDCARDS:
                yield f"advertised_listeners: nobody can reach {name} at {address}; advertise a host name"
        yield from contradictions(self)
        yield from super().problems()

    @property
    def listener_addresses(self) -> Mapping[str, Address]:
        return self.listeners

    @property
    def advertised_addresses(self) -> Mapping[str, Address]:
        return {**self.listeners, **self.advertised_listeners}


@dataclass(frozen=True, kw_only=True)
class ControllerSettings(ServerSettings):
    """Settings of a controller."""

    controller_id: NodeId
    """Number of the controller, unique among controllers."""
    listen: OneAddress
    """Address to listen on."""
    advertised: OptionalAddress = None
    """Address at which brokers reach the controller. Empty: the address it listens on."""
    default_replication_factor: Annotated[int, Range(1, 32_767)] = 3
    """Replication factor of topics that are created without one."""
    default_partitions: Annotated[int, Range(1, 100_000)] = 1
    """Number of partitions of topics that are created without one."""
    multi_max_operations: Annotated[int, Range(1)] = 500
    """Maximum number of operations in one ZooKeeper transaction."""
    multi_max_bytes: Annotated[int, Range(1, 1_000_000)] = 512 << 10
    """Maximum size of one ZooKeeper transaction."""
    suspect_probe_interval_ms: Milliseconds = 50
    """Interval between probes of a broker after the connection to it was lost."""
    suspect_hold_ms: Milliseconds = 10_000
    """A suspected broker is trusted again when its stream to the controller has stayed open for this long."""
    control_requests_merged: bool = True
    """true: several changes for one broker are sent in one request. false is for measurements only."""
    shutdown_reads_states: bool = False
    """true: a controlled shutdown first reads the state of each partition from ZooKeeper. For measurements only."""
    auto_leader_rebalance_enable: bool = True
    """true: leadership returns to preferred leaders automatically."""
    leader_imbalance_check_interval_ms: Milliseconds = 300_000
    """Interval at which the controller checks whether leadership should return to preferred leaders."""
    leader_imbalance_per_broker_percentage: Annotated[int, Range(0, 100)] = 10
    """Leadership returns to a broker when other brokers lead more than this percentage of the partitions that it should
    lead."""

    def problems(self) -> Iterable[str]:
        if self.advertised_address.host in _WILDCARDS:
            yield f"advertised: nobody can reach {self.advertised_address}; advertise a host name"
        yield from super().problems()

    @property
    def advertised_address(self) -> Address:
        return self.advertised or self.listen


@dataclass(frozen=True, kw_only=True)
class ClientSettings(Settings):
    """Settings of the command line and of pipeline jobs."""

    bootstrap_servers: Addresses = LOCALHOST
    """Brokers to contact first. One that responds is enough."""
    client_id: Annotated[str, Range(0, 249)] = "tidelog"
    """Name of the client in the logs and metrics of the servers."""
    fetch_max_bytes: Bytes = FETCH_MAX_BYTES
    """Maximum size of one response to a fetch."""
    enable_idempotence: bool | None = None
    """true: each record is stored once, even if the producer retries. Empty: true with acks=all."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings(Settings):
    """Settings of an agent: a process that joins a group and passes the records of its partitions to a handler."""

    bootstrap_servers: Addresses = LOCALHOST
    """Brokers to contact first. One that responds is enough."""
    agent_id: Annotated[str, Range(0, 249)] = ""
    """Name of the agent. Empty: the host name and a random number. The consumer ID is this name, followed by another
    random number unless the agent is a static member."""
    group_id: Annotated[str, Range(1, 249)]
    """Group that the agent joins."""
    topics: Names = ()
    """Topics to subscribe to."""
    pattern: Annotated[str, Range(0, 1024)] = ""
    """Regular expression (RE2) that selects topics, in place of the setting topics. It must match the whole topic
    name."""
    static_member: bool = False
    """true: the agent keeps its identity across restarts. If it returns before its session expires, nothing is
    rebalanced."""
    assignor: Literal["", "range", "roundrobin", "sticky"] = ""
    """Assignment strategy. Empty: the broker's default."""
    auto_offset_reset: Literal["earliest", "latest"] = "earliest"
    """Position at which to begin in a partition without a committed offset."""
    session_timeout_ms: Milliseconds = 10_000
    """The coordinator removes an agent that has not answered a ping for this long."""
    max_processing_ms: Milliseconds = 300_000
    """Maximum time that the handler may take for one chunk. An agent that takes longer loses its partitions."""
    chunk_records: Annotated[int, Range(1, 100_000)] = 100
    """Maximum number of records in one call of the handler. Before each call the agent checks that it still owns the
    partition."""
    commit_interval_ms: Milliseconds = 5_000
    """Interval between commits. If the agent dies, records after the last commit are handled again."""
    on_error: Literal["stop", "skip", "retry"] = "stop"
    """Action when the handler fails: stop ends the agent, skip drops the chunk, and retry tries the chunk again."""
    handler: Annotated[str, Range(1)] = "count"
    """Handler of the records: count, log, forward, file, or package.module:function."""
    forward_topic: str = ""
    """Topic to which the forward handler writes."""
    file_directory: str = ""
    """Directory to which the file handler writes."""
    file_format: Literal["jsonl", "parquet"] = "jsonl"
    """Format of the files that the file handler writes."""
    file_bytes_max: Bytes = 16 << 20
    """Maximum size of the records that the file handler keeps in memory. Above it, files are written before the next
    commit is due."""
    stop_timeout_ms: Milliseconds = 20_000
    """Maximum time that a stopping agent waits for its handler. Records that the handler has not finished by then go to
    the next owner."""
    fetch_max_bytes: Bytes = FETCH_MAX_BYTES
    """Maximum size of one response to a fetch."""
    watch_address: OptionalAddress = None
    """Address at which the agent shows its protocol events to brokers, which hand them on to `tidelog watch`. Empty: no
    server."""
    metrics_address: OptionalAddress = None
    """Address of the HTTP server for /metrics and /health. Empty: no server."""

    def problems(self) -> Iterable[str]:
        if bool(self.topics) == bool(self.pattern):
            yield "topics: name topics, or a pattern and no topics"
        if self.static_member and not self.agent_id:
            yield "agent_id: required of a static member, which is known by it after a restart"
        if self.handler == "forward" and not self.forward_topic:
            yield "forward_topic: required by the handler forward"
        if self.handler == "forward" and self.forward_topic in self.topics:
            yield f"forward_topic: {self.forward_topic} is one of the topics that are read; it would never end"
        if self.handler == "file" and not self.file_directory:
            yield "file_directory: required by the handler file"
        if self.watch_address is not None and 0 < self.watch_address.port < WATCH_PORTS[0]:
            yield f"watch_address: port {self.watch_address.port} is below {WATCH_PORTS[0]}, and brokers do not connect to it"


@dataclass(frozen=True, kw_only=True)
class TrafficSettings(Settings):
    """Settings of a process that produces at a steady rate."""

    bootstrap_servers: Addresses = LOCALHOST
    """Brokers to contact first. One that responds is enough."""
    client_id: Annotated[str, Range(0, 249)] = "traffic"
    """Name of the client in the logs and metrics of the servers."""
    traffic_topic: Annotated[str, Range(1)] = "events"
    """Topic to write to. It is created if it does not exist."""
    traffic_partitions: Annotated[int, Range(1, 100_000)] = 6
    """Number of partitions if the topic is created."""
    traffic_replication_factor: Annotated[int, Range(1, 32_767)] = 3
    """Replication factor if the topic is created."""
    traffic_records_per_s: Annotated[float, Above(0, 1_000_000)] = 100.0
    """Number of records per second."""
    traffic_record_bytes: Annotated[int, Range(16, 1_000_000)] = 200
    """Size of a record in bytes."""
    metrics_address: OptionalAddress = None
    """Address of the HTTP server for /metrics and /health. Empty: no server."""


S = TypeVar("S", bound=Settings)


DEFAULT: Final = "default"
_COMMAND_LINE: Final = "command line"


class Row(NamedTuple):
    """One setting in force; `source` is DEFAULT or says where its value was set."""

    key: str
    value: str
    source: str


def load(
    kind: type[S],
    *,
    config_file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    flags: Mapping[str, str] | None = None,
) -> S:
    """Settings from `overrides` (the command line), TIDELOG_* and the file, in this order. ConfigError lists all problems.

    `config_file` defaults to the one that TIDELOG_CONFIG_FILE names. `flags` are the options of the command that set a key.
    """
    named = os.environ.get(CONFIG_FILE_VARIABLE)
    path = config_file or (Path(named) if named else None)
    problems: list[str] = []
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers = (
        (str(path), _read(path, problems) if path else {}),
        ("environment", _variables(kind)),
        (_COMMAND_LINE, dict(overrides or {})),
    )
    for source, layer in layers:
        values |= layer
        sources |= {key: f"{PREFIX}{key.upper()}" if source == "environment" else source for key in layer}
    sources |= {key: flag for key, flag in (flags or {}).items() if sources.get(key) == _COMMAND_LINE}
    problems += _unknown_variables(kind)
    converted = _converted(kind, values, sources, flags or {}, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    settings = kind(**converted)
    object.__setattr__(settings, "_sources", sources)
    return settings


def keys(kind: type[Settings]) -> list[str]:
    """The names of all settings, in the order of their declaration."""
    return [each.name for each in dataclasses.fields(kind)]


def explain(settings: Settings) -> list[Row]:
    """Every setting in force, in the order of its declaration, and where it was set."""
    return [
        Row(key, _text(getattr(settings, key)), settings._sources.get(key, DEFAULT)) for key in keys(type(settings))
    ]


def default_text(kind: type[Settings], key: str) -> str | None:
    """The default of `key` as text, or None if it has none."""
    (found,) = (each for each in dataclasses.fields(kind) if each.name == key)
    return None if _required(found) else _text(_default(found))


def _default(setting: "dataclasses.Field[Any]") -> Any:
    if setting.default_factory is not dataclasses.MISSING:
        return setting.default_factory()
    return setting.default


def _required(setting: "dataclasses.Field[Any]") -> bool:
    return setting.default is dataclasses.MISSING and setting.default_factory is dataclasses.MISSING


def _read(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path}: not TOML: {error}")
    return {}


def _variables(kind: type[Settings]) -> dict[str, str]:
    names = {key: f"{PREFIX}{key.upper()}" for key in keys(kind)}
    return {key: os.environ[name] for key, name in names.items() if name in os.environ}


def _unknown_variables(kind: type[Settings]) -> list[str]:
    """One environment may serve several processes, so the settings of other processes are no mistake."""
    kinds = (BrokerSettings, ControllerSettings, ClientSettings, AgentSettings, TrafficSettings)
    known = {key for each in kinds for key in keys(each)}
    given = {name.removeprefix(PREFIX) for name in os.environ if name.startswith(PREFIX)} - _OF_SCRIPTS
    return [
        f"{PREFIX}{key}: unknown setting{suggestion(f'{PREFIX}{key}', [f'{PREFIX}{k.upper()}' for k in keys(kind)])}"
        for key in sorted(given)
        if key.lower() not in known
    ]


def _converted(
    kind: type[Settings],
    values: Mapping[str, Any],
    sources: Mapping[str, str],
    flags: Mapping[str, str],
    problems: list[str],
) -> dict[str, Any]:
    """`values` in their types. What is missing, unknown or wrong is added to `problems`."""
    hints = get_type_hints(kind, include_extras=True)
    found: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        key = each.name
        if key in values:
            try:
                found[key] = convert(hints[key], values[key])
            except ValueError as error:
                source = sources[key]
                problems.append(f"{source}: {error}" if source.startswith("--") else f"{key}: {error} ({source})")
        elif _required(each):
            flag = f"{flags[key]}, or " if key in flags else ""
            problems.append(f"{key}: required; set {flag}{PREFIX}{key.upper()}, or {key} in the file")
    for key in values.keys() - set(keys(kind)):
        place = "on the command line" if sources[key] == _COMMAND_LINE else f"in {sources[key]}"
        problems.append(f"{key}: unknown setting {place}{suggestion(key, keys(kind))}")
    return found


def _text(value: Any) -> str:
    """The form in which it is set."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float() if value.is_integer():
            return str(int(value))
        case Address() | str() | int() | float() | Path():
            return str(value)
        case Mapping():
            pairs = value.items()
            return ",".join(f"{k}={v}" if isinstance(k, Address) else f"{k}://{v}" for k, v in pairs)
        case _:
            return ",".join(map(str, value))
