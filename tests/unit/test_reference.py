"""Reference pages made from code: every setting has a row with a meaning, and durations and sizes are in words."""

import re
from pathlib import Path

import pytest

import reference
from helpers.scripts import ROOT
from tidelog import config
from tidelog.chaos.scenario_file import load
from tidelog.topic_config import TopicConfig, to_entries

KINDS = (
    config.Settings,
    config.ServerSettings,
    config.BrokerSettings,
    config.ControllerSettings,
    config.ClientSettings,
    config.AgentSettings,
    config.TrafficSettings,
)
ROW = re.compile(r"^\| `([\w.]+)` \|", re.MULTILINE)


def test_every_setting_has_a_row_in_the_section_of_its_class() -> None:
    wanted = [key for kind in KINDS for key in config.keys(kind) if key in vars(kind).get("__annotations__", {})]
    assert ROW.findall(reference.settings()) == [*wanted, *to_entries(TopicConfig())]


@pytest.mark.parametrize("kind", [*KINDS, TopicConfig])
def test_every_field_has_a_sentence_below_it(kind: type) -> None:
    fields = [name for name in kind.__annotations__ if not name.startswith("_")]
    docs = reference.field_docs(kind)
    assert [name for name in fields if not docs.get(name, "").endswith(".")] == []


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ("request_timeout_ms", ["`15000` (15 s)", "a whole number from 1 to 2147483647"]),
        ("segment.bytes", ["`segment_bytes`", "`134217728` (128 MiB)"]),
        ("broker_id", ["required"]),
        ("log_cleaner_enable", ["`true`", "true or false"]),
        ("assignor", ["empty", "range, roundrobin or sticky, or empty"]),
        ("cleanup.policy", ["", "`delete`", "compact; delete; compact,delete"]),
        ("max.compaction.lag.ms", ["", "no limit"]),
    ],
)
def test_a_row_says_default_and_values(row: str, cells: list[str]) -> None:
    (line,) = (line for line in reference.settings().splitlines() if line.startswith(f"| `{row}` |"))
    assert [cell.strip() for cell in line.split("|")[2:]][: len(cells)] == cells


def test_the_scenario_of_the_guide_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs/guide/chaos.md").read_text(), re.MULTILINE | re.DOTALL)
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    assert load(path).title == "a leader is paused, then a follower dies"
