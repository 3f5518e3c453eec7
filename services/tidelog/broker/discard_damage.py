"""Damaged logs, for an operator: which records go when a log is cut where its damage begins, and the cut.

Where another replica leads, this broker discards the damage by itself and fetches it again (`revival`). A last copy is cut
only here.
"""

from collections.abc import Iterable

from tidelog.broker.replica_manager import ReplicaManager
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_LEADER, NO_OFFSET, TopicPartition
from tidelog.names import check_lengths
from tidelog.ports.disk import Disk
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.recovery import end_behind
from tidelog.wire import messages as m


class DiscardDamageHandler:
    def __init__(self, manager: ReplicaManager, disk: Disk) -> None:
        self._manager = manager
        self._disk = disk

    async def handle(self, request: m.DiscardDamageRequest) -> m.DiscardDamageResponse:
        """One log after the other; the error of one is its own. TidelogError for a name that no topic can have."""
        check_lengths("topics.topic", (each.topic for each in request.topics))
        asked = [TopicPartition(each.topic, index) for each in request.topics for index in each.partitions]
        return m.DiscardDamageResponse(
            logs=tuple([await self._one(tp, request.execute) for tp in self._wanted(asked, everything=not asked)])
        )

    def _wanted(self, asked: Iterable[TopicPartition], *, everything: bool) -> list[TopicPartition]:
        if not everything:
            return list(dict.fromkeys(asked))
        return sorted(tp for tp, log in self._manager.stored().items() if log.damage is not None)

    async def _one(self, tp: TopicPartition, execute: bool) -> m.DamagedLog:
        log = self._manager.stored().get(tp)
        if log is None:
            return _refused(tp, TidelogError(f"no log of {tp} is open here", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if log.damage is None:
            return _refused(tp, TidelogError(f"the log of {tp} is not damaged", ErrorCode.INVALID_REQUEST))
        damage, untrusted = log.damage, log.untrusted()
        end = max(damage.offset, self._manager.recorded_end(log))
        try:
            seen = await self._disk.in_background(lambda: end_behind(self._disk, untrusted, damage.offset))
            end = max(end, seen)
            if execute:
                self._cut(tp, log, end)
        except (OSError, TidelogError) as error:
            failed = (
                error if isinstance(error, TidelogError) else TidelogError(str(error), ErrorCode.KAFKA_STORAGE_ERROR)
            )
            return _refused(tp, failed)
        return m.DamagedLog(
            topic=tp.topic,
            partition=tp.partition,
            offset=damage.offset,
            end_offset=end,
            size_bytes=sum(size_bytes - position for _, position, size_bytes in untrusted),
            reason=f"{damage.path}: damaged at byte {damage.position}: {damage.reason}",
            leader=self._leader(tp),
        )

    def _leader(self, tp: TopicPartition) -> int:
        host = self._manager.find(tp)
        return NO_LEADER if host is None or host.told_offline is None else host.told_offline.state.leader

    def _cut(self, tp: TopicPartition, log: PartitionLog, end: int) -> None:
        if self._manager.stored().get(tp) is not log or log.damage is None:
            raise TidelogError(f"the log of {tp} has changed meanwhile; look again", ErrorCode.INVALID_REQUEST)
        self._manager.discard_damage(tp, end)


def _refused(tp: TopicPartition, error: TidelogError) -> m.DamagedLog:
    return m.DamagedLog(
        topic=tp.topic,
        partition=tp.partition,
        error_code=error.code,
        error_message=error.message,
        offset=NO_OFFSET,
        end_offset=NO_OFFSET,
        size_bytes=-1,
        leader=NO_LEADER,
    )
