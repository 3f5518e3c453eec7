"""Controlled shutdown (F-12): a broker asks to leave, and is answered when nothing that could move is left with it.

The mark is the whole mechanism. A marked broker is ineligible like a suspect: the one rule for partitions moves what it
leads, takes it out of every ISR that has another member, and neither elects it nor lets it back in (HOLE-20, HOLE-33). The
controller is the only writer of the states, so it decides on its own copy and reads nothing again (HOLE-15, C2.04).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelog.controller.effects import Reply
from tidelog.controller.events import ControlledShutdownRequested, Token
from tidelog.controller.model import Broker, ClusterState, Partition
from tidelog.controller.outbox import Outbox
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId
from tidelog.wire import messages as m


@dataclass(slots=True)
class _Leaving:
    waiting: list[Token] = field(default_factory=list)
    unsettled: dict[Partition, None] = field(default_factory=dict)
    """Its partitions with a write in flight."""


class ShutdownDesk:
    """Of one term: a new controller knows of no shutdown until the broker asks again, which it does."""

    def __init__(self, state: ClusterState, out: Outbox) -> None:
        self._state = state
        self._out = out
        self._leaving: dict[BrokerId, _Leaving] = {}

    def begin(self, event: ControlledShutdownRequested) -> list[Partition]:
        """Marks the broker; the caller settles these partitions of it, then calls `answer`."""
        broker_id = BrokerId(event.request.broker_id)
        broker = self._state.brokers.get(broker_id)
        if broker is None or broker.epoch != event.request.broker_epoch:
            # A request of a life that is over must not move the leaders of the next one (HOLE-07).
            self._refuse(event.token)
            return []
        self._state.shutting_down |= {broker_id}
        self._leaving.setdefault(broker_id, _Leaving()).waiting.append(event.token)
        return self._state.led_first(broker_id)

    def answer(self, broker_id: BrokerId) -> None:
        """Replies once no write about the broker's partitions is in flight."""
        leaving = self._leaving.get(broker_id)
        if leaving is None or not leaving.waiting:
            return
        mine = self._state.partitions_on(broker_id).values()
        leaving.unsettled = {each: None for each in mine if self._moves(broker_id, each)}
        if not leaving.unsettled:
            # No write will carry the news to leaders whose followers it is among.
            self._out.brokers_changed()
            self._reply(broker_id, leaving)

    def settled(self, partition: Partition) -> None:
        """A write of `partition` is over, and what follows from it has been begun."""
        for broker_id, leaving in self._leaving.items():
            if partition in leaving.unsettled and not self._moves(broker_id, partition):
                del leaving.unsettled[partition]
                if not leaving.unsettled:
                    self._reply(broker_id, leaving)

    def ended(self, broker: Broker) -> None:
        """This life of the broker is over; the next one stays."""
        self._state.shutting_down -= {broker.broker_id}
        leaving = self._leaving.pop(broker.broker_id, None)
        for token in () if leaving is None else leaving.waiting:
            self._refuse(token)

    def validate(self) -> None:
        """Asserts that nobody waits for nothing."""
        assert self._leaving.keys() == self._state.shutting_down <= self._state.brokers.keys()
        for broker_id, leaving in self._leaving.items():
            assert bool(leaving.waiting) == bool(leaving.unsettled), f"broker {broker_id}: {leaving}"

    @staticmethod
    def _moves(broker_id: BrokerId, partition: Partition) -> bool:
        """A write is under way in which `broker_id` has a part, so what becomes of it is not known yet."""
        state, writing = partition.state, partition.writing
        if writing is None or partition.topic.deleting:
            return False
        # An expansion with it may be the one under way: what is in force does not show it yet (HOLE-15).
        members = writing.isr if state is None else (*state.isr, *writing.isr)
        return any(member.broker_id == broker_id for member in members)

    def _reply(self, broker_id: BrokerId, leaving: _Leaving) -> None:
        remaining = tuple(
            m.RemainingPartition(topic=partition.tp.topic, partition=partition.tp.partition)
            for partition in self._remaining(broker_id)
        )
        for token in leaving.waiting:
            self._out.reply(Reply(token, m.ControlledShutdownResponse(partitions_remaining=remaining)))
        leaving.waiting.clear()

    def _remaining(self, broker_id: BrokerId) -> Iterator[Partition]:
        """Led by it still, although a live replica that stays may yet come into sync: worth asking again."""
        staying = self._state.brokers.keys() - self._state.shutting_down
        for partition in self._state.partitions_on(broker_id).values():
            led = partition.state is not None and partition.state.leader == broker_id
            if led and not partition.topic.deleting and not staying.isdisjoint(partition.replicas):
                yield partition

    def _refuse(self, token: Token) -> None:
        self._out.reply(Reply(token, m.ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)))
