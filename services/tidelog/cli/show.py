"""Results on the standard output, as text or JSON; everything else on the standard error."""

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[
    Format, typer.Option("--format", metavar="text|json", help="text for people, json for programs.")
]


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Left-aligned columns two blanks apart, as rpk and kubectl print them; no borders, so that awk can read it."""
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_lines(lines: Iterable[object]) -> None:
    for line in lines:
        print(line)


def note(text: str) -> None:
    """A line on the standard error."""
    print(text, file=sys.stderr, flush=True)


def options_of(config: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(config.items()))


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """JSON has no bytes: text where they are UTF-8, otherwise base64 under a name that says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}
