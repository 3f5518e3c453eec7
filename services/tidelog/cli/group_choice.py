"""The groups that a command works on: options, and the ids that they stand for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli import completion
from tidelog.cli.errors import CommandError
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.group_admin import GroupListing

GroupArgument = Annotated[
    list[str] | None, typer.Argument(metavar="GROUP...", help="The groups' ids.", autocompletion=completion.groups)
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option("--group", help="The same, as kafka-consumer-groups spells it.", autocompletion=completion.groups),
]
AllGroupsOption = Annotated[bool, typer.Option("--all-groups", help="Every group.")]


def chosen(names: Sequence[str] | None, options: Sequence[str] | None, all_groups: bool) -> list[str] | None:
    """Group ids by position or by --group; None: all."""
    wanted = list(dict.fromkeys([*(names or ()), *(options or ())]))
    if bool(wanted) is all_groups:
        raise CommandError("name groups, as arguments or with --group, or say --all-groups", 2)
    return None if all_groups else wanted


async def resolve(admin: "Admin", wanted: list[str] | None) -> list[str]:
    """All groups for None; CommandError if a broker did not tell its groups."""
    if wanted is not None:
        return wanted
    listing = await admin.groups.listing()
    refuse_incomplete(listing)
    return [g.group_id for g in listing.groups]


def complain(errors: Sequence[TidelogError]) -> None:
    """One line for each, and exit code 1 if there is any."""
    if errors:
        raise CommandError("\n".join(error.message for error in errors))


def refuse_incomplete(listing: "GroupListing") -> None:
    missing = [
        f"broker {broker} did not answer ({why}): groups that it coordinates are missing"
        for broker, why in listing.unheard.items()
    ]
    if listing.vacant:
        missing.append(f"{listing.vacant} shards of the groups have no coordinator now: their groups are missing")
    if missing:
        raise CommandError("\n".join(missing))
