"""`tidelog lab`: a whole cluster in one process and in virtual time, stories about it, and lessons."""

from typing import Annotated

import typer

from tidelog.cli.errors import FAILED, as_bad_input
from tidelog.cli.show import Format, FormatOption, print_json, print_lines, print_table

app = typer.Typer(no_args_is_help=True, add_completion=False)


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
