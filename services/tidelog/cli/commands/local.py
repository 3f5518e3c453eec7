"""`tidelog local`: a cluster of plain processes on this machine, and faults for its processes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import completion
from tidelog.cli.connection import LOCAL_DIR, local_cluster
from tidelog.cli.errors import CommandError
from tidelog.cli.show import Format, FormatOption, note, print_json, print_table

if TYPE_CHECKING:
    from tidelog.cluster.local import LocalCluster

_WHY_MAX: Final = 80

app = typer.Typer(no_args_is_help=True, add_completion=False)

DirOption = Annotated[Path, typer.Option("--dir", help="Where the cluster keeps its files.")]
ProcessArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROCESS", help="As `tidelog local status` names it: broker-1.", autocompletion=completion.processes
    ),
]


def _cluster(base: Path) -> "LocalCluster":
    return local_cluster(base)


@app.command()
def up(
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="ID,ID,...", help="One broker for each id. Default: 0,1,2, or those it has."),
    ] = None,
    controllers: Annotated[
        int | None,
        typer.Option(
            "--controllers", min=1, help="One is active, the others stand by. Default: 2, or as many as it has."
        ),
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option(
            "--agents",
            min=0,
            help="Members of group agents, which count the records of topic events. Default: none, or as many as it has.",
        ),
    ] = None,
    base: DirOption = LOCAL_DIR,
    timeout_ms: Annotated[int, typer.Option("--timeout-ms", min=1, help="How long it may take to serve.")] = 60_000,
    output: FormatOption = Format.TEXT,
) -> None:
    """Start a cluster and leave it running; one that is there is completed, and grows where --brokers names further ones.
    Returns when every process serves.

    Example: tidelog local up --brokers 0,1,2
    """
    from tidelog.cluster.api import ClusterError
    from tidelog.cluster.free_ports import client_ports
    from tidelog.cluster.local import DEFAULT_BROKERS

    ids = None if brokers is None else _parse_ids(brokers)
    cluster = _cluster(base)
    new = not cluster.names()
    if output is Format.TEXT:
        note(f"starting {'a new' if new else 'the'} cluster in {base} ...")
    try:
        cluster.up(
            brokers=ids,
            controllers=controllers,
            agents=agents,
            client_ports=client_ports(len(ids or DEFAULT_BROKERS)) if new else (),
            outlive=True,
            timeout_s=timeout_ms / 1000,
        )
    except ClusterError as error:
        raise CommandError(str(error)) from None
    _print_status(cluster, output)
    if output is Format.TEXT:
        from tidelog.cluster.api import bootstrap_servers

        print(f"\nbootstrap servers: {bootstrap_servers(cluster)}")


@app.command()
def down(base: DirOption = LOCAL_DIR) -> None:
    """End every process of the cluster; its files stay, and `up` starts it again with them.

    Refused while a page or a chaos run breaks the cluster: when that ends, it starts what it has stopped.

    Example: tidelog local down
    """
    _act(base, _down)
    print(f"The cluster in {base} is down.")


def _down(cluster: "LocalCluster") -> None:
    from tidelog.cluster.breaking import breaking
    from tidelog.cluster.local import local_name

    with breaking(local_name(cluster.base)):
        cluster.down()


@app.command()
def status(base: DirOption = LOCAL_DIR, output: FormatOption = Format.TEXT) -> None:
    """Show every process: state, process id, ports, and why one that is stopped has ended.

    Example: tidelog local status --format json
    """
    _act(base, lambda cluster: _print_status(cluster, output))


@app.command()
def kill(process: ProcessArgument, base: DirOption = LOCAL_DIR) -> None:
    """SIGKILL a process; `tidelog local start` brings it back.

    Example: tidelog local kill broker-1
    """
    _act(base, lambda cluster: cluster.kill(process))
    print(f"{process} was killed.")


@app.command()
def start(process: ProcessArgument, base: DirOption = LOCAL_DIR) -> None:
    """Start a process that was killed or stopped.

    Example: tidelog local start broker-1
    """
    _act(base, lambda cluster: cluster.start(process))
    print(f"{process} runs.")


@app.command()
def stop(process: ProcessArgument, base: DirOption = LOCAL_DIR) -> None:
    """End a process in order (SIGTERM).

    Example: tidelog local stop broker-1
    """
    _act(base, lambda cluster: cluster.stop(process))
    print(f"{process} has ended.")


@app.command()
def pause(process: ProcessArgument, base: DirOption = LOCAL_DIR) -> None:
    """SIGSTOP a process: it lives, and does nothing.

    Example: tidelog local pause controller-1
    """
    _act(base, lambda cluster: cluster.pause(process))
    print(f"{process} is paused.")


@app.command()
def resume(process: ProcessArgument, base: DirOption = LOCAL_DIR) -> None:
    """SIGCONT a process that was paused.

    Example: tidelog local resume controller-1
    """
    _act(base, lambda cluster: cluster.resume(process))
    print(f"{process} runs again.")


@app.command()
def logs(
    process: ProcessArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1)] = 50,
    base: DirOption = LOCAL_DIR,
) -> None:
    """Print the newest lines that a process wrote.

    Example: tidelog local logs broker-1 -n 20
    """
    _act(base, lambda cluster: print(cluster.logs(process, lines).rstrip()))


def _act(base: Path, action: Any) -> None:
    from tidelog.cluster.api import ClusterError

    try:
        cluster = _cluster(base)
        cluster.plan  # noqa: B018 - the property says so where there is no cluster
        action(cluster)
    except ClusterError as error:
        raise CommandError(str(error)) from None


def _parse_ids(text: str) -> list[int]:
    try:
        ids = [int(part) for part in text.split(",")]
    except ValueError:
        raise CommandError(f"--brokers {text!r} is not a list of ids like 0,1,2", 2) from None
    if len(set(ids)) != len(ids) or min(ids) < 0:
        raise CommandError(f"--brokers {text!r}: each id once, none below 0", 2)
    return ids


def _print_status(cluster: "LocalCluster", output: Format) -> None:
    from tidelog.cluster.api import State

    rows = cluster.status()
    if output is Format.JSON:
        print_json(
            [
                {
                    "name": row.name,
                    "kind": row.kind,
                    "state": row.state.value,
                    "pid": row.pid,
                    "whyStopped": (cluster.why_stopped(row.name) or None) if row.state is State.STOPPED else None,
                    "addresses": {name: str(address) for name, address in row.addresses.items()},
                    "home": row.home,
                }
                for row in rows
            ]
        )
        return
    print_table(
        ("NAME", "STATE", "PID", "PORTS"),
        [
            (
                *(row.name, row.state.value, "-" if row.pid is None else row.pid),
                " ".join(f"{name}={address.port}" for name, address in row.addresses.items()),
            )
            for row in rows
        ],
    )
    for row in rows:
        if row.state is State.STOPPED:
            print(f"{row.name}: {why_stopped(cluster.why_stopped(row.name), cluster.logs(row.name, 1))}")
    print(f"The files of each are in {cluster.base}/NAME.")


def why_stopped(end: str, log: str) -> str:
    """One line of at most 100 characters with the name of a process before it."""
    try:
        last = str(json.loads(log)["event"])
    except (ValueError, KeyError, TypeError):
        last = log.strip()
    if not last and not end:
        return "it has not run yet"
    known = f"ended by {end}" if end.startswith("SIG") else f"ended with {end}" if end else "ended"
    said = f"{known}; its last line was: {last}"
    return said if len(said) <= _WHY_MAX else f"{said[: _WHY_MAX - 3]}..."
