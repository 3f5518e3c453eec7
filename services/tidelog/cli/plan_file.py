"""The JSON files of kafka-reassign-partitions, read with the line of whatever is wrong in them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidelog.cli.errors import CommandError
from tidelog.ids import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]

VERSION: Final = 1
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_ENTRY_DEPTH: Final = 2
"""Of an object in the list that the outermost object holds."""
_INT32_MAX: Final = 2**31 - 1


def read_plan(file: Path) -> Plan:
    """`{"version": 1, "partitions": [{"topic": T, "partition": N, "replicas": [...]}]}`. CommandError names file and line."""
    plan: Plan = {}
    for line, entry in _entries(file, "partitions"):
        known = {"topic", "partition", "replicas", "log_dirs"}
        if unknown := sorted(entry.keys() - known):
            raise _bad(file, line, f"{unknown[0]!r} is no field of a partition")
        topic, partition = entry.get("topic"), entry.get("partition")
        replicas = entry.get("replicas")
        if not isinstance(topic, str) or not topic:
            raise _bad(file, line, f"'topic' is {topic!r}, not a name")
        if not isinstance(partition, int) or not _is_id(partition):
            raise _bad(file, line, f"'partition' is {partition!r}, not a number from 0 on")
        if not isinstance(replicas, list) or not all(map(_is_id, replicas)):
            raise _bad(file, line, f"'replicas' is {replicas!r}, not a list of broker ids")
        if not replicas:
            raise _bad(file, line, "'replicas' is empty")
        if len(set(replicas)) != len(replicas):
            raise _bad(file, line, f"'replicas' names a broker twice: {replicas}")
        if any(where != "any" for where in entry.get("log_dirs") or ()):
            raise _bad(file, line, "'log_dirs' must be \"any\": a broker has one log directory")
        tp = TopicPartition(topic, partition)
        if tp in plan:
            raise _bad(file, line, f"{tp} comes twice")
        plan[tp] = tuple(replicas)
    return plan


def read_topics(file: Path) -> list[str]:
    """`{"version": 1, "topics": [{"topic": T}]}`."""
    topics = []
    for line, entry in _entries(file, "topics"):
        topic = entry.get("topic")
        if not isinstance(topic, str) or not topic:
            raise _bad(file, line, f"'topic' is {topic!r}, not a name")
        if topic in topics:
            raise _bad(file, line, f"topic {topic!r} comes twice")
        topics.append(topic)
    return topics


def written(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    """One line, as Kafka prints it; what `read_plan` reads."""
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(row), "log_dirs": ["any"] * len(row)}
        for tp, row in sorted(plan.items())
    ]
    return json.dumps({"version": VERSION, "partitions": rows}, separators=(",", ":"))


def _entries(file: Path, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of the list `key`, each with the line on which it begins."""
    try:
        text = file.read_text("utf-8")
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad(file, error.lineno, error.msg) from None
    except (UnicodeDecodeError, RecursionError):
        raise CommandError(f"{file} is not JSON", 2) from None
    if not isinstance(whole, dict) or not isinstance(whole.get(key), list):
        raise _bad(file, 1, f'it is not {{"version": 1, "{key}": [...]}}')
    if whole.get("version", VERSION) != VERSION:
        raise _bad(file, 1, f"'version' is {whole['version']!r}, and only {VERSION} is known")
    if unknown := sorted(whole.keys() - {"version", key}):
        raise _bad(file, 1, f"{unknown[0]!r} is no field of it, only 'version' and {key!r} are")
    if not whole[key]:
        raise _bad(file, 1, f"{key!r} is empty")
    lines = _lines(text)
    for entry in whole[key]:
        if not isinstance(entry, dict):
            raise _bad(file, 1, f"{key!r} holds {entry!r}, which is no object")
        yield next(lines), entry


def _lines(text: str) -> Iterator[int]:
    depth, line, seen = 0, 1, 0
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "{" | "[":
                if depth == _ENTRY_DEPTH and token[0] == "{":
                    line += text.count("\n", seen, token.start())
                    seen = token.start()
                    yield line
                depth += 1
            case "}" | "]":
                depth -= 1


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT32_MAX


def _bad(file: Path, line: int, problem: str) -> CommandError:
    return CommandError(f"{file}, line {line}: {problem}", 2)
