"""`tidelog config`: which settings are in force, and why."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.show import Format, FormatOption, print_json, print_table

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def config() -> None:
    """Keeps `show` a command of its own."""


class Process(StrEnum):
    BROKER = "broker"
    CONTROLLER = "controller"
    CLIENT = "client"
    AGENT = "agent"
    TRAFFIC = "traffic"


@app.command()
def show(
    process: Annotated[
        Process, typer.Argument(metavar="KIND", help=f"Whose settings: {', '.join(Process)}.")
    ] = Process.CLIENT,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="TOML file; default: what TIDELOG_CONFIG_FILE names."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show every setting of a process as it would start here: its value, and where the value comes from.

    Example: TIDELOG_BROKER_ID=1 tidelog config show broker --config broker.toml
    """
    from tidelog import config

    kinds: dict[Process, type[config.Settings]] = {
        Process.BROKER: config.BrokerSettings,
        Process.CONTROLLER: config.ControllerSettings,
        Process.CLIENT: config.ClientSettings,
        Process.AGENT: config.AgentSettings,
        Process.TRAFFIC: config.TrafficSettings,
    }
    rows = config.explain(config.load(kinds[process], config_file=config_file))
    if output is Format.JSON:
        print_json([{"key": row.key, "value": row.value, "source": row.source} for row in rows])
    else:
        print_table(("KEY", "VALUE", "SOURCE"), rows)
