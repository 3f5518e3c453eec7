"""The cluster a command works on: the options that name it, the rule that finds it, and the clients that reach it."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from tidelog.cli import parse
from tidelog.cli.errors import CommandError, as_bad_input, bad_input
from tidelog.cli.show import note

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.connections import ClientPorts
    from tidelog.client.consumer import Consumer
    from tidelog.client.producer import Producer
    from tidelog.cluster.local import LocalCluster
    from tidelog.config import ClientSettings, Settings

    S = TypeVar("S", bound=Settings)

T = TypeVar("T")

LOCAL_DIR: Final = Path("data/local")
"""`tidelog local up` puts its cluster here, where commands find it without a bootstrap option."""

_PATIENCE_S: Final = (0.5, 1.0)
"""Until no address is worth another try, and until a topic that is unknown does not exist: a command ends within two seconds."""

_PANEL: Final = "Connection"

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        rich_help_panel=_PANEL,
        help="Brokers to start from. Default: TIDELOG_BOOTSTRAP_SERVERS, else what runs: the cluster of `tidelog local up` in "
        "this directory, or the containers.",
    ),
]
ConfigFileOption = Annotated[
    Path | None,
    typer.Option("--command-config", metavar="FILE", rich_help_panel=_PANEL, help="Client settings in a TOML file."),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--command-property",
        metavar="KEY=VALUE",
        rich_help_panel=_PANEL,
        help="One client setting; wins over the file.",
    ),
]
TimeoutOption = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        rich_help_panel=_PANEL,
        help="Keep trying for so long, like 30s, when no broker can be reached or the topic does not exist.",
    ),
]
_OPTIONS: Final = {
    "bootstrap": BootstrapOption,
    "config_file": ConfigFileOption,
    "properties": PropertyOption,
    "timeout": TimeoutOption,
}


class Connection:
    """Settings and clients for the connection options. The cluster is looked for when `settings` or `admin` is called."""

    def __init__(
        self,
        bootstrap: str | None = None,
        config_file: Path | None = None,
        properties: Sequence[str] | None = None,
        timeout: str | None = None,
    ) -> None:
        self._config_file = config_file
        self._timeout_s = None if timeout is None else parse.seconds("--timeout", timeout)
        self._settings: ClientSettings | None = None
        self._overrides: dict[str, Any] = {
            key.replace(".", "_"): value for key, value in parse.pairs("--command-property", properties or ()).items()
        }
        self._flags: dict[str, str] = {}
        if bootstrap is not None:
            self._overrides["bootstrap_servers"] = bootstrap
            self._flags["bootstrap_servers"] = "--bootstrap-server"
        if self._timeout_s is not None:
            self._overrides["request_timeout_ms"] = max(1, round(self._timeout_s * 1000))
            self._flags["request_timeout_ms"] = "--timeout"

    def settings(self, *, destroys: bool = False, quiet: bool = False) -> "ClientSettings":
        """Settings that reach the cluster: flag, property, TIDELOG_* variable, file (KIP-1137), the cluster that runs.

        The first that is given wins. `destroys`: the command deletes or overwrites. CommandError when no cluster is named
        and none, or not one, runs. Later calls return what the first one found.
        """
        from tidelog.config import ClientSettings

        if self._settings is None:
            self._settings = found(
                ClientSettings, self._config_file, self._overrides, self._flags, destroys=destroys, quiet=quiet
            )
        return self._settings

    @cached_property
    def ports(self) -> "ClientPorts":
        """Ports of clients that give up soon, unless --timeout says how long they try."""
        from tidelog.client.connections import Patience

        found = ports(self.settings().fetch_max_bytes)
        return found if self._timeout_s is not None else replace(found, patience=Patience(*_PATIENCE_S))

    def admin(self, *, destroys: bool = False, request_timeout_ms: int | None = None) -> "Admin":
        """To be used with `async with`."""
        from tidelog.client.admin import Admin

        settings = self.settings(destroys=destroys)
        limit_ms = settings.request_timeout_ms if request_timeout_ms is None else request_timeout_ms
        return Admin(settings.bootstrap_servers, request_timeout_ms=limit_ms, ports=self.ports)

    def producer(self, **options: Any) -> "Producer":
        """A Producer of these settings; `options` win over them."""
        from tidelog.client.producer import Producer

        settings = self.settings()
        given = {
            "enable_idempotence": settings.enable_idempotence,
            "request_timeout_ms": settings.request_timeout_ms,
            "client_id": settings.client_id,
            **options,
        }
        with as_bad_input():
            return Producer(settings.bootstrap_servers, ports=self.ports, **given)

    def consumer(self, **options: Any) -> "Consumer":
        """A Consumer of these settings; `options` win over them."""
        from tidelog.client.consumer import Consumer

        settings = self.settings()
        given = {
            "request_timeout_ms": settings.request_timeout_ms,
            "max_bytes": settings.fetch_max_bytes,
            "client_id": settings.client_id,
            **options,
        }
        with as_bad_input():
            return Consumer(settings.bootstrap_servers, ports=self.ports, **given)

    async def reach(self, topics: Iterable[str] = ()) -> None:
        """Returns when a broker answers and knows these topics. A member of a group would wait for both for ever."""
        async with self.admin() as admin:
            for topic in topics:
                await admin.partitions_of(topic)


def connected(command: Callable[..., Any]) -> Callable[..., None]:
    """Adds the connection options to a command, which gets what they lead to as its argument `on`.

    An option that the command declares itself is left to it. A command that is a coroutine function runs in an event loop.
    """
    own = [each for each in inspect.signature(command, eval_str=True).parameters.values() if each.name != "on"]
    declared = {flag for each in own for flag in _flags(each.annotation)}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
        if not declared & set(_flags(annotation))
    ]

    @wraps(command)
    def with_connection(**given: Any) -> None:
        connection = Connection(**{each.name: given.pop(each.name) for each in added})
        returned = command(on=connection, **given)
        if inspect.iscoroutine(returned):
            run(returned)

    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *added]
    with_connection.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_connection.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_connection


def _flags(annotation: Any) -> Sequence[str]:
    return [
        flag
        for each in getattr(annotation, "__metadata__", ())
        for flag in (getattr(each, "default", None), *(getattr(each, "param_decls", None) or ()))
        if isinstance(flag, str)
    ]


def found(
    kind: "type[S]",
    config_file: Path | None,
    overrides: Mapping[str, Any],
    flags: Mapping[str, str],
    *,
    destroys: bool = False,
    quiet: bool = False,
) -> "S":
    """Settings of a client whose brokers are those of the running cluster where `bootstrap_servers` is not set."""
    from tidelog.config import DEFAULT, explain, load

    settings = load(kind, config_file=config_file, overrides=overrides, flags=flags)
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
        raise bad_input(str(error)) from None
    if choice.local is None and choice.project is None:
        raise CommandError(
            f"no cluster runs: neither one in {LOCAL_DIR} nor containers at {CONTAINERS}. `tidelog local up` or `make up` starts "
            "one; --bootstrap-server or TIDELOG_BOOTSTRAP_SERVERS names another"
        )
    if choice.project is not None and destroys:
        raise bad_input(
            f"{choice.told} run, and a command that deletes or overwrites works on them only when they are named: "
            f"--bootstrap-server {CONTAINERS}"
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
        raise bad_input(str(error)) from None


def ports(max_bytes: int) -> "ClientPorts":
    """The real ports; tests put brokers in memory here."""
    from tidelog.client.connections import real_ports

    return real_ports(max_bytes)


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
