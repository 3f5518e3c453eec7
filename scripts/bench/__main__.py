"""`make bench`, `make bench ONLY=B2,B5`: runs the benchmarks and prints one line a figure."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench import (
    catchup,
    checker,
    client_rate,
    commands,
    compact,
    failover,
    group_moves,
    group_scale,
    group_stops,
    hostile,
    lab,
    latency,
    leaving,
    many,
    moves,
    partitions,
    pipeline_read,
    pipeline_sink,
    pipeline_stream,
    purity,
    reassign,
    replication,
    rolling,
    throughput,
    versus_kafka,
    watch,
    writes,
)
from bench.harness import FULL, SMOKE, Bench, Line, Scale
from tidelog.runtime import loop

Run = Callable[[Bench], Awaitable[Sequence[Line]]]
GROUPS: Final[Mapping[tuple[str, ...], Run]] = {
    # figures that share a cluster -> what measures them
    throughput.NAMES: throughput.run,
    latency.NAMES: latency.run,
    failover.NAMES: failover.run,
    partitions.NAMES: partitions.run,
    many.NAMES: many.run,
    writes.NAMES: writes.run,
    leaving.NAMES: leaving.run,
    rolling.NAMES: rolling.run,
    catchup.NAMES: catchup.run,
    purity.NAMES: purity.run,
    replication.NAMES: replication.run,
    group_scale.NAMES: group_scale.run,
    group_moves.NAMES: group_moves.run,
    group_stops.NAMES: group_stops.run,
    moves.NAMES: moves.run,
    reassign.NAMES: reassign.run,
    compact.NAMES: compact.run,
    versus_kafka.NAMES: versus_kafka.run,
    checker.NAMES: checker.run,
    client_rate.NAMES: client_rate.run,
    commands.NAMES: commands.run,
    lab.NAMES: lab.run,
    watch.NAMES: watch.run,
    pipeline_read.NAMES: pipeline_read.run,
    pipeline_stream.NAMES: pipeline_stream.run,
    pipeline_sink.NAMES: pipeline_sink.run,
    hostile.NAMES: hostile.run,
}
FIGURES: Final = tuple(name for names in GROUPS for name in names)


def chosen(text: str) -> frozenset[str]:
    """`B2,b5` as names; argparse reports the ValueError."""
    names = frozenset(name.strip().upper() for name in text.split(",") if name.strip())
    if unknown := sorted(names - set(FIGURES)):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(FIGURES)}")
    return names or frozenset(FIGURES)


async def measure(wanted: frozenset[str], scale: Scale) -> list[Line]:
    """Runs each group that holds a wanted figure, printing its lines as they come."""
    lines: list[Line] = []
    for names, run in GROUPS.items():
        if not wanted & set(names):
            continue
        directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir="/var/tmp"))  # /tmp may be memory
        bench = Bench(scale, directory, wanted & frozenset(names))
        bench.say(f"{', '.join(sorted(bench.wanted))}")
        try:
            found = await run(bench)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        for line in found:
            print(line.line(), flush=True)
        lines += found
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench",
        description=__doc__,
        epilog="\n".join(
            sorted((sys.modules[run.__module__].__doc__ or "").partition("\n")[0] for run in GROUPS.values())
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", type=chosen, default=frozenset(FIGURES), help=f"some of {', '.join(FIGURES)}")
    parser.add_argument("--smoke", action="store_true", help="as short as can be; the figures mean nothing")
    arguments = parser.parse_args()
    print(f"grpcio {version('grpcio')}, Python {sys.version.split()[0]}", flush=True)
    loop.run(measure(arguments.only, SMOKE if arguments.smoke else FULL))


if __name__ == "__main__":
    main()
