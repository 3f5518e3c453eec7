"""What `tidelog consume --group` needs beside the reading: kafka-console-consumer's options, as those of a member."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from tidelog.cli import completion, parse
from tidelog.cli.errors import CommandError
from tidelog.names import suggestion

GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Share the partitions with the other members of this group, and commit what was printed.",
        autocompletion=completion.groups,
    ),
]
IncludeOption = Annotated[
    str | None, typer.Option("--include", metavar="REGEX", help="With --group: every topic whose name matches.")
]
ConsumerPropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--consumer-property",
        metavar="KEY=VALUE",
        help="With --group: session.timeout.ms, max.poll.interval.ms, enable.auto.commit, auto.offset.reset, "
        "partition.assignment.strategy, group.instance.id.",
    ),
]

_NUMBERS: Final = {"session.timeout.ms": "session_timeout_ms", "max.poll.interval.ms": "max_processing_ms"}
_CHOICES: Final = {
    "enable.auto.commit": ("true", "false"),
    "auto.offset.reset": ("earliest", "latest"),
    "partition.assignment.strategy": ("range", "roundrobin", "sticky"),
}
_KNOWN: Final = (*_NUMBERS, *_CHOICES, "group.instance.id")
_NUMBER_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Membership:
    group: str
    options: dict[str, Any]
    """Of `Consumer`."""

    @property
    def commits(self) -> bool:
        return bool(self.options.get("auto_commit", True))


def membership(
    group: str | None,
    topic: str | None,
    include: str | None,
    properties: Sequence[str] | None,
    *,
    from_beginning: bool,
    placed: bool,
) -> Membership | None:
    """None without a group; CommandError for options that make no sense together. `placed`: by --partition or --offset."""
    if group is None:
        for option, given in (("--include", include), ("--consumer-property", properties)):
            if given:
                raise CommandError(f"{option} needs --group", 2)
        return None
    if placed:
        raise CommandError(
            "--group excludes --partition and --offset: the group has the partitions and where they are; "
            "`tidelog groups reset-offsets` sets it",
            2,
        )
    if (topic is None) is (include is None):
        raise CommandError("name one topic, as an argument or with --topic, or topics with --include", 2)
    options = _options(parse.pairs("--consumer-property", properties or ()))
    if from_beginning and options.setdefault("auto_offset_reset", "earliest") != "earliest":
        raise CommandError("--from-beginning and auto.offset.reset=latest exclude each other", 2)
    options.setdefault("auto_offset_reset", "latest")
    options |= {"pattern": include} if topic is None else {"topics": (topic,)}
    return Membership(group, options)


def _options(given: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in given.items():
        name = key.replace("_", ".")
        if name not in _KNOWN:
            raise CommandError(f"--consumer-property {key!r} is not known{suggestion(name, _KNOWN)}", 2)
        if name in _NUMBERS:
            if not (value.isascii() and value.isdigit() and 0 < int(value) <= _NUMBER_MAX):
                raise CommandError(f"--consumer-property {key}={value} is not a number from 1 to {_NUMBER_MAX}", 2)
            options[_NUMBERS[name]] = int(value)
        elif name in _CHOICES and value not in _CHOICES[name]:
            raise CommandError(f"--consumer-property {key}={value} is not one of {', '.join(_CHOICES[name])}", 2)
        elif name == "enable.auto.commit":
            options["auto_commit"] = value == "true"
        elif name == "auto.offset.reset":
            options["auto_offset_reset"] = value
        elif name == "partition.assignment.strategy":
            options["assignor"] = value
        else:
            options |= {"consumer_id": value, "static": True}
    return options
