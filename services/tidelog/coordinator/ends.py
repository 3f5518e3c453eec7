"""Where logs end: one ListOffsets to each leader that is concerned."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.ports.net import Channel, Net
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.limits import parts_by

TIMEOUT_S: Final = 2.0
LATEST: Final = -1

LeaderOf = Callable[[TopicPartition], m.PartitionState | None]
AddressOf = Callable[[int], Address | None]
Ends = dict[TopicPartition, int | None]


class EndFinder:
    """Asks brokers as any client does. A connection stays for as long as its broker keeps its address."""

    def __init__(self, net: Net, leader_of: LeaderOf, address_of: AddressOf) -> None:
        self._net = net
        self._leader_of = leader_of
        self._address_of = address_of
        self._channels: dict[BrokerId, tuple[Address, Channel]] = {}

    async def find(self, partitions: Sequence[TopicPartition]) -> Ends:
        """High watermarks; None where no leader has told within two seconds."""
        ends: Ends = dict.fromkeys(partitions)
        wanted: list[tuple[BrokerId, m.ListOffsetsPartition]] = []
        for topic, partition in partitions:
            state = self._leader_of(TopicPartition(topic, partition))
            if state is not None and state.leader >= 0:
                asked = m.ListOffsetsPartition(
                    topic=topic,
                    partition=partition,
                    leader_epoch=state.leader_epoch,
                    timestamp=LATEST,
                    topic_id=state.topic_id,
                )
                wanted.append((BrokerId(state.leader), asked))
        async with asyncio.TaskGroup() as group:
            for leader, asked_of in parts_by(m.ListOffsetsRequest, wanted):
                group.create_task(self._ask(leader, asked_of, ends))
        return ends

    async def close(self) -> None:
        for _, channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _ask(self, leader: BrokerId, asked: tuple[m.ListOffsetsPartition, ...], ends: Ends) -> None:
        channel = await self._channel(leader)
        if channel is None:
            return
        request = m.ListOffsetsRequest(partitions=asked)
        try:
            answer = await channel.call(s.REPLICA_SERVICE_LIST_OFFSETS, request, TIMEOUT_S)
        except TransportError:
            return
        for each in answer.results:
            tp = TopicPartition(each.topic, each.partition)
            if each.error_code is ErrorCode.NONE and tp in ends:
                ends[tp] = each.offset

    async def _channel(self, broker_id: BrokerId) -> Channel | None:
        address = self._address_of(broker_id)
        known = self._channels.get(broker_id)
        if known is not None and known[0] == address:
            return known[1]
        if known is not None:
            del self._channels[broker_id]
            await known[1].close()
        if address is None:
            return None
        # Again, for another call may have opened one while this one waited.
        if broker_id not in self._channels:
            self._channels[broker_id] = address, self._net.channel(address, purpose="coordinator")
        return self._channels[broker_id][1]
