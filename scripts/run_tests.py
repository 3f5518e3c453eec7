#!/usr/bin/env python3
"""The tiers of tests: `run_tests.py quick|test|integration|spark|compose|gate`.

A tier is a row of steps, each a command. What this machine cannot run is left out with its reason. At the end stand the steps
with their times, the ten slowest tests, the skipped ones with their reasons, and the failed ones. Non-zero if anything failed.

`gate` keeps what has passed in build/gate/ and goes on from there when it is started again on the same commit with a clean tree;
in any other case it begins anew.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "build" / "gate"
PYTEST: Final = (sys.executable, "-m", "pytest", "-q", "--tb=short", "-rfE", "--no-header")
SEEDS: Final = 25
FREE_BYTES: Final = 2 << 30
SLOWEST: Final = 10
REASONS: Final = 3
"""Skipped tests that are named for each reason."""
PROCESSES: Final = "not spark and not compose"
"""Tests on real processes of this machine that need no Spark."""
WITH_PROCESSES: Final = ("tests/integration", "tests/unit/meta")
"""Folders of such tests: to collect all of tests/unit takes ten seconds."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    command: tuple[str, ...]
    needs: str = ""
    """A key of MISSING."""
    is_set_up: bool = False
    beside: bool = False
    """It runs beside the next step, and what it prints is shown after it."""


@dataclass(slots=True)
class Done:
    step: Step
    outcome: str
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


def tests(name: str, *arguments: str, needs: str = "") -> Step:
    return Step(name, (*PYTEST, *arguments), needs)


CHECK: Final = Step("check", ("scripts/check.sh",), beside=True)
UNIT: Final = tests("unit tests", "-n", "auto", "-m", "not integration and not compose", "tests/unit")
QUICK_UNIT: Final = tests(
    "unit tests", "-n", "auto", "-m", "not integration and not compose and not exhaustive", "tests/unit"
)
IMAGES: Final = Step("images", ("scripts/images.sh", "--quiet"), needs="engine", is_set_up=True)
SPARK_IMAGE: Final = Step("image of Spark", ("scripts/images.sh", "--quiet", "spark-master"), "engine", is_set_up=True)
QUICK: Final = (CHECK, QUICK_UNIT)
INTEGRATION: Final = (
    tests("integration", "-m", f"integration and {PROCESSES}", *WITH_PROCESSES, needs="java"),
    tests("benchmarks", "tests/bench_smoke", needs="java"),
)
SPARK: Final = (tests("Spark", "-m", "spark and not compose", "tests/integration", needs="java"),)
COMPOSE: Final = (
    IMAGES,
    SPARK_IMAGE,
    tests("Compose", "-m", "compose", "tests/compose", "tests/integration", needs="engine"),
)
TIERS: Final[Mapping[str, tuple[Step, ...]]] = {
    "quick": QUICK,
    "test": (
        IMAGES,
        CHECK,
        UNIT,
        tests("models", "-n", "auto", "-m", "not gate", "tests/model", "tests/sim"),
        Step("seeds", (sys.executable, "-m", "tidelog.testing.sim", "--seeds", str(SEEDS))),
        tests("smoke", "-m", f"smoke and {PROCESSES}", *WITH_PROCESSES, needs="java"),
        tests("smoke: Spark", "-m", "smoke and spark and not compose", "tests/integration", needs="java"),
        tests("smoke: Compose", "-m", "smoke and compose", "tests/compose", needs="engine"),
    ),
    "integration": INTEGRATION,
    "spark": SPARK,
    "compose": COMPOSE,
    "gate": (
        CHECK,
        UNIT,
        tests("models, seeds, mutants", "tests/model", "tests/sim"),
        *INTEGRATION,
        *SPARK,
        *COMPOSE,
    ),
}


def answer(*command: str) -> str:
    """The first line that `command` prints, "" if it does not run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=15)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout or done.stderr).strip().partition("\n")[0] if done.returncode == 0 else ""


def without_java() -> str:
    version = re.search(r'version "(\d+)', answer("java", "-version"))
    if version and int(version[1]) >= 17:
        return ""
    found = f"java is version {version[1]}" if version else "there is no java"
    return f"{found}, and ZooKeeper and Spark need Java 17 (Debian: apt-get install openjdk-17-jre-headless)"


def without_engine() -> str:
    if not answer("docker", "version", "--format", "{{.Server.Version}}"):
        return "no Docker engine answers (scripts/docker_engine.sh can get one)"
    if not answer("docker", "compose", "version"):
        return "'docker compose' (v2) is missing (scripts/docker_engine.sh can get it)"
    return ""


MISSING: Final = {"java": without_java, "engine": without_engine}


def full_disk() -> str:
    """The reason for which tests would fail for want of room, or ""."""
    for place in (ROOT, Path(tempfile.gettempdir())):
        if (free := shutil.disk_usage(place).free) < FREE_BYTES:
            return f"{place} has {free / 2**30:.1f} GiB left, and tests need {FREE_BYTES >> 30}"
    return ""


class Results:
    """Results of the tests of a run: a line of JSON each, which tests/conftest.py writes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()

    def read(self) -> list[dict[str, str | float]]:
        return [json.loads(line) for line in self.file.read_text().splitlines() if line.endswith("}")]


