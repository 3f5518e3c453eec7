"""B5 and B16: what one record waits, alone and beside others, and what batching brings. B5-relay: as B2-relay."""

from typing import Final

from bench.bare import BareServer
from bench.cluster import BATCH_BYTES, RECORD_BYTES, BenchCluster, Probe, batch_of
from bench.harness import Bench, Line, compared, percentile, take_turns
from bench.relay import Relay
from bench.throughput import PARTITIONS, WINDOW

MS: Final = 1e3
NAMES: Final = ("B5", "B16")


async def run(bench: Bench) -> list[Line]:
    record, batch = batch_of(RECORD_BYTES), batch_of(BATCH_BYTES)
    lines: list[Line] = []
    async with (
        BenchCluster(bench.directory / "cluster") as cluster,
        BareServer() as bare,
        Relay(bench.directory / "relay") as relay,
    ):
        topic = await cluster.new_topic(PARTITIONS)
        async with Probe(topic, cluster.addresses) as probe:
            await probe.wait_known(PARTITIONS)
            if "B5" in bench.wanted:
                taken = await take_turns(
                    bench,
                    {
                        "unary": lambda s: bare.round_trip_p50(record, s),
                        "ours": lambda s: probe.p50(record, s),
                        "relay": lambda s: relay.p50(record, s),
                        "single records": lambda s: probe.rate(record, WINDOW, s),
                        "batches": lambda s: cluster.rate(batch, WINDOW, PARTITIONS, s),
                    },
                    references=("unary", "single records"),
                )
                lines += [
                    compared(
                        *("B5", taken["ours"], taken["unary"]),
                        unit="ms",
                        times=MS,
                        target="at most 3",
                        what=" of a bare unary call; p50, one at a time",
                    ),
                    compared(
                        *("B5-relay", taken["relay"], taken["unary"]),
                        unit="ms",
                        times=MS,
                        target="reported",
                        what=" of a bare unary call; ours: three bare gRPC processes with a file each",
                    ),
                    compared(
                        *("B5-batching", taken["batches"], taken["single records"]),
                        unit="MB/s",
                        times=1e-6,
                        target="at least 20",
                        what=" with one record a request",
                    ),
                ]
            if "B16" in bench.wanted:
                most = await cluster.rate(batch, WINDOW, PARTITIONS, bench.scale.seconds)
                bench.say(f"most {most * 1e-6:.4g} MB/s; half of it for B16")

                async def p99(seconds: float) -> float:
                    return percentile(await probe.paced(batch, most / 2, seconds), 0.99)

                taken = await take_turns(
                    bench, {"p50": lambda s: probe.p50(record, s), "p99": p99}, references=("p50",)
                )
                lines.append(
                    compared(
                        *("B16", taken["p99"], taken["p50"]),
                        unit="ms",
                        times=MS,
                        target="at most 20",
                        what=" p50 one at a time; ours: p99 at half of the maximum rate",
                    )
                )
    return lines
