"""YAML in which every value knows its line, so that whatever is wrong in a file is told where it stands."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from yaml.constructor import SafeConstructor

from tidelog.chaos.quantities import duration
from tidelog.names import shown, suggestion

TEXT_MAX: Final = 256 * 1024
"""A scenario or a story is a page; whatever is longer is none."""
DEPTH_MAX: Final = 20

T = TypeVar("T")


class ScenarioError(ValueError):
    """What is wrong in a file, as one line: `file:line: text`."""


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the file. The accessors refuse whatever is not of their kind."""

    value: Any
    """A scalar, a list of nodes, or a dictionary of nodes."""
    line: int
    file: str
    what: str
    """How to call it in a message: `faults[0].at`."""
    written: str = ""
    """A scalar as it stands in the file."""

    def error(self, text: str) -> ScenarioError:
        return ScenarioError(f"{self.file}:{self.line}: {text}")

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value.strip():
            raise self._is_not("text")
        return self.value.strip()

    def parsed(self, parse: Callable[[str], T]) -> T:
        """A scalar by what its text means; `parse` says with a ValueError what is wrong with it."""
        if isinstance(self.value, dict | list) or not self.written:
            raise self._is_not("a single value")
        try:
            return parse(self.written)
        except ValueError as error:
            raise self.error(f"{self._prefix()}{error}") from None

    def choice(self, known: Iterable[str]) -> str:
        names = [*map(str, known)]
        if self.written not in names:
            near = suggestion(self.written, names)
            raise self.error(f"{self._prefix()}{shown(self.written)} is none of {', '.join(names)}{near}")
        return self.written

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self._is_not("true or false")
        return self.value

    def whole(self, least: int = 0, most: int = 1_000_000) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not least <= self.value <= most:
            raise self._is_not(f"a whole number from {least} to {most}")
        return self.value

    def number(self, least: float = 0.0, most: float = 1e9) -> float:
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            raise self._is_not("a number")
        if not math.isfinite(self.value) or not least <= self.value <= most:
            raise self._is_not(f"a number from {least:g} to {most:g}")
        return float(self.value)

    def seconds(self) -> float:
        return self.parsed(duration)

    def items(self) -> Sequence["Node"]:
        if not isinstance(self.value, list):
            raise self._is_not("a list")
        return self.value

    def mapping(self) -> Mapping[str, "Node"]:
        if not isinstance(self.value, dict):
            raise self._is_not("a mapping of keys to values")
        return self.value

    def plain(self) -> Any:
        """The value without lines; what a file holds if this is written to it again."""
        if isinstance(self.value, dict):
            return {key: each.plain() for key, each in self.value.items()}
        return [each.plain() for each in self.value] if isinstance(self.value, list) else self.value

    def fields(self, known: Iterable[str], needed: Iterable[str] = ()) -> Mapping[str, "Node"]:
        """A mapping that has no key beyond `known` and all of `needed`."""
        names = list(known)
        found = self.mapping()
        for key, node in found.items():
            if key not in names:
                raise node.error(
                    f"{self._prefix()}{shown(key)} is not known here{suggestion(key, names)} (known: {', '.join(names)})"
                )
        for key in needed:
            if key not in found:
                raise self.error(f"{self._prefix()}{key} is missing")
        return found

    def _prefix(self) -> str:
        return f"{self.what}: " if self.what else ""

    def _is_not(self, wanted: str) -> ScenarioError:
        kinds = {dict: "a mapping", list: "a list", type(None): "nothing"}
        found = kinds.get(type(self.value)) or shown(str(self.value))
        return self.error(f"{self._prefix()}{found} is not {wanted}")


def parse_file(path: Path) -> Node:
    """ScenarioError, OSError."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}:1: not UTF-8 text ({error.reason} at byte {error.start})") from None
    return parse(text, str(path))


def parse(text: str, file: str) -> Node:
    """ScenarioError for what is no YAML, for two documents, a key given twice, and for references."""
    if len(text) > TEXT_MAX:
        raise ScenarioError(f"{file}:1: {len(text)} characters; the limit is {TEXT_MAX}")
    try:
        _check_events(text, file)
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        if root is None:
            raise ScenarioError(f"{file}:1: the file is empty")
        return _node(root, file, "", root.start_mark.line + 1)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ScenarioError(f"{file}:{mark.line + 1 if mark else 1}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:  # a character that no text may hold
        raise ScenarioError(f"{file}:1: {str(error).splitlines()[0]}") from None


def _check_events(text: str, file: str) -> None:
    """A few lines of references can stand for more than any memory, or for themselves."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise ScenarioError(f"{file}:{line}: references (*{event.anchor}) are not used here")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise ScenarioError(f"{file}:{line}: nested deeper than {DEPTH_MAX} levels")


def _node(node: yaml.Node, file: str, what: str, line: int) -> Node:
    if isinstance(node, yaml.SequenceNode):
        items = [_node(item, file, f"{what}[{i}]", item.start_mark.line + 1) for i, item in enumerate(node.value)]
        return Node(items, line, file, what)
    if isinstance(node, yaml.MappingNode):
        return Node(_entries(node, file, what), line, file, what)
    try:
        return Node(SafeConstructor().construct_object(node), line, file, what, node.value)
    except ValueError as error:  # a date or a number that looks like one and is none
        raise ScenarioError(f"{file}:{line}: {error}") from None


def _entries(node: yaml.MappingNode, file: str, what: str) -> dict[str, Node]:
    """A value counts as standing where its key stands."""
    found: dict[str, Node] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value
        if not isinstance(key, str):
            raise ScenarioError(f"{file}:{line}: a key is a word, not a list or a mapping")
        if key in found:
            raise ScenarioError(f"{file}:{line}: {shown(key)} is given twice (first in line {found[key].line})")
        found[key] = _node(value_node, file, f"{what}.{key}" if what else key, line)
    return found
