"""The cluster that a script means, by what is named and what runs."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tidelog.cluster import choice
from tidelog.cluster.api import ClusterError
from tidelog.cluster.choice import CONTAINERS, Choice, choose
from tidelog.cluster.local import local_name


def chosen(base: Path, names: Mapping[str, str], servers: str | None = None, *, runs: bool = False) -> Choice:
    """`names` is what the cluster at each address calls itself; `runs`: the local cluster of this directory does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "local_runs", lambda _: runs)
        return choose(base, servers, names.get)


def test_the_cluster_that_runs_is_meant(tmp_path: Path) -> None:
    assert chosen(tmp_path, {}, runs=True) == Choice(local=tmp_path)
    assert chosen(tmp_path, {CONTAINERS: "compose/mine"}) == Choice(project="mine")
    assert chosen(tmp_path, {}) == Choice()


def test_of_two_clusters_none_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="both run; --on local or --on compose says which is meant"):
        chosen(tmp_path, {CONTAINERS: "compose/tidelog"}, runs=True)


def test_the_variable_wins_over_what_runs(tmp_path: Path) -> None:
    names = {"a:1": "compose/mine", "b:1": local_name(tmp_path), CONTAINERS: "compose/tidelog"}
    assert chosen(tmp_path, names, "a:1", runs=True) == Choice(project="mine")
    assert chosen(tmp_path, names, "b:1", runs=True) == Choice(local=tmp_path)


@pytest.mark.parametrize("name, told", [("local/elsewhere-0", "is called local/elsewhere-0"), (None, "gives no name")])
def test_a_cluster_of_another_place_is_not_taken_for_ours(tmp_path: Path, name: str | None, told: str) -> None:
    names = {} if name is None else {"a:1": name, CONTAINERS: name}
    assert chosen(tmp_path, names) == Choice(), "whatever listens on the ports of the containers"
    with pytest.raises(ClusterError, match=re.escape(f"at a:1 {told}")):
        chosen(tmp_path, names, "a:1")


def test_a_local_name_tells_directories_apart_and_no_path(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "local", tmp_path / "b" / "local"
    assert local_name(one) != local_name(other) and local_name(one).startswith("local/local-")
    assert str(tmp_path) not in local_name(one) and local_name(one / ".." / "local") == local_name(one)
