"""Every command of `tidelog`, one row each. A command's module is imported when the command runs, and not before."""

from copy import copy
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

RECORDS: Final = "Topics and records"
GROUPS: Final = "Consumer groups"
CLUSTER: Final = "Cluster and brokers"
BREAK: Final = "Run a cluster here, and break it"
PIPELINE: Final = "Spark"
OTHER: Final = "Settings and files"


class Row(NamedTuple):
    """A command, or a group of commands."""

    panel: str
    """Heading of its help."""
    name: str
    app: str
    """`module:name` of its Typer object, below `tidelog.cli.commands`."""
    help: str

    def stub(self) -> TyperCommand:
        """Stands for the command in lists and in help."""
        return TyperCommand(self.name, help=self.help, rich_help_panel=self.panel)

    def load(self) -> Any:
        module, _, name = self.app.partition(":")
        app: typer.Typer = getattr(import_module(f"tidelog.cli.commands.{module}"), name)
        app.info.help = self.help
        command = typer.main.get_command(app)
        command.name = self.name
        _name_values(command)
        return command


def _name_values(command: Any) -> None:
    """Names the value of each option in help: N for a number, nothing for a flag, else the option's own name.

    An argument has its name alone, without a type of Python.
    """
    for param in command.params:
        if isinstance(param, TyperArgument):
            kind: Any = copy(param.type)  # many arguments share one
            kind.get_metavar = lambda **_: ""
            param.type = kind
        elif isinstance(param, TyperOption) and param.metavar is None:
            numbers = param.type.name.strip("<>").startswith(("int", "float"))
            param.metavar = "" if param.is_flag else "N" if numbers else param.opts[0].strip("-").upper()
    for below in getattr(command, "commands", {}).values():
        _name_values(below)


TABLE: Final = (
    Row(RECORDS, "topics", "topics:app", "Create, list, describe, grow and delete topics."),
    Row(RECORDS, "configs", "configs:app", "Show and change settings of topics, show those of brokers."),
    Row(RECORDS, "produce", "produce:app", "Send lines as records."),
    Row(RECORDS, "consume", "consume:app", "Print records."),
    Row(RECORDS, "get-offsets", "get_offsets:app", "Print the first, the last or a timed offset of partitions."),
    Row(RECORDS, "delete-records", "delete_records:app", "Delete the oldest records of partitions."),
    Row(GROUPS, "groups", "groups:app", "List, describe and delete consumer groups, and set their offsets."),
    Row(GROUPS, "agent", "agent:app", "Process records as a member of a group."),
    Row(CLUSTER, "top", "top:app", "Watch brokers, partitions and groups on one screen."),
    Row(CLUSTER, "watch", "watch:app", "Watch elections, ISR changes and rebalances step by step."),
    Row(CLUSTER, "cluster", "cluster:app", "Describe the cluster, check its health, give new brokers their share."),
    Row(CLUSTER, "brokers", "brokers:app", "List brokers, drain them, and release what only an operator may release."),
    Row(
        CLUSTER, "elect-leaders", "elect_leaders:app", "Give leadership back to preferred replicas, or elect uncleanly."
    ),
    Row(CLUSTER, "reassign", "reassign:app", "Move partitions between brokers."),
    Row(CLUSTER, "log-dirs", "log_dirs:app", "Show how large each partition is in each broker's data directory."),
    Row(BREAK, "local", "local:app", "Run a cluster of processes on this machine, and stop, kill or pause them."),
    Row(BREAK, "lab", "lab:app", "Play lessons and stories on a whole cluster in one process, step by step."),
    Row(BREAK, "chaos", "chaos:app", "Break a cluster on purpose, and get a verdict on every record."),
    Row(BREAK, "perf", "perf:app", "Measure how fast records are written and read."),
    Row(BREAK, "verifiable-producer", "verifiable:producer_app", "Send numbered records and report each one as JSON."),
    Row(
        BREAK,
        "verifiable-consumer",
        "verifiable:consumer_app",
        "Read as a member of a group and report each step as JSON.",
    ),
    Row(PIPELINE, "pipeline", "pipeline:app", "Run Spark jobs over topics, and check what they wrote."),
    Row(OTHER, "config", "config:app", "Show the settings in force, and where each was set."),
    Row(OTHER, "log", "log:app", "Look into segment files."),
)


class Commands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands = {row.name: row.stub() for row in TABLE}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Replaces the stub of the command that runs, or whose words are completed, by the command."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, next((row.load() for row in TABLE if row.name == name and stub is not None), None), rest


def command() -> Any:
    """The whole command line."""
    app = typer.Typer(
        name="tidelog",
        cls=Commands,
        help="A replicated, partitioned log. Start with `tidelog local up`.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    whole = typer.main.get_command(app)
    _name_values(whole)
    return whole


def _version(wanted: bool) -> None:
    if wanted:
        from tidelog.release import VERSION

        print(f"tidelog {VERSION}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version, and end.")
    ] = False,
) -> None: ...
