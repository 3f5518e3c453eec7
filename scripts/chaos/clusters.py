"""The cluster that a script of this directory works on, and the exit codes of the script."""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tidelog.chaos.clusters import opened
from tidelog.chaos.faults.base import On
from tidelog.cluster.api import Cluster, ClusterError, State
from tidelog.cluster.choice import Choice, choose, local_runs
from tidelog.cluster.local import LocalCluster

ROOT = Path(__file__).resolve().parent.parent.parent
LOCAL_BASE = ROOT / "data" / "local"
PROJECT = "tidelog"
EXIT_NO_VERDICT = 3
EXIT_INTERRUPTED = 130


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--on", choices=("local", "compose"), help="default: the cluster that runs")
    parser.add_argument("--base", type=Path, default=LOCAL_BASE, help="directory of the local cluster")
    parser.add_argument("--project", help=f"Compose project; default with --on compose: {PROJECT}")


def chosen(options: argparse.Namespace) -> Choice:
    """The cluster that the options name, else TIDELOG_BOOTSTRAP_SERVERS, else the one that runs. Standard error tells a choice
    that no option made. ClusterError."""
    if options.on == On.COMPOSE or (options.on is None and options.project):
        return Choice(project=options.project or PROJECT)
    if options.on == On.LOCAL or options.base != LOCAL_BASE:
        return Choice(local=options.base)
    found = choose(options.base, os.environ.get("TIDELOG_BOOTSTRAP_SERVERS"), options="--on and --base or --project")
    print(f"on {found.told}", file=sys.stderr)
    return found


@contextlib.contextmanager
def open_cluster(
    choice: Choice, say: Callable[[str], None], *, links_through_proxy: bool = False, zookeepers: int = 1
) -> Iterator[Cluster]:
    """The one that runs; locally, where none runs whose links can be cut if they have to be, one for this script alone."""
    runs = choice.local is not None and local_runs(choice.local)
    if choice.project is not None or (runs and not links_through_proxy):
        with opened(choice, ROOT) as cluster:
            check_runs(cluster)
            yield cluster
        return
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder)) as own:
        why = f"the links of {choice.told} cannot be cut" if runs else "no cluster runs"
        say(f"{why}; starting one in {folder}")
        own.up(links_through_proxy=links_through_proxy, zookeepers=zookeepers)
        yield own


def check_runs(cluster: Cluster) -> None:
    down = [row.name for row in cluster.status() if row.state is not State.RUNNING]
    if down:
        raise ClusterError(f"{', '.join(down)} must run before a fault is made")
