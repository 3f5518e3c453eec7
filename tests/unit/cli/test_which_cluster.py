"""A command reaches the cluster that runs when no option and no variable names one."""

from pathlib import Path

import pytest

from helpers.driven_brokers import Driven
from tidelog.cluster import api, choice
from unit.cli.conftest import Tidelog

DESTROYING = {
    "topics delete": ("topics", "delete", "a"),
    "configs alter": ("configs", "alter", "--topic", "a", "--add", "retention.ms=1"),
    "groups delete": ("groups", "delete", "g"),
    "reset-offsets": ("groups", "reset-offsets", "g", "--topic", "a", "--to-earliest", "--execute"),
    "delete-records": ("delete-records", "--offset-json-file", "offsets.json"),
    "elect-leaders": ("elect-leaders", "--election-type", "unclean", "--all-topic-partitions"),
    "release-veto": ("brokers", "release-veto", "--topic", "a", "--partition", "0"),
    "reassign": ("reassign", "execute", "--reassignment-json-file", "plan.json"),
}


@pytest.fixture(autouse=True)
def nothing_is_named(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS")
    (tmp_path / "offsets.json").write_text(
        '{"partitions": [{"topic": "a", "partition": 0, "offset": 1}], "version": 1}'
    )
    (tmp_path / "plan.json").write_text(
        '{"partitions": [{"topic": "a", "partition": 0, "replicas": [0]}], "version": 1}'
    )


def running(monkeypatch: pytest.MonkeyPatch, cluster: Driven, *, local: bool, containers: bool) -> None:
    """The local one is the cluster in memory."""
    monkeypatch.setattr(choice, "local_runs", lambda _: local)
    monkeypatch.setattr(choice, "cluster_name", lambda *_: "compose/tidelog" if containers else None)
    monkeypatch.setattr(api, "bootstrap_servers", lambda _: cluster.bootstrap)


def test_a_local_cluster_that_runs_is_used_and_named(
    tidelog: Tidelog, cluster: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(monkeypatch, cluster, local=True, containers=False)
    assert tidelog("topics", "create", "a").exit_code == 0
    listed = tidelog("topics", "list")
    assert (listed.text, listed.error) == ("a\n", "tidelog: on the local cluster in data/local")
    assert tidelog("topics", "delete", "a").exit_code == 0, "of this directory's own cluster"


def test_the_choice_is_not_told_when_it_was_explicit(tidelog: Tidelog, cluster: Driven) -> None:
    assert tidelog("topics", "list", "--bootstrap-server", cluster.bootstrap).err == ""


def test_of_two_clusters_a_command_takes_none(
    tidelog: Tidelog, cluster: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(monkeypatch, cluster, local=True, containers=True)
    refused = tidelog("topics", "list")
    assert refused.exit_code == 2
    assert "both run; --bootstrap-server or TIDELOG_BOOTSTRAP_SERVERS says which is meant" in refused.error


def test_without_a_cluster_a_command_says_how_to_get_one(
    tidelog: Tidelog, cluster: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(monkeypatch, cluster, local=False, containers=False)
    refused = tidelog("topics", "list")
    assert refused.exit_code == 1
    assert "no cluster runs" in refused.error and "--bootstrap-server" in refused.error and "make up" in refused.error


@pytest.mark.parametrize("args", DESTROYING.values(), ids=list(DESTROYING))
def test_what_destroys_reaches_containers_by_name_alone(
    args: tuple[str, ...], tidelog: Tidelog, cluster: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(monkeypatch, cluster, local=False, containers=True)
    refused = tidelog(*args)
    assert refused.exit_code == 2
    assert "only when they are named: --bootstrap-server localhost:19092" in refused.error
