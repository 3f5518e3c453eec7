"""The ports that a client needs, and the real ones for entry points."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tidelog.client.produce_link import ProduceLink
from tidelog.ids import Address
from tidelog.ports.clock import Clock
from tidelog.ports.net import Channel, Net
from tidelog.ports.rand import Rand


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds for which a client tries again where a further try is unlikely to help. Its other limits end it earlier."""

    unreachable_s: float = inf
    """While no broker has ever answered, and every address refuses connections or has no host."""
    unknown_topic_s: float = inf
    """While brokers answer that a topic does not exist, which they do for a moment after its creation."""


@dataclass(frozen=True, slots=True)
class ClientPorts:
    clock: Clock
    net: Net
    rand: Rand
    patience: Patience = Patience()


def real_ports() -> ClientPorts:
    """System clock, gRPC and random numbers. Call it in the process that uses them: gRPC does not survive a fork."""
    import random

    from tidelog.runtime.clock import SystemClock
    from tidelog.runtime.rpc_net import GrpcNet

    return ClientPorts(SystemClock(), GrpcNet(), random.Random())


def parse_bootstrap(bootstrap: str | Sequence[Address]) -> list[Address]:
    """`host:port,host:port` or addresses; ValueError names what is wrong."""
    if isinstance(bootstrap, str):
        return [Address.parse(part.strip()) for part in bootstrap.split(",") if part.strip()]
    return list(bootstrap)


class Connections:
    """One channel for each address and purpose, opened at first use."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._channels: dict[tuple[Address, str, bool], Channel] = {}
        self._produce_links: dict[Address, ProduceLink] = {}

    def to(self, address: Address, purpose: str, *, to_anyone: bool = False) -> Channel:
        """`purpose` keeps a parked long poll away from metadata calls: see `ports.net.Net.channel`."""
        key = (address, purpose, to_anyone)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._net.channel(address, purpose=purpose, to_anyone=to_anyone)
        return channel

    def produce_link(self, address: Address) -> ProduceLink:
        link = self._produce_links.get(address)
        if link is None:
            link = self._produce_links[address] = ProduceLink(self.to(address, "produce"))
        return link

    async def close(self) -> None:
        for link in self._produce_links.values():
            await link.close()
        self._produce_links.clear()
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()
