"""`tidelog top`: the cluster on one screen, drawn anew under your eyes."""

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli import completion, parse
from tidelog.cli.connection import Connection, connected
from tidelog.cli.show import Format, FormatOption

if TYPE_CHECKING:
    from tidelog.cli.top_rows import View
    from tidelog.client.observer import ClusterObserver

_LOOKS_S: Final = 1.0
"""Between two looks at a broker, if the interval is not shorter."""
Draw = Callable[["View"], None]


app = typer.Typer(add_completion=False)


@app.command("top")
@connected
async def top(
    on: Connection,
    once: Annotated[bool, typer.Option("--once", help="Print what is so now, and end.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", "-d", metavar="SECONDS", help="Between two looks.", min=0.1, max=3600)
    ] = 1.0,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            help="Only partitions, and lag of groups, of topics that match this regular expression.",
            autocompletion=completion.topics,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", help="Only groups that match this regular expression.", autocompletion=completion.groups
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for a broker that answers, however long it takes.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Watch brokers, partitions and groups: the worst on top, q or Ctrl-C ends it, ? shows the other keys.

    OUT are replicas on a broker that are not in their ISR, BEHIND the records they lack; HW is where a partition's
    committed records end, LEO where its leader's log does, LAG what its slowest replica lacks.

    On a terminal it fills the screen. Elsewhere text is printed once, as with --once, and --format json goes on with one object a
    line. What a silent broker said last stays on the screen.

    Example: tidelog top --topic 'ev.*' --interval 0.5
    """
    once = once or (output is Format.TEXT and not sys.stdout.isatty())
    topics, groups = parse.pattern("--topic", topic), parse.pattern("--group", group)
    from tidelog.client.observer import ClusterObserver

    if not wait:
        await on.reach()
    servers = on.settings().bootstrap_servers
    stop = asyncio.Event()
    period_s = min(interval, _LOOKS_S)
    observer = ClusterObserver(servers, on.ports, period_s, topics=topics.fullmatch, groups=groups.fullmatch)
    try:
        observer.start()
        async with aclosing(_views(observer, on, interval, stop, blank=wait and not once)) as views:
            if once:
                _printer(output)(await anext(views))
                return
            first = await anext(views)
            with _ended_by_signal(stop), _screen(output, stop) as draw:
                draw(first)
                async for view in views:
                    draw(view)
    finally:
        await observer.stop()


async def _views(
    observer: "ClusterObserver",
    on: Connection,
    interval_s: float,
    stop: asyncio.Event,
    *,
    blank: bool,
) -> AsyncGenerator["View"]:
    """A view every `interval_s`, until `stop`; before a broker has answered only if `blank`."""
    from tidelog.cli.top_rows import view_of

    heard, now = blank, await observer.first()
    before = deque([now], maxlen=2)  # rates need a look in between, and two intervals have one
    while not stop.is_set():
        heard = heard or (now.heard and now.complete)
        if heard:
            yield view_of(before[0], now)
            before.append(now)
        await _pause(stop, now.at + interval_s - on.ports.clock.now())
        now = observer.overview


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()
    except TimeoutError:
        pass


# -- drawing ----------------------------------------------------------------------------------------------------------


@contextmanager
def _screen(output: Format, stop: asyncio.Event) -> Iterator[Draw]:
    """The whole terminal where there is one."""
    if output is Format.JSON or not sys.stdout.isatty():
        yield _printer(output)
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from tidelog.cli.top_keys import HELP, HINT, Keys
    from tidelog.cli.top_screen import lines_of, partitions_shown

    console, keys = Console(), Keys()
    newest: View | None = None

    def draw(view: "View") -> None:
        nonlocal newest
        newest = view
        plain = console.options.ascii_only
        lines = lines_of(view, console.width, console.height, keys.first, ascii_only=plain)
        if lines and len(lines[0]) + len(HINT) <= console.width:
            lines[0].append(HINT, "dim")
        shown = [Text(line, no_wrap=True) for line in HELP][: console.height] if keys.helps else lines
        live.update(Group(*shown), refresh=True)

    def pressed(typed: bytes) -> None:
        page, count = (1, 1) if newest is None else (partitions_shown(newest, console.height), len(newest.partitions))
        keys.press(typed, page, count)
        if keys.quits:
            stop.set()
        elif newest is not None:
            draw(newest)

    with Live(console=console, screen=True, auto_refresh=False) as live, _keyboard(pressed):
        yield draw


def _printer(output: Format) -> Draw:
    """Whole views one after the other; on a terminal no wider and no higher than it is."""
    from rich.console import Console

    from tidelog.cli.top_rows import json_of
    from tidelog.cli.top_screen import lines_of

    console = Console(highlight=False, soft_wrap=True)

    def draw(view: "View") -> None:
        if output is Format.JSON:
            print(json.dumps(json_of(view)), flush=True)
            return
        fits = (console.width, console.height - 1) if console.is_terminal else (None, None)
        for line in lines_of(view, *fits, ascii_only=console.options.ascii_only):
            console.print(line)
        if not console.is_terminal:
            print(flush=True)

    return draw


# -- how it ends ------------------------------------------------------------------------------------------------------


@contextmanager
def _ended_by_signal(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM must not leave the terminal on its other screen; Ctrl-C is Python's."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@contextmanager
def _keyboard(pressed: Callable[[bytes], None]) -> Iterator[None]:
    """Calls `pressed` with each key at once, without a newline and without an echo."""
    if not sys.stdin.isatty():
        yield
        return
    import os
    import termios
    import tty

    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()

    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, lambda: pressed(os.read(keyboard, 1024)))
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
