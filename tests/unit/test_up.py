"""scripts/up.sh refuses a port of the brokers that is taken, and names the cluster that has it, before it builds anything."""

import os
import socket
import subprocess
from itertools import count
from pathlib import Path

import pytest

from helpers.scripts import ROOT
from tidelog.cluster.plan import FILE_NAME, make_plan, to_json


@pytest.mark.parametrize("local", [False, True])
def test_a_taken_port_is_refused_and_its_owner_named(tmp_path: Path, local: bool) -> None:
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 0\n")
    docker.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if local:
            (tmp_path / "data/local").mkdir(parents=True)
            plan = make_plan([0, 1, 2], 1, 1, count(20_000)).with_client_ports([port, port + 1, port + 2])
            (tmp_path / "data/local" / FILE_NAME).write_text(to_json(plan))
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "BROKER_1_PORT": str(port)}
        done = subprocess.run([tmp_path / "scripts/up.sh"], env=env, capture_output=True, text=True, check=False)
    owner = f"port {port} belongs to the local cluster in data/local: 'tidelog local down' ends it"
    other = (
        f"another program listens at 127.0.0.1:{port}, where a broker is to be: stop it, or set another port in .env"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"up.sh: {owner if local else other}")
