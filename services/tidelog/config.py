"""Typed settings of every process, from a TOML file and from TIDELOG_* variables; the variables win.

An unknown key is refused with the nearest known one, and every problem is told at once, one line each. Building a settings
object directly (tests, the simulator) reads neither.
"""

import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self, TypeVar

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import Address
from tidelog.names import suggestion

PREFIX = "TIDELOG_"
CONFIG_FILE_VARIABLE = "TIDELOG_CONFIG_FILE"

_OF_SCRIPTS = frozenset({"BASE", "CA_BUNDLE", "CONFIG_FILE", "DOCKER_LOG", "PULL_SECONDS", "REVISION"})
"""TIDELOG_ variables that are no settings of a process."""

_WILDCARDS = frozenset({"0.0.0.0", "::", ""})
INTERNAL = "INTERNAL"
EXTERNAL = "EXTERNAL"


class ConfigError(TidelogError):
    """`message` holds one line for each problem."""

    default_code: ClassVar[ErrorCode] = ErrorCode.INVALID_CONFIG


def _items(value: Any) -> list[str]:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return [item.strip() for item in value.split(",") if item.strip()]


def _parse_address(value: Any) -> Any:
    if value == "" or value is None:
        return None
    return Address.parse(value) if isinstance(value, str) else value


def _parse_addresses(value: Any) -> Any:
    return tuple(Address.parse(item) for item in _items(value)) if isinstance(value, str) else value


