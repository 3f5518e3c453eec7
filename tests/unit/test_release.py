"""Releases beside each other: which may join, which features may be used, and what registrations say."""

import json
import re
import tomllib
from dataclasses import replace

import pytest

from helpers.scripts import ROOT
from tidelog.controller import describe
from tidelog.controller.store import brokers_of
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId
from tidelog.ports.meta import Create, Stat
from tidelog.release import RELEASE, UNLEVELLED, VERSION, Release, obstacle
from tidelog.runtime.joining import check_release
from tidelog.testing.meta import SimZooKeeper
from tidelog.testing.rand import seeded
from tidelog.wire import znodes
from unit.controller.harness import Harness, broker, isr, state, stored_topic

SECOND = Release("0.2.0", 2, 1)
THIRD = Release("0.3.0", 3, 2)


@pytest.mark.parametrize(
    ("mine", "other", "said"),
    [
        (SECOND, UNLEVELLED, ""),
        (UNLEVELLED, SECOND, ""),
        (SECOND, THIRD, ""),
        (THIRD, SECOND, ""),
        (
            UNLEVELLED,
            THIRD,
            "broker 3 is release 0.3.0 (feature level 3), which works beside level 2 and later: start a newer one here",
        ),
        (THIRD, UNLEVELLED, "level 2 and later; broker 3 is release unknown (feature level 1): upgrade broker 3 first"),
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


def test_images_carry_the_version_as_their_tag() -> None:
    for file in ("docker-compose.yml", "deploy/chaos/small-disks.yml"):
        tags = re.findall(r"image: tidelog/\w+:(.*)", (ROOT / file).read_text())
        assert set(tags) == {f"${{TIDELOG_TAG:-{VERSION}}}"}, file
    assert f"#TIDELOG_TAG={VERSION}\n" in (ROOT / ".env.example").read_text()


def test_the_version_of_the_package_is_that_of_the_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "tidelog.release.VERSION"}


def test_a_registration_without_a_level_is_level_1() -> None:
    fields = json.loads(registered(RELEASE))
    del fields["feature_level"], fields["feature_level_min"]
    found = znodes.decode_broker(7, json.dumps({**fields, "software": "0.1.0"}).encode())
    assert found.release == UNLEVELLED._replace(version="0.1.0")
    assert "works beside level 2 and later" in obstacle(RELEASE, [("broker 7", found.release)])
    with pytest.raises(znodes.BadZnode, match="feature_level"):
        znodes.decode_broker(7, json.dumps({**fields, "feature_level": 0}).encode())


async def test_who_may_not_join_is_told_before_it_does_anything() -> None:
    meta = SimZooKeeper(seeded(1, "store")).client(session_timeout_s=6.0)
    await meta.start()
    await check_release(meta, "broker 1", THIRD)  # nobody is there
    for path in znodes.PERSISTENT_PARENTS:
        await meta.multi([Create(path)])
    await meta.multi([Create(znodes.broker_path(7), registered(THIRD)), Create(znodes.broker_path(8), b"junk")])
    await check_release(meta, "broker 1", SECOND)
    await check_release(meta, "broker 7", UNLEVELLED)  # its own former life
    with pytest.raises(TidelogError, match=r"broker 7 is release 0\.3\.0") as refused:
        await check_release(meta, "broker 1", UNLEVELLED)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    controller = znodes.ControllerRegistration(2, "c", 1, "x", UNLEVELLED)
    await meta.multi([Create(znodes.CONTROLLER, znodes.encode_controller(controller))])
    with pytest.raises(TidelogError, match="upgrade controller 2 first"):
        await check_release(meta, "broker 1", THIRD)
    await check_release(meta, "controller 2", THIRD)


def test_a_controller_admits_no_broker_beside_which_it_does_not_work() -> None:
    stat = Stat(version=0, czxid=50, mzxid=50, ephemeral_owner=1)
    far = Release("9.0.0", RELEASE.level + 7, RELEASE.level + 1)
    admitted = brokers_of({"1": (registered(RELEASE, 1), stat), "2": (registered(far, 2), stat)}, {})
    assert [(each.broker_id, each.release) for each in admitted] == [(1, RELEASE)]


def cluster_of(*releases: Release) -> Harness:
    harness = Harness()
    brokers = [replace(broker(number, 10 + number), release=each) for number, each in enumerate(releases, 1)]
    harness.elected(stored_topic("t", ((1, 2),), (state(1, 5, isr(b1=11, b2=12), 20),)), brokers=brokers)
    return harness


def test_a_feature_waits_until_every_live_broker_has_its_level() -> None:
    c = cluster_of(RELEASE, RELEASE, SECOND)
    state = c.machine.state
    assert state.feature_level == SECOND.level
    described = describe.describe_cluster(state, "c", 1, 1, frozenset())
    assert [(each.software, each.feature_level) for each in described.brokers] == [
        (RELEASE.version, RELEASE.level),
        (RELEASE.version, RELEASE.level),
        (SECOND.version, SECOND.level),
    ]
    assert (described.feature_level, described.controller_software) == (SECOND.level, RELEASE.version)
    state.check_level(SECOND.level, "replicas cannot be moved")
    c.died(3)
    c.came(replace(broker(3, 44), release=UNLEVELLED))
    with pytest.raises(TidelogError) as refused:
        state.check_level(SECOND.level, "replicas cannot be moved")
    said = "replicas cannot be moved while brokers [3] are of a release that does not know it: upgrade them first"
    assert (refused.value.code, str(refused.value)) == (ErrorCode.UNSUPPORTED_VERSION, said)
    c.died(3)
    state.check_level(SECOND.level, "replicas cannot be moved")


def test_a_broker_that_is_newer_than_its_controller_raises_nothing() -> None:
    assert cluster_of(THIRD._replace(oldest=1)).machine.state.feature_level == RELEASE.level
