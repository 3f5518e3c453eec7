"""scripts/setup.sh with programs that only note how they are called: nothing is installed, and no network is needed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.scripts import ROOT

LOCK = """\
kazoo==2.11.0 \\
    --hash=sha256:aa
setuptools==80.0 \\
    --hash=sha256:bb
uv==0.13.8 \\
    --hash=sha256:cc \\
    --hash=sha256:dd
uvloop==0.23.0 \\
    --hash=sha256:ee
"""
PROGRAM = f"""\
#!/bin/bash
# python and uv: each call but a look at the interpreter is a line of $CALLS, with the packages of its requirements file.
case "${{0##*/}} $*" in
    "uv --version") echo "$UV_SAYS"; exit ;;
    python*" -c "* | python*" --version") exec {sys.executable} "$@" ;;
    python*" -m venv --without-pip .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python; exit ;;
    python*" scripts/uv_settings.py "*) shift; exec "$@" ;;
esac
line="${{0##*/}} $*"
while [[ $# -gt 0 && $1 != -r ]]; do shift; done
[[ $# == 0 ]] || line="${{line/ -r*}} [$(sed -n 's/==.*//p' "$2" | xargs)]"
echo "${{line#python -m }}" >>"$CALLS"
trap 'exit 2' INT
if [[ $HANGS && $line =~ $HANGS ]]; then while [[ ! -e $CALLS.go ]]; do sleep 0.02; done; fi
if [[ $FAILS && $line =~ $FAILS ]]; then echo "$SAYS" >&2; exit 1; fi
"""
UV_BY_PIP = "pip install --quiet --require-hashes --only-binary :all: [uv]"
ALL = [
    "pip install --quiet --require-hashes --no-deps [setuptools]",
    "pip install --quiet --require-hashes --no-deps --no-build-isolation [kazoo setuptools uv uvloop]",
    "pip install --quiet --no-deps --no-build-isolation -e .",
]
ALL_BY_UV = [f"uv {call}" for call in ALL]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
MAKES = f"setup: .venv from Python {VERSION}"
INSTALLS = "setup: installing the packages of requirements.lock (the first time about 700 MB)"
DONE = "setup: done"
AGAIN = "remove it or move it away, then run this again"
REFUSED = "Retrying after connection broken by 'NewConnectionError('<x>: Failed: [Errno 111] Connection refused')': /x/"
NO_INDEX = (
    "setup: no package index answers (Connection refused): is there a network, "
    "and does 'pip config list' show the right index?"
)


@dataclass
class Clone:
    """A checkout with the two scripts, and the programs that they find on PATH."""

    path: Path
    programs: Path

    def start(self, **environ: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
        given = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "CALLS": str(self.programs / "calls"),
            "JAVA_HOME": str(self.programs),
            **dict.fromkeys(("UV_SAYS", "HANGS", "FAILS", "SAYS"), ""),
        }
        return subprocess.Popen(
            [self.path / "scripts" / "setup.sh"],
            env={**kept, **given, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, **environ: str) -> tuple[int, list[str]]:
        with self.start(**environ) as process:
            return ended(process)

    def taken_calls(self) -> list[str]:
        """The calls since the last time."""
        file = self.programs / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def wait_for_call(self, words: str) -> None:
        deadline = time.monotonic() + 20
        while words not in ((self.programs / "calls").read_text() if (self.programs / "calls").exists() else ""):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def program(self, name: str, text: str = PROGRAM) -> None:
        (self.programs / name).parent.mkdir(exist_ok=True)
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The exit code and the lines that were printed, without the time."""
    said, _ = process.communicate(timeout=30)
    return process.returncode, [
        line.partition(" in ")[0] if line.startswith(DONE) else line for line in said.splitlines()
    ]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    made = Clone(tmp_path / "clone", tmp_path / "programs")
    (made.path / "scripts").mkdir(parents=True)
    for name in ("setup.sh", "uv_settings.py"):
        shutil.copy(ROOT / "scripts" / name, made.path / "scripts")
    (made.path / "requirements.lock").write_text(LOCK)
    (made.path / "pyproject.toml").write_text("")
    made.program("python3.11")
    made.program("uv")
    made.program("bin/java", "#!/bin/sh\necho 'openjdk version \"17.0.1\" 2021-10-19' >&2\n")
    return made


@pytest.fixture
def done(clone: Clone) -> Clone:
    """A clone that is set up, and a file in its .venv that goes when that is made anew."""
    assert clone.run()[0] == 0
    clone.taken_calls()
    (clone.path / ".venv" / "kept").touch()
    return clone


def is_kept(clone: Clone) -> bool:
    return (clone.path / ".venv" / "kept").exists()


def change_lock(clone: Clone) -> None:
    (clone.path / "requirements.lock").write_text(LOCK.replace("2.11.0", "2.12.0"))


@pytest.mark.parametrize("version", ["", "uv 0.7.22", "no such thing"])
def test_uv_of_the_lock_file_installs_everything(clone: Clone, version: str) -> None:
    assert clone.run(UV_SAYS=version) == (0, [MAKES, INSTALLS, DONE])
    assert clone.taken_calls() == [UV_BY_PIP, *ALL_BY_UV]
    assert clone.run() == (0, [])
    assert clone.taken_calls() == []


@pytest.mark.parametrize("version", ["uv 0.8.0", "uv 0.13.8 (x86_64-unknown-linux-gnu)", "uv 1.0.0"])
def test_a_recent_uv_on_the_path_is_taken(clone: Clone, version: str) -> None:
    assert clone.run(UV_SAYS=version) == (0, [MAKES, INSTALLS, DONE])
    assert clone.taken_calls() == ALL_BY_UV


def test_what_has_changed_is_installed_over_it(done: Clone) -> None:
    change_lock(done)
    assert done.run() == (0, [INSTALLS, DONE]) and is_kept(done)
    assert done.taken_calls() == [UV_BY_PIP, *ALL_BY_UV]


def test_pip_installs_all_but_uv_where_there_is_none(clone: Clone) -> None:
    said = "ERROR: No matching distribution found for uv==0.13.8"
    line = f"setup: uv cannot install them ({said[7:]}): pip does, which takes longer"
    assert clone.run(FAILS="only-binary", SAYS=said) == (0, [MAKES, INSTALLS, line, DONE])
    assert clone.taken_calls() == [UV_BY_PIP, *(call.replace(" uv ", " ") for call in ALL)]


def test_pip_is_asked_once_where_uv_fails(clone: Clone) -> None:
    said = "error: Failed to fetch\n  cause: tcp connect error"
    line = "setup: uv cannot install them (tcp connect error): pip does, which takes longer"
    assert clone.run(FAILS="uv pip.*isolation", SAYS=said) == (0, [MAKES, INSTALLS, line, DONE])
    assert clone.taken_calls() == [UV_BY_PIP, *ALL_BY_UV[:2], *ALL]


def test_an_error_of_pip_is_shown_whole(clone: Clone) -> None:
    line = "setup: uv cannot install them (last): pip does, which takes longer"
    last = "setup: pip could not install requirements.lock; the reason is above"
    assert clone.run(FAILS="kazoo", SAYS="first\nlast") == (1, [MAKES, INSTALLS, line, "first", "last", last])


def test_no_network_is_one_line(clone: Clone) -> None:
    assert clone.run(FAILS="pip", SAYS=REFUSED) == (1, [MAKES, INSTALLS, NO_INDEX])
    assert clone.taken_calls() == [UV_BY_PIP]


def test_without_a_network_what_was_there_stays(done: Clone) -> None:
    change_lock(done)
    for _ in range(2):
        assert done.run(FAILS="pip", SAYS=REFUSED) == (1, [INSTALLS, NO_INDEX]) and is_kept(done)


def test_a_full_disk_is_one_line(clone: Clone) -> None:
    said = "error: Failed to install: x\n  cause: failed to copy: No space left on device (os error 28)\n"
    line = "setup: a disk is full: failed to copy: No space left on device (os error 28)"
    assert clone.run(FAILS="uv pip", SAYS=said) == (1, [MAKES, INSTALLS, line])


def test_another_python_is_refused_in_one_line(clone: Clone) -> None:
    clone.program("python3.10", f'#!/bin/bash\nexec {sys.executable} -c "import sys; sys.version_info = (3, 10); $2"\n')
    code, (line,) = clone.run(PYTHON="python3.10")
    assert code == 1 and line.startswith("setup: needs Python 3.11, 3.12 or 3.13, and PYTHON=python3.10 is not that (")
    assert not (clone.path / ".venv").exists()


@pytest.mark.parametrize("how", ["copied", "moved", "linked"])
def test_a_venv_of_another_checkout_is_left_alone(done: Clone, how: str) -> None:
    other = Clone(done.path.with_name("other"), done.programs)
    if how == "moved":
        done.path.rename(other.path)
    else:
        shutil.copytree(done.path, other.path)
    if how == "linked":
        shutil.rmtree(other.path / ".venv")
        (other.path / ".venv").symlink_to(done.path / ".venv")
    change_lock(other)
    assert other.run() == (1, [f"setup: .venv belongs to {done.path} (copied or moved?): {AGAIN}"])
    assert is_kept(other) and other.taken_calls() == []


@pytest.mark.parametrize("activate", ['VIRTUAL_ENV="{}"', "VIRTUAL_ENV='{}'", "    export VIRTUAL_ENV={}"])
def test_a_venv_that_another_tool_made_elsewhere(done: Clone, activate: str) -> None:
    (done.path / ".venv" / ".set-up").unlink()
    (done.path / ".venv" / "bin" / "activate").write_text(f"x=1\n{activate.format('/else where/.venv')}\n")
    assert done.run() == (1, [f"setup: .venv belongs to /else where (copied or moved?): {AGAIN}"])


def test_a_link_to_where_nothing_is(clone: Clone) -> None:
    (clone.path / ".venv").symlink_to("/no/such/venv")
    assert clone.run() == (1, [f"setup: .venv belongs to /no/such (copied or moved?): {AGAIN}"])


def test_a_venv_that_another_tool_made_here_is_used(done: Clone) -> None:
    (done.path / ".venv" / ".set-up").unlink()
    (done.path / ".venv" / "bin" / "activate").write_text(f"VIRTUAL_ENV='{done.path}/.venv'\n")
    line = (
        "setup: .venv was made by something else: the packages go into it, and later runs take it for one of their own"
    )
    assert done.run() == (0, [line, INSTALLS, DONE]) and is_kept(done)
    assert done.run() == (0, [])


def test_one_that_has_no_python_is_left_alone(done: Clone) -> None:
    (done.path / ".venv" / ".set-up").unlink()
    (done.path / ".venv" / "bin" / "python").unlink()
    line = "setup: .venv was made by something else and has no Python 3.11, 3.12 or 3.13 that runs"
    assert done.run() == (1, [f"{line}: {AGAIN}"]) and is_kept(done)


def test_a_venv_whose_python_is_gone_is_made_anew(done: Clone) -> None:
    (done.path / ".venv" / "bin" / "python").unlink()
    assert done.run() == (0, [MAKES, INSTALLS, DONE]) and not is_kept(done)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("where", ["pip install.*only-binary", "uv pip.*kazoo"])
def test_an_interrupted_set_up_is_made_anew(clone: Clone, how: signal.Signals, where: str) -> None:
    with clone.start(HANGS=where) as process:
        clone.wait_for_call(where.rpartition("*")[2])
        (clone.path / ".venv" / "kept").touch()
        os.killpg(process.pid, how)
        code, said = ended(process)
    assert (code, said) == (130 if how == signal.SIGINT else -how, [MAKES, INSTALLS])
    assert clone.run() == (0, [MAKES, INSTALLS, DONE]) and not is_kept(clone)


def test_the_second_of_two_waits_and_finds_it_done(clone: Clone) -> None:
    with clone.start(HANGS="uv pip.*kazoo") as first:
        clone.wait_for_call("kazoo")
        with clone.start() as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "setup: another set-up is under way here: waiting for it\n"
            (clone.programs / "calls.go").touch()
            assert ended(first) == (0, [MAKES, INSTALLS, DONE])
            assert ended(second) == (0, [])
    assert clone.taken_calls() == [UV_BY_PIP, *ALL_BY_UV]


@pytest.mark.parametrize(
    ("version", "told"),
    [("11.0.2", " ({} is version 11.0.2)"), ("1.8.0_392", " ({} is version 1.8.0_392)"), (None, "")],
)
def test_without_java_it_warns_and_goes_on(clone: Clone, version: str | None, told: str) -> None:
    clone.program(
        "bin/java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n" if version else "#!/bin/sh\nexit 1\n"
    )
    code, said = clone.run()
    line = f"setup: no Java 17 or later{told.format(clone.programs / 'bin' / 'java')}: clusters of processes and Spark need it"
    assert code == 0 and said[2].startswith(line) and [*said[:2], *said[3:]] == [MAKES, INSTALLS, DONE]
