"""Scenario files: what a good one means, and that a bad one is refused by file, line and nearest name."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from helpers.requirements import requirement
from tidelog.chaos import scenario_file
from tidelog.chaos.faults.base import On
from tidelog.chaos.faults.processes import Kill
from tidelog.chaos.scenario import (
    ClusterShape,
    Column,
    ConsumerPlan,
    Expected,
    ProducerPlan,
    Promised,
    TopicShape,
    Unavailable,
)
from tidelog.chaos.yaml_nodes import DEPTH_MAX, TEXT_MAX, ScenarioError, parse

GOOD = """\
name: row-01-mine
row: 1
title: a leader dies
about: what one sees
runs_in: [local]
cluster: {brokers: 5, controllers: 1, proxy: true, settings: {broker: {replica_lag_time_max_ms: 2000}, broker-1: {}}}
topic: {partitions: 2, replication_factor: 5, min_isr: 3, configs: {flush: sync}}
workload:
  rate: 250.5
  keys: 7
  value_bytes: 0
  producers: [{acks: all, count: 2}, {acks: 1, delivery_timeout: 500ms}]
  consumers: {assigned: 0, group: 3, session: 7s, crash_every: 5s}
duration: 20s
faults:
  - {at: 6s, fault: kill, target: broker-1}
  - {at: 1500ms, fault: kill, target: leader of 0, for: 5s}
promise:
  lost: one-copy
  unavailable: {at_most: 8s, others: 1s, acks: all}
expect:
  - elections at most: 1
  - no rebalance
"""


def load(text: str) -> scenario_file.Scenario:
    return scenario_file.scenario(parse(text, "f"))


def refusal(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(text)
    said = str(caught.value)
    assert "\n" not in said
    return said


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} must be there once"
    return GOOD.replace(old, new)


def test_a_file_means_what_it_says() -> None:
    found = load(GOOD)
    assert (found.name, found.row, found.runs_in, found.duration_s) == ("row-01-mine", 1, (On.LOCAL,), 20.0)
    settings = {"broker": {"replica_lag_time_max_ms": "2000"}, "broker-1": {}}
    assert found.cluster == ClusterShape(5, 1, 1, True, settings)
    assert found.topic == TopicShape(2, 5, 3, {"flush": "sync"})
    assert (found.workload.rate, found.workload.keys, found.workload.value_bytes) == (250.5, 7, 0)
    assert found.workload.producers == (ProducerPlan("all", 2), ProducerPlan("1", 1, 0.5))
    assert found.workload.consumers == ConsumerPlan(0, 3, 7.0, 5.0)
    assert found.promise == Promised("one-copy", unavailable=(Unavailable(8.0, 1.0, "all"),))
    assert found.expect == (Expected("elections at most", "1"), Expected("no rebalance"))


OTHER_COLUMN = "all/1:\n  promise: {lost: none}\n  expect: [no elections]\n"


def test_the_column_all_1_has_a_min_isr_of_one_and_what_the_file_says_of_it() -> None:
    plain, own = load(GOOD), load(GOOD + OTHER_COLUMN)
    assert own.in_column(Column.ALL_2) == own
    for each in (plain, own):
        assert each.in_column(Column.ALL_1).topic == TopicShape(2, 5, 1, {"flush": "sync"})
    there = plain.in_column(Column.ALL_1)
    assert (there.promise, there.expect, there.workload) == (plain.promise, plain.expect, plain.workload)
    there = own.in_column(Column.ALL_1)
    assert (there.promise, there.expect) == (Promised("none"), (Expected("no elections"),))


def test_faults_are_in_the_order_of_their_times_and_made() -> None:
    first, second = load(GOOD).faults
    assert (first.at_s, first.for_s, first.target.text, first.fault) == (1.5, 5.0, "leader of 0", Kill())
    assert (second.at_s, second.for_s, second.target.text) == (6.0, None, "broker-1")


def test_a_loss_that_must_be_seen_is_allowed_and_expected() -> None:
    promise = load(changed("lost: one-copy", "lost: expected")).promise
    assert (promise.lost, promise.loss_expected) == ("allowed", True)


ENDS: Final = """\
name: mine
title: t
about: a
runs_in: [local]
workload: {orders: 500, consumers: {assigned: 0, agents: 2, spark: true}}
duration: 10m
faults:
  - {at: 50%, fault: kill, target: leader of 0, until: 75%}
  - {at: 50%, fault: kill, target: agent-1, until: moved}
  - {at: 10%, fault: pause, target: broker-1, for: 2s}
