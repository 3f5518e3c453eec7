"""The release before this one, as a tree of its sources with the packages it needs: a rolling upgrade begins with it.

There are no tags: the commit stands here. It changes with the release that `tidelog.release` names.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from helpers.scripts import ROOT

VERSION = "0.2.0"
COMMIT = "8bd6253c337fd8c96c0d0a93e7ea562a3b92a73d"
CACHE = ROOT / "build" / "releases"
LOCK = "requirements-server.lock"


def services() -> Path:
    """Its source root, made once from the repository; skips the test where the commit is not in the clone."""
    tree = CACHE / f"{VERSION}-{COMMIT}-packages"  # a tree without that ending has the sources alone
    if not tree.exists():
        _unpack(tree)
    return tree / "services"


def _unpack(tree: Path) -> None:
    # The clone may belong to another user than the job of continuous integration.
    command = ["git", "-c", "safe.directory=*", "archive", "--format=tar", COMMIT, "services", LOCK]
    try:
        archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("git is not installed, from which the last release would come")
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        pytest.skip(f"release {VERSION} (commit {COMMIT}) is not in this clone: {said[-1] if said else 'git archive'}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        packed = Path(directory, "services.tar")
        packed.write_bytes(archive)
        with tarfile.open(packed) as tar:
            tar.extractall(Path(directory, "tree"), filter="data")
        _install(Path(directory, "tree"))
        try:
            os.rename(Path(directory, "tree"), tree)
        except OSError:
            if not tree.exists():  # another test process was faster
                raise


def _install(tree: Path) -> None:
    """Puts the locked packages of that release beside its sources: this release may lock others, or none of them."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    subprocess.run([*pip, "--target", str(tree / "services"), "-r", str(tree / LOCK)], check=True)
