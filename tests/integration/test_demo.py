"""`make demo` as a process: a small run ends well, a refused line and Ctrl-C end as documented, and nothing is left."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from helpers.cluster import processes_of
from helpers.requirements import requirement
from tidelog.cluster.wait import until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, str(ROOT / "scripts" / "demo.py")]


def demo(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([*DEMO, *arguments], capture_output=True, text=True, timeout=200, check=False)
    return done.returncode, done.stderr + done.stdout


def page(output: str) -> str:
    """The text of the page whose path is told near the end; it is not kept."""
    (found,) = re.findall(r"^The whole run on one page: (.+)$", output, re.MULTILINE)
    path = Path(found)
    text = path.read_text()
    assert path.parent.parent == ROOT / "data" / "chaos"
    shutil.rmtree(path.parent)
    return text


def row(output: str, name: str) -> str:
    found = re.search(rf"│ {re.escape(name)} +│ +(\S+)", output)
    assert found, f"no row {name!r} in:\n{output}"
    return found[1]


@requirement("A published message survives failures of servers")
@requirement("After a leader crash the next leader serves acknowledged messages")
@requirement("A killed leader loses no acknowledged record")
def test_a_leader_dies_and_nothing_is_lost() -> None:
    code, output = demo("--records", "20000")
    assert code == 0, output
    assert re.search(r"kill leader of 0: broker-\d killed after 1\d,\d{3} records", output)
    assert (row(output, "sent"), row(output, "acknowledged"), row(output, "refused")) == ("20,000", "20,000", "0")
    assert (row(output, "lost"), row(output, "duplicated"), row(output, "out of order")) == ("0", "0", "0")
    for reader in ("reader-1", "reader-2", "spark"):
        assert row(output, f"read by {reader}") == "20,000"
    assert int(row(output, "elections")) >= 4  # a third of 12 partitions at least
    assert re.search(r"kill agent-1: agent-1 killed after 1\d,\d{3} records", output)
    assert re.search(r"agent-2 owns partitions 0 1 2 3 4 5 6 7 8 9 10 11$", output, re.MULTILINE)
    assert re.search(r"taken over by agent-2 after \d+\.\d\d s", output)
    (again,) = re.findall(r"│ processed again +│ +│ +│ +([\d,]+) │", output)
    first, second, both = re.findall(r"│ records processed +│ +([\d,]+) │ +([\d,]+) │ +([\d,]+) │", output)[0]
    counts = [int(each.replace(",", "")) for each in (first, second, both, again)]
    assert counts[0] + counts[1] == counts[2] == 20_000 + counts[3]
    assert "SOUND: none of " in output
    text = page(output)
    assert 'class="verdict good"' in text and "kill leader of 0" in text and "kill agent-1" in text


def test_lines_of_any_bytes_and_a_line_over_the_limit(tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.write_bytes(b"\x00\xff\n\n" + b"x" * 2_000_000 + b"\n" + b"line\r\n" * 5_000 + b"no newline at the end")
    code, output = demo("--input", str(source))
    assert code == 2, output
    assert (row(output, "sent"), row(output, "acknowledged"), row(output, "refused")) == ("5,004", "5,003", "1")
    assert (row(output, "lost"), row(output, "out of order")) == ("0", "0")
    assert "1 were refused, 0 not answered" in output
    assert 'class="verdict good"' in page(output)


def test_ctrl_c_leaves_no_process_and_no_files() -> None:
    runs = ROOT / "data" / "chaos"
    before = set(runs.glob("demo-*"))
    run = subprocess.Popen(
        [*DEMO, "--records", "100000000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:

        def streaming() -> set[Path]:
            return {path.parent for path in runs.glob("demo-*/history.jsonl")} - before

        until(lambda: bool(streaming()), "the stream", timeout_s=60.0)
        (base,) = streaming()
        assert len(processes_of(base)) >= 8
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(30.0) == 130
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    until(lambda: processes_of(base) == [], "the end of every process", timeout_s=15.0)
    assert not base.exists()
    mine = psutil.Process().children(recursive=True)
    assert not any(process in mine for process in processes_of(base))
