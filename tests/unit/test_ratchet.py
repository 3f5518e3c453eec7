"""scripts/ratchet.py: language habits that may only become rarer."""

import subprocess
from pathlib import Path

import pytest

from helpers.scripts import ROOT, load_script

ratchet = load_script("ratchet")


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["python3", str(ROOT / "scripts/ratchet.py"), str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=root, check=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout whose one file has a docstring that begins with the wrong word."""
    (tmp_path / "services").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "services/a.py").write_text('"""What it does."""\n')
    git(tmp_path, "init", "-q")
    assert run(tmp_path, "--write").returncode == 0
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "path", "line"),
    [
        ("subject", "a.py", '"""Of a broker: its id."""'),
        ("subject", "a.py", 'x = 1\n"""How long, in seconds."""'),
        ("subject", "a.proto", "int32 id = 1; // Whe" + "ther it lives."),
        ("code", "a.py", "# closes HOLE" + "-12"),
        ("code", "a.sh", "# HL" + "6.04"),
        ("code", "a.py", "def test_l" + "03_two_members_share(): ..."),
        ("citation", "a.py", "# reliability" + " 6.3"),
        ("citation", "a.py", "# design" + " section 3"),
        ("person", "a.py", "# wh" + "oever asks"),
        ("person", "a.sh", "no" + "body waits"),
        ("long name", "a.py", f"def test_{'x' * 60}(): ..."),
    ],
)
def test_a_habit_is_counted(kind: str, path: str, line: str) -> None:
    assert [each.kind for each in ratchet.found_in(path, line + "\n")] == [kind]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("a.py", '"""The broker that leads."""'),
        ("a.py", "whole = 1  # KIP-320, 3.6 MB, wholesale"),
        ("a.proto", "// The id.\n// What follows is the same comment."),
        ("a.py", "def test_follower_truncates(): ..."),
    ],
)
def test_plain_english_is_not(path: str, line: str) -> None:
    assert list(ratchet.found_in(path, line + "\n")) == []


def test_counts_that_stay_pass(tree: Path) -> None:
    done = run(tree)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_count_that_rises_fails_and_is_never_recorded(tree: Path) -> None:
    (tree / "services/a.py").write_text('"""What it does."""\n\n\ndef f():\n    """How it does."""\n')
    recorded = (tree / ratchet.COUNTS).read_text()
    for arguments in ((), ("--write",)):
        done = run(tree, *arguments)
        assert done.returncode == 1
        assert "services/a.py: 2 times, at most 1: begin the docstring with its subject (lines 1, 5)" in done.stdout
    assert (tree / ratchet.COUNTS).read_text() == recorded


def test_a_new_file_starts_at_zero(tree: Path) -> None:
    (tree / "services/b.py").write_text('"""What it does."""\n')
    done = run(tree)
    assert done.returncode == 1 and "services/b.py: 1 times, at most 0" in done.stdout


def test_a_moved_file_takes_its_counts_along(tree: Path) -> None:
    git(tree, "mv", "services/a.py", "services/c.py")
    assert run(tree).returncode == 1
    assert run(tree, "--write").returncode == 0
    assert '"c.py"' in (tree / ratchet.COUNTS).read_text() and run(tree).returncode == 0


def test_a_count_that_falls_has_to_be_recorded(tree: Path) -> None:
    (tree / "services/a.py").write_text('"""The module."""\n')
    done = run(tree)
    assert done.returncode == 1 and "lower counts are not recorded" in done.stdout
    assert run(tree, "--write").returncode == 0 and run(tree).returncode == 0
    (tree / "services/a.py").write_text('"""What it does."""\n')
    assert run(tree).returncode == 1
