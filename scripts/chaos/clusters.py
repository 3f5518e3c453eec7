"""Which cluster a script of this directory works on, and how it ends."""

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tidelog.cluster.api import Cluster, ClusterError, State
from tidelog.cluster.compose import ComposeCluster
from tidelog.cluster.local import LocalCluster

ROOT = Path(__file__).resolve().parent.parent.parent
LOCAL_BASE = ROOT / "data" / "local"
EXIT_NO_VERDICT = 3
EXIT_INTERRUPTED = 130


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--on", choices=("local", "compose"), default="local")
    parser.add_argument("--base", type=Path, default=LOCAL_BASE, help="directory of the local cluster")
    parser.add_argument("--project", default="tidelog", help="Compose project")


@contextlib.contextmanager
def open_cluster(
    options: argparse.Namespace, say: Callable[[str], None], *, links_through_proxy: bool = False, zookeepers: int = 1
) -> Iterator[Cluster]:
    """The one that runs; locally, where none runs whose links can be cut if they have to be, one for this script alone."""
    if options.on == "compose":
        compose = ComposeCluster(ROOT, options.project)
        with contextlib.closing(compose):
            check_runs(compose)
            yield compose
        return
    local = LocalCluster(options.base)
    runs = any(row.state is not State.STOPPED for row in (local.status() if local.names() else ()))
    if runs and not links_through_proxy:
        check_runs(local)
        yield local
        return
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder)) as own:
        why = f"the links of the one in {options.base} cannot be cut" if runs else f"no cluster runs in {options.base}"
        say(f"{why}; starting one in {folder}")
        own.up(links_through_proxy=links_through_proxy, zookeepers=zookeepers)
        yield own


def check_runs(cluster: Cluster) -> None:
    down = [row.name for row in cluster.status() if row.state is not State.RUNNING]
    if down:
        raise ClusterError(f"{', '.join(down)} must run before a fault is made")
