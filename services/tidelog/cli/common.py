"""What every command shares: connection options, the two output formats, and running a coroutine.

Kept free of heavy imports: `tidelog --help` loads this module and must answer at once.
"""

import json
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

if TYPE_CHECKING:
    from tidelog.client.admin import AdminClient
    from tidelog.client.connections import ClientPorts
    from tidelog.cluster.local import LocalCluster
    from tidelog.config import ClientSettings, Settings

    S = TypeVar("S", bound=Settings)

T = TypeVar("T")

LOCAL_DIR: Final = Path("data/local")
"""`tidelog local up` puts its cluster here, where commands find it without a bootstrap option."""


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class CommandError(Exception):
    """One line for the person at the terminal; the command ends with `exit_code`."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="Brokers to start from. Default: TIDELOG_BOOTSTRAP_SERVERS, else what runs: the cluster of `tidelog local up` in "
        "this directory, or the containers.",
    ),
]
ConfigFileOption = Annotated[
    Path | None, typer.Option("--command-config", metavar="FILE", help="Client settings in a TOML file.")
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option("--command-property", metavar="KEY=VALUE", help="One client setting; wins over the file."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs.")]


def connect(
    bootstrap: str | None,
    config_file: Path | None,
    properties: Sequence[str] | None,
    *,
    destroys: bool = False,
    quiet: bool = False,
) -> "ClientSettings":
    """The settings that reach the cluster: flag, property, TIDELOG_* variable, file (KIP-1137), the cluster that runs.

    The first that is given wins.

    `destroys`: the command deletes or overwrites. CommandError when no cluster is named and none, or not one, runs.
    """
    from tidelog.config import ClientSettings

    overrides: dict[str, Any] = {key.replace(".", "_"): value for key, value in pairs(properties or ()).items()}
    if bootstrap is not None:
        overrides["bootstrap_servers"] = bootstrap
    return found(ClientSettings, config_file, overrides, destroys=destroys, quiet=quiet)


def found(
    kind: "type[S]",
    config_file: Path | None,
    overrides: Mapping[str, Any],
    *,
    destroys: bool = False,
    quiet: bool = False,
) -> "S":
    """Settings of a client whose brokers are those of the running cluster where `bootstrap_servers` is not set."""
    from tidelog.config import DEFAULT, explain, load

    settings = load(kind, config_file=config_file, overrides=overrides)
    if next(row.source for row in explain(settings) if row.key == "bootstrap_servers") != DEFAULT:
        return settings
    servers = _running(destroys, quiet)
    return load(kind, config_file=config_file, overrides={**overrides, "bootstrap_servers": servers})


def _running(destroys: bool, quiet: bool) -> str:
    """Brokers of the cluster that runs in this directory or in containers."""
    from tidelog.cluster.api import ClusterError, bootstrap_servers
    from tidelog.cluster.choice import CONTAINERS, running

    try:
        choice = running(LOCAL_DIR, "--bootstrap-server or TIDELOG_BOOTSTRAP_SERVERS")
    except ClusterError as error:
        raise CommandError(str(error), 2) from None
    if choice.local is None and choice.project is None:
        raise CommandError(
            f"no cluster runs: neither one in {LOCAL_DIR} nor containers at {CONTAINERS}. `tidelog local up` or `make up` starts "
            "one; --bootstrap-server or TIDELOG_BOOTSTRAP_SERVERS names another"
        )
    if choice.project is not None and destroys:
        raise CommandError(
            f"{choice.told} run, and a command that deletes or overwrites works on them only when they are named: "
            f"--bootstrap-server {CONTAINERS}",
            2,
        )
    if not quiet:
        note(f"tidelog: on {choice.told}")
    return CONTAINERS if choice.local is None else bootstrap_servers(local_cluster(choice.local))


def local_cluster(base: Path) -> "LocalCluster":
    """The cluster whose files are in `base`, if there is one; CommandError when they describe none."""
    from tidelog.cluster.api import ClusterError
    from tidelog.cluster.local import LocalCluster

    try:
        return LocalCluster(base)
    except ClusterError as error:
        raise CommandError(f"{base}: {error}") from None


def pairs(items: Sequence[str]) -> dict[str, str]:
    """`key=value` items; CommandError names the one that is not."""
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise CommandError(f"{item!r} is not KEY=VALUE", 2)
        found[key] = value
    return found


def ports() -> "ClientPorts":
    """The real ports; tests put brokers in memory here."""
    from tidelog.client.connections import real_ports

    return real_ports()


def admin(settings: "ClientSettings") -> "AdminClient":
    from tidelog.client.admin import AdminClient

    return AdminClient(settings.bootstrap_servers, request_timeout_ms=settings.request_timeout_ms, ports=ports())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    from tidelog.runtime import loop

    return loop.run(coroutine)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` at SIGINT and SIGTERM, which then end nothing themselves; Kafka's tools have a shutdown hook for it."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def one_topic(argument: str | None, option: str | None) -> str:
    """A topic is named by position or by --topic."""
    name = option if option is not None else argument
    if name is None or (argument is not None and option is not None and argument != option):
        raise CommandError("name one topic, as an argument or with --topic", 2)
    return name


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Left-aligned columns two blanks apart, as rpk and kubectl do; no borders, so that awk can read it."""
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def note(text: str) -> None:
    """For the person at the terminal; standard output holds results only."""
    print(text, file=sys.stderr, flush=True)


def options_of(config: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(config.items()))
