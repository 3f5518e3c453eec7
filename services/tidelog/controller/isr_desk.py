"""AlterIsr (KIP-497): what leaders propose, from the request to the answer, one place in the queue for each partition."""

from collections.abc import Callable, Collection

from tidelog.controller import alter_isr
from tidelog.controller.effects import Reply
from tidelog.controller.events import IsrProposed, Token
from tidelog.controller.gather import Gather
from tidelog.controller.model import ClusterState, IsrCause, Partition, PartitionState, Proposal
from tidelog.controller.outbox import Outbox
from tidelog.errors import ErrorCode
from tidelog.ids import NO_EPOCH, NO_LEADER, BrokerId, TopicPartition
from tidelog.wire import messages as m


class IsrDesk:
    """Works on partitions through `settle`, the machine's rule for one of them, which calls `judge` when its turn has come."""

    def __init__(
        self,
        state: ClusterState,
        out: Outbox,
        barred: Callable[[Partition, PartitionState], Collection[BrokerId]],
        *,
        settle: Callable[[Partition], None],
        write: Callable[[Partition, PartitionState, IsrCause], None],
    ) -> None:
        """`barred`: who may not enter the ISR of a partition in this state."""
        self._state = state
        self._out = out
        self._barred = barred
        self._settle = settle
        self._write = write
        self._hearing = alter_isr.Hearing()
        self._answers: dict[Token, Gather[tuple[str, m.AlterIsrPartitionResult]]] = {}

    def propose(self, event: IsrProposed) -> None:
        self._out.because("isr")
        request, token = event.request, event.token
        refusal = self._hearing.refusal(request, self._out.controller_epoch, self._state.brokers)
        if refusal is not ErrorCode.NONE:
            self._out.reply(Reply(token, m.AlterIsrResponse(error_code=refusal)))
            return
        asker = BrokerId(request.broker_id)
        items = [(topic, item) for topic in request.topics for item in topic.partitions]
        self._answers[token] = Gather(len(items))
        for slot, (asked, item) in enumerate(items):
            tp = TopicPartition(asked.topic, item.partition_id)
            code, partition = self._find(asked, tp)
            proposal = Proposal(token, slot, asker, item.leader_and_isr)
            if partition is None:
                self._answer(proposal, tp, code, None)
            else:
                # A leader that repeats itself has given up on its earlier request; one place a partition is enough.
                self.answer_parked(partition, ErrorCode.REQUEST_TIMED_OUT)
                partition.parked = proposal
                self._settle(partition)
        self._close(token)

    def _find(self, asked: m.AlterIsrTopic, tp: TopicPartition) -> tuple[ErrorCode, Partition | None]:
        partition = self._state.partition(tp)
        if partition is None or partition.topic.deleting:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if asked.topic_id and asked.topic_id != partition.topic.topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID, None
        return ErrorCode.NONE, partition

    def judge(self, partition: Partition, proposal: Proposal) -> None:
        """`proposal` is parked at `partition`, and no write of it is in flight."""
        state = partition.state
        if state is None:
            # Somebody leads what has never had a leader here: this controller is behind.
            self.answer_parked(partition, ErrorCode.NOT_CONTROLLER)
            return
        code = alter_isr.judge(
            proposal.wanted,
            proposal.asker,
            state,
            partition.replicas,
            self._state.brokers,
            self._barred(partition, state),
        )
        if code is not None:
            self.answer_parked(partition, code)
            return
        # It stays parked: once this is confirmed the wanted set is the one in force, and that is the answer.
        self._write(
            partition,
            PartitionState(
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=proposal.wanted.isr,
                controller_epoch=self._out.controller_epoch,
                partition_epoch=state.partition_epoch + 1,
            ),
            IsrCause.LEADER,
        )

    def answer_parked(self, partition: Partition, code: ErrorCode) -> None:
        proposal, partition.parked = partition.parked, None
        if proposal is not None:
            self._answer(proposal, partition.tp, code, partition.state)
            self._close(Token(proposal.token))

    def validate(self) -> None:
        """Asserts that nobody waits for nothing."""
        assert all(gather.complete() is None for gather in self._answers.values())

    def _answer(self, proposal: Proposal, tp: TopicPartition, code: ErrorCode, state: PartitionState | None) -> None:
        in_force = m.LeaderAndIsr(
            leader=NO_LEADER if state is None else state.leader,
            leader_epoch=NO_EPOCH if state is None else state.leader_epoch,
            isr=() if state is None else state.isr,
            current_zk_version=NO_EPOCH if state is None else state.partition_epoch,
        )
        result = m.AlterIsrPartitionResult(partition_id=tp.partition, error_code=code, leader_and_isr=in_force)
        self._answers[Token(proposal.token)].put(proposal.slot, (tp.topic, result))

    def _close(self, token: Token) -> None:
        results = self._answers[token].complete() if token in self._answers else None
        if results is None:
            return
        del self._answers[token]
        by_topic: dict[str, list[m.AlterIsrPartitionResult]] = {}
        for topic, result in results:
            by_topic.setdefault(topic, []).append(result)
        topics = tuple(m.AlterIsrTopicResult(topic=topic, partitions=tuple(items)) for topic, items in by_topic.items())
        self._out.reply(Reply(token, m.AlterIsrResponse(topics=topics)))
