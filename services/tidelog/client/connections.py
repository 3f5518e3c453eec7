"""The ports that a client needs, and the real ones for entry points."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from tidelog.client.produce_link import ProduceLink
from tidelog.ids import LOCALHOST, Address
from tidelog.ports.clock import Clock
from tidelog.ports.net import Channel, Net
from tidelog.ports.rand import Rand
from tidelog.ports.recorder import SILENT, Recorder
from tidelog.sizes import FETCH_MAX_BYTES

BOOTSTRAP_VARIABLE: Final = "TIDELOG_BOOTSTRAP_SERVERS"

Bootstrap = str | Sequence[str | Address] | None
"""Brokers to ask first: "host:port,host:port", a list of them, or None for `BOOTSTRAP_VARIABLE`, else `LOCALHOST`."""


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
    recorder: Recorder = SILENT
    watch_port: int = 0
    """The port at which this process shows the protocol events that `recorder` keeps; 0: nowhere."""


def real_ports(max_bytes: int = 0) -> ClientPorts:
    """System clock, gRPC and random numbers. Call it in the process that uses them: gRPC does not survive a fork.

    `max_bytes`: of a fetch's answer, where that is more than the default of a broker.
    """
    import random

    from tidelog.runtime.clock import SystemClock
    from tidelog.runtime.rpc_net import GrpcNet
    from tidelog.runtime.rpc_options import Limits

    limits = Limits(answer_bytes=max(FETCH_MAX_BYTES, max_bytes))
    return ClientPorts(SystemClock(), GrpcNet(limits), random.Random())


def parse_bootstrap(bootstrap: Bootstrap) -> list[Address]:
    """Addresses of the brokers to ask first. TypeError or ValueError name what is wrong."""
    if bootstrap is None:
        named = os.environ.get(BOOTSTRAP_VARIABLE)
        try:
            return parse_bootstrap(named) if named else list(LOCALHOST)
        except ValueError as error:
            raise ValueError(f"{BOOTSTRAP_VARIABLE}: {error}") from None
    if isinstance(bootstrap, str):
        bootstrap = [part.strip() for part in bootstrap.split(",") if part.strip()]
    if not isinstance(bootstrap, Sequence) or not all(isinstance(each, str | Address) for each in bootstrap):
        raise TypeError(f"bootstrap {bootstrap!r} is not text like 'host:port,host:port', nor a list of addresses")
    return [each if isinstance(each, Address) else Address.parse(each) for each in bootstrap]


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
