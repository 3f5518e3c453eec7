"""Admin: topics and the state of the cluster, through any broker; groups, through their coordinators."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

from tidelog.client.changes import ANSWER_SLACK_S, DEFAULT, TopicChanges
from tidelog.client.connections import Bootstrap, ClientPorts, Connections, parse_bootstrap, real_ports
from tidelog.client.gate import Gate
from tidelog.client.group_admin import GroupAdmin
from tidelog.client.log_admin import LogAdmin
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.offsets import FoundOffset, OffsetFinder
from tidelog.client.reassignments import ReassignmentAdmin
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_LEADER, TopicPartition
from tidelog.names import validate_topic_name
from tidelog.ports.net import Unary
from tidelog.release import LEVEL_0_3
from tidelog.runtime.retry import ADMIN
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.limits import parts_or_all

Req = TypeVar("Req")
Res = TypeVar("Res")


class Admin:
    """Used as `async with Admin("host:port") as admin`, or with `start` and `stop`, in one event loop.

    `groups`, `logs` and `reassignments` have the rest of its calls. An error of one topic names it. Any call may raise
    ClusterUnreachable when no broker answers, NotControllerError when no controller is active for `request_timeout_ms`, and
    ClientClosed after the end. A call that changes something is repeated when its answer was lost, and what it then finds done
    counts as done: a topic that exists as it was to be created, for instance. It raises UnknownServerError if no answer comes
    in `request_timeout_ms`: it may have been done.

    Its parameters, of which wrong ones raise TypeError or ValueError:

    bootstrap: "host:port,host:port" or a list of addresses; one broker that answers is enough. None: the variable
        TIDELOG_BOOTSTRAP_SERVERS, else localhost:19092, 29092 and 39092.
    request_timeout_ms: how long a call tries again.
    ports: clock, network and random numbers of a test.
    """

    def __init__(
        self,
        bootstrap: Bootstrap = None,
        *,
        request_timeout_ms: int = 15_000,
        ports: ClientPorts | None = None,
    ) -> None:
        self._timeout_ms = request_timeout_ms
        self._limit_s = request_timeout_ms / 1000
        self._ports = ports or real_ports()
        self._gate = Gate(self._ports.net, "admin client")
        self._connections = Connections(self._gate)
        self._metadata = ClusterMetadata(self._ports, self._connections, parse_bootstrap(bootstrap), self._limit_s)
        self._offsets = OffsetFinder(self._ports, self._connections, self._metadata, self._limit_s)
        self._changes = TopicChanges(self._ports, self._metadata, self._limit_s, self.describe_topics)
        self.groups = GroupAdmin(self._ports, self._connections, self._metadata, self._limit_s)
        self.reassignments = ReassignmentAdmin(self._ports, self._metadata, self._limit_s)
        self.logs = LogAdmin(self._ports, self._connections, self._metadata, self._offsets, self._limit_s)

    async def start(self) -> None:
        """Returns when a broker has answered; ClusterUnreachable when none does in `request_timeout_ms`."""
        await self._metadata.refresh(self._metadata.version)

    async def stop(self) -> None:
        """Calls that wait, and those that come later, raise ClientClosed."""
        self._gate.close()
        await self._connections.close()

    async def __aenter__(self) -> "Admin":
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._connections.close)
            await self.start()
            undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def create_topic(
        self,
        name: str,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        *,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> m.CreatedTopic:
        """Creates a topic; -1 is the cluster's default. `assignment[p]` are the replicas of partition p, the preferred leader
        first; it excludes both numbers. With `validate_only` nothing is done.

        Raises TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError, InvalidReplicationFactorError,
        InvalidReplicaAssignmentError or InvalidConfigError.
        """
        new = m.NewTopic(
            name=validate_topic_name(name),
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=tuple(m.PartitionAssignment(partition=p, replicas=tuple(r)) for p, r in enumerate(assignment)),
            configs=tuple(m.ConfigEntry(key=k, value=v) for k, v in (configs or {}).items()),
        )
        (created,) = await self.create_topics([new], validate_only=validate_only)
        _raise_for(f"topic {name!r}", created.error_code, created.error_message)
        return created

    async def create_topics(self, topics: Sequence[m.NewTopic], *, validate_only: bool = False) -> list[m.CreatedTopic]:
        """Creates topics. One answer for each, in order, with its own error code; they raise nothing."""
        created: list[m.CreatedTopic] = []
        for part in parts_or_all(m.CreateTopicsRequest, topics):
            request = m.CreateTopicsRequest(topics=part, timeout_ms=self._timeout_ms, validate_only=validate_only)
            created += await self._changes.create(request)
        return created

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records. Raises UnknownTopicOrPartitionError or InvalidTopicError."""
        (deleted,) = await self.delete_topics([validate_topic_name(name)])
        _raise_for(f"topic {name!r}", deleted.error_code, deleted.error_message)

    async def delete_topics(self, names: Sequence[str]) -> list[m.DeletedTopic]:
        """Deletes topics. One answer for each, in order, with its own error code; they raise nothing."""
        deleted: list[m.DeletedTopic] = []
        for part in parts_or_all(m.DeleteTopicsRequest, names):
            request = m.DeleteTopicsRequest(names=part, timeout_ms=self._timeout_ms)
            deleted += await self._changes.delete(request)
        return deleted

    async def create_partitions(
        self, name: str, total: int, *, assignment: Sequence[Sequence[int]] = (), validate_only: bool = False
    ) -> None:
        """More partitions for a topic, `total` in the end; `assignment` are the replicas of each new one, in order.

        Records stay where they are; new ones with the same key may be in another partition. Raises InvalidPartitionsError
        unless `total` is above the present number, InvalidReplicaAssignmentError or UnknownTopicOrPartitionError.
        """
        rows = tuple(tuple(row) for row in assignment)
        first = total - len(rows)
        new = m.NewPartitions(
            name=validate_topic_name(name),
            total_count=total,
            assignments=tuple(m.PartitionAssignment(partition=p, replicas=row) for p, row in enumerate(rows, first)),
        )
        request = m.CreatePartitionsRequest(topics=(new,), timeout_ms=self._timeout_ms, validate_only=validate_only)
        (grown,) = await self._changes.grow(request)
        _raise_for(f"topic {name!r}", grown.error_code, grown.error_message)

    async def alter_configs(
        self, name: str, added: Mapping[str, str], removed: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        """Sets and removes settings of a topic, all or none; brokers apply them while they run.

        Raises InvalidConfigError, which names the key and the limit, also for a key that is both added and removed, and
        UnknownTopicOrPartitionError.
        """
        changes = [m.ConfigChange(key=key, value=value) for key, value in added.items()]
        changes += [m.ConfigChange(key=key, remove=True) for key in removed]
        topic = m.TopicConfigChanges(name=validate_topic_name(name), changes=tuple(changes))
        request = m.IncrementalAlterConfigsRequest(
            topics=(topic,), timeout_ms=self._timeout_ms, validate_only=validate_only
        )
        (altered,) = await self._changes.alter(request)
        _raise_for(f"topic {name!r}", altered.error_code, altered.error_message)

    async def describe_configs(self, name: str) -> list[m.DescribedConfig]:
        """Every setting of a topic: the value in force and where it comes from. Raises UnknownTopicOrPartitionError."""
        request = m.DescribeConfigsRequest(topics=(validate_topic_name(name),))
        (topic,) = (await self._read(s.ADMIN_SERVICE_DESCRIBE_CONFIGS, request)).topics
        _raise_for(f"topic {name!r}", topic.error_code, "")
        return list(topic.configs)

    async def partitions_of(self, name: str) -> int:
        """The number of a topic's partitions, as brokers know it; no controller is asked.

        Raises UnknownTopicOrPartitionError when the topic stays unknown.
        """
        return len((await self._metadata.topic(name)).partitions)

    async def list_topics(self) -> list[str]:
        """The names of all topics, in order."""
        return sorted(topic.name for topic in await self.describe_topics())

    async def describe_topics(self, names: Sequence[str] = ()) -> list[m.TopicDescription]:
        """Those named, or all. The answer for an unknown name has an error code; it raises nothing."""
        topics: list[m.TopicDescription] = []
        for part in parts_or_all(m.DescribeTopicsRequest, tuple(dict.fromkeys(names))):
            request = m.DescribeTopicsRequest(names=part)
            topics += (await self._read(s.ADMIN_SERVICE_DESCRIBE_TOPICS, request)).topics
        return topics

    async def describe_topic(self, name: str) -> m.TopicDescription:
        """The partitions of a topic: leader, replicas and ISR of each. Raises UnknownTopicOrPartitionError."""
        (topic,) = await self.describe_topics([validate_topic_name(name)])
        _raise_for(f"topic {name!r}", topic.error_code, "")
        return topic

    async def describe_cluster(self) -> m.DescribeClusterResponse:
        """The active controller and the brokers, those that are down and are missed too."""
        return await self._read(s.ADMIN_SERVICE_DESCRIBE_CLUSTER, m.DescribeClusterRequest())

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        unclean: bool = False,
        candidates: Sequence[int] = (),
        validate_only: bool = False,
    ) -> list[m.ElectionResult]:
        """Elects preferred leaders, or with `unclean` the live replica with the largest log where no replica in sync is alive:
        the records that it lacks are lost.

        With `unclean`, `candidates` are the only brokers that may lead (empty: any), and `validate_only` changes nothing: the
        result names the leader and the ends of the logs. Both raise UnsupportedVersionError while a live broker is of a release
        before 0.3.0.

        One result a partition, each with its own error code; None asks for every partition that it could change.
        """
        if candidates or validate_only:
            level = (await self.describe_cluster()).feature_level
            if level < LEVEL_0_3:  # an older controller would overlook them, and elect
                raise TidelogError(
                    f"candidates, validate_only: need feature level {LEVEL_0_3} of the controller and every broker, "
                    f"the cluster is at {level}",
                    ErrorCode.UNSUPPORTED_VERSION,
                )
        results: list[m.ElectionResult] = []
        for topics in parts_or_all(m.ElectLeadersRequest, _by_topic(partitions)):
            request = m.ElectLeadersRequest(
                unclean=unclean,
                topics=topics,
                timeout_ms=self._timeout_ms,
                candidates=tuple(candidates),
                validate_only=validate_only,
            )
            results += (await self._read(s.ADMIN_SERVICE_ELECT_LEADERS, request)).results
        return results

    async def release_veto(self, partitions: Iterable[TopicPartition] | None = None) -> list[m.ElectionResult]:
        """Lets the last ISR member lead although it may have lost records; None asks for every partition held back so."""
        results: list[m.ElectionResult] = []
        for topics in parts_or_all(m.ReleaseVetoRequest, _by_topic(partitions)):
            request = m.ReleaseVetoRequest(topics=topics, timeout_ms=self._timeout_ms)
            results += (await self._read(s.ADMIN_SERVICE_RELEASE_VETO, request)).results
        return results

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """Of each partition the offset at EARLIEST, LATEST or MAX_TIMESTAMP (client/offsets.py), or of the first record at
        or after a Unix time in ms, -1 where there is none.

        Raises UnknownTopicOrPartitionError, and LeaderNotAvailableError when a partition stays without a leader.
        """
        return await self._offsets.find(wanted, self._limit_s)

    async def wait_until_led(self, name: str, *, in_sync: bool = False, timeout_s: float = 10.0) -> m.TopicDescription:
        """Returns when every partition of a topic has a leader (and a full ISR).

        Raises RequestTimedOutError, which names a partition that has none, and UnknownTopicOrPartitionError.
        """
        async for attempt in ADMIN.retrying(self._ports.clock, self._ports.rand, timeout_s):
            with attempt:
                topic = await self.describe_topic(name)
                for p in topic.partitions:
                    if p.leader == NO_LEADER or (in_sync and set(p.isr) != set(p.replicas)):
                        raise TidelogError(
                            f"{name}-{p.partition}: leader {p.leader}, ISR {list(p.isr)} of {list(p.replicas)}",
                            ErrorCode.REQUEST_TIMED_OUT,
                        )
        return topic

    async def _read(self, method: Unary[Req, Res], request: Req) -> Res:
        async for attempt in ADMIN.retrying(self._ports.clock, self._ports.rand, self._limit_s):
            with attempt:
                answer = await self._metadata.call_any(method, request, self._limit_s + ANSWER_SLACK_S, self._limit_s)
                _raise_for(method.path.rpartition("/")[2], _code_of(answer), "")
        return answer


def _by_topic(partitions: Iterable[TopicPartition] | None) -> tuple[m.TopicPartitions, ...]:
    """ValueError for an empty choice, which on the wire would stand for all."""
    if partitions is None:
        return ()
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    if not topics:
        raise ValueError("no partition is named; None stands for all")
    return tuple(m.TopicPartitions(topic=topic, partitions=tuple(found)) for topic, found in topics.items())


def _code_of(answer: object) -> ErrorCode:
    code = getattr(answer, "error_code", ErrorCode.NONE)
    assert isinstance(code, ErrorCode)
    return code


def _raise_for(subject: str, code: ErrorCode, message: str) -> None:
    if code is ErrorCode.NONE:
        return
    said = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "does not exist",
        ErrorCode.TOPIC_ALREADY_EXISTS: "already exists",
        ErrorCode.NOT_CONTROLLER: "no controller is active; wait, or look at the controllers' logs",
    }.get(code, code.name)
    if not message:
        raise TidelogError(f"{subject} {said}", code)
    names_it = message.startswith("topic ") or subject in message
    raise TidelogError(message if names_it else f"{subject}: {message}", code)
