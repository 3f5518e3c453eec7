"""The `sh` and `python` blocks of README and guides work in the order in which they stand, on a local cluster."""

import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from helpers.cluster import processes_of
from helpers.scripts import ROOT
from tidelog.ids import LOCALHOST

pytestmark = pytest.mark.integration

PAGES: Final = ["README.md", *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")))]
WHY_NOT: Final = {
    "needs-engine": "needs a Docker engine",
    "minutes": "takes minutes, or does not end by itself",
    "root": "acts as root",
    "fragment": "is a part of a program",
}
"""Words after the fence of a block that is left out."""
PRINTED: Final = {"README.md": "100000", "docs/guide/client.md": "1000 records"}
"""A line of what the commands of a page print."""
_BLOCK: Final = re.compile(r"^```(sh|python)\b *([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SERVERS: Final = """$(tidelog local status --format json | python -c '
import json, sys
print(",".join(row["addresses"]["EXTERNAL"] for row in json.load(sys.stdin) if "EXTERNAL" in row["addresses"]))')"""


class Block(NamedTuple):
    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], tuple(found[2].split()), found[3])
        for found in _BLOCK.finditer(text)
    ]


def program(page: str) -> str:
    """A script that runs what is not left out, and says before each block where it stands. Jobs are controlled as in a
    user's shell: without `set -m` a background job ignores SIGINT."""
    lines = ["set -m", f". {ROOT}/.venv/bin/activate", *([] if page == "README.md" else ["tidelog local up"])]
    for block in blocks(page):
        if block.words:
            continue
        lines.append(f"echo '== {block.page}:{block.line}'")
        if block.language == "sh":
            lines.append(block.text)
        else:
            lines.append(f"TIDELOG_BOOTSTRAP_SERVERS={_SERVERS} python - <<'PYTHON'\n{block.text}PYTHON")
    return "\n".join(lines)


@contextmanager
def ports_of_users_taken() -> Iterator[None]:
    """A cluster that starts meanwhile leaves the ports alone at which a user's own may be expected."""
    with ExitStack() as stack:
        for address in LOCALHOST:
            taken = stack.enter_context(socket.socket())
            with suppress(OSError):
                taken.bind(("127.0.0.1", address.port))
        yield


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A directory that looks like a clone; the data of its cluster is its own."""
    for each in ROOT.iterdir():
        if each.name not in ("data", ".git"):
            (tmp_path / each.name).symlink_to(each)
    yield tmp_path
    subprocess.run(
        [ROOT / ".venv/bin/tidelog", "local", "down"], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    left = processes_of(tmp_path)
    for process in left:
        process.kill()
    assert left == []


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=pytest.mark.smoke if page == "README.md" else pytest.mark.spark if "pipeline" in page else ()
        )
        for page in PAGES
        if any(not block.words for block in blocks(page))
    ],
)
def test_commands_of_a_page_work(page: str, clone: Path) -> None:
    with ports_of_users_taken():
        ran = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", program(page)],
            cwd=clone,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=360,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert "Traceback" not in ran.stdout
    assert PRINTED.get(page, "== ") in ran.stdout


def test_blocks_that_are_left_out_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    every = [block for page in PAGES for block in blocks(page)]
    out = Counter(WHY_NOT[block.words[0]] for block in every if block.words)
    with capsys.disabled():
        sys.stdout.write(
            f"\nblocks of the docs: {len(every) - out.total()} are run, {out.total()} are left out: {dict(out)}\n"
        )
    assert all(word in WHY_NOT for block in every for word in block.words)
