"""scripts/lib/grafana.sh: the override file that leaves Grafana out comes and goes, and one of the user's own stays."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from helpers.scripts import ROOT

OVERRIDE = "docker-compose.override.yml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docker-compose.yml").write_text("services:\n  grafana:\n    image: grafana/grafana:1.2.3\n")
    return tmp_path


def fit(folder: Path, *, reached: bool) -> str:
    """The lines that the script prints; `reached`: the image can be pulled."""
    docker = folder / "docker"
    docker.write_text(f"#!/bin/sh\n[ $1 = manifest ] && exit {int(not reached)}\nexit 1\n")
    docker.chmod(0o755)
    words = f". {ROOT}/scripts/lib/docker.sh; . {ROOT}/scripts/lib/grafana.sh; fit_override"
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euc", words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stderr


def test_it_comes_where_grafana_cannot_be_pulled_and_goes(folder: Path) -> None:
    assert "leaves it out" in fit(folder, reached=False)
    assert yaml.safe_load((folder / OVERRIDE).read_text()) == {"services": {"grafana": {"profiles": ["ui"]}}}
    assert fit(folder, reached=False) == "", "it is there already"
    assert "is removed" in fit(folder, reached=True)
    assert not (folder / OVERRIDE).exists()


def test_one_of_the_user_stays_and_is_named(folder: Path) -> None:
    (folder / OVERRIDE).write_text("services: {}\n")
    for reached in (False, True):
        said = fit(folder, reached=reached)
        assert (f"{OVERRIDE} is yours and stays" in said) is not reached
        assert (folder / OVERRIDE).read_text() == "services: {}\n"


def test_nothing_is_written_where_grafana_can_be_pulled(folder: Path) -> None:
    assert fit(folder, reached=True) == ""
    assert not (folder / OVERRIDE).exists()
