"""The page of a running cluster in a real browser: faults by its own buttons and from outside, and no way to make any without."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.browser import why_not
from helpers.cluster import running_cluster
from helpers.web_page import Opened, browsing, served
from tidelog.chaos.faults.processes import state_of
from tidelog.client.admin import Admin
from tidelog.cluster.api import bootstrap_servers
from tidelog.cluster.local import LocalCluster, State

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
TOPIC = "events"
ROW = f"tr[data-partition={TOPIC}-0]"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def cluster(base: Path) -> Iterator[LocalCluster]:
    """Is where commands that run in `base` look for a local one."""
    with running_cluster(base / "data" / "local") as found:
        asyncio.run(_create(bootstrap_servers(found)))
        yield found


async def _create(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topic(TOPIC, 2, 3)
        await admin.wait_until_led(TOPIC, in_sync=True)


@pytest.fixture
def opened() -> Iterator[Opened]:
    with browsing() as found:
        yield found


def test_a_leader_is_killed_and_healed_by_keyboard(cluster: LocalCluster, base: Path, opened: Opened) -> None:
    page = opened.page
    with served("watch", "--web", "--faults", cwd=base) as address:
        page.goto(address)
        opened.shows(ROW, "ISR 0,1,2")
        leader = opened.leader(ROW)
        opened.form("k")
        page.keyboard.type(leader)
        opened.press("Enter", "Escape")
        opened.shows(f"[data-process={leader}]", "down")
        opened.shows("#stage", f"kill {leader}")
        opened.shows("#story", f"for {TOPIC}-0: epoch 1")
        assert state_of(cluster, leader) is State.STOPPED

        page.locator("#story li", has_text=f"for {TOPIC}-0: epoch 1").click()
        opened.shows("#diagram", f"kill {leader} begins")
        now = opened.text("#time")
        opened.press("Escape", "ArrowLeft")
        page.wait_for_function("before => document.querySelector('#time').innerText !== before", arg=now)
        opened.shows("#note", "what you do happens now, and not at the moment shown")
        opened.press("End")
        page.wait_for_function("() => document.querySelector('#note').innerText === ''")

        opened.form("h")
        opened.press("Enter", "Escape")
        opened.shows("#story", f"kill {leader} is healed")
        opened.shows(ROW, "ISR 0,1,2")
        page.wait_for_function(
            "fault => !document.querySelector('#stage').innerText.includes(fault)", arg=f"kill {leader}"
        )
        page.set_viewport_size({"width": 768, "height": 900})
        assert not opened.overflows() and opened.complaints == []

        opened.form("p")
        page.keyboard.type(leader)
        opened.press("Enter")
        opened.shows(f"[data-process={leader}]", "paused")
    assert state_of(cluster, leader) is State.RUNNING, "the command has healed it"


def test_what_happens_outside_is_shown_and_nothing_can_be_done(
    cluster: LocalCluster, base: Path, opened: Opened
) -> None:
    with served("watch", "--web", cwd=base) as address:
        opened.page.goto(address)
        opened.shows(ROW, "ISR 0,1,2")
        leader = opened.leader(ROW)
        cluster.kill(leader)
        opened.shows(f"[data-process={leader}]", "down")
        cluster.start(leader)
        opened.shows(ROW, "ISR 0,1,2")
        assert opened.page.locator("#acts button, [data-act]").count() == 0 and "read-only" in opened.text("#head")
        assert opened.complaints == []
        command = urllib.request.Request(
            address + "do", b'{"act": {"do": "kill", "process": "broker-0"}}', {"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(command)