"""


def test_a_load_that_ends_has_faults_at_its_parts() -> None:
    found = load(ENDS)
    assert found.ends_with_load and (found.workload.orders, found.workload.rate) == (500, None)
    assert (found.workload.consumers.agents, found.workload.consumers.spark) == (2, True)
    ends = [(each.at_part, each.until_part, each.until_moved, each.for_s) for each in found.faults]
    assert ends == [(0.1, None, False, 2.0), (0.5, 0.75, False, None), (0.5, None, True, None)]
    assert load(ENDS.replace("orders: 500", "lines: some file")).workload.lines == Path("some file")


@pytest.mark.parametrize(
    "old, new, complaint",
    [
        ("orders: 500", "orders: 500, lines: x", "workload: either orders or lines"),
        ("orders: 500", "rate: 5", "only a load of orders or lines has parts"),
        ("orders: 500,", "orders: 500, producers: [{acks: all}, {acks: 1}],", "one sends the orders or the lines"),
        ("agents: 2, ", "", "nothing moves without agents"),
        ("until: 75%", "until: 75%, for: 3s", "either for or until"),
        ("at: 10%", "at: 110%", "'110%' is more than 100%"),
        ("at: 10%", "at: 1s, until: 5%", "of a fault whose `at` is a part of the load"),
    ],
)
def test_parts_that_mean_nothing_are_refused(old: str, new: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(complaint)):
        load(ENDS.replace(old, new, 1))


def test_a_row_of_the_simulator_says_why() -> None:
    found = load("name: row-05\nrow: 5\ntitle: t\nabout: a\nsimulator: no process loses its page cache\n")
    assert (found.runs_in, found.simulator) == ((), "no process loses its page cache")


BAD: Sequence[tuple[str, str, str, str]] = [
    # what it is about, old text, new text, what is said
    ("unknown_key", "row: 1", "rwo: 1", "f:2: 'rwo' is not known here; did you mean 'row'?"),
    ("key_twice", "row: 1", "row: 1\nrow: 2", "f:3: 'row' is given twice (first in line 2)"),
    ("missing_key", "title: a leader dies\n", "", "f:1: title is missing"),
    ("no_duration", "duration: 20s\n", "", "f:1: duration is missing"),
    ("row_beyond", "row: 1", "row: 38", "f:2: row: '38' is not a whole number from 1 to 37"),
    ("row_true", "row: 1", "row: true", "f:2: row: 'True' is not a whole number from 1 to 37"),
    ("no_place", "runs_in: [local]", "runs_in: []", "f:5: runs_in: name at least one of local, compose"),
    ("unknown_place", "[local]", "[lokal]", "f:5: runs_in[0]: 'lokal' is none of local, compose; did you mean 'local'?"),
    ("both_places", "row: 1", "row: 1\nsimulator: too", "f:1: either runs_in or simulator is needed"),
    ("no_list", "runs_in: [local]", "runs_in: local", "f:5: runs_in: 'local' is not a list"),
    ("unknown_shape", "brokers: 5", "broker: 5", "f:6: cluster: 'broker' is not known here; did you mean 'brokers'?"),
    ("flag", "proxy: true", "proxy: 1", "f:6: cluster.proxy: '1' is not true or false"),
    ("unknown_setting", "replica_lag_time_max_ms", "replica_lag_max_ms", "; did you mean 'replica_lag_time_max_ms'?"),
    ("settings_of_nobody", "broker-1: {}", "zookeeper: {}", "f:6: cluster.settings.zookeeper: settings are of a broker"),
    ("more_replicas", "replication_factor: 5", "replication_factor: 6", "'6' is not a whole number from 1 to 5"),
    ("min_isr_beyond", "min_isr: 3", "min_isr: 6", "f:7: topic.min_isr: '6' is not a whole number from 1 to 5"),
    ("topic_config", "flush: sync", "flush: always", "f:7: topic.configs.flush: "),
    ("compacted", "flush: sync", "cleanup.policy: compact", "f:7: topic.configs.cleanup.policy: 'compact' removes records on"),
    ("unknown_config", "flush: sync", "flsh: sync", "unknown topic setting 'flsh'; did you mean 'flush'?"),
    ("rate", "rate: 250.5", "rate: fast", "f:9: workload.rate: 'fast' is not a number"),
    ("rate_zero", "rate: 250.5", "rate: 0", "f:9: workload.rate: '0' is not a number from 0.1 to 20000"),
    ("rate_nan", "rate: 250.5", "rate: .nan", "f:9: workload.rate: 'nan' is not a number from 0.1 to 20000"),
    ("acks", "acks: all,", "acks: al,", "f:12: workload.producers[0].acks: 'al' is none of all, 1, 0"),
    ("no_producer", "[{acks: all, count: 2}, {acks: 1, delivery_timeout: 500ms}]", "[]", "f:12: workload.producers: name"),
    ("unit", "session: 7s", "session: 7", "f:13: workload.consumers.session: '7' is not a duration"),
    ("duration", "duration: 20s", "duration: 0s", "f:14: duration: above 0 and at most a day"),
    ("no_fault", "fault: kill, target: broker-1", "target: broker-1", "f:16: faults[0]: fault is missing"),
    ("unknown_fault", "kill, target: broker-1", "kil, target: broker-1", "f:16: faults[0].fault: no fault 'kil'; did you mean"),
    ("fault_of_the_simulator", "kill, target: broker-1", "power-loss, target: broker-1", "played by the simulator only"),
    ("unknown_parameter", "broker-1}", "broker-1, hard: 1}", "f:16: faults[0].hard: fault 'kill' has no parameter 'hard'"),
    ("unknown_target", "leader of 0", "leeder of 0", "f:17: faults[1].target: no target 'leeder of 0'; did you mean 'leader"),
    ("target_of_no_kind", "target: leader of 0", "target: client", "f:17: faults[1].target: fault 'kill' hits"),
    ("late", "at: 6s", "at: 21s", "f:16: faults[0].at: 21s is beyond the duration of 20s"),
    ("long", "for: 5s", "for: 19s", "f:17: faults[1].for: 20.5s is beyond the duration of 20s"),
    ("unknown_promise", "lost: one-copy", "loss: one-copy", "f:19: promise: 'loss' is not known here; did you mean 'lost'?"),
    ("unknown_loss", "one-copy", "non", "f:19: promise.lost: 'non' is none of none, one-copy, allowed, expected; did"),
    ("no_limit", "at_most: 8s, ", "", "f:20: promise.unavailable: at_most is missing"),
    ("unknown_predicate", "no rebalance", "no rebalnce", "f:23: expect[1]: no predicate 'no rebalnce'; did you mean"),
    ("no_argument", "elections at most: 1", "elections at most", "'elections at most' needs an argument"),
    ("too_much_argument", "- no rebalance", "- no rebalance: 1", "f:23: expect[1]: 'no rebalance' takes no argument"),
    ("wrong_argument", "elections at most: 1", "elections at most: few", "f:22: expect[0]: 'few' is not a whole number"),
    ("empty_column", "duration: 20s", "all/1: {}\nduration: 20s", "f:14: all/1: promise, expect or both"),
    ("unknown_in_column", "duration: 20s", "all/1: {min_isr: 1}\nduration: 20s", "f:14: all/1: 'min_isr' is not known here"),
    ("no_yaml", "row: 1", "row: [1", "f:"),
    ("a_reference", "row: 1", "row: &a 1\nkeys: *a", "f:3: references (*a) are not used here"),
    ("too_deep", "row: 1", f"row: {'[' * DEPTH_MAX}{']' * DEPTH_MAX}", f"f:2: nested deeper than {DEPTH_MAX} levels"),
    ("a_strange_key", "row: 1", "[row]: 1", "f:2: a key is a word, not a list or a mapping"),
    ("no_date", "row: 1", "row: 2026-13-45", "f:2: "),
    ("a_tag", "row: 1", "row: !!python/name:os.system 1", "f:2: "),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_what_is_wrong_is_told_by_its_line(old: str, new: str, said: str) -> None:
    text = refusal(changed(old, new))
    assert said in text and text.startswith("f:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f:1: the file is empty"),
        ("# nothing\n", "f:1: the file is empty"),
        ("just words\n", "f:1: 'just words' is not a mapping of keys to values"),
        ("- name: x\n", "f:1: a list is not a mapping of keys to values"),
        ("name: x\n---\nname: y\n", "f:2: "),
        ("name: \x07\n", "f:1: "),
        ("x" * (TEXT_MAX + 1), f"f:1: {TEXT_MAX + 1} characters; the limit is {TEXT_MAX}"),
    ],
    ids=["empty", "comment", "words", "list", "two", "bell", "long"],
)
def test_what_is_no_scenario_at_all_is_told_too(text: str, said: str) -> None:
    assert refusal(text).startswith(said)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"name: \xff\n")
    with pytest.raises(ScenarioError, match=r"mine.yaml:1: not UTF-8 text"):
        scenario_file.load(path)


DRAWN = """\
name: mix
title: t
about: a
runs_in: [local]
duration: 60s
random:
  every: 8s
  quiet: 0.25
  faults:
    - {fault: kill, target: any broker}
