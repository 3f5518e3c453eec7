"""`tidelog watch` as a command, against brokers in memory."""

import json

import pytest

from helpers.driven_brokers import Driven
from tidelog.wire.services import WATCH_SERVICE_WATCH_PROTOCOL
from unit.cli.conftest import Tidelog


@pytest.fixture
def elected(cluster: Driven) -> Driven:
    cluster.create("events")
    cluster.kill(1)
    cluster.settle()
    return cluster


def test_last_prints_what_has_happened_and_ends(tidelog: Tidelog, elected: Driven) -> None:
    result = tidelog("watch", "--last", "1000")
    assert (result.exit_code, result.err) == (0, "")
    lines = result.text.splitlines()
    (suspected,) = (at for at, line in enumerate(lines) if "  suspects broker-1" in line)
    (chosen,) = (at for at, line in enumerate(lines) if "for events-0: epoch 1" in line)
    leads = [at for at, line in enumerate(lines) if "events-0: leads in epoch 1" in line]
    assert suspected < chosen < leads[0]
    assert "  controller-1  suspects broker-1" in lines[suspected]
    assert "cause ?" not in result.text and "\x1b" not in result.text


def test_last_counts_all_processes_together(tidelog: Tidelog, elected: Driven) -> None:
    assert len(tidelog("watch", "--last", "7").text.splitlines()) == 7


def test_json_is_one_object_an_event(tidelog: Tidelog, elected: Driven) -> None:
    result = tidelog("watch", "--last", "1000", "--kind", "controller", "--format", "json")
    found = [json.loads(line) for line in result.text.splitlines()]
    assert {each["family"] for each in found} == {"controller"}
    chosen = [each for each in found if each["kind"] == "LeaderChosen"]
    assert chosen[-1]["cause"]["arrived"]


def test_mermaid_is_a_diagram_of_what_has_ended(tidelog: Tidelog, elected: Driven) -> None:
    result = tidelog("watch", "--last", "1000", "--partition", "events-0", "--format", "mermaid")
    lines = result.text.splitlines()
    assert lines[0] == "sequenceDiagram" and "    participant zookeeper" in lines
    assert any(line.startswith("    controller-1->>broker-2: ") for line in lines)


def test_a_watch_ends_in_time(tidelog: Tidelog, elected: Driven) -> None:
    result = tidelog("watch", "--for", "500ms")
    assert (result.exit_code, result.text) == (0, "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--kind", "magic"),
            "--kind 'magic' is none of liveness, controller, orders, replica, isr, coordinator, member, zookeeper",
        ),
        (("--partition", "events"), "--partition 'events' is not a partition like events-0"),
        (("--topic", "a", "--partition", "b-0"), "--partition 'b-0' is not one of --topic 'a'"),
        (("--format", "mermaid"), "--format mermaid draws what has ended: add --for 30s or --last 100"),
        (("--last", "0"), "Invalid value for '--last'"),
        (("--for", "soon"), "--for 'soon' is not a time like 500ms, 10s or 2m"),
        (("--faults",), "--listen, --wait and --faults are for --web"),
        (("--web", "--wait", "--faults"), "--faults needs a cluster that answers"),
    ],
)
def test_wrong_usage_is_one_line(tidelog: Tidelog, cluster: Driven, options: tuple[str, ...], told: str) -> None:
    result = tidelog("watch", *options)
    assert result.exit_code == 2 and result.text == ""
    assert told in result.err and result.err.count("\n") == 1


def test_a_cluster_of_elsewhere_is_not_broken(tidelog: Tidelog, cluster: Driven) -> None:
    result = tidelog("watch", "--web", "--faults", "--listen", "127.0.0.1:0")
    assert result.exit_code == 1 and result.text == "", "no page was served"
    assert "gives no name, and only the local cluster of this directory and containers can be broken" in result.err
    assert result.err.count("\n") == 1


def test_brokers_of_an_older_release_are_named(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("events")
    for server in cluster.world.network.listening.values():
        server._routes.pop(WATCH_SERVICE_WATCH_PROTOCOL.path)
    result = tidelog("watch", "--for", "10s")
    assert result.exit_code == 1
    assert result.err.splitlines()[-1] == "tidelog: broker-1: it runs a release that shows no protocol events"
