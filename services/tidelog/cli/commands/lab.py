"""`tidelog lab`: a whole cluster in one process and in virtual time, stories about it, and lessons."""

import asyncio
from typing import Annotated, Final

import typer

from tidelog.cli import parse
from tidelog.cli.errors import FAILED, CommandError, as_bad_input
from tidelog.cli.show import Format, FormatOption, print_json, print_lines, print_table
from tidelog.ids import Address

PORT: Final = 8088

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def lab(
    context: typer.Context,
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=9, help="Brokers of the cluster.")] = 3,
    controllers: Annotated[int, typer.Option("--controllers", min=1, max=5, help="Controllers of the cluster.")] = 2,
    partitions: Annotated[
        int, typer.Option("--partitions", min=0, max=100, help="Partitions of the topic events; 0: no topic.")
    ] = 6,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides everything that is random.")] = 0,
    lesson: Annotated[
        str | None,
        typer.Option("--lesson", metavar="STORY|LESSON", help="Begin with a lesson, by its number or name, or a file."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Default: 127.0.0.1:8088, or the next port that is free."),
    ] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Open a page with a whole cluster in it: watch every step, break anything, go back in time.

    The cluster runs in this process, of the real code, in virtual time. Nothing else needs to be running. Ctrl-C ends it.

    Example: tidelog lab --lesson 4 --open
    """
    if context.invoked_subcommand is not None:
        return
    from tidelog.lab.page_source import LabSource
    from tidelog.lab.story import TopicPlan, free
    from tidelog.lab.story_file import find, load
    from tidelog.page.hub import Hub
    from tidelog.page.server import Busy, listening, serve
    from tidelog.runtime.clock import SystemClock

    with as_bad_input():
        if lesson is not None:
            load(find(lesson))
    copies = min(3, brokers)
    settings = {"min.insync.replicas": str(min(2, copies))}
    topics = (TopicPlan("events", partitions, copies, settings=settings),) if partitions else ()
    address = Address("127.0.0.1", PORT) if listen is None else parse.address("--listen", listen)
    try:
        at = listening(address, exactly=listen is not None)
    except Busy as error:
        raise CommandError(str(error)) from None
    hub = Hub()
    source = LabSource(hub, free(seed, brokers, controllers, topics), lesson or "", SystemClock())
    source.start()

    def ready(url: str) -> None:
        print_lines([f"The lab is at {url}", "Ctrl-C ends it."])
        if opens:
            typer.launch(url)

    try:
        asyncio.run(serve(hub, source, source, at, ready))
    finally:
        source.close()


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="STORY|LESSON", help="A file, or a lesson by its number or name.")],
    output: FormatOption = Format.TEXT,
) -> None:
    """Play a story: every step, the expectations and a verdict. Exits 0 if all of them hold, 1 if not, 2 for bad input.

    Example: tidelog lab run 4
    """
    from tidelog.lab import story_file, tell
    from tidelog.lab.play import play

    with as_bad_input():
        played = play(story_file.load(story_file.find(name)))
    if output is Format.JSON:
        print_json(tell.to_json(played))
    else:
        print_lines(tell.lines(played))
    if not played.held:
        raise typer.Exit(FAILED)


@app.command()
def lessons(output: FormatOption = Format.TEXT) -> None:
    """Show every lesson: its number, its name, and its question.

    Example: tidelog lab lessons
    """
    from tidelog.lab import story_file

    found = [(path.stem.partition("-")[2], story_file.load(path)) for path in story_file.lessons()]
    if output is Format.JSON:
        print_json([{"lesson": s.lesson, "name": name, "title": s.title, "question": s.question} for name, s in found])
        return
    print_table(("LESSON", "NAME", "TITLE"), [(s.lesson, name, s.title) for name, s in found])
