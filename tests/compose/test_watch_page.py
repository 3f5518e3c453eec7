"""The page of the containers in a real browser: what happens to them is shown, and a page on the host can make it happen."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from helpers.browser import why_not
from helpers.compose import ComposeProject
from helpers.scripts import ROOT
from helpers.web_page import Opened, browsing, served
from tidelog.cluster.wait import until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
ROW = "tr[data-partition=events-0]"
ALL_IN_SYNC = "ISR 1,2,3"


@pytest.fixture
def opened() -> Iterator[Opened]:
    with browsing() as found:
        yield found


def test_a_container_that_is_killed_is_seen_on_the_page(project: ComposeProject, opened: Opened) -> None:
    address = f"http://127.0.0.1:{project.settings['WATCH_PORT']}/"
    opened.page.goto(address)
    opened.shows(ROW, ALL_IN_SYNC)
    leader = opened.leader(ROW)
    project.faults.kill(leader)
    try:
        opened.shows(f"[data-process={leader}]", "down")
        opened.shows("#story", f"suspects {leader}")
        assert opened.leader(ROW) != leader
    finally:
        project.faults.start(leader)
    opened.shows(ROW, ALL_IN_SYNC)
    opened.page.set_viewport_size({"width": 768, "height": 900})
    assert not opened.overflows() and opened.complaints == []
    assert opened.page.locator("#acts button, [data-act]").count() == 0 and "read-only" in opened.text("#head")
    headers = {"Content-Type": "application/json"}
    command = urllib.request.Request(f"{address}do", b'{"act": {"do": "kill", "process": "broker-1"}}', headers)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(command)


def test_a_page_on_the_host_breaks_the_containers(project: ComposeProject, opened: Opened) -> None:
    def becomes_marked(fault: str, value: str) -> None:
        """Boards show a fault that is 1."""

        def is_marked() -> bool:
            found = project.prometheus("/api/v1/query", query="tidelog_chaos_fault_active")["result"]
            marks = {f"{each['metric']['fault']} {each['metric']['target']}": each["value"][1] for each in found}
            return marks.get(fault) == value

        until(is_marked, f"{fault} being {value} on the boards", timeout_s=30, interval_s=0.5)

    servers = ("--bootstrap-server", project.bootstrap_servers)
    with served("watch", "--web", "--faults", *servers, cwd=ROOT, env=project.environment()) as address:
        opened.page.goto(address)
        opened.shows(ROW, ALL_IN_SYNC)
        leader = opened.leader(ROW)
        opened.page.click("[data-do=isolate]")
        opened.page.wait_for_function("() => document.activeElement.closest('#acts form') !== null")
        opened.page.keyboard.type(leader)
        opened.press("Enter", "Escape")
        opened.shows("#story", f"{leader} cut from")
        opened.page.wait_for_function(
            "([row, leader]) => !document.querySelector(row).querySelector(`[data-broker='${leader}']`)"
            ".innerText.includes('leads')",
            arg=[ROW, leader.removeprefix("broker-")],
        )
        becomes_marked(f"isolate {leader}", "1")
        opened.form("h")
        opened.press("Enter", "Escape")
        opened.shows("#story", f"isolate {leader} is healed")
        opened.shows(ROW, ALL_IN_SYNC)
        becomes_marked(f"isolate {leader}", "0")
        assert opened.complaints == []
