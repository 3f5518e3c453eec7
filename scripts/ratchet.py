#!/usr/bin/env python3
"""Language habits that may only become rarer: counts of each file against those in scripts/ratchet.json.

A file that is not listed has to have none, so a new file starts at zero. `--write` records counts that have fallen, and takes
along those of a file that git sees as moved; it never records a higher one.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COUNTS: Final = Path("scripts/ratchet.json")
FOLDERS: Final = ("services", "proto", "scripts", "tests")
ENDINGS: Final = frozenset({".py", ".proto", ".sh"})
GENERATED: Final = (
    "services/tidelog/wire/pb/",
    "services/tidelog/wire/messages.py",
    "services/tidelog/wire/services.py",
)
TEST_NAME_MAX: Final = 60

_FIRST_WORD: Final = re.compile(
    r"(What|Of|How|Whether|Where|Why|Which|By|As|Those|Wh(?:o|om|ose|oever)|(?:No|Some|Every|Any)body)\b"
)
_PERSON: Final = re.compile(r"\b(?:wh(?:o|om|oever)|(?:no|some|every|any)body)\b", re.IGNORECASE)
_CODE: Final = re.compile(
    r"\b(?:HOLE|CONFLICT|OPEN|MUT|LIVE|FIND|COORD|NEW|CON|SEC|STO|CTL|CHK|PUB)-\d+\b"
    r"|\b(?:HL|[A-F])\d{1,2}\.\d{1,2}\b|\bF-\d\d\b|\b[ILNX]\d{1,2}\b"
)
_CODE_IN_NAME: Final = re.compile(
    r"_(?:holes?|conflict|open|mut|live|find|coord|row|f|[abce]\d+|hl\d+)_\d+(?=_|$)|_[ilnx]\d\d?(?=_|$)"
)
_CITATION: Final = re.compile(
    r"\b(?:reliability|requirements|performance|style|ecosystem|generations|redesign|house|documents|design|issue)"
    r" (?:section )?\d+(?:\.\d+)*\b",
    re.IGNORECASE,
)
_TEST_NAME: Final = re.compile(r"\bdef (test_\w+)")

ADVICE: Final[Mapping[str, str]] = {
    "subject": "begin the docstring with its subject",
    "code": "name the rule in words; its code stands in docs/ alone",
    "citation": "cite a page that is in the repository, or a public one",
    "person": 'a process is "it"',
    "long name": f"a test's name has at most {TEST_NAME_MAX} characters",
}


@dataclass(frozen=True, slots=True)
class Found:
    kind: str
    line: int


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every string that stands as a statement: of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def first_comments(text: str) -> Iterator[tuple[int, str]]:
    """The first line of each block of comments in a .proto file: what documents a message or a field."""
    above = ""
    for number, line in enumerate(text.splitlines(), 1):
        before, slashes, comment = line.partition("//")
        if slashes and (before.strip() or not above.startswith("//")):
            yield number, comment.strip()
        above = line.strip()


def found_in(path: str, text: str) -> Iterator[Found]:
    if path.endswith(".py"):
        documents = ((node.lineno, str(node.value).strip()) for node in docstrings(ast.parse(text)))
    else:
        documents = first_comments(text) if path.endswith(".proto") else iter(())
    yield from (Found("subject", number) for number, document in documents if _FIRST_WORD.match(document))
    for number, line in enumerate(text.splitlines(), 1):
        name = _TEST_NAME.search(line)
        for kind, pattern, searched in (
            ("code", _CODE, line),
            ("code", _CODE_IN_NAME, name[1] if name else ""),
            ("citation", _CITATION, line),
            ("person", _PERSON, line.replace("_", " ")),
        ):
            yield from (Found(kind, number) for _ in pattern.finditer(searched))
        if name and len(name[1]) > TEST_NAME_MAX:
            yield Found("long name", number)


def files(root: Path) -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in ENDINGS and path.is_file() and not name.startswith(GENERATED):
                yield name


def read_counts(root: Path) -> dict[str, Counter[str]]:
    """Counts of each kind by path; the file groups paths by folder."""
    if not (root / COUNTS).exists():
        return {}
    folders = json.loads((root / COUNTS).read_text())
    return {f"{folder}/{file}": Counter(counts) for folder, rows in folders.items() for file, counts in rows.items()}


def write_counts(root: Path, counts: Mapping[str, Mapping[str, int]]) -> None:
    folders: dict[str, list[str]] = {}
    for path, kinds in sorted(counts.items()):
        folder, _, file = path.rpartition("/")
        kept = {kind: kinds[kind] for kind in sorted(kinds) if kinds[kind]}
        if kept:
            folders.setdefault(folder, []).append(f"    {json.dumps(file)}: {json.dumps(kept)}")
    rows = (f"  {json.dumps(folder)}: {{\n" + ",\n".join(lines) + "\n  }" for folder, lines in folders.items())
    (root / COUNTS).write_text("{\n" + ",\n".join(rows) + "\n}\n")


def moved(root: Path) -> dict[str, str]:
    """New path -> old path of the files that git sees as renamed since the last commit."""
    command = ["git", "-c", "safe.directory=*", "diff", "-M", "--name-status", "--diff-filter=R", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {new: old for _, old, new in rows}


def table(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The sums by kind, for each folder below the root and in all."""
    sums: dict[str, Counter[str]] = {folder: Counter() for folder in (*FOLDERS, "all")}
    for path, kinds in counts.items():
        sums[path.partition("/")[0]].update(kinds)
        sums["all"].update(kinds)
    head = f"{'':<10}" + "".join(f"{kind:>12}" for kind in ADVICE)
    return "\n".join(
        [head, *(f"{name:<10}" + "".join(f"{row[kind]:>12,}" for kind in ADVICE) for name, row in sums.items())]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="a checkout (default: this one)")
    parser.add_argument("--write", action="store_true", help="record counts that have fallen")
    parser.add_argument("--table", action="store_true", help="print the counts by folder")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    every = {path: list(found_in(path, (root / path).read_text())) for path in files(root)}
    counts = {path: Counter(each.kind for each in found) for path, found in every.items()}
    limits = read_counts(root)
    if arguments.write:
        limits |= {new: limits[old] for new, old in moved(root).items() if old in limits and new not in limits}
        first = not (root / COUNTS).exists()
        lower = {path: kinds if first else kinds & limits.get(path, Counter()) for path, kinds in counts.items()}
        write_counts(root, lower)
        limits = {path: Counter({kind: n for kind, n in kinds.items() if n}) for path, kinds in lower.items()}
    problems = 0
    for path, found in every.items():
        for kind, count in counts[path].items():
            if count > (limit := limits.get(path, Counter())[kind]):
                problems += 1
                lines = ", ".join(str(each.line) for each in found if each.kind == kind)
                print(f"{path}: {count} times, at most {limit}: {ADVICE[kind]} (lines {lines})")
    fallen = [path for path, kinds in limits.items() if kinds - counts.get(path, Counter())]
    if fallen and not problems:
        problems += 1
        print(f"lower counts are not recorded (scripts/ratchet.py --write): {', '.join(fallen[:5])}")
    if arguments.table:
        print(table(counts))
    if problems:
        sys.exit("ratchet.py: the counts of scripts/ratchet.json may only fall")


if __name__ == "__main__":
    main()
