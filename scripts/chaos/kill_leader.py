#!/usr/bin/env python3
"""Kills the leader of a partition with SIGKILL under a load with acks=all, starts it again, and gives the verdict.

`--on local` takes the running cluster of `tidelog local up`; if there is none it starts one of its own and ends it
afterwards. `--on compose` takes the containers of `docker compose up`. The killed broker is started again whatever happens.

Ends with 0 when every promise was kept, 1 when one was broken, 3 when there is no verdict (the fault did not take effect, the
cluster is not there), 130 after Ctrl-C.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from random import Random

from clusters import EXIT_INTERRUPTED, EXIT_NO_VERDICT, add_options, open_cluster
from rich.console import Console
from rich.table import Table

from tidelog.chaos.faults.base import FaultMissed, ends_as_interrupt
from tidelog.chaos.kill_leader import KillLeader, Scenario, Verdict
from tidelog.chaos.ledger import Ledger
from tidelog.chaos.readback import CannotRead
from tidelog.cluster.api import ClusterError
from tidelog.errors import TidelogError
from tidelog.runtime.clock import SystemClock


def main() -> int:
    options = arguments()
    console = Console()
    clock = SystemClock()
    started = clock.now()

    def say(what: str) -> None:
        console.print(f"[dim]{clock.now() - started:6.1f} s[/dim]  {what}", highlight=False, soft_wrap=True)

    try:
        with ends_as_interrupt(), tempfile.TemporaryDirectory() as folder, open_cluster(options, say) as cluster:
            ledger = Ledger(Path(folder) / "ledger", writable=True)
            rand = Random()
            topic = options.topic or f"chaos-{rand.randbytes(3).hex()}"
            scenario = Scenario(topic, options.partition, options.rate, down_s=options.down)
            verdict = asyncio.run(KillLeader(cluster, scenario, ledger, clock, rand, say).run())
    except KeyboardInterrupt:
        print("kill_leader: interrupted; the cluster was put back", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (ClusterError, TidelogError, FaultMissed, CannotRead, OSError) as error:
        print(f"kill_leader: no verdict: {error}", file=sys.stderr)
        return EXIT_NO_VERDICT
    console.print(table(verdict))
    broken = verdict.broken()
    console.print(f"[bold red]BROKEN: {', '.join(broken)}[/]" if broken else "[bold green]Every promise was kept.[/]")
    return 1 if broken else 0


def table(verdict: Verdict) -> Table:
    found = verdict.found
    rows = [
        ("killed", verdict.victim),
        ("sent", f"{verdict.sent:,}"),
        ("acked", f"{verdict.acked:,}"),
        ("refused", f"{verdict.refused:,}"),
        ("unknown outcome", f"{verdict.unknown:,}"),
        ("read", f"{found.read:,}"),
        ("lost", f"{found.lost:,}"),
        ("duplicated", f"{found.duplicated:,}"),
        ("out of order", f"{found.out_of_order:,}"),
        ("elections of the partition", f"{verdict.elections}"),
        ("its longest time without an ack", f"{verdict.longest_without_ack_s:.2f} s"),
        ("restart until every ISR was full", f"{verdict.full_isr_s:.2f} s"),
    ]
    made = Table("what", "how much")
    made.columns[1].justify = "right"
    for row in rows:
        made.add_row(*row)
    return made


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kill_leader.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("topic", nargs="?", help="default: a new one; created if it is not there")
    parser.add_argument("partition", nargs="?", type=int, default=0)
    add_options(parser)
    parser.add_argument("--rate", type=int, default=1_000, help="records per second")
    parser.add_argument("--down", type=float, default=5.0, help="seconds until the broker is started again")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
