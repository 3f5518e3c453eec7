"""The embedded server: starts, is paused, killed and restarted with its data, and says what is missing."""

import os
from pathlib import Path

import pytest

from helpers.zookeeper import free_port, zookeeper_server
from tidelog.cluster.zookeeper import EmbeddedZooKeeper, ServerFiles, ZooKeeperUnavailable, four_letter_word
from tidelog.ids import Address

pytestmark = pytest.mark.integration


def test_it_serves_and_ends(tmp_path: Path) -> None:
    with zookeeper_server(tmp_path) as server:
        assert server.running and server.ready(10.0)
        assert "zk_znode_count" in four_letter_word(server.address, "mntr", 5)
        server.pause()
        assert not server.ready(0.2)
        server.resume()
        server.wait_ready()
        server.kill()
        assert not server.running and not server.ready()
        server.start()
        server.wait_ready()
    assert not server.running
    server.stop()
    assert server.files.output.read_text() == ""


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with zookeeper_server(tmp_path / "one") as server:
        second = EmbeddedZooKeeper(ServerFiles(tmp_path / "two", server.address))
        with pytest.raises(ZooKeeperUnavailable, match=f"cannot listen on {server.address}: Address already in use"):
            second.start()
        assert not second.running


def test_a_server_that_ends_while_starting_leaves_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "version-2").write_text("a file where a folder should be")
    server = EmbeddedZooKeeper(ServerFiles(tmp_path, Address("127.0.0.1", free_port())))
    server.start()
    with pytest.raises(ZooKeeperUnavailable, match=r"ended while starting: .*version-2") as caught:
        server.wait_ready()
    assert "\n" not in str(caught.value)


def test_missing_java_is_said_in_one_line(tmp_path: Path) -> None:
    files = ServerFiles(tmp_path, Address("127.0.0.1", free_port()))
    with pytest.raises(ZooKeeperUnavailable, match=r"install a Java 17 runtime .* or set JAVA_HOME") as caught:
        EmbeddedZooKeeper(files, environ={"PATH": str(tmp_path)}).start()
    assert "\n" not in str(caught.value)


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    files = ServerFiles(tmp_path, Address("127.0.0.1", 1))
    assert files.command({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})[0] == str(java)
    assert files.environment({"_JAVA_OPTIONS": "-Xmx1g", "PATH": "/x"}) == {"PATH": "/x"}
