"""Releases beside each other: who may join, what may be used, and what registrations say (rolling upgrade, issue 7)."""

import json
from dataclasses import replace

import pytest

from tidelog.controller import describe
from tidelog.controller.store import brokers_of
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId
from tidelog.ports.meta import Create, Stat
from tidelog.release import FIRST, REASSIGNMENT, RELEASE, Release, obstacle
from tidelog.runtime.joining import check_release
from tidelog.testing import loop as sim
from tidelog.testing.meta import SimZooKeeper
from tidelog.testing.rand import seeded
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import Harness, broker, isr, state, stored_topic

SECOND = Release("0.2.0", 2, 1)
THIRD = Release("0.3.0", 3, 2)
"""A release that has given up 0.1.0."""


@pytest.mark.parametrize(
    ("mine", "other", "said"),
    [
        (SECOND, FIRST, ""),
        (FIRST, SECOND, ""),
        (SECOND, THIRD, ""),
        (THIRD, SECOND, ""),
        (
            FIRST,
            THIRD,
            "broker 3 is release 0.3.0 (feature level 3), which works beside level 2 and later: start a newer one here",
        ),
        (THIRD, FIRST, "level 2 and later; broker 3 is release unknown (feature level 1): upgrade broker 3 first"),
    ],
)
def test_neighbouring_releases_work_together_and_others_name_what_to_do(
    mine: Release, other: Release, said: str
) -> None:
    problem = obstacle(mine, [("broker 1", mine), ("broker 3", other)])
    assert said in problem
    assert bool(problem) is bool(said)
    assert mine.works_beside(other) is other.works_beside(mine) is (not said)


def registered(release: Release, broker_id: int = 7) -> bytes:
    return znodes.encode_broker(znodes.BrokerRegistration(BrokerId(broker_id), (), "", 1, "x", release))


def test_a_registration_of_the_first_release_says_nothing_and_is_level_1() -> None:
    fields = json.loads(registered(RELEASE))
    del fields["feature_level"], fields["feature_level_min"]
    found = znodes.decode_broker(7, json.dumps({**fields, "software": "0.1.0"}).encode())
    assert found.release == FIRST._replace(version="0.1.0")
    with pytest.raises(znodes.BadZnode, match="feature_level"):
        znodes.decode_broker(7, json.dumps({**fields, "feature_level": 0}).encode())


def test_who_may_not_join_is_told_before_it_does_anything() -> None:
    async def tell() -> None:
        meta = SimZooKeeper(seeded(1, "store")).client(session_timeout_s=6.0)
        await meta.start()
        await check_release(meta, "broker 1", THIRD)  # nobody is there
        for path in znodes.PERSISTENT_PARENTS:
            await meta.multi([Create(path)])
        await meta.multi([Create(znodes.broker_path(7), registered(THIRD)), Create(znodes.broker_path(8), b"junk")])
        await check_release(meta, "broker 1", SECOND)
        await check_release(meta, "broker 7", FIRST)  # its own former life
        with pytest.raises(TidelogError, match=r"broker 7 is release 0\.3\.0") as refused:
            await check_release(meta, "broker 1", FIRST)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        controller = znodes.ControllerRegistration(2, "c", 1, "x", FIRST)
        await meta.multi([Create(znodes.CONTROLLER, znodes.encode_controller(controller))])
        with pytest.raises(TidelogError, match="upgrade controller 2 first"):
            await check_release(meta, "broker 1", THIRD)
        await check_release(meta, "controller 2", THIRD)

    sim.run(tell())


def test_a_controller_admits_no_broker_beside_which_it_does_not_work() -> None:
    stat = Stat(version=0, czxid=50, mzxid=50, ephemeral_owner=1)
    far = Release("9.0.0", RELEASE.level + 7, RELEASE.level + 1)
    admitted = brokers_of({"1": (registered(RELEASE, 1), stat), "2": (registered(far, 2), stat)})
    assert [(each.broker_id, each.release) for each in admitted] == [(1, RELEASE)]


def cluster_of(*releases: Release) -> Harness:
    harness = Harness()
    brokers = [replace(broker(number, 10 + number), release=each) for number, each in enumerate(releases, 1)]
    harness.elected(stored_topic("t", ((1, 2),), (state(1, 5, isr(b1=11, b2=12), 20),)), brokers=brokers)
    return harness


def test_a_feature_is_used_only_while_every_live_broker_has_it() -> None:
    old = FIRST._replace(version="0.1.0")
    c = cluster_of(RELEASE, RELEASE, old)
    assert c.machine.state.feature_level == 1 < REASSIGNMENT
    token, _ = c.move({0: (1, 3)})
    assert c.replies[token].error_code is ErrorCode.UNSUPPORTED_VERSION
    assert "brokers [3] are of a release that does not know it" in c.replies[token].error_message
    described = describe.describe_cluster(c.machine.state, "c", 1, 1, frozenset())
    assert [each.feature_level for each in described.brokers] == [RELEASE.level, RELEASE.level, 1]
    assert (described.feature_level, described.controller_software) == (1, RELEASE.version)
    c.died(3)
    assert c.machine.state.feature_level == RELEASE.level
    token, _ = c.move({0: (2, 1)})
    c.run()
    assert c.replies[token].error_code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "60000"),
        ("segment.ms", "9"),
        ("compression.type", "zstd"),
        ("compression.type", "uncompressed"),
    ],
)
def test_settings_that_an_older_broker_does_not_know_wait_until_it_is_upgraded(key: str, value: str) -> None:
    c = cluster_of(RELEASE, RELEASE, FIRST)
    entries = (m.ConfigEntry(key=key, value=value),)
    created, _ = c.create(m.NewTopic(name="u", num_partitions=1, replication_factor=2, configs=entries))
    (answer,) = c.replies[created].topics
    said = f"{key}={value} cannot be set while brokers [3] are of a release that does not know it: upgrade them first"
    assert (answer.error_code, answer.error_message) == (ErrorCode.UNSUPPORTED_VERSION, said)
    altered, _ = c.alter(m.ConfigChange(key=key, value=value))
    assert [(each.error_code, each.error_message) for each in c.replies[altered].topics] == [
        (ErrorCode.UNSUPPORTED_VERSION, said)
    ]
    c.died(3)
    altered, _ = c.alter(m.ConfigChange(key=key, value=value))
    c.run()
    assert c.replies[altered].topics[0].error_code is ErrorCode.NONE


def test_settings_that_every_release_knows_are_set_whoever_is_there() -> None:
    c = cluster_of(RELEASE, FIRST)
    known = {
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "cleanup.policy": "delete",
        "flush": "sync",
        "compression.type": "producer",
    }
    entries = tuple(m.ConfigEntry(key=key, value=value) for key, value in known.items())
    token, _ = c.create(m.NewTopic(name="u", num_partitions=1, replication_factor=2, configs=entries))
    c.run()
    assert c.replies[token].topics[0].error_code is ErrorCode.NONE


def test_a_move_that_is_under_way_can_be_cancelled_whoever_has_come() -> None:
    c = cluster_of(RELEASE, RELEASE, RELEASE)
    c.move({0: (3, 2)})
    c.run()
    c.came(replace(broker(4, 44), release=FIRST))
    token, _ = c.move({}, cancelled=[0])
    c.run()
    assert c.replies[token].error_code is ErrorCode.NONE


def test_a_broker_that_is_newer_than_its_controller_raises_nothing() -> None:
    assert cluster_of(THIRD._replace(oldest=1)).machine.state.feature_level == RELEASE.level
