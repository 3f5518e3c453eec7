"""`tidelog agent`: a process of a consumer group."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli import completion, connection, parse
from tidelog.cli.connection import BootstrapOption

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def agent() -> None:
    """Keeps `run` a command of its own."""


@app.command()
def run(
    group: Annotated[
        str | None, typer.Option("--group", help="The group to join.", autocompletion=completion.groups)
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="To read; may be given several times.", autocompletion=completion.topics),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Instead of topics: a regular expression for whole names.")
    ] = None,
    handler: Annotated[
        str | None, typer.Option("--handler", help="count, log, forward, file, or package.module:function.")
    ] = None,
    agent_id: Annotated[
        str | None, typer.Option("--id", help="Its name, with which its consumer id begins; default: this host's.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting of `tidelog config show agent`."),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="TOML file; default: what TIDELOG_CONFIG_FILE names."),
    ] = None,
    bootstrap: BootstrapOption = None,
) -> None:
    """Run an agent until it is stopped (Ctrl-C): it gives the records that it owns to the handler and commits them.

    Example: tidelog agent run --group copies --topic events --handler forward --set forward_topic=events-copy
    """
    from tidelog.agent.__main__ import serve
    from tidelog.config import AgentSettings
    from tidelog.runtime import process

    overrides: dict[str, Any] = dict(parse.pairs("--set", setting or ()))
    given = {
        "group_id": ("--group", group),
        "topics": ("--topic", ",".join(topic) if topic else None),
        "pattern": ("--pattern", pattern),
        "handler": ("--handler", handler),
        "agent_id": ("--id", agent_id),
        "bootstrap_servers": ("--bootstrap-server", bootstrap),
    }
    overrides |= {key: value for key, (_, value) in given.items() if value is not None}
    flags = {key: flag for key, (flag, _) in given.items()}
    settings = connection.found(AgentSettings, config_file, overrides, flags)
    sys.path.insert(0, "")  # as with `python -m`: a handler may be in this directory
    raise typer.Exit(process.run(partial(serve, settings), prefix="tidelog: "))
