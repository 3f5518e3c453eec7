"""Reassignments of a fake cluster: what is asked for is under way until a test says that it has ended."""

from collections.abc import Sequence

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m

DEAD = 99
"""A broker that is never alive."""


class FakeMoves:
    def __init__(self, brokers: Sequence[int]) -> None:
        self._brokers = tuple(brokers)
        self._assigned: dict[TopicPartition, tuple[int, ...]] = {}
        self.moving: dict[TopicPartition, m.OngoingReassignment] = {}
        self.planned: dict[TopicPartition, tuple[int, ...]] = {}
        """What the controller finds out has to move when brokers come or go."""
        self.draining: dict[int, int] = {}
        """Broker -> replicas that it has still."""
        self.late = 0
        """Replicas that are placed on a broker while it is being drained."""
        self.throttle = (0, 0)
        self.sizes: dict[int, dict[TopicPartition, int]] = {}
        """Bytes of logs, by broker; of a broker without any, nothing is there."""

        self.damaged: dict[int, list[m.DamagedLog]] = {}
        """Logs that a broker refuses."""

    def replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        return self._assigned.get(TopicPartition(topic, partition), self._brokers)

    def assign(self, tp: TopicPartition, replicas: Sequence[int]) -> None:
        self._assigned[tp] = tuple(replicas)

    def end(self, topic: str, partition: int) -> None:
        tp = TopicPartition(topic, partition)
        self._assigned[tp] = self.moving.pop(tp).target

    async def alter_partition_reassignments(
        self, broker_id: int, request: m.AlterPartitionReassignmentsRequest
    ) -> m.AlterPartitionReassignmentsResponse:
        rows = [(TopicPartition(t.topic, p.partition), p.replicas) for t in request.topics for p in t.partitions]
        if dead := [tp for tp, row in rows if DEAD in row]:
            return m.AlterPartitionReassignmentsResponse(
                error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                error_message=f"replicas of {dead[0]} name brokers [{DEAD}], which are not alive",
            )
        if not request.validate_only:
            self.throttle = (request.leader_throttle, request.follower_throttle)
            for tp, row in rows:
                self.moving[tp] = self._begun(tp, row)
            for topic in request.topics:
                for partition in topic.cancelled:
                    del self.moving[TopicPartition(topic.topic, partition)]
        return m.AlterPartitionReassignmentsResponse()

    async def add_brokers(self, broker_id: int, request: m.AddBrokersRequest) -> m.AddBrokersResponse:
        if DEAD in request.broker_ids:
            message = f"{DEAD} not alive (alive: 1, 2, 3)"
            return m.AddBrokersResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
        return m.AddBrokersResponse(topics=self._plan(request.validate_only))

    async def drain_brokers(self, broker_id: int, request: m.DrainBrokersRequest) -> m.DrainBrokersResponse:
        if request.undo:
            for each in request.broker_ids:
                del self.draining[each]
            return m.DrainBrokersResponse()
        if not request.validate_only:
            self.draining |= dict.fromkeys(request.broker_ids, len(self.planned) + self.late)
        return m.DrainBrokersResponse(topics=self._plan(request.validate_only))

    def _plan(self, validate_only: bool) -> tuple[m.TopicReassignment, ...]:
        topics = []
        for tp, row in self.planned.items():
            if not validate_only:
                self.moving[tp] = self._begun(tp, row)
            rows = (m.PartitionAssignment(partition=tp.partition, replicas=row),)
            topics.append(m.TopicReassignment(topic=tp.topic, partitions=rows))
        return tuple(topics)

    def _begun(self, tp: TopicPartition, row: tuple[int, ...]) -> m.OngoingReassignment:
        before = self.replicas(*tp)
        return m.OngoingReassignment(
            topic=tp.topic,
            partition=tp.partition,
            replicas=(*row, *(each for each in before if each not in row)),
            adding_replicas=tuple(each for each in row if each not in before),
            removing_replicas=tuple(each for each in before if each not in row),
            target=row,
            original=before,
            leader=before[0],
        )

    async def describe_log_dirs(self, broker_id: int, request: m.DescribeLogDirsRequest) -> m.DescribeLogDirsResponse:
        partitions = tuple(
            m.LogDirPartition(topic=tp.topic, partition=tp.partition, size_bytes=size, offset_lag=0)
            for tp, size in self.sizes.get(broker_id, {}).items()
            if not request.topics or tp.topic in request.topics
        )
        return m.DescribeLogDirsResponse(log_dirs=(m.LogDir(path="/data", usable_bytes=1, partitions=partitions),))

    async def discard_damage(self, broker_id: int, request: m.DiscardDamageRequest) -> m.DiscardDamageResponse:
        logs = {TopicPartition(each.topic, each.partition): each for each in self.damaged.get(broker_id, ())}
        asked = [TopicPartition(each.topic, index) for each in request.topics for index in each.partitions] or list(
            logs
        )
        if request.execute:
            self.damaged[broker_id] = [each for tp, each in logs.items() if tp not in asked]
        return m.DiscardDamageResponse(logs=tuple(logs.get(tp) or _not_damaged(tp) for tp in asked))

    async def list_partition_reassignments(
        self, broker_id: int, request: m.ListPartitionReassignmentsRequest
    ) -> m.ListPartitionReassignmentsResponse:
        leader, follower = self.throttle
        return m.ListPartitionReassignmentsResponse(
            reassignments=tuple(self.moving.values()), leader_throttle=leader, follower_throttle=follower
        )


def _not_damaged(tp: TopicPartition) -> m.DamagedLog:
    return m.DamagedLog(
        topic=tp.topic,
        partition=tp.partition,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"the log of {tp} is not damaged",
        offset=-1,
        end_offset=-1,
        size_bytes=-1,
        leader=-1,
    )
