"""What a broker answers about itself: its settings, its data directory, and the records that it deletes as a leader."""

from collections.abc import Awaitable, Callable

from tidelog.broker import config_view
from tidelog.broker.delete_records import DeleteRecordsHandler
from tidelog.broker.discard_damage import DiscardDamageHandler
from tidelog.broker.partition_host import PartitionHost
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.config import BrokerSettings
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.names import code_of_unknown, shown
from tidelog.ports.disk import Disk
from tidelog.storage.strays import Stray
from tidelog.wire import messages as m

DescribeTopics = Callable[[m.DescribeTopicsRequest], Awaitable[m.DescribeTopicsResponse]]


class BrokerAdmin:
    """`describe_topics` asks the controller, who knows what topics say for themselves."""

    def __init__(
        self, settings: BrokerSettings, manager: ReplicaManager, disk: Disk, describe_topics: DescribeTopics
    ) -> None:
        self._settings = settings
        self._manager = manager
        self._disk = disk
        self._describe_topics = describe_topics
        self.delete_records = DeleteRecordsHandler(manager, settings.request_timeout_ms)
        self._damage = DiscardDamageHandler(manager, disk)

    async def describe_configs(self, request: m.DescribeConfigsRequest) -> m.DescribeConfigsResponse:
        if not request.topics:
            # An empty list would stand for every topic at the controller.
            return m.DescribeConfigsResponse(error_code=ErrorCode.INVALID_REQUEST)
        try:
            told = await self._describe_topics(m.DescribeTopicsRequest(names=request.topics))
        except (TidelogError, TransportError):
            return m.DescribeConfigsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return m.DescribeConfigsResponse(
            error_code=told.error_code, topics=tuple(self._topic_configs(topic) for topic in told.topics)
        )

    def _topic_configs(self, topic: m.TopicDescription) -> m.TopicConfigs:
        if topic.error_code is not ErrorCode.NONE:
            code = code_of_unknown(topic.name)
            return m.TopicConfigs(
                name=topic.name, error_code=code, error_message=f"topic {shown(topic.name)} does not exist"
            )
        overrides = {entry.key: entry.value for entry in topic.configs}
        return m.TopicConfigs(name=topic.name, configs=config_view.describe_topic(overrides, self._settings))

    def describe_broker_configs(
        self, request: m.DescribeBrokerConfigsRequest, listener: str
    ) -> m.DescribeBrokerConfigsResponse:
        """The settings of this process. A caller at another `listener` than INTERNAL is not told of the INTERNAL one."""
        if fault := self._other_broker(request.broker_id):
            return m.DescribeBrokerConfigsResponse(error_code=fault.code, error_message=fault.message)
        return m.DescribeBrokerConfigsResponse(configs=config_view.describe_broker(self._settings, listener))

    def describe_log_dirs(self, request: m.DescribeLogDirsRequest) -> m.DescribeLogDirsResponse:
        if fault := self._other_broker(request.broker_id):
            return m.DescribeLogDirsResponse(error_code=fault.code, error_message=fault.message)
        wanted, path = frozenset(request.topics), str(self._settings.data_dir)
        here = [_log_dir_partition(host) for host in self._manager if not wanted or host.tp.topic in wanted]
        unopened = [
            _offline(each.topic, each.partition)
            for each in self._manager.failed()
            if self._manager.find_named(each.topic, each.partition) is None and (not wanted or each.topic in wanted)
        ]
        try:
            usable_bytes = self._disk.free_bytes(path)
        except OSError as error:
            return m.DescribeLogDirsResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=f"{path}: {error}")
        partitions = tuple(sorted(here + unopened, key=lambda each: (each.topic, each.partition)))
        strays = tuple(_stray(each) for each in self._manager.strays if not wanted or each.key.topic in wanted)
        return m.DescribeLogDirsResponse(
            log_dirs=(
                m.LogDir(
                    path=path,
                    usable_bytes=usable_bytes,
                    partitions=partitions,
                    strays=strays,
                    another_past=self._manager.another_past,
                ),
            )
        )

    async def discard_damage(self, request: m.DiscardDamageRequest) -> m.DiscardDamageResponse:
        if fault := self._other_broker(request.broker_id):
            return m.DiscardDamageResponse(error_code=fault.code, error_message=fault.message)
        return await self._damage.handle(request)

    def _other_broker(self, broker_id: int) -> TidelogError | None:
        if broker_id == self._settings.broker_id:
            return None
        message = f"broker_id: {broker_id}, this is broker {self._settings.broker_id}"
        return TidelogError(message, ErrorCode.INVALID_REQUEST)


def _log_dir_partition(host: PartitionHost) -> m.LogDirPartition:
    if host.offline is not None:
        return _offline(host.tp.topic, host.tp.partition)
    return m.LogDirPartition(
        topic=host.tp.topic,
        partition=host.tp.partition,
        size_bytes=host.log.size_bytes,
        offset_lag=0 if host.is_leader else max(0, host.leader_high_watermark - host.log.log_end_offset),
    )


def _stray(stray: Stray) -> m.LogDirPartition:
    return m.LogDirPartition(
        topic=stray.key.topic,
        partition=stray.key.partition,
        size_bytes=stray.size_bytes,
        offset_lag=-1,
        folder=stray.folder,
    )


def _offline(topic: str, partition: int) -> m.LogDirPartition:
    return m.LogDirPartition(
        topic=topic, partition=partition, size_bytes=-1, offset_lag=-1, error_code=ErrorCode.KAFKA_STORAGE_ERROR
    )
