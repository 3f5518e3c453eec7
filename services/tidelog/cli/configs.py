"""`tidelog configs`: kafka-configs' flags and lines."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import common, completion
from tidelog.cli.common import BootstrapOption, CommandError, ConfigFileOption, Format, FormatOption, PropertyOption

if TYPE_CHECKING:
    from tidelog.wire.messages import DescribedConfig

app = typer.Typer(help="Describe and alter the settings of topics; describe those of brokers.", no_args_is_help=True)

_COMMAS: Final = re.compile(r",(?![^\[]*\])")
"""Those between settings, not those in a list like cleanup.policy=[compact,delete]."""

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
def describe(
    topic: TopicOption = None,
    broker: Annotated[
        int | None,
        typer.Option("--broker", min=0, help="Instead of a topic: a live broker.", autocompletion=completion.brokers),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what nobody has set.")] = False,
    output: FormatOption = Format.TEXT,
    bootstrap: BootstrapOption = None,
    config_file: ConfigFileOption = None,
    properties: PropertyOption = None,
) -> None:
    """Show settings: the value in force, and with it all that was said about it and where, what counts first.

    Without --all a topic shows what it says itself, a broker what it was started with.

    Example: tidelog configs describe --topic events --all
    """
    if (topic is None) == (broker is None):
        raise CommandError("name one of --topic and --broker", 2)

    async def main() -> list["DescribedConfig"]:
        async with common.admin(common.connect(bootstrap, config_file, properties)) as admin:
            if topic is not None:
                return await admin.describe_configs(topic)
            assert broker is not None
            return await admin.logs.describe_broker_configs(broker)

    found = common.run(main())
    if not everything:
        wanted = ("DYNAMIC_TOPIC_CONFIG",) if topic is not None else ("STATIC_BROKER_CONFIG",)
        found = [each for each in found if each.source in wanted]
    if output is Format.JSON:
        common.print_json([_json(each) for each in found])
        return
    kind = "All" if everything else "Dynamic" if topic is not None else "Static"
    print(f"{kind} configs for {f'topic {topic}' if topic is not None else f'broker {broker}'} are:")
    for each in found:
        said = ", ".join(f"{s.source}:{s.key}={s.value}{f' ({s.origin})' if s.origin else ''}" for s in each.synonyms)
        print(f"  {each.key}={each.value} sensitive=false synonyms={{{said}}}")


@app.command()
def alter(
    topic: TopicOption = None,
    add: AddOption = None,
    delete: DeleteOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only, change nothing.")] = False,
    output: FormatOption = Format.TEXT,
    bootstrap: BootstrapOption = None,
    config_file: ConfigFileOption = None,
    properties: PropertyOption = None,
) -> None:
    """Change settings of a topic, all or none. They are in force at once, on every broker that holds it.

    Example: tidelog configs alter --topic events --add retention.ms=86400000,segment.ms=3600000 --delete flush
    """
    if topic is None:
        raise CommandError("--topic is missing: whose settings are to change", 2)
    name = topic
    added, deleted = settings_of(add or ()), keys_of(delete or ())
    if not added and not deleted:
        raise CommandError("--add-config or --delete-config is missing: what is to change", 2)

    async def main() -> None:
        async with common.admin(common.connect(bootstrap, config_file, properties, destroys=not dry_run)) as admin:
            await admin.alter_configs(name, added, deleted, validate_only=dry_run)

    common.run(main())
    if output is Format.JSON:
        common.print_json({"topic": name, "added": added, "deleted": deleted, "altered": not dry_run})
    else:
        print(done(name, dry_run))


def done(topic: str, dry_run: bool) -> str:
    return (
        f"Updating config for topic {topic} would succeed."
        if dry_run
        else f"Completed updating config for topic {topic}."
    )


def settings_of(options: Sequence[str]) -> dict[str, str]:
    """`k=v,k2=[a,b]`, given once or several times; CommandError for a key that comes twice."""
    items = [item for option in options for item in _COMMAS.split(option) if item]
    found = common.pairs(items)
    if len(found) != len(items):
        raise CommandError("--add-config names a key twice", 2)
    return {
        key: value[1:-1] if value.startswith("[") and value.endswith("]") else value for key, value in found.items()
    }


def keys_of(options: Sequence[str]) -> list[str]:
    return [key for option in options for key in option.split(",") if key]


def _json(config: "DescribedConfig") -> dict[str, Any]:
    return {
        "key": config.key,
        "value": config.value,
        "source": config.source,
        "readOnly": config.read_only,
        "synonyms": [
            {"key": each.key, "value": each.value, "source": each.source, "origin": each.origin}
            for each in config.synonyms
        ],
    }