def timed(step: Step, environment: Mapping[str, str], output: Path | None) -> tuple[int, float]:
    """Exit code, and seconds of wall time. What the step prints goes to the file `output`, or straight on."""
    began = time.monotonic()
    if output is None:
        code = subprocess.run(step.command, cwd=ROOT, env=environment).returncode
    else:
        with output.open("w") as file:
            code = subprocess.run(step.command, cwd=ROOT, env=environment, stdout=file, stderr=file).returncode
    return code, time.monotonic() - began


def ended(step: Step, code: int, seconds: float, counts: Counter[str]) -> Done:
    # 5: pytest found nothing to run, as when everything has passed before the interruption.
    good = code == 0 or (code == 5 and "pytest" in step.command)
    return Done(step, "passed" if good else "FAILED", seconds, counts)


def run(steps: Sequence[Step], results: Results, passed: frozenset[str]) -> Iterator[Done]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "TEST_RESULTS": str(results.file), "PATH": path}
    missing = {need: MISSING[need]() for need in {step.needs for step in steps} - {""}}
    beside: list[tuple[Step, Future[tuple[int, float]], Path]] = []
    with ThreadPoolExecutor() as pool:
        for step in steps:
            if step.name in passed:
                yield Done(step, "passed before")
            elif reason := missing.get(step.needs, ""):
                yield Done(step, f"not run: {reason}")
            elif step.beside:
                output = results.file.with_suffix(f".{step.name}")
                beside.append((step, pool.submit(timed, step, environment, output), output))
                continue
            else:
                print(f"== {step.name}", flush=True)
                before = len(results.read())
                code, seconds = timed(step, environment, None)
                yield ended(step, code, seconds, Counter(str(each["outcome"]) for each in results.read()[before:]))
            for other, future, output in beside:
                code, seconds = future.result()
                print(f"== {other.name}\n{output.read_text()}", end="", flush=True)
                yield ended(other, code, seconds, Counter())
            beside.clear()


def summary(steps: Sequence[Done], lines: Sequence[Mapping[str, str | float]]) -> Iterator[str]:
    """`lines`: a test that has run again counts as it ended last."""
    results = {each["test"]: each for each in lines}.values()
    slow = sorted(results, key=lambda each: -float(each["seconds"]))[:SLOWEST]
    if slow:
        yield f"the {len(slow)} slowest tests:"
    yield from (f"  {float(each['seconds']):7.1f} s  {each['test']}" for each in slow)
    skipped: dict[str, list[str]] = {}
    for each in results:
        if each["outcome"] == "skipped":
            skipped.setdefault(str(each["why"]), []).append(str(each["test"]))
    for reason, names in skipped.items():
        yield f"skipped: {reason}"
        yield from (f"  {name}" for name in names[:REASONS])
        if len(names) > REASONS:
            yield f"  and {len(names) - REASONS} more"
    if failed := [each for each in results if each["outcome"] == "failed"]:
        yield "FAILED:"
        yield from (f"  {each['test']}: {each['why']}" for each in failed)
    width = max(len(done.step.name) for done in steps)
    for done in steps:
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(done.counts.items()))
        kind = "set-up " if done.step.is_set_up else ""
        yield f"  {done.step.name:<{width}}  {done.seconds:7.1f} s  {kind}{done.outcome}{f' ({counts})' if counts else ''}"


def unchanged_commit() -> str:
    """The commit, or "" where the tree has changes."""
    git = ("git", "-c", "safe.directory=*")
    return "" if answer(*git, "status", "--porcelain") else answer(*git, "rev-parse", "HEAD")


def kept(commit: str) -> tuple[Path, frozenset[str]]:
    """The file of results of this commit's gate, and the steps that have passed."""
    folder = KEPT / (commit or "changed")
    if not commit:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    steps = folder / "steps"
    return folder / "results", frozenset(steps.read_text().splitlines() if steps.exists() else ())


def main() -> int:
    parser = argparse.ArgumentParser(prog="run_tests.py", description=__doc__)
    parser.add_argument("tier", choices=TIERS)
    tier = parser.parse_args().tier
    if reason := full_disk():
        print(f"test: {reason}")
        return 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidelog-tests-") as folder:
        file, passed = kept(unchanged_commit()) if tier == "gate" else (Path(folder, "results"), frozenset[str]())
        results = Results(file)
        steps = []
        try:
            for done in run(TIERS[tier], results, passed):
                steps.append(done)
                if tier == "gate" and done.outcome == "passed":
                    with file.with_name("steps").open("a") as out:
                        out.write(f"{done.step.name}\n")
        except KeyboardInterrupt:
            print(f"test: interrupted after {time.monotonic() - began:.0f} s")
            return 130
        print(f"== {tier}")
        print("\n".join(summary(steps, results.read())))
    failed = sum(done.outcome == "FAILED" for done in steps)
    set_up = sum(done.seconds for done in steps if done.step.is_set_up)
    took = time.monotonic() - began
    print(
        f"{tier}: {f'{failed} steps FAILED' if failed else 'all passed'} in {took - set_up:.0f} s, set-up {set_up:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
