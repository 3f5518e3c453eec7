#!/usr/bin/env python3
"""Kills the leader of a partition with SIGKILL under a load with acks=all, starts it again, and gives the verdict.

`--on local` takes the running cluster of `tidelog local up`; if there is none it starts one of its own and ends it
afterwards. `--on compose` takes the containers of `docker compose up`. The killed broker is started again whatever happens.

Ends with 0 when every promise was kept, 1 when one was broken, 3 when there is no verdict (the fault did not take effect, the
cluster is not there), 130 after Ctrl-C.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from tidelog.chaos.kill_leader import FaultMissed, KillLeader, Scenario, Verdict
from tidelog.chaos.ledger import Ledger
from tidelog.chaos.readback import CannotRead
from tidelog.cluster.api import Cluster, ClusterError, State
from tidelog.cluster.compose import ComposeCluster
from tidelog.cluster.local import LocalCluster
from tidelog.errors import TidelogError
from tidelog.runtime.clock import SystemClock

ROOT = Path(__file__).resolve().parent.parent.parent
LOCAL_BASE = ROOT / "data" / "local"
EXIT_NO_VERDICT = 3
EXIT_INTERRUPTED = 130


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, interrupt)
    console = Console()
    clock = SystemClock()
    started = clock.now()

    def say(what: str) -> None:
        console.print(f"[dim]{clock.now() - started:6.1f} s[/dim]  {what}", highlight=False, soft_wrap=True)

    try:
        with tempfile.TemporaryDirectory() as folder, open_cluster(options, say) as cluster:
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


@contextlib.contextmanager
def open_cluster(options: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Cluster]:
    if options.on == "compose":
        compose = ComposeCluster(ROOT, options.project)
        with contextlib.closing(compose):
            check_runs(compose)
            yield compose
        return
    local = LocalCluster(options.base)
    if any(row.state is not State.STOPPED for row in (local.status() if local.names() else ())):
        check_runs(local)
        yield local
        return
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder)) as own:
        say(f"no cluster runs in {options.base}; starting one")
        own.up()
        yield own


def check_runs(cluster: Cluster) -> None:
    down = [row.name for row in cluster.status() if row.state is not State.RUNNING]
    if down:
        raise ClusterError(f"{', '.join(down)} must run before a fault is made")


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


def interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kill_leader.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("topic", nargs="?", help="default: a new one; created if it is not there")
    parser.add_argument("partition", nargs="?", type=int, default=0)
    parser.add_argument("--on", choices=("local", "compose"), default="local")
    parser.add_argument("--base", type=Path, default=LOCAL_BASE, help="directory of the local cluster")
    parser.add_argument("--project", default="tidelog", help="Compose project")
    parser.add_argument("--rate", type=int, default=1_000, help="records per second")
    parser.add_argument("--down", type=float, default=5.0, help="seconds until the broker is started again")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
