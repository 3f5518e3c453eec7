"""What a broker's settings are to its coordinator of groups: each documented one arrives where it counts."""

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.broker.groups import coordinators, limits
from tidelog.config import BrokerSettings
from tidelog.ids import Address
from tidelog.testing.clock import ManualClock


def settings(**changes: Any) -> BrokerSettings:
    known: dict[str, Any] = {
        "broker_id": 1,
        "zookeeper": (Address("zk", 2181),),
        "listeners": {"INTERNAL": Address("127.0.0.1", 9092)},
        "data_dir": Path("/data"),
    }
    return BrokerSettings(**(known | changes))


@requirement("Every rebalance handler has a queue of its own")
@requirement("The number of rebalance handlers is a setting")
@requirement("The minimum session timeout is a setting")
@requirement("The number of failed pings that are allowed is a setting")
@requirement("The interval of offset commits is a setting")
@requirement("The pause after a failed rebalance attempt is a setting")
@pytest.mark.parametrize(
    ("key", "value", "limit", "expected"),
    [
        ("coordinator_rebalance_handlers", 9, "handlers", 9),  # A5.01
        ("group_min_session_timeout_ms", 2500, "session_min_s", 2.5),  # A5.02
        ("group_max_session_timeout_ms", 7500, "session_max_s", 7.5),
        ("group_failed_pings_max", 5, "failed_pings_max", 5),  # A5.03
        ("offset_commit_interval_ms", 300, "commit_interval_s", 0.3),  # A5.04
        ("rebalance_retries_max", 8, "rebalance_retries_max", 8),  # A5.05
        ("rebalance_backoff_ms", 70, "backoff_s", 0.07),  # A5.06
        ("rebalance_backoff_max_ms", 20_000, "backoff_max_s", 20.0),
        ("group_join_delay_ms", 30, "join_delay_s", 0.03),
        ("group_join_delay_max_ms", 600, "join_delay_max_s", 0.6),
        ("group_initial_rebalance_delay_ms", 40, "initial_delay_s", 0.04),
        ("group_rebalance", "eager", "incremental", False),
        ("group_max_size", 17, "members_max", 17),
        ("group_max_partitions", 1700, "partitions_max", 1700),
        ("group_assignor", "range", "default_assignor", "range"),
        ("offsets_retention_minutes", 3, "retention_s", 180),
    ],
)
def test_each_setting_is_a_limit_of_the_coordinator(key: str, value: Any, limit: str, expected: Any) -> None:
    before, after = asdict(limits(settings())), asdict(limits(settings(**{key: value})))
    assert after[limit] == expected
    assert {name for name in before if before[name] != after[name]} == {limit}, "and nothing else"


@requirement("A member fails after too many failed pings in a row")
@requirement("The number of rebalance handlers is a setting")
@requirement("The number of failed pings that are allowed is a setting")
@requirement("The interval of offset commits is a setting")
@requirement("The minimum session timeout is a setting")
def test_limits_that_are_not_set() -> None:
    unset = limits(settings())
    assert (unset.handlers, unset.failed_pings_max, unset.commit_interval_s) == (4, 0, 1.0)
    assert unset.session_min_s == 1.0


@requirement("A registration starts pings, watches topics and rebalances")
@requirement("A rebalance stops all members, stores, then starts all")
@requirement("The partitions of a topic are divided among consumer threads")
def test_groups_have_the_documented_defaults() -> None:
    found = limits(settings())
    assert (found.initial_delay_s, found.join_delay_s, found.join_delay_max_s) == (0.5, 0.1, 2.0)
    assert found.incremental and found.default_assignor == "sticky"


@requirement("Each shard has one active coordinator")
@requirement("Every broker coordinates a subset of the groups")
@pytest.mark.parametrize(
    ("changes", "shards"),
    [
        ({"coordinator_mode": "single", "coordinator_shards": 5}, 1),
        ({"coordinator_mode": "sharded", "coordinator_shards": 5}, 5),
        ({}, 8),
    ],
)
def test_conflict_01_open_08_one_coordinator_is_elected_or_several_share_the_groups(
    changes: dict[str, Any], shards: int
) -> None:
    chosen = settings(**changes)
    unused: Any = SimpleNamespace(
        clock=ManualClock(), net=None, rand=None, recorder=None, leader_of=None, address_of=None, unreadable=None
    )
    assert coordinators(chosen, unused, unused, unused, unused)._settings.shards == shards
