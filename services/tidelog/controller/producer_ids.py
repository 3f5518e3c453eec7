"""Blocks of producer ids for brokers to hand out, each given once for the life of the cluster (KIP-730, HOLE-28). Pure."""

from collections import deque
from typing import Final

from tidelog.controller.effects import Outcome, ProducerIdsWrite, Reply
from tidelog.controller.events import ProducerIdsRequested, Token
from tidelog.controller.model import ClusterState
from tidelog.controller.outbox import Outbox
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId
from tidelog.wire import messages as m
from tidelog.wire import znodes

BLOCK_IDS: Final = 1_000
PRODUCER_ID_MAX: Final = 2**63 - 1


class ProducerIdDesk:
    """One block is written at a time; who asks meanwhile gets the next one."""

    def __init__(self, state: ClusterState, out: Outbox) -> None:
        self._state = state
        self._out = out
        self._next_id = 0
        self._version = znodes.NO_VERSION
        self._waiting: deque[tuple[Token, BrokerId]] = deque()
        self._writing: ProducerIdsWrite | None = None

    def restored(self, stored: tuple[znodes.ProducerIdBlock, int] | None) -> None:
        """What a new controller finds, with the version of the znode."""
        if stored is not None:
            self._next_id, self._version = stored[0].last_id + 1, stored[1]

    def requested(self, event: ProducerIdsRequested) -> None:
        asker = BrokerId(event.request.broker_id)
        broker = self._state.brokers.get(asker)
        if broker is None or broker.epoch != event.request.broker_epoch:
            self._refuse(event.token, ErrorCode.STALE_BROKER_EPOCH)
            return
        if znodes.PRODUCER_IDS in self._state.unread:  # none may be given twice, and which one is next is not known
            self._refuse(event.token, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._waiting.append((event.token, asker))
        self._write_next()

    def _write_next(self) -> None:
        if self._writing is not None or not self._waiting:
            return
        last_id = self._next_id + BLOCK_IDS - 1
        if last_id > PRODUCER_ID_MAX:
            self._refuse(self._waiting.popleft()[0], ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        block = znodes.ProducerIdBlock(self._waiting[0][1], self._next_id, last_id)
        self._writing = ProducerIdsWrite(block, self._version)
        self._out.write(self._writing)

    def written(self, group: ProducerIdsWrite, outcome: Outcome) -> None:
        if outcome is Outcome.WRITTEN:
            self._next_id, self._version = group.block.last_id + 1, group.version + 1
            token, _ = self._waiting.popleft()
            answer = m.AllocateProducerIdsResponse(producer_id_start=group.block.first_id, producer_id_len=BLOCK_IDS)
            self._out.reply(Reply(token, answer))
            self._go_on()
        elif outcome is Outcome.REFUSED:
            self._refuse(self._waiting.popleft()[0], ErrorCode.UNKNOWN_SERVER_ERROR)
            self._go_on()
        else:
            self._out.examine(group)

    def examined(self, group: ProducerIdsWrite, found: tuple[bytes, int] | None) -> None:
        """After a conflict or an unknown outcome the block that was to be written is given to nobody: there are enough."""
        self._next_id, self._version = group.block.last_id + 1, znodes.NO_VERSION
        if found is not None:
            stored = znodes.decode_producer_ids(found[0])
            self._next_id, self._version = max(self._next_id, stored.last_id + 1), found[1]
        self._go_on()

    def _go_on(self) -> None:
        self._writing = None
        self._write_next()

    def _refuse(self, token: Token, code: ErrorCode) -> None:
        self._out.reply(
            Reply(token, m.AllocateProducerIdsResponse(error_code=code, producer_id_start=-1, producer_id_len=0))
        )
