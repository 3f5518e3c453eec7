"""Generation 3: the controller decides by LeaderAndIsr, the leader asks by AlterIsr (KIP-497).

One request in flight for the whole broker; everything that piled up meanwhile goes into the next one, the newest proposal of
a partition wins and none is ever dropped (F05.4, HOLE-19; performance 1.2, the counter-example).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from tidelog.broker.control_plane.port import Replicas
from tidelog.broker.controller_link import ControllerLink
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.rand import Rand
from tidelog.replica.effects import ProposeIsr
from tidelog.runtime.retry import ALTER_ISR
from tidelog.wire import messages as m
from tidelog.wire.services import CONTROLLER_SERVICE_ALTER_ISR

_log = logging.getLogger(__name__)

Proposals = dict[TopicPartition, tuple[bytes, ProposeIsr]]


class AlterIsrControlPlane:
    """Implements `control_plane.port.ControlPlane`."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        link: ControllerLink,
        replicas: Replicas,
        clock: Clock,
        rand: Rand,
        timeout_s: float,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._link = link
        self._replicas = replicas
        self._clock = clock
        self._rand = rand
        self._timeout_s = timeout_s
        self._proposals: Proposals = {}
        self._wake = asyncio.Event()

    def propose_isr(self, tp: TopicPartition, topic_id: bytes, proposal: ProposeIsr) -> None:
        self._proposals[tp] = (topic_id, proposal)
        self._wake.set()

    async def run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            # Taken out before the answers are handled: a handler may propose anew for the same partition.
            proposals, self._proposals = self._proposals, {}
            if not proposals:
                continue
            response = await self._ask(proposals)
            if response is None:
                for tp, item in proposals.items():
                    self._proposals.setdefault(tp, item)
            else:
                self._hand_out(proposals, response)
            # Who asks the very same again has learnt nothing. Asked at once, the two of us would do nothing else (row 14).
            if response is None or any(self._proposals.get(tp) == item for tp, item in proposals.items()):
                failures += 1
                self._wake.set()
                await self._clock.sleep(ALTER_ISR.pause_s(self._rand, failures))
            else:
                failures = 0

    async def _ask(self, proposals: Proposals) -> m.AlterIsrResponse | None:
        """None: nobody knows what became of it, or nothing did; all must be sent again."""
        request = m.AlterIsrRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=_by_topic(self._broker_id, proposals)
        )
        try:
            response = await self._link.call(CONTROLLER_SERVICE_ALTER_ISR, request, self._timeout_s)
        except (TransportError, TidelogError) as error:
            _log.info("AlterIsr is sent again: %s", error)
            return None
        if response.error_code is not ErrorCode.NONE:
            level = logging.ERROR if response.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else logging.INFO
            _log.log(level, "AlterIsr refused: %s", response.error_code.name)
            return None
        return response

    def _hand_out(self, proposals: Proposals, response: m.AlterIsrResponse) -> None:
        answers = {
            TopicPartition(topic.topic, part.partition_id): part
            for topic in response.topics
            for part in topic.partitions
        }
        for tp, (_, proposal) in proposals.items():
            part = answers.get(tp)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if part is None else part.error_code
            self._replicas.isr_answered(tp, proposal, code, None if part is None else part.leader_and_isr)


def _by_topic(leader: int, proposals: Mapping[TopicPartition, tuple[bytes, ProposeIsr]]) -> tuple[m.AlterIsrTopic, ...]:
    topics: dict[tuple[str, bytes], list[m.AlterIsrPartition]] = {}
    for tp, (topic_id, proposal) in proposals.items():
        wanted = m.LeaderAndIsr(
            leader=leader,
            leader_epoch=proposal.leader_epoch,
            isr=tuple(m.IsrMember(broker_id=x.broker_id, broker_epoch=x.broker_epoch) for x in sorted(proposal.isr)),
            current_zk_version=proposal.partition_epoch,
        )
        part = m.AlterIsrPartition(partition_id=tp.partition, leader_and_isr=wanted)
        topics.setdefault((tp.topic, topic_id), []).append(part)
    return tuple(m.AlterIsrTopic(topic=t, topic_id=i, partitions=tuple(parts)) for (t, i), parts in topics.items())
