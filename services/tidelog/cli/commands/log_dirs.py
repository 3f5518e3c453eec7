"""`tidelog log-dirs`: kafka-log-dirs' options and lines."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli import parse
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import no_topic
from tidelog.cli.show import Format, FormatOption, print_json
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.wire.messages import LogDir

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def log_dirs() -> None:
    """Keeps `describe` a command of its own."""


@app.command("describe")
@connected
async def describe(
    on: Connection,
    broker_list: Annotated[
        str | None, typer.Option("--broker-list", metavar="ID,...", help="Default: all that are alive.")
    ] = None,
    topic_list: Annotated[str | None, typer.Option("--topic-list", metavar="NAME,...", help="Default: all.")] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show how large each partition is in each broker's data directory, and how far it is behind its leader, as JSON.

    Under "strays" are logs that the controller does not list, and what was cut off logs after unclean elections.
    A broker keeps them for a day, and as long as "anotherPast" says that ZooKeeper came back from an older copy.

    Example: tidelog log-dirs describe --broker-list 0,1 --topic-list events
    """
    brokers = None if broker_list is None else parse.ids("--broker-list", broker_list)
    topics = [] if topic_list is None else [name for name in topic_list.split(",") if name]

    async with on.admin() as admin:
        for each in await admin.describe_topics(topics) if topics else ():
            if each.error_code is not ErrorCode.NONE:
                raise no_topic(each.name)
        if output is Format.TEXT:
            print("Querying brokers for log directories information")
        found = await admin.logs.describe_log_dirs(brokers, topics)
    report = {"version": 1, "brokers": [_dir_json(broker_id, each) for broker_id, each in found.items()]}
    if output is Format.JSON:
        print_json(report)
    else:
        print(f"Received log directory information from brokers {','.join(map(str, found))}")
        print(json.dumps(report, separators=(",", ":")))


def _dir_json(broker_id: int, log_dir: "LogDir") -> dict[str, Any]:
    partitions = [
        {
            "partition": f"{each.topic}-{each.partition}",
            "size": each.size_bytes,
            "offsetLag": each.offset_lag,
            "isFuture": each.is_future,
            **({} if each.error_code is ErrorCode.NONE else {"error": each.error_code.name}),
        }
        for each in log_dir.partitions
    ]
    found: dict[str, Any] = {"partitions": partitions, "error": None, "logDir": log_dir.path}
    if log_dir.strays:
        # Kafka's tool has no such field: a reader of its lines may not know it.
        found["strays"] = [
            {"partition": f"{each.topic}-{each.partition}", "size": each.size_bytes, "folder": each.folder}
            for each in log_dir.strays
        ]
    if log_dir.another_past:
        found["anotherPast"] = log_dir.another_past
    return {"broker": broker_id, "logDirs": [found]}