"""


@requirement("A random mix of faults loses no record acknowledged by all")
def test_faults_to_draw_from_have_no_times() -> None:
    drawn = load(DRAWN).random
    assert drawn is not None
    assert (drawn.every_s, drawn.quiet, [fault.target.text for fault in drawn.faults]) == (8.0, 0.25, ["any broker"])
    text = refusal(DRAWN.replace("{fault: kill,", "{at: 1s, fault: kill,"))
    assert text == "f:10: random.faults[0].at: it is drawn, not given"
    assert "random.every: at least 1s" in refusal(DRAWN.replace("every: 8s", "every: 1ms"))
    assert "quiet: '1.5' is not a number from 0 to 1" in refusal(DRAWN.replace("0.25", "1.5"))


# --- the library ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", scenario_file.names())
def test_every_scenario_of_the_library_loads_and_bears_the_name_of_its_file(name: str) -> None:
    found = scenario_file.load(scenario_file.find(name))
    assert found.name == name
    assert found.row is None or name.startswith(f"row-{found.row:02}-")


def test_a_scenario_is_found_by_the_part_of_its_name_that_tells_it_from_others() -> None:
    assert scenario_file.find("row-01").stem == "row-01-kill-leader"
    assert scenario_file.find("row-2").stem == "row-02-kill-follower"
    assert scenario_file.find("row-2-kill-follower").stem == "row-02-kill-follower"
    with pytest.raises(ScenarioError, match=r"no scenario row-42; did you mean 'row-\d+' or 'row-\d+' or 'row-"):
        scenario_file.find("row-42")
    with pytest.raises(ScenarioError, match="no scenario row-01-kil-leader; did you mean 'row-01-kill-leader'"):
        scenario_file.find("row-01-kil-leader")
