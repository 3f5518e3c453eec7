"""scripts/run_tests.py: what its tiers say at the end, what they leave out, and how a gate goes on."""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.scripts import ROOT, load_script

tiers = load_script("run_tests")
PYTHON = sys.executable


def results_of(tmp_path: Path, *lines: str) -> tiers.Results:
    results = tiers.Results(tmp_path / "results")
    results.file.write_text("".join(f"{line}\n" for line in lines))
    return results


def run(tmp_path: Path, *steps: tiers.Step, passed: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    return [(done.step.name, done.outcome) for done in tiers.run(steps, results_of(tmp_path), passed)]


def test_every_step_runs_and_one_that_fails_is_named(tmp_path: Path) -> None:
    good, bad = tiers.Step("good", ("true",)), tiers.Step("bad", ("false",))
    assert run(tmp_path, bad, good) == [("bad", "FAILED"), ("good", "passed")]


def test_tests_on_processes_are_where_they_are_looked_for() -> None:
    paths = (ROOT / "tests/unit").rglob("test_*.py")
    marked = [path for path in paths if re.search(r"mark\.(smoke|integration)\b", path.read_text())]
    folders = [ROOT / folder for folder in tiers.WITH_PROCESSES]
    assert marked and all(any(map(path.is_relative_to, folders)) for path in marked)


def test_what_is_compiled_is_kept() -> None:
    """Also where a machine forbids it: pytest would rewrite every test again in each of its processes."""
    assert not sys.dont_write_bytecode
    child = (PYTHON, "-c", "import sys; sys.exit(sys.dont_write_bytecode)")
    assert subprocess.run(child, check=False).returncode == 0


def test_a_step_beside_another_is_shown_after_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    beside = tiers.Step("beside", ("echo", "of the first"), beside=True)
    assert run(tmp_path, beside, tiers.Step("main", ("echo", "of the second"))) == [
        ("main", "passed"),
        ("beside", "passed"),
    ]
    assert capfd.readouterr().out == "== main\nof the second\n== beside\nof the first\n"


def test_what_a_machine_lacks_is_left_out_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiers.MISSING, "java", lambda: "there is no java")
    assert run(tmp_path, tiers.Step("real", ("false",), needs="java")) == [("real", "not run: there is no java")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "there is no java, and ZooKeeper and Spark need Java 17"),
        ('openjdk version "11.0.2" 2019-01-15', "java is version 11, and"),
        ('openjdk version "21" 2023-09-19', ""),
    ],
)
def test_java_is_looked_at(line: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "answer", lambda *command: line)
    assert tiers.without_java().startswith(reason) and bool(tiers.without_java()) is bool(reason)


def test_a_full_disk_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers.shutil, "disk_usage", lambda place: SimpleNamespace(free=1 << 29))
    assert "has 0.5 GiB left, and tests need 2" in tiers.full_disk()


def test_the_end_names_slow_skipped_and_failed_tests() -> None:
    rows = [{"test": f"t{number}", "outcome": "passed", "seconds": float(number), "why": ""} for number in range(11)]
    rows += [{"test": f"s{number}", "outcome": "skipped", "seconds": 0.0, "why": "no browser"} for number in range(5)]
    rows += [{"test": "f", "outcome": "failed", "seconds": 0.5, "why": "(call) assert 1 == 2"}]
    done = tiers.Done(tiers.Step("unit tests", ()), "FAILED", 61.04, Counter(passed=11, failed=1))
    text = "\n".join(tiers.summary([done], rows))
    assert text.startswith("the 10 slowest tests:\n     10.0 s  t10\n") and "  t0\n" not in text
    assert "skipped: no browser\n  s0\n  s1\n  s2\n  and 2 more\n" in text
    assert "FAILED:\n  f: (call) assert 1 == 2\n" in text
    assert text.endswith("  unit tests     61.0 s  FAILED (1 failed, 11 passed)")


def test_the_end_shows_the_last_result_of_a_test() -> None:
    rows = [{"test": "t", "outcome": outcome, "seconds": 0.1, "why": "x"} for outcome in ("failed", "passed")]
    assert "FAILED" not in "\n".join(tiers.summary([tiers.Done(tiers.Step("tests", ()), "passed")], rows))


def test_a_gate_goes_on_with_what_has_not_passed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_a(): pass\ndef test_b(): assert (1, 2) == (1, 3)\n")
    command = (*tiers.PYTEST, "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "conftest")
    step = tiers.Step("tests", (*command, str(tmp_path)))
    results = results_of(tmp_path)
    (first,) = tiers.run([step], results, frozenset())
    assert (first.outcome, first.counts) == ("FAILED", Counter(passed=1, failed=1))
    (tmp_path / "test_it.py").write_text("def test_a(): assert False\ndef test_b(): pass\n")
    (second,) = tiers.run([step], results, frozenset())
    assert (second.outcome, second.counts) == ("passed", Counter(passed=1)), "what has passed does not run again"
    assert [each["outcome"] for each in results.read()] == ["passed", "failed", "passed"]
    assert run(tmp_path, step, passed=frozenset({"tests"})) == [("tests", "passed before")]


def test_every_marker_of_a_tier_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    names = {each.partition(":")[0].partition("(")[0] for each in declared}
    steps = [step for steps in tiers.TIERS.values() for step in steps if "-m" in step.command[3:]]
    used = {word for step in steps for word in step.command[step.command.index("-m", 3) + 1].split()}
    assert used - {"and", "not", "or"} <= names


def test_a_tier_that_is_not_there_is_refused() -> None:
    done = subprocess.run([PYTHON, ROOT / "scripts/run_tests.py", "all"], capture_output=True, text=True)
    assert done.returncode == 2 and "invalid choice: 'all'" in done.stderr