def _parse_listeners(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    found: dict[str, Address] = {}
    for item in _items(value):
        name, separator, address = item.partition("://")
        if not separator or name not in (INTERNAL, EXTERNAL):
            raise ValueError(f"{item!r} is not {INTERNAL}://host:port or {EXTERNAL}://host:port")
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = Address.parse(address)
    return found


def _parse_names(value: Any) -> Any:
    return tuple(_items(value)) if isinstance(value, str) else value


def _parse_directory(value: Any) -> Any:
    if value == "":
        raise ValueError("must not be empty")  # it would be the directory in which the process happens to start
    return value


def _parse_link_map(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    pairs = [item.partition("=") for item in _items(value)]
    return {Address.parse(dialled): Address.parse(link) for dialled, _, link in pairs}


OptionalAddress = Annotated[Address | None, NoDecode, BeforeValidator(_parse_address)]
OneAddress = Annotated[Address, NoDecode, BeforeValidator(_parse_address)]
Addresses = Annotated[tuple[Address, ...], NoDecode, BeforeValidator(_parse_addresses), Field(min_length=1)]
Listeners = Annotated[Mapping[str, Address], NoDecode, BeforeValidator(_parse_listeners)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parse_names)]
Directory = Annotated[Path, BeforeValidator(_parse_directory)]
LinkMap = Annotated[Mapping[Address, Address], NoDecode, BeforeValidator(_parse_link_map)]
Milliseconds = Annotated[int, Field(ge=1, le=2**31 - 1)]
Bytes = Annotated[int, Field(ge=1, le=2**31 - 1)]
NodeId = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Settings(BaseSettings):
    """What all processes have."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    log_format: Literal["auto", "json", "console"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    request_timeout_ms: Milliseconds = 15_000
    link_map: LinkMap = Field(default_factory=dict)
    """Addresses to dial instead of others, `host:port=host:port,...`, so that links can run through a proxy (testing)."""

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)  # `load` reads the others, and remembers which value came from where

    def problems(self) -> Iterable[str]:
        """What is wrong between fields that are right by themselves."""
        return ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if found := list(self.problems()):
            raise ValueError("\n".join(found))
        return self


class ServerSettings(Settings):
    """What brokers and controllers have."""

    zookeeper: Addresses
    zookeeper_session_timeout_ms: Annotated[int, Field(ge=500, le=600_000)] = 6_000
    cluster_id: str = ""
    """Empty: whatever /cluster/id says, or a new one. Otherwise another cluster is refused."""
    metrics_address: OptionalAddress = None
    request_max_bytes: Bytes = 4 << 20
    """The largest request that is received."""
    min_insync_replicas: Annotated[int, Field(ge=1, le=32_767)] = 2


class BrokerSettings(ServerSettings):
    broker_id: NodeId
    listeners: Listeners
    advertised_listeners: Listeners = Field(default_factory=dict)
    """Where others reach the listeners; those that are left out are reached where they listen."""
    data_dir: Directory
    cluster_name: Annotated[str, Field(max_length=249)] = ""
    """The name by which a script knows the cluster: kind and place, like compose/tidelog. DescribeCluster tells it."""
    rack: Annotated[str, Field(max_length=249)] = ""
    """Replicas of a partition are in different racks as far as there are enough. On all brokers, or on none."""
    replica_lag_time_max_ms: Milliseconds = 10_000
    isr_expand_linger_ms: Annotated[int, Field(ge=0, le=10_000)] = 100
    """The longest that an ISR expansion waits for others to share its request to the controller; 0: none does. It adapts: one
    alone waits a quarter. What shrinks an ISR, or brings one back to min.insync.replicas, never waits."""
    message_max_bytes: Bytes = 1_048_588
    validate_inflated_bytes_max: Bytes = 64 << 20
    """The most that one batch may hold when it is decompressed: for topics with validate=full, those that are compacted, and
    those with a compression.type."""
    fetch_max_bytes: Bytes = 50 << 20
    replica_fetch_chunk_bytes: Bytes = 1 << 20
    segment_bytes: Annotated[int, Field(ge=1024, le=2**31 - 1)] = 128 << 20
    """Of topics without segment.bytes; so with the next three settings and segment.ms, retention.ms, retention.bytes."""
    log_roll_ms: Annotated[int, Field(ge=1, le=2**63 - 1)] = 604_800_000
    log_retention_ms: Annotated[int, Field(ge=-1, le=2**63 - 1)] = -1
    """-1: records are kept for ever, unless their topic says otherwise."""
    log_retention_bytes: Annotated[int, Field(ge=-1, le=2**63 - 1)] = -1
    log_retention_check_interval_ms: Milliseconds = 300_000
    """How often the starts of logs and the age of active segments are looked at."""
    index_interval_bytes: Bytes = 4096
    log_cleaner_enable: bool = True
    """Whether topics with cleanup.policy=compact are compacted on this broker."""
    log_cleaner_backoff_ms: Milliseconds = 15_000
    """How often a log is looked for that is worth a compaction."""
    log_cleaner_keys_max: Annotated[int, Field(ge=1)] = 500_000
    """How many keys one compaction looks at: a bound on its memory, about 200 bytes each. A log with more takes several."""
    log_cleaner_io_max_bytes_per_second: Annotated[float, Field(gt=0)] = float("inf")
    """How fast compaction reads, over all logs."""
    log_scrub_interval_ms: Milliseconds = 86_400_000
    """How often every closed segment is read again, to find what has rotted while nobody looked."""
    log_scrub_io_max_bytes_per_second: Annotated[float, Field(gt=0)] = 16 << 20
    """How fast that reads, over all logs; a round that takes longer than the interval goes on as long as it takes."""
    high_watermark_checkpoint_interval_ms: Milliseconds = 5_000
    log_flush_interval_ms: Milliseconds = 60_000
    """How often every log is synced in the background, so that a recovery reads only what came since."""
    metadata_reserve_bytes: Annotated[int, Field(ge=0, le=2**31 - 1)] = 4 << 20
    """Set aside in the data directory, so that a full disk does not keep checkpoints from being written."""
    log_flush_stall_limit_ms: Milliseconds = 10_000
    """A topic with flush=sync goes to another leader when one sync takes longer."""
    max_open_segments: Annotated[int, Field(ge=1)] = 2_000
    metrics_partitions_max: Annotated[int, Field(ge=0)] = 2_000
    producer_id_expiration_ms: Milliseconds = 86_400_000
    """How long a silent idempotent producer is remembered; one that repeats a batch later than that may store it twice."""
    producer_ids_max: Annotated[int, Field(ge=1)] = 50_000
    """How many idempotent producers are remembered, over all partitions; about 1 KB each."""
    protocol_generation: Literal["alter-isr"] = "alter-isr"
    acks_without_lease: Literal["serve", "refuse"] = "serve"
    """What a leader whose session is in doubt does with acks=0 and acks=1; acks=all is safe either way."""

    controlled_shutdown_enable: bool = True
    """SIGTERM moves leaders to other replicas first. Without it they are missed as after a crash, but for the session."""
    controlled_shutdown_max_retries: Annotated[int, Field(ge=1, le=1_000)] = 10
    controlled_shutdown_retry_backoff_ms: Milliseconds = 1_000
    """Between two requests while partitions remain. Their product bounds how long it asks, answered or not."""

    coordinator_mode: Literal["sharded", "single"] = "sharded"
    """Whether the brokers share the groups, or one of them coordinates all, as D0 has it (A8.03)."""
    coordinator_shards: Annotated[int, Field(ge=1, le=1024)] = 8
    """Of `sharded`. The first broker of a cluster stores the number at /consumers/shards, which counts from then on."""
    coordinator_election_delay_ms: Annotated[int, Field(ge=0, le=10_000)] = 100
    """So much later does each next broker in a shard's order stand for it, so that shards spread over the brokers."""
    coordinator_rebalance_handlers: Annotated[int, Field(ge=1, le=1_000)] = 4
    """Rebalances of different groups that run at a time in one shard (A5.01, D0: the rebalance thread pool)."""
    group_min_session_timeout_ms: Milliseconds = 1_000
    """Session timeouts of consumers must be larger (A5.02, A14.01)."""
    group_max_session_timeout_ms: Milliseconds = 1_800_000
    group_failed_pings_max: Annotated[int, Field(ge=0, le=100)] = 0
    """A consumer with more unanswered pings in a row is failed (A5.03)."""
    offset_commit_interval_ms: Milliseconds = 1_000
    """Between two writes of the offsets that consumers report (A5.04)."""
    rebalance_retries_max: Annotated[int, Field(ge=0, le=1_000)] = 4
    """Failed attempts in a row, after which each one is an alarm; it goes on trying (A5.05)."""
    rebalance_backoff_ms: Milliseconds = 200
    """After a failed attempt; doubled with each one (A5.06)."""
    rebalance_backoff_max_ms: Milliseconds = 10_000
    group_join_delay_ms: Annotated[int, Field(ge=0, le=600_000)] = 100
    """A rebalance because of a new member waits so long for the next one, and anew with each."""
    group_join_delay_max_ms: Annotated[int, Field(ge=0, le=600_000)] = 2_000
    """In all."""
    group_initial_rebalance_delay_ms: Annotated[int, Field(ge=0, le=600_000)] = 500
    """The first rebalance of a group without members waits so long for others (KIP-134)."""
    group_rebalance: Literal["incremental", "eager"] = "incremental"
    """Whether only what moves is stopped, or everybody stops everything, as D0 has it."""
    group_max_size: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Members (KIP-389)."""
    group_max_partitions: Annotated[int, Field(ge=1)] = 200_000
    """That the topics of one subscription may have, and that one message of a consumer may name."""
    group_assignor: Literal["range", "roundrobin", "sticky"] = "sticky"
    """Of groups whose members name none."""
    offsets_retention_minutes: Annotated[int, Field(ge=1, le=2**31 - 1)] = 10_080
    """A group that has been without members for so long is deleted with its offsets (KIP-211)."""
    metrics_groups_max: Annotated[int, Field(ge=0)] = 1_000
    group_lag_interval_ms: Milliseconds = 5_000
    """Interval at which leaders are asked where logs end, for the lag of groups; of `metrics_partitions_max` partitions."""

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
        if self.request_max_bytes < self.message_max_bytes:
            yield f"message_max_bytes: {self.message_max_bytes} is over request_max_bytes={self.request_max_bytes}"

    @property
    def listener_addresses(self) -> Mapping[str, Address]:
        return self.listeners

    @property
    def advertised_addresses(self) -> Mapping[str, Address]:
        return {**self.listeners, **self.advertised_listeners}


class ControllerSettings(ServerSettings):
    controller_id: NodeId
    listen: OneAddress
    advertised: OptionalAddress = None
    """Where brokers reach it; empty: where it listens."""
    default_replication_factor: Annotated[int, Field(ge=1, le=32_767)] = 3
    default_partitions: Annotated[int, Field(ge=1, le=100_000)] = 1
    multi_max_operations: Annotated[int, Field(ge=1)] = 500
    multi_max_bytes: Annotated[int, Field(ge=1, le=1_000_000)] = 512 << 10
    suspect_probe_interval_ms: Milliseconds = 50
    suspect_hold_ms: Milliseconds = 10_000
    control_requests_merged: bool = True
    """For measurements only (BENCH-9): false sends every change to a broker by itself. With `multi_max_operations` 1 nothing
    of a controlled shutdown is batched."""
    shutdown_reads_states: bool = False
    """For measurements only (BENCH-9a): true reads every state of a broker that leaves from the store before the decision,
    as a controller must that is not their only writer (HOLE-15, KAFKA-8585)."""
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: Milliseconds = 300_000
    leader_imbalance_per_broker_percentage: Annotated[int, Field(ge=0, le=100)] = 10
    """Of the partitions that a broker ought to lead; when more are led elsewhere, they return to it."""

    def problems(self) -> Iterable[str]:
        if self.advertised_address.host in _WILDCARDS:
            yield f"advertised: nobody can reach {self.advertised_address}; advertise a host name"

    @property
    def advertised_address(self) -> Address:
        return self.advertised or self.listen


class ClientSettings(Settings):
    bootstrap_servers: Addresses = (Address("localhost", 19092),)
    client_id: Annotated[str, Field(max_length=249)] = "tidelog"
    fetch_max_bytes: Bytes = 50 << 20
    enable_idempotence: bool | None = None
    """Of producers; unset: with acks=all, where a record is then stored once whatever is retried."""


class AgentSettings(Settings):
    """A process that joins a group and gives what it owns to a handler."""

    bootstrap_servers: Addresses = (Address("localhost", 19092),)
    agent_id: Annotated[str, Field(max_length=249)] = ""
    """Its name; empty: the host's. Its consumer id adds a random number to it, unless it is a static member."""
    group_id: Annotated[str, Field(min_length=1, max_length=249)]
    topics: Names = ()
    pattern: Annotated[str, Field(max_length=1024)] = ""
    """Instead of topics: a regular expression (RE2) that whole names must fit."""
    static_member: bool = False
    """Its id outlives it: when it comes back within its session, nothing is rebalanced."""
    assignor: Literal["", "range", "roundrobin", "sticky"] = ""
    auto_offset_reset: Literal["earliest", "latest"] = "earliest"
    session_timeout_ms: Milliseconds = 10_000
    max_processing_ms: Milliseconds = 300_000
    """The longest that records may be in the handler; an agent that takes longer loses what it owns."""
    chunk_records: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Polled and handled at once; before each chunk the agent makes sure that the partition is still its own."""
    commit_interval_ms: Milliseconds = 5_000
    """Between two commits. Records after the last one are handled again when an agent dies."""
    on_error: Literal["stop", "skip", "retry"] = "stop"
    """What happens when the handler fails: the agent ends, or leaves out the records, or tries them again."""
    handler: Annotated[str, Field(min_length=1)] = "count"
    """count, log, forward, file, or package.module:function."""
    forward_topic: str = ""
    file_directory: str = ""
    file_format: Literal["jsonl", "parquet"] = "jsonl"
    file_bytes_max: Bytes = 16 << 20
    """Of records held in memory; then files are written before the next commit is due."""
    stop_timeout_ms: Milliseconds = 20_000
    """How long a stop waits for the handler; what it has not handled by then goes to the next owner."""
    fetch_max_bytes: Bytes = 50 << 20
    metrics_address: OptionalAddress = None

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


class TrafficSettings(Settings):
    """A process that produces at a steady pace."""

    bootstrap_servers: Addresses = (Address("localhost", 19092),)
    client_id: Annotated[str, Field(max_length=249)] = "traffic"
    traffic_topic: Annotated[str, Field(min_length=1)] = "events"
    """It is made if it is not there."""
    traffic_partitions: Annotated[int, Field(ge=1, le=100_000)] = 6
    traffic_replication_factor: Annotated[int, Field(ge=1, le=32_767)] = 3
    traffic_records_per_s: Annotated[float, Field(gt=0, le=1_000_000)] = 100.0
    traffic_record_bytes: Annotated[int, Field(ge=16, le=1_000_000)] = 200
    metrics_address: OptionalAddress = None


S = TypeVar("S", bound=Settings)


DEFAULT: Final = "default"


class Row(NamedTuple):
    """One setting in force; `source` is DEFAULT or says where its value was set."""

    key: str
    value: str
    source: str


def load(kind: type[S], *, config_file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> S:
    """Settings from `overrides` (the command line), TIDELOG_* and the file, in this order. ConfigError lists all problems.

    `config_file` defaults to the one that TIDELOG_CONFIG_FILE names.
    """
    named = os.environ.get(CONFIG_FILE_VARIABLE)
    path = config_file or (Path(named) if named else None)
    problems: list[str] = []
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers = (
        (str(path), _read(path, problems) if path else {}),
        ("environment", EnvSettingsSource(kind)()),
        ("command line", dict(overrides or {})),
    )
    for source, layer in layers:
        values |= layer
        sources |= {key: f"{PREFIX}{key.upper()}" if source == "environment" else source for key in layer}
    problems += _unknown_variables(kind)
    try:
        settings = kind(**values)
    except ValidationError as error:
        problems += [line for each in error.errors() for line in _lines(kind, each, sources)]
    if problems:
        raise ConfigError("\n".join(problems))
    settings._sources.update(sources)
    return settings


def explain(settings: Settings) -> list[Row]:
    """Every setting in force, in the order of its declaration, and where it was set."""
    return [
        Row(key, _text(getattr(settings, key)), settings._sources.get(key, DEFAULT))
        for key in type(settings).model_fields
    ]


def default_text(kind: type[Settings], key: str) -> str | None:
    """What counts where nobody sets `key`; None when somebody must."""
    field = kind.model_fields[key]
    return None if field.is_required() else _text(field.get_default(call_default_factory=True))


def _read(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path}: not TOML: {error}")
    return {}


def _unknown_variables(kind: type[Settings]) -> list[str]:
    """One environment may serve several processes, so the settings of other processes are no mistake."""
    kinds = (BrokerSettings, ControllerSettings, ClientSettings, AgentSettings, TrafficSettings)
    known = {key for each in kinds for key in each.model_fields}
    given = {name.removeprefix(PREFIX) for name in os.environ if name.startswith(PREFIX)} - _OF_SCRIPTS
    return [
        f"{PREFIX}{key}: unknown setting{suggestion(f'{PREFIX}{key}', [f'{PREFIX}{k.upper()}' for k in kind.model_fields])}"
        for key in sorted(given)
        if key.lower() not in known
    ]


def _lines(kind: type[Settings], error: Any, sources: Mapping[str, str]) -> list[str]:
    key = str(error["loc"][0]) if error["loc"] else ""
    if not key:
        return str(error["ctx"]["error"]).split("\n")
    if error["type"] == "missing":
        return [f"{key}: required; set {PREFIX}{key.upper()}, or {key} in the file"]
    where = sources.get(key, "")
    if error["type"] == "extra_forbidden":
        return [f"{key}: unknown setting in {where}{suggestion(key, kind.model_fields)}"]
    if error["type"] == "too_short":
        return [f"{key}: must not be empty ({where})"]
    if error["type"] == "value_error":
        return [f"{key}: {error['ctx']['error']} ({where})"]
    return [f"{key}: {error['msg'].removeprefix('Input ')}, not {error['input']!r} ({where})"]


def _text(value: Any) -> str:
    """The form in which it is set."""
    match value:
        case None:
            return ""
        case Address() | str() | int() | float() | Path():
            return str(value)
        case Mapping():
            pairs = value.items()
            return ",".join(f"{k}={v}" if isinstance(k, Address) else f"{k}://{v}" for k, v in pairs)
        case _:
            return ",".join(map(str, value))
