"""B2 and B1J: how much acks=all moves, against a bare gRPC stream and against JetStream.

B2-relay and B1J-relay put a relay of bare gRPC streams in our place: three files and nothing of a log. They say how much of a
target is in reach of the library on this machine.
"""

import os
from contextlib import AsyncExitStack
from typing import Final

from bench.bare import BareServer
from bench.cluster import BATCH_BYTES, RECORD_BYTES, REPLICAS, BenchCluster, batch_of
from bench.harness import Bench, CannotRun, Line, Measure, NoFigure, compared, take_turns
from bench.jetstream import JetStream
from bench.relay import Relay

WINDOW: Final = 32
PARTITIONS: Final = 1
"""One leader, as JetStream's stream and the bare server have: the same number of requests in flight at one place."""
MB: Final = 1e-6
NAMES: Final = ("B2", "B1J")


async def run(bench: Bench) -> list[Line]:
    batch, value = batch_of(BATCH_BYTES), os.urandom(RECORD_BYTES)
    lines: list[Line] = []
    async with AsyncExitStack() as stack:
        # First: while it starts it asks brokers on an event loop of its own, and gRPC suffers no other beside it.
        cluster = await stack.enter_async_context(BenchCluster(bench.directory / "cluster"))
        measures: dict[str, Measure] = {}
        if "B2" in bench.wanted:
            bare = await stack.enter_async_context(BareServer())
            measures["bare stream"] = lambda s: bare.stream_rate(batch, WINDOW, s)
        if "B1J" in bench.wanted:
            try:
                peer = await stack.enter_async_context(JetStream(bench.directory / "jetstream"))
                measures["JetStream"] = lambda s: peer.publish_rate(batch, WINDOW, s)
            except CannotRun as reason:
                lines.append(NoFigure("B1J", str(reason)))
        references = tuple(measures)
        if not references:
            return lines
        relay = await stack.enter_async_context(Relay(bench.directory / "relay"))
        measures["relay"] = lambda s: relay.rate(batch, WINDOW, s)
        measures["ours"] = lambda s: cluster.rate(batch, WINDOW, PARTITIONS, s)
        measures["producer"] = lambda s: cluster.producer_rate(value, PARTITIONS, s)
        taken = await take_turns(bench, measures, references)

    def line(name: str, ours: str, reference: str, target: str, copies: int, what: str) -> Line:
        return compared(
            name, taken[ours], taken[reference], unit="MB/s", times=MB, target=target, divided_by=copies, what=what
        )

    if "bare stream" in taken:
        what = f" of a bare stream, divided by {REPLICAS} copies"
        lines.append(line("B2", "ours", "bare stream", "at least 0.4", REPLICAS, what))
        lines.append(line("B2-relay", "relay", "bare stream", "reported", REPLICAS, what))
        lines.append(line("B2-producer", "producer", "bare stream", "reported", REPLICAS, what))
    if "JetStream" in taken:
        what = " of JetStream, three servers, R3, files"
        lines.append(line("B1J", "ours", "JetStream", "at least 1.2", 1, what))
        lines.append(line("B1J-relay", "relay", "JetStream", "reported", 1, what))
        lines.append(line("B1J-producer", "producer", "JetStream", "reported", 1, what))
    return lines
