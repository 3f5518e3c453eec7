"""`tidelog configs`: kafka-configs' flags and lines."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import completion, parse
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError
from tidelog.cli.show import Format, FormatOption, print_json

if TYPE_CHECKING:
    from tidelog.wire.messages import DescribedConfig, PartitionDescription

app = typer.Typer(no_args_is_help=True, add_completion=False)

_COMMAS: Final = re.compile(r",(?![^\[]*\])")
"""Commas between settings, not those in a list like cleanup.policy=[compact,delete]."""

TopicOption = Annotated[str | None, typer.Option("--topic", help="The topic's name.", autocompletion=completion.topics)]
AddOption = Annotated[
    list[str] | None,
    typer.Option("--add-config", "--add", metavar="KEY=VALUE,...", help="What to set. A list is written [a,b]."),
]
DeleteOption = Annotated[
    list[str] | None,
    typer.Option("--delete-config", "--delete", metavar="KEY,...", help="What the topic shall no longer say."),
]


@app.command()
@connected
async def describe(
    on: Connection,
    topic: TopicOption = None,
    broker: Annotated[
        int | None,
        typer.Option("--broker", min=0, help="Instead of a topic: a live broker.", autocompletion=completion.brokers),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also settings that have their default.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show settings: the value in force, and with it all that was said about it and where, what counts first.

    Without --all a topic shows what it says itself, a broker what it was started with. A topic with fewer replicas than
    min.insync.replicas needs all that it has: effective= names that number.

    Example: tidelog configs describe --topic events --all
    """
    if (topic is None) == (broker is None):
        raise CommandError("name one of --topic and --broker", 2)

    effective: dict[str, str] = {}
    async with on.admin() as admin:
        if topic is not None:
            found = await admin.describe_configs(topic)
            effective = _capped((await admin.describe_topic(topic)).partitions)
        else:
            assert broker is not None
            found = await admin.logs.describe_broker_configs(broker)
    if not everything:
        wanted = ("DYNAMIC_TOPIC_CONFIG",) if topic is not None else ("STATIC_BROKER_CONFIG",)
        found = [each for each in found if each.source in wanted]
    if output is Format.JSON:
        print_json([_json(each, effective.get(each.key, each.value)) for each in found])
        return
    kind = "All" if everything else "Dynamic" if topic is not None else "Static"
    print(f"{kind} configs for {f'topic {topic}' if topic is not None else f'broker {broker}'} are:")
    for each in found:
        said = ", ".join(f"{s.source}:{s.key}={s.value}{f' ({s.origin})' if s.origin else ''}" for s in each.synonyms)
        capped = effective.get(each.key, each.value)
        counts = "" if capped == each.value else f" effective={capped}"
        print(f"  {each.key}={each.value}{counts} sensitive=false synonyms={{{said}}}")


@app.command()
@connected
async def alter(
    on: Connection,
    topic: TopicOption = None,
    add: AddOption = None,
    delete: DeleteOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only, change nothing.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Change settings of a topic, all or none. They are in force at once, on every broker that holds it.

    Example: tidelog configs alter --topic events --add retention.ms=86400000,segment.ms=3600000 --delete flush
    """
    if topic is None:
        raise CommandError("--topic is missing: whose settings are to change", 2)
    added, deleted = settings_of(add or ()), keys_of(delete or ())
    if not added and not deleted:
        raise CommandError("--add-config or --delete-config is missing: what is to change", 2)

    async with on.admin(destroys=not dry_run) as admin:
        await admin.alter_configs(topic, added, deleted, validate_only=dry_run)
    if output is Format.JSON:
        print_json({"topic": topic, "added": added, "deleted": deleted, "altered": not dry_run})
    else:
        print(done(topic, dry_run))


def _capped(partitions: "Sequence[PartitionDescription]") -> dict[str, str]:
    """Values in force that differ from those that are set: a partition needs no more replicas in sync than it has."""
    return {"min.insync.replicas": str(max(p.min_isr for p in partitions))} if partitions else {}


def done(topic: str, dry_run: bool) -> str:
    return (
        f"Updating config for topic {topic} would succeed."
        if dry_run
        else f"Completed updating config for topic {topic}."
    )


def settings_of(options: Sequence[str]) -> dict[str, str]:
    """`k=v,k2=[a,b]`, given once or several times; CommandError for a key that comes twice."""
    items = [item for option in options for item in _COMMAS.split(option) if item]
    found = parse.pairs("--add-config", items)
    if len(found) != len(items):
        raise CommandError("--add-config names a key twice", 2)
    return {
        key: value[1:-1] if value.startswith("[") and value.endswith("]") else value for key, value in found.items()
    }


def keys_of(options: Sequence[str]) -> list[str]:
    return [key for option in options for key in option.split(",") if key]


def _json(config: "DescribedConfig", effective: str) -> dict[str, Any]:
    return {
        "key": config.key,
        "value": config.value,
        "effectiveValue": effective,
        "source": config.source,
        "readOnly": config.read_only,
        "synonyms": [
            {"key": each.key, "value": each.value, "source": each.source, "origin": each.origin}
            for each in config.synonyms
        ],
    }
