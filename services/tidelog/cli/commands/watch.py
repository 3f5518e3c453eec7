"""`tidelog watch`: every protocol step of the cluster, as it happens."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer

from tidelog.cli import completion, parse
from tidelog.cli.connection import LOCAL_DIR, Connection, connected, stopped_by_signals
from tidelog.cli.errors import CommandError, bad_input
from tidelog.cli.show import note, print_lines
from tidelog.ids import Address

if TYPE_CHECKING:
    from tidelog.chaos.fault_desk import FaultDesk
    from tidelog.page.hub import Hub
    from tidelog.page.live import Note
    from tidelog.ports.clock import Clock
    from tidelog.watch.follower import ProtocolWatch
    from tidelog.watch.order import Told
    from tidelog.watch.window import Shown
    from tidelog.wire import messages as m

_CATCH_UP_S: Final = 3.0
"""For the events from before the watch."""
_TICK_S: Final = 0.05
_WEB_PORT: Final = 8089
_WEB_LAST: Final = 1_000
"""Events of each process from before the watch, on the page."""
_NAME_WIDTH: Final = len("controller-1")

_PartitionOption = Annotated[
    str | None,
    typer.Option("--partition", metavar="TOPIC-N", help="Without events of other partitions, such as events-0."),
]
_WebOption = Annotated[bool, typer.Option("--web", help="Show it in the browser, with pictures of the cluster.")]
_WaitOption = Annotated[
    bool, typer.Option("--wait", help="Of --web: wait for a broker that answers, however long it takes.")
]
_ListenOption = Annotated[
    str | None,
    typer.Option("--listen", metavar="HOST:PORT", help="Of --web. Default: 127.0.0.1:8089, or the next free port."),
]
_FaultsOption = Annotated[
    bool,
    typer.Option(
        "--faults",
        help="Of --web: the page may break the cluster, which is a local one of this directory, or containers.",
    ),
]

app = typer.Typer(add_completion=False)


class _Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


@app.command("watch")
@connected
async def watch(
    on: Connection,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Without events of other topics.", autocompletion=completion.topics)
    ] = None,
    partition: _PartitionOption = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Without events of other groups.", autocompletion=completion.groups)
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="FAMILY", help="Only this family of events; may be given again."),
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End after this time, like 30s. Default: Ctrl-C.")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            metavar="N",
            help="Print the newest N events first; without --for, nothing else.",
            min=1,
            max=10_000,
        ),
    ] = None,
    output: Annotated[
        _Format, typer.Option("--format", metavar="text|json|mermaid", help="mermaid is a sequence diagram.")
    ] = _Format.TEXT,
    web: _WebOption = False,
    listen: _ListenOption = None,
    wait: _WaitOption = False,
    faults: _FaultsOption = False,
) -> None:
    """Watch elections, ISR changes, orders, truncations and rebalances as they happen, a line each.

    Every broker, the active controller and the agents of all groups are watched; what they do is put into one order, and a cause
    stands before its effect. A process that dies is watched again when it returns.

    Families: liveness, controller, orders, replica, isr, coordinator, member, zookeeper.

    A process keeps its newest 10,000 events, so `--last` shows what has happened before.

    Example: tidelog watch --partition events-0 --for 30s
    """
    if web:
        wanted = _request(topic, partition, group, kind or (), last or _WEB_LAST)
        return await _web(on, wanted, listen, wait=wait, faults=faults)
    if listen is not None or wait or faults:
        raise bad_input("--listen, --wait and --faults are for --web")
    if output is _Format.MERMAID and last is None and duration is None:
        raise bad_input("--format mermaid draws what has ended: add --for 30s or --last 100")
    wanted = _request(topic, partition, group, kind or (), last or 0)
    seconds = inf if duration is None else parse.seconds("--for", duration)
    if last is not None and duration is None:
        seconds = 0.0
    from tidelog.watch.follower import ProtocolWatch

    await on.reach()
    follower = ProtocolWatch(on.settings().bootstrap_servers, on.ports, wanted, note)
    stop = asyncio.Event()
    try:
        with stopped_by_signals(stop.set):
            printer = _PRINTERS[output](follower)
            if last is not None:
                printer.show(await _newest(follower, on.ports.clock, last))
            await _print(follower, on.ports.clock, seconds, printer, stop)
        printer.end()
    finally:
        await follower.stop()


async def _web(on: Connection, wanted: "m.WatchRequest", listen: str | None, *, wait: bool, faults: bool) -> None:
    from tidelog.client.observer import ClusterObserver
    from tidelog.page.hub import Hub
    from tidelog.page.live import LOOK_S, LiveSource, Note
    from tidelog.page.server import Busy, listening, serve
    from tidelog.watch.follower import ProtocolWatch

    if wait and faults:
        raise bad_input("--wait is for a page that only shows; --faults needs a cluster that answers")
    address = Address("127.0.0.1", _WEB_PORT) if listen is None else parse.address("--listen", listen)
    try:
        at = listening(address, exactly=listen is not None)
    except Busy as error:
        raise CommandError(str(error)) from None
    async with AsyncExitStack() as stack:
        stack.enter_context(at)
        if not wait:
            await on.reach()
        servers, notes = on.settings().bootstrap_servers, list[Note]()
        observer = ClusterObserver(servers, on.ports, LOOK_S)
        stack.push_async_callback(observer.stop)
        follower = ProtocolWatch(servers, on.ports, wanted, lambda text: notes.append(Note(text)))
        stack.push_async_callback(follower.stop)
        hub = Hub()
        desk = await stack.enter_async_context(_desk(on, hub, notes)) if faults else None
        only = "" if faults else "; read-only: `tidelog watch --web --faults` beside the cluster may break it"
        about = f"the cluster at {', '.join(map(str, servers))}{only}"
        source = LiveSource(hub, observer, follower, on.ports.clock, about=about, notes=notes, desk=desk)
        await serve(hub, source, desk, at, lambda url: print_lines([f"The page is at {url}", "Ctrl-C ends it."]))


@asynccontextmanager
async def _desk(on: Connection, hub: "Hub", notes: "list[Note]") -> AsyncIterator["FaultDesk"]:
    """Lends what breaks the cluster, and heals every fault in the end. CommandError."""
    from random import Random

    from tidelog.chaos.clusters import Given, opened
    from tidelog.chaos.fault_desk import FaultDesk
    from tidelog.chaos.faults.base import Bed, InForce, On, ends_as_interrupt
    from tidelog.chaos.metrics import ChaosMetrics
    from tidelog.cluster.api import ClusterError
    from tidelog.cluster.choice import choose
    from tidelog.runtime.tasks import Supervisor

    servers = ",".join(map(str, on.settings().bootstrap_servers))
    metrics = ChaosMetrics()
    try:
        choice = choose(LOCAL_DIR, servers)
        with (
            ends_as_interrupt(),
            opened(choice, Path.cwd()) as cluster,
            metrics.served(Given(cluster).scrape_targets, note),
            InForce() as in_force,
        ):
            async with on.admin() as admin:
                bed = Bed(
                    cluster=cluster,
                    on=On.LOCAL if choice.project is None else On.COMPOSE,
                    admin=admin,
                    topic="",
                    clock=on.ports.clock,
                    rand=Random(),
                    tasks=Supervisor("faults"),
                    in_force=in_force,
                    say=lambda text: notes.append(Note(text)),
                )
                desk = FaultDesk(bed, metrics, notes, lambda text: hub.tell("error", {"text": text}))
                try:
                    yield desk
                finally:
                    await desk.stop()
    except ClusterError as error:
        raise CommandError(str(error)) from None


def _request(
    topic: str | None, partition: str | None, group: str | None, families: Sequence[str], last: int
) -> "m.WatchRequest":
    from tidelog.watch.kinds import FAMILIES
    from tidelog.wire import messages as m

    for family in families:
        if family not in FAMILIES:
            raise bad_input(f"--kind {family!r} is none of {', '.join(FAMILIES)}")
    number = -1
    if partition is not None:
        tp = parse.partition("--partition", partition)
        if topic not in (None, tp.topic):
            raise bad_input(f"--partition {partition!r} is not one of --topic {topic!r}")
        topic, number = tp
    return m.WatchRequest(
        families=tuple(families),
        topics=() if topic is None else (topic,),
        partition=number,
        groups=() if group is None else (group,),
        life=0,
        number=0,
        last=last,
        age_ms=0,
    )


async def _newest(follower: "ProtocolWatch", clock: "Clock", count: int) -> "list[Shown]":
    """Returns the newest `count` events from before the watch."""
    follower.start()
    found, ends = [], clock.now() + _CATCH_UP_S
    while not follower.complete and clock.now() < ends:
        await clock.sleep(_TICK_S)
        found += follower.due()
    _raise_if_refused(follower)
    found += follower.rest()
    return found[-count:]


async def _print(
    follower: "ProtocolWatch", clock: "Clock", seconds: float, printer: "_Printer", stop: asyncio.Event
) -> None:
    follower.start()
    ends = clock.now() + seconds
    while clock.now() < ends and not stop.is_set():
        await clock.sleep(min(_TICK_S, ends - clock.now()))
        printer.show(follower.due())
        _raise_if_refused(follower)
    printer.show(follower.rest())


def _raise_if_refused(follower: "ProtocolWatch") -> None:
    """If no process can be watched."""
    if follower.refusals and not follower.caught_up:
        process, why = min(follower.refusals.items())
        raise CommandError(f"{process}: {why}")


# -- drawing ----------------------------------------------------------------------------------------------------------


class _Printer(Protocol):
    def show(self, events: "Sequence[Shown]") -> None: ...

    def end(self) -> None: ...


class _Text:
    """One aligned line an event; on a terminal each process has its colour."""

    _STYLES: Final = ("cyan", "green", "yellow", "magenta", "blue", "red")

    def __init__(self, follower: "ProtocolWatch") -> None:
        from rich.console import Console

        self._console = Console(highlight=False, soft_wrap=True)
        self._names: dict[str, str] = {}

    def show(self, events: "Sequence[Shown]") -> None:
        from rich.text import Text

        from tidelog.watch.text import sentence, time_of_day

        for shown in events:
            told = shown.told
            style = self._names.setdefault(told.process, self._STYLES[len(self._names) % len(self._STYLES)])
            width = max(_NAME_WIDTH, *map(len, self._names))
            line = Text(f"{time_of_day(told.event.wall_ns)}  ")
            line.append(f"{told.process:<{width}}", style)
            line.append(f"  {sentence(told.event)}{'  (cause ?)' if shown.cause_missing else ''}")
            self._console.print(line)

    def end(self) -> None:
        pass


class _Json:
    """One object a line."""

    def __init__(self, follower: "ProtocolWatch") -> None:
        self._incarnation = follower.incarnation

    def show(self, events: "Sequence[Shown]") -> None:
        from tidelog.watch.formats import json_of

        for shown in events:
            print(json.dumps(json_of(shown.told, self._incarnation, cause_missing=shown.cause_missing)), flush=True)

    def end(self) -> None:
        pass


class _Mermaid:
    """One diagram at the end."""

    def __init__(self, follower: "ProtocolWatch") -> None:
        self._told: list[Told] = []

    def show(self, events: "Sequence[Shown]") -> None:
        self._told += [shown.told for shown in events]

    def end(self) -> None:
        from tidelog.watch.formats import mermaid

        for line in mermaid(self._told):
            print(line)


_PRINTERS: Final[dict[_Format, Callable[["ProtocolWatch"], _Printer]]] = {
    _Format.TEXT: _Text,
    _Format.JSON: _Json,
    _Format.MERMAID: _Mermaid,
}
