"""Generation 3: the controller decides by LeaderAndIsr, the leader asks by AlterIsr (KIP-497).

One request in flight for the whole broker; everything that piled up meanwhile goes into the next one, the newest proposal of
a partition wins and none is ever dropped (F05.4, HOLE-19; performance 1.2, the counter-example). Expansions may linger a
moment so that more of them share a request (OPEN-19); shrinks never do.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.broker.control_plane.expand_window import ExpandWindow
from tidelog.broker.control_plane.port import Replicas
from tidelog.broker.controller_link import ControllerLink
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.rand import Rand
from tidelog.ports.recorder import CAUSE, Origin
from tidelog.replica.effects import ProposeIsr
from tidelog.runtime.retry import ALTER_ISR, ALTER_ISR_UNAUTHORIZED
from tidelog.wire import messages as m
from tidelog.wire.services import CONTROLLER_SERVICE_ALTER_ISR

_log = logging.getLogger(__name__)

REQUEST_BYTES: Final = 1 << 20
"""Of one request, at most, encoded; a controller refuses to receive more than a few times as much."""

_INT: Final = 11
"""The longest varint, of a negative number, with its tag."""

NO_ANSWER: Final = "NO_ANSWER"

Proposals = dict[TopicPartition, tuple[bytes, ProposeIsr]]


@dataclass(frozen=True, slots=True)
class AlterIsrSettings:
    broker_id: int
    timeout_s: float
    expand_linger_s: float
    """The longest that an expansion waits for others; 0: none does."""


class AlterIsrControlPlane:
    """Implements `control_plane.port.ControlPlane`."""

    def __init__(
        self,
        settings: AlterIsrSettings,
        broker_epoch: Callable[[], int],
        controller_epoch: Callable[[], int],
        link: ControllerLink,
        replicas: Replicas,
        clock: Clock,
        rand: Rand,
        on_answer: Callable[[str], None],
    ) -> None:
        """`controller_epoch` is the newest that this broker has heard of; `on_answer` counts: it gets the name of each
        request's own error code, or `NO_ANSWER`."""
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._controller_epoch = controller_epoch
        self._link = link
        self._replicas = replicas
        self._clock = clock
        self._rand = rand
        self._on_answer = on_answer
        self._sequences = itertools.count(1)
        """Of requests: what grows as long as this process lives grows in each broker life of it."""
        self._proposals: Proposals = {}
        self._window = ExpandWindow(settings.expand_linger_s)
        self._wake = asyncio.Event()
        self._cause: Origin | None = None
        """The event of the newest proposal."""

    def propose_isr(self, tp: TopicPartition, topic_id: bytes, proposal: ProposeIsr) -> None:
        self._proposals[tp] = (topic_id, proposal)
        self._cause = CAUSE.get()
        self._window.add(self._clock.now(), may_wait=proposal.may_wait)
        self._wake.set()

    async def run(self) -> None:
        failures = 0
        while True:
            await self._due()
            # Taken out before the answers are handled: a handler may propose anew for the same partition.
            proposals = self._take()
            if not proposals:
                continue
            response = await self._ask(proposals)
            code = None if response is None else response.error_code
            if response is None or code is not ErrorCode.NONE:
                self._put_back(proposals)
            else:
                self._hand_out(proposals, response)
            # Who asks the very same again has learnt nothing. Asked at once, the two of us would do nothing else (row 14).
            if any(self._proposals.get(tp) == item for tp, item in proposals.items()):
                failures += 1
                self._wake.set()
                slowly = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                policy = ALTER_ISR_UNAUTHORIZED if slowly else ALTER_ISR
                await self._clock.sleep(policy.pause_s(self._rand, failures))
            else:
                failures = 0

    async def _due(self) -> None:
        """Returns when there is something to ask for, and what may wait for company has waited."""
        await self._wake.wait()
        self._wake.clear()
        while (left_s := self._window.left_s(self._clock.now())) > 0:
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    def _take(self) -> Proposals:
        """The oldest ones, as many as fit into one request; the others go with the next one."""
        taken: Proposals = {}
        left = REQUEST_BYTES
        for tp, item in self._proposals.items():
            left -= len(tp.topic) + len(item[0]) + (6 + 3 * len(item[1].isr)) * _INT
            if taken and left < 0:
                break
            taken[tp] = item
        for tp in taken:
            del self._proposals[tp]
        self._window.taken()
        if self._proposals:
            self._at_once()
        return taken

    def _put_back(self, proposals: Proposals) -> None:
        """Before those that came meanwhile; a newer one of the same partition stays."""
        self._proposals = proposals | self._proposals
        self._at_once()

    def _at_once(self) -> None:
        self._window.add(self._clock.now(), may_wait=False)
        self._wake.set()

    async def _ask(self, proposals: Proposals) -> m.AlterIsrResponse | None:
        """None: nobody knows what became of it; it must be sent again, and never taken back (HOLE-52).

        Sent again it has another number, and only the answer to that one counts: the controller judges none that is older.
        """
        request = m.AlterIsrRequest(
            broker_id=self._settings.broker_id,
            broker_epoch=self._broker_epoch(),
            controller_epoch=self._controller_epoch(),
            sequence=next(self._sequences),
            topics=_by_topic(self._settings.broker_id, proposals),
        )
        CAUSE.set(self._cause)
        try:
            response = await self._link.call(CONTROLLER_SERVICE_ALTER_ISR, request, self._settings.timeout_s)
        except (TransportError, TidelogError) as error:
            _log.info("AlterIsr is sent again: %s", error)
            self._on_answer(error.code.name if isinstance(error, TidelogError) else NO_ANSWER)
            return None
        code = response.error_code
        self._on_answer(code.name)
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            _log.error("AlterIsr refused: %s; this broker's ISRs stand still until an operator permits it", code.name)
        elif code is not ErrorCode.NONE:
            _log.info("AlterIsr refused: %s", code.name)
        if code is ErrorCode.NOT_CONTROLLER:
            self._link.look_again()
        return response

    def _hand_out(self, proposals: Proposals, response: m.AlterIsrResponse) -> None:
        answers = {
            TopicPartition(topic.topic, part.partition_id): part
            for topic in response.topics
            for part in topic.partitions
        }
        for tp, (topic_id, proposal) in proposals.items():
            part = answers.get(tp)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if part is None else part.error_code
            if code is ErrorCode.INVALID_REQUEST:
                _log.error("the controller finds no sense in an ISR change of %s, which is a bug: %s", tp, proposal)
            self._replicas.isr_answered(tp, topic_id, proposal, code, None if part is None else part.leader_and_isr)


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
