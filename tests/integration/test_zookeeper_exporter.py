"""`python -m tidelog.exporter` over a live server that goes away."""

import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.zookeeper import free_port, zookeeper_server
from tidelog.exporter.mntr import KEPT

pytestmark = pytest.mark.integration

Samples = dict[tuple[str, str, str], float]


def scrape(port: int) -> Samples:
    """{(metric, server, state): value}; waits for a listener that is not there yet."""
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            break
        except OSError:
            assert time.monotonic() < deadline, "the exporter does not listen"
            time.sleep(0.05)
    return {
        (sample.name, sample.labels.get("server", ""), sample.labels.get("state", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_it_exposes_mntr_and_outlives_the_server(tmp_path: Path) -> None:
    port, gone = free_port(), f"127.0.0.1:{free_port()}"
    with zookeeper_server(tmp_path) as server:
        command = [sys.executable, "-m", "tidelog.exporter", "--listen", f"127.0.0.1:{port}", "--timeout", "5"]
        exporter = subprocess.Popen([*command, "--zookeeper", f"{server.address},{gone}"])
        try:
            name = str(server.address)
            samples = scrape(port)
            assert samples["tidelog_zookeeper_up", name, ""] == 1.0
            assert samples["tidelog_zookeeper_up", gone, ""] == 0.0
            assert samples["tidelog_zookeeper_server_state", name, "standalone"] == 1.0
            assert samples["tidelog_zookeeper_znode_count", name, ""] >= 5
            told = {field for field in KEPT if ("tidelog_zookeeper_" + field, name, "") in samples}
            assert KEPT.keys() - told == {"synced_followers", "pending_syncs"}, "of a leader of others only"
            assert samples["process_resident_memory_bytes", "", ""] > 0
            server.pause()
            assert scrape(port)["tidelog_zookeeper_up", name, ""] == 0.0
            server.kill()
            assert scrape(port)["tidelog_zookeeper_up", name, ""] == 0.0
            server.start()
            server.wait_ready()
            assert scrape(port)["tidelog_zookeeper_up", name, ""] == 1.0
            exporter.send_signal(signal.SIGTERM)
            assert exporter.wait(10) == 0
        finally:
            exporter.kill()
            exporter.wait()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--zookeeper", "nonsense"], "'nonsense' is not host:port"),
        (["--zookeeper", "h:1", "--listen", "127.0.0.1:x"], "is not host:port"),
        ([], "--zookeeper"),
    ],
)
def test_bad_arguments_end_in_a_usage_line(arguments: list[str], complaint: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "tidelog.exporter", *arguments], capture_output=True, text=True)
    assert ended.returncode == 2 and complaint in ended.stderr and "Traceback" not in ended.stderr


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with zookeeper_server(tmp_path) as server:
        command = [sys.executable, "-m", "tidelog.exporter", "--zookeeper", "h:1", "--listen", str(server.address)]
        ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2 and "Address already in use" in ended.stderr and "Traceback" not in ended.stderr
